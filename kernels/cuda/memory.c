/* Memory of the CUDA device. Activations, weights and pages are plain device memory; what the host fills in while work
 * runs goes through blocks (cuda.h); what both see is pinned. Nothing is managed: a page fault would stop a kernel. */
#include "kernels/cuda/cuda.h"

#include <string.h>

#include "base/log.h"

status st_cuda(cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return ST_OK;
    log_error("cuda.failed", "what=\"%s\" error=%s text=\"%s\"", what, cudaGetErrorName(e), cudaGetErrorString(e));
    return ST_FATAL;
}

void cuda_note(cudaError_t e, const char *what)
{
    status st = st_cuda(e, what);

    (void)st;
}

/* ---- rooms ---- */

status cuda_room(struct cuda_room *r, size_t bytes)
{
    size_t whole = 4096;
    status st;

    if (bytes <= r->bytes)
        return ST_OK;
    while (whole < bytes)
        whole *= 2;
    if (whole > ((size_t)256 << 20))           /* large ones exactly: half of a gigabyte unused is too much */
        whole = bytes;
    cuda_room_fini(r);             /* waits for the kernels that still use it */
    st = st_cuda(cudaMalloc(&r->at, whole), "device memory for intermediate results");
    if (st != ST_OK) {
        log_error("cuda.memory", "bytes=%zu: lower kv_memory_mb or step_rows_max", whole);
        r->at = NULL;
        return st;
    }
    r->bytes = whole;
    return ST_OK;
}

void cuda_room_fini(struct cuda_room *r)
{
    cuda_note(cudaFree(r->at), "free");
    *r = (struct cuda_room){ NULL, 0 };
}

/* ---- blocks ---- */

void cuda_blocks_init(struct cuda_blocks *b, int n)
{
    memset(b, 0, sizeof *b);
    b->n = n;
}

static void block_fini(struct cuda_block *b)
{
    cuda_note(cudaFree(b->device), "free");
    cuda_note(cudaFreeHost(b->host), "free");
    b->host = b->device = NULL;
    b->bytes = 0;
}

void cuda_blocks_fini(struct cuda_blocks *b)
{
    for (int i = 0; i < b->n; i++) {
        block_fini(&b->block[i]);
        if (b->block[i].used != NULL)
            cuda_note(cudaEventDestroy(b->block[i].used), "event");
    }
}

status cuda_block_take(struct cuda_device *c, struct cuda_blocks *b, size_t bytes, struct cuda_block **out)
{
    struct cuda_block *old = &b->block[b->at], *block;
    size_t whole = 65536;
    status st = ST_OK;

    if (old->bytes > 0) {          /* its last readers have been launched by now */
        if (old->used == NULL)
            TRY(st_cuda(cudaEventCreateWithFlags(&old->used, cudaEventDisableTiming), "event"));
        TRY(st_cuda(cudaEventRecord(old->used, c->stream), "event"));
        old->waits = true;
    }
    b->at = (b->at + 1) % b->n;
    block = &b->block[b->at];
    if (block->waits)
        TRY(st_cuda(cudaEventSynchronize(block->used), "the device"));
    block->waits = false;
    if (block->bytes < bytes) {
        while (whole < bytes)
            whole *= 2;
        block_fini(block);
        TRY(st_cuda(cudaHostAlloc((void **)&block->host, whole, cudaHostAllocDefault), "pinned memory"));
        TRY(st_cuda(cudaMalloc((void **)&block->device, whole), "device memory"));
        block->bytes = whole;
    }
    *out = block;
out:
    return st;
}

status cuda_block_send(struct cuda_device *c, const struct cuda_block *b, size_t bytes)
{
    return st_cuda(cudaMemcpyAsync(b->device, b->host, bytes, cudaMemcpyHostToDevice, c->stream), "copy to the device");
}

status cuda_send_ints(struct cuda_device *c, const int32_t *from, int n, const int32_t **out)
{
    struct cuda_block *b;
    size_t bytes = (size_t)n * sizeof *from;
    status st = ST_OK;

    TRY(cuda_block_take(c, &c->sends, bytes, &b));
    memcpy(b->host, from, bytes);
    TRY(cuda_block_send(c, b, bytes));
    *out = (const int32_t *)b->device;
out:
    return st;
}

/* ---- buffers ---- */

void *cuda_buffer_take(struct device *d, size_t bytes)
{
    void *p = NULL;

    (void)d;
    bytes += bytes == 0;
    if (st_cuda(cudaHostAlloc(&p, bytes, cudaHostAllocPortable | cudaHostAllocMapped), "pinned memory") != ST_OK) {
        log_error("cuda.pinned", "bytes=%zu: the machine gives no pinned memory of this size", bytes);
        return NULL;
    }
    memset(p, 0, bytes);
    return p;
}

void *cuda_memory_take(struct device *d, size_t bytes)
{
    struct cuda_device *c = cuda_of(d);
    void *p = NULL;

    bytes += bytes == 0;
    if (cudaMalloc(&p, bytes) != cudaSuccess) {
        cudaGetLastError();        /* forget it: the caller says what to do */
        return NULL;
    }
    if (st_cuda(cudaMemsetAsync(p, 0, bytes, c->stream), "clear") != ST_OK) {
        cuda_note(cudaFree(p), "free");
        return NULL;
    }
    return p;
}

void cuda_buffer_give(struct device *d, void *p)
{
    struct cudaPointerAttributes a;

    cuda_note(cudaStreamSynchronize(cuda_of(d)->stream), "the device");    /* a copy or a kernel may still use it */
    if (st_cuda(cudaPointerGetAttributes(&a, p), "pointer") != ST_OK)
        return;
    if (a.type == cudaMemoryTypeHost)
        cuda_note(cudaFreeHost(p), "free");
    else
        cuda_note(cudaFree(p), "free");
}

status cuda_copy(struct device *d, void *to, const void *from, size_t bytes)
{
    struct cuda_device *c = cuda_of(d);
    status st = ST_OK;

    TRY(st_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, c->stream), "copy"));
    TRY(cuda_sync(d));
out:
    return st;
}

float *cuda_vector_load(struct device *d, const float *from, int n)
{
    float *v = cuda_memory_take(d, (size_t)n * sizeof *v);

    if (v == NULL || cuda_copy(d, v, from, (size_t)n * sizeof *v) != ST_OK)
        return NULL;
    return v;
}
