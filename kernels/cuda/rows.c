/* Operations on whole rows: norm, gather. */
#include "kernels/cuda/cuda.h"

status cuda_rmsnorm(struct device *d, const void *x, const float *w, float eps, const int32_t *rows, int rows_n,
                    int dim, void *out)
{
    struct cuda_device *c = cuda_of(d);
    const int32_t *sent = NULL;
    status st = ST_OK;

    if (rows_n == 0)
        return ST_OK;
    if (rows != NULL)
        TRY(cuda_send_ints(c, rows, rows_n, &sent));
    TRY(st_cuda(launch_rmsnorm(c->stream, c->fp32, x, w, eps, sent, rows_n, dim, out), "rmsnorm"));
out:
    return st;
}

status cuda_gather(struct device *d, enum act role, int dim, const void *in, const int32_t *rows, int rows_n, void *out)
{
    struct cuda_device *c = cuda_of(d);
    const int32_t *sent;
    status st = ST_OK;

    if (rows_n == 0)
        return ST_OK;
    TRY(cuda_send_ints(c, rows, rows_n, &sent));
    TRY(st_cuda(launch_gather(c->stream, in, sent, rows_n, device_act_bytes(d, role, dim), out), "gather"));
out:
    return st;
}
