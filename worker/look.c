/* Views of the worker: for the HTTP server and for the log. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"
#include "worker/worker.h"

/* Names come from a model file and from the machine: any bytes. Pages are UTF-8. */
static void text_take(char *out, size_t out_n, const char *text)
{
    size_t n = strnlen(text, out_n - 1), at;

    memcpy(out, text, n);
    out[n] = '\0';
    while ((at = utf8_valid(out, n)) < n)
        out[at] = '?';
}

static void sources_look(struct worker *w, struct worker_view *out)
{
    struct notice_state states[NOTICE_FROM_N];

    if (w->notices == NULL)
        return;
    notices_read_state(w->notices, states);
    for (int i = 0; i < NOTICE_FROM_N; i++) {
        out->sources[i].from = notice_from_name((enum notice_from)i);
        out->sources[i].state = notice_source_state_name(states[i].state);
        out->sources[i].asked_n = states[i].asked_n;
        out->sources[i].failed_n = states[i].failed_n;
        out->sources[i].notices_n = states[i].notices_n;
    }
    out->sources_n = NOTICE_FROM_N;
}

void worker_look(void *worker, struct worker_view *out)
{
    struct worker *w = worker;
    struct pipeline *p;

    memset(out, 0, sizeof *out);
    out->version = NIGHTSHIFT_VERSION;
    out->queue_url = w->queue_shown;
    out->started_s = w->started_s;
    out->now_ns = clock_mono_ns();
    pthread_mutex_lock(&w->lock);
    p = w->pipeline;
    out->state = w->state;
    out->rebalance_hinted = w->hinted;
    out->drain_begun_ns = w->drain_begun_ns;
    out->drain_end_ns = w->drain.end_ns;
    out->drain_ended_ns = w->drain_ended_ns;
    out->silence = w->silence;
    pthread_mutex_unlock(&w->lock);
    sources_look(w, out);
    if (p == NULL)
        return;
    out->opened = true;
    text_take(out->model, sizeof out->model, pipeline_model(p)->name);
    text_take(out->quant, sizeof out->quant, pipeline_model(p)->quant);
    text_take(out->device, sizeof out->device, pipeline_device(p)->name);
    text_take(out->isa, sizeof out->isa, pipeline_device(p)->isa);
    pipeline_read_counts(p, &out->counts);
}

void worker_summary(struct worker *w)
{
    struct worker_view v;
    const struct engine_counts *e = &v.counts.engine;

    worker_look(w, &v);
    log_info("worker.summary", "state=%s done=%" PRId64 " failed=%" PRId64 " running=%d waiting=%" PRId64 " prompt_tokens=%" PRId64
             " cached_tokens=%" PRId64 " output_tokens=%" PRId64 " device_s=%.1f", worker_state_name(v.state), v.counts.done_n,
             v.counts.failed_n, e->running_n, e->waiting_n, e->prompt_tokens, e->cached_tokens, e->output_tokens, e->device_s);
}
