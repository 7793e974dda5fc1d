/* The mem queue: one worker's side of the topic in mem_store.c. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "queue/commit_times.h"
#include "queue/mem_store.h"
#include "queue/ops.h"
#include "queue/tracker.h"

#define METADATA_BYTES_MAX 4096

struct reader {                  /* of one source */
    struct tracker *tracker;     /* NULL: not held */
    size_t next_i;
    uint32_t lease;
    int64_t assigns_n;           /* the source's, when this holding began */
    bool told;                   /* the events know of this holding */
    bool paused;
};

struct mem_queue {
    struct queue queue;
    struct mem_store *store;
    struct queue_events events;
    int64_t owner, window;
    struct reader *reader;       /* [readers_n]; sources that are added later are not read */
    size_t readers_n, turn;
    struct commit_times times;
    int64_t rebalances_n, skipped_n, dead_n;
    bool stop_taking;
};

static struct mem_queue *self(const struct queue *q)
{
    return (struct mem_queue *)(uintptr_t)q;
}

/* ---- sources come and go ---- */

static bool is_ours(const struct mem_queue *m, size_t k)
{
    const struct mem_source *so = &m->store->source[k];

    return !m->store->group || so->owner == m->owner;
}

static uint32_t value_hash(const struct mem_record *rec)
{
    return (uint32_t)hash64(rec->r.value, rec->r.value_n, 0);
}

/* Takes up a source where its commit says. */
static status reader_begin(struct mem_queue *m, size_t k, struct error *err)
{
    struct mem_source *so = &m->store->source[k];
    struct reader *r = &m->reader[k];
    char hash[9] = "-", now[9];
    status st;

    r->next_i = 0;
    r->told = r->paused = false;
    r->assigns_n = so->assigns_n;
    if (m->store->group)
        r->lease++;
    if (so->metadata == NULL) {
        r->tracker = tracker_open(so->lwm, m->window);
    } else {
        st = tracker_decode(so->metadata, so->lwm, m->window, hash, &r->tracker, err);
        if (st != ST_OK)
            return st;
    }
    for (size_t i = 0; i < so->records_n; i++) {
        const struct mem_record *rec = &so->record[i];

        if (rec->r.offset < so->lwm)
            r->next_i = i + 1;
        if (rec->tombstone || rec->r.offset != so->lwm || hash[0] == '-')
            continue;
        snprintf(now, sizeof now, "%08" PRIx32, value_hash(rec));
        if (strcmp(now, hash) != 0)
            return error_set(err, ST_REJECT, "source %" PRId32 " of mem:%s was made anew since its last commit", so->id,
                             m->store->name);
    }
    return ST_OK;
}

/* Calls events without the lock; what they tell of stays true meanwhile, because only this thread changes it. */
static void event_call(struct mem_queue *m, size_t k, bool lost, bool already)
{
    struct mem_store *s = m->store;
    int32_t source = s->source[k].id;
    uint32_t lease = m->reader[k].lease;

    pthread_mutex_unlock(&s->lock);
    if (lost && m->events.lost != NULL)
        m->events.lost(m->events.ctx, source, lease, already);
    if (lost && !already && m->events.lost_wait != NULL)
        m->events.lost_wait(m->events.ctx, clock_mono_ns() + NS_PER_S);
    if (!lost && m->events.gained != NULL)
        m->events.gained(m->events.ctx, source, lease);
    pthread_mutex_lock(&s->lock);
}

/* With the lock held, but for the time of the events. */
static status sources_follow(struct mem_queue *m, struct error *err)
{
    for (size_t k = 0; k < m->readers_n; k++) {
        struct reader *r = &m->reader[k];
        struct mem_source *so = &m->store->source[k];

        if (r->tracker != NULL && m->store->group && so->assigns_n != r->assigns_n) {
            event_call(m, k, true, so->owner != m->owner);
            so = &m->store->source[k];
            if (so->owner == m->owner)
                so->owner = so->next_owner;
            tracker_close(r->tracker);
            r->tracker = NULL;
            m->rebalances_n++;
            pthread_cond_broadcast(&m->store->changed);
        }
        if (r->tracker == NULL && is_ours(m, k)) {
            status st = reader_begin(m, k, err);

            if (st != ST_OK)
                return st;
        }
        if (r->tracker != NULL && !r->told) {
            r->told = true;
            event_call(m, k, false, false);
        }
    }
    return ST_OK;
}

