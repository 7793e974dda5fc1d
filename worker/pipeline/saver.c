/* The thread that owns the checkpoint store: see saver.h. Its ways in are look-ups of requests that may have stored tokens, a
 * set of choices with new tokens, starts to be counted, sources that come and go, and what is over. */
#define _POSIX_C_SOURCE 200809L
#include "worker/pipeline/saver.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "worker/pipeline/crash.h"
#include "worker/pipeline/wait.h"

/* ---- the store: there or away ---- */

bool store_answers(struct saver *s)
{
    return s->store != NULL && (s->retry_at_ns == 0 || clock_mono_ns() >= s->retry_at_ns);
}

void store_away(struct saver *s, const char *what)
{
    if (s->retry_at_ns == 0)
        log_warn("checkpoint.away", "what=%s retry_ms=%d note=\"work goes on; a crash now costs more\"", what, RETRY_MS);
    s->retry_at_ns = clock_mono_ns() + RETRY_MS * NS_PER_MS;
    atomic_store(&s->away, true);
}

void store_is_back(struct saver *s)
{
    if (s->retry_at_ns != 0)
        log_info("checkpoint.back", "note=\"progress is saved again\"");
    s->retry_at_ns = 0;
    atomic_store(&s->away, false);
}

static status store_open(struct saver *s, struct error *err)
{
    status st;

    if (s->url[0] == '\0')
        return error_set(err, ST_RETRY, "no checkpoint_url is set");
    st = ckpt_open(s->url, s->p->cfg, &s->store, err);

    if (st == ST_OK)
        atomic_store(&s->counts_of, s->store);
    return st;
}

/* A topic's worker lives long: a store that was away at its start is asked again. A call to one that was away tells whether it
 * is back; without any, an attempt nobody needs does. */
static void store_try(struct saver *s)
{
    struct error err;
    uint64_t unused;

    if (s->retry_at_ns == 0 || clock_mono_ns() < s->retry_at_ns || (s->store == NULL && !s->reopens))
        return;
    if (s->store == NULL && store_open(s, &err) != ST_OK) {
        s->retry_at_ns = clock_mono_ns() + RETRY_MS * NS_PER_MS;
        return;
    }
    for (size_t i = 0; i < s->fences_n; i++)
        if (s->fences[i].ours && !s->fences[i].held && !fence_token(s, (int32_t)i, s->fences[i].lease, &unused))
            return;
    if (ckpt_count(s->store, s->p->job_hash) >= 0)
        store_is_back(s);
    else
        store_away(s, "count");
}

/* ---- look-ups ---- */

bool saver_looks_up(const struct saver *s)
{
    return s->looks_up;
}

/* With the lock held. */
void saver_wake(struct saver *s)
{
    s->woken = true;
    pthread_cond_signal(&s->wake);
}

