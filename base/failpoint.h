/* base/failpoint.h - death on cue. NIGHTSHIFT_FAILPOINT=name:n kills the process (SIGKILL, nothing is cleaned up)
 * when failpoint("name") is reached for the n-th time. Every durable step has one; without the variable it costs one
 * compare. Threads: any. */
#ifndef BASE_FAILPOINT_H
#define BASE_FAILPOINT_H

#include <stdbool.h>

#include "base/status.h"

extern bool failpoint_armed;

/* spec is "name:n", or NULL for none. ST_REJECT: it is malformed. At start only. */
MUST_USE status failpoint_arm(const char *spec);
void failpoint_reached(const char *name);

static inline void failpoint(const char *name)
{
    if (failpoint_armed)
        failpoint_reached(name);
}

#endif
