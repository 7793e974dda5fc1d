#include "tools/bench/bench_gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "worker/model/model.h"

enum { ROWS_MAX = 2048, SEQS_MAX = 256, REPEATS_MAX = 200, COPIES = 6, KV_LAYERS = 3 };

struct bench {
    struct device *d;
    const struct bench_gpu *o;
    FILE *out;
    struct model *m;                       /* NULL: products and attention have no need of it */
    struct model_shape shape;
    struct device_ceilings top;
    struct kv *kv;
    struct kv_shape kv_shape;
    int32_t *pages;                        /* [kv_shape.pages_n] shuffled */
    struct step step;
    struct attention_shape attention;
    struct rope rope;
    struct matrix *matrix[COPIES];
    void *in, *out_rows, *q;
    float *host;                           /* random numbers, ROWS_MAX of the widest row */
    float *logits;
    int rows;
    bool gated, add;
};

static uint32_t random_next(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 8;
}

/* ---- timing ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median microseconds of one call of run, over rounds of `calls` calls. */
static status timed(struct bench *b, status (*run)(struct bench *b, int call), int calls, double *us)
{
    double all[REPEATS_MAX];
    int64_t end, start;
    int n = 0, warm = 1;
    status st = ST_OK;

    end = clock_mono_ns() + (int64_t)(b->o->seconds * 1e9);
    while (n < 3 || (n < REPEATS_MAX && clock_mono_ns() < end)) {
        start = clock_mono_ns();
        for (int i = 0; i < calls; i++)
            TRY(run(b, i));
        TRY(device_sync(b->d));
        all[n] = (double)(clock_mono_ns() - start) / 1e3 / calls;
        n += warm == 0;
        warm = 0;
    }
    qsort(all, (size_t)n, sizeof all[0], compare);
    *us = all[n / 2];
out:
    return st;
}

static void line(struct bench *b, const char *op, const char *what, double us, double flops, double bytes)
{
    double tflops = flops / us / 1e6, gb_s = bytes / us / 1e3;

    fprintf(b->out, b->o->csv ? "%s,%s,%s,%.2f,%.1f,%.3f,%.1f,%.3f\n" : "%-14s %-10s %-34s %10.2f us %8.1f TFLOP/s %6.3f %8.1f GB/s %6.3f\n",
            b->shape.name, op, what, us, tflops, tflops * 1e12 / b->top.dot_flops, gb_s, gb_s * 1e9 / b->top.read_bytes_s);
    fflush(b->out);
}

/* ---- products ---- */

static void rows_random(const void *ctx, int64_t first, int64_t count, float *out)
{
    int k = *(const int *)ctx;
    uint32_t x = (uint32_t)first * 2654435761u + 12345;

    for (int64_t i = 0; i < count * k; i++)
        out[i] = ((float)random_next(&x) - 8388608.0f) / 8388608.0f / sqrtf((float)k);
}

static status product_run(struct bench *b, int call)
{
    struct matrix *m = b->matrix[call % COPIES];

    if (b->gated)
        return kernel_linear_gated(b->d, m, GATE_SILU, b->in, b->rows, b->out_rows);
    return kernel_linear(b->d, m, NULL, b->in, b->rows, b->add ? LINEAR_ADD : LINEAR_STORE, b->out_rows);
}

/* One product at every row count; more copies of the weights than a cache holds. */
static status product_bench(struct bench *b, const char *op, int n, int k, bool gated, bool add, int rows_max,
                            struct error *err)
{
    static const int rows[] = { 1, 4, 8, 16, 32, 64, 128, 256, 512, 2048 };
    struct matrix_source s = { rows_random, &k, n };
    size_t bytes = (size_t)n * (size_t)k * (gated ? 4 : 2);
    int copies = (int)((256u << 20) / bytes) + 1;
    status st = ST_OK;

