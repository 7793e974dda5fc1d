#include "kernels/cpu/cpu.h"
#include <stdlib.h>
#pragma GCC diagnostic ignored "-Wunused-parameter"

size_t cpu_kv_page_bytes(const struct device *d, const struct kv_shape *shape)
{
    ASSERT(!"not built yet");
    abort();
}

status cpu_kv_open(struct device *d, const struct kv_shape *shape, struct kv **out, struct error *err)
{
    ASSERT(!"not built yet");
    abort();
}

void cpu_kv_close(struct device *d, struct kv *kv)
{
    ASSERT(!"not built yet");
    abort();
}

status cpu_kv_pages_copy(struct device *d, struct kv *kv, const int32_t *src, const int32_t *dst, int pages_n)
{
    ASSERT(!"not built yet");
    abort();
}

status cpu_kv_positions_move(struct device *d, struct kv *kv, const struct kv_move *moves, int moves_n)
{
    ASSERT(!"not built yet");
    abort();
}

