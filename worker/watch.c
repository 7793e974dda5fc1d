/* The watchdog's thread. It ends the process where nothing else can any more: by _exit, because whatever hangs may hold
 * any lock. What is durable stays so; what is not is done again by the next owner. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "worker/worker.h"

static void end(int exit_code, const char *what, int64_t silence_ns)
{
    log_error("watchdog.end", "what=\"%s\" silence_ms=%lld exit_code=%d", what, (long long)(silence_ns / NS_PER_MS), exit_code);
    _exit(exit_code);
}

static void verdict_take(const struct worker *w, enum watchdog_verdict verdict, const struct watchdog_silence *s)
{
    switch (verdict) {
    case WATCHDOG_FINE:
        break;
    case WATCHDOG_COMMIT_LATE:
        log_warn("watchdog.commit", "silence_ms=%lld exit_after_s=%lld", (long long)(s->commit_ns / NS_PER_MS),
                 (long long)(3 * w->cfg.watchdog_commit_s));
        break;
    case WATCHDOG_COMMIT_DEAD:
        end(EXIT_CODE_FENCED, "no commit with results waiting", s->commit_ns);
        break;
    case WATCHDOG_POLL_DEAD:
        end(EXIT_CODE_WATCHDOG, "the queue is not polled", s->poll_ns);
        break;
    case WATCHDOG_STEP_DEAD:
        end(EXIT_CODE_DEVICE, "the engine makes no step", s->step_ns);
        break;
    }
}

/* What is watched: in a drain its own deadline alone, for then the loops end one after the other. */
static struct pipeline_beats beats_read(const struct pipeline *p, enum worker_state state)
{
    struct pipeline_beats b = { 0 };

    if (p == NULL || state != WORKER_RUNNING)
        return b;
    pipeline_read_beats(p, &b);
    return b;
}

static void *watch_main(void *worker)
{
    struct worker *w = worker;
    struct watchdog dog = { .ticked_ns = 0 };

    while (!atomic_load(&w->watch_stop)) {
        struct pipeline_beats beats;
        enum watchdog_verdict verdict;
        enum worker_state state;
        struct pipeline *p;
        int64_t end_ns;

        nanosleep(&(struct timespec){ .tv_nsec = WATCHDOG_TICK_MS * NS_PER_MS }, NULL);
        pthread_mutex_lock(&w->lock);
        p = w->pipeline;
        state = w->state;
        end_ns = w->drain.end_ns;
        pthread_mutex_unlock(&w->lock);
        if (end_ns != 0 && clock_mono_ns() >= end_ns)
            end(EXIT_CODE_WATCHDOG, "the drain took too long", clock_mono_ns() - end_ns);
        beats = beats_read(p, state);
        verdict = watchdog_tick(&dog, &w->cfg, &beats, clock_mono_ns());
        pthread_mutex_lock(&w->lock);
        w->silence = dog.silence;
        pthread_mutex_unlock(&w->lock);
        verdict_take(w, verdict, &dog.silence);
    }
    return NULL;
}

void watch_start(struct worker *w)
{
    int code = pthread_create(&w->watch, NULL, watch_main, w);

    ASSERT(code == 0);
    w->watching = true;
}

void watch_stop(struct worker *w)
{
    atomic_store(&w->watch_stop, true);
    if (w->watching)
        pthread_join(w->watch, NULL);
    w->watching = false;
}
