/* kernels/cpu/lanes_body.h - the body of each lanes_*.c, which defines LANES (width of a vector in floats, at most 16)
 * and LANES_TABLE (name of its table). Compiled with -ffp-contract=off: the same operations in each, so the same bits. */
#include "kernels/cpu/lanes.h"

#include <math.h>
#include <string.h>

#include "kernels/philox.h"

#define INLINE static inline __attribute__((always_inline))
#define NORM_LANES 16              /* partial sums of squares, whatever LANES */

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t ivec __attribute__((vector_size(LANES * 4)));
typedef uint32_t uvec __attribute__((vector_size(LANES * 4)));
typedef uint16_t hvec __attribute__((vector_size(LANES * 2)));

INLINE vec load(const float *p)
{
    vec v;

    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store(float *p, vec v)
{
    memcpy(p, &v, sizeof v);
}

INLINE vec choose(ivec where, vec yes, vec no)
{
    return (vec)(((ivec)yes & where) | ((ivec)no & ~where));
}

/* ---- a head before attention ---- */

static float head_norm_scale(const float *x, int n, float eps)
{
    float part[NORM_LANES] = { 0 }, sum = 0;
    int i, j;

    for (i = 0; i + NORM_LANES <= n; i += NORM_LANES)
        for (j = 0; j < NORM_LANES; j++)
            part[j] += x[i + j] * x[i + j];
    for (j = 0; i + j < n; j++)
        part[j] += x[i + j] * x[i + j];
    for (j = 0; j < NORM_LANES; j++)
        sum += part[j];
    return 1.0f / sqrtf(sum / (float)n + eps);
}

INLINE void turn_halves(const float *in, const float *c, const float *s, int half, float scale, float *out)
{
    int i = 0;

    for (; i + LANES <= half; i += LANES) {
        vec a = load(in + i), b = load(in + i + half), cos = load(c + i), sin = load(s + i);

        store(out + i, (a * cos - b * sin) * scale);
        store(out + i + half, (b * cos + a * sin) * scale);
    }
    for (; i < half; i++) {
        out[i] = (in[i] * c[i] - in[i + half] * s[i]) * scale;
        out[i + half] = (in[i + half] * c[i] + in[i] * s[i]) * scale;
    }
}

INLINE void turn_neighbours(const float *restrict in, const float *restrict c, const float *restrict s, int half,
                            float scale, float *restrict out)
{
    int i;

    for (i = 0; i < half; i++) {
        out[2 * i] = (in[2 * i] * c[i] - in[2 * i + 1] * s[i]) * scale;
        out[2 * i + 1] = (in[2 * i + 1] * c[i] + in[2 * i] * s[i]) * scale;
    }
}

static void lane_head(const struct lane_head *h, const float *in, float *out)
{
    float normed[1024];            /* HEAD_DIM_MAX */
    int half = h->turn_dim / 2, i;

    if (h->norm != NULL) {
        float f = head_norm_scale(in, h->head_dim, h->eps);

        for (i = 0; i < h->head_dim; i++)
            normed[i] = in[i] * f * h->norm[i];
        in = normed;
    }
    if (h->pairs == ROPE_HALVES)
        turn_halves(in, h->cos, h->sin, half, h->scale, out);
    else
        turn_neighbours(in, h->cos, h->sin, half, h->scale, out);
    for (i = h->turn_dim; i < h->head_dim; i++)
        out[i] = in[i] * h->scale;
}

static void lane_narrow(const float *from, int n, uint16_t *to)
{
    int i = 0;

    for (; i + LANES <= n; i += LANES) {
        uvec u = (uvec)load(from + i);
        uvec nan = (uvec)((ivec)(u & 0x7fffffffu) > 0x7f800000);
        hvec h = __builtin_convertvector((((u + 0x7fffu + (u >> 16 & 1u)) & ~nan) | ((u | 0x400000u) & nan)) >> 16, hvec);

        memcpy(to + i, &h, sizeof h);
    }
    for (; i < n; i++) {
        uint32_t u;

        memcpy(&u, &from[i], 4);
        to[i] = (uint16_t)(((u & 0x7fffffffu) > 0x7f800000u ? u | 0x400000u : u + 0x7fffu + (u >> 16 & 1u)) >> 16);
    }
}

static bool lane_finite(const float *x, int n)
{
    uint32_t bad = 0;
    int i;

    for (i = 0; i < n; i++) {
        uint32_t u;

        memcpy(&u, &x[i], 4);
        bad |= (uint32_t)((u & 0x7fffffffu) >= 0x7f7f8000u);   /* would round to infinity in bf16, too */
    }
    return bad == 0;
}

/* ---- sampling ---- */

static bool lane_block_max(const float *logits, int n, float *max)
{
    ivec nan = { 0 };
    bool tail_nan = false;
    int i, j, b = 0;

    for (i = 0; i + SAMPLE_BLOCK <= n; i += SAMPLE_BLOCK, b++) {
        vec m = load(logits + i);
        float top;

        nan |= m != m;
        for (j = LANES; j < SAMPLE_BLOCK; j += LANES) {
            vec x = load(logits + i + j);

            nan |= x != x;
            m = choose(x > m, x, m);
        }
        top = m[0];
        for (j = 1; j < LANES; j++)
            top = m[j] > top ? m[j] : top;
        max[b] = top;
    }
    if (i < n) {
        max[b] = logits[i];
        for (; i < n; i++) {
            tail_nan |= isnan(logits[i]);
            max[b] = logits[i] > max[b] ? logits[i] : max[b];
        }
    }
    for (j = 0; j < LANES; j++)
        tail_nan |= nan[j] != 0;
    return tail_nan;
}

/* e^x for x <= 0 to 2 ulp, 0 below -87; a NaN stays one (Cody and Waite reduction, degree 6 near-minimax). */
INLINE vec exp_of(vec x)
{
    const vec magic = (vec){ 0 } + 12582912.0f;            /* 1.5 * 2^23: adding it rounds to an integer */
    ivec small = x < -87.0f;
    vec n, r, p;

    x = choose(small, (vec){ 0 }, x);
    n = (x * 1.44269504f + magic) - magic;
    r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * (r * r) + r) + 1.0f;
    p = (vec)((uvec)p + ((uvec)__builtin_convertvector(n, ivec) << 23));
    return choose(small, (vec){ 0 }, p);
}

