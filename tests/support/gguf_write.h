/* tests/support/gguf_write.h - writes GGUF v3 files for tests: sound ones, and parts to make damaged ones from.
 * Threads: one owner. Ownership: what is handed in is copied. Failures abort: a test cannot go on without its file. */
#ifndef TESTS_SUPPORT_GGUF_WRITE_H
#define TESTS_SUPPORT_GGUF_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "worker/model/gguf.h"

struct gguf_writer {
    struct buf keys, tensors, data;
    uint64_t keys_n, tensors_n;
    uint32_t version;              /* 3 */
    uint32_t alignment;            /* 32; must be a power of two */
    const char *skip;              /* a key or tensor of this name is left out when it is put; NULL: none */
};

void gguf_writer_init(struct gguf_writer *w);
void gguf_writer_fini(struct gguf_writer *w);

/* Bits of a file, little-endian. */
void put_u32(struct buf *b, uint32_t v);
void put_u64(struct buf *b, uint64_t v);
void put_text(struct buf *b, const void *text, size_t n);

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_put_real(struct gguf_writer *w, const char *key, float v);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_put_text(struct gguf_writer *w, const char *key, const char *text);
/* bytes: NULL: the texts are terminated. */
void gguf_put_texts(struct gguf_writer *w, const char *key, const char *const *texts, const size_t *bytes, size_t n);
void gguf_put_i32s(struct gguf_writer *w, const char *key, const int32_t *values, size_t n);
/* A key with any kind and any bytes behind it. */
void gguf_put_raw(struct gguf_writer *w, const char *key, uint32_t kind, const void *bytes, size_t n);

void gguf_put_tensor(struct gguf_writer *w, const char *name, enum tensor_type type, int dims_n, const int64_t *dims,
                     const void *data, size_t data_bytes);

/* The file's bytes, added to out. */
void gguf_writer_file(const struct gguf_writer *w, struct buf *out);
void file_write(const char *path, const void *bytes, size_t n);

#endif
