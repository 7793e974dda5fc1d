/* Sampling against an independent reference: everything sorted, everything in double, noise for every token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/gumbel.h"
#include "tests/kernels/devices.h"

#define THREADS_MAX 3

/* ---- the reference ---- */

struct entry { double l; int32_t id; };

static int entry_order(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->l != y->l)
        return x->l > y->l ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static void reference_adjust(const struct sampling *p, const float *raw, int vocab, double *l)
{
    int i;

    for (i = 0; i < vocab; i++)
        l[i] = raw[i];
    for (i = 0; i < p->bias_n; i++)
        l[p->bias[i].token] = p->bias[i].add == -INFINITY ? -INFINITY : l[p->bias[i].token] + p->bias[i].add;
    for (i = 0; i < p->seen_n; i++) {
        double *x = &l[p->seen[i].token];

        *x = *x > 0 ? *x / p->repetition : *x * p->repetition;
        *x -= p->frequency * p->seen[i].output_n + (p->seen[i].output_n > 0 ? p->presence : 0);
    }
}

/* The token, and in *margin by how much the closest decision on the way was made: below 1e-4 another answer is right,
 * too. */
static int32_t reference_token(const struct sampling *p, const float *raw, int vocab, double *margin)
{
    struct entry *e = malloc((size_t)vocab * sizeof *e);
    double *l = malloc((size_t)vocab * sizeof *l), sum = 0, all = 0, best = -INFINITY, second = -INFINITY;
    int32_t token = -1;
    int n = vocab, i;

    reference_adjust(p, raw, vocab, l);
    for (i = 0; i < vocab; i++)
        e[i] = (struct entry){ l[i], i };
    qsort(e, (size_t)vocab, sizeof *e, entry_order);
    *margin = INFINITY;
    if (p->temperature == 0) {
        token = e[0].l == -INFINITY ? -1 : e[0].id;
        *margin = vocab > 1 && e[0].l != e[1].l ? e[0].l - e[1].l : INFINITY;
        goto out;
    }
    if (p->top_k > 0 && p->top_k < n) {
        n = p->top_k;
        if (e[n - 1].l != e[n].l)
            *margin = fmin(*margin, e[n - 1].l - e[n].l);
    }
    for (i = 0; i < n; i++)
        all += exp((e[i].l - e[0].l) / p->temperature);
    if (p->top_p < 1)
        for (i = 0; i < n; i++) {
            sum += exp((e[i].l - e[0].l) / p->temperature);
            *margin = fmin(*margin, fabs(sum / all - p->top_p) * 100);
            if (sum >= all * p->top_p)
                n = i + 1;
        }
    for (i = 0; i < n; i++) {
        double w = exp((e[i].l - e[0].l) / p->temperature), v;
        struct philox words = philox_words(p->seed, (uint64_t)p->pos, (uint32_t)e[i].id / 4);

        if (p->min_p > 0)
            *margin = fmin(*margin, fabs(w / p->min_p - 1));
        if (e[i].l == -INFINITY || w < p->min_p)
            continue;
        v = e[i].l / p->temperature - log(-log(philox_uniform(words.v[e[i].id % 4])));
        if (v > best) {
            second = best;
            best = v;
            token = e[i].id;
        } else {
            second = fmax(second, v);
        }
    }
    *margin = fmin(*margin, best - second);
out:
    free(e);
    free(l);
    return token;
}

static double reference_log_sum(const float *raw, int vocab)
{
    double max = -INFINITY, sum = 0;
    int i;

    for (i = 0; i < vocab; i++)
        max = fmax(max, raw[i]);
    for (i = 0; i < vocab; i++)
        sum += exp(raw[i] - max);
    return max + log(sum);
}

/* ---- running the device ---- */

static struct device *devices[DEVICE_KINDS][THREADS_MAX + 1];

static int devices_open(void **state)
{
    int k, t;

    (void)state;
    for (k = 0; k < DEVICE_KINDS; k++)
        for (t = 1; t <= THREADS_MAX; t++)
            devices[k][t] = device_of_kind(&device_kinds[k], t);
    return 0;
}

static int devices_close(void **state)
{
    int k, t;

    (void)state;
    for (k = 0; k < DEVICE_KINDS; k++)
        for (t = 1; t <= THREADS_MAX; t++)
            device_close(devices[k][t]);
    return 0;
}

