/* tools/nightshift/main.c - the table of subcommands. */
#include <stdio.h>
#include <string.h>

#include "tools/nightshift/cli.h"

const struct command commands[] = {
    { "config", "every setting, its default and range", cmd_config,
      "usage: nightshift config [--json | --markdown]\n"
      "Prints every setting with its value, default, range and meaning.\n"
      "example: nightshift config --set threads=8 > nightshift.ini\n" },
    { NULL, NULL, NULL, NULL }
};

static void usage_print(FILE *out)
{
    fputs("usage: nightshift COMMAND ...\n\n", out);
    for (const struct command *c = commands; c->name != NULL; c++)
        fprintf(out, "  %-10s %s\n", c->name, c->summary);
    fputs("\n`nightshift COMMAND --help` tells more, with an example.\n", out);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage_print(stderr);
        return EXIT_CODE_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        usage_print(stdout);
        return EXIT_CODE_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("nightshift " NIGHTSHIFT_VERSION);
        return EXIT_CODE_DONE;
    }
    for (const struct command *c = commands; c->name != NULL; c++)
        if (strcmp(argv[1], c->name) == 0)
            return c->run(argc - 1, argv + 1);
    fprintf(stderr, "nightshift: no command is called \"%s\"\n\n", argv[1]);
    usage_print(stderr);
    return EXIT_CODE_USAGE;
}
