/* The thread that owns the checkpoint store. Two ways in: look-ups of requests that may have stored tokens, and a set of
 * choices with new tokens. The set is bounded by the running sequences, not by messages: a store that is away costs no
 * memory, and the engine never waits.
 *
 * A save_slot is one choice's place here. It hangs on the request (saved) until the outbox takes it, and is freed by
 * the saver. What the store knows of it (saved_n) belongs to the saver's thread alone. */
#define _POSIX_C_SOURCE 200809L
#include "worker/pipeline/internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"

enum { TICK_MS = 10, SAVE_MAX = 1000, RETRY_MS = 1000 };

struct save_slot {
    struct save_slot *next;            /* of the request's list, or of `over` */
    struct save_slot *next_dirty;
    int32_t choice;
    struct ckpt_key key;
    struct ckpt_identity identity;
    /* under the saver's lock */
    int32_t *tokens, tokens_n, tokens_room;
    bool dirty, over, forget;
    /* the saver's thread only */
    int32_t saved_n;
};

struct saver {
    struct pipeline *p;
    struct ckpt *store;
    pthread_t thread;
    uint64_t token;                    /* fencing token of source 0 */
    bool looks_up;
    struct bqueue *loads;
    struct request *backlog[POP_MAX];  /* looked up, waiting for room in admits */
    size_t backlog_n, backlog_i;
    atomic_bool looked_up;             /* look-ups have ended, the last is through */

    pthread_mutex_t lock;
    struct save_slot *dirty, *over;
    bool stop;

    /* the saver's thread only */
    int64_t retry_at_ns;               /* the store was away: not before then */
    struct save_slot *saving[SAVE_MAX];
    struct ckpt_save_item items[SAVE_MAX];
    uint8_t ok[SAVE_MAX];
};

static struct ckpt_identity identity_of(const struct pipeline *p, const struct request *r, int32_t choice)
{
    return (struct ckpt_identity){ .record = r->record_hash, .model = model_hash(p->model), .params = r->params_hash,
                                   .seed = r->choices[choice].seed };
}

/* Slots are made for the choices that need one. */
static struct save_slot *slot_of(struct saver *s, struct request *r, int32_t choice)
{
    struct save_slot *slot;

    for (slot = r->saved; slot != NULL; slot = slot->next)
        if (slot->choice == choice)
            return slot;
    slot = mem_take_zero(1, sizeof *slot);
    slot->choice = choice;
    /* A line with several prompts has several requests: their choices are numbered through. */
    slot->key = (struct ckpt_key){ s->p->job_hash, r->source, r->offset, r->prompt_i * r->params.n + choice };
    slot->identity = identity_of(s->p, r, choice);
    slot->next = r->saved;
    r->saved = slot;
    return slot;
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
    if (!slot->dirty) {
        slot->dirty = true;
        slot->next_dirty = s->dirty;
        s->dirty = slot;
    }
    pthread_mutex_unlock(&s->lock);
}

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

static void slots_end(struct saver *s, struct save_slot *slots, bool forget)
{
    struct save_slot *slot, *next;

    pthread_mutex_lock(&s->lock);
    for (slot = slots; slot != NULL; slot = next) {
        next = slot->next;
        slot->over = true;
        slot->forget = forget;
        slot->next = s->over;
        s->over = slot;
    }
    pthread_mutex_unlock(&s->lock);
}

void saver_forget(struct saver *s, struct save_slot *slots)
{
    slots_end(s, slots, true);
}

void saver_keep(struct saver *s, struct save_slot *slots)
{
    slots_end(s, slots, false);
}

/* ---- look-ups ---- */

bool saver_looks_up(const struct saver *s)
{
    return s->looks_up;
}

status saver_look_up(struct saver *s, struct request *r)
{
    return bqueue_push(s->loads, r);
}

void saver_look_ups_end(struct saver *s)
{
    bqueue_close(s->loads);
}

void saver_look_ups_wait(struct saver *s)
{
    while (!atomic_load(&s->looked_up))
        nanosleep(&(struct timespec){ .tv_nsec = NS_PER_MS }, NULL);
}

