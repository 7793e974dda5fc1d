/* worker/plan/plan.c - what comes before the walk, and the one list of all that wait. */
#include "worker/plan/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define NODES_BLOCK 256
#define WALKS_SEARCHED_MAX 16                      /* walks that plan_wanted looks at */
#define LONG_LOG2 2                                /* four times as long as most is long */
#define LONG_LEARN_N 256                           /* requests that "most" are made of */

struct nodes {
    struct nodes *next;
    struct waiting nodes[NODES_BLOCK];
};

struct plan {
    struct nodes *blocks;
    struct waiting *spare;                         /* linked by `after` */
    struct walk **walks;                           /* by ascending priority value, long ones first; none empty */
    int64_t walks_n, walks_room;
    struct waiting *put_back;                      /* list by `after` */
    struct waiting *oldest, *newest;               /* arrival order, linked by `newer` */
    struct waiting *turn;                          /* oldest whose turn has not come yet */
    struct waiting **deadlines;                    /* heap */
    int64_t deadlines_n, deadlines_room;
    struct waiting *special;                       /* overdue or due: before the walk, as the last peek found */
    double long_mean;                              /* of log2 of what lately arrived requests may answer */
    bool ordinary_turn, swapped;                   /* the first two walks take turns; swapped: as of the last peek */
    int64_t arrived_n, started_n;
    int64_t length, bytes;
    int64_t wait_max_ns;
    uint32_t random;
};

struct plan *plan_open(const struct config *cfg)
{
    struct plan *p = mem_take_zero(1, sizeof *p);

    p->wait_max_ns = cfg->plan_wait_max_s * NS_PER_S;
    p->random = 1;
    return p;
}

void plan_close(struct plan *p)
{
    if (p == NULL)
        return;
    ASSERT(p->length == 0 && p->walks_n == 0);
    while (p->blocks != NULL) {
        struct nodes *next = p->blocks->next;

        free(p->blocks);
        p->blocks = next;
    }
    free(p->deadlines);
    free(p->walks);
    free(p);
}

int64_t plan_length(const struct plan *p)
{
    return p->length;
}

int64_t plan_bytes(const struct plan *p)
{
    return p->bytes;
}

static struct waiting *node_take(struct plan *p, struct request *r)
{
    struct waiting *x;

    if (p->spare == NULL) {
        struct nodes *block = mem_take(sizeof *block);

        block->next = p->blocks;
        p->blocks = block;
        for (int i = 0; i < NODES_BLOCK; i++) {
            block->nodes[i].after = p->spare;
            p->spare = &block->nodes[i];
        }
    }
    x = p->spare;
    p->spare = x->after;
    p->random = p->random * 1664525u + 1013904223u;
    *x = (struct waiting){ .request = r, .deadline_i = -1, .priority = p->random };
    x->bytes = (int64_t)sizeof *x + request_bytes(r);
    r->stage = x;
    p->length++;
    p->bytes += x->bytes;
    return x;
}

static void node_give(struct plan *p, struct waiting *x)
{
    p->length--;
    p->bytes -= x->bytes;
    x->request->stage = NULL;
    x->after = p->spare;
    p->spare = x;
}

/* ---- deadlines: a heap, earliest on top, ties by arrival ---- */

static bool due_before(const struct waiting *a, const struct waiting *b)
{
    if (a->request->deadline_ms != b->request->deadline_ms)
        return a->request->deadline_ms < b->request->deadline_ms;
    return a->arrival_i < b->arrival_i;
}

static void deadline_place(struct plan *p, int64_t i, struct waiting *x)
{
    p->deadlines[i] = x;
    x->deadline_i = i;
}

