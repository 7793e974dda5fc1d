/* tools/nightshift/cmd_drain.c - asks a worker to hand over and end. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "tools/nightshift/cli.h"
#include "tools/nightshift/http.h"

#define WAIT_BEYOND_S 10                       /* a drain ends within its time; then its process within a few seconds */

struct drain {
    struct cli cli;
    const char *url;
    long seconds;                              /* 0: the worker's own drain_s */
    bool wait;
};

static void options_read(struct drain *d, int argc, char **argv)
{
    enum { SECONDS = 1, WAIT };
    static const struct option options[] = {
        CLI_OPTIONS, { "seconds", required_argument, NULL, SECONDS }, { "wait", no_argument, NULL, WAIT }, { 0 }
    };
    char *end;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case WAIT: d->wait = true; break;
        case SECONDS:
            d->seconds = strtol(optarg, &end, 10);
            if ((end == optarg || *end != '\0' || d->seconds < 1 || d->seconds > 86400) && !d->cli.done) {
                d->cli.done = true;
                d->cli.exit_code = cli_fail(&d->cli, EXIT_CODE_USAGE, "--seconds %s: 1 to 86400 is needed", optarg);
            }
            break;
        default: cli_option(&d->cli, option);
        }
    }
    cli_start(&d->cli);
    if (!d->cli.done && optind + 1 != argc) {
        d->cli.done = true;
        d->cli.exit_code = cli_fail(&d->cli, EXIT_CODE_USAGE, "a worker's URL is needed; see `nightshift drain --help`");
    }
    d->url = argv[optind];
}

/* Until nobody answers there. */
static status end_wait(const struct drain *d, long seconds, struct error *err)
{
    int64_t deadline_ns = clock_mono_ns() + (seconds + WAIT_BEYOND_S) * NS_PER_S;
    struct error gone;

    while (clock_mono_ns() < deadline_ns) {
        struct buf body = BUF_EMPTY;
        int code;
        status st = http_call("GET", d->url, "/healthz", &code, &body, &gone);

        buf_fini(&body);
        if (st == ST_RETRY)
            return ST_OK;
        nanosleep(&(struct timespec){ .tv_nsec = 100 * NS_PER_MS }, NULL);
    }
    return error_set(err, ST_RETRY, "%s still answers", d->url);
}

static status drain(const struct drain *d, struct error *err)
{
    struct buf body = BUF_EMPTY;
    char path[64] = "/drain";
    long seconds = 0;
    int code;
    status st;

    if (d->seconds > 0)
        snprintf(path, sizeof path, "/drain?seconds=%ld", d->seconds);
    TRY(http_call("POST", d->url, path, &code, &body, err));
    if (code != 202)
        TRY(error_set(err, ST_REJECT, "%s answers %d: %.200s", d->url, code, buf_text(&body)));
    if (sscanf(buf_text(&body), "{\"draining\": true, \"seconds\": %ld", &seconds) != 1)
        TRY(error_set(err, ST_REJECT, "%s does not say that it drains", d->url));
    if (d->wait)
        TRY(end_wait(d, seconds, err));
    if (d->cli.json)
        printf("{\"draining\": true, \"seconds\": %ld, \"ended\": %s}\n", seconds, d->wait ? "true" : "false");
    else if (d->wait)
        printf("%s has handed over and ended\n", d->url);
    else
        printf("%s drains: it ends within %ld s\n", d->url, seconds);
out:
    buf_fini(&body);
    return st;
}

int cmd_drain(int argc, char **argv)
{
    struct drain d = { .seconds = 0 };
    struct error err;

    cli_init(&d.cli, argv);
    options_read(&d, argc, argv);
    if (d.cli.done)
        return d.cli.exit_code;
    return drain(&d, &err) == ST_OK ? EXIT_CODE_DONE : cli_fail(&d.cli, EXIT_CODE_CANNOT_START, "%s", err.text);
}
