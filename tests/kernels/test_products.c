/* Products, norms and embedding of every device against sums in double, on every instruction set that runs here.
 * The Invariant in small: a row's bits may not depend on the rows beside it, the threads or the run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/loops.h"
#include "tests/kernels/devices.h"

static const char *const isas[] = { "portable", "avx2", "avx512bf16", "cuda" };
static const char *const dtypes[] = { "bf16", "fp32" };

static const struct { int n, k; } shapes[] = {
    { 1, 2 }, { 16, 2 }, { 17, 6 }, { 15, 64 }, { 32, 30 }, { 33, 34 }, { 100, 130 }, { 48, 1024 }, { 960, 576 },
    { 577, 1536 }, { 49, 4098 },
};
static const int row_counts[] = { 1, 2, 3, 5, 6, 7, 8, 11, 12, 13, 14, 23, 24, 25, 33, 97, 211 };
#define ROWS_MAX 211
#define COUNT(a) (sizeof (a) / sizeof *(a))

static struct device *open_on(const char *isa, const char *dtype, int threads)
{
    struct config cfg;
    struct device *d = NULL;
    struct error err;

    config_defaults(&cfg);
    assert_int_equal(config_set(&cfg, strcmp(isa, "cuda") == 0 ? "device" : "cpu_isa", isa, &err), ST_OK);
    assert_int_equal(config_set(&cfg, "dtype", dtype, &err), ST_OK);
    cfg.threads = threads;
    return device_open(&cfg, &d, &err) == ST_OK ? d : NULL;
}

/* What a call has computed may be read when the device is idle. */
static void run(struct device *d, status st)
{
    assert_int_equal(st, ST_OK);
    assert_int_equal(device_sync(d), ST_OK);
}

/* Any number from (seed, i): a table would hide what depends on order. */
static float noise(uint64_t seed, uint64_t i)
{
    uint64_t x = (i + 1) * 0x9E3779B97F4A7C15u ^ seed * 0xD1B54A32D192ED03u;

    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93u;
    x ^= x >> 32;
    return (float)((double)(x >> 11) / 4503599627370496.0 - 1.0);
}

static float weight(bool fp32, uint64_t seed, uint64_t i)
{
    float w = noise(seed, i);

    return fp32 ? w : bf16_float(bf16_of(w));
}

struct source_ctx { uint64_t seed; int k; int64_t skip; };

static void source_rows(const void *ctx, int64_t first, int64_t count, float *out)
{
    const struct source_ctx *c = ctx;
    int64_t i;

    for (i = 0; i < count * c->k; i++)
        out[i] = noise(c->seed, (uint64_t)((c->skip + first) * c->k + i));
}

static struct matrix *matrix_make(struct device *d, uint64_t seed, int n, int k)
{
    struct source_ctx ctx = { seed, k, 0 };
    struct matrix_source s = { source_rows, &ctx, n };
    struct matrix *m;
    struct error err;

    assert_int_equal(matrix_load(d, k, &s, 1, &m, &err), ST_OK);
    return m;
}

static struct matrix *gated_make(struct device *d, uint64_t seed, int ff, int k)
{
    struct source_ctx g = { seed, k, 0 }, u = { seed + 1, k, 0 };
    struct matrix_source gate = { source_rows, &g, ff }, up = { source_rows, &u, ff };
    struct matrix *m;
    struct error err;

    assert_int_equal(matrix_load_gated(d, k, &gate, &up, &m, &err), ST_OK);
    return m;
}

/* Input rows of a product in the device's type; value(r, i) gives what a chain reads. */
static void *input_make(struct device *d, bool fp32, uint64_t seed, int rows, int k)
{
    char *in = device_buffer_take(d, (size_t)rows * device_act_bytes(d, ACT_NORMED, k));
    int64_t i;

    for (i = 0; i < (int64_t)rows * k; i++) {
        if (fp32)
            ((float *)in)[i] = noise(seed, (uint64_t)i);
        else
            ((uint16_t *)in)[i] = bf16_of(noise(seed, (uint64_t)i));
    }
    return in;
}

