/* worker/engine/engine.c - open, submit, step, drop. */
#include "worker/engine/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "worker/lines/lines.h"

#define CHECK_STEPS 64                     /* debug builds walk the cache every so many steps */
#define REQUEST_BYTES_GUESS 16384          /* of a waiting request, before any was seen */

/* ---- open ---- */

static status kv_pool_open(struct engine *e, struct error *err)
{
    struct kv_shape shape = model_kv_shape(e->m, 1);
    size_t page_bytes = kv_page_bytes(e->d, &shape);
    int64_t pages = e->cfg->kv_pages_max;
    status st;

    if (pages == 0)
        pages = (e->cfg->kv_memory_mb << 20) / (int64_t)page_bytes;
    if (pages < 1 || pages >= INT32_MAX)
        return error_set(err, ST_REJECT, "kv_memory_mb=%" PRId64 " makes %" PRId64 " KV pages of %zu bytes; 1 to %d are "
                         "possible", e->cfg->kv_memory_mb, pages, page_bytes, INT32_MAX - 1);
    e->pages_n = (int32_t)pages;
    shape = model_kv_shape(e->m, e->pages_n);
    TRY(kv_open(e->d, &shape, &e->kv, err));           /* first: it tells where there is no memory for so many */
    e->cache = cache_open(e->pages_n);
out:
    return st;
}

static void step_open(struct engine *e)
{
    size_t rows = (size_t)e->rows_max, seqs = (size_t)e->seqs_n;
    struct step *t = &e->step;

    t->token = device_buffer_take(e->d, rows * sizeof t->token[0]);
    t->pos = device_buffer_take(e->d, rows * sizeof t->pos[0]);
    t->parent = device_buffer_take(e->d, rows * sizeof t->parent[0]);
    t->seq = device_buffer_take(e->d, seqs * sizeof t->seq[0]);
    t->want = device_buffer_take(e->d, rows * sizeof t->want[0]);
    t->sampling = device_buffer_take(e->d, rows * sizeof t->sampling[0]);
    t->sampled = device_buffer_take(e->d, rows * sizeof t->sampled[0]);
}

static void slots_open(struct engine *e)
{
    size_t n = (size_t)e->seqs_n, room = ((size_t)e->context + PAGE_POSITIONS - 1) / PAGE_POSITIONS;

    e->seqs = mem_take_zero(n, sizeof e->seqs[0]);
    e->spare = mem_take(n * sizeof e->spare[0]);
    e->running = mem_take(n * sizeof e->running[0]);
    e->fronts = mem_take(n * sizeof e->fronts[0]);
    e->jobs = mem_take_zero(n, sizeof e->jobs[0]);
    e->jobs_spare = mem_take(n * sizeof e->jobs_spare[0]);
    e->page_tables = device_buffer_take(e->d, n * room * sizeof e->page_tables[0]);
    for (size_t i = n; i-- > 0;) {
        e->seqs[i].page_table = e->page_tables + i * room;
        e->spare[e->spare_n++] = &e->seqs[i];
        e->jobs_spare[e->jobs_spare_n++] = &e->jobs[i];
    }
}

static void ends_find(struct engine *e)
{
    for (int32_t pass = 0; pass < 2; pass++) {
        int32_t n = 0;

        for (int32_t token = 0; token < e->vocab; token++) {
            if (!tokenizer_ends(e->tokenizer, token))
                continue;
            if (pass == 1)
                e->ends[n] = token;
            n++;
        }
        e->ends_n = n;
        if (pass == 0)
            e->ends = mem_take((size_t)n * sizeof e->ends[0]);
    }
}

status engine_open(const struct config *cfg, struct device *d, struct model *m, const struct tokenizer *t,
                   const struct engine_ports *ports, struct engine **out, struct error *err)
{
    struct engine *e = mem_take_zero(1, sizeof *e);
    status st;

    *out = NULL;
    e->cfg = cfg;
    e->d = d;
    e->m = m;
    e->tokenizer = t;
    e->ports = *ports;
    e->vocab = model_shape(m)->vocab;
    e->context = model_shape(m)->context;
    e->rows_max = (int32_t)cfg->step_rows_max;
    e->seqs_n = (int32_t)(cfg->sequences_max < cfg->step_rows_max ? cfg->sequences_max : cfg->step_rows_max);
    cost_init(&e->cost);
    e->plan = plan_open(cfg);
    TRY(kv_pool_open(e, err));
    step_open(e);
    slots_open(e);
    ends_find(e);
    log_info("engine.open", "kv_pages=%d sequences=%d step_rows=%d context=%d", e->pages_n, e->seqs_n, e->rows_max,
             e->context);
    *out = e;
    e = NULL;
out:
    engine_close(e);
    return st;
}

