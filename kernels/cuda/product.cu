/* product: out[r, n] (+)= sum_k w[n, k] in[r, k]
 * Shapes    w [n, k], in [rows, k] bf16 row-major; out [rows, n] fp32
 * Needs     product: k even, rows of w and in 4-byte aligned; product_few: k % 8 == 0, both 16-byte aligned, rows <= 32.
 *           Any other size is taken, edges are zero
 * Launch    product: grid = (n / 64, rows / 32), block = 4 warps of 16 outputs x 32 rows;
 *           product_few: grid = n / 16, block = 1 warp with a ring of 12 to 16 stages of 64 k, 48 to 72 KB shared
 * Traffic   reads 2*n*k B for every 32 rows, writes 4*rows*n B: memory bound
 * Numerics  one chain of m16n8k16 over k in order: the bits of cuBLASLt's kernels without a split of k (measured; checked
 *           again at loading), so rows may go through any of them
 * Why       product: for shapes that cuBLASLt has no aligned kernel for, and as the measure that all else is held to.
 *           product_few: cuBLASLt fills the device for few rows by splitting k; here a warp keeps 30 KB on the way, so
 *           that n / 16 warps do, and the chain (k / 16 steps of some 35 cycles) hides behind the memory */
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

/* ---- few rows ---- */

#define STAGE_K 64

template <int ROW_TILES>
struct stages { static const int N = ROW_TILES == 4 ? 12 : 16, BYTES = (16 + ROW_TILES * 8) * STAGE_K * 2; };

struct few {
    const uint16_t *w, *in;
    int n, k, rows_n;
};

/* What a lane copies of each stage: chunk lane % 8 of every fourth row, from lane / 8 on. */
template <int ROW_TILES>
struct copies {
    const uint16_t *w, *in;        /* its first rows, at the next stage */
    size_t step;                   /* four rows further on */
    uint32_t to;                   /* in the first stage's place; rows four further on stand 512 bytes on, swizzled alike */
    int w_there, in_there;         /* bit i: row 4i + lane / 8 is there */
    int left;                      /* k from the lane's chunk of the next stage on */
};

template <int ROW_TILES>
static __device__ __forceinline__ void copies_open(struct copies<ROW_TILES> &c, const struct few &f, int col, uint32_t base)
{
    int row = threadIdx.x / 8, chunk = threadIdx.x % 8;

    c.w = f.w + (size_t)(col + row) * f.k + chunk * 8;
    c.in = f.in + (size_t)row * f.k + chunk * 8;
    c.step = (size_t)4 * f.k;
    c.to = base + (uint32_t)(row * STAGE_K * 2);
    c.w_there = c.in_there = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        c.w_there |= (col + row + 4 * i < f.n) << i;
#pragma unroll
    for (int i = 0; i < ROW_TILES * 2; i++)
        c.in_there |= (row + 4 * i < f.rows_n) << i;
    c.left = f.k - chunk * 8;
}

/* A stage: 16 rows of w, then ROW_TILES * 8 rows of in, 64 k each. */
template <int ROW_TILES>
static __device__ __forceinline__ void stage_load(struct copies<ROW_TILES> &c, uint32_t stage)
{
    int row = threadIdx.x / 8, chunk = threadIdx.x % 8;
    /* rows 4 apart differ in one bit of what swizzles them */
    uint32_t even = c.to + stage + (uint32_t)((chunk ^ (row & 7)) << 4), odd = c.to + stage + (uint32_t)((chunk ^ ((row + 4) & 7)) << 4);

    if (c.left > 0) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bool there = c.w_there >> i & 1;

            copy_async((i % 2 ? odd : even) + i * 512, there ? c.w + i * c.step : c.w, there);
        }
#pragma unroll
        for (int i = 0; i < ROW_TILES * 2; i++) {
            bool there = c.in_there >> i & 1;

            copy_async((i % 2 ? odd : even) + 16 * STAGE_K * 2 + i * 512, there ? c.in + i * c.step : c.in, there);
        }
    } else {                       /* beyond k: zeros */
#pragma unroll
        for (int i = 0; i < 4 + ROW_TILES * 2; i++)
            copy_async((i % 2 ? odd : even) + i * 512, c.w, false);
    }
    c.w += STAGE_K;
    c.in += STAGE_K;
    c.left -= STAGE_K;
    copies_commit();
}

