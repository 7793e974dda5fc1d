/* worker/cache/check.c - walks every page and every node; aborts where anything is out of order. */
#include "worker/cache/internal.h"

#include <stdlib.h>

struct walk { int32_t nodes_n, leaves_n; };

/* The treap `at` under `parent`: order between low and high, priorities, then the children of each node. Returns the
 * references of all of them: whoever holds a page holds its parent. */
static int64_t check_children(const struct cache *c, int32_t parent, int32_t at, const int32_t *low,
                              const int32_t *high, struct walk *w)
{
    const struct page *p = &c->pages[at];
    int64_t refs;

    if (at == NONE)
        return 0;
    ASSERT(at >= 0 && at < c->pages_n && p->in_tree && p->parent == parent);
    ASSERT(w->nodes_n++ < c->pages_n);         /* a circle would never end */
    ASSERT(low == NULL || tokens_compare(low, p->tokens) < 0);
    ASSERT(high == NULL || tokens_compare(p->tokens, high) < 0);
    ASSERT(p->left == NONE || page_priority(p->left) <= page_priority(at));
    ASSERT(p->right == NONE || page_priority(p->right) <= page_priority(at));
    if (p->refs == 0 && p->child == NONE) {
        ASSERT(p->leaf_i >= 0 && p->leaf_i < c->leaves_n && c->leaves[p->leaf_i] == at);
        w->leaves_n++;
    } else {
        ASSERT(p->leaf_i == NONE);
    }
    ASSERT(check_children(c, at, p->child, NULL, NULL, w) <= p->refs);
    refs = check_children(c, parent, p->left, low, p->tokens, w);
    return refs + p->refs + check_children(c, parent, p->right, p->tokens, high, w);
}

static void check_pages(const struct cache *c, int32_t nodes_n)
{
    int32_t cached_n = 0, held_n = 0, in_tree_n = 0;

    for (int32_t i = 0; i < c->pages_n; i++) {
        const struct page *p = &c->pages[i];

        ASSERT(p->refs >= 0);
        held_n += p->refs > 0;
        in_tree_n += p->in_tree;
        cached_n += p->in_tree && p->refs == 0;
    }
    ASSERT(held_n == c->held_n && cached_n == c->cached_n && in_tree_n == nodes_n);
    ASSERT(c->free_n + c->cached_n + c->held_n == c->pages_n);
}

static void check_free(const struct cache *c)
{
    bool *seen = mem_take_zero((size_t)c->pages_n, sizeof *seen);

    for (int32_t i = 0; i < c->free_n; i++) {
        int32_t page = c->free[i];

        ASSERT(page >= 0 && page < c->pages_n && !seen[page]);
        ASSERT(c->pages[page].refs == 0 && !c->pages[page].in_tree);
        seen[page] = true;
    }
    free(seen);
}

void cache_check(const struct cache *c)
{
    struct walk w = { 0, 0 };

    check_children(c, c->pages_n, c->pages[c->pages_n].child, NULL, NULL, &w);
    ASSERT(w.leaves_n == c->leaves_n);
    for (int32_t i = 1; i < c->leaves_n; i++)
        ASSERT(!page_goes_before(&c->pages[c->leaves[i]], &c->pages[c->leaves[(i - 1) / 2]]));
    check_pages(c, w.nodes_n);
    check_free(c);
}
