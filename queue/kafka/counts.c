/* What metrics and watchdogs read. */
#include "queue/kafka/internal.h"

#define GROWTH_NUM 5                       /* a bucket of the histogram is 5/4 of the one before: p99 within a quarter */
#define GROWTH_DEN 4

static int64_t latency_ms_of(int bucket)
{
    int64_t ms = 1;

    for (int i = 0; i < bucket; i++)
        ms = ms * GROWTH_NUM / GROWTH_DEN + 1;
    return ms;
}

void kafka_latency_note(struct kafka_core *k, int64_t ms)
{
    int b = 0;

    while (b < COMMIT_MS_BUCKETS - 1 && latency_ms_of(b) < ms)
        b++;
    k->commit_ms[b]++;
    k->counts.commit_ms_last = ms;
    if (ms > k->counts.commit_ms_max)
        k->counts.commit_ms_max = ms;
}

static int64_t latency_p99(const struct kafka_core *k)
{
    int64_t total = 0, below = 0;
    int b = 0;

    for (int i = 0; i < COMMIT_MS_BUCKETS; i++)
        total += k->commit_ms[i];
    if (total == 0)
        return -1;
    while (b < COMMIT_MS_BUCKETS - 1 && (below += k->commit_ms[b]) * 100 < total * 99)
        b++;
    return latency_ms_of(b);
}

void kafka_core_counts(struct kafka_core *k, struct queue_counts *out)
{
    int64_t now_ms = clock_wall_ns() / NS_PER_MS;

    pthread_mutex_lock(&k->lock);
    *out = k->counts;
    out->commit_ms_p99 = latency_p99(k);
    out->sources_n = out->lag_n = out->window_used_n = out->oldest_open_age_ms = 0;
    for (size_t i = 0; i < k->part_n; i++) {
        const struct partition *p = k->part[i];
        int64_t end, lwm, age;

        if (p == NULL)
            continue;
        end = k->client->ops->end(k->client, p->id);      /* never blocks */
        lwm = tracker_lwm(p->tracker);
        out->sources_n++;
        if (end > lwm)
            out->lag_n += end - lwm;
        if (tracker_ahead(p->tracker) > out->window_used_n)
            out->window_used_n = tracker_ahead(p->tracker);
        age = tracker_open_n(p->tracker) > 0 ? now_ms - p->seen[lwm & (p->ring - 1)].at_ms : 0;
        if (age > out->oldest_open_age_ms)
            out->oldest_open_age_ms = age;
    }
    pthread_mutex_unlock(&k->lock);
}
