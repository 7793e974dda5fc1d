/* Inner loops for AVX2 with FMA: 6 rows x 16 columns fill 12 of 16 registers. */
#include <immintrin.h>

#include "kernels/cpu/loops.h"

#define LANES 8
#define TILE_ROWS 6
#define TILE_WIDE 1
#define MADD(a, b, c) ((vec)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
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