/* w . x in double, and the sum of magnitudes that bounds the error of any order. */
static double dot(bool fp32, uint64_t w_seed, int64_t n, uint64_t x_seed, int64_t r, int k, double *size)
{
    double sum = 0;
    int i;

    *size = 0;
    for (i = 0; i < k; i++) {
        double p = (double)weight(fp32, w_seed, (uint64_t)(n * k + i)) * weight(fp32, x_seed, (uint64_t)(r * k + i));

        sum += p;
        *size += fabs(p);
    }
    return sum;
}

/* k additions and k products, each off by at most half an ulp of what has grown so far. */
static double bound(double size, int k)
{
    return size * (k + 2) * 1.2e-7 + 1e-30;
}

static float *poisoned(struct device *d, int64_t n)
{
    float *p = device_buffer_take(d, (size_t)(n + 16) * sizeof *p);
    int64_t i;

    for (i = 0; i < n + 16; i++)
        p[i] = NAN;
    return p;
}

static void check_untouched(const float *from, int n)
{
    int i;

    for (i = 0; i < n; i++)
        assert_true(isnan(from[i]));
}

typedef void (*each_fn)(struct device *d, bool fp32, int threads);

/* On every instruction set of this machine, in both types, on 1, 2 and 3 threads. */
static void on_each(each_fn fn)
{
    unsigned i, j;
    int threads, ran = 0;

    for (i = 0; i < COUNT(isas); i++)
        for (j = 0; j < COUNT(dtypes); j++)
            for (threads = 1; threads <= 3; threads++) {
                struct device *d = device_left_out(dtypes[j], isas[i]) ? NULL : open_on(isas[i], dtypes[j], threads);

                if (d == NULL)
                    continue;
                fn(d, j == 1, threads);
                device_close(d);
                ran++;
            }
    assert_true(ran >= 3);         /* portable runs anywhere */
}

/* ---- linear ---- */

static void linear_shape(struct device *d, bool fp32, int n, int k)
{
    struct matrix *m = matrix_make(d, 7, n, k);
    char *in = input_make(d, fp32, 8, ROWS_MAX, k);
    float *whole = poisoned(d, (int64_t)ROWS_MAX * n), *part = poisoned(d, (int64_t)ROWS_MAX * n);
    size_t in_bytes = device_act_bytes(d, ACT_NORMED, k);
    double size, want;
    unsigned i;
    int r, c;

    run(d, kernel_linear(d, m, NULL, in, ROWS_MAX, LINEAR_STORE, whole));
    check_untouched(whole + (size_t)ROWS_MAX * n, 16);
    for (r = 0; r < ROWS_MAX; r += r < 30 ? 1 : 29)
        for (c = 0; c < n; c += n > 100 && c > 40 && c < n - 40 ? 13 : 1) {
            want = dot(fp32, 7, c, 8, r, k, &size);
            assert_true(fabs(whole[(size_t)r * n + c] - want) <= bound(size, k));
        }
    for (i = 0; i < COUNT(row_counts); i++) {
        int rows = row_counts[i], first = ROWS_MAX - rows;     /* other rows of the batch than the first ones */

        for (c = 0; c < rows * n + 16; c++)
            part[c] = NAN;
        run(d, kernel_linear(d, m, NULL, in + (size_t)first * in_bytes, rows, LINEAR_STORE, part));
        assert_memory_equal(part, whole + (size_t)first * n, (size_t)rows * n * sizeof *part);
        check_untouched(part + (size_t)rows * n, 16);
    }
    for (r = 0; r < ROWS_MAX; r += 10) {
        run(d, kernel_linear(d, m, NULL, in + (size_t)r * in_bytes, 1, LINEAR_STORE, part));
        assert_memory_equal(part, whole + (size_t)r * n, (size_t)n * sizeof *part);
    }
    run(d, kernel_linear(d, m, NULL, in, 0, LINEAR_STORE, NULL));
    device_buffer_give(d, part);
    device_buffer_give(d, whole);
    device_buffer_give(d, in);
    matrix_give(d, m);
}

