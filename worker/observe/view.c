#include "worker/observe/view.h"

#include "base/clock.h"

const char *worker_state_name(enum worker_state s)
{
    static const char *const names[] = { "loading", "running", "draining", "ended" };

    return names[s];
}

const char *view_dead_why(const struct worker_view *v, const struct config *cfg)
{
    if (v->silence.poll_ns >= cfg->watchdog_poll_s * NS_PER_S)
        return "the queue is not polled";
    if (v->silence.step_ns >= cfg->watchdog_step_s * NS_PER_S)
        return "the engine makes no step";
    return NULL;
}

const char *view_unready_why(const struct worker_view *v, const struct config *cfg)
{
    const char *dead = view_dead_why(v, cfg);

    if (dead != NULL)
        return dead;
    if (v->state != WORKER_RUNNING)
        return worker_state_name(v->state);
    if (v->silence.commit_ns >= cfg->watchdog_commit_s * NS_PER_S)
        return "results wait for a commit";
    return NULL;
}
