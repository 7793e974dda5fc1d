/* gather: rows picked out of an activation. One thread: some hundred rows of a few KB are copied faster than a team wakes. */
#include "kernels/cpu/cpu.h"

#include <string.h>

status cpu_gather(struct device *d, enum act role, int dim, const void *in, const int32_t *rows, int rows_n, void *out)
{
    const size_t row_bytes = device_act_bytes(d, role, dim);
    int i;

    for (i = 0; i < rows_n; i++)
        memcpy((char *)out + (size_t)i * row_bytes, (const char *)in + (size_t)rows[i] * row_bytes, row_bytes);
    return ST_OK;
}
