/* Compiled with -mavx2. */
#include <immintrin.h>

#define LANES 8
#define MUL_LOW(a, b) ((qvec)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#define LANES_TABLE lanes_avx2
#include "kernels/cpu/lanes_body.h"
