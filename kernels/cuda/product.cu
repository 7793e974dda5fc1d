/* product: out[r, n] (+)= sum_k w[n, k] in[r, k]
 * Shapes    w [n, k], in [rows, k] bf16 row-major; out [rows, n] fp32
 * Needs     k even, rows of w and in 4-byte aligned: any other shape is taken, edges are zero
 * Launch    grid = (n / 64, rows / 32), block = 4 warps of 16 outputs x 32 rows
 * Traffic   reads 2*n*k B for every 32 rows, writes 4*rows*n B: memory bound
 * Numerics  one chain of m16n8k16 over k in order: the bits of cuBLASLt's kernels without a split of k (measured; cuda
 *           checks it at start), so rows may go through either
 * Why       for shapes that cuBLASLt has no aligned kernel for, and as the measure that its algorithms are held to */
#include "kernels/cuda/bits.cuh"
#include "kernels/cuda/launch.h"

#define WARPS 4
#define TILES 4                    /* of 8 rows */
#define AHEAD 4                    /* steps of k whose loads are in flight */

struct step { uint32_t a[4], b[TILES][2]; };

static __device__ __forceinline__ uint32_t word(const uint16_t *row, int at, int k)
{
    return row != NULL && at < k ? *(const uint32_t *)(row + at) : 0;
}

static __device__ __forceinline__ void step_load(struct step *s, const uint16_t *const w[2], const uint16_t *const *in,
                                                 int at, int k)
{
    s->a[0] = word(w[0], at, k);
    s->a[1] = word(w[1], at, k);
    s->a[2] = word(w[0], at + 8, k);
    s->a[3] = word(w[1], at + 8, k);
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        s->b[t][0] = word(in[t], at, k);
        s->b[t][1] = word(in[t], at + 8, k);
    }
}

static __global__ void __launch_bounds__(WARPS * 32) product(const uint16_t *w, int n, int k, const uint16_t *in,
                                                             int rows_n, int add, float *out)
{
    int lane = threadIdx.x % 32, g = lane / 4, t2 = lane % 4 * 2;
    int col = (blockIdx.x * WARPS + threadIdx.x / 32) * 16 + g, row = blockIdx.y * TILES * 8;
    const uint16_t *weights[2], *rows[TILES];
    float sums[TILES][4] = { { 0 } };
    struct step ring[AHEAD];

    for (int i = 0; i < 2; i++)
        weights[i] = col + 8 * i < n ? w + (size_t)(col + 8 * i) * k : NULL;
#pragma unroll
    for (int t = 0; t < TILES; t++)
        rows[t] = row + t * 8 + g < rows_n ? in + (size_t)(row + t * 8 + g) * k : NULL;
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        step_load(&ring[i], weights, rows, i * 16 + t2, k);
    for (int at = 0; at < k; at += 16 * AHEAD) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
#pragma unroll
            for (int t = 0; t < TILES; t++)    /* beyond k all words are 0, and adding nothing keeps the bits */
                mma_16816(sums[t], ring[i].a, ring[i].b[t][0], ring[i].b[t][1]);
            step_load(&ring[i], weights, rows, at + (i + AHEAD) * 16 + t2, k);
        }
    }
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int r = row + t * 8 + t2 + i % 2, c = col + i / 2 * 8;
            float *to = out + (size_t)r * n + c;

            if (r < rows_n && c < n)
                *to = add ? __fadd_rn(sums[t][i], *to) : sums[t][i];
        }
}

cudaError_t launch_product(cudaStream_t s, const uint16_t *w, int n, int k, const uint16_t *in, int rows_n, int add,
                           float *out)
{
    dim3 grid((unsigned)((n + WARPS * 16 - 1) / (WARPS * 16)), (unsigned)((rows_n + TILES * 8 - 1) / (TILES * 8)));

    product<<<grid, WARPS * 32, 0, s>>>(w, n, k, in, rows_n, add, out);
    return cudaGetLastError();
}
