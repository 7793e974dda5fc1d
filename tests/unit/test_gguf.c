/* GGUF: a sound file reads back whole; every way to damage one is refused with its place and cause, and no cut or
 * flipped byte of a sound file makes the reader read outside it (run under asan). */
#define _POSIX_C_SOURCE 200809L        /* mkstemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/tiny_model.h"

#define TINY_HASH "8fb903e36b80d8e70449fd7be16f5065"

static char path[] = "/tmp/nightshift-gguf-XXXXXX";

static char *exact;

static int make_path(void **state)
{
    int fd = mkstemp(path);

    (void)state;
    return fd < 0 ? -1 : close(fd);
}

static int drop_path(void **state)
{
    (void)state;
    free(exact);
    return unlink(path);
}

/* Everything a caller may ask of an open file; under asan a bad length shows here. */
static void read_all(const struct gguf *g)
{
    struct tokenizer_spec spec;
    struct error err;
    void *memory;
    size_t n, sum = 0;
    const char *text = gguf_template(g, &n);

    for (size_t i = 0; text != NULL && i < n; i++)
        sum += (unsigned char)text[i];
    for (size_t i = 0; i < gguf_keys_n(g); i++)
        sum += gguf_has(g, gguf_key(g, i), NULL);
    if (gguf_tokenizer(g, &spec, &memory, &err) == ST_OK) {
        for (int32_t i = 0; i < spec.vocab_n; i++)
            sum += hash64(spec.tokens[i], spec.tokens_bytes[i], 0);
        for (int32_t i = 0; i < spec.merges_n; i++)
            sum += hash64(spec.merges[i], spec.merges_bytes[i], 0);
        free(memory);
    }
    for (size_t i = 0; i < gguf_tensors_n(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);

        sum += hash64(t->data, t->data_bytes, 0);
        if (tensor_readable(t->type) && t->dims[0] < 1 << 20) {
            float *row = mem_take((size_t)t->dims[0] * sizeof *row);

            tensor_rows(t, tensor_rows_n(t) - 1, 1, row);
            free(row);
        }
    }
    assert_true(sum != 0 || gguf_keys_n(g) + gguf_tensors_n(g) == 0);
}

/* Opens a copy of exactly n bytes, so that asan sees one byte too far. */
static status open_bytes(const void *bytes, size_t n, struct gguf **g, struct error *err)
{
    free(exact);
    exact = mem_take(n);
    if (n > 0)
        memcpy(exact, bytes, n);
    return gguf_open_memory(path, exact, n, g, err);
}

/* The bytes must be refused with a message that names the file and holds `cause`. */
static void refused(const struct buf *b, const char *cause)
{
    struct gguf *g;
    struct error err = { "" };

    if (open_bytes(b->data, b->n, &g, &err) != ST_REJECT)
        fail_msg("accepted: expected \"%s\"", cause);
    assert_null(g);
    if (strstr(err.text, cause) == NULL || strstr(err.text, path) == NULL)
        fail_msg("expected \"%s\", got \"%s\"", cause, err.text);
}

static void refused_writer(struct gguf_writer *w, const char *cause)
{
    struct buf b = BUF_EMPTY;

    gguf_writer_file(w, &b);
    refused(&b, cause);
    buf_fini(&b);
    gguf_writer_fini(w);
}

