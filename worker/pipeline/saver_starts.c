/* Starts of records (delivery.md 8.8): counted in the store before their work begins, so that a record that kills its worker is
 * known by the worker that comes after it; taken back when the work is handed over, forgotten when its result is durable.
 *
 * A start that was not taken back tells that the process died, not why: it may have been killed, or its machine. A death by
 * the process's own fault (crash.h) is counted as a second start at all that was under way: so quarantine_starts = 2 means one
 * such death or two of the other kind, after which a record runs apart; a kill -9 alone costs nobody that. A record is set
 * aside for deaths by own fault while it ran alone; or for DEATHS_MAX starts of whatever kind, for there are faults that look
 * like a kill from outside (memory that runs out). */
#include "worker/pipeline/saver.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failpoint.h"
#include "base/log.h"

enum { BEGIN_MAX = 256, DEATHS_MAX = 12 };

/* A group has one record and one start. The engine's thread is the only one that looks for it before the outbox. */
static void **start_place(struct request *r)
{
    return r->group != NULL ? &r->group->requests[0]->start : &r->start;
}

static struct start *start_of(struct saver *s, struct request *r)
{
    void **at = start_place(r);
    struct start *st = *at;

    if (st == NULL) {
        st = mem_take_zero(1, sizeof *st);
        st->lease = r->record->lease;
        st->key = key_of(s->p, r, 0);
        st->key.choice = 0;
        *at = st;
    }
    return st;
}

/* With the lock held. */
static void start_ask(struct saver *s, struct start *st)
{
    bool first = s->asked == NULL;

    st->asked = true;
    atomic_store(&st->pending, true);
    st->next_asked = NULL;
    *s->asked_end = st;
    s->asked_end = &st->next_asked;
    if (first)
        saver_wake(s);
}

/* ---- the engine's side ---- */

void quarantine_reject(struct request *r)
{
    char died[16];

    snprintf(died, sizeof died, "%" PRId32, r->solo > 0 ? r->solo : r->starts);
    lines_reject(r, LINES_QUARANTINED, NULL, (const char *const[]){ died, NULL });
}

static void attempts_keep(struct request *r, const struct ckpt_attempts *a)
{
    r->starts = a->starts;
    r->solo = a->solo;
    r->last_run = a->last_run;
}

enum engine_begun saver_begin(struct saver *s, struct request *r, bool alone)
{
    enum engine_begun answer = BEGUN_NOT_YET;
    struct start *st;
    bool in_lane = r->lane == LANE_CHOSEN;

    if (atomic_load(&s->away))
        return BEGUN_GO;
    st = start_of(s, r);
    if (atomic_load(&st->pending))
        return BEGUN_NOT_YET;
    pthread_mutex_lock(&s->lock);
    if (st->answered && (!alone || st->answer_alone) && (!in_lane || st->answer_in_lane || st->answer == BEGUN_GO)) {
        answer = st->answer;
        if (answer == BEGUN_SUSPECT || answer == BEGUN_OVER)
            attempts_keep(r, &st->attempts);
    } else if (!st->asked) {
        st->alone = alone;
        st->in_lane = in_lane;
        start_ask(s, st);
    }
    pthread_mutex_unlock(&s->lock);
    if (answer == BEGUN_OVER)
        quarantine_reject(r);
    return answer;
}

void saver_ended(struct request *r)
{
    struct start *st = r->start;

    if (st != NULL && r->group == NULL)        /* of a group others may still run */
        atomic_store(&st->ended, true);
}

