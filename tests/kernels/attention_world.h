/* tests/kernels/attention_world.h - a device with a pool of pages, steps run on it, and what attention makes of them in
 * plain double. For one test program; included after cmocka. */
#ifndef TESTS_KERNELS_ATTENTION_WORLD_H
#define TESTS_KERNELS_ATTENTION_WORLD_H

#include <math.h>
#include <stdlib.h>

#include "tests/kernels/devices.h"

#define LAYERS 2
#define STEP_ROWS_MAX 640
#define STEP_SEQS_MAX 64

struct attention_case {
    struct attention_shape shape;
    enum rope_pairs pairs;
    int rope_dim;
    bool norm;
};

static const struct attention_case cases[] = {
    { { 9, 3, 64, 0.125f, 0, 0 }, ROPE_HALVES, 64, false },
    { { 4, 4, 32, 0.2f, 0, 0 }, ROPE_NEIGHBOURS, 32, false },
    { { 8, 2, 128, 0.088388f, 0, 0 }, ROPE_HALVES, 64, true },
    { { 2, 1, 256, 0.0625f, 20, 40 }, ROPE_HALVES, 256, true },
    { { 5, 1, 6, 0.4f, 0, 17 }, ROPE_NEIGHBOURS, 4, false },
    { { 52, 2, 16, 0.25f, 5, 0 }, ROPE_HALVES, 0, false },
    { { 7, 7, 80, 0.1118f, 0, 130 }, ROPE_HALVES, 32, false },
};
#ifdef __SANITIZE_THREAD__             /* races do not depend on the shape, and every load costs there */
#define CASES 2
#else
#define CASES ((int)(sizeof cases / sizeof cases[0]))
#endif

/* ---- a world: a device, a pool, and steps run on it ---- */

struct world {
    struct device *d;
    const struct attention_case *c;
    struct kv *kv;
    int pages_n, pages_used;
    int32_t *page_order;           /* pages are taken in this order */
    struct rope rope;
    struct qk_norm norm;
    float norm_weight[256];        /* what both norms of the device hold */
    void *qkv, *q, *out;
    int32_t pos[STEP_ROWS_MAX], parent[STEP_ROWS_MAX];
    int64_t content[STEP_ROWS_MAX];            /* what the row's token is: decides its query, key and value */
    struct seq_span seq[STEP_SEQS_MAX];
    struct step step;
    size_t q_bytes, out_bytes;     /* of a row */
};

/* What a layer's products would have made of a token. */
static void qkv_make(const struct attention_shape *a, int64_t content, int layer, float *out)
{
    int n = (a->heads_n + 2 * a->kv_heads_n) * a->head_dim, i;
    uint64_t random = (uint64_t)content * 4 + (uint64_t)layer;

    for (i = 0; i < n; i++)
        out[i] = (float)(random_unit(&random) * 3.4 - 1.7);
}

/* Head sizes that the CUDA device has no attention for are left out there. */
static bool case_runs(const struct device_kind *kind, const struct attention_case *c)
{
    return strcmp(kind->isa, "cuda") != 0 || c->shape.head_dim % 8 == 0;
}

static void world_open(struct world *w, struct device *d, const struct attention_case *c, int pages_n, uint64_t order)
{
    const struct attention_shape *a = &c->shape;
    struct kv_shape shape = { LAYERS, a->kv_heads_n, a->head_dim, pages_n };
    float values[256];
    int i;

    memset(w, 0, sizeof *w);
    w->d = d;
    w->c = c;
    w->pages_n = pages_n;
    w->page_order = malloc((size_t)pages_n * sizeof *w->page_order);
    for (i = 0; i < pages_n; i++)
        w->page_order[i] = i;
    for (i = pages_n - 1; i > 0 && order != 0; i--) {
        int j = (int)(random_next(&order) % (uint64_t)(i + 1));
        int32_t t = w->page_order[i];

        w->page_order[i] = w->page_order[j];
        w->page_order[j] = t;
    }
    assert_int_equal(kv_open(d, &shape, &w->kv, NULL), ST_OK);
    for (i = 0; i < c->rope_dim / 2; i++)
        values[i] = (float)pow(10000, -2.0 * i / c->rope_dim);
    w->rope = (struct rope){ c->pairs, c->rope_dim, vector_load(d, values, c->rope_dim / 2 + 1), 1 };
    for (i = 0; i < a->head_dim; i++)
        w->norm_weight[i] = 0.5f + (float)(i % 7) / 7;
    w->norm = (struct qk_norm){ vector_load(d, w->norm_weight, a->head_dim), vector_load(d, w->norm_weight, a->head_dim),
                                1e-6f };
    w->q_bytes = device_act_bytes(d, ACT_QUERY, a->heads_n * a->head_dim);
    w->out_bytes = device_act_bytes(d, ACT_ATTENDED, a->heads_n * a->head_dim);
    w->qkv = device_buffer_take(d, STEP_ROWS_MAX * device_act_bytes(d, ACT_QKV, (a->heads_n + 2 * a->kv_heads_n) *
                                                                   a->head_dim));
    w->q = device_buffer_take(d, STEP_ROWS_MAX * w->q_bytes);
    w->out = device_buffer_take(d, STEP_ROWS_MAX * w->out_bytes);
    w->step = (struct step){ .pos = w->pos, .parent = w->parent, .seq = w->seq };
}

