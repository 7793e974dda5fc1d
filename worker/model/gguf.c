/* GGUF is a header, key-value pairs, tensor descriptions, then tensor data. Open reads the first three through a
 * cursor that never passes the end, so every other function works on checked memory. Names are kept sorted: lookup is a
 * binary search, and duplicates stand side by side. */
#define _DEFAULT_SOURCE       /* madvise */
#include "worker/model/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "GGUF files are read in place: a little-endian machine is needed"
#endif

#define KEYS_MAX (1u << 17)
#define TENSORS_MAX (1u << 17)
#define KEY_BYTES_MAX 65535u          /* the format's own limit */
#define TENSOR_NAME_BYTES_MAX 64u     /* the format's own limit */
#define KEY_BYTES_MIN (8 + 1 + 4 + 1)           /* length, one letter, kind, one byte of value */
#define TENSOR_BYTES_MIN (8 + 1 + 4 + 8 + 4 + 8)
#define ALIGNMENT_DEFAULT 32u

struct entry {
    const char *key;
    enum gguf_kind kind, item;        /* item: of an array */
    uint64_t n;                       /* bytes of a text, items of an array */
    const uint8_t *data;
    size_t data_bytes;
};

struct gguf {
    char *path;
    const uint8_t *file;
    size_t bytes;
    bool mapped;
    struct arena names;
    struct entry *keys;
    struct tensor *tensors;
    size_t keys_n, tensors_n;
    struct entry **keys_sorted;
    struct tensor **tensors_sorted;
};

struct cursor {
    const struct gguf *g;
    size_t at;
    struct error *err;
};

static const struct { const char *name; int bytes; } kinds[GGUF_KINDS_N] = {
    [GGUF_U8] = { "u8", 1 }, [GGUF_I8] = { "i8", 1 }, [GGUF_U16] = { "u16", 2 }, [GGUF_I16] = { "i16", 2 },
    [GGUF_U32] = { "u32", 4 }, [GGUF_I32] = { "i32", 4 }, [GGUF_F32] = { "f32", 4 }, [GGUF_BOOL] = { "bool", 1 },
    [GGUF_TEXT] = { "text", 0 }, [GGUF_ARRAY] = { "array", 0 },
    [GGUF_U64] = { "u64", 8 }, [GGUF_I64] = { "i64", 8 }, [GGUF_F64] = { "f64", 8 }
};