static void reads_back(void **state)
{
    static const char *const texts[] = { "a", "", "\xc4\xa0the" };
    static const float values[] = { 1.0f, -2.5f, 0.0f, 3.0f, 4.0f, 5.0f };
    static const int64_t dims[] = { 3, 2 };
    const int64_t big = INT64_MIN;
    const uint64_t huge = UINT64_MAX;
    const double pi = 3.14159;
    const int8_t small = -7;
    struct gguf_writer w;
    struct gguf_array a;
    struct gguf *g;
    struct error err;
    struct buf b = BUF_EMPTY;
    const uint8_t *at;
    const char *text;
    const struct tensor *t;
    float row[3];
    int64_t i;
    double d;
    bool yes;
    size_t n;
    enum gguf_kind kind;

    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        gguf_writer_init(&w);
        w.version = version;
        gguf_put_text(&w, "general.name", "x y");
        gguf_put_raw(&w, "k.i64", GGUF_I64, &big, 8);
        gguf_put_raw(&w, "k.u64", GGUF_U64, &huge, 8);
        gguf_put_raw(&w, "k.f64", GGUF_F64, &pi, 8);
        gguf_put_raw(&w, "k.i8", GGUF_I8, &small, 1);
        gguf_put_real(&w, "k.f32", 0.5f);
        gguf_put_bool(&w, "k.yes", true);
        gguf_put_texts(&w, "k.texts", texts, NULL, 3);
        gguf_put_tensor(&w, "a", TENSOR_F32, 2, dims, values, sizeof values);
        gguf_put_tensor(&w, "b", TENSOR_F32, 1, dims, values, 3 * sizeof *values);
        b.n = 0;
        gguf_writer_file(&w, &b);
        assert_int_equal(open_bytes(b.data, b.n, &g, &err), ST_OK);
        assert_true(gguf_text(g, "general.name", &text, &n) && n == 3 && memcmp(text, "x y", 3) == 0);
        assert_true(gguf_int(g, "k.i64", &i) && i == INT64_MIN);
        assert_false(gguf_int(g, "k.u64", &i));
        assert_true(gguf_int(g, "k.i8", &i) && i == -7);
        assert_false(gguf_int(g, "k.yes", &i));
        assert_false(gguf_int(g, "k.f32", &i));
        assert_true(gguf_real(g, "k.f64", &d) && d == pi);
        assert_true(gguf_real(g, "k.f32", &d) && d == 0.5);
        assert_true(gguf_real(g, "k.i8", &d) && d == -7.0);
        assert_true(gguf_bool(g, "k.yes", &yes) && yes);
        assert_false(gguf_bool(g, "k.i8", &yes));
        assert_false(gguf_text(g, "k.none", &text, &n));
        assert_false(gguf_has(g, "k", NULL));
        assert_true(gguf_has(g, "k.texts", &kind) && kind == GGUF_ARRAY);
        assert_true(gguf_array(g, "k.texts", &a) && a.kind == GGUF_TEXT && a.n == 3);
        at = a.data;
        for (int k = 0; k < 3; k++) {
            text = gguf_array_text(&at, &n);
            assert_true(n == strlen(texts[k]) && memcmp(text, texts[k], n) == 0);
        }
        assert_ptr_equal(at, a.data + a.data_bytes);
        assert_int_equal(gguf_tensors_n(g), 2);
        assert_null(gguf_tensor(g, "c"));
        t = gguf_tensor(g, "a");
        assert_non_null(t);
        assert_int_equal(tensor_rows_n(t), 2);
        tensor_rows(t, 1, 1, row);
        assert_memory_equal(row, values + 3, sizeof row);
        read_all(g);
        gguf_close(g);
        gguf_writer_fini(&w);
    }
    buf_fini(&b);
}

static void header_is_checked(void **state)
{
    struct { uint32_t version; uint64_t tensors_n, keys_n; const char *cause; } bad[] = {
        { 1, 0, 0, "version 1" }, { 4, 0, 0, "version 4" }, { 0, 0, 0, "version 0" },
        { 0x03000000, 0, 0, "big-endian" }, { 3, 0, UINT64_MAX, "18446744073709551615 keys" },
        { 3, 0, 1, "1 keys" }, { 3, 1, 0, "1 tensors" }, { 3, UINT64_MAX / 8, 0, "tensors" }
    };
    struct buf b = BUF_EMPTY;
    struct gguf *g;
    struct error err;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        b.n = 0;
        buf_add_text(&b, "GGUF");
        put_u32(&b, bad[i].version);
        put_u64(&b, bad[i].tensors_n);
        put_u64(&b, bad[i].keys_n);
        refused(&b, bad[i].cause);
    }
    for (size_t n = 0; n < 24; n++) {
        b.n = n;
        refused(&b, n == 0 ? "is empty" : n < 4 ? "is not a GGUF file" : "damaged at byte");
    }
    b.n = 0;
    buf_add_text(&b, "{\"hidden_size\": 64}");
    refused(&b, "begins with 7b 22");
    b.n = 0;
    buf_add_text(&b, "version https://git-lfs.github.com/spec/v1\n");
    refused(&b, "Git LFS pointer");
    b.n = 0;                           /* a text that is one byte longer than the file */
    buf_add_text(&b, "GGUF");
    put_u32(&b, 3);
    put_u64(&b, 0);
    put_u64(&b, 1);
    put_text(&b, "k", 1);
    put_u32(&b, GGUF_TEXT);
    put_text(&b, "abcd", 4);
    assert_int_equal(open_bytes(b.data, b.n, &g, &err), ST_OK);
    gguf_close(g);
    b.n--;
    refused(&b, "k needs 4 bytes and the file ends after 3");
    buf_fini(&b);

    assert_int_equal(gguf_open("/nonexistent/model.gguf", &g, &err), ST_REJECT);
    assert_non_null(strstr(err.text, "/nonexistent/model.gguf"));
    file_write(path, "", 0);
    assert_int_equal(gguf_open(path, &g, &err), ST_REJECT);
    assert_non_null(strstr(err.text, "is empty"));
    assert_int_equal(gguf_open("/tmp", &g, &err), ST_REJECT);
    assert_non_null(strstr(err.text, "not a regular file"));
}