/* Masses are integers so that their sums are exact in any order: a float times 2^40, cut at the point, in two halves of
 * 20 bits that fit 32-bit lanes. */
static uint64_t lane_mass(const float *l, int n, float max, float inv_t, uint64_t *mass, float *weight)
{
    float padded[SAMPLE_BLOCK];
    ivec high_sum = { 0 }, low_sum = { 0 };
    uint64_t sum = 0;
    int i, j;

    if (n < SAMPLE_BLOCK) {
        for (i = 0; i < SAMPLE_BLOCK; i++)
            padded[i] = i < n ? l[i] : -INFINITY;
        l = padded;
    }
    for (i = 0; i < SAMPLE_BLOCK && i < n; i += LANES) {
        vec e = exp_of((load(l + i) - max) * inv_t);
        vec scaled = e * 0x1p20f;
        ivec high = __builtin_convertvector(scaled, ivec);
        ivec low = __builtin_convertvector((scaled - __builtin_convertvector(high, vec)) * 0x1p20f, ivec);

        high_sum += high;
        low_sum += low;
        for (j = 0; mass != NULL && j < LANES && i + j < n; j++)
            mass[i + j] = (uint64_t)high[j] << 20 | (uint64_t)low[j];
        for (j = 0; weight != NULL && j < LANES && i + j < n; j++)
            weight[i + j] = e[j];
    }
    for (j = 0; j < LANES; j++)
        sum += ((uint64_t)high_sum[j] << 20) + (uint64_t)low_sum[j];
    return sum;
}

static void lane_philox(uint64_t seed, uint64_t pos, const uint32_t *block, uint32_t words[4][PHILOX_LANES])
{
    uint32_t c0[PHILOX_LANES], c1[PHILOX_LANES], c2[PHILOX_LANES], c3[PHILOX_LANES];
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    int i, round;

    for (i = 0; i < PHILOX_LANES; i++) {
        c0[i] = block[i];
        c1[i] = 0;
        c2[i] = (uint32_t)pos;
        c3[i] = (uint32_t)(pos >> 32);
    }
    for (round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (i = 0; i < PHILOX_LANES; i++) {
            uint64_t p0 = UINT64_C(0xD2511F53) * c0[i], p1 = UINT64_C(0xCD9E8D57) * c2[i];

            c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c1[i] = (uint32_t)p1;
            c3[i] = (uint32_t)p0;
        }
    for (i = 0; i < PHILOX_LANES; i++) {
        words[0][i] = c0[i];
        words[1][i] = c1[i];
        words[2][i] = c2[i];
        words[3][i] = c3[i];
    }
}

const struct lane_loops LANES_TABLE = {
    .head = lane_head,
    .narrow = lane_narrow,
    .finite = lane_finite,
    .block_max = lane_block_max,
    .mass = lane_mass,
    .philox = lane_philox,
};
