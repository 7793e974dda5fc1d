#define _POSIX_C_SOURCE 200809L
#include "base/bqueue.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

struct bqueue {
    pthread_mutex_t lock;
    pthread_cond_t filled, emptied;
    size_t poppers, pushers;      /* threads waiting: no signal is sent where nobody waits */
    bool closed;
    size_t first, n, max;
    void *items[];
};

struct bqueue *bqueue_open(size_t items_max)
{
    struct bqueue *q;
    pthread_condattr_t attr;

    ASSERT(items_max > 0);
    q = mem_take_zero(1, sizeof *q + items_max * sizeof q->items[0]);
    q->max = items_max;
    pthread_mutex_init(&q->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&q->filled, &attr);
    pthread_cond_init(&q->emptied, &attr);
    pthread_condattr_destroy(&attr);
    return q;
}

void bqueue_close(struct bqueue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->filled);
    pthread_cond_broadcast(&q->emptied);
    pthread_mutex_unlock(&q->lock);
}

void bqueue_free(struct bqueue *q)
{
    if (q == NULL)
        return;
    ASSERT(q->n == 0);
    pthread_cond_destroy(&q->emptied);
    pthread_cond_destroy(&q->filled);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

static status push(struct bqueue *q, void *item, bool wait)
{
    status st = ST_OK;

    pthread_mutex_lock(&q->lock);
    while (wait && !q->closed && q->n == q->max) {
        q->pushers++;
        pthread_cond_wait(&q->emptied, &q->lock);
        q->pushers--;
    }
    if (q->closed) {
        st = ST_FENCED;
    } else if (q->n == q->max) {
        st = ST_AGAIN;
    } else {
        q->items[(q->first + q->n++) % q->max] = item;
        if (q->poppers > 0)
            pthread_cond_signal(&q->filled);
    }
    pthread_mutex_unlock(&q->lock);
    return st;
}

status bqueue_push(struct bqueue *q, void *item)
{
    return push(q, item, true);
}

status bqueue_push_now(struct bqueue *q, void *item)
{
    return push(q, item, false);
}

/* Under the lock. Returns when there is an item, the queue is closed or the time is over. */
static void filled_wait(struct bqueue *q, int timeout_ms)
{
    struct timespec end;

    if (timeout_ms > 0) {
        clock_gettime(CLOCK_MONOTONIC, &end);
        end.tv_sec += timeout_ms / 1000;
        end.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
        if (end.tv_nsec >= 1000000000) {
            end.tv_sec++;
            end.tv_nsec -= 1000000000;
        }
    }
    q->poppers++;
    while (q->n == 0 && !q->closed) {
        if (timeout_ms < 0)
            pthread_cond_wait(&q->filled, &q->lock);
        else if (pthread_cond_timedwait(&q->filled, &q->lock, &end) != 0)
            break;
    }
    q->poppers--;
}

size_t bqueue_pop(struct bqueue *q, void **items, size_t max, int timeout_ms)
{
    size_t n;

    pthread_mutex_lock(&q->lock);
    if (q->n == 0 && timeout_ms != 0 && !q->closed)
        filled_wait(q, timeout_ms);
    n = q->n < max ? q->n : max;
    for (size_t i = 0; i < n; i++)
        items[i] = q->items[(q->first + i) % q->max];
    q->first = (q->first + n) % q->max;
    q->n -= n;
    if (n > 0 && q->pushers > 0)
        pthread_cond_broadcast(&q->emptied);
    if (q->n > 0 && q->poppers > 0)
        pthread_cond_signal(&q->filled);
    pthread_mutex_unlock(&q->lock);
    return n;
}

bool bqueue_ended(struct bqueue *q)
{
    bool ended;

    pthread_mutex_lock(&q->lock);
    ended = q->closed && q->n == 0;
    pthread_mutex_unlock(&q->lock);
    return ended;
}

size_t bqueue_length(struct bqueue *q)
{
    size_t n;

    pthread_mutex_lock(&q->lock);
    n = q->n;
    pthread_mutex_unlock(&q->lock);
    return n;
}
