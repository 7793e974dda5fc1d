/* tests/unit/test_engine_pressure.c - a pool so small that eviction and put-back happen all the time: the accounts stay
 * exact over 20,000 requests, and no sequence ever reads another's positions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include "tests/support/engine_rig.h"

#define REQUESTS 20000
#define MARKED 200
#define WAITING_MAX 64
#define KINDS 500              /* different requests: the same kind must end the same way every time */
#define POOL 40

static struct rig rig;

static struct request *make(int64_t offset, uint32_t kind)
{
    int32_t prompt[64], n = 4 + (int32_t)(kind * 31 % 56);
    struct request *r;

    rig_prompt(prompt, n, n / 2, kind % 5, kind);
    r = rig_request(offset, prompt, n, 1 + (int32_t)(kind * 13 % 23));
    if (kind % 10 == 0)
        rig_choices(r, 2);
    for (int32_t c = 0; c < r->params.n; c++)
        r->choices[c].seed = kind + (uint64_t)c;
    r->params.temperature = kind % 3 == 0 ? 0 : 1;
    r->params.ignore_eos = kind % 2 == 0;
    return r;
}

static void counts_check(void)
{
    struct cache_counts n = engine_cache_counts(rig.engine);

    assert_int_equal(n.free + n.cached + n.held, n.total);
    assert_int_equal(n.total, POOL);
}

static void test_accounts(void **state)
{
    uint64_t outcome[KINDS] = { 0 };
    int64_t submitted = 0, ended = 0;

    (void)state;
    rig.cfg.kv_pages_max = POOL;
    rig_start(&rig);
    while (ended < REQUESTS) {
        status st;

        while (submitted < REQUESTS && submitted - ended - (int64_t)rig.ended_n < WAITING_MAX) {
            uint32_t kind = (uint32_t)(submitted * 7919 % KINDS);

            engine_submit(rig.engine, make(submitted++, kind));
        }
        st = engine_step(rig.engine);
        assert_true(st == ST_OK || st == ST_AGAIN);
        counts_check();
        for (size_t i = 0; i < rig.ended_n; i++) {
            const struct request *r = rig.ended[i];
            uint32_t kind = (uint32_t)(r->offset * 7919 % KINDS);
            uint64_t now = rig_outcome(r);

            assert_int_equal(r->verdict, VERDICT_DONE);
            if (outcome[kind] == 0)
                outcome[kind] = now;
            assert_true(outcome[kind] == now);
        }
        ended += (int64_t)rig.ended_n;
        rig_forget(&rig);
    }
    assert_int_equal(engine_step(rig.engine), ST_AGAIN);
    assert_int_equal(engine_cache_counts(rig.engine).held, 0);
    assert_true(engine_counts(rig.engine)->put_back_n > REQUESTS / 20);
    assert_true(engine_cache_counts(rig.engine).evicted_pages > REQUESTS / 2);
    assert_true(engine_counts(rig.engine)->cached_tokens > REQUESTS);
}

/* Prompts that differ in one early token, and are alike before and behind it. */
static struct request *make_marked(int i)
{
    int32_t prompt[70];
    struct request *r;

    rig_prompt(prompt, 70, 70, 3, 0);
    prompt[20] = 3 + i % 100;
    prompt[21] = 3 + i / 100;
    r = rig_request(i, prompt, 70, 90);
    r->choices[0].seed = 1;
    r->params.temperature = 0.5f;
    r->params.ignore_eos = true;
    r->params.logprobs = true;
    return r;
}

static void test_no_cross_talk(void **state)
{
    static uint64_t alone[MARKED];

    (void)state;
    rig.cfg.kv_pages_max = 1000;
    for (int i = 0; i < MARKED; i++) {
        rig_start(&rig);
        engine_submit(rig.engine, make_marked(i));
        rig_run(&rig);
        alone[i] = rig_outcome(rig.ended[0]);
        for (int k = 0; k < i; k++)
            assert_true(alone[k] != alone[i]);
        rig_forget(&rig);
    }
    rig.cfg.kv_pages_max = POOL;
    rig_start(&rig);
    for (int i = 0; i < MARKED; i++)
        engine_submit(rig.engine, make_marked(i * 77 % MARKED));
    rig_run(&rig);
    assert_int_equal(rig.ended_n, MARKED);
    for (int i = 0; i < MARKED; i++)
        assert_true(rig_outcome(rig_ended(&rig, i)) == alone[i]);
    assert_true(engine_cache_counts(rig.engine).evicted_pages > MARKED);
    assert_true(engine_counts(rig.engine)->put_back_n > 0);
    rig_forget(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accounts),
        cmocka_unit_test(test_no_cross_talk),
    };
    struct tiny_options o;
    int failed;

    tiny_model_defaults(&o);
    o.layers_n = 1;
    o.dim = 32;
    o.heads_n = 2;
    o.kv_heads_n = 1;
    o.ff = 32;
    rig_open(&rig, 1, &o);
    rig.cfg.admit_output_percent = 0;      /* takes on more than the pool can hold */
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    rig_close(&rig);
    return failed;
}
