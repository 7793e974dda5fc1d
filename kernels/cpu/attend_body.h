/* kernels/cpu/attend_body.h - the body of each attend_*.c, which before it defines
 *   LANES                                 width of a vector in floats, at most PAGE_POSITIONS
 *   QUERIES_AT_ONCE                       queries whose sums stay in registers together
 *   ATTEND_TABLE                          name of its table
 *   MADD(a, b, c)                         a * b + c as the set does it best, always the same way
 * Weights of bf16 pages stay fp32 here. */
#include <math.h>

#include "kernels/cpu/vec_body.h"

#define PAGE_VECS (PAGE_POSITIONS / LANES)
#define OUT_VECS 2                 /* vectors of output per query in registers */

/* The even and odd halves of pairs of bf16. */
INLINE vec first_of(vec pairs)
{
    return (vec)((uvec)pairs << 16);
}

INLINE vec second_of(vec pairs)
{
    return (vec)((uvec)pairs & 0xffff0000u);
}

/* 2^x for x <= 0 to 2 ulp, 0 below -126; exactly 1 at 0; a NaN stays one. Degree 6, minimax on [-1/2, 1/2]. */
INLINE vec exp2_of(vec x)
{
    const vec magic = all(12582912.0f);        /* 1.5 * 2^23: adding it rounds to an integer */
    ivec small = x < -126.0f;
    vec n, f, p;

    x = choose(small, all(0), x);
    n = (x + magic) - magic;
    f = x - n;
    p = all(1.55946770e-4f);
    p = MADD(p, f, all(1.34066438e-3f));
    p = MADD(p, f, all(9.61769298e-3f));
    p = MADD(p, f, all(5.55031055e-2f));
    p = MADD(p, f, all(2.40226528e-1f));
    p = MADD(p, f, all(6.93147215e-1f));
    p = MADD(p, f, all(1.0f));
    p = (vec)((uvec)p + ((uvec)__builtin_convertvector(n, ivec) << 23));
    return choose(small, all(0), p);
}

/* cap * tanh(x / cap), where both are in units of log2(e): tanh y = 1 - 2 / (e^2y + 1), odd. */
INLINE vec softcap_of(vec x, float cap)
{
    vec y = (vec)((uvec)x & 0x7fffffffu) * (1.0f / cap);
    vec e = exp2_of(y * (-2.0f * (float)LOG2_E));
    vec t = (1.0f - e) / (1.0f + e) * cap;

    return (vec)((uvec)t | ((uvec)x & 0x80000000u));
}

/* ---- scores: score[r][position] ---- */

INLINE void scores(const struct attend_block *b, int first, int n, bool fp32, float (*score)[ATTEND_BLOCK])
{
    int page, i, r, v;

    for (page = 0; page < b->pages_n; page++) {
        const char *k = b->part[page];
        vec sum[QUERIES_AT_ONCE][PAGE_VECS];

        for (r = 0; r < n; r++)
            for (v = 0; v < PAGE_VECS; v++)
                sum[r][v] = all(0);
        for (i = 0; i < b->head_dim; i += 2, k += PAGE_POSITIONS * (fp32 ? 8 : 4))
            for (v = 0; v < PAGE_VECS; v++) {
                vec pairs = load(k + v * LANES * 4);
                vec k0 = fp32 ? pairs : first_of(pairs);
                vec k1 = fp32 ? load(k + (PAGE_POSITIONS + v * LANES) * 4) : second_of(pairs);

                for (r = 0; r < n; r++) {
                    const float *q = (const float *)(b->q + (size_t)(first + r) * b->q_bytes) + i;

                    sum[r][v] = MADD(k0, all(q[0]), sum[r][v]);
                    sum[r][v] = MADD(k1, all(q[1]), sum[r][v]);
                }
            }
        for (r = 0; r < n; r++)
            for (v = 0; v < PAGE_VECS; v++)
                store(&score[r][page * PAGE_POSITIONS + v * LANES], sum[r][v]);
    }
}

/* ---- softmax of one query's block: scores become weights; returns what earlier sums shrink by ---- */

INLINE float weights(const struct attend_block *b, int query, float *score)
{
    int n = b->pages_n * PAGE_POSITIONS, i, j;
    struct attend_sums *s = attend_sums_at(b, query);
    uint64_t seen = b->seen[query], all_seen = n == ATTEND_BLOCK ? UINT64_MAX : (UINT64_C(1) << n) - 1;
    float old = b->max[query], max, shrink;
    vec top = all(old);

    if (b->softcap > 0)
        for (i = 0; i < n; i += LANES)
            store(score + i, softcap_of(load(score + i), b->softcap));
    if ((seen & all_seen) != all_seen)
        for (i = 0; i < n; i++)
            score[i] = seen >> i & 1 ? score[i] : -INFINITY;
    for (i = 0; i < n; i += LANES)
        top = choose(load(score + i) > top, load(score + i), top);
    max = top[0];
    for (j = 1; j < LANES; j++)
        max = top[j] > max ? top[j] : max;
    shrink = exp2_of(all(old - max))[0];
    b->max[query] = max;
    for (j = 0; j < ATTEND_LANES; j += LANES) {
        vec sum = load(s->weight + j) * shrink;

        for (i = j; i < n; i += ATTEND_LANES) {
            vec w = exp2_of(load(score + i) - max);

            store(score + i, w);
            sum += w;
        }
        store(s->weight + j, sum);
    }
    return shrink;
}

