/* Inner loops for AVX2 with FMA. Tiles of 4 rows x 16 columns: 8 sums, enough for the latency of FMA, and with 6 rows the
 * compiler spills the halves of the weights. */
#include <immintrin.h>

#include "kernels/cpu/loops.h"

#define LANES 8
#define TILE_ROWS 4
#define TILE_WIDE 1
#define MADD(a, b, c) ((vec)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define CLAMP(x, low, high) \
    ((vec)_mm256_min_ps((__m256)(high), _mm256_max_ps((__m256)(low), (__m256)(x))))    /* of a NaN: the second */
#include "kernels/cpu/loops_body.h"

const struct cpu_loops cpu_loops_avx2 = {
    .tile_rows = TILE_ROWS,
    .tile_halves = TILE_WIDE,
    .widen_in = true,
    .chains_bf16 = chains_bf16,
    .chains_fp32 = chains_fp32,
    .finish = finish,
    .rmsnorm = rmsnorm,
    .widen = widen,
    .dot_peak = dot_peak,
    .read = read_all,
};
