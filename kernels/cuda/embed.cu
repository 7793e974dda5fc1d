/* embed: x[r,:] = table[token[r],:] * scale
 * Shapes    table [vocab, dim] bf16 or fp32, token [rows] int32, x [rows, dim] fp32
 * Needs     token ids in range (the caller checks)
 * Launch    grid = rows, block = 128
 * Traffic   reads 2*rows*dim B (fp32: 4), writes 4*rows*dim B: memory bound
 * Numerics  one rounding: exact for scale 1 */
#include "kernels/cuda/bits.cuh"
#include "kernels/cuda/launch.h"

template <typename T>
static __global__ void embed(const T *table, const int32_t *token, int dim, float scale, float *x)
{
    const T *from = table + (size_t)token[blockIdx.x] * dim;

    for (int i = threadIdx.x; i < dim; i += blockDim.x)
        x[(size_t)blockIdx.x * dim + i] = get(from + i) * scale;
}

cudaError_t launch_embed(cudaStream_t s, int fp32, const void *table, const int32_t *token, int rows_n, int dim, float scale,
                         float *x)
{
    if (fp32)
        embed<<<rows_n, 128, 0, s>>>((const float *)table, token, dim, scale, x);
    else
        embed<<<rows_n, 128, 0, s>>>((const uint16_t *)table, token, dim, scale, x);
    return cudaGetLastError();
}
