/* tests/sim/delivery_check.h - the promises of delivery.md, read off the broker's topics and commits alone. It shares no
 * code with the queue: its own reader of the commit metadata, its own notion of what is answered.
 *   I1 each record has exactly one result, at the end      I2 no result without a record      I3 none twice
 *   I4 the committed LWM is not beyond a record without a result      I5 no bit without a result
 *   I6 the text is what an undisturbed run gives           I10 no healthy record among the dead letters
 * A result counts from the decision of its transaction on, whether or not its marker has arrived. Threads: one. */
#ifndef TESTS_SIM_DELIVERY_CHECK_H
#define TESTS_SIM_DELIVERY_CHECK_H

#include "base/status.h"
#include "tests/sim/model_broker.h"

struct check_input {
    int64_t offset;
    bool null, answered, excused;      /* excused: compacted or deleted before it was answered, or its partition stopped */
    bool compacted;
    char *value; size_t value_n;
    int32_t saved_n;                   /* the worker's: tokens of it that the store is known to have */
    bool rotten;                       /* ... though damaged somewhere, until it is written anew */
};

struct check {
    struct broker *broker;
    bool huge_is_dead;                 /* kafka_oversize "dead"; otherwise such outputs are shortened */
    bool doubles;                      /* at least once: I3 is not promised */
    bool stopped[BROKER_PARTITIONS_MAX];      /* by right: its records are excused from I1 and I12 */
    struct check_input *input[BROKER_PARTITIONS_MAX];
    size_t inputs_n[BROKER_PARTITIONS_MAX];
    struct check_seen { bool *counted; size_t room, settled_i; } seen[BROKER_TOPICS_N][BROKER_PARTITIONS_MAX];
    int64_t order[BROKER_PARTITIONS_MAX];      /* of the commit that was looked at last */
    int64_t looked_n;                  /* broker changes so far looked at */
    int64_t open_n, inputs_all_n;      /* without a result and not excused; with a value */
    char wrong[256];
};

void check_init(struct check *c, struct broker *b, bool huge_is_dead);
void check_fini(struct check *c);
/* A record that readers of the prompts will see. */
void check_input_add(struct check *c, int32_t partition, int64_t offset, const char *value, size_t value_n);
void check_input_excuse(struct check *c, struct check_input *in);
void check_partition_excuse(struct check *c, int32_t partition);
struct check_input *check_input_find(struct check *c, int32_t partition, int64_t offset);

/* Notes the first thing that is wrong; returns false. */
bool check_wrong(struct check *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* After anything that may have changed what is durable. False: c->wrong says what is broken. */
bool check_look(struct check *c);
bool check_all_answered(const struct check *c);
bool check_all_marked(const struct check *c);      /* every result has its mark in a commit */
/* At the end, nothing being under way: every record has its result, and every result its mark. */
bool check_end(struct check *c);

#endif