/* ---- sums of values ---- */

/* vecs vectors of every query's output from dimension `dim` on. */
INLINE void values(const struct attend_block *b, int first, int n, bool fp32, int dim, int vecs,
                   float (*weight)[ATTEND_BLOCK], const float *shrink)
{
    vec sum[QUERIES_AT_ONCE][OUT_VECS];
    size_t row = (size_t)b->head_dim * 4;      /* bytes: a pair of positions in bf16, one in fp32 */
    int page, i, r, v;

    for (r = 0; r < n; r++)
        for (v = 0; v < vecs; v++)
            sum[r][v] = load(attend_sums_at(b, first + r)->out + dim + v * LANES) * shrink[r];
    for (page = 0; page < b->pages_n; page++) {
        const char *p = b->part[page] + b->part_bytes + (size_t)dim * 4;

        for (i = page * PAGE_POSITIONS; i < (page + 1) * PAGE_POSITIONS; i += 2, p += fp32 ? 2 * row : row)
            for (v = 0; v < vecs; v++) {
                vec pairs = load(p + v * LANES * 4);
                vec v0 = fp32 ? pairs : first_of(pairs);
                vec v1 = fp32 ? load(p + row + v * LANES * 4) : second_of(pairs);

                for (r = 0; r < n; r++) {
                    sum[r][v] = MADD(v0, all(weight[r][i]), sum[r][v]);
                    sum[r][v] = MADD(v1, all(weight[r][i + 1]), sum[r][v]);
                }
            }
    }
    for (r = 0; r < n; r++)
        for (v = 0; v < vecs; v++)
            store(attend_sums_at(b, first + r)->out + dim + v * LANES, sum[r][v]);
}

/* What is left of head_dim when it is no multiple of LANES, one dimension at a time, in the same order. */
INLINE void values_rest(const struct attend_block *b, int query, bool fp32, int dim, const float *weight,
                        float shrink)
{
    struct attend_sums *s = attend_sums_at(b, query);
    int i, d;

    for (d = dim; d < b->head_dim; d++) {
        float sum = s->out[d] * shrink;

        for (i = 0; i < b->pages_n * PAGE_POSITIONS; i++) {
            const char *page = b->part[i / PAGE_POSITIONS] + b->part_bytes;
            int at = i % PAGE_POSITIONS;
            float v;

            if (fp32) {
                v = ((const float *)page)[at * b->head_dim + d];
            } else {
                uint32_t u = (uint32_t)((const uint16_t *)page)[(at / 2 * b->head_dim + d) * 2 + at % 2] << 16;

                memcpy(&v, &u, 4);
            }
            sum += weight[i] * v;
        }
        s->out[d] = sum;
    }
}

INLINE void block_some(const struct attend_block *b, int first, int n, bool fp32)
{
    _Alignas(64) float score[QUERIES_AT_ONCE][ATTEND_BLOCK];
    float shrink[QUERIES_AT_ONCE];
    int r, dim;

    scores(b, first, n, fp32, score);
    for (r = 0; r < n; r++)
        shrink[r] = weights(b, first + r, score[r]);
    for (dim = 0; dim + OUT_VECS * LANES <= b->head_dim; dim += OUT_VECS * LANES)
        values(b, first, n, fp32, dim, OUT_VECS, score, shrink);
    for (; dim + LANES <= b->head_dim; dim += LANES)
        values(b, first, n, fp32, dim, 1, score, shrink);
    for (r = 0; r < n && dim < b->head_dim; r++)
        values_rest(b, first + r, fp32, dim, score[r], shrink[r]);
}

INLINE void block_any(const struct attend_block *b, bool fp32)
{
    int i = 0, page;
    size_t at;

    for (page = 0; page < b->pages_n; page++)
        for (at = 0; at < 2 * b->part_bytes; at += 64)
            __builtin_prefetch(b->next[page] + at, 0, 2);

    for (; i + QUERIES_AT_ONCE <= b->queries_n; i += QUERIES_AT_ONCE)
        block_some(b, i, QUERIES_AT_ONCE, fp32);
    for (; i < b->queries_n; i++)
        block_some(b, i, 1, fp32);
}

static void block_fp32(const struct attend_block *b)
{
    block_any(b, true);
}

static void block_bf16(const struct attend_block *b)
{
    block_any(b, false);
}

/* out / sum of weights; adding 0 makes every zero +0 (attend.h). */
static void finish(const struct attend_sums *s, int head_dim, bool narrow, void *out)
{
    float sum = 0, by;
    int i;

    for (i = 0; i < ATTEND_LANES; i++)
        sum += s->weight[i];
    by = 1.0f / sum;
    for (i = 0; i < head_dim; i++) {
        float x = s->out[i] * by + 0.0f;
        uint32_t u;

        if (!narrow) {
            ((float *)out)[i] = x;
            continue;
        }
        memcpy(&u, &x, 4);
        ((uint16_t *)out)[i] = (uint16_t)(isnan(x) ? u >> 16 | 0x40 : (u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
}

const struct attend_loops ATTEND_TABLE = {
    .widen_q = true,
    .block_bf16 = block_bf16,
    .block_fp32 = block_fp32,
    .finish = finish,
};
