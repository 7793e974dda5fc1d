/* Products: a rectangle of outputs for each thread, walked in tiles whose sums stay in registers.
 *
 * Split:   threads form a grid over rows and columns (grid_choose).
 * Walk:    rows in panels, k in pieces, so that a piece of a panel stays in the L2 cache; for each strip of columns and
 *          piece of k all tiles of the panel, so that weights are fetched once a panel and used from the cache by all
 *          tiles but the first. Sums of a tile wait in memory between pieces: the chain goes on with the same bits.
 * Fetch:   while a strip is multiplied the next one is fetched, line by line; without it the first tile of each strip
 *          waits for memory, then multiplies, instead of at once. Not for a few rows, which are all waiting: hardware
 *          fetches one stream better when left alone (measured: up to 4 rows on Zen 4).
 * Heights: rows are shared out evenly (13 = 7 + 6), because a tile of one row costs as much as one of four.
 * None of it shows in the bits (loops.h). */
#include "kernels/cpu/loops.h"

#define PIECE_K 1024               /* most k of a piece: 64 KiB of bf16 weights a strip, twice with the next one */
#define PANEL_BYTES (256 << 10)    /* of input rows, one piece of k: a quarter of a 1 MiB L2 */
#define PANEL_ROWS 256             /* bounds the sums that wait in memory */
#define FETCH_ROWS 5               /* fewest rows for which weights are fetched ahead */
#define ROW_PART 16                /* fewest rows of a thread when rows are split: then weights are read more than once */

struct product {
    struct cpu_device *c;
    const struct cpu_matrix *m;
    const char *in;
    int rows_n;
    struct finish finish;          /* but sums, rows, cols, place */
    int row_parts, col_parts;      /* threads form a grid */
};

/* Rows that a thread has at hand. */
struct panel {
    const char *in;                /* first row */
    size_t row_bytes;
    int row, rows;                 /* place in the product */
    float *sums;                   /* [rows][STRIP] */
};

/* One piece of k of a strip. */
struct weights {
    const char *at;
    size_t bytes;
    int k_first, k_n;
};

static int pieces_of(const struct cpu_matrix *m)
{
    return (m->base.k + PIECE_K - 1) / PIECE_K;
}

static struct weights weights_of(const struct cpu_matrix *m, int64_t strip, int piece)
{
    size_t k_bytes = m->strip_bytes / (size_t)m->base.k;
    int64_t first, last;

    team_split(m->base.k / 2, piece, pieces_of(m), &first, &last);
    return (struct weights){
        .at = m->packed + (size_t)strip * m->strip_bytes + (size_t)first * 2 * k_bytes,
        .bytes = (size_t)(last - first) * 2 * k_bytes,
        .k_first = (int)first * 2,
        .k_n = (int)(last - first) * 2,
    };
}

/* Where a thread goes on after its last strip: its share of the matrix that was loaded next, as a rule the next one to
 * be used. A wrong guess costs some fetches. */
static struct weights weights_after(const struct product *p, int thread_i)
{
    const struct cpu_matrix *m = p->m->after != NULL ? p->m->after : p->m;
    int64_t first, last;

    team_split(m->strips_n, thread_i / p->row_parts, p->col_parts, &first, &last);
    return weights_of(m, first < last ? first : 0, 0);
}

/* Tile t of `tiles` fetches an equal part of the next weights. */
static void fetch_set(struct chains *c, const struct weights *next, int t, int tiles)
{
    size_t bytes = next->bytes / (size_t)tiles, step = bytes / (size_t)(c->k / 2) + 1;

    c->next = next->at + bytes * (size_t)t;
    c->next_bytes = step < STEP_BYTES ? step : STEP_BYTES;
}

static void tile_finish(const struct product *p, const float *sums, int row, int rows, int64_t strip)
{
    struct finish f = p->finish;
    int width = p->m->base.gated ? HALF : STRIP;
    int64_t col = strip * width, left = p->m->base.rows_n - col;

    f.sums = sums;
    f.rows = rows;
    f.cols = left < width ? (int)left : width;
    if (f.bias != NULL)
        f.bias += col;
    f.out += (size_t)row * f.row_bytes + (size_t)col * (f.narrow ? 2 : 4);
    p->c->loops->finish(&f);
}

