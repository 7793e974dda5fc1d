/* kernels/cpu/loops.h - private to the CPU device: the inner loops of products and norms, one table an instruction set.
 *
 * Order:  every output is one chain over k from 0 upwards, starting at +0, whatever the tile: avx512bf16 adds the
 *         products of a pair (k, k+1) at a time (VDPBF16PS), avx2 and portable one k at a time. A tile only decides
 *         how many chains run beside each other, so its height and width never show in the bits.
 * Packed: strips of 32 outputs, one after the other, and in a strip along k: bf16 [N/32][K/2][32][2], fp32 [N/32][K][32].
 *         A strip is one stream of memory, which is what few rows want, and a tile of 32 columns. Outputs past N are
 *         zero. A gated matrix has 16 outputs of the gate, then the same 16 of up, in each strip. */
#ifndef KERNELS_CPU_LOOPS_H
#define KERNELS_CPU_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/cpu.h"

#define STRIP 32                   /* outputs of a strip */
#define HALF 16                    /* of one half: what a narrow tile covers */
#define STEP_BYTES 128             /* of a strip, from one pair of k (fp32: one k) to the next */

/* rows x (halves * 16) chains over a piece of k. */
struct chains {
    const char *w;                 /* first half, first k of the piece */
    const char *in;                /* first row, first k of the piece */
    size_t row_bytes;              /* from one row to the next */
    int rows, halves, k;
    bool go_on;                    /* sums hold what the pieces before came to; else chains start at 0 */
    const char *next;              /* weights wanted soon, fetched while this runs; NULL: none */
    size_t next_bytes;             /* of them a step: at most STEP_BYTES */
    float *sums;                   /* [rows][STRIP], 64-byte aligned */
};

enum finish_to { FINISH_STORE, FINISH_ADD, FINISH_SILU, FINISH_GELU_TANH };

/* What becomes of a tile's sums. */
struct finish {
    enum finish_to to;
    bool narrow;                   /* gated: write bf16, else fp32 */
    const float *bias;             /* of the first column; NULL: none */
    float softcap;                 /* 0: off */
    const float *sums;
    int rows, cols;                /* columns written; gated: at most HALF */
    char *out;                     /* first row, first column */
    size_t row_bytes;
};

struct cpu_loops {
    int tile_rows, tile_halves;    /* highest and widest tile */
    bool widen_in;                 /* bf16 chains read their rows as fp32 */
    void (*chains_bf16)(const struct chains *c);
    void (*chains_fp32)(const struct chains *c);
    void (*finish)(const struct finish *f);
    void (*rmsnorm)(const float *x, const float *w, float eps, int dim, bool narrow, void *out);
    void (*widen)(const uint16_t *from, int64_t n, float *to);
    float (*dot_peak)(int64_t turns, double *flops);          /* products in registers alone */
    float (*read)(const float *from, int64_t n);              /* a plain read loop */
};

extern const struct cpu_loops cpu_loops_portable, cpu_loops_avx2, cpu_loops_avx512bf16;

struct cpu_matrix {
    struct matrix base;
    struct cpu_matrix *before, *after;         /* in the order of loading, which is that of use: a hint for fetching */
    struct cpu_chunk *chunk;       /* where it was cut from */
    char *packed;
    int strips_n;
    size_t strip_bytes;
};

/* memory.c: matrices are cut from chunks of huge pages, in the order of loading: the order in which a step reads them. */
char *cpu_pool_take(struct cpu_device *c, size_t bytes, struct cpu_chunk **chunk);
void cpu_pool_give(struct cpu_device *c, struct cpu_chunk *chunk);

/* To nearest, ties to even; a NaN stays one. */
static inline uint16_t bf16_of(float value)
{
    union { float f; uint32_t u; } v = { value };

    if ((v.u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(v.u >> 16 | 0x40);
    return (uint16_t)((v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);
}

static inline float bf16_float(uint16_t bits)
{
    union { uint32_t u; float f; } v = { (uint32_t)bits << 16 };

    return v.f;
}

#endif
