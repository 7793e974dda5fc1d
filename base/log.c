#define _POSIX_C_SOURCE 200809L
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static enum log_level level_max = LOG_WARN;
static void (*before_line)(void);
static pthread_mutex_t line_lock = PTHREAD_MUTEX_INITIALIZER;
static const char *const level_names[] = { "error", "warn", "info", "debug" };

void log_level_set(enum log_level level)
{
    level_max = level;
}

void log_before_line(void (*wipe)(void))
{
    before_line = wipe;
}

status log_level_parse(const char *name, enum log_level *out)
{
    for (size_t i = 0; i < sizeof level_names / sizeof level_names[0]; i++)
        if (strcmp(name, level_names[i]) == 0) {
            *out = (enum log_level)i;
            return ST_OK;
        }
    return ST_REJECT;
}

void log_line(enum log_level level, const char *event, const char *fmt, ...)
{
    char text[2048];
    struct timespec now;
    struct tm tm;
    size_t n, room;
    int more;
    va_list ap;

    if (level > level_max)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    n += (size_t)snprintf(text + n, sizeof text - n, ".%03ldZ level=%s event=%s ",
                          now.tv_nsec / 1000000, level_names[level], event);
    room = sizeof text - n - 1;     /* one byte stays for the newline */
    va_start(ap, fmt);
    more = vsnprintf(text + n, room, fmt, ap);
    va_end(ap);
    n += more < 0 ? 0 : (size_t)more < room ? (size_t)more : room - 1;
    text[n++] = '\n';

    pthread_mutex_lock(&line_lock);
    if (before_line != NULL)
        before_line();
    /* Nothing sensible can be done about a log that cannot be written. */
    if (write(STDERR_FILENO, text, n) < 0) { }
    pthread_mutex_unlock(&line_lock);
}
