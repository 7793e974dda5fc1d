/* worker/text/detok: broken characters, stop strings across token edges, what is held back and when it is let go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/support/small_vocab.h"
#include "worker/text/detok.h"

#define FFFD "\xef\xbf\xbd"

static struct small_vocab vocab;
static struct tokenizer *tokenizer;
static int32_t end_token;
static uint64_t random_state = 7;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % n;
}

/* Tokens that cut characters in every way: pieces of valid ones, and bytes at random. */
static int vocab_setup(void **state)
{
    static const char chars[] = "ab\xc3\xa9" "a\xe4\xb8\x96" "b\xf0\x9f\x98\x80" "aab\xed\x9f\xbf\xf4\x8f\xbf\xbf" "ab";

    (void)state;
    small_vocab_init(&vocab);
    for (size_t from = 0; from + 2 < sizeof(chars); from++) {
        for (size_t n = 2; n <= 6 && from + n < sizeof(chars); n++)
            small_vocab_add(&vocab, chars + from, n, TOKEN_NORMAL);
    }
    for (int i = 0; i < 300; i++) {
        char bytes[6];
        size_t n = 2 + random_below(5);

        for (size_t j = 0; j < n; j++)
            bytes[j] = (char)(random_below(4) == 0 ? random_below(256) : 0x80 + random_below(128));
        small_vocab_add(&vocab, bytes, n, TOKEN_UNUSED);
    }
    end_token = small_vocab_add_text(&vocab, "<|im_end|>", TOKEN_CONTROL);
    tokenizer = small_vocab_open(&vocab, "gpt2");
    return 0;
}

static int vocab_teardown(void **state)
{
    (void)state;
    tokenizer_close(tokenizer);
    small_vocab_fini(&vocab);
    return 0;
}

/* Each byte a token. Returns whether a stop string was complete. */
static bool feed(struct detok *d, const char *bytes, size_t n)
{
    bool stopped = false;

    for (size_t i = 0; i < n; i++)
        stopped = detok_add(d, (unsigned char)bytes[i]);
    return stopped;
}

static void assert_text(const struct detok *d, const char *text)
{
    assert_int_equal(d->shown_n, strlen(text));
    assert_memory_equal(d->text.data, text, d->shown_n);
}

static void test_broken(void **state)
{
    /* The first is table 3-8 of the Unicode standard, section 3.9. */
    static const struct { const char *bytes, *text; } cases[] = {
        { "\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64", "a" FFFD FFFD FFFD "b" FFFD "c" FFFD FFFD "d" },
        { "\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A" },
        { "\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A" },
        { "\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", FFFD FFFD FFFD FFFD FFFD "A" FFFD FFFD "B" },
        { "\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", FFFD FFFD FFFD FFFD "A" },
        { "\xe2\x82\xac\xe2\x82", "\xe2\x82\xac" FFFD },
        { "\xf0\x9f\x98", FFFD },
        { "\xf0\x9f\x98\xc3\xa9", FFFD "\xc3\xa9" },
        { "\xc3", FFFD },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct detok d;

        detok_init(&d, tokenizer, NULL, false);
        assert_false(feed(&d, cases[i].bytes, strlen(cases[i].bytes)));
        detok_end(&d);
        assert_text(&d, cases[i].text);
        detok_fini(&d);
    }
}

static void test_waits_for_the_rest(void **state)
{
    struct detok d;

    (void)state;
    detok_init(&d, tokenizer, NULL, false);
    feed(&d, "a\xf0\x9f\x98", 4);
    assert_text(&d, "a");
    feed(&d, "\x80", 1);
    assert_text(&d, "a\xf0\x9f\x98\x80");
    feed(&d, "\xf0\x9f", 2);
    assert_text(&d, "a\xf0\x9f\x98\x80");
    feed(&d, "x", 1);
    assert_text(&d, "a\xf0\x9f\x98\x80" FFFD "x");
    detok_end(&d);
    assert_text(&d, "a\xf0\x9f\x98\x80" FFFD "x");
    detok_fini(&d);
}

