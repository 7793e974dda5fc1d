#include "queue/commit_times.h"

#include "base/clock.h"

enum { FADE_AT = 4096, STEPS = 4 };            /* buckets a doubling */

/* Values below STEPS have a bucket each; from there on, STEPS buckets a power of two. */
static int bucket_of(int64_t ms)
{
    int log2 = 0, i;

    if (ms < STEPS)
        return ms < 0 ? 0 : (int)ms;
    while (ms >> (log2 + 1) != 0)
        log2++;
    i = (log2 - 1) * STEPS + (int)(ms >> (log2 - 2) & (STEPS - 1));
    return i < COMMIT_TIMES_BUCKETS ? i : COMMIT_TIMES_BUCKETS - 1;
}

/* The largest value of a bucket. */
static int64_t bucket_top(int i)
{
    int log2 = i / STEPS + 1;

    if (i < STEPS)
        return i;
    return (INT64_C(1) << log2) + (INT64_C(1) << (log2 - 2)) * (i % STEPS + 1) - 1;
}

void commit_times_begin(struct commit_times *t, int64_t now_ns)
{
    t->pending_since_ns = now_ns;
}

static void times_fade(struct commit_times *t)
{
    t->counted = 0;
    for (int i = 0; i < COMMIT_TIMES_BUCKETS; i++)
        t->counted += t->bucket[i] /= 2;
}

void commit_times_end(struct commit_times *t, int64_t now_ns, bool durable)
{
    int64_t ms = (now_ns - t->pending_since_ns) / NS_PER_MS;

    t->pending_since_ns = 0;
    if (!durable)
        return;
    t->n++;
    t->last_ns = now_ns;
    t->last_ms = ms;
    t->max_ms = ms > t->max_ms ? ms : t->max_ms;
    t->bucket[bucket_of(ms)]++;
    if (++t->counted >= FADE_AT)
        times_fade(t);
}

static int64_t percentile(const struct commit_times *t, int percent)
{
    int64_t left = t->counted * (100 - percent) / 100;               /* so many may lie above it */
    int i = COMMIT_TIMES_BUCKETS - 1;

    for (; i > 0 && left >= t->bucket[i]; i--)
        left -= t->bucket[i];
    return t->counted > 0 ? bucket_top(i) : 0;
}

void commit_times_read(const struct commit_times *t, struct queue_counts *out)
{
    out->commits_n = t->n;
    out->commit_ms_last = t->last_ms;
    out->commit_ms_max = t->max_ms;
    out->commit_ms_p99 = percentile(t, 99);
    if (out->commit_ms_p99 > t->max_ms)
        out->commit_ms_p99 = t->max_ms;
    out->last_commit_ns = t->last_ns;
    out->pending_since_ns = t->pending_since_ns;
}
