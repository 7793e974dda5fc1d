/* worker/plan/walk.c - requests sorted by their prompts, and the place of the walk among them.
 *
 * A treap (Seidel & Aragon 1996) with a ring through its nodes. A search remembers how many tokens it shares with the
 * nearest smaller and the nearest larger prompt so far: everything between the two shares at least the lesser of these
 * with the prompt that is sought, so a comparison starts there and a long common prefix is read about once a search. */
#include "worker/plan/internal.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK 16                                   /* tokens that memcmp looks at together */

int32_t walk_common(const int32_t *a, const int32_t *b, int32_t from, int32_t n)
{
    int32_t i = from;

    while (i + BLOCK <= n && memcmp(a + i, b + i, BLOCK * sizeof a[0]) == 0)
        i += BLOCK;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

struct walk *walk_open(int64_t value, bool is_long)
{
    struct walk *w = mem_take_zero(1, sizeof *w);

    w->value = value;
    w->is_long = is_long;
    return w;
}

void walk_close(struct walk *w)
{
    free(w->stand);
    free(w);
}

struct search {
    const int32_t *tokens;
    int32_t n;
    struct waiting *below, *above;                 /* nearest so far */
    int32_t below_common, above_common;
};

/* Steps from `at` towards the tokens; equal prompts count as below: the one that came first stands first. */
static struct waiting **search_step(struct search *s, struct waiting *at)
{
    const int32_t *prompt = at->request->prompt;
    int32_t n = at->request->prompt_n, least = n < s->n ? n : s->n;
    int32_t from = s->below_common < s->above_common ? s->below_common : s->above_common;
    int32_t same = walk_common(prompt, s->tokens, from, least);

    if (same < least ? prompt[same] < s->tokens[same] : n <= s->n) {
        s->below = at;
        s->below_common = same;
        return &at->right;
    }
    s->above = at;
    s->above_common = same;
    return &at->left;
}

int32_t walk_wanted(const struct walk *w, const int32_t *tokens, int32_t tokens_n)
{
    struct search s = { tokens, tokens_n, NULL, NULL, 0, 0 };

    for (struct waiting *at = w->root; at != NULL;)
        at = *search_step(&s, at);
    return s.below_common > s.above_common ? s.below_common : s.above_common;
}

struct waiting *walk_first(const struct walk *w)
{
    struct waiting *at = w->root;

    while (at != NULL && at->left != NULL)
        at = at->left;
    return at;
}

static struct waiting **link_of(struct walk *w, const struct waiting *x)
{
    if (x->parent == NULL)
        return &w->root;
    return x->parent->left == x ? &x->parent->left : &x->parent->right;
}

/* x takes the place of its parent, which becomes its child. */
static void rotate_up(struct walk *w, struct waiting *x)
{
    struct waiting *p = x->parent, **link = link_of(w, p), *between;

    if (p->left == x) {
        between = x->right;
        x->right = p;
        p->left = between;
    } else {
        between = x->left;
        x->left = p;
        p->right = between;
    }
    if (between != NULL)
        between->parent = p;
    x->parent = p->parent;
    p->parent = x;
    *link = x;
}

/* Equal prompts lie ahead: x came later. */
static bool is_ahead(const struct walk *w, const struct waiting *x)
{
    const int32_t *prompt = x->request->prompt;
    int32_t n = x->request->prompt_n, least = n < w->stand_n ? n : w->stand_n;
    int32_t same = walk_common(prompt, w->stand, 0, least);

    return same < least ? prompt[same] > w->stand[same] : n >= w->stand_n;
}

static void ring_insert(struct walk *w, struct waiting *x, struct waiting *below, struct waiting *above)
{
    bool ahead;

    if (below == NULL && above == NULL) {
        x->before = x->after = x;
        w->cursor = x;
        w->wrapped = false;
        return;
    }
    x->after = above != NULL ? above : below->after;
    x->before = below != NULL ? below : above->before;
    x->before->after = x->after->before = x;
    if (above != w->cursor && !w->wrapped)
        return;
    ahead = is_ahead(w, x);
    if (w->wrapped ? ahead || above == w->cursor : ahead) {
        w->cursor = x;
        w->wrapped = w->wrapped && !ahead;
    }
}

static void stand_move(struct walk *w, const struct request *r)
{
    if (r->prompt_n > w->stand_room) {
        w->stand_room = r->prompt_n + r->prompt_n / 2;
        w->stand = mem_grow(w->stand, (size_t)w->stand_room * sizeof w->stand[0]);
    }
    memcpy(w->stand, r->prompt, (size_t)r->prompt_n * sizeof w->stand[0]);
    w->stand_n = r->prompt_n;
}

void walk_insert(struct walk *w, struct waiting *x)
{
    struct search s = { x->request->prompt, x->request->prompt_n, NULL, NULL, 0, 0 };
    struct waiting **link = &w->root;

    x->parent = x->left = x->right = NULL;
    while (*link != NULL) {
        x->parent = *link;
        link = search_step(&s, *link);
    }
    *link = x;
    ring_insert(w, x, s.below, s.above);
    while (x->parent != NULL && x->parent->priority < x->priority)
        rotate_up(w, x);
    w->n++;
}

void walk_remove(struct walk *w, struct waiting *x)
{
    bool last = x->right == NULL;

    for (struct waiting *at = x; last && at->parent != NULL; at = at->parent)
        last = at->parent->right == at;
    if (x == w->cursor) {
        stand_move(w, x->request);
        w->cursor = x->after;
        w->wrapped = last;
    }
    x->before->after = x->after;
    x->after->before = x->before;
    while (x->left != NULL || x->right != NULL) {
        if (x->right == NULL || (x->left != NULL && x->left->priority > x->right->priority))
            rotate_up(w, x->left);
        else
            rotate_up(w, x->right);
    }
    *link_of(w, x) = NULL;
    if (--w->n == 0)
        w->cursor = NULL;          /* the walk is closed now, see plan.c */
}
