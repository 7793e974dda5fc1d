#include "worker/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "worker/text/tables.h"

/* Control tokens after which a model says no more (the published families' names). */
static const char *const end_names[] = {
    "<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "<|end|>", "<|end_of_turn|>",
    "<end_of_turn>", "<|EOT|>", "<|eot|>", "<|return|>", "<|call|>", "</s>", "<|endofprompt|>",
    "<\xef\xbd\x9c" "end\xe2\x96\x81" "of\xe2\x96\x81sentence\xef\xbd\x9c>"
};

enum { CODES_MAX = 0x144, VOCAB_BYTES_MAX = 1 << 30 };

/* GPT-2's alphabet: printable bytes stand for themselves, the others for U+0100 and on, in order. */
static void alphabet_fill(int16_t byte_of[CODES_MAX])
{
    int next = 0x100;

    for (int i = 0; i < CODES_MAX; i++)
        byte_of[i] = -1;
    for (int b = 0; b < 256; b++) {
        bool itself = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);

        byte_of[itself ? b : next++] = (int16_t)b;
    }
}

/* The bytes that a text in the alphabet stands for, into out (n bytes of room). A text with any other character stands
 * for itself, as the reference's decoder has it. Returns the count. */
static size_t alphabet_decode(const int16_t byte_of[CODES_MAX], const char *text, size_t n, char *out)
{
    size_t out_n = 0, i = 0;

    while (i < n) {
        uint32_t code = (unsigned char)text[i];
        int len = code < 0x80 ? 1 : utf8_char(text + i, n - i, &code);

        if (len <= 0 || code >= CODES_MAX || byte_of[code] < 0) {
            memcpy(out, text, n);
            return n;
        }
        out[out_n++] = (char)byte_of[code];
        i += (size_t)len;
    }
    return out_n;
}

static void index_init(struct text_index *x, size_t texts_max)
{
    size_t slots = 64;

    while (slots < 2 * texts_max)
        slots *= 2;
    x->slots = mem_take(slots * sizeof(*x->slots));
    x->mask = slots - 1;
    for (size_t i = 0; i < slots; i++)
        x->slots[i].token = -1;
}

/* -1: added. Else the token that is spelled so already. texts[token], bytes[token] give a token's spelling. */
static int32_t index_add(struct text_index *x, const char *const *texts, const size_t *bytes, int32_t token)
{
    uint64_t h = hash64(texts[token], bytes[token], 0);
    size_t i = (size_t)h & x->mask;

    for (; x->slots[i].token >= 0; i = (i + 1) & x->mask) {
        int32_t other = x->slots[i].token;

        if (x->slots[i].tag == (uint32_t)(h >> 32) && bytes[other] == bytes[token] &&
            memcmp(texts[other], texts[token], bytes[token]) == 0)
            return other;
    }
    x->slots[i] = (struct text_index_slot){ (uint32_t)(h >> 32), token };
    return -1;
}

static int32_t index_find(const struct text_index *x, const char *const *texts, const size_t *bytes,
                          const char *text, size_t n)
{
    uint64_t h = hash64(text, n, 0);

    for (size_t i = (size_t)h & x->mask; x->slots[i].token >= 0; i = (i + 1) & x->mask) {
        int32_t token = x->slots[i].token;

        if (x->slots[i].tag == (uint32_t)(h >> 32) && bytes[token] == n && memcmp(texts[token], text, n) == 0)
            return token;
    }
    return -1;
}

static bool text_is(const char *text, size_t n, const char *name)
{
    return strlen(name) == n && memcmp(text, name, n) == 0;
}

static bool ends_turn(const char *text, size_t n)
{
    for (size_t i = 0; i < sizeof(end_names) / sizeof(*end_names); i++) {
        if (text_is(text, n, end_names[i]))
            return true;
    }
    return false;
}

/* The kind a token is taken for. Some files call a control token user-defined, or even normal; taken at their word, any
 * user's text could end a turn or begin one. "</s>" and its like may be normal: they are ordinary words of code. */
static int token_kind(int kind, const char *text, size_t n)
{
    bool bars = n > 4 && memcmp(text, "<|", 2) == 0 && memcmp(text + n - 2, "|>", 2) == 0;

    if (kind == TOKEN_USER_DEFINED && (bars || ends_turn(text, n)))
        return TOKEN_CONTROL;
    if (kind == TOKEN_NORMAL && bars && ends_turn(text, n))
        return TOKEN_CONTROL;
    return kind;
}

static bool is_special(int kind)
{
    return kind == TOKEN_CONTROL || kind == TOKEN_UNKNOWN;
}

