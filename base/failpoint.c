#define _POSIX_C_SOURCE 200809L
#include "base/failpoint.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SLEEP_MS 3600000L          /* a hang: longer than any watchdog waits */

enum action { ACTION_KILL, ACTION_STOP, ACTION_SLEEP };

bool failpoint_armed;
static char armed_name[64];
static enum action armed_action;
static long armed_sleep_ms;
static atomic_long armed_left;
static char armed_text[128];

/* What stands behind "name:n": nothing, or ":action". */
static bool action_parse(const char *text)
{
    char *end;

    armed_action = ACTION_KILL;
    armed_sleep_ms = SLEEP_MS;
    if (*text == '\0' || strcmp(text, ":kill") == 0)
        return true;
    if (strcmp(text, ":stop") == 0) {
        armed_action = ACTION_STOP;
        return true;
    }
    if (strncmp(text, ":sleep", 6) != 0)
        return false;
    armed_action = ACTION_SLEEP;
    if (text[6] == '\0')
        return true;
    if (text[6] != '=')
        return false;
    errno = 0;
    armed_sleep_ms = strtol(text + 7, &end, 10);
    return end != text + 7 && *end == '\0' && errno == 0 && armed_sleep_ms > 0;
}

/* "name=TEXT". */
static status text_arm(const char *spec, const char *equals)
{
    if (equals == spec || (size_t)(equals - spec) >= sizeof armed_name || strlen(equals + 1) >= sizeof armed_text
        || equals[1] == '\0')
        return ST_REJECT;
    memcpy(armed_name, spec, (size_t)(equals - spec));
    armed_name[equals - spec] = '\0';
    strcpy(armed_text, equals + 1);
    atomic_store(&armed_left, 0);
    failpoint_armed = true;
    return ST_OK;
}

const char *failpoint_text(const char *name)
{
    return failpoint_armed && armed_text[0] != '\0' && strcmp(name, armed_name) == 0 ? armed_text : NULL;
}

status failpoint_arm(const char *spec)
{
    const char *colon = spec != NULL ? strchr(spec, ':') : NULL, *equals = spec != NULL ? strchr(spec, '=') : NULL;
    char *end;
    long n;

    failpoint_armed = false;
    armed_text[0] = '\0';
    if (spec == NULL)
        return ST_OK;
    if (equals != NULL && (colon == NULL || equals < colon))
        return text_arm(spec, equals);
    if (colon == NULL || colon == spec || (size_t)(colon - spec) >= sizeof armed_name)
        return ST_REJECT;
    n = strtol(colon + 1, &end, 10);
    if (n < 1 || end == colon + 1 || !action_parse(end))
        return ST_REJECT;
    memcpy(armed_name, spec, (size_t)(colon - spec));
    armed_name[colon - spec] = '\0';
    atomic_store(&armed_left, n);
    failpoint_armed = true;
    return ST_OK;
}

static void act(void)
{
    struct timespec left = { armed_sleep_ms / 1000, armed_sleep_ms % 1000 * 1000000 };

    switch (armed_action) {
    case ACTION_KILL:
        raise(SIGKILL);
        break;
    case ACTION_STOP:
        kill(getpid(), SIGSTOP);
        break;
    case ACTION_SLEEP:
        while (nanosleep(&left, &left) != 0 && errno == EINTR)
            continue;
        break;
    }
}

void failpoint_reached(const char *name)
{
    if (strcmp(name, armed_name) == 0 && atomic_fetch_sub(&armed_left, 1) == 1)
        act();
}
