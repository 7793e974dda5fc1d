/* Dequantisation against the gguf package: bit-equal over random and extreme blocks (make_dequant.py), and every half
 * against its definition. NaNs are equal to each other. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "worker/model/gguf.h"

static void same(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s: value %zu is %a, expected %a", what, i, (double)a[i], (double)b[i]);
}

static void equals_the_reference(void **state)
{
    static const char *const names[] = { "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K" };
    struct gguf *g;
    struct error err;

    (void)state;
    assert_int_equal(gguf_open(NIGHTSHIFT_ROOT "/tests/golden/dequant.gguf", &g, &err), ST_OK);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct tensor *t = gguf_tensor(g, names[i]);
        char expect_name[32];
        const float *expect;
        float *out;
        size_t row, rows, n;

        assert_non_null(t);
        assert_string_equal(tensor_type_name(t->type), names[i]);
        strcat(strcpy(expect_name, names[i]), ".expect");
        row = (size_t)t->dims[0];
        rows = (size_t)tensor_rows_n(t);
        n = row * rows;
        assert_int_equal(gguf_tensor(g, expect_name)->data_bytes, n * sizeof *out);
        expect = (const float *)(const void *)gguf_tensor(g, expect_name)->data;
        /* Poisoned, so that a value left out shows; rows in one piece, then one by one. */
        out = mem_take(n * sizeof *out);
        memset(out, 0x5a, n * sizeof *out);
        tensor_rows(t, 0, (int64_t)rows, out);
        same(out, expect, n, names[i]);
        for (size_t r = 0; r < rows; r++) {
            memset(out, 0x5a, n * sizeof *out);
            tensor_rows(t, (int64_t)r, 1, out);
            same(out, expect + r * row, row, names[i]);
        }
        free(out);
    }
    gguf_close(g);
}

static void every_half(void **state)
{
    uint16_t *half = mem_take(65536 * sizeof *half);
    float *out = mem_take(65536 * sizeof *out), *expect = mem_take(65536 * sizeof *expect);
    struct tensor t = { .name = "halves", .type = TENSOR_F16, .dims_n = 1, .dims = { 65536, 1, 1, 1 },
                        .data = (const uint8_t *)half, .data_bytes = 65536 * sizeof *half };

    (void)state;
    for (int i = 0; i < 65536; i++) {
        int exponent = i >> 10 & 31, mantissa = i & 1023;
        float v = exponent == 31 ? (mantissa ? NAN : INFINITY)
                : exponent == 0 ? ldexpf((float)mantissa, -24) : ldexpf((float)(1024 + mantissa), exponent - 25);

        half[i] = (uint16_t)i;
        expect[i] = i & 0x8000 ? -v : v;
    }
    tensor_rows(&t, 0, 1, out);
    same(out, expect, 65536, "half");
    free(expect);
    free(out);
    free(half);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_reference),
        cmocka_unit_test(every_half)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
