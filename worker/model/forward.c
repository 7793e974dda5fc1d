/* The forward pass: the list of kernel calls a step is made of.
 *
 * A layer is attention, which rows share through the pages, and the rest, which is each row's own. The last layer does the
 * rest for the wanted rows alone: nobody reads what the others would have become, only their keys and values. */
#include "worker/model/internal.h"

/* Norm, keys and values into the pages, and (unless nothing is wanted of this layer) attention. */
static status forward_attention(struct model *m, const struct step *s, struct kv *kv, int i, bool wanted)
{
    const struct layer *l = &m->layers[i];
    struct device *d = m->device;
    status st = ST_OK;

    TRY(kernel_rmsnorm(d, m->x, l->attn_norm, m->shape.norm_eps, NULL, s->rows_n, m->shape.dim, m->normed));
    TRY(kernel_linear(d, l->qkv, l->qkv_bias, m->normed, s->rows_n, LINEAR_STORE, m->qkv));
    TRY(kernel_rope_write(d, m->qkv, s, i, &m->attention, &m->rope, &l->qk_norm, kv, m->query));
    if (wanted)
        TRY(kernel_attention(d, m->query, s, i, &m->attention, kv, m->attended));
out:
    return st;
}

/* Attention's output into the stream x, then the gated feed-forward. */
static status forward_rest(struct model *m, const struct layer *l, int rows_n, const void *attended, void *x)
{
    struct device *d = m->device;
    status st = ST_OK;

    TRY(kernel_linear(d, l->o, l->o_bias, attended, rows_n, LINEAR_ADD, x));
    TRY(kernel_rmsnorm(d, x, l->ff_norm, m->shape.norm_eps, NULL, rows_n, m->shape.dim, m->normed));
    TRY(kernel_linear_gated(d, l->gate_up, m->act, m->normed, rows_n, m->gated));
    TRY(kernel_linear(d, l->down, NULL, m->gated, rows_n, LINEAR_ADD, x));
out:
    return st;
}

/* Outputs [first, first + n): the rest of the last layer, logits, tokens. */
static status forward_outs(struct model *m, const struct step *s, int first, int n)
{
    const struct model_shape *shape = &m->shape;
    struct device *d = m->device;
    struct step part = *s;
    status st = ST_OK;

    part.outs_n = n;
    part.want += first;
    part.sampling += first;
    part.sampled += first;
    TRY(kernel_gather(d, ACT_RESIDUAL, shape->dim, m->x, part.want, n, m->out_x));
    TRY(kernel_gather(d, ACT_ATTENDED, shape->heads_n * shape->head_dim, m->attended, part.want, n, m->out_attended));
    TRY(forward_rest(m, &m->layers[shape->layers_n - 1], n, m->out_attended, m->out_x));
    TRY(kernel_rmsnorm(d, m->out_x, m->out_norm, shape->norm_eps, NULL, n, shape->dim, m->normed));
    TRY(kernel_logits(d, m->head, m->normed, n, 0.0f, m->logits));
    TRY(kernel_sample(d, m->logits, shape->vocab, &part));
out:
    return st;
}

status model_forward(struct model *m, const struct step *s, struct kv *kv)
{
    const int last = m->shape.layers_n - 1;
    status st = ST_OK;

    ASSERT(s->rows_n > 0 && s->rows_n <= m->rows_max);
    TRY(kernel_step_begin(m->device, s));
    TRY(kernel_embed(m->device, m->embed, s, 1.0f, m->x));
    for (int i = 0; i < last; i++) {
        TRY(forward_attention(m, s, kv, i, true));
        TRY(forward_rest(m, &m->layers[i], s->rows_n, m->attended, m->x));
    }
    TRY(forward_attention(m, s, kv, last, s->outs_n > 0));
    /* More outputs than there is memory for logits (echo with log-probabilities) run in parts. */
    for (int o = 0; o < s->outs_n; o += m->outs_max)
        TRY(forward_outs(m, s, o, s->outs_n - o < m->outs_max ? s->outs_n - o : m->outs_max));
    TRY(device_sync(m->device));
out:
    return st;
}
