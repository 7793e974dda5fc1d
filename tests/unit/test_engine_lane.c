/* tests/unit/test_engine_lane.c - starts that are counted before they happen, requests that run apart, and sequences that wait
 * for the store: with a store that the test plays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/support/engine_rig.h"
#include "worker/lines/lines.h"

#define OFFSETS 400

static struct rig rig;
static struct store {
    int delay;                         /* admissions until an answer comes */
    int asked[OFFSETS];                /* questions for a record so far */
    int counted[OFFSETS], alone[OFFSETS], cleared[OFFSETS];
    enum engine_begun answer[OFFSETS];
    int unanswered_n, unanswered_most;
    int32_t safe_n;
    int64_t safe_calls;
} store;

static enum engine_begun on_begin(void *ctx, struct request *r, bool alone)
{
    int *asked = &store.asked[r->offset];

    (void)ctx;
    if (*asked == 0 && store.delay > 0)
        store.unanswered_n++;
    store.unanswered_most = store.unanswered_n > store.unanswered_most ? store.unanswered_n : store.unanswered_most;
    if ((*asked)++ < store.delay)
        return BEGUN_NOT_YET;
    if (*asked == store.delay + 1 && store.delay > 0)
        store.unanswered_n--;
    if (r->lane == LANE_NONE && store.answer[r->offset] != BEGUN_GO) {
        if (store.answer[r->offset] == BEGUN_OVER)
            lines_reject(r, LINES_QUARANTINED, NULL, (const char *const[]){ "3", NULL });
        r->starts = 2;
        return store.answer[r->offset];
    }
    store.counted[r->offset]++;
    store.alone[r->offset] += alone;
    return BEGUN_GO;
}

static void on_cleared(void *ctx, struct request *r)
{
    (void)ctx;
    store.cleared[r->offset]++;
}

static int32_t on_safe(void *ctx, const struct request *r, int32_t choice)
{
    (void)ctx, (void)r, (void)choice;
    store.safe_calls++;
    return store.safe_n;
}

static int fresh(void **state)
{
    (void)state;
    memset(&store, 0, sizeof store);
    for (int i = 0; i < OFFSETS; i++)
        store.answer[i] = BEGUN_GO;
    config_defaults(&rig.cfg);
    rig.cfg.kv_pages_max = 1000;
    rig.cfg.sequences_max = 8;
    rig.ports = (struct engine_ports){ .begin = on_begin, .cleared = on_cleared };
    rig_start(&rig);
    rig_forget(&rig);
    return 0;
}

static struct request *submit(int64_t offset, int32_t starts, int32_t max_tokens)
{
    int32_t prompt[20];
    struct request *r;

    rig_prompt(prompt, 20, 0, 0, (uint64_t)offset);
    r = rig_request(offset, prompt, 20, max_tokens);
    r->params.ignore_eos = true;
    r->starts = starts;
    engine_submit(rig.engine, r);
    return r;
}

static int running_n(void)
{
    return engine_counts(rig.engine)->running_n;
}

/* Every start is counted, once, before it happens; and not many more than can start are asked about. */
static void starts_are_counted_first(void **state)
{
    (void)state;
    store.delay = 3;
    for (int i = 0; i < 100; i++)
        submit(i, 0, 5);
    for (int steps = 0; rig.ended_n < 100; steps++) {
        assert_int_not_equal(engine_step(rig.engine), ST_FATAL);
        assert_true(steps < 2000);
    }
    for (int i = 0; i < 100; i++) {
        assert_int_equal(store.counted[i], 1);
        assert_int_equal(store.alone[i], 0);
    }
    assert_in_range(store.unanswered_most, 8, 8 + 8);
}

static void a_first_answer_later_lets_others_by(void **state)
{
    struct request *late = submit(0, 0, 3);
    (void)state;

    store.asked[0] = -50;                              /* its answer takes longer than all of the others' */
    for (int i = 1; i < 10; i++)
        submit(i, 0, 3);
    while (rig.ended_n < 9)
        assert_int_not_equal(engine_step(rig.engine), ST_FATAL);
    assert_int_equal(late->verdict, VERDICT_NONE);
    while (rig.ended_n < 10)
        assert_int_not_equal(engine_step(rig.engine), ST_FATAL);
}

