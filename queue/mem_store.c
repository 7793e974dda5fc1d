#define _POSIX_C_SOURCE 200809L
#include "queue/mem_store.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"

static pthread_mutex_t stores_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mem_store *stores;

static struct mem_store *store_get(const char *name)
{
    struct mem_store *s;
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

struct mem_store *mem_store_enter(const char *name)
{
    struct mem_store *s = store_get(name);

    pthread_mutex_lock(&s->lock);
    return s;
}

static void store_leave(struct mem_store *s)
{
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static struct mem_source *source_find(const struct mem_store *s, int32_t id)
{
    for (size_t i = 0; i < s->sources_n; i++)
        if (s->source[i].id == id)
            return &s->source[i];
    return NULL;
}

/* ---- what producers do ---- */

static void *bytes_copy(const void *from, size_t n)
{
    char *p = mem_take(n + 1);

    if (n > 0)
        memcpy(p, from, n);
    p[n] = '\0';
    return p;
}

static struct header *headers_copy(const struct header *from, size_t n)
{
    struct header *to = mem_take_zero(n, sizeof *to);

    for (size_t i = 0; i < n; i++)
        to[i] = (struct header){ mem_copy_text(from[i].name),
                                 from[i].value != NULL ? bytes_copy(from[i].value, from[i].value_n) : NULL, from[i].value_n };
    return to;
}

static void headers_free(const struct header *headers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free((void *)(uintptr_t)headers[i].name);
        free((void *)(uintptr_t)headers[i].value);
    }
    free((void *)(uintptr_t)headers);
}

static struct record record_copy(const struct record *from)
{
    struct record r = *from;

    r.at_bytes = -1;
    r.value = from->value != NULL ? bytes_copy(from->value, from->value_n) : NULL;
    r.key = from->key != NULL ? bytes_copy(from->key, from->key_n) : NULL;
    r.headers = headers_copy(from->headers, from->headers_n);
    return r;
}

static void record_free(struct mem_record *m)
{
    free((void *)(uintptr_t)m->r.value);
    free((void *)(uintptr_t)m->r.key);
    headers_free(m->r.headers, m->r.headers_n);
}

void queue_mem_add_record(const char *name, const struct record *r)
{
    struct mem_store *s = mem_store_enter(name);
    struct mem_source *so = source_find(s, r->source);

    if (so == NULL) {
        s->source = mem_grow(s->source, (s->sources_n + 1) * sizeof s->source[0]);
        so = &s->source[s->sources_n++];
        memset(so, 0, sizeof *so);
        so->id = r->source;
    }
    ASSERT(so->records_n == 0 || so->record[so->records_n - 1].r.offset < r->offset);
    if (so->records_n == so->records_room) {
        so->records_room = so->records_room ? so->records_room * 2 : 64;
        so->record = mem_grow(so->record, so->records_room * sizeof so->record[0]);
    }
    so->record[so->records_n++] = (struct mem_record){ record_copy(r), r->value == NULL };
    store_leave(s);
}

void queue_mem_add(const char *name, int32_t source, int64_t offset, const char *value, size_t value_n)
{
    struct record r = { .source = source, .offset = offset, .value = value, .value_n = value != NULL ? value_n : 0 };

    queue_mem_add_record(name, &r);
}

void queue_mem_end(const char *name)
{
    struct mem_store *s = mem_store_enter(name);

    s->ended = true;
    store_leave(s);
}

/* ---- the group ---- */

void queue_mem_group(const char *name)
{
    struct mem_store *s = mem_store_enter(name);

    ASSERT(s->owner == 0);
    s->group = true;
    for (size_t i = 0; i < s->sources_n; i++)
        s->source[i].owner = s->source[i].next_owner = 1;
    store_leave(s);
}

void queue_mem_assign(const char *name, int32_t source, int64_t member, bool already)
{
    struct mem_store *s = mem_store_enter(name);
    struct mem_source *so = source_find(s, source);

    ASSERT(s->group && so != NULL);
    so->next_owner = member;
    if (already || so->owner == 0)
        so->owner = member;
    so->assigns_n++;
    s->generation++;
    store_leave(s);
}

int64_t queue_mem_owner(const char *name, int32_t source)
{
    struct mem_store *s = mem_store_enter(name);
    int64_t owner = source_find(s, source)->owner;

    store_leave(s);
    return owner;
}

/* ---- faults ---- */

void queue_mem_fail(const char *name, int skip, int calls)
{
    struct mem_store *s = mem_store_enter(name);

    s->fail_skip = skip;
    s->fail_calls = calls;
    store_leave(s);
}

bool mem_commit_refused(struct mem_store *s)
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

/* ---- what readers of the results see ---- */

void mem_results_store(struct mem_store *s, const struct result *results, size_t n, const bool *durable)
{
    for (size_t i = 0; i < n; i++) {
        const struct result *r = &results[i];

        if (!durable[i])
            continue;
        if (s->results_n == s->results_room) {
            s->results_room = s->results_room ? s->results_room * 2 : 64;
            s->result = mem_grow(s->result, s->results_room * sizeof s->result[0]);
        }
        s->result[s->results_n++] = (struct queue_mem_result){ r->record->source, r->record->offset, r->kind,
                                                               bytes_copy(r->value, r->value_n), r->value_n,
                                                               headers_copy(r->headers, r->headers_n), r->headers_n };
    }
}

size_t queue_mem_results(const char *name, const struct queue_mem_result **out)
{
    struct mem_store *s = mem_store_enter(name);
    size_t n = s->results_n;

    *out = s->result;
    store_leave(s);
    return n;
}

void queue_mem_drop(const char *name)
{
    struct mem_store *s = store_get(name), **at = &stores;

    ASSERT(s->queues_n == 0);
    pthread_mutex_lock(&stores_lock);
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    pthread_mutex_unlock(&stores_lock);
    for (size_t i = 0; i < s->sources_n; i++) {
        for (size_t k = 0; k < s->source[i].records_n; k++)
            record_free(&s->source[i].record[k]);
        free(s->source[i].record);
        free(s->source[i].metadata);
    }
    for (size_t i = 0; i < s->results_n; i++) {
        free(s->result[i].value);
        headers_free(s->result[i].headers, s->result[i].headers_n);
    }
    free(s->source);
    free(s->result);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s->name);
    free(s);
}
