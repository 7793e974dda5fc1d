/* The public functions of kernels.h: checks that hold for every device, then the device's own function. */
#include "kernels/device.h"

#include <string.h>

status device_open(const struct config *cfg, struct device **out, struct error *err)
{
    *out = NULL;
    if (strcmp(cfg->device, "cpu") == 0)
        return cpu_device_open(cfg, out, err);
    if (strncmp(cfg->device, "cuda", 4) == 0)
        return cuda_device_open(cfg, out, err);
    return error_set(err, ST_REJECT, "device=%s: no such device; there are: cpu, cuda, cuda:N", cfg->device);
}

void device_close(struct device *d)
{
    if (d != NULL)
        d->ops->close(d);
}

const struct device_info *device_info(const struct device *d)
{
    return &d->info;
}

status device_sync(struct device *d)
{
    return d->ops->sync(d);
}

void *device_buffer_take(struct device *d, size_t bytes)
{
    return d->ops->buffer_take(d, bytes);
}

void *device_memory_take(struct device *d, size_t bytes)
{
    return d->ops->memory_take(d, bytes);
}

status device_copy(struct device *d, void *to, const void *from, size_t bytes)
{
    return d->ops->copy(d, to, from, bytes);
}

void device_buffer_give(struct device *d, void *p)
{
    if (p != NULL)
        d->ops->buffer_give(d, p);
}

size_t device_act_bytes(const struct device *d, enum act role, int dim)
{
    return d->ops->act_bytes(d, role, dim);
}

status device_measure(struct device *d, struct device_ceilings *out)
{
    return d->ops->measure(d, out);
}

static status source_check(const struct matrix_source *source, int64_t rows_max, struct error *err)
{
    if (source->rows == NULL || source->rows_n < 1 || source->rows_n > rows_max)
        return error_set(err, ST_REJECT, "matrix of %lld rows: a matrix has 1 to %lld", (long long)source->rows_n,
                         (long long)rows_max);
    return ST_OK;
}

/* Row and column counts fit an int with room to round up, so that no device has to think of overflow. */
#define MATRIX_ROWS_MAX (INT32_MAX / 4)
#define MATRIX_K_MAX (1 << 22)

static status k_check(int k, struct error *err)
{
    if (k < 2 || k % 2 != 0 || k > MATRIX_K_MAX)
        return error_set(err, ST_REJECT, "matrix of %d columns: must be even, 2 to %d", k, MATRIX_K_MAX);
    return ST_OK;
}

status matrix_load(struct device *d, int k, const struct matrix_source *sources, int sources_n, struct matrix **out,
                   struct error *err)
{
    status st = ST_OK;
    int64_t left = MATRIX_ROWS_MAX;
    int i;

    *out = NULL;
    ASSERT(sources_n > 0);
    TRY(k_check(k, err));
    for (i = 0; i < sources_n; i++) {
        TRY(source_check(&sources[i], left, err));
        left -= sources[i].rows_n;
    }
    TRY(d->ops->matrix_load(d, k, sources, sources_n, out, err));
out:
    return st;
}

status matrix_load_gated(struct device *d, int k, const struct matrix_source *gate, const struct matrix_source *up,
                         struct matrix **out, struct error *err)
{
    status st = ST_OK;

    *out = NULL;
    TRY(k_check(k, err));
    TRY(source_check(gate, MATRIX_ROWS_MAX / 2, err));
    TRY(source_check(up, MATRIX_ROWS_MAX / 2, err));
    if (gate->rows_n != up->rows_n)
        return error_set(err, ST_REJECT, "gate has %lld rows, up %lld: they must match", (long long)gate->rows_n,
                         (long long)up->rows_n);
    TRY(d->ops->matrix_load_gated(d, k, gate, up, out, err));
out:
    return st;
}

void matrix_give(struct device *d, struct matrix *m)
{
    if (m != NULL)
        d->ops->matrix_give(d, m);
}

size_t matrix_bytes(const struct matrix *m)
{
    return m->bytes;
}

float *vector_load(struct device *d, const float *from, int n)
{
    return d->ops->vector_load(d, from, n);
}

size_t kv_page_bytes(const struct device *d, const struct kv_shape *shape)
{
    return d->ops->kv_page_bytes(d, shape);
}

status kv_open(struct device *d, const struct kv_shape *shape, struct kv **out, struct error *err)
{
    *out = NULL;
    return d->ops->kv_open(d, shape, out, err);
}

void kv_close(struct device *d, struct kv *kv)
{
    if (kv != NULL)
        d->ops->kv_close(d, kv);
}

status kv_pages_copy(struct device *d, struct kv *kv, const int32_t *src, const int32_t *dst, int pages_n)
{
    return d->ops->kv_pages_copy(d, kv, src, dst, pages_n);
}

status kv_positions_move(struct device *d, struct kv *kv, const struct kv_move *moves, int moves_n)
{
    return d->ops->kv_positions_move(d, kv, moves, moves_n);
}

status kernel_step_begin(struct device *d, const struct step *s)
{
    return d->ops->step_begin(d, s);
}

status kernel_embed(struct device *d, const struct matrix *table, const struct step *s, float scale, void *x)
{
    ASSERT(!table->gated);
    return d->ops->embed(d, table, s, scale, x);
}

status kernel_rmsnorm(struct device *d, const void *x, const float *w, float eps, const int32_t *rows, int rows_n,
                      int dim, void *out)
{
    return d->ops->rmsnorm(d, x, w, eps, rows, rows_n, dim, out);
}

status kernel_gather(struct device *d, enum act role, int dim, const void *in, const int32_t *rows, int rows_n,
                     void *out)
{
    return d->ops->gather(d, role, dim, in, rows, rows_n, out);
}

status kernel_linear(struct device *d, const struct matrix *w, const float *bias, const void *in, int rows_n,
                     enum linear_to to, void *out)
{
    ASSERT(!w->gated);
    return d->ops->linear(d, w, bias, in, rows_n, to, out);
}

status kernel_linear_gated(struct device *d, const struct matrix *w, enum gate_act act, const void *in, int rows_n,
                           void *out)
{
    ASSERT(w->gated);
    return d->ops->linear_gated(d, w, act, in, rows_n, out);
}

status kernel_rope_write(struct device *d, const void *qkv, const struct step *s, int layer,
                         const struct attention_shape *a, const struct rope *rope, const struct qk_norm *norm,
                         struct kv *kv, void *q)
{
    return d->ops->rope_write(d, qkv, s, layer, a, rope, norm, kv, q);
}

status kernel_attention(struct device *d, const void *q, const struct step *s, int layer,
                        const struct attention_shape *a, const struct kv *kv, void *out)
{
    return d->ops->attention(d, q, s, layer, a, kv, out);
}

status kernel_logits(struct device *d, const struct matrix *head, const void *in, int rows_n, float softcap,
                     float *logits)
{
    ASSERT(!head->gated);
    return d->ops->logits(d, head, in, rows_n, softcap, logits);
}

status kernel_sample(struct device *d, float *logits, int vocab, const struct step *s)
{
    return d->ops->sample(d, logits, vocab, s);
}
