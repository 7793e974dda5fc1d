#include "kernels/cpu/cpu.h"
#include <stdlib.h>
#pragma GCC diagnostic ignored "-Wunused-parameter"

status cpu_linear(struct device *d, const struct matrix *w, const float *bias, const void *in, int rows_n,
                  enum linear_to to, void *out)
{
    ASSERT(!"not built yet");
    abort();
}

status cpu_linear_gated(struct device *d, const struct matrix *w, enum gate_act act, const void *in, int rows_n,
                        void *out)
{
    ASSERT(!"not built yet");
    abort();
}

status cpu_logits(struct device *d, const struct matrix *head, const void *in, int rows_n, float softcap,
                  float *logits)
{
    ASSERT(!"not built yet");
    abort();
}

