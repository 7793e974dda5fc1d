/* tests/unit/test_cache.c - the page pool and radix tree against a naive model that keeps whole prefixes in a list.
 *
 * The model knows no pages: a node is a prefix (all tokens from 0), eviction scans everything. Beside it every page has
 * "KV": a hash of all tokens up to each position, written when the position is computed and copied when the cache says
 * copy. A lease whose pages hold anything but its own prefix is cross-talk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "kernels/kernels.h"
#include "worker/cache/cache.h"

#define P PAGE_POSITIONS
#define LEASES 24
#define LENGTH_MAX 160
#define PAGES_MAX 256

struct node {                      /* of the model: page number tokens_n / P - 1 of that prefix */
    int32_t tokens[LENGTH_MAX], tokens_n;
    int refs;
    int class;                     /* 0 .. 3, evicted in this order */
    bool shared;
    uint64_t used;
    int32_t page;                  /* only to tell which of several equally good pages the cache copied from */
};

struct lease {
    bool open;
    struct cache_lease l;
    int32_t pages[LENGTH_MAX / P];
    int32_t tokens[LENGTH_MAX], tokens_n, computed_n;
    int own_n;                     /* model: pages that are not in the tree */
    int shared_n;
};

struct world {
    struct cache *c;
    int32_t pages_n;
    uint64_t kv[PAGES_MAX][P];
    struct node nodes[PAGES_MAX];
    int nodes_n;
    struct lease leases[LEASES];
    uint64_t tick;
    uint64_t random;
    int64_t evicted, hit_pages, partial_hits, twins;
};

static uint32_t rnd(struct world *w, uint32_t n)
{
    w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(w->random >> 33) % n;
}

static uint64_t kv_of(const int32_t *tokens, int32_t pos)
{
    return hash64(tokens, ((size_t)pos + 1) * sizeof tokens[0], 7);
}

static struct node *node_find(struct world *w, const int32_t *tokens, int32_t n)
{
    for (int i = 0; i < w->nodes_n; i++)
        if (w->nodes[i].tokens_n == n && memcmp(w->nodes[i].tokens, tokens, (size_t)n * sizeof tokens[0]) == 0)
            return &w->nodes[i];
    return NULL;
}

static bool node_is_leaf(struct world *w, const struct node *n)
{
    for (int i = 0; i < w->nodes_n; i++)
        if (w->nodes[i].tokens_n == n->tokens_n + P
            && memcmp(w->nodes[i].tokens, n->tokens, (size_t)n->tokens_n * sizeof n->tokens[0]) == 0)
            return false;
    return true;
}

static int own_pages(struct world *w)
{
    int n = 0;

    for (int i = 0; i < LEASES; i++)
        n += w->leases[i].open ? w->leases[i].own_n : 0;
    return n;
}

static int evictable(struct world *w)
{
    int n = 0;

    for (int i = 0; i < w->nodes_n; i++)
        n += w->nodes[i].refs == 0 && node_is_leaf(w, &w->nodes[i]);
    return n;
}

/* The model's page_take: false where all are held. */
static bool model_take(struct world *w)
{
    struct node *best = NULL;

    if (w->nodes_n + own_pages(w) < w->pages_n)
        return true;
    for (int i = 0; i < w->nodes_n; i++) {
        struct node *n = &w->nodes[i];

        if (n->refs > 0 || !node_is_leaf(w, n))
            continue;
        if (best == NULL || n->class < best->class
            || (n->class == best->class && (n->class == 2 ? n->used > best->used : n->used < best->used)))
            best = n;
    }
    if (best == NULL)
        return false;
    *best = w->nodes[--w->nodes_n];
    w->evicted++;
    return true;
}

