/* Rope, pages and attention: every way to compute a row must give the bits of decoding it alone, and those must be near
 * a plain reference in double. Pages hold NaN keys of earlier owners, outputs start as NaN. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "tests/kernels/attention_world.h"

/* ---- tests ---- */

/* Decodes contents of `base`, one row a step: the bits that all else must have. [LAYERS][length][out_bytes] */
static char *decode_alone(struct world *w, const int64_t *content, int length)
{
    char *all = malloc((size_t)(LAYERS * length) * w->out_bytes), *result = result_take(w);
    int32_t *pages = malloc((size_t)(length / PAGE_POSITIONS + 1) * sizeof *pages);
    int p, layer;

    pages_take(w, pages, (length + PAGE_POSITIONS - 1) / PAGE_POSITIONS);
    for (p = 0; p < length; p++) {
        step_clear(w);
        step_chain(w, pages, 0, p, 1);
        w->content[0] = content[p];
        step_run(w, result);
        for (layer = 0; layer < LAYERS; layer++)
            memcpy(all + (size_t)(layer * length + p) * w->out_bytes, result_row(w, result, layer, 0), w->out_bytes);
    }
    free(pages);
    free(result);
    return all;
}

static void rows_equal(const struct world *w, const char *got, const char *expected, const char *what, int pos)
{
    if (memcmp(got, expected, w->out_bytes) != 0)
        fail_msg("%s: head size %d: %s differs at position %d", device_info(w->d)->isa, w->c->shape.head_dim, what,
                 pos);
}

#define SEQS 5
#define LENGTH_MAX 260

static const int lengths[SEQS] = { 1, LENGTH_MAX, 97, 16, 65 };

/* Sequences in ragged steps: random chunk sizes, random mates. */
static void ragged_run(struct world *w, int64_t (*content)[LENGTH_MAX], char *const *expected, uint64_t random)
{
    int32_t pages[SEQS][LENGTH_MAX / PAGE_POSITIONS + 1];
    int done[SEQS] = { 0 }, left = SEQS, i, layer, r;
    char *result = result_take(w);

    for (i = 0; i < SEQS; i++)
        pages_take(w, pages[i], (lengths[i] + PAGE_POSITIONS - 1) / PAGE_POSITIONS);
    while (left > 0) {
        step_clear(w);
        for (i = 0; i < SEQS; i++) {
            int n = (int)(random_next(&random) % 3 == 0 ? random_next(&random) % 90 : random_next(&random) % 2);

            n = n > lengths[i] - done[i] ? lengths[i] - done[i] : n;
            if (n == 0)
                continue;
            step_chain(w, pages[i], 0, done[i], n);
            for (r = 0; r < n; r++)
                w->content[w->step.rows_n - n + r] = content[i][done[i] + r];
        }
        if (w->step.rows_n == 0)
            continue;
        step_run(w, result);
        for (i = 0, r = 0; i < SEQS; i++)
            for (; r < w->step.rows_n && w->seq[0].pages != NULL && w->content[r] / 100000 == i; r++, done[i]++) {
                for (layer = 0; layer < LAYERS; layer++)
                    rows_equal(w, result_row(w, result, layer, r),
                               expected[i] + (size_t)(layer * lengths[i] + done[i]) * w->out_bytes, "a ragged row",
                               done[i]);
                if (done[i] + 1 == lengths[i])
                    left--;
            }
    }
    free(result);
}

static void contents_make(int64_t (*content)[LENGTH_MAX])
{
    int i, p;

    for (i = 0; i < SEQS; i++)
        for (p = 0; p < LENGTH_MAX; p++)
            content[i][p] = i * 100000 + p;
}

static void reference_check(struct world *w, const int64_t *content, int length, const char *decoded, int stride)
{
    struct reference ref;
    double *out = malloc(sizeof *out * (size_t)(w->c->shape.heads_n * w->c->shape.head_dim));
    int layer, p;

    for (layer = 0; layer < LAYERS; layer++) {
        reference_fill(w, content, length, layer, &ref);
        for (p = 0; p < length; p += p + stride < length || p == length - 1 ? stride : length - 1 - p) {
            reference_row(w, &ref, content[p], p, layer, out);
            row_near(w, decoded + (size_t)(layer * length + p) * w->out_bytes, out);
        }
        reference_free(&ref);
    }
    free(out);
}

