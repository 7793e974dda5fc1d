/* tests/support/kafka_script.h - a Kafka client that answers as it is told and remembers what it was asked. One thread. */
#ifndef TESTS_SUPPORT_KAFKA_SCRIPT_H
#define TESTS_SUPPORT_KAFKA_SCRIPT_H

#include "base/buf.h"
#include "base/config.h"
#include "queue/kafka/core.h"

#define SCRIPT_ANSWERS_MAX 64

struct produced {
    enum kafka_topic topic;
    char *key; size_t key_n;               /* key NULL: none */
    char *value; size_t value_n;
    struct header headers[64]; size_t headers_n;      /* of pieces of `bytes` */
    char *bytes;
};

struct script {
    struct kafka_client client;
    struct config cfg;
    struct kafka_core *core;
    int64_t now_ns;
    struct buf calls;                      /* "init begin produce ... "; the consumer's are in capitals */
    /* What the next calls of a step answer; after them OK. */
    struct { const char *step; enum kafka_answer answer; } answers[SCRIPT_ANSWERS_MAX];
    int answers_n;
    struct kafka_event event;              /* what the next poll gives, once */
    int32_t ids[16];
    struct kafka_group group;
    /* the group's commits, by partition */
    struct { int64_t offset; char metadata[8192]; } committed[16], sent[16];
    bool commit_applies;                   /* an OK commit moves sent to committed */
    struct produced *produced; size_t produced_n;      /* of the transaction under way, and those before */
    int64_t assigned[16];                  /* offset at assign, INT64_MIN: not assigned */
    bool paused[16];
    int64_t results_max, dead_max;
    size_t metadata_max;
    int gained_n, lost_n;
    bool lost_already;
    int lost_waits_n;
    void (*during_lost)(void);             /* called inside lost_wait */
    bool pause_gained;                     /* a source is paused as it comes */
    int64_t next_offset[16];
};

void script_init(struct script *s);        /* settings may be changed before script_open */
void script_open(struct script *s);
void script_fini(struct script *s);

void script_answer(struct script *s, const char *step, enum kafka_answer answer);
/* The group gives or takes partitions; every step until it is answered. */
void script_assign(struct script *s, int32_t from, int32_t to);
void script_event(struct script *s, enum kafka_event_kind kind, int32_t id);
/* One record of the topic; what the core gives out of it, or NULL. */
struct record *script_message(struct script *s, int32_t id, int64_t offset, const char *value);
struct record *script_poll(struct script *s);
/* Commits echoes of the records, as many steps as it takes; time passes where the core asks for it. */
status script_commit(struct script *s, struct record *const *records, size_t n, bool *durable);
void script_result(const struct record *r, struct result *out);
bool script_step(struct script *s);
const char *script_calls(struct script *s);      /* since the last time */
const struct header *produced_header(const struct produced *p, const char *name);

#endif
