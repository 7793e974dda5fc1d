/* Models of random weights at the shapes of known ones: what benches run where no file is at hand. Never zeros: a chip
 * that multiplies zeros draws less power and runs faster than it ever will. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/model/internal.h"

static const struct { const char *name; struct model_shape shape; bool qk_norm; } known[] = {
    { "smollm2-135m", { .layers_n = 30, .dim = 576, .heads_n = 9, .kv_heads_n = 3, .head_dim = 64, .ff = 1536,
                        .vocab = 49152, .context = 8192, .tied_head = true, .rope_base = 1e5 }, false },
    { "qwen3-0.6b", { .layers_n = 28, .dim = 1024, .heads_n = 16, .kv_heads_n = 8, .head_dim = 128, .ff = 3072,
                      .vocab = 151936, .context = 40960, .tied_head = true, .rope_base = 1e6 }, true },
    { "qwen3-8b", { .layers_n = 36, .dim = 4096, .heads_n = 32, .kv_heads_n = 8, .head_dim = 128, .ff = 12288,
                    .vocab = 151936, .context = 40960, .rope_base = 1e6 }, true },
    { "llama-3-8b", { .layers_n = 32, .dim = 4096, .heads_n = 32, .kv_heads_n = 8, .head_dim = 128, .ff = 14336,
                      .vocab = 128256, .context = 131072, .rope_base = 5e5 }, false },
    { "llama-3-70b", { .layers_n = 80, .dim = 8192, .heads_n = 64, .kv_heads_n = 8, .head_dim = 128, .ff = 28672,
                       .vocab = 128256, .context = 131072, .rope_base = 5e5 }, false },
};
#define KNOWN_N (sizeof known / sizeof known[0])

void model_shape_names(char *out, size_t room)
{
    size_t n = 0;

    out[0] = 0;
    for (size_t i = 0; i < KNOWN_N && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, "%s%s", i == 0 ? "" : ", ", known[i].name);
}

/* Rows of one matrix: uniform, of a size that keeps the stream of the layers near 1. */
struct noise { uint64_t seed; int k; float size; };

static void noise_rows(const void *ctx, int64_t first, int64_t count, float *out)
{
    const struct noise *n = ctx;

    for (int64_t r = first; r < first + count; r++) {
        uint64_t x = (n->seed * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)r + 1) * UINT64_C(0xD1342543DE82EF95);

        for (int i = 0; i < n->k; i++) {
            x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            *out++ = ((float)(x >> 40) - 8388608.0f) * (n->size / 8388608.0f);
        }
    }
}

static struct noise noise_of(uint64_t seed, int k)
{
    return (struct noise){ seed, k, sqrtf(3.0f / (float)k) };
}

static status load(struct model *m, uint64_t seed, int rows, int k, struct matrix **out, struct error *err)
{
    struct noise n = noise_of(seed, k);
    struct matrix_source s = { noise_rows, &n, rows };
    status st = matrix_load(m->device, k, &s, 1, out, err);

    if (st == ST_OK)
        m->weight_bytes += matrix_bytes(*out);
    return st;
}

static float *ones(struct model *m, int n)
{
    float *values = mem_take((size_t)n * sizeof *values), *v;

    for (int i = 0; i < n; i++)
        values[i] = 1.0f + 0.01f * (float)(i % 7);
    v = vector_load(m->device, values, n);
    free(values);
    return v;
}

static status load_layer(struct model *m, int i, bool qk_norm, struct error *err)
{
    const struct model_shape *s = &m->shape;
    struct layer *l = &m->layers[i];
    const int q = s->heads_n * s->head_dim, kv = s->kv_heads_n * s->head_dim;
    const uint64_t seed = (uint64_t)i * 8 + 8;
    struct noise gate = noise_of(seed + 2, s->dim), up = noise_of(seed + 3, s->dim);
    const struct matrix_source gate_rows = { noise_rows, &gate, s->ff }, up_rows = { noise_rows, &up, s->ff };
    status st = ST_OK;

    l->attn_norm = ones(m, s->dim);
    l->ff_norm = ones(m, s->dim);
    if (qk_norm)
        l->qk_norm = (struct qk_norm){ ones(m, s->head_dim), ones(m, s->head_dim), s->norm_eps };
    TRY(load(m, seed, q + 2 * kv, s->dim, &l->qkv, err));
    TRY(load(m, seed + 1, s->dim, q, &l->o, err));
    TRY(matrix_load_gated(m->device, s->dim, &gate_rows, &up_rows, &l->gate_up, err));
    m->weight_bytes += matrix_bytes(l->gate_up);
    TRY(load(m, seed + 4, s->dim, s->ff, &l->down, err));
out:
    return st;
}

static status load_all(struct model *m, bool qk_norm, struct error *err)
{
    const struct model_shape *s = &m->shape;
    const int half = s->head_dim / 2;
    float *freq = mem_take((size_t)half * sizeof *freq);
    status st = ST_OK;

    for (int i = 0; i < half; i++)
        freq[i] = (float)pow(s->rope_base, -2.0 * i / s->head_dim);
    m->inv_freq = vector_load(m->device, freq, half);
    m->rope = (struct rope){ ROPE_HALVES, s->head_dim, m->inv_freq, 1.0f };
    m->out_norm = ones(m, s->dim);
    TRY(load(m, 1, s->vocab, s->dim, &m->embed, err));
    m->head = m->embed;
    if (!s->tied_head)
        TRY(load(m, 2, s->vocab, s->dim, &m->head, err));
    m->layers = mem_take_zero((size_t)s->layers_n, sizeof *m->layers);
    for (int i = 0; i < s->layers_n; i++)
        TRY(load_layer(m, i, qk_norm, err));
    TRY(model_activations_take(m, err));
out:
    free(freq);
    return st;
}

/* *qk_norm: the model norms its queries and keys. */
static status shape_find(const char *name, struct model_shape *out, bool *qk_norm, struct error *err)
{
    char names[160];
    size_t i = 0;

    while (i < KNOWN_N && strcmp(known[i].name, name) != 0)
        i++;
    if (i == KNOWN_N) {
        model_shape_names(names, sizeof names);
        return error_set(err, ST_REJECT, "no shape is called \"%s\"; known: %s", name, names);
    }
    *out = known[i].shape;
    out->norm_eps = 1e-5f;
    snprintf(out->family, sizeof out->family, "random");
    snprintf(out->name, sizeof out->name, "%s", name);
    snprintf(out->quant, sizeof out->quant, "random");
    *qk_norm = known[i].qk_norm;
    return ST_OK;
}

status model_shape_known(const char *name, struct model_shape *out, struct error *err)
{
    bool qk_norm;

    return shape_find(name, out, &qk_norm, err);
}

status model_open_random(const char *name, struct device *d, int step_rows_max, int step_outs_max, struct model **out,
                         struct error *err)
{
    struct model *m = mem_take_zero(1, sizeof *m);
    bool qk_norm;
    status st = ST_OK;

    *out = NULL;
    ASSERT(step_rows_max > 0 && step_outs_max > 0);
    m->device = d;
    TRY(shape_find(name, &m->shape, &qk_norm, err));
    m->act = GATE_SILU;
    m->rows_max = step_rows_max;
    m->outs_max = step_outs_max;
    m->attention = (struct attention_shape){
        m->shape.heads_n, m->shape.kv_heads_n, m->shape.head_dim, .scale = 1.0f / sqrtf((float)m->shape.head_dim)
    };
    TRY(load_all(m, qk_norm, err));
    *out = m;
    m = NULL;
out:
    model_close(m);
    return st;
}
