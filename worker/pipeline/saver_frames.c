/* Tokens of running choices on their way into the store. The set of choices with new tokens is bounded by the running
 * sequences, not by messages: a store that is away costs no memory, and the engine never waits. */
#include "worker/pipeline/saver.h"

#include <stdlib.h>
#include <string.h>

#include "base/failpoint.h"

struct ckpt_identity identity_of(const struct pipeline *p, const struct request *r, int32_t choice)
{
    return (struct ckpt_identity){ .record = r->record_hash, .model = model_hash(p->model), .params = r->params_hash,
                                   .seed = r->choices[choice].seed };
}

/* A line with several prompts has several requests: their choices are numbered through. */
struct ckpt_key key_of(const struct pipeline *p, const struct request *r, int32_t choice)
{
    return (struct ckpt_key){ p->job_hash, r->source, r->offset, r->prompt_i * r->params.n + choice };
}

static struct save_slot *slot_find(const struct request *r, int32_t key_choice)
{
    struct save_slot *slot = r->saved;

    while (slot != NULL && slot->key.choice != key_choice)
        slot = slot->next;
    return slot;
}

/* Slots are made for the choices that need one. */
struct save_slot *slot_of(struct saver *s, struct request *r, int32_t choice)
{
    struct ckpt_key key = key_of(s->p, r, choice);
    struct save_slot *slot = slot_find(r, key.choice);

    if (slot != NULL)
        return slot;
    slot = mem_take_zero(1, sizeof *slot);
    slot->lease = r->record->lease;
    slot->key = key;
    slot->identity = identity_of(s->p, r, choice);
    slot->next = r->saved;
    r->saved = slot;
    return slot;
}

/* With the lock held. */
static void slot_dirty(struct saver *s, struct save_slot *slot)
{
    if (slot->dirty)
        return;
    slot->dirty = true;
    slot->next_dirty = s->dirty;
    s->dirty = slot;
}

void saver_progress(struct saver *s, const struct request *r, int32_t choice)
{
    const struct choice *c = &r->choices[choice];
    struct save_slot *slot;

    if (c->tokens_n == 0)
        return;
    /* The engine calls as the request's owner. */
    slot = slot_of(s, (struct request *)(uintptr_t)r, choice);
    pthread_mutex_lock(&s->lock);
    if (slot->tokens_room < c->tokens_n) {
        slot->tokens_room = 2 * c->tokens_n;
        slot->tokens = mem_grow(slot->tokens, (size_t)slot->tokens_room * sizeof *slot->tokens);
    }
    memcpy(slot->tokens, c->tokens, (size_t)c->tokens_n * sizeof *slot->tokens);
    slot->tokens_n = c->tokens_n;
    slot_dirty(s, slot);
    pthread_mutex_unlock(&s->lock);
}

int32_t saver_safe(struct saver *s, const struct request *r, int32_t choice)
{
    const struct choice *c = &r->choices[choice];
    struct save_slot *slot;
    int32_t safe_n;

    if (atomic_load(&s->away))
        return INT32_MAX;
    /* Asked in the middle of a step, where nothing is made: it was there at the first saver_progress, tokens ago. */
    slot = slot_find(r, key_of(s->p, r, choice).choice);
    if (slot == NULL)
        return INT32_MAX;
    safe_n = atomic_load(&slot->safe_n);
    if (safe_n < c->tokens_n) {
        pthread_mutex_lock(&s->lock);
        saver_wake(s);
        pthread_mutex_unlock(&s->lock);
    }
    return safe_n;
}

/* ---- saving ---- */