/* ---- poll ---- */

/* Passes over tombstones and what is done. NULL: nothing is there now. */
static const struct mem_record *record_next(struct mem_queue *m, size_t k)
{
    const struct mem_source *so = &m->store->source[k];
    struct reader *r = &m->reader[k];

    while (r->tracker != NULL && r->next_i < so->records_n) {
        const struct mem_record *rec = &so->record[r->next_i];

        if (!rec->tombstone && !tracker_is_done(r->tracker, rec->r.offset))
            return rec;
        if (!rec->tombstone && tracker_receive(r->tracker, rec->r.offset) != ST_REJECT)
            ASSERT(!"a done record was received");
        m->skipped_n += rec->tombstone;
        r->next_i++;
    }
    return NULL;
}

/* A copy in one block: the store's arrays grow under it. */
static struct record *record_make(const struct mem_record *rec, uint32_t lease)
{
    const struct record *from = &rec->r;
    struct record *r = mem_take_zero(1, sizeof *r + from->headers_n * sizeof(struct header) + from->key_n + from->value_n + 2);
    struct header *headers = (struct header *)(r + 1);
    char *key = (char *)(headers + from->headers_n), *value = key + from->key_n + 1;

    *r = *from;
    r->lease = lease;
    if (from->headers_n > 0)
        memcpy(headers, from->headers, from->headers_n * sizeof *headers);      /* what they point to stays where it is */
    if (from->key_n > 0)
        memcpy(key, from->key, from->key_n);
    if (from->value_n > 0)
        memcpy(value, from->value, from->value_n);
    r->headers = headers;
    r->key = from->key != NULL ? key : NULL;
    r->value = value;
    return r;
}

static struct record *poll_now(struct mem_queue *m)
{
    for (size_t i = 0; i < m->readers_n && !m->stop_taking; i++) {
        size_t k = (m->turn + i) % m->readers_n;
        struct reader *r = &m->reader[k];
        const struct mem_record *rec = r->paused ? NULL : record_next(m, k);

        if (rec == NULL || tracker_receive(r->tracker, rec->r.offset) != ST_OK)
            continue;
        r->next_i++;
        m->turn = k + 1;
        return record_make(rec, r->lease);
    }
    return NULL;
}

static status mem_poll(struct queue *q, int timeout_ms, struct record **out, struct error *err)
{
    struct mem_queue *m = self(q);
    struct timespec until;
    status st;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * NS_PER_MS;
    until.tv_sec += until.tv_nsec / NS_PER_S;
    until.tv_nsec %= NS_PER_S;
    pthread_mutex_lock(&m->store->lock);
    while ((st = sources_follow(m, err)) == ST_OK && (*out = poll_now(m)) == NULL && timeout_ms > 0)
        if (pthread_cond_timedwait(&m->store->changed, &m->store->lock, &until) != 0)
            timeout_ms = 0;
    pthread_mutex_unlock(&m->store->lock);
    return st != ST_OK ? st : *out != NULL ? ST_OK : ST_AGAIN;
}

static bool mem_ended(const struct queue *q)
{
    struct mem_queue *m = self(q);
    bool ended;

    pthread_mutex_lock(&m->store->lock);
    ended = m->stop_taking || (m->store->ended && !m->store->group);
    for (size_t k = 0; k < m->readers_n && ended && !m->stop_taking; k++)
        ended = record_next(m, k) == NULL;
    pthread_mutex_unlock(&m->store->lock);
    return ended;
}

static void mem_stop_taking(struct queue *q)
{
    struct mem_queue *m = self(q);

    pthread_mutex_lock(&m->store->lock);
    m->stop_taking = true;
    pthread_cond_broadcast(&m->store->changed);
    pthread_mutex_unlock(&m->store->lock);
}

