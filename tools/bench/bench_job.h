/* tools/bench/bench_job.h - a whole job, from the model's file to the last durable result, beside the ceilings of the same device
 * measured right before and after it. */
#ifndef TOOLS_BENCH_BENCH_JOB_H
#define TOOLS_BENCH_BENCH_JOB_H

#include <stdbool.h>
#include <stdio.h>

#include "base/config.h"

struct bench_job {
    const char *input, *model_path;
    bool json;                 /* one object instead of lines */
};

/* Runs the job into a folder of its own, which goes afterwards. Prints wall time (loading included), lines and tokens a second, and
 * the share of the measured dot-product peak that the products of all computed rows come to. */
MUST_USE status bench_job_run(const struct config *cfg, const struct bench_job *b, FILE *out, struct error *err);

#endif
