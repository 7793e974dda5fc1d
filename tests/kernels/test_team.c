/* The thread team: every part runs once, memory is seen on both sides, sleepers wake. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#include "kernels/cpu/cores.h"
#include "kernels/cpu/team.h"

#define THREADS_MAX 5

struct counts {
    struct team *team;
    int plain[THREADS_MAX];        /* not atomic on purpose: ThreadSanitizer checks that the team orders it */
    int turns;
};

static struct team *open_n(int n)
{
    struct team *t;
    struct error err;

    assert_int_equal(team_open(n, &t, &err), ST_OK);
    assert_int_equal(team_threads(t), n);
    return t;
}

static void count(void *ctx, int i, int n)
{
    struct counts *c = ctx;

    if (n != team_threads(c->team))
        c->plain[i] = -1;
    c->plain[i] += c->turns;       /* turns was written by the caller before the run */
}

static void test_runs(void **state)
{
    int n, run, i;

    (void)state;
    for (n = 1; n <= THREADS_MAX; n++) {
        struct counts c = { .team = open_n(n) };
        int want = 0;

        for (run = 0; run < 2000; run++) {
            c.turns = run;
            want += run;
            team_run(c.team, count, &c);
            for (i = 0; i < n; i++)
                assert_int_equal(c.plain[i], want);
        }
        team_close(c.team);
    }
    team_close(NULL);
}

/* Pauses longer than the spin: the workers, and inside a slow run the caller, have gone to sleep. */
static void slow(void *ctx, int i, int n)
{
    struct timespec ms = { 0, 2000000 };

    if (i == n - 1)
        nanosleep(&ms, NULL);
    count(ctx, i, n);
}

static void test_sleep(void **state)
{
    struct timespec ms = { 0, 2000000 };
    struct counts c = { .team = open_n(3), .turns = 1 };
    int run, i;

    (void)state;
    for (run = 1; run <= 20; run++) {
        nanosleep(&ms, NULL);
        team_run(c.team, slow, &c);
        for (i = 0; i < 3; i++)
            assert_int_equal(c.plain[i], run);
    }
    team_close(c.team);
}

static void test_split(void **state)
{
    int64_t n, first, last, next;
    int parts, i;

    (void)state;
    for (n = 0; n < 40; n++)
        for (parts = 1; parts < 9; parts++) {
            next = 0;
            for (i = 0; i < parts; i++) {
                team_split(n, i, parts, &first, &last);
                assert_int_equal(first, next);
                assert_true(last - first == n / parts || last - first == n / parts + 1);
                next = last;
            }
            assert_int_equal(next, n);
        }
}

static void put(const char *dir, const char *name, const char *text)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int quota(const char *root)
{
    char own[256];

    snprintf(own, sizeof own, "%s/own", root);
    return cores_quota(root, own);
}

/* Control groups as the kernel shows them: the tightest of the group and those above it, rounded up. */
static void test_quota(void **state)
{
    char root[] = "/tmp/test_team.XXXXXX", path[256];

    (void)state;
    assert_non_null(mkdtemp(root));
    assert_int_equal(quota(root), 0);                          /* nothing there at all */
    snprintf(path, sizeof path, "%s/a", root);
    assert_int_equal(mkdir(path, 0700), 0);
    put(root, "own", "0::/a/b\n");
    put(root, "a/cpu.max", "max 100000\n");
    assert_int_equal(quota(root), 0);
    put(root, "a/cpu.max", "250000 100000\n");
    assert_int_equal(quota(root), 3);
    put(root, "cpu.max", "50000 100000\n");
    assert_int_equal(quota(root), 1);
    put(root, "cpu.max", "garbage\n");
    assert_int_equal(quota(root), 3);
    put(root, "a/cpu.max", "400000 0\n");
    assert_int_equal(quota(root), 0);

    snprintf(path, sizeof path, "%s/cpu", root);               /* version 1 */
    assert_int_equal(mkdir(path, 0700), 0);
    put(root, "own", "3:memory:/x\n7:cpu,cpuacct:/x\nbroken\n");
    put(root, "cpu/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(quota(root), 0);
    put(root, "cpu/cpu.cfs_quota_us", "400000\n");
    put(root, "cpu/cpu.cfs_period_us", "200000\n");
    assert_int_equal(quota(root), 2);
    snprintf(path, sizeof path, "rm -r %s", root);
    assert_int_equal(system(path), 0);
    assert_true(cores_allowed() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_sleep),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_quota),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