static status bad(const struct cursor *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

static status bad(const struct cursor *c, const char *fmt, ...)
{
    char what[600];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return error_set(c->err, ST_REJECT, "model file %.300s is damaged at byte %zu: %s", c->g->path, c->at, what);
}

/* ---- the cursor ---- */

static status take(struct cursor *c, uint64_t n, const char *what, const uint8_t **out)
{
    size_t left = c->g->bytes - c->at;

    if (n > left)
        return bad(c, "%.200s needs %" PRIu64 " bytes and the file ends after %zu", what, n, left);
    *out = c->g->file + c->at;
    c->at += (size_t)n;
    return ST_OK;
}

static status take_u32(struct cursor *c, const char *what, uint32_t *out)
{
    const uint8_t *p = NULL;
    status st = take(c, sizeof *out, what, &p);

    if (st == ST_OK)
        memcpy(out, p, sizeof *out);
    return st;
}

static status take_u64(struct cursor *c, const char *what, uint64_t *out)
{
    const uint8_t *p = NULL;
    status st = take(c, sizeof *out, what, &p);

    if (st == ST_OK)
        memcpy(out, p, sizeof *out);
    return st;
}

/* A key or tensor name: printable ASCII without spaces, so that it can stand in messages and has no hidden end. */
static status take_name(struct cursor *c, struct arena *a, size_t bytes_max, const char *what, const char **out)
{
    uint64_t n;
    const uint8_t *p = NULL;
    status st = ST_OK;

    TRY(take_u64(c, what, &n));
    if (n == 0 || n > bytes_max)
        return bad(c, "%s has %" PRIu64 " bytes; 1 to %zu are allowed", what, n, bytes_max);
    TRY(take(c, n, what, &p));
    for (uint64_t i = 0; i < n; i++)
        if (p[i] < 0x21 || p[i] > 0x7e)
            return bad(c, "%s holds the byte 0x%02x; printable ASCII is expected", what, p[i]);
    *out = arena_copy(a, p, (size_t)n);
out:
    return st;
}

/* ---- key-value pairs ---- */

static status take_bools(struct cursor *c, const struct entry *e, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (e->data[i] > 1)
            return bad(c, "%.200s holds the bool %u", e->key, e->data[i]);
    return ST_OK;
}

static status take_array(struct cursor *c, struct entry *e)
{
    uint32_t item;
    status st = ST_OK;

    TRY(take_u32(c, e->key, &item));
    TRY(take_u64(c, e->key, &e->n));
    if (item >= GGUF_KINDS_N)
        return bad(c, "%.200s is an array of the unknown kind %" PRIu32, e->key, item);
    if (item == GGUF_ARRAY)
        return bad(c, "%.200s is an array of arrays, which is not supported", e->key);
    e->item = (enum gguf_kind)item;
    e->data = c->g->file + c->at;
    if (item == GGUF_TEXT) {
        for (uint64_t i = 0; i < e->n; i++) {
            uint64_t n;
            const uint8_t *p = NULL;

            TRY(take_u64(c, e->key, &n));
            TRY(take(c, n, e->key, &p));
        }
    } else {
        if (e->n > SIZE_MAX / 8)
            return bad(c, "%.200s has %" PRIu64 " items", e->key, e->n);
        TRY(take(c, e->n * (uint64_t)kinds[item].bytes, e->key, &e->data));
        if (item == GGUF_BOOL)
            TRY(take_bools(c, e, e->n));
    }
    e->data_bytes = (size_t)(c->g->file + c->at - e->data);
out:
    return st;
}

static status take_entry(struct cursor *c, struct arena *a, struct entry *e)
{
    uint32_t kind;
    status st = ST_OK;

    TRY(take_name(c, a, KEY_BYTES_MAX, "a key", &e->key));
    TRY(take_u32(c, e->key, &kind));
    if (kind >= GGUF_KINDS_N)
        return bad(c, "%.200s has the unknown kind %" PRIu32, e->key, kind);
    e->kind = (enum gguf_kind)kind;
    switch (e->kind) {
    case GGUF_ARRAY:
        return take_array(c, e);
    case GGUF_TEXT:
        TRY(take_u64(c, e->key, &e->n));
        TRY(take(c, e->n, e->key, &e->data));
        e->data_bytes = (size_t)e->n;
        return ST_OK;
    default:
        TRY(take(c, (uint64_t)kinds[kind].bytes, e->key, &e->data));
        e->data_bytes = (size_t)kinds[kind].bytes;
        return e->kind == GGUF_BOOL ? take_bools(c, e, 1) : ST_OK;
    }
out:
    return st;
}

static int entry_order(const void *a, const void *b)
{
    return strcmp((*(struct entry *const *)a)->key, (*(struct entry *const *)b)->key);
}

static status take_entries(struct cursor *c, struct gguf *g, uint64_t n)
{
    status st = ST_OK;

    if (n > KEYS_MAX || n > (g->bytes - c->at) / KEY_BYTES_MIN)
        return bad(c, "the header declares %" PRIu64 " keys", n);
    g->keys = mem_take_zero((size_t)n, sizeof *g->keys);
    g->keys_sorted = mem_take_zero((size_t)n, sizeof *g->keys_sorted);
    for (; g->keys_n < n; g->keys_n++) {
        g->keys_sorted[g->keys_n] = &g->keys[g->keys_n];
        TRY(take_entry(c, &g->names, &g->keys[g->keys_n]));
    }
    qsort(g->keys_sorted, g->keys_n, sizeof *g->keys_sorted, entry_order);
    for (size_t i = 1; i < g->keys_n; i++)
        if (entry_order(&g->keys_sorted[i - 1], &g->keys_sorted[i]) == 0)
            return bad(c, "the key %.200s stands twice", g->keys_sorted[i]->key);
out:
    return st;
}

/* ---- tensors ---- */

static status take_dims(struct cursor *c, struct tensor *t, uint64_t *values_n)
{
    status st = ST_OK;

    *values_n = 1;
    for (int i = 0; i < TENSOR_DIMS_MAX; i++)
        t->dims[i] = 1;
    for (int i = 0; i < t->dims_n; i++) {
        uint64_t dim;

        TRY(take_u64(c, t->name, &dim));
        if (dim == 0 || dim > INT64_MAX / *values_n)
            return bad(c, "tensor %s has %" PRIu64 " as its dimension %d", t->name, dim, i);
        t->dims[i] = (int64_t)dim;
        *values_n *= dim;
    }
out:
    return st;
}

/* One description. *offset is where its data begins, counted from the start of the data. */
static status take_tensor(struct cursor *c, struct arena *a, uint64_t alignment, struct tensor *t, uint64_t *offset)
{
    uint32_t dims_n, type;
    uint64_t values_n;
    int block_n, block_bytes;
    status st = ST_OK;

    TRY(take_name(c, a, TENSOR_NAME_BYTES_MAX, "a tensor's name", &t->name));
    TRY(take_u32(c, t->name, &dims_n));
    if (dims_n == 0 || dims_n > TENSOR_DIMS_MAX)
        return bad(c, "tensor %s has %" PRIu32 " dimensions; 1 to %d are possible", t->name, dims_n, TENSOR_DIMS_MAX);
    t->dims_n = (int)dims_n;
    TRY(take_dims(c, t, &values_n));
    TRY(take_u32(c, t->name, &type));
    if (type > INT32_MAX || !tensor_type_block((enum tensor_type)type, &block_n, &block_bytes))
        return bad(c, "tensor %s has the unknown type %" PRIu32, t->name, type);
    t->type = (enum tensor_type)type;
    if (t->dims[0] % block_n != 0)
        return bad(c, "tensor %s has rows of %" PRId64 " values; %s stores blocks of %d", t->name, t->dims[0],
                   tensor_type_name(t->type), block_n);
    if (values_n / (uint64_t)block_n > SIZE_MAX / (uint64_t)block_bytes)
        return bad(c, "tensor %s has %" PRIu64 " values", t->name, values_n);
    t->data_bytes = (size_t)(values_n / (uint64_t)block_n) * (size_t)block_bytes;
    TRY(take_u64(c, t->name, offset));
    if (*offset % alignment != 0)
        return bad(c, "tensor %s has its data at %" PRIu64 ", which is not a multiple of %" PRIu64, t->name, *offset,
                   alignment);
out:
    return st;
}

static int tensor_name_order(const void *a, const void *b)
{
    return strcmp((*(struct tensor *const *)a)->name, (*(struct tensor *const *)b)->name);
}

static int tensor_data_order(const void *a, const void *b)
{
    const struct tensor *x = *(struct tensor *const *)a, *y = *(struct tensor *const *)b;

    return x->data < y->data ? -1 : x->data > y->data;
}

static status place_tensors(struct cursor *c, struct gguf *g, const uint64_t *offsets, uint64_t alignment)
{
    uint64_t data_at = (c->at + alignment - 1) / alignment * alignment;

    for (size_t i = 0; i < g->tensors_n; i++) {
        struct tensor *t = &g->tensors[i];

        if (data_at > g->bytes || offsets[i] > g->bytes - data_at || t->data_bytes > g->bytes - data_at - offsets[i])
            return bad(c, "tensor %s needs %zu bytes at %" PRIu64 " + %" PRIu64 " and the file has %zu: is it cut off?",
                       t->name, t->data_bytes, data_at, offsets[i], g->bytes);
        t->data = g->file + data_at + offsets[i];
    }
    qsort(g->tensors_sorted, g->tensors_n, sizeof *g->tensors_sorted, tensor_data_order);
    for (size_t i = 1; i < g->tensors_n; i++) {
        const struct tensor *before = g->tensors_sorted[i - 1], *t = g->tensors_sorted[i];

        if ((size_t)(t->data - before->data) < before->data_bytes)
            return bad(c, "the data of tensors %s and %s overlap", before->name, t->name);
    }
    qsort(g->tensors_sorted, g->tensors_n, sizeof *g->tensors_sorted, tensor_name_order);
    for (size_t i = 1; i < g->tensors_n; i++)
        if (tensor_name_order(&g->tensors_sorted[i - 1], &g->tensors_sorted[i]) == 0)
            return bad(c, "the tensor %s stands twice", g->tensors_sorted[i]->name);
    return ST_OK;
}

static status take_tensors(struct cursor *c, struct gguf *g, uint64_t n)
{
    static const char key[] = "general.alignment";
    uint64_t *offsets = NULL;
    int64_t alignment = ALIGNMENT_DEFAULT;
    status st = ST_OK;

    if (gguf_has(g, key, NULL) && !gguf_int(g, key, &alignment))
        return bad(c, "%s is not a number", key);
    if (alignment < 1 || alignment > INT32_MAX || (alignment & (alignment - 1)) != 0)
        return bad(c, "%s is %" PRId64 ", which is not a power of two", key, alignment);
    if (n > TENSORS_MAX || n > (g->bytes - c->at) / TENSOR_BYTES_MIN)
        return bad(c, "the header declares %" PRIu64 " tensors", n);
    offsets = mem_take_zero((size_t)n, sizeof *offsets);
    g->tensors = mem_take_zero((size_t)n, sizeof *g->tensors);
    g->tensors_sorted = mem_take_zero((size_t)n, sizeof *g->tensors_sorted);
    for (; g->tensors_n < n; g->tensors_n++) {
        g->tensors_sorted[g->tensors_n] = &g->tensors[g->tensors_n];
        TRY(take_tensor(c, &g->names, (uint64_t)alignment, &g->tensors[g->tensors_n], &offsets[g->tensors_n]));
    }
    TRY(place_tensors(c, g, offsets, (uint64_t)alignment));
out:
    free(offsets);
    return st;
}

/* ---- open ---- */

static status map_file(struct gguf *g, struct error *err)
{
    struct stat s;
    status st = ST_OK;
    /* O_NONBLOCK: opening a pipe by mistake must not wait for a writer. */
    int fd = open(g->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &s) != 0) {
        st = error_set(err, ST_REJECT, "cannot open the model file %.300s: %s; check the path and its permissions", g->path,
                       strerror(errno));
    } else if (!S_ISREG(s.st_mode)) {
        st = error_set(err, ST_REJECT, "the model %.300s is not a regular file", g->path);
    } else if (s.st_size > 0) {         /* an empty file cannot be mapped: check_magic refuses it */
        void *p = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

        if (p == MAP_FAILED) {
            st = error_set(err, ST_REJECT, "cannot map the model file %.300s: %s", g->path, strerror(errno));
        } else {
            g->file = p;
            g->bytes = (size_t)s.st_size;
            g->mapped = true;
        }
    }
    if (fd >= 0)
        close(fd);
    return st;
}

