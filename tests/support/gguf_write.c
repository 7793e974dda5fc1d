#include "tests/support/gguf_write.h"

#include <stdio.h>
#include <string.h>

void gguf_writer_init(struct gguf_writer *w)
{
    memset(w, 0, sizeof *w);
    w->version = 3;
    w->alignment = 32;
}

void gguf_writer_fini(struct gguf_writer *w)
{
    buf_fini(&w->keys);
    buf_fini(&w->tensors);
    buf_fini(&w->data);
}

void put_u32(struct buf *b, uint32_t v)
{
    buf_add(b, &v, sizeof v);
}

void put_u64(struct buf *b, uint64_t v)
{
    buf_add(b, &v, sizeof v);
}

void put_text(struct buf *b, const void *text, size_t n)
{
    put_u64(b, n);
    buf_add(b, text, n);
}

static bool skipped(const struct gguf_writer *w, const char *name)
{
    return w->skip != NULL && strcmp(w->skip, name) == 0;
}

void gguf_put_raw(struct gguf_writer *w, const char *key, uint32_t kind, const void *bytes, size_t n)
{
    if (skipped(w, key))
        return;
    put_text(&w->keys, key, strlen(key));
    put_u32(&w->keys, kind);
    buf_add(&w->keys, bytes, n);
    w->keys_n++;
}

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v)
{
    gguf_put_raw(w, key, GGUF_U32, &v, sizeof v);
}

void gguf_put_real(struct gguf_writer *w, const char *key, float v)
{
    gguf_put_raw(w, key, GGUF_F32, &v, sizeof v);
}

void gguf_put_bool(struct gguf_writer *w, const char *key, bool v)
{
    uint8_t byte = v;

    gguf_put_raw(w, key, GGUF_BOOL, &byte, 1);
}

void gguf_put_text(struct gguf_writer *w, const char *key, const char *text)
{
    if (skipped(w, key))
        return;
    gguf_put_raw(w, key, GGUF_TEXT, NULL, 0);
    put_text(&w->keys, text, strlen(text));
}

void gguf_put_texts(struct gguf_writer *w, const char *key, const char *const *texts, const size_t *bytes, size_t n)
{
    if (skipped(w, key))
        return;
    gguf_put_raw(w, key, GGUF_ARRAY, NULL, 0);
    put_u32(&w->keys, GGUF_TEXT);
    put_u64(&w->keys, n);
    for (size_t i = 0; i < n; i++)
        put_text(&w->keys, texts[i], bytes != NULL ? bytes[i] : strlen(texts[i]));
}

void gguf_put_i32s(struct gguf_writer *w, const char *key, const int32_t *values, size_t n)
{
    if (skipped(w, key))
        return;
    gguf_put_raw(w, key, GGUF_ARRAY, NULL, 0);
    put_u32(&w->keys, GGUF_I32);
    put_u64(&w->keys, n);
    buf_add(&w->keys, values, n * sizeof *values);
}

static void pad(struct buf *b, uint32_t alignment)
{
    while (b->n % alignment != 0)
        buf_add_byte(b, 0);
}

void gguf_put_tensor(struct gguf_writer *w, const char *name, enum tensor_type type, int dims_n, const int64_t *dims,
                     const void *data, size_t data_bytes)
{
    if (skipped(w, name))
        return;
    pad(&w->data, w->alignment);
    put_text(&w->tensors, name, strlen(name));
    put_u32(&w->tensors, (uint32_t)dims_n);
    for (int i = 0; i < dims_n; i++)
        put_u64(&w->tensors, (uint64_t)dims[i]);
    put_u32(&w->tensors, (uint32_t)type);
    put_u64(&w->tensors, w->data.n);
    buf_add(&w->data, data, data_bytes);
    w->tensors_n++;
}

void gguf_writer_file(const struct gguf_writer *w, struct buf *out)
{
    size_t start = out->n;

    buf_add(out, "GGUF", 4);
    put_u32(out, w->version);
    put_u64(out, w->tensors_n);
    put_u64(out, w->keys_n);
    buf_add(out, w->keys.data, w->keys.n);
    buf_add(out, w->tensors.data, w->tensors.n);
    while ((out->n - start) % w->alignment != 0)
        buf_add_byte(out, 0);
    buf_add(out, w->data.data, w->data.n);
}

void file_write(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    ASSERT(f != NULL);
    ASSERT(fwrite(bytes, 1, n, f) == n);
    ASSERT(fclose(f) == 0);
}