    copies = copies < COPIES ? copies : COPIES;
    for (int i = 0; i < copies; i++)
        TRY(gated ? matrix_load_gated(b->d, k, &s, &s, &b->matrix[i], err) : matrix_load(b->d, k, &s, 1, &b->matrix[i], err));
    for (int i = copies; i < COPIES; i++)
        b->matrix[i] = b->matrix[i % copies];
    b->gated = gated;
    b->add = add;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && rows[i] <= rows_max; i++) {
        char what[64];
        double us;

        b->rows = rows[i];
        snprintf(what, sizeof what, "%dx%d rows %d", gated ? 2 * n : n, k, rows[i]);
        TRY(timed(b, product_run, 4 * COPIES, &us));
        line(b, op, what, us, 2.0 * (double)(bytes / 2) * rows[i], (double)bytes);
    }
out:
    for (int i = 0; i < copies; i++)
        matrix_give(b->d, b->matrix[i]);
    memset(b->matrix, 0, sizeof b->matrix);
    return st;
}

static status norm_run(struct bench *b, int call)
{
    (void)call;
    return kernel_rmsnorm(b->d, b->in, (const float *)b->rope.inv_freq, 1e-5f, NULL, b->rows, b->shape.head_dim / 2, b->q);
}

static status products_bench(struct bench *b, struct error *err)
{
    const struct model_shape *s = &b->shape;
    const int q = s->heads_n * s->head_dim, kv = s->kv_heads_n * s->head_dim;
    double us;
    status st = ST_OK;

    TRY(product_bench(b, "qkv", q + 2 * kv, s->dim, false, false, ROWS_MAX, err));
    TRY(product_bench(b, "o", s->dim, q, false, true, ROWS_MAX, err));
    TRY(product_bench(b, "gate+up", s->ff, s->dim, true, false, ROWS_MAX, err));
    TRY(product_bench(b, "down", s->dim, s->ff, false, true, ROWS_MAX, err));
    TRY(product_bench(b, "head", s->vocab, s->dim, false, false, SEQS_MAX, err));
    b->rows = 1;
    TRY(timed(b, norm_run, 200, &us));
    line(b, "launch", "smallest norm: cost of a call", us, 0, 0);
out:
    return st;
}

/* ---- attention ---- */

