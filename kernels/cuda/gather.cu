/* gather: out[i] = in[rows[i]], whole rows
 * Needs     row_bytes % 4 == 0 or % 2 == 0; words as wide as row_bytes and both pointers allow
 * Launch    grid = rows, block = 128
 * Traffic   reads and writes rows * row_bytes: memory bound */
#include "kernels/cuda/launch.h"

template <typename T>
static __global__ void gather(const T *in, const int32_t *rows, size_t words, T *out)
{
    const T *from = in + (size_t)rows[blockIdx.x] * words;

    for (size_t i = threadIdx.x; i < words; i += blockDim.x)
        out[(size_t)blockIdx.x * words + i] = from[i];
}

cudaError_t launch_gather(cudaStream_t s, const void *in, const int32_t *rows, int rows_n, size_t row_bytes, void *out)
{
    size_t all = row_bytes | (size_t)(uintptr_t)in | (size_t)(uintptr_t)out;

    if (all % 16 == 0)
        gather<<<rows_n, 128, 0, s>>>((const uint4 *)in, rows, row_bytes / 16, (uint4 *)out);
    else if (all % 4 == 0)
        gather<<<rows_n, 128, 0, s>>>((const uint32_t *)in, rows, row_bytes / 4, (uint32_t *)out);
    else
        gather<<<rows_n, 128, 0, s>>>((const uint16_t *)in, rows, row_bytes / 2, (uint16_t *)out);
    return cudaGetLastError();
}
