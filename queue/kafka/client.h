/* queue/kafka/client.h - what the Kafka queue needs of a client library: one group member and one transactional producer.
 * client_rdkafka.c is the real one; tests/sim has a model broker behind the same calls.
 *
 * Threads:   the consumer's calls (poll .. group) belong to the poll side, the producer's (init .. remake) to the commit side;
 *            committed and group may be called from both.
 * Ownership: what an event or a place points to is the client's and lives until the next call of the same kind, unless said.
 * Errors:    enum kafka_answer says what the caller does next; text holds the library's own words for the log. */
#ifndef QUEUE_KAFKA_CLIENT_H
#define QUEUE_KAFKA_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "queue/queue.h"

enum kafka_answer {
    KAFKA_OK,
    KAFKA_AGAIN,          /* the same call again (retriable), after a pause */
    KAFKA_ABORT,          /* this transaction must be aborted; its results are kept and go into the next */
    KAFKA_REMAKE,         /* the producer is over (fenced, fatal): remake it, then read the committed offsets again */
    KAFKA_UNKNOWN,        /* a time-out: done or not done; treated as REMAKE, the re-read tells which */
    KAFKA_REFUSED,        /* settings, authorisation: an operator must act; text says what */
    KAFKA_FENCED_OFFSETS  /* offsets only: generation or member is not the group's (ABORT, then look at the group again) */
};

enum kafka_topic { KAFKA_PROMPTS, KAFKA_RESULTS, KAFKA_DEAD };

struct kafka_place {                       /* of a partition of the prompts */
    int32_t partition;
    int64_t offset;                        /* -1: no commit; at assign: where to begin, or KAFKA_EARLIEST */
    const char *metadata;                  /* terminated; NULL: none */
};
#define KAFKA_EARLIEST INT64_C(-2)

struct kafka_message {                     /* as it came; pointers live until the next poll */
    int32_t partition;
    int64_t offset, timestamp_ms;          /* timestamp -1: none */
    const void *key; size_t key_n;         /* NULL: none; not NULL with 0: empty */
    const void *value; size_t value_n;     /* NULL: a tombstone */
    const struct header *headers; size_t headers_n;
};

enum kafka_event_kind {
    KAFKA_NOTHING,
    KAFKA_MESSAGE,
    KAFKA_ASSIGNED,       /* partitions come: answer with assign (places may be none) before the next poll */
    KAFKA_REVOKED,        /* partitions go: answer with unassign before the next poll */
    KAFKA_LOST,           /* partitions went (session or poll interval over): answer with unassign; another owner may be at work */
    KAFKA_OFFSET_GONE,    /* partition: the committed place no longer exists (retention, delete-records): it stays stopped */
    KAFKA_AWAY,           /* no broker answers; the library goes on trying */
    KAFKA_OVER            /* the consumer handle is of no more use: text says why */
};

struct kafka_event {
    enum kafka_event_kind kind;
    const int32_t *partitions; size_t partitions_n;      /* ASSIGNED, REVOKED, LOST, OFFSET_GONE */
    struct kafka_message message;
    const char *text;
};

struct kafka_group {                       /* freshly asked right before every offsets call */
    int32_t generation;                    /* < 0: not in the group */
    char member[256];                      /* "": not in the group */
    bool lost;                             /* the assignment was lost */
};

struct kafka_client;
struct kafka_client_ops {
    /* consumer */
    void (*poll)(struct kafka_client *c, int timeout_ms, struct kafka_event *out);
    /* The group's commits with metadata, after every open transaction on them has ended (RequireStable). places[i].partition is
     * given, the rest filled in. OK, UNKNOWN (time-out), REFUSED. */
    enum kafka_answer (*committed)(struct kafka_client *c, struct kafka_place *places, size_t n, int timeout_ms, struct error *err);
    void (*assign)(struct kafka_client *c, const struct kafka_place *places, size_t n);
    void (*unassign)(struct kafka_client *c, const int32_t *partitions, size_t n);
    void (*pause)(struct kafka_client *c, int32_t partition, bool paused);      /* only partitions that are assigned and not already so */
    void (*group)(struct kafka_client *c, struct kafka_group *out);
    int64_t (*end)(struct kafka_client *c, int32_t partition);                  /* last known end of the partition (LSO), -1: unknown; never blocks */
    /* producer; each is one step of the committer. With kafka_delivery=at_least_once there is no transaction: init, begin and
     * abort do nothing, commit waits until every record produced since the last commit is stored, and offsets comes after it: a
     * plain commit of the group, synchronous. */
    enum kafka_answer (*init)(struct kafka_client *c, struct error *err);       /* init_transactions: ends what an earlier holder of the id left open */
    enum kafka_answer (*begin)(struct kafka_client *c, struct error *err);
    enum kafka_answer (*produce)(struct kafka_client *c, enum kafka_topic topic, const void *key, size_t key_n, const void *value, size_t value_n,
                                 const struct header *headers, size_t headers_n, struct error *err);
    enum kafka_answer (*offsets)(struct kafka_client *c, const struct kafka_place *places, size_t n, const struct kafka_group *as, struct error *err);
    enum kafka_answer (*commit)(struct kafka_client *c, struct error *err);     /* flushes; delivery failures surface here */
    enum kafka_answer (*abort)(struct kafka_client *c, struct error *err);
    enum kafka_answer (*remake)(struct kafka_client *c, struct error *err);     /* a new producer with the same transactional id; init comes next */
    int64_t (*value_max)(struct kafka_client *c, enum kafka_topic topic);       /* bytes of a record (key, value, headers) that
                                                                                 * the topic and the client take */
    size_t (*metadata_max)(struct kafka_client *c);                             /* bytes of commit metadata that the broker takes; 0, NULL: unknown */
    /* both at rest */
    void (*leave)(struct kafka_client *c, int64_t deadline_ns);                 /* LeaveGroup, bounded */
    void (*close)(struct kafka_client *c);
};
struct kafka_client { const struct kafka_client_ops *ops; };      /* first member of every implementation's struct */

#endif