/* One key "k" of the given kind, with the given 64-bit words behind it. */
static void key_refused(uint32_t kind, const uint64_t *words, size_t words_n, const char *cause)
{
    struct gguf_writer w;

    gguf_writer_init(&w);
    gguf_put_raw(&w, "k", kind, words, words_n * 8);
    gguf_put_u32(&w, "z", 1);          /* so that the file goes on behind it */
    refused_writer(&w, cause);
}

#define ARRAY_OF(kind, n) (kind) | (uint64_t)(uint32_t)(n) << 32, (uint64_t)(n) >> 32

static void keys_are_checked(void **state)
{
    struct gguf_writer w;
    const uint8_t two = 2;

    (void)state;
    key_refused(13, (uint64_t[]){ 0 }, 1, "unknown kind 13");
    key_refused(GGUF_TEXT, (uint64_t[]){ UINT64_MAX }, 1, "k needs 18446744073709551615 bytes");
    key_refused(GGUF_TEXT, (uint64_t[]){ 1000 }, 1, "the file ends after");
    key_refused(GGUF_ARRAY, (uint64_t[]){ ARRAY_OF(GGUF_ARRAY, 1) }, 2, "array of arrays");
    key_refused(GGUF_ARRAY, (uint64_t[]){ ARRAY_OF(99, 1) }, 2, "unknown kind 99");
    key_refused(GGUF_ARRAY, (uint64_t[]){ ARRAY_OF(GGUF_U64, UINT64_MAX) }, 2, "items");
    key_refused(GGUF_ARRAY, (uint64_t[]){ ARRAY_OF(GGUF_U64, UINT64_MAX / 8 + 1) }, 2, "items");
    key_refused(GGUF_ARRAY, (uint64_t[]){ ARRAY_OF(GGUF_U8, 1000) }, 2, "needs 1000 bytes");
    key_refused(GGUF_ARRAY, (uint64_t[]){ ARRAY_OF(GGUF_TEXT, UINT64_MAX) }, 2, "k needs");
    key_refused(GGUF_ARRAY, (uint64_t[]){ ARRAY_OF(GGUF_BOOL, 8), UINT64_MAX }, 3, "bool");

    gguf_writer_init(&w);
    gguf_put_raw(&w, "k", GGUF_BOOL, &two, 1);
    refused_writer(&w, "the bool 2");
    gguf_writer_init(&w);
    gguf_put_u32(&w, "k", 1);
    gguf_put_u32(&w, "j", 1);
    gguf_put_u32(&w, "k", 2);
    refused_writer(&w, "the key k stands twice");
    gguf_writer_init(&w);
    gguf_put_u32(&w, "", 1);
    refused_writer(&w, "a key has 0 bytes");
    gguf_writer_init(&w);
    gguf_put_u32(&w, "a\nb", 1);
    refused_writer(&w, "0x0a");
}

