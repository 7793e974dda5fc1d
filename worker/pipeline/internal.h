/* worker/pipeline/internal.h - what the stages of the pipeline share. */
#ifndef WORKER_PIPELINE_INTERNAL_H
#define WORKER_PIPELINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/bqueue.h"
#include "checkpoint/checkpoint.h"
#include "worker/lines/lines.h"
#include "worker/pipeline/model_text.h"
#include "worker/pipeline/pipeline.h"

/* Between two stages: enough that neither waits for the other's every item, little beside the planner's window. */
enum { RECORDS_MAX = 64, REQUESTS_MAX = 256, POP_MAX = 64 };

struct saver;
struct outbox;

struct pipeline {
    const struct config *cfg;
    char *fingerprint;             /* JSON: what the queue compares */
    char fingerprint_text[24];     /* what answers show */
    uint64_t job_hash;             /* of the queue's job id: names this job in the checkpoint store */

    struct model_text text;
    struct device *device;
    struct model *model;
    struct queue *queue;
    struct engine *engine;

    struct bqueue *records;        /* struct record: poller → intake pool */
    struct bqueue *admits;         /* struct request: intake pool or saver → engine */
    struct bqueue *outcomes;       /* struct request with verdict: intake pool, engine → outbox */
    struct saver *saver;
    struct outbox *outbox;

    pthread_t poller, engine_thread;
    pthread_t *intakes;
    int intakes_n;
    atomic_int intakes_left;       /* of the pool; the last one ends the look-ups */
    atomic_bool ended;             /* the engine has nothing left to do, or must stop */
    atomic_bool stopping;

    int64_t ended_n;               /* requests that the engine has ended; its thread only */

    pthread_mutex_t lock;          /* of what follows */
    int64_t durable_n;             /* of them, those whose result is durable */
    struct pipeline_counts counts;
    int exit_code;                 /* of the first failure, EXIT_CODE_DONE before one */
    struct error error;
};

/* Gives a request to the outbox: with a verdict for its result line; without one to be dropped (we are stopping, its record
 * will be polled again by the next run). Any thread until it has ended. */
void outcome_push(struct pipeline *p, struct request *r);

/* The first failure decides how the process ends; then everything stops. Any thread. */
void pipeline_fail(struct pipeline *p, int exit_code, const char *fmt, ...) PRINTF_LIKE(3, 4);

void *poller_main(void *pipeline);
void *intake_main(void *pipeline);
void *engine_main(void *pipeline);

/* ---- saver.c: owns the checkpoint store; tokens come in, frames go out, never waited for ---- */

/* url: see checkpoint_url. ST_REJECT: the URL makes no sense. A store that is away is no error: work goes on without. */
MUST_USE status saver_open(struct pipeline *p, const char *url, struct saver **out, struct error *err);
void saver_start(struct saver *s);
/* Whether requests must pass saver_look_up before the engine: something of this job is stored. */
bool saver_looks_up(const struct saver *s);
/* Intake threads: gives the request on to the engine's queue, with the tokens it had. ST_FENCED: stopping, still the caller's. */
MUST_USE status saver_look_up(struct saver *s, struct request *r);
void saver_look_ups_end(struct saver *s);      /* no more look-ups: p->admits is closed when the last is through */
void saver_look_ups_wait(struct saver *s);     /* until then */
void saver_progress(struct saver *s, const struct request *r, int32_t choice);     /* engine's thread */
/* Takes what the saver hangs on a request away from it, so that the request can be freed; given to saver_forget once the
 * result is durable, to saver_keep when it is not. */
struct save_slot;
struct save_slot *saver_detach(struct request *r, struct save_slot *slots);     /* in front of the list `slots` */
void saver_forget(struct saver *s, struct save_slot *slots);
void saver_keep(struct saver *s, struct save_slot *slots);
/* Last flush; then, when the job is over, everything of it leaves the store. */
void saver_stop(struct saver *s);
void saver_forget_job(struct saver *s);        /* after saver_stop */
void saver_close(struct saver *s);             /* NULL is allowed */

/* ---- outbox.c: outcomes to durable results ---- */

struct outbox *outbox_open(struct pipeline *p);
void outbox_start(struct outbox *o);
void outbox_join(struct outbox *o);
void outbox_close(struct outbox *o);           /* NULL is allowed */

#endif
