/* worker/engine/admit.c - which request starts when, and with which pages. */
#include "worker/engine/internal.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "worker/lines/lines.h"

#define LOOK_MAX 16            /* requests held back that are looked beyond in one step: where more wait for one prefix, they
                                * fill the batch as soon as it is there, and what is begun beyond them meanwhile would be
                                * far from where the walk stands: its pages might be gone when the walk gets there */
#define EXPECT_UNKNOWN 1024    /* output tokens of a request while none has ended */
#define EXPECT_BEYOND 32       /* more than expected already: at least so many are still to come */
#define LEARN_N 64             /* ended choices that the expectation remembers */
#define HELD_MIN PAGE_POSITIONS            /* positions worth waiting for */

enum start { STARTED, HELD, NO_PAGES, ENDED, NOT_BEGUN };

static int length_class(int32_t max)
{
    int bits = 0;

    for (; max > 0; max >>= 1)
        bits++;
    return bits;
}

void lengths_observe(struct lengths *all, int32_t max, int32_t output_n)
{
    struct length *l = &all->of[length_class(max)];
    double weight;

    l->n += l->n < LEARN_N;
    weight = 1.0 / (double)l->n;
    l->deviation += weight * (l->n == 1 ? 0 : fabs(output_n - l->mean) - l->deviation);
    l->mean += weight * (output_n - l->mean);
}

/* Output tokens that a choice with `have` of them is expected to end with. */
static double lengths_expect(const struct lengths *all, int32_t have, int32_t max)
{
    const struct length *l = &all->of[length_class(max)];
    double expected = l->n > 0 ? l->mean + l->deviation : EXPECT_UNKNOWN;

    return fmin(fmax(expected, have * 1.25 + EXPECT_BEYOND), max);
}

