/* tools/bench/bench_kernels.h - the products and norms of a decoder, timed beside the ceilings of the same device in the
 * same run. Random weights, real sizes: every layer has its own, so that weights come from memory as they do in a step. */
#ifndef TOOLS_BENCH_BENCH_KERNELS_H
#define TOOLS_BENCH_BENCH_KERNELS_H

#include <stdbool.h>
#include <stdio.h>

#include "kernels/kernels.h"

struct bench_decoder {
    int layers_n, dim, heads_n, kv_heads_n, head_dim, ff, vocab;
};

extern const struct bench_decoder bench_smollm2_135m;

struct bench_kernels {
    struct bench_decoder decoder;
    const int *rows;                   /* row counts to be timed */
    int rows_n;
    int wanted_max;                    /* rows of the head: a prefill wants the logits of one row, a decode of each:
                                        * row counts up to this are decodes */
    double seconds;                    /* for each row count */
    bool json;                         /* one object a line instead of a table */
};

/* Prints one line an operation and row count, and one for all of them together: share is of the measured dot-product
 * peak, and of the read loop's bytes (weights over time). */
MUST_USE status bench_kernels_run(struct device *d, const struct bench_kernels *b, FILE *out, struct error *err);

#endif