static void alignment_is_checked(void **state)
{
    static const uint32_t bad[] = { 0, 3, 31, 33, 0x80000001u };
    static const int64_t dims[] = { 8 };
    static const float values[8] = { 1 };
    struct gguf_writer w;
    struct buf b = BUF_EMPTY;
    struct gguf *g;
    struct error err;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        gguf_writer_init(&w);
        gguf_put_u32(&w, "general.alignment", bad[i]);
        gguf_put_tensor(&w, "a", TENSOR_F32, 1, dims, values, sizeof values);
        refused_writer(&w, "not a power of two");
    }
    gguf_writer_init(&w);
    gguf_put_text(&w, "general.alignment", "32");
    refused_writer(&w, "is not a number");
    for (uint32_t alignment = 1; alignment <= 4096; alignment *= 2) {
        gguf_writer_init(&w);
        w.alignment = alignment;
        gguf_put_u32(&w, "general.alignment", alignment);
        gguf_put_tensor(&w, "a", TENSOR_F32, 1, dims, values, 4 * 7 + 4);
        gguf_put_tensor(&w, "b", TENSOR_F32, 1, dims, values, sizeof values);
        b.n = 0;
        gguf_writer_file(&w, &b);
        assert_int_equal(open_bytes(b.data, b.n, &g, &err), ST_OK);
        assert_memory_equal(gguf_tensor(g, "b")->data, values, sizeof values);
        gguf_close(g);
        gguf_writer_fini(&w);
    }
    buf_fini(&b);
}

static void tensor_refused(enum tensor_type type, int dims_n, const int64_t *dims, size_t data_bytes, const char *cause)
{
    static const uint8_t data[4096];
    struct gguf_writer w;

    gguf_writer_init(&w);
    gguf_put_tensor(&w, "a", type, dims_n, dims, data, data_bytes);
    refused_writer(&w, cause);
}

static void tensors_are_checked(void **state)
{
    static const int64_t dims[] = { 32, 2 };
    const int64_t half = INT64_C(1) << 32;
    struct gguf_writer w;
    uint64_t at = 0;

    (void)state;
    tensor_refused(TENSOR_F32, 2, dims, 255, "needs 256 bytes");
    tensor_refused(TENSOR_F32, 0, dims, 256, "0 dimensions");
    tensor_refused(TENSOR_F32, 5, (int64_t[]){ 1, 1, 1, 1, 1 }, 256, "5 dimensions");
    tensor_refused(TENSOR_F32, 2, (int64_t[]){ 32, 0 }, 256, "0 as its dimension 1");
    tensor_refused(TENSOR_F32, 1, (int64_t[]){ 0 }, 256, "0 as its dimension 0");
    tensor_refused(TENSOR_F32, 1, (int64_t[]){ -1 }, 256, "as its dimension 0");
    tensor_refused(TENSOR_F32, 2, (int64_t[]){ half, half }, 256, "as its dimension 1");
    tensor_refused(TENSOR_F32, 3, (int64_t[]){ half, half / 4, 4 }, 256, "as its dimension 2");
    tensor_refused(TENSOR_F32, 2, (int64_t[]){ half, half / 4 }, 256, "4611686018427387904 values");
    tensor_refused(TENSOR_Q8_0, 1, (int64_t[]){ 33 }, 256, "blocks of 32");
    tensor_refused(TENSOR_Q4_K, 1, (int64_t[]){ 128 }, 256, "blocks of 256");
    tensor_refused((enum tensor_type)4, 1, dims, 256, "unknown type 4");
    tensor_refused((enum tensor_type)1000, 1, dims, 256, "unknown type 1000");
    tensor_refused((enum tensor_type)-1, 1, dims, 256, "unknown type 4294967295");

    gguf_writer_init(&w);
    gguf_put_tensor(&w, "a", TENSOR_F32, 2, dims, dims, 0);
    gguf_put_tensor(&w, "b", TENSOR_F32, 2, dims, path, 0);
    for (int i = 0; i < 64; i++)
        put_u64(&w.data, at);
    refused_writer(&w, "overlap");
    gguf_writer_init(&w);
    gguf_put_tensor(&w, "a", TENSOR_F32, 1, dims, (float[32]){ 0 }, 128);
    gguf_put_tensor(&w, "a", TENSOR_F32, 1, dims, (float[32]){ 0 }, 128);
    refused_writer(&w, "the tensor a stands twice");
    gguf_writer_init(&w);
    gguf_put_tensor(&w, "a", TENSOR_F32, 1, dims, (float[32]){ 0 }, 128);
    w.tensors.data[w.tensors.n - 8] = 4;       /* its offset */
    refused_writer(&w, "not a multiple of 32");
    gguf_writer_init(&w);
    gguf_put_tensor(&w, "a", TENSOR_F32, 1, dims, (float[32]){ 0 }, 128);
    memset(w.tensors.data + w.tensors.n - 8, 0xe0, 8);
    refused_writer(&w, "is it cut off");
}