status saver_look_up(struct saver *s, struct request *r)
{
    status st = bqueue_push(s->loads, r);

    if (st == ST_OK && bqueue_length(s->loads) == 1) {
        pthread_mutex_lock(&s->lock);
        saver_wake(s);
        pthread_mutex_unlock(&s->lock);
    }
    return st;
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

static void tokens_take(struct saver *s, struct request *r, int32_t i, const struct ckpt_progress *found)
{
    struct choice *c = &r->choices[i];
    int32_t n = found->tokens_n < r->params.max_tokens ? found->tokens_n : r->params.max_tokens;
    struct save_slot *slot;

    if (n <= 0)
        return;
    c->tokens_room = n + 64;
    c->tokens = mem_take((size_t)c->tokens_room * sizeof *c->tokens);
    memcpy(c->tokens, found->tokens, (size_t)n * sizeof *c->tokens);
    c->tokens_n = c->resumed_n = n;
    /* Whoever wrote it may have written more than we can read: the first save replaces all of it. */
    slot = slot_of(s, r, i);
    slot->stored = true;
    atomic_store(&slot->safe_n, n);
    pthread_mutex_lock(&s->p->lock);
    s->p->counts.resumed_n++;
    pthread_mutex_unlock(&s->p->lock);
}

static void tokens_load(struct saver *s, struct request *const *requests, size_t n)
{
    struct ckpt_load_item *items;
    size_t items_n = 0, at = 0;
    status st;

    for (size_t i = 0; i < n; i++)
        items_n += (size_t)requests[i]->params.n;
    arena_reset(&s->scratch);
    items = arena_take_zero(&s->scratch, items_n, sizeof items[0]);
    for (size_t i = 0; i < n; i++)
        for (int32_t k = 0; k < requests[i]->params.n; k++)
            items[at++] = (struct ckpt_load_item){ .key = key_of(s->p, requests[i], k), .arena = &s->scratch,
                                                   .identity = identity_of(s->p, requests[i], k) };
    st = ckpt_load_all(s->store, items, items_n);
    if (st != ST_OK && st != ST_AGAIN) {
        store_away(s, "load");
        return;
    }
    store_is_back(s);
    at = 0;
    for (size_t i = 0; i < n; i++)
        for (int32_t k = 0; k < requests[i]->params.n; k++)
            tokens_take(s, requests[i], k, &items[at++].progress);
}

/* What earlier starts of the records came to. */
static void attempts_load(struct saver *s, struct request *const *requests, size_t n)
{
    struct ckpt_attempts found[POP_MAX];
    struct ckpt_key keys[POP_MAX];

    for (size_t i = 0; i < n; i++)
        keys[i] = key_of(s->p, requests[i], 0);
    if (!store_answers(s) || ckpt_attempts(s->store, keys, n, found) != ST_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        requests[i]->starts = found[i].starts;
        requests[i]->solo = found[i].solo;
        requests[i]->last_run = found[i].last_run;
        if (is_quarantined(s->p->cfg, &found[i]))
            quarantine_reject(requests[i]);
    }
}

/* Before the first look-up of a holding its token is acquired: from then on nobody else writes. */
static void requests_look_up(struct saver *s, struct request *const *requests, size_t n)
{
    struct request *ours[POP_MAX];
    size_t ours_n = 0;
    uint64_t unused;

    for (size_t i = 0; i < n; i++)
        if (store_answers(s) && fence_token(s, requests[i]->source, requests[i]->record->lease, &unused))
            ours[ours_n++] = requests[i];
    if (ours_n == 0)
        return;
    tokens_load(s, ours, ours_n);
    attempts_load(s, ours, ours_n);
}

static void changes_take(struct saver *s);

/* Never waits: a full queue in front of the engine must not keep frames from being written. */
static bool look_ups_step(struct saver *s)
{
    void *items[POP_MAX];
    bool moved = false;

    if (s->backlog_i == s->backlog_n) {
        s->backlog_n = bqueue_pop(s->loads, items, POP_MAX, 0);
        s->backlog_i = 0;
        for (size_t i = 0; i < s->backlog_n; i++)
            s->backlog[i] = items[i];
        changes_take(s);
        if (s->backlog_n > 0)
            requests_look_up(s, s->backlog, s->backlog_n);
    }
    while (s->backlog_i < s->backlog_n) {
        struct request *r = s->backlog[s->backlog_i];
        status st = r->verdict != VERDICT_NONE || !record_is_ours(s->p, r->record) ? ST_FENCED
                                                                                   : bqueue_push_now(s->p->admits, r);

        if (st == ST_AGAIN)
            return moved;
        if (st == ST_FENCED)                    /* quarantined, or we are stopping, or it is another's now */
            outcome_push(s->p, r);
        s->backlog_i++;
        moved = true;
    }
    if (!atomic_load(&s->looked_up) && bqueue_ended(s->loads)) {
        bqueue_close(s->p->admits);
        atomic_store(&s->looked_up, true);
    }
    return moved;
}

/* ---- sources come and go ---- */

static void change_add(struct saver *s, int32_t source, uint32_t lease, bool gained)
{
    pthread_mutex_lock(&s->lock);
    if (s->changes_n == s->changes_room) {
        s->changes_room = s->changes_room > 0 ? 2 * s->changes_room : 16;
        s->changes = mem_grow(s->changes, s->changes_room * sizeof s->changes[0]);
    }
    s->changes[s->changes_n++] = (struct change){ source, lease, gained };
    saver_wake(s);
    pthread_mutex_unlock(&s->lock);
}

void saver_source_gained(struct saver *s, int32_t source, uint32_t lease)
{
    change_add(s, source, lease, true);
}

void saver_source_lost(struct saver *s, int32_t source, uint32_t lease)
{
    change_add(s, source, lease, false);
}

/* Before anything is done for a source: it was told of before its first record came. */
static void changes_take(struct saver *s)
{
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->changes_n; i++)
        fences_change(s, &s->changes[i]);
    s->changes_n = 0;
    pthread_mutex_unlock(&s->lock);
}

