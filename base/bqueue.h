/* base/bqueue.h - the bounded queue between threads. A push gives the item away; a full queue pushes back.
 * Threads: any number on both ends. Ownership: items are pointers and pass to whoever pops them.
 * End: bqueue_close lets the poppers finish what is inside, then every pop answers ST_AGAIN with closed = true. */
#ifndef BASE_BQUEUE_H
#define BASE_BQUEUE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct bqueue;

struct bqueue *bqueue_open(size_t items_max);
void bqueue_close(struct bqueue *q);     /* no more pushes; wakes everyone; may be called twice, from any thread */
void bqueue_free(struct bqueue *q);      /* after every thread has left; must be empty; NULL is allowed */

/* Waits for room. ST_OK: given away. ST_FENCED: the queue is closed, the item stays the caller's. */
MUST_USE status bqueue_push(struct bqueue *q, void *item);
/* ST_AGAIN: full, the item stays the caller's. ST_FENCED: closed. */
MUST_USE status bqueue_push_now(struct bqueue *q, void *item);

/* Waits up to timeout_ms (-1: for ever, 0: not at all) for one item, then takes up to max of them in order.
 * Returns how many; 0: timeout, or closed and empty (see bqueue_ended). */
size_t bqueue_pop(struct bqueue *q, void **items, size_t max, int timeout_ms);
bool bqueue_ended(struct bqueue *q);     /* closed and empty */
size_t bqueue_length(struct bqueue *q);

#endif
