/* tests/unit/test_cost.c - the cost model finds the machine behind its samples, and nothing moves it far at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "worker/plan/cost.h"

struct machine { double fixed, row, out, kv, noise; };

static uint64_t random_state = 5;

static double uniform(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(random_state >> 11) / (double)(UINT64_C(1) << 53);
}

static double seconds_of(const struct machine *m, int rows, int outs, double kv)
{
    return m->fixed + rows * m->row + outs * m->out + kv * m->kv;
}

static void check_monotone(const struct cost_model *c)
{
    assert_true(c->fixed_s >= 0 && c->row_s >= 0 && c->out_s >= 0 && c->kv_s >= 0);
    assert_true(isfinite(cost_predict(c, 8192, 4096, 1e9)));
    for (int rows = 1; rows < 600; rows++)
        assert_true(cost_predict(c, rows + 1, 4, 1e4) >= cost_predict(c, rows, 4, 1e4));
}

static void run_steps(struct cost_model *c, const struct machine *m, int steps)
{
    for (int i = 0; i < steps; i++) {
        int outs = 1 + (int)(uniform() * 96), rows = outs + (int)(uniform() * uniform() * 416);
        double kv = rows * (50 + uniform() * 800);

        cost_observe(c, rows, outs, kv, seconds_of(m, rows, outs, kv) * (1 + m->noise * (uniform() - 0.5)));
        check_monotone(c);
    }
}

static const struct machine laptop = { 0.006, 0.00055, 0.00012, 2e-8, 0.2 };

static void assert_close(double a, double b, double share)
{
    if (fabs(a - b) > share * b)
        fail_msg("%g is not within %g of %g", a, share, b);
}

static void test_learns(void **state)
{
    struct cost_model c;

    (void)state;
    cost_init(&c);
    assert_true(cost_predict(&c, 100, 1, 1) == 0);
    run_steps(&c, &laptop, 400);
    for (int rows = 1; rows <= 512; rows *= 2)
        assert_close(cost_predict(&c, rows, 1, rows * 300), seconds_of(&laptop, rows, 1, rows * 300), 0.12);
    assert_close(cost_predict(&c, 96, 96, 96 * 700), seconds_of(&laptop, 96, 96, 96 * 700), 0.05);
}

/* One shape only, seen again and again: the model must still say what that shape costs, and stay monotone. */
static void test_one_shape(void **state)
{
    struct cost_model c;

    (void)state;
    cost_init(&c);
    for (int i = 0; i < 300; i++)
        cost_observe(&c, 96, 96, 96 * 500, 0.06);
    check_monotone(&c);
    assert_close(cost_predict(&c, 96, 96, 96 * 500), 0.06, 0.01);
    assert_true(cost_predict(&c, 512, 96, 96 * 500) < 0.06 * 6);
}

/* Larger steps were seen to be cheaper (they are not): no factor may become negative. */
static void test_never_negative(void **state)
{
    struct cost_model c;

    (void)state;
    cost_init(&c);
    for (int i = 0; i < 50; i++)
        cost_observe(&c, 1 + i * 10, 50 - i, 1e5 * (50 - i), 0.1 - i * 0.001);
    check_monotone(&c);
    cost_observe(&c, 10, 1, 100, 0);
    cost_observe(&c, 10, 1, 100, -1);
    cost_observe(&c, 10, 1, 100, NAN);
    check_monotone(&c);
    assert_true(c.samples_n == 50);
}

/* A machine that slept for an hour inside one step is not a slow machine. */
static void test_outlier(void **state)
{
    struct cost_model c;
    double before;

    (void)state;
    cost_init(&c);
    run_steps(&c, &laptop, 300);
    before = cost_predict(&c, 200, 96, 1e5);
    cost_observe(&c, 200, 96, 1e5, 3600);
    assert_close(cost_predict(&c, 200, 96, 1e5), before, 0.05);
    cost_observe(&c, 200, 96, 1e5, 1e-9);
    assert_close(cost_predict(&c, 200, 96, 1e5), before, 0.3);
}

/* A machine that became three times slower is found out. */
static void test_adapts(void **state)
{
    struct machine slow = { 0.018, 0.0018, 0.0004, 6e-8, 0.2 };
    struct cost_model c;

    (void)state;
    cost_init(&c);
    run_steps(&c, &laptop, 1000);
    run_steps(&c, &slow, 1000);
    assert_close(cost_predict(&c, 96, 96, 96 * 700), seconds_of(&slow, 96, 96, 96 * 700), 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_one_shape),
        cmocka_unit_test(test_never_negative),
        cmocka_unit_test(test_outlier),
        cmocka_unit_test(test_adapts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
