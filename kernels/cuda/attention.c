/* Pages of keys and values, and what reads and writes them. Layout of a page: launch.h; all layers of a page lie
 * together, so a page is copied at once. */
#include "kernels/cuda/cuda.h"

#include <stdlib.h>

#define SUMS_BYTES_MAX ((size_t)512 << 20)     /* of splits that wait to be folded; beyond, tiles fold for themselves */

struct kv {
    struct kv_shape shape;
    size_t page_elems, elem_bytes;
    char *data;
};

/* launch.h: pages. */
static int swizzle_of(const struct cuda_device *c, int dim)
{
    return c->fp32 ? 0 : dim == 64 || dim == 128 || dim == 256 ? 7 : 0;
}

/* ---- the pool ---- */

size_t cuda_kv_page_bytes(const struct device *d, const struct kv_shape *shape)
{
    return (size_t)PAGE_POSITIONS * (size_t)shape->head_dim * 2 * (cuda_of_const(d)->fp32 ? 4 : 2) * (size_t)shape->layers_n *
           (size_t)shape->kv_heads_n;
}

status cuda_kv_open(struct device *d, const struct kv_shape *shape, struct kv **out, struct error *err)
{
    struct kv *kv;
    size_t bytes = cuda_kv_page_bytes(d, shape);

    *out = NULL;
    if (shape->layers_n < 1 || shape->kv_heads_n < 1 || shape->pages_n < 1)
        return error_set(err, ST_REJECT, "KV pool of %d layers, %d heads, %d pages: each must be at least 1",
                         shape->layers_n, shape->kv_heads_n, shape->pages_n);
    if (shape->head_dim < 8 || shape->head_dim > ATTEND_DIM_MAX || shape->head_dim % 8 != 0)
        return error_set(err, ST_REJECT, "head size %d: the cuda device has attention for multiples of 8 up to %d",
                         shape->head_dim, ATTEND_DIM_MAX);
    if (shape->kv_heads_n > 65535 || (int64_t)shape->layers_n * shape->kv_heads_n > INT32_MAX / ATTEND_DIM_MAX ||
        shape->pages_n >= INT32_MAX / PAGE_POSITIONS ||
        (double)bytes * shape->pages_n > (double)d->info.memory_bytes)
        return error_set(err, ST_REJECT, "KV pool of %d pages of %zu bytes: %s had %lld bytes free at start; lower "
                         "kv_memory_mb or kv_pages_max", shape->pages_n, bytes, d->info.name,
                         (long long)d->info.memory_bytes);
    kv = mem_take_zero(1, sizeof *kv);
    kv->shape = *shape;
    kv->elem_bytes = cuda_of(d)->fp32 ? 4 : 2;
    kv->page_elems = bytes / kv->elem_bytes;
    kv->data = cuda_memory_take(d, bytes * (size_t)shape->pages_n);        /* zero: values in pages are finite */
    if (kv->data == NULL) {
        free(kv);
        return error_set(err, ST_REJECT, "%s has no memory left for %d KV pages of %zu bytes: lower kv_memory_mb or "
                         "kv_pages_max", d->info.name, shape->pages_n, bytes);
    }
    *out = kv;
    return ST_OK;
}

void cuda_kv_close(struct device *d, struct kv *kv)
{
    cuda_buffer_give(d, kv->data);
    free(kv);
}

static void page_check(const struct kv *kv, int32_t page)
{
    ASSERT(page >= 0 && page < kv->shape.pages_n);
}

status cuda_kv_pages_copy(struct device *d, struct kv *kv, const int32_t *src, const int32_t *dst, int pages_n)
{
    struct cuda_device *c = cuda_of(d);
    const int32_t *from, *to;
    status st = ST_OK;

    if (pages_n == 0)
        return ST_OK;
    for (int i = 0; i < pages_n; i++) {
        page_check(kv, src[i]);
        page_check(kv, dst[i]);
        ASSERT(src[i] != dst[i]);
    }
    TRY(cuda_send_ints(c, src, pages_n, &from));
    TRY(cuda_send_ints(c, dst, pages_n, &to));
    TRY(st_cuda(launch_pages_copy(c->stream, kv->data, kv->page_elems * kv->elem_bytes, from, to, pages_n),
                "page copy"));
out:
    return st;
}

status cuda_kv_positions_move(struct device *d, struct kv *kv, const struct kv_move *moves, int moves_n)
{
    struct cuda_device *c = cuda_of(d);
    const int32_t *sent;
    status st = ST_OK;

    _Static_assert(sizeof *moves == sizeof(struct launch_move) && sizeof *moves == 4 * sizeof(int32_t), "moves are sent as ints");
    if (moves_n == 0)
        return ST_OK;
    for (int i = 0; i < moves_n; i++) {
        page_check(kv, moves[i].src);
        page_check(kv, moves[i].dst);
        ASSERT(moves[i].at >= 0 && moves[i].at < PAGE_POSITIONS && moves[i].to >= 0 && moves[i].to < PAGE_POSITIONS);
    }
    TRY(cuda_send_ints(c, &moves->src, 4 * moves_n, &sent));
    TRY(st_cuda(launch_positions_move(c->stream, kv->data, kv->page_elems * kv->elem_bytes,
                                      kv->shape.layers_n * kv->shape.kv_heads_n, kv->shape.head_dim * (int)kv->elem_bytes,
                                      swizzle_of(c, kv->shape.head_dim), (const struct launch_move *)sent, moves_n),
                "move of positions"));
out:
    return st;
}

