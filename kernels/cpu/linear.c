/* Products: a rectangle of outputs for each thread, walked in tiles whose sums stay in registers.
 *
 * Split:   few rows: threads share the columns, so each weight is read once. Many rows: rows or columns, whichever
 *          leaves the smallest largest share.
 * Walk:    rows in panels that stay in the L2 cache; for each pair of blocks all tiles of the panel, so that weights are
 *          fetched once a panel and used from the cache by the tiles below the first.
 * Heights: rows are shared out evenly (13 = 7 + 6), because a tile of one row costs as much as one of six.
 * None of it shows in the bits (loops.h). */
#include "kernels/cpu/loops.h"

#define PANEL_BYTES (384 << 10)    /* of input rows; the rest of a 1 MiB L2 is for two blocks of weights */

struct product {
    struct cpu_device *c;
    const struct cpu_matrix *m;
    const char *in;
    int rows_n;
    struct finish finish;          /* but sums, rows, cols, place */
    int row_parts, col_parts;      /* threads form a grid */
};

/* Share i of n items in parts that are whole multiples of `unit`, but for the last. */
static void share(int n, int unit, int i, int parts, int *first, int *last)
{
    int64_t a, b;

    team_split((n + unit - 1) / unit, i, parts, &a, &b);
    *first = (int)a * unit;
    *last = (int)b * unit < n ? (int)b * unit : n;
}

static void tile_finish(const struct product *p, const float *sums, int row, int rows, int block)
{
    struct finish f = p->finish;
    bool gated = p->m->base.gated;
    int64_t col = (int64_t)(gated ? block / 2 : block) * CPU_BLOCK, left = p->m->base.rows_n - col;
    int width = gated ? CPU_BLOCK : TILE_COLS;

    f.sums = sums;
    f.rows = rows;
    f.cols = left < width ? (int)left : width;
    if (f.bias != NULL)
        f.bias += col;
    f.out += (size_t)row * f.row_bytes + (size_t)col * (f.narrow ? 2 : 4);
    p->c->loops->finish(&f);
}

/* Rows [row, row_end) x blocks [block, block + 2). */
static void strip(const struct product *p, const char *in, size_t row_bytes, int row, int row_end, int row_base,
                  int block, int blocks)
{
    const struct cpu_loops *loops = p->c->loops;
    _Alignas(64) float sums[TILE_ROWS_MAX * TILE_COLS];
    struct chains c = { .block_bytes = p->m->block_bytes, .row_bytes = row_bytes, .k = p->m->base.k };
    int tiles = (row_end - row + loops->tile_rows - 1) / loops->tile_rows, t, b;
    int64_t first, last;

    for (t = 0; t < tiles; t++) {
        team_split(row_end - row, t, tiles, &first, &last);
        c.rows = (int)(last - first);
        c.in = in + (size_t)(row - row_base + first) * row_bytes;
        for (b = 0; b < blocks; b += loops->tile_blocks) {
            c.w = p->m->packed + (size_t)(block + b) * c.block_bytes;
            c.blocks = blocks - b < loops->tile_blocks ? blocks - b : loops->tile_blocks;
            c.sums = sums + b * CPU_BLOCK;
            if (p->c->fp32)
                loops->chains_fp32(&c);
            else
                loops->chains_bf16(&c);
        }
        tile_finish(p, sums, row + (int)first, c.rows, block);
    }
}

