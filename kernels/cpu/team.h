/* kernels/cpu/team.h - the threads of a CPU device: they spin for the next short piece of work and sleep when none comes.
 *
 * Why not OpenMP: its waits are either always busy (two processes on one machine starve each other) or always asleep
 * (tens of microseconds, 200 times a step). Here a thread spins a bounded time, then sleeps.
 * Threads: one thread drives a team (team_run) and takes part. A run has as many parts as the team has threads. A thread
 * comes to its own part first (the caller's is 0), but which thread computes a part is open: the caller computes those
 * that no other thread has come for. What a part computes depends on (part_i, parts_n) alone. */
#ifndef KERNELS_CPU_TEAM_H
#define KERNELS_CPU_TEAM_H

#include <stdint.h>

#include "base/status.h"

struct team;

/* threads_n >= 1, the caller included. ST_REJECT: the machine gives no more threads. */
MUST_USE status team_open(int threads_n, struct team **out, struct error *err);
void team_close(struct team *t);               /* NULL is allowed */
int team_threads(const struct team *t);

/* Runs fn(ctx, i, n) once for every part i of n = threads, and returns when all are done; parts run at the same time or
 * one after the other. What the caller wrote before is seen by all, what they wrote is seen by the caller. Not from
 * inside a run. */
void team_run(struct team *t, void (*fn)(void *ctx, int part_i, int parts_n), void *ctx);

/* Part part_i of n items: [*first, *last), contiguous, sizes differ by at most one. */
static inline void team_split(int64_t n, int part_i, int parts_n, int64_t *first, int64_t *last)
{
    *first = n * part_i / parts_n;
    *last = n * (part_i + 1) / parts_n;
}

#endif
