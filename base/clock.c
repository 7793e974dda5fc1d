#define _POSIX_C_SOURCE 200809L
#include "base/clock.h"

#include <stddef.h>
#include <time.h>

static const struct clock *used;

static int64_t read_ns(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

void clock_use(const struct clock *clock)
{
    used = clock;
}

int64_t clock_mono_ns(void)
{
    return used != NULL ? used->mono_ns(used->ctx) : read_ns(CLOCK_MONOTONIC);
}

int64_t clock_wall_ns(void)
{
    return used != NULL ? used->wall_ns(used->ctx) : read_ns(CLOCK_REALTIME);
}

int64_t clock_cpu_ns(void)
{
    return read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

int64_t clock_thread_cpu_ns(void)
{
    return read_ns(CLOCK_THREAD_CPUTIME_ID);
}
