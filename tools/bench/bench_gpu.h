/* tools/bench/bench_gpu.h - products, attention, sampling and whole steps at the shape of a known model, on a device that
 * computes while the host goes on. Each operation runs many times in a row on weights and pages of its own (so that they
 * come from memory, not from a cache) before the device is waited for; beside each stands its share of the ceilings of the
 * same run. */
#ifndef TOOLS_BENCH_BENCH_GPU_H
#define TOOLS_BENCH_BENCH_GPU_H

#include <stdbool.h>
#include <stdio.h>

#include "kernels/kernels.h"

struct bench_gpu {
    const char *shape;         /* of model_open_random */
    double seconds;            /* for each line */
    bool csv;                  /* rows for tools/bench/results instead of a table */
};

/* Prints a line an operation: what, us, TFLOP/s and share of products, GB/s and share of the read loop. */
MUST_USE status bench_gpu_run(struct device *d, const struct bench_gpu *o, FILE *out, struct error *err);

#endif
