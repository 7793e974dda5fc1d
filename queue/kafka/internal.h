/* queue/kafka/internal.h - what the files of the Kafka queue's core share. See core.h for threads. */
#ifndef QUEUE_KAFKA_INTERNAL_H
#define QUEUE_KAFKA_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/clock.h"
#include "queue/commit_times.h"
#include "queue/kafka/core.h"
#include "queue/tracker.h"

#define METADATA_BYTES_DEFAULT 4096        /* offset.metadata.max.bytes of a broker that nobody changed */
#define METADATA_BYTES_MIN 128
#define PARTITIONS_MAX (1 << 20)
#define REASON_BYTES 512

struct seen {                              /* of a record that was received and may be the one at the LWM some day */
    uint32_t hash;
    int64_t at_ms;                         /* when it was written, else when it came (Unix time) */
};

/* A partition that this process holds: from the assignment until it is given back. The lock guards it, except what is said to
 * belong to the poll side. */
struct partition {
    int32_t id;
    uint32_t lease;
    bool owned;                            /* false: it is being given away; nothing of it may enter a transaction */
    atomic_bool stopped;                   /* for good, loudly: no record of it is given out, nothing of it is committed */
    bool announced;                        /* events->gained was called (poll side) */
    struct tracker *tracker;
    int64_t window;
    struct seen *seen;                     /* [ring], a power of two: at offset mod ring */
    int64_t ring;
    char expect[9];                        /* hash of the record at expect_at, as committed; "": nothing to compare any more */
    int64_t expect_at;
    bool has_commit;                       /* the group has a commit of it */
    int64_t commit_ns;                     /* of its last commit, or of its assignment */
    /* poll side only */
    bool assigned;                         /* the client has it; before, there is nothing to pause */
    bool paused;                           /* what the client was told */
    bool paused_by_user;
    struct record **held;                  /* beyond the window: [held_n], in order */
    size_t held_n, held_room;
};

enum pending_kind { PENDING_NONE, PENDING_ASSIGN, PENDING_REVOKE, PENDING_LOST };

struct pending {                           /* an event of the group that has no answer yet; poll side only */
    enum pending_kind kind;
    struct kafka_place *place;             /* [n] */
    size_t n, room;
    int64_t deadline_ns;                   /* revoke: how long the committer is waited for */
    int64_t not_before_ns, logged_ns;      /* assign: when the commits are asked for again */
};

/* What the transaction under way touches; commit side, except that busy lists of ids are read under the lock. */
struct touched {
    int32_t id;
    uint32_t lease;
    int64_t lwm;
    size_t text_at;                        /* its metadata, in committer.text */
};

enum producer_state { PRODUCER_NEEDS_REMAKE, PRODUCER_NEEDS_INIT, PRODUCER_READY };

struct committer {
    enum kafka_step at;
    const struct result *results;
    size_t n;
    bool *durable;
    size_t *take, take_n, take_room;       /* results of this transaction */
    size_t produced_n;
    int64_t dead_n;                        /* dead letters among them */
    struct touched *touched;
    size_t touched_n, touched_room;
    struct kafka_place *place;             /* [touched_n] */
    size_t place_room;
    struct buf text;
    struct kafka_group as;                 /* as it was at the guard */
    enum producer_state producer;
    struct touched *doubt;                 /* partitions of a transaction that ended nobody knows how: read again first */
    size_t doubt_n, doubt_room;
    int64_t *remade_ns;                    /* ring of kafka_remakes_max */
    int64_t remade_n;
    int init_failures_n;
    int64_t again_since_ns;                /* of the step at hand; 0: not yet */
    bool committed;                        /* a transaction of this group of results has ended well */
    bool take_again;                       /* after the abort: the owned set changed, go on with what is left */
    status st;
    struct error err;
    struct output *out;                    /* scratch of output.c */
};

struct kafka_core {
    struct kafka_client *client;
    const struct config *cfg;
    char *topic;
    struct queue_events events;
    bool transactional, truncates;
    size_t metadata_max;
    int64_t window;                        /* offsets of a partition */
    atomic_bool stopping;
    atomic_bool progress;                  /* a commit moved an LWM: the poll side looks at pauses and held records */
    atomic_bool committing;                /* a group is under way: the upkeep of idle partitions waits */

    pthread_mutex_t lock;
    struct partition **part;               /* [part_n], by id; NULL: not ours */
    size_t part_n;
    struct touched *busy;                  /* [busy_n]: partitions of the transaction under way */
    size_t busy_n, busy_room;
    struct queue_counts counts;
    struct commit_times times;

    uint32_t lease;                        /* poll side */
    bool applied_stop;
    size_t held_n, held_turn;              /* held records of all partitions */
    int64_t away_logged_ns;
    struct pending pending;
    struct committer committer;            /* commit side */
};

/* partition.c: all under the lock, unless said */
struct partition *partition_find(const struct kafka_core *k, int32_t id);             /* NULL: not ours */
/* The same holding of it as then, still ours to commit. */
struct partition *partition_held(const struct kafka_core *k, int32_t id, uint32_t lease);
/* A new holding, as committed. place->offset -1: nothing is committed. Takes the lock itself. Returns why it must stop, or NULL. */
const char *partition_take(struct kafka_core *k, const struct kafka_place *place, struct error *why);
void partition_drop(struct kafka_core *k, int32_t id);                                /* takes the lock itself */
/* Every open offset that the commit says is done is done here, too. ST_REJECT: it is not ours to read. */
status partition_sync(struct partition *p, const struct kafka_place *place, struct error *err);
/* The text of a commit of t, which is p's tracker or what becomes of it. */
status partition_encode(const struct partition *p, const struct tracker *t, char *out, size_t out_bytes);
bool partition_full(const struct partition *p);        /* takes no more: pause */
bool partition_roomy(const struct partition *p);       /* takes again: resume */
void partition_receive(struct partition *p, int64_t offset, uint32_t hash, int64_t at_ms);

/* record.c: any thread */
struct record *kafka_record_copy(const struct kafka_message *m, uint32_t lease, size_t value_max);
uint32_t kafka_message_hash(const struct kafka_message *m);
uint32_t kafka_record_hash(const struct record *r);

/* poll.c */
void kafka_poll_fini(struct kafka_core *k);

/* committer.c */
void kafka_committer_init(struct kafka_core *k);
void kafka_committer_fini(struct kafka_core *k);
bool kafka_committer_holds(const struct kafka_core *k, const struct kafka_place *place, size_t n);    /* under the lock */

/* output.c: the record that answers one result. */
struct output {
    enum kafka_topic topic;
    const void *key; size_t key_n;
    const void *value; size_t value_n;
    struct header *headers; size_t headers_n, headers_room;
    struct buf text;                       /* what the fields above point to where it is made here */
    char id[320], stamp[32], dropped[32], value_dropped[32], key_dropped[32];
};
void output_make(struct output *o, struct kafka_core *k, const struct result *r);
void output_fini(struct output *o);

/* shorten.c: a JSON text with its longest strings cut so that it has at most max bytes; false: it cannot be. */
bool json_shorten(const char *text, size_t n, size_t max, struct buf *out);

#endif
