#include "worker/observe/watchdog.h"

#include "base/clock.h"

#define GAP_NS_MAX (2 * WATCHDOG_TICK_MS * NS_PER_MS)

static void silence_add(int64_t *silence, int64_t beat, int64_t *last, int64_t elapsed)
{
    *silence = beat == 0 || beat != *last ? 0 : *silence + elapsed;
    *last = beat;
}

enum watchdog_verdict watchdog_tick(struct watchdog *w, const struct config *cfg, const struct pipeline_beats *b, int64_t now_ns)
{
    int64_t elapsed = w->ticked_ns == 0 ? 0 : now_ns - w->ticked_ns;

    if (elapsed > GAP_NS_MAX)
        elapsed = GAP_NS_MAX;
    w->ticked_ns = now_ns;
    if (b->results_since_ns != w->last.results_since_ns)
        w->late_said = false;
    silence_add(&w->silence.poll_ns, b->poll_ns, &w->last.poll_ns, elapsed);
    silence_add(&w->silence.step_ns, b->step_ns, &w->last.step_ns, b->results_since_ns != 0 ? 0 : elapsed);
    silence_add(&w->silence.commit_ns, b->results_since_ns, &w->last.results_since_ns, elapsed);
    if (w->silence.poll_ns >= cfg->watchdog_poll_s * NS_PER_S)
        return WATCHDOG_POLL_DEAD;
    if (w->silence.step_ns >= cfg->watchdog_step_s * NS_PER_S)
        return WATCHDOG_STEP_DEAD;
    if (w->silence.commit_ns >= 3 * cfg->watchdog_commit_s * NS_PER_S)
        return WATCHDOG_COMMIT_DEAD;
    if (w->silence.commit_ns >= cfg->watchdog_commit_s * NS_PER_S && !w->late_said) {
        w->late_said = true;
        return WATCHDOG_COMMIT_LATE;
    }
    return WATCHDOG_FINE;
}
