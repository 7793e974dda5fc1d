/* Rotary embedding, and where keys and values go (layout of a page: attend.h).
 *
 * Angles are pos * inv_freq rounded to fp32, as the reference implementations of the families have it; their cos and
 * sin are computed in double by code of our own (no libm, so the same everywhere) and rounded to fp32.
 * Queries are written scaled by attention_shape.scale * log2(e), before they are rounded to bf16: the scores are then
 * exponents of 2, and the scale costs no second rounding. */
#include "kernels/cpu/attend.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/step_memo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct step_memo *step_memo_open(void)
{
    struct step_memo *m = mem_take_zero(1, sizeof *m);

    m->plan = attention_plan_open();
    return m;
}

void step_memo_close(struct step_memo *m)
{
    int i;

    if (m == NULL)
        return;
    for (i = 0; i < TURNS_KEPT; i++) {
        free(m->turns[i].pos);
        free(m->turns[i].inv_freq);
        free(m->turns[i].cos);
        free(m->turns[i].sin);
    }
    attention_plan_close(m->plan);
    free(m);
}

/* ---- cos and sin ---- */

/* |x| < 1.6 million to less than 1 ulp of double. Reduction by pi/2 in two parts, polynomials: fdlibm's k_sin.c and
 * k_cos.c (Sun, 1993). */
static void sin_cos(double x, double *sin_out, double *cos_out)
{
    double n = rint(x * 0.636619772367581343), r, z, s, c;

    r = (x - n * 1.57079632673412561417e+00) - n * 6.07710050650619224932e-11;
    z = r * r;
    s = r + r * z * (-1.66666666666666324348e-01 + z * (8.33333333332248946124e-03 + z * (-1.98412698298579493134e-04 +
        z * (2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)))));
    c = 1.0 - (0.5 * z - z * z * (4.16666666666666019037e-02 + z * (-1.38888888888741095749e-03 +
        z * (2.48015872894767294178e-05 + z * (-2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 +
        z * -1.13596475577881948265e-11))))));
    switch ((int64_t)n & 3) {
    case 0: *sin_out = s; *cos_out = c; break;
    case 1: *sin_out = c; *cos_out = -s; break;
    case 2: *sin_out = -s; *cos_out = -c; break;
    default: *sin_out = -c; *cos_out = s; break;
    }
}

static void turns_part(void *ctx, int thread_i, int threads_n)
{
    const struct turns *t = ctx;
    int64_t row, last;
    int i;

    team_split(t->rows_n, thread_i, threads_n, &row, &last);
    for (; row < last; row++)
        for (i = 0; i < t->half; i++) {
            float angle = (float)t->pos[row] * t->inv_freq[i];
            double s, c;

            sin_cos(angle, &s, &c);
            t->cos[row * t->half + i] = (float)(c * t->magnitude);
            t->sin[row * t->half + i] = (float)(s * t->magnitude);
        }
}

static bool turns_match(const struct turns *t, const struct step *s, const struct rope *rope)
{
    return t->pos != NULL && t->rows_n == s->rows_n && t->half == rope->dim / 2 && t->magnitude == rope->magnitude &&
           memcmp(t->pos, s->pos, (size_t)s->rows_n * sizeof *s->pos) == 0 &&
           (t->half == 0 || memcmp(t->inv_freq, rope->inv_freq, (size_t)t->half * sizeof *t->inv_freq) == 0);
}

static void turns_room(struct turns *t, size_t rows, size_t half)
{
    if (rows <= t->rows_room && half <= t->half_room)
        return;
    t->rows_room = rows > t->rows_room ? rows : t->rows_room;
    t->half_room = half > t->half_room ? half : t->half_room;
    t->pos = mem_grow(t->pos, t->rows_room * sizeof *t->pos);
    t->inv_freq = mem_grow(t->inv_freq, t->half_room * sizeof *t->inv_freq);
    t->cos = mem_grow(t->cos, t->rows_room * t->half_room * sizeof *t->cos);
    t->sin = mem_grow(t->sin, t->rows_room * t->half_room * sizeof *t->sin);
}

static const struct turns *turns_find(struct cpu_device *c, const struct step *s, const struct rope *rope)
{
    struct step_memo *m = c->memo;
    struct turns *t = &m->turns[0];
    int i;

    for (i = 0; i < TURNS_KEPT; i++) {
        if (turns_match(&m->turns[i], s, rope)) {
            m->turns[i].used = ++m->uses;
            return &m->turns[i];
        }
        if (m->turns[i].used < t->used)
            t = &m->turns[i];
    }
    turns_room(t, (size_t)s->rows_n, (size_t)rope->dim / 2 + 1);
    t->rows_n = s->rows_n;
    t->half = rope->dim / 2;
    t->magnitude = rope->magnitude;
    t->used = ++m->uses;
    memcpy(t->pos, s->pos, (size_t)s->rows_n * sizeof *s->pos);
    if (t->half > 0)
        memcpy(t->inv_freq, rope->inv_freq, (size_t)t->half * sizeof *t->inv_freq);
    team_run(c->team, turns_part, t);
    return t;
}

/* ---- rows ---- */

struct rope_write {
    const struct cpu_device *device;
    const struct lane_loops *lanes;
    const float *qkv;
    const struct step *step;
    const struct attention_shape *shape;
    const struct turns *turns;
    const struct qk_norm *norm;
    enum rope_pairs pairs;
    struct kv *kv;
    char *q;
    int layer;
};

