/* The pool of KV pages and what moves them. Layout: attend.h. */
#include "kernels/cpu/attend.h"

#include <stdlib.h>
#include <string.h>

static size_t part_bytes(const struct device *d, const struct kv_shape *shape)
{
    return (size_t)PAGE_POSITIONS * (size_t)shape->head_dim * (cpu_of_const(d)->fp32 ? 4 : 2);
}

size_t cpu_kv_page_bytes(const struct device *d, const struct kv_shape *shape)
{
    return part_bytes(d, shape) * 2 * (size_t)shape->layers_n * (size_t)shape->kv_heads_n;
}

status cpu_kv_open(struct device *d, const struct kv_shape *shape, struct kv **out, struct error *err)
{
    struct kv *kv;
    void *data;

    *out = NULL;
    if (shape->layers_n < 1 || shape->kv_heads_n < 1 || shape->pages_n < 1)
        return error_set(err, ST_REJECT, "KV pool of %d layers, %d heads, %d pages: each must be at least 1",
                         shape->layers_n, shape->kv_heads_n, shape->pages_n);
    if (shape->head_dim < 2 || shape->head_dim > HEAD_DIM_MAX || shape->head_dim % 2 != 0)
        return error_set(err, ST_REJECT, "head size %d: the cpu device has attention for even sizes up to %d",
                         shape->head_dim, HEAD_DIM_MAX);
    if ((int64_t)shape->layers_n * shape->kv_heads_n > INT32_MAX / HEAD_DIM_MAX ||
        (double)cpu_kv_page_bytes(d, shape) * shape->pages_n > (double)(SIZE_MAX / 4))
        return error_set(err, ST_REJECT, "KV pool of %d pages does not fit the address space: lower kv_pages_max",
                         shape->pages_n);
    data = cpu_buffer_try(cpu_kv_page_bytes(d, shape) * (size_t)shape->pages_n);
    if (data == NULL)
        return error_set(err, ST_REJECT, "no memory for %d KV pages (%.0f MB): lower kv_memory_mb or kv_pages_max",
                         shape->pages_n, (double)cpu_kv_page_bytes(d, shape) * shape->pages_n / (1 << 20));
    kv = mem_take_zero(1, sizeof *kv);
    kv->shape = *shape;
    kv->part_bytes = part_bytes(d, shape);
    kv->page_bytes = cpu_kv_page_bytes(d, shape);
    kv->data = data;
    *out = kv;
    return ST_OK;
}

void cpu_kv_close(struct device *d, struct kv *kv)
{
    device_buffer_give(d, kv->data);
    free(kv);
}

static void page_check(const struct kv *kv, int32_t page)
{
    ASSERT(page >= 0 && page < kv->shape.pages_n);
}

struct pages_copy {
    struct kv *kv;
    const int32_t *src, *dst;
    int pages_n;
};

static void pages_copy_part(void *ctx, int thread_i, int threads_n)
{
    const struct pages_copy *c = ctx;
    int64_t i, last;

    team_split(c->pages_n, thread_i, threads_n, &i, &last);
    for (; i < last; i++)
        memcpy(kv_part(c->kv, c->dst[i], 0, 0), kv_part(c->kv, c->src[i], 0, 0), c->kv->page_bytes);
}

status cpu_kv_pages_copy(struct device *d, struct kv *kv, const int32_t *src, const int32_t *dst, int pages_n)
{
    struct pages_copy c = { kv, src, dst, pages_n };
    int i;

    for (i = 0; i < pages_n; i++) {
        page_check(kv, src[i]);
        page_check(kv, dst[i]);
        ASSERT(src[i] != dst[i]);
    }
    team_run(cpu_of(d)->team, pages_copy_part, &c);
    return ST_OK;
}

/* size is a constant at each call, so that the copies are single moves. */
static inline __attribute__((always_inline)) void strided_copy(const char *src, char *dst, int n, size_t stride,
                                                               size_t size)
{
    int i;

    for (i = 0; i < n; i++)
        memcpy(dst + (size_t)i * stride, src + (size_t)i * stride, size);
}

void kv_lane_copy(const struct kv *kv, bool fp32, const char *src, int at, char *dst, int to)
{
    int dim = kv->shape.head_dim;
    const char *src_v = src + kv->part_bytes;
    char *dst_v = dst + kv->part_bytes;

    if (fp32) {
        strided_copy(src + at * 4, dst + to * 4, dim, PAGE_POSITIONS * 4, 4);
        memmove(dst_v + (size_t)to * (size_t)dim * 4, src_v + (size_t)at * (size_t)dim * 4, (size_t)dim * 4);
    } else {
        strided_copy(src + at * 4, dst + to * 4, dim / 2, PAGE_POSITIONS * 4, 4);
        strided_copy(src_v + (size_t)(at / 2) * (size_t)dim * 4 + (size_t)(at % 2) * 2,
                     dst_v + (size_t)(to / 2) * (size_t)dim * 4 + (size_t)(to % 2) * 2, dim, 4, 2);
    }
}

struct positions_move {
    struct kv *kv;
    bool fp32;
    const struct kv_move *moves;
    int moves_n;
};

/* Split over layers and heads: the moves of one of them stay in order. */
static void positions_move_part(void *ctx, int thread_i, int threads_n)
{
    const struct positions_move *p = ctx;
    const struct kv *kv = p->kv;
    int64_t part, last;
    int i;

    team_split((int64_t)kv->shape.layers_n * kv->shape.kv_heads_n, thread_i, threads_n, &part, &last);
    for (; part < last; part++)
        for (i = 0; i < p->moves_n; i++) {
            const struct kv_move *m = &p->moves[i];

            kv_lane_copy(kv, p->fp32, kv_part(kv, m->src, 0, (int)part), m->at, kv_part(kv, m->dst, 0, (int)part),
                         m->to);
        }
}

status cpu_kv_positions_move(struct device *d, struct kv *kv, const struct kv_move *moves, int moves_n)
{
    struct positions_move p = { kv, cpu_of(d)->fp32, moves, moves_n };
    int i;

    for (i = 0; i < moves_n; i++) {
        page_check(kv, moves[i].src);
        page_check(kv, moves[i].dst);
        ASSERT(moves[i].at >= 0 && moves[i].at < PAGE_POSITIONS && moves[i].to >= 0 && moves[i].to < PAGE_POSITIONS);
    }
    team_run(cpu_of(d)->team, positions_move_part, &p);
    return ST_OK;
}