static void tokens_load(struct saver *s, struct request *r)
{
    struct ckpt_progress progress;
    struct ckpt_identity identity;
    struct ckpt_key key;

    for (int32_t i = 0; i < r->params.n; i++) {
        struct choice *c = &r->choices[i];
        struct save_slot *slot;

        key = (struct ckpt_key){ s->p->job_hash, r->source, r->offset, r->prompt_i * r->params.n + i };
        identity = identity_of(s->p, r, i);
        if (ckpt_load(s->store, &key, &identity, &r->arena, &progress) != ST_OK || progress.tokens_n == 0)
            continue;
        if (progress.tokens_n > r->params.max_tokens)
            progress.tokens_n = r->params.max_tokens;
        c->tokens_room = progress.tokens_n + 64;
        c->tokens = mem_take((size_t)c->tokens_room * sizeof *c->tokens);
        memcpy(c->tokens, progress.tokens, (size_t)progress.tokens_n * sizeof *c->tokens);
        c->tokens_n = c->resumed_n = progress.tokens_n;
        slot = slot_of(s, r, i);
        slot->saved_n = progress.tokens_n;
        pthread_mutex_lock(&s->p->lock);
        s->p->counts.resumed_n++;
        pthread_mutex_unlock(&s->p->lock);
    }
}

/* Never waits: a full queue in front of the engine must not keep frames from being written. */
static bool look_ups_step(struct saver *s)
{
    void *items[POP_MAX];
    bool moved = false;

    if (s->backlog_i == s->backlog_n) {
        s->backlog_n = bqueue_pop(s->loads, items, POP_MAX, 0);
        s->backlog_i = 0;
        for (size_t i = 0; i < s->backlog_n; i++) {
            s->backlog[i] = items[i];
            tokens_load(s, s->backlog[i]);
        }
    }
    while (s->backlog_i < s->backlog_n) {
        status st = bqueue_push_now(s->p->admits, s->backlog[s->backlog_i]);

        if (st == ST_AGAIN)
            return moved;
        if (st == ST_FENCED)                    /* stopping */
            outcome_push(s->p, s->backlog[s->backlog_i]);
        s->backlog_i++;
        moved = true;
    }
    if (!atomic_load(&s->looked_up) && bqueue_ended(s->loads)) {
        bqueue_close(s->p->admits);
        atomic_store(&s->looked_up, true);
    }
    return moved;
}

/* ---- saving ---- */

static void store_away(struct saver *s, const char *what)
{
    if (s->retry_at_ns == 0)
        log_warn("checkpoint.away", "what=%s retry_ms=%d note=\"work goes on; a crash now costs more\"", what, RETRY_MS);
    s->retry_at_ns = clock_mono_ns() + RETRY_MS * NS_PER_MS;
}

