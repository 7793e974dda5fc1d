/* Compiled with -mavx512f and its kin. */
#include <immintrin.h>

#define LANES 16
#define MUL_LOW(a, b) ((qvec)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#define LANES_TABLE lanes_avx512bf16
#include "kernels/cpu/lanes_body.h"
