/* Reads a decoder out of a GGUF file: shape from the metadata, every tensor by name, type and dimensions. Nothing that
 * the forward pass does not know is passed over: an unknown key of the family or an unknown tensor refuses the file. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "worker/model/family.h"

/* Far above any model, low enough that no product of two of them leaves 32 bits by accident. */
#define LAYERS_MAX 1024
#define DIM_MAX 65536
#define HEADS_MAX 1024
#define HEAD_DIM_MAX 512
#define FF_MAX (1 << 20)
#define VOCAB_MAX (1 << 22)
#define CONTEXT_MAX (1 << 20)      /* the device's sines are exact that far */
#define ROPE_SHRINK_MIN 0.1        /* below 1 frequencies grow; no angle leaves what a sine can be taken of */
#define ROPE_SHRINK_MAX 1e6

struct reading {
    const struct gguf *g;
    struct decoder *d;
    uint8_t *used;                 /* [tensors] found by name */
    struct error *err;
};

static status bad(const struct reading *r, const char *fmt, ...) PRINTF_LIKE(2, 3);

static status bad(const struct reading *r, const char *fmt, ...)
{
    char what[600];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return error_set(r->err, ST_REJECT, "model file %.300s: %s", gguf_path(r->g), what);
}

/* ---- metadata ---- */

#define KEY_ROOM 160

static const char *key_of(const struct reading *r, const char *name, char key[KEY_ROOM])
{
    snprintf(key, KEY_ROOM, "%s.%s", r->d->family->arch, name);
    return key;
}

/* An integer of the family, min..max. Missing: `otherwise`; a negative `otherwise`: it must be there. */
static status read_int(const struct reading *r, const char *name, int min, int max, int otherwise, int *out)
{
    char key[KEY_ROOM];
    enum gguf_kind kind;
    int64_t value = otherwise;

    key_of(r, name, key);
    if (!gguf_has(r->g, key, &kind)) {
        if (otherwise < 0)
            return bad(r, "%s is missing", key);
    } else if (kind == GGUF_ARRAY) {
        return bad(r, "%s is an array: layers that differ in shape are not supported", key);
    } else if (!gguf_int(r->g, key, &value)) {
        return bad(r, "%s is of kind %s and must be an integer", key, gguf_kind_name(kind));
    }
    if (value < min || value > max)
        return bad(r, "%s is %" PRId64 "; %d to %d are supported", key, value, min, max);
    *out = (int)value;
    return ST_OK;
}

/* A number, min..max. Missing: `otherwise`; a negative `otherwise`: it must be there. */
static status read_real(const struct reading *r, const char *name, double min, double max, double otherwise, double *out)
{
    char key[KEY_ROOM];

    *out = otherwise;
    key_of(r, name, key);
    if (!gguf_has(r->g, key, NULL))
        return otherwise < 0 ? bad(r, "%s is missing", key) : ST_OK;
    if (!gguf_real(r->g, key, out))
        return bad(r, "%s is not a number", key);
    if (!(*out >= min && *out <= max))
        return bad(r, "%s is %g; %g to %g are supported", key, *out, min, max);
    return ST_OK;
}

/* "text" of at most 60 bytes, what cannot be printed as '?'. */
static void show(const char *text, size_t n, char out[64])
{
    size_t i;

    for (i = 0; i < n && i < 60; i++)
        out[i] = text[i] >= 0x20 && text[i] <= 0x7e ? text[i] : '?';
    out[i] = 0;
}

/* That the file holds one whole model, in the block layouts of today. */
static status check_file(const struct reading *r)
{
    const char *type;
    char shown[64];
    int64_t parts, version;
    size_t n;

    if (gguf_int(r->g, "split.count", &parts) && parts > 1)
        return bad(r, "is one of %" PRId64 " parts of a model: join them with llama-gguf-split --merge", parts);
    if (gguf_text(r->g, "general.type", &type, &n) && (n != 5 || memcmp(type, "model", 5) != 0)) {
        show(type, n, shown);
        return bad(r, "holds no model: general.type is \"%s\"", shown);
    }
    if (gguf_int(r->g, "general.quantization_version", &version) && version != 2)
        return bad(r, "general.quantization_version is %" PRId64 "; 2 is supported", version);
    return ST_OK;
}

static status find_family(struct reading *r)
{
    const char *arch;
    char shown[64], names[256];
    size_t n;

    if (!gguf_text(r->g, "general.architecture", &arch, &n))
        return bad(r, "general.architecture is missing");
    r->d->family = family_find(arch, n);
    if (r->d->family != NULL)
        return ST_OK;
    show(arch, n, shown);
    family_names(names, sizeof names);
    return bad(r, "the architecture \"%s\" is not supported; supported: %s", shown, names);
}