/* Takes up to SAVE_MAX dirty slots that still matter, with a copy of their tokens. */
static size_t dirty_take(struct saver *s, struct save_slot **slots, struct ckpt_save_item *items)
{
    size_t n = 0;

    pthread_mutex_lock(&s->lock);
    while (n < SAVE_MAX && s->dirty != NULL) {
        struct save_slot *slot = s->dirty;
        int32_t *copy;

        s->dirty = slot->next_dirty;
        slot->dirty = false;
        if ((slot->over && slot->forget) || slot->tokens_n <= slot->saved_n)
            continue;
        copy = mem_take((size_t)slot->tokens_n * sizeof *copy);
        memcpy(copy, slot->tokens, (size_t)slot->tokens_n * sizeof *copy);
        slots[n] = slot;
        items[n++] = (struct ckpt_save_item){ slot->key, slot->identity, copy, slot->tokens_n, slot->saved_n };
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

static void dirty_put_back(struct saver *s, struct save_slot *slot)
{
    pthread_mutex_lock(&s->lock);
    if (!slot->dirty) {
        slot->dirty = true;
        slot->next_dirty = s->dirty;
        s->dirty = slot;
    }
    pthread_mutex_unlock(&s->lock);
}

static void dirty_save(struct saver *s)
{
    struct save_slot **slots = s->saving;
    struct ckpt_save_item *items = s->items;
    uint8_t *ok = s->ok;
    size_t n;
    status st;

    if (s->store == NULL || clock_mono_ns() < s->retry_at_ns)
        return;
    n = dirty_take(s, slots, items);
    if (n == 0)
        return;
    failpoint("saver.save.before");
    st = ckpt_save(s->store, s->token, items, n, ok);
    failpoint("saver.save.after");
    for (size_t i = 0; i < n; i++) {
        if (ok[i])
            slots[i]->saved_n = items[i].tokens_n;
        else
            slots[i]->saved_n = st == ST_AGAIN ? 0 : slots[i]->saved_n;
        if (!ok[i] && st != ST_FENCED)
            dirty_put_back(s, slots[i]);
        free((void *)(uintptr_t)items[i].tokens);
    }
    if (st == ST_OK || st == ST_AGAIN)
        s->retry_at_ns = 0;
    else if (st == ST_FENCED)
        pipeline_fail(s->p, EXIT_CODE_FENCED, "another worker has taken this job's progress over");
    else
        store_away(s, "save");
}

static void slot_free(struct save_slot *slot)
{
    free(slot->tokens);
    free(slot);
}

static void keys_forget(struct saver *s, const struct ckpt_key *keys, size_t n)
{
    status st;

    if (n == 0 || s->store == NULL)
        return;
    st = ckpt_forget(s->store, s->token, keys, n);
    /* A key that stays is harmless: its result is durable, its record is never polled again. */
    if (st == ST_FENCED)
        pipeline_fail(s->p, EXIT_CODE_FENCED, "another worker has taken this job's progress over");
    else if (st != ST_OK)
        store_away(s, "forget");
}

/* Slots whose request is gone: forgotten in the store once their result is durable. */
static void over_forget(struct saver *s)
{
    struct save_slot *over, *slot, *next, *freed = NULL;
    struct ckpt_key keys[64];
    size_t n = 0;

    pthread_mutex_lock(&s->lock);
    over = s->over;
    s->over = NULL;
    for (slot = over; slot != NULL; slot = next) {
        struct save_slot **list = slot->dirty ? &s->over : &freed;     /* dirty: still on that list, next time */

        next = slot->next;
        slot->next = *list;
        *list = slot;
    }
    pthread_mutex_unlock(&s->lock);
    for (slot = freed; slot != NULL; slot = next) {
        next = slot->next;
        if (slot->forget && slot->saved_n > 0)
            keys[n++] = slot->key;
        slot_free(slot);
        if (n == sizeof keys / sizeof keys[0] || next == NULL) {
            keys_forget(s, keys, n);
            n = 0;
        }
    }
}

static bool dirty_left(struct saver *s)
{
    bool left;

    pthread_mutex_lock(&s->lock);
    left = s->dirty != NULL;
    pthread_mutex_unlock(&s->lock);
    return left && s->store != NULL && s->retry_at_ns == 0;
}

static void *saver_main(void *saver)
{
    struct saver *s = saver;
    bool stop = false;

    while (!stop) {
        pthread_mutex_lock(&s->lock);
        stop = s->stop;
        pthread_mutex_unlock(&s->lock);
        if (!look_ups_step(s) && !stop)
            nanosleep(&(struct timespec){ .tv_nsec = TICK_MS * NS_PER_MS }, NULL);
        do {
            dirty_save(s);
        } while (stop && dirty_left(s));
        over_forget(s);
    }
    return NULL;
}

/* ---- life ---- */

status saver_open(struct pipeline *p, const char *url, struct saver **out, struct error *err)
{
    struct saver *s = mem_take_zero(1, sizeof *s);
    status st;

    *out = NULL;
    s->p = p;
    pthread_mutex_init(&s->lock, NULL);
    s->loads = bqueue_open(REQUESTS_MAX);
    st = ckpt_open(url, p->cfg, &s->store, err);
    if (st == ST_OK)
        st = ckpt_acquire(s->store, p->job_hash, 0, &s->token);
    if (st == ST_REJECT) {
        saver_close(s);
        return st;
    }
    if (st != ST_OK) {
        log_warn("checkpoint.away", "url=%s note=\"going on without: a crash costs the tokens of running lines\"", url);
        ckpt_close(s->store);
        s->store = NULL;
    }
    s->looks_up = s->store != NULL && ckpt_count(s->store, p->job_hash) != 0;
    *out = s;
    return ST_OK;
}

void saver_start(struct saver *s)
{
    pthread_create(&s->thread, NULL, saver_main, s);
}

void saver_stop(struct saver *s)
{
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
}

void saver_forget_job(struct saver *s)
{
    if (s->store != NULL && ckpt_forget_job(s->store, s->token, s->p->job_hash) != ST_OK)
        log_warn("checkpoint.forget_job", "note=\"stored tokens of a finished job stay; they are harmless\"");
}

void saver_close(struct saver *s)
{
    struct save_slot *next;

    if (s == NULL)
        return;
    for (; s->over != NULL; s->over = next) {
        next = s->over->next;
        slot_free(s->over);
    }
    ckpt_close(s->store);
    bqueue_free(s->loads);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
