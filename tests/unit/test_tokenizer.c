/* worker/text/tokenizer: merges against a slow oracle, trust, joined spans, tables that are refused, hostile texts. What the
 * reference tokenizers say of real text is in tests/golden. */
#include <pthread.h>
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
#include "worker/text/tokenizer.h"

static uint64_t random_state = 3;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % n;
}

static struct text_span plain(const char *text)
{
    return (struct text_span){ text, strlen(text), TEXT_PLAIN };
}

static struct text_span trusted(const char *text)
{
    return (struct text_span){ text, strlen(text), TEXT_TRUSTED };
}

/* expected ends with -1. */
static void assert_tokens(struct encoder *e, const struct text_span *spans, size_t spans_n, const int32_t *expected)
{
    const int32_t *tokens;
    size_t n, expected_n = 0;

    while (expected[expected_n] >= 0)
        expected_n++;
    assert_int_equal(encoder_encode(e, spans, spans_n, &tokens, &n), ST_OK);
    assert_int_equal(n, expected_n);
    if (n > 0)
        assert_memory_equal(tokens, expected, n * sizeof(*tokens));
}

static void assert_text_tokens(struct encoder *e, const char *text, const int32_t *expected)
{
    struct text_span span = plain(text);

    assert_tokens(e, &span, 1, expected);
}

#define IDS(...) (const int32_t[]){ __VA_ARGS__, -1 }

static void test_merges(void **state)
{
    struct small_vocab v;
    struct tokenizer *t;
    struct encoder *e;
    int32_t lo, low, er, er2, slow;

    (void)state;
    small_vocab_init(&v);
    lo = small_vocab_merge(&v, "l", "o");
    low = small_vocab_merge(&v, "lo", "w");
    er = small_vocab_merge(&v, "e", "r");
    er2 = small_vocab_merge(&v, "er", "er");
    slow = small_vocab_add_text(&v, "slow", TOKEN_NORMAL);       /* a token that no merge makes */
    small_vocab_add_text(&v, "lzz", TOKEN_UNUSED);
    t = small_vocab_open(&v, "gpt2");
    e = encoder_open(t);
    assert_text_tokens(e, "lower", IDS(low, er));
    assert_text_tokens(e, "lol", IDS(lo, 'l'));
    assert_text_tokens(e, "ererer", IDS(er2, er));               /* the leftmost of equals first */
    assert_text_tokens(e, "slow", IDS('s', low));
    assert_text_tokens(e, "lower lower", IDS(low, er, ' ', low, er));
    assert_text_tokens(e, "l ower", IDS('l', ' ', 'o', 'w', er));
    assert_text_tokens(e, "", IDS(-1));
    assert_tokens(e, NULL, 0, IDS(-1));
    encoder_close(e);
    tokenizer_close(t);
    t = small_vocab_open(&v, "llama-bpe");                       /* ignore_merges */
    e = encoder_open(t);
    assert_text_tokens(e, "slow lower", IDS(slow, ' ', low, er));
    assert_text_tokens(e, "lzz", IDS('l', 'z', 'z'));
    encoder_close(e);
    tokenizer_close(t);
    small_vocab_fini(&v);
}

/* Words of one beginning, so that some that differ in their last letter alone fall on one slot of the word cache. */
static void test_word_cache(void **state)
{
    struct small_vocab v;
    struct tokenizer *t;
    struct encoder *e;

    (void)state;
    small_vocab_init(&v);
    t = small_vocab_open(&v, "gpt2");
    e = encoder_open(t);
    for (int start = 0; start < 26 * 26 * 4; start++) {
        for (char last = 'a'; last <= 'z'; last++) {
            char word[5] = { (char)('a' + start % 26), (char)('a' + start / 26 % 26), "abcd"[start / 676], last, '\0' };

            assert_text_tokens(e, word, IDS(word[0], word[1], word[2], word[3]));
        }
    }
    encoder_close(e);
    tokenizer_close(t);
    small_vocab_fini(&v);
}

/* ---- the order of merges, against an oracle that looks through all pairs before each merge ---- */

