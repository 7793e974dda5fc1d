/* worker/text/bpe.h - byte pair encoding of one word: of all neighbouring pairs the one with the lowest rank is merged,
 * the leftmost of equals, until none is left.
 *
 * Threads: a struct bpe is const once filled; a struct bpe_work has one owner.
 * Cost:    n log n in the bytes of the word, 32 bytes of working memory each.
 * Source:  Sennrich, Haddow, Birch 2016; order of merges and dropped bytes as Hugging Face tokenizers, models/bpe. */
#ifndef WORKER_TEXT_BPE_H
#define WORKER_TEXT_BPE_H

#include <stddef.h>
#include <stdint.h>

struct bpe_pair { int32_t left, right, rank; };

struct bpe {
    struct bpe_pair *pairs;        /* open addressing, power of two; rank -1: free */
    size_t mask;
    int32_t *results;              /* [rank] the token a merge makes */
    int32_t byte_token[256];       /* -1: the vocabulary has none; the byte is dropped, as the reference does */
};

void bpe_init(struct bpe *b, int32_t merges_max);
void bpe_fini(struct bpe *b);
/* A pair that is there already gets the new rank, as in the reference. */
void bpe_pair_add(struct bpe *b, int32_t left, int32_t right, int32_t rank, int32_t result);

struct bpe_symbol { int32_t token, rank, previous, next; };

struct bpe_work {                  /* zeroed at first */
    struct bpe_symbol *symbols;
    uint64_t *heap;
    size_t room, heap_n;
};

void bpe_work_fini(struct bpe_work *w);

enum { BPE_WORD_BYTES_MAX = 1 << 30 };

/* Writes at most n tokens, returns how many. n <= BPE_WORD_BYTES_MAX. */
size_t bpe_word(const struct bpe *b, struct bpe_work *w, const char *word, size_t n, int32_t *tokens);

#endif
