/* base/failpoint.h - death, or a hang, on cue. NIGHTSHIFT_FAILPOINT=name:n[:action] acts when failpoint("name") is reached
 * for the n-th time. Actions: kill (the default: SIGKILL, nothing is cleaned up), stop (SIGSTOP: the process freezes until
 * SIGCONT), sleep (this thread hangs for an hour) or sleep=MS. Every durable step and every loop with a watchdog has one;
 * without the variable it costs one compare. Threads: any. */
#ifndef BASE_FAILPOINT_H
#define BASE_FAILPOINT_H

#include <stdbool.h>

#include "base/status.h"

extern bool failpoint_armed;

/* NIGHTSHIFT_FAILPOINT=name=TEXT arms a failpoint that looks for a text instead. NULL: it is not armed. */
const char *failpoint_text(const char *name);

/* spec as above, or NULL for none. ST_REJECT: it is malformed. At start only. */
MUST_USE status failpoint_arm(const char *spec);
void failpoint_reached(const char *name);

static inline void failpoint(const char *name)
{
    if (failpoint_armed)
        failpoint_reached(name);
}

#endif