static void sample_on(struct device *d, const float *logits, int vocab, struct sampling *p, int outs_n,
                      struct sampled *out)
{
    struct step s = { .outs_n = outs_n, .sampling = p, .sampled = out };
    float *copy = device_buffer_take(d, (size_t)vocab * (size_t)outs_n * sizeof *copy);

    memcpy(copy, logits, (size_t)vocab * (size_t)outs_n * sizeof *copy);
    memset(out, 0xee, (size_t)outs_n * sizeof *out);
    assert_int_equal(kernel_sample(d, copy, vocab, &s), ST_OK);
    assert_int_equal(device_sync(d), ST_OK);
    device_buffer_give(d, copy);
}

static bool bits_equal(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static void sampled_equal(const struct sampled *a, const struct sampled *b)
{
    int i;

    assert_int_equal(a->token, b->token);
    assert_true(bits_equal(a->logprob, b->logprob));
    assert_int_equal(a->top_n, b->top_n);
    for (i = 0; i < a->top_n; i++) {
        assert_int_equal(a->top[i].token, b->top[i].token);
        assert_true(bits_equal(a->top[i].logprob, b->top[i].logprob));
    }
}

/* All devices and thread counts must give the same; returned is what they gave. */
static void sample_everywhere(const float *logits, int vocab, struct sampling *p, int outs_n, struct sampled *out)
{
    struct sampled *other = malloc((size_t)outs_n * sizeof *other);
    int k, t, i;

    sample_on(devices[0][1], logits, vocab, p, outs_n, out);
    for (k = 0; k < DEVICE_KINDS; k++)
        for (t = 1; t <= THREADS_MAX; t++) {
            if (devices[k][t] == NULL)
                continue;
            sample_on(devices[k][t], logits, vocab, p, outs_n, other);
            for (i = 0; i < outs_n; i++)
                sampled_equal(&out[i], &other[i]);
        }
    free(other);
}

static const struct sampling plain = {
    .temperature = 1, .top_p = 1, .repetition = 1, .target = -1, .top_logprobs_n = -1,
};

/* A peak, a slope, a body and ties: what logits look like, and what hurts. */
static void logits_make(float *l, int vocab, float spread, uint64_t *random)
{
    int i;

    for (i = 0; i < vocab; i++)
        l[i] = roundf(random_normal(random) * spread * 64) / 64;
    for (i = 0; i < 12; i++)
        l[random_next(random) % (uint64_t)vocab] += spread * (float)(2 + i % 4);
}

/* ---- tests ---- */

#define OUTS 40

static void params_make(struct sampling *p, int vocab, uint64_t *random)
{
    static const float temperatures[] = { 0, 0.3f, 0.8f, 1, 2, 5 }, top_ps[] = { 1, 0.95f, 0.5f, 0.999f, 0, 0.01f };
    static const int32_t top_ks[] = { 0, 0, 1, 5, 40, 1000 };

    *p = plain;
    p->temperature = temperatures[random_next(random) % 6];
    p->top_p = random_next(random) % 2 == 0 ? 1 : top_ps[random_next(random) % 6];
    p->top_k = random_next(random) % 2 == 0 ? 0 : top_ks[random_next(random) % 6];
    p->min_p = random_next(random) % 3 == 0 ? 0.07f : 0;
    p->seed = random_next(random);
    p->pos = (int64_t)(random_next(random) % 3000);
    p->top_logprobs_n = (int)(random_next(random) % (TOP_LOGPROBS_MAX + 2)) - 1;
    if (p->top_logprobs_n > vocab)
        p->top_logprobs_n = vocab;
}

static void logprobs_check(const struct sampling *p, const float *raw, int vocab, const struct sampled *out)
{
    double sum = reference_log_sum(raw, vocab);
    struct entry *e = malloc((size_t)vocab * sizeof *e);
    int i;

    if (p->top_logprobs_n < 0) {
        assert_int_equal(out->top_n, 0);
        free(e);
        return;
    }
    assert_true(fabs(out->logprob - (raw[out->token] - sum)) < 1e-5);
    for (i = 0; i < vocab; i++)
        e[i] = (struct entry){ raw[i], i };
    qsort(e, (size_t)vocab, sizeof *e, entry_order);
    assert_int_equal(out->top_n, p->top_logprobs_n);
    for (i = 0; i < out->top_n; i++) {
        assert_int_equal(out->top[i].token, e[i].id);
        assert_true(fabs(out->top[i].logprob - (e[i].l - sum)) < 1e-5);
    }
    free(e);
}

static void test_reference(void **state)
{
    static const int vocabs[] = { 1, 2, 3, 63, 64, 65, 127, 1000, 5003, 49152 };
    struct sampling p[OUTS];
    struct sampled out[OUTS];
    uint64_t random = 7;
    int v, o, skipped = 0, checked = 0;

    (void)state;
    for (v = 0; v < (int)(sizeof vocabs / sizeof vocabs[0]); v++) {
        int vocab = vocabs[v], outs = vocab > 5003 ? 16 : OUTS;
        float *l = malloc((size_t)vocab * OUTS * sizeof *l);

        for (o = 0; o < outs; o++) {
            params_make(&p[o], vocab, &random);
            logits_make(l + o * vocab, vocab, o % 3 == 0 ? 0.2f : 3, &random);
        }
        sample_everywhere(l, vocab, p, outs, out);
        for (o = 0; o < outs; o++) {
            double margin;
            int32_t token = reference_token(&p[o], l + o * vocab, vocab, &margin);

            logprobs_check(&p[o], l + o * vocab, vocab, &out[o]);
            if (margin < 1e-4) {
                skipped++;
                continue;
            }
            checked++;
            assert_int_equal(out[o].token, token);
        }
        free(l);
    }
    assert_true(checked > 250);
    assert_true(skipped < checked / 5);
}

static void test_bias_and_penalties(void **state)
{
    enum { VOCAB = 700 };
    uint64_t random = 11;
    float *l = malloc(VOCAB * sizeof *l);
    int round, i, checked = 0;

    (void)state;
    for (round = 0; round < 200; round++) {
        struct token_bias bias[40];
        struct token_count seen[60];
        struct sampling p;
        struct sampled out;
        double margin;
        int32_t token;

        params_make(&p, VOCAB, &random);
        logits_make(l, VOCAB, 2, &random);
        for (i = 0; i < 40; i++)
            bias[i] = (struct token_bias){ i * 17, i % 5 == 0 ? -INFINITY : random_normal(&random) * 5 };
        for (i = 0; i < 60; i++)
            seen[i] = (struct token_count){ (i * 11 + round) % VOCAB, (int32_t)(random_next(&random) % 4) };
        p.bias = bias;
        p.bias_n = round % 4 == 0 ? 0 : 40;
        if (round % 2 == 0) {
            p.seen = seen;
            p.seen_n = 60;
            p.repetition = 1.3f;
            p.presence = 0.5f;
            p.frequency = -0.25f;
        }
        sample_everywhere(l, VOCAB, &p, 1, &out);
        token = reference_token(&p, l, VOCAB, &margin);
        logprobs_check(&p, l, VOCAB, &out);
        if (margin < 1e-4)
            continue;
        checked++;
        assert_int_equal(out.token, token);
        for (i = 0; i < p.bias_n; i += 5)
            assert_int_not_equal(out.token, bias[i].token);
    }
    assert_true(checked > 150);
    free(l);
}

/* Each rule of the penalties alone turns the choice between two tokens: of the first one, seen, and the second one, not. */
static void test_penalties_decide(void **state)
{
    static const struct { float first, second, repetition, presence, frequency; int32_t output_n, token; } cases[] = {
        { 1.2f, 1.0f, 1.3f, 0, 0, 0, 1 },          /* a positive logit is divided, of a prompt's token, too */
        { 1.4f, 1.0f, 1.3f, 0, 0, 0, 0 },
        { -1.0f, -1.2f, 1.3f, 0, 0, 1, 1 },        /* a negative one is multiplied */
        { -1.0f, -1.4f, 1.3f, 0, 0, 1, 0 },
        { 1.0f, 0.8f, 1, 0.5f, 0, 0, 0 },          /* presence: not for what the prompt alone has */
        { 1.0f, 0.8f, 1, 0.5f, 0, 1, 1 },
        { 1.0f, 0.4f, 1, 0.5f, 0, 3, 0 },          /* ... and once, however often it came */
        { 1.0f, 0.5f, 1, 0, 0.2f, 2, 0 },          /* frequency: as often as it came */
        { 1.0f, 0.5f, 1, 0, 0.2f, 3, 1 },
        { 1.0f, 1.1f, 1, 0, -0.2f, 1, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const float l[2] = { cases[i].first, cases[i].second };
        const struct token_count seen = { 0, cases[i].output_n };
        const struct token_bias bias = { 1, 0 };
        struct sampling p = plain;
        struct sampled out;

        p.temperature = 0;
        p.repetition = cases[i].repetition;
        p.presence = cases[i].presence;
        p.frequency = cases[i].frequency;
        p.seen = &seen;
        p.seen_n = 1;
        p.bias = &bias;
        p.bias_n = 1;
        p.top_logprobs_n = 2;
        sample_everywhere(l, 2, &p, 1, &out);
        assert_int_equal(out.token, cases[i].token);
        logprobs_check(&p, l, 2, &out);            /* of the untouched logits, the seen token's, too */
    }
}

/* Draws at 40,000 positions have the softmax's frequencies: chi-square with 7 degrees, 0.999 quantile 24.3. */
static void distribution_check(struct sampling p, const float *l, const double *expected)
{
    enum { VOCAB = 8, DRAWS = 40000 };
    int count[VOCAB] = { 0 }, i;
    double chi = 0;
    float *all = malloc(sizeof *all * VOCAB * DRAWS);
    struct sampling *ps = malloc(sizeof *ps * DRAWS);
    struct sampled *out = malloc(sizeof *out * DRAWS);

    for (i = 0; i < DRAWS; i++) {
        memcpy(all + i * VOCAB, l, VOCAB * sizeof *l);
        ps[i] = p;
        ps[i].pos = i;
    }
    sample_on(devices[0][2], all, VOCAB, ps, DRAWS, out);
    for (i = 0; i < DRAWS; i++)
        count[out[i].token]++;
    for (i = 0; i < VOCAB; i++) {
        if (expected[i] == 0)
            assert_int_equal(count[i], 0);
        else
            chi += pow(count[i] - expected[i] * DRAWS, 2) / (expected[i] * DRAWS);
    }
    assert_true(chi < 24.3);
    free(all);
    free(ps);
    free(out);
}

static void test_distribution(void **state)
{
    static const float l[8] = { 1.5f, -0.5f, 2, 0, 1, -2, 0.5f, 1.75f };
    struct sampling p = plain;
    double expected[8], sum = 0;
    int i;

    (void)state;
    p.seed = 99;
    p.temperature = 0.7f;
    for (i = 0; i < 8; i++)
        sum += expected[i] = exp(l[i] / 0.7f);
    for (i = 0; i < 8; i++)
        expected[i] /= sum;
    distribution_check(p, l, expected);

    p.top_k = 3;                   /* tokens 2, 7, 0 */
    for (i = 0, sum = 0; i < 8; i++)
        sum += expected[i] = i == 2 || i == 7 || i == 0 ? exp(l[i] / 0.7f) : 0;
    for (i = 0; i < 8; i++)
        expected[i] /= sum;
    distribution_check(p, l, expected);
}

/* Same seed and position, same noise: a token's draw does not depend on which other tokens are allowed. */
static void test_ties(void **state)
{
    enum { VOCAB = 300 };
    float l[VOCAB];
    struct sampling p = plain;
    struct sampled out;
    int i;

    (void)state;
    for (i = 0; i < VOCAB; i++)
        l[i] = i == 77 || i == 210 || i == 130 ? 3 : -1;
    p.temperature = 0;
    p.top_logprobs_n = 5;
    sample_everywhere(l, VOCAB, &p, 1, &out);
    assert_int_equal(out.token, 77);
    assert_int_equal(out.top[0].token, 77);
    assert_int_equal(out.top[1].token, 130);
    assert_int_equal(out.top[2].token, 210);
    assert_int_equal(out.top[3].token, 0);
    assert_int_equal(out.top[4].token, 1);

    p.temperature = 1;             /* exactly two of the three are left, the lower ids */
    p.top_k = 2;
    for (i = 0; i < 200; i++) {
        p.pos = i;
        sample_everywhere(l, VOCAB, &p, 1, &out);
        assert_true(out.token == 77 || out.token == 130);
    }
    p.top_k = 0;
    p.top_p = 0.2f;                /* each of the three has 11.8 % of the mass */
    for (i = 0; i < 200; i++) {
        p.pos = i;
        sample_everywhere(l, VOCAB, &p, 1, &out);
        assert_true(out.token == 77 || out.token == 130);
    }
    for (i = 0; i < VOCAB; i++)
        l[i] = i == 9 ? -0.0f : i == 200 ? 0.0f : -1;
    p = plain;
    p.temperature = 0;
    sample_everywhere(l, VOCAB, &p, 1, &out);
    assert_int_equal(out.token, 9);
}

static void test_not_finite(void **state)
{
    enum { VOCAB = 333 };
    float l[VOCAB];
    struct token_bias all[VOCAB], one = { 5, -INFINITY };
    struct sampling p = plain;
    struct sampled out;
    int i, at;

    (void)state;
    p.top_logprobs_n = 2;
    for (at = 0; at < VOCAB; at += 83) {       /* a NaN of either sign, in every corner */
        for (i = 0; i < VOCAB; i++)
            l[i] = (float)(i % 10);
        l[at] = at % 2 == 0 ? NAN : -NAN;
        sample_everywhere(l, VOCAB, &p, 1, &out);
        assert_int_equal(out.token, -1);
        assert_int_equal(out.top_n, 0);
        assert_true(isnan(out.logprob));
    }
    for (i = 0; i < VOCAB; i++)
        l[i] = -INFINITY;
    sample_everywhere(l, VOCAB, &p, 1, &out);
    assert_int_equal(out.token, -1);

    l[5] = l[300] = 2;             /* all but two impossible */
    for (i = 0; i < 50; i++) {
        p.pos = i;
        sample_everywhere(l, VOCAB, &p, 1, &out);
        assert_true(out.token == 5 || out.token == 300);
        assert_true(fabs(out.logprob + log(2)) < 1e-6);
    }
    p.bias = &one;
    p.bias_n = 1;
    sample_everywhere(l, VOCAB, &p, 1, &out);
    assert_int_equal(out.token, 300);

    l[7] = l[8] = INFINITY;
    sample_everywhere(l, VOCAB, &p, 1, &out);
    assert_int_equal(out.token, 7);
    assert_true(fabs(out.logprob + log(2)) < 1e-6);
    p.temperature = 0;
    sample_everywhere(l, VOCAB, &p, 1, &out);
    assert_int_equal(out.token, 7);

    for (i = 0; i < VOCAB; i++) {              /* everything forbidden */
        l[i] = 1;
        all[i] = (struct token_bias){ i, -INFINITY };
    }
    p.bias = all;
    p.bias_n = VOCAB;
    sample_everywhere(l, VOCAB, &p, 1, &out);
    assert_int_equal(out.token, -1);
}

static void test_target(void **state)
{
    enum { VOCAB = 500 };
    uint64_t random = 5;
    float l[VOCAB];
    struct sampling p = plain;
    struct sampled out;
    double sum;

    (void)state;
    logits_make(l, VOCAB, 3, &random);
    sum = reference_log_sum(l, VOCAB);
    p.target = 321;
    p.top_logprobs_n = 3;
    sample_everywhere(l, VOCAB, &p, 1, &out);
    assert_int_equal(out.token, 321);
    assert_true(fabs(out.logprob - (l[321] - sum)) < 1e-5);
    assert_int_equal(out.top_n, 3);
    p.top_logprobs_n = -1;
    sample_everywhere(l, VOCAB, &p, 1, &out);
    assert_true(fabs(out.logprob - (l[321] - sum)) < 1e-5);
}

/* What is pruned could not have won: without pruning, and with the same arithmetic, the same token, whatever the
 * margin. */
static void test_prune(void **state)
{
    enum { VOCAB = 49152, N = 60 };
    static const float temperatures[] = { 1e-30f, 1e-3f, 0.1f, 0.8f, 1, 3, 100, 1e6f };
    uint64_t random = 31;
    float *l = malloc(sizeof *l * VOCAB);
    int o, i;

    (void)state;
    for (o = 0; o < N; o++) {
        struct sampling p = plain;
        struct sampled out;
        double best = -INFINITY;
        int32_t token = -1;

        logits_make(l, VOCAB, o % 5 == 0 ? 0 : (float)(o % 7), &random);
        for (i = 0; i < VOCAB && o % 4 == 0; i++)
            l[i] = l[i] * 1000 - 30000;
        p.temperature = temperatures[o % 8];
        p.seed = random_next(&random);
        p.pos = (int64_t)(random_next(&random) >> 1);
        for (i = 0; i < VOCAB; i++) {
            struct philox words = philox_words(p.seed, (uint64_t)p.pos, (uint32_t)i / 4);
            double sum = (double)l[i] / (double)p.temperature + gumbel_noise(words.v[i % 4]);

            if (sum > best) {
                best = sum;
                token = i;
            }
        }
        sample_everywhere(l, VOCAB, &p, 1, &out);
        assert_int_equal(out.token, token);
    }
    free(l);
}

/* The largest noise there is in 40,000 positions, found by search: such a token may stand 20 below and win. */
static void test_largest_noise(void **state)
{
    enum { VOCAB = 49152, POS = 28594, TOKEN = 20134, LIKELIEST = 41003 };
    float *l = malloc(sizeof *l * VOCAB);
    struct philox far = philox_words(1, POS, TOKEN / 4), near = philox_words(1, POS, LIKELIEST / 4);
    double lead = gumbel_noise(far.v[TOKEN % 4]) - gumbel_noise(near.v[LIKELIEST % 4]);
    struct sampling p = plain;
    struct sampled out;
    int i;

    (void)state;
    assert_true(gumbel_noise(far.v[TOKEN % 4]) > 20);
    p.seed = 1;
    p.pos = POS;
    for (i = 0; i < VOCAB; i++)
        l[i] = -100;
    l[LIKELIEST] = 10;
    l[TOKEN] = (float)(10 - lead + 1e-4);
    sample_everywhere(l, VOCAB, &p, 1, &out);
    assert_int_equal(out.token, TOKEN);
    l[TOKEN] = (float)(10 - lead - 1e-4);
    sample_everywhere(l, VOCAB, &p, 1, &out);
    assert_int_equal(out.token, LIKELIEST);
    free(l);
}

static void test_logarithm(void **state)
{
    uint64_t random = 3;
    int i;

    (void)state;
    for (i = 0; i < 200000; i++) {
        double x = ldexp(1 + random_unit(&random), (int)(random_next(&random) % 80) - 40);

        assert_true(fabs(gumbel_ln(x) - log(x)) <= 2.3e-16 * fabs(log(x)));
    }
    assert_true(gumbel_ln(1) == 0);
    assert_true(gumbel_noise(UINT32_MAX) < GUMBEL_MAX && gumbel_noise(UINT32_MAX) > GUMBEL_MAX - 1e-3);
    assert_true(gumbel_noise(0) > -3.2);
}

/* An output does not depend on what stands beside it: each alone equals each in the crowd. */
static void test_alone(void **state)
{
    enum { VOCAB = 2000, N = 24 };
    uint64_t random = 21;
    float *l = malloc(sizeof *l * VOCAB * N);
    struct sampling p[N];
    struct sampled out[N], one;
    int o;

    (void)state;
    for (o = 0; o < N; o++) {
        params_make(&p[o], VOCAB, &random);
        logits_make(l + o * VOCAB, VOCAB, 3, &random);
    }
    sample_everywhere(l, VOCAB, p, N, out);
    for (o = N - 1; o >= 0; o--) {
        sample_on(devices[0][1], l + o * VOCAB, VOCAB, &p[o], 1, &one);
        sampled_equal(&one, &out[o]);
    }
    free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference), cmocka_unit_test(test_bias_and_penalties), cmocka_unit_test(test_penalties_decide),
        cmocka_unit_test(test_distribution), cmocka_unit_test(test_ties), cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_target), cmocka_unit_test(test_alone), cmocka_unit_test(test_prune),
        cmocka_unit_test(test_largest_noise), cmocka_unit_test(test_logarithm),
    };

    return cmocka_run_group_tests(tests, devices_open, devices_close);
}
