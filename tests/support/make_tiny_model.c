/* make_tiny_model FILE [LAYERS]: the tiny model with its defaults, for tests that run the real program. With some hundred
 * layers a step takes milliseconds: sequences are under way for long enough to be hit by what a test does. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/tiny_model.h"

int main(int argc, char **argv)
{
    struct tiny_options o;

    tiny_model_defaults(&o);
    if (argc == 3)
        o.layers_n = atoi(argv[2]);
    if (argc < 2 || argc > 3 || o.layers_n < 1 || o.layers_n > 1000) {
        fputs("usage: make_tiny_model FILE [LAYERS]\n", stderr);
        return 1;
    }
    tiny_model_write(argv[1], &o);
    return 0;
}
