/* base/clock.h - time behind a border, so that tests and the simulation can own it.
 * Deadlines and intervals use clock_mono_ns only; wall time is for people and timestamps. Threads: any. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

struct clock {
    int64_t (*mono_ns)(void *ctx);
    int64_t (*wall_ns)(void *ctx);     /* Unix time */
    void *ctx;
};

/* Replaces the process's clock; NULL: the machine's own. At start, before other threads. The struct is borrowed. */
void clock_use(const struct clock *clock);

int64_t clock_mono_ns(void);
int64_t clock_wall_ns(void);
/* CPU time of this process (all threads) and of the calling thread: never behind the border, only for reports. */
int64_t clock_cpu_ns(void);
int64_t clock_thread_cpu_ns(void);

#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)

#endif