static int32_t common(const int32_t *a, const int32_t *b, int32_t n)
{
    int32_t i = 0;

    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* Longest match of the model. */
static int32_t model_match(struct world *w, const int32_t *tokens, int32_t n)
{
    int32_t whole = 0, best;

    while (whole + P <= n && node_find(w, tokens, whole + P) != NULL)
        whole += P;
    best = whole;
    for (int i = 0; i < w->nodes_n; i++) {
        int32_t m;

        if (w->nodes[i].tokens_n != whole + P)
            continue;
        m = common(w->nodes[i].tokens, tokens, n < whole + P ? n : whole + P);
        best = m > best ? m : best;
    }
    return best;
}

static void lease_content_check(struct world *w, const struct lease *l)
{
    for (int32_t pos = 0; pos < l->computed_n; pos++)
        assert_true(w->kv[l->pages[pos / P]][pos % P] == kv_of(l->tokens, pos));
}

static void counts_check(struct world *w)
{
    struct cache_counts n = cache_counts(w->c);
    int held = own_pages(w), cached = 0;

    for (int i = 0; i < w->nodes_n; i++) {
        held += w->nodes[i].refs > 0;
        cached += w->nodes[i].refs == 0;
    }
    assert_int_equal(n.total, w->pages_n);
    assert_int_equal(n.held, held);
    assert_int_equal(n.cached, cached);
    assert_int_equal(n.free, w->pages_n - held - cached);
    assert_int_equal(n.evicted_pages, w->evicted);
    assert_int_equal(cache_available(w->c), n.free + n.cached);
}

/* Few letters and a few fixed openings: many prompts share long runs, and differ anywhere inside a page. */
static void tokens_make(struct world *w, struct lease *l)
{
    uint32_t family = rnd(w, 5), letters = 1 + rnd(w, 3);
    int32_t fixed = (int32_t)rnd(w, LENGTH_MAX), n = 1 + (int32_t)rnd(w, LENGTH_MAX);

    l->tokens_n = n;
    for (int32_t i = 0; i < n; i++)
        l->tokens[i] = i < fixed ? (int32_t)(hash64(&i, sizeof i, family) % 3) : (int32_t)rnd(w, letters);
}

/* The copy that the cache asked for: from a page that really shares that much, which must outlive the taking. */
static void model_copy(struct world *w, struct lease *l, int32_t cached_n, const struct cache_copy *copy)
{
    struct node *src = NULL;

    for (int i = 0; i < w->nodes_n; i++)
        if (w->nodes[i].page == copy->src)
            src = &w->nodes[i];
    assert_non_null(src);
    assert_int_equal(src->tokens_n, (l->shared_n + 1) * P);
    assert_int_equal(common(src->tokens, l->tokens, cached_n), cached_n);
    src->refs++;
    assert_true(model_take(w));
    for (int i = 0; i < w->nodes_n; i++)               /* the list may have moved */
        if (w->nodes[i].page == copy->src)
            src = &w->nodes[i];
    src->refs--;
    src->used = w->tick;
    src->shared = true;
    l->own_n = 1;
    memcpy(w->kv[copy->dst], w->kv[copy->src], sizeof w->kv[0]);
    w->partial_hits++;
}

static void op_begin(struct world *w, struct lease *l)
{
    int32_t best, cached_n, idle, peeked, tokens_max, had = cache_available(w->c);
    struct cache_copy copy;

    tokens_make(w, l);
    tokens_max = l->tokens_n - 1;
    best = model_match(w, l->tokens, tokens_max);
    peeked = cache_peek(w->c, l->tokens, tokens_max, &idle);
    assert_int_equal(peeked, best);
    cache_lease_begin(w->c, &l->l, l->pages, LENGTH_MAX / P, l->tokens, tokens_max, &cached_n, &copy);
    assert_int_equal(cached_n, copy.dst >= 0 ? best : best / P * P);
    assert_int_equal(had - cache_available(w->c), idle + (copy.dst >= 0));
    l->open = true;
    l->own_n = 0;
    w->tick++;
    for (l->shared_n = 0; l->shared_n < best / P; l->shared_n++) {
        struct node *node = node_find(w, l->tokens, (l->shared_n + 1) * P);

        node->refs++;
        node->used = w->tick;
        node->shared = true;
    }
    assert_int_equal(l->l.shared_n, l->shared_n);
    w->hit_pages += l->shared_n;
    if (copy.dst >= 0)
        model_copy(w, l, cached_n, &copy);
    else if (best % P != 0)                            /* at most the source itself could have made room */
        assert_true(w->nodes_n + own_pages(w) == w->pages_n && evictable(w) <= 1);
    l->computed_n = cached_n;
    lease_content_check(w, l);
}

static void op_compute(struct world *w, struct lease *l)
{
    int32_t n = 1 + (int32_t)rnd(w, 40), before = l->l.pages_n;
    status st;

    if (n > l->tokens_n - l->computed_n)
        n = l->tokens_n - l->computed_n;
    for (int32_t pages = (l->computed_n + n + P - 1) / P; l->shared_n + l->own_n < pages; l->own_n++)
        if (!model_take(w))
            break;
    st = cache_lease_grow(w->c, &l->l, l->computed_n + n);
    assert_int_equal(l->l.pages_n, l->shared_n + l->own_n);
    assert_true(l->l.pages_n >= before);
    assert_int_equal(st, (int64_t)l->l.pages_n * P >= l->computed_n + n ? ST_OK : ST_AGAIN);
    if (st != ST_OK)
        return;
    for (int32_t pos = l->computed_n; pos < l->computed_n + n; pos++) {
        assert_true(pos / P >= l->l.shared_n);       /* never write what others read */
        w->kv[l->pages[pos / P]][pos % P] = kv_of(l->tokens, pos);
    }
    l->computed_n += n;
}

static void op_publish(struct world *w, struct lease *l)
{
    w->tick++;
    for (; (l->shared_n + 1) * P <= l->computed_n; l->shared_n++, l->own_n--) {
        struct node *n = node_find(w, l->tokens, (l->shared_n + 1) * P);

        if (n == NULL) {
            n = &w->nodes[w->nodes_n++];
            memset(n, 0, sizeof *n);
            n->tokens_n = (l->shared_n + 1) * P;
            memcpy(n->tokens, l->tokens, (size_t)n->tokens_n * sizeof l->tokens[0]);
            n->page = l->pages[l->shared_n];
        } else {
            w->twins++;
        }
        n->refs++;
        n->used = w->tick;
    }
    cache_lease_publish(w->c, &l->l, l->tokens, l->computed_n);
    assert_int_equal(l->l.shared_n, l->shared_n);
    lease_content_check(w, l);
}

static void op_end(struct world *w, struct lease *l)
{
    int32_t later_n = (int32_t)rnd(w, 3) * (int32_t)rnd(w, LENGTH_MAX), soon_n = (int32_t)rnd(w, (uint32_t)later_n + 1);

    w->tick++;
    for (int32_t i = 0; i < l->shared_n; i++) {
        struct node *n = node_find(w, l->tokens, (i + 1) * P);

        n->refs--;
        n->used = w->tick;
        n->class = i * P < soon_n ? 3 : i * P < later_n ? 2 : n->shared;
    }
    cache_lease_end(w->c, &l->l, soon_n, later_n);
    assert_int_equal(l->l.pages_n, 0);
    l->open = false;
}

/* A request is announced. A page in which the match ends is wanted, too; of several that share as much it may be any. */
static void op_want(struct world *w)
{
    struct lease l;
    int32_t whole;

    tokens_make(w, &l);
    whole = model_match(w, l.tokens, l.tokens_n) / P * P;
    for (int32_t i = P; i <= whole; i += P) {
        struct node *n = node_find(w, l.tokens, i);

        if (n->refs == 0 && n->class < 2)
            n->class = 2;
    }
    cache_want(w->c, l.tokens, whole);
}

static void run_world(int32_t pages_n, int operations, uint64_t seed)
{
    struct world *w = calloc(1, sizeof *w);

    w->c = cache_open(pages_n);
    w->pages_n = pages_n;
    w->random = seed;
    for (int i = 0; i < operations; i++) {
        struct lease *l = &w->leases[rnd(w, LEASES)];
        uint32_t what = rnd(w, 100);

        if (i % 5 == 0)
            op_want(w);
        if (!l->open)
            op_begin(w, l);
        else if (what < 55)
            op_compute(w, l);
        else if (what < 85)
            op_publish(w, l);
        else
            op_end(w, l);
        counts_check(w);
        if (i % 16 == 0)
            cache_check(w->c);
    }
    assert_true(w->hit_pages > operations / 100 && w->twins > 0 && w->partial_hits > 0);
    assert_true(w->evicted > operations / 1000);
    for (int i = 0; i < LEASES; i++)
        if (w->leases[i].open)
            op_end(w, &w->leases[i]);
    cache_check(w->c);
    assert_int_equal(cache_counts(w->c).held, 0);
    cache_close(w->c);
    free(w);
}

static void test_random_small(void **state)
{
    (void)state;
    run_world(20, 40000, 1);
}

static void test_random_middle(void **state)
{
    (void)state;
    run_world(90, 40000, 2);
}

static void test_random_roomy(void **state)
{
    (void)state;
    run_world(PAGES_MAX, 20000, 3);
}

/* Computes and publishes all of it. */
static void publish_all(struct cache *c, const int32_t *tokens, int32_t n, int32_t soon_n, int32_t later_n)
{
    struct cache_lease l;
    struct cache_copy copy;
    int32_t pages[64], cached_n;

    cache_lease_begin(c, &l, pages, 64, tokens, n - 1, &cached_n, &copy);
    assert_int_equal(cache_lease_grow(c, &l, n), ST_OK);
    cache_lease_publish(c, &l, tokens, n);
    cache_lease_end(c, &l, soon_n, later_n);
}

/* Seven branches of one page each. First goes what nobody wants, though it is not the oldest, what was never shared before
 * what was; then what is wanted in the next circle, the last used first (one is announced after its lease has ended);
 * then what is wanted soon, the first used first. */
static void test_eviction_order(void **state)
{
    static const struct { int32_t soon_n, later_n; } wants[7] = {
        { 16, 16 }, { 0, 16 }, { 0, 0 }, { 0, 0 }, { 0, 16 }, { 1, 1 }, { 0, 0 }
    };
    static const int order[7] = { 3, 2, 6, 4, 1, 0, 5 };
    struct cache *c = cache_open(7);
    struct cache_lease l;
    struct cache_copy copy;
    int32_t tokens[7][16], other[112], pages[7], cached_n;

    (void)state;
    for (int b = 0; b < 7; b++) {
        for (int i = 0; i < 16; i++)
            tokens[b][i] = 100 * b + i;
        publish_all(c, tokens[b], 16, wants[b].soon_n, wants[b].later_n);
        if (b == 2) {
            cache_lease_begin(c, &l, pages, 7, tokens[b], 16, &cached_n, &copy);
            cache_lease_end(c, &l, 0, 0);
        }
    }
    cache_want(c, tokens[6], 3);
    memset(other, 0xFF, sizeof other);
    cache_lease_begin(c, &l, pages, 7, other, 112, &cached_n, &copy);
    for (int k = 0; k < 7; k++) {
        assert_int_equal(cache_peek(c, tokens[order[k]], 16, NULL), 16);
        assert_int_equal(cache_lease_grow(c, &l, 16 * (k + 1)), ST_OK);
        assert_int_equal(cache_peek(c, tokens[order[k]], 16, NULL), 0);
        cache_check(c);
    }
    cache_lease_end(c, &l, 0, 0);
    cache_close(c);
}

/* A wanted prefix outlives the unwanted ends of the prompts that began with it, whatever their number. */
static void test_prefix_stays(void **state)
{
    struct cache *c = cache_open(8);
    int32_t tokens[64];

    (void)state;
    for (int i = 0; i < 50; i++) {
        for (int k = 0; k < 64; k++)
            tokens[k] = k < 40 ? k : 1000 * i + k;
        assert_int_equal(cache_peek(c, tokens, 64, NULL), i == 0 ? 0 : 40);
        publish_all(c, tokens, 64, 0, 40);
        cache_check(c);
    }
    cache_close(c);
}

/* The only page that could make room is the one to copy from: the match ends with the whole pages, and growing works. */
static void test_last_page(void **state)
{
    struct cache *c = cache_open(1);
    struct cache_lease l;
    struct cache_copy copy;
    int32_t tokens[16], pages[1], cached_n, i;

    (void)state;
    for (i = 0; i < 16; i++)
        tokens[i] = i;
    publish_all(c, tokens, 16, 16, 16);
    cache_lease_begin(c, &l, pages, 1, tokens, 8, &cached_n, &copy);
    assert_int_equal(cached_n, 0);
    assert_int_equal(copy.dst, -1);
    assert_int_equal(cache_lease_grow(c, &l, 8), ST_OK);
    cache_check(c);
    cache_lease_end(c, &l, 0, 0);
    assert_int_equal(cache_counts(c).free, 1);
    cache_close(c);
}

/* What could not be had is not lost, and comes back. */
static void test_exhausted(void **state)
{
    struct cache *c = cache_open(3);
    struct cache_lease l, m;
    struct cache_copy copy;
    int32_t tokens[64] = { 0 }, pages[4], more[4], cached_n;

    (void)state;
    cache_lease_begin(c, &l, pages, 4, tokens, 63, &cached_n, &copy);
    assert_int_equal(cache_lease_grow(c, &l, 20), ST_OK);
    cache_lease_begin(c, &m, more, 4, tokens, 63, &cached_n, &copy);
    assert_int_equal(cache_lease_grow(c, &m, 64), ST_AGAIN);
    assert_int_equal(m.pages_n, 1);
    assert_int_equal(cache_lease_grow(c, &l, 33), ST_AGAIN);
    cache_lease_end(c, &m, 0, 0);
    assert_int_equal(cache_lease_grow(c, &l, 48), ST_OK);
    assert_int_equal(cache_available(c), 0);
    cache_lease_end(c, &l, 0, 0);
    cache_lease_end(c, &l, 0, 0);
    assert_int_equal(cache_available(c), 3);
    cache_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_small),
        cmocka_unit_test(test_random_middle),
        cmocka_unit_test(test_random_roomy),
        cmocka_unit_test(test_eviction_order),
        cmocka_unit_test(test_prefix_stays),
        cmocka_unit_test(test_last_page),
        cmocka_unit_test(test_exhausted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
