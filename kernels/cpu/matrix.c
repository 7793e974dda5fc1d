/* Matrices: from rows of any source to packed blocks, and back to rows for the embedding. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/loops.h"

/* Rows of packed block b: which source, from which row. */
struct load {
    struct cpu_device *c;
    struct cpu_matrix *m;
    const struct matrix_source *sources;
    int sources_n;
};

/* Rows [first, first + count) of the sources one after the other. */
static void rows_read(const struct load *l, int64_t first, int64_t count, float *out)
{
    int i;

    for (i = 0; i < l->sources_n && count > 0; i++) {
        const struct matrix_source *s = &l->sources[i];
        int64_t n = s->rows_n - first < count ? s->rows_n - first : count;

        if (n <= 0) {
            first -= s->rows_n;
            continue;
        }
        s->rows(s->ctx, first, n, out);
        out += n * l->m->base.k;
        count -= n;
        first = 0;
    }
    ASSERT(count == 0);
}

/* 16 rows of fp32 to one block; rows from rows_n on are zero. The walk goes along k inside a row, so that a source row
 * is read once, and the block (K * 32 bytes) stays in the L1 or L2 cache while its lanes fill. */
static void block_pack(const float *rows, int rows_n, int k, bool fp32, char *block)
{
    int n, i;

    for (n = 0; n < CPU_BLOCK; n++) {
        const float *row = rows + (size_t)n * k;

        if (fp32) {
            float *to = (float *)block + n;

            for (i = 0; i < k; i++)
                to[(size_t)i * CPU_BLOCK] = n < rows_n ? row[i] : 0;
        } else {
            uint32_t *to = (uint32_t *)block + n;

            for (i = 0; i < k / 2; i++)
                to[(size_t)i * CPU_BLOCK] =
                    n < rows_n ? bf16_of(row[2 * i]) | (uint32_t)bf16_of(row[2 * i + 1]) << 16 : 0;
        }
    }
}

static void load_part(void *ctx, int thread_i, int threads_n)
{
    const struct load *l = ctx;
    struct cpu_matrix *m = l->m;
    float *rows = cpu_scratch(l->c, thread_i);
    int64_t b, last;

    team_split(m->blocks_n, thread_i, threads_n, &b, &last);
    for (; b < last; b++) {
        int64_t first = (m->base.gated ? b / 2 : b) * CPU_BLOCK;
        int64_t count = m->base.rows_n - first < CPU_BLOCK ? m->base.rows_n - first : CPU_BLOCK;

        if (m->base.gated)
            l->sources[b % 2].rows(l->sources[b % 2].ctx, first, count, rows);
        else
            rows_read(l, first, count, rows);
        block_pack(rows, (int)count, m->base.k, l->c->fp32, m->packed + (size_t)b * m->block_bytes);
    }
}

static status load_packed(struct device *d, int k, const struct matrix_source *sources, int sources_n, bool gated,
                          struct matrix **out, struct error *err)
{
    struct cpu_device *c = cpu_of(d);
    struct cpu_matrix *m = mem_take_zero(1, sizeof *m);
    struct load l = { c, m, sources, sources_n };
    int i;

    for (i = 0; i < (gated ? 1 : sources_n); i++)
        m->base.rows_n += sources[i].rows_n;
    m->base.k = k;
    m->base.gated = gated;
    m->blocks_n = (int)((m->base.rows_n + CPU_BLOCK - 1) / CPU_BLOCK) * (gated ? 2 : 1);
    m->block_bytes = (size_t)k * CPU_BLOCK * (c->fp32 ? 4 : 2);
    m->base.bytes = (size_t)m->blocks_n * m->block_bytes;
    m->packed = cpu_pool_take(c, m->base.bytes, &m->chunk);
    if (m->packed == NULL) {
        error_set(err, ST_FATAL, "no memory for a matrix of %lld x %d (%zu bytes)", (long long)m->base.rows_n, k,
                  m->base.bytes);
        free(m);
        return ST_FATAL;
    }
    cpu_scratch_reserve(c, (size_t)k * CPU_BLOCK * sizeof(float));
    team_run(c->team, load_part, &l);
    *out = &m->base;
    return ST_OK;
}

status cpu_matrix_load(struct device *d, int k, const struct matrix_source *sources, int sources_n,
                       struct matrix **out, struct error *err)
{
    return load_packed(d, k, sources, sources_n, false, out, err);
}

status cpu_matrix_load_gated(struct device *d, int k, const struct matrix_source *gate,
                             const struct matrix_source *up, struct matrix **out, struct error *err)
{
    const struct matrix_source sources[2] = { *gate, *up };

    return load_packed(d, k, sources, 2, true, out, err);
}

void cpu_matrix_give(struct device *d, struct matrix *matrix)
{
    struct cpu_matrix *m = (struct cpu_matrix *)matrix;

    cpu_pool_give(cpu_of(d), m->chunk);
    free(m);
}

/* ---- embedding: a row gathered out of its block ---- */

struct embed {
    const struct cpu_device *c;
    const struct cpu_matrix *m;
    const struct step *s;
    float scale;
    float *x;
};

static void embed_part(void *ctx, int thread_i, int threads_n)
{
    const struct embed *e = ctx;
    int k = e->m->base.k, i;
    int64_t r, last;

    team_split(e->s->rows_n, thread_i, threads_n, &r, &last);
    for (; r < last; r++) {
        int32_t token = e->s->token[r];
        const char *block = e->m->packed + (size_t)(token / CPU_BLOCK) * e->m->block_bytes;
        float *x = e->x + (size_t)r * k;

        ASSERT(token >= 0 && token < e->m->base.rows_n);
        if (e->c->fp32) {
            const float *from = (const float *)block + token % CPU_BLOCK;

            for (i = 0; i < k; i++)
                x[i] = from[(size_t)i * CPU_BLOCK] * e->scale;
        } else {
            const uint32_t *from = (const uint32_t *)block + token % CPU_BLOCK;

            for (i = 0; i < k / 2; i++) {
                uint32_t pair = from[(size_t)i * CPU_BLOCK];

                x[2 * i] = bf16_float((uint16_t)pair) * e->scale;
                x[2 * i + 1] = bf16_float((uint16_t)(pair >> 16)) * e->scale;
            }
        }
    }
}

status cpu_embed(struct device *d, const struct matrix *table, const struct step *s, float scale, void *x)
{
    struct embed e = { cpu_of(d), (const struct cpu_matrix *)table, s, scale, x };

    team_run(e.c->team, embed_part, &e);
    return ST_OK;
}
