/* queue/queue.h - where records come from, where results go, and the marks "this input is done".
 *
 * Threads:   two sides that may run at the same time. The poll side (queue_poll, queue_pause, queue_record_give) belongs
 *            to one thread, the commit side (queue_commit) to another; an implementation passes what the two
 *            need of each other through its own means. queue_open, queue_finish and queue_close: with both at rest.
 * Ownership: a record belongs to whoever polled it until queue_record_give; results are borrowed for the call.
 * Promise:   a result and its done-mark become durable in one atomic act. After a crash exactly the records whose
 *            results are durable are never polled again; all others are, in order of their offsets.
 * Words:     source = a topic partition or a file (0..); offset = place in it (file: physical line, from 0). */
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
    int32_t source;
    int64_t offset;
    enum result_kind kind;
    const char *key; size_t key_n;
    const char *value; size_t value_n;         /* one line without its newline */
    const struct header *headers; size_t headers_n;
};

/* What a file job is made of. For a topic, paths are NULL and url names it. */
struct queue_job {
    const char *url;                           /* "file:", "read:" (a file's records, no results), "mem:"; kafka:// joins later */
    const char *input, *output, *errors;       /* errors NULL: failures go to the output, too */
    const char *fingerprint;                   /* JSON object text: everything else that a result depends on */
    bool overwrite;                            /* begin anew whatever is there */
    bool order_input;                          /* sort the output by offset at queue_finish */
};

struct queue_state {
    char job[17];                              /* 16 hex digits: of input, output and fingerprint; part of every id */
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
bool queue_ended(const struct queue *q);
void queue_record_give(struct queue *q, struct record *r);       /* any thread; NULL is allowed */
/* Poll goes on without this source until it is resumed (a topic stays in its group meanwhile). */
void queue_pause(struct queue *q, int32_t source, bool paused);

/* Makes the results and their done-marks durable, all or none (death in the middle of the call may leave some results of a
 * file queue, each whole and with its mark). ST_RETRY: not durable, nothing is written (a full disk, a broker away): call
 * again or stop. ST_FENCED: another owner has the sources; drop them.
 * Every result is of a record that was polled and has none yet, and begins with its own id: {"id":"<queue_result_id>", ...
 * A process that writes files ignores SIGXFSZ, so that a limit on their size is an answer and not a death. */
MUST_USE status queue_commit(struct queue *q, const struct result *results, size_t n, struct error *err);
/* The prefix of every id this job gives: "batch_req_<job>_". */
void queue_result_id(const struct queue *q, int32_t source, int64_t offset, char out[64]);

/* All records have their results: sorts if asked, writes the end mark. ST_RETRY as queue_commit. ST_AGAIN: the input
 * has grown meanwhile; run again to answer the new lines. */
MUST_USE status queue_finish(struct queue *q, struct error *err);
/* How far a file job is, from outside: takes no lock, changes nothing, may be called while it runs. output as it was given
 * to queue_open. *running: some process holds the job. ST_AGAIN: no job was begun there. ST_REJECT: it cannot be read. */
MUST_USE status queue_look(const char *output, struct queue_state *out, bool *running, struct error *err);

void queue_close(struct queue *q);                               /* NULL is allowed; leaves everything resumable */

#endif
