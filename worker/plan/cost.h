/* worker/plan/cost.h - what a step costs: measured, kept fresh, used for the row budget and for time estimates.
 * step_s = fixed + rows * per_row + outs * per_out + context * per_kv (sum over rows of positions they read).
 * Least squares of the relative error with forgetting, no factor below zero (so more rows never cost less); one sample
 * moves the model by a bounded amount, however long the machine slept in the middle of it.
 * Threads: the engine's. */
#ifndef WORKER_PLAN_COST_H
#define WORKER_PLAN_COST_H

#include <stdint.h>

struct cost_model {
    double fixed_s, row_s, out_s, kv_s;
    double samples_n;
    double moments[4][5];      /* running normal equations with forgetting; private */
};

void cost_init(struct cost_model *c);
/* seconds <= 0 is ignored: a clock that did not move says nothing. */
void cost_observe(struct cost_model *c, int rows, int outs, double kv_positions, double seconds);
/* 0 before the first sample. */
double cost_predict(const struct cost_model *c, int rows, int outs, double kv_positions);

#endif
