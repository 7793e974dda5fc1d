#include "kernels/cpu/cpu.h"
#include <stdlib.h>
#pragma GCC diagnostic ignored "-Wunused-parameter"

status cpu_rope_write(struct device *d, const void *qkv, const struct step *s, int layer,
                      const struct attention_shape *a, const struct rope *rope, const struct qk_norm *norm,
                      struct kv *kv, void *q)
{
    ASSERT(!"not built yet");
    abort();
}

