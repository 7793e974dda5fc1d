/* tests/unit/test_engine_invariant.c - the Invariant (design.md section 1) at the engine's border: a request's outcome
 * (tokens, text, end, the bits of its log-probabilities) is the same in every cell of
 *   {alone, with mates} x {cold, warm} x {chunks of 16, 512} x {arrival order, shuffled} x {1, 2 threads}
 *   x {large pool, one that evicts and puts back all the time} x {from the start, resumed from k tokens},
 * over requests at temperature 0 and 0.8 with every parameter that has state. Each cell also shows that it was what it
 * says: warm ones hit, small pools evicted and put back, resumed ones resumed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/engine_rig.h"

#define REQUESTS 28
#define PROMPT_MAX 160
#define SMALL_POOL 26          /* pages; the largest request needs 18 for one choice */
#define LARGE_POOL 1000

static struct rig rigs[2];                 /* 1 and 2 threads */
static uint64_t expected[REQUESTS];
static struct request *reference[REQUESTS];

/* Families of prefixes that end inside a page, prompts that are beginnings of others, and one of each parameter. */
static struct request *make(int i)
{
    static const char *const stops[] = { "he", "\xC3\xA9" };
    static const size_t stops_bytes[] = { 2, 2 };
    int32_t prompt[PROMPT_MAX], n = 20 + i * 37 % 130, shared = i % 3 == 0 ? 0 : n * 3 / 4;
    struct request *r;

    rig_prompt(prompt, n, shared, (uint64_t)(i % 4), (uint64_t)i);
    r = rig_request(i, prompt, n, 24 + i % 5 * 25);
    r->params.temperature = i % 2 == 0 ? 0 : 0.8f;
    r->params.ignore_eos = i % 5 != 0;
    if (i % 7 == 1)
        rig_choices(r, 3);
    if (i % 4 == 1) {
        r->params.logprobs = true;
        r->params.top_logprobs_n = i % 3;
    }
    if (i % 9 == 2)
        r->params.echo = r->params.echo_logprobs = r->params.logprobs = true;
    if (i % 6 == 3) {
        r->params.repetition = 1.2f;
        r->params.presence = 0.3f;
        r->params.frequency = 0.2f;
    }
    if (i % 8 == 4)
        r->params.stop = (struct stop_set){ stops, stops_bytes, 2, i % 16 == 4 };
    if (i % 8 == 5)
        r->params.min_tokens = 12;
    if (i % 5 == 3) {
        r->params.top_k = 20;
        r->params.top_p = 0.9f;
        r->params.min_p = 0.01f;
    }
    if (i == 14)
        r->params.max_tokens = 0;
    return r;
}

enum { MATES = 1, WARM = 2, LONG_CHUNKS = 4, SHUFFLED = 8, TWO_THREADS = 16, LARGE = 32, RESUMED = 64, CELLS = 128 };

static uint32_t mix(uint32_t x)
{
    x = (x ^ (x >> 15)) * 0x85EBCA6Bu;
    return x ^ (x >> 13);
}

/* As a restart would: a part of each choice's tokens, from none to all of them. */
static void give_tokens(struct request *r, const struct request *from)
{
    for (int32_t c = 0; c < r->params.n; c++) {
        int32_t n = from->choices[c].tokens_n;

        if (n == 0)
            continue;
        n = c == 0 && r->offset % 6 == 0 ? n : (int32_t)(mix((uint32_t)(r->offset * 7 + c)) % (uint32_t)(n + 1));
        r->choices[c].tokens = mem_take((size_t)n * sizeof(int32_t));
        memcpy(r->choices[c].tokens, from->choices[c].tokens, (size_t)n * sizeof(int32_t));
        r->choices[c].tokens_n = r->choices[c].tokens_room = r->choices[c].resumed_n = n;
    }
}

static void run_set(struct rig *g, unsigned cell)
{
    for (int k = 0; k < REQUESTS; k++) {
        int i = cell & SHUFFLED ? k * 11 % REQUESTS : k;
        struct request *r = make(i);

        if (cell & RESUMED)
            give_tokens(r, reference[i]);
        if (!(cell & (MATES | WARM)))
            rig_start(g);
        engine_submit(g->engine, r);
        if (!(cell & MATES))
            rig_run(g);
    }
    rig_run(g);
}

static int64_t cached_sum(const struct rig *g)
{
    int64_t n = 0;

    for (size_t i = 0; i < g->ended_n; i++)
        n += g->ended[i]->cached_n;
    return n;
}

static void check_cell(unsigned cell)
{
    struct rig *g = &rigs[cell & TWO_THREADS ? 1 : 0];
    bool large = cell & LARGE;
    int64_t warm;

    g->cfg.step_rows_max = cell & LONG_CHUNKS ? 512 : 16;
    g->cfg.kv_pages_max = large ? LARGE_POOL : SMALL_POOL;
    g->cfg.admit_output_percent = large ? 100 : 0;         /* none: takes on more than the pool can hold */
    rig_start(g);
    if (cell & WARM)
        run_set(g, cell & ~(unsigned)RESUMED);
    rig_forget(g);
    run_set(g, cell);
    assert_int_equal(g->ended_n, REQUESTS);
    for (int i = 0; i < REQUESTS; i++)
        if (rig_outcome(rig_ended(g, i)) != expected[i])
            fail_msg("cell %#x: request %d differs", cell, i);
    warm = cached_sum(g);
    if (cell & WARM && large)
        assert_true(warm > 1000);
    if (!(cell & (MATES | WARM)))
        assert_int_equal(warm, 0);
    if (cell & MATES && !large) {
        assert_true(engine_counts(g->engine)->put_back_n > 2);
        assert_true(engine_cache_counts(g->engine).evicted_pages > 50);
    }
    if (cell & RESUMED && cell & (MATES | WARM))
        assert_true(engine_counts(g->engine)->resumed_tokens > 200);
    rig_forget(g);
}

static bool every_cell;

/* Two threads wait for each other at every operation, which takes for ever on a busy machine: of those cells the suite
 * runs four of the shortest, `test_engine_invariant all` runs the whole product. */
static bool is_short(unsigned cell)
{
    return cell & MATES && !(cell & WARM) && cell & LONG_CHUNKS && !(cell & SHUFFLED) == !(cell & RESUMED);
}

static void test_matrix(void **state)
{
    (void)state;
    for (unsigned cell = 0; cell < CELLS; cell++)
        if (every_cell || !(cell & TWO_THREADS) || is_short(cell))
            check_cell(cell);
}

static int setup(void **state)
{
    (void)state;
    rig_open(&rigs[0], 1, NULL);
    rig_open(&rigs[1], 2, NULL);
    for (int i = 0; i < REQUESTS; i++) {
        rig_start(&rigs[0]);
        engine_submit(rigs[0].engine, make(i));
        rig_run(&rigs[0]);
        assert_int_equal(rigs[0].ended_n, 1);
        reference[i] = rigs[0].ended[0];
        rigs[0].ended_n = 0;
        expected[i] = rig_outcome(reference[i]);
        for (int k = 0; k < i; k++)
            assert_true(expected[k] != expected[i]);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < REQUESTS; i++)
        request_free(reference[i]);
    rig_close(&rigs[1]);
    rig_close(&rigs[0]);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrix),
    };

    every_cell = argc > 1 && strcmp(argv[1], "all") == 0;
    return cmocka_run_group_tests(tests, setup, teardown);
}
