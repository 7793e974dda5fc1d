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
#define HALF 3                     /* a pointer, and a stride in two sizes, reach three queries in one address each */
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

INLINE void scores(const struct attend_block *b, int first, int n, int page, int pages, bool fetch,
                   float (*score)[ATTEND_BLOCK])
{
    __m512 sum[QUERIES_AT_ONCE][VECS];
    const char *k[VECS], *next[VECS];
    const char *q = b->q + (size_t)first * b->q_bytes, *q_half = q + HALF * b->q_bytes;
    size_t q_bytes = b->q_bytes;
    int i, r, v;

    UNROLL for (v = 0; v < pages; v++) {
        k[v] = b->part[page + v];
        next[v] = b->next[page + v];
    }
    UNROLL for (r = 0; r < n; r++)
        UNROLL for (v = 0; v < pages; v++)
            sum[r][v] = _mm512_setzero_ps();
    for (i = 0; i < b->head_dim / 2; i++, q += 4, q_half += 4) {
        __m512i keys[VECS];

        UNROLL for (v = 0; v < pages; v++) {
            keys[v] = _mm512_loadu_si512(k[v] + i * LINE);
            if (fetch)
                _mm_prefetch(next[v] + i * LINE, _MM_HINT_T1);
        }
        UNROLL for (r = 0; r < n; r++) {
            __m512i pair = pair_at(r < HALF ? q + (size_t)r * q_bytes : q_half + (size_t)(r - HALF) * q_bytes);

            UNROLL for (v = 0; v < pages; v++)
                sum[r][v] = dot(sum[r][v], keys[v], pair);
        }
    }
    UNROLL for (r = 0; r < n; r++)
        UNROLL for (v = 0; v < pages; v++)
            _mm512_store_ps(&score[r][(page + v) * PAGE_POSITIONS], sum[r][v]);
}

/* ---- softmax of a block: all queries go through each stage together, because a stage's chain is long ---- */

/* Scores as they count, back to where they were; returns their largest, lane by lane. */
INLINE __m512 scores_top(const struct attend_block *b, uint64_t seen, float *score)
{
    __m512 x[VECS];
    int v;

    UNROLL for (v = 0; v < VECS; v++)
        x[v] = v < b->pages_n ? _mm512_load_ps(score + v * LANES) : _mm512_setzero_ps();   /* seen has no bits there */
    if (b->softcap > 0)
        UNROLL for (v = 0; v < VECS; v++)
            _mm512_store_ps(score + v * LANES, x[v] = softcap_of(x[v], b->softcap));
    if (seen != UINT64_MAX)
        UNROLL for (v = 0; v < VECS; v++) {
            x[v] = _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), (__mmask16)(seen >> v * LANES), x[v]);
            _mm512_store_ps(score + v * LANES, x[v]);
        }
    return _mm512_max_ps(_mm512_max_ps(x[0], x[1]), _mm512_max_ps(x[2], x[3]));
}

/* Largest lane of each of six vectors, in lanes 0..5. */
INLINE __m512 tops_gather(const __m512 *t)
{
    __m512 pair[3], four, two;
    int i;

    UNROLL for (i = 0; i < 3; i++)
        pair[i] = _mm512_max_ps(_mm512_unpacklo_ps(t[2 * i], t[2 * i + 1]), _mm512_unpackhi_ps(t[2 * i], t[2 * i + 1]));
    four = _mm512_max_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(pair[0]), _mm512_castps_pd(pair[1]))),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(pair[0]), _mm512_castps_pd(pair[1]))));
    two = _mm512_max_ps(pair[2], _mm512_permute_ps(pair[2], 0x4e));
    four = _mm512_max_ps(_mm512_shuffle_f32x4(four, two, 0x44), _mm512_shuffle_f32x4(four, two, 0xee));
    four = _mm512_max_ps(four, _mm512_shuffle_f32x4(four, four, 0xb1));
    return _mm512_shuffle_f32x4(four, four, 0x08);
}

