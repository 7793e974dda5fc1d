/* The forward pass against its definition on small models that between them use every feature of the family: tied and
 * own head, F32, F16 and BF16 tensors, biases, grouped heads, heads that are not dim / heads long, part of a head turned,
 * linear and Llama 3 rope scaling (make_tiny.py). Then: how rows are grouped into steps changes no bit.
 *
 *     test_tiny write FOLDER      writes the models for make_tiny.py */
#define _POSIX_C_SOURCE 200809L        /* mkdtemp */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/run_model.h"
#include "tests/support/tiny_model.h"

#define TOKENS_N 64
#define MODELS_N 5

static const char *const names[MODELS_N] = { "plain", "tied", "bias", "linear", "factors" };
static char folder[64] = "/tmp/nightshift-tiny-XXXXXX";
static int32_t tokens[TOKENS_N];
static int failures;

static void check(bool ok, const char *model, const char *what)
{
    printf("%s: %s: %s\n", ok ? "ok" : "FAILED", model, what);
    failures += !ok;
}

static void model_path(const char *in, int i, char path[128])
{
    snprintf(path, 128, "%s/%s.gguf", in, names[i]);
}

static void write_models(const char *to)
{
    struct tiny_options o[MODELS_N];
    char path[128];

    for (int i = 0; i < MODELS_N; i++)
        tiny_model_defaults(&o[i]);
    o[1].tied_head = true;
    o[1].type = TENSOR_F16;
    o[2].biases = true;
    o[2].type = TENSOR_BF16;
    o[3].rope_linear = 2.5f;
    o[3].dim = 48, o[3].heads_n = 3, o[3].kv_heads_n = 1, o[3].head_dim = 32, o[3].ff = 90;
    o[4].rope_factors = true;
    o[4].rope_base = 500000.0f;
    o[4].rope_dim = 10;
    o[4].heads_n = o[4].kv_heads_n = 2;
    for (int i = 0; i < MODELS_N; i++) {
        model_path(to, i, path);
        tiny_model_write(path, &o[i]);
    }
}

/* ---- against tiny.txt ---- */

static void read_expected(int model, double out[TOKENS_N - 1])
{
    FILE *f = fopen(NIGHTSHIFT_ROOT "/tests/golden/tiny.txt", "r");
    char name[32];
    int n = 0;

    ASSERT(f != NULL);
    for (int i = 0; i <= model; i++) {
        ASSERT(fscanf(f, "%31s", name) == 1);
        for (n = 0; n < TOKENS_N - 1; n++)
            ASSERT(fscanf(f, "%lf", &out[n]) == 1);
    }
    ASSERT(strcmp(name, names[model]) == 0);
    fclose(f);
}

/* Log-probabilities of the run of tokens, `chunk` rows a step, beside `mates` other sequences that do the same a few
 * tokens behind, so that rows of different positions share every step. */
static void run_tokens(struct run *r, int chunk, int mates, float out[TOKENS_N - 1])
{
    int first[8];

    for (int s = 0; s <= mates; s++)
        run_forget(r, s);
    for (int at = 0; at < TOKENS_N - 1 + 3 * mates; at += chunk) {
        for (int s = 0; s <= mates; s++) {
            int from = at - 3 * s, to = from + chunk;

            from = from < 0 ? 0 : from;
            to = to > TOKENS_N - 1 ? TOKENS_N - 1 : to;
            first[s] = -1;
            if (from >= to)
                continue;
            run_add(r, s, tokens + from, to - from);
            for (int i = from; i < to; i++) {
                struct sampling target = run_target(tokens[i + 1]);
                int want = run_want(r, to - 1 - i, &target);

                first[s] = i == from ? want : first[s];
            }
        }
        if (r->step.rows_n == 0)
            break;
        run_step(r);
        for (int i = at; first[0] >= 0 && i < at + chunk && i < TOKENS_N - 1; i++)
            out[i] = r->step.sampled[first[0] + i - at].logprob;
    }
}

static float furthest(const float *got, const double *expected)
{
    float worst = 0.0f;

    for (int i = 0; i < TOKENS_N - 1; i++)
        worst = fmaxf(worst, isnan(got[i]) ? INFINITY : fabsf(got[i] - (float)expected[i]));
    return worst;
}

static void test_model(int model, const char *dtype, float near)
{
    static const struct { int chunk, mates; } ways[] = { { 64, 0 }, { 1, 0 }, { 7, 0 }, { 16, 3 }, { 1, 5 }, { 5, 5 } };
    char path[128], what[96];
    struct run_options o = { path, dtype, "auto", 2, 8, TOKENS_N, 8 * TOKENS_N, 5 };
    double expected[TOKENS_N - 1];
    float whole[TOKENS_N - 1], got[TOKENS_N - 1];
    struct run r;

    model_path(folder, model, path);
    read_expected(model, expected);
    run_open(&r, &o);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        memset(got, 0xff, sizeof got);
        run_tokens(&r, ways[i].chunk, ways[i].mates, got);
        if (i == 0) {
            memcpy(whole, got, sizeof whole);
            snprintf(what, sizeof what, "%s at most %.6f from the definition", dtype, (double)furthest(got, expected));
            check(furthest(got, expected) < near, names[model], what);
        } else {
            snprintf(what, sizeof what, "%s, the same bits in chunks of %d beside %d others", dtype, ways[i].chunk,
                     ways[i].mates);
            check(memcmp(whole, got, sizeof whole) == 0, names[model], what);
        }
    }
    run_close(&r);
}

int main(int argc, char **argv)
{
    char path[128];

    if (argc == 3 && strcmp(argv[1], "write") == 0) {
        write_models(argv[2]);
        return 0;
    }
    for (int i = 0; i < TOKENS_N; i++)
        tokens[i] = (i * 37 + 11) % 320;
    ASSERT(mkdtemp(folder) != NULL);
    write_models(folder);
    for (int i = 0; i < MODELS_N; i++) {
        test_model(i, "fp32", 1e-4f);
        test_model(i, "bf16", 0.5f);
        model_path(folder, i, path);
        unlink(path);
    }
    rmdir(folder);
    return failures > 0;
}