/* ---- passes ---- */

void saver_end(struct saver *s, struct save_slot *slots, struct start *starts, bool durable)
{
    struct save_slot *slot, *next;
    struct start *st, *next_start;

    pthread_mutex_lock(&s->lock);
    for (slot = slots; slot != NULL; slot = next) {
        next = slot->next;
        slot->over = true;
        slot->forget = durable;
        slot->next = s->over;
        s->over = slot;
    }
    for (st = starts; st != NULL; st = next_start) {
        next_start = st->next;
        st->forget = durable;
        st->next = s->starts_over;
        s->starts_over = st;
    }
    pthread_mutex_unlock(&s->lock);
}

static status call_forget(struct saver *s, uint64_t token, const struct ckpt_key *keys, size_t n)
{
    return ckpt_forget(s->store, token, keys, n);
}

static bool flush_wanted(struct saver *s)
{
    bool wanted;

    pthread_mutex_lock(&s->lock);
    wanted = s->stop || s->flushes_n > 0;
    pthread_mutex_unlock(&s->lock);
    return wanted && clock_mono_ns() < atomic_load(&s->p->save_until_ns);
}

/* What is over is taken before what was asked: a start that is over was asked earlier, so its answer comes first. */
static void pass(struct saver *s)
{
    struct save_slot *over;
    struct start *asked, *over_starts;

    if (atomic_load(&s->p->device_failed))
        starts_crash(s);
    if (crash_happened()) {
        starts_crash(s);
        crash_noted();
    }
    changes_take(s);
    store_try(s);
    pthread_mutex_lock(&s->lock);
    over = s->over;
    over_starts = s->starts_over;
    asked = s->asked;
    s->over = NULL;
    s->starts_over = NULL;
    s->asked = NULL;
    s->asked_end = &s->asked;
    pthread_mutex_unlock(&s->lock);
    starts_answer(s, asked);
    do {
        dirty_save(s);
    } while (dirty_left(s) && flush_wanted(s));
    slots_over(s, over);
    starts_over(s, over_starts);
    dues_call(s, &s->forgets, "forget", call_forget);
    pthread_mutex_lock(&s->lock);
    s->pass_n++;
    pthread_cond_broadcast(&s->passed);
    pthread_mutex_unlock(&s->lock);
}

static void *saver_main(void *saver)
{
    struct saver *s = saver;
    bool stop = false;

    while (!stop) {
        bool moved = look_ups_step(s);

        pthread_mutex_lock(&s->lock);
        if (!moved && !s->woken && !s->stop)
            cond_wait_until(&s->wake, &s->lock, clock_mono_ns() + TICK_MS * NS_PER_MS);
        s->woken = false;
        stop = s->stop;
        pthread_mutex_unlock(&s->lock);
        pass(s);
    }
    return NULL;
}

