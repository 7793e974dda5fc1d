/* Attention over a ragged step. The sums of a query (one head of one row) are defined in attend.h; here they are cut
 * into pieces of work that read as little memory as possible and never show in the bits:
 *
 *   tile   rows that are computed together, so that a block of pages is loaded once for all of them: rows of a chunk,
 *          rows of a draft tree, or rows of several sequences whose first pages are the same (a shared prefix).
 *   item   a tile, a KV head and at most ATTEND_QUERIES of the query heads that read it. Threads take items in order.
 *
 * A row of a draft tree must have the bits of the same row decoded plainly, but its ancestors stand in any slots. They
 * are copied into the lanes that their positions would have (overlay pages in scratch), and the same loops run over
 * those. */
#include "kernels/cpu/attend.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/plan.h"

#include <stdatomic.h>
#include <string.h>

#define OVERLAY_PAGES ((PAGE_POSITIONS - 1 + TREE_ROWS_MAX + PAGE_POSITIONS - 1) / PAGE_POSITIONS)
#define ITEMS_A_THREAD 8           /* at least: items are taken in turn, so the last one a thread waits for is small */

struct attention {
    struct cpu_device *device;
    const struct attend_loops *loops;
    void (*block)(const struct attend_block *b);
    const void *q;
    const struct step *step;
    const struct attention_shape *shape;
    const struct kv *kv;
    const struct attention_plan *plan;
    int layer, group, slices_n, items_n;
    size_t elem_bytes, q_bytes, sums_bytes;    /* of an element of q and out; of a query and its sums in a tile */
    void *out;
    atomic_int next_item;
};

/* One row of a tile. */
struct tile_row {
    int row, first, last;                      /* positions it sees */
};

struct tile_work {
    struct attention *a;
    int kv_head, head, heads_n;                /* query heads [head, head + heads_n) */
    int rows_n;
    struct tile_row rows[ATTEND_QUERIES];
    char *q, *sums;                            /* [rows][heads] */
    float max[ATTEND_QUERIES];
    char *overlay;
};

/* Bits [first, last] that lie in block b. */
static uint64_t seen_of(const struct tile_row *r, int b)
{
    int from = r->first - b * ATTEND_BLOCK, to = r->last - b * ATTEND_BLOCK;
    uint64_t bits = to >= ATTEND_BLOCK - 1 ? UINT64_MAX : (UINT64_C(1) << (to + 1)) - 1;

    return from > 0 ? bits & ~((UINT64_C(1) << from) - 1) : bits;
}

/* Parts of page index p of a row: its sequence's page, or the overlay's from `overlay_page` on. */
struct page_view {
    const int32_t *pages;
    int overlay_page;                          /* INT32_MAX: none */
    const char *overlay;
};

static const char *part_of(const struct tile_work *w, const struct page_view *v, int page)
{
    if (page >= v->overlay_page)
        return v->overlay + (size_t)(page - v->overlay_page) * 2 * w->a->kv->part_bytes;
    return kv_part(w->a->kv, v->pages[page], w->a->layer, w->kv_head);
}

/* Block b for rows [row, row + rows_n) of the tile, which all see some of it through v. */
static void block_run(struct tile_work *w, const struct page_view *v, int row, int rows_n, int b)
{
    const struct attention *a = w->a;
    int pages_n = 0, r, h, i, n = 0;
    struct attend_block block = {
        .head_dim = a->shape->head_dim, .queries_n = rows_n * w->heads_n,
        .softcap = (float)(a->shape->softcap * LOG2_E), .part_bytes = a->kv->part_bytes,
        .q_bytes = a->q_bytes, .q = w->q + (size_t)(row * w->heads_n) * a->q_bytes,
        .sums_bytes = a->sums_bytes, .sums = w->sums + (size_t)(row * w->heads_n) * a->sums_bytes,
        .max = w->max + row * w->heads_n,
    };

    for (r = row; r < row + rows_n; r++) {
        int pages = w->rows[r].last / PAGE_POSITIONS + 1 - b * ATTEND_PAGES;

        pages_n = pages > pages_n ? pages : pages_n;
        for (h = 0; h < w->heads_n; h++)
            block.seen[n++] = seen_of(&w->rows[r], b);
    }
    block.pages_n = pages_n < ATTEND_PAGES ? pages_n : ATTEND_PAGES;
    for (i = 0; i < block.pages_n; i++) {
        block.part[i] = part_of(w, v, b * ATTEND_PAGES + i);
        block.next[i] = i + ATTEND_PAGES < pages_n ? part_of(w, v, (b + 1) * ATTEND_PAGES + i) : block.part[0];
    }
    a->block(&block);
}

static bool row_sees(const struct tile_row *r, int b)
{
    return r->first / ATTEND_BLOCK <= b && b <= r->last / ATTEND_BLOCK;
}

