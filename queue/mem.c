#define _POSIX_C_SOURCE 200809L
#include "queue/mem.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "queue/ops.h"
#include "queue/tracker.h"

#define METADATA_BYTES_MAX 4096

struct stored { int64_t offset; char *value; size_t value_n; };

struct source {
    int32_t id;
    struct stored *record;
    size_t records_n, records_room;
    int64_t lwm;
    char *metadata;              /* NULL: nothing is committed */
};

struct store {
    char *name;
    pthread_mutex_t lock;
    pthread_cond_t changed;      /* a record, a commit, the end */
    struct source *source;
    size_t sources_n;
    struct queue_mem_result *result;
    size_t results_n, results_room;
    bool ended;
    int fail_skip, fail_calls;
    enum queue_mem_mutant mutant;
    int64_t owner;               /* number of the queue that opened last */
    int queues_n;
    struct store *next;
};

struct reader {                  /* of one source */
    struct tracker *tracker;
    size_t next_i;
    bool paused;
};

struct mem_queue {
    struct queue queue;
    struct store *store;
    int64_t owner;
    struct reader *reader;       /* [readers_n]; sources that are added later are not read */
    size_t readers_n, turn;
};

static pthread_mutex_t stores_lock = PTHREAD_MUTEX_INITIALIZER;
static struct store *stores;

static struct store *store_get(const char *name)
{
    struct store *s;
    pthread_condattr_t attr;

    pthread_mutex_lock(&stores_lock);
    for (s = stores; s != NULL && strcmp(s->name, name) != 0; s = s->next)
        ;
    if (s == NULL) {
        s = mem_take_zero(1, sizeof *s);
        s->name = mem_copy_text(name);
        pthread_mutex_init(&s->lock, NULL);
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&s->changed, &attr);
        pthread_condattr_destroy(&attr);
        s->next = stores;
        stores = s;
    }
    pthread_mutex_unlock(&stores_lock);
    return s;
}

static struct store *store_enter(const char *name)
{
    struct store *s = store_get(name);

    pthread_mutex_lock(&s->lock);
    return s;
}

static struct source *source_find(const struct store *s, int32_t id)
{
    for (size_t i = 0; i < s->sources_n; i++)
        if (s->source[i].id == id)
            return &s->source[i];
    return NULL;
}

