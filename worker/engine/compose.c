/* worker/engine/compose.c - the rows of a step. First how many rows each sequence gets and the pages for them, oldest
 * sequence first, so that it is always the youngest that has to make room; then the arrays. */
#include "worker/engine/internal.h"

#include <string.h>

#define ROWS_UNMEASURED 64     /* rows of the very first step, whatever the device */
#define ROWS_GROWTH 4          /* later steps are at most so many times larger than the largest measured */
#define PREFILL_ROWS_MIN 16    /* of one sequence, even where a step is slow: prompts get on */

/* Takes the youngest sequence out of the step; where s runs alone, no pool can hold it: it ends. False: s itself has left. The
 * ports and the plan may take memory then. */
static bool room_make(struct engine *e, struct seq *s, int32_t n)
{
    struct seq *youngest = e->running[e->running_n - 1];

    mem_quiet(false);
    if (e->running_n == 1) {
        choice_fail(s->r, s->c, "its %d positions need %d KV pages, the pool has %d: raise kv_memory_mb", s->computed_n + n,
                    (s->computed_n + n + PAGE_POSITIONS - 1) / PAGE_POSITIONS, e->pages_n);
        seq_end(e, s);
    } else {
        seq_put_back(e, youngest);
    }
    mem_quiet(true);
    return youngest != s;
}

/* Pages for the next n positions of s; false: s itself has left the step. */
static bool pages_take(struct engine *e, struct seq *s, int32_t n)
{
    while (cache_lease_grow(e->cache, &s->lease, s->computed_n + n) != ST_OK)
        if (!room_make(e, s, n))
            return false;
    s->rows_n = n;
    return true;
}

/* Positions that n rows from `computed` on read. */
static double kv_of(int32_t computed, int32_t n)
{
    return n * (computed + (n + 1) / 2.0);
}

struct budget {
    int32_t rows, rows_hard;       /* wanted at most; what the arrays hold */
    double seconds;
};

static void budget_spend(struct engine *e, struct budget *b, struct seq *s)
{
    double kv = kv_of(s->computed_n, s->rows_n);

    b->rows -= s->rows_n;
    b->rows_hard -= s->rows_n;
    b->seconds -= s->rows_n * e->cost.row_s + kv * e->cost.kv_s;
}

/* Rows of the next chunk of s that fit. */
static int32_t chunk_rows(const struct engine *e, const struct budget *b, const struct seq *s)
{
    int32_t n = s->end_n - s->computed_n;
    double row_s;

    n = n < b->rows ? n : b->rows;
    row_s = e->cost.row_s + e->cost.kv_s * (s->computed_n + n / 2.0);
    if (row_s > 0 && n * row_s > b->seconds)
        n = b->seconds > 0 ? (int32_t)(b->seconds / row_s) : 0;
    return n;
}

static struct budget budget_open(const struct engine *e)
{
    int32_t seen = e->rows_seen > 0 ? ROWS_GROWTH * e->rows_seen : ROWS_UNMEASURED;
    struct budget b = { seen < e->rows_max ? seen : e->rows_max, e->rows_max, 0 };

    b.seconds = (double)e->cfg->step_ms_max / 1e3 - cost_predict(&e->cost, 0, e->running_n, 0);
    return b;
}

/* Sequences may leave `running` while it is walked: those behind the walk's place only, or the one at it. */
static void rows_share(struct engine *e)
{
    struct budget b = budget_open(e);
    bool prefilled = false;

    for (int32_t i = 0; i < e->running_n; i++)
        e->running[i]->rows_n = 0;
    for (int32_t i = 0; i < e->running_n;) {
        struct seq *s = e->running[i];

        if (s->end_n - s->computed_n == 1 && !seq_sits_out(e, s) && !pages_take(e, s, 1))
            continue;
        budget_spend(e, &b, s);
        i++;
    }
    for (int32_t i = 0; i < e->running_n;) {
        struct seq *s = e->running[i];
        int32_t n = chunk_rows(e, &b, s), left = s->end_n - s->computed_n;

        if (s->rows_n > 0 || left <= 1) {
            i++;
            continue;
        }
        if (!prefilled && n < PREFILL_ROWS_MIN)
            n = left < PREFILL_ROWS_MIN ? left : PREFILL_ROWS_MIN;
        n = n < b.rows_hard ? n : b.rows_hard;
        if (n <= 0)
            break;
        if (!pages_take(e, s, n))
            continue;
        prefilled = true;
        budget_spend(e, &b, s);
        i++;
    }
}

static void rows_write(struct engine *e, struct seq *s)
{
    struct step *t = &e->step;
    struct seq_span *span = &t->seq[t->seqs_n++];

    *span = (struct seq_span){ t->rows_n, s->rows_n, s->computed_n, 0, s->lease.pages };
    s->outs_n = 0;
    for (int32_t i = 0; i < s->rows_n; i++) {
        int32_t row = t->rows_n + i, pos = s->computed_n + i, n;

        t->token[row] = s->known[pos];
        t->pos[row] = pos;
        t->parent[row] = i == 0 ? -1 : row - 1;
        n = seq_want(e, s, row, pos, t->outs_n);
        s->outs_n += n;
        t->outs_n += n;
    }
    t->rows_n += s->rows_n;
    e->kv_read += kv_of(s->computed_n, s->rows_n);
}

bool engine_compose(struct engine *e)
{
    e->step.rows_n = e->step.seqs_n = e->step.outs_n = 0;
    e->kv_read = 0;
    rows_share(e);
    for (int32_t i = 0; i < e->running_n; i++)
        if (e->running[i]->rows_n > 0)
            rows_write(e, e->running[i]);
    return e->step.rows_n > 0;
}
