/* product_fp32: out[r, n] (+)= sum_k w[n, k] in[r, k], the reference
 * Shapes    w [n, k], in [rows, k], out [rows, n] fp32 row-major
 * Launch    grid = (n / 32, rows / 32), block = 32 x 8, 8 KB shared: four rows a thread
 * Traffic   reads 4*n*k B for every 32 rows: bound by shared memory, and slow
 * Numerics  one chain of fused multiply-adds over k in order: a row's bits depend on the row
 * Why       for checking, never for speed: no tf32 anywhere */
#include "kernels/cuda/launch.h"

#define TILE 32
#define ROWS 4

static __global__ void product_fp32(const float *w, int n, int k, const float *in, int rows_n, int add, float *out)
{
    __shared__ float ws[TILE][TILE + 1], xs[TILE][TILE + 1];
    int x = threadIdx.x, y = threadIdx.y, col = blockIdx.x * TILE, row = blockIdx.y * TILE;
    float sums[ROWS] = { 0 };

    for (int at = 0; at < k; at += TILE) {
        for (int i = y; i < TILE; i += TILE / ROWS) {
            ws[i][x] = col + i < n && at + x < k ? w[(size_t)(col + i) * k + at + x] : 0;
            xs[i][x] = row + i < rows_n && at + x < k ? in[(size_t)(row + i) * k + at + x] : 0;
        }
        __syncthreads();
        for (int i = 0; i < TILE && at + i < k; i++)
#pragma unroll
            for (int j = 0; j < ROWS; j++)
                sums[j] = fmaf(ws[x][i], xs[y * ROWS + j][i], sums[j]);
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < ROWS; j++) {
        int r = row + y * ROWS + j, c = col + x;
        float *to = out + (size_t)r * n + c;

        if (r < rows_n && c < n)
            *to = add ? __fadd_rn(sums[j], *to) : sums[j];
    }
}

cudaError_t launch_product_fp32(cudaStream_t s, const float *w, int n, int k, const float *in, int rows_n, int add,
                                float *out)
{
    dim3 grid((unsigned)((n + TILE - 1) / TILE), (unsigned)((rows_n + TILE - 1) / TILE)), block(TILE, TILE / ROWS);

    product_fp32<<<grid, block, 0, s>>>(w, n, k, in, rows_n, add, out);
    return cudaGetLastError();
}
