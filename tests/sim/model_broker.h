/* tests/sim/model_broker.h - a Kafka cluster in memory, honest in everything that exactly-once rests on: logs with control
 * records and last stable offsets, transactions whose markers arrive late and one by one, pending offset commits, producer
 * epochs and their fencing, transaction time-outs, one consumer group of the classic protocol with cooperative assignment.
 * Where it is modelled on a source: ClassicGroup.validateOffsetCommit (the -1/"" pair passes), OffsetMetadataManager
 * .completeTransaction (the later record wins), TransactionCoordinator (prepare, markers, complete; epoch bump on time-out
 * and on re-init; EndTxn v1, which a client that did not re-initialise may find in its next transaction).
 * Time is base/clock.h; chance is the dice of the run. Threads: one.
 *
 * It answers requests in Kafka's own error names; what a library makes of them is model_client's part. */
#ifndef TESTS_SIM_MODEL_BROKER_H
#define TESTS_SIM_MODEL_BROKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "queue/kafka/client.h"
#include "tests/sim/dice.h"

#define BROKER_TOPICS_N 3                /* enum kafka_topic */
#define BROKER_PARTITIONS_MAX 6
#define BROKER_MEMBERS_MAX 64

enum broker_error {
    BROKER_OK,
    BROKER_ILLEGAL_GENERATION, BROKER_UNKNOWN_MEMBER_ID, BROKER_FENCED_INSTANCE_ID, BROKER_REBALANCE_IN_PROGRESS,
    BROKER_OFFSET_METADATA_TOO_LARGE, BROKER_UNSTABLE_OFFSET_COMMIT, BROKER_GROUP_AUTHORIZATION_FAILED,
    BROKER_NOT_COORDINATOR, BROKER_COORDINATOR_LOAD_IN_PROGRESS, BROKER_COORDINATOR_NOT_AVAILABLE,
    BROKER_CONCURRENT_TRANSACTIONS, BROKER_INVALID_PRODUCER_EPOCH, BROKER_PRODUCER_FENCED,
    BROKER_INVALID_PRODUCER_ID_MAPPING, BROKER_INVALID_TXN_STATE, BROKER_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    BROKER_NOT_ENOUGH_REPLICAS, BROKER_STORAGE_ERROR, BROKER_DUPLICATE_SEQUENCE_NUMBER, BROKER_MSG_SIZE_TOO_LARGE,
    BROKER_UNKNOWN_PRODUCER_ID, BROKER_TOPIC_AUTHORIZATION_FAILED, BROKER_OUT_OF_ORDER_SEQUENCE_NUMBER,
    BROKER_ERRORS_N
};
const char *broker_error_name(enum broker_error e);

/* ---- logs ---- */

enum broker_fate {
    BROKER_PLAIN,            /* of no transaction */
    BROKER_OPEN,             /* no marker yet */
    BROKER_COMMITTED, BROKER_ABORTED,
    BROKER_CONTROL           /* a marker: takes an offset, is no record */
};

struct broker_record {
    int64_t offset, timestamp_ms;
    enum broker_fate fate;
    int txn;                 /* index for broker_decided; -1: none */
    char *key; size_t key_n;
    char *value; size_t value_n;          /* NULL: a tombstone */
    struct header *headers; size_t headers_n;
};

struct broker_log {
    struct broker_record *record;         /* in order of offsets; [0, start_i) were deleted by retention */
    size_t n, room, start_i;
    size_t stable_i;                      /* no open record before it */
    int64_t end;                          /* next offset */
};

/* ---- transactions ---- */

enum broker_decision { BROKER_UNDECIDED, BROKER_DECIDED_COMMIT, BROKER_DECIDED_ABORT };

struct broker_producer { int64_t id; int epoch; };

enum broker_txn_state { TXN_EMPTY, TXN_ONGOING, TXN_PREPARE_COMMIT, TXN_PREPARE_ABORT, TXN_COMPLETE_COMMIT, TXN_COMPLETE_ABORT };

struct broker_txn {                       /* of one transactional id */
    char id[64];
    struct broker_producer producer;
    enum broker_txn_state state;
    int64_t begun_ns, timeout_ns;
    bool part[BROKER_TOPICS_N][BROKER_PARTITIONS_MAX];
    bool group;
    int txn, markers_n;
};

struct broker_marker { int64_t due_ns; size_t id_i; int txn; int topic, partition; bool commit; };   /* topic -1: the group's */

struct broker_late_end { int64_t due_ns; char id[64]; struct broker_producer producer; bool commit; };

/* ---- the group ---- */

struct broker_offset { int64_t offset; char *metadata; int64_t order; };          /* metadata NULL: no commit */
struct broker_pending { int32_t partition; int txn; struct broker_offset at; };

enum broker_group_state { GROUP_EMPTY, GROUP_PREPARING, GROUP_COMPLETING, GROUP_STABLE };

struct broker_member {
    char id[32];
    uint32_t claims, assigned;            /* bit p: partition p */
    bool joined;
    int64_t session_ends_ns;
};