static status check_magic(const struct gguf *g, struct error *err)
{
    static const char lfs[] = "version https://git-lfs";
    char head[3 * 4 + 1] = "";

    if (g->bytes == 0)
        return error_set(err, ST_REJECT, "the model file %.300s is empty", g->path);
    if (g->bytes >= 4 && memcmp(g->file, "GGUF", 4) == 0)
        return ST_OK;
    if (g->bytes >= sizeof lfs - 1 && memcmp(g->file, lfs, sizeof lfs - 1) == 0)
        return error_set(err, ST_REJECT, "%.300s is a Git LFS pointer and not the model itself: run git lfs pull",
                         g->path);
    for (size_t i = 0; i < 4 && i < g->bytes; i++)
        snprintf(head + 3 * i, 4, " %02x", g->file[i]);
    return error_set(err, ST_REJECT, "%.300s is not a GGUF file: it begins with%s", g->path, head);
}

static status take_file(struct gguf *g, struct error *err)
{
    struct cursor c = { g, 4, err };
    uint32_t version;
    uint64_t tensors_n, keys_n;
    status st = ST_OK;

    TRY(check_magic(g, err));
    TRY(take_u32(&c, "the header", &version));
    if (version != 2 && version != 3)
        return error_set(err, ST_REJECT, (version & 0xffff) == 0 && version != 0
                         ? "model file %.300s is a big-endian GGUF (version word %08" PRIx32 "): convert it to little-endian"
                         : "model file %.300s is GGUF version %" PRIu32 ": versions 2 and 3 are supported",
                         g->path, version);
    TRY(take_u64(&c, "the header", &tensors_n));
    TRY(take_u64(&c, "the header", &keys_n));
    TRY(take_entries(&c, g, keys_n));
    TRY(take_tensors(&c, g, tensors_n));
out:
    return st;
}

