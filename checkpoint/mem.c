#define _POSIX_C_SOURCE 200809L
#include "checkpoint/mem.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "checkpoint/frames.h"
#include "checkpoint/ops.h"

struct sequence {
    struct ckpt_key key;
    struct buf bytes;
    struct { int32_t n1; size_t end; } *part;      /* where frames end: token and byte; part[0] is the identity */
    size_t parts_n;
    struct sequence *next;
};

struct fence { uint64_t job, token; int32_t source; struct fence *next; };

struct begun {
    struct ckpt_key record;                        /* its choice is 0 */
    struct attempt attempt;
    struct begun *next;
};

struct store {
    char *name;
    struct sequence *sequences;
    struct fence *fences;
    struct begun *begun;
    enum ckpt_mem_fault fault;
    int fault_skip, fault_calls;
    int64_t calls;
    int handles;
    struct store *next;
};

struct mem_ckpt {
    struct ckpt ckpt;
    struct store *store;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;      /* over everything below: this is for tests */
static struct store *stores;

static struct store *store_get(const char *name)
{
    struct store *s = stores;

    while (s != NULL && strcmp(s->name, name) != 0)
        s = s->next;
    if (s == NULL) {
        s = mem_take_zero(1, sizeof *s);
        s->name = mem_copy_text(name);
        s->next = stores;
        stores = s;
    }
    return s;
}

static bool key_equal(const struct ckpt_key *a, const struct ckpt_key *b)
{
    return a->job == b->job && a->source == b->source && a->offset == b->offset && a->choice == b->choice;
}

static struct sequence *sequence_get(const struct store *s, const struct ckpt_key *key)
{
    struct sequence *q = s->sequences;

    while (q != NULL && !key_equal(&q->key, key))
        q = q->next;
    return q;
}

static void sequence_free(struct sequence *q)
{
    buf_fini(&q->bytes);
    free(q->part);
    free(q);
}

/* Takes away the sequence with that key or, without a key, every one of the job. */
static void sequences_cut(struct store *s, const struct ckpt_key *key, const uint64_t *job)
{
    struct sequence **at = &s->sequences;

    while (*at != NULL) {
        struct sequence *q = *at;

        if ((key == NULL || key_equal(&q->key, key)) && (job == NULL || q->key.job == *job)) {
            *at = q->next;
            sequence_free(q);
        } else {
            at = &q->next;
        }
    }
}

static struct ckpt_key record_of(const struct ckpt_key *key)
{
    return (struct ckpt_key){ key->job, key->source, key->offset, 0 };
}

/* NULL: nobody has begun it. */
static struct begun *begun_get(const struct store *s, const struct ckpt_key *key)
{
    struct ckpt_key record = record_of(key);
    struct begun *t = s->begun;

    while (t != NULL && !key_equal(&t->record, &record))
        t = t->next;
    return t;
}

/* As sequences_cut; `record` has choice 0. */
static void begun_cut(struct store *s, const struct ckpt_key *record, const uint64_t *job)
{
    struct begun **at = &s->begun;

    while (*at != NULL) {
        struct begun *t = *at;

        if ((record == NULL || key_equal(&t->record, record)) && (job == NULL || t->record.job == *job)) {
            *at = t->next;
            free(t);
        } else {
            at = &t->next;
        }
    }
}

static void fences_free(struct store *s)
{
    while (s->fences != NULL) {
        struct fence *f = s->fences;

        s->fences = f->next;
        free(f);
    }
}

static struct fence *fence_get(struct store *s, uint64_t job, int32_t source)
{
    struct fence *f = s->fences;

