/* Inner loops for AVX-512 with BF16 dot products. Tiles of 8 rows x 32 columns: 16 sums are more than enough to
 * hide the latency of VDPBF16PS, and 12 rows (24 sums) were 4 % slower on Zen 4. VDPBF16PS multiplies a pair of bf16 without
 * rounding in between, flushes denormals and rounds to nearest even whatever MXCSR says. */
#include <immintrin.h>

#include "kernels/cpu/loops.h"

#define LANES 16
#define TILE_ROWS 8
#define TILE_WIDE 2
#define MADD(a, b, c) ((vec)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define CLAMP(x, low, high) \
    ((vec)_mm512_min_ps((__m512)(high), _mm512_max_ps((__m512)(low), (__m512)(x))))    /* of a NaN: the second */
#define CHAINS_BF16
#define DOT_PEAK
#include "kernels/cpu/loops_body.h"

INLINE vec dot(vec sum, __m512i w, __m512i x)
{
    return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)w, (__m512bh)x);
}

/* Two lines of the next weights are fetched into L2 a step: that is as many as the step uses. */
INLINE void tile_part(const struct chains *c, int rows, int halves, bool fetch)
{
    vec sum[TILE_ROWS][TILE_WIDE];
    const char *next = c->next;
    int r, h, k;

    sums_begin(c, rows, halves, sum);
    for (k = 0; k < c->k; k += 2) {
        __m512i w[TILE_WIDE];

        if (fetch) {
            __builtin_prefetch(next, 0, 2);
            __builtin_prefetch(next + 64, 0, 2);
            next += c->next_bytes;
        }
        UNROLL for (h = 0; h < halves; h++)
            w[h] = _mm512_loadu_si512(c->w + (size_t)k / 2 * STEP_BYTES + h * 64);
        UNROLL for (r = 0; r < rows; r++) {
            int32_t pair;
            __m512i x;

            memcpy(&pair, c->in + (size_t)r * c->row_bytes + (size_t)k * 2, sizeof pair);
            x = _mm512_set1_epi32(pair);
            UNROLL for (h = 0; h < halves; h++)
                sum[r][h] = dot(sum[r][h], w[h], x);
        }
    }
    sums_end(c, rows, halves, sum);
}

INLINE void tile_bf16(const struct chains *c, int rows, int halves)
{
    if (c->next != NULL)
        tile_part(c, rows, halves, true);
    else
        tile_part(c, rows, halves, false);
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
    .tile_halves = TILE_WIDE,
    .widen_in = false,
    .chains_bf16 = chains_bf16,
    .chains_fp32 = chains_fp32,
    .finish = finish,
    .rmsnorm = rmsnorm,
    .widen = widen,
    .dot_peak = dot_peak,
    .read = read_all,
};
