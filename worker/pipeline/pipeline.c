/* The start order and the stop order, readable as a list. */
#include "worker/pipeline/pipeline.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "worker/pipeline/internal.h"

enum { STOP_SAVE_S = 5, STOP_COMMIT_S = 10, STOP_LEAVE_S = 15 };

void pipeline_fail(struct pipeline *p, int exit_code, const char *fmt, ...)
{
    va_list ap;

    pthread_mutex_lock(&p->lock);
    if (p->exit_code == EXIT_CODE_DONE) {
        p->exit_code = exit_code;
        va_start(ap, fmt);
        vsnprintf(p->error.text, sizeof p->error.text, fmt, ap);
        va_end(ap);
    }
    pthread_mutex_unlock(&p->lock);
    pipeline_stop(p);
}

static void deadline_near(_Atomic int64_t *deadline_ns, int64_t to_ns)
{
    int64_t now = atomic_load(deadline_ns);

    while (to_ns < now && !atomic_compare_exchange_weak(deadline_ns, &now, to_ns))
        ;
}

/* Without a plan of somebody else's, the last saves and commits to services that do not answer have an end, too. */
static void deadlines_default(struct pipeline *p)
{
    int64_t now = clock_mono_ns();

    deadline_near(&p->save_until_ns, now + STOP_SAVE_S * NS_PER_S);
    deadline_near(&p->commit_until_ns, now + STOP_COMMIT_S * NS_PER_S);
    deadline_near(&p->leave_until_ns, now + STOP_LEAVE_S * NS_PER_S);
}

void pipeline_drain(struct pipeline *p, const struct drain_plan *plan)
{
    deadline_near(&p->finish_until_ns, plan->finish_until_ns);
    deadline_near(&p->save_until_ns, plan->save_until_ns);
    deadline_near(&p->commit_until_ns, plan->commit_until_ns);
    deadline_near(&p->leave_until_ns, plan->leave_until_ns);
    if (!atomic_exchange(&p->draining, true))
        queue_stop_taking(p->queue);
}

void pipeline_stop(struct pipeline *p)
{
    if (p->is_topic && !atomic_load(&p->stopping)) {
        queue_stop_taking(p->queue);
        deadlines_default(p);
    }
    atomic_store(&p->stopping, true);
    bqueue_close(p->records);
    saver_look_ups_end(p->saver);
    bqueue_close(p->admits);
}

/* ---- open ---- */

/* Everything besides the input that an answer depends on; the queue keeps it and refuses to go on with another. */
static char *fingerprint_make(const struct pipeline *p)
{
    struct buf b = BUF_EMPTY;
    char hash[33];

    hash128_hex(model_hash(p->model), hash);
    buf_add_format(&b, "{\"model\": \"%s\", \"dtype\": \"%s\", \"max_tokens_default\": %lld}", hash, p->cfg->dtype,
                   (long long)p->cfg->max_tokens_default);
    return buf_steal(&b);
}

/* system_fingerprint of the answers: which weights made them. */
static void fingerprint_name(struct pipeline *p)
{
    char hash[33];

    hash128_hex(model_hash(p->model), hash);
    snprintf(p->fingerprint_text, sizeof p->fingerprint_text, "ns-%.12s", hash);
    p->text.lines.fingerprint = p->fingerprint_text;
}

static status model_load(struct pipeline *p, const struct pipeline_job *job, struct error *err)
{
    status st;

    TRY(model_text_open(&p->text, p->cfg, job->model_path, job->name, err));
    TRY(device_open(p->cfg, &p->device, err));
    TRY(model_open(p->text.gguf, p->device, (int)p->cfg->step_rows_max, (int)p->cfg->sequences_max, &p->model, err));
out:
    return st;
}

static status store_open(struct pipeline *p, const struct queue_job *job, struct error *err)
{
    const char *id = queue_state(p->queue)->job;
    char url[CONF_TEXT_MAX + 4096];

    p->job_hash = hash64(id, strlen(id), 0);
    if (p->cfg->checkpoint_url[0] != '\0' || job->output == NULL)
        snprintf(url, sizeof url, "%s", p->cfg->checkpoint_url);
    else
        snprintf(url, sizeof url, "sqlite:%s.progress", job->output);
    return saver_open(p, url, &p->saver, err);
}

static void engine_progress(void *pipeline, const struct request *r, int32_t choice)
{
    saver_progress(((struct pipeline *)pipeline)->saver, r, choice);
}

static int32_t engine_safe(void *pipeline, const struct request *r, int32_t choice)
{
    return saver_safe(((struct pipeline *)pipeline)->saver, r, choice);
}

static enum engine_begun engine_begin(void *pipeline, struct request *r, bool alone)
{
    return saver_begin(((struct pipeline *)pipeline)->saver, r, alone);
}

static void engine_cleared(void *pipeline, struct request *r)
{
    saver_cleared(((struct pipeline *)pipeline)->saver, r);
}

status pipeline_open(const struct config *cfg, const struct pipeline_job *job, struct pipeline **out, int *exit_code,
                     struct error *err)
{
    struct pipeline *p = mem_take_zero(1, sizeof *p);
    struct queue_job queue_job = job->queue;
    struct engine_ports ports = { p, engine_progress, engine_ended, engine_begin, engine_cleared, engine_safe };
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    status st;

