/* The progress store on a real Redis that holds what it should not: damage, other bytes, other types, fences of other clocks, indexes
 * of what has expired. What is loaded is a true beginning of what was saved, and the store goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/log.h"
#include "tests/faults/redis_rig.h"

/* Row 23. */
static void garbage_is_cut(void **state)
{
    struct ckpt *c, *other;
    uint64_t token;

    (void)state;
    redis_server_start(&redis, NULL);
    c = store_open();
    other = store_open();                                                  /* remembers nothing of what c has saved */
    token = acquire(c);
    for (int32_t n = 0; n < 1000; n += 100)
        assert_int_equal(save(c, token, 1, n, n + 100), ST_OK);
    redis_server_ask(&redis, "SETRANGE ns:c:{0000000000000009:0}:1:0 2000 rubbish");
    assert_in_range(load(other, 1), 100, 900);
    assert_int_equal(load(other, 1) % 100, 0);
    assert_int_equal(save(other, token, 1, load(other, 1), 777), ST_OK);
    assert_int_equal(load(c, 1), 777);                                     /* nothing of the old tail is left */
    assert_int_equal(save(c, token, 1, 1000, 1100), ST_AGAIN);
    assert_int_equal(save(c, token, 1, 0, 1000), ST_OK);
    redis_server_ask(&redis, "SETRANGE ns:c:{0000000000000009:0}:1:0 3 rubbish");
    assert_int_equal(load(c, 1), 0);
    redis_server_ask(&redis, "SET ns:c:{0000000000000009:0}:1:0 rubbish");
    assert_int_equal(load(c, 1), 0);
    assert_int_equal(save(c, token, 1, 1000, 1100), ST_AGAIN);
    assert_int_equal(save(c, token, 1, 0, 1100), ST_OK);
    assert_int_equal(load(c, 1), 1100);
    ckpt_close(c);
    ckpt_close(other);
}

/* As long as what we wrote, but not what we wrote: a store that fell back to an older state, and grew again. */
static void other_bytes_of_the_same_length_are_a_gap(void **state)
{
    struct ckpt *c, *other;
    uint64_t token;

    (void)state;
    redis_server_start(&redis, NULL);
    c = store_open();
    other = store_open();
    token = acquire(c);
    for (int32_t n = 0; n < 100; n += 10)
        assert_int_equal(save(c, token, 1, n, n + 10), ST_OK);
    assert_int_equal(save(other, token, 1, 0, 2000), ST_OK);
    assert_int_equal(save(c, token, 1, 100, 110), ST_AGAIN);
    assert_int_equal(load(c, 1), 2000);
    ckpt_close(c);
    ckpt_close(other);
}

static void values_of_another_type(void **state)
{
    static const char *const names[] = { "ns:f:{0000000000000009:0}", "ns:i:{0000000000000009:0}", "ns:j:{0000000000000009}",
                                         "ns:c:{0000000000000009:0}:1:0", "ns:a:{0000000000000009:0}:1" };
    static const char *const makers[] = { "RPUSH %s x y", "HSET %s n x solo -7 run zz", "SET %s 9e99", "SADD %s 7" };
    struct ckpt_key key = key_of(1);
    struct ckpt_attempts a;
    struct ckpt *c;
    uint64_t token;

    (void)state;
    redis_server_start(&redis, NULL);
    c = store_open();
    for (size_t m = 0; m < sizeof makers / sizeof makers[0]; m++) {
        token = acquire(c);
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            char command[128];

            redis_server_ask(&redis, "DEL %s", names[i]);
            snprintf(command, sizeof command, makers[m], names[i]);
            redis_server_ask(&redis, "%s", command);
        }
        assert_int_equal(load(c, 1), 0);
        assert_int_equal(starts_of(c, 1), 0);
        assert_int_equal(save(c, token, 1, 50, 100), ST_AGAIN);
        assert_int_equal(save(c, token, 1, 0, 100), ST_OK);
        assert_int_equal(load(c, 1), 100);
        assert_int_equal(ckpt_begin(c, token, &key, 1, true, 5, &a), ST_OK);
        assert_int_equal(a.starts, 1);
        assert_int_equal(a.solo, 1);
        assert_int_equal(ckpt_hand_over(c, token, &key, 1, true), ST_OK);
        assert_int_equal(starts_of(c, 1), 0);
        assert_int_equal(ckpt_forget(c, token, &key, 1), ST_OK);
        assert_true(ckpt_count(c, 9) >= 0);
        assert_int_equal(ckpt_forget_job(c, token, 9), ST_OK);
    }
    assert_int_equal(counts_of(c).errors_n[CKPT_ERROR_OTHER], 0);
    ckpt_close(c);
}

/* Row 24: a fence from a clock that is ten years ahead, and one that is damage. */
static void fences_of_other_clocks(void **state)
{
    struct ckpt *c;
    uint64_t token;

    (void)state;
    redis_server_start(&redis, NULL);
    c = store_open();
    redis_server_ask(&redis, "SET ns:f:{0000000000000009:0} 2100000000000");
    assert_int_equal(acquire(c), UINT64_C(2100000000001));
    token = acquire(c);
    assert_int_equal(token, UINT64_C(2100000000002));
    assert_int_equal(save(c, token, 1, 0, 100), ST_OK);
    assert_int_equal(save(c, token - 1, 1, 0, 99), ST_FENCED);
    redis_server_ask(&redis, "SET ns:f:{0000000000000009:0} 1e300");
    token = acquire(c);
    assert_true(token < UINT64_C(2100000000000));
    assert_int_equal(save(c, token, 1, 100, 120), ST_OK);
    ckpt_close(c);
}

/* What expires unforgotten leaves the index again, or it would grow as long as the job lives. */
static void index_stays_small(void **state)
{
    struct ckpt_key key = key_of(1);
    struct ckpt_attempts a;
    struct ckpt *c;
    uint64_t token;

    (void)state;
    c = store_owned(NULL, &token);
    for (int i = 0; i < SEQUENCES; i++)
        assert_int_equal(save(c, token, i, 0, 10), ST_OK);
    assert_int_equal(ckpt_begin(c, token, &key, 1, false, 5, &a), ST_OK);
    assert_int_equal(ckpt_count(c, 9), SEQUENCES + 1);
    redis_server_ask(&redis, "DEL ns:a:{0000000000000009:0}:1");
    for (int i = 2; i < SEQUENCES; i++)
        redis_server_ask(&redis, "DEL ns:c:{0000000000000009:0}:%d:0", i);
    for (int i = 0; i < 400; i++)
        assert_int_equal(save(c, token, i % 2, 0, 10), ST_OK);
    assert_int_equal(ckpt_count(c, 9), 2);
    assert_int_equal(load(c, 0) + load(c, 1), 20);
    ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        REDIS_TEST(garbage_is_cut),
        REDIS_TEST(other_bytes_of_the_same_length_are_a_gap),
        REDIS_TEST(values_of_another_type),
        REDIS_TEST(fences_of_other_clocks),
        REDIS_TEST(index_stays_small),
    };

    if (!redis_server_there())
        return 77;
    log_level_set(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
