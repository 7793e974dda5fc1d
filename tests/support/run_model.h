/* tests/support/run_model.h - a model driven by hand: sequences that grow by rows, one step after the other, without
 * engine or cache. For tests of kernels and of the forward pass on real weights.
 * Threads: one owner. Failures abort: a test cannot go on without its model. */
#ifndef TESTS_SUPPORT_RUN_MODEL_H
#define TESTS_SUPPORT_RUN_MODEL_H

#include <stdbool.h>

#include "worker/model/model.h"

struct run {
    struct gguf *gguf;
    struct device *device;
    struct model *model;
    struct kv *kv;
    struct step step;              /* rows and wants added so far */
    int rows_max, wants_max, seqs_max, positions_max;
    int32_t *cached;               /* [seqs] positions of each sequence that are done */
    int32_t *pages;                /* [seqs][positions_max / PAGE_POSITIONS], their own from the start */
};

struct run_options {
    const char *path, *dtype, *isa;        /* dtype "bf16" or "fp32"; isa "auto"; "cuda": the CUDA device */
    int threads, seqs_max, positions_max, rows_max;
    int outs_max;                          /* memory for logits: wants beyond it run in parts */
};

void run_open(struct run *r, const struct run_options *o);
bool run_can_open(const char *device); /* this build and machine have it */
void run_close(struct run *r);

/* Adds rows to the next step: tokens of one sequence, after those it has. A sequence is added at most once a step. */
void run_add(struct run *r, int seq, const int32_t *tokens, int n);
/* Wants the last row added (or, back > 0, a row before it); wants come in ascending order of rows. sampling is copied
 * but for what it points at. Returns the index of the result in r->step.sampled. */
int run_want(struct run *r, int back, const struct sampling *sampling);
/* Runs the step and empties it; r->step.sampled stays until the next run_want. */
void run_step(struct run *r);
void run_forget(struct run *r, int seq);   /* the sequence starts anew */

/* Greedy, nothing else on, with the log-probability of the token. */
struct sampling run_greedy(void);
/* Log-probability of a given token. */
struct sampling run_target(int32_t token);

#endif
