/* worker/model/gguf.h - a GGUF file (v2, v3), memory-mapped, every length and offset checked before use.
 * Threads: const after open. Ownership: texts and data point into the mapping, valid until gguf_close. */
#ifndef WORKER_MODEL_GGUF_H
#define WORKER_MODEL_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"
#include "worker/text/tokenizer.h"

struct gguf;

/* ST_REJECT: cannot be read, not GGUF, damaged or hostile; the error says where and what. */
MUST_USE status gguf_open(const char *path, struct gguf **out, struct error *err);
void gguf_close(struct gguf *g);                       /* NULL is allowed */

/* Metadata. false: no such key or another type (integers of any width convert when they fit). */
bool gguf_int(const struct gguf *g, const char *key, int64_t *out);
bool gguf_real(const struct gguf *g, const char *key, double *out);
bool gguf_bool(const struct gguf *g, const char *key, bool *out);
bool gguf_text(const struct gguf *g, const char *key, const char **text, size_t *n);      /* not terminated */

enum tensor_type {            /* GGML's numbers */
    TENSOR_F32 = 0, TENSOR_F16 = 1, TENSOR_Q4_0 = 2, TENSOR_Q4_1 = 3, TENSOR_Q8_0 = 8,
    TENSOR_Q4_K = 12, TENSOR_Q6_K = 14, TENSOR_BF16 = 30
};
struct tensor {
    const char *name;         /* terminated */
    enum tensor_type type;
    int dims_n;
    int64_t dims[4];          /* GGML order: dims[0] is the length of a row */
    const uint8_t *data;
    size_t data_bytes;
};
const struct tensor *gguf_tensor(const struct gguf *g, const char *name);      /* NULL: none */

/* Rows [first, first + count) as fp32, equal to the gguf package's dequantisation. */
void tensor_rows(const struct tensor *t, int64_t first, int64_t count, float *out);

/* The tokenizer's tables; *memory is freed by the caller after tokenizer_open. */
MUST_USE status gguf_tokenizer(const struct gguf *g, struct tokenizer_spec *out, void **memory, struct error *err);
/* The chat template, or NULL. */
const char *gguf_template(const struct gguf *g, size_t *n);
/* Fingerprint of weights and metadata. Hashes the whole file once (page cache speed). */
struct hash128 gguf_hash(const struct gguf *g);

#endif