static struct gguf *gguf_new(const char *path)
{
    struct gguf *g = mem_take_zero(1, sizeof *g);

    g->path = mem_copy_text(path);
    arena_init(&g->names, 16384);
    return g;
}

status gguf_open(const char *path, struct gguf **out, struct error *err)
{
    struct gguf *g = gguf_new(path);
    status st = ST_OK;

    *out = NULL;
    TRY(map_file(g, err));
    TRY(take_file(g, err));
    *out = g;
    g = NULL;
out:
    gguf_close(g);
    return st;
}

status gguf_open_memory(const char *path, const void *bytes, size_t n, struct gguf **out, struct error *err)
{
    struct gguf *g = gguf_new(path);
    status st = ST_OK;

    *out = NULL;
    g->file = bytes;
    g->bytes = n;
    TRY(take_file(g, err));
    *out = g;
    g = NULL;
out:
    gguf_close(g);
    return st;
}

void gguf_close(struct gguf *g)
{
    if (g == NULL)
        return;
    if (g->mapped)
        munmap((void *)(uintptr_t)g->file, g->bytes);
    free(g->tensors_sorted);
    free(g->tensors);
    free(g->keys_sorted);
    free(g->keys);
    arena_fini(&g->names);
    free(g->path);
    free(g);
}

