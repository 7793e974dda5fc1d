/* finish: what follows a product, element by element: bias, residual + bias, soft cap, act(gate) * up
 * Shapes    fp32 in place; gate: in [rows, 2 ff] fp32 (gate, then up), out [rows, ff] bf16 or fp32
 * Launch    256 threads a block, an element a thread (grid-stride); gate: grid = (ff / 1024, rows), 4 elements a thread
 * Traffic   each element read and written once: memory bound
 * Numerics  residual + (product + bias), in that order; exp and tanh of libdevice, to 2 ulp */
#include "kernels/cuda/bits.cuh"
#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/launch.h"

static unsigned blocks_for(int64_t n)
{
    int64_t blocks = (n + 255) / 256;

    return (unsigned)(blocks < 65536 ? blocks : 65536);
}

#define EACH(i, n) \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (int64_t)gridDim.x * blockDim.x)

static __global__ void bias_add(float *out, const float *bias, int64_t all, int n)
{
    EACH(i, all)
        out[i] = __fadd_rn(out[i], bias[i % n]);
}

static __global__ void residual_add(float *x, const float *y, const float *bias, int64_t all, int n)
{
    EACH(i, all)
        x[i] = __fadd_rn(x[i], __fadd_rn(y[i], bias[i % n]));
}

static __global__ void softcap(float *x, int64_t n, float cap)
{
    EACH(i, n)
        x[i] = cap * tanhf(x[i] / cap);
}

/* ff % 4 == 0, so that every row is 16-byte aligned. */
template <bool GELU>
static __global__ void gate_wide(const float *in, int ff, uint16_t *out)
{
    const float *row = in + (size_t)blockIdx.y * 2 * ff;
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;

    if (i >= ff)
        return;
    float4 x = *(const float4 *)(row + i), up = *(const float4 *)(row + ff + i);

    *(uint2 *)(out + (size_t)blockIdx.y * ff + i) =
        make_uint2(bf16_pair(gated<GELU>(x.x, up.x), gated<GELU>(x.y, up.y)),
                   bf16_pair(gated<GELU>(x.z, up.z), gated<GELU>(x.w, up.w)));
}

template <bool GELU, typename T>
static __global__ void gate(const float *in, int ff, T *out)
{
    const float *row = in + (size_t)blockIdx.y * 2 * ff;
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < ff)
        put(out + (size_t)blockIdx.y * ff + i, gated<GELU>(row[i], row[ff + i]));
}

template <bool GELU>
static void gate_run(cudaStream_t s, int fp32, const float *in, int rows_n, int ff, void *out)
{
    dim3 wide((unsigned)((ff + 1023) / 1024), (unsigned)rows_n), each((unsigned)((ff + 255) / 256), (unsigned)rows_n);

    if (fp32)
        gate<GELU><<<each, 256, 0, s>>>(in, ff, (float *)out);
    else if (ff % 4 == 0)
        gate_wide<GELU><<<wide, 256, 0, s>>>(in, ff, (uint16_t *)out);
    else
        gate<GELU><<<each, 256, 0, s>>>(in, ff, (uint16_t *)out);
}

cudaError_t launch_bias(cudaStream_t s, float *out, const float *bias, int64_t rows_n, int n)
{
    bias_add<<<blocks_for(rows_n * n), 256, 0, s>>>(out, bias, rows_n * n, n);
    return cudaGetLastError();
}

cudaError_t launch_add_bias(cudaStream_t s, float *x, const float *y, const float *bias, int64_t rows_n, int n)
{
    residual_add<<<blocks_for(rows_n * n), 256, 0, s>>>(x, y, bias, rows_n * n, n);
    return cudaGetLastError();
}

cudaError_t launch_softcap(cudaStream_t s, float *x, int64_t n, float cap)
{
    softcap<<<blocks_for(n), 256, 0, s>>>(x, n, cap);
    return cudaGetLastError();
}

cudaError_t launch_gate(cudaStream_t s, int fp32, const float *in, int rows_n, int ff, int gelu, void *out)
{
    if (gelu)
        gate_run<true>(s, fp32, in, rows_n, ff, out);
    else
        gate_run<false>(s, fp32, in, rows_n, ff, out);
    return cudaGetLastError();
}
