/* Sequences with many rows come first: they are the largest pieces of work. The others are sorted by their page lists,
 * so that those that share a prefix stand together, share tiles for the length of it, and find its pages in cache. */
#include "kernels/cpu/plan.h"

#include "kernels/cpu/attend.h"
#include "kernels/cpu/step_memo.h"

#include <stdlib.h>
#include <string.h>

static int pages_of(const struct seq_span *q)
{
    return (q->cached_n + q->rows_n + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
}

/* Pages that all rows of the sequence see the same way and whole. */
static int plain_pages_of(const struct seq_span *q)
{
    return q->cached_n / PAGE_POSITIONS;
}

static int common_pages(const struct seq_span *a, const struct seq_span *b, int max)
{
    int i;

    for (i = 0; i < max && a->pages[i] == b->pages[i]; i++)
        ;
    return i;
}

static bool plan_matches(const struct attention_plan *p, const struct step *s, int tile_rows)
{
    int i;

    if (p->tile_rows != tile_rows || p->seqs_n != s->seqs_n)
        return false;
    for (i = 0; i < s->seqs_n; i++) {
        const struct seq_span *a = &p->seq[i], *b = &s->seq[i];

        if (a->row != b->row || a->rows_n != b->rows_n || a->cached_n != b->cached_n || a->tree != b->tree ||
            memcmp(a->pages, b->pages, (size_t)pages_of(a) * sizeof *a->pages) != 0)
            return false;
    }
    return true;
}

/* ---- order ---- */

struct sort {
    const struct seq_span *seq;
    int tile_rows;
};

/* a at or before b. */
static bool in_order(const struct sort *c, int32_t a, int32_t b)
{
    const struct seq_span *x = &c->seq[a], *y = &c->seq[b];
    bool long_x = x->rows_n >= c->tile_rows, long_y = y->rows_n >= c->tile_rows;
    int pages_x = pages_of(x), pages_y = pages_of(y), max = pages_x < pages_y ? pages_x : pages_y, same;

    if (long_x || long_y)
        return long_x != long_y ? long_x : a < b;
    same = common_pages(x, y, max);
    if (same < max)
        return x->pages[same] < y->pages[same];
    return pages_x != pages_y ? pages_x < pages_y : a < b;
}

/* Merge sort from the bottom up: no allocation, no recursion. */
static void order_make(struct attention_plan *p, int tile_rows)
{
    struct sort c = { p->seq, tile_rows };
    int32_t *from = p->order, *to = p->order_spare;
    int n = p->seqs_n, width, at, i, j, k;

    for (i = 0; i < n; i++)
        from[i] = i;
    for (width = 1; width < n; width *= 2) {
        int32_t *swap = from;

        for (at = 0; at < n; at += 2 * width) {
            int middle = at + width < n ? at + width : n, end = at + 2 * width < n ? at + 2 * width : n;

            for (i = at, j = middle, k = at; k < end; k++)
                to[k] = i < middle && (j >= end || in_order(&c, from[i], from[j])) ? from[i++] : from[j++];
        }
        from = to;
        to = swap;
    }
    p->order = from;
    p->order_spare = to;
}

/* ---- tiles ---- */

/* A tile may take rows of another sequence if they share at least one block of attention. */
static int shared_with(const struct attention_plan *p, const struct plan_tile *tile, int32_t seq)
{
    const struct seq_span *first = &p->seq[p->parts[tile->part].seq], *q = &p->seq[seq];
    int max = tile->shared_pages;

    if (tile->parts_n == 1)
        max = plain_pages_of(first);
    if (plain_pages_of(q) < max)
        max = plain_pages_of(q);
    return common_pages(first, q, max) / ATTEND_PAGES * ATTEND_PAGES;
}

static void tiles_make(struct attention_plan *p, int tile_rows)
{
    struct plan_tile *tile = NULL;
    int i, row, used = tile_rows;  /* rows in the last tile */

    p->tiles_n = p->parts_n = 0;
    for (i = 0; i < p->seqs_n; i++) {
        const struct seq_span *q = &p->seq[p->order[i]];
        int end = q->row + q->rows_n, n;

        for (row = q->row; row < end; row += n) {
            int shared = used < tile_rows ? shared_with(p, tile, p->order[i]) : 0;

            if (used == tile_rows || shared == 0) {
                tile = &p->tiles[p->tiles_n++];
                *tile = (struct plan_tile){ p->parts_n, 0, q->tree ? plain_pages_of(q) : 0 };
                used = 0;
            } else {
                tile->shared_pages = shared;
            }
            n = end - row < tile_rows - used ? end - row : tile_rows - used;
            p->parts[p->parts_n++] = (struct plan_part){ p->order[i], row, n };
            tile->parts_n++;
            used += n;
        }
    }
}

static void plan_room(struct attention_plan *p, size_t rows, size_t seqs, size_t pages)
{
    if (rows > p->parts_room) {    /* a part and a tile have at least one row each */
        p->parts = mem_grow(p->parts, rows * sizeof *p->parts);
        p->tiles = mem_grow(p->tiles, rows * sizeof *p->tiles);
        p->parts_room = rows;
    }
    if (seqs > p->seqs_room) {
        p->seq = mem_grow(p->seq, seqs * sizeof *p->seq);
        p->order = mem_grow(p->order, seqs * sizeof *p->order);
        p->order_spare = mem_grow(p->order_spare, seqs * sizeof *p->order_spare);
        p->seqs_room = seqs;
    }
    if (pages > p->pages_room) {
        p->pages = mem_grow(p->pages, pages * sizeof *p->pages);
        p->pages_room = pages;
    }
}

static void plan_make(struct attention_plan *p, const struct step *s, int tile_rows, int pool_pages_n)
{
    size_t pages = 0;
    int i, j;

    for (i = 0; i < s->seqs_n; i++)
        pages += (size_t)pages_of(&s->seq[i]);
    plan_room(p, (size_t)s->rows_n, (size_t)s->seqs_n, pages);
    p->tile_rows = tile_rows;
    p->seqs_n = s->seqs_n;
    p->pages_n = 0;
    for (i = 0; i < s->seqs_n; i++) {
        const struct seq_span *q = &s->seq[i];

        ASSERT(q->rows_n > 0 && q->row >= 0 && q->rows_n <= s->rows_n - q->row && q->cached_n >= 0);
        ASSERT(q->tree ? q->rows_n <= TREE_ROWS_MAX : s->pos[q->row] == q->cached_n);
        p->seq[i] = *q;
        p->seq[i].pages = p->pages + p->pages_n;
        for (j = 0; j < pages_of(q); j++) {
            ASSERT(q->pages[j] >= 0 && q->pages[j] < pool_pages_n);
            p->pages[p->pages_n++] = q->pages[j];
        }
    }
    order_make(p, tile_rows);
    tiles_make(p, tile_rows);
}

const struct attention_plan *attention_plan_find(struct cpu_device *c, const struct step *s, int tile_rows,
                                                 int pool_pages_n)
{
    struct attention_plan *p = c->memo->plan;

    if (!plan_matches(p, s, tile_rows))
        plan_make(p, s, tile_rows, pool_pages_n);
    return p;
}

struct attention_plan *attention_plan_open(void)
{
    return mem_take_zero(1, sizeof(struct attention_plan));
}

void attention_plan_close(struct attention_plan *p)
{
    if (p == NULL)
        return;
    free(p->tiles);
    free(p->parts);
    free(p->seq);
    free(p->pages);
    free(p->order);
    free(p->order_spare);
    free(p);
}