const char *gguf_path(const struct gguf *g)
{
    return g->path;
}

size_t gguf_bytes(const struct gguf *g)
{
    return g->bytes;
}

struct hash128 gguf_hash(const struct gguf *g)
{
    /* Asks for all of it at once: from a cold disk the reads run ahead of the hash. Only a hint. */
    if (g->mapped)
        (void)madvise((void *)(uintptr_t)g->file, g->bytes, MADV_WILLNEED);
    return hash128(g->file, g->bytes);
}

void gguf_rest(const struct gguf *g)
{
    if (g->mapped)
        (void)madvise((void *)(uintptr_t)g->file, g->bytes, MADV_DONTNEED);
}

/* ---- look-up ---- */

const char *gguf_kind_name(enum gguf_kind kind)
{
    return (unsigned)kind < GGUF_KINDS_N ? kinds[kind].name : "unknown";
}

size_t gguf_keys_n(const struct gguf *g)
{
    return g->keys_n;
}

const char *gguf_key(const struct gguf *g, size_t i)
{
    return g->keys[i].key;
}

static const struct entry *find(const struct gguf *g, const char *key)
{
    struct entry probe = { .key = key }, *p = &probe;
    struct entry *const *at = bsearch(&p, g->keys_sorted, g->keys_n, sizeof *g->keys_sorted, entry_order);

    return at != NULL ? *at : NULL;
}

