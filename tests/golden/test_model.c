/* The forward pass against the reference implementation on the default model (make_reference.py), and bf16 against fp32.
 *
 *     test_model            in ctest: a few prompts, a few windows
 *     test_model full       all 60 prompts x 96 tokens and 20 windows of 1,024 tokens (minutes: fp32 is the slow
 *                           reference); prints the figures
 *
 * What must hold: fp32 greedy tokens equal for 95 % of the prompts, each first difference where the reference's best two
 * logits are less than 0.05 apart, log-probabilities equal to 0.001 up to there; fp32 perplexity within 0.005 % of the
 * reference's; bf16 perplexity within 0.5 % of fp32. */
#define _POSIX_C_SOURCE 200809L        /* getline */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/run_model.h"
#include "worker/text/tokenizer.h"

#define TOKENS_N 96
#define PROMPT_MAX 160
#define CASES_MAX 64
#define WINDOWS_MAX 32
#define WINDOW_N 1024
#define ROWS_MAX 256

struct golden {                        /* one prompt and its answer */
    int32_t prompt[PROMPT_MAX], token[TOKENS_N];
    float logprob[TOKENS_N], margin[TOKENS_N];
    int prompt_n;
};

static struct golden cases[CASES_MAX];
static double window_nll[WINDOWS_MAX];
static int cases_n, windows_n, failures;

static void check(bool ok, const char *what)
{
    printf("%s: %s\n", ok ? "ok" : "FAILED", what);
    failures += !ok;
}

/* ---- smollm2.txt ---- */

static int read_ints(const char *text, int32_t *out, int max)
{
    char *end;
    int n = 0;

    for (long v = strtol(text, &end, 10); end != text; v = strtol(text, &end, 10)) {
        ASSERT(n < max);
        out[n++] = (int32_t)v;
        text = end;
    }
    return n;
}

static int read_reals(const char *text, float *out, int max)
{
    char *end;
    int n = 0;

    for (float v = strtof(text, &end); end != text; v = strtof(text, &end)) {
        ASSERT(n < max);
        out[n++] = v;
        text = end;
    }
    return n;
}

static void read_golden(void)
{
    FILE *f = fopen(NIGHTSHIFT_ROOT "/tests/golden/smollm2.txt", "r");
    char *line = NULL;
    size_t room = 0;

    ASSERT(f != NULL);
    while (getline(&line, &room, f) > 0) {
        const char *values = strchr(line, ' ');
        struct golden *c = &cases[cases_n > 0 ? cases_n - 1 : 0];

        ASSERT(values != NULL);
        if (strncmp(line, "prompt ", 7) == 0) {
            ASSERT(cases_n < CASES_MAX);
            c = &cases[cases_n++];
            c->prompt_n = read_ints(values, c->prompt, PROMPT_MAX);
            ASSERT(c->prompt_n > 0);
        } else if (strncmp(line, "tokens ", 7) == 0) {
            ASSERT(read_ints(values, c->token, TOKENS_N) == TOKENS_N);
        } else if (strncmp(line, "logprobs ", 9) == 0) {
            ASSERT(read_reals(values, c->logprob, TOKENS_N) == TOKENS_N);
        } else if (strncmp(line, "margins ", 8) == 0) {
            ASSERT(read_reals(values, c->margin, TOKENS_N) == TOKENS_N);
        } else {
            int n;

            ASSERT(windows_n < WINDOWS_MAX);
            ASSERT(sscanf(line, "window %d %lf", &n, &window_nll[windows_n]) == 2 && n == WINDOW_N);
            windows_n++;
        }
    }
    free(line);
    fclose(f);
    ASSERT(cases_n >= 50 && windows_n >= 20);
}

/* ---- greedy tokens ---- */

struct greedy {
    int equal_n;                       /* tokens before the first difference */
    float worst;                       /* log-probability furthest from the reference's up to there */
};

/* All cases side by side: prompts in one step each, then a row of every case a step. */
static void run_greedy_cases(struct run *r, int n, int tokens_n, struct greedy *out)
{
    const struct sampling greedy = run_greedy();
    int32_t token[CASES_MAX];
    int want[CASES_MAX];

    for (int i = 0; i < n; i++) {
        out[i] = (struct greedy){ -1, 0.0f };
        run_add(r, i, cases[i].prompt, cases[i].prompt_n);
        want[0] = run_want(r, 0, &greedy);
        run_step(r);
        token[i] = r->step.sampled[want[0]].token;
        out[i].worst = fabsf(r->step.sampled[want[0]].logprob - cases[i].logprob[0]);
        if (token[i] != cases[i].token[0])
            out[i].equal_n = 0;
    }
    for (int t = 1; t < tokens_n; t++) {
        int open = 0;

        for (int i = 0; i < n; i++) {
            if (out[i].equal_n >= 0)
                continue;
            run_add(r, i, &token[i], 1);
            want[i] = run_want(r, 0, &greedy);
            open++;
        }
        if (open == 0)
            break;
        run_step(r);
        for (int i = 0; i < n; i++) {
            const struct sampled *s = &r->step.sampled[want[i]];

            if (out[i].equal_n >= 0)
                continue;
            token[i] = s->token;
            if (s->token != cases[i].token[t])
                out[i].equal_n = t;
            else
                out[i].worst = fmaxf(out[i].worst, fabsf(s->logprob - cases[i].logprob[t]));
        }
    }
    for (int i = 0; i < n; i++)
        if (out[i].equal_n < 0)
            out[i].equal_n = tokens_n;
}

