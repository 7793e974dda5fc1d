/* The engine's thread: takes requests as long as the planner has room, runs steps, drops what is another's now. */
#define _POSIX_C_SOURCE 200809L
#include "worker/pipeline/internal.h"

#include <inttypes.h>
#include <time.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"

enum { IDLE_MS = 20 };

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

static void pause_us(int64_t us)
{
    nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL);
}

/* A full outbox holds the engine back; that it waits for it is no sign of a device that hangs. */
static void outcome_push_alive(struct pipeline *p, struct request *r)
{
    status st;

    while ((st = bqueue_push_now(p->outcomes, r)) == ST_AGAIN) {
        atomic_store(&p->step_ns, clock_mono_ns());
        pause_us(500);
    }
    ASSERT(st == ST_OK);
}

void engine_ended(void *pipeline, struct request *r)
{
    ((struct pipeline *)pipeline)->ended_n++;
    saver_ended(r);
    outcome_push_alive(pipeline, r);
}

/* A request leaves without a verdict: its tokens are saved, its record will be polled again by the next run or owner. */
static void request_dropped(void *pipeline, struct request *r)
{
    struct pipeline *p = pipeline;

    for (int32_t c = 0; c < r->params.n; c++)
        saver_progress(p->saver, r, c);
    outcome_push_alive(p, r);
}

/* While a source is to be given away, what of it stands in the way here is taken out whatever the room. */
static size_t requests_take(struct pipeline *p, int timeout_ms)
{
    void *items[POP_MAX];
    int64_t room = atomic_load(&p->hurries_n) > 0 ? POP_MAX : engine_room(p->engine);
    size_t n = 0;

    if (room > 0)
        n = bqueue_pop(p->admits, items, room < POP_MAX ? (size_t)room : POP_MAX, timeout_ms);
    else if (timeout_ms > 0)
        pause_us(500);
    for (size_t i = 0; i < n; i++) {
        struct request *r = items[i];

        if (record_is_ours(p, r->record))
            engine_submit(p->engine, r);
        else
            outcome_push_alive(p, r);
    }
    return n;
}

static bool is_not_ours(void *pipeline, const struct request *r)
{
    return !record_is_ours(pipeline, r->record);
}

/* The end of a drain: nothing runs any more, or its time to finish is over. */
static bool drain_is_over(struct pipeline *p)
{
    if (!atomic_load(&p->draining))
        return false;
    engine_hold(p->engine);
    return engine_counts(p->engine)->running_n == 0 || clock_mono_ns() >= atomic_load(&p->finish_until_ns);
}

/* Requests that cannot start, and sequences that sit out, wait for the saver: a short time. */
static int idle_ms(const struct pipeline *p)
{
    return engine_counts(p->engine)->waiting_n > 0 || engine_counts(p->engine)->running_n > 0 ? 1 : IDLE_MS;
}

void *engine_main(void *pipeline)
{
    struct pipeline *p = pipeline;
    uint64_t lost_n = 0;
    bool idle = true;

    while (!atomic_load(&p->stopping) && !drain_is_over(p)) {
        size_t taken = requests_take(p, idle ? idle_ms(p) : 0);
        status st = (failpoint("engine.step"), engine_step(p->engine));

        atomic_store(&p->step_ns, clock_mono_ns());
        if (st == ST_FATAL) {
            atomic_store(&p->device_failed, true);
            pipeline_fail(p, EXIT_CODE_DEVICE, "the device failed; run again to go on from the saved progress");
            break;
        }
        if (leases_lost_n(p->leases) != lost_n) {
            lost_n = leases_lost_n(p->leases);
            engine_drop_some(p->engine, is_not_ours, request_dropped, p);
        }
        idle = st == ST_AGAIN;
        if (!idle)
            counts_publish(p);
        else if (taken == 0 && engine_counts(p->engine)->waiting_n == 0 && engine_counts(p->engine)->running_n == 0
                 && bqueue_ended(p->admits))
            break;
    }
    pipeline_stop(p);                          /* at an end of its own there is nothing left to stop */
    engine_drop(p->engine, request_dropped, p);
    counts_publish(p);
    atomic_store(&p->ended, true);
    return NULL;
}