static bool key_known(const struct family *f, const char *name)
{
    for (size_t i = 0; f->keys[i] != NULL; i++)
        if (strcmp(f->keys[i], name) == 0)
            return true;
    return false;
}

static status check_keys(const struct reading *r)
{
    const struct family *f = r->d->family;
    size_t prefix = strlen(f->arch);

    for (size_t i = 0; i < gguf_keys_n(r->g); i++) {
        const char *key = gguf_key(r->g, i);

        if (strncmp(key, f->arch, prefix) == 0 && key[prefix] == '.' && !key_known(f, key + prefix + 1))
            return bad(r, "%.100s is not known and may change what the model computes", key);
    }
    return ST_OK;
}

/* Keys that are known and must not ask for anything. */
static status check_refusals(const struct reading *r)
{
    char key[KEY_ROOM];
    int experts, window;
    bool causal = true;
    status st = ST_OK;

    TRY(read_int(r, "expert_count", 0, INT32_MAX, 0, &experts));
    if (experts > 0)
        return bad(r, "%s is %d: mixtures of experts are not supported", key_of(r, "expert_count", key), experts);
    TRY(read_int(r, "attention.sliding_window", 0, INT32_MAX, 0, &window));
    if (window > 0 && window < r->d->shape.context)
        return bad(r, "%s is %d: sliding windows are not supported", key_of(r, "attention.sliding_window", key), window);
    if (gguf_has(r->g, key_of(r, "attention.causal", key), NULL) && (!gguf_bool(r->g, key, &causal) || !causal))
        return bad(r, "%s is not true: this is no decoder", key);
out:
    return st;
}

static status read_rope(const struct reading *r)
{
    struct decoder *d = r->d;
    char key[KEY_ROOM], shown[64];
    const char *type = "none";
    double factor, old_factor;
    size_t n = 4;
    status st = ST_OK;

    TRY(read_int(r, "rope.dimension_count", 2, d->shape.head_dim, d->shape.head_dim, &d->rope_dim));
    if (d->rope_dim % 2 != 0)
        return bad(r, "%s is %d and must be even", key_of(r, "rope.dimension_count", key), d->rope_dim);
    TRY(read_real(r, "rope.freq_base", 1.0, 1e12, 10000.0, &d->shape.rope_base));
    TRY(read_real(r, "rope.scale_linear", ROPE_SHRINK_MIN, ROPE_SHRINK_MAX, 1.0, &old_factor));
    TRY(read_real(r, "rope.scaling.factor", ROPE_SHRINK_MIN, ROPE_SHRINK_MAX, 1.0, &factor));
    key_of(r, "rope.scaling.type", key);
    if (gguf_has(r->g, key, NULL) && !gguf_text(r->g, key, &type, &n))
        return bad(r, "%s is not a text", key);
    if (n == 4 && memcmp(type, "none", 4) == 0) {
        d->rope_shrink = old_factor;
    } else if (n == 6 && memcmp(type, "linear", 6) == 0) {
        d->rope_shrink = factor;
    } else {
        show(type, n, shown);
        return bad(r, "%s is \"%s\"; supported: none, linear, and the factors of rope_freqs.weight (Llama 3)", key, shown);
    }
out:
    return st;
}

static status read_heads(const struct reading *r)
{
    struct model_shape *s = &r->d->shape;
    int value_dim, otherwise;
    status st = ST_OK;

    TRY(read_int(r, "attention.head_count", 1, HEADS_MAX, -1, &s->heads_n));
    TRY(read_int(r, "attention.head_count_kv", 1, s->heads_n, s->heads_n, &s->kv_heads_n));
    if (s->heads_n % s->kv_heads_n != 0)
        return bad(r, "%d heads cannot share %d key-value heads", s->heads_n, s->kv_heads_n);
    otherwise = s->dim % s->heads_n == 0 ? s->dim / s->heads_n : -1;
    TRY(read_int(r, "attention.key_length", 2, HEAD_DIM_MAX, otherwise, &s->head_dim));
    TRY(read_int(r, "attention.value_length", 2, HEAD_DIM_MAX, otherwise, &value_dim));
    if (value_dim != s->head_dim || s->head_dim % 2 != 0)
        return bad(r, "heads of %d keys and %d values: equal and even lengths are supported", s->head_dim, value_dim);
out:
    return st;
}