template <int ROW_TILES>
static __device__ __forceinline__ void stage_add(float (*sums)[4], uint32_t at)
{
    int lane = threadIdx.x;

#pragma unroll
    for (int pair = 0; pair < STAGE_K / 32; pair++) {
        uint32_t a[2][4], b[ROW_TILES][4];

        load_matrices(a[0], chunk_at<STAGE_K>(at, lane % 16, pair * 4 + lane / 16));
        load_matrices(a[1], chunk_at<STAGE_K>(at, lane % 16, pair * 4 + 2 + lane / 16));
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++)
            load_matrices(b[t], chunk_at<STAGE_K>(at + 16 * STAGE_K * 2, t * 8 + lane % 8, pair * 4 + lane / 8));
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int t = 0; t < ROW_TILES; t++)
                mma_16816(sums[t], a[i], b[t][2 * i], b[t][2 * i + 1]);
    }
}

template <int ROW_TILES>
static __global__ void __launch_bounds__(32) product_few(struct few f, int add, float *out)
{
    extern __shared__ __align__(128) char ring[];
    const int slots = stages<ROW_TILES>::N, bytes = stages<ROW_TILES>::BYTES;
    uint32_t base = (uint32_t)__cvta_generic_to_shared(ring), in = 0, at = 0;
    int lane = threadIdx.x, col = blockIdx.x * 16;
    float sums[ROW_TILES][4] = { { 0 } };
    struct copies<ROW_TILES> copies;

    copies_open(copies, f, col, base);
    for (int i = 0; i < slots - 1; i++, in += bytes)
        stage_load(copies, in);
    for (int k = 0; k < f.k; k += STAGE_K) {
        copies_wait<slots - 2>();
        __syncwarp();
        stage_load(copies, in);
        in = at;                   /* the stage that is being used is the next to be loaded */
        stage_add<ROW_TILES>(sums, base + at);
        at = at == (slots - 1) * bytes ? 0 : at + bytes;
    }
    copies_wait<0>();
#pragma unroll
    for (int t = 0; t < ROW_TILES; t++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int r = t * 8 + lane % 4 * 2 + i % 2, c = col + lane / 4 + i / 2 * 8;
            float *to = out + (size_t)r * f.n + c;

            if (r < f.rows_n && c < f.n)
                *to = add ? __fadd_rn(sums[t][i], *to) : sums[t][i];
        }
}

template <int ROW_TILES>
static cudaError_t few_init(void)
{
    return cudaFuncSetAttribute(product_few<ROW_TILES>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                stages<ROW_TILES>::N * stages<ROW_TILES>::BYTES);
}

template <int ROW_TILES>
static void few_run(cudaStream_t s, const struct few &f, int add, float *out)
{
    product_few<ROW_TILES><<<(f.n + 15) / 16, 32, stages<ROW_TILES>::N * stages<ROW_TILES>::BYTES, s>>>(f, add, out);
}

cudaError_t launch_product_init(void)
{
    cudaError_t e = few_init<1>();

    if (e == cudaSuccess)
        e = few_init<2>();
    return e == cudaSuccess ? few_init<4>() : e;
}

cudaError_t launch_product_few(cudaStream_t s, const uint16_t *w, int n, int k, const uint16_t *in, int rows_n, int add,
                               float *out)
{
    struct few f = { w, in, n, k, rows_n };

    if (rows_n <= 8)
        few_run<1>(s, f, add, out);
    else if (rows_n <= 16)
        few_run<2>(s, f, add, out);
    else
        few_run<4>(s, f, add, out);
    return cudaGetLastError();
}

cudaError_t launch_product(cudaStream_t s, const uint16_t *w, int n, int k, const uint16_t *in, int rows_n, int add,
                           float *out)
{
    dim3 grid((unsigned)((n + WARPS * 16 - 1) / (WARPS * 16)), (unsigned)((rows_n + TILES * 8 - 1) / (TILES * 8)));

    product<<<grid, WARPS * 32, 0, s>>>(w, n, k, in, rows_n, add, out);
    return cudaGetLastError();
}
