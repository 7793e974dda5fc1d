/* Inner loops for AVX-512 with BF16 dot products: 12 rows x 32 columns fill 24 of 32 registers. VDPBF16PS multiplies a
 * pair of bf16 without rounding in between, flushes denormals and rounds to nearest even whatever MXCSR says. */
#include <immintrin.h>

#include "kernels/cpu/loops.h"

#define LANES 16
#define TILE_ROWS 12
#define TILE_WIDE 2
#define MADD(a, b, c) ((vec)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define CHAINS_BF16
#define DOT_PEAK
#include "kernels/cpu/loops_body.h"

INLINE vec dot(vec sum, __m512i w, __m512i x)
{
    return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)w, (__m512bh)x);
}

INLINE void tile_bf16(const struct chains *c, int rows, int blocks)
{
    vec sum[TILE_ROWS][TILE_WIDE];
    int r, b, k;

    UNROLL for (r = 0; r < rows; r++)
        UNROLL for (b = 0; b < blocks; b++)
            sum[r][b] = (vec){ 0 };
    for (k = 0; k < c->k; k += 2) {
        __m512i w[TILE_WIDE];

        UNROLL for (b = 0; b < blocks; b++)
            w[b] = _mm512_loadu_si512(c->w + (size_t)b * c->block_bytes + (size_t)k * 32);
        UNROLL for (r = 0; r < rows; r++) {
            int32_t pair;
            __m512i x;

            memcpy(&pair, c->in + (size_t)r * c->row_bytes + (size_t)k * 2, sizeof pair);
            x = _mm512_set1_epi32(pair);
            UNROLL for (b = 0; b < blocks; b++)
                sum[r][b] = dot(sum[r][b], w[b], x);
        }
    }
    UNROLL for (r = 0; r < rows; r++)
        UNROLL for (b = 0; b < blocks; b++)
            store(c->sums + r * TILE_COLS + b * CPU_BLOCK, sum[r][b]);
}

static void chains_bf16(const struct chains *c)
{
    TILE_SWITCH(tile_bf16);
}

static float dot_peak(int64_t turns, double *flops)
{
    vec sum[24];
    __m512i w = _mm512_set1_epi32(0x3f7f3f80), x = _mm512_set1_epi32(0x3c003c01);
    float lane[LANES];
    int64_t t;
    int i;

    UNROLL for (i = 0; i < 24; i++)
        sum[i] = all((float)i);
    for (t = 0; t < turns; t++) {
        __asm__ volatile("" : "+v"(w), "+v"(x));
        UNROLL for (i = 0; i < 24; i++)
            sum[i] = dot(sum[i], w, x);
    }
    UNROLL for (i = 1; i < 24; i++)
        sum[0] += sum[i];
    store(lane, sum[0]);
    *flops = (double)turns * 24 * 64;
    return lane[0];
}

const struct cpu_loops cpu_loops_avx512bf16 = {
    .tile_rows = TILE_ROWS,
    .tile_blocks = TILE_WIDE,
    .widen_in = false,
    .chains_bf16 = chains_bf16,
    .chains_fp32 = chains_fp32,
    .finish = finish,
    .rmsnorm = rmsnorm,
    .widen = widen,
    .dot_peak = dot_peak,
    .read = read_all,
};
