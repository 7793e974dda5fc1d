/* worker/observe/watchdog.h - how long nothing was seen of what must move. Pure: the caller has the clock and the thread.
 *
 * The engine is not watched while results wait: where they wait for long it is held back by them.
 * Silence counts only while this process runs: after a stop (SIGSTOP, a debugger, a machine that was suspended) the beats are as old
 * as the stop is long, and nothing is wrong with them yet. */
#ifndef WORKER_OBSERVE_WATCHDOG_H
#define WORKER_OBSERVE_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"
#include "worker/pipeline/pipeline.h"

struct watchdog_silence { int64_t poll_ns, step_ns, commit_ns; };

enum watchdog_verdict {
    WATCHDOG_FINE,
    WATCHDOG_COMMIT_LATE,          /* once for each group of results: watchdog_commit_s are over */
    WATCHDOG_COMMIT_DEAD,          /* three times as long: end with exit 3 */
    WATCHDOG_POLL_DEAD,            /* exit 4 */
    WATCHDOG_STEP_DEAD             /* exit 5 */
};

struct watchdog {
    struct pipeline_beats last;
    struct watchdog_silence silence;
    int64_t ticked_ns;             /* 0: never */
    bool late_said;
};

/* A beat of 0 is not watched. How far apart ticks are meant to be; a longer gap is counted as two of them. */
#define WATCHDOG_TICK_MS 250

enum watchdog_verdict watchdog_tick(struct watchdog *w, const struct config *cfg, const struct pipeline_beats *b, int64_t now_ns);

#endif
