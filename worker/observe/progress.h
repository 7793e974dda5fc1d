/* worker/observe/progress.h - how a run is going, for people and programs: the live line and the summary at the end.
 * Threads: the main thread; the live line is also wiped by whichever thread logs (under the log's lock). */
#ifndef WORKER_OBSERVE_PROGRESS_H
#define WORKER_OBSERVE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "worker/pipeline/pipeline.h"

#define PROGRESS_PAST_N 32

struct progress {
    bool live;                     /* a terminal: one line, written over; else a line every 10 s */
    int64_t started_ns, shown_ns;
    /* where the run was over the last seconds, for the rates */
    struct { int64_t at_ns, in, out; } past[PROGRESS_PAST_N];
    int past_n, past_i;
};

void progress_init(struct progress *p);        /* stderr decides whether it is live */
/* Cheap; writes when it is time. */
void progress_show(struct progress *p, const struct pipeline_counts *c);
void progress_end(struct progress *p);         /* wipes the live line */

struct run_report {
    const struct pipeline_counts *counts;
    const struct model_shape *model;
    const struct device_info *device;
    const char *output, *errors;   /* errors NULL: none */
    double open_s, wall_s, cpu_s;
    int64_t peak_memory_bytes;
    int exit_code;
    const char *message;           /* why it stopped; NULL */
};
void report_print(const struct run_report *r, bool json, FILE *out);

#endif
