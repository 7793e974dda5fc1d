/* kill -9, for real: children that run a job die at every failpoint of the file queue, at its first, second and last time,
 * and at random moments; the next run goes on. Nothing is lost or doubled, and the bytes are those of a run that never
 * stopped. */
#define _GNU_SOURCE
#include <dirent.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "tests/support/queue_test.h"

/* What has to stand in the folder before the run, so that the point is reached. */
enum start { START_FRESH, START_OLD_JOB, START_TORN, START_DAMAGED };

static const struct point { const char *name; enum start start; } points[] = {
    { "queue.job.write", START_FRESH },
    { "queue.job.rename", START_FRESH },
    { "queue.job.renamed", START_FRESH },
    { "queue.clear", START_OLD_JOB },
    { "queue.repair.cut", START_TORN },
    { "queue.repair.copied", START_DAMAGED },
    { "queue.append.before", START_FRESH },
    { "queue.append.half", START_FRESH },
    { "queue.append.after", START_FRESH },
    { "queue.sync.before", START_FRESH },
    { "queue.sync.after", START_FRESH },
    { "queue.order.write", START_FRESH },
    { "queue.order.rename", START_FRESH },
    { "queue.order.renamed", START_FRESH },
    { "queue.finish.before", START_FRESH },
    { "queue.finish.after", START_FRESH },
};
#define POINTS_N (sizeof points / sizeof points[0])

static const struct job_options job = { .errors_file = true, .order_input = true, .shuffle = 4, .group_max = 5 };

/* Runs the job in a child that may die. Returns true if it did, by SIGKILL; else it must have ended well. */
static bool child_run(const struct job_options *o, const char *point, int n, int64_t after_us)
{
    char spec[80];
    int how = 0;
    pid_t child = fork();

    if (child == 0) {
        struct job_outcome out;

        snprintf(spec, sizeof spec, "%s:%d", point != NULL ? point : "", n);
        if (point != NULL && failpoint_arm(spec) != ST_OK)
            _exit(2);
        job_run(&dir, o, &out);
        if (out.st != ST_OK)
            fprintf(stderr, "%s: %s\n", out.call, out.err.text);
        _exit(out.st != ST_OK);
    }
    if (after_us >= 0) {
        const struct timespec pause = { after_us / 1000000, after_us % 1000000 * 1000 };

        nanosleep(&pause, NULL);
        kill(child, SIGKILL);
    }
    waitpid(child, &how, 0);
    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL)
        return true;
    assert_int_equal(how, 0);
    return false;
}

static void folder_begin(enum start start)
{
    struct job_outcome out;
    struct buf b = BUF_EMPTY;

    job_dir_remove(&dir);
    job_dir_make(&dir);
    input_lines(90, 21);
    if (start == START_OLD_JOB) {
        out = RUN(.errors_file = true, .fingerprint = "{\"old\": true}");
        assert_int_equal(out.st, ST_OK);
    } else if (start != START_FRESH) {
        out = RUN(.errors_file = true, .order_input = true, .shuffle = 3, .stop_after = 6);
        assert_true(out.committed_n > 10);
        assert_true(text_read(dir.output, &b));
        if (start == START_TORN)
            b.n -= 9;
        else
            b.data[b.n / 2] = 0;
        text_write(dir.output, b.data, b.n);
    }
    buf_fini(&b);
}

static void every_failpoint(void **state)
{
    struct buf output = BUF_EMPTY, errors = BUF_EMPTY;
    struct job_outcome out;
    int deaths_n = 0;

    (void)state;
    folder_begin(START_FRESH);
    out = run(&job);
    assert_done(&out);
    assert_true(text_read(dir.output, &output) && text_read(dir.errors, &errors));
    for (size_t i = 0; i < POINTS_N; i++) {
        int n = 1;

        for (bool died = true; died; n++) {      /* the n-th time, until there is none */
            struct job_options o = job;
            const char *wrong;

            folder_begin(points[i].start);
            o.overwrite = points[i].start == START_OLD_JOB;
            died = child_run(&o, points[i].name, n, -1);
            deaths_n += died;
            if (died && points[i].start == START_OLD_JOB)
                died = child_run(&o, NULL, 0, -1);
            else if (died)
                child_run(&job, NULL, 0, -1);
            wrong = job_check(&dir, false);
            if (wrong != NULL)
                fail_msg("%s:%d: %s", points[i].name, n, wrong);
            assert_file_is(dir.output, &output);
            assert_file_is(dir.errors, &errors);
            if (points[i].start == START_OLD_JOB)
                break;
        }
        if (n == 2 && points[i].start != START_OLD_JOB)
            fail_msg("%s is never reached", points[i].name);
    }
    assert_true(deaths_n > 60);
    buf_fini(&output);
    buf_fini(&errors);
}

