/* kernels/cpu/loops_body.h - the body of each loops_*.c, included once by each after it has defined
 *   LANES, TILE_ROWS, TILE_WIDE   vector width in floats; highest tile; its width in halves (sums stay in registers)
 *   MADD(a, b, c)                 a * b + c as the set does it best, always the same way
 *   CLAMP(x, low, high)           only if the set does it better; a NaN stays one
 *   CHAINS_BF16, DOT_PEAK         only if the set multiplies bf16 itself; else bf16 products run in fp32 here */
#include <math.h>

#include "kernels/cpu/vec_body.h"

#define HALF_VECS (HALF / LANES)
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

INLINE vec madd(vec a, vec b, vec c)
{
    return MADD(a, b, c);
}

INLINE vec clamp(vec x, vec low, vec high)
{
#ifdef CLAMP
    return CLAMP(x, low, high);
#else
    return choose(x < low, low, choose(x > high, high, x));
#endif
}

/* e^x to 2 ulp in [-87, 88], clamped outside; a NaN stays one (Cody and Waite's reduction, Cephes' polynomial). */
INLINE vec vexp(vec x)
{
    const vec magic = all(12582912.0f);        /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
    vec rounded, n, r, p;

    x = clamp(x, all(-87.0f), all(88.0f));
    rounded = madd(x, all(1.44269504f), magic);
    n = rounded - magic;
    r = madd(n, all(-0.693359375f), x);
    r = madd(n, all(2.12194440e-4f), r);
    p = all(1.9875691500e-4f);
    p = madd(p, r, all(1.3981999507e-3f));
    p = madd(p, r, all(8.3334519073e-3f));
    p = madd(p, r, all(4.1665795894e-2f));
    p = madd(p, r, all(1.6666665459e-1f));
    p = madd(p, r, all(5.0000001201e-1f));
    p = madd(p, r * r, r) + all(1.0f);
    return (vec)((ivec)p + ((ivec)rounded << 23));     /* n stands in the low bits; p is in [0.7, 1.5] */
}

/* bf16_of, vector by vector. */
INLINE void store_narrow(void *p, vec x)
{
    uvec u = (uvec)x;
    uvec nan = (uvec)((ivec)(u & 0x7fffffffu) > 0x7f800000);
    uvec rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    hvec h = __builtin_convertvector((rounded & ~nan) | ((u >> 16 | 0x40u) & nan), hvec);

    memcpy(p, &h, sizeof h);
}

/* ---- chains ---- */

/* The sums of a tile stay in registers: rows and halves are constants wherever these are inlined. */
INLINE void sums_begin(const struct chains *c, int rows, int halves, vec sum[][TILE_WIDE * HALF_VECS])
{
    int r, v;

    UNROLL for (r = 0; r < rows; r++)
        UNROLL for (v = 0; v < halves * HALF_VECS; v++)
            sum[r][v] = (vec){ 0 };
    if (!c->go_on)
        return;
    UNROLL for (r = 0; r < rows; r++)
        UNROLL for (v = 0; v < halves * HALF_VECS; v++)
            sum[r][v] = load(c->sums + r * STRIP + v * LANES);
}

INLINE void sums_end(const struct chains *c, int rows, int halves, vec sum[][TILE_WIDE * HALF_VECS])
{
    float *sums = c->sums;
    int r, v;

    UNROLL for (r = 0; r < rows; r++)
        UNROLL for (v = 0; v < halves * HALF_VECS; v++)
            store(sums + r * STRIP + v * LANES, sum[r][v]);
}

INLINE void tile_fp32(const struct chains *c, int rows, int halves)
{
    vec sum[TILE_ROWS][TILE_WIDE * HALF_VECS];
    int r, v, k;

    sums_begin(c, rows, halves, sum);
    for (k = 0; k < c->k; k++) {
        vec w[TILE_WIDE * HALF_VECS];

        UNROLL for (v = 0; v < halves * HALF_VECS; v++)
            w[v] = load((const float *)c->w + (size_t)k * STRIP + v * LANES);
        UNROLL for (r = 0; r < rows; r++) {
            vec x = all(((const float *)(c->in + (size_t)r * c->row_bytes))[k]);

            UNROLL for (v = 0; v < halves * HALF_VECS; v++)
                sum[r][v] = madd(w[v], x, sum[r][v]);
        }
    }
    sums_end(c, rows, halves, sum);
}

