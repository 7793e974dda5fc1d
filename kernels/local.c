/* Ranks are threads of one process.
 *
 * Every operation is one exchange: a rank copies what it gives into a slot of the group, waits until all have, and
 * reads the others' slots. Only memory of the group is shared, and it lives until the last rank has closed, so a rank
 * that gave up can let go of its own buffers while a late one still computes. Each rank has two slots, used in turn:
 * who fills a slot for operation k + 2 has passed the barrier of k + 1, which all reach only after they have read the
 * slots of k. */
#define _POSIX_C_SOURCE 200809L
#include "kernels/comm.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"

#define SPINS 2000                 /* a rank that is a few microseconds behind is waited for awake */

enum op { OP_REDUCE = 1, OP_BROADCAST, OP_GATHER, OP_BARRIER };

struct slot {
    enum op op;
    size_t n, room;                /* of the operation; bytes there */
    char *data;
};

struct comm_group {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ranks_n, timeout_ms;
    int holds;                     /* the opener's and one a comm that is open; under lock */
    int arrived;                   /* at the barrier; under lock */
    bool *taken;                   /* [ranks]; under lock */
    atomic_uint turn;              /* barriers passed */
    atomic_bool ended;
    struct slot *slots;            /* [ranks][2] */
};

struct comm {
    struct comm_group *group;
    int rank;
    unsigned ops;                  /* done by this rank */
};

/* ---- life ---- */

status comm_group_open(int ranks_n, int timeout_ms, struct comm_group **out)
{
    struct comm_group *g = mem_take_zero(1, sizeof *g);
    pthread_condattr_t attr;

    ASSERT(ranks_n >= 1 && timeout_ms >= 0);
    pthread_mutex_init(&g->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&g->changed, &attr);
    pthread_condattr_destroy(&attr);
    g->ranks_n = ranks_n;
    g->timeout_ms = timeout_ms;
    g->holds = 1;
    g->taken = mem_take_zero((size_t)ranks_n, sizeof *g->taken);
    g->slots = mem_take_zero((size_t)ranks_n * 2, sizeof *g->slots);
    atomic_init(&g->turn, 0);
    atomic_init(&g->ended, false);
    *out = g;
    return ST_OK;
}