static status spec_check(const struct tokenizer_spec *spec, struct error *err)
{
    const int32_t ids[] = { spec->bos, spec->eos, spec->unknown };
    size_t total = 0;

    if (spec->model == NULL || strcmp(spec->model, "gpt2") != 0)
        return error_set(err, ST_REJECT, "unknown tokenizer model \"%s\"; known: gpt2", spec->model ? spec->model : "");
    if (spec->vocab_n < 1 || spec->merges_n < 0)
        return error_set(err, ST_REJECT, "the tokenizer has %d tokens and %d merges", spec->vocab_n, spec->merges_n);
    for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++) {
        if (ids[i] < -1 || ids[i] >= spec->vocab_n)
            return error_set(err, ST_REJECT, "the tokenizer names token %d as %s, but has %d tokens", ids[i],
                             i == 0 ? "bos" : i == 1 ? "eos" : "unknown", spec->vocab_n);
    }
    for (int32_t i = 0; i < spec->ends_n; i++)
        if (spec->ends[i] < 0 || spec->ends[i] >= spec->vocab_n)
            return error_set(err, ST_REJECT, "the tokenizer names token %d as an end, but has %d tokens", spec->ends[i],
                             spec->vocab_n);
    for (int32_t i = 0; i < spec->vocab_n; i++) {
        if (spec->kinds != NULL && (spec->kinds[i] < TOKEN_NORMAL || spec->kinds[i] > TOKEN_BYTE))
            return error_set(err, ST_REJECT, "token %d is of unknown kind %d", i, spec->kinds[i]);
        if (spec->tokens_bytes[i] > VOCAB_BYTES_MAX - total)
            return error_set(err, ST_REJECT, "the tokens' texts are longer than %d bytes", VOCAB_BYTES_MAX);
        total += spec->tokens_bytes[i];
    }
    return ST_OK;
}

static status rules_choose(struct tokenizer *t, const struct tokenizer_spec *spec, struct error *err)
{
    struct buf names = BUF_EMPTY;

    t->rules = split_rules_find(spec->pre != NULL ? spec->pre : "");
    if (t->rules != NULL)
        return ST_OK;
    split_rules_names(&names);
    error_set(err, ST_REJECT, "unknown pre-tokenizer \"%s\" (tokenizer.ggml.pre); known: %s",
              spec->pre != NULL ? spec->pre : "", buf_text(&names));
    buf_fini(&names);
    return ST_REJECT;
}

/* The table of what each token stands for, and its kind. */
static void tokens_fill(struct tokenizer *t, const struct tokenizer_spec *spec)
{
    int16_t byte_of[CODES_MAX];
    size_t total = 0, at = 0;

    alphabet_fill(byte_of);
    for (int32_t i = 0; i < spec->vocab_n; i++)
        total += spec->tokens_bytes[i];
    t->vocab_n = spec->vocab_n;
    t->bytes = mem_take(total + 1);
    t->at = mem_take(((size_t)t->vocab_n + 1) * sizeof(*t->at));
    t->kinds = mem_take_zero((size_t)t->vocab_n, sizeof(*t->kinds));
    t->ends = mem_take_zero((size_t)t->vocab_n, sizeof(*t->ends));
    for (int32_t i = 0; i < t->vocab_n; i++) {
        const char *text = spec->tokens[i];
        size_t n = spec->tokens_bytes[i];
        int kind = token_kind(spec->kinds != NULL ? spec->kinds[i] : TOKEN_NORMAL, text, n);

        t->kinds[i] = (uint8_t)kind;
        t->ends[i] = i == spec->eos || (is_special(kind) && ends_turn(text, n));
        t->at[i] = (uint32_t)at;
        if (is_special(kind) || kind == TOKEN_USER_DEFINED) {
            memcpy(t->bytes + at, text, n);
            at += n;
        } else {
            at += alphabet_decode(byte_of, text, n, t->bytes + at);
        }
    }
    t->at[t->vocab_n] = (uint32_t)at;
    for (int32_t i = 0; i < spec->ends_n; i++)
        t->ends[spec->ends[i]] = true;
}

static status added_fill(struct tokenizer *t, struct error *err)
{
    struct added_token *tokens;
    size_t n = 0;

    for (int32_t i = 0; i < t->vocab_n; i++)
        n += is_special(t->kinds[i]) || t->kinds[i] == TOKEN_USER_DEFINED;
    tokens = mem_take_zero(n + 1, sizeof(*tokens));
    n = 0;
    for (int32_t i = 0; i < t->vocab_n; i++) {
        uint32_t bytes = t->at[i + 1] - t->at[i];

        if ((!is_special(t->kinds[i]) && t->kinds[i] != TOKEN_USER_DEFINED) || bytes == 0)
            continue;
        if (bytes > ADDED_BYTES_MAX) {
            free(tokens);
            return error_set(err, ST_REJECT, "added token %d is of %u bytes; at most %d", i, bytes, ADDED_BYTES_MAX);
        }
        tokens[n++] = (struct added_token){ t->bytes + t->at[i], bytes, i, is_special(t->kinds[i]) };
    }
    added_init(&t->added, tokens, n);
    return ST_OK;
}

