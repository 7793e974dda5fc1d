/* kernels/kernels.h - the only door to a device: buffers, matrices in the device's own layout, fused operations.
 *
 * Threads:   one thread drives a device (loading may use several, see matrix_source). Calls are asynchronous on the
 *            device's stream and run in the order of the calls; device_sync waits. The CPU device runs them at once.
 * Ownership: what *_take/_open/_load returned goes back with the matching _give/_close. Arguments are borrowed until
 *            the next device_sync.
 * Bits:      every output row of every operation is computed in an order that depends on that row alone, never on the
 *            other rows of the step (design: "reductions by row"). Rows of one matrix are therefore bit-equal however
 *            they are grouped into steps, and a chain row equals the same row decoded alone.
 * Errors:    ST_FATAL: the device failed; nothing computed since the last device_sync may be used. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/config.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PAGE_POSITIONS 16          /* KV positions of a page */
#define TREE_ROWS_MAX 64           /* rows of a draft tree of one sequence: one bit each in an ancestor mask */
#define TOP_LOGPROBS_MAX 20

/* ---- device ---- */

struct device;

struct device_info {
    char name[96];                 /* "AMD EPYC ... (2 threads)" */
    char isa[32];                  /* inner loops in use: "avx512bf16", "avx2", "portable"; "fp32" for the reference */
    int threads_n;
    int64_t memory_bytes;          /* what a KV pool may be cut from */
};

/* Opens cfg->device with cfg->threads, cfg->dtype, cfg->cpu_isa. ST_REJECT: no such device or inner loop on this
 * machine (the error says which there are). */
MUST_USE status device_open(const struct config *cfg, struct device **out, struct error *err);
void device_close(struct device *d);                       /* NULL is allowed */
const struct device_info *device_info(const struct device *d);
MUST_USE status device_sync(struct device *d);

/* Memory that kernels and host both see, 64-byte aligned, zeroed. On a GPU kernels reach it over the bus: for what the
 * host fills in or reads, not for activations. */
void *device_buffer_take(struct device *d, size_t bytes);
/* The device's own memory, 64-byte aligned, zeroed: activations. The host reaches it through device_copy alone. NULL: the
 * device has no such room. */
void *device_memory_take(struct device *d, size_t bytes);
void device_buffer_give(struct device *d, void *p);        /* of either kind; NULL is allowed */
/* Copies between memory of any kind, and waits for it and all before it. */
MUST_USE status device_copy(struct device *d, void *to, const void *from, size_t bytes);

/* ---- activations: opaque to the host, because each device keeps them in the type its products want ---- */

enum act {
    ACT_RESIDUAL,      /* the stream that layers add to */
    ACT_NORMED,        /* input of a product: after a norm */
    ACT_QKV,           /* fused query, key, value */
    ACT_QUERY,         /* queries after rope */
    ACT_ATTENDED,      /* output of attention, input of a product */
    ACT_GATED,         /* act(gate) * up, input of a product */
    ACT_LOGITS         /* fp32 on every device */
};
size_t device_act_bytes(const struct device *d, enum act role, int dim);    /* one row */

/* ---- matrices: y[n] = sum_k W[n,k] x[k] ---- */

struct matrix;

/* Where rows come from: writes rows [first, first + count) as fp32, row-major [count, k], into out. Called on several
 * threads at once for different rows. */
struct matrix_source {
    void (*rows)(const void *ctx, int64_t first, int64_t count, float *out);
    const void *ctx;
    int64_t rows_n;
};

/* Packs the rows of sources_n sources, one after the other, into one matrix of [sum rows_n, k]. k % 2 == 0. */
MUST_USE status matrix_load(struct device *d, int k, const struct matrix_source *sources, int sources_n,
                            struct matrix **out, struct error *err);
/* gate and up of [ff, k] each, laid out so that kernel_linear_gated finds both halves of an output together. */
MUST_USE status matrix_load_gated(struct device *d, int k, const struct matrix_source *gate,
                                  const struct matrix_source *up, struct matrix **out, struct error *err);
void matrix_give(struct device *d, struct matrix *m);
size_t matrix_bytes(const struct matrix *m);
/* fp32 vector (norm weights, biases, rope frequencies) as the device keeps it: the host may not read it. Given back with
 * device_buffer_give. NULL: the device has no room. */
float *vector_load(struct device *d, const float *from, int n);

/* ---- KV pages ---- */

