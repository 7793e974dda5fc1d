/* Matrices: from rows of any source to packed strips, and back to rows for the embedding. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/loops.h"

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

/* `n` rows of fp32 (the rest of a half is zero) into one half of a strip. The walk goes along k inside a row, so that a
 * source row is read once, and the strip (K * 64 bytes) stays in the L2 cache while its lanes fill. */
static void half_pack(const float *rows, int n, int k, bool fp32, char *half)
{
    int r, i;

    for (r = 0; r < HALF; r++) {
        const float *row = rows + (size_t)r * k;

        if (fp32) {
            float *to = (float *)half + r;

            for (i = 0; i < k; i++)
                to[(size_t)i * STRIP] = r < n ? row[i] : 0;
        } else {
            uint32_t *to = (uint32_t *)half + r;

            for (i = 0; i < k / 2; i++)
                to[(size_t)i * STRIP] =
                    r < n ? bf16_of(row[2 * i]) | (uint32_t)bf16_of(row[2 * i + 1]) << 16 : 0;
        }
    }
}

static void load_part(void *ctx, int thread_i, int threads_n)
{
    const struct load *l = ctx;
    struct cpu_matrix *m = l->m;
    float *rows = cpu_scratch(l->c, thread_i);
    int64_t s, last;
    int half;

    team_split(m->strips_n, thread_i, threads_n, &s, &last);
    for (; s < last; s++)
        for (half = 0; half < 2; half++) {
            int64_t first = m->base.gated ? s * HALF : s * STRIP + half * HALF, n = m->base.rows_n - first;

            n = n < 0 ? 0 : n < HALF ? n : HALF;
            if (m->base.gated)
                l->sources[half].rows(l->sources[half].ctx, first, n, rows);
            else
                rows_read(l, first, n, rows);
            half_pack(rows, (int)n, m->base.k, l->c->fp32,
                      m->packed + (size_t)s * m->strip_bytes + (size_t)half * HALF * 4);
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
    m->strips_n = (int)((m->base.rows_n + (gated ? HALF : STRIP) - 1) / (gated ? HALF : STRIP));
    m->strip_bytes = (size_t)k * STRIP * (c->fp32 ? 4 : 2);
    m->base.bytes = (size_t)m->strips_n * m->strip_bytes;
    m->packed = cpu_pool_take(c, m->base.bytes, &m->chunk);
    if (m->packed == NULL) {
        error_set(err, ST_FATAL, "no memory for a matrix of %lld x %d (%zu bytes)", (long long)m->base.rows_n, k,
                  m->base.bytes);
        free(m);
        return ST_FATAL;
    }
    cpu_scratch_reserve(c, (size_t)k * HALF * sizeof(float));
    team_run(c->team, load_part, &l);
    m->before = c->newest;
    if (m->before != NULL)
        m->before->after = m;
    c->newest = m;
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

    if (m->before != NULL)
        m->before->after = m->after;
    if (m->after != NULL)
        m->after->before = m->before;
    else
        cpu_of(d)->newest = m->before;
    cpu_pool_give(cpu_of(d), m->chunk);
    free(m);
}

/* ---- embedding: a row gathered out of its strip ---- */

#define EMBED_ALONE_MAX 2          /* rows that one thread has gathered before the others have begun */

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
        float *x = e->x + (size_t)r * k;
        const char *lane;

        ASSERT(token >= 0 && token < e->m->base.rows_n);
        lane = e->m->packed + (size_t)(token / STRIP) * e->m->strip_bytes + (size_t)(token % STRIP) * 4;
        if (e->c->fp32) {
            const float *from = (const float *)lane;

            for (i = 0; i < k; i++)
                x[i] = from[(size_t)i * STRIP] * e->scale;
        } else {
            const uint32_t *from = (const uint32_t *)lane;

            for (i = 0; i < k / 2; i++) {
                uint32_t pair = from[(size_t)i * STRIP];

                x[2 * i] = bf16_float((uint16_t)pair) * e->scale;
                x[2 * i + 1] = bf16_float((uint16_t)(pair >> 16)) * e->scale;
            }
        }
    }
}

status cpu_embed(struct device *d, const struct matrix *table, const struct step *s, float scale, void *x)
{
    struct embed e = { cpu_of(d), (const struct cpu_matrix *)table, s, scale, x };

    if (s->rows_n <= EMBED_ALONE_MAX)
        embed_part(&e, 0, 1);
    else
        team_run(e.c->team, embed_part, &e);
    return ST_OK;
}
