#include "tools/nightshift/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failpoint.h"
#include "base/log.h"

void cli_init(struct cli *cli, char **argv)
{
    memset(cli, 0, sizeof *cli);
    cli->command = argv[0];
    config_defaults(&cli->cfg);
}

int cli_fail(const struct cli *cli, int exit_code, const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "nightshift %s: ", cli->command);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return exit_code;
}

static void finish(struct cli *cli, int exit_code)
{
    cli->done = true;
    cli->exit_code = exit_code;
}

static void help_print(const struct cli *cli)
{
    for (const struct command *c = commands; c->name != NULL; c++)
        if (strcmp(c->name, cli->command) == 0)
            fputs(c->help, stdout);
    fputs("\nEvery command: --set NAME=VALUE for any setting (`nightshift config` lists them), --config FILE, --json, "
          "--help\n", stdout);
}

void cli_option(struct cli *cli, int option)
{
    struct error err;

    if (cli->done)
        return;
    switch (option) {
    case CLI_HELP:
        help_print(cli);
        finish(cli, EXIT_CODE_DONE);
        break;
    case CLI_SET:
        if (config_set_pair(&cli->cfg, optarg, &err) != ST_OK)
            finish(cli, cli_fail(cli, EXIT_CODE_USAGE, "%s", err.text));
        break;
    case CLI_CONFIG:
        if (config_file(&cli->cfg, optarg, &err) != ST_OK)
            finish(cli, cli_fail(cli, EXIT_CODE_USAGE, "%s", err.text));
        break;
    case CLI_JSON:
        cli->json = true;
        break;
    default:    /* getopt_long has said what is wrong */
        finish(cli, cli_fail(cli, EXIT_CODE_USAGE, "see `nightshift %s --help`", cli->command));
    }
}

void cli_number(struct cli *cli, const char *option, const char *text, int64_t min, int64_t max, int64_t *out)
{
    char *end;
    long long v;

    errno = 0;
    v = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && errno == 0 && v >= min && v <= max)
        *out = v;
    else if (!cli->done)
        finish(cli, cli_fail(cli, EXIT_CODE_USAGE, "%s %s: a whole number from %" PRId64 " to %" PRId64 " is needed", option, text,
                             min, max));
}

void cli_start(struct cli *cli)
{
    enum log_level level;
    const char *failpoint_spec = config_env("NIGHTSHIFT_FAILPOINT");

    if (cli->done)
        return;
    if (log_level_parse(cli->cfg.log_level, &level) != ST_OK)
        finish(cli, cli_fail(cli, EXIT_CODE_USAGE, "setting log_level=%s: error, warn, info or debug is needed",
                             cli->cfg.log_level));
    else
        log_level_set(level);
    if (failpoint_arm(failpoint_spec) != ST_OK)
        finish(cli, cli_fail(cli, EXIT_CODE_USAGE, "NIGHTSHIFT_FAILPOINT=%s: name:n[:action] is needed, n from 1", failpoint_spec));
}
