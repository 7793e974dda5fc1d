/* tools/bench/bench_attention.h - rope, attention and sampling of a decoder, timed beside the ceilings of the same
 * device in the same run: prefill chunks, decodes of many sequences with and without a shared prefix, a draft tree. */
#ifndef TOOLS_BENCH_BENCH_ATTENTION_H
#define TOOLS_BENCH_BENCH_ATTENTION_H

#include "tools/bench/bench_kernels.h"

struct bench_attention {
    struct bench_decoder decoder;
    const char *cases;                 /* those whose names hold this text; "": all */
    double seconds;                    /* for each case */
    bool json;                         /* one object a line instead of a table */
};

/* Prints a line a case. Attention: all layers; share is of the measured dot-product peak, bytes are those of distinct
 * pages over time, beside the read loop. Sampling: bytes of logits over time. */
MUST_USE status bench_attention_run(struct device *d, const struct bench_attention *b, FILE *out, struct error *err);

#endif
