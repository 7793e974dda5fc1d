#include "tools/bench/bench_step.h"

#include <stdlib.h>

#include "base/clock.h"

struct step_case {
    const char *name;
    int seqs_n, rows_each;     /* rows_each > 1: a prefill from position 0, else a decode at the context */
};

static const struct step_case cases[] = {
    { "prefill 512", 1, 512 }, { "prefill 128", 1, 128 }, { "decode 1", 1, 1 }, { "decode 8", 8, 1 },
    { "decode 32", 32, 1 }, { "decode 64", 64, 1 }, { "decode 96", 96, 1 },
};
enum { CASES_N = sizeof cases / sizeof cases[0], SEQS_MAX = 96, ROUNDS_MAX = 64 };

struct bench {
    struct device *d;
    struct model *m;
    struct kv *kv;
    struct step step;
    int pages_each, context;
    int32_t *pages;            /* [SEQS_MAX * pages_each] */
    double ms[CASES_N][ROUNDS_MAX];
    int rounds_n;
    struct device_ceilings ceilings;       /* best seen: what the device can do */
};

static uint32_t random_next(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 8;
}

static void step_fill(struct bench *b, const struct step_case *c)
{
    struct step *s = &b->step;
    int vocab = model_shape(b->m)->vocab, prefill = c->rows_each > 1;
    uint32_t x = 1;

    s->seqs_n = s->outs_n = c->seqs_n;
    s->rows_n = c->seqs_n * c->rows_each;
    for (int q = 0; q < c->seqs_n; q++) {
        int row = q * c->rows_each;

        s->seq[q] = (struct seq_span){ .row = row, .rows_n = c->rows_each, .cached_n = prefill ? 0 : b->context,
                                       .pages = b->pages + q * b->pages_each };
        for (int r = 0; r < c->rows_each; r++) {
            s->token[row + r] = (int32_t)(random_next(&x) % (uint32_t)vocab);
            s->pos[row + r] = s->seq[q].cached_n + r;
            s->parent[row + r] = r > 0 ? row + r - 1 : -1;
        }
        s->want[q] = row + c->rows_each - 1;
        s->sampling[q] = (struct sampling){ .top_p = 1, .repetition = 1, .target = -1, .top_logprobs_n = -1,
                                            .pos = s->pos[s->want[q]] + 1 };
    }
}

static status case_time(struct bench *b, const struct step_case *c, double *ms)
{
    int64_t start;
    status st;

    step_fill(b, c);
    start = clock_mono_ns();
    TRY(model_forward(b->m, &b->step, b->kv));
    TRY(device_sync(b->d));
    *ms = (double)(clock_mono_ns() - start) / 1e6;
out:
    return st;
}

/* Gives every sequence a cached context of real keys and values: computed once, copied to the others. */
static status contexts_fill(struct bench *b)
{
    struct step_case c = { "context", 1, b->context };
    int32_t *src = b->pages, *dst;
    double ms;
    status st;

    TRY(case_time(b, &c, &ms));
    for (int q = 1; q < SEQS_MAX; q++) {
        dst = b->pages + q * b->pages_each;
        TRY(kv_pages_copy(b->d, b->kv, src, dst, b->pages_each));
    }
out:
    return st;
}

static status rounds_run(struct bench *b, double seconds)
{
    int64_t end = clock_mono_ns() + (int64_t)(seconds * CASES_N * 1e9);
    struct device_ceilings now;
    status st;

    /* Rounds over all cases, ceilings among them: what disturbs the machine disturbs all of them. */
    do {
        TRY(device_measure(b->d, &now));
        if (now.dot_flops > b->ceilings.dot_flops)
            b->ceilings.dot_flops = now.dot_flops;
        if (now.read_bytes_s > b->ceilings.read_bytes_s)
            b->ceilings.read_bytes_s = now.read_bytes_s;
        for (int i = 0; i < CASES_N; i++)
            TRY(case_time(b, &cases[i], &b->ms[i][b->rounds_n]));
        b->rounds_n++;
    } while (b->rounds_n < ROUNDS_MAX && (b->rounds_n < 3 || clock_mono_ns() < end));
out:
    return st;
}

static int ms_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_row_flops(const struct model_shape *s)
{
    double heads = (double)s->heads_n * s->head_dim, kv = 2.0 * s->kv_heads_n * s->head_dim;

    return 2 * s->layers_n * (s->dim * (heads + kv) + heads * s->dim + 3.0 * s->dim * s->ff);
}

