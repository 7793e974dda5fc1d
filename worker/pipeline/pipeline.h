/* worker/pipeline/pipeline.h - the way of a request, end to end (design.md section 4):
 *
 *   poller ─records→ intake pool ─loads→ saver ─admits→ engine ─outcomes→ outbox ─→ queue_commit
 *                        │ (nothing stored: straight to admits)   │
 *                        └─ verdicts → outcomes                   └─ progress → saver → checkpoint store
 *
 * A topic's source may go to another worker at any moment: what of it is under way is dropped at the next step, its tokens are
 * saved first, and its results that are not durable yet are not published (poller.c, leases.h).
 *
 * Threads:   pipeline_open loads everything; pipeline_start starts the threads; one caller drives the rest.
 * Ownership: cfg and job are borrowed until pipeline_close.
 * Back-pressure: every arrow is a bounded queue; a slow output slows the poll. Memory is flat in the length of the job. */
#ifndef WORKER_PIPELINE_PIPELINE_H
#define WORKER_PIPELINE_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"
#include "checkpoint/checkpoint.h"
#include "queue/queue.h"
#include "worker/engine/engine.h"
#include "worker/exit_code.h"
#include "worker/model/model.h"

struct pipeline;

struct pipeline_job {
    const char *model_path;
    const char *name;              /* what answers call the model where a line does not; NULL: the file's own name */
    struct queue_job queue;        /* fingerprint is filled in by pipeline_open */
};

#define FAILURE_CODES_MAX 32

struct pipeline_counts {
    int64_t records_n;             /* -1: open-ended */
    int64_t before_n, before_failed_n;         /* had their verdict before this start */
    int64_t done_n, failed_n;      /* durable verdicts of this run; failed ones are not in done_n */
    int64_t duplicate_ids_n;       /* lines of this run whose custom_id another line of this run has */
    int64_t resumed_n;             /* sequences that went on from stored tokens */
    int64_t results_lost_n;        /* made, but the source was lost before they were durable */
    int64_t tokens_regenerated_n;  /* the tokens in them: made again by the next owner */
    bool draining;
    struct queue_counts queue;
    struct ckpt_counts ckpt;
    struct engine_counts engine;
    struct cache_counts cache;
    struct { char code[48]; int64_t n; } failures[FAILURE_CODES_MAX];
    int failures_n;
};

/* On anything but ST_OK, *exit_code says how a process should end. */
MUST_USE status pipeline_open(const struct config *cfg, const struct pipeline_job *job, struct pipeline **out,
                              int *exit_code, struct error *err);
const struct model_shape *pipeline_model(const struct pipeline *p);
const struct device_info *pipeline_device(const struct pipeline *p);
const struct queue_state *pipeline_queue(const struct pipeline *p);

void pipeline_start(struct pipeline *p);
bool pipeline_ended(struct pipeline *p);       /* nothing is left to compute, or it must stop: time for pipeline_join */
void pipeline_stop(struct pipeline *p);        /* take no more, save progress; any thread, returns at once */
/* For a machine that goes; absolute times of clock_mono_ns, ascending. Again: the earlier deadline of each counts. Nothing more
 * is taken or begun from now on. Any thread, returns at once. A file's run ends as with pipeline_stop, once what runs has ended. */
struct drain_plan {
    int64_t finish_until_ns;       /* what runs goes on until then, or until all of it has ended */
    int64_t save_until_ns;         /* tokens of what did not end go to the checkpoint store; its starts are taken back */
    int64_t commit_until_ns;       /* results of what did are made durable */
    int64_t leave_until_ns;        /* the sources are given back */
};
void pipeline_drain(struct pipeline *p, const struct drain_plan *plan);
/* For watchdogs; takes no lock, because whatever hangs may hold it. clock_mono_ns. */
struct pipeline_beats {
    int64_t poll_ns;               /* when the poll side last came by; 0: a file's, which is not polled once it is read */
    int64_t step_ns;               /* when the engine last came by */
    int64_t results_since_ns;      /* since when the oldest result that is not durable waits; 0: none does */
};
void pipeline_read_beats(const struct pipeline *p, struct pipeline_beats *out);        /* any thread */
void pipeline_read_counts(struct pipeline *p, struct pipeline_counts *out);        /* any thread */
/* Waits for the threads in their order, finishes the queue when all is done. err: why, unless EXIT_CODE_DONE. */
int pipeline_join(struct pipeline *p, struct error *err);
void pipeline_close(struct pipeline *p);       /* NULL is allowed */

#endif
