/* worker/text/split.h - pre-tokenizers: text into the words that byte pairs are merged in.
 *
 * Written by hand instead of as regular expressions: no step limit to run into, linear by its shape, and the classes of
 * characters are the reference's own (unicode.h) on every machine.
 * Threads: rules are const; a struct splitter has one owner.
 * Source: Hugging Face tokenizers, pre_tokenizers ByteLevel, Digits and Split with the published models' patterns;
 *         names and which names mean the same: llama.cpp, tokenizer.ggml.pre. */
#ifndef WORKER_TEXT_SPLIT_H
#define WORKER_TEXT_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct splitter;

struct split_rules {
    const char *names;             /* with a space after each; the first is the family's */
    size_t (*word_end)(const struct splitter *s, size_t from);
    size_t numbers_max;            /* characters of a word of digits, where word_end bounds it */
    bool digits;                   /* every digit is a word of its own, and an end of the text for what stands before */
    bool nfc;                      /* text is normalised to NFC first */
    bool ignore_merges;            /* a word that is a token needs no merges */
};

/* NULL: no such pre-tokenizer. */
const struct split_rules *split_rules_find(const char *pre);
/* Every known name, for an error text. */
void split_rules_names(struct buf *out);

struct splitter {
    const struct split_rules *rules;
    const uint8_t *table;          /* unicode_expand */
    const char *text;              /* valid UTF-8 */
    size_t n;
    size_t at;                     /* start of the next word */
    size_t limit;                  /* private: where the text ends for the word patterns */
};

void splitter_init(struct splitter *s, const struct split_rules *rules, const uint8_t *table, const char *text,
                   size_t n);
/* The end of the word that begins at s->at < s->n; s->at moves there. Words are never empty and leave nothing out. */
size_t splitter_next(struct splitter *s);

#endif
