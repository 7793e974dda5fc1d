/* Every tile of product_wide.cu against the chain of product.cu, bit for bit: what loading chooses by timing is a few of
 * them. Skipped where no tile runs (another GPU, or none). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cuda/launch.h"

enum { ROWS_MAX = 520, N_MAX = 1792, K_MAX = 4096, GUARD = 64 };
static const struct { int n, k; } shapes[] = { { 16, 8 }, { 48, 64 }, { 208, 136 }, { 448, 72 }, { 1152, 576 }, { N_MAX, K_MAX } };
static const int row_counts[] = { 1, 2, 7, 8, 9, 17, 33, 63, 64, 65, 97, 128, 129, 200, 256, 257, 384, 513, ROWS_MAX };
#define COUNT(a) (sizeof (a) / sizeof *(a))

/* Device memory of the largest shape, and both results on the host. */
struct world {
    uint16_t *w, *in;
    float *sums, *residual;
    char *want, *got;
    char *host_want, *host_got;
};

static void ok(cudaError_t e)
{
    if (e != cudaSuccess)
        print_error("CUDA: %s\n", cudaGetErrorString(e));
    assert_int_equal(e, cudaSuccess);
}

static bool world_open(struct world *x)
{
    size_t bytes = (size_t)ROWS_MAX * N_MAX * 4 + GUARD;
    int n = 0;

    if (cudaGetDeviceCount(&n) != cudaSuccess || n < 1)
        return false;
    ok(launch_product_init());
    ok(launch_wide_init());
    if (!launch_wide_fits(0, 1, 16, 8, 1))
        return false;
    ok(cudaMalloc((void **)&x->w, (size_t)N_MAX * K_MAX * 2));
    ok(cudaMalloc((void **)&x->in, (size_t)ROWS_MAX * K_MAX * 2));
    ok(cudaMalloc((void **)&x->sums, bytes));
    ok(cudaMalloc((void **)&x->residual, bytes));
    ok(cudaMalloc((void **)&x->want, bytes));
    ok(cudaMalloc((void **)&x->got, bytes));
    x->host_want = malloc(bytes);
    x->host_got = malloc(bytes);
    ok(launch_random(0, 1, (int64_t)N_MAX * K_MAX, x->w));
    ok(launch_random(0, 2, (int64_t)ROWS_MAX * K_MAX, x->in));
    ok(launch_random_fp32(0, 3, (int64_t)ROWS_MAX * N_MAX, x->residual));
    return true;
}

static void world_close(struct world *x)
{
    ok(cudaFree(x->w));
    ok(cudaFree(x->in));
    ok(cudaFree(x->sums));
    ok(cudaFree(x->residual));
    ok(cudaFree(x->want));
    ok(cudaFree(x->got));
    free(x->host_want);
    free(x->host_got);
}

/* What the chain, and what follows it, makes of the rows; its bytes. */
static size_t want_make(struct world *x, const struct launch_wide *p)
{
    size_t bytes = (size_t)p->rows_n * (size_t)p->n * 4;

    if (p->to == WIDE_STORE || p->to == WIDE_ADD) {
        ok(cudaMemcpy(x->want, x->residual, bytes, cudaMemcpyDeviceToDevice));
        ok(launch_product(0, p->w, p->n, p->k, p->in, p->rows_n, p->to == WIDE_ADD, (float *)(void *)x->want));
    } else {
        ok(launch_product(0, p->w, p->n, p->k, p->in, p->rows_n, 0, x->sums));
        bytes = (size_t)p->rows_n * (size_t)p->n / 2 * 2;
        ok(launch_gate(0, 0, x->sums, p->rows_n, p->n / 2, p->to == WIDE_GELU, x->want));
    }
    ok(cudaMemcpy(x->host_want, x->want, bytes, cudaMemcpyDeviceToHost));
    return bytes;
}

static void tile_check(struct world *x, int tile, struct launch_wide *p, size_t bytes)
{
    ok(cudaMemset(x->got, 0xff, bytes + GUARD));
    if (p->to == WIDE_ADD)
        ok(cudaMemcpy(x->got, x->residual, bytes, cudaMemcpyDeviceToDevice));
    p->out = x->got;
    ok(launch_wide(0, tile, p));
    ok(cudaMemcpy(x->host_got, x->got, bytes + GUARD, cudaMemcpyDeviceToHost));
    if (memcmp(x->host_got, x->host_want, bytes) != 0)
        fail_msg("tile %d, to %d, %d x %d, %d rows: other bits", tile, p->to, p->n, p->k, p->rows_n);
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(x->host_got[bytes + (size_t)i], (char)0xff);
}

static void test_bits(void **state)
{
    struct world x = { 0 };
    int ran[WIDE_TILES] = { 0 };

    (void)state;
    if (!world_open(&x))
        skip();
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (size_t r = 0; r < COUNT(row_counts); r++)
            for (int to = WIDE_STORE; to <= WIDE_GELU; to++) {
                struct launch_wide p = { x.w, x.in, shapes[i].n, shapes[i].k, row_counts[r], to, NULL };
                int gated = to == WIDE_SILU || to == WIDE_GELU;
                size_t bytes = want_make(&x, &p);

                for (int tile = 0; tile < WIDE_TILES; tile++)
                    if (launch_wide_fits(tile, gated, p.n, p.k, p.rows_n)) {
                        tile_check(&x, tile, &p, bytes);
                        ran[tile]++;
                    }
            }
    for (int tile = 0; tile < WIDE_TILES; tile++)
        assert_true(ran[tile] > 0);
    assert_false(launch_wide_fits(0, 1, 24, 8, 1));
    assert_false(launch_wide_fits(0, 1, 16, 4, 1));
    world_close(&x);
}

/* A NaN stays in its row, also where the rows of a tile are not all there. */
static void test_nan(void **state)
{
    enum { N = 448, K = 136, ROWS = 5, POISONED = 2 };
    struct world x = { 0 };
    uint16_t nan_bits = 0x7fc0;

    (void)state;
    if (!world_open(&x))
        skip();
    ok(cudaMemcpy(x.in + POISONED * K + 77, &nan_bits, sizeof nan_bits, cudaMemcpyHostToDevice));
    for (int tile = 0; tile < WIDE_TILES; tile++) {
        struct launch_wide p = { x.w, x.in, N, K, ROWS, WIDE_STORE, x.got };

        if (!launch_wide_fits(tile, 0, N, K, ROWS))
            continue;
        ok(launch_wide(0, tile, &p));
        ok(cudaMemcpy(x.host_got, x.got, ROWS * N * 4, cudaMemcpyDeviceToHost));
        for (int i = 0; i < ROWS * N; i++)
            assert_int_equal(isnan(((const float *)(const void *)x.host_got)[i]) != 0, i / N == POISONED);
    }
    world_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_bits), cmocka_unit_test(test_nan) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
