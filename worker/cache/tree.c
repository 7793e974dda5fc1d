/* worker/cache/tree.c - children of a node as a treap, and the heap of leaves that may be evicted. */
#include "worker/cache/internal.h"

#include <string.h>

int32_t tokens_common(const int32_t *a, const int32_t *b, int32_t n)
{
    int32_t i = 0;

    while (i < n && a[i] == b[i])
        i++;
    return i;
}

int tokens_compare(const int32_t *a, const int32_t *b)
{
    int32_t i = tokens_common(a, b, PAGE_POSITIONS);

    return i == PAGE_POSITIONS ? 0 : a[i] < b[i] ? -1 : 1;
}

int32_t tree_find(const struct cache *c, int32_t parent, const int32_t *tokens, int32_t n, int32_t *common)
{
    int32_t at = c->pages[parent].child, best = NONE;

    *common = 0;
    while (at != NONE && *common < n) {
        const struct page *p = &c->pages[at];
        int32_t same = tokens_common(p->tokens, tokens, n);

        if (same > *common) {
            *common = same;
            best = at;
        }
        if (same < n)
            at = tokens[same] < p->tokens[same] ? p->left : p->right;
    }
    return best;
}

/* Parts the treap `at` into what is below and what is above the tokens of `page`. */
static void split(struct cache *c, int32_t at, int32_t page, int32_t *below, int32_t *above)
{
    if (at == NONE) {
        *below = *above = NONE;
        return;
    }
    if (tokens_compare(c->pages[at].tokens, c->pages[page].tokens) < 0) {
        split(c, c->pages[at].right, page, &c->pages[at].right, above);
        *below = at;
    } else {
        split(c, c->pages[at].left, page, below, &c->pages[at].left);
        *above = at;
    }
}

static int32_t join(struct cache *c, int32_t below, int32_t above)
{
    if (below == NONE)
        return above;
    if (above == NONE)
        return below;
    if (page_priority(below) > page_priority(above)) {
        c->pages[below].right = join(c, c->pages[below].right, above);
        return below;
    }
    c->pages[above].left = join(c, below, c->pages[above].left);
    return above;
}

/* Where the link to `page`, or to the place it belongs, is. */
static int32_t *link_to(struct cache *c, int32_t parent, int32_t page, bool insert)
{
    int32_t *link = &c->pages[parent].child;

    while (*link != NONE && *link != page) {
        struct page *p = &c->pages[*link];

        if (insert && page_priority(page) > page_priority(*link))
            break;
        link = tokens_compare(c->pages[page].tokens, p->tokens) < 0 ? &p->left : &p->right;
    }
    return link;
}

void tree_insert(struct cache *c, int32_t parent, int32_t page)
{
    struct page *p = &c->pages[page];
    int32_t *link;

    ASSERT(!p->in_tree);
    p->parent = parent;
    p->child = NONE;
    p->in_tree = true;
    link = link_to(c, parent, page, true);
    split(c, *link, page, &p->left, &p->right);
    *link = page;
}

void tree_erase(struct cache *c, int32_t page)
{
    struct page *p = &c->pages[page];
    int32_t *link = link_to(c, p->parent, page, false);

    ASSERT(*link == page && p->child == NONE);
    *link = join(c, p->left, p->right);
    p->in_tree = false;
    p->parent = p->left = p->right = NONE;
}

static void leaf_place(struct cache *c, int32_t i, int32_t page)
{
    c->leaves[i] = page;
    c->pages[page].leaf_i = i;
}

static void sift_up(struct cache *c, int32_t i, int32_t page)
{
    while (i > 0 && page_goes_before(&c->pages[page], &c->pages[c->leaves[(i - 1) / 2]])) {
        leaf_place(c, i, c->leaves[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    leaf_place(c, i, page);
}

static void sift_down(struct cache *c, int32_t i, int32_t page)
{
    for (;;) {
        int32_t below = 2 * i + 1;

        if (below + 1 < c->leaves_n
            && page_goes_before(&c->pages[c->leaves[below + 1]], &c->pages[c->leaves[below]]))
            below++;
        if (below >= c->leaves_n || !page_goes_before(&c->pages[c->leaves[below]], &c->pages[page]))
            break;
        leaf_place(c, i, c->leaves[below]);
        i = below;
    }
    leaf_place(c, i, page);
}

void leaves_push(struct cache *c, int32_t page)
{
    ASSERT(c->pages[page].leaf_i == NONE);
    sift_up(c, c->leaves_n++, page);
}

void leaves_remove(struct cache *c, int32_t page)
{
    int32_t i = c->pages[page].leaf_i, last;

    if (i == NONE)
        return;
    c->pages[page].leaf_i = NONE;
    last = c->leaves[--c->leaves_n];
    if (last == page)
        return;
    if (i > 0 && page_goes_before(&c->pages[last], &c->pages[c->leaves[(i - 1) / 2]]))
        sift_up(c, i, last);
    else
        sift_down(c, i, last);
}
