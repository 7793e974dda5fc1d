/* Text to ids: added tokens are cut out first, each piece between them is normalised, split into words, and each word's
 * bytes are merged. Ordinary text repeats its words, so a small cache of words, one cache line each, does most of the
 * work; a slot is simply overwritten by the next word that falls on it. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "worker/text/nfc.h"
#include "worker/text/tables.h"
#include "worker/text/tokenizer.h"

enum {
    CACHE_SLOTS = 1 << 14,         /* 1 MiB an encoder */
    CACHE_WORD_BYTES = 22,
    CACHE_TOKENS = 10,
    WORK_BYTES_KEPT = 1 << 20      /* text for which working memory is kept from call to call */
};

struct cache_slot {
    uint8_t word_n, tokens_n;      /* word_n 0: empty */
    char word[CACHE_WORD_BYTES];
    int32_t tokens[CACHE_TOKENS];
};

struct encoder {
    const struct tokenizer *t;
    struct cache_slot *cache;
    struct bpe_work bpe;
    struct nfc nfc;
    struct buf text, normal;
    int32_t *tokens;
    size_t tokens_n, tokens_room;
};

/* Where trust begins and ends while the text is walked. */
struct trust {
    const struct text_span *spans;
    size_t spans_n, span_i;
    size_t end;                    /* of the run of spans of one trust that holds the current place */
    bool trusted;
};

struct encoder *encoder_open(const struct tokenizer *t)
{
    struct encoder *e = mem_take_zero(1, sizeof(*e));

    e->t = t;
    e->cache = mem_take_zero(CACHE_SLOTS, sizeof(*e->cache));
    return e;
}

void encoder_close(struct encoder *e)
{
    if (e == NULL)
        return;
    free(e->cache);
    bpe_work_fini(&e->bpe);
    nfc_fini(&e->nfc);
    buf_fini(&e->text);
    buf_fini(&e->normal);
    free(e->tokens);
    free(e);
}

/* Room for n more tokens. */
static int32_t *tokens_room(struct encoder *e, size_t n)
{
    if (e->tokens_room - e->tokens_n < n) {
        e->tokens_room = 2 * (e->tokens_n + n);
        e->tokens = mem_grow(e->tokens, e->tokens_room * sizeof(*e->tokens));
    }
    return e->tokens + e->tokens_n;
}

static size_t word_merge(struct encoder *e, const char *word, size_t n, int32_t *tokens)
{
    if (e->t->rules->ignore_merges) {
        int32_t token = tokenizer_word(e->t, word, n);

        if (token >= 0) {
            tokens[0] = token;
            return 1;
        }
    }
    return bpe_word(&e->t->bpe, &e->bpe, word, n, tokens);
}

static void word_encode(struct encoder *e, const char *word, size_t n)
{
    struct cache_slot *slot = &e->cache[hash64(word, n, 0) % CACHE_SLOTS];
    int32_t *tokens = tokens_room(e, n);
    size_t tokens_n;

    if (n == slot->word_n && memcmp(slot->word, word, n) == 0) {
        memcpy(tokens, slot->tokens, slot->tokens_n * sizeof(*tokens));
        e->tokens_n += slot->tokens_n;
        return;
    }
    tokens_n = word_merge(e, word, n, tokens);
    e->tokens_n += tokens_n;
    if (n <= CACHE_WORD_BYTES && tokens_n <= CACHE_TOKENS) {
        slot->word_n = (uint8_t)n;
        slot->tokens_n = (uint8_t)tokens_n;
        memcpy(slot->word, word, n);
        memcpy(slot->tokens, tokens, tokens_n * sizeof(*tokens));
    }
}

/* Text without added tokens. */
static void piece_encode(struct encoder *e, const char *text, size_t n)
{
    struct splitter s;

    if (n == 0)
        return;
    if (e->t->rules->nfc && nfc_text(&e->nfc, e->t->classes, text, n, &e->normal)) {
        text = e->normal.data;
        n = e->normal.n;
    }
    splitter_init(&s, e->t->rules, e->t->classes, text, n);
    while (s.at < n) {
        size_t from = s.at;

        word_encode(e, text + from, splitter_next(&s) - from);
    }
}

/* Moves on to the run that holds the byte at `at`, which is below the length of the text. */
static void trust_move(struct trust *r, size_t at)
{
    while (r->end <= at) {
        r->trusted = r->spans[r->span_i].trust == TEXT_TRUSTED;
        while (r->span_i < r->spans_n &&
               (r->spans[r->span_i].n == 0 || (r->spans[r->span_i].trust == TEXT_TRUSTED) == r->trusted))
            r->end += r->spans[r->span_i++].n;
    }
}

static void text_encode(struct encoder *e, const char *text, size_t n, const struct text_span *spans, size_t spans_n)
{
    const struct added *added = &e->t->added;
    struct trust trust = { spans, spans_n, 0, 0, false };
    size_t from = 0, at = 0;

    while (at < n) {
        const struct added_token *found;
        uint8_t may;

        trust_move(&trust, at);
        may = trust.trusted ? 3 : 1;
        if (!trust.trusted && !added->any_plain) {
            at = trust.end;
            continue;
        }
        while (at < trust.end && !(added->first[(unsigned char)text[at]] & may))
            at++;
        if (at == trust.end)
            continue;
        found = added_match(added, text + at, n - at, trust.trusted ? trust.end - at : 0);
        if (found == NULL) {
            at++;
            continue;
        }
        piece_encode(e, text + from, at - from);
        *tokens_room(e, 1) = found->token;
        e->tokens_n++;
        at += found->n;
        from = at;
    }
    piece_encode(e, text + from, n - from);
}

/* One huge text must not hold its memory for the life of the worker. */
static void work_trim(struct encoder *e)
{
    if (e->bpe.room > WORK_BYTES_KEPT)
        bpe_work_fini(&e->bpe);
    if (e->nfc.room > WORK_BYTES_KEPT)
        nfc_fini(&e->nfc);
    if (e->text.room > WORK_BYTES_KEPT)
        buf_fini(&e->text);
    if (e->normal.room > WORK_BYTES_KEPT)
        buf_fini(&e->normal);
    if (e->tokens_room > WORK_BYTES_KEPT) {
        free(e->tokens);
        e->tokens = NULL;
        e->tokens_room = 0;
    }
}

status encoder_encode(struct encoder *e, const struct text_span *spans, size_t spans_n,
                      const int32_t **tokens, size_t *tokens_n)
{
    const char *text = "";
    size_t n = 0;

    *tokens = NULL;
    *tokens_n = 0;
    for (size_t i = 0; i < spans_n; i++) {
        if (spans[i].n > BPE_WORD_BYTES_MAX - n)
            return ST_REJECT;
        n += spans[i].n;
    }
    work_trim(e);
    e->tokens_n = 0;
    buf_reset(&e->text);
    if (n > 0 && spans_n == 1) {
        text = spans[0].text;
    } else if (n > 0) {
        for (size_t i = 0; i < spans_n; i++)
            buf_add(&e->text, spans[i].text, spans[i].n);
        text = e->text.data;
    }
    if (utf8_valid(text, n) != n)
        return ST_REJECT;
    text_encode(e, text, n, spans, spans_n);
    *tokens = e->tokens;
    *tokens_n = e->tokens_n;
    return ST_OK;
}