static void test_ragged(void **state)
{
    static int64_t content[SEQS][LENGTH_MAX];
    int k, c, i, threads;

    (void)state;
    contents_make(content);
    for (k = 0; k < DEVICE_KINDS; k++)
        for (c = 0; c < CASES; c++) {
            char *expected[SEQS] = { NULL };

            for (threads = 1; threads <= 3; threads++) {
                struct device *d = case_runs(&device_kinds[k], &cases[c]) ? device_of_kind(&device_kinds[k], threads) : NULL;
                struct world w;

                if (d == NULL)
                    continue;
                world_open(&w, d, &cases[c], 100, (uint64_t)threads);
                pages_poison(&w);
                for (i = 0; i < SEQS && threads == 1; i++) {
                    expected[i] = decode_alone(&w, content[i], lengths[i]);
                    reference_check(&w, content[i], lengths[i], expected[i], 41);
                }
                ragged_run(&w, content, expected, (uint64_t)(c * 10 + threads));
                world_close(&w);
                device_close(d);
            }
            for (i = 0; i < SEQS; i++)
                free(expected[i]);
        }
}

/* Many sequences behind one prefix, whose pages they share; all decode together, then each alone. */
static void test_shared_prefix(void **state)
{
    enum { MATES = 21, PREFIX = 12 * PAGE_POSITIONS };
    int k, c, i, layer, own;

    (void)state;
    for (k = 0; k < DEVICE_KINDS; k++)
        for (c = 0; c < 3; c++) {
            struct device *d = device_of_kind(&device_kinds[k], 2);
            struct world w;
            int32_t pages[MATES][PREFIX / PAGE_POSITIONS + 8], prefix[PREFIX / PAGE_POSITIONS];
            char *alone, *together;

            if (d == NULL)
                continue;
            world_open(&w, d, &cases[c], 200, 77);
            pages_poison(&w);
            alone = result_take(&w);
            together = result_take(&w);
            pages_take(&w, prefix, PREFIX / PAGE_POSITIONS);
            step_clear(&w);
            step_chain(&w, prefix, 0, 0, PREFIX);
            step_run(&w, together);
            for (i = MATES - 1; i >= 0; i--) { /* own parts of 1 to 100 positions, as chunks */
                own = 1 + i * 5 % 100;
                memcpy(pages[i], prefix, sizeof prefix);
                pages_take(&w, pages[i] + PREFIX / PAGE_POSITIONS, (own + PAGE_POSITIONS - 1) / PAGE_POSITIONS);
                step_clear(&w);
                step_chain(&w, pages[i], 100000 * (i + 1), PREFIX, own);
                step_run(&w, together);
            }
            step_clear(&w);
            for (i = 0; i < MATES; i++)
                step_chain(&w, pages[i], 100000 * (i + 1), PREFIX + i * 5 % 100, 1);
            step_run(&w, together);
            for (i = 0; i < MATES; i++) {
                const char *row[LAYERS];

                for (layer = 0; layer < LAYERS; layer++)
                    row[layer] = together + (size_t)(layer * MATES + i) * w.out_bytes;
                step_clear(&w);
                step_chain(&w, pages[i], 100000 * (i + 1), PREFIX + i * 5 % 100, 1);
                step_run(&w, alone);
                for (layer = 0; layer < LAYERS; layer++)
                    rows_equal(&w, result_row(&w, alone, layer, 0), row[layer], "a row behind a shared prefix", i);
            }
            free(alone);
            free(together);
            world_close(&w);
            device_close(d);
        }
}

/* ---- draft trees ---- */

#define TREES 3
#define TREE_CACHED_MAX 130

/* A random tree behind `cached` positions: parent by index in the tree. Kind 0: a chain, 1: a bush, 2: a star. */
static int tree_make(int kind, int *parent, uint64_t *random)
{
    int n = kind == 0 ? TREE_ROWS_MAX : kind == 1 ? 40 : 9, i;

    for (i = 0; i < n; i++)
        parent[i] = kind == 0 ? i - 1 : kind == 2 ? -1 : (int)(random_next(random) % (uint64_t)(i + 1)) - 1;
    return n;
}