enum { ORACLE_TEXT_MAX = 64, ORACLE_MERGES = 120 };

struct oracle_merge { char left[16], right[16]; };

static void text_join(char out[32], const char *left, const char *right)
{
    size_t left_n = strlen(left), right_n = strlen(right);

    assert_true(left_n + right_n < 32);
    memcpy(out, left, left_n);
    memcpy(out + left_n, right, right_n + 1);
}

static size_t oracle_encode(struct small_vocab *v, const struct oracle_merge *merges, const char *word, int32_t *tokens)
{
    char symbol[ORACLE_TEXT_MAX][32];
    size_t n = strlen(word);

    for (size_t i = 0; i < n; i++) {
        symbol[i][0] = word[i];
        symbol[i][1] = '\0';
    }
    for (;;) {
        int best = ORACLE_MERGES;
        size_t at = 0;

        for (size_t i = 0; i + 1 < n; i++) {
            for (int m = 0; m < best; m++) {
                if (strcmp(merges[m].left, symbol[i]) == 0 && strcmp(merges[m].right, symbol[i + 1]) == 0) {
                    best = m;
                    at = i;
                }
            }
        }
        if (best == ORACLE_MERGES)
            break;
        text_join(symbol[at], merges[best].left, merges[best].right);
        memmove(symbol[at + 1], symbol[at + 2], (n - at - 2) * sizeof(symbol[0]));
        n--;
    }
    for (size_t i = 0; i < n; i++)
        tokens[i] = small_vocab_add(v, symbol[i], strlen(symbol[i]), TOKEN_NORMAL);
    return n;
}

static void random_merges(struct small_vocab *v, struct oracle_merge *merges)
{
    char known[ORACLE_MERGES + 3][32] = { "a", "b", "c" };
    int known_n = 3;

    for (int m = 0; m < ORACLE_MERGES; m++) {
        const char *left, *right;
        bool there;

        do {
            left = known[random_below((uint32_t)known_n)];
            right = known[random_below((uint32_t)known_n)];
            there = strlen(left) + strlen(right) > 12;
            for (int i = 0; i < m && !there; i++)
                there = strcmp(merges[i].left, left) == 0 && strcmp(merges[i].right, right) == 0;
        } while (there);
        memcpy(merges[m].left, left, strlen(left) + 1);
        memcpy(merges[m].right, right, strlen(right) + 1);
        small_vocab_merge(v, left, right);
        text_join(known[known_n++], merges[m].left, merges[m].right);
    }
}

static void test_merges_random(void **state)
{
    (void)state;
    for (int round = 0; round < 12; round++) {
        struct oracle_merge merges[ORACLE_MERGES];
        struct small_vocab v;
        struct tokenizer *t;
        struct encoder *e;
        int32_t vocab_n;

        small_vocab_init(&v);
        random_merges(&v, merges);
        vocab_n = v.spec.vocab_n;
        t = small_vocab_open(&v, "gpt2");
        e = encoder_open(t);
        for (int i = 0; i < 400; i++) {
            char word[ORACLE_TEXT_MAX];
            int32_t expected[ORACLE_TEXT_MAX + 1];
            size_t n = 1 + random_below(i % 4 == 0 ? ORACLE_TEXT_MAX - 1 : 9);

            for (size_t j = 0; j < n; j++)
                word[j] = "abc"[random_below(3)];
            word[n] = '\0';
            expected[oracle_encode(&v, merges, word, expected)] = -1;
            assert_text_tokens(e, word, expected);
        }
        assert_int_equal(v.spec.vocab_n, vocab_n);
        encoder_close(e);
        tokenizer_close(t);
        small_vocab_fini(&v);
    }
}

/* ---- trust ---- */

struct trust_case {
    struct small_vocab v;
    struct tokenizer *t;
    struct encoder *e;
    int32_t start, end, tool, tool_call, tabs;
};