/* All tiles of a panel against one piece of a strip. */
static void strip_run(const struct product *p, const struct panel *panel, int64_t strip, int piece,
                      const struct weights *next)
{
    const struct cpu_loops *loops = p->c->loops;
    const struct weights w = weights_of(p->m, strip, piece);
    int tiles = (panel->rows + loops->tile_rows - 1) / loops->tile_rows, pieces = pieces_of(p->m), t, half;
    struct chains c = { .row_bytes = panel->row_bytes, .k = w.k_n, .halves = loops->tile_halves, .go_on = piece > 0 };
    size_t k_bytes = panel->row_bytes / (size_t)p->m->base.k;
    int64_t first, last;

    for (t = 0; t < tiles; t++) {
        float *sums = panel->sums;

        team_split(panel->rows, t, tiles, &first, &last);
        if (pieces > 1)
            sums += first * STRIP; /* else no tile has to wait, and the first lines stay warm */
        c.rows = (int)(last - first);
        c.in = panel->in + (size_t)first * c.row_bytes + (size_t)w.k_first * k_bytes;
        if (panel->rows >= FETCH_ROWS)
            fetch_set(&c, next, t, tiles);
        for (half = 0; half < 2; half += c.halves) {
            c.w = w.at + half * (STEP_BYTES / 2);
            c.sums = sums + half * HALF;
            if (p->c->fp32)
                loops->chains_fp32(&c);
            else
                loops->chains_bf16(&c);
        }
        if (piece == pieces - 1)
            tile_finish(p, sums, panel->row + (int)first, c.rows, strip);
    }
}

/* A panel against the thread's strips; `last`: the thread has no other panel after it. */
static void panel_run(const struct product *p, const struct panel *panel, int thread_i, bool last)
{
    int64_t first_strip, end, strip;
    int piece, pieces = pieces_of(p->m);

    team_split(p->m->strips_n, thread_i / p->row_parts, p->col_parts, &first_strip, &end);
    for (strip = first_strip; strip < end; strip++)
        for (piece = 0; piece < pieces; piece++) {
            struct weights next;

            if (piece + 1 < pieces)
                next = weights_of(p->m, strip, piece + 1);
            else if (strip + 1 < end)
                next = weights_of(p->m, strip + 1, 0);
            else if (!last)
                next = weights_of(p->m, first_strip, 0);
            else
                next = weights_after(p, thread_i);
            strip_run(p, panel, strip, piece, &next);
        }
}

static bool widens(const struct cpu_device *c)
{
    return c->loops->widen_in && !c->fp32;
}

static size_t row_bytes_of(const struct product *p)
{
    return (size_t)p->m->base.k * (p->c->fp32 || widens(p->c) ? 4 : 2);
}

static int panel_rows_max(const struct product *p)
{
    size_t rows = PANEL_BYTES / (row_bytes_of(p) / (size_t)pieces_of(p->m));
    int tile = p->c->loops->tile_rows;

    rows = rows < PANEL_ROWS ? rows : PANEL_ROWS;
    return (int)rows > tile ? (int)rows / tile * tile : tile;
}

static void product_part(void *ctx, int thread_i, int threads_n)
{
    const struct product *p = ctx;
    _Alignas(64) float sums[PANEL_ROWS * STRIP];
    struct panel panel = { .row_bytes = row_bytes_of(p), .sums = sums };
    size_t in_bytes = (size_t)p->m->base.k * (p->c->fp32 ? 4 : 2);
    int64_t first, last, a, b;
    int panels, i;

    (void)threads_n;
    if (thread_i >= p->row_parts * p->col_parts)
        return;
    team_split(p->rows_n, thread_i % p->row_parts, p->row_parts, &first, &last);
    panels = (int)(last - first + panel_rows_max(p) - 1) / panel_rows_max(p);
    for (i = 0; i < panels; i++) {
        team_split(last - first, i, panels, &a, &b);
        panel.row = (int)(first + a);
        panel.rows = (int)(b - a);
        panel.in = p->in + (size_t)panel.row * in_bytes;
        if (widens(p->c)) {
            float *wide = cpu_scratch(p->c, thread_i);

            p->c->loops->widen((const uint16_t *)panel.in, (int64_t)panel.rows * p->m->base.k, wide);
            panel.in = (const char *)wide;
        }
        panel_run(p, &panel, thread_i, i == panels - 1);
    }
}

/* Rows first: a thread that keeps its rows through norms and products finds them in its own cache, and the caches of two
 * threads may be far apart. But not below ROW_PART, where a thread would wait for its weights; there, and for the
 * threads that are left, columns. Among these the smallest largest share, in halves of a row of a strip (a tile costs
 * about half a row more than its rows), and a tenth more for rows that others have made. */
static void grid_choose(struct product *p)
{
    int threads_n = team_threads(p->c->team), tile = p->c->loops->tile_rows, strips = p->m->strips_n, parts;
    int64_t best = INT64_MAX;

    for (parts = 1; parts <= threads_n && (parts == 1 || parts * ROW_PART <= p->rows_n); parts++) {
        int cols = threads_n / parts < strips ? threads_n / parts : strips;
        int64_t rows = (p->rows_n + parts - 1) / parts;
        int64_t cost = (2 * rows + (rows + tile - 1) / tile) * ((strips + cols - 1) / cols) * (11 * cols - 1) / cols;

        if (cost < best) {
            best = cost;
            p->row_parts = parts;
            p->col_parts = cols;
        }
    }
}

static status product_run(struct product *p)
{
    if (p->rows_n <= 0)
        return ST_OK;
    if (widens(p->c))
        cpu_scratch_reserve(p->c, (size_t)panel_rows_max(p) * row_bytes_of(p));
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