/* ---- operations of a layer ---- */

static void *layer_of(const struct kv *kv, int layer)
{
    return kv->data + (size_t)layer * (size_t)kv->shape.kv_heads_n * 2 * PAGE_POSITIONS * (size_t)kv->shape.head_dim *
                      kv->elem_bytes;
}

static void shapes_check(const struct cuda_device *c, const struct attention_shape *a, const struct kv *kv, int layer)
{
    ASSERT(a->kv_heads_n == kv->shape.kv_heads_n && a->heads_n % a->kv_heads_n == 0);
    ASSERT(a->head_dim == kv->shape.head_dim && layer >= 0 && layer < kv->shape.layers_n);
    ASSERT(c->step.page_most < kv->shape.pages_n);
}

static status turns_find(struct cuda_device *c, const struct rope *rope)
{
    struct cuda_step *t = &c->step;
    int half = rope->dim / 2;
    status st = ST_OK;

    if (half == 0 || (t->turns_freq == rope->inv_freq && t->turns_half == half && t->turns_magnitude == rope->magnitude))
        return ST_OK;
    TRY(cuda_room(&t->turns, (size_t)t->rows_n * (size_t)half * sizeof(float2)));
    TRY(st_cuda(launch_turns(c->stream, t->pos, t->rows_n, rope->inv_freq, half, rope->magnitude, t->turns.at), "turns"));
    t->turns_freq = rope->inv_freq;
    t->turns_half = half;
    t->turns_magnitude = rope->magnitude;
out:
    return st;
}

status cuda_rope_write(struct device *d, const void *qkv, const struct step *s, int layer,
                       const struct attention_shape *a, const struct rope *rope, const struct qk_norm *norm,
                       struct kv *kv, void *q)
{
    struct cuda_device *c = cuda_of(d);
    struct launch_rope r = {
        .qkv = qkv, .slot = c->step.slot, .rows_n = s->rows_n, .heads_n = a->heads_n, .kv_heads_n = a->kv_heads_n,
        .dim = a->head_dim, .swizzle = swizzle_of(c, a->head_dim), .half = rope->dim / 2, .neighbours = rope->pairs == ROPE_NEIGHBOURS,
        .scale = (float)(a->scale * LOG2_E), .kv = layer_of(kv, layer), .page_elems = kv->page_elems, .q = q,
        .fp32 = c->fp32,
    };
    status st = ST_OK;

    cuda_step_check(c, s);
    shapes_check(c, a, kv, layer);
    ASSERT(rope->dim >= 0 && rope->dim <= a->head_dim && rope->dim % 2 == 0);
    if (norm != NULL) {
        r.q_norm = norm->q;
        r.k_norm = norm->k;
        r.eps = norm->eps;
    }
    TRY(turns_find(c, rope));
    r.turns = c->step.turns.at;
    TRY(st_cuda(launch_rope(c->stream, &r), "rope"));
out:
    return st;
}

status cuda_attention(struct device *d, const void *q, const struct step *s, int layer,
                      const struct attention_shape *a, const struct kv *kv, void *out)
{
    struct cuda_device *c = cuda_of(d);
    struct cuda_plan *p = &c->plan;
    struct launch_attention l = {
        .q = q, .pos = c->step.pos, .pages = c->step.pages, .tree = c->step.tree, .kv = layer_of(kv, layer),
        .page_elems = kv->page_elems, .heads_n = a->heads_n, .kv_heads_n = a->kv_heads_n, .dim = a->head_dim,
        .swizzle = swizzle_of(c, a->head_dim), .window = a->window, .softcap = (float)(a->softcap * LOG2_E), .out = out,
    };
    size_t entry_bytes = (size_t)a->kv_heads_n * (size_t)a->head_dim * sizeof *l.sums;
    status st = ST_OK;

    cuda_step_check(c, s);
    shapes_check(c, a, kv, layer);
    /* the reference keeps no splits apart */
    TRY(cuda_plan_find(c, s, a->heads_n / a->kv_heads_n, a->window, c->fp32 ? 0 : (int64_t)(SUMS_BYTES_MAX / entry_bytes)));
    if (c->fp32) {
        if (p->chunks_n > 0)
            TRY(st_cuda(launch_attend_fp32(c->stream, &l, p->chunks, p->chunks_n), "attention in fp32"));
        if (p->tiles_n > 0)
            TRY(st_cuda(launch_attend_fp32(c->stream, &l, p->tiles, p->tiles_n), "attention in fp32"));
        goto out;
    }
    TRY(cuda_room(&c->sums, (size_t)p->entries_n * entry_bytes));
    TRY(cuda_room(&c->weights, (size_t)p->entries_n * (size_t)a->kv_heads_n * sizeof *l.weights));
    l.sums = c->sums.at;
    l.weights = c->weights.at;
    if (p->chunks_n > 0)
        TRY(st_cuda(launch_attend_chunks(c->stream, &l, p->chunks, p->chunks_n), "attention of chunks"));
    if (p->tiles_n > 0)
        TRY(st_cuda(launch_attend_tiles(c->stream, &l, p->tiles, p->tiles_n), "attention"));
    if (p->folds_n > 0)
        TRY(st_cuda(launch_attend_fold(c->stream, &l, p->folds, p->folds_n), "fold of attention"));
out:
    return st;
}
