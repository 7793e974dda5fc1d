/* tools/bench/bench_step.h - whole steps of a real model, timed beside the ceilings of the same device in the same run:
 * a prefill of 512 tokens, decodes of 1, 8, 32, 64 sequences. What a job's speed is made of. */
#ifndef TOOLS_BENCH_BENCH_STEP_H
#define TOOLS_BENCH_BENCH_STEP_H

#include <stdbool.h>
#include <stdio.h>

#include "kernels/kernels.h"
#include "worker/model/model.h"

enum { BENCH_STEP_ROWS_MAX = 512, BENCH_STEP_OUTS_MAX = 128 };      /* the model must be open for these */

struct bench_step {
    int context;               /* cached positions of each decoding sequence */
    double seconds;            /* for each case */
    bool json;                 /* one object a line instead of a table */
};

/* Multiplications and additions of one row's products in all layers, the head not among them. */
double bench_row_flops(const struct model_shape *s);

/* Prints a line a case: ms (median), tok/s, share of the measured dot-product peak (products and attention), and weight
 * bytes a second over those of the plain read loop. */
MUST_USE status bench_step_run(struct device *d, struct model *m, const struct bench_step *b, FILE *out,
                               struct error *err);

#endif