    while (f != NULL && (f->job != job || f->source != source))
        f = f->next;
    if (f == NULL) {
        f = mem_take_zero(1, sizeof *f);
        f->job = job;
        f->source = source;
        f->next = s->fences;
        s->fences = f;
    }
    return f;
}

static status fence_check(struct store *s, const struct ckpt_key *key, uint64_t token)
{
    struct fence *f = fence_get(s, key->job, key->source);

    if (token < f->token)
        return ST_FENCED;
    f->token = token;
    return ST_OK;
}

static status fences_check(struct store *s, const struct ckpt_key *keys, size_t keys_n, uint64_t token)
{
    status st = ST_OK;

    for (size_t i = 0; i < keys_n && st == ST_OK; i++)
        st = fence_check(s, &keys[i], token);
    return st;
}

/* Begins a call: takes the lock and says which fault it has. */
static bool call_begin(struct store *s, enum ckpt_mem_fault *fault)
{
    pthread_mutex_lock(&lock);
    s->calls++;
    *fault = s->fault;
    if (s->fault_skip > 0)
        s->fault_skip--;
    else if (s->fault_calls > 0) {
        s->fault_calls--;
        return true;
    }
    return false;
}

static status call_end(bool faulty, status st)
{
    pthread_mutex_unlock(&lock);
    return faulty ? ST_RETRY : st;
}

#define CALL(store, what) do { \
        enum ckpt_mem_fault fault; \
        bool faulty = call_begin(store, &fault); \
        return call_end(faulty, faulty && fault == CKPT_MEM_REFUSE ? ST_RETRY : (what)); \
    } while (0)

static struct store *store_of(struct ckpt *c)
{
    return ((struct mem_ckpt *)c)->store;
}

static status acquire(struct store *s, uint64_t job, int32_t source, uint64_t *token)
{
    struct fence *f = fence_get(s, job, source);
    uint64_t now = (uint64_t)(clock_wall_ns() / NS_PER_MS);

    f->token = now > f->token ? now : f->token + 1;
    *token = f->token;
    return ST_OK;
}

static status mem_acquire(struct ckpt *c, uint64_t job, int32_t source, uint64_t *token)
{
    CALL(store_of(c), acquire(store_of(c), job, source, token));
}

static void part_add(struct sequence *q, int32_t n1)
{
    q->part = mem_grow(q->part, (q->parts_n + 1) * sizeof q->part[0]);
    q->part[q->parts_n].n1 = n1;
    q->part[q->parts_n++].end = q->bytes.n;
}

static bool item_save(struct store *s, const struct ckpt_save_item *item)
{
    struct sequence *q = sequence_get(s, &item->key);

    if (item->saved_n == 0) {
        sequences_cut(s, &item->key, NULL);
        q = mem_take_zero(1, sizeof *q);
        q->key = item->key;
        q->next = s->sequences;
        s->sequences = q;
        frame_add_identity(&q->bytes, &item->identity);
        part_add(q, 0);
    } else {
        size_t i = 1;

        while (q != NULL && i < q->parts_n && q->part[i].n1 != item->saved_n)
            i++;
        if (q == NULL || i >= q->parts_n || q->part[i].end > q->bytes.n)
            return false;
        q->parts_n = i + 1;
        q->bytes.n = q->part[i].end;
    }
    if (item->tokens_n > item->saved_n) {
        frame_add_tokens(&q->bytes, &item->identity, item->tokens, item->saved_n, item->tokens_n);
        part_add(q, item->tokens_n);
    }
    return true;
}

static status save(struct store *s, uint64_t token, const struct ckpt_save_item *items, size_t items_n, uint8_t *ok)
{
    status st = ST_OK;

    for (size_t i = 0; i < items_n; i++)
        if (fence_check(s, &items[i].key, token) != ST_OK)
            return ST_FENCED;
    for (size_t i = 0; i < items_n; i++) {
        ok[i] = item_save(s, &items[i]);
        if (!ok[i])
            st = ST_AGAIN;
    }
    return st;
}

static status mem_save(struct ckpt *c, uint64_t token, const struct ckpt_save_item *items, size_t items_n, uint8_t *ok)
{
    CALL(store_of(c), save(store_of(c), token, items, items_n, ok));
}

