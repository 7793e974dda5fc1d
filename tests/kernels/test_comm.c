/* The in-process group: sums in rank order, and an end for every way to lose a rank. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "kernels/comm.h"

#define RANKS_MAX 4
#define ROUNDS 200

struct rank {
    struct comm_group *group;
    int rank, size;
    int failed;                    /* what went wrong, 0: nothing (asserts of cmocka belong to the main thread) */
    int64_t waited_ms;
    void (*body)(struct rank *r, struct comm *c);
};

#define CHECK(cond) do { if (!(cond) && r->failed == 0) r->failed = __LINE__; } while (0)

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    struct comm *c = NULL;

    CHECK(comm_open(r->group, r->rank, &c) == ST_OK);
    CHECK(comm_rank(c) == r->rank && comm_size(c) == r->size);
    r->body(r, c);
    return NULL;
}

static void group_run(int size, int timeout_ms, void (*body)(struct rank *r, struct comm *c), struct rank *ranks)
{
    pthread_t threads[RANKS_MAX];
    struct comm_group *g;
    int i;

    assert_int_equal(comm_group_open(size, timeout_ms, &g), ST_OK);
    for (i = 0; i < size; i++) {
        ranks[i] = (struct rank){ .group = g, .rank = i, .size = size, .body = body };
        assert_int_equal(pthread_create(&threads[i], NULL, rank_main, &ranks[i]), 0);
    }
    for (i = 0; i < size; i++)
        pthread_join(threads[i], NULL);
    comm_group_close(g);
    for (i = 0; i < size; i++)
        if (ranks[i].failed != 0)
            fail_msg("rank %d of %d: check at line %d failed", i, size, ranks[i].failed);
}

static void sleep_ms(int ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

    nanosleep(&t, NULL);
}

/* Numbers whose sum depends on the order. */
static float value_of(int rank, int round, size_t i)
{
    static const float scale[RANKS_MAX] = { 1.0f, 3e7f, -3e7f, 0.7f };

    return scale[rank] * (1.0f + (float)((i * 31 + (size_t)round * 7) % 101) / 101.0f);
}

static void operations(struct rank *r, struct comm *c)
{
    static const size_t sizes[] = { 0, 1, 7, 64, 5000 };
    float *x = malloc(5000 * sizeof *x), *all = malloc(RANKS_MAX * 5000 * sizeof *all);
    int round, k;
    size_t i, n;

    for (round = 0; round < ROUNDS; round++) {
        n = sizes[round % 5];
        for (i = 0; i < n; i++)
            x[i] = value_of(r->rank, round, i);
        CHECK(comm_allgather(c, x, n, all) == ST_OK);
        CHECK(comm_allreduce(c, x, n) == ST_OK);
        for (i = 0; i < n; i++) {
            float sum = value_of(0, round, i);

            for (k = 1; k < r->size; k++)
                sum += value_of(k, round, i);
            CHECK(memcmp(&x[i], &sum, sizeof sum) == 0);
            for (k = 0; k < r->size; k++)
                CHECK(all[(size_t)k * n + i] == value_of(k, round, i));
            x[i] = r->rank == 0 ? (float)round : -1.0f;
        }
        CHECK(comm_broadcast(c, x, n * sizeof *x) == ST_OK);
        for (i = 0; i < n; i++)
            CHECK(x[i] == (float)round);
        if (round % 16 == r->rank)
            sleep_ms(1);           /* late ranks, early ranks */
        CHECK(comm_barrier(c) == ST_OK);
    }
    free(x);
    free(all);
    comm_close(c);
}

static void test_operations(void **state)
{
    struct rank ranks[RANKS_MAX];
    int size;

    (void)state;
    for (size = 1; size <= RANKS_MAX; size++)
        group_run(size, 20000, operations, ranks);
}

/* Calls after the end answer at once, on every rank. */
static void ended_check(struct rank *r, struct comm *c)
{
    int64_t start = clock_mono_ns();
    float x[4] = { 0 }, out[4 * RANKS_MAX];
    int i;

    for (i = 0; i < 10; i++) {
        CHECK(comm_allreduce(c, x, 4) == ST_FATAL);
        CHECK(comm_allgather(c, x, 4, out) == ST_FATAL);
        CHECK(comm_broadcast(c, x, sizeof x) == ST_FATAL);
        CHECK(comm_barrier(c) == ST_FATAL);
    }
    r->waited_ms = (clock_mono_ns() - start) / NS_PER_MS;
}

static void last_rank_aborts(struct rank *r, struct comm *c)
{
    float x[8] = { 1 };

    CHECK(comm_allreduce(c, x, 8) == ST_OK);
    if (r->rank == r->size - 1) {
        sleep_ms(20);
        comm_abort(c);
    } else {
        CHECK(comm_allreduce(c, x, 8) == ST_FATAL);
    }
    ended_check(r, c);
    comm_close(c);
}

static void last_rank_closes(struct rank *r, struct comm *c)
{
    CHECK(comm_barrier(c) == ST_OK);
    if (r->rank != r->size - 1) {
        CHECK(comm_barrier(c) == ST_FATAL);
        ended_check(r, c);
    }
    comm_close(c);
}

/* Late by far: the others give up, and so does it, with everybody's buffers gone in between. */
static void last_rank_is_late(struct rank *r, struct comm *c)
{
    float *x = calloc(1000, sizeof *x);

    CHECK(comm_allreduce(c, x, 1000) == ST_OK);
    if (r->rank == r->size - 1)
        sleep_ms(250);
    CHECK(comm_allreduce(c, x, 1000) == ST_FATAL);
    free(x);
    ended_check(r, c);
    comm_close(c);
}

static void sizes_differ(struct rank *r, struct comm *c)
{
    float x[16] = { 0 };

    CHECK(comm_allreduce(c, x, r->rank == 0 ? 16 : 8) == ST_FATAL);
    ended_check(r, c);
    comm_close(c);
}

static void lost(void (*body)(struct rank *r, struct comm *c), int timeout_ms)
{
    struct rank ranks[RANKS_MAX];
    int size, i;

    for (size = 2; size <= RANKS_MAX; size++) {
        group_run(size, timeout_ms, body, ranks);
        for (i = 0; i < size; i++)
            assert_true(ranks[i].waited_ms < 5000);
    }
}

static void test_abort(void **state)
{
    (void)state;
    lost(last_rank_aborts, 20000);
}

static void test_early_close(void **state)
{
    (void)state;
    lost(last_rank_closes, 20000);
}

static void test_timeout(void **state)
{
    (void)state;
    lost(last_rank_is_late, 50);
}

static void test_mismatch(void **state)
{
    (void)state;
    lost(sizes_differ, 20000);
}

/* A rank whose thread died without a word: nobody closes its comm, the others are not kept for ever. */
static void test_open_after_end(void **state)
{
    struct comm_group *g;
    struct comm *a, *b;

    (void)state;
    assert_int_equal(comm_group_open(2, 30, &g), ST_OK);
    assert_int_equal(comm_open(g, 0, &a), ST_OK);
    assert_int_equal(comm_barrier(a), ST_FATAL);               /* rank 1 never comes */
    assert_int_equal(comm_open(g, 1, &b), ST_FATAL);
    assert_null(b);
    comm_group_close(g);
    comm_close(a);
    comm_close(NULL);
    comm_group_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations), cmocka_unit_test(test_abort), cmocka_unit_test(test_early_close),
        cmocka_unit_test(test_timeout), cmocka_unit_test(test_mismatch), cmocka_unit_test(test_open_after_end),
    };

    log_level_set(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
