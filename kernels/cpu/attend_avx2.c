/* Attention with AVX2 and FMA. Compiled with -mavx2 -mfma. */
#include "kernels/cpu/attend.h"

#include <immintrin.h>

#define LANES 8
#define QUERIES_AT_ONCE 3
#define MADD(a, b, c) ((vec)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define ATTEND_TABLE attend_avx2
#include "kernels/cpu/attend_body.h"
