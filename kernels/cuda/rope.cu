/* rope: queries and keys normed and turned (Su et al. 2021), queries scaled; keys and values into the pages
 * Shapes    (q and pages: bf16, or fp32 without swizzle) qkv [rows, heads + 2 kv_heads, dim] fp32; q [rows, heads, dim] bf16; pages as in launch.h; turns [rows, half] (cos, sin)
 * Needs     half <= dim / 2, dim % 8 == 0
 * Launch    grid = rows (times heads / 8 if rows are few), block = 8 warps that take heads in turn; turns: grid = rows,
 *           block = 64
 * Traffic   reads 4 B, writes 2 B an element: memory bound
 * Numerics  no fused multiply-add (this file is compiled with -fmad=false): without a norm the bits of cpu/rope.c. The
 *           angle is rounded to fp32 as the models were trained; its cos and sin are computed in double.
 * Why       a value that is not finite becomes 0 and its key NaN: pages hold finite values only, so that what an
 *           earlier owner left in a position that nobody may see counts 0 times a number. */
#include "kernels/cuda/bits.cuh"
#include "kernels/cuda/launch.cuh"

#define WARPS 8
#define ROWS_MANY 512              /* rows that fill the device with one block each */

/* |x| < 1.6 million to less than 1 ulp of double: reduction by pi/2 in two parts, polynomials of fdlibm's k_sin.c and
 * k_cos.c (Sun, 1993); the operations of cpu/rope.c one for one. */
static __device__ void sin_cos(double x, double *sin_out, double *cos_out)
{
    double n = rint(x * 0.636619772367581343), r, z, s, c;

    r = (x - n * 1.57079632673412561417e+00) - n * 6.07710050650619224932e-11;
    z = r * r;
    s = r + r * z * (-1.66666666666666324348e-01 + z * (8.33333333332248946124e-03 + z * (-1.98412698298579493134e-04 +
        z * (2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)))));
    c = 1.0 - (0.5 * z - z * z * (4.16666666666666019037e-02 + z * (-1.38888888888741095749e-03 +
        z * (2.48015872894767294178e-05 + z * (-2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 +
        z * -1.13596475577881948265e-11))))));
    switch ((long long)n & 3) {
    case 0: *sin_out = s; *cos_out = c; break;
    case 1: *sin_out = c; *cos_out = -s; break;
    case 2: *sin_out = -s; *cos_out = -c; break;
    default: *sin_out = -c; *cos_out = s; break;
    }
}

static __global__ void turns(const int32_t *pos, const float *inv_freq, int half, float magnitude, float2 *out)
{
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        double s, c;

        sin_cos((double)((float)pos[blockIdx.x] * inv_freq[i]), &s, &c);
        out[(size_t)blockIdx.x * half + i] = make_float2((float)(c * magnitude), (float)(s * magnitude));
    }
}

static __device__ float norm_scale(const float *in, int dim, float eps)
{
    float sum = 0;

    for (int i = threadIdx.x % 32; i < dim; i += 32)
        sum += in[i] * in[i];
    return 1.0f / sqrtf(warp_sum(sum) / (float)dim + eps);
}

/* Where element i of a row stands whose chunks are swizzled by `turn`. */
static __device__ __forceinline__ int place(int i, int turn)
{
    return i ^ turn << 3;
}

static __device__ __forceinline__ void put_nan(uint16_t *to)
{
    *to = 0x7fff;
}

static __device__ __forceinline__ void put_nan(float *to)
{
    *to = __uint_as_float(0x7fffffffu);
}

/* Both of a pair of neighbours. */
static __device__ __forceinline__ void put_two(uint16_t *to, float x, float y)
{
    *(uint32_t *)to = bf16_pair(x, y);
}

static __device__ __forceinline__ void put_two(float *to, float x, float y)
{
    *(float2 *)to = make_float2(x, y);
}