static void test_greedy(int n, int tokens_n)
{
    const struct run_options o = { NIGHTSHIFT_MODEL, "fp32", "auto", 0, CASES_MAX, PROMPT_MAX + TOKENS_N, ROWS_MAX, 16 };
    struct greedy got[CASES_MAX];
    struct run r;
    int equal = 0;
    bool near = true;
    float worst = 0.0f;

    run_open(&r, &o);
    run_greedy_cases(&r, n, tokens_n, got);
    for (int i = 0; i < n; i++) {
        worst = fmaxf(worst, got[i].worst);
        if (got[i].equal_n == tokens_n) {
            equal++;
            continue;
        }
        printf("prompt %d differs from token %d on; margin there %.5f\n", i, got[i].equal_n,
               (double)cases[i].margin[got[i].equal_n]);
        near = near && cases[i].margin[got[i].equal_n] < 0.05f;
    }
    printf("fp32 greedy: %d of %d prompts equal over %d tokens; log-probabilities at most %.5f apart\n", equal, n, tokens_n,
           (double)worst);
    check(equal * 100 >= n * 95, "greedy tokens of 95 % of the prompts");
    check(near, "first differences at margins below 0.05");
    check(worst < 0.001f, "log-probabilities within 0.001");
    run_close(&r);
}

/* ---- perplexity ---- */

static int32_t text_tokens[WINDOWS_MAX * WINDOW_N];

static void encode_text(const struct gguf *g, int n)
{
    static char text[1 << 18];
    FILE *f = fopen(NIGHTSHIFT_ROOT "/tests/golden/text.txt", "r");
    struct tokenizer_spec spec;
    struct tokenizer *tokenizer;
    struct encoder *encoder;
    struct text_span span = { text, 0, TEXT_PLAIN };
    struct error err;
    const int32_t *tokens;
    size_t tokens_n;
    void *memory;

    ASSERT(f != NULL);
    span.n = fread(text, 1, sizeof text, f);
    fclose(f);
    ASSERT(gguf_tokenizer(g, &spec, &memory, &err) == ST_OK);
    ASSERT(tokenizer_open(&spec, &tokenizer, &err) == ST_OK);
    free(memory);
    encoder = encoder_open(tokenizer);
    ASSERT(encoder_encode(encoder, &span, 1, &tokens, &tokens_n) == ST_OK);
    ASSERT(tokens_n >= (size_t)n);
    memcpy(text_tokens, tokens, (size_t)n * sizeof *tokens);
    encoder_close(encoder);
    tokenizer_close(tokenizer);
}

/* Sum of the negative log-probabilities of each window, in chunks of ROWS_MAX rows. */
static double run_windows(const char *dtype, int first, int windows, double *nll)
{
    const struct run_options o = { NIGHTSHIFT_MODEL, dtype, "auto", 0, 1, WINDOW_N, ROWS_MAX, 48 };
    struct run r;
    double sum = 0.0;

    run_open(&r, &o);
    encode_text(r.gguf, (first + windows) * WINDOW_N);
    for (int w = 0; w < windows; w++) {
        const int32_t *window = text_tokens + (first + w) * WINDOW_N;

        nll[w] = 0.0;
        run_forget(&r, 0);
        for (int at = 0; at < WINDOW_N - 1; at += ROWS_MAX) {
            int n = WINDOW_N - 1 - at < ROWS_MAX ? WINDOW_N - 1 - at : ROWS_MAX;

            run_add(&r, 0, window + at, n);
            for (int i = 0; i < n; i++) {
                struct sampling target = run_target(window[at + i + 1]);

                (void)run_want(&r, n - 1 - i, &target);
            }
            run_step(&r);
            for (int i = 0; i < n; i++)
                nll[w] -= (double)r.step.sampled[i].logprob;
        }
        sum += nll[w];
    }
    run_close(&r);
    return exp(sum / (windows * (double)(WINDOW_N - 1)));
}

static void test_perplexity(int first, int windows)
{
    double fp32_nll[WINDOWS_MAX], bf16_nll[WINDOWS_MAX], reference = 0.0, apart;
    double fp32 = run_windows("fp32", first, windows, fp32_nll), bf16 = run_windows("bf16", first, windows, bf16_nll);

    for (int w = 0; w < windows; w++)
        reference += window_nll[first + w];
    reference = exp(reference / (windows * (double)(WINDOW_N - 1)));
    apart = bf16 / fp32 - 1.0;
    printf("perplexity of %d tokens: reference %.5f, fp32 %.5f, bf16 %.5f (%+.3f %%)\n", windows * WINDOW_N, reference, fp32,
           bf16, 100.0 * apart);
    check(fabs(fp32 / reference - 1.0) < 5e-5, "fp32 perplexity within 0.005 % of the reference");
    check(fabs(apart) < 5e-3, "bf16 perplexity within 0.5 % of fp32");
}

int main(int argc, char **argv)
{
    bool full = argc > 1 && strcmp(argv[1], "full") == 0;

    if (access(NIGHTSHIFT_MODEL, R_OK) != 0) {
        printf("skipped: the default model is not here (tools/quickstart fetches it)\n");
        return 77;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    read_golden();
    /* The short run takes every tenth case and the first window. */
    if (!full)
        for (int i = 0; i * 10 < cases_n; i++)
            cases[i] = cases[i * 10];
    test_greedy(full ? cases_n : (cases_n + 9) / 10, full ? TOKENS_N : 24);
    test_perplexity(0, full ? windows_n : 1);
    return failures > 0;
}
