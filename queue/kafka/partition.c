/* The table of partitions: which are held, under which lease, and how far each one is.
 *
 * What a commit says about a partition is LWM, bitmap, and a hash of the record at the LWM. The hash is of a record that is
 * received and open, so it is kept for every offset of the window. On the next start that record is the first one that comes:
 * where its hash differs, the topic was made anew or cut, and the bitmap speaks of other records. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "queue/kafka/internal.h"

struct partition *partition_find(const struct kafka_core *k, int32_t id)
{
    return id >= 0 && (size_t)id < k->part_n ? k->part[id] : NULL;
}

struct partition *partition_held(const struct kafka_core *k, int32_t id, uint32_t lease)
{
    struct partition *p = partition_find(k, id);

    return p != NULL && p->owned && !p->stopped && p->lease == lease ? p : NULL;
}

static void partition_free(struct partition *p)
{
    if (p == NULL)
        return;
    for (size_t i = 0; i < p->held_n; i++)
        kafka_record_free(p->held[i]);
    free(p->held);
    free(p->seen);
    tracker_close(p->tracker);
    free(p);
}

/* A bitmap of a wider window that does not fit into what the broker takes today could never be committed again. */
static status bitmap_check(const struct kafka_core *k, const struct partition *p, struct error *err)
{
    char *text = mem_take(k->metadata_max + 1);
    status st = tracker_encode(p->tracker, "00000000", text, k->metadata_max + 1);

    free(text);
    if (st == ST_OK)
        return ST_OK;
    return error_set(err, ST_REJECT, "its committed bitmap needs more than the %zu bytes of metadata that the broker takes now: set "
                     "the broker's offset.metadata.max.bytes (and kafka_metadata_max) to what it was", k->metadata_max);
}

/* The start rules (delivery 8.1, 8.3). On ST_REJECT there is a tracker, too: the partition is held, and stands still. */
static status tracker_begin(struct kafka_core *k, struct partition *p, const struct kafka_place *place, struct error *err)
{
    status st;

    if (place->offset < 0) {
        p->tracker = tracker_open(0, p->window);
        return ST_OK;
    }
    p->has_commit = true;
    st = tracker_decode(place->metadata != NULL ? place->metadata : "", place->offset, p->window, p->expect, &p->tracker, err);
    if (st == ST_OK) {
        if (strcmp(p->expect, "-") == 0)
            p->expect[0] = '\0';
        p->expect_at = place->offset;
        return bitmap_check(k, p, err);
    }
    p->expect[0] = '\0';
    p->tracker = tracker_open(place->offset, p->window);
    if (!k->cfg->kafka_ignore_foreign_metadata)
        return st;
    log_warn("kafka.foreign_metadata", "topic=%s partition=%" PRId32 " offset=%" PRId64 " what=\"%s; taken as its offset alone\"",
             k->topic, p->id, place->offset, err->text);
    return ST_OK;
}

static void table_grow(struct kafka_core *k, int32_t id)
{
    size_t n = (size_t)id + 1;

    ASSERT(id >= 0 && id < PARTITIONS_MAX);
    if (n <= k->part_n)
        return;
    k->part = mem_grow(k->part, n * sizeof k->part[0]);
    memset(k->part + k->part_n, 0, (n - k->part_n) * sizeof k->part[0]);
    k->part_n = n;
}

const char *partition_take(struct kafka_core *k, const struct kafka_place *place, struct error *why)
{
    struct partition *p = mem_take_zero(1, sizeof *p), *old;
    status st;

    p->id = place->partition;
    p->lease = ++k->lease;
    p->window = k->window;
    p->owned = true;
    p->commit_ns = clock_mono_ns();
    for (p->ring = 64; p->ring < p->window;)
        p->ring *= 2;
    p->seen = mem_take_zero((size_t)p->ring, sizeof p->seen[0]);
    st = tracker_begin(k, p, place, why);
    atomic_init(&p->stopped, st != ST_OK);
    pthread_mutex_lock(&k->lock);
    table_grow(k, p->id);
    old = k->part[p->id];
    k->part[p->id] = p;
    k->held_n -= old != NULL ? old->held_n : 0;
    pthread_mutex_unlock(&k->lock);
    partition_free(old);
    return st != ST_OK ? why->text : NULL;
}

void partition_drop(struct kafka_core *k, int32_t id)
{
    struct partition *p;

    pthread_mutex_lock(&k->lock);
    p = partition_find(k, id);
    if (p != NULL) {
        k->part[id] = NULL;
        k->held_n -= p->held_n;
    }
    pthread_mutex_unlock(&k->lock);
    partition_free(p);
}

status partition_sync(struct partition *p, const struct kafka_place *place, struct error *err)
{
    struct tracker *committed;
    char hash[9];
    status st;

    if (place->offset < 0)      /* nothing was ever committed: the transaction in doubt did not end well */
        return ST_OK;
    st = tracker_decode(place->metadata != NULL ? place->metadata : "", place->offset, p->window, hash, &committed, err);
    if (st != ST_OK)
        return st;
    for (int64_t o = tracker_lwm(p->tracker), end = o + tracker_ahead(p->tracker); o < end; o++)
        if (tracker_is_open(p->tracker, o) && tracker_is_done(committed, o))
            tracker_done(p->tracker, o);
    tracker_close(committed);
    return ST_OK;
}

status partition_encode(const struct partition *p, const struct tracker *t, char *out, size_t out_bytes)
{
    char hash[9] = "-";

    if (p->expect[0] != '\0' && tracker_lwm(t) == p->expect_at)      /* the record has not come yet: what is known of it stays */
        strcpy(hash, p->expect);
    else if (tracker_open_n(t) > 0)
        snprintf(hash, sizeof hash, "%08" PRIx32, p->seen[tracker_lwm(t) & (p->ring - 1)].hash);
    return tracker_encode(t, hash, out, out_bytes);
}

bool partition_full(const struct partition *p)
{
    return p->held_n > 0 || tracker_ahead(p->tracker) >= p->window;
}

/* Each pause and resume costs what was fetched ahead (facts 1.3), hence the distance between the two marks. */
bool partition_roomy(const struct partition *p)
{
    return p->held_n == 0 && tracker_ahead(p->tracker) <= p->window * 7 / 10;
}

void partition_receive(struct partition *p, int64_t offset, uint32_t hash, int64_t at_ms)
{
    p->seen[offset & (p->ring - 1)] = (struct seen){ hash, at_ms };
}
