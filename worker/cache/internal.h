/* worker/cache/internal.h - what pages.c, tree.c and check.c share. Private to worker/cache.
 *
 * A page's record is also its tree node, so no node is ever allocated and a page id names both. The root is one more
 * record behind the last page. Children of a node form a treap (Seidel & Aragon 1996) ordered by their 16 tokens: the
 * neighbours of a search are on its path, so one descent finds the child with the longest common run, whole or partial. */
#ifndef WORKER_CACHE_INTERNAL_H
#define WORKER_CACHE_INTERNAL_H

#include "kernels/kernels.h"
#include "worker/cache/cache.h"

#define NONE (-1)

enum page_class { NEVER_SHARED, SHARED_ONCE, WANTED_LATER, WANTED_SOON };       /* evicted in this order */

struct page {
    int32_t tokens[PAGE_POSITIONS];
    int32_t refs;
    int32_t parent, child;         /* child: root of the children's treap */
    int32_t left, right;           /* siblings */
    int32_t leaf_i;                /* place in the heap of evictable leaves; NONE: not there */
    uint64_t used;                 /* tick of the last begin, publish or end that touched it */
    bool in_tree, shared;          /* shared: a second sequence has read it */
    enum page_class class;
};

struct cache {
    int32_t pages_n;
    struct page *pages;            /* [pages_n + 1]; the last is the root */
    int32_t *free; int32_t free_n;
    int32_t *leaves; int32_t leaves_n;         /* heap: next to evict on top */
    int32_t cached_n, held_n;
    uint64_t tick;
    int64_t hits_tokens, evicted_pages;
};

static inline uint32_t page_priority(int32_t page)
{
    uint32_t x = (uint32_t)page * 0x9E3779B9u;

    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    return x;
}

/* Heap order: evicted first. */
static inline bool page_goes_before(const struct page *a, const struct page *b)
{
    if (a->class != b->class)
        return a->class < b->class;
    return a->class == WANTED_LATER ? a->used > b->used : a->used < b->used;
}

int32_t tokens_common(const int32_t *a, const int32_t *b, int32_t n);
int tokens_compare(const int32_t *a, const int32_t *b);        /* whole pages */

/* The child of `parent` that shares the longest run with tokens[0, n), n <= 16; *common is its length. */
int32_t tree_find(const struct cache *c, int32_t parent, const int32_t *tokens, int32_t n, int32_t *common);
void tree_insert(struct cache *c, int32_t parent, int32_t page);
void tree_erase(struct cache *c, int32_t page);

void leaves_push(struct cache *c, int32_t page);
void leaves_remove(struct cache *c, int32_t page);

#endif