static status texts_index(const struct tokenizer *t, const struct tokenizer_spec *spec, struct text_index *x,
                          struct error *err)
{
    index_init(x, (size_t)t->vocab_n);
    for (int32_t i = 0; i < t->vocab_n; i++) {
        int32_t other = index_add(x, spec->tokens, spec->tokens_bytes, i);

        if (other >= 0 && t->kinds[i] == TOKEN_NORMAL && t->kinds[other] == TOKEN_NORMAL)
            return error_set(err, ST_REJECT, "tokens %d and %d have the same text", other, i);
    }
    return ST_OK;
}

static status bytes_fill(struct tokenizer *t, const struct tokenizer_spec *spec, const struct text_index *x,
                         struct error *err)
{
    int16_t byte_of[CODES_MAX];

    alphabet_fill(byte_of);
    for (uint32_t code = 0; code < CODES_MAX; code++) {
        char text[4];
        int32_t token;

        if (byte_of[code] < 0)
            continue;
        token = index_find(x, spec->tokens, spec->tokens_bytes, text, (size_t)utf8_put(text, code));
        if (token >= 0 && is_special(t->kinds[token]))
            return error_set(err, ST_REJECT, "token %d is both a control token and the byte 0x%02x", token,
                             byte_of[code]);
        t->bpe.byte_token[byte_of[code]] = token;
    }
    return ST_OK;
}

/* Merge i: "left right" gives two tokens whose texts, joined, are a third. *guess is likely that third, since most files
 * number the tokens in the order of the merges. */
static status merge_add(struct tokenizer *t, const struct tokenizer_spec *spec, const struct text_index *x, int32_t i,
                        int32_t *guess, struct buf *joined, struct error *err)
{
    const char *text = spec->merges[i], *space = memchr(text, ' ', spec->merges_bytes[i]);
    size_t n = spec->merges_bytes[i], left_n, right_n;
    int32_t left, right, result;

    if (space == NULL || space == text || space == text + n - 1 || memchr(space + 1, ' ', n - (size_t)(space - text) - 1))
        return error_set(err, ST_REJECT, "merge %d is not two tokens with a space between them", i);
    left_n = (size_t)(space - text);
    right_n = n - left_n - 1;
    left = index_find(x, spec->tokens, spec->tokens_bytes, text, left_n);
    right = index_find(x, spec->tokens, spec->tokens_bytes, space + 1, right_n);
    buf_reset(joined);
    buf_add(joined, text, left_n);
    buf_add(joined, space + 1, right_n);
    if (*guess < spec->vocab_n && spec->tokens_bytes[*guess] == joined->n &&
        memcmp(spec->tokens[*guess], joined->data, joined->n) == 0 && t->kinds[*guess] == TOKEN_NORMAL)
        result = *guess;
    else
        result = index_find(x, spec->tokens, spec->tokens_bytes, joined->data, joined->n);
    if (left < 0 || right < 0 || result < 0)
        return error_set(err, ST_REJECT, "merge %d joins or makes a text that is no token", i);
    *guess = result + 1;
    /* No text but the template's own may become a control token, so a merge that would make one is left out. */
    if (!is_special(t->kinds[result]))
        bpe_pair_add(&t->bpe, left, right, i, result);
    return ST_OK;
}

static status merges_fill(struct tokenizer *t, const struct tokenizer_spec *spec, struct error *err)
{
    struct text_index x = { NULL, 0 };
    struct buf joined = BUF_EMPTY;
    int32_t guess = 0;
    status st;

    TRY(texts_index(t, spec, &x, err));
    bpe_init(&t->bpe, spec->merges_n);
    TRY(bytes_fill(t, spec, &x, err));
    for (int32_t i = 0; i < spec->merges_n; i++)
        TRY(merge_add(t, spec, &x, i, &guess, &joined, err));
out:
    buf_fini(&joined);
    free(x.slots);
    return st;
}

static bool token_ordinary(const struct tokenizer *t, int32_t token)
{
    return !is_special(t->kinds[token]) && t->kinds[token] != TOKEN_USER_DEFINED && t->at[token] < t->at[token + 1];
}