static void world_close(struct world *w)
{
    kv_close(w->d, w->kv);
    device_buffer_give(w->d, (void *)(uintptr_t)w->rope.inv_freq);
    device_buffer_give(w->d, (void *)(uintptr_t)w->norm.q);
    device_buffer_give(w->d, (void *)(uintptr_t)w->norm.k);
    device_buffer_give(w->d, w->qkv);
    device_buffer_give(w->d, w->q);
    device_buffer_give(w->d, w->out);
    free(w->page_order);
}

static void pages_take(struct world *w, int32_t *pages, int n)
{
    int i;

    for (i = 0; i < n; i++) {
        assert_true(w->pages_used < w->pages_n);
        pages[i] = w->page_order[w->pages_used++];
    }
}

static void step_clear(struct world *w)
{
    w->step.rows_n = w->step.seqs_n = 0;
}

/* Adds rows [first, first + n) of a chain of contents base + position. */
static void step_chain(struct world *w, const int32_t *pages, int64_t base, int first, int n)
{
    struct step *s = &w->step;
    int i;

    assert_true(s->rows_n + n <= STEP_ROWS_MAX && s->seqs_n < STEP_SEQS_MAX);
    w->seq[s->seqs_n++] = (struct seq_span){ s->rows_n, n, first, 0, pages };
    for (i = 0; i < n; i++, s->rows_n++) {
        w->content[s->rows_n] = base + first + i;
        w->pos[s->rows_n] = first + i;
        w->parent[s->rows_n] = i > 0 ? s->rows_n - 1 : -1;
    }
}

static void layer_write(struct world *w, int layer)
{
    const struct attention_shape *a = &w->c->shape;
    int width = (a->heads_n + 2 * a->kv_heads_n) * a->head_dim, r;

    for (r = 0; r < w->step.rows_n; r++)
        qkv_make(a, w->content[r], layer, (float *)w->qkv + (size_t)r * (size_t)width);
    memset(w->q, 0xff, (size_t)w->step.rows_n * w->q_bytes);
    assert_int_equal(kernel_step_begin(w->d, &w->step), ST_OK);
    assert_int_equal(kernel_rope_write(w->d, w->qkv, &w->step, layer, a, &w->rope, w->c->norm ? &w->norm : NULL, w->kv,
                                       w->q), ST_OK);
    assert_int_equal(device_sync(w->d), ST_OK);                /* qkv is written again by the next one */
}

/* Runs the step; afterwards out holds both layers' rows, one after the other, in result. */
static void step_run(struct world *w, char *result)
{
    int layer;

    for (layer = 0; layer < LAYERS; layer++) {
        layer_write(w, layer);
        memset(w->out, 0xff, (size_t)w->step.rows_n * w->out_bytes);
        assert_int_equal(kernel_attention(w->d, w->q, &w->step, layer, &w->c->shape, w->kv, w->out), ST_OK);
        assert_int_equal(device_sync(w->d), ST_OK);
        memcpy(result + (size_t)layer * (size_t)w->step.rows_n * w->out_bytes, w->out,
               (size_t)w->step.rows_n * w->out_bytes);
    }
}

static const char *result_row(const struct world *w, const char *result, int layer, int row)
{
    return result + ((size_t)layer * (size_t)w->step.rows_n + (size_t)row) * w->out_bytes;
}

static char *result_take(const struct world *w)
{
    return malloc(LAYERS * STEP_ROWS_MAX * w->out_bytes);
}

/* Earlier owners of the pages: keys that are NaN, values that are huge, values that are not finite. */
static void pages_poison(struct world *w)
{
    const struct attention_shape *a = &w->c->shape;
    int width = (a->heads_n + 2 * a->kv_heads_n) * a->head_dim, layer, r, i, p, at = a->heads_n * a->head_dim;

    for (p = 0; p < w->pages_n; p++) {
        int32_t page = p;

        step_clear(w);
        step_chain(w, &page, 0, 0, PAGE_POSITIONS);
        for (r = 0; r < PAGE_POSITIONS; r++)
            for (i = at; i < width; i++)
                ((float *)w->qkv)[r * width + i] = i < at + a->kv_heads_n * a->head_dim ? NAN :
                                                   r % 3 == 0 ? INFINITY : r % 3 == 1 ? -1e30f : NAN;
        assert_int_equal(kernel_step_begin(w->d, &w->step), ST_OK);
        for (layer = 0; layer < LAYERS; layer++)
            assert_int_equal(kernel_rope_write(w->d, w->qkv, &w->step, layer, a, &w->rope, NULL, w->kv, w->q), ST_OK);
        assert_int_equal(device_sync(w->d), ST_OK);
    }
}

