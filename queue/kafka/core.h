/* queue/kafka/core.h - the Kafka queue's logic over a client (client.h): partitions, guard, committer. kafka.c waits around it.
 *
 * Nothing here sleeps or waits on another thread: a step makes at most one client call and returns, back-off is a point in time
 * (clock_mono_ns) that the caller waits for. So the simulation interleaves workers, deaths and time between any two steps.
 * Threads:   kafka_core_poll, _pause and the client's consumer calls: the poll side. kafka_commit_*: the commit side.
 *            kafka_core_stop, _stopped, _counts, kafka_commit_upkeep_due: any. One lock guards the table of partitions; it is
 *            never held across a client call (but `end`, which never blocks).
 * Ownership: the client is borrowed; close it after kafka_core_close. */
#ifndef QUEUE_KAFKA_CORE_H
#define QUEUE_KAFKA_CORE_H

#include "base/config.h"
#include "queue/kafka/client.h"
#include "queue/queue.h"

struct kafka_core;

struct kafka_core_options {
    struct kafka_client *client;
    const struct config *cfg;            /* borrowed */
    const char *topic;                   /* of the prompts; part of ns-id and of log lines */
    const struct queue_events *events;   /* NULL: nobody listens */
};

/* ST_REJECT: a setting makes no sense; err says which. */
MUST_USE status kafka_core_open(const struct kafka_core_options *o, struct kafka_core **out, struct error *err);
void kafka_core_close(struct kafka_core *k);      /* both sides at rest; NULL is allowed */

/* Does the broker fence what an unknown member commits (facts 1.6)? Needs a producer of its own life: init, begin, offsets, abort.
 * ST_OK: it does. ST_REJECT: it does not, or refuses us: err says what to do. ST_RETRY: no answer within the time. Blocks;
 * at start only. */
MUST_USE status kafka_core_probe(struct kafka_core *k, int64_t deadline_ns, struct error *err);

/* ---- the poll side ---- */

/* One step: answers what is pending, or asks the client once (waiting up to timeout_ms in there) and handles its event.
 * ST_OK: *out is a record, given back with kafka_record_free. ST_AGAIN: none this time; *busy tells that an event waits for
 * its answer (the committer, a broker) and the client was not waited for: the caller pauses some ms. ST_FATAL: the consumer
 * is over. */
MUST_USE status kafka_core_poll(struct kafka_core *k, int timeout_ms, struct record **out, bool *busy, struct error *err);
void kafka_core_pause(struct kafka_core *k, int32_t partition, bool paused);
void kafka_core_stop(struct kafka_core *k);       /* no record is given out from here on; any thread */
bool kafka_core_stopped(const struct kafka_core *k);
void kafka_record_free(struct record *r);         /* any thread */

/* ---- the commit side: the list of steps, one client call each ---- */

enum kafka_step {
    KAFKA_STEP_TAKE,      /* which results are still ours; the next one depends on what the producer needs first */
    KAFKA_STEP_REMAKE, KAFKA_STEP_INIT, KAFKA_STEP_REREAD,
    KAFKA_STEP_BEGIN, KAFKA_STEP_PRODUCE, KAFKA_STEP_GUARD, KAFKA_STEP_OFFSETS, KAFKA_STEP_COMMIT,
    KAFKA_STEP_ABORT,
    KAFKA_STEP_END        /* nothing is under way */
};

/* Begins one group of results (n = 0: upkeep only, commits of idle partitions are renewed). results and durable (all false)
 * are borrowed until the end. */
void kafka_commit_begin(struct kafka_core *k, const struct result *results, size_t n, bool *durable);
/* One step. true: there is another, not before *not_before_ns (0: at once). false: the group has ended. */
bool kafka_commit_step(struct kafka_core *k, int64_t *not_before_ns);
/* How it ended: as queue_commit. */
MUST_USE status kafka_commit_end(struct kafka_core *k, struct error *err);
enum kafka_step kafka_commit_at(const struct kafka_core *k);      /* the step that comes next */
bool kafka_commit_upkeep_due(struct kafka_core *k);               /* any thread: an idle partition's commit is to be renewed */

void kafka_core_counts(struct kafka_core *k, struct queue_counts *out);      /* any thread */

#endif
