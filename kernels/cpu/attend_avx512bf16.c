/* Attention with AVX-512 and its dot products of bf16 pairs (VDPBF16PS: two products a lane, added one after the other,
 * denormals flushed, rounded to nearest even whatever MXCSR says).
 *
 * Six queries and four vectors of scores, or of outputs, fill 24 of 32 registers: each vector of keys or values loaded
 * serves six products, each broadcast of a query or weight four. Weights are rounded to bf16, and the sum that divides
 * them is that of the rounded ones. While a block is computed the next one is fetched. */
#include "kernels/cpu/attend.h"

#include <immintrin.h>
#include <math.h>

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
#define QUERIES_AT_ONCE 6
#define LANES 16
#define VECS 4                     /* pages of scores, or vectors of output, in registers */
#define LINE 64                    /* bytes of a vector, and of a cache line */
#define PAIRS (PAGE_POSITIONS / 2)

INLINE __m512 dot(__m512 sum, __m512i pairs, __m512i pair)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)pairs, (__m512bh)pair);
}

INLINE __m512i pair_at(const void *p)
{
    int32_t pair;

    memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
}

/* 2^x for x <= 0: a polynomial of the fraction above the next lower integer (degree 4, 3e-6), the integer into the
 * exponent, which VSCALEFPS takes from x itself. Exactly 1 at 0, 0 at -inf, NaN at NaN. */
INLINE __m512 exp2_of(__m512 x)
{
    __m512 f = _mm512_reduce_ps(x, 0x09);      /* x - floor(x) */
    __m512 p = _mm512_set1_ps(1.342668464e-2f);

    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.224247344e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.412802053e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.930448448e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, x);
}

/* cap * tanh(x / cap), where both are in units of log2(e). */
static __m512 softcap_of(__m512 x, float cap)
{
    __m512 y = _mm512_mul_ps(_mm512_abs_ps(x), _mm512_set1_ps(-2.0f * (float)LOG2_E / cap));
    __m512 e = exp2_of(y), one = _mm512_set1_ps(1.0f);
    __m512 t = _mm512_mul_ps(_mm512_div_ps(_mm512_sub_ps(one, e), _mm512_add_ps(one, e)), _mm512_set1_ps(cap));
    __m512i sign = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN));

    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(t), sign));
}

/* ---- scores of pages [page, page + pages) ---- */

INLINE void scores(const struct attend_block *b, const struct attend_query *queries, int n, int page, int pages,
                   bool fetch, float (*score)[ATTEND_BLOCK])
{
    __m512 sum[QUERIES_AT_ONCE][VECS];
    const char *k[VECS], *next[VECS], *q[QUERIES_AT_ONCE];
    int i, r, v;

    UNROLL for (v = 0; v < pages; v++) {
        k[v] = b->part[page + v];
        next[v] = b->next[page + v];
    }
    UNROLL for (r = 0; r < n; r++) {
        q[r] = queries[r].q;
        UNROLL for (v = 0; v < pages; v++)
            sum[r][v] = _mm512_setzero_ps();
    }
    for (i = 0; i < b->head_dim / 2; i++) {
        __m512i keys[VECS];

        UNROLL for (v = 0; v < pages; v++) {
            keys[v] = _mm512_loadu_si512(k[v] + i * LINE);
            if (fetch)
                _mm_prefetch(next[v] + i * LINE, _MM_HINT_T0);
        }
        UNROLL for (r = 0; r < n; r++) {
            __m512i pair = pair_at(q[r] + i * 4);

            UNROLL for (v = 0; v < pages; v++)
                sum[r][v] = dot(sum[r][v], keys[v], pair);
        }
    }
    UNROLL for (r = 0; r < n; r++)
        UNROLL for (v = 0; v < pages; v++)
            _mm512_store_ps(&score[r][(page + v) * PAGE_POSITIONS], sum[r][v]);
}

/* ---- softmax of one query's block: scores become weights; returns what earlier sums shrink by ---- */

INLINE __m512 weights(const struct attend_block *b, const struct attend_query *query, const float *score,
                      uint32_t *weight)
{
    struct attend_sums *s = query->sums;
    const __m512i ones = _mm512_set1_epi32(0x3f803f80);
    __m512 x[VECS], old = _mm512_set1_ps(s->max), top, shrink, sum;
    int v;

    UNROLL for (v = 0; v < VECS; v++) {
        x[v] = _mm512_load_ps(score + v * LANES);
        if (b->softcap > 0)
            x[v] = softcap_of(x[v], b->softcap);
    }
    if (query->seen != UINT64_MAX)
        UNROLL for (v = 0; v < VECS; v++)
            x[v] = _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), (__mmask16)(query->seen >> v * LANES), x[v]);
    top = _mm512_max_ps(_mm512_max_ps(x[0], x[1]), _mm512_max_ps(x[2], x[3]));
    top = _mm512_max_ps(top, _mm512_shuffle_f32x4(top, top, 0x4e));
    top = _mm512_max_ps(top, _mm512_shuffle_f32x4(top, top, 0xb1));
    top = _mm512_max_ps(top, _mm512_permute_ps(top, 0x4e));
    top = _mm512_max_ps(_mm512_max_ps(top, _mm512_permute_ps(top, 0xb1)), old);
    shrink = exp2_of(_mm512_sub_ps(old, top));
    s->max = _mm512_cvtss_f32(top);
    sum = _mm512_mul_ps(_mm512_load_ps(s->weight), shrink);
    UNROLL for (v = 0; v < VECS; v += 2) {
        __m512i w = (__m512i)_mm512_cvtne2ps_pbh(exp2_of(_mm512_sub_ps(x[v + 1], top)),
                                                 exp2_of(_mm512_sub_ps(x[v], top)));

        _mm512_store_si512(weight + v * PAIRS, w);
        sum = dot(sum, w, ones);
    }
    _mm512_store_ps(s->weight, sum);
    return shrink;
}

