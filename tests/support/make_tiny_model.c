/* make_tiny_model FILE: the tiny model with its defaults, for tests that run the real program. */
#include <stdio.h>

#include "tests/support/tiny_model.h"

int main(int argc, char **argv)
{
    struct tiny_options o;

    if (argc != 2) {
        fputs("usage: make_tiny_model FILE\n", stderr);
        return 1;
    }
    tiny_model_defaults(&o);
    tiny_model_write(argv[1], &o);
    return 0;
}