/* One head by a warp. f: 1 or the norm's scale; w: NULL or the norm's weights. */
template <typename T>
static __device__ void head_turn(const struct launch_rope &r, const float *in, const float2 *turn, float f,
                                 const float *w, float scale, bool dead, int swizzle, T *to)
{
    int lane = threadIdx.x % 32;

    bool wide = !r.neighbours && r.half % 2 == 0;  /* two pairs a lane: the common case */

    for (int i = lane; dead && i < r.dim; i += 32)
        put_nan(to + i);
    if (dead)
        return;

    for (int i = 2 * lane; i < (wide ? r.half : 0); i += 64) {
        float2 x = *(const float2 *)(in + i), y = *(const float2 *)(in + i + r.half);
        float4 t = *(const float4 *)(turn + i);        /* cos, sin, cos, sin */

        if (w != NULL) {
            x = make_float2(x.x * f * w[i], x.y * f * w[i + 1]);
            y = make_float2(y.x * f * w[i + r.half], y.y * f * w[i + r.half + 1]);
        }
        put_two(to + place(i, swizzle), (x.x * t.x - y.x * t.y) * scale, (x.y * t.z - y.y * t.w) * scale);
        put_two(to + place(i + r.half, swizzle), (y.x * t.x + x.x * t.y) * scale, (y.y * t.z + x.y * t.w) * scale);
    }
    for (int i = lane; i < (wide ? 0 : r.half); i += 32) {
        int a = r.neighbours ? 2 * i : i, b = r.neighbours ? 2 * i + 1 : i + r.half;
        float x = in[a], y = in[b], c = turn[i].x, s = turn[i].y;

        if (w != NULL) {
            x = x * f * w[a];
            y = y * f * w[b];
        }
        put(to + place(a, swizzle), (x * c - y * s) * scale);
        put(to + place(b, swizzle), (y * c + x * s) * scale);
    }
    for (int i = 2 * r.half + lane; i < r.dim; i += 32) {
        float x = w != NULL ? in[i] * f * w[i] : in[i];

        put(to + place(i, swizzle), x * scale);
    }
}

/* Copies a value; true: it is not finite in bf16, and zeros were written. */
template <typename T>
static __device__ bool value_write(const float *in, int dim, int swizzle, T *to)
{
    bool bad = false;

    for (int i = threadIdx.x % 32; i < dim; i += 32)
        bad |= (__float_as_uint(in[i]) & 0x7fffffffu) >= 0x7f7f8000u;
    bad = __any_sync(0xffffffffu, bad);
    for (int i = threadIdx.x % 32 * 2; i < dim; i += 64)
        put_two(to + place(i, swizzle), bad ? 0 : in[i], bad ? 0 : in[i + 1]);
    return bad;
}

template <typename T>
static __global__ void rope(struct launch_rope r)
{
    successor_start();
    predecessor_wait();
    int row = blockIdx.x, slot = r.slot[row];
    const float *in = r.qkv + (size_t)row * (r.heads_n + 2 * r.kv_heads_n) * r.dim;
    const float2 *turn = r.turns + (size_t)row * r.half;

    for (int h = blockIdx.y * WARPS + threadIdx.x / 32; h < r.heads_n + r.kv_heads_n; h += WARPS * gridDim.y) {
        const float *x = in + (size_t)h * r.dim, *w = h < r.heads_n ? r.q_norm : r.k_norm;
        float f = w != NULL ? norm_scale(x, r.dim, r.eps) : 1;

        if (h < r.heads_n) {
            head_turn(r, x, turn, f, w, r.scale, false, 0, (T *)r.q + ((size_t)row * r.heads_n + h) * r.dim);
        } else {
            T *part = (T *)r.kv + (size_t)(slot / CUDA_PAGE) * r.page_elems +
                             (size_t)(h - r.heads_n) * 2 * CUDA_PAGE * r.dim;
            size_t at = (size_t)(slot % CUDA_PAGE) * r.dim;
            int swizzle = slot & r.swizzle;
            bool dead = value_write(x + (size_t)r.kv_heads_n * r.dim, r.dim, swizzle, part + (size_t)CUDA_PAGE * r.dim + at);

            head_turn(r, x, turn, f, w, 1, dead, swizzle, part + at);
        }
    }
}

cudaError_t launch_turns(cudaStream_t s, const int32_t *pos, int rows_n, const float *inv_freq, int half,
                         float magnitude, float2 *out)
{
    turns<<<rows_n, 64, 0, s>>>(pos, inv_freq, half, magnitude, out);
    return cudaGetLastError();
}

cudaError_t launch_rope(cudaStream_t s, const struct launch_rope *r)
{
    int parts = r->rows_n < ROWS_MANY ? (r->heads_n + r->kv_heads_n + WARPS - 1) / WARPS : 1;

    if (r->fp32)
        rope<float><<<dim3((unsigned)r->rows_n, (unsigned)parts), WARPS * 32, 0, s>>>(*r);
    else
        return launch_close(rope<uint16_t>, dim3((unsigned)r->rows_n, (unsigned)parts), WARPS * 32, 0, s, *r);
    return cudaGetLastError();
}