static void step_tree(struct world *w, const int32_t *pages, int cached, const int *parent, int n, int64_t content)
{
    struct step *s = &w->step;
    int first = s->rows_n, i;

    w->seq[s->seqs_n++] = (struct seq_span){ first, n, cached, 1, pages };
    for (i = 0; i < n; i++, s->rows_n++) {
        w->content[first + i] = content + i;
        w->parent[first + i] = parent[i] < 0 ? -1 : first + parent[i];
        w->pos[first + i] = parent[i] < 0 ? cached : w->pos[first + parent[i]] + 1;
    }
}

/* Computes the path to row `at` of the tree plainly, on pages of its own, and compares its last row: one by one for
 * some rows, for the others a chunk and a decode (test_ragged: those are the same). */
static void path_check(struct world *w, int64_t base, int cached, const int *parent, int64_t content, int at,
                       const char *const *rows)
{
    int32_t pages[(TREE_CACHED_MAX + TREE_ROWS_MAX) / PAGE_POSITIONS + 1];
    int path[TREE_ROWS_MAX], n = 0, used = w->pages_used, take, i, r, layer;
    char *result = result_take(w);

    for (i = at; i >= 0; i = parent[i])
        path[n++] = i;
    pages_take(w, pages, (cached + n + PAGE_POSITIONS - 1) / PAGE_POSITIONS);
    if (cached > 0) {
        step_clear(w);
        step_chain(w, pages, base, 0, cached);
        step_run(w, result);
    }
    for (i = 0; i < n; i += take) {
        take = at % 5 == 0 || i == n - 1 ? 1 : n - 1;
        step_clear(w);
        step_chain(w, pages, 0, cached + i, take);
        for (r = 0; r < take; r++)
            w->content[r] = content + path[n - 1 - i - r];
        step_run(w, result);
    }
    for (layer = 0; layer < LAYERS; layer++)
        rows_equal(w, result_row(w, result, layer, 0), rows[layer], "a tree row", at);
    w->pages_used = used;
    free(result);
}

static void trees_run(struct world *w, const int *cached, uint64_t random)
{
    int32_t pages[TREES][(TREE_CACHED_MAX + TREE_ROWS_MAX) / PAGE_POSITIONS + 1];
    int parent[TREES][TREE_ROWS_MAX], rows[TREES], first[TREES], t, i, layer, total;
    char *result = result_take(w);

    for (t = 0; t < TREES; t++) {
        rows[t] = tree_make(t, parent[t], &random);
        pages_take(w, pages[t], (cached[t] + rows[t] + PAGE_POSITIONS - 1) / PAGE_POSITIONS);
        if (cached[t] == 0)
            continue;
        step_clear(w);
        step_chain(w, pages[t], 100000 * t, 0, cached[t]);
        step_run(w, result);
    }
    step_clear(w);
    for (t = 0; t < TREES; t++) {
        first[t] = w->step.rows_n;
        step_tree(w, pages[t], cached[t], parent[t], rows[t], 1000000 + 1000 * t);
    }
    total = w->step.rows_n;
    step_run(w, result);
    for (t = 0; t < TREES; t++)
        for (i = 0; i < rows[t]; i += 1 + (int)(random_next(&random) % 9)) {
            const char *row[LAYERS];

            for (layer = 0; layer < LAYERS; layer++)
                row[layer] = result + (size_t)(layer * total + first[t] + i) * w->out_bytes;
            path_check(w, 100000 * t, cached[t], parent[t], 1000000 + 1000 * t, i, row);
        }
    free(result);
}

static void test_trees(void **state)
{
    static const int cached[][TREES] = { { 0, 5, TREE_CACHED_MAX }, { 64, 127, 16 } };
    int k, c, i;

    (void)state;
    for (k = 0; k < DEVICE_KINDS; k++)
        for (c = 0; c < CASES; c++)
            for (i = 0; i < 2; i++) {
                struct device *d = case_runs(&device_kinds[k], &cases[c]) ? device_of_kind(&device_kinds[k], 1 + i) : NULL;
                struct world w;

                if (d == NULL)
                    continue;
                world_open(&w, d, &cases[c], 60, 5);
                pages_poison(&w);
                trees_run(&w, cached[i], (uint64_t)(k * 100 + c));
                world_close(&w);
                device_close(d);
            }
}

