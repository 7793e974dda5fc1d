/* tests/support/small_vocab.h - a vocabulary made on the spot: the 256 bytes (token b is byte b) and what a test adds.
 * Threads: one owner. Ownership: the spec points into it. */
#ifndef TESTS_SUPPORT_SMALL_VOCAB_H
#define TESTS_SUPPORT_SMALL_VOCAB_H

#include <stddef.h>
#include <stdint.h>

#include "worker/text/tokenizer.h"

enum { SMALL_VOCAB_MAX = 4096 };

struct small_vocab {
    struct tokenizer_spec spec;    /* pre gpt2, no bos, no eos; a test may change it */
    char *tokens[SMALL_VOCAB_MAX], *merges[SMALL_VOCAB_MAX];
    size_t tokens_bytes[SMALL_VOCAB_MAX], merges_bytes[SMALL_VOCAB_MAX];
    int32_t kinds[SMALL_VOCAB_MAX];
};

void small_vocab_init(struct small_vocab *v);
void small_vocab_fini(struct small_vocab *v);
/* A token for these bytes; normal ones are written in the byte-level alphabet (and are there once),
 * all others as they are. Returns its id. */
int32_t small_vocab_add(struct small_vocab *v, const char *bytes, size_t n, enum token_kind kind);
int32_t small_vocab_add_text(struct small_vocab *v, const char *text, enum token_kind kind);
/* The next merge, of two texts that are tokens; what it makes becomes a token if it is none. Returns the token made. */
int32_t small_vocab_merge(struct small_vocab *v, const char *left, const char *right);
/* Ends the test's process when the spec is refused. */
struct tokenizer *small_vocab_open(struct small_vocab *v, const char *pre);

#endif
