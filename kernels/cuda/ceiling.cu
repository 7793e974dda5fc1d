/* ceiling: reads memory and does nothing with it: what reading can reach on this device now
 * Launch    grid = 16 blocks a multiprocessor, block = 256, four loads of 16 bytes in flight a thread
 * Traffic   reads 16*n B */
#include "kernels/cuda/launch.h"

static __global__ void read_all(const uint4 *from, int64_t n, unsigned *sink)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x, i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = 0;

    for (; i + 3 * step < n; i += 4 * step) {
        uint4 a = __ldcs(from + i), b = __ldcs(from + i + step), c = __ldcs(from + i + 2 * step),
              d = __ldcs(from + i + 3 * step);

        x ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
    }
    for (; i < n; i += step)
        x ^= from[i].x;
    if (x == 0x12345678u)          /* never for real data, and the compiler cannot know */
        *sink = x;
}

cudaError_t launch_read(cudaStream_t s, const void *from, int64_t n, unsigned *sink)
{
    read_all<<<132 * 16, 256, 0, s>>>((const uint4 *)from, n, sink);
    return cudaGetLastError();
}
