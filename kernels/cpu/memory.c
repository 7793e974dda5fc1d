/* Memory of the CPU device: buffers, and the pool that matrices are cut from. */
#define _GNU_SOURCE                /* MAP_ANONYMOUS, madvise */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/cpu/loops.h"

#define HUGE_BYTES ((size_t)2 << 20)
#define CHUNK_BYTES ((size_t)64 << 20)
#define BUFFER_HEAD 64             /* keeps the size of the mapping; keeps the rest aligned */

/* Zero pages that cost nothing until touched, huge where the machine has them: they spare the TLB. Aligned to
 * HUGE_BYTES, bytes a multiple of it. */
static char *map_take(size_t bytes)
{
    char *raw = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t skip;

    if (raw == MAP_FAILED)
        return NULL;
    skip = (HUGE_BYTES - (uintptr_t)raw % HUGE_BYTES) % HUGE_BYTES;
    if (skip > 0)
        munmap(raw, skip);
    if (skip < HUGE_BYTES)
        munmap(raw + skip + bytes, HUGE_BYTES - skip);
    (void)madvise(raw + skip, bytes, MADV_HUGEPAGE);           /* advice: without it the same, slower */
    return raw + skip;
}

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* ---- buffers ---- */

struct buffer_head {
    size_t mapped_bytes;           /* 0: from the heap */
};

void *cpu_buffer_try(size_t bytes)
{
    struct buffer_head *head;
    size_t whole = bytes + BUFFER_HEAD + CPU_OVERRUN;

    ASSERT(bytes < SIZE_MAX / 2);
    if (whole < HUGE_BYTES) {
        whole = round_up(whole, 64);
        head = aligned_alloc(64, whole);
        if (head != NULL)
            memset(head, 0, whole);
    } else {
        whole = round_up(whole, HUGE_BYTES);
        head = (struct buffer_head *)map_take(whole);
        if (head != NULL)
            head->mapped_bytes = whole;
    }
    return head != NULL ? (char *)head + BUFFER_HEAD : NULL;
}

void *cpu_buffer_take(struct device *d, size_t bytes)
{
    void *p = cpu_buffer_try(bytes);

    (void)d;
    ASSERT(p != NULL);
    return p;
}

void cpu_buffer_give(struct device *d, void *p)
{
    struct buffer_head *head = (struct buffer_head *)((char *)p - BUFFER_HEAD);

    (void)d;
    if (head->mapped_bytes == 0)
        free(head);
    else
        munmap(head, head->mapped_bytes);
}

void cpu_scratch_reserve(struct cpu_device *c, size_t bytes)
{
    int i;

    if (bytes <= c->scratch_bytes)
        return;
    for (i = 0; i < c->base.info.threads_n; i++) {
        device_buffer_give(&c->base, c->scratch[i]);
        c->scratch[i] = cpu_buffer_take(&c->base, bytes);
    }
    c->scratch_bytes = bytes;
}

/* ---- the pool ---- */

struct cpu_chunk {
    char *at;
    size_t bytes, used;
    int matrices_n;                /* cut from it and not given back; 0: the chunk goes */
};

char *cpu_pool_take(struct cpu_device *c, size_t bytes, struct cpu_chunk **out)
{
    struct cpu_chunk *chunk = c->chunk;
    char *p;

    bytes = round_up(bytes + CPU_OVERRUN, 64);
    if (chunk == NULL || chunk->bytes - chunk->used < bytes) {
        size_t whole = round_up(bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES, HUGE_BYTES);
        char *at = map_take(whole);

        if (at == NULL)
            return NULL;
        chunk = mem_take_zero(1, sizeof *chunk);
        chunk->at = at;
        chunk->bytes = whole;
        c->chunk = chunk;          /* what was left of the one before stays unused, and untouched */
    }
    p = chunk->at + chunk->used;
    chunk->used += bytes;
    chunk->matrices_n++;
    *out = chunk;
    return p;
}

void cpu_pool_give(struct cpu_device *c, struct cpu_chunk *chunk)
{
    if (--chunk->matrices_n > 0)
        return;
    if (c->chunk == chunk)
        c->chunk = NULL;
    munmap(chunk->at, chunk->bytes);
    free(chunk);
}
