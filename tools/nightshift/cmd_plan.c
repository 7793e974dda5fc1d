/* tools/nightshift/cmd_plan.c - what a job will be: tokens, what prefix sharing saves, how long it takes here. The time comes
 * from a sample of the job's own lines, answered now by the engine: how long answers are, and what rows cost. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/clock.h"
#include "tools/nightshift/cli.h"
#include "worker/engine/engine.h"
#include "worker/pipeline/model_text.h"
#include "worker/plan/plan.h"

enum { SAMPLE_MAX = 512 };

struct job {
    struct cli *cli;
    struct model_text text;
    struct queue *queue;
    struct intake *intake;
    struct plan *plan;
    /* the whole input */
    int64_t lines_n, failed_n, requests_n, sequences_n;
    int64_t prompt_tokens, unique_tokens;      /* unique: of the radix trees of the windows, one after the other */
    double output_tokens_max;                  /* sum of max_tokens */
    /* the sample: every stride-th request, kept aside */
    int64_t stride;
    struct request *sample[SAMPLE_MAX];
    int sample_n, sample_wanted_n;
    double sample_prompt_tokens, sample_output_tokens, sample_output_max, sample_s;
    int submitted_n, ended_n;
};

struct estimate { double load_s, answer_tokens, total_s; struct cost_model cost; };

static void window_count(struct job *j)
{
    struct plan_savings s = plan_savings(j->plan);
    struct request *r;

    j->prompt_tokens += s.prompt_tokens;
    j->unique_tokens += s.unique_tokens;
    while ((r = plan_next(j->plan)) != NULL) {
        if (j->sample_n < j->sample_wanted_n && j->requests_n++ % j->stride == 0)
            j->sample[j->sample_n++] = r;
        else
            request_free(r);
    }
}

static void request_count(struct job *j, struct request *r)
{
    const struct config *cfg = &j->cli->cfg;

    j->sequences_n += r->params.n;
    j->output_tokens_max += (double)r->params.max_tokens * r->params.n;
    plan_add(j->plan, r);
    if (plan_length(j->plan) == cfg->plan_window_max || plan_bytes(j->plan) >= cfg->plan_window_mb << 20)
        window_count(j);
}

static void line_count(struct job *j, const struct record *rec)
{
    struct request *r = NULL;
    struct request_group *g;

    if (intake_read(j->intake, rec, &r) != ST_OK)
        return;
    j->lines_n++;
    g = r->group;
    if (r->verdict != VERDICT_NONE) {
        j->failed_n++;
        request_free(r);
        return;
    }
    /* Of a line with several prompts the first takes part in the plan, the others are counted as they are. */
    for (int i = g != NULL ? g->requests_n - 1 : 0; i > 0; i--) {
        j->prompt_tokens += g->requests[i]->prompt_n;
        j->output_tokens_max += (double)g->requests[i]->params.max_tokens * r->params.n;
        j->sequences_n += r->params.n;
        j->unique_tokens += g->requests[i]->prompt_n;
        request_free(g->requests[i]);
    }
    request_count(j, r);
}

static status input_read(struct job *j, struct error *err)
{
    status st = ST_OK;

    while (!queue_ended(j->queue)) {
        struct record *rec;

        st = queue_poll(j->queue, 0, &rec, err);
        if (st == ST_AGAIN)
            continue;
        if (st != ST_OK)
            return st;
        line_count(j, rec);
        queue_record_give(j->queue, rec);
    }
    window_count(j);
    return ST_OK;
}

static void sample_progress(void *ctx, const struct request *r, int32_t choice)
{
    (void)ctx;
    (void)r;
    (void)choice;
}

static void sample_ended(void *ctx, struct request *r)
{
    struct job *j = ctx;

    for (int i = 0; i < r->params.n; i++)
        j->sample_output_tokens += r->choices[i].tokens_n;
    j->sample_output_max += (double)r->params.max_tokens * r->params.n;
    j->sample_prompt_tokens += r->prompt_n;
    j->ended_n++;
    request_free(r);
}

static void sample_dropped(void *ctx, struct request *r)
{
    (void)ctx;
    request_free(r);
}

/* Answers the sample; fills in what it cost. */
static status sample_run(struct job *j, struct estimate *e, struct error *err)
{
    struct engine_ports ports = { .ctx = j, .progress = sample_progress, .ended = sample_ended };
    const struct config *cfg = &j->cli->cfg;
    struct device *d = NULL;
    struct model *m = NULL;
    struct engine *engine = NULL;
    int64_t start = clock_mono_ns();
    status st;

    TRY(device_open(cfg, &d, err));
    TRY(model_open(j->text.gguf, d, (int)cfg->step_rows_max, (int)cfg->sequences_max, &m, err));
    TRY(engine_open(cfg, d, m, j->text.tokenizer, &ports, &engine, err));
    e->load_s = (double)(clock_mono_ns() - start) / 1e9;
    start = clock_mono_ns();
    while (j->submitted_n < j->sample_n)
        engine_submit(engine, j->sample[j->submitted_n++]);
    while (j->ended_n < j->sample_n) {
        st = engine_step(engine);
        if (st == ST_FATAL) {
            error_set(err, st, "the device failed while a sample was answered");
            goto out;
        }
    }
    st = ST_OK;
    j->sample_s = (double)(clock_mono_ns() - start) / 1e9;
    e->cost = *engine_cost(engine);
out:
    if (engine != NULL)
        engine_drop(engine, sample_dropped, NULL);
    engine_close(engine);
    model_close(m);
    device_close(d);
    return st;
}