/* seqs_n sequences of `rows` rows behind cached_n positions (ragged: half to one and a half of it). */
static void step_make(struct bench *b, int seqs_n, int rows, int cached_n, bool ragged)
{
    struct step *s = &b->step;
    uint32_t x = 99;
    int page = 0;

    s->rows_n = s->seqs_n = s->outs_n = 0;
    for (int i = 0; i < seqs_n; i++) {
        int cached = ragged ? cached_n / 2 + (int)(random_next(&x) % (uint32_t)cached_n) : cached_n;

        s->seq[i] = (struct seq_span){ s->rows_n, rows, cached, 0, b->pages + page };
        page += (cached + rows + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
        ASSERT(page <= b->kv_shape.pages_n && s->rows_n + rows <= 8 * ROWS_MAX);
        for (int r = 0; r < rows; r++, s->rows_n++) {
            s->token[s->rows_n] = (int32_t)(random_next(&x) % (uint32_t)b->shape.vocab);
            s->pos[s->rows_n] = cached + r;
            s->parent[s->rows_n] = r > 0 ? s->rows_n - 1 : -1;
        }
        s->want[i] = s->rows_n - 1;
        s->sampling[i] = (struct sampling){ .top_p = 1, .repetition = 1, .target = -1, .top_logprobs_n = -1, .pos = s->pos[s->rows_n - 1] + 1 };
        s->seqs_n++;
        s->outs_n++;
    }
}

static status rope_run(struct bench *b, int call)
{
    return kernel_rope_write(b->d, b->in, &b->step, call % KV_LAYERS, &b->attention, &b->rope, NULL, b->kv, b->q);
}

static status attention_run(struct bench *b, int call)
{
    return kernel_attention(b->d, b->q, &b->step, call % KV_LAYERS, &b->attention, b->kv, b->out_rows);
}

/* Random keys and values in every page. */
static status pages_fill(struct bench *b)
{
    int positions = b->kv_shape.pages_n * PAGE_POSITIONS;
    status st = ST_OK;

    for (int at = 0; at < positions; at += ROWS_MAX) {
        struct step *s = &b->step;

        s->rows_n = positions - at < ROWS_MAX ? positions - at : ROWS_MAX;
        s->seqs_n = 1;
        s->seq[0] = (struct seq_span){ 0, s->rows_n, 0, 0, b->pages + at / PAGE_POSITIONS };
        for (int r = 0; r < s->rows_n; r++) {
            s->token[r] = 0;
            s->pos[r] = r;
            s->parent[r] = r - 1;
        }
        TRY(kernel_step_begin(b->d, s));
        for (int layer = 0; layer < KV_LAYERS; layer++)
            TRY(rope_run(b, layer));
    }
    TRY(device_sync(b->d));
out:
    return st;
}

static status attention_case(struct bench *b, const char *name, int seqs, int rows, int cached, bool ragged)
{
    const struct model_shape *m = &b->shape;
    double us, seen = 0, positions = 0;
    status st = ST_OK;

    step_make(b, seqs, rows, cached, ragged);
    for (int i = 0; i < seqs; i++) {
        seen += (double)rows * (b->step.seq[i].cached_n + (rows + 1) / 2.0);
        positions += b->step.seq[i].cached_n + rows;
    }
    TRY(kernel_step_begin(b->d, &b->step));
    TRY(rope_run(b, 0));
    TRY(timed(b, attention_run, 12, &us));
    line(b, "attention", name, us, 4 * seen * m->heads_n * m->head_dim, positions * 4 * m->kv_heads_n * m->head_dim);
    TRY(timed(b, rope_run, 12, &us));
    line(b, "rope", name, us, 0, (double)b->step.rows_n * (m->heads_n + 2 * m->kv_heads_n) * m->head_dim * 6);
out:
    return st;
}

static status attention_bench(struct bench *b, struct error *err)
{
    const struct model_shape *m = &b->shape;
    uint32_t x = 5;
    status st = ST_OK;

    b->kv_shape = (struct kv_shape){ KV_LAYERS, m->kv_heads_n, m->head_dim, 64 * (8192 + 4096) / PAGE_POSITIONS };
    TRY(kv_open(b->d, &b->kv_shape, &b->kv, err));
    b->pages = mem_take((size_t)b->kv_shape.pages_n * sizeof *b->pages);
    for (int i = 0; i < b->kv_shape.pages_n; i++)
        b->pages[i] = i;
    TRY(pages_fill(b));
    for (int i = b->kv_shape.pages_n - 1; i > 0; i--) {
        int j = (int)(random_next(&x) % (uint32_t)(i + 1));
        int32_t t = b->pages[i];

        b->pages[i] = b->pages[j];
        b->pages[j] = t;
    }
    TRY(attention_case(b, "decode 1 at 1k", 1, 1, 1024, false));
    TRY(attention_case(b, "decode 1 at 8k", 1, 1, 8192, false));
    TRY(attention_case(b, "decode 16 at 1k", 16, 1, 1024, true));
    TRY(attention_case(b, "decode 64 at 1k ragged", 64, 1, 1024, true));
    TRY(attention_case(b, "decode 64 at 4k ragged", 64, 1, 4096, true));
    TRY(attention_case(b, "decode 64 at 8k ragged", 64, 1, 8192, true));
    TRY(attention_case(b, "decode 256 at 1k ragged", 256, 1, 1024, true));
    TRY(attention_case(b, "chunk 512 at 1k", 1, 512, 1024, false));
    TRY(attention_case(b, "prefill 2k", 1, 2048, 0, false));
    TRY(attention_case(b, "prefill 4 x 4k", 4, 4096, 0, false));
out:
    kv_close(b->d, b->kv);
    b->kv = NULL;
    free(b->pages);
    b->pages = NULL;
    return st;
}

/* ---- sampling ---- */

static status sample_run(struct bench *b, int call)
{
    (void)call;
    return kernel_sample(b->d, b->logits, b->shape.vocab, &b->step);
}

static status sample_bench(struct bench *b)
{
    static const struct { const char *name; float t, top_p, min_p; int top_k; } cases[] = {
        { "greedy", 0, 1, 0, 0 }, { "t 0.8", 0.8f, 1, 0, 0 }, { "t 0.8 top-k 40", 0.8f, 1, 0, 40 },
        { "t 0.8 top-p 0.95", 0.8f, 0.95f, 0, 0 }, { "t 0.8 top-k 40 top-p 0.95", 0.8f, 0.95f, 0, 40 },
        { "t 1 min-p 0.05", 1, 1, 0.05f, 0 },
    };
    int vocab = b->shape.vocab;
    float *host = mem_take((size_t)vocab * sizeof *host);
    uint32_t x = 3;
    status st = ST_OK;

    for (int i = 0; i < SEQS_MAX; i++) {       /* a body around 0, a slope up to 20 */
        for (int t = 0; t < vocab; t++) {
            float u = (float)random_next(&x) / 16777216.0f, v = (float)random_next(&x) / 16777216.0f;

            host[t] = (u + v - 1.0f) * 6 - (u > 0.999f ? 2 : 0) * logf(1.0001f - u);
        }
        TRY(device_copy(b->d, b->logits + (size_t)i * (size_t)vocab, host, (size_t)vocab * sizeof *host));
    }
    b->step.outs_n = SEQS_MAX;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double us;

        for (int i = 0; i < SEQS_MAX; i++)
            b->step.sampling[i] = (struct sampling){
                .temperature = cases[c].t, .top_p = cases[c].top_p, .min_p = cases[c].min_p, .top_k = cases[c].top_k,
                .repetition = 1, .seed = (uint64_t)i, .pos = i, .target = -1, .top_logprobs_n = -1,
            };
        TRY(timed(b, sample_run, 4, &us));
        line(b, "sample 256", cases[c].name, us, 0, 4.0 * vocab * SEQS_MAX);
    }
out:
    free(host);
    return st;
}