/* One call of a tile function for each height. */
#define TILE_CASE(tile, n) \
    case n: \
        if (n > TILE_ROWS) \
            break; \
        if (c->halves == TILE_WIDE) \
            tile(c, n <= TILE_ROWS ? n : 1, TILE_WIDE); \
        else \
            tile(c, n <= TILE_ROWS ? n : 1, 1); \
        return;
#define TILE_SWITCH(tile) \
    switch (c->rows) { \
    TILE_CASE(tile, 1) TILE_CASE(tile, 2) TILE_CASE(tile, 3) TILE_CASE(tile, 4) TILE_CASE(tile, 5) TILE_CASE(tile, 6) \
    TILE_CASE(tile, 7) TILE_CASE(tile, 8) TILE_CASE(tile, 9) TILE_CASE(tile, 10) TILE_CASE(tile, 11) \
    TILE_CASE(tile, 12) TILE_CASE(tile, 13) TILE_CASE(tile, 14) \
    } \
    ASSERT(!"a tile of that height")

static void chains_fp32(const struct chains *c)
{
    TILE_SWITCH(tile_fp32);
}

#ifndef CHAINS_BF16

/* bf16 weights against rows widened to fp32: first k of the pair, then k + 1. */
INLINE void tile_bf16(const struct chains *c, int rows, int halves)
{
    vec sum[TILE_ROWS][TILE_WIDE * HALF_VECS];
    int r, v, k, odd;

    sums_begin(c, rows, halves, sum);
    for (k = 0; k < c->k; k += 2)
        UNROLL for (odd = 0; odd < 2; odd++) {
            vec w[TILE_WIDE * HALF_VECS];

            UNROLL for (v = 0; v < halves * HALF_VECS; v++) {
                uvec u = (uvec)load((const float *)c->w + (size_t)k / 2 * STRIP + v * LANES);

                w[v] = (vec)(odd ? u & 0xffff0000u : u << 16);
            }
            UNROLL for (r = 0; r < rows; r++) {
                vec x = all(((const float *)(c->in + (size_t)r * c->row_bytes))[k + odd]);

                UNROLL for (v = 0; v < halves * HALF_VECS; v++)
                    sum[r][v] = madd(w[v], x, sum[r][v]);
            }
        }
    sums_end(c, rows, halves, sum);
}

static void chains_bf16(const struct chains *c)
{
    TILE_SWITCH(tile_bf16);
}

#endif

/* ---- what becomes of the sums ---- */

INLINE vec gated(enum finish_to to, vec gate, vec up)
{
    vec turn = gate;               /* gelu, tanh form: 0.5 (1 + tanh u) = 1 / (1 + e^-2u) */

    if (to == FINISH_GELU_TANH)
        turn = all(1.5957691216f) * madd(gate * gate * gate, all(0.044715f), gate);
    return gate / (all(1.0f) + vexp(-turn)) * up;
}

INLINE vec capped(vec x, float cap)            /* cap * tanh(x / cap) */
{
    return all(cap) - all(2.0f * cap) / (all(1.0f) + vexp(x * all(2.0f / cap)));
}

/* Up to LANES values; what is not there reads as 0. */
INLINE vec load_some(const void *p, int n)
{
    vec v = { 0 };

    if (n == LANES)
        return load(p);
    memcpy(&v, p, (size_t)n * 4);
    return v;
}

INLINE void store_some(char *p, vec v, int n, bool to_bf16)
{
    char part[LANES * 4];

    if (n == LANES && to_bf16) {
        store_narrow(p, v);
    } else if (n == LANES) {
        store(p, v);
    } else {
        if (to_bf16)
            store_narrow(part, v);
        else
            store(part, v);
        memcpy(p, part, (size_t)n * (to_bf16 ? 2 : 4));
    }
}

/* Columns [col, col + n) of a row, n <= LANES. */
INLINE void finish_vec(const struct finish *f, enum finish_to to, const float *sums, char *out, int col, int n)
{
    vec v = load(sums + col);

    out += (size_t)col * (f->narrow ? 2 : 4);
    if (to == FINISH_SILU || to == FINISH_GELU_TANH)
        v = gated(to, v, load(sums + HALF + col));
    else if (f->bias != NULL)
        v += load_some(f->bias + col, n);
    if (to == FINISH_STORE && f->softcap != 0)
        v = capped(v, f->softcap);
    if (to == FINISH_ADD)
        v = load_some(out, n) + v;
    store_some(out, v, n, f->narrow);
}

