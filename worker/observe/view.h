/* worker/observe/view.h - one look at a whole worker: what /metrics, /status, /healthz and /readyz are made from.
 * A view is a copy; its texts are static or as long as the process. */
#ifndef WORKER_OBSERVE_VIEW_H
#define WORKER_OBSERVE_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/observe/watchdog.h"
#include "worker/pipeline/pipeline.h"

enum worker_state { WORKER_LOADING, WORKER_RUNNING, WORKER_DRAINING, WORKER_ENDED };
const char *worker_state_name(enum worker_state s);

#define VIEW_SOURCES_MAX 8

struct worker_view {
    enum worker_state state;
    const char *version, *queue_url;           /* the URL without what stands before an "@" */
    double started_s;                          /* Unix time */
    int64_t now_ns;                            /* clock_mono_ns of this look */
    int64_t drain_begun_ns, drain_end_ns;      /* 0: no drain */
    int64_t drain_ended_ns;                    /* the pipeline has ended; 0: not yet */
    bool rebalance_hinted;                     /* the cloud says that this machine may go soon */
    /* who may say that the machine goes */
    struct { const char *from, *state; int64_t asked_n, failed_n, notices_n; } sources[VIEW_SOURCES_MAX];
    int sources_n;
    struct watchdog_silence silence;
    /* from here on only with opened */
    bool opened;
    char model[96], quant[16], device[96], isa[32];      /* UTF-8 */
    struct pipeline_counts counts;
};

/* Why the process should be ended; NULL: it lives. */
const char *view_dead_why(const struct worker_view *v, const struct config *cfg);
/* Why no work should be expected of it now; NULL: it is ready. Progress, not liveness: results that wait for a commit for long
 * make a worker unready even where every thread moves. */
const char *view_unready_why(const struct worker_view *v, const struct config *cfg);

#endif
