/* queue/queue.h - where records come from, where results go, and the marks "this input is done".
 *
 * Threads:   two sides that may run at the same time. The poll side (queue_poll, queue_pause) belongs to one thread, the
 *            commit side (queue_commit) to another; an implementation passes what the two need of each other through its
 *            own means. queue_record_settle, queue_record_give, queue_stop_taking and queue_read_counts: any thread.
 *            queue_open, queue_finish, queue_leave and queue_close: with both at rest.
 * Ownership: a record belongs to whoever polled it until queue_record_give: it lives until its result is durable, or it is
 *            dropped. Results are borrowed for the call.
 * Promise:   a result and its done-mark become durable in one atomic act. After a crash exactly the records whose
 *            results are durable are never polled again; all others are, in order of their offsets.
 * Words:     source = a topic partition or a file (0..); offset = place in it (file: physical line, from 0);
 *            lease = one holding of a source: a topic's source may go to another worker and come back. */
#ifndef QUEUE_QUEUE_H
#define QUEUE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/config.h"
#include "base/hash.h"
#include "base/status.h"

struct queue;

struct header { const char *name; const void *value; size_t value_n; };      /* value NULL: a null header */

struct record {
    int32_t source;
    uint32_t lease;                            /* rises each time the source comes to this process; a file's is 0 */
    int64_t offset;
    const char *key; size_t key_n;             /* NULL: none */
    const char *value; size_t value_n;         /* NULL: a tombstone */
    const struct header *headers; size_t headers_n;
    int64_t timestamp_ms;                      /* 0: none */
    int64_t at_bytes;                          /* where the value starts in a file; -1: not a file */
    bool oversize;                             /* longer than line_mb_max: value holds its first bytes only */
};

enum result_kind { RESULT_OUTPUT, RESULT_FAILURE };      /* to the output, or to the error file / dead-letter topic */

struct result {
    const struct record *record;               /* which it answers */
    enum result_kind kind;
    const char *value; size_t value_n;         /* one line without its newline */
    const struct header *headers; size_t headers_n;      /* the worker's own, behind the record's; a file has no place for them */
};

/* Sources come and go. Called by queue_poll on its thread; a file's only source is gained once, with lease 0. NULL calls are
 * left out. */
struct queue_events {
    void *ctx;
    /* Before the first record of this lease is given out. */
    void (*gained)(void *ctx, int32_t source, uint32_t lease);
    /* No more records of this lease. already: another owner may be at work. Otherwise its results can still be committed until the
     * source is given away, which is after lost_wait (or at once, where that is NULL). To return soon: many may go together. */
    void (*lost)(void *ctx, int32_t source, uint32_t lease, bool already);
    /* Once, behind all `lost` that came together and were not `already`: the group waits until it returns, at the latest at the
     * deadline (clock_mono_ns): time to save how far their records got and to commit what has ended. NULL: nothing to wait for. */
    void (*lost_wait)(void *ctx, int64_t deadline_ns);
};

/* What a file job is made of. For a topic, paths are NULL and url names it; its group is in the settings. */
struct queue_job {
    const char *url;                           /* "file:", "read:" (a file's records, no results), "mem:NAME", "kafka://HOST:PORT[,...]/NAME" */
    const char *input, *output, *errors;       /* errors NULL: failures go to the output, too */
    const char *fingerprint;                   /* JSON object text: everything else that a result depends on */
    bool overwrite;                            /* begin anew whatever is there */
    bool order_input;                          /* sort the output by offset at queue_finish */
    const struct queue_events *events;         /* NULL: nobody listens; borrowed until queue_close */
};

struct queue_state {
    char job[17];                              /* 16 hex digits, the same in every run of the job; part of every id */
    int64_t begun_s;                           /* Unix time of the job's first start, the same in every run; 0: unknown */
    int64_t records_n;                         /* known number of records; -1: open-ended */
    int64_t done_n;                            /* done before this start */
    int64_t failed_n;                          /* of them, failures */
    bool finished;                             /* an earlier run gave every record its result */
    int64_t input_bytes;                       /* 0: unknown */
};

