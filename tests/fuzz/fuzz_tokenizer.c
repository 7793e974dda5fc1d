/* Any bytes as text, under each pre-tokenizer. Byte 0 chooses the pre-tokenizer, byte 1 how the text is cut into spans.
 * What must hold: a text that is not UTF-8 is refused; the tokens of a plain text spell it, none of them is a control
 * token, and cutting it into spans changes nothing; between two control tokens of the template a text has the tokens it
 * has alone; trusted text spells itself; what the detokenizer shows is always valid, final and free of stop strings. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tests/support/small_vocab.h"
#include "worker/text/detok.h"
#include "worker/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PRES = 4, QWEN2 = 3, SPANS_MAX = 64 };

static struct small_vocab vocab;
static struct tokenizer *tokenizers[PRES];
static struct encoder *encoders[PRES];
static int32_t start_token;

struct tokens { int32_t *ids; size_t n; };

static void vocab_make(void)
{
    static const char *const merges[][2] = {
        { " ", " " }, { "  ", "  " }, { "\n", "\n" }, { "\r", "\n" }, { "t", "h" }, { "th", "e" }, { " ", "the" }, { "a", "a" },
        { "aa", "aa" }, { "aaaa", "aaaa" }, { "'", "s" }, { "1", "2" }, { "12", "3" }, { "<", "|" }, { "|", ">" }, { "<|", "a" },
        { "\xc3", "\xa9" }, { "\xcc", "\x81" }, { "e", "\xcc\x81" }, { "\xf0\x9f", "\x98" }, { "!", "!" }, { " ", "\xc3\xa9" },
        { "#", "#" }, { "##", "#" }
    };
    static const char *const pres[PRES] = { "gpt2", "smollm", "llama-bpe", "qwen2" };

    small_vocab_init(&vocab);
    small_vocab_add_text(&vocab, "\xf0\x9f", TOKEN_NORMAL);
    for (size_t i = 0; i < sizeof(merges) / sizeof(*merges); i++)
        small_vocab_merge(&vocab, merges[i][0], merges[i][1]);
    vocab.kinds[vocab.spec.vocab_n - 1] = TOKEN_CONTROL;       /* ###: no merge may make it */
    start_token = small_vocab_add_text(&vocab, "<|a|>", TOKEN_CONTROL);
    small_vocab_add_text(&vocab, "<|a|>b", TOKEN_CONTROL);
    small_vocab_add_text(&vocab, "<t>", TOKEN_USER_DEFINED);
    small_vocab_add_text(&vocab, "\t\t", TOKEN_USER_DEFINED);
    small_vocab_add_text(&vocab, "\xc3\xa9\xc3\xa9", TOKEN_USER_DEFINED);
    for (int i = 0; i < PRES; i++) {
        tokenizers[i] = small_vocab_open(&vocab, pres[i]);
        encoders[i] = encoder_open(tokenizers[i]);
    }
}

/* A copy of the tokens, since the encoder's die with its next call. */
static struct tokens encode(int pre, const struct text_span *spans, size_t spans_n)
{
    struct tokens out;
    const int32_t *ids;

    ASSERT(encoder_encode(encoders[pre], spans, spans_n, &ids, &out.n) == ST_OK);
    out.ids = mem_take((out.n + 1) * sizeof(*ids));
    if (out.n > 0)
        memcpy(out.ids, ids, out.n * sizeof(*ids));
    for (size_t i = 0; i < out.n; i++)
        ASSERT(out.ids[i] >= 0 && out.ids[i] < tokenizer_vocab(tokenizers[pre]));
    return out;
}

static void tokens_same(const struct tokens *a, const int32_t *ids, size_t n)
{
    ASSERT(a->n == n && (n == 0 || memcmp(a->ids, ids, n * sizeof(*ids)) == 0));
}

static bool text_low(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)text[i] >= 0xcc)
            return false;                      /* U+0300 and above: NFC may change it */
    }
    return true;
}

/* Shows the tokens one by one; the whole is what their bytes are. */
static void detok_all(int pre, const struct tokens *t, const struct stop_set *stop, struct buf *out)
{
    struct detok d;
    size_t shown = 0;

    detok_init(&d, tokenizers[pre], stop, true);
    for (size_t i = 0; i < t->n; i++) {
        detok_add(&d, t->ids[i]);
        ASSERT(d.shown_n >= shown);
        if (d.shown_n > shown)
            ASSERT(utf8_valid(d.text.data + shown, d.shown_n - shown) == d.shown_n - shown);
        shown = d.shown_n;
    }
    detok_end(&d);
    ASSERT(d.shown_n == d.text.n && d.shown_n >= shown);
    buf_reset(out);
    buf_add(out, d.text.data, d.text.n);
    detok_fini(&d);
}