static void hold_give(struct comm_group *g)
{
    bool last;
    int i;

    pthread_mutex_lock(&g->lock);
    last = --g->holds == 0;
    pthread_mutex_unlock(&g->lock);
    if (!last)
        return;
    for (i = 0; i < g->ranks_n * 2; i++)
        free(g->slots[i].data);
    free(g->slots);
    free(g->taken);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

void comm_group_close(struct comm_group *g)
{
    if (g != NULL)
        hold_give(g);
}

status comm_open(struct comm_group *g, int rank, struct comm **out)
{
    struct comm *c;

    *out = NULL;
    ASSERT(rank >= 0 && rank < g->ranks_n);
    pthread_mutex_lock(&g->lock);
    ASSERT(!g->taken[rank]);
    if (atomic_load(&g->ended)) {
        pthread_mutex_unlock(&g->lock);
        return ST_FATAL;
    }
    g->taken[rank] = true;
    g->holds++;
    pthread_mutex_unlock(&g->lock);
    c = mem_take_zero(1, sizeof *c);
    c->group = g;
    c->rank = rank;
    *out = c;
    return ST_OK;
}

/* True: it was this call that ended it. */
static bool group_end(struct comm_group *g)
{
    bool first;

    pthread_mutex_lock(&g->lock);
    first = !atomic_exchange(&g->ended, true);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    return first;
}

void comm_abort(struct comm *c)
{
    group_end(c->group);
}

void comm_close(struct comm *c)
{
    if (c == NULL)
        return;
    group_end(c->group);
    hold_give(c->group);
    free(c);
}

int comm_rank(const struct comm *c)
{
    return c->rank;
}

int comm_size(const struct comm *c)
{
    return c->group->ranks_n;
}

/* ---- the exchange ---- */

static struct timespec deadline_in(int ms)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

static bool passed(struct comm_group *g, unsigned turn)
{
    return atomic_load_explicit(&g->turn, memory_order_acquire) != turn;
}

/* A barrier that all have reached counts as passed even if the group ends a moment later. */
static status barrier_wait(struct comm *c)
{
    struct comm_group *g = c->group;
    unsigned turn = c->ops;
    struct timespec deadline = deadline_in(g->timeout_ms);
    int i, rc = 0;

    pthread_mutex_lock(&g->lock);
    if (atomic_load(&g->ended)) {
        pthread_mutex_unlock(&g->lock);
        return ST_FATAL;
    }
    if (++g->arrived == g->ranks_n) {
        g->arrived = 0;
        atomic_fetch_add_explicit(&g->turn, 1, memory_order_release);
        pthread_cond_broadcast(&g->changed);
        pthread_mutex_unlock(&g->lock);
        return ST_OK;
    }
    pthread_mutex_unlock(&g->lock);
    for (i = 0; i < SPINS && !passed(g, turn) && !atomic_load_explicit(&g->ended, memory_order_relaxed); i++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    pthread_mutex_lock(&g->lock);
    while (!passed(g, turn) && !atomic_load(&g->ended) && rc == 0)
        rc = pthread_cond_timedwait(&g->changed, &g->lock, &deadline);
    if (!passed(g, turn) && !atomic_load(&g->ended)) {
        atomic_store(&g->ended, true);
        pthread_cond_broadcast(&g->changed);
        log_error("comm.timeout", "rank=%d ranks=%d arrived=%d timeout_ms=%d", c->rank, g->ranks_n, g->arrived,
                  g->timeout_ms);
    }
    pthread_mutex_unlock(&g->lock);
    return passed(g, turn) ? ST_OK : ST_FATAL;
}

static struct slot *slot_of(const struct comm *c, int rank)
{
    return &c->group->slots[rank * 2 + (int)(c->ops % 2)];
}

/* Gives `bytes` and waits for all. Afterwards peer_data reads the others' until this rank's next exchange. */
static status exchange(struct comm *c, enum op op, size_t n, const void *give, size_t bytes)
{
    struct slot *mine = slot_of(c, c->rank);
    int i;

    if (atomic_load(&c->group->ended))
        return ST_FATAL;
    if (bytes > mine->room) {
        free(mine->data);
        mine->data = mem_take(bytes);
        mine->room = bytes;
    }
    if (bytes > 0)
        memcpy(mine->data, give, bytes);
    mine->op = op;
    mine->n = n;
    if (barrier_wait(c) != ST_OK)
        return ST_FATAL;
    for (i = 0; i < c->group->ranks_n; i++) {
        const struct slot *theirs = slot_of(c, i);

        if (theirs->op != op || theirs->n != n) {
            if (group_end(c->group))
                log_error("comm.mismatch", "rank=%d op=%d n=%zu peer=%d peer_op=%d peer_n=%zu", c->rank, (int)op, n, i,
                          (int)theirs->op, theirs->n);
            return ST_FATAL;
        }
    }
    c->ops++;
    return ST_OK;
}

/* Of the exchange just done. */
static const void *peer_data(const struct comm *c, int rank)
{
    return c->group->slots[rank * 2 + (int)((c->ops - 1) % 2)].data;
}

/* ---- operations ---- */

status comm_allreduce(struct comm *c, float *x, size_t n)
{
    size_t i;
    int rank;

    if (exchange(c, OP_REDUCE, n, x, n * sizeof *x) != ST_OK)
        return ST_FATAL;
    if (n > 0)
        memcpy(x, peer_data(c, 0), n * sizeof *x);
    for (rank = 1; rank < c->group->ranks_n; rank++) {
        const float *y = peer_data(c, rank);

        for (i = 0; i < n; i++)
            x[i] += y[i];
    }
    return ST_OK;
}

status comm_broadcast(struct comm *c, void *bytes, size_t n)
{
    if (exchange(c, OP_BROADCAST, n, bytes, c->rank == 0 ? n : 0) != ST_OK)
        return ST_FATAL;
    if (c->rank != 0 && n > 0)
        memcpy(bytes, peer_data(c, 0), n);
    return ST_OK;
}

status comm_allgather(struct comm *c, const float *x, size_t n, float *out)
{
    int rank;

    if (exchange(c, OP_GATHER, n, x, n * sizeof *x) != ST_OK)
        return ST_FATAL;
    for (rank = 0; rank < c->group->ranks_n && n > 0; rank++)
        memcpy(out + (size_t)rank * n, peer_data(c, rank), n * sizeof *x);
    return ST_OK;
}

status comm_barrier(struct comm *c)
{
    return exchange(c, OP_BARRIER, 0, NULL, 0);
}
