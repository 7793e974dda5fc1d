/* tests/sim/model_client.h - queue/kafka/client.h on the model broker: what librdkafka makes of a cluster, with its hidden
 * retries, its error classes (facts table 1.6), its background heartbeats, its stale group metadata after a loss, and its
 * time-outs that may or may not have been carried out. A call that waits lets the world go on meanwhile (pass).
 * Threads: one. */
#ifndef TESTS_SIM_MODEL_CLIENT_H
#define TESTS_SIM_MODEL_CLIENT_H

#include "tests/sim/model_broker.h"

enum model_request {
    MODEL_INIT, MODEL_ADD_PARTITION, MODEL_PRODUCE, MODEL_ADD_OFFSETS, MODEL_OFFSET_COMMIT, MODEL_END_COMMIT,
    MODEL_END_ABORT, MODEL_OFFSET_FETCH,
    MODEL_PLAIN_COMMIT,                    /* OffsetCommit, at least once */
    MODEL_REQUESTS_N
};

/* What goes wrong between all clients and the broker. One for a world. */
struct model_faults {
    int error_one_in, lost_one_in;         /* of requests; 0: never */
    int64_t away_until_ns;                 /* no broker answers before */
    int lose_next;                         /* of the next request: 1 itself, 2 its answer; then 0 again */
    int64_t errors_n[MODEL_REQUESTS_N][BROKER_ERRORS_N];      /* injected so far */
    int64_t lost_n[MODEL_REQUESTS_N][2];   /* [0]: the request, [1]: the answer */
    bool tells_lost_as_revoked;            /* librdkafka #5604: a loss in the middle of a rebalance looks like a revocation */
    bool delivers_again;                   /* librdkafka #4686: a cooperative assignment may move positions back */
    bool pauses_late;                      /* a message that was on its way when the pause came */
};

struct model_client_setup {
    struct broker *broker;
    struct dice *dice;
    struct model_faults *faults;
    const char *transactional_id;
    bool plain;                                                /* kafka_delivery=at_least_once: no transactions */
    bool eager;                                                /* kafka_eager: a rebalance takes everything away first */
    int64_t txn_timeout_ns, poll_max_ns, heartbeat_ns;
    int64_t value_max[BROKER_TOPICS_N];
    void (*pass)(void *ctx, int64_t ns);                       /* time goes on, for everybody */
    void (*misused)(void *ctx, const char *what);              /* the caller broke a rule of client.h */
    void *ctx;
    /* What the consumer was given; first: since the partition was assigned or resumed. NULL: nobody asks. */
    void (*delivered)(void *worker, int32_t partition, int64_t offset, bool first);
    void *worker;
};

struct model_client;

struct model_client *model_client_open(const struct model_client_setup *setup);
struct kafka_client *model_client_border(struct model_client *c);
/* The library's background: heartbeats, joining, the poll interval. While the process runs. */
void model_client_tick(struct model_client *c);
/* kill -9: from now on no call does anything, so that the memory of the process can be taken down in peace. */
void model_client_kill(struct model_client *c);
/* Its commit leaves now, and arrives later. False: there is none to send, or not everything of it was taken. */
bool model_client_commit_late(struct model_client *c, int64_t due_ns);
/* The consumer handle is of no more use (KAFKA_OVER): the next poll says so. */
void model_client_end(struct model_client *c);
/* A mutant's wish: commits are read without waiting for open transactions. */
void model_client_read_unstable(struct model_client *c);
void model_client_free(struct model_client *c);

/* How often each row of table 1.6 must come up in a long run, for the test that all of them do. */
bool model_client_row(int i, enum model_request *request, enum broker_error *error);
const char *model_request_name(enum model_request r);

#endif