static void step_close(struct engine *e)
{
    struct step *t = &e->step;

    device_buffer_give(e->d, t->sampled);
    device_buffer_give(e->d, t->sampling);
    device_buffer_give(e->d, t->want);
    device_buffer_give(e->d, t->seq);
    device_buffer_give(e->d, t->parent);
    device_buffer_give(e->d, t->pos);
    device_buffer_give(e->d, t->token);
}

void engine_close(struct engine *e)
{
    if (e == NULL)
        return;
    ASSERT(e->running_n == 0);
    for (int32_t i = 0; e->seqs != NULL && i < e->seqs_n; i++) {
        free(e->seqs[i].known);
        free(e->seqs[i].seen);
        free(e->seqs[i].bias);
    }
    step_close(e);
    device_buffer_give(e->d, e->page_tables);
    free(e->ends);
    free(e->jobs_spare);
    free(e->jobs);
    free(e->fronts);
    free(e->running);
    free(e->spare);
    free(e->seqs);
    kv_close(e->d, e->kv);
    cache_close(e->cache);
    plan_close(e->plan);
    lane_close(&e->lane);
    free(e);
}

/* ---- requests ---- */

static void counts_refresh(struct engine *e)
{
    e->counts.running_n = e->running_n;
    e->counts.lane_n = e->lane.waiting.n + e->lane.cohort.n;
    e->counts.waiting_n = plan_length(e->plan) + e->counts.lane_n;
}

void request_end(struct engine *e, struct request *r)
{
    int64_t before = clock_mono_ns();

    if (r->verdict == VERDICT_NONE)
        r->verdict = VERDICT_DONE;
    begin_forget(e, r);
    lane_leave(e, r);
    r->finished_ns = before;
    r->stage = NULL;
    e->ended_n++;
    e->ports.ended(e->ports.ctx, r);
    e->ended_port_ns += clock_mono_ns() - before;
}

static const char *text_of(struct request *r, int64_t n)
{
    char text[24];
    int length = snprintf(text, sizeof text, "%" PRId64, n);

    return arena_copy(&r->arena, text, (size_t)length);
}

/* What the intake promises is checked again: a request out of bounds would be computed from memory that is not its own. */
static bool is_sound(struct engine *e, struct request *r)
{
    int64_t pages = ((int64_t)r->prompt_n + PAGE_POSITIONS - 1) / PAGE_POSITIONS;

    if (r->prompt_n < 1) {
        lines_reject(r, LINES_EMPTY_PROMPT, "prompt", (const char *const[]){ "prompt", "it has no tokens", NULL });
        return false;
    }
    if (r->prompt_n >= e->context) {
        lines_reject(r, LINES_CONTEXT, "prompt",
                     (const char *const[]){ text_of(r, r->prompt_n), text_of(r, e->context), NULL });
        return false;
    }
    for (int32_t i = 0; i < r->prompt_n; i++) {
        if (r->prompt[i] < 0 || r->prompt[i] >= e->vocab) {
            lines_reject(r, LINES_VALUE, "prompt",
                         (const char *const[]){ "prompt", "token ids of the model", text_of(r, r->prompt[i]), NULL });
            return false;
        }
    }
    if (r->params.max_tokens > e->context - r->prompt_n)
        r->params.max_tokens = e->context - r->prompt_n;
    if (r->params.max_tokens > 0 && pages > e->pages_n) {
        lines_reject(r, LINES_KV_TOO_SMALL, NULL,
                     (const char *const[]){ text_of(r, pages), text_of(r, e->pages_n), NULL });
        return false;
    }
    return true;
}

void engine_submit(struct engine *e, struct request *r)
{
    ASSERT(r->verdict == VERDICT_NONE && r->choices != NULL && r->params.n > 0);
    if (is_sound(e, r)) {
        cache_want(e->cache, r->prompt, r->prompt_n);
        if (e->ports.begin != NULL && r->starts >= e->cfg->quarantine_starts)
            lane_add(e, r);
        else
            plan_add(e->plan, r);
    } else {
        request_end(e, r);
    }
    counts_refresh(e);
}

