/* kernels/cpu/lanes.h - private to the CPU device: inner loops that give the same bits in every instruction set
 * (no fused multiply-add, no reduction whose order depends on the vector width), compiled once for each. */
#ifndef KERNELS_CPU_LANES_H
#define KERNELS_CPU_LANES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/cpu.h"

/* ---- rope.c ---- */

struct lane_head {
    int head_dim;
    const float *norm;             /* [head_dim] or NULL */
    float eps;
    const float *cos, *sin;        /* [turn_dim / 2] */
    int turn_dim;
    enum rope_pairs pairs;
    float scale;
};

/* ---- sample.c ---- */

#define SAMPLE_BLOCK 64            /* logits that share one maximum */
#define MASS_ONE (UINT64_C(1) << 40)       /* mass of the likeliest token; sums of 2^23 of them fit */
#define MASS_BLOCKS_MAX 64         /* partial sums stay within 32 bits */
#define MASS_X_MIN (-28.0f)        /* e^x * 2^40 < 1 below */
#define QUADS (SAMPLE_BLOCK / 4)   /* a Philox block serves four ids */

struct lane_loops {
    /* out = scale * rope(norm(in)), fp32. */
    void (*head)(const struct lane_head *h, const float *in, float *out);
    /* To bf16, nearest even; a NaN stays one. */
    void (*narrow)(const float *from, int n, uint16_t *to);
    bool (*finite)(const float *x, int n);

    /* max[i] of each block of SAMPLE_BLOCK logits, the last one may be short; true: there is a NaN. */
    bool (*block_max)(const float *logits, int n, float *max);
    /* mass[i] = floor(2^40 e^((l[i] - max) * inv_t)), n <= SAMPLE_BLOCK; returns their sum. max is finite. mass may be
     * NULL. weight, unless NULL, gets e^(...) itself. */
    uint64_t (*mass)(const float *l, int n, float max, float inv_t, uint64_t *mass, float *weight);
    /* The sum for blocks_n whole blocks, at most MASS_BLOCKS_MAX. */
    uint64_t (*mass_blocks)(const float *l, int blocks_n, float max, float inv_t);
    /* words[i]: the random word of token 4 * block + i, n <= SAMPLE_BLOCK tokens with logits l. Returns a bit for each
     * whose l >= floor and whose l * inv_t + noise may reach need, by a bound that is never too low. */
    uint64_t (*contenders)(const float *l, int n, uint64_t seed, uint64_t pos, uint32_t block, float inv_t, float need,
                           float floor, uint32_t *words);
};

extern const struct lane_loops lanes_portable, lanes_avx2, lanes_avx512bf16;

static inline const struct lane_loops *lanes_of(const struct cpu_device *c)
{
#if defined(__x86_64__)
    if (c->isa == CPU_AVX512BF16)
        return &lanes_avx512bf16;
    if (c->isa == CPU_AVX2)
        return &lanes_avx2;
#else
    (void)c;
#endif
    return &lanes_portable;
}

#endif
