/* tools/nightshift/cmd_config.c - every setting, its value, default and range. */
#include <stdio.h>

#include "tools/nightshift/cli.h"

int cmd_config(int argc, char **argv)
{
    enum { MARKDOWN = 1 };
    static const struct option options[] = { CLI_OPTIONS, { "markdown", no_argument, NULL, MARKDOWN }, { 0 } };
    struct cli cli;
    bool markdown = false;
    int option;

    cli_init(&cli, argv);
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == MARKDOWN)
            markdown = true;
        else
            cli_option(&cli, option);
    }
    if (cli.done)
        return cli.exit_code;
    if (optind < argc)
        return cli_fail(&cli, EXIT_CODE_USAGE, "unexpected argument \"%s\"", argv[optind]);
    config_print(&cli.cfg, markdown ? CONFIG_MARKDOWN : cli.json ? CONFIG_JSON : CONFIG_TEXT, stdout);
    return EXIT_CODE_DONE;
}