static void test_control(void **state)
{
    struct detok d;

    (void)state;
    for (int shown = 0; shown < 2; shown++) {
        detok_init(&d, tokenizer, NULL, shown == 1);
        detok_add(&d, 'a');
        detok_add(&d, end_token);
        detok_add(&d, 'b');
        detok_add(&d, -1);
        detok_add(&d, vocab.spec.vocab_n);
        detok_end(&d);
        assert_text(&d, shown == 1 ? "a<|im_end|>b" : "ab");
        detok_fini(&d);
    }
}

static struct stop_set stops_of(const char *const *stops, size_t *bytes, size_t n, bool include)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = strlen(stops[i]);
    return (struct stop_set){ stops, bytes, n, include };
}

static void test_stop_held_and_flushed(void **state)
{
    static const char *const stops[] = { "END", "\n\n" };
    size_t bytes[2];
    struct stop_set set = stops_of(stops, bytes, 2, false);
    struct detok d;

    (void)state;
    detok_init(&d, tokenizer, &set, false);
    assert_false(feed(&d, "abEN", 4));
    assert_text(&d, "ab");
    assert_false(feed(&d, "EN", 2));           /* "EN" is let go, the next may be the stop string */
    assert_text(&d, "abEN");
    assert_false(feed(&d, "x\n", 2));
    assert_text(&d, "abENENx");
    assert_true(feed(&d, "\n", 1));
    assert_text(&d, "abENENx");
    assert_true(feed(&d, "more", 4));
    assert_text(&d, "abENENx");
    detok_end(&d);
    assert_text(&d, "abENENx");
    detok_fini(&d);

    detok_init(&d, tokenizer, &set, false);
    assert_false(feed(&d, "abEN", 4));
    detok_end(&d);                             /* never decided: it was no stop string */
    assert_text(&d, "abEN");
    detok_fini(&d);
}

static void test_stop_which_one(void **state)
{
    static const char *const stops[] = { "bc", "abcd", "abc", "c" };
    static const char *const replacement[] = { FFFD "x", "y" FFFD };
    size_t bytes[4];
    struct stop_set set = stops_of(stops, bytes, 4, false);
    struct detok d;
    int32_t token;

    (void)state;
    /* All but "abcd" end at the c: the one that begins first wins, although the token goes on. */
    token = tokenizer_find(tokenizer, "ab", 2);
    assert_true(token >= 256);
    detok_init(&d, tokenizer, &set, false);
    assert_false(detok_add(&d, 'x'));
    assert_false(detok_add(&d, token));
    assert_true(detok_add(&d, 'c'));
    assert_text(&d, "x");
    detok_fini(&d);
    set.include = true;
    detok_init(&d, tokenizer, &set, false);
    assert_true(feed(&d, "xabc", 4));
    assert_text(&d, "xabc");
    detok_fini(&d);
    /* U+FFFD is text like any other, also the one that the end makes. */
    set = stops_of(replacement, bytes, 2, false);
    detok_init(&d, tokenizer, &set, false);
    assert_true(feed(&d, "a\xffx", 3));
    assert_text(&d, "a");
    detok_fini(&d);
    detok_init(&d, tokenizer, &set, false);
    assert_false(feed(&d, "ay\xf0\x9f", 4));
    assert_text(&d, "a");
    detok_end(&d);
    assert_text(&d, "a");
    assert_true(d.stopped);
    detok_fini(&d);
}

/* ---- against an oracle that knows the whole text ---- */

enum { RUN_TOKENS = 40, RUN_BYTES = 4096 };

struct whole { char text[3 * RUN_BYTES]; size_t n; };

static void whole_put(struct whole *w, const char *bytes, size_t n)
{
    memcpy(w->text + w->n, bytes, n);
    w->n += n;
}

