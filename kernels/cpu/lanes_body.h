/* kernels/cpu/lanes_body.h - the body of each lanes_*.c, which defines
 *   LANES           width of a vector in floats, at most 16
 *   MUL_LOW(a, b)   products of the low halves of lanes of 64 bits
 *   LANES_TABLE     name of its table
 * Compiled with -ffp-contract=off: the same operations in each, so the same bits. */
#include "kernels/cpu/lanes.h"

#include <math.h>

#include "kernels/cpu/vec_body.h"
#include "kernels/philox.h"

#define NORM_LANES 16              /* partial sums of squares, whatever LANES */
#define QUAD_VECS (QUADS / (LANES / 2))

typedef uint64_t qvec __attribute__((vector_size(LANES * 4)));

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
        uvec rounded = ((u + 0x7fffu + (u >> 16 & 1u)) & ~nan) | ((u | 0x400000u) & nan);
        hvec h = __builtin_convertvector(rounded >> 16, hvec);

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
 * 20 bits that fit 32-bit lanes. x has blocks_n whole blocks, at most MASS_BLOCKS_MAX; mass and weight: of the last. */
INLINE uint64_t masses(const float *x, int blocks_n, float max, float inv_t, uint64_t *mass, float *weight)
{
    ivec high_sum = { 0 }, low_sum = { 0 };
    uint64_t sum = 0;
    int b, i, j;

    for (b = 0; b < blocks_n; b++, x += SAMPLE_BLOCK)
        for (i = 0; i < SAMPLE_BLOCK; i += LANES) {
            vec e = exp_of((load(x + i) - max) * inv_t), scaled = e * 0x1p20f;
            ivec high = __builtin_convertvector(scaled, ivec);
            ivec low = __builtin_convertvector((scaled - __builtin_convertvector(high, vec)) * 0x1p20f, ivec);

            high_sum += high;
            low_sum += low;
            for (j = 0; mass != NULL && j < LANES; j++)
                mass[i + j] = (uint64_t)high[j] << 20 | (uint64_t)low[j];
            if (weight != NULL)
                store(weight + i, e);
        }
    for (j = 0; j < LANES; j++)
        sum += ((uint64_t)high_sum[j] << 20) + (uint64_t)low_sum[j];
    return sum;
}

static uint64_t lane_mass_blocks(const float *l, int blocks_n, float max, float inv_t)
{
    return masses(l, blocks_n, max, inv_t, NULL, NULL);
}

static uint64_t lane_mass(const float *l, int n, float max, float inv_t, uint64_t *mass, float *weight)
{
    float x[SAMPLE_BLOCK], e[SAMPLE_BLOCK];
    uint64_t m[SAMPLE_BLOCK], sum;
    int i;

    for (i = 0; i < SAMPLE_BLOCK; i++)
        x[i] = i < n ? l[i] : -INFINITY;
    sum = masses(x, 1, max, inv_t, m, e);
    if (mass != NULL)
        memcpy(mass, m, (size_t)n * sizeof *m);
    if (weight != NULL)
        memcpy(weight, e, (size_t)n * sizeof *e);
    return sum;
}

/* Words of the QUADS Philox blocks from `block` on. Lanes of 64 bits, of which MUL_LOW (and the end) read the low half:
 * what the shifts leave in the high half needs no clearing. */
INLINE void philox_block(uint64_t seed, uint64_t pos, uint32_t block, uint32_t *words)
{
    qvec c0[QUAD_VECS], c1[QUAD_VECS], c2[QUAD_VECS], c3[QUAD_VECS];
    uint64_t k0 = (uint32_t)seed, k1 = seed >> 32;
    int i, j, round;

    for (i = 0; i < QUAD_VECS; i++) {
        for (j = 0; j < LANES / 2; j++)
            c0[i][j] = block + (uint32_t)(i * (LANES / 2) + j);
        c1[i] = (qvec){ 0 };
        c2[i] = (qvec){ 0 } + (uint32_t)pos;
        c3[i] = (qvec){ 0 } + (pos >> 32);
    }
    for (round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (i = 0; i < QUAD_VECS; i++) {
            qvec p0 = MUL_LOW(c0[i], (qvec){ 0 } + UINT64_C(0xD2511F53));
            qvec p1 = MUL_LOW(c2[i], (qvec){ 0 } + UINT64_C(0xCD9E8D57));

            c0[i] = (p1 >> 32) ^ c1[i] ^ k0;
            c2[i] = (p0 >> 32) ^ c3[i] ^ k1;
            c1[i] = p1;
            c3[i] = p0;
        }
    for (i = 0; i < QUAD_VECS; i++) {          /* pairs of words, then pairs of those */
        qvec low = (c0[i] & 0xffffffffu) | c1[i] << 32, high = (c2[i] & 0xffffffffu) | c3[i] << 32;

        for (j = 0; j < LANES / 2; j++) {
            uint64_t pair[2] = { low[j], high[j] };

            memcpy(words + (i * (LANES / 2) + j) * 4, pair, sizeof pair);
        }
    }
}

/* With z leading zeros in ~word, 1 - u > 2^-(z+1), so the noise is below -ln(1 - u) < (z + 1) ln 2. z comes from the
 * exponent of ~word as a float; its low bits are cut first, so that it is not rounded up to the next power of 2. */
static uint64_t lane_contenders(const float *l, int n, uint64_t seed, uint64_t pos, uint32_t block, float inv_t,
                                float need, float floor, uint32_t *words)
{
    float padded[SAMPLE_BLOCK];
    int32_t may[SAMPLE_BLOCK];
    uint64_t bits = 0;
    int i;

    if (n < SAMPLE_BLOCK) {
        for (i = 0; i < SAMPLE_BLOCK; i++)
            padded[i] = i < n ? l[i] : -INFINITY;
        l = padded;
    }
    philox_block(seed, pos, block, words);
    for (i = 0; i < SAMPLE_BLOCK; i += LANES) {
        vec x = load(l + i);
        uvec rest = ~(uvec)load((const float *)(words + i)) >> 1 & 0x7fffff80u;
        ivec exponent = (ivec)__builtin_convertvector((ivec)rest, vec) >> 23;      /* 127 + 30 - z */
        vec most = __builtin_convertvector(158 - exponent, vec) * 0.69315f;
        ivec m = (x * inv_t + most >= need) & (x >= floor);

        memcpy(may + i, &m, sizeof m);
    }
    for (i = 0; i < SAMPLE_BLOCK; i++)
        bits |= (uint64_t)(may[i] & 1) << i;
    return n < SAMPLE_BLOCK ? bits & ((UINT64_C(1) << n) - 1) : bits;
}

const struct lane_loops LANES_TABLE = {
    .head = lane_head,
    .narrow = lane_narrow,
    .finite = lane_finite,
    .block_max = lane_block_max,
    .mass = lane_mass,
    .mass_blocks = lane_mass_blocks,
    .contenders = lane_contenders,
};