    *out = NULL;
    *exit_code = EXIT_CODE_CANNOT_START;
    p->cfg = cfg;
    pthread_mutex_init(&p->lock, NULL);
    p->leases = leases_open();
    p->events = (struct queue_events){ p, source_gained, source_lost, source_lost_wait };
    p->finish_until_ns = p->save_until_ns = p->commit_until_ns = p->leave_until_ns = INT64_MAX;
    p->step_ns = p->poll_ns = clock_mono_ns();
    p->records = bqueue_open(RECORDS_MAX);
    p->admits = bqueue_open(REQUESTS_MAX);
    p->outcomes = bqueue_open(REQUESTS_MAX);
    TRY(model_load(p, job, err));
    fingerprint_name(p);
    queue_job.fingerprint = p->fingerprint = fingerprint_make(p);
    queue_job.events = &p->events;
    TRY(queue_open(cfg, &queue_job, &p->queue, err));
    p->is_topic = queue_state(p->queue)->records_n < 0;
    p->text.lines.now_ns = queue_state(p->queue)->begun_s * NS_PER_S;
    TRY(store_open(p, &job->queue, err));
    TRY(engine_open(cfg, p->device, p->model, p->text.tokenizer, &ports, &p->engine, err));
    p->outbox = outbox_open(p);
    p->intakes_n = cfg->intake_threads > 0 ? (int)cfg->intake_threads : cores > 3 ? (int)(cores / 2) : 1;
    p->intakes = mem_take_zero((size_t)p->intakes_n, sizeof *p->intakes);
    p->counts.records_n = queue_state(p->queue)->records_n;
    p->counts.before_n = queue_state(p->queue)->done_n;
    p->counts.before_failed_n = queue_state(p->queue)->failed_n;
    *exit_code = EXIT_CODE_DONE;
    *out = p;
    p = NULL;
out:
    pipeline_close(p);
    return st;
}

const struct model_shape *pipeline_model(const struct pipeline *p)
{
    return model_shape(p->model);
}

const struct device_info *pipeline_device(const struct pipeline *p)
{
    return device_info(p->device);
}

const struct queue_state *pipeline_queue(const struct pipeline *p)
{
    return queue_state(p->queue);
}

/* ---- run ---- */

void pipeline_start(struct pipeline *p)
{
    outbox_start(p->outbox);
    saver_start(p->saver);
    pthread_create(&p->engine_thread, NULL, engine_main, p);
    atomic_store(&p->intakes_left, p->intakes_n);
    for (int i = 0; i < p->intakes_n; i++)
        pthread_create(&p->intakes[i], NULL, intake_main, p);
    pthread_create(&p->poller, NULL, poller_main, p);
}

bool pipeline_ended(struct pipeline *p)
{
    return atomic_load(&p->ended);      /* what follows is short */
}

void pipeline_read_beats(const struct pipeline *p, struct pipeline_beats *out)
{
    out->poll_ns = p->is_topic ? atomic_load(&p->poll_ns) : 0;
    out->step_ns = atomic_load(&p->step_ns);
    out->results_since_ns = atomic_load(&p->results_since_ns);
}

void pipeline_read_counts(struct pipeline *p, struct pipeline_counts *out)
{
    pthread_mutex_lock(&p->lock);
    *out = p->counts;
    pthread_mutex_unlock(&p->lock);
    out->draining = atomic_load(&p->draining);
    queue_read_counts(p->queue, &out->queue);
    saver_read_counts(p->saver, &out->ckpt);
}

/* Requests that were handed on just before everything stopped. */
static void admits_drain(struct pipeline *p)
{
    void *items[POP_MAX];
    size_t n;

    while ((n = bqueue_pop(p->admits, items, POP_MAX, 0)) > 0)
        for (size_t i = 0; i < n; i++)
            outcome_push(p, items[i]);
}

static int finish(struct pipeline *p, struct error *err)
{
    struct pipeline_counts *c = &p->counts;
    status st;

    *err = p->error;
    if (p->exit_code != EXIT_CODE_DONE)
        return p->exit_code;
    if (p->is_topic)
        return EXIT_CODE_DONE;         /* drained, or told that no more comes */
    if (c->before_n + c->done_n + c->failed_n < c->records_n) {
        error_set(err, ST_RETRY, "stopped with all progress saved; run the same command again to go on");
        return EXIT_CODE_STOPPED;
    }
    st = queue_finish(p->queue, err);
    if (st != ST_OK)
        return EXIT_CODE_STOPPED;
    saver_forget_job(p->saver);
    return EXIT_CODE_DONE;
}

/* A topic is polled until the last commit and the last save are through: that keeps its sources ours. */
int pipeline_join(struct pipeline *p, struct error *err)
{
    if (!p->is_topic)
        pthread_join(p->poller, NULL);
    pthread_join(p->engine_thread, NULL);
    for (int i = 0; i < p->intakes_n; i++)
        pthread_join(p->intakes[i], NULL);
    saver_look_ups_wait(p->saver);
    admits_drain(p);
    bqueue_close(p->outcomes);
    outbox_join(p->outbox);
    saver_stop(p->saver);
    if (p->is_topic) {
        atomic_store(&p->poll_end, true);
        pthread_join(p->poller, NULL);
        queue_leave(p->queue, atomic_load(&p->leave_until_ns));
    }
    return finish(p, err);
}

void pipeline_close(struct pipeline *p)
{
    if (p == NULL)
        return;
    outbox_close(p->outbox);
    engine_close(p->engine);
    saver_close(p->saver);
    queue_close(p->queue);
    model_close(p->model);
    device_close(p->device);
    model_text_close(&p->text);
    bqueue_free(p->records);
    bqueue_free(p->admits);
    bqueue_free(p->outcomes);
    leases_close(p->leases);
    poll_side_close(&p->poll);
    pthread_mutex_destroy(&p->lock);
    free(p->intakes);
    free(p->fingerprint);
    free(p);
}
