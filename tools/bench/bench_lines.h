/* tools/bench/bench_lines.h - what a line costs on one core besides the model: record to request (JSON, template, tokens),
 * tokens to text, request to result line. Needs a model's text side alone. */
#ifndef TOOLS_BENCH_BENCH_LINES_H
#define TOOLS_BENCH_BENCH_LINES_H

#include <stdbool.h>
#include <stdio.h>

#include "worker/lines/lines.h"

struct bench_lines {
    const char *input;         /* a JSONL file; at most its first BENCH_LINES_MAX lines are read, again and again */
    int answer_n;              /* tokens of each answer, taken from the prompt */
    double seconds;
    bool json;                 /* one object instead of a table */
};

enum { BENCH_LINES_MAX = 10000 };

/* Times are the thread's own CPU time. ST_REJECT: the file cannot be read or holds no valid line. */
MUST_USE status bench_lines_run(const struct lines_model *m, const struct bench_lines *b, FILE *out, struct error *err);

#endif