bool gguf_has(const struct gguf *g, const char *key, enum gguf_kind *kind)
{
    const struct entry *e = find(g, key);

    if (e != NULL && kind != NULL)
        *kind = e->kind;
    return e != NULL;
}

static bool read_int(enum gguf_kind kind, const uint8_t *at, int64_t *out)
{
    int8_t i8; uint16_t u16; int16_t i16; uint32_t u32; int32_t i32; uint64_t u64;

    switch (kind) {
    case GGUF_U8: *out = *at; return true;
    case GGUF_I8: memcpy(&i8, at, 1); *out = i8; return true;
    case GGUF_U16: memcpy(&u16, at, 2); *out = u16; return true;
    case GGUF_I16: memcpy(&i16, at, 2); *out = i16; return true;
    case GGUF_U32: memcpy(&u32, at, 4); *out = u32; return true;
    case GGUF_I32: memcpy(&i32, at, 4); *out = i32; return true;
    case GGUF_I64: memcpy(out, at, 8); return true;
    case GGUF_U64: memcpy(&u64, at, 8); *out = (int64_t)u64; return u64 <= INT64_MAX;
    default: return false;
    }
}

bool gguf_int(const struct gguf *g, const char *key, int64_t *out)
{
    const struct entry *e = find(g, key);
    int64_t value;

    if (e == NULL || !read_int(e->kind, e->data, &value))
        return false;
    *out = value;
    return true;
}

bool gguf_real(const struct gguf *g, const char *key, double *out)
{
    const struct entry *e = find(g, key);
    int64_t value;
    float f;

    if (e == NULL)
        return false;
    if (e->kind == GGUF_F32) {
        memcpy(&f, e->data, sizeof f);
        *out = f;
    } else if (e->kind == GGUF_F64) {
        memcpy(out, e->data, sizeof *out);
    } else if (read_int(e->kind, e->data, &value)) {
        *out = (double)value;
    } else {
        return false;
    }
    return true;
}

bool gguf_bool(const struct gguf *g, const char *key, bool *out)
{
    const struct entry *e = find(g, key);

    if (e == NULL || e->kind != GGUF_BOOL)
        return false;
    *out = *e->data != 0;
    return true;
}

bool gguf_text(const struct gguf *g, const char *key, const char **text, size_t *n)
{
    const struct entry *e = find(g, key);

    if (e == NULL || e->kind != GGUF_TEXT)
        return false;
    *text = (const char *)e->data;
    *n = e->data_bytes;
    return true;
}

bool gguf_array(const struct gguf *g, const char *key, struct gguf_array *out)
{
    const struct entry *e = find(g, key);

    if (e == NULL || e->kind != GGUF_ARRAY)
        return false;
    *out = (struct gguf_array){ e->item, e->n, e->data, e->data_bytes };
    return true;
}

const char *gguf_array_text(const uint8_t **at, size_t *n)
{
    const char *text = (const char *)*at + sizeof(uint64_t);
    uint64_t bytes;

    memcpy(&bytes, *at, sizeof bytes);
    *n = (size_t)bytes;
    *at += sizeof bytes + bytes;
    return text;
}

size_t gguf_tensors_n(const struct gguf *g)
{
    return g->tensors_n;
}

const struct tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    return &g->tensors[i];
}

const struct tensor *gguf_tensor(const struct gguf *g, const char *name)
{
    struct tensor probe = { .name = name }, *p = &probe;
    struct tensor *const *at = bsearch(&p, g->tensors_sorted, g->tensors_n, sizeof *g->tensors_sorted,
                                       tensor_name_order);

    return at != NULL ? *at : NULL;
}

int64_t tensor_rows_n(const struct tensor *t)
{
    return t->dims[1] * t->dims[2] * t->dims[3];
}
