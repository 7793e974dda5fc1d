/* tools/bench/bench_store.h - what a progress store takes and gives: thousands of sequences saved at once and a little at a time,
 * looked up by another owner, begun in batches, forgotten. Works in a job of its own and takes away what it has stored. */
#ifndef TOOLS_BENCH_BENCH_STORE_H
#define TOOLS_BENCH_BENCH_STORE_H

#include <stdbool.h>
#include <stdio.h>

#include "base/config.h"

struct bench_store {
    const char *url;           /* as checkpoint_url */
    double seconds;            /* rounds are made until then, the fastest of each figure is told */
    bool json;                 /* one object instead of a table */
};

/* ST_REJECT: no such store. ST_RETRY: it does not answer. */
MUST_USE status bench_store_run(const struct config *cfg, const struct bench_store *b, FILE *out, struct error *err);

#endif
