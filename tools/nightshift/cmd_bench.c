/* tools/nightshift/cmd_bench.c - speed beside the ceilings of the same device, measured in the same run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tools/bench/bench_attention.h"
#include "tools/bench/bench_gpu.h"
#include "tools/bench/bench_job.h"
#include "tools/bench/bench_kernels.h"
#include "tools/bench/bench_lines.h"
#include "tools/bench/bench_step.h"
#include "tools/bench/bench_store.h"
#include "tools/nightshift/cli.h"
#include "worker/pipeline/model_text.h"

struct bench_options {
    const char *what, *model_path, *input, *shape;
    double seconds;
    int context;
    bool csv;
};

/* With threads=1 the thread's own time stands for the clock: figures that hold on a machine that others use, too. */
static int64_t thread_ns(void *ctx)
{
    (void)ctx;
    return clock_thread_cpu_ns();
}

static const struct clock cpu_clock = { thread_ns, thread_ns, NULL };

static void options_read(struct cli *cli, int argc, char **argv, struct bench_options *o)
{
    enum { SECONDS = 1, CONTEXT, CPU_TIME, SHAPE, CSV };
    static const struct option options[] = {
        CLI_OPTIONS, { "model", required_argument, NULL, 'm' }, { "seconds", required_argument, NULL, SECONDS },
        { "context", required_argument, NULL, CONTEXT }, { "cpu-time", no_argument, NULL, CPU_TIME },
        { "shape", required_argument, NULL, SHAPE }, { "csv", no_argument, NULL, CSV }, { 0 }
    };
    bool needs_model, needs_input;
    int option;

    while ((option = getopt_long(argc, argv, "m:", options, NULL)) != -1) {
        switch (option) {
        case 'm': o->model_path = optarg; break;
        case SECONDS: o->seconds = atof(optarg); break;
        case CONTEXT: o->context = atoi(optarg); break;
        case SHAPE: o->shape = optarg; break;
        case CSV: o->csv = true; break;
        case CPU_TIME:
            clock_use(&cpu_clock);
            break;
        default: cli_option(cli, option);
        }
    }
    cli_start(cli);
    if (cli->done)
        return;
    o->what = optind < argc ? argv[optind++] : "";
    needs_input = strcmp(o->what, "lines") == 0 || strcmp(o->what, "store") == 0 || strcmp(o->what, "job") == 0;
    needs_model = strcmp(o->what, "step") == 0 || strcmp(o->what, "lines") == 0 || strcmp(o->what, "job") == 0;
    if (needs_input && optind < argc)
        o->input = argv[optind++];
    if (optind != argc || !(o->seconds > 0 && o->seconds <= 3600) || o->context < 1
        || o->context > BENCH_STEP_ROWS_MAX || (needs_model && o->model_path == NULL)
        || (needs_input && o->input == NULL)) {
        cli->done = true;
        cli->exit_code = cli_fail(cli, EXIT_CODE_USAGE, "kernels, attention, gpu --shape NAME, step -m MODEL, lines IN -m MODEL, job IN -m MODEL or "
                                  "store URL is needed, --seconds above 0, --context 1 to %d; see `nightshift bench --help`", BENCH_STEP_ROWS_MAX);
    }
}

static status kernels_bench(struct device *d, const struct bench_options *o, bool json, struct error *err)
{
    static const int rows[] = { 1, 2, 4, 8, 16, 32, 64, 96, 128, 512 };
    struct bench_kernels b = { .decoder = bench_smollm2_135m, .rows = rows, .rows_n = sizeof rows / sizeof rows[0],
                               .wanted_max = 96, .seconds = o->seconds, .json = json };

    return bench_kernels_run(d, &b, stdout, err);
}

static status attention_bench(struct device *d, const struct bench_options *o, bool json, struct error *err)
{
    struct bench_attention b = { .decoder = bench_smollm2_135m, .cases = "", .seconds = o->seconds, .json = json };

    return bench_attention_run(d, &b, stdout, err);
}

static status gpu_bench(struct device *d, const struct bench_options *o, struct error *err)
{
    struct bench_gpu b = { .shape = o->shape, .seconds = o->seconds / 10, .csv = o->csv };

    return bench_gpu_run(d, &b, stdout, err);
}

static status step_bench(struct device *d, const struct bench_options *o, bool json, struct error *err)
{
    struct bench_step b = { .context = o->context, .seconds = o->seconds, .json = json };
    struct model *m = NULL;
    struct gguf *g = NULL;
    status st;

    TRY(gguf_open(o->model_path, &g, err));
    TRY(model_open(g, d, BENCH_STEP_ROWS_MAX, BENCH_STEP_OUTS_MAX, &m, err));
    TRY(bench_step_run(d, m, &b, stdout, err));
out:
    model_close(m);
    gguf_close(g);
    return st;
}

/* No device: the cost of a line on one core besides the model. */
static status lines_bench(const struct config *cfg, const struct bench_options *o, bool json, struct error *err)
{
    struct bench_lines b = { .input = o->input, .answer_n = 20, .seconds = o->seconds, .json = json };
    struct model_text text;
    status st;

    TRY(model_text_open(&text, cfg, o->model_path, NULL, err));
    TRY(bench_lines_run(&text.lines, &b, stdout, err));
out:
    model_text_close(&text);
    return st;
}

/* No device and no model: how fast progress is kept. */
static status store_bench(const struct config *cfg, const struct bench_options *o, bool json, struct error *err)
{
    struct bench_store b = { .url = o->input, .seconds = o->seconds, .json = json };

    return bench_store_run(cfg, &b, stdout, err);
}

static status job_bench(const struct config *cfg, const struct bench_options *o, bool json, struct error *err)
{
    return bench_job_run(cfg, &(struct bench_job){ .input = o->input, .model_path = o->model_path, .json = json }, stdout, err);
}

int cmd_bench(int argc, char **argv)
{
    struct bench_options o = { .seconds = 2, .context = 128, .shape = "llama-3-8b" };
    struct device *d = NULL;
    struct error err = { "" };
    struct cli cli;
    status st;

    cli_init(&cli, argv);
    options_read(&cli, argc, argv, &o);
    if (cli.done)
        return cli.exit_code;
    if (o.input != NULL) {         /* those that open what they need by themselves */
        st = strcmp(o.what, "lines") == 0 ? lines_bench(&cli.cfg, &o, cli.json, &err)
           : strcmp(o.what, "store") == 0 ? store_bench(&cli.cfg, &o, cli.json, &err)
                                          : job_bench(&cli.cfg, &o, cli.json, &err);
        return st == ST_OK ? EXIT_CODE_DONE : cli_fail(&cli, EXIT_CODE_CANNOT_START, "%s", err.text);
    }
    st = device_open(&cli.cfg, &d, &err);
    if (st == ST_OK)
        st = strcmp(o.what, "step") == 0    ? step_bench(d, &o, cli.json, &err)
           : strcmp(o.what, "gpu") == 0       ? gpu_bench(d, &o, &err)
           : strcmp(o.what, "attention") == 0 ? attention_bench(d, &o, cli.json, &err)
           : strcmp(o.what, "kernels") == 0 ? kernels_bench(d, &o, cli.json, &err)
                                            : error_set(&err, ST_REJECT, "no bench is called \"%s\"", o.what);
    device_close(d);
    return st == ST_OK ? EXIT_CODE_DONE : cli_fail(&cli, EXIT_CODE_CANNOT_START, "%s", err.text);
}
