/* The step on the device: its arrays in one block, sent once; and the items of attention.
 *
 *   tile    at most 16 queries (heads of the group times rows) of one sequence: decode rows, short chunks, and each row
 *           of a draft tree by itself, whose ancestors stand in slots of its own. Its splits are items of their own, so
 *           that one long sequence fills the device; what they leave is folded in order.
 *   chunk   128 queries of one sequence that share keys and values; folds its splits itself. */
#include "kernels/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

#define TILE_QUERIES_MAX 32        /* sequences of at most so many queries are done in tiles */

/* ---- arrays ---- */

static int pages_of(const struct seq_span *q)
{
    return (q->cached_n + q->rows_n + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
}

static void room_make(struct cuda_step *t, const struct step *s)
{
    if (s->rows_n > t->rows_room) {
        t->tree_at = mem_grow(t->tree_at, (size_t)s->rows_n * sizeof *t->tree_at);
        t->rows_room = s->rows_n;
    }
    if (s->seqs_n > t->seqs_room) {
        t->pages_at = mem_grow(t->pages_at, (size_t)s->seqs_n * sizeof *t->pages_at);
        t->seqs_room = s->seqs_n;
    }
}

/* Offsets of page tables and of the slots of tree rows; their ends. */
static void offsets_make(struct cuda_step *t, const struct step *s, int *pages_n, int *slots_n)
{
    int64_t pages = 0, slots = 0;

    for (int i = 0; i < s->seqs_n; i++) {
        const struct seq_span *q = &s->seq[i];

        ASSERT(q->rows_n > 0 && q->row >= 0 && q->rows_n <= s->rows_n - q->row && q->cached_n >= 0);
        ASSERT(q->tree ? q->rows_n <= TREE_ROWS_MAX : s->pos[q->row] == q->cached_n);
        t->pages_at[i] = (int)pages;
        pages += pages_of(q);
        for (int row = q->row; row < q->row + q->rows_n; row++) {
            t->tree_at[row] = q->tree ? (int)slots : -1;
            slots += q->tree ? s->pos[row] - q->cached_n + 1 : 0;
        }
    }
    ASSERT(pages < INT32_MAX && slots < INT32_MAX);
    *pages_n = (int)pages;
    *slots_n = (int)slots;
}

/* Slots of the row's ancestors and itself, by position. */
static void tree_write(const struct step *s, const struct seq_span *q, int row, int32_t *slots)
{
    for (int at = s->pos[row]; at >= q->cached_n; at--) {
        ASSERT(row >= q->row && s->pos[row] == at);
        slots[at - q->cached_n] = q->cached_n + row - q->row;
        ASSERT(s->parent[row] < row);
        row = s->parent[row];
    }
    ASSERT(row == -1);
}

static void seq_write(struct cuda_step *t, const struct step *s, int i, int32_t *slot, int32_t *pages, int32_t *tree)
{
    const struct seq_span *q = &s->seq[i];

    for (int p = 0; p < pages_of(q); p++) {
        ASSERT(q->pages[p] >= 0 && q->pages[p] < INT32_MAX / PAGE_POSITIONS);
        t->page_most = q->pages[p] > t->page_most ? q->pages[p] : t->page_most;
        pages[t->pages_at[i] + p] = q->pages[p];
    }
    for (int r = 0; r < q->rows_n; r++) {
        int at = q->cached_n + r;

        slot[q->row + r] = q->pages[at / PAGE_POSITIONS] * PAGE_POSITIONS + at % PAGE_POSITIONS;
        if (q->tree)
            tree_write(s, q, q->row + r, tree + t->tree_at[q->row + r]);
    }
}

static void tokens_check(struct cuda_step *t, const struct step *s)
{
    t->token_least = INT32_MAX;
    t->token_most = INT32_MIN;
    for (int r = 0; r < s->rows_n; r++) {
        t->token_least = s->token[r] < t->token_least ? s->token[r] : t->token_least;
        t->token_most = s->token[r] > t->token_most ? s->token[r] : t->token_most;
    }
}

status cuda_step_begin(struct device *d, const struct step *s)
{
    struct cuda_device *c = cuda_of(d);
    struct cuda_step *t = &c->step;
    size_t rows = (size_t)s->rows_n, ints;
    int pages_n, slots_n;
    struct cuda_block *b;
    int32_t *host;
    status st = ST_OK;

    ASSERT(s->rows_n > 0);
    t->of = NULL;
    t->turns_freq = NULL;
    c->plan.group = 0;
    t->page_most = -1;
    room_make(t, s);
    offsets_make(t, s, &pages_n, &slots_n);
    ints = 3 * rows + (size_t)pages_n + (size_t)slots_n;
    TRY(cuda_block_take(c, &c->step_blocks, ints * sizeof *host, &b));
    host = (int32_t *)b->host;
    if (s->token != NULL) {
        tokens_check(t, s);
        memcpy(host, s->token, rows * sizeof *host);
    }
    if (s->seqs_n > 0)
        memcpy(host + rows, s->pos, rows * sizeof *host);
    for (int i = 0; i < s->seqs_n; i++)
        seq_write(t, s, i, host + 2 * rows, host + 3 * rows, host + 3 * rows + pages_n);
    TRY(cuda_block_send(c, b, ints * sizeof *host));
    t->token = (const int32_t *)b->device;
    t->pos = t->token + rows;
    t->slot = t->pos + rows;
    t->pages = t->slot + rows;
    t->tree = t->pages + pages_n;
    t->of = s;
    t->rows_n = s->rows_n;
    t->seqs_n = s->seqs_n;
out:
    return st;
}

void cuda_step_check(const struct cuda_device *c, const struct step *s)
{
    ASSERT(c->step.of == s && c->step.rows_n == s->rows_n && c->step.seqs_n == s->seqs_n);
}

void cuda_step_fini(struct cuda_device *c)
{
    cuda_room_fini(&c->step.turns);
    free(c->step.pages_at);
    free(c->step.tree_at);
    free(c->plan.tile_list);
    free(c->plan.chunk_list);
    free(c->plan.fold_list);
}

/* ---- items ---- */

static void *list_room(void *list, int n, int *room, size_t bytes)
{
    if (n < *room)
        return list;
    *room = *room == 0 ? 256 : 2 * *room;
    return mem_grow(list, (size_t)*room * bytes);
}

static void item_add(struct attend_item **list, int *n, int *room, const struct attend_item *item)
{
    *list = list_room(*list, *n, room, sizeof **list);
    (*list)[(*n)++] = *item;
}

static int split_of(int pos)
{
    return pos / ATTEND_SPLIT;
}

static int first_seen(int pos, int window)
{
    return window > 0 && pos >= window ? pos - window + 1 : 0;
}

/* item: of one tile, splits not set. */
static void tile_add(struct cuda_plan *p, const struct step *s, struct attend_item *item, int64_t entries_max)
{
    int last = s->pos[item->row + (item->query + item->queries_n - 1) / p->group];
    int first = split_of(first_seen(s->pos[item->row + item->query / p->group], p->window));
    int splits = split_of(last) - first + 1;

    item->split = first;
    item->splits_n = splits;
    item->entry = -1;
    if (splits > 1 && p->entries_n + (int64_t)splits * item->queries_n > entries_max) {
        item_add(&p->chunk_list, &p->chunks_n, &p->chunks_room, item);
        return;
    }
    if (splits == 1) {
        item_add(&p->tile_list, &p->tiles_n, &p->tiles_room, item);
        return;
    }
    p->fold_list = list_room(p->fold_list, p->folds_n, &p->folds_room, sizeof *p->fold_list);
    p->fold_list[p->folds_n++] = (struct attend_fold){ item->row, item->query, item->queries_n, (int)p->entries_n, splits };
    item->splits_n = 1;
    for (int i = 0; i < splits; i++) {
        item->split = first + i;
        item->entry = (int)p->entries_n;
        item_add(&p->tile_list, &p->tiles_n, &p->tiles_room, item);
        p->entries_n += item->queries_n;
    }
}

/* Queries [first, end) of a sequence in tiles. */
static void tiles_add(struct cuda_plan *p, const struct step *s, struct attend_item item, int first, int end,
                      int64_t entries_max)
{
    for (item.query = first; item.query < end; item.query += item.queries_n) {
        item.queries_n = end - item.query < ATTEND_TILE_QUERIES ? end - item.query : ATTEND_TILE_QUERIES;
        tile_add(p, s, &item, entries_max);
    }
}

/* From the end: the longest first. */
static void chunks_add(struct cuda_plan *p, struct attend_item item, int queries_n)
{
    int first = (queries_n - 1) / ATTEND_CHUNK_QUERIES * ATTEND_CHUNK_QUERIES;

    item.entry = -1;
    for (; first >= 0; first -= ATTEND_CHUNK_QUERIES) {
        item.query = first;
        item.queries_n = queries_n - first < ATTEND_CHUNK_QUERIES ? queries_n - first : ATTEND_CHUNK_QUERIES;
        item_add(&p->chunk_list, &p->chunks_n, &p->chunks_room, &item);
    }
}

static void items_make(struct cuda_device *c, const struct step *s, int64_t entries_max)
{
    struct cuda_plan *p = &c->plan;

    for (int i = 0; i < s->seqs_n; i++) {
        const struct seq_span *q = &s->seq[i];
        struct attend_item item = { .row = q->row, .pages = c->step.pages_at[i], .tree = -1, .cached_n = q->cached_n };
        int queries_n = q->rows_n * p->group;

        for (int r = 0; q->tree && r < q->rows_n; r++) {
            item.tree = c->step.tree_at[q->row + r];
            tiles_add(p, s, item, r * p->group, (r + 1) * p->group, entries_max);
        }
        if (!q->tree && queries_n <= TILE_QUERIES_MAX)
            tiles_add(p, s, item, 0, queries_n, entries_max);
        else if (!q->tree)
            chunks_add(p, item, queries_n);
    }
}

status cuda_plan_find(struct cuda_device *c, const struct step *s, int group, int window, int64_t entries_max)
{
    struct cuda_plan *p = &c->plan;
    size_t tiles, chunks, folds;
    struct cuda_block *b;
    status st = ST_OK;

    if (p->group == group && p->window == window)
        return ST_OK;
    p->group = group;
    p->window = window;
    p->tiles_n = p->chunks_n = p->folds_n = 0;
    p->entries_n = 0;
    items_make(c, s, entries_max);
    tiles = (size_t)p->tiles_n * sizeof *p->tiles;
    chunks = (size_t)p->chunks_n * sizeof *p->chunks;
    folds = (size_t)p->folds_n * sizeof *p->folds;
    TRY(cuda_block_take(c, &c->plan_blocks, tiles + chunks + folds, &b));
    if (tiles > 0)
        memcpy(b->host, p->tile_list, tiles);
    if (chunks > 0)
        memcpy(b->host + tiles, p->chunk_list, chunks);
    if (folds > 0)
        memcpy(b->host + tiles + chunks, p->fold_list, folds);
    TRY(cuda_block_send(c, b, tiles + chunks + folds));
    p->tiles = (const struct attend_item *)b->device;
    p->chunks = (const struct attend_item *)(b->device + tiles);
    p->folds = (const struct attend_fold *)(b->device + tiles + chunks);
out:
    if (st != ST_OK)
        p->group = 0;
    return st;
}
