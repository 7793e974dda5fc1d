/* embed: x[r,:] = table[token[r],:] * scale
 * Shapes    table [vocab, dim] bf16, token [rows] int32, x [rows, dim] fp32
 * Needs     dim even, rows of the table 4-byte aligned; token ids in range (the caller checks)
 * Launch    grid = rows, block = 128
 * Traffic   reads 2*rows*dim B, writes 4*rows*dim B: memory bound
 * Numerics  one rounding: exact for scale 1 */
#include "kernels/cuda/bits.cuh"
#include "kernels/cuda/launch.h"

static __global__ void embed(const uint32_t *table, const int32_t *token, int half, float scale, float2 *x)
{
    const uint32_t *from = table + (size_t)token[blockIdx.x] * half;
    float2 *to = x + (size_t)blockIdx.x * half;

    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        uint32_t pair = from[i];

        to[i] = make_float2(bf16_value((uint16_t)pair) * scale, bf16_value((uint16_t)(pair >> 16)) * scale);
    }
}

cudaError_t launch_embed(cudaStream_t s, const uint16_t *table, const int32_t *token, int rows_n, int dim, float scale,
                         float *x)
{
    embed<<<rows_n, 128, 0, s>>>((const uint32_t *)table, token, dim / 2, scale, (float2 *)x);
    return cudaGetLastError();
}
