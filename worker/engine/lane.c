/* worker/engine/lane.c - starts are counted before they happen, and whoever's start ended in a death before runs apart.
 *
 * Begin: ports.begin counts a start in a store that outlives the process; its answer may take a while. Requests that are
 * about to start are asked about ahead, as many as there are free slots and a few more, so that admission seldom waits.
 *
 * The lane: requests that were running when an earlier process died wait apart. While any does, no other request is
 * admitted; once nothing else runs (what still does after LANE_PATIENCE_NS is put back, it keeps its tokens and mostly its
 * pages) a cohort of them is served: of those with the fewest deaths one alone, or half of them where they are many. A cohort
 * that dies has one death more and comes last in the next process: what is killed from outside hits another one each time,
 * and the halving goes on where it stopped.
 * A request has had its trial when every choice of it is done or has made LANE_TOKENS tokens more than it came back with:
 * a death cost fewer, so the place where it happened lies behind it. Then it goes on as any other. */
#include "worker/engine/internal.h"

#include <stdlib.h>

#include "base/clock.h"
#include "worker/lines/lines.h"

#define BEGIN_AHEAD 8                          /* more starts are counted ahead than there are free slots */
#define LANE_TOKENS 96                         /* a crash makes at most 64 be decoded again */
#define LANE_PATIENCE_NS (2 * NS_PER_S)

/* ---- begin ---- */

static void begin_over(struct engine *e, struct request *r)
{
    if (r->begin_asked)
        e->begun_n--;
    r->begin_asked = false;
}

void begin_forget(struct engine *e, struct request *r)
{
    begin_over(e, r);
}

bool begin_has_room(const struct engine *e)
{
    return e->begun_n < e->spare_n + BEGIN_AHEAD;
}

enum engine_begun begin_ask(struct engine *e, struct request *r)
{
    enum engine_begun how;

    if (e->ports.begin == NULL || r->begun)
        return BEGUN_GO;
    if (!r->begin_asked) {
        r->begin_asked = true;
        e->begun_n++;
    }
    how = e->ports.begin(e->ports.ctx, r, r->lane == LANE_CHOSEN && e->lane.alone);
    r->begun = how == BEGUN_GO;
    return how;
}

/* ---- the lane ---- */

static void list_add(struct request_list *l, struct request *r)
{
    if (l->n == l->room) {
        l->room = l->room > 0 ? 2 * l->room : 64;
        l->of = mem_grow(l->of, (size_t)l->room * sizeof l->of[0]);
    }
    l->of[l->n++] = r;
}

static bool list_remove(struct request_list *l, const struct request *r)
{
    int64_t i = 0;

    while (i < l->n && l->of[i] != r)
        i++;
    if (i == l->n)
        return false;
    for (l->n--; i < l->n; i++)
        l->of[i] = l->of[i + 1];
    return true;
}

void lane_add(struct engine *e, struct request *r)
{
    begin_over(e, r);
    r->lane = LANE_WAITS;
    if (e->lane.waiting.n == 0)
        e->lane.since_ns = e->now_ns;
    list_add(&e->lane.waiting, r);
}

/* One of a cohort found no pages, or its trial was interrupted. */
void lane_put_back(struct engine *e, struct request *r)
{
    list_add(&e->lane.cohort, r);
}

void lane_take(struct engine *e, struct request *r)
{
    bool found = list_remove(&e->lane.cohort, r);

    ASSERT(found);
}

void lane_leave(struct engine *e, struct request *r)
{
    if (r->lane == LANE_WAITS)
        list_remove(&e->lane.waiting, r);
    if (r->lane == LANE_CHOSEN) {
        list_remove(&e->lane.cohort, r);
        e->lane.chosen_n--;
    }
    r->lane = LANE_NONE;
}

bool lane_is_open(const struct engine *e)
{
    return e->lane.waiting.n > 0 || e->lane.chosen_n > 0;
}

struct request *lane_any(const struct engine *e)
{
    const struct lane *l = &e->lane;

    return l->cohort.n > 0 ? l->cohort.of[l->cohort.n - 1] : l->waiting.n > 0 ? l->waiting.of[l->waiting.n - 1] : NULL;
}

/* The next cohort: of those with the fewest deaths one, or where there are many, half. */
static void cohort_choose(struct engine *e)
{
    struct lane *l = &e->lane;
    int32_t least = INT32_MAX;
    int64_t equals_n = 0, take_n;

    for (int64_t i = 0; i < l->waiting.n; i++)
        least = l->waiting.of[i]->starts < least ? l->waiting.of[i]->starts : least;
    for (int64_t i = 0; i < l->waiting.n; i++)
        equals_n += l->waiting.of[i]->starts == least;
    take_n = equals_n <= e->cfg->quarantine_alone_max ? 1 : (equals_n + 1) / 2;
    l->alone = take_n == 1;
    for (int64_t i = 0; i < l->waiting.n && l->chosen_n < take_n;) {
        struct request *r = l->waiting.of[i];

        if (r->starts != least) {
            i++;
            continue;
        }
        list_remove(&l->waiting, r);
        r->lane = LANE_CHOSEN;
        r->begun = false;
        list_add(&l->cohort, r);
        l->chosen_n++;
    }
}

void lane_step(struct engine *e)
{
    struct lane *l = &e->lane;

    if (l->waiting.n == 0) {
        l->serving = l->chosen_n > 0;
        return;
    }
    if (l->chosen_n > 0)
        return;
    if (e->running_n > 0 && !l->serving && e->now_ns - l->since_ns < LANE_PATIENCE_NS)
        return;
    while (e->running_n > 0)
        seq_put_back(e, e->running[e->running_n - 1]);
    l->serving = true;
    cohort_choose(e);
}

void lane_check(struct engine *e, struct request *r)
{
    if (r->lane != LANE_CHOSEN)
        return;
    for (int32_t i = 0; i < r->params.n; i++) {
        const struct choice *c = &r->choices[i];

        if (c->finish == FINISH_NONE && c->tokens_n - c->resumed_n < LANE_TOKENS)
            return;
    }
    lane_leave(e, r);
    r->starts = r->solo = 0;
    if (e->ports.cleared != NULL)
        e->ports.cleared(e->ports.ctx, r);
}

void lane_close(struct lane *l)
{
    free(l->waiting.of);
    free(l->cohort.of);
}