static status load(struct store *s, struct ckpt_load_item *items, size_t items_n)
{
    status st = ST_OK;

    for (size_t i = 0; i < items_n && st == ST_OK; i++) {
        struct ckpt_load_item *item = &items[i];
        struct sequence *q = sequence_get(s, &item->key);
        size_t end;

        if (q != NULL)
            st = frames_read(q->bytes.data, q->bytes.n, &item->identity, item->arena, &item->progress, &end);
        if (st == ST_AGAIN)
            st = ST_OK;
    }
    return st;
}

static status mem_load(struct ckpt *c, struct ckpt_load_item *items, size_t items_n)
{
    CALL(store_of(c), load(store_of(c), items, items_n));
}

static status count(struct store *s, uint64_t job, int64_t *out)
{
    for (struct sequence *q = s->sequences; q != NULL; q = q->next)
        *out += q->key.job == job;
    for (struct begun *t = s->begun; t != NULL; t = t->next)
        *out += t->record.job == job;
    return ST_OK;
}

static status mem_count(struct ckpt *c, uint64_t job, int64_t *out)
{
    CALL(store_of(c), count(store_of(c), job, out));
}

static struct begun *begun_add(struct store *s, const struct ckpt_key *key)
{
    struct begun *t = mem_take_zero(1, sizeof *t);

    t->record = record_of(key);
    t->next = s->begun;
    s->begun = t;
    return t;
}

static status begin(struct store *s, uint64_t token, const struct ckpt_key *keys, size_t keys_n, bool solo, uint64_t run,
                    struct ckpt_attempts *out)
{
    status st = fences_check(s, keys, keys_n, token);

    for (size_t i = 0; i < keys_n && st == ST_OK; i++) {
        struct begun *t = begun_get(s, &keys[i]);

        if (t == NULL)
            t = begun_add(s, &keys[i]);
        attempt_begin(&t->attempt, solo, run);
        out[i] = t->attempt.stands;
    }
    return st;
}

static status mem_begin(struct ckpt *c, uint64_t token, const struct ckpt_key *keys, size_t keys_n, bool solo, uint64_t run,
                        struct ckpt_attempts *out)
{
    CALL(store_of(c), begin(store_of(c), token, keys, keys_n, solo, run, out));
}

static status hand_over(struct store *s, uint64_t token, const struct ckpt_key *keys, size_t keys_n, bool solo)
{
    status st = fences_check(s, keys, keys_n, token);

    for (size_t i = 0; i < keys_n && st == ST_OK; i++) {
        struct begun *t = begun_get(s, &keys[i]);
        struct ckpt_key record = record_of(&keys[i]);

        if (t == NULL)
            continue;
        attempt_hand_over(&t->attempt, solo);
        if (attempt_nothing(&t->attempt))
            begun_cut(s, &record, NULL);
    }
    return st;
}

static status mem_hand_over(struct ckpt *c, uint64_t token, const struct ckpt_key *keys, size_t keys_n, bool solo)
{
    CALL(store_of(c), hand_over(store_of(c), token, keys, keys_n, solo));
}

static status attempts(struct store *s, const struct ckpt_key *keys, size_t keys_n, struct ckpt_attempts *out)
{
    for (size_t i = 0; i < keys_n; i++) {
        const struct begun *t = begun_get(s, &keys[i]);

        out[i] = t != NULL ? t->attempt.stands : (struct ckpt_attempts){ 0, 0, 0 };
    }
    return ST_OK;
}

static status mem_attempts(struct ckpt *c, const struct ckpt_key *keys, size_t keys_n, struct ckpt_attempts *out)
{
    CALL(store_of(c), attempts(store_of(c), keys, keys_n, out));
}

static status forget(struct store *s, uint64_t token, const struct ckpt_key *keys, size_t keys_n)
{
    status st = fences_check(s, keys, keys_n, token);

    for (size_t i = 0; i < keys_n && st == ST_OK; i++) {
        struct ckpt_key record = record_of(&keys[i]);

        sequences_cut(s, &keys[i], NULL);
        begun_cut(s, &record, NULL);
    }
    return st;
}

