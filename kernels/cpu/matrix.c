#include "kernels/cpu/cpu.h"
#include <stdlib.h>
#pragma GCC diagnostic ignored "-Wunused-parameter"

status cpu_matrix_load(struct device *d, int k, const struct matrix_source *sources, int sources_n,
                       struct matrix **out, struct error *err)
{
    ASSERT(!"not built yet");
    abort();
}

status cpu_matrix_load_gated(struct device *d, int k, const struct matrix_source *gate,
                             const struct matrix_source *up, struct matrix **out, struct error *err)
{
    ASSERT(!"not built yet");
    abort();
}

void cpu_matrix_give(struct device *d, struct matrix *m)
{
    ASSERT(!"not built yet");
    abort();
}

status cpu_embed(struct device *d, const struct matrix *table, const struct step *s, float scale, void *x)
{
    ASSERT(!"not built yet");
    abort();
}