struct kv_shape {
    int layers_n, kv_heads_n, head_dim;
    int pages_n;
};
struct kv;

size_t kv_page_bytes(const struct device *d, const struct kv_shape *shape);    /* all layers, keys and values */
MUST_USE status kv_open(struct device *d, const struct kv_shape *shape, struct kv **out, struct error *err);
void kv_close(struct device *d, struct kv *kv);
/* Copies whole pages src[i] to dst[i]; no page is both. */
MUST_USE status kv_pages_copy(struct device *d, struct kv *kv, const int32_t *src, const int32_t *dst, int pages_n);
/* Moves single positions inside the pool, in order (keeps the accepted path of a draft tree):
 * position at[i] of page src[i] to position to[i] of page dst[i]. */
struct kv_move { int32_t src, at, dst, to; };
MUST_USE status kv_positions_move(struct device *d, struct kv *kv, const struct kv_move *moves, int moves_n);

/* ---- the step: one forward pass over a ragged set of rows (design.md section 5) ---- */

struct seq_span {
    int32_t row, rows_n;           /* its rows stand together: [row, row + rows_n) */
    int32_t cached_n;              /* positions already in its pages; row i writes its KV to slot cached_n + i */
    int32_t tree;                  /* 0: a chain (parent = the row before; pos = cached_n + i). 1: a draft tree of at
                                    * most TREE_ROWS_MAX rows, whose parents come before their children */
    const int32_t *pages;          /* page of slot s is pages[s / PAGE_POSITIONS] */
};

struct step {
    int32_t rows_n, seqs_n, outs_n;
    int32_t *token;                /* [rows] input token ids */
    int32_t *pos;                  /* [rows] absolute positions: rope, and the order of attention */
    int32_t *parent;               /* [rows] row before this one inside the step; -1: only what is in the cache */
    struct seq_span *seq;          /* [seqs] in row order */
    int32_t *want;                 /* [outs] rows whose next token or log-probabilities are wanted, ascending */
    struct sampling *sampling;     /* [outs] */
    struct sampled *sampled;       /* [outs] filled by the device */
};

/* ---- sampling ----
 * token = argmax_i(l_i / T + gumbel(seed, pos, i)) over what top-k, then top-p, then min-p leave, where l are the logits
 * after bias and penalties (Gumbel-max: Gumbel 1954; noise by counter: Philox4x32-10, Salmon et al. 2011; kernels/philox.h).
 * T = 0: argmax, the lowest id wins a tie. First the bias is added, then penalties as vLLM/OpenAI: repetition divides
 * positive and multiplies negative logits of every seen token; presence and frequency count tokens of the output only.
 * top-k: the k largest, ties by lower id. top-p: of the probabilities that remain, made to sum to 1, the smallest set of
 * largest ones whose sum is at least top_p, at least one. min-p: those of at least min_p times the largest.
 * Sums are exact (a probability counts in units of 2^-40 of the largest), logarithms are the project's own (gumbel.h): the
 * choice depends on logits and parameters alone, not on the instruction set or the machine's libm.
 * Log-probabilities are those of the untouched logits (before bias, penalties, temperature). Infinite logits share all
 * probability. */

struct token_bias { int32_t token; float add; };            /* -INFINITY forbids the token */
struct token_count { int32_t token, output_n; };            /* every token seen; output_n: times in the output */

struct sampling {
    float temperature, top_p, min_p;                        /* top_p 1, min_p 0: off */
    int32_t top_k;                                          /* 0: off */
    float repetition, presence, frequency;                  /* 1, 0, 0: off */
    uint64_t seed;
    int64_t pos;                                            /* position of the token that is being chosen */
    int32_t target;                                         /* >= 0: nothing is sampled; log-probability of this token */
    int32_t top_logprobs_n;                                 /* -1: no log-probabilities; 0..TOP_LOGPROBS_MAX */
    const struct token_bias *bias; int32_t bias_n;          /* ascending by token, no token twice */
    const struct token_count *seen; int32_t seen_n;         /* NULL unless a penalty is on */
};

struct sampled {
    int32_t token;                                          /* -1: the logits hold a NaN or nothing is allowed */
    float logprob;                                          /* of token, if asked for or a target; else NaN */
    int32_t top_n;                                          /* best first; ties: lower id first; none at -inf */
    struct { int32_t token; float logprob; } top[TOP_LOGPROBS_MAX];
};

/* ---- operations, one fused call each ---- */