int64_t engine_room(const struct engine *e)
{
    int64_t length = plan_length(e->plan) + e->lane.waiting.n, bytes = plan_bytes(e->plan);
    int64_t room = e->cfg->plan_window_max - length, bytes_left = (e->cfg->plan_window_mb << 20) - bytes;
    int64_t each = length > 0 ? bytes / length + 1 : REQUEST_BYTES_GUESS, fit = bytes_left / each;

    room = room < fit ? room : fit;
    return room > 0 ? room : length == 0;      /* with nothing waiting, a request of any size is let in */
}

/* ---- sequences ---- */

void seq_stop(struct engine *e, struct seq *s, struct plan_wants wants)
{
    int32_t i = 0;

    cache_lease_end(e->cache, &s->lease, wants.soon_n, wants.later_n);
    while (e->running[i] != s)
        i++;
    for (e->running_n--; i < e->running_n; i++)
        e->running[i] = e->running[i + 1];
    e->spare[e->spare_n++] = s;
    s->job->running_n--;
    s->rows_n = 0;
}

static void job_give(struct engine *e, struct job *j)
{
    e->jobs_spare[e->jobs_spare_n++] = j;
}

/* Of the tokens computed, those with which something that is still to come begins. */
static struct plan_wants wants_of(const struct engine *e, const struct seq *s)
{
    struct plan_wants w = plan_wanted(e->plan, s->known, s->computed_n);
    int32_t sisters_n = s->job->next_choice < s->r->params.n ? s->r->prompt_n : 0;

    w.soon_n = w.soon_n > sisters_n ? w.soon_n : sisters_n;
    w.later_n = w.later_n > w.soon_n ? w.later_n : w.soon_n;
    return w;
}

/* It comes back for all of them. */
static struct plan_wants wants_all(const struct seq *s)
{
    return (struct plan_wants){ s->computed_n, s->computed_n };
}

static void request_put_back(struct engine *e, struct request *r)
{
    if (r->lane == LANE_CHOSEN)
        lane_put_back(e, r);
    else
        plan_put_back(e->plan, r);
}

void seq_put_back(struct engine *e, struct seq *s)
{
    struct job *j = s->job;

    if (s->c->tokens_n > s->saved_n)
        e->ports.progress(e->ports.ctx, s->r, s->choice_i);
    seq_stop(e, s, wants_all(s));
    e->counts.put_back_n++;
    if (s->choice_i < j->next_choice)
        j->next_choice = s->choice_i;
    if (j->running_n > 0)
        return;
    job_give(e, j);
    request_put_back(e, s->r);
}

void seq_end(struct engine *e, struct seq *s)
{
    struct job *j = s->job;
    struct request *r = s->r;
    bool over = j->running_n == 1;

    if (s->c->finish != FINISH_ERROR)
        lengths_observe(&e->lengths, r->params.max_tokens, s->c->tokens_n);
    seq_stop(e, s, wants_of(e, s));
    for (int32_t i = 0; i < r->params.n && over; i++)
        over = r->choices[i].detok.tokenizer != NULL && choice_is_done(r, i);
    if (over) {
        job_give(e, j);
        request_end(e, r);
    } else if (j->running_n == 0) {
        job_give(e, j);
        request_put_back(e, r);            /* its other choices found no slot or no pages yet */
    }
}

/* ---- step ---- */

static status step_run(struct engine *e)
{
    struct step *t = &e->step;
    int64_t before = clock_mono_ns();
    double seconds;
    status st;

    mem_quiet(true);
    st = model_forward(e->m, t, e->kv);
    mem_quiet(false);
    if (st != ST_OK)
        return st;
    seconds = (double)(clock_mono_ns() - before) / NS_PER_S;
    cost_observe(&e->cost, t->rows_n, t->outs_n, e->kv_read, seconds);
    e->rows_seen = t->rows_n > e->rows_seen ? t->rows_n : e->rows_seen;
    e->counts.steps_n++;
    e->counts.rows_n += t->rows_n;
    e->counts.device_s += seconds;
    return ST_OK;
}

