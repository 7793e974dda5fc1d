/* worker/cache/pages.c - who holds which page, and the leases built on it. */
#include "worker/cache/internal.h"

#include <stdlib.h>
#include <string.h>

struct cache *cache_open(int32_t pages_n)
{
    struct cache *c = mem_take_zero(1, sizeof *c);

    ASSERT(pages_n > 0 && pages_n < INT32_MAX);
    c->pages_n = pages_n;
    c->pages = mem_take_zero((size_t)pages_n + 1, sizeof c->pages[0]);
    c->free = mem_take((size_t)pages_n * sizeof c->free[0]);
    c->leaves = mem_take((size_t)pages_n * sizeof c->leaves[0]);
    for (int32_t i = 0; i <= pages_n; i++) {
        struct page *p = &c->pages[i];

        p->parent = p->child = p->left = p->right = p->leaf_i = NONE;
    }
    for (int32_t i = pages_n; i-- > 0;)        /* lowest page on top: a short job touches little memory */
        c->free[c->free_n++] = i;
    return c;
}

void cache_close(struct cache *c)
{
    if (c == NULL)
        return;
    free(c->leaves);
    free(c->free);
    free(c->pages);
    free(c);
}

struct cache_counts cache_counts(const struct cache *c)
{
    return (struct cache_counts){ c->pages_n, c->free_n, c->cached_n, c->held_n, c->hits_tokens, c->evicted_pages };
}

int32_t cache_available(const struct cache *c)
{
    return c->free_n + c->cached_n;
}

static void page_hold(struct cache *c, int32_t page)
{
    struct page *p = &c->pages[page];

    if (p->refs++ == 0) {
        ASSERT(p->in_tree);
        c->cached_n--;
        c->held_n++;
        leaves_remove(c, page);
    }
}

static void page_drop(struct cache *c, int32_t page)
{
    struct page *p = &c->pages[page];

    ASSERT(p->refs > 0);
    if (--p->refs > 0)
        return;
    c->held_n--;
    if (!p->in_tree) {
        c->free[c->free_n++] = page;
        return;
    }
    c->cached_n++;
    if (p->child == NONE)
        leaves_push(c, page);
}

/* Out of the tree; its parent may have become a leaf that can go next. */
static void evict(struct cache *c, int32_t page)
{
    int32_t parent = c->pages[page].parent;

    leaves_remove(c, page);
    tree_erase(c, page);
    c->cached_n--;
    c->evicted_pages++;
    if (parent != c->pages_n && c->pages[parent].refs == 0 && c->pages[parent].child == NONE)
        leaves_push(c, parent);
}

/* A page of one's own, with one reference; NONE: all are held. */
static int32_t page_take(struct cache *c)
{
    int32_t page;

    if (c->free_n > 0) {
        page = c->free[--c->free_n];
    } else if (c->leaves_n > 0) {
        page = c->leaves[0];
        evict(c, page);
    } else {
        ASSERT(c->cached_n == 0);
        return NONE;
    }
    c->pages[page].refs = 1;
    c->held_n++;
    return page;
}

int32_t cache_peek(const struct cache *c, const int32_t *tokens, int32_t tokens_n, int32_t *idle_pages)
{
    int32_t at = c->pages_n, n = 0, idle = 0;

    while (n < tokens_n) {
        int32_t left = tokens_n - n, common;

        at = tree_find(c, at, tokens + n, left < PAGE_POSITIONS ? left : PAGE_POSITIONS, &common);
        n += common;
        if (common < PAGE_POSITIONS)
            break;
        idle += c->pages[at].refs == 0;
    }
    if (idle_pages != NULL)
        *idle_pages = idle;
    return n;
}

static void lease_add(struct cache_lease *l, int32_t page)
{
    ASSERT(l->pages_n < l->pages_room);
    l->pages[l->pages_n++] = page;
}

/* The first `common` positions of src go to a page of the lease's own. src is held meanwhile: it must not be the page
 * that makes room for its copy. */
static int32_t partial_take(struct cache *c, struct cache_lease *l, int32_t src, int32_t common,
                            struct cache_copy *copy)
{
    int32_t page;

