/* pack: weights as products read them; random numbers and the comparison that the start-up check of products uses
 * Shapes    any n; fp32 in, bf16 out, nearest even
 * Launch    256 threads a block, grid-stride
 * Traffic   each element once: memory bound
 * Numerics  random: splitmix64 (Steele et al., OOPSLA'14) of seed + index, top 24 bits to [-1, 1) */
#include "kernels/cuda/bits.cuh"
#include "kernels/cuda/launch.h"

static unsigned blocks_for(int64_t n)
{
    int64_t blocks = (n + 255) / 256;

    return (unsigned)(blocks < 16384 ? blocks : 16384);
}

#define EACH(i, n) \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (int64_t)gridDim.x * blockDim.x)

static __global__ void pack(const float *in, int64_t n, uint16_t *out)
{
    EACH(i, n)
        out[i] = bf16_bits(in[i]);
}

static __device__ float random_at(uint64_t seed, int64_t i)
{
    uint64_t z = seed + (uint64_t)(i + 1) * 0x9E3779B97F4A7C15ull;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return (float)((z ^ z >> 31) >> 40) * 0x1p-23f - 1.0f;
}

static __global__ void random_bf16(uint64_t seed, int64_t n, uint16_t *out)
{
    EACH(i, n)
        out[i] = bf16_bits(random_at(seed, i));
}

static __global__ void random_fp32(uint64_t seed, int64_t n, float *out)
{
    EACH(i, n)
        out[i] = random_at(seed, i);
}

static __global__ void compare(const float *a, const float *b, const float *c, int64_t n, unsigned long long *differ)
{
    unsigned long long mine = 0;

    EACH(i, n) {
        float want = c != NULL ? __fadd_rn(b[i], c[i]) : b[i];

        mine += __float_as_uint(a[i]) != __float_as_uint(want);
    }
    if (mine > 0)
        atomicAdd(differ, mine);
}

cudaError_t launch_pack(cudaStream_t s, const float *in, int64_t n, uint16_t *out)
{
    pack<<<blocks_for(n), 256, 0, s>>>(in, n, out);
    return cudaGetLastError();
}

cudaError_t launch_random(cudaStream_t s, uint64_t seed, int64_t n, uint16_t *out)
{
    random_bf16<<<blocks_for(n), 256, 0, s>>>(seed, n, out);
    return cudaGetLastError();
}

cudaError_t launch_random_fp32(cudaStream_t s, uint64_t seed, int64_t n, float *out)
{
    random_fp32<<<blocks_for(n), 256, 0, s>>>(seed, n, out);
    return cudaGetLastError();
}

cudaError_t launch_compare(cudaStream_t s, const float *a, const float *b, const float *c, int64_t n,
                           unsigned long long *differ)
{
    compare<<<blocks_for(n), 256, 0, s>>>(a, b, c, n, differ);
    return cudaGetLastError();
}
