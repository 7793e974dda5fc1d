/* kernels/cuda/cuda.h - private to the CUDA device: its state, and the functions behind each operation.
 *
 * Memory, streams and handles live in the .c files; the .cu files hold kernels and their launchers (launch.h).
 * Types of activations: RESIDUAL, QKV, LOGITS fp32; NORMED, QUERY, ATTENDED, GATED bf16 (fp32 in the reference). Rows
 * are dense.
 * Threads: one thread drives the device; loading a matrix spreads over `team`. */
#ifndef KERNELS_CUDA_CUDA_H
#define KERNELS_CUDA_CUDA_H

#include <cublasLt.h>

#include "kernels/cpu/team.h"
#include "kernels/cuda/launch.h"
#include "kernels/device.h"

#define LOG2_E 1.44269504088896340736

/* ---- memory.c ---- */

/* The one place where CUDA's errors become a status; logs in CUDA's words. */
MUST_USE status st_cuda(cudaError_t e, const char *what);
void cuda_note(cudaError_t e, const char *what);           /* for endings: logs, and the ending goes on */

/* Device memory that grows when more is needed. Contents are lost then. */
struct cuda_room { void *at; size_t bytes; };
MUST_USE status cuda_room(struct cuda_room *r, size_t bytes);
void cuda_room_fini(struct cuda_room *r);

/* What the host sends while earlier work still runs: pairs of pinned and device memory, taken in turn. A block is
 * written again when all that was launched before its successor was taken has run. */
#define CUDA_BLOCKS 8
struct cuda_block { char *host, *device; size_t bytes; cudaEvent_t used; bool waits; };
struct cuda_blocks { struct cuda_block block[CUDA_BLOCKS]; int at, n; };
void cuda_blocks_init(struct cuda_blocks *b, int n);
void cuda_blocks_fini(struct cuda_blocks *b);

struct cuda_device;
MUST_USE status cuda_block_take(struct cuda_device *c, struct cuda_blocks *b, size_t bytes, struct cuda_block **out);
MUST_USE status cuda_block_send(struct cuda_device *c, const struct cuda_block *b, size_t bytes);

/* Sends n int32 for the next launch; *out is device memory. */
MUST_USE status cuda_send_ints(struct cuda_device *c, const int32_t *from, int n, const int32_t **out);

void *cuda_buffer_take(struct device *d, size_t bytes);
void *cuda_memory_take(struct device *d, size_t bytes);
void cuda_buffer_give(struct device *d, void *p);
status cuda_copy(struct device *d, void *to, const void *from, size_t bytes);
float *cuda_vector_load(struct device *d, const float *from, int n);

/* ---- the step on the device (step.c) ---- */

struct cuda_step {
    const struct step *of;         /* begun last; NULL: none */
    int rows_n, seqs_n, rows_room, seqs_room;
    int32_t token_least, token_most, page_most;
    const int32_t *token, *pos, *slot, *pages, *tree;      /* device */
    int *pages_at, *tree_at;       /* host: [seqs], [rows] offsets into pages and tree; tree_at -1: no tree row */
    /* cos and sin of the step, made once for all layers */
    struct cuda_room turns;
    const float *turns_freq;       /* NULL: not made yet */
    int turns_half;
    float turns_magnitude;
};

/* Items of attention, made once for all layers of a step. */
struct cuda_plan {
    int group, window;             /* group 0: not made yet */
    const struct attend_item *tiles, *chunks;              /* device */
    const struct attend_fold *folds;
    int tiles_n, chunks_n, folds_n;
    int64_t entries_n;
    struct attend_item *tile_list, *chunk_list;            /* host, growing */
    struct attend_fold *fold_list;
    int tiles_room, chunks_room, folds_room;
};

status cuda_step_begin(struct device *d, const struct step *s);
void cuda_step_check(const struct cuda_device *c, const struct step *s);    /* s is the step that was begun */
void cuda_step_fini(struct cuda_device *c);
/* Entries beyond entries_max are not used: their tiles are done whole, slowly. */
status cuda_plan_find(struct cuda_device *c, const struct step *s, int group, int window, int64_t entries_max);

/* ---- products (product.c) ---- */

