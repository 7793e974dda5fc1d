/* tests/unit/test_plan.c - the plan against a sorted array that does everything the slow way.
 *
 * The oracle keeps the requests of one priority in an array sorted by (prompt, arrival), and the place of the last one
 * that was taken from where the walk stood: next is the first behind that place, else the first of all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "worker/plan/plan.h"

#define WINDOW 300
#define PROMPT_MAX 40

static int64_t now_ns = NS_PER_S;

static int64_t test_now(void *ctx)
{
    (void)ctx;
    return now_ns;
}

static const struct clock test_clock = { test_now, test_now, NULL };

static uint64_t random_state = 11;

static uint32_t rnd(uint32_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % n;
}

static int64_t requests_made;

static struct request *make(const int32_t *tokens, int32_t n)
{
    struct request *r = calloc(1, sizeof *r);
    int32_t *prompt = malloc((size_t)n * sizeof *prompt + 1);

    memcpy(prompt, tokens, (size_t)n * sizeof *prompt);
    r->prompt = prompt;
    r->prompt_n = n;
    r->params.n = 1;
    r->params.max_tokens = 10;
    r->offset = requests_made++;
    return r;
}

static void unmake(struct request *r)
{
    free((void *)(uintptr_t)r->prompt);
    free(r);
}

/* Few letters: long common runs, prompts that are beginnings of others, equal ones. */
static struct request *make_random(void)
{
    int32_t tokens[PROMPT_MAX], n = 1 + (int32_t)rnd(PROMPT_MAX), fixed = (int32_t)rnd((uint32_t)n + 1);

    for (int32_t i = 0; i < n; i++)
        tokens[i] = i < fixed ? 7 : (int32_t)rnd(3) + 6;
    return make(tokens, n);
}