static void trust_open(struct trust_case *c)
{
    small_vocab_init(&c->v);
    c->start = small_vocab_add_text(&c->v, "<|a|>", TOKEN_CONTROL);
    c->end = small_vocab_add_text(&c->v, "<|a|>b", TOKEN_CONTROL);
    c->tool = small_vocab_add_text(&c->v, "<t>", TOKEN_USER_DEFINED);
    c->tool_call = small_vocab_add_text(&c->v, "<t>!", TOKEN_CONTROL);
    c->tabs = small_vocab_add_text(&c->v, "\t\t", TOKEN_USER_DEFINED);
    c->t = small_vocab_open(&c->v, "gpt2");
    c->e = encoder_open(c->t);
}

static void trust_close(struct trust_case *c)
{
    encoder_close(c->e);
    tokenizer_close(c->t);
    small_vocab_fini(&c->v);
}

static void test_trust(void **state)
{
    struct trust_case c;
    struct text_span s[4];

    (void)state;
    trust_open(&c);
    s[0] = plain("<|a|>b<t>!");
    assert_tokens(c.e, s, 1, IDS('<', '|', 'a', '|', '>', 'b', c.tool, '!'));
    s[0] = trusted("<|a|>b<t>!<|a|>c");
    assert_tokens(c.e, s, 1, IDS(c.end, c.tool_call, c.start, 'c'));
    /* Two trusted spans spell one together, with empty spans between; a plain one in between, or at an end, does not. */
    s[0] = trusted("<|");
    s[1] = plain("");
    s[2] = trusted("a|>");
    assert_tokens(c.e, s, 3, IDS(c.start));
    s[1] = plain("a");
    s[2] = trusted("|>");
    assert_tokens(c.e, s, 3, IDS('<', '|', 'a', '|', '>'));
    s[0] = trusted("x<|a|");
    s[1] = plain(">");
    assert_tokens(c.e, s, 2, IDS('x', '<', '|', 'a', '|', '>'));
    s[0] = plain("<");
    s[1] = trusted("|a|>");
    assert_tokens(c.e, s, 2, IDS('<', '|', 'a', '|', '>'));
    /* The longest within the trusted text; the longer one would take the user's word in. */
    s[0] = trusted("<|a|>");
    s[1] = plain("b");
    assert_tokens(c.e, s, 2, IDS(c.start, 'b'));
    s[0] = trusted("<t>");
    s[1] = plain("!");
    assert_tokens(c.e, s, 2, IDS(c.tool, '!'));
    /* User-defined tokens are found across borders, as in the joined text. */
    s[0] = plain("\t");
    s[1] = trusted("\t");
    s[2] = plain("\t");
    assert_tokens(c.e, s, 3, IDS(c.tabs, '\t'));
    trust_close(&c);
}

static void test_wrong_kinds(void **state)
{
    struct small_vocab v;
    struct tokenizer *t;
    struct encoder *e;
    struct text_span span;
    int32_t end, bars, other, tag, tag_end, unknown;

    (void)state;
    small_vocab_init(&v);
    end = small_vocab_add_text(&v, "<|im_end|>", TOKEN_NORMAL);
    bars = small_vocab_add_text(&v, "<|x|>", TOKEN_USER_DEFINED);
    tag_end = small_vocab_add_text(&v, "<end_of_turn>", TOKEN_USER_DEFINED);
    tag = small_vocab_add_text(&v, "</s>", TOKEN_NORMAL);
    other = small_vocab_add_text(&v, "<|y|>", TOKEN_NORMAL);
    unknown = small_vocab_add_text(&v, "<unk>", TOKEN_UNKNOWN);
    t = small_vocab_open(&v, "llama-bpe");
    e = encoder_open(t);
    assert_true(tokenizer_is_control(t, end) && tokenizer_is_control(t, bars) && tokenizer_is_control(t, tag_end));
    assert_true(tokenizer_is_control(t, unknown));
    assert_false(tokenizer_is_control(t, tag) || tokenizer_is_control(t, other) || tokenizer_is_control(t, 'a'));
    assert_false(tokenizer_is_control(t, -1) || tokenizer_is_control(t, v.spec.vocab_n));
    assert_true(tokenizer_ends(t, end) && tokenizer_ends(t, tag_end));
    assert_false(tokenizer_ends(t, tag) || tokenizer_ends(t, bars) || tokenizer_ends(t, 'a') || tokenizer_ends(t, -1) ||
                 tokenizer_ends(t, v.spec.vocab_n));
    span = plain("<|im_end|><|x|><unk>");
    assert_tokens(e, &span, 1, IDS('<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>', '<', '|', 'x', '|', '>',
                                   '<', 'u', 'n', 'k', '>'));
    span = trusted("<|im_end|><|x|><end_of_turn><unk>");
    assert_tokens(e, &span, 1, IDS(end, bars, tag_end, unknown));
    encoder_close(e);
    tokenizer_close(t);
    small_vocab_fini(&v);
}

