/* worker/cache/cache.h - KV pages and the radix tree of prefixes that share them (design.md section 6).
 *
 * A page holds the KV of PAGE_POSITIONS positions. It is free, cached (in the tree, nobody reads it) or held (some
 * sequence holds a reference): free + cached + held = total, always. The tree maps runs of tokens to pages at page
 * granularity; a match may end inside a page, whose first positions are then copied to a private page.
 * Eviction: leaves only, so a prefix never loses its beginning. What is needed last goes first (Belady 1966), as far as
 * the plan knows (cache_lease_end and cache_want are told): first what no waiting request wants and no second one ever
 * did, then what no waiting request wants, the oldest first; then what only the next circle of the walk wants, the latest
 * used first, for the walk has just left it behind and comes back to it last; then what the walk wants next.
 * Cost: a look-up is one search tree descent a page (log of the siblings), so thousands of prompts that differ after a
 * long common prefix stay cheap. Threads: the engine's. Ownership: a lease holds references until cache_lease_end.
 * Allocates at open only: a tree node is a page's own record. */
#ifndef WORKER_CACHE_CACHE_H
#define WORKER_CACHE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct cache;

struct cache_counts { int32_t total, free, cached, held; int64_t hits_tokens, evicted_pages; };

struct cache *cache_open(int32_t pages_n);     /* pages_n > 0 */
void cache_close(struct cache *c);             /* NULL is allowed */
struct cache_counts cache_counts(const struct cache *c);
/* Walks everything; aborts where the accounts or the tree are wrong. Debug builds call it often, drains always. */
void cache_check(const struct cache *c);

/* One sequence's hold on its pages. Embedded in the sequence; zero is empty. */
struct cache_lease {
    int32_t *pages;                            /* pages[i] holds positions [16i, 16i+16); the caller's memory */
    int32_t pages_n, pages_room;
    int32_t shared_n;                          /* the first shared_n are in the tree: read only */
};
struct cache_copy { int32_t src, dst; };       /* dst < 0: nothing to copy */

/* How many of the tokens are in the tree now, without taking anything. *idle_pages (NULL is allowed): how many of the
 * whole pages among them nobody holds, which a lease would take away from cache_available. */
int32_t cache_peek(const struct cache *c, const int32_t *tokens, int32_t tokens_n, int32_t *idle_pages);

/* Takes references on the longest cached prefix of the tokens (the last prompt token is always computed, so callers pass
 * prompt_n - 1). *cached_n: positions that need no computing. Where the match ends inside a page, a private page is taken
 * and *copy says what to copy before anything else is taken from the cache or written to a page; where no page can be
 * had for it, the match ends with the last whole page. pages_room: the most pages the sequence may ever need. */
void cache_lease_begin(struct cache *c, struct cache_lease *l, int32_t *pages, int32_t pages_room,
                       const int32_t *tokens, int32_t tokens_n, int32_t *cached_n, struct cache_copy *copy);
/* Pages for positions up to positions_n (within pages_room); evicts cached leaves when none is free. ST_AGAIN: not
 * enough; what was got stays (the caller retries or ends the lease). */
MUST_USE status cache_lease_grow(struct cache *c, struct cache_lease *l, int32_t positions_n);
/* Positions [0, computed_n) of tokens are computed: full pages go into the tree. Where another sequence has published
 * the same run meanwhile, the lease changes over to the tree's page and gives its own back. */
void cache_lease_publish(struct cache *c, struct cache_lease *l, const int32_t *tokens, int32_t computed_n);
/* Gives everything back; published pages stay cached. Positions below soon_n are wanted by what the plan takes next, those
 * below later_n by some request that waits (soon_n <= later_n). The lease is empty afterwards; ending an empty one does
 * nothing. */
void cache_lease_end(struct cache *c, struct cache_lease *l, int32_t soon_n, int32_t later_n);
/* A request with these tokens waits from now on: what of them is in the tree is kept for it. */
void cache_want(struct cache *c, const int32_t *tokens, int32_t tokens_n);

/* Pages that could be had right now by taking free ones and evicting cached ones. */
int32_t cache_available(const struct cache *c);

#endif