/* Decodes by table 3-7 of the Unicode standard: ranges of the second byte for each first byte. */
static void whole_decode(struct whole *w, const unsigned char *p, size_t n)
{
    static const struct { int first, last, low, high, more; } rows[] = {
        { 0x00, 0x7f, 0, 0, 0 }, { 0xc2, 0xdf, 0x80, 0xbf, 1 }, { 0xe0, 0xe0, 0xa0, 0xbf, 2 },
        { 0xe1, 0xec, 0x80, 0xbf, 2 }, { 0xed, 0xed, 0x80, 0x9f, 2 }, { 0xee, 0xef, 0x80, 0xbf, 2 },
        { 0xf0, 0xf0, 0x90, 0xbf, 3 }, { 0xf1, 0xf3, 0x80, 0xbf, 3 }, { 0xf4, 0xf4, 0x80, 0x8f, 3 },
    };
    size_t i = 0;

    w->n = 0;
    while (i < n) {
        size_t len = 1;
        int row = 0;

        while (row < 9 && !(p[i] >= rows[row].first && p[i] <= rows[row].last))
            row++;
        while (row < 9 && len <= (size_t)rows[row].more && i + len < n &&
               p[i + len] >= (len == 1 ? rows[row].low : 0x80) && p[i + len] <= (len == 1 ? rows[row].high : 0xbf))
            len++;
        if (row < 9 && len == 1 + (size_t)rows[row].more)
            whole_put(w, (const char *)p + i, len);
        else
            whole_put(w, FFFD, 3);
        i += len;
    }
}

/* Cuts the text at the stop string that ends first. */
static bool whole_stop(struct whole *w, const struct stop_set *set)
{
    for (size_t end = 1; end <= w->n; end++) {
        size_t longest = 0;

        for (size_t i = 0; i < set->stops_n; i++) {
            size_t n = set->stops_bytes[i];

            if (n <= end && n > longest && memcmp(w->text + end - n, set->stops[i], n) == 0)
                longest = n;
        }
        if (longest > 0) {
            w->n = set->include ? end : end - longest;
            return true;
        }
    }
    return false;
}

/* How much of the text's end may be the beginning of a stop string. */
static size_t whole_held(const struct whole *w, const struct stop_set *set)
{
    size_t held = 0;

    for (size_t i = 0; i < set->stops_n; i++) {
        for (size_t n = set->stops_bytes[i]; n-- > 1;) {
            if (n <= w->n && n > held && memcmp(w->text + w->n - n, set->stops[i], n) == 0)
                held = n;
        }
    }
    return held;
}

/* Bytes at the end that may be the beginning of a character. */
static size_t part_bytes(const unsigned char *p, size_t n)
{
    for (size_t k = 3; k > 0; k--) {
        struct whole cut, filled;
        unsigned char more[8];

        if (k > n || p[n - k] < 0xc2 || p[n - k] > 0xf4)
            continue;
        memcpy(more, p + n - k, k);
        whole_decode(&cut, more, k);
        /* Some continuation makes one character of it, that is: it is one U+FFFD now and none with the right bytes. */
        for (int second = 0x80; second <= 0xbf; second++) {
            size_t len = more[0] < 0xe0 ? 2 : more[0] < 0xf0 ? 3 : 4;

            if (k >= len)
                break;
            if (k == 1)
                more[1] = (unsigned char)second;
            for (size_t j = k == 1 ? 2 : k; j < len; j++)
                more[j] = 0x80;
            whole_decode(&filled, more, len);
            if (filled.n == len && memcmp(filled.text, more, len) == 0)
                return k;
        }
    }
    return 0;
}

