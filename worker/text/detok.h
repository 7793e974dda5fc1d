/* worker/text/detok.h - tokens to text as they come, and stop strings.
 *
 * The text handed out is valid UTF-8 at every cut: an incomplete character waits for its rest, and becomes U+FFFD only
 * where it is truly invalid (each maximal invalid prefix one U+FFFD, as Unicode 3.9 recommends) or at the end: the same
 * text, however the bytes were cut into tokens, as decoding them all at once. A text that may be the beginning of a
 * stop string is held back until it is decided, then handed out or cut.
 * Stop strings are looked for in the text, U+FFFD and shown control tokens included, not in the tokens.
 * Cost:      linear: each byte of text is looked at once for each stop string.
 * Threads:   one owner. Ownership: text is the detok's memory until detok_fini. */
#ifndef WORKER_TEXT_DETOK_H
#define WORKER_TEXT_DETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "worker/text/tokenizer.h"

struct stop_set {                  /* borrowed for the life of the detok */
    const char *const *stops;      /* valid UTF-8, none empty */
    const size_t *stops_bytes;
    size_t stops_n;
    bool include;                  /* the stop string stays in the text */
};

struct stop_scan;

struct detok {
    const struct tokenizer *tokenizer;
    const struct stop_set *stop;   /* NULL: none */
    bool control;                  /* control tokens appear in the text (skip_special_tokens: false) */
    struct buf text;               /* decoded; [0, shown_n) is final, ends between two characters and never shrinks */
    size_t shown_n;
    char part[4];                  /* private from here: a character that is not complete yet */
    size_t part_n;
    bool stopped;
    struct stop_scan *scan;        /* NULL: no stop strings */
};

void detok_init(struct detok *d, const struct tokenizer *t, const struct stop_set *stop, bool control);
void detok_fini(struct detok *d);
/* Returns true when a stop string is complete: text ends before it (after it with include), all of it is final, later
 * tokens are ignored (and answered true again). Several stop strings may complete inside one token: the one that ends
 * first wins, of those the one that begins first. */
bool detok_add(struct detok *d, int32_t token);
/* No more tokens: what was held back is handed out, a cut character becomes U+FFFD (which may complete a stop string
 * that holds one). All of text is final. */
void detok_end(struct detok *d);

#endif