/* A merge that would make a control token of plain text is not applied. */
static void test_control_by_merge(void **state)
{
    struct small_vocab v;
    struct tokenizer *t;
    struct encoder *e;
    int32_t two;

    (void)state;
    small_vocab_init(&v);
    two = small_vocab_merge(&v, "#", "#");
    small_vocab_merge(&v, "##", "#");
    v.kinds[v.spec.vocab_n - 1] = TOKEN_CONTROL;
    t = small_vocab_open(&v, "llama-bpe");
    e = encoder_open(t);
    assert_text_tokens(e, "###", IDS(two, '#'));
    encoder_close(e);
    tokenizer_close(t);
    small_vocab_fini(&v);
}

/* Cutting a plain text into spans, anywhere, changes nothing; nor does trust, where no control token is spelled. */
static void test_joined(void **state)
{
    static const char text[] = "it's  h\xc3\xa9llo\t\t<t> 1234\r\n\r\n  w\xc3\xb6rld e\xcc\x81\xcc\xa7 \xf0\x9f\x98\x80!! <|a|";
    static const char *const pres[] = { "gpt2", "smollm", "llama-bpe", "qwen2" };
    struct trust_case c;

    (void)state;
    trust_open(&c);
    small_vocab_merge(&c.v, " ", "h");
    small_vocab_merge(&c.v, "l", "l");
    small_vocab_merge(&c.v, "\r", "\n");
    small_vocab_merge(&c.v, " ", " ");
    for (int p = 0; p < 4; p++) {
        struct tokenizer *t = small_vocab_open(&c.v, pres[p]);
        struct encoder *e = encoder_open(t);
        struct text_span whole = plain(text), spans[sizeof(text) + 8];
        const int32_t *tokens;
        int32_t expected[sizeof(text) + 1];
        size_t n;

        assert_int_equal(encoder_encode(e, &whole, 1, &tokens, &n), ST_OK);
        memcpy(expected, tokens, n * sizeof(*tokens));
        expected[n] = -1;
        for (int i = 0; i < 300; i++) {
            size_t spans_n = 0, at = 0;

            while (at < sizeof(text) - 1) {
                size_t len = random_below(12);

                if (len > sizeof(text) - 1 - at)
                    len = sizeof(text) - 1 - at;
                if (spans_n == sizeof(text))
                    len = sizeof(text) - 1 - at;
                spans[spans_n++] = (struct text_span){ text + at, len, random_below(2) ? TEXT_TRUSTED : TEXT_PLAIN };
                at += len;
            }
            assert_tokens(e, spans, spans_n, expected);
        }
        encoder_close(e);
        tokenizer_close(t);
    }
    trust_close(&c);
}

static void test_not_utf8(void **state)
{
    static const char *const bad[] = { "\x80", "a\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "ab\xe2\x82" };
    struct trust_case c;
    const int32_t *tokens;
    size_t n;

    (void)state;
    trust_open(&c);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct text_span span = trusted(bad[i]);

        assert_int_equal(encoder_encode(c.e, &span, 1, &tokens, &n), ST_REJECT);
        assert_int_equal(n, 0);
    }
    trust_close(&c);
}