static void random_stops(struct stop_set *set, const char **texts, size_t *bytes, size_t n)
{
    static const char *const pool[] = {
        "a", "ab", "aab", "abab", "ba", "aaab", "\xc3\xa9", "\xc3\xa9" "a", "b\xf0\x9f\x98\x80", FFFD, FFFD FFFD "a",
        "a\xe4\xb8\x96", "\xe4\xb8\x96" "b\xf0\x9f\x98\x80" "aab", "bb", "bba", "abba", "a" FFFD "b", "b"
    };

    for (size_t i = 0; i < n; i++) {
        texts[i] = pool[random_below(sizeof(pool) / sizeof(*pool))];
        bytes[i] = strlen(texts[i]);
    }
    *set = (struct stop_set){ texts, bytes, n, random_below(2) == 1 };
}

static void run_random(void)
{
    const char *texts[4];
    size_t bytes[4], raw_n = 0, shown_n = 0;
    unsigned char raw[RUN_BYTES];
    char shown[3 * RUN_BYTES];
    struct stop_set set;
    static struct whole expected;
    bool stops = false;
    struct detok d;

    random_stops(&set, texts, bytes, random_below(5));
    detok_init(&d, tokenizer, &set, false);
    for (int i = 0; i < RUN_TOKENS; i++) {
        bool wild = random_below(8) == 0;
        int32_t token = (int32_t)(wild ? random_below((uint32_t)end_token) : random_below(3) == 0 ? 'a' + random_below(2)
                                       : 256 + random_below(90));
        const char *piece;
        size_t n = tokenizer_bytes(tokenizer, token, false, &piece), part;

        memcpy(raw + raw_n, piece, n);
        raw_n += n;
        assert_int_equal(detok_add(&d, token), (part = part_bytes(raw, raw_n), whole_decode(&expected, raw, raw_n - part),
                                                stops = whole_stop(&expected, &set)));
        /* What was shown stays, and no more is held back than must be. */
        assert_true(d.shown_n >= shown_n);
        assert_memory_equal(d.text.data, shown, shown_n);
        assert_int_equal(d.shown_n, expected.n - (stops ? 0 : whole_held(&expected, &set)));
        if (d.shown_n > 0)
            memcpy(shown, d.text.data, shown_n = d.shown_n);
        if (stops)
            break;
    }
    detok_end(&d);
    whole_decode(&expected, raw, raw_n);
    stops = whole_stop(&expected, &set);
    assert_int_equal(d.stopped, stops);
    assert_int_equal(d.shown_n, expected.n);
    assert_int_equal(d.text.n, expected.n);
    if (expected.n > 0)
        assert_memory_equal(d.text.data, expected.text, expected.n);
    detok_fini(&d);
}

static void test_random(void **state)
{
    (void)state;
    for (int i = 0; i < 3000; i++)
        run_random();
}

/* ---- cost ---- */

static int64_t hostile_ns(size_t n)
{
    char stop[64];
    const char *stops[] = { stop };
    size_t bytes[1];
    struct stop_set set;
    int64_t best = INT64_MAX;

    memset(stop, 'a', sizeof(stop));
    stop[62] = 'b';
    stop[63] = '\0';
    set = stops_of(stops, bytes, 1, false);
    for (int i = 0; i < 3; i++) {
        struct detok d;
        int64_t start = clock_thread_cpu_ns(), took;

        detok_init(&d, tokenizer, &set, false);
        for (size_t j = 0; j < n; j++)
            detok_add(&d, 'a');
        detok_fini(&d);
        took = clock_thread_cpu_ns() - start;
        best = took < best ? took : best;
    }
    return best;
}

static void test_linear(void **state)
{
    int64_t one = hostile_ns(100000), four = hostile_ns(400000);

    (void)state;
    assert_true(four < 10 * one);              /* quadratic would be 16 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_waits_for_the_rest),
        cmocka_unit_test(test_control),
        cmocka_unit_test(test_stop_held_and_flushed),
        cmocka_unit_test(test_stop_which_one),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_linear),
    };

    return cmocka_run_group_tests(tests, vocab_setup, vocab_teardown);
}