static void read_names(const struct reading *r)
{
    struct model_shape *s = &r->d->shape;
    const char *name;
    size_t n;

    snprintf(s->family, sizeof s->family, "%s", r->d->family->arch);
    if (gguf_text(r->g, "general.name", &name, &n)) {
        n = utf8_valid(name, n < sizeof s->name - 1 ? n : sizeof s->name - 1);
        memcpy(s->name, name, n);
    }
    s->file_bytes = (int64_t)gguf_bytes(r->g);
}

static status read_shape(const struct reading *r)
{
    struct model_shape *s = &r->d->shape;
    double eps;
    status st = ST_OK;

    read_names(r);
    TRY(read_int(r, "block_count", 1, LAYERS_MAX, -1, &s->layers_n));
    TRY(read_int(r, "context_length", 1, CONTEXT_MAX, -1, &s->context));
    TRY(read_int(r, "embedding_length", 2, DIM_MAX, -1, &s->dim));
    TRY(read_int(r, "feed_forward_length", 2, FF_MAX, -1, &s->ff));
    if (s->dim % 2 != 0 || s->ff % 2 != 0)
        return bad(r, "embedding_length %d and feed_forward_length %d must be even", s->dim, s->ff);
    TRY(read_heads(r));
    TRY(read_real(r, "attention.layer_norm_rms_epsilon", 1e-30, 1.0, -1.0, &eps));
    s->norm_eps = (float)eps;
    TRY(check_refusals(r));
    TRY(read_rope(r));
out:
    return st;
}

/* ---- tensors ---- */

/* Finds a tensor by name, type and dimensions; rows 0: a vector of k values. Missing and not needed: *out is NULL. */
static status take(const struct reading *r, const char *name, bool needed, int64_t k, int64_t rows,
                   const struct tensor **out)
{
    const struct tensor *t = gguf_tensor(r->g, name);

    *out = t;
    if (t == NULL)
        return needed ? bad(r, "the tensor %s is missing", name) : ST_OK;
    r->used[t - gguf_tensor_at(r->g, 0)] = 1;
    if (!tensor_readable(t->type))
        return bad(r, "the tensor %s is of type %s; supported: F32, F16, BF16, Q4_0, Q4_1, Q8_0, Q4_K, Q6_K", name,
                   tensor_type_name(t->type));
    if (t->dims[0] != k || t->dims[1] != (rows == 0 ? 1 : rows) || t->dims[2] != 1 || t->dims[3] != 1)
        return bad(r, "the tensor %s is %" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64 " and must be %" PRId64
                   " x %" PRId64, name, t->dims[0], t->dims[1], t->dims[2], t->dims[3], k, rows == 0 ? 1 : rows);
    return ST_OK;
}

struct slot {
    const char *name;              /* without "blk.N." */
    bool needed;
    int64_t k, rows;
    const struct tensor **to;
};

static status take_layer(const struct reading *r, int i)
{
    const struct model_shape *s = &r->d->shape;
    struct layer_tensors *l = &r->d->layers[i];
    const int64_t dim = s->dim, q = (int64_t)s->heads_n * s->head_dim, kv = (int64_t)s->kv_heads_n * s->head_dim;
    const struct slot slots[] = {
        { "attn_norm.weight", true, dim, 0, &l->attn_norm },
        { "attn_q.weight", true, dim, q, &l->q },
        { "attn_k.weight", true, dim, kv, &l->k },
        { "attn_v.weight", true, dim, kv, &l->v },
        { "attn_output.weight", true, q, dim, &l->o },
        { "attn_q.bias", false, q, 0, &l->q_bias },
        { "attn_k.bias", false, kv, 0, &l->k_bias },
        { "attn_v.bias", false, kv, 0, &l->v_bias },
        { "attn_output.bias", false, dim, 0, &l->o_bias },
        { "ffn_norm.weight", true, dim, 0, &l->ff_norm },
        { "ffn_gate.weight", true, dim, s->ff, &l->gate },
        { "ffn_up.weight", true, dim, s->ff, &l->up },
        { "ffn_down.weight", true, s->ff, dim, &l->down },
    };
    char name[64];
    status st = ST_OK;

    for (size_t j = 0; j < sizeof slots / sizeof slots[0]; j++) {
        snprintf(name, sizeof name, "blk.%d.%s", i, slots[j].name);
        TRY(take(r, name, slots[j].needed, slots[j].k, slots[j].rows, slots[j].to));
    }
    if ((l->q_bias == NULL) != (l->k_bias == NULL) || (l->q_bias == NULL) != (l->v_bias == NULL))
        return bad(r, "layer %d has a bias for some of query, key and value: all or none are supported", i);
out:
    return st;
}