/* One tokenizer, a thread's own encoder each (tsan watches). */
static void *thread_encode(void *arg)
{
    struct encoder *e = encoder_open(arg);
    struct text_span span = trusted("<|a|> it's e\xcc\x81\xcc\xa3 123\t\t<t>!");
    const int32_t *tokens;
    size_t n, first_n = 0;
    int32_t first[64];

    for (int i = 0; i < 200; i++) {
        if (encoder_encode(e, &span, 1, &tokens, &n) != ST_OK || n > 64)
            return NULL;
        if (i == 0)
            memcpy(first, tokens, (first_n = n) * sizeof(*first));
        if (n != first_n || memcmp(tokens, first, n * sizeof(*first)) != 0)
            return NULL;
    }
    encoder_close(e);
    return arg;
}

static void test_threads(void **state)
{
    struct trust_case c;
    struct tokenizer *t;
    pthread_t threads[4];

    (void)state;
    trust_open(&c);
    t = small_vocab_open(&c.v, "qwen2");
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread_encode, t), 0);
    for (int i = 0; i < 4; i++) {
        void *done;

        pthread_join(threads[i], &done);
        assert_ptr_equal(done, t);
    }
    tokenizer_close(t);
    trust_close(&c);
}

/* ---- normalisation ---- */

static void assert_nfc(struct encoder *e, const char *text, const char *normal)
{
    int32_t expected[256];
    size_t n = strlen(normal);

    for (size_t i = 0; i < n; i++)
        expected[i] = (unsigned char)normal[i];
    expected[n] = -1;
    assert_text_tokens(e, text, expected);
    assert_text_tokens(e, normal, expected);
}

static void test_nfc(void **state)
{
    struct small_vocab v;
    struct tokenizer *t;
    struct encoder *e;
    int32_t added;

    (void)state;
    small_vocab_init(&v);
    added = small_vocab_add_text(&v, "\xc3\xa9\xc3\xa9", TOKEN_USER_DEFINED);
    t = small_vocab_open(&v, "qwen2");
    e = encoder_open(t);
    assert_nfc(e, "xe\xcc\x81y", "x\xc3\xa9y");
    assert_nfc(e, "\xcc\x81" "e", "\xcc\x81" "e");
    assert_nfc(e, "q\xcc\x87\xcc\xa3", "q\xcc\xa3\xcc\x87");                    /* the lower mark first */
    assert_nfc(e, "\xe2\x84\xab\xe2\x84\xa6", "\xc3\x85\xce\xa9");              /* Angstrom, Ohm */
    assert_nfc(e, "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "\xea\xb0\x81");      /* Hangul */
    assert_nfc(e, "\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc");                  /* excluded from composition */
    /* Younger than the reference's data, so it stays, and stands between the letter and the accent. */
    assert_nfc(e, "a\xe0\xa2\x98\xcc\x81", "a\xe0\xa2\x98\xcc\x81");
    assert_nfc(e, "\xf0\x91\xa4\xb5\xf0\x91\xa4\xb0", "\xf0\x91\xa4\xb5\xf0\x91\xa4\xb0");
    /* Added tokens are cut out of the text as it is; what is left is normalised piece by piece. */
    assert_text_tokens(e, "e\xcc\x81\xc3\xa9\xc3\xa9\xcc\xa3x", IDS(0xc3, 0xa9, added, 0xcc, 0xa3, 'x'));
    assert_text_tokens(e, "e\xcc\x81" "e\xcc\x81", IDS(0xc3, 0xa9, 0xc3, 0xa9));
    encoder_close(e);
    tokenizer_close(t);
    small_vocab_fini(&v);
}

/* ---- what is refused, and how it is said ---- */

static void assert_refused(const struct small_vocab *v, const char *why)
{
    struct tokenizer *t = (struct tokenizer *)&t;
    struct error err = { "" };

    assert_int_equal(tokenizer_open(&v->spec, &t, &err), ST_REJECT);
    assert_null(t);
    if (strstr(err.text, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, why);
}

static void test_refused_spec(void **state)
{
    static const char *const unknown[] = { "gpt", "gpt2 ", "", " ", "gpt2 gpt-2", "default", "QWEN2", "llama-bp" };
    struct small_vocab v;

    (void)state;
    small_vocab_init(&v);
    for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown); i++) {
        v.spec.pre = unknown[i];
        assert_refused(&v, "known: gpt2 gpt-2");
        assert_refused(&v, "smollm llama-bpe llama3 llama-v3");
        assert_refused(&v, "qwen2 deepseek-r1-qwen");
    }
    v.spec.pre = NULL;
    assert_refused(&v, "unknown pre-tokenizer");
    v.spec.pre = "gpt2";
    v.spec.model = "llama";
    assert_refused(&v, "unknown tokenizer model \"llama\"");
    v.spec.model = NULL;
    assert_refused(&v, "unknown tokenizer model");
    v.spec.model = "gpt2";
    v.spec.bos = 256;
    assert_refused(&v, "token 256 as bos");
    v.spec.bos = -1;
    v.spec.eos = -2;
    assert_refused(&v, "token -2 as eos");
    v.spec.eos = -1;
    v.spec.vocab_n = 0;
    assert_refused(&v, "has 0 tokens");
    v.spec.vocab_n = 256;
    v.spec.merges_n = -1;
    assert_refused(&v, "-1 merges");
    v.spec.merges_n = 0;
    v.kinds[7] = 0;
    assert_refused(&v, "token 7 is of unknown kind 0");
    v.kinds[7] = 7;
    assert_refused(&v, "unknown kind 7");
    v.kinds[7] = TOKEN_CONTROL;
    assert_refused(&v, "the byte 0x07");
    v.kinds[7] = TOKEN_NORMAL;
    small_vocab_fini(&v);
}

