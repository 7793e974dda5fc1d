/* tools/nightshift/cmd_status.c - how far a job is, from its files or its topics, or what a worker says of itself. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "queue/queue.h"
#include "tools/nightshift/status.h"

static void print_json(const char *output, const struct queue_state *s, bool running)
{
    struct buf b = BUF_EMPTY;

    buf_add_text(&b, "{\"output\": ");
    buf_add_json(&b, output);
    buf_add_format(&b, ", \"job\": \"%s\", \"lines\": %" PRId64 ", \"done\": %" PRId64 ", \"failed\": %" PRId64
                   ", \"running\": %s, \"finished\": %s}\n", s->job, s->records_n, s->done_n - s->failed_n, s->failed_n,
                   running ? "true" : "false", s->finished ? "true" : "false");
    fwrite(b.data, 1, b.n, stdout);
    buf_fini(&b);
}

static int file_show(const struct cli *cli, const char *output)
{
    struct queue_state s;
    struct error err;
    bool running;

    if (queue_look(output, &s, &running, &err) != ST_OK)
        return cli_fail(cli, EXIT_CODE_CANNOT_START, "%s", err.text);
    if (cli->json)
        print_json(output, &s, running);
    else
        printf("%s: %" PRId64 " of %" PRId64 " lines have their verdict (%" PRId64 " failed); %s\n", output, s.done_n,
               s.records_n, s.failed_n, s.finished ? "finished" : running ? "running" : "stopped: run the same command to go on");
    return EXIT_CODE_DONE;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

int cmd_status(int argc, char **argv)
{
    enum { JOB = 1, GROUP };
    static const struct option options[] = {
        CLI_OPTIONS, { "job", required_argument, NULL, JOB }, { "group", required_argument, NULL, GROUP }, { 0 }
    };
    const char *job = NULL, *group = NULL, *what;
    struct error err;
    struct cli cli;
    int option;
    status st;

    cli_init(&cli, argv);
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case JOB: job = optarg; break;
        case GROUP: group = optarg; break;
        default: cli_option(&cli, option);
        }
    }
    cli_start(&cli);
    if (cli.done)
        return cli.exit_code;
    if (optind + 1 != argc)
        return cli_fail(&cli, EXIT_CODE_USAGE, "the output of one job, a queue or a worker's URL is needed; see `nightshift status --help`");
    what = argv[optind];
    if (begins(what, "kafka://"))
        st = status_topic(&cli, what, job, group != NULL ? group : cli.cfg.kafka_group, &err);
    else if (begins(what, "http://"))
        st = status_worker(&cli, what, &err);
    else
        return file_show(&cli, what);
    return st == ST_OK ? EXIT_CODE_DONE : cli_fail(&cli, EXIT_CODE_CANNOT_START, "%s", err.text);
}
