/* kernels/cpu/cpu.h - private to the CPU device: its state, and the functions behind each operation.
 *
 * Types of activations: bf16 mode: RESIDUAL, QKV, LOGITS fp32; NORMED, QUERY, ATTENDED, GATED bf16. fp32 mode: all
 * fp32. Rows are dense (stride = dim). Every buffer of device_buffer_take may be read CPU_OVERRUN bytes past its end.
 * Threads: operations are called by the one driving thread and spread over `team`. */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include "kernels/cpu/team.h"
#include "kernels/device.h"

#define CPU_OVERRUN 256            /* bytes past the end of a buffer that may be read (never written) */

enum cpu_isa { CPU_PORTABLE, CPU_AVX2, CPU_AVX512BF16 };

struct cpu_device {
    struct device base;
    struct team *team;
    enum cpu_isa isa;
    bool fp32;                     /* the reference: everything in fp32 */
    const struct cpu_loops *loops; /* inner loops of products for isa (loops.h) */
    struct cpu_chunk *chunk;       /* huge pages that the next matrix is cut from; NULL: none yet */
    struct cpu_matrix *newest;     /* the matrix loaded last */
    char **scratch;                /* [threads] see cpu_scratch */
    size_t scratch_bytes;
    struct step_memo *memo;        /* step_memo.h */
};

static inline struct cpu_device *cpu_of(struct device *d)
{
    return (struct cpu_device *)d;
}

static inline const struct cpu_device *cpu_of_const(const struct device *d)
{
    return (const struct cpu_device *)d;
}

/* Scratch of each thread for the length of one operation: the driving thread reserves before team_run (grows only, so
 * a warm step allocates nothing), thread i then uses cpu_scratch(c, i), 64-byte aligned, contents undefined. */
void cpu_scratch_reserve(struct cpu_device *c, size_t bytes);

static inline void *cpu_scratch(const struct cpu_device *c, int thread_i)
{
    return c->scratch[thread_i];
}

/* memory.c */
void *cpu_buffer_take(struct device *d, size_t bytes);
void *cpu_buffer_try(size_t bytes);            /* NULL: there is no such memory; given back like any buffer */
void cpu_buffer_give(struct device *d, void *p);

/* kv.c */
size_t cpu_kv_page_bytes(const struct device *d, const struct kv_shape *shape);
status cpu_kv_open(struct device *d, const struct kv_shape *shape, struct kv **out, struct error *err);
void cpu_kv_close(struct device *d, struct kv *kv);
status cpu_kv_pages_copy(struct device *d, struct kv *kv, const int32_t *src, const int32_t *dst, int pages_n);
status cpu_kv_positions_move(struct device *d, struct kv *kv, const struct kv_move *moves, int moves_n);

/* rope.c, attention.c, sample.c */
status cpu_rope_write(struct device *d, const void *qkv, const struct step *s, int layer,
                      const struct attention_shape *a, const struct rope *rope, const struct qk_norm *norm,
                      struct kv *kv, void *q);
status cpu_attention(struct device *d, const void *q, const struct step *s, int layer,
                     const struct attention_shape *a, const struct kv *kv, void *out);
status cpu_sample(struct device *d, float *logits, int vocab, const struct step *s);

/* matrix.c */
status cpu_matrix_load(struct device *d, int k, const struct matrix_source *sources, int sources_n,
                       struct matrix **out, struct error *err);
status cpu_matrix_load_gated(struct device *d, int k, const struct matrix_source *gate,
                             const struct matrix_source *up, struct matrix **out, struct error *err);
void cpu_matrix_give(struct device *d, struct matrix *m);
status cpu_embed(struct device *d, const struct matrix *table, const struct step *s, float scale, void *x);

/* linear.c, rmsnorm.c, gather.c, measure.c */
status cpu_gather(struct device *d, enum act role, int dim, const void *in, const int32_t *rows, int rows_n, void *out);
status cpu_linear(struct device *d, const struct matrix *w, const float *bias, const void *in, int rows_n,
                  enum linear_to to, void *out);
status cpu_linear_gated(struct device *d, const struct matrix *w, enum gate_act act, const void *in, int rows_n,
                        void *out);
status cpu_logits(struct device *d, const struct matrix *head, const void *in, int rows_n, float softcap,
                  float *logits);
status cpu_rmsnorm(struct device *d, const void *x, const float *w, float eps, const int32_t *rows, int rows_n,
                   int dim, void *out);
status cpu_measure(struct device *d, struct device_ceilings *out);

#endif