static void linear_each(struct device *d, bool fp32, int threads)
{
    unsigned i;

    (void)threads;
    for (i = 0; i < COUNT(shapes); i++)
        linear_shape(d, fp32, shapes[i].n, shapes[i].k);
}

static void test_linear(void **state)
{
    (void)state;
    on_each(linear_each);
}

/* residual + (chain + bias), rounded in that order: equal to doing it by hand on the stored product. */
static void add_bias_each(struct device *d, bool fp32, int threads)
{
    enum { N = 77, K = 66, ROWS = 19 };
    struct matrix *m = matrix_make(d, 17, N, K);
    void *in = input_make(d, fp32, 18, ROWS, K);
    float *plain = poisoned(d, ROWS * N), *biased = poisoned(d, ROWS * N), *sum = poisoned(d, ROWS * N), bias[N], *b;
    int i;

    (void)threads;
    for (i = 0; i < N; i++)
        bias[i] = noise(19, (uint64_t)i);
    for (i = 0; i < ROWS * N; i++)
        sum[i] = noise(20, (uint64_t)i);
    b = vector_load(d, bias, N);
    run(d, kernel_linear(d, m, NULL, in, ROWS, LINEAR_STORE, plain));
    run(d, kernel_linear(d, m, b, in, ROWS, LINEAR_STORE, biased));
    run(d, kernel_linear(d, m, b, in, ROWS, LINEAR_ADD, sum));
    for (i = 0; i < ROWS * N; i++) {
        assert_true(biased[i] == plain[i] + bias[i % N]);
        assert_true(sum[i] == noise(20, (uint64_t)i) + biased[i]);
    }
    check_untouched(sum + ROWS * N, 16);
    device_buffer_give(d, b);
    device_buffer_give(d, sum);
    device_buffer_give(d, biased);
    device_buffer_give(d, plain);
    device_buffer_give(d, in);
    matrix_give(d, m);
}

static void test_add_bias(void **state)
{
    (void)state;
    on_each(add_bias_each);
}

/* Threads split the work differently, the bits must not notice: 1 thread against 2, 3 and 5. */
static void test_threads_agree(void **state)
{
    enum { N = 333, K = 258, ROWS = 97 };
    static float first[ROWS * N];
    unsigned i, j;
    int threads, rows;

    (void)state;
    for (i = 0; i < COUNT(isas); i++)
        for (j = 0; j < COUNT(dtypes); j++)
            for (rows = 1; rows <= ROWS; rows += 32)
                for (threads = 1; threads <= 5; threads++) {
                    struct device *d = device_left_out(dtypes[j], isas[i]) ? NULL : open_on(isas[i], dtypes[j], threads);
                    struct matrix *m;
                    void *in;
                    float *out;

                    if (d == NULL)
                        continue;
                    m = matrix_make(d, 27, N, K);
                    in = input_make(d, j == 1, 28, rows, K);
                    out = poisoned(d, rows * N);
                    run(d, kernel_linear(d, m, NULL, in, rows, LINEAR_STORE, out));
                    if (threads == 1)
                        memcpy(first, out, (size_t)rows * N * sizeof *out);
                    assert_memory_equal(out, first, (size_t)rows * N * sizeof *out);
                    device_buffer_give(d, out);
                    device_buffer_give(d, in);
                    matrix_give(d, m);
                    device_close(d);
                }
}

/* ---- gated and logits ---- */

