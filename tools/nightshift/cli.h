/* tools/nightshift/cli.h - what the subcommands share. One file a subcommand: cmd_<name>.c with int cmd_<name>(argc, argv),
 * where argv[0] is the subcommand's name; it returns an exit code of worker/exit_code.h. */
#ifndef TOOLS_NIGHTSHIFT_CLI_H
#define TOOLS_NIGHTSHIFT_CLI_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"
#include "base/status.h"
#include "worker/exit_code.h"

struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
    const char *help;              /* usage, options, an example */
};
extern const struct command commands[];        /* ends with name NULL */

/* Options that every subcommand takes. A subcommand's option table starts with CLI_OPTIONS and its loop hands
 * unknown values to cli_option. */
enum { CLI_HELP = 1000, CLI_SET, CLI_CONFIG, CLI_JSON };
#define CLI_OPTIONS \
    { "help", no_argument, NULL, CLI_HELP }, { "set", required_argument, NULL, CLI_SET }, \
    { "config", required_argument, NULL, CLI_CONFIG }, { "json", no_argument, NULL, CLI_JSON }

struct cli {
    const char *command;
    struct config cfg;
    bool json;
    bool done;                     /* --help was printed, or an option was wrong: leave with exit_code */
    int exit_code;
};

/* Defaults, and messages that begin with "nightshift <command>: ". */
void cli_init(struct cli *cli, char **argv);
/* Handles --help, --set, --config, --json and everything getopt did not know. */
void cli_option(struct cli *cli, int option);
/* Takes the log level and the failpoint into use, once all options are read. */
void cli_start(struct cli *cli);
/* The value of an option that takes a whole number; anything else ends the command with what is needed. */
void cli_number(struct cli *cli, const char *option, const char *text, int64_t min, int64_t max, int64_t *out);
/* One line on stderr; returns exit_code. */
int cli_fail(const struct cli *cli, int exit_code, const char *fmt, ...) PRINTF_LIKE(3, 4);

int cmd_audit(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_collect(int argc, char **argv);
int cmd_config(int argc, char **argv);
int cmd_drain(int argc, char **argv);
int cmd_model(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_retry(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_submit(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_validate(int argc, char **argv);

#endif