#define PRODUCT_BUCKETS 15
/* What runs: product.cu's two kernels, a tile of product_wide.cu, or cuBLASLt. */
enum product_by { PRODUCT_CHAIN, PRODUCT_FEW, PRODUCT_WIDE, PRODUCT_LT };
struct product_plan { enum product_by by; int tile; cublasLtMatmulAlgo_t algo; };
struct product_shape {
    int n, k;
    bool gated;
    struct product_plan plan[PRODUCT_BUCKETS];
    int whole[PRODUCT_BUCKETS];    /* gated: the tile that does the activation, too; -1: the plan, then the activation */
    struct product_shape *next;
};

struct cuda_matrix {
    struct matrix base;
    int n;                         /* rows in memory: 2 * rows_n if gated (gate, then up) */
    uint16_t *w;                   /* [n, k] bf16, device; fp32 in the reference: wide */
    float *wide;
    const struct product_shape *shape;
};

/* Chooses algorithms for m's shape and checks their bits, once a shape. */
status cuda_product_shape(struct cuda_device *c, struct cuda_matrix *m);
void cuda_product_fini(struct cuda_device *c);

status cuda_linear(struct device *d, const struct matrix *w, const float *bias, const void *in, int rows_n,
                   enum linear_to to, void *out);
status cuda_linear_gated(struct device *d, const struct matrix *w, enum gate_act act, const void *in, int rows_n,
                         void *out);
status cuda_logits(struct device *d, const struct matrix *head, const void *in, int rows_n, float softcap,
                   float *logits);

/* ---- the device ---- */

#define PENDING_MAX 64
struct cuda_pending { struct sampled *to; int first, n; };

struct cuda_device {
    struct device base;
    int ordinal;
    bool fp32;                     /* the reference: everything in fp32, own kernels */
    cudaStream_t stream;
    cublasLtHandle_t lt;
    struct team *team;
    struct cuda_blocks step_blocks, plan_blocks, sends, loads;
    struct cuda_step step;
    struct cuda_plan plan;
    struct cuda_room scratch;      /* products that something follows */
    struct cuda_room sums, weights;            /* attention's splits */
    struct cuda_room workspace;    /* of cuBLASLt */
    struct product_shape *shapes;
    struct launch_sampled *results;            /* pinned; filled by kernels, handed over by sync */
    int results_room, results_n, pending_n;
    struct cuda_pending pending[PENDING_MAX];
};

static inline struct cuda_device *cuda_of(struct device *d)
{
    return (struct cuda_device *)d;
}

static inline const struct cuda_device *cuda_of_const(const struct device *d)
{
    return (const struct cuda_device *)d;
}

status cuda_sync(struct device *d);

/* matrix.c */
status cuda_matrix_load(struct device *d, int k, const struct matrix_source *sources, int sources_n,
                        struct matrix **out, struct error *err);
status cuda_matrix_load_gated(struct device *d, int k, const struct matrix_source *gate,
                              const struct matrix_source *up, struct matrix **out, struct error *err);
void cuda_matrix_give(struct device *d, struct matrix *m);
status cuda_embed(struct device *d, const struct matrix *table, const struct step *s, float scale, void *x);

/* rows.c */
status cuda_rmsnorm(struct device *d, const void *x, const float *w, float eps, const int32_t *rows, int rows_n,
                    int dim, void *out);
status cuda_gather(struct device *d, enum act role, int dim, const void *in, const int32_t *rows, int rows_n, void *out);

/* attention.c */
size_t cuda_kv_page_bytes(const struct device *d, const struct kv_shape *shape);
status cuda_kv_open(struct device *d, const struct kv_shape *shape, struct kv **out, struct error *err);
void cuda_kv_close(struct device *d, struct kv *kv);
status cuda_kv_pages_copy(struct device *d, struct kv *kv, const int32_t *src, const int32_t *dst, int pages_n);
status cuda_kv_positions_move(struct device *d, struct kv *kv, const struct kv_move *moves, int moves_n);
status cuda_rope_write(struct device *d, const void *qkv, const struct step *s, int layer,
                       const struct attention_shape *a, const struct rope *rope, const struct qk_norm *norm,
                       struct kv *kv, void *q);
status cuda_attention(struct device *d, const void *q, const struct step *s, int layer,
                      const struct attention_shape *a, const struct kv *kv, void *out);

/* sampling.c */
status cuda_sample(struct device *d, float *logits, int vocab, const struct step *s);
void cuda_results_hand_over(struct cuda_device *c);        /* after the stream is idle */

/* measure.c */
status cuda_measure(struct device *d, struct device_ceilings *out);

#endif
