/* The engine's thread: takes requests as long as the planner has room, runs steps. */
#include "worker/pipeline/internal.h"

#include <inttypes.h>

#include "base/log.h"

static void counts_publish(struct pipeline *p)
{
    int64_t durable_n;

    pthread_mutex_lock(&p->lock);
    p->counts.engine = *engine_counts(p->engine);
    p->counts.cache = engine_cache_counts(p->engine);
    durable_n = p->durable_n;
    pthread_mutex_unlock(&p->lock);
    /* What a death at this moment would cost: the kill tests read it. */
    log_debug("engine.counts", "output_tokens=%" PRId64 " running=%d undurable=%" PRId64,
              engine_counts(p->engine)->output_tokens, engine_counts(p->engine)->running_n, p->ended_n - durable_n);
}

/* A request leaves without a verdict: its tokens are saved, its record will be polled again by the next run. */
static void request_dropped(void *pipeline, struct request *r)
{
    struct pipeline *p = pipeline;

    for (int32_t c = 0; c < r->params.n; c++)
        saver_progress(p->saver, r, c);
    outcome_push(p, r);
}

static size_t requests_take(struct pipeline *p, int timeout_ms)
{
    void *items[POP_MAX];
    int64_t room = engine_room(p->engine);
    size_t n = 0;

    if (room > 0)
        n = bqueue_pop(p->admits, items, room < POP_MAX ? (size_t)room : POP_MAX, timeout_ms);
    for (size_t i = 0; i < n; i++)
        engine_submit(p->engine, items[i]);
    return n;
}

void *engine_main(void *pipeline)
{
    struct pipeline *p = pipeline;
    bool idle = true;

    while (!atomic_load(&p->stopping)) {
        size_t taken = requests_take(p, idle ? 20 : 0);
        status st = engine_step(p->engine);

        if (st == ST_FATAL) {
            pipeline_fail(p, EXIT_CODE_DEVICE, "the device failed; run again to go on from the saved progress");
            break;
        }
        idle = st == ST_AGAIN;
        if (!idle)
            counts_publish(p);
        else if (taken == 0 && bqueue_ended(p->admits))
            break;
    }
    engine_drop(p->engine, request_dropped, p);
    counts_publish(p);
    atomic_store(&p->ended, true);
    return NULL;
}
