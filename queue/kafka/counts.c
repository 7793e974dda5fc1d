/* What metrics and watchdogs read. */
#include "queue/kafka/internal.h"

void kafka_core_counts(struct kafka_core *k, struct queue_counts *out)
{
    int64_t now_ms = clock_wall_ns() / NS_PER_MS;

    pthread_mutex_lock(&k->lock);
    *out = k->counts;
    commit_times_read(&k->times, out);
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
