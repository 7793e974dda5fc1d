/* tools/nightshift/cmd_run.c - the whole job on this machine. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/nightshift/cli.h"
#include "worker/observe/progress.h"
#include "worker/pipeline/pipeline.h"
#include "worker/preempt/signals.h"

struct run_options {
    struct pipeline_job job;
    bool quiet;
};

static void options_read(struct cli *cli, int argc, char **argv, struct run_options *o)
{
    enum { OVERWRITE = 1, ORDER, QUIET, NAME };
    static const struct option options[] = {
        CLI_OPTIONS, { "output", required_argument, NULL, 'o' }, { "errors", required_argument, NULL, 'e' },
        { "model", required_argument, NULL, 'm' }, { "overwrite", no_argument, NULL, OVERWRITE },
        { "order", required_argument, NULL, ORDER }, { "quiet", no_argument, NULL, QUIET },
        { "model-name", required_argument, NULL, NAME }, { 0 }
    };
    int option;

    o->job.queue.url = "file:";
    while ((option = getopt_long(argc, argv, "o:e:m:", options, NULL)) != -1) {
        switch (option) {
        case 'o': o->job.queue.output = optarg; break;
        case 'e': o->job.queue.errors = optarg; break;
        case 'm': o->job.model_path = optarg; break;
        case OVERWRITE: o->job.queue.overwrite = true; break;
        case QUIET: o->quiet = true; break;
        case NAME: o->job.name = optarg; break;
        case ORDER:
            o->job.queue.order_input = strcmp(optarg, "input") == 0;
            if (!o->job.queue.order_input && strcmp(optarg, "any") != 0 && !cli->done) {
                cli->done = true;
                cli->exit_code = cli_fail(cli, EXIT_CODE_USAGE, "--order %s: input or any is needed", optarg);
            }
            break;
        default: cli_option(cli, option);
        }
    }
    cli_start(cli);
    if (cli->done)
        return;
    o->job.queue.input = optind < argc ? argv[optind] : NULL;
    if (o->job.queue.input == NULL || o->job.queue.output == NULL || o->job.model_path == NULL || optind + 1 < argc) {
        cli->done = true;
        cli->exit_code = cli_fail(cli, EXIT_CODE_USAGE, "one input, -o OUTPUT and -m MODEL are needed; see `nightshift run --help`");
    }
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;

    return a != NULL && b != NULL && stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

/* --overwrite means results of before, never the weights; the queue itself looks after the input. */
static void model_protect(struct cli *cli, const struct run_options *o)
{
    const struct queue_job *q = &o->job.queue;
    const char *path = same_file(q->output, o->job.model_path) ? q->output
                     : same_file(q->errors, o->job.model_path) ? q->errors : NULL;

    if (path == NULL)
        return;
    cli->done = true;
    cli->exit_code = cli_fail(cli, EXIT_CODE_CANNOT_START, "%s is the model: results would overwrite it; choose another file", path);
}

/* Until the work is over or a signal asks to stop; a second signal leaves at once: what is durable is enough to go on. */
static void run_watch(struct pipeline *p, bool quiet)
{
    struct pipeline_counts counts;
    struct progress progress;
    bool stopping = false;

    progress_init(&progress);
    while (!pipeline_ended(p)) {
        nanosleep(&(struct timespec){ .tv_nsec = 20 * NS_PER_MS }, NULL);
        if (signals_seen() > 0 && !stopping) {
            stopping = true;
            progress_end(&progress);
            fputs("nightshift run: stopping; saving progress (again to leave at once)\n", stderr);
            pipeline_stop(p);
        }
        if (signals_seen() > 1)
            _exit(EXIT_CODE_STOPPED);
        if (!quiet && !stopping) {
            pipeline_read_counts(p, &counts);
            progress_show(&progress, &counts);
        }
    }
    progress_end(&progress);
}

static void run_report(struct pipeline *p, const struct run_options *o, const struct cli *cli, int64_t start_ns,
                       int64_t opened_ns, int exit_code, const char *message)
{
    struct pipeline_counts counts;
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    pipeline_read_counts(p, &counts);
    report_print(&(struct run_report){
        .counts = &counts, .model = pipeline_model(p), .device = pipeline_device(p), .output = o->job.queue.output,
        .errors = o->job.queue.errors, .open_s = (double)(opened_ns - start_ns) / 1e9,
        .wall_s = (double)(clock_mono_ns() - start_ns) / 1e9, .cpu_s = (double)clock_cpu_ns() / 1e9,
        .peak_memory_bytes = (int64_t)usage.ru_maxrss * 1024, .exit_code = exit_code, .message = message }, cli->json, stdout);
}

int cmd_run(int argc, char **argv)
{
    int64_t start_ns = clock_mono_ns(), opened_ns;
    struct run_options o = { .quiet = false };
    struct pipeline *p;
    struct error err;
    struct cli cli;
    int exit_code;

    cli_init(&cli, argv);
    options_read(&cli, argc, argv, &o);
    if (!cli.done)
        model_protect(&cli, &o);
    if (cli.done)
        return cli.exit_code;
    signals_leave(EXIT_CODE_STOPPED);
    if (pipeline_open(&cli.cfg, &o.job, &p, &exit_code, &err) != ST_OK)
        return cli_fail(&cli, exit_code, "%s", err.text);
    opened_ns = clock_mono_ns();
    signals_install();
    pipeline_start(p);
    run_watch(p, o.quiet);
    exit_code = pipeline_join(p, &err);
    if (exit_code != EXIT_CODE_DONE)
        cli_fail(&cli, exit_code, "%s", err.text);
    if (!o.quiet || cli.json)
        run_report(p, &o, &cli, start_ns, opened_ns, exit_code, exit_code != EXIT_CODE_DONE ? err.text : NULL);
    pipeline_close(p);
    /* The answers are in their file, whoever reads the summary: `| head` does not make a failure of a finished job. */
    if (exit_code == EXIT_CODE_DONE && !cli.json && fflush(stdout) != 0)
        clearerr(stdout);
    return exit_code;
}
