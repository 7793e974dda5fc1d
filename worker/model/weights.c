/* Tensors onto a device. Matrices are dequantised row by row inside the device's packing threads, so that no whole
 * matrix ever stands in fp32. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/model/family.h"
#include "worker/model/internal.h"

/* Rows of a tensor for matrix_load. GGUF's llama files hold the rows of q and k so that the two elements that rope turns
 * together are neighbours; with head_dim set the rows come out with the pairs half a head apart again, which a device
 * can turn without shuffling. Queries and keys move alike, so their products are the same. */
struct rows {
    const struct tensor *tensor;
    int head_dim, rope_dim;        /* 0: as they stand */
};

static int64_t row_in_file(const struct rows *r, int64_t row)
{
    int64_t head = row / r->head_dim * r->head_dim, i = row % r->head_dim, half = r->rope_dim / 2;

    return i >= r->rope_dim ? row : head + (i < half ? 2 * i : 2 * (i - half) + 1);
}

static void rows_read(const void *ctx, int64_t first, int64_t count, float *out)
{
    const struct rows *r = ctx;

    if (r->head_dim == 0) {
        tensor_rows(r->tensor, first, count, out);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        tensor_rows(r->tensor, row_in_file(r, first + i), 1, out + i * r->tensor->dims[0]);
}

static struct matrix_source source(const struct rows *r)
{
    return (struct matrix_source){ rows_read, r, tensor_rows_n(r->tensor) };
}

static status load_matrix(struct model *m, const struct tensor *t, struct matrix **out, struct error *err)
{
    struct rows r = { t, 0, 0 };
    struct matrix_source from = source(&r);

    return matrix_load(m->device, (int)t->dims[0], &from, 1, out, err);
}

static float *load_vector(struct model *m, const struct tensor *t)
{
    float *values = mem_take((size_t)t->dims[0] * sizeof *values), *v;

    tensor_rows(t, 0, 1, values);
    v = vector_load(m->device, values, (int)t->dims[0]);
    m->weight_bytes += (size_t)t->dims[0] * sizeof *v;
    free(values);
    return v;
}

/* The three biases as the fused product has its outputs. */
static float *load_qkv_bias(struct model *m, const struct layer_tensors *l, const struct rows *q)
{
    const int64_t q_n = l->q_bias->dims[0], kv_n = l->k_bias->dims[0];
    float *file = mem_take((size_t)q_n * sizeof *file);
    float *values = mem_take((size_t)(q_n + 2 * kv_n) * sizeof *values), *v;

    tensor_rows(l->q_bias, 0, 1, file);
    for (int64_t i = 0; i < q_n; i++)
        values[i] = file[q->head_dim == 0 ? i : row_in_file(q, i)];
    tensor_rows(l->k_bias, 0, 1, file);
    for (int64_t i = 0; i < kv_n; i++)
        values[q_n + i] = file[q->head_dim == 0 ? i : row_in_file(q, i)];
    tensor_rows(l->v_bias, 0, 1, values + q_n + kv_n);
    v = vector_load(m->device, values, (int)(q_n + 2 * kv_n));
    m->weight_bytes += (size_t)(q_n + 2 * kv_n) * sizeof *v;
    free(values);
    free(file);
    return v;
}

static status load_layer(struct model *m, const struct decoder *d, const struct layer_tensors *from, struct layer *to,
                         struct error *err)
{
    const int head_dim = d->family->pairs == ROPE_NEIGHBOURS ? d->shape.head_dim : 0;
    const struct rows q = { from->q, head_dim, d->rope_dim }, k = { from->k, head_dim, d->rope_dim };
    const struct rows v = { from->v, 0, 0 }, gate = { from->gate, 0, 0 }, up = { from->up, 0, 0 };
    const struct matrix_source qkv[3] = { source(&q), source(&k), source(&v) };
    const struct matrix_source gate_rows = source(&gate), up_rows = source(&up);
    status st = ST_OK;

    to->attn_norm = load_vector(m, from->attn_norm);
    to->ff_norm = load_vector(m, from->ff_norm);
    if (from->q_bias != NULL)
        to->qkv_bias = load_qkv_bias(m, from, &q);
    if (from->o_bias != NULL)
        to->o_bias = load_vector(m, from->o_bias);
    TRY(matrix_load(m->device, d->shape.dim, qkv, 3, &to->qkv, err));
    TRY(load_matrix(m, from->o, &to->o, err));
    TRY(matrix_load_gated(m->device, d->shape.dim, &gate_rows, &up_rows, &to->gate_up, err));
    TRY(load_matrix(m, from->down, &to->down, err));
    m->weight_bytes += matrix_bytes(to->qkv) + matrix_bytes(to->o) + matrix_bytes(to->gate_up) + matrix_bytes(to->down);
out:
    return st;
}

/* base^(-2i/dim), divided by the linear scale and by Llama 3's factor of that frequency. */
static void load_rope(struct model *m, const struct decoder *d)
{
    const int half = d->rope_dim / 2;
    float *freq = mem_take((size_t)half * sizeof *freq), *factor = mem_take((size_t)half * sizeof *factor);

    for (int i = 0; i < half; i++)
        factor[i] = 1.0f;
    if (d->rope_factors != NULL)
        tensor_rows(d->rope_factors, 0, 1, factor);
    for (int i = 0; i < half; i++)
        freq[i] = (float)(pow(d->shape.rope_base, -2.0 * i / d->rope_dim) / d->rope_shrink / (double)factor[i]);
    m->inv_freq = vector_load(m->device, freq, half);
    m->rope = (struct rope){ ROPE_HALVES, d->rope_dim, m->inv_freq, 1.0f };
    free(factor);
    free(freq);
}

static status load_weights(struct model *m, const struct decoder *d, struct error *err)
{
    status st = ST_OK;

    TRY(load_matrix(m, d->embed, &m->embed, err));
    m->weight_bytes += matrix_bytes(m->embed);
    m->head = m->embed;
    if (!d->shape.tied_head) {
        TRY(load_matrix(m, d->head, &m->head, err));
        m->weight_bytes += matrix_bytes(m->head);
    }
    m->out_norm = load_vector(m, d->out_norm);
    load_rope(m, d);
    m->layers = mem_take_zero((size_t)d->shape.layers_n, sizeof *m->layers);
    for (int i = 0; i < d->shape.layers_n; i++)
        TRY(load_layer(m, d, &d->layers[i], &m->layers[i], err));
out:
    return st;
}

static void *act_take(struct model *m, size_t rows, enum act role, int dim, bool *all)
{
    void *p = device_memory_take(m->device, rows * device_act_bytes(m->device, role, dim));

    *all &= p != NULL;
    return p;
}

status model_activations_take(struct model *m, struct error *err)
{
    const struct model_shape *s = &m->shape;
    const int q = s->heads_n * s->head_dim, kv = s->kv_heads_n * s->head_dim;
    const size_t rows = (size_t)m->rows_max, outs = (size_t)m->outs_max, more = rows > outs ? rows : outs;
    bool all = true;

    m->x = act_take(m, rows, ACT_RESIDUAL, s->dim, &all);
    m->normed = act_take(m, more, ACT_NORMED, s->dim, &all);
    m->qkv = act_take(m, rows, ACT_QKV, q + 2 * kv, &all);
    m->query = act_take(m, rows, ACT_QUERY, q, &all);
    m->attended = act_take(m, rows, ACT_ATTENDED, q, &all);
    m->gated = act_take(m, more, ACT_GATED, s->ff, &all);
    m->out_x = act_take(m, outs, ACT_RESIDUAL, s->dim, &all);
    m->out_attended = act_take(m, outs, ACT_ATTENDED, q, &all);
    m->logits = act_take(m, outs, ACT_LOGITS, s->vocab, &all);
    if (!all)
        return error_set(err, ST_REJECT, "%s has no memory left for the activations of %d rows and %d outputs: lower "
                         "step_rows_max or sequences_max", device_info(m->device)->name, m->rows_max, m->outs_max);
    return ST_OK;
}

status model_open(const struct gguf *g, struct device *d, int step_rows_max, int step_outs_max, struct model **out,
                  struct error *err)
{
    struct model *m = NULL;
    struct decoder decoder;
    status st = ST_OK;

    *out = NULL;
    ASSERT(step_rows_max > 0 && step_outs_max > 0);
    st = decoder_read(g, &decoder, err);
    if (st != ST_OK)
        return st;
    m = mem_take_zero(1, sizeof *m);
    m->device = d;
    m->shape = decoder.shape;
    m->act = decoder.family->act;
    m->rows_max = step_rows_max;
    m->outs_max = step_outs_max;
    m->hash = gguf_hash(g);
    m->attention = (struct attention_shape){
        m->shape.heads_n, m->shape.kv_heads_n, m->shape.head_dim,
        .scale = 1.0f / sqrtf((float)m->shape.head_dim)
    };
    TRY(load_weights(m, &decoder, err));
    gguf_rest(g);
    TRY(model_activations_take(m, err));
    *out = m;
    m = NULL;
out:
    decoder_fini(&decoder);
    model_close(m);
    return st;
}

static void give_layer(struct device *d, struct layer *l)
{
    matrix_give(d, l->down);
    matrix_give(d, l->gate_up);
    matrix_give(d, l->o);
    matrix_give(d, l->qkv);
    device_buffer_give(d, (void *)(uintptr_t)l->qk_norm.k);
    device_buffer_give(d, (void *)(uintptr_t)l->qk_norm.q);
    device_buffer_give(d, l->o_bias);
    device_buffer_give(d, l->qkv_bias);
    device_buffer_give(d, l->ff_norm);
    device_buffer_give(d, l->attn_norm);
}

void model_close(struct model *m)
{
    if (m == NULL)
        return;
    device_buffer_give(m->device, m->logits);
    device_buffer_give(m->device, m->out_attended);
    device_buffer_give(m->device, m->out_x);
    device_buffer_give(m->device, m->gated);
    device_buffer_give(m->device, m->attended);
    device_buffer_give(m->device, m->query);
    device_buffer_give(m->device, m->qkv);
    device_buffer_give(m->device, m->normed);
    device_buffer_give(m->device, m->x);
    for (int i = 0; m->layers != NULL && i < m->shape.layers_n; i++)
        give_layer(m->device, &m->layers[i]);
    free(m->layers);
    device_buffer_give(m->device, m->inv_freq);
    device_buffer_give(m->device, m->out_norm);
    if (m->head != m->embed)
        matrix_give(m->device, m->head);
    matrix_give(m->device, m->embed);
    free(m);
}

const struct model_shape *model_shape(const struct model *m)
{
    return &m->shape;
}

struct kv_shape model_kv_shape(const struct model *m, int pages_n)
{
    return (struct kv_shape){ m->shape.layers_n, m->shape.kv_heads_n, m->shape.head_dim, pages_n };
}

struct hash128 model_hash(const struct model *m)
{
    return m->hash;
}

size_t model_weight_bytes(const struct model *m)
{
    return m->weight_bytes;
}