INLINE void weights(const struct attend_block *b, int first, int n, float (*score)[ATTEND_BLOCK],
                    uint32_t (*weight)[ATTEND_BLOCK / 2], float *shrink)
{
    const __m512i ones = _mm512_set1_epi32(0x3f803f80);
    const __mmask16 queries = (__mmask16)((1 << n) - 1);
    __m512 top[QUERIES_AT_ONCE], old = _mm512_maskz_loadu_ps(queries, b->max + first), max;
    int r, v;

    UNROLL for (r = 0; r < n; r++)
        top[r] = scores_top(b, b->seen[first + r], score[r]);
    UNROLL for (r = n; r < QUERIES_AT_ONCE; r++)
        top[r] = top[0];
    max = _mm512_max_ps(tops_gather(top), old);
    _mm512_mask_storeu_ps(b->max + first, queries, max);
    _mm512_store_ps(shrink, exp2_of(_mm512_sub_ps(old, max)));
    for (r = 0; r < n; r++) {
        struct attend_sums *s = attend_sums_at(b, first + r);
        __m512 less = _mm512_set1_ps(b->max[first + r]);
        __m512 sum = _mm512_mul_ps(_mm512_load_ps(s->weight), _mm512_set1_ps(shrink[r]));

        UNROLL for (v = 0; v < VECS; v += 2) {
            __m512 x0 = _mm512_load_ps(score[r] + v * LANES), x1 = _mm512_load_ps(score[r] + (v + 1) * LANES);
            __m512 w0 = exp2_of(_mm512_sub_ps(x0, less)), w1 = exp2_of(_mm512_sub_ps(x1, less));
            __m512i w = (__m512i)_mm512_cvtne2ps_pbh(w1, w0);

            _mm512_store_si512(weight[r] + v * PAIRS, w);
            sum = dot(sum, w, ones);
        }
        _mm512_store_ps(s->weight, sum);
    }
}

/* ---- sums of values: vecs vectors of every query's output from dimension dim on ---- */

INLINE void values(const struct attend_block *b, int first, int n, int dim, int vecs, bool fetch,
                   uint32_t (*weight)[ATTEND_BLOCK / 2], const float *shrink)
{
    __m512 sum[QUERIES_AT_ONCE][VECS];
    float *out[QUERIES_AT_ONCE];
    size_t row = (size_t)b->head_dim * 4;
    int page, i, r, v;

    UNROLL for (r = 0; r < n; r++) {
        out[r] = attend_sums_at(b, first + r)->out + dim;
        UNROLL for (v = 0; v < vecs; v++)
            sum[r][v] = _mm512_mul_ps(_mm512_load_ps(out[r] + v * LANES), _mm512_set1_ps(shrink[r]));
    }
    for (page = 0; page < b->pages_n; page++) {
        const char *from = b->part[page] + b->part_bytes + dim * 4, *next = b->next[page] + b->part_bytes + dim * 4;

        for (i = 0; i < PAIRS; i++, from += row, next += row) {
            __m512i pairs[VECS];

            UNROLL for (v = 0; v < vecs; v++) {
                pairs[v] = _mm512_loadu_si512(from + v * LINE);
                if (fetch)
                    _mm_prefetch(next + v * LINE, _MM_HINT_T1);
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

INLINE void block_some(const struct attend_block *b, int first, int n, bool fetch)
{
    _Alignas(64) float score[QUERIES_AT_ONCE][ATTEND_BLOCK];
    _Alignas(64) uint32_t weight[QUERIES_AT_ONCE][ATTEND_BLOCK / 2];
    _Alignas(64) float shrink[LANES];
    int dim, page;

    if (b->pages_n == VECS)
        scores(b, first, n, 0, VECS, fetch, score);
    else
        for (page = 0; page < b->pages_n; page++)
            scores(b, first, n, page, 1, fetch, score);
    weights(b, first, n, score, weight, shrink);
    for (dim = 0; dim + VECS * LANES <= b->head_dim; dim += VECS * LANES)
        values(b, first, n, dim, VECS, fetch, weight, shrink);
    for (; dim < b->head_dim; dim += LANES)
        values(b, first, n, dim, 1, fetch, weight, shrink);
}

/* The heights are compiled one by one: all loops over queries are straight code. */
static void block_1(const struct attend_block *b, int first) { block_some(b, first, 1, true); }
static void block_2(const struct attend_block *b, int first) { block_some(b, first, 2, true); }
static void block_3(const struct attend_block *b, int first) { block_some(b, first, 3, true); }
static void block_4(const struct attend_block *b, int first) { block_some(b, first, 4, true); }
static void block_5(const struct attend_block *b, int first) { block_some(b, first, 5, true); }
static void block_6(const struct attend_block *b, int first) { block_some(b, first, 6, true); }
static void block_more(const struct attend_block *b, int first) { block_some(b, first, 6, false); }

static void block_bf16(const struct attend_block *b)
{
    static void (*const height[QUERIES_AT_ONCE + 1])(const struct attend_block *, int) = {
        NULL, block_1, block_2, block_3, block_4, block_5, block_6,
    };
    int n = b->queries_n, i = n < QUERIES_AT_ONCE ? n : QUERIES_AT_ONCE;

    height[i](b, 0);
    for (; i + QUERIES_AT_ONCE <= n; i += QUERIES_AT_ONCE)
        block_more(b, i);
    if (i < n)
        height[n - i](b, i);
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