static int compare(const struct request *a, const struct request *b)
{
    for (int32_t i = 0; i < a->prompt_n && i < b->prompt_n; i++)
        if (a->prompt[i] != b->prompt[i])
            return a->prompt[i] < b->prompt[i] ? -1 : 1;
    if (a->prompt_n != b->prompt_n)
        return a->prompt_n < b->prompt_n ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

struct oracle {
    struct request *sorted[WINDOW];
    int n;
    struct request *stand;                     /* a copy of the last one taken; NULL: the walk has not begun */
};

static void oracle_add(struct oracle *o, struct request *r)
{
    int k = 0;

    while (k < o->n && compare(o->sorted[k], r) < 0)
        k++;
    memmove(o->sorted + k + 1, o->sorted + k, (size_t)(o->n - k) * sizeof o->sorted[0]);
    o->sorted[k] = r;
    o->n++;
}

/* i-th in the circle. */
static struct request *oracle_at(const struct oracle *o, int i)
{
    int k = 0;

    if (i >= o->n)
        return NULL;
    while (o->stand != NULL && k < o->n && compare(o->sorted[k], o->stand) < 0)
        k++;
    return o->sorted[(k + i) % o->n];
}

static void stand_set(struct oracle *o, struct request *r)
{
    if (o->stand != NULL)
        unmake(o->stand);
    o->stand = NULL;
    if (r != NULL) {
        o->stand = make(r->prompt, r->prompt_n);
        o->stand->offset = r->offset;
    }
}

static void oracle_take(struct oracle *o, struct request *r)
{
    int k = 0;

    if (oracle_at(o, 0) == r)
        stand_set(o, r);
    while (o->sorted[k] != r)
        k++;
    o->n--;
    memmove(o->sorted + k, o->sorted + k + 1, (size_t)(o->n - k) * sizeof o->sorted[0]);
    if (o->n == 0)
        stand_set(o, NULL);
}

static struct plan *open_plan(int64_t wait_s)
{
    static struct config cfg;

    config_defaults(&cfg);
    cfg.plan_wait_max_s = wait_s;
    return plan_open(&cfg);
}

static int32_t oracle_wanted(const struct oracle *o, const int32_t *tokens, int32_t n)
{
    int32_t best = 0;

    for (int k = 0; k < o->n; k++) {
        int32_t i = 0;

        while (i < n && i < o->sorted[k]->prompt_n && o->sorted[k]->prompt[i] == tokens[i])
            i++;
        best = i > best ? i : best;
    }
    return best;
}

static void check_wanted(const struct plan *p, const struct oracle *o, const struct request *r)
{
    struct plan_wants w = plan_wanted(p, r->prompt, r->prompt_n);
    struct oracle next = { .n = o->n > 0 };

    next.sorted[0] = oracle_at(o, 0);
    assert_int_equal(w.later_n, oracle_wanted(o, r->prompt, r->prompt_n));
    assert_int_equal(w.soon_n, oracle_wanted(&next, r->prompt, r->prompt_n));
}

static void test_walk_order(void **state)
{
    struct plan *p = open_plan(86400);
    struct oracle o = { .n = 0, .stand = NULL };
    int64_t wrapped = 0;

    (void)state;
    for (int op = 0; op < 60000; op++) {
        uint32_t what = rnd(100), level = op / 3000 % 2 ? 70 : 40;     /* fills up, runs dry */

        if (what < level && o.n < WINDOW) {
            struct request *r = make_random();

            oracle_add(&o, r);
            plan_add(p, r);
        } else if (o.n > 0) {
            int beyond = what % 4 == 0 ? (int)rnd((uint32_t)o.n) : 0;
            struct request *r = plan_peek(p);

            for (int i = 0; i < beyond; i++)
                r = plan_after(p, r);
            assert_ptr_equal(r, oracle_at(&o, beyond));
            wrapped += beyond == 0 && o.stand != NULL && compare(r, o.stand) < 0;
            oracle_take(&o, r);
            plan_take(p, r);
            if (op % 8 == 0)
                check_wanted(p, &o, r);
            unmake(r);
        }
        assert_int_equal(plan_length(p), o.n);
        assert_ptr_equal(plan_peek(p), o.n > 0 ? oracle_at(&o, 0) : NULL);
    }
    assert_true(wrapped > 10);
    while (o.n > 0) {
        struct request *r = plan_next(p);

        assert_ptr_equal(r, oracle_at(&o, 0));
        oracle_take(&o, r);
        unmake(r);
    }
    assert_null(plan_next(p));
    assert_int_equal(plan_bytes(p), 0);
    plan_close(p);
}

/* From peek on, plan_after shows each request once, whatever comes before the walk. */
static void check_each_once(struct plan *p)
{
    struct request *seen[64];
    int n = 0;

    for (struct request *r = plan_peek(p); r != NULL; r = plan_after(p, r)) {
        for (int i = 0; i < n; i++)
            assert_ptr_not_equal(seen[i], r);
        assert_true(n < 64);
        seen[n++] = r;
    }
    assert_int_equal(n, plan_length(p));
}

static struct request *add(struct plan *p, int32_t token, int64_t priority, int64_t deadline_ms)
{
    struct request *r = make(&token, 1);

    r->priority = priority;
    r->deadline_ms = deadline_ms;
    plan_add(p, r);
    check_each_once(p);
    return r;
}

static void take_expecting(struct plan *p, struct request *r)
{
    check_each_once(p);
    assert_ptr_equal(plan_next(p), r);
}

static void test_put_back_and_priority(void **state)
{
    struct plan *p = open_plan(86400);
    struct request *five = add(p, 5, 0, 0), *one = add(p, 1, 0, 0), *low = add(p, 0, 3, 0), *high, *three;

    (void)state;
    take_expecting(p, one);
    high = add(p, 9, -2, 0);
    take_expecting(p, high);
    take_expecting(p, five);
    plan_put_back(p, five);            /* the youngest goes back first ... */
    plan_put_back(p, one);             /* ... so the oldest stands first */
    three = add(p, 3, 0, 0);
    take_expecting(p, one);
    take_expecting(p, five);
    plan_put_back(p, one);
    plan_put_back(p, five);
    check_each_once(p);
    plan_take(p, one);                 /* the second of the put-back ones */
    take_expecting(p, five);
    take_expecting(p, three);
    take_expecting(p, low);
    assert_null(plan_peek(p));
    plan_close(p);
    unmake(five);
    unmake(one);
    unmake(low);
    unmake(high);
    unmake(three);
}

/* 8 arrived first and is 7th in the walk: its turn came when one had started, so 10 s after that it goes first. */
static void test_waits_at_most(void **state)
{
    struct plan *p = open_plan(10);
    struct request *r[8];

    (void)state;
    now_ns = 1000 * NS_PER_S;
    r[0] = add(p, 8, 0, 0);
    for (int32_t i = 1; i < 8; i++)
        r[i] = add(p, i, 0, 0);
    now_ns += 100 * NS_PER_S;          /* nothing has started: waiting alone is no reason */
    take_expecting(p, r[1]);
    now_ns += 9 * NS_PER_S;
    take_expecting(p, r[2]);
    now_ns += 2 * NS_PER_S;
    take_expecting(p, r[0]);
    take_expecting(p, r[3]);
    now_ns += 100 * NS_PER_S;          /* 4 has had its turn now, it is next anyway */
    for (int32_t i = 4; i < 8; i++)
        take_expecting(p, r[i]);
    assert_null(plan_peek(p));
    plan_close(p);
    for (int i = 0; i < 8; i++)
        unmake(r[i]);
}

static void test_deadlines(void **state)
{
    struct plan *p = open_plan(10);
    struct request *a, *b, *c, *d, *e;

    (void)state;
    now_ns = 1000 * NS_PER_S;
    a = add(p, 1, 0, 0);
    b = add(p, 5, 0, 1205 * 1000);
    c = add(p, 6, 0, 1200 * 1000);
    d = add(p, 4, 0, 1205 * 1000);
    take_expecting(p, a);
    now_ns = 1189 * NS_PER_S;          /* none is due: the walk would go on with d */
    assert_ptr_equal(plan_peek(p), d);
    now_ns = 1191 * NS_PER_S;
    take_expecting(p, c);
    a->deadline_ms = 0;
    e = add(p, 0, 0, 0);
    now_ns = 1196 * NS_PER_S;          /* b and d are due by the same deadline: in walk order, not in arrival order */
    take_expecting(p, d);
    take_expecting(p, b);
    take_expecting(p, e);
    assert_null(plan_peek(p));
    plan_close(p);
    unmake(a);
    unmake(b);
    unmake(c);
    unmake(d);
    unmake(e);
}

/* Long answers and ordinary ones take turns, each in the order of its own walk. */
static void test_long_take_turns(void **state)
{
    struct plan *p = open_plan(86400);
    struct request *ordinary[12], *long_ones[3];

    (void)state;
    for (int32_t i = 0; i < 12; i++)
        ordinary[i] = add(p, 100 + i, 0, 0);           /* 10 tokens */
    for (int32_t i = 0; i < 3; i++) {
        int32_t token = 103 - i;

        long_ones[i] = make(&token, 1);
        long_ones[i]->params.max_tokens = i == 0 ? 44 : 1000;
        plan_add(p, long_ones[i]);
        check_each_once(p);
    }
    take_expecting(p, long_ones[2]);
    take_expecting(p, ordinary[0]);
    take_expecting(p, long_ones[1]);
    take_expecting(p, ordinary[1]);
    assert_ptr_equal(plan_peek(p), long_ones[0]);
    plan_take(p, ordinary[5]);                         /* beyond one that is held back: the turn is still the long one's */
    take_expecting(p, long_ones[0]);
    for (int32_t i = 2; i < 12; i++)
        if (i != 5)
            take_expecting(p, ordinary[i]);
    assert_null(plan_peek(p));
    plan_close(p);
    for (int i = 0; i < 12; i++)
        unmake(ordinary[i]);
    for (int i = 0; i < 3; i++)
        unmake(long_ones[i]);
}

static void test_savings(void **state)
{
    static const int32_t prompts[4][4] = { { 1, 2, 3, 4 }, { 1, 2, 3, 5 }, { 1, 2, 9, 9 }, { 7, 7, 7, 7 } };
    struct plan *p = open_plan(10);
    struct request *r[5];
    struct plan_savings s;

    (void)state;
    for (int i = 0; i < 4; i++)
        plan_add(p, r[i] = make(prompts[3 - i], 4));
    plan_add(p, r[4] = make(prompts[0], 3));
    s = plan_savings(p);
    assert_int_equal(s.requests_n, 5);
    assert_int_equal(s.prompt_tokens, 19);
    assert_int_equal(s.unique_tokens, 4 + 1 + 2 + 4);
    assert_int_equal(s.output_tokens_max, 50);
    assert_int_equal(plan_bytes(p) > 0, 1);
    for (int i = 0; i < 5; i++) {
        struct request *x = plan_next(p);

        assert_non_null(x);
        unmake(x);
    }
    plan_close(p);
}

/* Random traffic over everything that comes before the walk: nothing is lost, doubled or shown twice. */
static void test_everything_at_once(void **state)
{
    struct plan *p = open_plan(20);
    struct request *out[64];
    int out_n = 0;
    int64_t added = 0, ended = 0;

    (void)state;
    for (int op = 0; op < 20000; op++) {
        uint32_t what = rnd(10);

        now_ns += (int64_t)rnd(3000) * NS_PER_MS;
        if (what < 5 && plan_length(p) < 60) {
            struct request *r = make_random();

            r->priority = (int64_t)rnd(3) - 1;
            r->params.max_tokens = rnd(5) == 0 ? 500 : 20;
            r->deadline_ms = rnd(4) == 0 ? now_ns / NS_PER_MS + rnd(100000) : 0;
            plan_add(p, r);
            added++;
        } else if (what < 9 && plan_length(p) > 0 && out_n < 64) {
            struct request *r = plan_peek(p);

            for (uint32_t i = rnd(4); i > 0 && plan_after(p, r) != NULL; i--)
                r = plan_after(p, r);
            plan_take(p, r);
            out[out_n++] = r;
        } else if (out_n > 0) {
            struct request *r = out[--out_n];

            if (rnd(2) == 0 && plan_length(p) < 64) {
                plan_put_back(p, r);
            } else {
                unmake(r);
                ended++;
            }
        }
        if (op % 5 == 0)
            check_each_once(p);
    }
    for (struct request *r; (r = plan_next(p)) != NULL; ended++)
        unmake(r);
    for (; out_n > 0; ended++)
        unmake(out[--out_n]);
    assert_int_equal(added, ended);
    plan_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walk_order),
        cmocka_unit_test(test_put_back_and_priority),
        cmocka_unit_test(test_waits_at_most),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_long_take_turns),
        cmocka_unit_test(test_savings),
        cmocka_unit_test(test_everything_at_once),
    };

    clock_use(&test_clock);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