/* ST_REJECT: the job cannot be begun as asked (changed since, held by another process, file cannot be read ...); the
 * error says what and what to do. ST_RETRY: the other side is not there. */
MUST_USE status queue_open(const struct config *cfg, const struct queue_job *job, struct queue **out, struct error *err);
const struct queue_state *queue_state(const struct queue *q);

/* The next record that is not done, in order. ST_AGAIN: none within timeout_ms; queue_ended tells whether one may come. */
MUST_USE status queue_poll(struct queue *q, int timeout_ms, struct record **out, struct error *err);
/* No record will come any more. Never of a topic, before queue_stop_taking. */
bool queue_ended(const struct queue *q);
/* The value has been read: what a result of this record does not need is freed, so that many records may wait. A file's value
 * is NULL from here on. */
void queue_record_settle(struct queue *q, struct record *r);
void queue_record_give(struct queue *q, struct record *r);       /* NULL is allowed */
/* Poll goes on without this source until it is resumed (a topic stays in its group meanwhile). */
void queue_pause(struct queue *q, int32_t source, bool paused);
/* For a drain: no record is given out from here on (a poll under way may still give its own). queue_poll is still to be
 * called: it keeps the place in the group. queue_ended becomes true. */
void queue_stop_taking(struct queue *q);

/* Makes the results and their done-marks durable, all or none (death in the middle of the call may leave some results of a
 * file queue, each whole and with its mark). ST_OK: durable[i] tells which are: the source of the others was lost meanwhile,
 * its next owner does them again; drop them. ST_RETRY: not durable, nothing is written (a full disk, a broker away): call
 * again with the same results, or stop. ST_FENCED: another process has this one's place; it must end.
 * Every result is of a record that was polled and has none yet, and begins with its own id: {"id":"<queue_result_id>", ...
 * A process that writes files ignores SIGXFSZ, so that a limit on their size is an answer and not a death. */
MUST_USE status queue_commit(struct queue *q, const struct result *results, size_t n, bool *durable, struct error *err);
/* The prefix of every id this job gives: "batch_req_<job>_". */
void queue_result_id(const struct queue *q, int32_t source, int64_t offset, char out[64]);

/* All records have their results: sorts if asked, writes the end mark. ST_RETRY as queue_commit. ST_AGAIN: the input
 * has grown meanwhile; run again to answer the new lines. */
MUST_USE status queue_finish(struct queue *q, struct error *err);
/* How far a file job is, from outside: takes no lock, changes nothing, may be called while it runs. output as it was given
 * to queue_open. *running: some process holds the job. ST_AGAIN: no job was begun there. ST_REJECT: it cannot be read. */
MUST_USE status queue_look(const char *output, struct queue_state *out, bool *running, struct error *err);

/* After the last commit: the sources go to others now, and not when this member's time is over. Bounded by the deadline
 * (clock_mono_ns). Nothing to do for a file. */
void queue_leave(struct queue *q, int64_t deadline_ns);

/* For metrics and watchdogs; -1: not known, or without meaning here. */
#define QUEUE_ABORTS_MAX 16
struct queue_counts {
    int64_t sources_n;
    int64_t lag_n;                             /* records between what is done and the end, over all sources */
    int64_t window_used_n;                     /* last received + 1 - LWM, of the source where it is most */
    int64_t oldest_open_age_ms;                /* since the oldest record without a result was written */
    int64_t generation, rebalances_n;
    int64_t commits_n, commit_ms_last, commit_ms_max, commit_ms_p99;
    struct { char reason[32]; int64_t n; } aborts[QUEUE_ABORTS_MAX];
    int aborts_n;
    int64_t producers_remade_n, fences_n;
    int64_t skipped_n, dead_n;                 /* tombstones; results of the failure kind */
    int64_t last_commit_ns;                    /* clock_mono_ns of the last one that was durable, 0: none */
    int64_t pending_since_ns;                  /* of the queue_commit that is under way, 0: none */
};
void queue_read_counts(struct queue *q, struct queue_counts *out);

void queue_close(struct queue *q);                               /* NULL is allowed; leaves everything resumable */

#endif