static status mem_forget(struct ckpt *c, uint64_t token, const struct ckpt_key *keys, size_t keys_n)
{
    CALL(store_of(c), forget(store_of(c), token, keys, keys_n));
}

static status forget_job(struct store *s, uint64_t token, uint64_t job)
{
    for (struct fence *f = s->fences; f != NULL; f = f->next)
        if (f->job == job && f->token > token)
            return ST_FENCED;
    sequences_cut(s, NULL, &job);
    begun_cut(s, NULL, &job);
    return ST_OK;
}

static status mem_forget_job(struct ckpt *c, uint64_t token, uint64_t job)
{
    CALL(store_of(c), forget_job(store_of(c), token, job));
}

static void mem_close(struct ckpt *c)
{
    pthread_mutex_lock(&lock);
    store_of(c)->handles--;
    pthread_mutex_unlock(&lock);
    free(c);
}

static const struct ckpt_ops mem_ops = {
    .close = mem_close, .acquire = mem_acquire, .save = mem_save, .load = mem_load, .count = mem_count,
    .begin = mem_begin, .hand_over = mem_hand_over, .attempts = mem_attempts, .forget = mem_forget,
    .forget_job = mem_forget_job,
};

status mem_ckpt_open(const char *at, struct ckpt **out, struct error *err)
{
    struct mem_ckpt *c = mem_take_zero(1, sizeof *c);

    (void)err;
    c->ckpt.ops = &mem_ops;
    pthread_mutex_lock(&lock);
    c->store = store_get(at);
    c->store->handles++;
    pthread_mutex_unlock(&lock);
    *out = &c->ckpt;
    return ST_OK;
}

void ckpt_mem_fail(const char *name, enum ckpt_mem_fault fault, int skip, int calls)
{
    struct store *s;

    pthread_mutex_lock(&lock);
    s = store_get(name);
    s->fault = fault;
    s->fault_skip = skip;
    s->fault_calls = calls;
    pthread_mutex_unlock(&lock);
}

void ckpt_mem_lose(const char *name)
{
    struct store *s;

    pthread_mutex_lock(&lock);
    s = store_get(name);
    sequences_cut(s, NULL, NULL);
    begun_cut(s, NULL, NULL);
    fences_free(s);
    pthread_mutex_unlock(&lock);
}

bool ckpt_mem_cut(const char *name, const struct ckpt_key *key, size_t bytes)
{
    struct sequence *q;
    bool cut = false;

    pthread_mutex_lock(&lock);
    q = sequence_get(store_get(name), key);
    if (q != NULL && bytes < q->bytes.n) {
        q->bytes.n = bytes;
        cut = true;
    }
    pthread_mutex_unlock(&lock);
    return cut;
}

bool ckpt_mem_flip(const char *name, const struct ckpt_key *key, size_t byte_i)
{
    struct sequence *q;
    bool flipped = false;

    pthread_mutex_lock(&lock);
    q = sequence_get(store_get(name), key);
    if (q != NULL && byte_i < q->bytes.n) {
        q->bytes.data[byte_i] = (char)~q->bytes.data[byte_i];
        flipped = true;
    }
    pthread_mutex_unlock(&lock);
    return flipped;
}

int64_t ckpt_mem_calls(const char *name)
{
    int64_t calls;

    pthread_mutex_lock(&lock);
    calls = store_get(name)->calls;
    pthread_mutex_unlock(&lock);
    return calls;
}

void ckpt_mem_drop(const char *name)
{
    struct store *s, **at = &stores;

    pthread_mutex_lock(&lock);
    s = store_get(name);
    ASSERT(s->handles == 0);
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    sequences_cut(s, NULL, NULL);
    begun_cut(s, NULL, NULL);
    fences_free(s);
    free(s->name);
    free(s);
    pthread_mutex_unlock(&lock);
}