/* ---- whole steps ---- */

static status forward_run(struct bench *b, int call)
{
    (void)call;
    return model_forward(b->m, &b->step, b->kv);
}

static status step_case(struct bench *b, const char *name, int seqs, int rows, int cached)
{
    const struct model_shape *s = &b->shape;
    double q = (double)s->heads_n * s->head_dim, kv = 2.0 * s->kv_heads_n * s->head_dim, all = (double)seqs * rows;
    double layer = s->dim * (q + kv) + q * s->dim + 3.0 * s->dim * s->ff, head = (double)s->dim * s->vocab, us;
    double seen = all * (cached + (rows + 1) / 2.0);
    status st = ST_OK;

    step_make(b, seqs, rows, cached, false);
    TRY(timed(b, forward_run, 1, &us));
    line(b, "step", name, us, 2 * s->layers_n * layer * all + 2 * head * seqs + 4 * q * s->layers_n * seen,
         2 * (s->layers_n * layer + head) + 2 * kv * s->layers_n * seqs * (double)(cached + rows));
out:
    return st;
}

static status steps_bench(struct bench *b, struct error *err)
{
    enum { CONTEXT = 1024, EACH = CONTEXT / PAGE_POSITIONS + 2 };
    int32_t *page;
    status st = ST_OK;

    TRY(model_open_random(b->o->shape, b->d, ROWS_MAX, SEQS_MAX, &b->m, err));
    b->kv_shape = model_kv_shape(b->m, SEQS_MAX * EACH);
    TRY(kv_open(b->d, &b->kv_shape, &b->kv, err));
    b->pages = mem_take((size_t)b->kv_shape.pages_n * sizeof *b->pages);
    for (int i = 0; i < b->kv_shape.pages_n; i++)
        b->pages[i] = b->kv_shape.pages_n - 1 - i;
    step_make(b, 1, CONTEXT, 0, false);        /* real keys and values of one sequence, in all pages */
    TRY(model_forward(b->m, &b->step, b->kv));
    for (page = b->pages + EACH; page < b->pages + b->kv_shape.pages_n; page += EACH)
        TRY(kv_pages_copy(b->d, b->kv, b->pages, page, EACH));
    TRY(step_case(b, "decode 1 at 1k", 1, 1, CONTEXT));
    TRY(step_case(b, "decode 16 at 1k", 16, 1, CONTEXT));
    TRY(step_case(b, "decode 64 at 1k", 64, 1, CONTEXT));
    TRY(step_case(b, "decode 256 at 1k", 256, 1, CONTEXT));
    TRY(step_case(b, "prefill 512", 1, 512, 0));
    TRY(step_case(b, "prefill 2 x 1k", 2, 1024, 0));
out:
    kv_close(b->d, b->kv);
    model_close(b->m);
    free(b->pages);
    return st;
}

/* ---- all ---- */