static void test_refused_tables(void **state)
{
    static const char *const malformed[] = { "", " ", "ab", "a b ", " a b", "a  b", "a ", " b", "a b c" };
    struct small_vocab v;
    struct tokenizer *t;
    char *good, longest[1026];

    (void)state;
    small_vocab_init(&v);
    small_vocab_merge(&v, "a", "b");
    good = v.merges[0];
    for (size_t i = 0; i < sizeof(malformed) / sizeof(*malformed); i++) {
        v.merges[0] = (char *)malformed[i];
        v.merges_bytes[0] = strlen(malformed[i]);
        assert_refused(&v, "merge 0 is not two tokens");
    }
    v.merges[0] = (char *)"b a";
    v.merges_bytes[0] = 3;
    assert_refused(&v, "merge 0 joins or makes a text that is no token");
    v.merges[0] = (char *)"ab c";
    v.merges_bytes[0] = 4;
    assert_refused(&v, "merge 0 joins or makes");
    v.merges[0] = good;
    v.merges_bytes[0] = 3;
    v.tokens[256][0] = 'c';
    v.tokens_bytes[256] = 1;
    assert_refused(&v, "tokens 99 and 256 have the same text");
    v.tokens[256][0] = 'a';
    v.tokens_bytes[256] = 2;
    memset(longest, 'x', sizeof(longest));
    small_vocab_add(&v, longest, 1025, TOKEN_USER_DEFINED);
    assert_refused(&v, "added token 257 is of 1025 bytes; at most 1024");
    v.tokens_bytes[257] = 1024;
    t = small_vocab_open(&v, "gpt2");
    tokenizer_close(t);
    tokenizer_close(NULL);
    encoder_close(NULL);
    small_vocab_fini(&v);
}

/* ---- the rest of the header ---- */