void queue_mem_add(const char *name, int32_t source, int64_t offset, const char *value, size_t value_n)
{
    struct store *s = store_enter(name);
    struct source *so = source_find(s, source);
    struct stored *r;

    if (so == NULL) {
        s->source = mem_grow(s->source, (s->sources_n + 1) * sizeof s->source[0]);
        so = &s->source[s->sources_n++];
        memset(so, 0, sizeof *so);
        so->id = source;
    }
    ASSERT(so->records_n == 0 || so->record[so->records_n - 1].offset < offset);
    if (so->records_n == so->records_room) {
        so->records_room = so->records_room ? so->records_room * 2 : 64;
        so->record = mem_grow(so->record, so->records_room * sizeof so->record[0]);
    }
    r = &so->record[so->records_n++];
    *r = (struct stored){ offset, NULL, value_n };
    if (value != NULL) {
        r->value = mem_take(value_n + 1);
        memcpy(r->value, value, value_n);
        r->value[value_n] = '\0';
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void queue_mem_end(const char *name)
{
    struct store *s = store_enter(name);

    s->ended = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void queue_mem_fail(const char *name, int skip, int calls)
{
    struct store *s = store_enter(name);

    s->fail_skip = skip;
    s->fail_calls = calls;
    pthread_mutex_unlock(&s->lock);
}

void queue_mem_mutate(const char *name, enum queue_mem_mutant mutant)
{
    struct store *s = store_enter(name);

    s->mutant = mutant;
    pthread_mutex_unlock(&s->lock);
}

size_t queue_mem_results(const char *name, const struct queue_mem_result **out)
{
    struct store *s = store_enter(name);
    size_t n = s->results_n;

    *out = s->result;
    pthread_mutex_unlock(&s->lock);
    return n;
}

bool queue_mem_committed(const char *name, int32_t source, int64_t *lwm, const char **metadata)
{
    struct store *s = store_enter(name);
    struct source *so = source_find(s, source);
    bool there = so != NULL && so->metadata != NULL;

    *lwm = there ? so->lwm : 0;
    *metadata = there ? so->metadata : NULL;
    pthread_mutex_unlock(&s->lock);
    return there;
}

void queue_mem_drop(const char *name)
{
    struct store *s = store_get(name), **at = &stores;

    ASSERT(s->queues_n == 0);
    pthread_mutex_lock(&stores_lock);
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    pthread_mutex_unlock(&stores_lock);
    for (size_t i = 0; i < s->sources_n; i++) {
        for (size_t k = 0; k < s->source[i].records_n; k++)
            free(s->source[i].record[k].value);
        free(s->source[i].record);
        free(s->source[i].metadata);
    }
    for (size_t i = 0; i < s->results_n; i++)
        free(s->result[i].value);
    free(s->source);
    free(s->result);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s->name);
    free(s);
}

/* ---- the queue ---- */

static struct mem_queue *self(const struct queue *q)
{
    return (struct mem_queue *)(uintptr_t)q;
}

/* Passes over tombstones and what is done. NULL: nothing is there now. */
static const struct stored *record_next(const struct source *so, struct reader *r)
{
    while (r->next_i < so->records_n) {
        const struct stored *rec = &so->record[r->next_i];

        if (rec->value != NULL && !tracker_is_done(r->tracker, rec->offset))
            return rec;
        if (rec->value != NULL && tracker_receive(r->tracker, rec->offset) != ST_REJECT)
            ASSERT(!"a done record was received");
        r->next_i++;
    }
    return NULL;
}

static struct record *record_make(int32_t source, const struct stored *rec)
{
    struct record *r = mem_take_zero(1, sizeof *r + rec->value_n + 1);
    char *value = (char *)(r + 1);

    memcpy(value, rec->value, rec->value_n);
    r->source = source;
    r->offset = rec->offset;
    r->value = value;
    r->value_n = rec->value_n;
    r->at_bytes = -1;
    return r;
}

static struct record *poll_now(struct mem_queue *m)
{
    for (size_t i = 0; i < m->readers_n; i++) {
        size_t k = (m->turn + i) % m->readers_n;
        struct reader *r = &m->reader[k];
        const struct stored *rec = r->paused ? NULL : record_next(&m->store->source[k], r);

        if (rec == NULL || tracker_receive(r->tracker, rec->offset) != ST_OK)
            continue;
        r->next_i++;
        m->turn = k + 1;
        return record_make(m->store->source[k].id, rec);
    }
    return NULL;
}

static status mem_poll(struct queue *q, int timeout_ms, struct record **out, struct error *err)
{
    struct mem_queue *m = self(q);
    struct timespec until;

    (void)err;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * NS_PER_MS;
    until.tv_sec += until.tv_nsec / NS_PER_S;
    until.tv_nsec %= NS_PER_S;
    pthread_mutex_lock(&m->store->lock);
    while ((*out = poll_now(m)) == NULL && timeout_ms > 0)
        if (pthread_cond_timedwait(&m->store->changed, &m->store->lock, &until) != 0)
            timeout_ms = 0;
    pthread_mutex_unlock(&m->store->lock);
    return *out != NULL ? ST_OK : ST_AGAIN;
}

static bool mem_ended(const struct queue *q)
{
    struct mem_queue *m = self(q);
    bool ended;

    pthread_mutex_lock(&m->store->lock);
    ended = m->store->ended;
    for (size_t i = 0; i < m->readers_n && ended; i++)
        ended = record_next(&m->store->source[i], &m->reader[i]) == NULL;
    pthread_mutex_unlock(&m->store->lock);
    return ended;
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

static void mem_result_id(const struct queue *q, int32_t source, int64_t offset, char out[64])
{
    snprintf(out, 64, "batch_req_%s_%" PRId32 "_%" PRId64, q->state.job, source, offset);
}

/* The hash of the record at the LWM that goes into the metadata: tells a topic that was made anew. */
static void lwm_hash(const struct source *so, const struct tracker *t, char out[9])
{
    size_t i = 0;

    strcpy(out, "-");
    if (tracker_open_n(t) == 0)
        return;
    while (i < so->records_n && so->record[i].offset != tracker_lwm(t))
        i++;
    if (i < so->records_n)
        snprintf(out, 9, "%08" PRIx32, (uint32_t)hash64(so->record[i].value, so->record[i].value_n, 0));
}

/* What the source's commit says after this group. */
static void marks_store(struct store *s, struct source *so, const struct tracker *after)
{
    char text[METADATA_BYTES_MAX], hash[9];

    lwm_hash(so, after, hash);
    ASSERT(tracker_encode(after, hash, text, sizeof text) == ST_OK);
    so->lwm = tracker_lwm(after);
    if (s->mutant == QUEUE_MEM_HIGHEST_SEEN)
        so->lwm += tracker_ahead(after);
    if (s->mutant == QUEUE_MEM_NO_BITMAP || s->mutant == QUEUE_MEM_HIGHEST_SEEN)
        strcpy(text, "W1:-:");
    free(so->metadata);
    so->metadata = mem_copy_text(text);
}

static void results_store(struct store *s, const struct result *results, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct queue_mem_result *r;

        if (s->results_n == s->results_room) {
            s->results_room = s->results_room ? s->results_room * 2 : 64;
            s->result = mem_grow(s->result, s->results_room * sizeof s->result[0]);
        }
        r = &s->result[s->results_n++];
        *r = (struct queue_mem_result){ results[i].source, results[i].offset, results[i].kind,
                                        mem_take(results[i].value_n + 1), results[i].value_n };
        memcpy(r->value, results[i].value, results[i].value_n);
        r->value[r->value_n] = '\0';
    }
}

static bool commit_refused(struct store *s)
{
    if (s->fail_skip > 0) {
        s->fail_skip--;
        return false;
    }
    if (s->fail_calls == 0)
        return false;
    s->fail_calls--;
    return true;
}

static status mem_commit(struct queue *q, const struct result *results, size_t n, struct error *err)
{
    struct mem_queue *m = self(q);
    struct store *s = m->store;
    bool refused;

    pthread_mutex_lock(&s->lock);
    if (s->owner != m->owner) {
        pthread_mutex_unlock(&s->lock);
        return error_set(err, ST_FENCED, "another worker has taken over mem:%s", s->name);
    }
    refused = commit_refused(s);
    for (size_t k = 0; k < m->readers_n; k++) {
        struct source *so = &s->source[k];
        struct tracker *after = tracker_copy(m->reader[k].tracker);

        for (size_t i = 0; i < n; i++)
            if (results[i].source == so->id)
                tracker_done(after, results[i].offset);
        if (!refused || s->mutant == QUEUE_MEM_MARK_FIRST)
            marks_store(s, so, after);
        if (refused) {
            tracker_close(after);
        } else {
            tracker_close(m->reader[k].tracker);
            m->reader[k].tracker = after;
        }
    }
    if (!refused || s->mutant == QUEUE_MEM_RESULT_FIRST)
        results_store(s, results, n);
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
    .poll = mem_poll, .ended = mem_ended, .record_give = mem_record_give, .pause = mem_pause, .commit = mem_commit,
    .result_id = mem_result_id, .finish = mem_finish, .close = mem_close,
};

/* Takes up a source where its commit says. Counts what is there and what is done of it. */
static status reader_begin(struct mem_queue *m, size_t k, int64_t window, struct error *err)
{
    struct source *so = &m->store->source[k];
    struct reader *r = &m->reader[k];
    char hash[9] = "-", now[9];
    status st;

    if (so->metadata == NULL) {
        r->tracker = tracker_open(so->lwm, window);
    } else {
        st = tracker_decode(so->metadata, so->lwm, window, hash, &r->tracker, err);
        if (st != ST_OK)
            return st;
    }
    for (size_t i = 0; i < so->records_n; i++) {
        const struct stored *rec = &so->record[i];

        if (rec->offset < so->lwm)
            r->next_i = i + 1;
        if (rec->value == NULL)
            continue;
        m->queue.state.records_n++;
        m->queue.state.done_n += tracker_is_done(r->tracker, rec->offset);
        if (rec->offset != so->lwm || hash[0] == '-')
            continue;
        snprintf(now, sizeof now, "%08" PRIx32, (uint32_t)hash64(rec->value, rec->value_n, 0));
        if (strcmp(now, hash) != 0)
            return error_set(err, ST_REJECT, "source %" PRId32 " of mem:%s was made anew since its last commit", so->id,
                             m->store->name);
    }
    return ST_OK;
}

status mem_queue_open(const struct config *cfg, const struct queue_job *job, struct queue **out, struct error *err)
{
    struct mem_queue *m = mem_take_zero(1, sizeof *m);
    const char *fingerprint = job->fingerprint != NULL ? job->fingerprint : "";
    struct store *s = store_enter(job->url + 4);
    status st = ST_OK;

    m->queue.ops = &mem_ops;
    m->store = s;
    m->owner = ++s->owner;
    s->queues_n++;
    snprintf(m->queue.state.job, sizeof m->queue.state.job, "%016" PRIx64, hash64(fingerprint, strlen(fingerprint), 0));
    m->reader = mem_take_zero(s->sources_n, sizeof m->reader[0]);
    m->readers_n = s->sources_n;
    for (size_t k = 0; k < m->readers_n && st == ST_OK; k++)
        st = reader_begin(m, k, cfg->plan_window_max, err);
    m->queue.state.finished = s->ended && m->queue.state.done_n == m->queue.state.records_n;
    if (!s->ended)
        m->queue.state.records_n = -1;
    pthread_mutex_unlock(&s->lock);
    if (st != ST_OK) {
        mem_close(&m->queue);
        return st;
    }
    *out = &m->queue;
    return ST_OK;
}