/* Multiplications and additions that the step needs: products of every row, the head for wanted rows, attention. */
static double case_flops(const struct bench *b, const struct step_case *c)
{
    const struct model_shape *s = model_shape(b->m);
    double heads = (double)s->heads_n * s->head_dim, rows = c->seqs_n * c->rows_each;
    double positions = c->rows_each > 1 ? rows * (c->rows_each + 1) / 2 : rows * (b->context + 1);

    return bench_row_flops(s) * rows + 2.0 * s->dim * s->vocab * c->seqs_n + 4 * heads * s->layers_n * positions;
}

static void case_print(struct bench *b, int i, bool json, FILE *out)
{
    const struct step_case *c = &cases[i];
    double ms, share, gb_s;

    qsort(b->ms[i], (size_t)b->rounds_n, sizeof b->ms[i][0], ms_compare);
    ms = b->ms[i][b->rounds_n / 2];
    share = case_flops(b, c) / (ms / 1e3) / b->ceilings.dot_flops;
    gb_s = (double)model_weight_bytes(b->m) / (ms / 1e3) / 1e9;
    fprintf(out, json ? "{\"case\": \"%s\", \"rows\": %d, \"ms\": %.3f, \"ms_best\": %.3f, \"tok_s\": %.1f, \"peak_share\": %.3f, "
                        "\"weight_gb_s\": %.1f, \"read_share\": %.2f}\n"
                      : "%-12s %5d rows %9.2f ms (best %8.2f) %9.0f tok/s %6.2f of peak %7.1f GB/s %6.2f of read loop\n",
            c->name, c->seqs_n * c->rows_each, ms, b->ms[i][0], c->seqs_n * c->rows_each / (ms / 1e3), share, gb_s,
            gb_s * 1e9 / b->ceilings.read_bytes_s);
}

static status bench_open(struct bench *b, const struct bench_step *options, struct error *err)
{
    struct kv_shape shape;
    struct step *s = &b->step;
    status st;

    b->context = options->context;
    b->pages_each = (BENCH_STEP_ROWS_MAX + PAGE_POSITIONS) / PAGE_POSITIONS + 1;
    shape = model_kv_shape(b->m, SEQS_MAX * b->pages_each);
    TRY(kv_open(b->d, &shape, &b->kv, err));
    b->pages = mem_take((size_t)shape.pages_n * sizeof *b->pages);
    for (int i = 0; i < shape.pages_n; i++)
        b->pages[i] = shape.pages_n - 1 - i;
    s->token = device_buffer_take(b->d, BENCH_STEP_ROWS_MAX * sizeof *s->token);
    s->pos = device_buffer_take(b->d, BENCH_STEP_ROWS_MAX * sizeof *s->pos);
    s->parent = device_buffer_take(b->d, BENCH_STEP_ROWS_MAX * sizeof *s->parent);
    s->seq = device_buffer_take(b->d, SEQS_MAX * sizeof *s->seq);
    s->want = device_buffer_take(b->d, SEQS_MAX * sizeof *s->want);
    s->sampling = device_buffer_take(b->d, SEQS_MAX * sizeof *s->sampling);
    s->sampled = device_buffer_take(b->d, SEQS_MAX * sizeof *s->sampled);
out:
    return st;
}

static void bench_close(struct bench *b)
{
    struct step *s = &b->step;

    device_buffer_give(b->d, s->sampled);
    device_buffer_give(b->d, s->sampling);
    device_buffer_give(b->d, s->want);
    device_buffer_give(b->d, s->seq);
    device_buffer_give(b->d, s->parent);
    device_buffer_give(b->d, s->pos);
    device_buffer_give(b->d, s->token);
    free(b->pages);
    kv_close(b->d, b->kv);
}

status bench_step_run(struct device *d, struct model *m, const struct bench_step *options, FILE *out, struct error *err)
{
    struct bench *b = mem_take_zero(1, sizeof *b);
    status st;

    b->d = d;
    b->m = m;
    TRY(bench_open(b, options, err));
    TRY(contexts_fill(b));
    TRY(rounds_run(b, options->seconds));
    fprintf(out, options->json ? "{\"case\": \"ceilings\", \"dot_gflops\": %.1f, \"read_gb_s\": %.1f}\n"
                               : "ceilings: dot products %.0f GFLOP/s, read loop %.1f GB/s\n",
            b->ceilings.dot_flops / 1e9, b->ceilings.read_bytes_s / 1e9);
    for (int i = 0; i < CASES_N; i++)
        case_print(b, i, options->json, out);
out:
    bench_close(b);
    free(b);
    return st;
}
