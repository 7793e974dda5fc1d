/* rmsnorm: out[r,:] = x[p,:] / sqrt(mean(x[p,:]^2) + eps) * w, p = rows[r] (or r)
 * Shapes    x [*, dim] fp32, w [dim] fp32, out [rows, dim] bf16 or fp32
 * Launch    grid = rows, block = 256, one partial sum per warp in shared memory
 * Traffic   reads 4*rows*dim B (the second pass hits L1), writes 2*rows*dim B, w comes from L2: memory bound
 * Numerics  sum in fp32: a thread's elements in order, then lanes, then warps; depends on dim alone */
#include "kernels/cuda/bits.cuh"
#include "kernels/cuda/launch.cuh"

#define THREADS 256

static __device__ float norm_scale(float sum, int dim, float eps)
{
    __shared__ float part[THREADS / 32];

    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < THREADS / 32; i++)
        sum += part[i];
    return 1.0f / sqrtf(sum / (float)dim + eps);
}

/* dim % 4 == 0: every row is 16-byte aligned. */
static __global__ void rmsnorm_wide(const float *x, const float *w, float eps, const int32_t *rows, int dim, uint16_t *out)
{
    const float4 *from = (const float4 *)(x + (size_t)(rows != NULL ? rows[blockIdx.x] : blockIdx.x) * dim);
    uint2 *to = (uint2 *)(out + (size_t)blockIdx.x * dim);
    float sum = 0, scale;

    successor_start();
    predecessor_wait();
    for (int i = threadIdx.x; i < dim / 4; i += THREADS) {
        float4 v = from[i];

        sum += v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w);
    }
    scale = norm_scale(sum, dim, eps);
    for (int i = threadIdx.x; i < dim / 4; i += THREADS) {
        float4 v = from[i], f = ((const float4 *)w)[i];

        to[i] = make_uint2(bf16_pair(v.x * scale * f.x, v.y * scale * f.y), bf16_pair(v.z * scale * f.z, v.w * scale * f.w));
    }
}

template <typename T>
static __global__ void rmsnorm(const float *x, const float *w, float eps, const int32_t *rows, int dim, T *out)
{
    const float *from = x + (size_t)(rows != NULL ? rows[blockIdx.x] : blockIdx.x) * dim;
    T *to = out + (size_t)blockIdx.x * dim;
    float sum = 0, scale;

    for (int i = threadIdx.x; i < dim; i += THREADS)
        sum += from[i] * from[i];
    scale = norm_scale(sum, dim, eps);
    for (int i = threadIdx.x; i < dim; i += THREADS)
        put(to + i, from[i] * scale * w[i]);
}

cudaError_t launch_rmsnorm(cudaStream_t s, int fp32, const float *x, const float *w, float eps, const int32_t *rows,
                           int rows_n, int dim, void *out)
{
    if (fp32)
        rmsnorm<<<rows_n, THREADS, 0, s>>>(x, w, eps, rows, dim, (float *)out);
    else if (dim % 4 == 0)
        return launch_close(rmsnorm_wide, dim3((unsigned)rows_n), THREADS, 0, s, x, w, eps, rows, dim, (uint16_t *)out);
    else
        rmsnorm<<<rows_n, THREADS, 0, s>>>(x, w, eps, rows, dim, (uint16_t *)out);
    return cudaGetLastError();
}
