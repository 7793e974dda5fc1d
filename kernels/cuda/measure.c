/* The ceilings of this device now: a plain read of 4 GB, and products of 8192^3 on random data (on zeros the chip draws
 * less power and runs faster), both kept up for a while because the card is limited by power. */
#include "kernels/cuda/cuda.h"

#include "base/clock.h"

#define READ_BYTES ((size_t)4 << 30)
#define SIDE 8192
#define SUSTAIN_NS (1000 * NS_PER_MS)
#define BATCH 8

static status reads_run(struct cuda_device *c, const struct cuda_room *from, struct cuda_room *sink)
{
    return st_cuda(launch_read(c->stream, from->at, (int64_t)(from->bytes / 16), sink->at), "read");
}

/* Units a second of `run`, called in batches until SUSTAIN_NS have passed; the best batch counts. */
static status rate(struct cuda_device *c, status (*run)(struct cuda_device *c, void *ctx), void *ctx, double units,
                   double *out)
{
    int64_t start, began;
    status st = ST_OK;

    *out = 0;
    TRY(run(c, ctx));
    TRY(cuda_sync(&c->base));
    for (began = clock_mono_ns(); clock_mono_ns() - began < SUSTAIN_NS;) {
        double now;

        start = clock_mono_ns();
        for (int i = 0; i < BATCH; i++)
            TRY(run(c, ctx));
        TRY(cuda_sync(&c->base));
        now = units * BATCH * 1e9 / (double)(clock_mono_ns() - start);
        *out = now > *out ? now : *out;
    }
out:
    return st;
}

struct measure { struct cuda_room memory, sink; struct cuda_matrix m; };

static status read_once(struct cuda_device *c, void *ctx)
{
    struct measure *m = ctx;

    return reads_run(c, &m->memory, &m->sink);
}

static status product_once(struct cuda_device *c, void *ctx)
{
    struct measure *m = ctx;
    uint16_t *at = m->memory.at;

    return cuda_linear(&c->base, &m->m.base, NULL, at + (size_t)SIDE * SIDE, SIDE, LINEAR_STORE,
                       at + (size_t)2 * SIDE * SIDE);
}

status cuda_measure(struct device *d, struct device_ceilings *out)
{
    struct cuda_device *c = cuda_of(d);
    struct measure m = { .m = { .base = { .rows_n = SIDE, .k = SIDE }, .n = SIDE } };
    status st = ST_OK;

    *out = (struct device_ceilings){ 0, 0 };
    TRY(cuda_room(&m.memory, READ_BYTES));
    TRY(cuda_room(&m.sink, sizeof(unsigned)));
    TRY(st_cuda(launch_random(c->stream, 3, (int64_t)(READ_BYTES / 2), m.memory.at), "random numbers"));
    TRY(rate(c, read_once, &m, (double)READ_BYTES, &out->read_bytes_s));
    m.m.w = m.memory.at;
    TRY(cuda_product_shape(c, &m.m));
    TRY(rate(c, product_once, &m, 2.0 * SIDE * SIDE * SIDE, &out->dot_flops));
out:
    cuda_room_fini(&m.memory);
    cuda_room_fini(&m.sink);
    return st;
}