/* A suspect runs with no other in the step, is counted as alone, and others follow. */
static void suspects_run_alone(void **state)
{
    bool seen[4] = { false };
    (void)state;

    for (int i = 0; i < 4; i++)
        submit(i, 2, 20);
    for (int i = 4; i < 10; i++)
        submit(i, 0, 20);
    while (rig.ended_n < 10) {
        assert_int_not_equal(engine_step(rig.engine), ST_FATAL);
        if (rig.ended_n < 4)
            assert_true(running_n() <= 1);
    }
    for (size_t i = 0; i < 4; i++)
        seen[rig.ended[i]->offset] = true;
    for (int i = 0; i < 4; i++) {
        assert_true(seen[i]);
        assert_int_equal(store.alone[i], 1);
        assert_int_equal(store.cleared[i], 0);         /* its end came first */
    }
    for (int i = 4; i < 10; i++)
        assert_int_equal(store.alone[i], 0);
}

/* What runs when a suspect comes ends or, after a while, is put back; nobody new starts meanwhile. */
static int64_t now_ns;

static int64_t test_now(void *ctx)
{
    (void)ctx;
    return now_ns += NS_PER_MS / 10;
}

static void a_suspect_among_others(void **state)
{
    struct clock clock = { test_now, test_now, NULL };
    struct request *suspect, *others[3];
    (void)state;

    now_ns = NS_PER_S;
    clock_use(&clock);
    for (int i = 0; i < 3; i++)
        others[i] = submit(i, 0, 1000);
    for (int k = 0; k < 20; k++)
        assert_int_equal(engine_step(rig.engine), ST_OK);
    store.answer[7] = BEGUN_SUSPECT;
    suspect = submit(7, 0, 300);
    submit(8, 0, 200);
    for (int k = 0; k < 50; k++)
        assert_int_equal(engine_step(rig.engine), ST_OK);
    assert_int_equal(suspect->lane, LANE_WAITS);
    assert_int_equal(running_n(), 3);                  /* 8 came later and waits, too */
    now_ns += 3 * NS_PER_S;
    for (int k = 0; k < 3; k++)
        assert_int_equal(engine_step(rig.engine), ST_OK);
    assert_int_equal(running_n(), 1);
    assert_int_equal(suspect->choices[0].tokens_n > 0, 1);
    /* past the point where it can have died it is one of them again */
    while (running_n() == 1)
        assert_int_equal(engine_step(rig.engine), ST_OK);
    assert_in_range(suspect->choices[0].tokens_n, 96, 98);
    assert_int_equal(store.cleared[7], 1);
    assert_int_equal(suspect->lane, LANE_NONE);
    rig_run(&rig);
    assert_int_equal(rig.ended_n, 5);
    for (int i = 0; i < 3; i++)
        assert_int_equal(others[i]->choices[0].tokens_n, 1000);
    assert_int_equal(suspect->choices[0].tokens_n, 300);
    assert_int_equal(store.counted[7], 1);
    clock_use(NULL);
}

