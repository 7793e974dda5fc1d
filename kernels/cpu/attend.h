/* kernels/cpu/attend.h - private to the CPU device: how pages lie in memory, and the inner loops of attention.
 *
 * A page of one layer and KV head is a block of keys, then one of values, part_bytes each:
 *   bf16: keys [head_dim/2][16 positions][2], values [8 position pairs][head_dim][2]
 *   fp32: keys [head_dim][16 positions],      values [16 positions][head_dim]
 * so that the scores of 16 positions are one chain of multiply-adds over head_dim with the query broadcast, and the
 * sums over positions one chain with the weight broadcast. All layers of a page lie together: a page is copied at once.
 *
 * Values in a page are always finite (rope.c sees to it: a position whose value is not finite gets NaN keys instead,
 * so that every row that sees it becomes NaN). A lane that a row must not see gets weight 0, and 0 times what an
 * earlier owner of the page left there is 0. Keys may be anything: scores of such lanes are replaced.
 *
 * Order:  softmax (online: Milakov & Gimelshein 2018) in blocks of ATTEND_BLOCK positions counted from position 0. A
 *         query's sums are chains over its own blocks; how many queries share a call never shows in the bits. Pages of
 *         a block that no query of the call sees are left out: they would add weight 0. (That can turn -0 into +0, so
 *         the last step makes every zero +0.)
 * Units:  queries are scaled by scale * log2(e) when they are written (rope.c): weights are 2^(score - max). */
#ifndef KERNELS_CPU_ATTEND_H
#define KERNELS_CPU_ATTEND_H

#include <string.h>

#include "kernels/cpu/cpu.h"

#define ATTEND_BLOCK 64
#define ATTEND_PAGES (ATTEND_BLOCK / PAGE_POSITIONS)
#define ATTEND_QUERIES 24          /* most queries (row, head) of one call */
#define ATTEND_LANES 16            /* partial sums of weights of a query: one a position of a page */
#define HEAD_DIM_MAX 1024
#define LOG2_E 1.44269504088896340736

struct kv {
    struct kv_shape shape;
    size_t part_bytes, page_bytes;
    char *data;
};

static inline char *kv_part(const struct kv *kv, int32_t page, int layer, int kv_head)
{
    return kv->data + (size_t)page * kv->page_bytes +
           ((size_t)layer * (size_t)kv->shape.kv_heads_n + (size_t)kv_head) * 2 * kv->part_bytes;
}

/* Copies one position's key and value of one layer and head between two parts. */
void kv_lane_copy(const struct kv *kv, bool fp32, const char *src, int at, char *dst, int to);

/* What a query has summed up so far, relative to 2^max; `out` continues to head_dim. */
struct attend_sums {
    float weight[ATTEND_LANES];
    float out[];
};
#define ATTEND_MAX_START (-1e30f)  /* finite: a block of which nothing is seen must leave the sums as they are */

/* Blocks of keys and values for queries that stand together. */
struct attend_block {
    int head_dim, queries_n, pages_n;          /* 1..ATTEND_QUERIES, 1..ATTEND_PAGES */
    float softcap;                             /* 0: off */
    const char *part[ATTEND_PAGES];
    const char *next[ATTEND_PAGES];            /* parts that will be wanted after this call; any part if none */
    size_t part_bytes, q_bytes, sums_bytes;    /* strides of queries and sums */
    const char *q;                             /* [queries] of [head_dim] bf16 for avx512bf16, fp32 else */
    char *sums;                                /* [queries] of struct attend_sums, 64-byte aligned */
    float *max;                                /* [queries] largest score so far, from ATTEND_MAX_START on */
    uint64_t seen[ATTEND_QUERIES];             /* bit i: the query sees position i of the block */
};

static inline struct attend_sums *attend_sums_at(const struct attend_block *b, int query)
{
    return (struct attend_sums *)(b->sums + (size_t)query * b->sums_bytes);
}

struct attend_loops {
    bool widen_q;                              /* queries are read as fp32 */
    void (*block_bf16)(const struct attend_block *b);
    void (*block_fp32)(const struct attend_block *b);      /* NULL: it has none */
    void (*finish)(const struct attend_sums *s, int head_dim, bool narrow, void *out);
};

extern const struct attend_loops attend_portable, attend_avx2, attend_avx512bf16;

#endif
