/* The symbols of a word are a list; a heap holds the pairs that could be merged, by rank, then position. An entry is
 * stale when its pair has changed since. That is seen by comparing its rank with the one the left symbol keeps for its
 * pair: a symbol only grows, so a pair that has changed spells more than before and never gets its old rank back. */
#include "worker/text/bpe.h"

#include <stdlib.h>

#include "base/status.h"

static size_t pair_slot(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;

    key *= UINT64_C(0x9e3779b97f4a7c15);
    key ^= key >> 32;
    return (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & b->mask;
}

static int32_t pair_rank(const struct bpe *b, int32_t left, int32_t right)
{
    for (size_t i = pair_slot(b, left, right);; i = (i + 1) & b->mask) {
        const struct bpe_pair *p = &b->pairs[i];

        if (p->rank < 0 || (p->left == left && p->right == right))
            return p->rank;
    }
}

void bpe_init(struct bpe *b, int32_t merges_max)
{
    size_t slots = 64;

    while (slots < 2 * (size_t)merges_max)
        slots *= 2;
    b->pairs = mem_take(slots * sizeof(*b->pairs));
    b->mask = slots - 1;
    for (size_t i = 0; i < slots; i++)
        b->pairs[i] = (struct bpe_pair){ -1, -1, -1 };
    b->results = mem_take_zero((size_t)merges_max + 1, sizeof(*b->results));
    for (int i = 0; i < 256; i++)
        b->byte_token[i] = -1;
}

void bpe_fini(struct bpe *b)
{
    free(b->pairs);
    free(b->results);
    b->pairs = NULL;
    b->results = NULL;
}

void bpe_pair_add(struct bpe *b, int32_t left, int32_t right, int32_t rank, int32_t result)
{
    size_t i = pair_slot(b, left, right);

    while (b->pairs[i].rank >= 0 && !(b->pairs[i].left == left && b->pairs[i].right == right))
        i = (i + 1) & b->mask;
    b->pairs[i] = (struct bpe_pair){ left, right, rank };
    b->results[rank] = result;
}

void bpe_work_fini(struct bpe_work *w)
{
    free(w->symbols);
    free(w->heap);
    *w = (struct bpe_work){ NULL, NULL, 0, 0 };
}

static void heap_sink(struct bpe_work *w, size_t i)
{
    uint64_t moved = w->heap[i];

    for (;;) {
        size_t child = 2 * i + 1;

        if (child >= w->heap_n)
            break;
        if (child + 1 < w->heap_n && w->heap[child + 1] < w->heap[child])
            child++;
        if (w->heap[child] >= moved)
            break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = moved;
}

static void heap_push(struct bpe_work *w, uint64_t entry)
{
    size_t i = w->heap_n++;

    while (i > 0 && w->heap[(i - 1) / 2] > entry) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = entry;
}

static uint64_t heap_pop(struct bpe_work *w)
{
    uint64_t first = w->heap[0];

    w->heap[0] = w->heap[--w->heap_n];
    if (w->heap_n > 0)
        heap_sink(w, 0);
    return first;
}

static uint64_t entry_make(int32_t rank, int32_t at)
{
    return (uint64_t)(uint32_t)rank << 32 | (uint32_t)at;
}

/* The rank of the pair that begins at symbol i. */
static void symbol_rank(const struct bpe *b, struct bpe_symbol *symbols, int32_t i)
{
    int32_t next = symbols[i].next;

    symbols[i].rank = next < 0 ? -1 : pair_rank(b, symbols[i].token, symbols[next].token);
}

static int32_t symbols_fill(const struct bpe *b, struct bpe_work *w, const char *word, size_t n)
{
    struct bpe_symbol *symbols = w->symbols;
    int32_t symbols_n = 0;

    for (size_t i = 0; i < n; i++) {
        int32_t token = b->byte_token[(unsigned char)word[i]];

        if (token >= 0) {
            symbols[symbols_n] = (struct bpe_symbol){ token, -1, symbols_n - 1, symbols_n + 1 };
            symbols_n++;
        }
    }
    if (symbols_n > 0)
        symbols[symbols_n - 1].next = -1;
    w->heap_n = 0;
    for (int32_t i = 0; i < symbols_n; i++) {
        symbol_rank(b, symbols, i);
        if (symbols[i].rank >= 0)
            w->heap[w->heap_n++] = entry_make(symbols[i].rank, i);
    }
    for (size_t i = w->heap_n / 2; i-- > 0;)
        heap_sink(w, i);
    return symbols_n;
}

static void pair_merge(const struct bpe *b, struct bpe_work *w, int32_t at)
{
    struct bpe_symbol *symbols = w->symbols, *left = &symbols[at], *right = &symbols[left->next];

    left->token = b->results[left->rank];
    left->next = right->next;
    right->rank = -1;
    if (left->next >= 0)
        symbols[left->next].previous = at;
    symbol_rank(b, symbols, at);
    if (left->rank >= 0)
        heap_push(w, entry_make(left->rank, at));
    if (left->previous >= 0) {
        symbol_rank(b, symbols, left->previous);
        if (symbols[left->previous].rank >= 0)
            heap_push(w, entry_make(symbols[left->previous].rank, left->previous));
    }
}

size_t bpe_word(const struct bpe *b, struct bpe_work *w, const char *word, size_t n, int32_t *tokens)
{
    size_t tokens_n = 0;

    ASSERT(n <= BPE_WORD_BYTES_MAX);
    if (w->room < n) {
        w->room = n < 64 ? 64 : n;
        w->symbols = mem_grow(w->symbols, w->room * sizeof(*w->symbols));
        /* n - 1 pairs at first; a merge takes one entry away and adds two at most. */
        w->heap = mem_grow(w->heap, 2 * w->room * sizeof(*w->heap));
    }
    if (symbols_fill(b, w, word, n) == 0)
        return 0;
    while (w->heap_n > 0) {
        uint64_t entry = heap_pop(w);
        int32_t at = (int32_t)(uint32_t)entry;

        if (w->symbols[at].rank == (int32_t)(entry >> 32))
            pair_merge(b, w, at);
    }
    for (int32_t i = 0; i >= 0; i = w->symbols[i].next)
        tokens[tokens_n++] = w->symbols[i].token;
    return tokens_n;
}
