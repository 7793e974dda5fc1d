/* kernels/comm.h - what the ranks of one tensor-parallel group do together.
 *
 * A group is N ranks that run the same forward pass; two sums a layer make their halves whole. Sums run in rank order
 * 0..N-1 whatever the size, so a row's bits depend on N and the row alone.
 * Threads:   each rank is one thread with its own struct comm. A call returns when this rank's result is ready.
 * Blocking:  at most timeout_ms of comm_group_open; a rank that is gone or late ends the group: every later call on every
 *            rank answers ST_FATAL at once and nothing waits for ever.
 * Ownership: buffers are borrowed for the call. */
#ifndef KERNELS_COMM_H
#define KERNELS_COMM_H

#include <stddef.h>

#include "base/status.h"

struct comm_group;                 /* shared by the ranks of one process */
struct comm;

/* A group of ranks_n threads of this process ("local": the reference). The opener ends its own hold with
 * comm_group_close, at the earliest when every rank has called comm_open; the group itself goes with its last comm. */
MUST_USE status comm_group_open(int ranks_n, int timeout_ms, struct comm_group **out);
void comm_group_close(struct comm_group *g);               /* NULL is allowed */
/* Called once by each rank's thread. ST_FATAL: the group has ended already. */
MUST_USE status comm_open(struct comm_group *g, int rank, struct comm **out);
void comm_close(struct comm *c);   /* NULL is allowed; a rank that closes early ends the group */
void comm_abort(struct comm *c);   /* any thread: ends the group now */

int comm_rank(const struct comm *c);
int comm_size(const struct comm *c);

/* x[i] = sum over ranks, in rank order, fp32. */
MUST_USE status comm_allreduce(struct comm *c, float *x, size_t n);
/* Rank 0's bytes on every rank: how the leader hands out a step. */
MUST_USE status comm_broadcast(struct comm *c, void *bytes, size_t n);
/* Every rank's n floats, in rank order, into out [size * n]. */
MUST_USE status comm_allgather(struct comm *c, const float *x, size_t n, float *out);
MUST_USE status comm_barrier(struct comm *c);

#endif