/* Takes up to SAVE_MAX dirty slots that still matter, with a copy of their tokens. */
static size_t dirty_take(struct saver *s)
{
    size_t n = 0;

    pthread_mutex_lock(&s->lock);
    while (n < SAVE_MAX && s->dirty != NULL) {
        struct save_slot *slot = s->dirty;

        s->dirty = slot->next_dirty;
        slot->dirty = false;
        if ((slot->over && slot->forget) || slot->tokens_n <= slot->saved_n)
            continue;
        s->saving[n++] = slot;
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

static int slot_compare(const void *a, const void *b)
{
    const struct save_slot *x = *(struct save_slot *const *)a, *y = *(struct save_slot *const *)b;

    if (x->key.source != y->key.source)
        return x->key.source < y->key.source ? -1 : 1;
    return (x->lease > y->lease) - (x->lease < y->lease);
}

/* What is written: a copy, because the engine goes on. A part that was written under another token may have been written
 * over since; then all of it is written again. */
static struct ckpt_save_item item_make(struct saver *s, struct save_slot *slot, uint64_t token)
{
    struct ckpt_save_item item = { .key = slot->key, .identity = slot->identity };
    int32_t *copy;

    if (slot->saved_token != token)
        slot->saved_n = 0;
    slot->saved_token = token;
    slot->stored = true;
    pthread_mutex_lock(&s->lock);
    copy = mem_take((size_t)slot->tokens_n * sizeof *copy);
    memcpy(copy, slot->tokens, (size_t)slot->tokens_n * sizeof *copy);
    item.tokens_n = slot->tokens_n;
    pthread_mutex_unlock(&s->lock);
    item.tokens = copy;
    item.saved_n = slot->saved_n;
    return item;
}

static void dirty_put_back(struct saver *s, struct save_slot *const *slots, size_t n)
{
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < n; i++)
        slot_dirty(s, slots[i]);
    pthread_mutex_unlock(&s->lock);
}

/* The slots of one holding. */
static void holding_save(struct saver *s, struct save_slot **slots, size_t n)
{
    int32_t source = slots[0]->key.source;
    uint32_t lease = slots[0]->lease;
    uint64_t token;
    status st;

    if (!fence_token(s, source, lease, &token)) {
        for (size_t i = 0; i < n; i++)
            atomic_store(&slots[i]->safe_n, INT32_MAX);        /* nothing that waiting would help */
        if (fence_is_ours(s, source, lease))
            dirty_put_back(s, slots, n);
        return;                        /* a holding that is over: its next owner goes on from what is there */
    }
    for (size_t i = 0; i < n; i++)
        s->items[i] = item_make(s, slots[i], token);
    failpoint("saver.save.before");
    st = ckpt_save(s->store, token, s->items, n, s->ok);
    failpoint("saver.save.after");
    for (size_t i = 0; i < n; i++) {
        if (s->ok[i])
            slots[i]->saved_n = s->items[i].tokens_n;
        else if (st == ST_AGAIN)
            slots[i]->saved_n = 0;
        if (s->ok[i] || st == ST_AGAIN)
            atomic_store(&slots[i]->safe_n, slots[i]->saved_n);
        if (!s->ok[i])
            dirty_put_back(s, &slots[i], 1);
        free((void *)(uintptr_t)s->items[i].tokens);
    }
    if (st == ST_OK || st == ST_AGAIN)
        store_is_back(s);
    else if (st == ST_FENCED)
        fence_refused(s, source, lease);
    else
        store_away(s, "save");
}

/* While the store is away, what is durable by now must not pile up here. */
static void dirty_sweep(struct saver *s)
{
    struct save_slot **at;

    pthread_mutex_lock(&s->lock);
    for (at = &s->dirty; *at != NULL;) {
        struct save_slot *slot = *at;

        if (slot->over && slot->forget) {
            slot->dirty = false;
            *at = slot->next_dirty;
        } else {
            at = &slot->next_dirty;
        }
    }
    pthread_mutex_unlock(&s->lock);
}

void dirty_save(struct saver *s)
{
    size_t n, i, k;

    if (!store_answers(s)) {
        dirty_sweep(s);
        return;
    }
    n = dirty_take(s);
    qsort(s->saving, n, sizeof s->saving[0], slot_compare);
    for (i = 0; i < n; i = k) {
        for (k = i + 1; k < n && slot_compare(&s->saving[i], &s->saving[k]) == 0; k++)
            ;
        if (store_answers(s))
            holding_save(s, s->saving + i, k - i);
        else
            dirty_put_back(s, s->saving + i, k - i);
    }
}

bool dirty_left(struct saver *s)
{
    bool left;

    pthread_mutex_lock(&s->lock);
    left = s->dirty != NULL;
    pthread_mutex_unlock(&s->lock);
    return left && store_answers(s);
}

/* ---- the end of a line ---- */

struct save_slot *saver_detach(struct request *r, struct save_slot *slots)
{
    struct save_slot *slot = r->saved, *next;

    for (; slot != NULL; slot = next) {
        next = slot->next;
        slot->next = slots;
        slots = slot;
    }
    r->saved = NULL;
    return slots;
}

void slot_free(struct save_slot *slot)
{
    free(slot->tokens);
    free(slot);
}

/* Slots whose request is gone: forgotten in the store if their result is durable. */
void slots_over(struct saver *s, struct save_slot *over)
{
    struct save_slot *slot, *next, *freed = NULL;

    pthread_mutex_lock(&s->lock);
    for (slot = over; slot != NULL; slot = next) {
        struct save_slot **list = slot->dirty ? &s->over : &freed;     /* dirty: still on that list, next time */

        next = slot->next;
        slot->next = *list;
        *list = slot;
    }
    pthread_mutex_unlock(&s->lock);
    for (slot = freed; slot != NULL; slot = next) {
        next = slot->next;
        if (slot->forget && slot->stored)
            due_add(&s->forgets, &slot->key, slot->lease);
        slot_free(slot);
    }
}