void saver_cleared(struct saver *s, struct request *r)
{
    struct start *st = *start_place(r);

    if (st == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    st->release = true;
    if (!st->asked)
        start_ask(s, st);
    pthread_mutex_unlock(&s->lock);
}

/* ---- the saver's side ---- */

static status call_hand_over(struct saver *s, uint64_t token, const struct ckpt_key *keys, size_t n)
{
    return ckpt_hand_over(s->store, token, keys, n, false);
}

static void live_add(struct saver *s, struct start *st)
{
    if (st->counted)
        return;
    st->counted = true;
    st->live_before = NULL;
    st->live_after = s->live;
    if (s->live != NULL)
        s->live->live_before = st;
    s->live = st;
}

static void live_remove(struct saver *s, struct start *st)
{
    if (s->alone == st)
        s->alone = NULL;
    if (!st->counted)
        return;
    st->counted = false;
    if (st->live_before != NULL)
        st->live_before->live_after = st->live_after;
    else
        s->live = st->live_after;
    if (st->live_after != NULL)
        st->live_after->live_before = st->live_before;
}

/* Not where the device failed: that is a death of what ran. */
static void hand_over(struct saver *s, struct start *st)
{
    if (st->counted && !atomic_load(&s->p->device_failed))
        due_add(&s->hand_overs, &st->key, st->lease);
    live_remove(s, st);
}

bool is_quarantined(const struct config *cfg, const struct ckpt_attempts *a)
{
    return a->solo >= cfg->quarantine_solo_max || a->starts >= DEATHS_MAX;
}

/* Another run's start, as it were: two of one life. */
static status call_crash(struct saver *s, uint64_t token, const struct ckpt_key *keys, size_t n)
{
    struct ckpt_attempts out[DUES_MAX];

    return ckpt_begin(s->store, token, keys, n, false, s->run ^ 2, out);
}

static status call_crash_alone(struct saver *s, uint64_t token, const struct ckpt_key *keys, size_t n)
{
    struct ckpt_attempts out[DUES_MAX];

    return ckpt_begin(s->store, token, keys, n, true, s->run, out);
}

void starts_crash(struct saver *s)
{
    struct dues d = { NULL, 0, 0 };

    if (s->crash_told)
        return;
    s->crash_told = true;
    for (const struct start *st = s->alone != NULL ? s->alone : s->live; st != NULL; st = st->live_after) {
        if (!atomic_load(&st->ended))
            due_add(&d, &st->key, st->lease);
        if (s->alone != NULL)
            break;
    }
    log_error("crash", "records=%zu alone=%d", d.n, s->alone != NULL);
    dues_call(s, &d, "crash", s->alone != NULL ? call_crash_alone : call_crash);
    free(d.of);
}

/* What stood there before this start. */
static enum engine_begun judge(const struct saver *s, const struct start *st, struct ckpt_attempts *a)
{
    const struct config *cfg = s->p->cfg;

    if (st->in_lane)
        return BEGUN_GO;
    a->starts--;
    a->last_run = 0;
    if (is_quarantined(cfg, a))
        return BEGUN_OVER;
    return a->starts >= cfg->quarantine_starts ? BEGUN_SUSPECT : BEGUN_GO;
}

static void start_answer(struct saver *s, struct start *st, enum engine_begun answer, const struct ckpt_attempts *a)
{
    if (answer == BEGUN_SUSPECT || answer == BEGUN_OVER)
        hand_over(s, st);
    pthread_mutex_lock(&s->lock);
    st->answered = true;
    st->answer = answer;
    st->answer_alone |= st->alone;
    st->answer_in_lane |= st->in_lane;
    st->attempts = *a;
    atomic_store(&st->pending, false);
    st->asked = false;             /* only from here on may another question be written down */
    if (st->release)
        start_ask(s, st);
    pthread_mutex_unlock(&s->lock);
}

/* Those of one holding, alone or not. Without an answer of the store they go on uncounted: it is a cache. */
static void starts_begin(struct saver *s, struct start *const *starts, size_t n)
{
    const struct start *first = starts[0];
    struct ckpt_key keys[BEGIN_MAX];
    struct ckpt_attempts out[BEGIN_MAX];
    uint64_t token;
    status st = ST_RETRY;

    for (size_t i = 0; i < n; i++)
        keys[i] = starts[i]->key;
    if (store_answers(s) && fence_token(s, first->key.source, first->lease, &token)) {
        failpoint("starts.begin.before");
        st = ckpt_begin(s->store, token, keys, n, false, s->run, out);
        failpoint("starts.begin.after");
        if (st == ST_FENCED)
            fence_refused(s, first->key.source, first->lease);
        else if (st != ST_OK)
            store_away(s, "begin");
        else
            store_is_back(s);
        for (size_t i = 0; i < n && st != ST_FENCED; i++) {
            starts[i]->stands = true;
            live_add(s, starts[i]);            /* perhaps only, but taking it back is safe either way */
            if (first->alone)
                s->alone = starts[i];
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (st != ST_OK)
            out[i] = (struct ckpt_attempts){ 0, 0, 0 };
        start_answer(s, starts[i], st == ST_OK ? judge(s, starts[i], &out[i]) : BEGUN_GO, &out[i]);
    }
}

static bool start_together(const struct start *a, const struct start *b)
{
    return a->key.source == b->key.source && a->lease == b->lease && a->alone == b->alone;
}

/* Cleared ones are taken back. Others are counted, with as many as go into one call. */
void starts_answer(struct saver *s, struct start *asked)
{
    struct start *group[BEGIN_MAX], *st, *next;
    size_t n = 0;

    for (st = asked; st != NULL; st = next) {
        bool released;

        pthread_mutex_lock(&s->lock);
        next = st->next_asked;
        released = st->release;
        st->release = false;
        st->asked = !released;
        if (released)
            atomic_store(&st->pending, false);
        pthread_mutex_unlock(&s->lock);
        if (released) {
            hand_over(s, st);
            continue;
        }
        if (n == BEGIN_MAX || (n > 0 && !start_together(group[0], st))) {
            starts_begin(s, group, n);
            n = 0;
        }
        group[n++] = st;
    }
    if (n > 0)
        starts_begin(s, group, n);
    dues_call(s, &s->hand_overs, "hand_over", call_hand_over);
}

struct start *saver_detach_start(struct request *r, struct start *starts)
{
    struct start *st = r->start;

    r->start = NULL;
    if (st == NULL)
        return starts;
    st->next = starts;
    return st;
}

/* Their lines are over: a durable one is forgotten, another is handed over. */
void starts_over(struct saver *s, struct start *over)
{
    struct start *st, *next;

    for (st = over; st != NULL; st = next) {
        next = st->next;
        if (st->forget && st->stands)
            due_add(&s->forgets, &st->key, st->lease);
        else if (!st->forget)
            hand_over(s, st);
        live_remove(s, st);
        free(st);
    }
    dues_call(s, &s->hand_overs, "hand_over", call_hand_over);
}