static void product_part(void *ctx, int thread_i, int threads_n)
{
    const struct product *p = ctx;
    const struct cpu_loops *loops = p->c->loops;
    bool widen = loops->widen_in && !p->c->fp32;
    int k = p->m->base.k, rows, panel, row, row_last, block, block_first, block_last;
    size_t in_bytes = (size_t)k * (p->c->fp32 ? 4 : 2), row_bytes = widen ? (size_t)k * 4 : in_bytes;

    (void)threads_n;
    if (thread_i >= p->row_parts * p->col_parts)
        return;
    share(p->rows_n, loops->tile_rows, thread_i % p->row_parts, p->row_parts, &row, &row_last);
    share(p->m->blocks_n, TILE_BLOCKS, thread_i / p->row_parts, p->col_parts, &block_first, &block_last);

    panel = (int)(PANEL_BYTES / row_bytes) / loops->tile_rows * loops->tile_rows;
    if (panel < loops->tile_rows)
        panel = loops->tile_rows;
    for (; row < row_last; row += rows) {
        const char *in = p->in + (size_t)row * in_bytes;

        rows = row_last - row < panel ? row_last - row : panel;
        if (widen) {
            float *wide = cpu_scratch(p->c, thread_i);

            loops->widen((const uint16_t *)in, (int64_t)rows * k, wide);
            in = (const char *)wide;
        }
        for (block = block_first; block < block_last; block += TILE_BLOCKS)
            strip(p, in, row_bytes, row, row + rows, row, block,
                  block_last - block < TILE_BLOCKS ? block_last - block : TILE_BLOCKS);
    }
}

/* The grid whose largest share is smallest; among equals the one with the fewest row parts, which reads weights least. */
static void grid_choose(struct product *p)
{
    int threads_n = team_threads(p->c->team);
    int tiles = (p->rows_n + p->c->loops->tile_rows - 1) / p->c->loops->tile_rows;
    int pairs = (p->m->blocks_n + TILE_BLOCKS - 1) / TILE_BLOCKS;
    int64_t best = INT64_MAX;
    int rows;

    for (rows = 1; rows <= threads_n && rows <= tiles; rows++) {
        int cols = threads_n / rows < pairs ? threads_n / rows : pairs;
        int64_t largest = (int64_t)((tiles + rows - 1) / rows) * ((pairs + cols - 1) / cols);

        if (largest < best) {
            best = largest;
            p->row_parts = rows;
            p->col_parts = cols;
        }
    }
}

static status product_run(struct product *p)
{
    if (p->rows_n <= 0)
        return ST_OK;
    if (p->c->loops->widen_in && !p->c->fp32) {
        size_t least = (size_t)p->c->loops->tile_rows * (size_t)p->m->base.k * sizeof(float);

        cpu_scratch_reserve(p->c, least > PANEL_BYTES ? least : PANEL_BYTES);
    }
    grid_choose(p);
    team_run(p->c->team, product_part, p);
    return ST_OK;
}

status cpu_linear(struct device *d, const struct matrix *w, const float *bias, const void *in, int rows_n,
                  enum linear_to to, void *out)
{
    struct product p = { .c = cpu_of(d), .m = (const struct cpu_matrix *)w, .in = in, .rows_n = rows_n };

    p.finish = (struct finish){ .to = to == LINEAR_ADD ? FINISH_ADD : FINISH_STORE, .bias = bias, .out = out,
                                .row_bytes = (size_t)w->rows_n * 4 };
    return product_run(&p);
}

status cpu_linear_gated(struct device *d, const struct matrix *w, enum gate_act act, const void *in, int rows_n,
                        void *out)
{
    struct product p = { .c = cpu_of(d), .m = (const struct cpu_matrix *)w, .in = in, .rows_n = rows_n };

    p.finish = (struct finish){ .to = act == GATE_SILU ? FINISH_SILU : FINISH_GELU_TANH, .narrow = !p.c->fp32,
                                .out = out, .row_bytes = (size_t)w->rows_n * (p.c->fp32 ? 4 : 2) };
    return product_run(&p);
}

status cpu_logits(struct device *d, const struct matrix *head, const void *in, int rows_n, float softcap,
                  float *logits)
{
    struct product p = { .c = cpu_of(d), .m = (const struct cpu_matrix *)head, .in = in, .rows_n = rows_n };

    p.finish = (struct finish){ .to = FINISH_STORE, .softcap = softcap, .out = (char *)logits,
                                .row_bytes = (size_t)head->rows_n * 4 };
    return product_run(&p);
}