static void tokenizer_refused(void (*change)(struct gguf_writer *w), const char *cause)
{
    struct gguf_writer w;
    struct buf b = BUF_EMPTY;
    struct gguf *g;
    struct error err = { "" };
    struct tokenizer_spec spec;
    void *memory;

    gguf_writer_init(&w);
    change(&w);
    gguf_writer_file(&w, &b);
    assert_int_equal(open_bytes(b.data, b.n, &g, &err), ST_OK);
    assert_int_equal(gguf_tokenizer(g, &spec, &memory, &err), ST_REJECT);
    assert_null(memory);
    if (strstr(err.text, cause) == NULL)
        fail_msg("expected \"%s\", got \"%s\"", cause, err.text);
    gguf_close(g);
    buf_fini(&b);
    gguf_writer_fini(&w);
}

static const char *const two_tokens[] = { "a", "b" };

static void start(struct gguf_writer *w)
{
    gguf_put_text(w, "tokenizer.ggml.model", "gpt2");
    gguf_put_texts(w, "tokenizer.ggml.tokens", two_tokens, NULL, 2);
}

static void no_tokens(struct gguf_writer *w) { gguf_put_text(w, "tokenizer.ggml.model", "gpt2"); }
static void no_model(struct gguf_writer *w) { gguf_put_texts(w, "tokenizer.ggml.tokens", two_tokens, NULL, 2); }
static void number_model(struct gguf_writer *w) { gguf_put_u32(w, "tokenizer.ggml.model", 1); }
static void text_tokens(struct gguf_writer *w)
{
    gguf_put_text(w, "tokenizer.ggml.model", "gpt2");
    gguf_put_text(w, "tokenizer.ggml.tokens", "a");
}
static void number_tokens(struct gguf_writer *w)
{
    gguf_put_text(w, "tokenizer.ggml.model", "gpt2");
    gguf_put_i32s(w, "tokenizer.ggml.tokens", (int32_t[]){ 1, 2 }, 2);
}
static void short_kinds(struct gguf_writer *w)
{
    start(w);
    gguf_put_i32s(w, "tokenizer.ggml.token_type", (int32_t[]){ 1 }, 1);
}
static void odd_kind(struct gguf_writer *w)
{
    start(w);
    gguf_put_i32s(w, "tokenizer.ggml.token_type", (int32_t[]){ 1, 7 }, 2);
}
static void text_kinds(struct gguf_writer *w)
{
    start(w);
    gguf_put_texts(w, "tokenizer.ggml.token_type", two_tokens, NULL, 2);
}
static void eos_outside(struct gguf_writer *w)
{
    start(w);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 2);
}
static void eot_outside(struct gguf_writer *w)
{
    start(w);
    gguf_put_u32(w, "tokenizer.ggml.eot_token_id", 2);
}
static void bos_nowhere(struct gguf_writer *w)
{
    start(w);
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", true);
}

static void tokenizer_is_checked(void **state)
{
    (void)state;
    tokenizer_refused(no_tokens, "tokenizer.ggml.tokens is missing");
    tokenizer_refused(no_model, "tokenizer.ggml.model is missing");
    tokenizer_refused(number_model, "is not a short text");
    tokenizer_refused(text_tokens, "not an array of the right kind");
    tokenizer_refused(number_tokens, "not an array of the right kind");
    tokenizer_refused(short_kinds, "differ in length");
    tokenizer_refused(odd_kind, "token 1 is 7");
    tokenizer_refused(text_kinds, "not an array of the right kind");
    tokenizer_refused(eos_outside, "the vocabulary has 2");
    tokenizer_refused(eot_outside, "the vocabulary has 2");
    tokenizer_refused(bos_nowhere, "names no such token");
}

