/* The ceilings of this machine now, on all threads at once: products in registers alone, and a plain read loop. */
#include <stdlib.h>

#include "base/clock.h"
#include "kernels/cpu/loops.h"

#define ROUND_NS (10 * NS_PER_MS)  /* one timed round; the best of several counts: others use the machine too */
#define ROUNDS 7
#define READ_BYTES ((int64_t)256 << 20)        /* beyond any cache of a few cores */

struct measure {
    const struct cpu_loops *loops;
    int64_t turns;
    const float *from;
    float *sink;                   /* [threads * 16] keeps the work alive, a cache line each */
    double *flops;                 /* [threads * 8] */
};

static void dot_part(void *ctx, int thread_i, int threads_n)
{
    struct measure *m = ctx;

    (void)threads_n;
    m->sink[thread_i * 16] = m->loops->dot_peak(m->turns, &m->flops[thread_i * 8]);
}

static void fill_part(void *ctx, int thread_i, int threads_n)
{
    struct measure *m = ctx;
    int64_t i, last;

    team_split(READ_BYTES / 4, thread_i, threads_n, &i, &last);
    for (; i < last; i++)
        ((float *)m->from)[i] = (float)i;
}

static void read_part(void *ctx, int thread_i, int threads_n)
{
    struct measure *m = ctx;
    int64_t first, last;

    team_split(READ_BYTES / 4 / 1024, thread_i, threads_n, &first, &last);
    m->sink[thread_i * 16] = m->loops->read(m->from + first * 1024, (last - first) * 1024);
}

static int64_t run_ns(struct cpu_device *c, void (*fn)(void *, int, int), struct measure *m)
{
    int64_t start = clock_mono_ns();

    team_run(c->team, fn, m);
    return clock_mono_ns() - start;
}

status cpu_measure(struct device *d, struct device_ceilings *out)
{
    struct cpu_device *c = cpu_of(d);
    int n = d->info.threads_n, i, j;
    struct measure m = { .loops = c->loops, .turns = 1000 };
    int64_t ns;

    *out = (struct device_ceilings){ 0, 0 };
    m.sink = mem_take_zero((size_t)n, 16 * sizeof *m.sink);
    m.flops = mem_take_zero((size_t)n, 8 * sizeof *m.flops);
    m.from = cpu_buffer_take(d, (size_t)READ_BYTES);
    team_run(c->team, fill_part, &m);
    while ((ns = run_ns(c, dot_part, &m)) < ROUND_NS)
        m.turns *= 2;
    for (i = 0; i < ROUNDS; i++) {
        double flops = 0;

        ns = run_ns(c, dot_part, &m);
        for (j = 0; j < n; j++)
            flops += m.flops[j * 8];
        if (flops * 1e9 / (double)ns > out->dot_flops)
            out->dot_flops = flops * 1e9 / (double)ns;
        ns = run_ns(c, read_part, &m);
        if ((double)READ_BYTES * 1e9 / (double)ns > out->read_bytes_s)
            out->read_bytes_s = (double)READ_BYTES * 1e9 / (double)ns;
    }
    cpu_buffer_give(d, (void *)m.from);
    free(m.flops);
    free(m.sink);
    return ST_OK;
}