/* The accepted path of a tree is moved into place; pages are copied; what follows has the bits of plain decoding. */
static void test_moves_and_copies(void **state)
{
    enum { CACHED = 30 };
    static const int parent[] = { -1, 0, 0, 2, 1, 3 };         /* accepted: 0, 2, 3, 5 */
    static const int accepted[] = { 0, 2, 3, 5 };
    int k, i, layer;

    (void)state;
    for (k = 0; k < DEVICE_KINDS; k++) {
        struct device *d = device_of_kind(&device_kinds[k], 2);
        struct world w;
        int64_t content[CACHED + 5];
        int32_t pages[4], copies[3];
        struct kv_move moves[4];
        char *expected, *result;

        if (d == NULL)
            continue;
        world_open(&w, d, &cases[0], 40, 3);
        pages_poison(&w);
        result = result_take(&w);
        for (i = 0; i < CACHED; i++)
            content[i] = i;
        for (i = 0; i < 4; i++)
            content[CACHED + i] = 5000 + accepted[i];
        content[CACHED + 4] = 9999;
        expected = decode_alone(&w, content, CACHED + 5);
        pages_take(&w, pages, 4);
        step_clear(&w);
        step_chain(&w, pages, 0, 0, CACHED);
        step_run(&w, result);
        step_clear(&w);
        step_tree(&w, pages, CACHED, parent, 6, 5000);
        step_run(&w, result);
        for (i = 0; i < 4; i++) {
            int from = CACHED + accepted[i], to = CACHED + i;

            moves[i] = (struct kv_move){ pages[from / 16], from % 16, pages[to / 16], to % 16 };
        }
        assert_int_equal(kv_positions_move(d, w.kv, moves, 4), ST_OK);
        pages_take(&w, copies, 3);
        assert_int_equal(kv_pages_copy(d, w.kv, pages, copies, 3), ST_OK);
        for (i = 0; i < 2; i++) {
            step_clear(&w);
            step_chain(&w, i == 0 ? copies : pages, 0, CACHED + 4, 1);
            w.content[0] = 9999;
            step_run(&w, result);
            for (layer = 0; layer < LAYERS; layer++)
                rows_equal(&w, result_row(&w, result, layer, 0),
                           expected + (size_t)(layer * (CACHED + 5) + CACHED + 4) * w.out_bytes, "a row after a move",
                           i);
        }
        free(expected);
        free(result);
        world_close(&w);
        device_close(d);
    }
}

/* A long context: prefilled in chunks, rows of it decoded again, compared in bits and with the reference. */
static void test_long(void **state)
{
    enum { LENGTH = 2000, CHUNK = 100 };
    static const int at[] = { 0, 63, 64, 1023, 1500, LENGTH - 1 };
    int k, p, i, layer;

    (void)state;
    for (k = 0; k < DEVICE_KINDS; k++) {
        struct device *d = device_of_kind(&device_kinds[k], 2);
        struct world w;
        int32_t pages[LENGTH / PAGE_POSITIONS + 1];
        int64_t content[LENGTH];
        struct reference ref;
        double out[9 * 64];
        char *all, *result;

        if (d == NULL)
            continue;
        world_open(&w, d, &cases[0], 130, 9);
        pages_poison(&w);
        result = result_take(&w);
        all = malloc((size_t)(LAYERS * LENGTH) * w.out_bytes);
        pages_take(&w, pages, LENGTH / PAGE_POSITIONS);
        for (p = 0; p < LENGTH; p++)
            content[p] = p;
        for (p = 0; p < LENGTH; p += CHUNK) {
            bool wanted = false;

            for (i = 0; i < (int)(sizeof at / sizeof at[0]); i++)
                wanted |= at[i] >= p && at[i] < p + CHUNK;
            step_clear(&w);
            step_chain(&w, pages, 0, p, CHUNK);
            if (!wanted) {
                for (layer = 0; layer < LAYERS; layer++)
                    layer_write(&w, layer);
                continue;
            }
            step_run(&w, result);
            for (layer = 0; layer < LAYERS; layer++)
                memcpy(all + (size_t)(layer * LENGTH + p) * w.out_bytes, result_row(&w, result, layer, 0),
                       (size_t)w.step.rows_n * w.out_bytes);
        }
        for (layer = 0; layer < LAYERS; layer++) {
            reference_fill(&w, content, LENGTH, layer, &ref);
            for (i = 0; i < (int)(sizeof at / sizeof at[0]); i++) {
                reference_row(&w, &ref, content[at[i]], at[i], layer, out);
                row_near(&w, all + (size_t)(layer * LENGTH + at[i]) * w.out_bytes, out);
            }
            reference_free(&ref);
        }
        for (i = 0; i < (int)(sizeof at / sizeof at[0]); i++) {
            step_clear(&w);
            step_chain(&w, pages, 0, at[i], 1);
            step_run(&w, result);
            for (layer = 0; layer < LAYERS; layer++)
                rows_equal(&w, result_row(&w, result, layer, 0), all + (size_t)(layer * LENGTH + at[i]) * w.out_bytes,
                           "a row of a long context", at[i]);
        }
        free(all);
        free(result);
        world_close(&w);
        device_close(d);
    }
}