static void mem_record_settle(struct queue *q, struct record *r)
{
    (void)q;
    (void)r;                     /* a dead letter carries the value */
}

static void mem_record_give(struct queue *q, struct record *r)
{
    (void)q;
    free(r);
}

static void mem_pause(struct queue *q, int32_t source, bool paused)
{
    struct mem_queue *m = self(q);

    pthread_mutex_lock(&m->store->lock);
    for (size_t i = 0; i < m->readers_n; i++)
        if (m->store->source[i].id == source)
            m->reader[i].paused = paused;
    pthread_mutex_unlock(&m->store->lock);
}

/* ---- commit ---- */

static void mem_result_id(const struct queue *q, int32_t source, int64_t offset, char out[64])
{
    snprintf(out, 64, "batch_req_%s_%" PRId32 "_%" PRId64, q->state.job, source, offset);
}

/* The hash of the record at the LWM that goes into the metadata: tells a topic that was made anew. */
static void lwm_hash(const struct mem_source *so, const struct tracker *t, char out[9])
{
    size_t i = 0;

    strcpy(out, "-");
    if (tracker_open_n(t) == 0)
        return;
    while (i < so->records_n && so->record[i].r.offset != tracker_lwm(t))
        i++;
    if (i < so->records_n)
        snprintf(out, 9, "%08" PRIx32, value_hash(&so->record[i]));
}

/* What the source's commit says after this group. */
static void marks_store(struct mem_source *so, const struct tracker *after)
{
    char text[METADATA_BYTES_MAX], hash[9];

    lwm_hash(so, after, hash);
    ASSERT(tracker_encode(after, hash, text, sizeof text) == ST_OK);
    so->lwm = tracker_lwm(after);
    free(so->metadata);
    so->metadata = mem_copy_text(text);
}

/* Which results this queue may still give: the holding under which their records came is the one of now. */
static void durable_find(const struct mem_queue *m, const struct result *results, size_t n, bool *durable)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < m->readers_n && !durable[i]; k++)
            durable[i] = m->store->source[k].id == results[i].record->source && m->reader[k].tracker != NULL
                      && is_ours(m, k) && m->reader[k].lease == results[i].record->lease;
}

static void source_commit(struct mem_queue *m, size_t k, const struct result *results, size_t n, const bool *durable)
{
    struct mem_source *so = &m->store->source[k];

    for (size_t i = 0; i < n; i++)
        if (durable[i] && results[i].record->source == so->id)
            tracker_done(m->reader[k].tracker, results[i].record->offset);
    marks_store(so, m->reader[k].tracker);
}

static status mem_commit(struct queue *q, const struct result *results, size_t n, bool *durable, struct error *err)
{
    struct mem_queue *m = self(q);
    struct mem_store *s = m->store;
    bool refused;

    pthread_mutex_lock(&s->lock);
    if (!s->group && s->owner != m->owner) {
        pthread_mutex_unlock(&s->lock);
        return error_set(err, ST_FENCED, "another worker has taken over mem:%s", s->name);
    }
    commit_times_begin(&m->times, clock_mono_ns());
    refused = mem_commit_refused(s);
    durable_find(m, results, n, durable);
    for (size_t k = 0; k < m->readers_n && !refused; k++)
        if (m->reader[k].tracker != NULL && is_ours(m, k))
            source_commit(m, k, results, n, durable);
    if (!refused)
        mem_results_store(s, results, n, durable);
    for (size_t i = 0; i < n; i++) {
        durable[i] &= !refused;
        m->dead_n += durable[i] && results[i].kind == RESULT_FAILURE;
    }
    commit_times_end(&m->times, clock_mono_ns(), !refused);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return refused ? error_set(err, ST_RETRY, "mem:%s refuses this commit, as told", s->name) : ST_OK;
}

static status mem_finish(struct queue *q, struct error *err)
{
    (void)q;
    (void)err;
    return ST_OK;
}

/* ---- life ---- */