/* ---- the reference ---- */

static void reference_head(const struct attention_case *c, const float *in, const float *weight, int pos, double *out)
{
    int dim = c->shape.head_dim, half = c->rope_dim / 2, i;
    double sum = 0, x[256];

    for (i = 0; i < dim; i++)
        sum += (double)in[i] * in[i];
    for (i = 0; i < dim; i++)
        out[i] = x[i] = weight != NULL ? in[i] / sqrt(sum / dim + 1e-6) * weight[i] : in[i];
    for (i = 0; i < half; i++) {
        double angle = pos * pow(10000, -2.0 * i / c->rope_dim);
        int a = c->pairs == ROPE_HALVES ? i : 2 * i, b = c->pairs == ROPE_HALVES ? i + half : 2 * i + 1;

        out[a] = x[a] * cos(angle) - x[b] * sin(angle);
        out[b] = x[b] * cos(angle) + x[a] * sin(angle);
    }
}

/* Keys [length][kv_heads][dim] after rope and values of positions 0.. of a sequence whose contents are given. */
struct reference { double *k; float *v; };

static void reference_fill(const struct world *w, const int64_t *content, int length, int layer, struct reference *ref)
{
    const struct attention_shape *a = &w->c->shape;
    int dim = a->head_dim, p, h;
    float *qkv = malloc((size_t)((a->heads_n + 2 * a->kv_heads_n) * dim) * sizeof *qkv);

    ref->k = malloc((size_t)(length * a->kv_heads_n * dim) * sizeof *ref->k);
    ref->v = malloc((size_t)(length * a->kv_heads_n * dim) * sizeof *ref->v);
    for (p = 0; p < length; p++) {
        qkv_make(a, content[p], layer, qkv);
        for (h = 0; h < a->kv_heads_n; h++)
            reference_head(w->c, qkv + (a->heads_n + h) * dim, w->c->norm ? w->norm_weight : NULL, p,
                           ref->k + (p * a->kv_heads_n + h) * dim);
        memcpy(ref->v + p * a->kv_heads_n * dim, qkv + (a->heads_n + a->kv_heads_n) * dim,
               (size_t)(a->kv_heads_n * dim) * sizeof *qkv);
    }
    free(qkv);
}

static void reference_free(struct reference *ref)
{
    free(ref->k);
    free(ref->v);
}

static void reference_row(const struct world *w, const struct reference *ref, int64_t content, int pos, int layer,
                          double *out)
{
    const struct attention_shape *a = &w->c->shape;
    int dim = a->head_dim, group = a->heads_n / a->kv_heads_n, h, p, i;
    int first = a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
    float *qkv = malloc((size_t)((a->heads_n + 2 * a->kv_heads_n) * dim) * sizeof *qkv);
    double q[256], *score = malloc((size_t)(pos + 1) * sizeof *score);

    qkv_make(a, content, layer, qkv);
    for (h = 0; h < a->heads_n; h++) {
        double max = -INFINITY, sum = 0;

        reference_head(w->c, qkv + h * dim, w->c->norm ? w->norm_weight : NULL, pos, q);
        for (p = first; p <= pos; p++) {
            const double *k = ref->k + (p * a->kv_heads_n + h / group) * dim;

            for (i = 0, score[p] = 0; i < dim; i++)
                score[p] += q[i] * k[i];
            score[p] *= a->scale;
            if (a->softcap > 0)
                score[p] = a->softcap * tanh(score[p] / a->softcap);
            max = fmax(max, score[p]);
        }
        memset(out + h * dim, 0, (size_t)dim * sizeof *out);
        for (p = first; p <= pos; p++) {
            double e = exp(score[p] - max);

            sum += e;
            for (i = 0; i < dim; i++)
                out[h * dim + i] += e * (double)ref->v[(p * a->kv_heads_n + h / group) * dim + i];
        }
        for (i = 0; i < dim; i++)
            out[h * dim + i] /= sum;
    }
    free(qkv);
    free(score);
}

static void row_near(const struct world *w, const char *row, const double *expected)
{
    int n = w->c->shape.heads_n * w->c->shape.head_dim, i;
    bool fp32 = w->out_bytes == (size_t)n * 4;
    double sum = 0;

    for (i = 0; i < n; i++) {
        double got, off;

        if (fp32) {
            got = (double)((const float *)row)[i];
        } else {
            uint32_t u = (uint32_t)((const uint16_t *)row)[i] << 16;
            float f;

            memcpy(&f, &u, 4);
            got = (double)f;
        }
        off = fabs(got - expected[i]);
        if (!(off <= (fp32 ? 2e-5 : 6e-2)))
            fail_msg("%s: head size %d, element %d: %g, expected %g", device_info(w->d)->isa, w->c->shape.head_dim, i,
                     got, expected[i]);
        sum += off;
    }
    assert_true(sum / n < (fp32 ? 2e-6 : 8e-3));
}

#endif
