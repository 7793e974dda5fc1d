#include "tools/bench/bench_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define ROWS_MAX 512
#define OUTS_MAX 96
#define ROUNDS 3                       /* over all cases, ceilings in between */

struct attention_case {
    const char *name;
    int seqs, rows, cached;            /* rows of each sequence behind `cached` positions ... */
    int shared, tree;                  /* ... of which the first `shared` are on the same pages */
};

static const struct attention_case cases[] = {
    { "prefill 512", 1, 512, 0, 0, 0 },
    { "prefill 512 at 512", 1, 512, 512, 0, 0 },
    { "chunk 64 at 700", 1, 64, 700, 0, 0 },
    { "decode 1 at 700", 1, 1, 700, 0, 0 },
    { "decode 1 at 4000", 1, 1, 4000, 0, 0 },
    { "decode 32 at 700", 32, 1, 700, 0, 0 },
    { "decode 96 at 700", 96, 1, 700, 0, 0 },
    { "decode 96 at 700, 512 shared", 96, 1, 700, 512, 0 },
    { "tree 32 at 700", 1, 32, 700, 0, 1 },
};
#define CASES ((int)(sizeof cases / sizeof cases[0]))

struct sample_case {
    const char *name;
    int outs;
    float temperature, top_p, min_p;
    int top_k, logprobs;
};

static const struct sample_case sample_cases[] = {
    { "greedy", 96, 0, 1, 0, 0, -1 },
    { "greedy, 5 log-probabilities", 96, 0, 1, 0, 0, 5 },
    { "temperature 0.8", 96, 0.8f, 1, 0, 0, -1 },
    { "temperature 0.8, top-p 0.95", 96, 0.8f, 0.95f, 0, 0, -1 },
    { "temperature 1, top-k 40", 96, 1, 1, 0, 40, -1 },
    { "temperature 1, min-p 0.05", 96, 1, 1, 0.05f, 0, -1 },
};
#define SAMPLE_CASES ((int)(sizeof sample_cases / sizeof sample_cases[0]))

#define LAYERS_MAX 128

/* Each layer's fastest pass counts: on a shared machine the rest is the neighbours. */
struct times { int64_t rope[LAYERS_MAX], attention[LAYERS_MAX]; };

struct bench {
    struct device *d;
    struct bench_decoder shape;
    struct attention_shape attention;
    struct rope rope;
    struct kv *kv;
    float *qkv;
    void *q, *out;
    int32_t pos[ROWS_MAX], parent[ROWS_MAX], *pages;
    struct seq_span seq[OUTS_MAX];
    struct step step;
    float *logits, *scratch;           /* scratch: the copy that a run may change */
    struct sampling sampling[OUTS_MAX];
    struct sampled sampled[OUTS_MAX];
};

static float random_unit(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return (float)(*x >> 8) / 16777216.0f;
}

