#include "tools/bench/bench_kernels.h"

#include <stdlib.h>

#include "base/clock.h"

const struct bench_decoder bench_smollm2_135m = { 30, 576, 9, 3, 64, 1536, 49152 };

enum op { OP_EMBED, OP_NORM, OP_QKV, OP_O, OP_GATED, OP_DOWN, OP_HEAD, OPS_N };
static const char *const op_names[OPS_N] = { "embed", "rmsnorm", "qkv", "o", "gate+up", "down", "head" };

struct layer {
    struct matrix *qkv, *o, *gated, *down;
};

struct bench {
    struct device *d;
    struct bench_decoder shape;
    struct layer *layers;
    struct matrix *head;
    float *norm;
    void *residual, *normed, *qkv, *act;
    float *logits;
    struct step step;
    int64_t ns[OPS_N];                 /* of one pass */
};

struct cost { double flops, bytes; };

static int qkv_rows(const struct bench_decoder *s)
{
    return (s->heads_n + 2 * s->kv_heads_n) * s->head_dim;
}

/* What one pass does in an operation: flops, and bytes of weights (norms and embedding: none worth the name). */
static struct cost op_cost(const struct bench *b, enum op op, int rows, int wanted)
{
    const struct bench_decoder *s = &b->shape;
    const struct layer *l = &b->layers[0];
    double n = 0, k = s->dim, times = s->layers_n, bytes = 0;

    switch (op) {
    case OP_QKV: n = qkv_rows(s); bytes = (double)matrix_bytes(l->qkv); break;
    case OP_O: n = s->dim; k = s->heads_n * s->head_dim; bytes = (double)matrix_bytes(l->o); break;
    case OP_GATED: n = 2.0 * s->ff; bytes = (double)matrix_bytes(l->gated); break;
    case OP_DOWN: n = s->dim; k = s->ff; bytes = (double)matrix_bytes(l->down); break;
    case OP_HEAD: n = s->vocab; bytes = (double)matrix_bytes(b->head); times = 1; rows = wanted; break;
    default: break;
    }
    return (struct cost){ 2 * n * k * rows * times, bytes * times };
}

static void rows_random(const void *ctx, int64_t first, int64_t count, float *out)
{
    int k = *(const int *)ctx;
    int64_t i, n = count * k;
    uint32_t x = (uint32_t)first * 2654435761u + 12345;

    for (i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        out[i] = ((float)(x >> 8) - 8388608.0f) * (0.1f / 8388608.0f);
    }
}

static status matrix_random(struct bench *b, int n, int k, bool gated, struct matrix **out, struct error *err)
{
    struct matrix_source s = { rows_random, &k, n };

    return gated ? matrix_load_gated(b->d, k, &s, &s, out, err) : matrix_load(b->d, k, &s, 1, out, err);
}

static status bench_open(struct bench *b, int rows_max, int wanted_max, struct error *err)
{
    status st = ST_OK;
    const struct bench_decoder *s = &b->shape;
    int heads = s->heads_n * s->head_dim, i;
    int64_t start = clock_mono_ns();

    b->layers = mem_take_zero((size_t)s->layers_n, sizeof *b->layers);
    for (i = 0; i < s->layers_n; i++) {
        struct layer *l = &b->layers[i];

        TRY(matrix_random(b, qkv_rows(s), s->dim, false, &l->qkv, err));
        TRY(matrix_random(b, s->dim, heads, false, &l->o, err));
        TRY(matrix_random(b, s->ff, s->dim, true, &l->gated, err));
        TRY(matrix_random(b, s->dim, s->ff, false, &l->down, err));
    }
    TRY(matrix_random(b, s->vocab, s->dim, false, &b->head, err));
    fprintf(stderr, "weights made and packed in %.0f ms\n", (double)(clock_mono_ns() - start) / 1e6);

    b->norm = device_buffer_take(b->d, (size_t)s->dim * sizeof(float));
    for (i = 0; i < s->dim; i++)
        b->norm[i] = 1.0f + (float)(i % 7) * 0.01f;
    b->residual = device_buffer_take(b->d, (size_t)rows_max * device_act_bytes(b->d, ACT_RESIDUAL, s->dim));
    b->normed = device_buffer_take(b->d, (size_t)rows_max * device_act_bytes(b->d, ACT_NORMED,
                                                                              s->dim > heads ? s->dim : heads));
    b->qkv = device_buffer_take(b->d, (size_t)rows_max * device_act_bytes(b->d, ACT_QKV, qkv_rows(s)));
    b->act = device_buffer_take(b->d, (size_t)rows_max * device_act_bytes(b->d, ACT_GATED, s->ff));
    b->logits = device_buffer_take(b->d, (size_t)wanted_max * device_act_bytes(b->d, ACT_LOGITS, s->vocab));
    b->step.token = device_buffer_take(b->d, (size_t)rows_max * sizeof(int32_t));
    for (i = 0; i < rows_max; i++)
        b->step.token[i] = (int32_t)((uint32_t)i * 7919u % (uint32_t)s->vocab);
out:
    return st;
}

