/* A disk that is really full, and a file that really may not grow: the run stops with a word and goes on when there is space.
 * Mounts small tmpfs; where that is not allowed these tests say so and the limit on file sizes stands in for them. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "tests/support/queue_test.h"

static bool mounted;

/* The job lives on a small file system of its own. */
static int setup(void **state)
{
    int st = dir_setup(state);

    mounted = mount("tmpfs", dir.path, "tmpfs", 0, "size=256k,mode=777") == 0;
    return st;
}

static int teardown(void **state)
{
    if (mounted)
        umount(dir.path);
    return dir_teardown(state);
}

static bool skipped(void)
{
    if (!mounted)
        print_message("not run: mounting a file system is not allowed here\n");
    return !mounted;
}

/* Fills what is left but for `leave` bytes. */
static void fill(size_t leave)
{
    char path[128], block[4096];
    FILE *f;

    snprintf(path, sizeof path, "%s/filler", dir.path);
    memset(block, 'x', sizeof block);
    f = fopen(path, "w");
    assert_non_null(f);
    while (fwrite(block, 1, sizeof block, f) == sizeof block && fflush(f) == 0)
        ;
    fclose(f);
    if (leave > 0) {
        f = fopen(path, "r+");
        assert_non_null(f);
        fseek(f, 0, SEEK_END);
        assert_true(ftell(f) > (long)leave);
        assert_int_equal(truncate(path, ftell(f) - (long)leave), 0);
        fclose(f);
    }
}

static void unfill(void)
{
    char path[128];

    snprintf(path, sizeof path, "%s/filler", dir.path);
    unlink(path);
}

static void full_disk_stops_and_resumes(void **state)
{
    int stops = 0, ends = 0;

    (void)state;
    if (skipped())
        return;
    for (size_t leave = 0; leave < 220 << 10; leave += leave < 20 << 10 ? 4096 : 20480) {
        struct job_outcome out;

        input_lines(200, 31);
        fill(leave);
        out = RUN(.shuffle = 6, .errors_file = true, .order_input = true, .overwrite = leave == 0);
        if (out.st != ST_OK) {
            assert_int_equal(out.st, ST_RETRY);
            assert_non_null(strstr(out.err.text, "No space left on device; free some space and run the same command again"));
            assert_non_null(strstr(out.err.text, dir.path));
        }
        *(out.st == ST_OK ? &ends : &stops) += 1;
        assert_null(job_check(&dir, true));
        assert_int_equal(job_lines(&dir), out.state.done_n + out.committed_n);
        unfill();
        out = RUN(.shuffle = 7, .errors_file = true, .order_input = true);
        assert_done(&out);
        unlink(dir.output);
        unlink(dir.errors);
        unlink(dir.sidecar);
    }
    assert_true(stops > 5 && ends > 0);
}

/* The disk fills up in the middle, again and again, a little more space each time. */
static void creeping_space(void **state)
{
    struct job_outcome out = { .st = ST_RETRY };
    int stops = 0;

    (void)state;
    if (skipped())
        return;
    input_lines(250, 32);
    while (out.st != ST_OK) {
        int64_t before = job_lines(&dir);

        unfill();
        fill(16 << 10);
        out = RUN(.shuffle = 3 + (uint64_t)stops, .group_max = 11);
        if (out.st != ST_OK)
            assert_int_equal(out.st, ST_RETRY);
        assert_null(job_check(&dir, true));
        assert_true(job_lines(&dir) >= before);
        stops += out.st != ST_OK;
        assert_true(stops < 60);
    }
    assert_true(stops > 1);
    unfill();
    out = RUN(PLAIN);
    assert_done(&out);
}

/* The store of progress on a full disk: ST_RETRY, what was saved before is still there, later it works again. */
static void full_store(void **state)
{
    static int32_t tokens[20000];
    const struct ckpt_identity who = { { 1, 2 }, { 3, 4 }, { 5, 6 }, 7 };
    char url[160];
    struct ckpt *c;
    struct ckpt_progress p;
    struct arena a;
    struct error err;
    uint64_t token;
    uint8_t ok;
    status st = ST_OK;
    int saved = 0;

    (void)state;
    if (skipped())
        return;
    snprintf(url, sizeof url, "sqlite:%s/progress", dir.path);
    assert_int_equal(ckpt_open(url, NULL, &c, &err), ST_OK);
    assert_int_equal(ckpt_acquire(c, 1, 0, &token), ST_OK);
    for (int i = 0; i < 100 && st == ST_OK; i++) {
        struct ckpt_save_item item = { { 1, 0, i, 0 }, who, tokens, 5000, 0 };

        st = ckpt_save(c, token, &item, 1, &ok);
        assert_int_equal(ok, st == ST_OK);
        saved += st == ST_OK;
    }
    assert_int_equal(st, ST_RETRY);
    assert_true(saved > 1);
    arena_init(&a, 4096);
    for (int i = 0; i < saved; i++) {
        struct ckpt_key key = { 1, 0, i, 0 };

        assert_int_equal(ckpt_load(c, &key, &who, &a, &p), ST_OK);
        assert_int_equal(p.tokens_n, 5000);
    }
    for (int i = 0; i < saved; i++) {
        struct ckpt_key key = { 1, 0, i, 0 };

        st = ckpt_forget(c, token, &key, 1);      /* may itself need space for its log */
        assert_true(st == ST_OK || st == ST_RETRY);
    }
    assert_int_equal(mount("tmpfs", dir.path, "tmpfs", MS_REMOUNT, "size=4m"), 0);
    for (int i = 0; i < 20; i++) {
        struct ckpt_save_item item = { { 1, 0, 500 + i, 0 }, who, tokens, 5000, 0 };

        assert_int_equal(ckpt_save(c, token, &item, 1, &ok), ST_OK);
    }
    arena_fini(&a);
    ckpt_close(c);
}

static void file_size_limit(void **state)
{
    struct rlimit was, small;
    struct job_outcome out;

    (void)state;
    if (mounted)
        umount(dir.path);
    mounted = false;
    input_lines(300, 33);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small = was;
    small.rlim_cur = 20000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    out = RUN(.shuffle = 3);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_refused(&out, "commit", ST_RETRY, "File too large");
    assert_true(out.committed_n > 10);
    assert_int_equal(job_lines(&dir), out.committed_n);
    out = RUN(PLAIN);
    assert_done(&out);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(full_disk_stops_and_resumes),
        TEST(creeping_space),
        TEST(full_store),
        TEST(file_size_limit),
    };

    log_level_set(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
