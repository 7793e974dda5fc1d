/* worker/text/tables.h - what a tokenizer knows, for tokenizer.c, which fills it, and encoder.c, which reads it. */
#ifndef WORKER_TEXT_TABLES_H
#define WORKER_TEXT_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "worker/text/added.h"
#include "worker/text/bpe.h"
#include "worker/text/split.h"
#include "worker/text/unicode.h"

/* Texts to ids: open addressing, the texts stay where they are. */
struct text_index {
    struct text_index_slot { uint32_t tag; int32_t token; } *slots;       /* token -1: free */
    size_t mask;
};

struct tokenizer {
    const struct split_rules *rules;
    int32_t vocab_n;
    char *bytes;                   /* what each token stands for, one after the other */
    uint32_t *at;                  /* [vocab_n + 1] */
    uint8_t *kinds;                /* [vocab_n] enum token_kind */
    bool *ends;                    /* [vocab_n] */
    struct text_index words;       /* ordinary tokens by their bytes; only with rules->ignore_merges */
    struct added added;
    struct bpe bpe;
    int32_t bos, eos;
    bool add_bos, add_eos;
    struct hash128 hash;
    uint8_t classes[UNICODE_TABLE_END];
};

/* The ordinary token that stands for these bytes, or -1. Needs `words`. */
int32_t tokenizer_word(const struct tokenizer *t, const char *bytes, size_t n);

#endif