/* Sequences end while their answers are applied, which changes `running`; none starts or is put back. */
static void step_apply(struct engine *e)
{
    int32_t out = 0;

    for (int32_t i = 0; i < e->running_n;) {
        struct seq *s = e->running[i];
        int32_t n = s->rows_n > 0 ? s->outs_n : 0;

        if (s->rows_n > 0)
            seq_apply(e, s, e->step.sampled + out);
        out += n;
        if (i < e->running_n && e->running[i] == s)
            i++;
    }
    ASSERT(out == e->step.outs_n);
}

status engine_step(struct engine *e)
{
    int64_t began = clock_mono_ns(), ended_n = e->ended_n;
    double device_s = e->counts.device_s;
    bool ran;
    status st = ST_OK;

    e->now_ns = began;
    e->ended_port_ns = 0;
    engine_admit(e);
    mem_quiet(true);
    ran = engine_compose(e);
    mem_quiet(false);
    if (e->failed)
        return ST_FATAL;
    if (ran) {
        poison_act(e);
        TRY(step_run(e));
        e->now_ns = clock_mono_ns();
        step_apply(e);
    }
    if (ran)
        e->counts.host_s += (double)(clock_mono_ns() - began - e->ended_port_ns) / NS_PER_S
                          - (e->counts.device_s - device_s);
#ifdef NIGHTSHIFT_DEBUG
    if (e->counts.steps_n % CHECK_STEPS == 0)
        cache_check(e->cache);
#endif
out:
    counts_refresh(e);
    return st == ST_OK && !ran && e->ended_n == ended_n ? ST_AGAIN : st;
}

struct drop {
    bool (*which)(void *ctx, const struct request *r);         /* NULL: all */
    void (*dropped)(void *ctx, struct request *r);
    void *ctx;
};

static bool is_dropped(const struct drop *d, const struct request *r)
{
    return d->which == NULL || d->which(d->ctx, r);
}

static void request_drop(struct engine *e, const struct drop *d, struct request *r)
{
    begin_forget(e, r);
    lane_leave(e, r);
    r->stage = NULL;
    d->dropped(d->ctx, r);
}

/* The youngest first, so that what stands before i is not moved. */
static void running_drop(struct engine *e, const struct drop *d)
{
    for (int32_t i = e->running_n - 1; i >= 0; i--) {
        struct seq *s = e->running[i];
        struct job *j = s->job;
        struct request *r = s->r;

        if (!is_dropped(d, r))
            continue;
        seq_stop(e, s, wants_all(s));
        if (j->running_n > 0)
            continue;
        job_give(e, j);
        request_drop(e, d, r);
    }
}

static void lane_drop(struct engine *e, const struct drop *d)
{
    struct request_list *lists[] = { &e->lane.cohort, &e->lane.waiting };

    for (int k = 0; k < 2; k++)
        for (int64_t i = lists[k]->n - 1; i >= 0; i--)
            if (is_dropped(d, lists[k]->of[i]))
                request_drop(e, d, lists[k]->of[i]);
}

static void some_drop(struct engine *e, const struct drop *d)
{
    struct request *r, *next;

    running_drop(e, d);
    lane_drop(e, d);
    for (r = plan_peek(e->plan); r != NULL; r = next) {
        next = plan_after(e->plan, r);
        if (!is_dropped(d, r))
            continue;
        plan_take(e->plan, r);
        request_drop(e, d, r);
    }
    counts_refresh(e);
}

void engine_drop_some(struct engine *e, bool (*which)(void *ctx, const struct request *r),
                      void (*dropped)(void *ctx, struct request *r), void *ctx)
{
    some_drop(e, &(struct drop){ which, dropped, ctx });
}

void engine_drop(struct engine *e, void (*dropped)(void *ctx, struct request *r), void *ctx)
{
    some_drop(e, &(struct drop){ NULL, dropped, ctx });
    cache_check(e->cache);
    ASSERT(cache_counts(e->cache).held == 0 && e->begun_n == 0 && lane_any(e) == NULL && e->lane.chosen_n == 0);
    ASSERT(e->jobs_spare_n == e->seqs_n && e->spare_n == e->seqs_n);
}

void engine_hold(struct engine *e)
{
    e->held = true;
}

const struct engine_counts *engine_counts(const struct engine *e)
{
    return &e->counts;
}

struct cache_counts engine_cache_counts(const struct engine *e)
{
    return cache_counts(e->cache);
}

const struct cost_model *engine_cost(const struct engine *e)
{
    return &e->cost;
}
