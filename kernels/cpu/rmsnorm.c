/* rmsnorm: out[r] = x[r] / sqrt(mean(x[r]^2) + eps) * w, rows spread over the threads. */
#include "kernels/cpu/loops.h"

#define ALONE_MAX 4096             /* elements that one thread has done before the others have begun */

struct norm {
    const struct cpu_device *c;
    const float *x, *w;
    float eps;
    const int32_t *rows;
    int rows_n, dim;
    char *out;
};

static void norm_part(void *ctx, int thread_i, int threads_n)
{
    const struct norm *n = ctx;
    size_t out_bytes = (size_t)n->dim * (n->c->fp32 ? 4 : 2);
    int64_t r, last;

    team_split(n->rows_n, thread_i, threads_n, &r, &last);
    for (; r < last; r++)
        n->c->loops->rmsnorm(n->x + (size_t)(n->rows != NULL ? n->rows[r] : r) * n->dim, n->w, n->eps, n->dim,
                             !n->c->fp32, n->out + (size_t)r * out_bytes);
}

status cpu_rmsnorm(struct device *d, const void *x, const float *w, float eps, const int32_t *rows, int rows_n,
                   int dim, void *out)
{
    struct norm n = { cpu_of(d), x, w, eps, rows, rows_n, dim, out };

    if ((int64_t)rows_n * dim <= ALONE_MAX)
        norm_part(&n, 0, 1);
    else
        team_run(n.c->team, norm_part, &n);
    return ST_OK;
}