static void deadline_up(struct plan *p, int64_t i, struct waiting *x)
{
    while (i > 0 && due_before(x, p->deadlines[(i - 1) / 2])) {
        deadline_place(p, i, p->deadlines[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    deadline_place(p, i, x);
}

static void deadline_down(struct plan *p, int64_t i, struct waiting *x)
{
    for (;;) {
        int64_t below = 2 * i + 1;

        if (below + 1 < p->deadlines_n && due_before(p->deadlines[below + 1], p->deadlines[below]))
            below++;
        if (below >= p->deadlines_n || !due_before(p->deadlines[below], x))
            break;
        deadline_place(p, i, p->deadlines[below]);
        i = below;
    }
    deadline_place(p, i, x);
}

static void deadline_add(struct plan *p, struct waiting *x)
{
    if (p->deadlines_n == p->deadlines_room) {
        p->deadlines_room = p->deadlines_room > 0 ? 2 * p->deadlines_room : 64;
        p->deadlines = mem_grow(p->deadlines, (size_t)p->deadlines_room * sizeof p->deadlines[0]);
    }
    deadline_up(p, p->deadlines_n++, x);
}

static void deadline_remove(struct plan *p, struct waiting *x)
{
    int64_t i = x->deadline_i;
    struct waiting *last = p->deadlines[--p->deadlines_n];

    if (last == x)
        return;
    if (i > 0 && due_before(last, p->deadlines[(i - 1) / 2]))
        deadline_up(p, i, last);
    else
        deadline_down(p, i, last);
}

/* ---- arrival order ---- */

static void arrival_add(struct plan *p, struct waiting *x)
{
    x->arrival_i = p->arrived_n++;
    x->older = p->newest;
    if (p->newest != NULL)
        p->newest->newer = x;
    else
        p->oldest = x;
    p->newest = x;
    if (p->turn == NULL)
        p->turn = x;
}

static void arrival_remove(struct plan *p, struct waiting *x)
{
    if (p->turn == x)
        p->turn = x->newer;
    if (x->older != NULL)
        x->older->newer = x->newer;
    else
        p->oldest = x->newer;
    if (x->newer != NULL)
        x->newer->older = x->older;
    else
        p->newest = x->older;
}

/* One more has started: the turn of one more would have come in arrival order. */
static void turn_advance(struct plan *p)
{
    p->started_n++;
    while (p->turn != NULL && p->turn->arrival_i < p->started_n) {
        p->turn->turn_ns = clock_mono_ns();
        p->turn = p->turn->newer;
    }
}

/* ---- walks by priority value ---- */

/* Index of the first walk that does not come before (value, is_long). */
static int64_t walk_index(const struct plan *p, int64_t value, bool is_long)
{
    int64_t low = 0, high = p->walks_n;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        const struct walk *w = p->walks[middle];

        if (w->value < value || (w->value == value && w->is_long && !is_long))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct walk *walk_take(struct plan *p, int64_t value, bool is_long)
{
    int64_t i = walk_index(p, value, is_long);

    if (i < p->walks_n && p->walks[i]->value == value && p->walks[i]->is_long == is_long)
        return p->walks[i];
    if (p->walks_n == p->walks_room) {
        p->walks_room = p->walks_room > 0 ? 2 * p->walks_room : 4;
        p->walks = mem_grow(p->walks, (size_t)p->walks_room * sizeof p->walks[0]);
    }
    memmove(p->walks + i + 1, p->walks + i, (size_t)(p->walks_n - i) * sizeof p->walks[0]);
    p->walks_n++;
    p->walks[i] = walk_open(value, is_long);
    return p->walks[i];
}

static void walk_give_if_empty(struct plan *p, struct walk *w)
{
    int64_t i = walk_index(p, w->value, w->is_long);

    if (w->n > 0)
        return;
    p->walks_n--;
    memmove(p->walks + i, p->walks + i + 1, (size_t)(p->walks_n - i) * sizeof p->walks[0]);
    walk_close(w);
}

static bool is_pair(const struct plan *p)
{
    return p->walks_n > 1 && p->walks[0]->value == p->walks[1]->value;
}

/* The order in which walks are served: by index, but the first two may have changed places. Its own inverse. */
static int64_t served(const struct plan *p, int64_t i)
{
    return i < 2 && p->swapped && is_pair(p) ? 1 - i : i;
}

/* Whether r may answer several times longer than most that arrived lately. */
static bool is_long(struct plan *p, const struct request *r)
{
    double length = log2(1.0 + r->params.max_tokens);
    bool is = p->arrived_n > 0 && length >= p->long_mean + LONG_LOG2;
    int64_t n = p->arrived_n < LONG_LEARN_N ? p->arrived_n + 1 : LONG_LEARN_N;

    p->long_mean += (length - p->long_mean) / (double)n;
    return is;
}

/* ---- the order ---- */

void plan_add(struct plan *p, struct request *r)
{
    struct waiting *x = node_take(p, r);
    bool longer = is_long(p, r);

    arrival_add(p, x);
    if (r->deadline_ms != 0)
        deadline_add(p, x);
    x->walk = walk_take(p, r->priority, longer);
    walk_insert(x->walk, x);
}

void plan_put_back(struct plan *p, struct request *r)
{
    struct waiting *x = node_take(p, r);

    x->after = p->put_back;
    if (p->put_back != NULL)
        p->put_back->before = x;
    p->put_back = x;
}

static struct waiting *special_find(const struct plan *p)
{
    struct waiting *due = p->deadlines_n > 0 ? p->deadlines[0] : NULL, *next;

    if (p->oldest != NULL && p->oldest->turn_ns != 0 && clock_mono_ns() - p->oldest->turn_ns > p->wait_max_ns)
        return p->oldest;
    if (due == NULL || due->request->deadline_ms > (clock_wall_ns() + p->wait_max_ns) / NS_PER_MS)
        return NULL;
    next = p->walks[served(p, 0)]->cursor;             /* a whole job with one deadline is still walked in order */
    return next->request->deadline_ms == due->request->deadline_ms ? next : due;
}

/* First of the walks from the i-th served on, without the special one. */
static struct waiting *walks_start(const struct plan *p, int64_t i)
{
    for (; i < p->walks_n; i++) {
        struct walk *w = p->walks[served(p, i)];

        if (w->cursor != p->special)
            return w->cursor;
        if (w->n > 1)
            return w->cursor->after;
    }
    return NULL;
}

static struct request *request_of(const struct waiting *x)
{
    return x != NULL ? x->request : NULL;
}

struct request *plan_peek(struct plan *p)
{
    p->swapped = p->ordinary_turn;
    p->special = special_find(p);
    if (p->put_back != NULL)
        return p->put_back->request;
    return request_of(p->special != NULL ? p->special : walks_start(p, 0));
}

struct request *plan_after(struct plan *p, const struct request *r)
{
    const struct waiting *x = r->stage;
    struct waiting *next;

    if (x->walk == NULL) {
        if (x->after != NULL)
            return x->after->request;
        return request_of(p->special != NULL ? p->special : walks_start(p, 0));
    }
    if (x == p->special)
        return request_of(walks_start(p, 0));
    next = x->after;
    if (next == p->special && next != x->walk->cursor)
        next = next->after;
    if (next == x->walk->cursor)
        return request_of(walks_start(p, served(p, walk_index(p, x->walk->value, x->walk->is_long)) + 1));
    return next->request;
}

void plan_take(struct plan *p, struct request *r)
{
    struct waiting *x = r->stage;

    if (p->special == x)
        p->special = NULL;
    if (x->walk == NULL) {
        if (x->before != NULL)
            x->before->after = x->after;
        else
            p->put_back = x->after;
        if (x->after != NULL)
            x->after->before = x->before;
    } else {
        arrival_remove(p, x);
        turn_advance(p);
        if (x->deadline_i >= 0)
            deadline_remove(p, x);
        p->ordinary_turn = x->walk->is_long;
        walk_remove(x->walk, x);
        walk_give_if_empty(p, x->walk);
    }
    node_give(p, x);
}

struct request *plan_next(struct plan *p)
{
    struct request *r = plan_peek(p);

    if (r != NULL)
        plan_take(p, r);
    return r;
}

bool plan_has_deadlines(const struct plan *p)
{
    return p->deadlines_n > 0;
}

struct request *plan_expired(const struct plan *p, int64_t now_ms)
{
    return p->deadlines_n > 0 && p->deadlines[0]->request->deadline_ms < now_ms ? p->deadlines[0]->request : NULL;
}

static int32_t common_with(const struct request *r, const int32_t *tokens, int32_t tokens_n)
{
    return walk_common(r->prompt, tokens, 0, r->prompt_n < tokens_n ? r->prompt_n : tokens_n);
}

struct plan_wants plan_wanted(const struct plan *p, const int32_t *tokens, int32_t tokens_n)
{
    struct plan_wants w = { 0, 0 };

    for (const struct waiting *x = p->put_back; x != NULL; x = x->after) {
        int32_t n = common_with(x->request, tokens, tokens_n);

        w.soon_n = n > w.soon_n ? n : w.soon_n;
    }
    for (int64_t i = 0; i < 1 + is_pair(p) && i < p->walks_n; i++) {
        int32_t n = common_with(p->walks[i]->cursor->request, tokens, tokens_n);

        w.soon_n = n > w.soon_n ? n : w.soon_n;
    }
    w.later_n = w.soon_n;
    for (int64_t i = 0; i < p->walks_n && i < WALKS_SEARCHED_MAX; i++) {
        int32_t n = walk_wanted(p->walks[i], tokens, tokens_n);

        w.later_n = n > w.later_n ? n : w.later_n;
    }
    return w;
}

struct plan_savings plan_savings(const struct plan *p)
{
    struct plan_savings s = { p->length, 0, 0, 0 };

    for (int64_t i = 0; i < p->walks_n; i++) {
        const struct waiting *first = walk_first(p->walks[i]), *x = first, *last = NULL;

        do {
            const struct request *r = x->request, *l = request_of(last);
            int32_t least = l == NULL ? 0 : l->prompt_n < r->prompt_n ? l->prompt_n : r->prompt_n;

            s.prompt_tokens += r->prompt_n;
            s.unique_tokens += r->prompt_n - (l == NULL ? 0 : walk_common(l->prompt, r->prompt, 0, least));
            s.output_tokens_max += (int64_t)r->params.n * r->params.max_tokens;
            last = x;
            x = x->after;
        } while (x != first);
    }
    return s;
}
