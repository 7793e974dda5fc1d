/* kernels/cuda/launch.h - private to the CUDA device: the launchers of its kernels. Shared by C11 and C++17.
 * A launcher checks nothing that its caller has not, launches on the stream and returns the launch's error; it never
 * waits. Pointers are device memory (or pinned host memory, which kernels see as well) unless a comment says otherwise.
 * Types: RESIDUAL, QKV, LOGITS fp32; NORMED, QUERY, ATTENDED, GATED bf16 (uint16_t here), or fp32 in the reference. */
#ifndef KERNELS_CUDA_LAUNCH_H
#define KERNELS_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_PAGE 16               /* PAGE_POSITIONS; cuda.c asserts it */
#define CUDA_TOP_MAX 20            /* TOP_LOGPROBS_MAX */

/* ---- embed.cu, rmsnorm.cu, gather.cu, finish.cu, pack.cu, pages.cu, ceiling.cu ---- */

cudaError_t launch_embed(cudaStream_t s, int fp32, const void *table, const int32_t *token, int rows_n, int dim, float scale,
                         float *x);
cudaError_t launch_rmsnorm(cudaStream_t s, int fp32, const float *x, const float *w, float eps, const int32_t *rows,
                           int rows_n, int dim, void *out);
cudaError_t launch_gather(cudaStream_t s, const void *in, const int32_t *rows, int rows_n, size_t row_bytes, void *out);
/* out += bias, in place: [rows, n] fp32. */
cudaError_t launch_bias(cudaStream_t s, float *out, const float *bias, int64_t rows_n, int n);
/* x += y + bias. */
cudaError_t launch_add_bias(cudaStream_t s, float *x, const float *y, const float *bias, int64_t rows_n, int n);
cudaError_t launch_softcap(cudaStream_t s, float *x, int64_t n, float cap);
/* out[r, i] = act(in[r, i]) * in[r, ff + i]; gelu: tanh form, else silu. rows_n < 65536; in and out 16-byte aligned. */
cudaError_t launch_gate(cudaStream_t s, int fp32, const float *in, int rows_n, int ff, int gelu, void *out);
/* fp32 to bf16, nearest even. */
cudaError_t launch_pack(cudaStream_t s, const float *in, int64_t n, uint16_t *out);
/* Numbers in [-1, 1) from (seed, index). */
cudaError_t launch_random(cudaStream_t s, uint64_t seed, int64_t n, uint16_t *out);
cudaError_t launch_random_fp32(cudaStream_t s, uint64_t seed, int64_t n, float *out);
/* *differ += elements i with a[i] != b[i] + (c != NULL ? c[i] : 0) in bits. */
cudaError_t launch_compare(cudaStream_t s, const float *a, const float *b, const float *c, int64_t n,
                           unsigned long long *differ);
cudaError_t launch_pages_copy(cudaStream_t s, char *pool, size_t page_bytes, const int32_t *src, const int32_t *dst,
                              int pages_n);
struct launch_move { int32_t src, at, dst, to; };
cudaError_t launch_positions_move(cudaStream_t s, char *pool, size_t page_bytes, int parts_n, int row_bytes, int swizzle,
                                  const struct launch_move *moves, int moves_n);
/* Reads n 16-byte words (the ceiling of reading). */
cudaError_t launch_read(cudaStream_t s, const void *from, int64_t n, unsigned *sink);

/* ---- product.cu: out[r, n] = sum_k w[n, k] in[r, k], a chain of m16n8k16 over k in order ---- */

cudaError_t launch_product(cudaStream_t s, const uint16_t *w, int n, int k, const uint16_t *in, int rows_n, int add,
                           float *out);

/* product_fp32.cu: the same in fp32, for the reference. */
cudaError_t launch_product_fp32(cudaStream_t s, const float *w, int n, int k, const float *in, int rows_n, int add,
                                float *out);

#define PRODUCT_FEW_ROWS 32
cudaError_t launch_product_init(void);         /* once on each device */
/* The same for 1 to PRODUCT_FEW_ROWS rows; k % 8 == 0, w and in 16-byte aligned. */
cudaError_t launch_product_few(cudaStream_t s, const uint16_t *w, int n, int k, const uint16_t *in, int rows_n, int add,
                               float *out);

/* ---- product_wide.cu: the same chain by wgmma, on compute capability 9.0 alone ---- */

enum { WIDE_STORE, WIDE_ADD, WIDE_SILU, WIDE_GELU };
struct launch_wide {
    const uint16_t *w, *in;        /* [n, k], [rows_n, k], 16-byte aligned */
    int n, k, rows_n, to;          /* n % 16 == 0, k % 8 == 0. WIDE_SILU, WIDE_GELU: w is gate, then up, of n / 2 each */
    void *out;                     /* [rows_n, n] fp32, or [rows_n, n / 2] bf16, 16-byte aligned */
};
#define WIDE_TILES 14
cudaError_t launch_wide_init(void);            /* once on each device */
/* After launch_wide_init: kernels of this device may begin while the one before them ends (bits.cuh, predecessor_wait). */
int launch_overlaps(void);
/* Whether tile 0 .. WIDE_TILES - 1 is made for such a product on this device. */
int launch_wide_fits(int tile, int gated, int n, int k, int rows_n);
/* tile: one that fits; rows_n may be less than what it was asked for. */
cudaError_t launch_wide(cudaStream_t s, int tile, const struct launch_wide *p);

