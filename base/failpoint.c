#define _POSIX_C_SOURCE 200809L
#include "base/failpoint.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

bool failpoint_armed;
static char armed_name[64];
static atomic_long armed_left;

status failpoint_arm(const char *spec)
{
    const char *colon = spec != NULL ? strchr(spec, ':') : NULL;
    char *end;
    long n;

    failpoint_armed = false;
    if (spec == NULL)
        return ST_OK;
    if (colon == NULL || colon == spec || (size_t)(colon - spec) >= sizeof armed_name)
        return ST_REJECT;
    n = strtol(colon + 1, &end, 10);
    if (n < 1 || *end != '\0')
        return ST_REJECT;
    memcpy(armed_name, spec, (size_t)(colon - spec));
    armed_name[colon - spec] = '\0';
    atomic_store(&armed_left, n);
    failpoint_armed = true;
    return ST_OK;
}

void failpoint_reached(const char *name)
{
    if (strcmp(name, armed_name) == 0 && atomic_fetch_sub(&armed_left, 1) == 1)
        raise(SIGKILL);
}
