/* pages: whole pages, and single positions, moved inside the pool
 * Shapes    a page is `page_bytes` (all layers, keys and values); part p of a page is [2][16][dim] bf16
 * Needs     page_bytes % 16 == 0; dim % 8 == 0
 * Launch    copy: grid = (pages, 32), block = 256; move: grid = parts, block = 32..256: the moves of a part stay in order
 * Traffic   each byte read and written once: memory bound */
#include "kernels/cuda/launch.h"

static __global__ void pages_copy(char *pool, size_t page_bytes, const int32_t *src, const int32_t *dst)
{
    const uint4 *from = (const uint4 *)(pool + (size_t)src[blockIdx.x] * page_bytes);
    uint4 *to = (uint4 *)(pool + (size_t)dst[blockIdx.x] * page_bytes);
    size_t words = page_bytes / 16;

    for (size_t i = blockIdx.y * blockDim.x + threadIdx.x; i < words; i += gridDim.y * blockDim.x)
        to[i] = from[i];
}

/* A thread moves the same word of a position in every move, so that moves of one thread are in order; that word, wherever
 * in its row it stands, is touched by that thread alone. */
static __global__ void positions_move(uint16_t *pool, size_t page_elems, int dim, int swizzle,
                                      const struct launch_move *moves, int moves_n)
{
    int words = dim / 8;

    for (int i = 0; i < moves_n; i++) {
        struct launch_move m = moves[i];
        const uint16_t *from = pool + (size_t)m.src * page_elems + (size_t)blockIdx.x * 2 * CUDA_PAGE * dim;
        uint16_t *to = pool + (size_t)m.dst * page_elems + (size_t)blockIdx.x * 2 * CUDA_PAGE * dim;

        for (int w = threadIdx.x; w < 2 * words; w += blockDim.x) {
            size_t half = w < words ? 0 : (size_t)CUDA_PAGE * dim;
            int word = w < words ? w : w - words;

            ((uint4 *)(to + half + (size_t)m.to * dim))[word ^ (m.to & swizzle)] =
                ((const uint4 *)(from + half + (size_t)m.at * dim))[word ^ (m.at & swizzle)];
        }
    }
}

cudaError_t launch_pages_copy(cudaStream_t s, char *pool, size_t page_bytes, const int32_t *src, const int32_t *dst,
                              int pages_n)
{
    pages_copy<<<dim3((unsigned)pages_n, 32), 256, 0, s>>>(pool, page_bytes, src, dst);
    return cudaGetLastError();
}

cudaError_t launch_positions_move(cudaStream_t s, uint16_t *pool, size_t page_elems, int parts_n, int dim, int swizzle,
                                  const struct launch_move *moves, int moves_n)
{
    positions_move<<<parts_n, 64, 0, s>>>(pool, page_elems, dim, swizzle, moves, moves_n);
    return cudaGetLastError();
}
