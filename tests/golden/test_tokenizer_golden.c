/* Words and token ids equal to those of the reference tokenizers, for every case of a corpus and every pre-tokenizer.
 * The files are made by make_tokenizer.py, which says what they hold. With arguments: MODEL.gguf FOLDER. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "worker/model/gguf.h"
#include "worker/text/detok.h"
#include "worker/text/nfc.h"
#include "worker/text/split.h"
#include "worker/text/tokenizer.h"
#include "worker/text/unicode.h"

static const char *model_path = NIGHTSHIFT_MODEL;
static const char *folder = NIGHTSHIFT_ROOT "/tests/golden/tokenizer";
static bool all_needed = true;

static int hex_digit(int c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

/* Undoes \xNN. */
static void text_unescape(struct buf *out, const char *line, size_t n)
{
    buf_reset(out);
    for (size_t i = 0; i < n; i++) {
        if (line[i] == '\\') {
            assert_true(i + 3 < n && line[i + 1] == 'x');
            buf_add_byte(out, hex_digit(line[i + 2]) << 4 | hex_digit(line[i + 3]));
            i += 3;
        } else {
            buf_add_byte(out, line[i]);
        }
    }
}

static struct tokenizer *tokenizer_of(const char *pre)
{
    struct error err = { "" };
    struct tokenizer_spec spec;
    struct tokenizer *t;
    struct gguf *g;
    void *memory;

    if (gguf_open(model_path, &g, &err) != ST_OK)
        fail_msg("%s", err.text);
    if (gguf_tokenizer(g, &spec, &memory, &err) != ST_OK)
        fail_msg("%s", err.text);
    spec.pre = pre;
    if (tokenizer_open(&spec, &t, &err) != ST_OK)
        fail_msg("%s", err.text);
    free(memory);
    gguf_close(g);
    return t;
}

static bool ids_equal(char *line, const int32_t *tokens, size_t tokens_n)
{
    size_t i = 0;

    for (char *at = strtok(line, " \n"); at != NULL; at = strtok(NULL, " \n"), i++) {
        if (i == tokens_n || strtol(at, NULL, 10) != tokens[i])
            return false;
    }
    return i == tokens_n;
}

/* The plain text again, from the tokens: what the vocabulary has no byte for is lost, as in the reference, so only the
 * texts without such bytes are compared; NFC changes the others. */
static bool text_equal(const struct tokenizer *t, const int32_t *tokens, size_t tokens_n, const struct buf *text)
{
    struct detok d;
    bool same;

    detok_init(&d, t, NULL, true);
    for (size_t i = 0; i < tokens_n; i++)
        assert_false(detok_add(&d, tokens[i]));
    detok_end(&d);
    same = d.shown_n == text->n && (text->n == 0 || memcmp(d.text.data, text->data, text->n) == 0);
    detok_fini(&d);
    return same;
}

static bool bytes_known(const struct buf *text)
{
    for (size_t i = 0; i < text->n; i++) {
        if (strchr("\x04\x06\x13\x14\x16\x1d\xf1\xf2", text->data[i]) != NULL && text->data[i] != '\0')
            return false;
    }
    return true;
}

/* The lengths of the words, one character each, as in the .words file. */
static void words_put(const char *pre, const struct buf *text, struct buf *out)
{
    static uint8_t classes[UNICODE_TABLE_END];
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const struct split_rules *rules = split_rules_find(pre);
    struct nfc nfc = { NULL, NULL, 0 };
    struct buf normal = BUF_EMPTY;
    const struct buf *from = text;
    struct splitter s;

    if (classes[0] == 0)
        unicode_expand(classes);
    if (rules->nfc && nfc_text(&nfc, classes, text->data, text->n, &normal))
        from = &normal;
    buf_reset(out);
    splitter_init(&s, rules, classes, from->data, from->n);
    for (size_t at = 0; s.at < from->n; at = s.at) {
        size_t n = splitter_next(&s) - at;

        if (n < sizeof(digits) - 1)
            buf_add_byte(out, digits[n]);
        else
            buf_add_format(out, "(%zu)", n);
    }
    buf_add_byte(out, '\n');
    buf_fini(&normal);
    nfc_fini(&nfc);
}

static bool words_equal(const char *pre, const struct buf *text, const char *line)
{
    struct buf words = BUF_EMPTY;
    bool same;

    words_put(pre, text, &words);
    same = strcmp(buf_text(&words), line) == 0;
    buf_fini(&words);
    return same;
}

static FILE *golden_open(const char *name, const char *suffix)
{
    char path[4096];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s%s", folder, name, suffix);
    f = fopen(path, "r");
    if (f == NULL)
        print_error("no %s\n", path);
    return f;
}

static void check_pre(const char *pre)
{
    struct tokenizer *t;
    struct encoder *e;
    struct buf text = BUF_EMPTY;
    char *line = NULL, *ids = NULL, *words = NULL;
    size_t line_room = 0, ids_room = 0, words_room = 0, cases = 0, wrong = 0;
    ssize_t n;
    FILE *corpus = golden_open("corpus", ".txt"), *expected = golden_open(pre, ".ids"), *split = golden_open(pre, ".words");

    if (corpus != NULL && expected == NULL && !all_needed) {
        fclose(corpus);
        skip();
    }
    assert_true(corpus != NULL && expected != NULL && split != NULL);
    t = tokenizer_of(pre);
    e = encoder_open(t);
    while ((n = getline(&line, &line_room, corpus)) > 0) {
        struct text_span span;
        const int32_t *tokens;
        size_t tokens_n;
        bool back;

        assert_true(n >= 3 && getline(&ids, &ids_room, expected) > 0 && getline(&words, &words_room, split) > 0);
        text_unescape(&text, line + 2, (size_t)n - 3);
        span = (struct text_span){ buf_text(&text), text.n, line[0] == 'T' ? TEXT_TRUSTED : TEXT_PLAIN };
        assert_int_equal(encoder_encode(e, &span, 1, &tokens, &tokens_n), ST_OK);
        cases++;
        back = !bytes_known(&text) || strcmp(pre, "qwen2") == 0 || text_equal(t, tokens, tokens_n, &text);
        if (!ids_equal(ids, tokens, tokens_n) || !words_equal(pre, &text, words) || !back) {
            if (wrong++ < 10)
                print_error("%s: case %zu: %s", pre, cases, line);
        }
    }
    assert_true(getline(&ids, &ids_room, expected) < 0);
    print_message("%s: %zu cases, %zu wrong\n", pre, cases, wrong);
    assert_true(cases > 500);
    assert_int_equal(wrong, 0);
    encoder_close(e);
    tokenizer_close(t);
    buf_fini(&text);
    free(line);
    free(ids);
    free(words);
    fclose(corpus);
    fclose(expected);
    fclose(split);
}

static void test_gpt2(void **state)
{
    (void)state;
    check_pre("gpt2");
}

static void test_smollm(void **state)
{
    (void)state;
    check_pre("smollm");
}

static void test_llama_bpe(void **state)
{
    (void)state;
    check_pre("llama-bpe");
}

static void test_qwen2(void **state)
{
    (void)state;
    check_pre("qwen2");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_smollm),
        cmocka_unit_test(test_llama_bpe),
        cmocka_unit_test(test_qwen2),
    };

    if (argc == 3) {
        model_path = argv[1];
        folder = argv[2];
        all_needed = false;
    }
    if (access(model_path, R_OK) != 0) {
        print_message("no model at %s: skipped\n", model_path);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