/* A value that is not finite must reach every row that sees it, and no other. */
static void test_not_finite(void **state)
{
    int k, r, i, n = 9 * 64;

    (void)state;
    for (k = 0; k < DEVICE_KINDS; k++) {
        struct device *d = device_of_kind(&device_kinds[k], 1);
        struct world w;
        int32_t pages[2];

        if (d == NULL)
            continue;
        world_open(&w, d, &cases[0], 4, 0);
        pages_take(&w, pages, 2);
        step_clear(&w);
        step_chain(&w, pages, 0, 0, 20);
        for (r = 0; r < 20; r++)
            qkv_make(&cases[0].shape, r, 0, (float *)w.qkv + r * 15 * 64);
        ((float *)w.qkv)[7 * 15 * 64 + 13 * 64 + 5] = INFINITY;        /* row 7, KV head 1: query heads 3, 4, 5 */
        assert_int_equal(kernel_step_begin(d, &w.step), ST_OK);
        assert_int_equal(kernel_rope_write(d, w.qkv, &w.step, 0, &cases[0].shape, &w.rope, NULL, w.kv, w.q), ST_OK);
        assert_int_equal(kernel_attention(d, w.q, &w.step, 0, &cases[0].shape, w.kv, w.out), ST_OK);
        assert_int_equal(device_sync(d), ST_OK);
        for (r = 0; r < 20; r++)
            for (i = 0; i < n; i++) {
                bool bad = w.out_bytes == (size_t)n * 4 ? isnan(((float *)w.out)[r * n + i])
                                                        : (((uint16_t *)w.out)[r * n + i] & 0x7fff) > 0x7f80;

                assert_int_equal(bad, r >= 7 && i / 64 >= 3 && i / 64 < 6);
            }
        world_close(&w);
        device_close(d);
    }
}

static void test_refusals(void **state)
{
    static const struct kv_shape bad[] = { { 1, 1, 63, 4 }, { 1, 1, 0, 4 }, { 1, 1, 2048, 4 }, { 0, 1, 64, 4 },
                                           { 1, 1, 64, 0 }, { 1000000, 1000000, 64, 1000000 },
                                           { 1000, 1000, 64, 10000000 } };     /* no machine has that memory */
    struct device *d = device_of_kind(&device_kinds[0], 1);
    struct error err;
    struct kv *kv;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(kv_open(d, &bad[i], &kv, &err), ST_REJECT);
        assert_null(kv);
    }
    assert_int_equal(kv_page_bytes(d, &(struct kv_shape){ 30, 3, 64, 1 }), 30 * 3 * 2 * 16 * 64 * 4);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ragged), cmocka_unit_test(test_shared_prefix), cmocka_unit_test(test_trees),
        cmocka_unit_test(test_moves_and_copies), cmocka_unit_test(test_long), cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
