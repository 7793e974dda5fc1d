/* worker/model/gguf.h - a GGUF file (v2, v3), memory-mapped, every length and offset checked before use.
 *
 * A file is untrusted: gguf_open walks all metadata and tensor descriptions once, so that nothing read later can lie
 * outside the mapping. Memory taken is bounded by counts that are checked against the file's size first.
 * Threads:   const after open. Ownership: texts and data point into the mapping, valid until gguf_close.
 * The file must not be cut while it is open (a mapping beyond the end of a file is a bus error).
 * Source:    ggml's docs/gguf.md; block layouts as in ggml-quants.h. Little-endian files on little-endian machines. */
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
/* The same for a file that stands in memory already, borrowed until gguf_close; path is for messages. */
MUST_USE status gguf_open_memory(const char *path, const void *bytes, size_t n, struct gguf **out, struct error *err);
void gguf_close(struct gguf *g);                       /* NULL is allowed */
const char *gguf_path(const struct gguf *g);
size_t gguf_bytes(const struct gguf *g);               /* of the file */

/* ---- metadata ---- */

enum gguf_kind {              /* the file format's numbers */
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_TEXT, GGUF_ARRAY,
    GGUF_U64, GGUF_I64, GGUF_F64,
    GGUF_KINDS_N
};
const char *gguf_kind_name(enum gguf_kind kind);

size_t gguf_keys_n(const struct gguf *g);
const char *gguf_key(const struct gguf *g, size_t i);               /* in the order of the file; terminated */
bool gguf_has(const struct gguf *g, const char *key, enum gguf_kind *kind);        /* kind may be NULL */

/* false: no such key or another type (integers of any width convert when they fit, any number converts to real). */
bool gguf_int(const struct gguf *g, const char *key, int64_t *out);
bool gguf_real(const struct gguf *g, const char *key, double *out);
bool gguf_bool(const struct gguf *g, const char *key, bool *out);
bool gguf_text(const struct gguf *g, const char *key, const char **text, size_t *n);      /* not terminated */

/* data holds n items, unaligned: numbers in their own width, texts each as a 64-bit length and its bytes. */
struct gguf_array { enum gguf_kind kind; uint64_t n; const uint8_t *data; size_t data_bytes; };
bool gguf_array(const struct gguf *g, const char *key, struct gguf_array *out);
/* Takes the next text of an array of texts: *at starts at data and moves on. At most n times. */
const char *gguf_array_text(const uint8_t **at, size_t *n);

/* ---- tensors ---- */

enum tensor_type {            /* GGML's numbers; what tensor_rows can read. A file may hold others: see tensor_readable */
    TENSOR_F32 = 0, TENSOR_F16 = 1, TENSOR_Q4_0 = 2, TENSOR_Q4_1 = 3, TENSOR_Q8_0 = 8,
    TENSOR_Q4_K = 12, TENSOR_Q6_K = 14, TENSOR_BF16 = 30
};
#define TENSOR_DIMS_MAX 4
struct tensor {
    const char *name;         /* terminated */
    enum tensor_type type;
    int dims_n;
    int64_t dims[TENSOR_DIMS_MAX];   /* GGML order: dims[0] is the length of a row; the unused ones are 1 */
    const uint8_t *data;
    size_t data_bytes;
};
size_t gguf_tensors_n(const struct gguf *g);
const struct tensor *gguf_tensor_at(const struct gguf *g, size_t i);           /* in the order of the file */
const struct tensor *gguf_tensor(const struct gguf *g, const char *name);      /* NULL: none */

/* "Q4_1"; also of types that cannot be read; NULL: no such number. */
const char *tensor_type_name(enum tensor_type type);
/* How values are grouped: block_bytes for block_n values of a row. false: no such number. */
bool tensor_type_block(enum tensor_type type, int *block_n, int *block_bytes);
bool tensor_readable(enum tensor_type type);
int64_t tensor_rows_n(const struct tensor *t);         /* product of dims[1..] */
/* Rows [first, first + count) as fp32, equal to the gguf package's dequantisation. Type must be readable. */
void tensor_rows(const struct tensor *t, int64_t first, int64_t count, float *out);

/* ---- what belongs to text ---- */

/* The tokenizer's tables; *memory is freed by the caller after tokenizer_open.
 * ST_REJECT: a table is missing, has a wrong type or contradicts another. */
MUST_USE status gguf_tokenizer(const struct gguf *g, struct tokenizer_spec *out, void **memory, struct error *err);
/* The chat template, or NULL. Not terminated. */
const char *gguf_template(const struct gguf *g, size_t *n);

/* Fingerprint of weights and metadata. Hashes the whole file once (page cache speed). */
struct hash128 gguf_hash(const struct gguf *g);

/* The weights are on a device: the pages read so far no longer count as this process's memory. What is read again comes
 * from the file. */
void gguf_rest(const struct gguf *g);

#endif
