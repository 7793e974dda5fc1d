/* worker/text/tokenizer.h - text to token ids and back, exactly as the model's own tokenizer does it.
 *
 * Threads:   a struct tokenizer is const after open: any number of threads may use it, each with its own encoder.
 * Trust:     text comes in spans. Only text marked TEXT_TRUSTED (the chat template's own words) may become control
 *            tokens: one is found where neighbouring trusted spans, joined, spell it whole. What a user wrote is plain text
 *            even where it spells one, alone or together with the template's words, and no merge of plain text makes one.
 *            User-defined tokens (added, but not control) are found in all text, as the reference does. Between such
 *            tokens, normalisation, word splitting and merges run over the joined text as one piece, whoever wrote it.
 * Control:   kinds CONTROL and UNKNOWN; also user-defined tokens that are spelled <|...|> or known to end a turn, and
 *            normal ones that are both: files name them so by mistake.
 * Lost:      bytes that the vocabulary has no token for (the default model lacks six ASCII control characters and the
 *            unassigned planes 4-11) make no token, as in the reference.
 * Cost:      n log n in the longest word, linear in all else, whatever the text holds.
 * Source:    Hugging Face tokenizers 0.23 (AddedVocabulary, NFC, ByteLevel, Digits, Split, BPE). */
#ifndef WORKER_TEXT_TOKENIZER_H
#define WORKER_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"

enum token_kind { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE };

/* What a model file says of its tokenizer. Borrowed while tokenizer_open runs. */
struct tokenizer_spec {
    const char *model;                     /* "gpt2": byte-level BPE */
    const char *pre;                       /* name of the pre-tokenizer: "smollm", "llama-bpe", "qwen2", "gpt2" ... */
    int32_t vocab_n;
    const char *const *tokens;             /* [vocab_n] as in the file (byte-level alphabet for gpt2) */
    const size_t *tokens_bytes;
    const int32_t *kinds;                  /* [vocab_n] enum token_kind; NULL: all normal */
    int32_t merges_n;
    const char *const *merges;             /* "left right", best first */
    const size_t *merges_bytes;
    int32_t bos, eos, unknown;             /* -1: none */
    int32_t ends[2], ends_n;               /* tokens besides eos that end a generation (of a turn, of a message) */
    bool add_bos, add_eos;                 /* for raw prompts; a rendered template has its own. Kept, not acted on */
};

struct tokenizer;

/* ST_REJECT: unknown model or pre (the error lists the known ones), or a table that contradicts itself. */
MUST_USE status tokenizer_open(const struct tokenizer_spec *spec, struct tokenizer **out, struct error *err);
void tokenizer_close(struct tokenizer *t);             /* NULL is allowed */

int32_t tokenizer_vocab(const struct tokenizer *t);
int32_t tokenizer_bos(const struct tokenizer *t);
int32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_adds_bos(const struct tokenizer *t);
/* Ends a generation: eos, the spec's ends and every control token that ends a turn (<|im_end|>, <|eot_id|>, <|endoftext|> ...). */
bool tokenizer_ends(const struct tokenizer *t, int32_t token);
bool tokenizer_is_control(const struct tokenizer *t, int32_t token);
/* -1: no token is spelled so. Control and added tokens by their text, others by their bytes (a search through the whole
 * vocabulary). */
int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t n);
/* Fingerprint of everything that decides about ids. */
struct hash128 tokenizer_hash(const struct tokenizer *t);

enum text_trust { TEXT_PLAIN, TEXT_TRUSTED };
struct text_span { const char *text; size_t n; enum text_trust trust; };

/* A thread's own working memory. */
struct encoder;
struct encoder *encoder_open(const struct tokenizer *t);
void encoder_close(struct encoder *e);                 /* NULL is allowed */

/* The spans, one after the other, as one text (valid UTF-8; a character may be cut by a border). *tokens is the encoder's
 * memory, valid until its next call. Nothing is added in front or behind. Working memory is up to 40 bytes a byte of the
 * longest word; what goes beyond an ordinary text is given back at the next call. ST_REJECT: not UTF-8, or over 1 GiB. */
MUST_USE status encoder_encode(struct encoder *e, const struct text_span *spans, size_t spans_n,
                               const int32_t **tokens, size_t *tokens_n);

/* Bytes of one token: may be half a character. Control tokens: their text where `control`, else none.
 * *bytes is the tokenizer's memory. Returns the count; unknown ids: 0. */
size_t tokenizer_bytes(const struct tokenizer *t, int32_t token, bool control, const char **bytes);

#endif