    page_hold(c, src);
    page = page_take(c);
    if (page != NONE) {
        c->pages[src].used = c->tick;
        c->pages[src].shared = true;
    }
    page_drop(c, src);
    if (page == NONE)
        return 0;
    lease_add(l, page);
    copy->src = src;
    copy->dst = page;
    return common;
}

void cache_lease_begin(struct cache *c, struct cache_lease *l, int32_t *pages, int32_t pages_room,
                       const int32_t *tokens, int32_t tokens_n, int32_t *cached_n, struct cache_copy *copy)
{
    int32_t at = c->pages_n, n = 0;

    *copy = (struct cache_copy){ NONE, NONE };
    *l = (struct cache_lease){ pages, 0, pages_room, 0 };
    c->tick++;
    while (n < tokens_n) {
        int32_t left = tokens_n - n, common, child;

        child = tree_find(c, at, tokens + n, left < PAGE_POSITIONS ? left : PAGE_POSITIONS, &common);
        if (child == NONE)
            break;
        if (common < PAGE_POSITIONS) {
            n += partial_take(c, l, child, common, copy);
            break;
        }
        c->pages[child].used = c->tick;
        c->pages[child].shared = true;
        page_hold(c, child);
        lease_add(l, child);
        l->shared_n++;
        n += PAGE_POSITIONS;
        at = child;
    }
    c->hits_tokens += n;
    *cached_n = n;
}

status cache_lease_grow(struct cache *c, struct cache_lease *l, int32_t positions_n)
{
    while ((int64_t)l->pages_n * PAGE_POSITIONS < positions_n) {
        int32_t page = page_take(c);

        if (page == NONE)
            return ST_AGAIN;
        lease_add(l, page);
    }
    return ST_OK;
}

void cache_lease_publish(struct cache *c, struct cache_lease *l, const int32_t *tokens, int32_t computed_n)
{
    c->tick++;
    ASSERT(computed_n <= (int64_t)l->pages_n * PAGE_POSITIONS);
    while ((l->shared_n + 1) * PAGE_POSITIONS <= computed_n) {
        int32_t parent = l->shared_n > 0 ? l->pages[l->shared_n - 1] : c->pages_n;
        const int32_t *run = tokens + (size_t)l->shared_n * PAGE_POSITIONS;
        int32_t own = l->pages[l->shared_n], common, twin;

        twin = tree_find(c, parent, run, PAGE_POSITIONS, &common);
        if (common == PAGE_POSITIONS) {
            page_hold(c, twin);
            l->pages[l->shared_n] = twin;
            page_drop(c, own);
        } else {
            twin = own;
            memcpy(c->pages[own].tokens, run, sizeof c->pages[own].tokens);
            c->pages[own].shared = false;
            tree_insert(c, parent, own);
        }
        c->pages[twin].used = c->tick;
        l->shared_n++;
    }
}

void cache_lease_end(struct cache *c, struct cache_lease *l, int32_t soon_n, int32_t later_n)
{
    c->tick++;
    for (int32_t i = l->pages_n; i-- > 0;) {
        struct page *p = &c->pages[l->pages[i]];

        p->used = c->tick;
        p->class = i * PAGE_POSITIONS < soon_n  ? WANTED_SOON
                 : i * PAGE_POSITIONS < later_n ? WANTED_LATER
                 : p->shared                    ? SHARED_ONCE : NEVER_SHARED;
        page_drop(c, l->pages[i]);
    }
    *l = (struct cache_lease){ NULL, 0, 0, 0 };
}

void cache_want(struct cache *c, const int32_t *tokens, int32_t tokens_n)
{
    int32_t at = c->pages_n, common = PAGE_POSITIONS;

    for (int32_t n = 0; n < tokens_n && common == PAGE_POSITIONS; n += common) {
        int32_t left = tokens_n - n;
        bool leaf;

        at = tree_find(c, at, tokens + n, left < PAGE_POSITIONS ? left : PAGE_POSITIONS, &common);
        if (at == NONE)
            break;
        if (c->pages[at].refs > 0 || c->pages[at].class >= WANTED_LATER)
            continue;              /* held: its class is set when it is given back */
        leaf = c->pages[at].leaf_i != NONE;
        leaves_remove(c, at);
        c->pages[at].class = WANTED_LATER;
        if (leaf)
            leaves_push(c, at);
    }
}