static void bench_close(struct bench *b)
{
    int i;

    device_buffer_give(b->d, b->step.token);
    device_buffer_give(b->d, b->logits);
    device_buffer_give(b->d, b->act);
    device_buffer_give(b->d, b->qkv);
    device_buffer_give(b->d, b->normed);
    device_buffer_give(b->d, b->residual);
    device_buffer_give(b->d, b->norm);
    matrix_give(b->d, b->head);
    for (i = 0; b->layers != NULL && i < b->shape.layers_n; i++) {
        matrix_give(b->d, b->layers[i].down);
        matrix_give(b->d, b->layers[i].gated);
        matrix_give(b->d, b->layers[i].o);
        matrix_give(b->d, b->layers[i].qkv);
    }
    free(b->layers);
}

static int64_t lap(struct bench *b, enum op op, int64_t since)
{
    int64_t now = clock_mono_ns();

    b->ns[op] += now - since;
    return now;
}

/* One forward pass without attention: the output product reads the normed rows instead. */
static status pass(struct bench *b, int rows, int wanted)
{
    status st = ST_OK;
    struct device *d = b->d;
    int dim = b->shape.dim, i;
    int64_t t = clock_mono_ns();

    for (i = 0; i < OPS_N; i++)
        b->ns[i] = 0;
    b->step.rows_n = rows;
    TRY(kernel_embed(d, b->head, &b->step, 1.0f, b->residual));
    t = lap(b, OP_EMBED, t);
    for (i = 0; i < b->shape.layers_n; i++) {
        struct layer *l = &b->layers[i];

        TRY(kernel_rmsnorm(d, b->residual, b->norm, 1e-5f, NULL, rows, dim, b->normed));
        t = lap(b, OP_NORM, t);
        TRY(kernel_linear(d, l->qkv, NULL, b->normed, rows, LINEAR_STORE, b->qkv));
        t = lap(b, OP_QKV, t);
        TRY(kernel_linear(d, l->o, NULL, b->normed, rows, LINEAR_ADD, b->residual));
        t = lap(b, OP_O, t);
        TRY(kernel_rmsnorm(d, b->residual, b->norm, 1e-5f, NULL, rows, dim, b->normed));
        t = lap(b, OP_NORM, t);
        TRY(kernel_linear_gated(d, l->gated, GATE_SILU, b->normed, rows, b->act));
        t = lap(b, OP_GATED, t);
        TRY(kernel_linear(d, l->down, NULL, b->act, rows, LINEAR_ADD, b->residual));
        t = lap(b, OP_DOWN, t);
    }
    TRY(kernel_rmsnorm(d, b->residual, b->norm, 1e-5f, NULL, wanted, dim, b->normed));
    t = lap(b, OP_NORM, t);
    TRY(kernel_logits(d, b->head, b->normed, wanted, 0, b->logits));
    lap(b, OP_HEAD, t);
out:
    return st;
}

struct line { int64_t ns[OPS_N], all_ns; };

/* The fastest pass counts, and each operation's own fastest: on a shared machine the rest is the neighbours. */
static status time_rows(struct bench *b, int rows, int wanted, double seconds, struct line *best)
{
    status st = ST_OK;
    int64_t end = 0, start;
    int i, passes = 0;

    best->all_ns = INT64_MAX;
    for (i = 0; i < OPS_N; i++)
        best->ns[i] = INT64_MAX;
    do {
        start = clock_mono_ns();
        if (end == 0)
            end = start + (int64_t)(seconds * 1e9);
        TRY(pass(b, rows, wanted));
        if (clock_mono_ns() - start < best->all_ns)
            best->all_ns = clock_mono_ns() - start;
        for (i = 0; i < OPS_N; i++)
            if (b->ns[i] < best->ns[i])
                best->ns[i] = b->ns[i];
        passes++;
    } while (clock_mono_ns() < end || passes < 3);
out:
    return st;
}

