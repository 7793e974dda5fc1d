// kernels/cuda/bits.cuh - private to the CUDA device: bf16 words, warp sums, the m16n8k16 product.
#ifndef KERNELS_CUDA_BITS_CUH
#define KERNELS_CUDA_BITS_CUH

#include <cuda_bf16.h>
#include <stdint.h>

__device__ __forceinline__ uint16_t bf16_bits(float x)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

__device__ __forceinline__ float bf16_value(uint16_t u)
{
    return __uint_as_float((uint32_t)u << 16);
}

// Two bf16 in a word, the first in the low half.
__device__ __forceinline__ uint32_t bf16_pair(float first, float second)
{
    return (uint32_t)bf16_bits(first) | (uint32_t)bf16_bits(second) << 16;
}

__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}

// c += a b: a [16 x 16] bf16 by rows, b [16 x 8] bf16 by columns, c [16 x 8] fp32. In lane l, with g = l / 4, t = l % 4:
// a[0] holds (g, 2t..), a[1] (g + 8, 2t..), a[2] (g, 2t + 8..), a[3] (g + 8, 2t + 8..); b[0] (2t.., g), b[1] (2t + 8.., g);
// c[0], c[1] (g, 2t..), c[2], c[3] (g + 8, 2t..).
__device__ __forceinline__ void mma_16816(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif
