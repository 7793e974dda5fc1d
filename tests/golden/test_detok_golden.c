/* Broken UTF-8 becomes what Python's bytes.decode('utf-8', errors='replace') makes of it, cut into tokens or not. The file
 * is made by make_replace.py. */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "tests/support/small_vocab.h"
#include "worker/text/detok.h"

static void hex_read(const char *hex, struct buf *out)
{
    buf_reset(out);
    for (unsigned byte; isxdigit((unsigned char)*hex) && sscanf(hex, "%2x", &byte) == 1; hex += 2)
        buf_add_byte(out, (int)byte);
}

static void check_tokens(const struct tokenizer *t, const int32_t *tokens, size_t n, const struct buf *text)
{
    struct detok d;

    detok_init(&d, t, NULL, false);
    for (size_t i = 0; i < n; i++)
        assert_false(detok_add(&d, tokens[i]));
    detok_end(&d);
    assert_int_equal(d.shown_n, text->n);
    assert_memory_equal(d.text.data, text->data, text->n);
    detok_fini(&d);
}

static void test_replace(void **state)
{
    static struct small_vocab v;
    struct tokenizer *t;
    struct buf bytes = BUF_EMPTY, text = BUF_EMPTY;
    char *line = NULL, *space;
    size_t room = 0, cases = 0;
    FILE *f = fopen(NIGHTSHIFT_ROOT "/tests/golden/replace.txt", "r");

    (void)state;
    assert_non_null(f);
    small_vocab_init(&v);
    /* After the 256 bytes, each case is a token as a whole. */
    while (getline(&line, &room, f) > 0) {
        hex_read(line, &bytes);
        small_vocab_add(&v, bytes.data, bytes.n, TOKEN_NORMAL);
    }
    t = small_vocab_open(&v, "gpt2");
    rewind(f);
    while (getline(&line, &room, f) > 0) {
        int32_t tokens[64], whole;

        space = strchr(line, ' ');
        assert_non_null(space);
        hex_read(line, &bytes);
        hex_read(space + 1, &text);
        assert_in_range(bytes.n, 1, 63);
        for (size_t i = 0; i < bytes.n; i++)
            tokens[i] = (unsigned char)bytes.data[i];
        check_tokens(t, tokens, bytes.n, &text);
        whole = small_vocab_add(&v, bytes.data, bytes.n, TOKEN_NORMAL);
        check_tokens(t, &whole, 1, &text);
        cases++;
    }
    assert_true(cases > 1000);
    tokenizer_close(t);
    small_vocab_fini(&v);
    buf_fini(&bytes);
    buf_fini(&text);
    free(line);
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_replace) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
