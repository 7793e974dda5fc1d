/* pages: whole pages, and single positions, moved inside the pool
 * Shapes    a page is `page_bytes` (all layers, keys and values); part p of a page is [2][16] rows
 * Needs     page_bytes and row_bytes % 16 == 0
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
static __global__ void positions_move(char *pool, size_t page_bytes, int words, int swizzle, const struct launch_move *moves,
                                      int moves_n)
{
    for (int i = 0; i < moves_n; i++) {
        struct launch_move m = moves[i];
        size_t part = (size_t)blockIdx.x * 2 * CUDA_PAGE * words;
        const uint4 *from = (const uint4 *)(pool + (size_t)m.src * page_bytes) + part;
        uint4 *to = (uint4 *)(pool + (size_t)m.dst * page_bytes) + part;

        for (int w = threadIdx.x; w < 2 * words; w += blockDim.x) {
            int half = w < words ? 0 : CUDA_PAGE * words, word = w < words ? w : w - words;

            to[half + m.to * words + (word ^ (m.to & swizzle))] = from[half + m.at * words + (word ^ (m.at & swizzle))];
        }
    }
}

cudaError_t launch_pages_copy(cudaStream_t s, char *pool, size_t page_bytes, const int32_t *src, const int32_t *dst,
                              int pages_n)
{
    pages_copy<<<dim3((unsigned)pages_n, 32), 256, 0, s>>>(pool, page_bytes, src, dst);
    return cudaGetLastError();
}

cudaError_t launch_positions_move(cudaStream_t s, char *pool, size_t page_bytes, int parts_n, int row_bytes, int swizzle,
                                  const struct launch_move *moves, int moves_n)
{
    positions_move<<<parts_n, 64, 0, s>>>(pool, page_bytes, row_bytes / 16, swizzle, moves, moves_n);
    return cudaGetLastError();
}