/* Pages that a choice is expected to end with. */
static int32_t pages_expect(const struct engine *e, const struct request *r, const struct choice *c)
{
    double more = lengths_expect(&e->lengths, c->tokens_n, r->params.max_tokens) - c->tokens_n;
    int32_t n = r->prompt_n + c->tokens_n + (int32_t)(fmax(more, 0) * (double)e->cfg->admit_output_percent / 100);

    n = n < e->context ? n : e->context;
    return (n + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
}

/* Pages that a running sequence is expected to take yet. */
static int64_t pages_more(const struct engine *e, const struct seq *s)
{
    int32_t more = pages_expect(e, s->r, s->c) - s->lease.pages_n;

    return more > 0 ? more : 0;
}

/* Whether s can start without throwing out what runs: the pages that the others still expect are theirs. */
static bool pages_suffice(const struct engine *e, const struct seq *s)
{
    int32_t idle, cached = cache_peek(e->cache, s->known, s->computed_n, &idle);

    return e->running_n == 0 || e->pages_left - idle >= pages_expect(e, s->r, s->c) - cached / PAGE_POSITIONS;
}

static void front_add(struct engine *e, const struct seq *s)
{
    if (s->end_n - s->computed_n > 1)
        e->fronts[e->fronts_n++] = (struct front){ s->computed_n, s->known[s->computed_n], s };
}

/* Positions of `tokens` that a running sequence will have computed soon and has not yet. */
static int32_t soon_cached(const struct front *f, const struct request *r, const int32_t *tokens, int32_t n)
{
    const struct seq *running = f->s;
    int32_t common = 0;

    /* Most are told apart here: it has passed the common part, or the next tokens differ. */
    if (f->computed_n >= n || f->token != tokens[f->computed_n])
        return 0;
    n = n < running->end_n ? n : running->end_n;
    while (common + PAGE_POSITIONS <= n
           && memcmp(running->known + common, tokens + common, PAGE_POSITIONS * sizeof tokens[0]) == 0)
        common += PAGE_POSITIONS;
    while (common < n && running->known[common] == tokens[common])
        common++;
    /* Only full pages are published; a sister's last page can be copied as it is. */
    if (running->r != r && (common / PAGE_POSITIONS + 1) * PAGE_POSITIONS > running->end_n)
        common -= common % PAGE_POSITIONS;
    return common > f->computed_n ? common : 0;
}

static bool is_held_back(const struct engine *e, const struct request *r, int32_t choice_i)
{
    int32_t n = choice_need(r, choice_i).from, soon = 0;

    n = n < r->prompt_n ? n : r->prompt_n;
    for (int32_t i = 0; i < e->fronts_n; i++) {
        int32_t got = soon_cached(&e->fronts[i], r, r->prompt, n);

        soon = got > soon ? got : soon;
    }
    return soon >= HELD_MIN && soon - cache_peek(e->cache, r->prompt, n, NULL) >= HELD_MIN;
}

/* ---- start ---- */

static bool is_older(const struct seq *a, const struct seq *b)
{
    const struct request *x = a->r, *y = b->r;

    if (x->started_ns != y->started_ns)
        return x->started_ns < y->started_ns;
    if (x->source != y->source)
        return x->source < y->source;
    if (x->offset != y->offset)
        return x->offset < y->offset;
    if (x->prompt_i != y->prompt_i)
        return x->prompt_i < y->prompt_i;
    return a->choice_i < b->choice_i;
}

static void running_insert(struct engine *e, struct seq *s)
{
    int32_t i = e->running_n++;

    for (; i > 0 && is_older(s, e->running[i - 1]); i--)
        e->running[i] = e->running[i - 1];
    e->running[i] = s;
}

/* A running choice of the same request that has computed more of the prompt than *n. */
static const struct seq *sister_find(const struct engine *e, const struct seq *s, int32_t n)
{
    for (int32_t i = 0; i < e->running_n; i++) {
        const struct seq *other = e->running[i];

        if (other->r == s->r && (other->computed_n < s->r->prompt_n ? other->computed_n : s->r->prompt_n) > n)
            return other;
    }
    return NULL;
}

/* The longest prefix that is there: whole pages shared, the page it ends in copied, from the tree or from a sister. */
static status prefix_take(struct engine *e, struct seq *s)
{
    int32_t limit = s->computed_n, sister_n;
    const struct seq *sister;

    cache_lease_begin(e->cache, &s->lease, s->page_table, (e->context + PAGE_POSITIONS - 1) / PAGE_POSITIONS, s->known,
                      limit, &s->computed_n, &s->copy);
    sister = sister_find(e, s, s->computed_n);
    if (sister != NULL) {
        sister_n = sister->computed_n < s->r->prompt_n ? sister->computed_n : s->r->prompt_n;
        sister_n = sister_n < limit ? sister_n : limit;
        if (sister_n > s->computed_n && sister_n / PAGE_POSITIONS == s->lease.shared_n
            && cache_lease_grow(e->cache, &s->lease, sister_n) == ST_OK) {
            s->copy.src = sister->lease.pages[s->lease.shared_n];
            s->copy.dst = s->lease.pages[s->lease.shared_n];
            s->computed_n = sister_n;
        }
    }
    return s->copy.dst >= 0 ? kv_pages_copy(e->d, e->kv, &s->copy.src, &s->copy.dst, 1) : ST_OK;
}

static void request_first_start(struct engine *e, struct seq *s)
{
    struct request *r = s->r;

    begin_forget(e, r);
    if (r->started_ns != 0)
        return;
    r->started_ns = e->now_ns;
    r->cached_n = s->computed_n < r->prompt_n ? s->computed_n : r->prompt_n;
    e->counts.prompt_tokens += r->prompt_n;
    e->counts.cached_tokens += r->cached_n;
}

static void seq_start(struct engine *e, struct job *j, struct seq *s)
{
    int32_t available = cache_available(e->cache);

    e->spare_n--;
    s->job = j;
    if (prefix_take(e, s) != ST_OK)
        e->failed = true;
    e->pages_left -= available - cache_available(e->cache) + pages_more(e, s);
    e->rows_known += s->end_n - s->computed_n;
    front_add(e, s);
    request_first_start(e, s);
    running_insert(e, s);
    j->running_n++;
    j->next_choice = s->choice_i + 1;
}

/* Next choice of r, from i on, that has anything left to compute and does not run; n: none. */
static int32_t choice_next(struct engine *e, struct request *r, int32_t i)
{
    for (; i < r->params.n; i++) {
        bool runs = false;

        choice_prepare(e, r, i);
        for (int32_t k = 0; k < e->running_n && !runs; k++)
            runs = e->running[k]->r == r && e->running[k]->choice_i == i;
        if (!runs && !choice_is_done(r, i))
            break;
    }
    return i;
}

/* Where the next step is full already, a later start finds more of its prefix in the cache and holds no pages meanwhile. */
static bool can_start(const struct engine *e)
{
    return e->spare_n > 0 && e->rows_known < e->rows_max;
}

/* Starts the next choices of a job that runs. */
static enum start job_go_on(struct engine *e, struct job *j)
{
    while (can_start(e)) {
        struct seq *s = e->spare[e->spare_n - 1];

        j->next_choice = choice_next(e, j->r, j->next_choice);
        if (j->next_choice == j->r->params.n)
            return STARTED;
        if (is_held_back(e, j->r, j->next_choice))
            return HELD;
        seq_fill(e, s, j->r, j->next_choice);
        if (!pages_suffice(e, s))
            return NO_PAGES;
        seq_start(e, j, s);
    }
    return STARTED;
}

static struct job *job_take(struct engine *e, struct request *r)
{
    struct job *j = e->jobs_spare[--e->jobs_spare_n];

    *j = (struct job){ r, 0, 0 };
    r->stage = j;
    return j;
}

static bool is_expired(const struct request *r)
{
    return r->deadline_ms != 0 && r->started_ns == 0 && clock_wall_ns() / NS_PER_MS > r->deadline_ms;
}

static void request_expire(struct engine *e, struct request *r)
{
    e->counts.expired_n++;
    lines_reject(r, LINES_EXPIRED, NULL, (const char *const[]){ NULL });
    request_end(e, r);
}

/* Also where no slot is free: a late answer is worth nothing. */
static void waiting_expire(struct engine *e)
{
    struct request *r;

    while (plan_has_deadlines(e->plan) && (r = plan_expired(e->plan, clock_wall_ns() / NS_PER_MS)) != NULL) {
        plan_take(e->plan, r);
        request_expire(e, r);
    }
}

static void waiting_take(struct engine *e, struct request *r)
{
    if (r->lane == LANE_CHOSEN)
        lane_take(e, r);
    else
        plan_take(e->plan, r);
}

static enum start end_before_start(struct engine *e, struct request *r)
{
    waiting_take(e, r);
    request_end(e, r);
    return ENDED;
}

/* Whether a start of it is counted by now; what must not start leaves the line. */
static enum start begin_try(struct engine *e, struct request *r)
{
    switch (begin_ask(e, r)) {
    case BEGUN_GO:
        return STARTED;
    case BEGUN_NOT_YET:
        return NOT_BEGUN;
    case BEGUN_SUSPECT:
        waiting_take(e, r);
        lane_leave(e, r);
        lane_add(e, r);
        return ENDED;
    case BEGUN_OVER:
        break;
    }
    e->counts.quarantined_n++;
    return end_before_start(e, r);
}

/* A waiting request: starts with its first open choice, or is over before it began. */
static enum start request_try(struct engine *e, struct request *r)
{
    struct seq *s = e->spare[e->spare_n - 1];
    enum start begun;
    struct job *j;
    int32_t i;

    if (is_expired(r)) {
        waiting_take(e, r);
        request_expire(e, r);
        return ENDED;
    }
    begun = begin_try(e, r);
    if (begun != STARTED)
        return begun;
    i = choice_next(e, r, 0);
    if (i == r->params.n)
        return end_before_start(e, r);
    if (is_held_back(e, r, i))
        return HELD;
    seq_fill(e, s, r, i);
    if (!pages_suffice(e, s))
        return NO_PAGES;
    waiting_take(e, r);
    j = job_take(e, r);
    seq_start(e, j, s);
    return job_go_on(e, j) == NO_PAGES ? NO_PAGES : STARTED;
}

/* The cohort, in its order; nobody else. */
static void cohort_admit(struct engine *e)
{
    struct request_list *l = &e->lane.cohort;

    for (int64_t i = 0; i < l->n && can_start(e);) {
        const struct request *r = l->of[i];
        enum start what = request_try(e, l->of[i]);

        if (what == NO_PAGES)
            return;
        i += i < l->n && l->of[i] == r;        /* it still stands there */
    }
}

static void plan_admit(struct engine *e)
{
    struct request *r, *next;
    int32_t held_n = 0;
    bool first = true;

    for (r = plan_peek(e->plan); r != NULL && can_start(e) && held_n < LOOK_MAX; r = next) {
        enum start what;

        if (!first && !r->begin_asked && !begin_has_room(e))
            return;
        next = plan_after(e->plan, r);
        what = request_try(e, r);
        if (what == NO_PAGES || lane_is_open(e))
            return;
        held_n += what == HELD;
        first = first && (what == STARTED || what == ENDED);
        if (first)
            next = plan_peek(e->plan);
    }
    for (; r != NULL && e->ports.begin != NULL && begin_has_room(e); r = plan_after(e->plan, r))
        if (!r->begin_asked)
            (void)begin_ask(e, r);             /* its answer is taken when its turn comes */
}

void engine_admit(struct engine *e)
{
    waiting_expire(e);
    if (e->held)
        return;
    lane_step(e);
    e->fronts_n = 0;
    e->rows_known = 0;
    e->pages_left = cache_available(e->cache);
    for (int32_t i = 0; i < e->running_n; i++) {
        front_add(e, e->running[i]);
        e->pages_left -= pages_more(e, e->running[i]);
        e->rows_known += e->running[i]->end_n - e->running[i]->computed_n;
    }
    for (int32_t i = 0; i < e->running_n; i++)         /* starting inserts behind i: a job's later choices are younger */
        if (e->running[i]->job->next_choice < e->running[i]->r->params.n
            && job_go_on(e, e->running[i]->job) == NO_PAGES)
            return;
    if (e->lane.chosen_n > 0)
        cohort_admit(e);
    else if (e->lane.waiting.n == 0)
        plan_admit(e);
}
