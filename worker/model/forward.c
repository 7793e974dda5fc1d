/* The forward pass: the list of kernel calls a step is made of. */
#include "worker/model/internal.h"

static status forward_layer(struct model *m, const struct step *s, struct kv *kv, int i)
{
    const struct layer *l = &m->layers[i];
    const struct qk_norm no_norm = { NULL, NULL, 0.0f };
    const float eps = m->shape.norm_eps;
    const int rows = s->rows_n, dim = m->shape.dim;
    struct device *d = m->device;
    status st = ST_OK;

    TRY(kernel_rmsnorm(d, m->x, l->attn_norm, eps, NULL, rows, dim, m->normed));
    TRY(kernel_linear(d, l->qkv, l->qkv_bias, m->normed, rows, LINEAR_STORE, m->qkv));
    TRY(kernel_rope_write(d, m->qkv, s, i, &m->attention, &m->rope, &no_norm, kv, m->query));
    TRY(kernel_attention(d, m->query, s, i, &m->attention, kv, m->attended));
    TRY(kernel_linear(d, l->o, l->o_bias, m->attended, rows, LINEAR_ADD, m->x));

    TRY(kernel_rmsnorm(d, m->x, l->ff_norm, eps, NULL, rows, dim, m->normed));
    TRY(kernel_linear_gated(d, l->gate_up, m->act, m->normed, rows, m->gated));
    TRY(kernel_linear(d, l->down, NULL, m->gated, rows, LINEAR_ADD, m->x));
out:
    return st;
}

/* Logits and tokens of outputs [first, first + n): as many at a time as there is memory for logits. */
static status forward_outs(struct model *m, const struct step *s, int first, int n)
{
    struct step part = *s;
    status st = ST_OK;

    part.outs_n = n;
    part.want += first;
    part.sampling += first;
    part.sampled += first;
    TRY(kernel_rmsnorm(m->device, m->x, m->out_norm, m->shape.norm_eps, part.want, n, m->shape.dim, m->normed));
    TRY(kernel_logits(m->device, m->head, m->normed, n, 0.0f, m->logits));
    TRY(kernel_sample(m->device, m->logits, m->shape.vocab, &part));
out:
    return st;
}

status model_forward(struct model *m, const struct step *s, struct kv *kv)
{
    status st = ST_OK;

    ASSERT(s->rows_n > 0 && s->rows_n <= m->rows_max);
    TRY(kernel_embed(m->device, m->embed, s, 1.0f, m->x));
    for (int i = 0; i < m->shape.layers_n; i++)
        TRY(forward_layer(m, s, kv, i));
    for (int o = 0; o < s->outs_n; o += m->outs_max)
        TRY(forward_outs(m, s, o, s->outs_n - o < m->outs_max ? s->outs_n - o : m->outs_max));
    TRY(device_sync(m->device));
out:
    return st;
}