static status buffers_take(struct bench *b, struct error *err)
{
    const struct model_shape *s = &b->shape;
    const int qkv = (s->heads_n + 2 * s->kv_heads_n) * s->head_dim;
    const size_t rows = 8 * ROWS_MAX, wide = (size_t)(qkv > s->ff ? qkv : s->ff);
    size_t bytes = rows * wide * 4, logits = (size_t)SEQS_MAX * (size_t)s->vocab * 4;
    float freq[512];
    uint32_t x = 1;
    status st = ST_OK;

    bytes = bytes > logits ? bytes : logits;   /* the head's product goes to out_rows, too */
    b->in = device_memory_take(b->d, rows * wide * 4);
    b->out_rows = device_memory_take(b->d, bytes);
    b->q = device_memory_take(b->d, rows * wide * 2);
    b->logits = device_memory_take(b->d, logits);
    b->host = mem_take((size_t)ROWS_MAX * wide * 4);
    if (b->in == NULL || b->out_rows == NULL || b->q == NULL || b->logits == NULL)
        return error_set(err, ST_REJECT, "the device has no memory for the bench");
    for (size_t i = 0; i < ROWS_MAX * wide; i++)
        b->host[i] = (float)random_next(&x) / 8388608.0f - 1.0f;
    for (size_t i = 0; i < rows / ROWS_MAX; i++)
        TRY(device_copy(b->d, (char *)b->in + i * ROWS_MAX * wide * 4, b->host, (size_t)ROWS_MAX * wide * 4));
    for (int i = 0; i < s->head_dim / 2; i++)
        freq[i] = powf(10000.0f, -2.0f * (float)i / (float)s->head_dim);
    b->rope = (struct rope){ ROPE_HALVES, s->head_dim, vector_load(b->d, freq, s->head_dim / 2), 1 };
    b->attention = (struct attention_shape){ s->heads_n, s->kv_heads_n, s->head_dim, 1.0f / sqrtf((float)s->head_dim), 0, 0 };
    b->step.token = mem_take_zero(rows, sizeof *b->step.token);
    b->step.pos = mem_take_zero(rows, sizeof *b->step.pos);
    b->step.parent = mem_take_zero(rows, sizeof *b->step.parent);
    b->step.seq = mem_take_zero(SEQS_MAX, sizeof *b->step.seq);
    b->step.want = mem_take_zero(SEQS_MAX, sizeof *b->step.want);
    b->step.sampling = mem_take_zero(SEQS_MAX, sizeof *b->step.sampling);
    b->step.sampled = mem_take_zero(SEQS_MAX, sizeof *b->step.sampled);
out:
    return st;
}

static void buffers_give(struct bench *b)
{
    device_buffer_give(b->d, b->in);
    device_buffer_give(b->d, b->out_rows);
    device_buffer_give(b->d, b->q);
    device_buffer_give(b->d, b->logits);
    device_buffer_give(b->d, (void *)(uintptr_t)b->rope.inv_freq);
    free(b->host);
    free(b->step.token);
    free(b->step.pos);
    free(b->step.parent);
    free(b->step.seq);
    free(b->step.want);
    free(b->step.sampling);
    free(b->step.sampled);
}

status bench_gpu_run(struct device *d, const struct bench_gpu *o, FILE *out, struct error *err)
{
    struct bench *b = mem_take_zero(1, sizeof *b);
    status st = ST_OK;

    b->d = d;
    b->o = o;
    b->out = out;
    TRY(model_shape_known(o->shape, &b->shape, err));
    TRY(device_measure(d, &b->top));
    fprintf(out, o->csv ? "# %s (%s): products %.1f TFLOP/s, read %.1f GB/s\nshape,op,case,us,tflops,of_products,gb_s,of_read\n"
                        : "%s (%s): products %.1f TFLOP/s, read %.1f GB/s\n",
            device_info(d)->name, device_info(d)->isa, b->top.dot_flops / 1e12, b->top.read_bytes_s / 1e9);
    TRY(buffers_take(b, err));
    TRY(products_bench(b, err));
    TRY(attention_bench(b, err));
    TRY(sample_bench(b));
    TRY(steps_bench(b, err));
out:
    buffers_give(b);
    free(b);
    return st;
}