/* Many are halved; those with more deaths come last. */
static void cohorts_halve(void **state)
{
    int most = 0;
    (void)state;

    rig.cfg.quarantine_alone_max = 2;
    for (int i = 0; i < 8; i++)
        submit(i, i < 2 ? 3 : 2, 10);
    while (rig.ended_n < 8) {
        assert_int_not_equal(engine_step(rig.engine), ST_FATAL);
        most = running_n() > most ? running_n() : most;
    }
    assert_int_equal(most, 3);                         /* of six with two deaths; then two of three, then one by one */
    assert_true(rig.ended[6]->offset < 2 && rig.ended[7]->offset < 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(store.alone[i], 1);
}

static void verdicts_before_a_start(void **state)
{
    struct request *over;
    (void)state;

    store.answer[3] = BEGUN_OVER;
    over = submit(3, 0, 5);
    rig_run(&rig);
    assert_int_equal(over->verdict, VERDICT_QUARANTINED);
    assert_int_equal(engine_counts(rig.engine)->quarantined_n, 1);
    assert_int_equal(store.counted[3], 0);
}

static void deadlines_pass_while_all_slots_are_taken(void **state)
{
    int32_t prompt[20];
    struct request *late;
    (void)state;

    for (int i = 0; i < 8; i++)
        submit(i, 0, 200);
    for (int k = 0; k < 10; k++)
        assert_int_equal(engine_step(rig.engine), ST_OK);
    assert_int_equal(running_n(), 8);
    rig_prompt(prompt, 20, 0, 0, 99);
    late = rig_request(99, prompt, 20, 5);
    late->deadline_ms = clock_wall_ns() / NS_PER_MS - 5;
    engine_submit(rig.engine, late);
    assert_int_equal(engine_step(rig.engine), ST_OK);
    assert_int_equal(late->verdict, VERDICT_EXPIRED);
    assert_int_equal(running_n(), 8);
    assert_int_equal(engine_counts(rig.engine)->expired_n, 1);
    rig_run(&rig);
}

/* Dropped wherever they stand: running, waiting, asked about, in the lane, chosen. */
static bool is_even(void *ctx, const struct request *r)
{
    (void)ctx;
    return r->offset % 2 == 0;
}

static int dropped_n;

static void on_dropped(void *ctx, struct request *r)
{
    (void)ctx;
    dropped_n++;
    assert_int_equal(r->verdict, VERDICT_NONE);
    request_free(r);
}

static void some_are_dropped(void **state)
{
    (void)state;
    dropped_n = 0;
    for (int i = 0; i < 30; i++)
        submit(i, 0, 50);
    for (int k = 0; k < 10; k++)
        assert_int_equal(engine_step(rig.engine), ST_OK);
    for (int i = 30; i < 40; i++)
        submit(i, 2, 50);
    assert_int_equal(engine_step(rig.engine), ST_OK);
    engine_drop_some(rig.engine, is_even, on_dropped, NULL);
    assert_int_equal(dropped_n, 20);
    rig_run(&rig);
    assert_int_equal(rig.ended_n, 20);
    for (size_t i = 0; i < rig.ended_n; i++)
        assert_int_equal(rig.ended[i]->offset % 2, 1);
}

static void a_held_engine_starts_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        submit(i, 0, 30);
    for (int k = 0; k < 5; k++)
        assert_int_equal(engine_step(rig.engine), ST_OK);
    engine_hold(rig.engine);
    rig_run(&rig);
    assert_int_equal(rig.ended_n, 8);
}

/* No token more than twice checkpoint_tokens beyond the store; on as soon as it has caught up, or is away. */
static void sequences_wait_for_the_store(void **state)
{
    struct request *r;
    (void)state;

    rig.ports.safe = on_safe;
    rig.cfg.checkpoint_tokens = 10;
    rig_start(&rig);
    r = submit(1, 0, 90);
    while (engine_step(rig.engine) == ST_OK)
        ;
    assert_int_equal(r->choices[0].tokens_n, 20);
    assert_int_equal(running_n(), 1);
    store.safe_n = 17;
    while (engine_step(rig.engine) == ST_OK)
        ;
    assert_int_equal(r->choices[0].tokens_n, 37);
    store.safe_n = INT32_MAX;
    rig_run(&rig);
    assert_int_equal(r->choices[0].tokens_n, 90);
    assert_int_equal(r->verdict, VERDICT_DONE);
    /* a short answer never asks */
    store.safe_calls = 0;
    submit(2, 0, 14);
    rig_run(&rig);
    assert_int_equal(store.safe_calls, 0);
}

static int open_rig(void **state)
{
    (void)state;
    rig_open(&rig, 1, NULL);
    return 0;
}

static int close_rig(void **state)
{
    (void)state;
    rig_close(&rig);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(starts_are_counted_first, fresh),
        cmocka_unit_test_setup(a_first_answer_later_lets_others_by, fresh),
        cmocka_unit_test_setup(suspects_run_alone, fresh),
        cmocka_unit_test_setup(a_suspect_among_others, fresh),
        cmocka_unit_test_setup(cohorts_halve, fresh),
        cmocka_unit_test_setup(verdicts_before_a_start, fresh),
        cmocka_unit_test_setup(deadlines_pass_while_all_slots_are_taken, fresh),
        cmocka_unit_test_setup(some_are_dropped, fresh),
        cmocka_unit_test_setup(a_held_engine_starts_nothing, fresh),
        cmocka_unit_test_setup(sequences_wait_for_the_store, fresh),
    };

    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