static int pages_of(const struct attention_case *c)
{
    return (c->cached + c->rows + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
}

static int distinct_pages(const struct attention_case *c)
{
    int shared = c->shared / PAGE_POSITIONS;

    return shared + (pages_of(c) - shared) * c->seqs;
}

static void step_make(struct bench *b, const struct attention_case *c)
{
    int pages = pages_of(c), shared = c->shared / PAGE_POSITIONS, i, r, next = shared;

    b->step = (struct step){ .rows_n = c->seqs * c->rows, .seqs_n = c->seqs, .pos = b->pos, .parent = b->parent,
                             .seq = b->seq };
    for (i = 0; i < c->seqs; i++) {
        int32_t *p = b->pages + (size_t)i * (size_t)pages;

        for (r = 0; r < pages; r++)
            p[r] = r < shared ? r : next++;
        b->seq[i] = (struct seq_span){ i * c->rows, c->rows, c->cached, c->tree, p };
        for (r = 0; r < c->rows; r++) {    /* a tree: two children each */
            int row = i * c->rows + r, up = c->tree ? (r - 1) / 2 : r - 1;

            b->parent[row] = r == 0 ? -1 : i * c->rows + up;
            b->pos[row] = r == 0 ? c->cached : b->pos[i * c->rows + up] + 1;
        }
    }
}

static status bench_open(struct bench *b, struct error *err)
{
    status st = ST_OK;
    const struct bench_decoder *s = &b->shape;
    struct kv_shape kv = { s->layers_n, s->kv_heads_n, s->head_dim, 1 };
    int width = (s->heads_n + 2 * s->kv_heads_n) * s->head_dim, pages_max = 0, i;
    float inv_freq[512];
    uint32_t x = 7;
    size_t j;

    for (i = 0; i < CASES; i++) {
        kv.pages_n = distinct_pages(&cases[i]) > kv.pages_n ? distinct_pages(&cases[i]) : kv.pages_n;
        pages_max = pages_of(&cases[i]) * cases[i].seqs > pages_max ? pages_of(&cases[i]) * cases[i].seqs : pages_max;
    }
    TRY(kv_open(b->d, &kv, &b->kv, err));
    b->pages = mem_take_zero((size_t)pages_max, sizeof *b->pages);
    for (i = 0; i < s->head_dim / 2; i++)
        inv_freq[i] = powf(10000.0f, -2.0f * (float)i / (float)s->head_dim);
    b->rope = (struct rope){ ROPE_HALVES, s->head_dim, vector_load(b->d, inv_freq, s->head_dim / 2), 1 };
    b->attention = (struct attention_shape){ s->heads_n, s->kv_heads_n, s->head_dim,
                                             1.0f / sqrtf((float)s->head_dim), 0, 0 };
    b->qkv = device_buffer_take(b->d, (size_t)ROWS_MAX * (size_t)width * sizeof *b->qkv);
    for (j = 0; j < (size_t)ROWS_MAX * (size_t)width; j++)
        b->qkv[j] = random_unit(&x) * 4 - 2;
    b->q = device_buffer_take(b->d, ROWS_MAX * device_act_bytes(b->d, ACT_QUERY, s->heads_n * s->head_dim));
    b->out = device_buffer_take(b->d, ROWS_MAX * device_act_bytes(b->d, ACT_ATTENDED, s->heads_n * s->head_dim));
    b->logits = device_buffer_take(b->d, (size_t)OUTS_MAX * (size_t)s->vocab * sizeof *b->logits);
    b->scratch = device_buffer_take(b->d, (size_t)OUTS_MAX * (size_t)s->vocab * sizeof *b->scratch);
    for (j = 0; j < (size_t)OUTS_MAX * (size_t)s->vocab; j++) {    /* a body around 0, a slope up to 20 */
        float u = random_unit(&x);

        b->logits[j] = (u + random_unit(&x) + random_unit(&x) - 1.5f) * 5 - (u > 0.999f ? 2 : 0) * logf(1.0001f - u);
    }
out:
    return st;
}

static void bench_close(struct bench *b)
{
    device_buffer_give(b->d, b->scratch);
    device_buffer_give(b->d, b->logits);
    device_buffer_give(b->d, b->out);
    device_buffer_give(b->d, b->q);
    device_buffer_give(b->d, b->qkv);
    device_buffer_give(b->d, (void *)b->rope.inv_freq);
    free(b->pages);
    kv_close(b->d, b->kv);
}

static void least(int64_t *best, int64_t ns)
{
    *best = *best == 0 || ns < *best ? ns : *best;
}

static int64_t sum(const int64_t *ns, int n)
{
    int64_t all = 0;
    int i;

    for (i = 0; i < n; i++)
        all += ns[i];
    return all;
}

/* All layers of one step. */
static status pass(struct bench *b, struct times *t)
{
    status st = ST_OK;
    int64_t start = clock_mono_ns(), now;
    int i;

    for (i = 0; i < b->shape.layers_n; i++) {
        TRY(kernel_rope_write(b->d, b->qkv, &b->step, i, &b->attention, &b->rope, NULL, b->kv, b->q));
        now = clock_mono_ns();
        least(&t->rope[i], now - start);
        start = now;
        TRY(kernel_attention(b->d, b->q, &b->step, i, &b->attention, b->kv, b->out));
        now = clock_mono_ns();
        least(&t->attention[i], now - start);
        start = now;
    }
out:
    return st;
}

static status case_time(struct bench *b, const struct attention_case *c, double seconds, struct times *best)
{
    status st = ST_OK;
    struct times filled = { { 0 }, { 0 } };
    int64_t end;
    int i;

    step_make(b, c);
    for (i = 0; i < c->cached; i += ROWS_MAX) {        /* something in every page */
        struct attention_case fill = { NULL, 1, c->cached - i < ROWS_MAX ? c->cached - i : ROWS_MAX, i, 0, 0 };

        step_make(b, &fill);
        TRY(pass(b, &filled));
    }
    step_make(b, c);
    end = clock_mono_ns() + (int64_t)(seconds * 1e9);
    do {
        TRY(pass(b, best));
    } while (clock_mono_ns() < end);
out:
    return st;
}

static void case_print(FILE *out, const struct bench *b, bool json, const struct attention_case *c,
                       const struct times *t, const struct device_ceilings *top)
{
    const struct bench_decoder *s = &b->shape;
    struct kv_shape one = { s->layers_n, s->kv_heads_n, s->head_dim, 1 };
    double seen = 0, flops, bytes = (double)kv_page_bytes(b->d, &one) * distinct_pages(c);
    int64_t ns = sum(t->attention, s->layers_n);
    int i;

    for (i = 0; i < b->step.rows_n; i++)
        seen += b->pos[i] + 1;
    flops = seen * 4 * s->heads_n * s->head_dim * s->layers_n * 1e9 / (double)ns;
    bytes *= 1e9 / (double)ns;
    fprintf(out, json ? "{\"op\": \"attention\", \"case\": \"%s\", \"us\": %.1f, \"gflops\": %.1f, "
                        "\"share_of_peak\": %.4f, \"gb_s\": %.2f, \"share_of_read\": %.4f, \"rope_us\": %.1f}\n"
                      : "%-30s %10.1f %9.1f %8.3f %9.2f %8.3f %10.1f\n",
            c->name, (double)ns / 1e3, flops / 1e9, flops / top->dot_flops, bytes / 1e9,
            bytes / top->read_bytes_s, (double)sum(t->rope, s->layers_n) / 1e3);
}

static status sample_time(struct bench *b, const struct sample_case *c, double seconds, int64_t *best)
{
    status st = ST_OK;
    size_t bytes = (size_t)c->outs * (size_t)b->shape.vocab * sizeof *b->logits;
    int64_t start, end = clock_mono_ns() + (int64_t)(seconds * 1e9);
    int i;

    for (i = 0; i < c->outs; i++)
        b->sampling[i] = (struct sampling){
            .temperature = c->temperature, .top_p = c->top_p, .min_p = c->min_p, .top_k = c->top_k, .repetition = 1,
            .seed = (uint64_t)i, .pos = i, .target = -1, .top_logprobs_n = c->logprobs,
        };
    b->step = (struct step){ .outs_n = c->outs, .sampling = b->sampling, .sampled = b->sampled };
    do {
        memcpy(b->scratch, b->logits, bytes);
        start = clock_mono_ns();
        TRY(kernel_sample(b->d, b->scratch, b->shape.vocab, &b->step));
        least(best, clock_mono_ns() - start);
    } while (clock_mono_ns() < end);
out:
    return st;
}

static void sample_print(FILE *out, const struct bench *b, bool json, const struct sample_case *c, int64_t ns,
                         const struct device_ceilings *top)
{
    double bytes = (double)c->outs * b->shape.vocab * 4 * 1e9 / (double)ns;

    fprintf(out, json ? "{\"op\": \"sample\", \"case\": \"%s\", \"outs\": %d, \"us\": %.1f, \"gb_s\": %.2f, "
                        "\"share_of_read\": %.4f}\n"
                      : "%-30s %4d outs %10.1f us %9.2f GB/s %8.3f of read\n",
            c->name, c->outs, (double)ns / 1e3, bytes / 1e9, bytes / top->read_bytes_s);
}

status bench_attention_run(struct device *d, const struct bench_attention *o, FILE *out, struct error *err)
{
    status st = ST_OK;
    struct bench *b = mem_take_zero(1, sizeof *b);
    struct device_ceilings top = { 0, 0 }, now;
    struct times *best = mem_take_zero(CASES, sizeof *best);
    int64_t sample_best[SAMPLE_CASES] = { 0 };
    int i, round;

    b->d = d;
    b->shape = o->decoder;
    ASSERT(b->shape.layers_n <= LAYERS_MAX);
    TRY(bench_open(b, err));
    for (round = 0; round < ROUNDS; round++) {
        TRY(device_measure(d, &now));
        top.dot_flops = now.dot_flops > top.dot_flops ? now.dot_flops : top.dot_flops;
        top.read_bytes_s = now.read_bytes_s > top.read_bytes_s ? now.read_bytes_s : top.read_bytes_s;
        for (i = 0; i < CASES; i++)
            if (strstr(cases[i].name, o->cases) != NULL)
                TRY(case_time(b, &cases[i], o->seconds / ROUNDS, &best[i]));
        for (i = 0; i < SAMPLE_CASES; i++)
            if (strstr(sample_cases[i].name, o->cases) != NULL)
                TRY(sample_time(b, &sample_cases[i], o->seconds / ROUNDS, &sample_best[i]));
    }
    fprintf(out, o->json ? "{\"device\": \"%s\", \"isa\": \"%s\", \"dot_gflops\": %.1f, \"read_gb_s\": %.2f}\n"
                         : "%s, %s: dot-product peak %.1f GFLOP/s, read loop %.2f GB/s\n",
            device_info(d)->name, device_info(d)->isa, top.dot_flops / 1e9, top.read_bytes_s / 1e9);
    if (!o->json)
        fprintf(out, "%-30s %10s %9s %8s %9s %8s %10s\n", "attention, all layers", "us", "GFLOP/s", "of peak", "GB/s",
                "of read", "rope us");
    for (i = 0; i < CASES; i++) {
        if (strstr(cases[i].name, o->cases) == NULL)
            continue;
        step_make(b, &cases[i]);
        case_print(out, b, o->json, &cases[i], &best[i], &top);
    }
    for (i = 0; i < SAMPLE_CASES; i++)
        if (strstr(sample_cases[i].name, o->cases) != NULL)
            sample_print(out, b, o->json, &sample_cases[i], sample_best[i], &top);
out:
    bench_close(b);
    free(best);
    free(b);
    return st;
}
