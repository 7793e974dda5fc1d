/* worker/pipeline/leases.h - which holdings of sources are ours now, and how many of their records are under way here.
 * Every stage asks whether the holding of a record still is; the poll side waits, before it gives a source away, until none of
 * its records is under way any more. Threads: any. */
#ifndef WORKER_PIPELINE_LEASES_H
#define WORKER_PIPELINE_LEASES_H

#include <stdbool.h>
#include <stdint.h>

#include "queue/queue.h"

struct leases;

struct leases *leases_open(void);
void leases_close(struct leases *l);           /* NULL is allowed */
void leases_gained(struct leases *l, int32_t source, uint32_t lease);
void leases_lost(struct leases *l, int32_t source, uint32_t lease);
bool lease_is_ours(struct leases *l, int32_t source, uint32_t lease);
/* Rises with every loss: whoever looks at it sees cheaply that there is nothing to do. */
uint64_t leases_lost_n(struct leases *l);
/* A record comes under way, and is given back. */
void lease_record_begin(struct leases *l, const struct record *r);
void lease_record_end(struct leases *l, const struct record *r);
/* Until no record of the holding is under way, or the deadline (clock_mono_ns). False: some still are. */
bool lease_wait(struct leases *l, int32_t source, uint32_t lease, int64_t deadline_ns);

#endif