static void test_find_and_bytes(void **state)
{
    struct trust_case c;
    const char *bytes;
    int32_t unused, outside;

    (void)state;
    trust_open(&c);
    unused = small_vocab_add_text(&c.v, "[PAD]", TOKEN_UNUSED);
    outside = small_vocab_add_text(&c.v, "\xc4\xa0 \xe4\xb8\x96", TOKEN_UNUSED);      /* a space is not in the alphabet */
    tokenizer_close(c.t);
    c.v.spec.bos = c.start;
    c.v.spec.eos = 'z';
    c.v.spec.ends[c.v.spec.ends_n++] = 'y';
    c.v.spec.add_bos = true;
    c.t = small_vocab_open(&c.v, "gpt2");
    assert_int_equal(tokenizer_vocab(c.t), c.v.spec.vocab_n);
    assert_int_equal(tokenizer_bos(c.t), c.start);
    assert_int_equal(tokenizer_eos(c.t), 'z');
    assert_true(tokenizer_adds_bos(c.t) && tokenizer_ends(c.t, 'z') && !tokenizer_is_control(c.t, 'z'));
    assert_true(tokenizer_ends(c.t, 'y') && !tokenizer_ends(c.t, 'x'));
    assert_int_equal(tokenizer_find(c.t, "<|a|>", 5), c.start);
    assert_int_equal(tokenizer_find(c.t, "<|a|>b", 6), c.end);
    assert_int_equal(tokenizer_find(c.t, "\t\t", 2), c.tabs);
    assert_int_equal(tokenizer_find(c.t, "\t", 1), '\t');
    assert_int_equal(tokenizer_find(c.t, "\xff", 1), 255);
    assert_int_equal(tokenizer_find(c.t, "[PAD]", 5), unused);
    assert_int_equal(tokenizer_find(c.t, "<|a|", 4), -1);
    assert_int_equal(tokenizer_find(c.t, "", 0), -1);
    assert_int_equal(tokenizer_bytes(c.t, c.start, true, &bytes), 5);
    assert_memory_equal(bytes, "<|a|>", 5);
    assert_int_equal(tokenizer_bytes(c.t, c.start, false, &bytes), 0);
    assert_int_equal(tokenizer_bytes(c.t, c.tool, false, &bytes), 3);
    assert_memory_equal(bytes, "<t>", 3);
    assert_int_equal(tokenizer_bytes(c.t, 0xad, false, &bytes), 1);
    assert_memory_equal(bytes, "\xad", 1);
    assert_int_equal(tokenizer_bytes(c.t, outside, true, &bytes), 6);
    assert_memory_equal(bytes, "\xc4\xa0 \xe4\xb8\x96", 6);
    assert_int_equal(tokenizer_bytes(c.t, -1, true, &bytes), 0);
    assert_int_equal(tokenizer_bytes(c.t, c.v.spec.vocab_n, true, &bytes), 0);
    trust_close(&c);
}

static struct hash128 hash_of(struct small_vocab *v, const char *pre)
{
    struct tokenizer *t = small_vocab_open(v, pre);
    struct hash128 h = tokenizer_hash(t);

    tokenizer_close(t);
    return h;
}

static bool hash_same(struct hash128 a, struct hash128 b)
{
    return a.high == b.high && a.low == b.low;
}

static void test_hash(void **state)
{
    struct small_vocab v;
    struct hash128 h;

    (void)state;
    small_vocab_init(&v);
    small_vocab_merge(&v, "a", "b");
    small_vocab_merge(&v, "b", "c");
    small_vocab_add_text(&v, "<t>", TOKEN_USER_DEFINED);
    h = hash_of(&v, "gpt2");
    assert_true(hash_same(h, hash_of(&v, "gpt-2")));
    assert_false(hash_same(h, hash_of(&v, "smollm")));
    v.spec.eos = 1;
    assert_false(hash_same(h, hash_of(&v, "gpt2")));
    v.spec.eos = -1;
    v.spec.add_bos = true;
    assert_false(hash_same(h, hash_of(&v, "gpt2")));
    v.spec.add_bos = false;
    v.kinds[258] = TOKEN_CONTROL;
    assert_false(hash_same(h, hash_of(&v, "gpt2")));
    v.kinds[258] = TOKEN_USER_DEFINED;
    v.spec.merges_n = 1;
    assert_false(hash_same(h, hash_of(&v, "gpt2")));
    v.spec.merges_n = 2;
    v.tokens[258][1] = 'u';
    assert_false(hash_same(h, hash_of(&v, "gpt2")));
    v.tokens[258][1] = 't';
    assert_true(hash_same(h, hash_of(&v, "gpt2")));
    small_vocab_fini(&v);
}

