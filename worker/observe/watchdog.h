/* worker/observe/watchdog.h - how long nothing was seen of what must move. Pure: the caller has the clock and the thread.
 *
 * Silence counts only while this process runs: after a stop (SIGSTOP, a debugger, a machine that was suspended) the beats are as old
 * as the stop is long, and nothing is wrong with them yet. */
#ifndef WORKER_OBSERVE_WATCHDOG_H
#define WORKER_OBSERVE_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"

struct watchdog_beats {            /* clock_mono_ns of the last one; 0: not to be watched now */
    int64_t poll_ns, step_ns;
    int64_t pending_since_ns;      /* results wait for a commit since; another value: another commit, 0: none waits */
};

struct watchdog_silence { int64_t poll_ns, step_ns, commit_ns; };

enum watchdog_verdict {
    WATCHDOG_FINE,
    WATCHDOG_COMMIT_LATE,          /* once for each commit: watchdog_commit_s are over */
    WATCHDOG_COMMIT_DEAD,          /* three times as long: end with exit 3 */
    WATCHDOG_POLL_DEAD,            /* exit 4 */
    WATCHDOG_STEP_DEAD             /* exit 5 */
};

struct watchdog {
    struct watchdog_beats last;
    struct watchdog_silence silence;
    int64_t ticked_ns;             /* 0: never */
    bool late_said;
};

/* How far apart ticks are meant to be; a longer gap is counted as two of them. */
#define WATCHDOG_TICK_MS 250

enum watchdog_verdict watchdog_tick(struct watchdog *w, const struct config *cfg, const struct watchdog_beats *b, int64_t now_ns);

#endif
