/* tests/sim/model_consumer.h - what the two halves of the model client share. Private to them. */
#ifndef TESTS_SIM_MODEL_CONSUMER_H
#define TESTS_SIM_MODEL_CONSUMER_H

#include "tests/sim/model_client.h"

struct outgoing { enum kafka_topic topic; int32_t partition; struct broker_record record; bool sent; };

struct call {                        /* of one request */
    enum model_request request;
    enum kafka_topic topic;
    int32_t partition;
    const struct broker_record *record;
    const struct kafka_place *places; size_t places_n;
    const struct kafka_group *as;
};

struct model_client {
    struct kafka_client client;
    struct model_client_setup setup;
    bool dead, over, unstable;
    /* producer */
    enum { PRODUCER_NEW, PRODUCER_READY, PRODUCER_IN_TXN } phase;
    bool abortable, fatal, used;     /* used: the broker knows of the transaction */
    enum kafka_answer failed;        /* plain: of a record that was sent in the background */
    struct broker_producer producer;
    bool added[BROKER_TOPICS_N][BROKER_PARTITIONS_MAX];
    struct outgoing *outbox; size_t outbox_n, outbox_sent;
    /* consumer: sets have bit p for partition p */
    enum { GROUP_OUT, GROUP_JOINING, GROUP_SYNCING, GROUP_IN } in_group;
    char member[32];
    int32_t generation;
    bool lost, late;                 /* late: the poll interval is over; the next poll joins again */
    bool first;                      /* its first assignment is told even when it is empty */
    uint32_t owned, paused, just_paused, fresh, gone;
    int64_t position[BROKER_PARTITIONS_MAX];
    uint32_t to_revoke, to_assign;   /* queued for the application */
    bool to_lose, to_join, assign_told;
    enum { ASKED_NOTHING, ASKED_ASSIGN, ASKED_REVOKE, ASKED_LOST } asked;
    uint32_t asked_set;
    int64_t polled_ns, beaten_ns;
    int turn;
    int32_t told[BROKER_PARTITIONS_MAX];           /* of the last event */
    struct broker_record held;                     /* of the last message */
    struct { int64_t offset; char *metadata; } fetched[BROKER_PARTITIONS_MAX];
};

bool model_away(const struct model_client *c);
enum kafka_answer model_call(struct model_client *c, const struct call *k, int64_t timeout_ns, struct error *err);
void model_record_copy(struct broker_record *to, const struct broker_record *from);
void model_record_fini(struct broker_record *r);

void model_poll(struct kafka_client *kc, int timeout_ms, struct kafka_event *out);
enum kafka_answer model_committed(struct kafka_client *kc, struct kafka_place *places, size_t n, int timeout_ms,
                                  struct error *err);
void model_assign(struct kafka_client *kc, const struct kafka_place *places, size_t n);
void model_unassign(struct kafka_client *kc, const int32_t *partitions, size_t n);
void model_pause(struct kafka_client *kc, int32_t partition, bool paused);
void model_group(struct kafka_client *kc, struct kafka_group *out);
int64_t model_end(struct kafka_client *kc, int32_t partition);
size_t model_metadata_max(struct kafka_client *kc);
void model_leave(struct kafka_client *kc, int64_t deadline_ns);

#endif