/* ---- hostile texts: four times the text in less than ten times the time (quadratic would be sixteen) ---- */

struct hostile { const char *unit; const char *end; };

static void hostile_fill(const struct hostile *h, char *text, size_t n)
{
    size_t unit = strlen(h->unit), end = strlen(h->end), at = 0;

    for (; at + unit + end <= n; at += unit)
        memcpy(text + at, h->unit, unit);
    memcpy(text + at, h->end, end);
    text[at + end] = '\0';
}

/* Marks whose classes fall: an insertion sort of them is quadratic. */
static void marks_fill(char *text, size_t n)
{
    size_t at = 0;

    text[at++] = 'a';
    while (at + 2 < n) {
        memcpy(text + at, at < n / 2 ? "\xcc\x81" : "\xcc\xa3", 2);      /* classes 230, then 220 */
        at += 2;
    }
    text[at] = '\0';
}

static int64_t encode_ns(struct encoder *e, const char *text)
{
    struct text_span span = trusted(text);
    int64_t best = INT64_MAX;

    for (int i = 0; i < 5; i++) {
        int64_t start = clock_thread_cpu_ns(), took;
        const int32_t *tokens;
        size_t n;

        assert_int_equal(encoder_encode(e, &span, 1, &tokens, &n), ST_OK);
        took = clock_thread_cpu_ns() - start;
        best = took < best ? took : best;
    }
    return best;
}

static void test_hostile(void **state)
{
    static const struct hostile texts[] = {
        { "a", "" }, { "ab", "" }, { "abcaab", "c" }, { " ", "x" }, { "\n", "x" }, { " \n", " x" }, { "1", "" }, { "!", "\n" },
        { "'", "s" }, { "<", "" }, { "<|a|", "" }, { "\t", "" }, { "\xf0\x9f\x98\x80", "" }, { "e\xcc\x81", "" },
        { "\xcc\x81", "" }
    };
    static const char *const pres[] = { "gpt2", "smollm", "llama-bpe", "qwen2" };
    enum { SMALL = 16000, LARGE = 4 * SMALL };
    struct trust_case c;
    char *text = malloc(LARGE + 1);

    (void)state;
    trust_open(&c);
    small_vocab_merge(&c.v, "a", "a");
    small_vocab_merge(&c.v, "aa", "aa");
    small_vocab_merge(&c.v, "aaaa", "aaaa");
    small_vocab_merge(&c.v, "a", "b");
    small_vocab_merge(&c.v, "ab", "c");
    small_vocab_merge(&c.v, " ", " ");
    small_vocab_merge(&c.v, "\n", "\n");
    small_vocab_merge(&c.v, "!", "!");
    for (int p = 0; p < 4; p++) {
        struct tokenizer *t = small_vocab_open(&c.v, pres[p]);
        struct encoder *e = encoder_open(t);
        int64_t one, four;

        for (size_t i = 0; i <= sizeof(texts) / sizeof(*texts); i++) {
            bool marks = i == sizeof(texts) / sizeof(*texts);

            marks ? marks_fill(text, SMALL) : hostile_fill(&texts[i], text, SMALL);
            one = encode_ns(e, text);
            marks ? marks_fill(text, LARGE) : hostile_fill(&texts[i], text, LARGE);
            four = encode_ns(e, text);
            if (four >= 10 * one)
                fail_msg("%s, text %zu: %lld ns, then %lld ns", pres[p], i, (long long)one, (long long)four);
        }
        encoder_close(e);
        tokenizer_close(t);
    }
    free(text);
    trust_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges),
        cmocka_unit_test(test_word_cache),
        cmocka_unit_test(test_merges_random),
        cmocka_unit_test(test_trust),
        cmocka_unit_test(test_wrong_kinds),
        cmocka_unit_test(test_control_by_merge),
        cmocka_unit_test(test_joined),
        cmocka_unit_test(test_not_utf8),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_nfc),
        cmocka_unit_test(test_refused_spec),
        cmocka_unit_test(test_refused_tables),
        cmocka_unit_test(test_find_and_bytes),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_hostile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