INLINE void finish_rows(const struct finish *f, enum finish_to to)
{
    int r, col;

    for (r = 0; r < f->rows; r++) {
        const float *sums = f->sums + (size_t)r * STRIP;
        char *out = f->out + (size_t)r * f->row_bytes;

        for (col = 0; col + LANES <= f->cols; col += LANES)
            finish_vec(f, to, sums, out, col, LANES);
        if (col < f->cols)
            finish_vec(f, to, sums, out, col, f->cols - col);
    }
}

static void finish(const struct finish *f)
{
    switch (f->to) {
    case FINISH_STORE: finish_rows(f, FINISH_STORE); break;
    case FINISH_ADD: finish_rows(f, FINISH_ADD); break;
    case FINISH_SILU: finish_rows(f, FINISH_SILU); break;
    case FINISH_GELU_TANH: finish_rows(f, FINISH_GELU_TANH); break;
    }
}

/* ---- norm ---- */

/* Four sums of vectors, then pairs, then lanes in order, then what does not fill a vector. */
static void rmsnorm(const float *x, const float *w, float eps, int dim, bool to_bf16, void *out)
{
    vec sum[4] = { { 0 }, { 0 }, { 0 }, { 0 } };
    float lane[LANES], total = 0, scale;
    int whole = dim / (4 * LANES) * (4 * LANES), i, j;

    for (i = 0; i < whole; i += 4 * LANES)
        UNROLL for (j = 0; j < 4; j++)
            sum[j] = madd(load(x + i + j * LANES), load(x + i + j * LANES), sum[j]);
    store(lane, (sum[0] + sum[1]) + (sum[2] + sum[3]));
    for (j = 0; j < LANES; j++)
        total += lane[j];
    for (; i < dim; i++)
        total += x[i] * x[i];
    scale = 1.0f / sqrtf(total / (float)dim + eps);

    for (i = 0; i < dim; i += LANES) {
        int n = dim - i < LANES ? dim - i : LANES;
        vec y = load_some(x + i, n) * all(scale) * load_some(w + i, n);

        store_some((char *)out + (size_t)i * (to_bf16 ? 2 : 4), y, n, to_bf16);
    }
}

static void widen(const uint16_t *from, int64_t n, float *to)
{
    int64_t i;

    for (i = 0; i < n; i++)
        to[i] = bf16_float(from[i]);
}

/* ---- ceilings ---- */

#ifndef DOT_PEAK
#ifdef __x86_64__
#define KEEP(a, b) __asm__ volatile("" : "+x"(a), "+x"(b))     /* lest the product be made once, before the loop */
#else
#define KEEP(a, b) __asm__ volatile("" : "+w"(a), "+w"(b))
#endif

static float dot_peak(int64_t turns, double *flops)
{
    vec sum[12], w = all(0.999f), x = all(0.001f);
    float lane[LANES];
    int64_t t;
    int i;

    UNROLL for (i = 0; i < 12; i++)
        sum[i] = all((float)i);
    for (t = 0; t < turns; t++) {
        KEEP(w, x);
        UNROLL for (i = 0; i < 12; i++)
            sum[i] = madd(w, x, sum[i]);
    }
    UNROLL for (i = 1; i < 12; i++)
        sum[0] += sum[i];
    store(lane, sum[0]);
    *flops = (double)turns * 12 * LANES * 2;
    return lane[0];
}
#endif

static float read_all(const float *from, int64_t n)
{
    uvec sum[8] = { { 0 } };
    uint32_t lane[LANES];
    int64_t i;
    int j;

    for (i = 0; i + 8 * LANES <= n; i += 8 * LANES)
        UNROLL for (j = 0; j < 8; j++)
            sum[j] ^= (uvec)load(from + i + j * LANES);
    UNROLL for (j = 1; j < 8; j++)
        sum[0] ^= sum[j];
    memcpy(lane, &sum[0], sizeof lane);
    return (float)lane[0];
}