static void ends_are_read(void **state)
{
    struct gguf_writer w;
    struct buf b = BUF_EMPTY;
    struct gguf *g;
    struct error err = { "" };
    struct tokenizer_spec spec;
    void *memory;

    (void)state;
    gguf_writer_init(&w);
    start(&w);
    gguf_put_u32(&w, "tokenizer.ggml.eos_token_id", 0);
    gguf_put_u32(&w, "tokenizer.ggml.eom_token_id", 1);
    gguf_writer_file(&w, &b);
    assert_int_equal(open_bytes(b.data, b.n, &g, &err), ST_OK);
    assert_int_equal(gguf_tokenizer(g, &spec, &memory, &err), ST_OK);
    assert_true(spec.eos == 0 && spec.ends_n == 1 && spec.ends[0] == 1);
    free(memory);
    gguf_close(g);
    buf_fini(&b);
    gguf_writer_fini(&w);
}

/* The tiny model: the same options give the same bytes, everywhere and for ever (engine tests keep golden outputs). */
static void tiny_model_is_fixed(void **state)
{
    struct tiny_options o;
    struct gguf *g;
    struct error err;
    struct tokenizer_spec spec;
    void *memory;
    char hex[33];

    (void)state;
    tiny_model_defaults(&o);
    tiny_model_write(path, &o);
    assert_int_equal(gguf_open(path, &g, &err), ST_OK);
    hash128_hex(gguf_hash(g), hex);
    assert_string_equal(hex, TINY_HASH);
    assert_int_equal(gguf_tokenizer(g, &spec, &memory, &err), ST_OK);
    assert_int_equal(spec.vocab_n, 320);
    assert_int_equal(spec.merges_n, 61);
    assert_string_equal(spec.pre, "smollm");
    assert_true(spec.bos == TINY_IM_START && spec.eos == TINY_IM_END && !spec.add_bos);
    gguf_rest(g);                      /* what is looked at now is read from the file again */
    assert_memory_equal(spec.tokens[TINY_BYTE('A')], "A", 1);
    assert_memory_equal(spec.tokens[TINY_BYTE(' ')], "\xc4\xa0", 2);
    assert_int_equal(spec.kinds[TINY_IM_END], TOKEN_CONTROL);
    read_all(g);
    free(memory);
    gguf_close(g);
}

/* Cut at every length, and with every byte of the metadata changed: accepted or refused, never out of bounds. */
static void damage_is_survived(void **state)
{
    struct tiny_options o;
    struct gguf_writer w;
    struct buf b = BUF_EMPTY;
    struct gguf *g;
    struct error err;
    size_t meta, accepted = 0;
    char *bytes;

    (void)state;
    tiny_model_defaults(&o);
    o.layers_n = 1;
    o.dim = o.ff = 16;
    gguf_writer_init(&w);
    tiny_model_put(&w, &o);
    gguf_writer_file(&w, &b);
    meta = b.n - w.data.n;
    for (size_t n = 0; n < meta; n += n < 600 ? 1 : 37) {
        assert_int_equal(open_bytes(b.data, n, &g, &err), ST_REJECT);
        assert_non_null(strstr(err.text, path));
    }
    assert_int_equal(open_bytes(b.data, b.n - 1, &g, &err), ST_REJECT);
    bytes = mem_take(b.n);
    for (size_t i = 4; i < meta; i += i < 1200 || i > meta - 700 ? 1 : 23) {
        memcpy(bytes, b.data, b.n);
        bytes[i] = (char)(bytes[i] ^ (i % 3 == 0 ? 0xff : i % 3 == 1 ? 0x80 : 0x01));
        if (open_bytes(bytes, b.n, &g, &err) == ST_OK) {
            read_all(g);
            gguf_close(g);
            accepted++;
        }
    }
    assert_true(accepted > 100);
    free(bytes);
    buf_fini(&b);
    gguf_writer_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back),
        cmocka_unit_test(header_is_checked),
        cmocka_unit_test(keys_are_checked),
        cmocka_unit_test(alignment_is_checked),
        cmocka_unit_test(tensors_are_checked),
        cmocka_unit_test(tokenizer_is_checked),
        cmocka_unit_test(ends_are_read),
        cmocka_unit_test(tiny_model_is_fixed),
        cmocka_unit_test(damage_is_survived)
    };

    return cmocka_run_group_tests(tests, make_path, drop_path);
}