/* Blocks [first, end) for rows [row, row + rows_n) of the tile. */
static void blocks_run(struct tile_work *w, const struct page_view *v, int row, int rows_n, int first, int end)
{
    int b, r, n;

    for (b = first; b < end; b++)
        for (r = row; r < row + rows_n; r += n + (n == 0)) {
            for (n = 0; r + n < row + rows_n && row_sees(&w->rows[r + n], b); n++)
                ;
            if (n > 0)
                block_run(w, v, r, n, b);
        }
}

/* ---- draft trees ---- */

/* Lays the row's ancestors and itself out by position; its positions are [cached_n, cached_n + length). */
static struct page_view overlay_make(const struct tile_work *w, const struct seq_span *span, int row)
{
    const struct attention *a = w->a;
    const struct step *s = a->step;
    size_t part = 2 * a->kv->part_bytes;
    int length = s->pos[row] - span->cached_n + 1, at, pages_n, fresh;
    struct page_view v = { span->pages, span->cached_n / PAGE_POSITIONS, w->overlay };

    ASSERT(length >= 1 && length <= span->rows_n);
    pages_n = (span->cached_n + length - 1) / PAGE_POSITIONS - v.overlay_page + 1;
    fresh = span->cached_n % PAGE_POSITIONS == 0 ? 0 : 1;      /* the page that holds cached positions, too */
    if (fresh == 1)
        memcpy(w->overlay, kv_part(a->kv, span->pages[v.overlay_page], a->layer, w->kv_head), part);
    memset(w->overlay + (size_t)fresh * part, 0, (size_t)(pages_n - fresh) * part);
    for (at = span->cached_n + length - 1; at >= span->cached_n; at--) {
        int slot = span->cached_n + row - span->row;

        ASSERT(row >= span->row && s->pos[row] == at);
        kv_lane_copy(a->kv, a->device->fp32,
                     kv_part(a->kv, span->pages[slot / PAGE_POSITIONS], a->layer, w->kv_head), slot % PAGE_POSITIONS,
                     w->overlay + (size_t)(at / PAGE_POSITIONS - v.overlay_page) * part, at % PAGE_POSITIONS);
        ASSERT(s->parent[row] < row);
        row = s->parent[row];
    }
    ASSERT(row == -1);
    return v;
}

/* ---- items ---- */

static void tile_rows_list(struct tile_work *w, const struct plan_tile *tile)
{
    const struct attention *a = w->a;
    int i, r, window = a->shape->window;

    w->rows_n = 0;
    for (i = 0; i < tile->parts_n; i++) {
        const struct plan_part *p = &a->plan->parts[tile->part + i];

        for (r = p->row; r < p->row + p->rows_n; r++) {
            int pos = a->step->pos[r];

            w->rows[w->rows_n++] = (struct tile_row){ r, window > 0 && pos >= window ? pos - window + 1 : 0, pos };
        }
    }
}

static void queries_start(struct tile_work *w)
{
    const struct attention *a = w->a;
    int dim = a->shape->head_dim, r, h, i;
    char *to = w->q;

    for (r = 0; r < w->rows_n; r++)
        for (h = 0; h < w->heads_n; h++, to += a->q_bytes) {
            size_t head = (size_t)w->rows[r].row * (size_t)a->shape->heads_n + (size_t)(w->head + h);
            const char *q = (const char *)a->q + head * (size_t)dim * a->elem_bytes;

            memset(w->sums + (size_t)(r * w->heads_n + h) * a->sums_bytes, 0, a->sums_bytes);
            w->max[r * w->heads_n + h] = ATTEND_MAX_START;
            if (a->q_bytes == (size_t)dim * a->elem_bytes)
                memcpy(to, q, a->q_bytes);
            else
                for (i = 0; i < dim; i++)
                    ((float *)to)[i] = bf16_float(((const uint16_t *)q)[i]);
        }
}

static void queries_finish(const struct tile_work *w)
{
    const struct attention *a = w->a;
    int r, h;

    for (r = 0; r < w->rows_n; r++)
        for (h = 0; h < w->heads_n; h++) {
            size_t head = (size_t)w->rows[r].row * (size_t)a->shape->heads_n + (size_t)(w->head + h);

            a->loops->finish((struct attend_sums *)(w->sums + (size_t)(r * w->heads_n + h) * a->sums_bytes),
                             a->shape->head_dim, a->elem_bytes == 2,
                             (char *)a->out + head * (size_t)a->shape->head_dim * a->elem_bytes);
        }
}