static void mem_read_counts(struct queue *q, struct queue_counts *out)
{
    struct mem_queue *m = self(q);

    pthread_mutex_lock(&m->store->lock);
    commit_times_read(&m->times, out);
    for (size_t k = 0; k < m->readers_n; k++) {
        const struct mem_source *so = &m->store->source[k];
        int64_t used;

        if (m->reader[k].tracker == NULL)
            continue;
        used = tracker_ahead(m->reader[k].tracker);
        out->sources_n++;
        out->window_used_n = used > out->window_used_n ? used : out->window_used_n;
        if (so->records_n > 0)
            out->lag_n += so->record[so->records_n - 1].r.offset + 1 - tracker_lwm(m->reader[k].tracker);
    }
    out->generation = m->store->group ? m->store->generation : -1;
    out->rebalances_n = m->rebalances_n;
    out->skipped_n = m->skipped_n;
    out->dead_n = m->dead_n;
    pthread_mutex_unlock(&m->store->lock);
    out->oldest_open_age_ms = -1;
}

static void mem_leave(struct queue *q, int64_t deadline_ns)
{
    struct mem_queue *m = self(q);
    struct mem_store *s = m->store;

    (void)deadline_ns;
    pthread_mutex_lock(&s->lock);
    for (size_t k = 0; k < s->sources_n && s->group; k++) {
        struct mem_source *so = &s->source[k];

        if (so->owner == m->owner)
            so->owner = so->next_owner = so->next_owner == m->owner ? 0 : so->next_owner;
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void mem_close(struct queue *q)
{
    struct mem_queue *m = self(q);

    for (size_t i = 0; i < m->readers_n; i++)
        tracker_close(m->reader[i].tracker);
    pthread_mutex_lock(&m->store->lock);
    m->store->queues_n--;
    pthread_mutex_unlock(&m->store->lock);
    free(m->reader);
    free(m);
}

static const struct queue_ops mem_ops = {
    .poll = mem_poll, .ended = mem_ended, .record_settle = mem_record_settle, .record_give = mem_record_give,
    .pause = mem_pause, .stop_taking = mem_stop_taking, .commit = mem_commit, .result_id = mem_result_id,
    .finish = mem_finish, .leave = mem_leave, .read_counts = mem_read_counts, .close = mem_close,
};

/* What is there and what is done of it, for a queue that is alone. */
static void state_fill(struct mem_queue *m)
{
    const struct mem_store *s = m->store;
    struct queue_state *state = &m->queue.state;

    for (size_t k = 0; k < m->readers_n; k++)
        for (size_t i = 0; i < s->source[k].records_n && m->reader[k].tracker != NULL; i++) {
            if (s->source[k].record[i].tombstone)
                continue;
            state->records_n++;
            state->done_n += tracker_is_done(m->reader[k].tracker, s->source[k].record[i].r.offset);
        }
    state->finished = s->ended && !s->group && state->done_n == state->records_n;
    if (!s->ended || s->group)
        state->records_n = -1;
}

status mem_queue_open(const struct config *cfg, const struct queue_job *job, struct queue **out, struct error *err)
{
    struct mem_queue *m = mem_take_zero(1, sizeof *m);
    const char *fingerprint = job->fingerprint != NULL ? job->fingerprint : "";
    struct mem_store *s = mem_store_enter(job->url + 4);
    status st = ST_OK;

    m->queue.ops = &mem_ops;
    m->store = s;
    m->owner = ++s->owner;
    m->window = cfg->plan_window_max;
    if (job->events != NULL)
        m->events = *job->events;
    s->queues_n++;
    snprintf(m->queue.state.job, sizeof m->queue.state.job, "%016" PRIx64, hash64(fingerprint, strlen(fingerprint), 0));
    m->reader = mem_take_zero(s->sources_n, sizeof m->reader[0]);
    m->readers_n = s->sources_n;
    for (size_t k = 0; k < m->readers_n && st == ST_OK; k++)
        if (is_ours(m, k))
            st = reader_begin(m, k, err);
    state_fill(m);
    pthread_mutex_unlock(&s->lock);
    if (st != ST_OK) {
        mem_close(&m->queue);
        return st;
    }
    *out = &m->queue;
    return ST_OK;
}
