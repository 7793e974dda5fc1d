/* Matrices: rows in fp32 from any source, through pinned memory, to bf16 [n, k] on the device, where they stay. */
#include "kernels/cuda/cuda.h"

#include <stdlib.h>

#define LOAD_BYTES ((size_t)32 << 20)          /* of fp32 rows at once: threads fill one block while the other is sent */

struct fill {
    const struct matrix_source *source;
    int64_t first, count;
    int k;
    float *to;
};

static void fill_part(void *ctx, int part_i, int parts_n)
{
    const struct fill *f = ctx;
    int64_t first, last;

    team_split(f->count, part_i, parts_n, &first, &last);
    if (first < last)
        f->source->rows(f->source->ctx, f->first + first, last - first, f->to + first * f->k);
}

/* All rows of a source to the matrix, from row `at` on. */
static status source_load(struct cuda_device *c, const struct matrix_source *source, int k, struct cuda_matrix *m, int64_t at)
{
    struct fill f = { .source = source, .k = k };
    int64_t most = (int64_t)(LOAD_BYTES / ((size_t)k * 4));
    status st = ST_OK;

    most = most < 1 ? 1 : most;
    for (; f.first < source->rows_n; f.first += f.count) {
        struct cuda_block *b;
        size_t bytes;

        f.count = source->rows_n - f.first < most ? source->rows_n - f.first : most;
        bytes = (size_t)f.count * (size_t)k * sizeof *f.to;
        TRY(cuda_block_take(c, &c->loads, bytes, &b));
        f.to = (float *)b->host;
        team_run(c->team, fill_part, &f);
        TRY(cuda_block_send(c, b, bytes));
        if (c->fp32)
            TRY(st_cuda(cudaMemcpyAsync(m->wide + (size_t)(at + f.first) * (size_t)k, b->device, bytes, cudaMemcpyDeviceToDevice,
                                        c->stream), "copy"));
        else
            TRY(st_cuda(launch_pack(c->stream, (const float *)b->device, f.count * k,
                                    m->w + (size_t)(at + f.first) * (size_t)k), "pack"));
    }
out:
    return st;
}

static status load(struct device *d, int k, const struct matrix_source *sources, int sources_n, bool gated,
                   struct matrix **out, struct error *err)
{
    struct cuda_device *c = cuda_of(d);
    struct cuda_matrix *m = mem_take_zero(1, sizeof *m);
    int64_t n = 0, at = 0;
    status st = ST_OK;

    for (int i = 0; i < sources_n; i++)
        n += sources[i].rows_n;
    m->n = (int)n;
    m->base.rows_n = gated ? n / 2 : n;
    m->base.k = k;
    m->base.gated = gated;
    m->base.bytes = (size_t)n * (size_t)k * (c->fp32 ? sizeof *m->wide : sizeof *m->w);
    if (c->fp32)
        m->wide = cuda_memory_take(d, m->base.bytes);
    else
        m->w = cuda_memory_take(d, m->base.bytes);
    if (m->w == NULL && m->wide == NULL) {
        st = error_set(err, ST_FATAL, "%s has no memory for a matrix of %lld x %d (%zu bytes)", d->info.name, (long long)n, k,
                       m->base.bytes);
        goto out;
    }
    for (int i = 0; i < sources_n && st == ST_OK; i++) {
        st = source_load(c, &sources[i], k, m, at);
        at += sources[i].rows_n;
    }
    if (st == ST_OK)               /* before anything reads it: wide products do so while the kernel before them still runs */
        st = st_cuda(cudaStreamSynchronize(c->stream), "loading of a matrix");
    if (st == ST_OK && !c->fp32)
        st = cuda_product_shape(c, m);
    if (st != ST_OK) {
        error_set(err, st, "a matrix of %lld x %d does not come onto %s; the log has the reason", (long long)n, k,
                  d->info.name);
        goto out;
    }
    *out = &m->base;
    m = NULL;
out:
    if (m != NULL)
        cuda_matrix_give(d, &m->base);
    return st;
}

status cuda_matrix_load(struct device *d, int k, const struct matrix_source *sources, int sources_n,
                        struct matrix **out, struct error *err)
{
    return load(d, k, sources, sources_n, false, out, err);
}

status cuda_matrix_load_gated(struct device *d, int k, const struct matrix_source *gate,
                              const struct matrix_source *up, struct matrix **out, struct error *err)
{
    const struct matrix_source sources[2] = { *gate, *up };

    return load(d, k, sources, 2, true, out, err);
}

void cuda_matrix_give(struct device *d, struct matrix *matrix)
{
    struct cuda_matrix *m = (struct cuda_matrix *)matrix;

    if (m->w != NULL)
        cuda_buffer_give(d, m->w);
    if (m->wide != NULL)
        cuda_buffer_give(d, m->wide);
    free(m);
}

status cuda_embed(struct device *d, const struct matrix *table, const struct step *s, float scale, void *x)
{
    struct cuda_device *c = cuda_of(d);
    const struct cuda_matrix *m = (const struct cuda_matrix *)table;

    cuda_step_check(c, s);
    ASSERT(c->step.token_least >= 0 && c->step.token_most < table->rows_n);
    return st_cuda(launch_embed(c->stream, c->fp32, c->fp32 ? (const void *)m->wide : m->w, c->step.token, s->rows_n,
                                table->k, scale, x), "embed");
}
