/* worker/preempt/internal.h - the notice thread's sources, and the one place that knows libcurl. */
#ifndef WORKER_PREEMPT_INTERNAL_H
#define WORKER_PREEMPT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/clock.h"
#include "worker/preempt/notice.h"

/* ---- fetch.c: requests that run beside one another on the notice thread ---- */

#define FETCH_BODY_MAX (256 * 1024)

struct fetches;
struct fetch;

struct request_plan {
    const char *method;            /* "GET", "PUT", "POST" */
    const char *base, *path;       /* the URL is the one behind the other */
    const char *headers[3];        /* "Name: value", NULL behind the last */
    const char *body;              /* NULL: none */
    int64_t timeout_ms;
};

struct answer {
    int status;                    /* HTTP status; 0: no answer, `failure` says why */
    const char *body; size_t body_n;           /* terminated */
    const char *failure;
};

struct fetches *fetches_open(void);
void fetches_close(struct fetches *f);         /* after its fetches; NULL is allowed */
/* One request at a time; `done` is called from fetches_run. */
struct fetch *fetch_open(struct fetches *all, void (*done)(void *ctx, const struct answer *a), void *ctx);
void fetch_close(struct fetch *f);             /* NULL is allowed; a request under way is dropped */
void fetch_begin(struct fetch *f, const struct request_plan *plan);     /* one under way is dropped */
/* A header of the answer, while `done` runs; false: there is none, or it is longer than out. */
bool fetch_header(const struct fetch *f, const char *name, char *out, size_t out_n);
/* Waits for what happens first on the network or on fds[0..n), at most timeout_ms; then calls `done` of what is over. */
void fetches_run(struct fetches *f, const int *fds, int fds_n, int timeout_ms);

/* ---- sources ---- */

struct source {
    struct notices *notices;
    const struct config *cfg;
    enum notice_from from;
    const struct source_ops *ops;  /* NULL: this source is off */
    struct fetch *fetch;
    bool probing;                  /* notice=auto, and no answer yet: one that does not come turns the source off */
    bool busy;                     /* a request is under way */
    bool complained;               /* the log knows that it does not answer */
    int64_t next_ns;               /* when it is asked again */
    int64_t begun_ns;              /* this round of requests */
    int step;                      /* which request of its round is under way */
    /* aws: the token; gcp: the ETag; azure: this machine's name */
    char word[512];
    int64_t word_until_ns;
    bool again;                    /* aws: a token was refused in this round */
    char seen[256];                /* the last notice, so that it is handed on once */
    bool hinted;                   /* a rebalance hint was handed on */
    char event[128];               /* azure: what to acknowledge; empty: nothing */
};

struct source_ops {
    void (*ask)(struct source *s);                             /* begins a round; sets busy through source_fetch */
    void (*answered)(struct source *s, const struct answer *a);
};

extern const struct source_ops source_aws, source_gcp, source_azure;

/* For sources. */
void source_fetch(struct source *s, const struct request_plan *plan);
void source_found(struct source *s);                           /* it is there: no probe any more */
void source_round_ended(struct source *s, int64_t period_ms);              /* well; asked again one period after its begin */
void source_round_failed(struct source *s, const char *what, const struct answer *a);
void source_notice(struct source *s, enum notice_kind kind, int64_t deadline_ns, const char *fmt, ...) PRINTF_LIKE(4, 5);
#define PROBE_TIMEOUT_MS 1000      /* notice=auto asks every cloud once, at most this long */

/* azure.c: the request that lets the machine go; false: there is nothing to say. */
bool azure_acknowledge(struct source *s, struct fetch *f);

/* ---- when.c ---- */

/* "2017-09-18T08:22:00Z" (RFC 3339, UTC only) or "Mon, 19 Sep 2016 18:29:47 GMT" (RFC 9110) to Unix seconds. */
MUST_USE status when_parse(const char *text, int64_t *unix_s);
/* Wall time as clock_mono_ns; a past time is now, one beyond `longest_s` is that far. */
int64_t when_deadline_ns(int64_t unix_s, int64_t longest_s);

/* ---- text of others in our log: printable ASCII, at most out_n - 1 bytes ---- */
void text_printable(const char *text, char *out, size_t out_n);

#endif