static void line_print(FILE *out, bool json, const char *op, const char *shape, int rows, int64_t ns, struct cost c,
                       const struct device_ceilings *top)
{
    double flops = c.flops * 1e9 / (double)ns, bytes = c.bytes * 1e9 / (double)ns;

    fprintf(out, json ? "{\"op\": \"%s\", \"shape\": \"%s\", \"rows\": %d, \"us\": %.1f, \"gflops\": %.1f, "
                        "\"share_of_peak\": %.4f, \"gb_s\": %.2f, \"share_of_read\": %.4f}\n"
                      : "%-8s %-14s %5d %10.1f %9.1f %8.3f %9.2f %8.3f\n",
            op, shape, rows, (double)ns / 1e3, flops / 1e9, flops / top->dot_flops, bytes / 1e9,
            bytes / top->read_bytes_s);
}

static void rows_print(FILE *out, const struct bench *b, bool json, int rows, int wanted, const struct line *l,
                       const struct device_ceilings *top)
{
    const struct bench_decoder *s = &b->shape;
    struct cost all = { 0, 0 };
    char shape[OPS_N][24];
    int i;

    snprintf(shape[OP_EMBED], sizeof shape[0], "%dx%d", s->vocab, s->dim);
    snprintf(shape[OP_NORM], sizeof shape[0], "%d", s->dim);
    snprintf(shape[OP_QKV], sizeof shape[0], "%dx%d", qkv_rows(s), s->dim);
    snprintf(shape[OP_O], sizeof shape[0], "%dx%d", s->dim, s->heads_n * s->head_dim);
    snprintf(shape[OP_GATED], sizeof shape[0], "2x%dx%d", s->ff, s->dim);
    snprintf(shape[OP_DOWN], sizeof shape[0], "%dx%d", s->dim, s->ff);
    snprintf(shape[OP_HEAD], sizeof shape[0], "%dx%d", s->vocab, s->dim);
    for (i = 0; i < OPS_N; i++) {
        struct cost c = op_cost(b, (enum op)i, rows, wanted);

        all.flops += c.flops;
        all.bytes += c.bytes;
        line_print(out, json, op_names[i], shape[i], i == OP_HEAD ? wanted : rows, l->ns[i], c, top);
    }
    line_print(out, json, "all", "", rows, l->all_ns, all, top);
}

/* Rounds over all row counts, ceilings in between: what slows the machine for a while slows both. */
#define ROUNDS 3

status bench_kernels_run(struct device *d, const struct bench_kernels *o, FILE *out, struct error *err)
{
    status st = ST_OK;
    struct bench b = { .d = d, .shape = o->decoder };
    struct device_ceilings top = { 0, 0 }, now;
    struct line *lines = mem_take_zero((size_t)o->rows_n, sizeof *lines), l;
    int i, j, round, rows_max = 1;

    for (i = 0; i < o->rows_n; i++)
        rows_max = o->rows[i] > rows_max ? o->rows[i] : rows_max;
    TRY(bench_open(&b, rows_max, rows_max < o->wanted_max ? rows_max : o->wanted_max, err));
    for (round = 0; round < ROUNDS; round++) {
        TRY(device_measure(d, &now));
        top.dot_flops = now.dot_flops > top.dot_flops ? now.dot_flops : top.dot_flops;
        top.read_bytes_s = now.read_bytes_s > top.read_bytes_s ? now.read_bytes_s : top.read_bytes_s;
        for (i = 0; i < o->rows_n; i++) {
            TRY(time_rows(&b, o->rows[i], o->rows[i] <= o->wanted_max ? o->rows[i] : 1, o->seconds / ROUNDS, &l));
            if (round == 0)
                lines[i] = l;
            lines[i].all_ns = l.all_ns < lines[i].all_ns ? l.all_ns : lines[i].all_ns;
            for (j = 0; j < OPS_N; j++)
                lines[i].ns[j] = l.ns[j] < lines[i].ns[j] ? l.ns[j] : lines[i].ns[j];
        }
    }
    fprintf(out, o->json ? "{\"device\": \"%s\", \"isa\": \"%s\", \"dot_gflops\": %.1f, \"read_gb_s\": %.2f}\n"
                         : "%s, %s: dot-product peak %.1f GFLOP/s, read loop %.2f GB/s\n",
            device_info(d)->name, device_info(d)->isa, top.dot_flops / 1e9, top.read_bytes_s / 1e9);
    if (!o->json)
        fprintf(out, "%-8s %-14s %5s %10s %9s %8s %9s %8s\n", "op", "shape", "rows", "us", "GFLOP/s", "of peak", "GB/s",
                "of read");
    for (i = 0; i < o->rows_n; i++)
        rows_print(out, &b, o->json, o->rows[i], o->rows[i] <= o->wanted_max ? o->rows[i] : 1, &lines[i], &top);
out:
    bench_close(&b);
    free(lines);
    return st;
}
