/* worker/text/added.h - tokens that are found in the text as they are spelled, before any word is split: control tokens
 * where the text is trusted, user-defined tokens everywhere.
 * Threads: const once built. Ownership: the texts are borrowed from the tokenizer. */
#ifndef WORKER_TEXT_ADDED_H
#define WORKER_TEXT_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A longer one is refused at open: it bounds the work that one character of text can cause. */
enum { ADDED_BYTES_MAX = 1024 };

struct added_token { const char *text; uint32_t n; int32_t token; bool control; };

struct added {
    struct added_token *tokens;    /* by text */
    size_t n;
    bool any_plain;                /* some are not control tokens */
    uint8_t first[256];            /* by first byte: 1 a user-defined token may begin here, 2 a control token */
};

/* Takes over tokens (n of them, in any order, none empty). Of two with one text a control token wins, then the lower
 * id. */
void added_init(struct added *a, struct added_token *tokens, size_t n);
void added_fini(struct added *a);
/* The longest token that text begins with; control tokens only where they end within trusted_n bytes. NULL: none. */
const struct added_token *added_match(const struct added *a, const char *text, size_t n, size_t trusted_n);
/* The token that is spelled exactly so, or NULL. */
const struct added_token *added_find(const struct added *a, const char *text, size_t n);

#endif
