/* kernels/cpu/team.h - the threads of a CPU device: they spin for the next short piece of work and sleep when none comes.
 *
 * Why not OpenMP: its waits are either always busy (two processes on one machine starve each other) or always asleep
 * (tens of microseconds, 200 times a step). Here a thread spins a bounded time, then sleeps.
 * Threads: one thread drives a team (team_run); it takes part as thread 0. Splits are static: what a thread computes
 * depends on (thread_i, threads_n) alone. */
#ifndef KERNELS_CPU_TEAM_H
#define KERNELS_CPU_TEAM_H

#include <stdint.h>

#include "base/status.h"

struct team;

int team_cores(void);                          /* cores that this process may use */

/* threads_n >= 1, the caller included. ST_REJECT: the machine gives no more threads. */
MUST_USE status team_open(int threads_n, struct team **out, struct error *err);
void team_close(struct team *t);               /* NULL is allowed */
int team_threads(const struct team *t);

/* Runs fn(ctx, i, n) once on every thread i of n and returns when all are done. What the caller wrote before is seen
 * by all, what they wrote is seen by the caller. Not from inside a run. */
void team_run(struct team *t, void (*fn)(void *ctx, int thread_i, int threads_n), void *ctx);
/* Inside a run: returns when every thread of the team has called it. Every thread must call it equally often. */
void team_barrier(struct team *t);

/* Part thread_i of n items: [*first, *last), contiguous, sizes differ by at most one. */
static inline void team_split(int64_t n, int thread_i, int threads_n, int64_t *first, int64_t *last)
{
    *first = n * thread_i / threads_n;
    *last = n * (thread_i + 1) / threads_n;
}

#endif