static status take_vocab(const struct reading *r)
{
    struct decoder *d = r->d;
    const struct tensor *t = gguf_tensor(r->g, "token_embd.weight");
    struct gguf_array tokens;
    int declared;
    status st = ST_OK;

    if (t == NULL)
        return bad(r, "the tensor token_embd.weight is missing");
    if (t->dims[1] > VOCAB_MAX)
        return bad(r, "the tensor token_embd.weight has %" PRId64 " rows; at most %d are supported", t->dims[1], VOCAB_MAX);
    d->shape.vocab = (int)t->dims[1];
    TRY(read_int(r, "vocab_size", 1, VOCAB_MAX, d->shape.vocab, &declared));
    if (declared != d->shape.vocab)
        return bad(r, "vocab_size is %d and token_embd.weight has %d rows", declared, d->shape.vocab);
    if (gguf_array(r->g, "tokenizer.ggml.tokens", &tokens) && tokens.n > (uint64_t)d->shape.vocab)
        return bad(r, "the tokenizer has %" PRIu64 " tokens and the model %d", tokens.n, d->shape.vocab);
    TRY(take(r, "token_embd.weight", true, d->shape.dim, d->shape.vocab, &d->embed));
    TRY(take(r, "output.weight", false, d->shape.dim, d->shape.vocab, &d->head));
    d->shape.tied_head = d->head == NULL;
    if (d->head == NULL)
        d->head = d->embed;
out:
    return st;
}

static status take_rope_factors(const struct reading *r)
{
    const struct tensor *t;
    float factor[HEAD_DIM_MAX / 2];
    status st = ST_OK;

    TRY(take(r, "rope_freqs.weight", false, r->d->rope_dim / 2, 0, &r->d->rope_factors));
    t = r->d->rope_factors;
    if (t == NULL)
        return ST_OK;
    tensor_rows(t, 0, 1, factor);
    for (int i = 0; i < r->d->rope_dim / 2; i++)
        if (!(factor[i] >= ROPE_SHRINK_MIN && factor[i] <= ROPE_SHRINK_MAX))
            return bad(r, "the tensor %s holds %g; %g to %g are supported", t->name, (double)factor[i], ROPE_SHRINK_MIN,
                       ROPE_SHRINK_MAX);
out:
    return st;
}

/* Names the type that most values have, counts the values, and refuses what no slot has taken. */
static status count_tensors(const struct reading *r)
{
    struct model_shape *s = &r->d->shape;
    int64_t of_type[64] = { 0 };
    int most = 0;

    for (size_t i = 0; i < gguf_tensors_n(r->g); i++) {
        const struct tensor *t = gguf_tensor_at(r->g, i);
        int64_t values = t->dims[0] * tensor_rows_n(t);

        if (!r->used[i])
            return bad(r, "the tensor %s is not known to the family %s: it would be left out of the computation", t->name,
                       s->family);
        if (t == r->d->rope_factors)
            continue;
        ASSERT(t->type < 64);
        of_type[t->type] += values;
        if (of_type[t->type] > of_type[most])
            most = (int)t->type;
        s->parameters_n += values;
    }
    snprintf(s->quant, sizeof s->quant, "%s", tensor_type_name((enum tensor_type)most));
    return ST_OK;
}

static status take_tensors(const struct reading *r)
{
    struct decoder *d = r->d;
    status st = ST_OK;

    TRY(take_vocab(r));
    TRY(take(r, "output_norm.weight", true, d->shape.dim, 0, &d->out_norm));
    TRY(take_rope_factors(r));
    d->layers = mem_take_zero((size_t)d->shape.layers_n, sizeof *d->layers);
    for (int i = 0; i < d->shape.layers_n; i++)
        TRY(take_layer(r, i));
    TRY(count_tensors(r));
out:
    return st;
}

status decoder_read(const struct gguf *g, struct decoder *out, struct error *err)
{
    struct reading r = { g, out, mem_take_zero(gguf_tensors_n(g), 1), err };
    status st = ST_OK;

    memset(out, 0, sizeof *out);
    TRY(check_file(&r));
    TRY(find_family(&r));
    TRY(check_keys(&r));
    TRY(read_shape(&r));
    TRY(take_tensors(&r));
out:
    free(r.used);
    if (st != ST_OK)
        decoder_fini(out);
    return st;
}

void decoder_fini(struct decoder *d)
{
    free(d->layers);
    memset(d, 0, sizeof *d);
}

status model_inspect(const struct gguf *g, struct model_shape *out, struct error *err)
{
    struct decoder d;
    status st = decoder_read(g, &d, err);

    memset(out, 0, sizeof *out);
    if (st == ST_OK) {
        *out = d.shape;
        decoder_fini(&d);
    }
    return st;
}
