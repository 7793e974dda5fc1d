/* queue/topic.h - a queue's topics for tools: made, counted, written, read back. Nobody here is a worker: no group is joined.
 *
 * Threads:   a struct topics, a writer and a scan each belong to one thread; several may be open at once.
 * Ownership: records that are added are copied; a record that a scan gives lives until the scan's next call.
 * Blocking:  each call at most TOPIC_ANSWER_S seconds unless it says otherwise.
 * Errors:    ST_RETRY: no broker answers, or not yet; ST_REJECT: what was asked for cannot be had, the text says why.
 * Words:     kinds = the three topics of one queue; low, high = a partition's first offset and the one after its last, whatever
 *            transactions are open; every reader is read_committed: records of open and aborted transactions do not exist. */
#ifndef QUEUE_TOPIC_H
#define QUEUE_TOPIC_H

#include "queue/queue.h"

#define TOPIC_ANSWER_S 30

enum topic_kind { TOPIC_PROMPTS, TOPIC_RESULTS, TOPIC_DEAD, TOPIC_KINDS_N };

struct topics;

/* url: "kafka://HOST:PORT[,HOST:PORT...]/NAME"; topics NAME.prompts, NAME.results, NAME.dead unless the settings kafka_topic_* name
 * others. Every setting "kafka.*" reaches the client library. No broker is asked yet. ST_REJECT: the URL or a setting. */
MUST_USE status topics_open(const struct config *cfg, const char *url, struct topics **out, struct error *err);
void topics_close(struct topics *t);                                  /* NULL is allowed */
const char *topics_name(const struct topics *t, enum topic_kind kind);

struct topic_range { int64_t low, high; };

/* *partitions_n: 0: there is no such topic. */
MUST_USE status topic_count_partitions(struct topics *t, enum topic_kind kind, int32_t *partitions_n, struct error *err);
/* One range a partition; the caller frees *out. ST_REJECT: there is no such topic. */
MUST_USE status topic_read_ranges(struct topics *t, enum topic_kind kind, struct topic_range **out, int32_t *partitions_n,
                                  struct error *err);

struct topic_shape {
    int32_t partitions_n;
    int32_t replicas_n;                        /* -1: what the broker makes unasked */
    const char *const *configs;                /* name, value, name, value ..., NULL; NULL: none */
};
/* Makes the topic unless it is there; returns when a leader of every partition is known. */
MUST_USE status topic_make(struct topics *t, enum topic_kind kind, const struct topic_shape *shape, bool *made, struct error *err);
/* A number from the topic's configuration as the broker has it ("max.message.bytes"). */
MUST_USE status topic_read_config(struct topics *t, enum topic_kind kind, const char *name, int64_t *out, struct error *err);

/* ---- commits of a group ---- */

struct topic_commit {
    int64_t offset;                            /* -1: none */
    char *metadata;                            /* NULL: none */
};
/* The group's commits on the prompts, after every transaction that holds some has ended; one a partition of *partitions_n. */
MUST_USE status topic_read_commits(struct topics *t, const char *group, struct topic_commit **out, int32_t *partitions_n,
                                   struct error *err);
void topic_commits_free(struct topic_commit *commits, int32_t n);     /* NULL is allowed */
/* Overwrites one commit of a group that has no member; for repairs and for tests of what audits them. */
MUST_USE status topic_write_commit(struct topics *t, const char *group, int32_t partition, int64_t offset, const char *metadata,
                                   struct error *err);

/* ---- writing ---- */

struct topic_writer;
#define TOPIC_ANY_PARTITION (-1)

/* Exactly once: everything goes in transactions under `id`, and opening it ends what an earlier writer of that id left open and
 * fences it. Call order: begin, add ..., commit or abort, begin ...
 * After ST_RETRY of commit it is not known whether the transaction took effect: close the writer, open it again and read back what
 * is there. ST_FENCED: another writer has this id now. Every error but that of add ends the writer: only close is left. (2.0.2 goes
 * on with wrong sequence numbers after a broker has refused a record.) */
MUST_USE status topic_writer_open(struct topics *t, const char *id, struct topic_writer **out, struct error *err);
void topic_writer_close(struct topic_writer *w);                      /* NULL is allowed; what is not committed is aborted */
MUST_USE status topic_writer_begin(struct topic_writer *w, struct error *err);
/* key, value, headers and timestamp_ms (0: now) of r count. Where partition is TOPIC_ANY_PARTITION the key says which, as Java's
 * partitioner does it. ST_REJECT: too long for the client (32 MiB); the transaction goes on without it. */
MUST_USE status topic_writer_add(struct topic_writer *w, enum topic_kind kind, int32_t partition, const struct record *r,
                                 struct error *err);
/* ST_REJECT: the broker refuses a record (its size, authorisation): nothing of the transaction is there. */
MUST_USE status topic_writer_commit(struct topic_writer *w, struct error *err);
MUST_USE status topic_writer_abort(struct topic_writer *w, struct error *err);

/* ---- reading ---- */

struct topic_scan;
#define TOPIC_SILENT_S 120

/* Reads every partition from `from` (one offset a partition, < low: low; NULL: the earliest) to the end that was there now.
 * follow: goes on behind it. A partition's end is passed also where its last records are gaps. */
MUST_USE status topic_scan_open(struct topics *t, enum topic_kind kind, const int64_t *from, bool follow, struct topic_scan **out,
                                struct error *err);
void topic_scan_close(struct topic_scan *s);                          /* NULL is allowed */
/* ST_AGAIN: none within timeout_ms; topic_scan_ended tells whether one may come. ST_RETRY also where nothing came for
 * TOPIC_SILENT_S before the end: an open transaction holds it back. ST_REJECT: records went (retention) before they were read. */
MUST_USE status topic_scan_next(struct topic_scan *s, int timeout_ms, const struct record **out, struct error *err);
/* Every partition's first end is passed. */
bool topic_scan_ended(const struct topic_scan *s);
int32_t topic_scan_partitions(const struct topic_scan *s);
struct topic_range topic_scan_range(const struct topic_scan *s, int32_t partition);      /* as it was at the open */

/* ---- headers ---- */

/* The last header of that name; NULL: none. (Workers put theirs behind the record's own.) */
const struct header *topic_header(const struct record *r, const char *name);
/* Its value as a whole number >= 0; -1: absent or not a number. */
int64_t topic_header_int(const struct record *r, const char *name);
bool topic_header_is(const struct record *r, const char *name, const char *value);

#endif