/* Killed again and again in one job, with the point changing each time. */
static void many_deaths_in_one_job(void **state)
{
    struct buf output = BUF_EMPTY, errors = BUF_EMPTY;
    struct job_outcome out;

    (void)state;
    folder_begin(START_FRESH);
    out = run(&job);
    assert_done(&out);
    assert_true(text_read(dir.output, &output) && text_read(dir.errors, &errors));
    folder_begin(START_FRESH);
    for (size_t i = 0; i < 3 * POINTS_N; i++) {
        struct job_options o = job;

        o.shuffle = i + 1;
        child_run(&o, points[i * 7 % POINTS_N].name, 1 + (int)(i % 2), -1);
    }
    out = run(&job);
    assert_done(&out);
    assert_file_is(dir.output, &output);
    assert_file_is(dir.errors, &errors);
    buf_fini(&output);
    buf_fini(&errors);
}

static void random_moments(void **state)
{
    struct buf output = BUF_EMPTY, errors = BUF_EMPTY;
    struct job_options o = job;
    struct job_outcome out;
    struct timespec a, b;
    uint64_t word = 5;
    int deaths_n = 0, jobs_n = 0;
    int64_t whole_us;

    (void)state;
    job_dir_remove(&dir);
    job_dir_make_in(&dir, "/tmp");      /* a real disk: its syncs are where time is spent */
    input_lines(300, 22);
    o.window = 300;
    clock_gettime(CLOCK_MONOTONIC, &a);
    out = run(&o);
    clock_gettime(CLOCK_MONOTONIC, &b);
    whole_us = (b.tv_sec - a.tv_sec) * 1000000 + (b.tv_nsec - a.tv_nsec) / 1000;
    assert_done(&out);
    assert_true(text_read(dir.output, &output) && text_read(dir.errors, &errors));
    while (deaths_n < 100 && jobs_n < 200) {
        unlink(dir.output);
        unlink(dir.errors);
        unlink(dir.sidecar);
        jobs_n++;
        for (bool died = true; died;) {
            word = word * 6364136223846793005u + 1442695040888963407u;
            o.shuffle = word | 1;
            died = child_run(&o, NULL, 0, (int64_t)((word >> 33) % (uint64_t)(whole_us / 3 + 2)));
            deaths_n += died;
            assert_null(job_check(&dir, !died ? false : true));
        }
        assert_file_is(dir.output, &output);
        assert_file_is(dir.errors, &errors);
    }
    assert_true(deaths_n >= 100);
    buf_fini(&output);
    buf_fini(&errors);
}

/* Whoever adds a failpoint to the queue adds it here. */
static void the_list_is_complete(void **state)
{
    struct buf b = BUF_EMPTY;
    struct dirent *e;
    DIR *d = opendir(NIGHTSHIFT_ROOT "/queue");
    int found_n = 0;

    (void)state;
    assert_non_null(d);
    while ((e = readdir(d)) != NULL) {
        char path[512];
        const char *p;

        snprintf(path, sizeof path, NIGHTSHIFT_ROOT "/queue/%.200s", e->d_name);
        if (strstr(e->d_name, ".c") == NULL || !text_read(path, &b))
            continue;
        for (p = b.data; (p = strstr(p, "failpoint(\"")) != NULL; found_n++) {
            size_t i = 0;

            p += strlen("failpoint(\"");
            while (i < POINTS_N && strncmp(p, points[i].name, strcspn(p, "\"")) != 0)
                i++;
            if (i == POINTS_N)
                fail_msg("failpoint %.40s is not tested", p);
        }
    }
    closedir(d);
    assert_int_equal(found_n, POINTS_N);
    buf_fini(&b);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, dir_setup, dir_teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_failpoint),
        TEST(many_deaths_in_one_job),
        TEST(random_moments),
        TEST(the_list_is_complete),
    };

    log_level_set(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