static double act_of(enum gate_act act, double x)
{
    if (act == GATE_SILU)
        return x / (1 + exp(-x));
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static void gated_shape(struct device *d, bool fp32, int ff, int k, enum gate_act act)
{
    enum { ROWS = 37 };
    struct matrix *m = gated_make(d, 31, ff, k);
    size_t in_bytes = device_act_bytes(d, ACT_NORMED, k), out_bytes = device_act_bytes(d, ACT_GATED, ff);
    char *in = input_make(d, fp32, 33, ROWS, k);
    char *whole = (char *)poisoned(d, (int64_t)ROWS * ff), *alone = (char *)poisoned(d, ff);
    int r, c;

    run(d, kernel_linear_gated(d, m, act, in, ROWS, whole));
    check_untouched((float *)(whole + ROWS * out_bytes + (4 - ROWS * out_bytes % 4) % 4), 8);
    for (r = 0; r < ROWS; r++) {
        for (c = 0; c < ff; c++) {
            double size_g, size_u, gate = dot(fp32, 31, c, 33, r, k, &size_g), up = dot(fp32, 32, c, 33, r, k, &size_u);
            double want = act_of(act, gate) * up;
            double got = fp32 ? ((float *)whole)[r * ff + c] : bf16_float(((uint16_t *)whole)[r * ff + c]);
            /* slopes of silu and gelu stay below 1.2; then 1e-6 for exp and the products, half a bf16 ulp for the store */
            double slack = 1.2 * bound(size_g, k) * (fabs(up) + bound(size_u, k)) +
                           (fabs(act_of(act, gate)) + 1e-7) * bound(size_u, k) + fabs(want) * 1e-6 + 1e-7;

            assert_true(fabs(got - want) <= slack + (fp32 ? 0 : (fabs(want) + slack) / 256));
        }
        run(d, kernel_linear_gated(d, m, act, in + (size_t)r * in_bytes, 1, alone));
        assert_memory_equal(alone, whole + (size_t)r * out_bytes, out_bytes);
    }
    device_buffer_give(d, alone);
    device_buffer_give(d, whole);
    device_buffer_give(d, in);
    matrix_give(d, m);
}

static void gated_each(struct device *d, bool fp32, int threads)
{
    (void)threads;
    gated_shape(d, fp32, 1, 2, GATE_SILU);
    gated_shape(d, fp32, 16, 34, GATE_GELU_TANH);
    gated_shape(d, fp32, 45, 130, GATE_SILU);
    gated_shape(d, fp32, 96, 64, GATE_GELU_TANH);
}

static void test_gated(void **state)
{
    (void)state;
    on_each(gated_each);
}

static void logits_each(struct device *d, bool fp32, int threads)
{
    enum { N = 301, K = 64, ROWS = 9 };
    struct matrix *m = matrix_make(d, 41, N, K);
    void *in = input_make(d, fp32, 42, ROWS, K);
    float *plain = poisoned(d, ROWS * N), *capped = poisoned(d, ROWS * N);
    int i;

    (void)threads;
    run(d, kernel_logits(d, m, in, ROWS, 0, plain));
    run(d, kernel_logits(d, m, in, ROWS, 5.0f, capped));
    for (i = 0; i < ROWS * N; i++)
        assert_true(fabs(capped[i] - 5 * tanh((double)plain[i] / 5)) < 5e-6);
    check_untouched(capped + ROWS * N, 16);
    device_buffer_give(d, capped);
    device_buffer_give(d, plain);
    device_buffer_give(d, in);
    matrix_give(d, m);
}

static void test_logits(void **state)
{
    (void)state;
    on_each(logits_each);
}

/* Gates far beyond where exp ends: the limits of the activation, not NaN or the garbage of an exponent that wrapped; and
 * a NaN row poisons itself alone. */
static void extremes_each(struct device *d, bool fp32, int threads)
{
    enum { FF = 16, K = 2, ROWS = 7 };
    static const float x[ROWS] = { 1e4f, -1e4f, NAN, 0.0f, 90.0f, -90.0f, 1e9f };
    struct matrix *m = gated_make(d, 51, FF, K);
    char *in = device_buffer_take(d, ROWS * device_act_bytes(d, ACT_NORMED, K));
    char *out = device_buffer_take(d, ROWS * device_act_bytes(d, ACT_GATED, FF));
    int i, act;

    (void)threads;
    for (i = 0; i < ROWS * K; i++) {
        if (fp32)
            ((float *)in)[i] = x[i / K];
        else
            ((uint16_t *)in)[i] = bf16_of(x[i / K]);
    }
    for (act = GATE_SILU; act <= GATE_GELU_TANH; act++) {
        run(d, kernel_linear_gated(d, m, (enum gate_act)act, in, ROWS, out));
        for (i = 0; i < ROWS * FF; i++) {
            float y = fp32 ? ((float *)out)[i] : bf16_float(((uint16_t *)out)[i]);
            double gate = 0, up = 0, want;
            int k;

            for (k = 0; k < K; k++) {
                double v = fp32 ? x[i / FF] : bf16_float(bf16_of(x[i / FF]));

                gate += v * weight(fp32, 51, (uint64_t)(i % FF * K + k));
                up += v * weight(fp32, 52, (uint64_t)(i % FF * K + k));
            }
            want = act_of((enum gate_act)act, gate) * up;
            if (i / FF == 2)
                assert_true(isnan(y));
            else
                assert_true(fabs(y - want) <= fabs(want) * 0.01 + 1e-20);
        }
    }
    device_buffer_give(d, out);
    device_buffer_give(d, in);
    matrix_give(d, m);
}

static void test_extremes(void **state)
{
    (void)state;
    on_each(extremes_each);
}

/* ---- loading ---- */

/* q, k and v one after the other, cut inside blocks: the same matrix as from one source. */
static void sources_each(struct device *d, bool fp32, int threads)
{
    enum { K = 10 };
    static const int parts[] = { 5, 1, 30, 16, 3 };
    struct source_ctx ctx[COUNT(parts)];
    struct matrix_source s[COUNT(parts)];
    struct matrix *one, *many;
    float *from_one = poisoned(d, 64 * K), *from_many = poisoned(d, 64 * K);
    int32_t token[64];
    struct step step = { .token = token };
    struct error err;
    int n = 0;
    unsigned i;

    (void)threads;
    for (i = 0; i < COUNT(parts); i++) {
        ctx[i] = (struct source_ctx){ 61, K, n };
        s[i] = (struct matrix_source){ source_rows, &ctx[i], parts[i] };
        n += parts[i];
    }
    one = matrix_make(d, 61, n, K);
    assert_int_equal(matrix_load(d, K, s, COUNT(parts), &many, &err), ST_OK);
    assert_int_equal(matrix_bytes(one), matrix_bytes(many));
    if (strncmp(device_info(d)->isa, "sm_", 3) != 0) {         /* the CPU device packs strips of 32 rows */
        assert_int_equal(matrix_bytes(one), (size_t)64 * K * (fp32 ? 4 : 2));
        assert_memory_equal(((struct cpu_matrix *)one)->packed, ((struct cpu_matrix *)many)->packed, matrix_bytes(one));
    }
    for (i = 0; i < (unsigned)n; i++)
        token[i] = (int32_t)i;
    step.rows_n = n;
    run(d, kernel_step_begin(d, &step));
    run(d, kernel_embed(d, one, &step, 1, from_one));
    run(d, kernel_embed(d, many, &step, 1, from_many));
    assert_memory_equal(from_one, from_many, (size_t)n * K * sizeof *from_one);
    device_buffer_give(d, from_many);
    device_buffer_give(d, from_one);
    matrix_give(d, many);
    matrix_give(d, one);
}

static void test_sources(void **state)
{
    (void)state;
    on_each(sources_each);
}

static void test_refusals(void **state)
{
    struct device *d = open_on("portable", "bf16", 1), *other;
    struct source_ctx ctx = { 1, 4, 0 };
    struct matrix_source s = { source_rows, &ctx, 8 }, t = { source_rows, &ctx, 9 };
    struct matrix *m;
    struct config cfg;
    struct error err;

    (void)state;
    assert_int_equal(matrix_load(d, 3, &s, 1, &m, &err), ST_REJECT);
    assert_null(m);
    assert_int_equal(matrix_load(d, 0, &s, 1, &m, &err), ST_REJECT);
    assert_int_equal(matrix_load_gated(d, 4, &s, &t, &m, &err), ST_REJECT);
    s.rows_n = 0;
    assert_int_equal(matrix_load(d, 4, &s, 1, &m, &err), ST_REJECT);
    s.rows_n = (int64_t)1 << 40;
    assert_int_equal(matrix_load(d, 4, &s, 1, &m, &err), ST_REJECT);
    device_close(d);

    config_defaults(&cfg);
    assert_int_equal(config_set(&cfg, "cpu_isa", "sse9", &err), ST_OK);
    assert_int_equal(device_open(&cfg, &other, &err), ST_REJECT);
    assert_non_null(strstr(err.text, "portable"));
    config_defaults(&cfg);
    assert_int_equal(config_set(&cfg, "dtype", "int3", &err), ST_OK);
    assert_int_equal(device_open(&cfg, &other, &err), ST_REJECT);
    config_defaults(&cfg);
    assert_int_equal(config_set(&cfg, "device", "abacus", &err), ST_OK);
    assert_int_equal(device_open(&cfg, &other, &err), ST_REJECT);
    assert_null(other);
    assert_int_equal(config_set(&cfg, "device", "cuda:99999", &err), ST_OK);       /* no such GPU, or no such build */
    assert_int_equal(device_open(&cfg, &other, &err), ST_REJECT);
    assert_null(other);
    assert_non_null(strstr(err.text, "cuda:99999"));
    device_close(NULL);
}

/* ---- embedding and norm ---- */

static void embed_each(struct device *d, bool fp32, int threads)
{
    enum { VOCAB = 53, DIM = 34, ROWS = 60 };
    struct matrix *m = matrix_make(d, 71, VOCAB, DIM);
    float *x = poisoned(d, ROWS * DIM);
    int32_t token[ROWS];
    struct step s = { .rows_n = ROWS, .token = token };
    int i;

    (void)threads;
    for (i = 0; i < ROWS; i++)
        token[i] = (i * 31 + 52) % VOCAB;
    run(d, kernel_step_begin(d, &s));
    run(d, kernel_embed(d, m, &s, 3.0f, x));
    for (i = 0; i < ROWS * DIM; i++)
        assert_true(x[i] == weight(fp32, 71, (uint64_t)(token[i / DIM] * DIM + i % DIM)) * 3.0f);
    check_untouched(x + ROWS * DIM, 16);
    device_buffer_give(d, x);
    matrix_give(d, m);
}

static void test_embed(void **state)
{
    (void)state;
    on_each(embed_each);
}

static void norm_dim(struct device *d, bool fp32, int dim)
{
    enum { ROWS = 23 };
    static const int32_t picked[] = { 22, 0, 7, 7 };
    size_t bytes = device_act_bytes(d, ACT_NORMED, dim);
    float *x = poisoned(d, (int64_t)ROWS * dim), *w = device_buffer_take(d, (size_t)dim * sizeof *w);
    char *out = (char *)poisoned(d, (int64_t)ROWS * dim), *some = (char *)poisoned(d, 4 * (int64_t)dim);
    int i, r;

    for (i = 0; i < ROWS * dim; i++)
        x[i] = noise(81, (uint64_t)i) * (i / dim == 3 ? 1e-4f : 10.0f);
    for (i = 0; i < dim; i++)
        w[i] = noise(82, (uint64_t)i);
    run(d, kernel_rmsnorm(d, x, w, 1e-5f, NULL, ROWS, dim, out));
    for (r = 0; r < ROWS; r++) {
        double sum = 0;

        for (i = 0; i < dim; i++)
            sum += (double)x[r * dim + i] * x[r * dim + i];
        for (i = 0; i < dim; i++) {
            double want = x[r * dim + i] / sqrt(sum / dim + 1e-5) * w[i];
            double got = fp32 ? ((float *)out)[r * dim + i] : bf16_float(((uint16_t *)out)[r * dim + i]);

            assert_true(fabs(got - want) <= fabs(want) * ((dim + 8) * 6e-8 + (fp32 ? 0 : 1.0 / 256)) + 1e-38);
        }
    }
    run(d, kernel_rmsnorm(d, x, w, 1e-5f, picked, COUNT(picked), dim, some));
    for (r = 0; r < (int)COUNT(picked); r++)
        assert_memory_equal(some + (size_t)r * bytes, out + (size_t)picked[r] * bytes, bytes);
    device_buffer_give(d, some);
    device_buffer_give(d, out);
    device_buffer_give(d, w);
    device_buffer_give(d, x);
}

/* A NaN whose payload would round up into a number stays a NaN, and stays in its row. */
static void norm_nan(struct device *d, bool fp32)
{
    enum { DIM = 64 };
    float *x = device_buffer_take(d, 2 * DIM * sizeof *x), *w = device_buffer_take(d, DIM * sizeof *w);
    char *out = device_buffer_take(d, 2 * device_act_bytes(d, ACT_NORMED, DIM));
    int i;

    for (i = 0; i < DIM; i++)
        x[i] = x[DIM + i] = w[i] = 1.0f;
    memset(&x[5], 0xff, sizeof *x);
    run(d, kernel_rmsnorm(d, x, w, 1e-5f, NULL, 2, DIM, out));
    for (i = 0; i < 2 * DIM; i++) {
        float y = fp32 ? ((float *)out)[i] : bf16_float(((uint16_t *)out)[i]);

        assert_true(i < DIM ? isnan(y) : fabsf(y - 1.0f) < 0.01f);
    }
    device_buffer_give(d, out);
    device_buffer_give(d, w);
    device_buffer_give(d, x);
}

static void norm_each(struct device *d, bool fp32, int threads)
{
    (void)threads;
    norm_nan(d, fp32);
    norm_dim(d, fp32, 2);
    norm_dim(d, fp32, 48);
    norm_dim(d, fp32, 70);
    norm_dim(d, fp32, 576);
}

static void test_norm(void **state)
{
    (void)state;
    on_each(norm_each);
}

static void test_bf16(void **state)
{
    union { uint32_t u; float f; } v;
    uint32_t i;

    (void)state;
    assert_int_equal(bf16_of(1.0f), 0x3f80);
    assert_int_equal(bf16_of(1.00390625f), 0x3f80);            /* half an ulp above 1: to even, down */
    assert_int_equal(bf16_of(1.01171875f), 0x3f82);            /* one and a half: to even, up */
    assert_int_equal(bf16_of(-0.0f), 0x8000);
    assert_int_equal(bf16_of(3.4e38f), 0x7f80);                /* above the largest bf16 by more than half */
    assert_int_equal(bf16_of(INFINITY), 0x7f80);
    v.u = 0x7f800001;                                          /* a NaN whose payload would round away */
    assert_true(isnan(bf16_float(bf16_of(v.f))));
    v.u = 0xffffffff;                                          /* a NaN that would overflow into the sign */
    assert_true(isnan(bf16_float(bf16_of(v.f))));
    for (i = 0; i < 65536; i++)
        if (!isnan(bf16_float((uint16_t)i)))
            assert_int_equal(bf16_of(bf16_float((uint16_t)i)), i);
}

static void test_measure(void **state)
{
    struct device *d = open_on("auto", "bf16", 1);
    struct device_ceilings top;

    (void)state;
    assert_int_equal(device_measure(d, &top), ST_OK);
    assert_true(top.dot_flops > 1e8 && top.read_bytes_s > 1e7);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_sources),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_add_bias),
        cmocka_unit_test(test_threads_agree),
        cmocka_unit_test(test_gated),
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_measure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