static void check_plain(int pre, const char *text, size_t n, const struct tokens *whole)
{
    struct text_span span;
    struct tokens again;
    struct buf back = BUF_EMPTY, twice = BUF_EMPTY;
    bool added = false;

    for (size_t i = 0; i < whole->n; i++) {
        ASSERT(!tokenizer_is_control(tokenizers[pre], whole->ids[i]));
        added |= whole->ids[i] > start_token;
    }
    detok_all(pre, whole, NULL, &back);
    if (pre != QWEN2 || text_low(text, n))
        ASSERT(back.n == n && (n == 0 || memcmp(back.data, text, n) == 0));
    span = (struct text_span){ back.data, back.n, TEXT_PLAIN };
    again = encode(pre, &span, 1);
    detok_all(pre, &again, NULL, &twice);
    /* Normalising twice is normalising once; but what stands beside an added token is normalised without it. */
    ASSERT((pre == QWEN2 && added) || (twice.n == back.n && (twice.n == 0 || memcmp(twice.data, back.data, twice.n) == 0)));
    free(again.ids);
    buf_fini(&back);
    buf_fini(&twice);
}

static void check_spans(int pre, const char *text, size_t n, unsigned cut, const struct tokens *whole)
{
    struct text_span spans[SPANS_MAX], sandwich[3];
    size_t spans_n = 0, at = 0;
    struct tokens cut_up, between;

    while (at < n || spans_n == 0) {
        size_t len = spans_n + 1 == SPANS_MAX ? n - at : cut % 23;

        cut = cut * 5 + 7;
        if (len > n - at)
            len = n - at;
        spans[spans_n++] = (struct text_span){ text + at, len, TEXT_PLAIN };
        at += len;
        if (spans_n == SPANS_MAX)
            break;
    }
    cut_up = encode(pre, spans, spans_n);
    tokens_same(&cut_up, whole->ids, whole->n);
    free(cut_up.ids);
    sandwich[0] = sandwich[2] = (struct text_span){ "<|a|>", 5, TEXT_TRUSTED };
    sandwich[1] = (struct text_span){ text, n, TEXT_PLAIN };
    between = encode(pre, sandwich, 3);
    ASSERT(between.n == whole->n + 2 && between.ids[0] == start_token && between.ids[between.n - 1] == start_token);
    tokens_same(whole, between.ids + 1, whole->n);
    free(between.ids);
}

static void check_trusted(int pre, const char *text, size_t n)
{
    struct text_span span = { text, n, TEXT_TRUSTED };
    struct tokens t = encode(pre, &span, 1);
    struct buf back = BUF_EMPTY;

    detok_all(pre, &t, NULL, &back);
    if (pre != QWEN2 || text_low(text, n))
        ASSERT(back.n == n && (n == 0 || memcmp(back.data, text, n) == 0));
    buf_fini(&back);
    free(t.ids);
}

/* The text's own second half as a stop string: it ends the text before its first occurrence. */
static void check_stop(int pre, const char *text, size_t n, const struct tokens *whole)
{
    size_t from = n / 2, len;
    const char *stop;
    struct stop_set set = { &stop, &len, 1, false };
    struct buf back = BUF_EMPTY;

    while (from < n && ((unsigned char)text[from] & 0xc0) == 0x80)
        from++;
    stop = text + from;
    len = n - from;
    if (len == 0 || (pre == QWEN2 && !text_low(text, n)))
        return;
    detok_all(pre, whole, &set, &back);
    ASSERT(back.n <= from && (back.n == 0 || memcmp(back.data, text, back.n) == 0));
    ASSERT(memcmp(text + back.n, stop, len) == 0);
    for (size_t i = 0; i < back.n; i++)
        ASSERT(memcmp(text + i, stop, len) != 0);
    buf_fini(&back);
}

static void check_text(int pre, const char *text, size_t n, unsigned cut)
{
    struct text_span span = { text, n, TEXT_PLAIN };
    struct tokens whole = encode(pre, &span, 1);

    check_plain(pre, text, n, &whole);
    check_spans(pre, text, n, cut, &whole);
    check_trusted(pre, text, n);
    check_stop(pre, text, n, &whole);
    free(whole.ids);
}

/* Refused as it is; what is left without the bytes that are wrong is a text to check. */
static void check_invalid(int pre, const char *text, size_t n, unsigned cut)
{
    struct text_span span = { text, n, TEXT_PLAIN };
    struct buf valid = BUF_EMPTY;
    const int32_t *ids;
    size_t ids_n;

    ASSERT(encoder_encode(encoders[pre], &span, 1, &ids, &ids_n) == ST_REJECT && ids_n == 0);
    while (n > 0) {
        size_t good = utf8_valid(text, n);

        buf_add(&valid, text, good);
        good += good < n;
        text += good;
        n -= good;
    }
    check_text(pre, buf_text(&valid), valid.n, cut);
    buf_fini(&valid);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data + 2;

    if (size < 2 || size > 1 << 16)
        return 0;
    if (tokenizers[0] == NULL)
        vocab_make();
    if (utf8_valid(text, size - 2) == size - 2)
        check_text(data[0] % PRES, text, size - 2, data[1]);
    else
        check_invalid(data[0] % PRES, text, size - 2, data[1]);
    return 0;
}
