/* queue/commit_times.h - how long commits take: last, longest, and the 99th percentile of the latest few thousand.
 * Buckets grow by a quarter, so the percentile is at most a quarter too high. Threads: the caller's lock. Private to queue. */
#ifndef QUEUE_COMMIT_TIMES_H
#define QUEUE_COMMIT_TIMES_H

#include <stdint.h>

#include "queue/queue.h"

enum { COMMIT_TIMES_BUCKETS = 96 };            /* up to 2^24 ms */

struct commit_times {
    int64_t n, last_ms, max_ms, last_ns;
    int64_t pending_since_ns;                  /* 0: none is under way */
    int64_t counted;                           /* sum of the buckets: halved when it is large, so that old ones fade */
    int64_t bucket[COMMIT_TIMES_BUCKETS];
};

void commit_times_begin(struct commit_times *t, int64_t now_ns);
void commit_times_end(struct commit_times *t, int64_t now_ns, bool durable);
void commit_times_read(const struct commit_times *t, struct queue_counts *out);

#endif
