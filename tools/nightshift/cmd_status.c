/* tools/nightshift/cmd_status.c - how far a job is, from its files; it may be running. */
#include <inttypes.h>
#include <stdio.h>

#include "base/buf.h"
#include "queue/queue.h"
#include "tools/nightshift/cli.h"

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

int cmd_status(int argc, char **argv)
{
    static const struct option options[] = { CLI_OPTIONS, { 0 } };
    struct queue_state s;
    struct error err;
    struct cli cli;
    bool running;
    int option;

    cli_init(&cli, argv);
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        cli_option(&cli, option);
    cli_start(&cli);
    if (cli.done)
        return cli.exit_code;
    if (optind + 1 != argc)
        return cli_fail(&cli, EXIT_CODE_USAGE, "the output of one job is needed; see `nightshift status --help`");
    if (queue_look(argv[optind], &s, &running, &err) != ST_OK)
        return cli_fail(&cli, EXIT_CODE_CANNOT_START, "%s", err.text);
    if (cli.json)
        print_json(argv[optind], &s, running);
    else
        printf("%s: %" PRId64 " of %" PRId64 " lines have their verdict (%" PRId64 " failed); %s\n", argv[optind], s.done_n,
               s.records_n, s.failed_n, s.finished ? "finished" : running ? "running" : "stopped: run the same command to go on");
    return EXIT_CODE_DONE;
}