void saver_flush(struct saver *s, int64_t deadline_ns)
{
    uint64_t target;

    pthread_mutex_lock(&s->lock);
    target = s->pass_n + 2;            /* one that begins from now on */
    s->flushes_n++;
    do {
        saver_wake(s);
    } while (s->pass_n < target && cond_wait_until(&s->passed, &s->lock, deadline_ns));
    s->flushes_n--;
    pthread_mutex_unlock(&s->lock);
}

/* ---- life ---- */

/* A file job's only source is ours from the beginning, and tells whether there is anything to look up. */
static status file_begin(struct saver *s, struct error *err)
{
    uint64_t token;
    status st = store_open(s, err);

    if (st != ST_OK)
        return st;
    fences_change(s, &(struct change){ 0, 0, true });
    s->looks_up = !fence_token(s, 0, 0, &token) || ckpt_count(s->store, s->p->job_hash) != 0;
    return ST_OK;
}

status saver_open(struct pipeline *p, const char *url, struct saver **out, struct error *err)
{
    struct saver *s = mem_take_zero(1, sizeof *s);
    struct { int64_t wall_ns, pid; } life = { clock_wall_ns(), getpid() };
    status st;

    *out = NULL;
    s->p = p;
    s->url = mem_copy_text(url);
    s->asked_end = &s->asked;
    s->run = hash64(&life, sizeof life, 0) | 1;
    pthread_mutex_init(&s->lock, NULL);
    cond_init_mono(&s->wake);
    cond_init_mono(&s->passed);
    arena_init(&s->scratch, 4096);
    s->loads = bqueue_open(REQUESTS_MAX);
    st = p->is_topic ? store_open(s, err) : file_begin(s, err);
    if (st == ST_REJECT) {
        saver_close(s);
        return st;
    }
    if (st != ST_OK) {
        log_warn("checkpoint.away", "note=\"going on without: a crash costs the tokens of running lines, and a line that kills the "
                 "worker is not known again\"");
        s->retry_at_ns = clock_mono_ns() + RETRY_MS * NS_PER_MS;
        atomic_store(&s->away, true);
        if (!p->is_topic) {
            atomic_store(&s->counts_of, NULL);
            ckpt_close(s->store);
            s->store = NULL;
        }
    }
    s->reopens = p->is_topic && url[0] != '\0';
    s->looks_up |= p->is_topic;
    *out = s;
    return ST_OK;
}

void saver_start(struct saver *s)
{
    crash_watch();
    pthread_create(&s->thread, NULL, saver_main, s);
}

void saver_stop(struct saver *s)
{
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    saver_wake(s);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
}

void saver_forget_job(struct saver *s)
{
    if (s->store != NULL && ckpt_forget_job(s->store, fences_highest(s), s->p->job_hash) != ST_OK)
        log_warn("checkpoint.forget_job", "note=\"stored tokens of a finished job stay; they are harmless\"");
}

void saver_read_counts(struct saver *s, struct ckpt_counts *out)
{
    struct ckpt *c = atomic_load(&s->counts_of);

    memset(out, 0, sizeof *out);
    if (c != NULL)
        ckpt_read_counts(c, out);
}

void saver_close(struct saver *s)
{
    struct save_slot *next;
    struct start *next_start;

    if (s == NULL)
        return;
    for (; s->over != NULL; s->over = next) {
        next = s->over->next;
        slot_free(s->over);
    }
    for (; s->starts_over != NULL; s->starts_over = next_start) {
        next_start = s->starts_over->next;
        free(s->starts_over);
    }
    ckpt_close(s->store);
    bqueue_free(s->loads);
    arena_fini(&s->scratch);
    pthread_cond_destroy(&s->passed);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s->forgets.of);
    free(s->hand_overs.of);
    free(s->fences);
    free(s->changes);
    free(s->url);
    free(s);
}
