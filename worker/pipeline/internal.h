/* worker/pipeline/internal.h - what the stages of the pipeline share. */
#ifndef WORKER_PIPELINE_INTERNAL_H
#define WORKER_PIPELINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/bqueue.h"
#include "checkpoint/checkpoint.h"
#include "worker/lines/lines.h"
#include "worker/pipeline/leases.h"
#include "worker/pipeline/model_text.h"
#include "worker/pipeline/pipeline.h"

/* Between two stages: enough that neither waits for the other's every item, little beside the planner's window. */
enum { RECORDS_MAX = 64, REQUESTS_MAX = 256, POP_MAX = 64 };
enum { DRAIN_SAVE_MS = 1000 };     /* how long a source's progress may take to be saved before it is given away */

struct saver;
struct outbox;
struct save_slot;
struct start;

/* The poll thread's own. */
struct poll_side {
    struct { int32_t source; uint32_t lease; } *sources;       /* that are ours */
    size_t sources_n, sources_room;
    struct { int32_t source; uint32_t lease; } *going;         /* told to be lost, still ours until source_lost_wait ends */
    size_t going_n, going_room;
    struct record **held;          /* polled, no room for them yet */
    size_t held_n, held_room;
    bool paused;
};

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
    struct leases *leases;
    struct queue_events events;
    struct poll_side poll;
    bool is_topic;                 /* endless; its sources come and go */

    pthread_t poller, engine_thread;
    pthread_t *intakes;
    int intakes_n;
    atomic_int intakes_left;       /* of the pool; the last one ends the look-ups */
    atomic_bool ended;             /* the engine has nothing left to do, or must stop */
    atomic_bool stopping, draining;
    atomic_bool device_failed;     /* what ran has died */
    atomic_bool poll_end;          /* of a topic: its place in the group is no longer needed */
    atomic_int hurries_n;          /* sources that are about to be given away: everything of them at once */
    _Atomic int64_t finish_until_ns, save_until_ns, commit_until_ns, leave_until_ns;
    _Atomic int64_t step_ns, poll_ns;          /* heartbeats */
    _Atomic int64_t results_since_ns;          /* of the outbox: its oldest result that is not durable; 0: none */

    int64_t ended_n;               /* requests that the engine has ended; its thread only */

    pthread_mutex_t lock;          /* of what follows */
    int64_t durable_n;             /* of them, those whose result is durable */
    struct pipeline_counts counts;
    int exit_code;                 /* of the first failure, EXIT_CODE_DONE before one */
    struct error error;
};

/* Gives a request to the outbox: with a verdict for its result line; without one to be dropped (we are stopping, or its source
 * is another's now: its record will be polled again). Any thread until it has ended. */
void outcome_push(struct pipeline *p, struct request *r);

/* The first failure decides how the process ends; then everything stops. Any thread. */
void pipeline_fail(struct pipeline *p, int exit_code, const char *fmt, ...) PRINTF_LIKE(3, 4);

void engine_ended(void *pipeline, struct request *r);          /* the engine's port */

void *poller_main(void *pipeline);
void *intake_main(void *pipeline);
void *engine_main(void *pipeline);

/* ---- poller.c ---- */

void source_gained(void *pipeline, int32_t source, uint32_t lease);
void source_lost(void *pipeline, int32_t source, uint32_t lease, bool already);
void source_lost_wait(void *pipeline, int64_t deadline_ns);
void poll_side_close(struct poll_side *s);
bool record_is_ours(struct pipeline *p, const struct record *rec);     /* any thread */
void record_end(struct pipeline *p, struct record *rec);               /* given back; any thread */

/* ---- saver.c: owns the checkpoint store; tokens come in, frames go out, never waited for ---- */

/* url: see checkpoint_url; "": no store. ST_REJECT: the URL makes no sense. A store that is away is no error: work goes on
 * without. */
MUST_USE status saver_open(struct pipeline *p, const char *url, struct saver **out, struct error *err);
void saver_start(struct saver *s);
/* Whether requests must pass saver_look_up before the engine: something of this job may be stored. */
bool saver_looks_up(const struct saver *s);
/* Intake threads: gives the request on to the engine's queue, with the tokens it had. ST_FENCED: stopping, still the caller's. */
MUST_USE status saver_look_up(struct saver *s, struct request *r);
void saver_look_ups_end(struct saver *s);      /* no more look-ups: p->admits is closed when the last is through */
void saver_look_ups_wait(struct saver *s);     /* until then */
void saver_progress(struct saver *s, const struct request *r, int32_t choice);     /* engine's thread */
int32_t saver_safe(struct saver *s, const struct request *r, int32_t choice);      /* engine's thread: its port */
enum engine_begun saver_begin(struct saver *s, struct request *r, bool alone);     /* engine's thread: its port */
void saver_cleared(struct saver *s, struct request *r);                            /* engine's thread: its port */
void saver_ended(struct request *r);           /* engine's thread: it has ended there */
void quarantine_reject(struct request *r);     /* by what request.starts says */
/* Poll thread. Work for a source is saved from the one until the other, and until saver_flush in between. */
void saver_source_gained(struct saver *s, int32_t source, uint32_t lease);
void saver_source_lost(struct saver *s, int32_t source, uint32_t lease);
void saver_flush(struct saver *s, int64_t deadline_ns);        /* until all that was handed over before is in the store */
/* Takes what the saver hangs on a request away from it, so that the request can be freed; in front of the given list. Then
 * saver_end: forgotten once the result is durable, kept and handed over when it is not. */
struct save_slot *saver_detach(struct request *r, struct save_slot *slots);
struct start *saver_detach_start(struct request *r, struct start *starts);
void saver_end(struct saver *s, struct save_slot *slots, struct start *starts, bool durable);
/* Last flush; then, when the job is over, everything of it leaves the store. */
void saver_stop(struct saver *s);
void saver_forget_job(struct saver *s);        /* after saver_stop */
void saver_read_counts(struct saver *s, struct ckpt_counts *out);
void saver_close(struct saver *s);             /* NULL is allowed */

/* ---- outbox.c: outcomes to durable results ---- */

struct outbox *outbox_open(struct pipeline *p);
void outbox_start(struct outbox *o);
void outbox_join(struct outbox *o);
void outbox_close(struct outbox *o);           /* NULL is allowed */

#endif