/* ---- pages ----
 * Of one layer and KV head: keys [16][dim], then values [16][dim], bf16. In a row the 16-byte chunk c of position p of the
 * page stands at c ^ (p & swizzle), so that a page can be copied to shared memory as it lies and be read there without
 * bank conflicts. swizzle: 7 where a row is 8, 16 or 32 chunks (dim 64, 128, 256), else 0. */

/* ---- rope.cu ---- */

/* turns[r][i] = (cos, sin) of float(pos[r]) * inv_freq[i], times magnitude. */
cudaError_t launch_turns(cudaStream_t s, const int32_t *pos, int rows_n, const float *inv_freq, int half,
                         float magnitude, float2 *turns);

struct launch_rope {
    const float *qkv;
    const float2 *turns;           /* [rows][half] */
    const int32_t *slot;           /* [rows] page * CUDA_PAGE + position inside it */
    int rows_n, heads_n, kv_heads_n, dim, swizzle, half, neighbours;
    float scale;                   /* of queries */
    const float *q_norm, *k_norm;  /* NULL: none */
    float eps;
    void *kv;                      /* first element of the layer in page 0 */
    size_t page_elems;             /* elements from a page to the next */
    void *q;
    int fp32;                      /* of q and pages; swizzle is 0 */
};
cudaError_t launch_rope(cudaStream_t s, const struct launch_rope *r);

/* ---- attention.cu ---- */

#define ATTEND_BLOCK 64            /* positions of one step of the online softmax */
#define ATTEND_SPLIT 256           /* positions whose sums are kept apart until they are folded, in order */
#define ATTEND_CHUNK_QUERIES 128   /* queries of a tile whose warps share keys and values */
#define ATTEND_TILE_QUERIES 16     /* queries of a tile of one warp */
#define ATTEND_DIM_MAX 256

/* Queries of one sequence and KV head: query q is head q % group of row `row` + q / group. */
struct attend_item {
    int32_t row;                   /* first row of the sequence in the step */
    int32_t query, queries_n;
    int32_t pages;                 /* the sequence's page table begins at pages[this] */
    int32_t split, splits_n;       /* splits to do */
    int32_t entry;                 /* >= 0: sums of this one split go to entries [entry, entry + queries_n); -1: finish */
    int32_t tree;                  /* >= 0: position cached_n + i is at slot tree[this + i] of the sequence */
    int32_t cached_n;
};

/* Queries whose splits were done apart: split i of query j is entry `entry` + i * queries_n + j. */
struct attend_fold { int32_t row, query, queries_n, entry, splits_n; };

struct launch_attention {
    const uint16_t *q;             /* fp32: float */
    const int32_t *pos, *pages, *tree;
    const uint16_t *kv;            /* first element of the layer in page 0; fp32: float */
    size_t page_elems;
    int heads_n, kv_heads_n, dim, swizzle, window;
    float softcap;                 /* in powers of 2: softcap * log2(e); 0: off */
    float *sums;                   /* [entries][kv_heads][dim] */
    float2 *weights;               /* [entries][kv_heads] (max, sum) */
    uint16_t *out;
};
cudaError_t launch_attend_init(void);          /* once on each device, before the others */
/* Items of ATTEND_TILE_QUERIES queries, one warp each. */
cudaError_t launch_attend_tiles(cudaStream_t s, const struct launch_attention *a, const struct attend_item *items,
                                int items_n);
/* Items of ATTEND_CHUNK_QUERIES queries; entry must be -1. */
cudaError_t launch_attend_chunks(cudaStream_t s, const struct launch_attention *a, const struct attend_item *items,
                                 int items_n);
/* attention_fp32.cu: items of any size, whole (entry -1). */
cudaError_t launch_attend_fp32(cudaStream_t s, const struct launch_attention *a, const struct attend_item *items, int items_n);
cudaError_t launch_attend_fold(cudaStream_t s, const struct launch_attention *a, const struct attend_fold *folds,
                               int folds_n);

/* ---- sample.cu ---- */

struct launch_bias_entry { int32_t token; float add; };
struct launch_seen_entry { int32_t token, output_n; };
struct launch_sampling {
    float temperature, top_p, min_p, repetition, presence, frequency;
    int32_t top_k, target, top_logprobs_n, bias_n, seen_n;     /* seen_n is 0 unless a penalty is on */
    int32_t bias, seen;            /* first entry; raw logits are kept at raw[bias + i], raw[biases_n + seen + i] */
    uint64_t seed;
    int64_t pos;
};
struct launch_sampled {
    int32_t token;
    float logprob;
    int32_t top_n;
    struct { int32_t token; float logprob; } top[CUDA_TOP_MAX];
};
cudaError_t launch_sample(cudaStream_t s, float *logits, int vocab, int outs_n, const struct launch_sampling *sampling,
                          const struct launch_bias_entry *bias, const struct launch_seen_entry *seen, int biases_n,
                          float *raw, struct launch_sampled *out);

#ifdef __cplusplus
}
#endif

#endif