static void tile_run(struct tile_work *w, const struct plan_tile *tile)
{
    const struct attention *a = w->a;
    const struct plan_part *p = &a->plan->parts[tile->part];
    int i, r, row = 0, shared = tile->shared_pages / ATTEND_PAGES;
    struct page_view v = { a->step->seq[p->seq].pages, INT32_MAX, NULL };

    blocks_run(w, &v, 0, w->rows_n, 0, shared);
    for (i = 0; i < tile->parts_n; i++, row += p->rows_n) {
        const struct seq_span *span;

        p = &a->plan->parts[tile->part + i];
        span = &a->step->seq[p->seq];
        v = (struct page_view){ span->pages, INT32_MAX, NULL };
        if (!span->tree) {
            blocks_run(w, &v, row, p->rows_n, shared, w->rows[row + p->rows_n - 1].last / ATTEND_BLOCK + 1);
            continue;
        }
        for (r = row; r < row + p->rows_n; r++) {
            v = overlay_make(w, span, w->rows[r].row);
            blocks_run(w, &v, r, 1, shared, w->rows[r].last / ATTEND_BLOCK + 1);
        }
    }
}

static size_t overlay_bytes(const struct attention *a)
{
    return OVERLAY_PAGES * 2 * a->kv->part_bytes;
}

static size_t scratch_bytes(const struct attention *a)
{
    return ATTEND_QUERIES * (a->sums_bytes + a->q_bytes) + overlay_bytes(a);
}

static void attention_part(void *ctx, int thread_i, int threads_n)
{
    struct attention *a = ctx;
    char *scratch = cpu_scratch(a->device, thread_i);
    struct tile_work w = { .a = a, .overlay = scratch, .sums = scratch + overlay_bytes(a) };
    int item;

    (void)threads_n;
    w.q = w.sums + ATTEND_QUERIES * a->sums_bytes;
    while ((item = atomic_fetch_add_explicit(&a->next_item, 1, memory_order_relaxed)) < a->items_n) {
        const struct plan_tile *tile = &a->plan->tiles[item % a->plan->tiles_n];
        int slice = item / a->plan->tiles_n % a->slices_n;

        w.kv_head = item / a->plan->tiles_n / a->slices_n;
        w.head = w.kv_head * a->group + slice * ATTEND_QUERIES;
        w.heads_n = a->group - slice * ATTEND_QUERIES;
        if (w.heads_n > ATTEND_QUERIES)
            w.heads_n = ATTEND_QUERIES;
        tile_rows_list(&w, tile);
        queries_start(&w);
        tile_run(&w, tile);
        queries_finish(&w);
    }
}

static const struct attend_loops *loops_of(const struct cpu_device *c, int head_dim)
{
#if defined(__x86_64__)
    if (c->isa == CPU_AVX512BF16 && head_dim % ATTEND_LANES == 0 && !c->fp32)
        return &attend_avx512bf16;
    if (c->isa >= CPU_AVX2)
        return &attend_avx2;
#else
    (void)c;
    (void)head_dim;
#endif
    return &attend_portable;
}

/* Rows of a tile: as many as fill it, fewer where that leaves too few items for the threads. */
static int tile_rows(const struct attention *a)
{
    int rows = ATTEND_QUERIES / a->group, heads = a->shape->kv_heads_n * a->slices_n;
    int items = ITEMS_A_THREAD * a->device->base.info.threads_n;

    while (rows > 1 && (int64_t)a->step->rows_n * heads < (int64_t)rows * items)
        rows /= 2;
    return rows > 0 ? rows : 1;
}

status cpu_attention(struct device *d, const void *q, const struct step *s, int layer,
                     const struct attention_shape *shape, const struct kv *kv, void *out)
{
    struct cpu_device *c = cpu_of(d);
    struct attention a = {
        .device = c, .loops = loops_of(c, shape->head_dim), .q = q, .step = s, .shape = shape, .kv = kv,
        .layer = layer, .elem_bytes = c->fp32 ? 4 : 2, .out = out,
    };

    ASSERT(shape->kv_heads_n == kv->shape.kv_heads_n && shape->heads_n % shape->kv_heads_n == 0);
    ASSERT(shape->head_dim == kv->shape.head_dim && layer >= 0 && layer < kv->shape.layers_n);
    a.block = c->fp32 ? a.loops->block_fp32 : a.loops->block_bf16;
    a.group = shape->heads_n / shape->kv_heads_n;
    a.slices_n = (a.group + ATTEND_QUERIES - 1) / ATTEND_QUERIES;
    a.sums_bytes = (sizeof(struct attend_sums) + (size_t)shape->head_dim * 4 + 63) / 64 * 64;
    a.q_bytes = (size_t)shape->head_dim * (c->fp32 || a.loops->widen_q ? 4 : 2);
    a.plan = attention_plan_find(c, s, tile_rows(&a), kv->shape.pages_n);
    a.items_n = a.plan->tiles_n * a.slices_n * shape->kv_heads_n;
    atomic_init(&a.next_item, 0);
    cpu_scratch_reserve(c, scratch_bytes(&a));
    team_run(c->team, attention_part, &a);
    return ST_OK;
}