struct broker {
    struct dice *dice;
    int partitions_n;
    struct broker_log log[BROKER_TOPICS_N][BROKER_PARTITIONS_MAX];
    /* settings */
    int64_t session_ns, rebalance_ns, scan_ns, marker_delay_ns;
    size_t metadata_max;
    /* transactions */
    struct broker_txn *ids; size_t ids_n;
    enum broker_decision *decided; int txns_n;
    struct broker_marker *marker; size_t markers_n;
    struct broker_late_end *late; size_t late_n;
    int64_t producers_n, scanned_ns;
    /* group */
    enum broker_group_state state;
    int32_t generation;
    struct broker_member member[BROKER_MEMBERS_MAX];
    int members_n, members_born_n;
    int shared_n;                         /* partitions that the last assignment knew of */
    int64_t state_ends_ns;                /* PREPARING: who has not joined by then is out; COMPLETING: then STABLE */
    struct broker_offset committed[BROKER_PARTITIONS_MAX];
    struct broker_pending *pending; size_t pending_n;
    int64_t offsets_order;
    int64_t changes_n;                    /* rises with everything that a reader could see */
};

void broker_init(struct broker *b, struct dice *dice, int partitions_n);
void broker_fini(struct broker *b);
/* Time-outs, markers, late requests: whatever is due at clock_mono_ns. */
void broker_tick(struct broker *b);

/* Appends as a producer without transactions does. Everything is copied. */
void broker_append(struct broker *b, enum kafka_topic topic, int32_t partition, const void *key, size_t key_n,
                   const void *value, size_t value_n);
/* The same with headers, from an idempotent producer. */
void broker_store(struct broker *b, enum kafka_topic topic, int32_t partition, const struct broker_record *r);
/* Compaction: the record is gone, its offset stays a gap. */
void broker_compact(struct broker *b, enum kafka_topic topic, int32_t partition, int64_t offset);
/* Makes offsets vanish before they are written. */
void broker_skip(struct broker *b, enum kafka_topic topic, int32_t partition, int64_t offsets_n);
/* Retention, or delete-records: everything below is gone. */
void broker_delete(struct broker *b, enum kafka_topic topic, int32_t partition, int64_t below);
/* The next record at or behind `from` that a reader sees (committed: read_committed). NULL: none now. */
const struct broker_record *broker_fetch(struct broker *b, enum kafka_topic topic, int32_t partition, int64_t from,
                                         bool committed);
int64_t broker_start(const struct broker *b, enum kafka_topic topic, int32_t partition);
int64_t broker_stable(struct broker *b, enum kafka_topic topic, int32_t partition);      /* the last stable offset */
/* What will become of a record, whether or not its marker has arrived. */
enum broker_decision broker_decision(const struct broker *b, const struct broker_record *r);

enum broker_error broker_init_producer(struct broker *b, const char *id, int64_t timeout_ns, struct broker_producer *out);
enum broker_error broker_add_partition(struct broker *b, const char *id, struct broker_producer p, enum kafka_topic topic,
                                       int32_t partition);
enum broker_error broker_produce(struct broker *b, const char *id, struct broker_producer p, enum kafka_topic topic,
                                 int32_t partition, const struct broker_record *r);
enum broker_error broker_add_offsets(struct broker *b, const char *id, struct broker_producer p);
enum broker_error broker_txn_offset_commit(struct broker *b, const char *id, struct broker_producer p, int32_t generation,
                                           const char *member, const struct kafka_place *places, size_t n);
/* OffsetCommit, without a transaction. */
enum broker_error broker_offset_commit(struct broker *b, int32_t generation, const char *member,
                                       const struct kafka_place *places, size_t n);
enum broker_error broker_end_txn(struct broker *b, const char *id, struct broker_producer p, bool commit);
void broker_end_txn_late(struct broker *b, const char *id, struct broker_producer p, bool commit, int64_t due_ns);
void broker_offset_alter(struct broker *b, const struct kafka_place *place);      /* an administrator's tool */
void broker_expire_ids(struct broker *b);                 /* transactional ids without an open transaction are forgotten */

/* member: "" asks for a new id and gets it. Joining ends with broker_joined. */
enum broker_error broker_join(struct broker *b, char member[32], uint32_t claims);
bool broker_joined(const struct broker *b, const char *member, int32_t *generation);
/* OK: *assigned. REBALANCE_IN_PROGRESS: not yet, or join again; *wait tells which. */
enum broker_error broker_sync(const struct broker *b, const char *member, int32_t generation, uint32_t *assigned, bool *wait);
enum broker_error broker_heartbeat(struct broker *b, const char *member, int32_t generation);
void broker_leave(struct broker *b, const char *member);
void broker_rebalance(struct broker *b);                  /* as if a member had come and gone: a generation, nothing moves */
void broker_sessions_renew(struct broker *b);             /* a coordinator that comes back starts every session anew */
enum broker_error broker_offset_fetch(const struct broker *b, int32_t partition, bool stable, int64_t *offset,
                                      const char **metadata);

#endif
