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

// Stores in the type of the destination.
__device__ __forceinline__ void put(uint16_t *to, float x)
{
    *to = bf16_bits(x);
}

__device__ __forceinline__ void put(float *to, float x)
{
    *to = x;
}

__device__ __forceinline__ float get(const uint16_t *from)
{
    return bf16_value(*from);
}

__device__ __forceinline__ float get(const float *from)
{
    return *from;
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

// 16 bytes to shared memory while the thread goes on; there false: zeros.
__device__ __forceinline__ void copy_async(uint32_t to, const void *from, bool there)
{
    int bytes = there ? 16 : 0;

    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}

__device__ __forceinline__ void copies_commit(void)
{
    asm volatile("cp.async.commit_group;");
}

// All but the N groups committed last have arrived, for this thread.
template <int N>
__device__ __forceinline__ void copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N));
}

// Launched to overlap (product_wide.cu), the next kernel may begin when all blocks of this one have called it.
__device__ __forceinline__ void successor_start(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// All that kernels before this one wrote is there, and they have ended.
__device__ __forceinline__ void predecessor_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Four 8 x 8 matrices; lanes 8i .. 8i + 7 point at the rows of matrix i.
__device__ __forceinline__ void load_matrices(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

__device__ __forceinline__ void load_matrices_turned(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

// A row of shared memory of WIDTH bf16 is chunks of 16 bytes, swizzled by row so that ldmatrix meets no bank twice.
template <int WIDTH>
__device__ __forceinline__ uint32_t chunk_at(uint32_t base, int row, int chunk)
{
    return base + (uint32_t)(row * WIDTH * 2 + ((chunk ^ (row & 7)) << 4));
}

#endif