/* Makes s the step of the calls that follow: what kernel_embed, kernel_rope_write and kernel_attention are given must be
 * the step begun last, unchanged (a copy with other outputs is fine for kernel_sample). Its arrays may be plain memory and
 * are read during this call alone. */
MUST_USE status kernel_step_begin(struct device *d, const struct step *s);

/* x[r] = table[token[r]] * scale, for all rows of the step. Token ids are checked by the caller. */
MUST_USE status kernel_embed(struct device *d, const struct matrix *table, const struct step *s, float scale, void *x);

/* out[r] = norm(x[r]) * w, norm by root mean square (Zhang & Sennrich 2019), sum in fp32. rows: NULL for [0, rows_n). */
MUST_USE status kernel_rmsnorm(struct device *d, const void *x, const float *w, float eps, const int32_t *rows,
                               int rows_n, int dim, void *out);

/* out[i] = in[rows[i]], whole rows of one role: the last layer goes on with the rows that are wanted. */
MUST_USE status kernel_gather(struct device *d, enum act role, int dim, const void *in, const int32_t *rows, int rows_n,
                              void *out);

/* out = W in (+ bias). LINEAR_ADD adds to a residual stream, LINEAR_STORE writes a product of role ACT_QKV. */
enum linear_to { LINEAR_STORE, LINEAR_ADD };
MUST_USE status kernel_linear(struct device *d, const struct matrix *w, const float *bias, const void *in, int rows_n,
                              enum linear_to to, void *out);

/* out[r, i] = act(gate_i . in[r]) * (up_i . in[r]); w from matrix_load_gated. */
enum gate_act { GATE_SILU, GATE_GELU_TANH };
MUST_USE status kernel_linear_gated(struct device *d, const struct matrix *w, enum gate_act act, const void *in,
                                    int rows_n, void *out);

/* Rotary embedding (Su et al. 2021) of queries and keys, then keys and values into the pages of the step. */
enum rope_pairs { ROPE_HALVES, ROPE_NEIGHBOURS };           /* NeoX/Hugging Face order, or GGUF's llama order */
struct attention_shape {
    int heads_n, kv_heads_n, head_dim;
    float scale;                                            /* of q.k, usually 1/sqrt(head_dim) */
    float softcap;                                          /* 0: off */
    int window;                                             /* positions a row sees, itself included; 0: all */
};
struct rope {
    enum rope_pairs pairs;
    int dim;                                                /* first dim elements of a head turn; 0: no rope */
    const float *inv_freq;                                  /* [dim/2], scaling already in it */
    float magnitude;                                        /* factor of cos and sin (yarn); 1 */
};
struct qk_norm { const float *q, *k; float eps; };          /* per-head RMS norm before rope; NULL pointers: none */
MUST_USE status kernel_rope_write(struct device *d, const void *qkv, const struct step *s, int layer,
                                  const struct attention_shape *a, const struct rope *rope, const struct qk_norm *norm,
                                  struct kv *kv, void *q);

/* Attention of every row over its cached positions and its ancestors in the step (whose KV kernel_rope_write has just
 * written). Online softmax in blocks of a fixed number of positions (64 on the CPU) counted from position 0, in order:
 * a row's bits depend on its positions alone, whether it is decoded, part of a chunk, or a row of a draft tree. The
 * roots of a tree have position cached_n, a child its parent's + 1. A position whose value is not finite makes NaN of
 * the rows that see it and of no other. Queries come from kernel_rope_write with the same attention_shape, which has put
 * the scale in. */
MUST_USE status kernel_attention(struct device *d, const void *q, const struct step *s, int layer,
                                 const struct attention_shape *a, const struct kv *kv, void *out);

/* logits[o] = head . in[o] (softcap 0: off), fp32 [outs_n, vocab]; in: rows already gathered by kernel_rmsnorm. */
MUST_USE status kernel_logits(struct device *d, const struct matrix *head, const void *in, int rows_n, float softcap,
                              float *logits);

/* Fills sampled[o] for every output of the step from logits[o, 0..vocab). Reads want-order, not rows. May use the
 * logits as scratch. */
MUST_USE status kernel_sample(struct device *d, float *logits, int vocab, const struct step *s);

/* ---- ceilings, measured on this device now: what benches divide by ---- */
struct device_ceilings { double dot_flops, read_bytes_s; };
MUST_USE status device_measure(struct device *d, struct device_ceilings *out);

#ifdef __cplusplus
}
#endif

#endif