/* Nothing but finite values may stand in a page (attend.h says why): others become NaN keys. */
static void values_check(const struct lane_loops *lanes, int dim, float *k, float *v)
{
    int i;

    if (lanes->finite(v, dim))
        return;
    for (i = 0; i < dim; i++) {
        k[i] = NAN;
        v[i] = 0;
    }
}

static void kv_store_fp32(char *part, size_t part_bytes, int at, int dim, const float *k, const float *v)
{
    float *keys = (float *)part + at;
    int i;

    for (i = 0; i < dim; i++)
        keys[i * PAGE_POSITIONS] = k[i];
    memcpy(part + part_bytes + (size_t)at * (size_t)dim * 4, v, (size_t)dim * 4);
}

static void kv_store_bf16(char *part, size_t part_bytes, int at, int dim, const uint16_t *k, const uint16_t *v)
{
    char *keys = part + at * 4;
    uint16_t *values = (uint16_t *)(part + part_bytes) + (size_t)(at / 2) * (size_t)dim * 2 + at % 2;
    int i;

    for (i = 0; i < dim / 2; i++)
        memcpy(keys + i * PAGE_POSITIONS * 4, k + 2 * i, 4);
    for (i = 0; i < dim; i++)
        values[2 * i] = v[i];
}

static void row_write(const struct rope_write *w, int row, int32_t page, int at)
{
    const struct attention_shape *a = w->shape;
    int dim = a->head_dim, h;
    const float *in = w->qkv + (size_t)row * (size_t)(a->heads_n + 2 * a->kv_heads_n) * (size_t)dim;
    struct lane_head head = {
        .head_dim = dim, .turn_dim = w->turns->half * 2, .pairs = w->pairs,
        .cos = w->turns->cos + (size_t)row * (size_t)w->turns->half,
        .sin = w->turns->sin + (size_t)row * (size_t)w->turns->half,
        .norm = w->norm != NULL ? w->norm->q : NULL, .eps = w->norm != NULL ? w->norm->eps : 0,
        .scale = (float)(a->scale * LOG2_E),
    };
    float k[HEAD_DIM_MAX], v[HEAD_DIM_MAX];
    uint16_t k16[HEAD_DIM_MAX], v16[HEAD_DIM_MAX];

    for (h = 0; h < a->heads_n; h++, in += dim) {
        size_t to = ((size_t)row * (size_t)a->heads_n + (size_t)h) * (size_t)dim;

        if (w->device->fp32) {
            w->lanes->head(&head, in, (float *)w->q + to);
        } else {
            w->lanes->head(&head, in, k);
            w->lanes->narrow(k, dim, (uint16_t *)w->q + to);
        }
    }
    head.norm = w->norm != NULL ? w->norm->k : NULL;
    head.scale = 1;
    for (h = 0; h < a->kv_heads_n; h++, in += dim) {
        char *part = kv_part(w->kv, page, w->layer, h);

        w->lanes->head(&head, in, k);
        memcpy(v, in + (size_t)a->kv_heads_n * (size_t)dim, (size_t)dim * sizeof *v);
        values_check(w->lanes, dim, k, v);
        if (w->device->fp32) {
            kv_store_fp32(part, w->kv->part_bytes, at, dim, k, v);
            continue;
        }
        w->lanes->narrow(k, dim, k16);
        w->lanes->narrow(v, dim, v16);
        kv_store_bf16(part, w->kv->part_bytes, at, dim, k16, v16);
    }
}

static void rope_write_part(void *ctx, int thread_i, int threads_n)
{
    const struct rope_write *w = ctx;
    const struct step *s = w->step;
    int64_t first, last;
    int i, row;

    team_split(s->rows_n, thread_i, threads_n, &first, &last);
    for (i = 0; i < s->seqs_n; i++) {
        const struct seq_span *q = &s->seq[i];

        for (row = q->row > first ? q->row : (int)first; row < q->row + q->rows_n && row < last; row++) {
            int slot = q->cached_n + row - q->row;
            int32_t page = q->pages[slot / PAGE_POSITIONS];

            ASSERT(page >= 0 && page < w->kv->shape.pages_n);
            row_write(w, row, page, slot % PAGE_POSITIONS);
        }
    }
}

status cpu_rope_write(struct device *d, const void *qkv, const struct step *s, int layer,
                      const struct attention_shape *a, const struct rope *rope, const struct qk_norm *norm,
                      struct kv *kv, void *q)
{
    struct cpu_device *c = cpu_of(d);
    struct rope_write w = {
        .device = c, .lanes = lanes_of(c), .qkv = qkv, .step = s, .shape = a, .norm = norm, .pairs = rope->pairs,
        .kv = kv, .q = q, .layer = layer,
    };

    ASSERT(a->head_dim == kv->shape.head_dim && a->kv_heads_n == kv->shape.kv_heads_n);
    ASSERT(layer >= 0 && layer < kv->shape.layers_n);
    ASSERT(rope->dim >= 0 && rope->dim <= a->head_dim && rope->dim % 2 == 0);
    w.turns = turns_find(c, s, rope);
    team_run(c->team, rope_write_part, &w);
    return ST_OK;
}
