#define _POSIX_C_SOURCE 200809L
#include "worker/pipeline/leases.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "worker/pipeline/wait.h"

/* Of a source; its newest holding. Records of older holdings are waited for by nobody. */
struct lease { uint32_t lease; bool known, ours; int64_t records_n; };

struct leases {
    pthread_mutex_t lock;
    pthread_cond_t ended;          /* some holding has no record left */
    struct lease *of;              /* [n], by source: partitions are numbered from 0 */
    size_t n;
    _Atomic uint64_t lost_n;
};

struct leases *leases_open(void)
{
    struct leases *l = mem_take_zero(1, sizeof *l);

    pthread_mutex_init(&l->lock, NULL);
    cond_init_mono(&l->ended);
    return l;
}

void leases_close(struct leases *l)
{
    if (l == NULL)
        return;
    pthread_cond_destroy(&l->ended);
    pthread_mutex_destroy(&l->lock);
    free(l->of);
    free(l);
}

/* With the lock held. NULL: a source that never was ours. */
static struct lease *lease_find(struct leases *l, int32_t source, uint32_t lease)
{
    if (source < 0 || (size_t)source >= l->n || !l->of[source].known || l->of[source].lease != lease)
        return NULL;
    return &l->of[source];
}

void leases_gained(struct leases *l, int32_t source, uint32_t lease)
{
    ASSERT(source >= 0);
    pthread_mutex_lock(&l->lock);
    if ((size_t)source >= l->n) {
        size_t n = (size_t)source + 16;

        l->of = mem_grow(l->of, n * sizeof l->of[0]);
        memset(l->of + l->n, 0, (n - l->n) * sizeof l->of[0]);
        l->n = n;
    }
    l->of[source] = (struct lease){ .lease = lease, .known = true, .ours = true };
    pthread_mutex_unlock(&l->lock);
}

void leases_lost(struct leases *l, int32_t source, uint32_t lease)
{
    struct lease *of;

    pthread_mutex_lock(&l->lock);
    of = lease_find(l, source, lease);
    if (of != NULL)
        of->ours = false;
    pthread_mutex_unlock(&l->lock);
    atomic_fetch_add(&l->lost_n, 1);
}

uint64_t leases_lost_n(struct leases *l)
{
    return atomic_load(&l->lost_n);
}

bool lease_is_ours(struct leases *l, int32_t source, uint32_t lease)
{
    struct lease *of;
    bool ours;

    pthread_mutex_lock(&l->lock);
    of = lease_find(l, source, lease);
    ours = of != NULL && of->ours;
    pthread_mutex_unlock(&l->lock);
    return ours;
}

static void records_add(struct leases *l, const struct record *r, int64_t n)
{
    struct lease *of;

    pthread_mutex_lock(&l->lock);
    of = lease_find(l, r->source, r->lease);
    if (of != NULL && (of->records_n += n) == 0)
        pthread_cond_broadcast(&l->ended);
    pthread_mutex_unlock(&l->lock);
}

void lease_record_begin(struct leases *l, const struct record *r)
{
    records_add(l, r, 1);
}

void lease_record_end(struct leases *l, const struct record *r)
{
    records_add(l, r, -1);
}

bool lease_wait(struct leases *l, int32_t source, uint32_t lease, int64_t deadline_ns)
{
    struct lease *of;
    bool left;

    pthread_mutex_lock(&l->lock);
    while ((left = (of = lease_find(l, source, lease)) != NULL && of->records_n > 0)
           && cond_wait_until(&l->ended, &l->lock, deadline_ns))
        ;
    pthread_mutex_unlock(&l->lock);
    return !left;
}
