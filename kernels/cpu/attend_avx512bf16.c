/* Attention with AVX-512 and its dot products of bf16 pairs. */
#include "kernels/cpu/attend.h"

#include <immintrin.h>

#define LANES 16
#define QUERIES_AT_ONCE 6
#define WIDEN_Q true
#define ATTEND_TABLE attend_avx512bf16
#include "kernels/cpu/attend_body.h"

INLINE vec madd(vec a, vec b, vec c)
{
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