/* ---- sums of values: vecs vectors of every query's output from dimension dim on ---- */

INLINE void values(const struct attend_block *b, const struct attend_query *queries, int n, int dim, int vecs,
                   bool fetch, uint32_t (*weight)[ATTEND_BLOCK / 2], const __m512 *shrink)
{
    __m512 sum[QUERIES_AT_ONCE][VECS];
    float *out[QUERIES_AT_ONCE];
    size_t row = (size_t)b->head_dim * 4;
    int page, i, r, v;

    UNROLL for (r = 0; r < n; r++) {
        out[r] = queries[r].sums->out + dim;
        UNROLL for (v = 0; v < vecs; v++)
            sum[r][v] = _mm512_mul_ps(_mm512_load_ps(out[r] + v * LANES), shrink[r]);
    }
    for (page = 0; page < b->pages_n; page++) {
        const char *from = b->part[page] + b->part_bytes + dim * 4, *next = b->next[page] + b->part_bytes + dim * 4;

        for (i = 0; i < PAIRS; i++, from += row, next += row) {
            __m512i pairs[VECS];

            UNROLL for (v = 0; v < vecs; v++) {
                pairs[v] = _mm512_loadu_si512(from + v * LINE);
                if (fetch)
                    _mm_prefetch(next + v * LINE, _MM_HINT_T0);
            }
            UNROLL for (r = 0; r < n; r++) {
                __m512i pair = pair_at(&weight[r][page * PAIRS + i]);

                UNROLL for (v = 0; v < vecs; v++)
                    sum[r][v] = dot(sum[r][v], pairs[v], pair);
            }
        }
    }
    UNROLL for (r = 0; r < n; r++)
        UNROLL for (v = 0; v < vecs; v++)
            _mm512_store_ps(out[r] + v * LANES, sum[r][v]);
}

INLINE void block_some(const struct attend_block *b, const struct attend_query *queries, int n, bool fetch)
{
    _Alignas(64) float score[QUERIES_AT_ONCE][ATTEND_BLOCK];
    _Alignas(64) uint32_t weight[QUERIES_AT_ONCE][ATTEND_BLOCK / 2];
    __m512 shrink[QUERIES_AT_ONCE];
    int r, dim, page, i;

    if (b->pages_n == VECS) {
        scores(b, queries, n, 0, VECS, fetch, score);
    } else {
        for (page = 0; page < b->pages_n; page++)
            scores(b, queries, n, page, 1, fetch, score);
        for (r = 0; r < n; r++)
            for (i = page * PAGE_POSITIONS; i < ATTEND_BLOCK; i += LANES)
                _mm512_store_ps(&score[r][i], _mm512_setzero_ps());
    }
    for (r = 0; r < n; r++)
        shrink[r] = weights(b, &queries[r], score[r], weight[r]);
    for (dim = 0; dim + VECS * LANES <= b->head_dim; dim += VECS * LANES)
        values(b, queries, n, dim, VECS, fetch, weight, shrink);
    for (; dim < b->head_dim; dim += LANES)
        values(b, queries, n, dim, 1, fetch, weight, shrink);
}

/* The heights are compiled one by one: all loops over queries are straight code. */
static void block_1(const struct attend_block *b, const struct attend_query *q) { block_some(b, q, 1, true); }
static void block_2(const struct attend_block *b, const struct attend_query *q) { block_some(b, q, 2, true); }
static void block_3(const struct attend_block *b, const struct attend_query *q) { block_some(b, q, 3, true); }
static void block_4(const struct attend_block *b, const struct attend_query *q) { block_some(b, q, 4, true); }
static void block_5(const struct attend_block *b, const struct attend_query *q) { block_some(b, q, 5, true); }
static void block_6(const struct attend_block *b, const struct attend_query *q) { block_some(b, q, 6, true); }
static void block_more(const struct attend_block *b, const struct attend_query *q) { block_some(b, q, 6, false); }

static void block_bf16(const struct attend_block *b)
{
    static void (*const height[QUERIES_AT_ONCE + 1])(const struct attend_block *, const struct attend_query *) = {
        NULL, block_1, block_2, block_3, block_4, block_5, block_6,
    };
    int n = b->queries_n, i = n < QUERIES_AT_ONCE ? n : QUERIES_AT_ONCE;

    height[i](b, b->queries);
    for (; i + QUERIES_AT_ONCE <= n; i += QUERIES_AT_ONCE)
        block_more(b, b->queries + i);
    if (i < n)
        height[n - i](b, b->queries + i);
}

/* out / sum of weights; adding 0 makes every zero +0 (attend.h). */
static void finish(const struct attend_sums *s, int head_dim, bool narrow, void *out)
{
    __m512 by = _mm512_set1_ps(1.0f / _mm512_reduce_add_ps(_mm512_load_ps(s->weight)));
    int i;

    for (i = 0; i < head_dim; i += LANES) {
        __m512 x = _mm512_fmadd_ps(_mm512_load_ps(s->out + i), by, _mm512_setzero_ps());

        ASSERT(narrow);            /* fp32 pages are attend_avx2's */
        _mm256_storeu_si256((__m256i *)((uint16_t *)out + i), (__m256i)_mm512_cvtneps_pbh(x));
    }
}

const struct attend_loops attend_avx512bf16 = {
    .widen_q = false,
    .block_bf16 = block_bf16,
    .block_fp32 = NULL,
    .finish = finish,
};