/* Rows of the whole job at the cost of rows in the sample. Steps are full: the device's row budget, shared by decodes and
 * prompts, so the fixed part of a step is paid rows / budget times. */
static void estimate_make(const struct job *j, struct estimate *e)
{
    const struct config *cfg = &j->cli->cfg;
    double used = j->sample_output_max > 0 ? j->sample_output_tokens / j->sample_output_max : 0;
    double requests_n = (double)(j->lines_n - j->failed_n), prompt_mean, own_mean, context_mean, rows, kv, steps;

    e->answer_tokens = j->output_tokens_max * used;
    prompt_mean = requests_n > 0 ? (double)j->prompt_tokens / requests_n : 0;
    context_mean = prompt_mean + (j->sequences_n > 0 ? e->answer_tokens / (double)j->sequences_n / 2 : 0);
    rows = (double)j->unique_tokens + e->answer_tokens;
    /* The computed part of a prompt is its end: a row of it reads the shared part, and half of its own on average. */
    own_mean = requests_n > 0 ? (double)j->unique_tokens / requests_n : 0;
    kv = (double)j->unique_tokens * (prompt_mean - own_mean / 2) + e->answer_tokens * context_mean;
    steps = rows / (double)cfg->step_rows_max;
    e->total_s = e->load_s + steps * e->cost.fixed_s + rows * e->cost.row_s + e->answer_tokens * e->cost.out_s + kv * e->cost.kv_s;
}

static void report(const struct job *j, const struct estimate *e)
{
    double saved = j->prompt_tokens > 0 ? 100.0 * (double)(j->prompt_tokens - j->unique_tokens) / (double)j->prompt_tokens : 0;

    if (j->cli->json) {
        printf("{\"lines\": %" PRId64 ", \"invalid\": %" PRId64 ", \"prompt_tokens\": %" PRId64 ", \"unique_prompt_tokens\": %"
               PRId64 ", \"output_tokens_max\": %.0f, \"output_tokens_estimate\": %.0f, \"seconds_estimate\": %.2f, "
               "\"sample_lines\": %d, \"sample_s\": %.2f, \"load_s\": %.2f}\n", j->lines_n, j->failed_n, j->prompt_tokens,
               j->unique_tokens, j->output_tokens_max, e->answer_tokens, e->total_s, j->sample_n, j->sample_s, e->load_s);
        return;
    }
    printf("lines    %" PRId64 ", of them %" PRId64 " that will fail (`nightshift validate` names them)\n", j->lines_n, j->failed_n);
    printf("prompts  %" PRId64 " tokens; shared prefixes save %.1f %%: %" PRId64 " are computed\n", j->prompt_tokens, saved,
           j->unique_tokens);
    printf("answers  %.0f tokens expected, %.0f at most (from a sample of %d lines)\n", e->answer_tokens, j->output_tokens_max,
           j->sample_n);
    if (j->sample_n == 0)
        return;
    printf("time     %.0f s on this machine (%.0f tok/s in, %.0f tok/s out)\n", e->total_s, (double)j->prompt_tokens / e->total_s,
           e->answer_tokens / e->total_s);
}

static int plan_run(struct job *j, const char *input, const char *model_path)
{
    struct queue_job queue_job = { .url = "read:", .input = input };
    struct estimate e = { 0 };
    struct request *r;
    struct error err;
    status st;

    TRY(model_text_open(&j->text, &j->cli->cfg, model_path, NULL, &err));
    TRY(queue_open(&j->cli->cfg, &queue_job, &j->queue, &err));
    j->intake = intake_open(&j->text.lines);
    j->plan = plan_open(&j->cli->cfg);
    j->stride = queue_state(j->queue)->records_n / j->sample_wanted_n;
    if (j->stride < 1)
        j->stride = 1;
    TRY(input_read(j, &err));
    if (j->sample_n > 0) {
        TRY(sample_run(j, &e, &err));
        estimate_make(j, &e);
    }
    report(j, &e);
out:
    while (j->plan != NULL && (r = plan_next(j->plan)) != NULL)
        request_free(r);
    while (j->submitted_n < j->sample_n)
        request_free(j->sample[j->submitted_n++]);
    plan_close(j->plan);
    intake_close(j->intake);
    queue_close(j->queue);
    model_text_close(&j->text);
    return st == ST_OK ? EXIT_CODE_DONE : cli_fail(j->cli, EXIT_CODE_CANNOT_START, "%s", err.text);
}

int cmd_plan(int argc, char **argv)
{
    enum { SAMPLE = 1 };
    static const struct option options[] = {
        CLI_OPTIONS, { "model", required_argument, NULL, 'm' }, { "sample", required_argument, NULL, SAMPLE }, { 0 }
    };
    const char *model_path = NULL;
    struct cli cli;
    struct job *j;
    int64_t sample_n = 48;
    int option, exit_code;

    cli_init(&cli, argv);
    while ((option = getopt_long(argc, argv, "m:", options, NULL)) != -1) {
        switch (option) {
        case 'm': model_path = optarg; break;
        case SAMPLE: cli_number(&cli, "--sample", optarg, 1, SAMPLE_MAX, &sample_n); break;
        default: cli_option(&cli, option);
        }
    }
    cli_start(&cli);
    if (cli.done)
        return cli.exit_code;
    if (optind + 1 != argc || model_path == NULL)
        return cli_fail(&cli, EXIT_CODE_USAGE, "one input and -m MODEL are needed; see `nightshift plan --help`");
    j = mem_take_zero(1, sizeof *j);
    j->cli = &cli;
    j->sample_wanted_n = (int)sample_n;
    exit_code = plan_run(j, argv[optind], model_path);
    free(j);
    return exit_code;
}