static void words_fill(struct tokenizer *t)
{
    const struct text_index *x = &t->words;

    index_init(&t->words, (size_t)t->vocab_n);
    for (int32_t i = 0; i < t->vocab_n; i++) {
        uint64_t h;
        size_t slot;

        /* Of two tokens with the same bytes (one spelled outside the alphabet) the first is found. */
        if (!token_ordinary(t, i) || t->kinds[i] == TOKEN_UNUSED ||
            tokenizer_word(t, t->bytes + t->at[i], t->at[i + 1] - t->at[i]) >= 0)
            continue;
        h = hash64(t->bytes + t->at[i], t->at[i + 1] - t->at[i], 0);
        for (slot = (size_t)h & x->mask; x->slots[slot].token >= 0;)
            slot = (slot + 1) & x->mask;
        x->slots[slot] = (struct text_index_slot){ (uint32_t)(h >> 32), i };
    }
}

int32_t tokenizer_word(const struct tokenizer *t, const char *bytes, size_t n)
{
    uint64_t h = hash64(bytes, n, 0);

    for (size_t i = (size_t)h & t->words.mask; t->words.slots[i].token >= 0; i = (i + 1) & t->words.mask) {
        int32_t token = t->words.slots[i].token;

        if (t->words.slots[i].tag == (uint32_t)(h >> 32) && t->at[token + 1] - t->at[token] == n &&
            memcmp(t->bytes + t->at[token], bytes, n) == 0)
            return token;
    }
    return -1;
}

/* Everything that decides about ids, and a name for the rules of this code. */
static struct hash128 tables_hash(const struct tokenizer *t, const struct tokenizer_spec *spec)
{
    struct hasher *h = hasher_open();
    const int32_t ids[] = { t->vocab_n, t->bos, t->eos, t->add_bos, t->add_eos, spec->merges_n };

    hasher_add(h, "bpe 1 ", 6);
    hasher_add(h, t->rules->names, (size_t)(strchr(t->rules->names, ' ') - t->rules->names));
    hasher_add(h, ids, sizeof(ids));
    hasher_add(h, t->at, ((size_t)t->vocab_n + 1) * sizeof(*t->at));
    hasher_add(h, t->bytes, t->at[t->vocab_n]);
    hasher_add(h, t->kinds, (size_t)t->vocab_n);
    hasher_add(h, t->bpe.byte_token, sizeof(t->bpe.byte_token));
    hasher_add(h, t->bpe.results, (size_t)spec->merges_n * sizeof(*t->bpe.results));
    hasher_add(h, t->bpe.pairs, (t->bpe.mask + 1) * sizeof(*t->bpe.pairs));
    return hasher_end(h);
}

status tokenizer_open(const struct tokenizer_spec *spec, struct tokenizer **out, struct error *err)
{
    struct tokenizer *t = NULL;
    status st;

    *out = NULL;
    TRY(spec_check(spec, err));
    t = mem_take_zero(1, sizeof(*t));
    TRY(rules_choose(t, spec, err));
    t->bos = spec->bos;
    t->eos = spec->eos;
    t->add_bos = spec->add_bos;
    t->add_eos = spec->add_eos;
    unicode_expand(t->classes);
    tokens_fill(t, spec);
    TRY(added_fill(t, err));
    TRY(merges_fill(t, spec, err));
    if (t->rules->ignore_merges)
        words_fill(t);
    t->hash = tables_hash(t, spec);
    *out = t;
    t = NULL;
out:
    tokenizer_close(t);
    return st;
}

void tokenizer_close(struct tokenizer *t)
{
    if (t == NULL)
        return;
    free(t->bytes);
    free(t->at);
    free(t->kinds);
    free(t->ends);
    free(t->words.slots);
    added_fini(&t->added);
    bpe_fini(&t->bpe);
    free(t);
}

int32_t tokenizer_vocab(const struct tokenizer *t)
{
    return t->vocab_n;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
    return t->add_bos;
}

static bool token_known(const struct tokenizer *t, int32_t token)
{
    return token >= 0 && token < t->vocab_n;
}

bool tokenizer_ends(const struct tokenizer *t, int32_t token)
{
    return token_known(t, token) && t->ends[token];
}

bool tokenizer_is_control(const struct tokenizer *t, int32_t token)
{
    return token_known(t, token) && is_special(t->kinds[token]);
}

int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t n)
{
    const struct added_token *added = added_find(&t->added, text, n);

    if (added != NULL)
        return added->token;
    for (int32_t i = 0; i < t->vocab_n; i++) {
        if (t->at[i + 1] - t->at[i] == n && token_ordinary(t, i) && memcmp(t->bytes + t->at[i], text, n) == 0)
            return i;
    }
    return -1;
}

struct hash128 tokenizer_hash(const struct tokenizer *t)
{
    return t->hash;
}

size_t tokenizer_bytes(const struct tokenizer *t, int32_t token, bool control, const char **bytes)
{
    *bytes = NULL;
    if (!token_known(t, token) || (!control && is_special(t->kinds[token])))
        return 0;
    *bytes = t->bytes + t->at[token];
    return t->at[token + 1] - t->at[token];
}
