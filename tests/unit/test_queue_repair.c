/* What a crash leaves behind, and what happens to the files while a run goes on: mended or told, never passed over. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "tests/support/queue_test.h"

/* The library's calls come here: a test can be a disk that fails. All are counted from 0; `count` of them fail, from the
 * call `from` on. A failing write writes half of its bytes first, if it can. */
struct disk_fault { int calls, from, count, cause; };
static struct disk_fault write_fault, sync_fault, cut_fault;

static bool fails(struct disk_fault *f)
{
    int call = f->calls++;

    return f->count > 0 && call >= f->from && call < f->from + f->count;
}

static void faults_clear(void)
{
    memset(&write_fault, 0, sizeof write_fault);
    memset(&sync_fault, 0, sizeof sync_fault);
    memset(&cut_fault, 0, sizeof cut_fault);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    if (fails(&write_fault)) {
        if (n > 1)
            return syscall(SYS_pwrite64, fd, bytes, n / 2, at);      /* the rest fails: the next call has the cause */
        errno = write_fault.cause;
        return -1;
    }
    if (write_fault.count > 0 && write_fault.calls > write_fault.from + write_fault.count && write_fault.cause != 0) {
        errno = write_fault.cause;
        write_fault.count = 0;
        return -1;
    }
    return syscall(SYS_pwrite64, fd, bytes, n, at);
}

int fdatasync(int fd)
{
    if (fails(&sync_fault)) {
        errno = sync_fault.cause;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}

int ftruncate(int fd, off_t n)
{
    if (fails(&cut_fault)) {
        errno = cut_fault.cause;
        return -1;
    }
    return (int)syscall(SYS_ftruncate, fd, n);
}

static int setup(void **state)
{
    faults_clear();
    return dir_setup(state);
}

static char damaged_path[160];

static const char *damaged(int n)
{
    snprintf(damaged_path, sizeof damaged_path, "%s/out.jsonl.damaged-%d", dir.path, n);
    return damaged_path;
}

/* A finished job of a few lines; `whole` gets its output. */
static struct job_outcome finished_job(struct buf *whole)
{
    struct job_outcome out;

    input_text("one\ntwo\nthree bad\nfour\nfive\n");
    out = RUN(.overwrite = true);
    assert_done(&out);
    assert_true(text_read(dir.output, whole));
    return out;
}

static size_t line_at(const struct buf *b, int line)
{
    const char *p = b->data;

    while (line-- > 0)
        p = strchr(p, '\n') + 1;
    return (size_t)(p - b->data);
}

/* ---- after a crash ---- */

/* The file cut at every byte: whole lines stay, the torn one goes, all is answered once. */
static void torn_tail_is_cut(void **state)
{
    struct buf whole = BUF_EMPTY;
    struct job_outcome out;

    (void)state;
    finished_job(&whole);
    for (size_t n = 0; n < whole.n; n++) {
        int64_t lines = 0;

        for (size_t i = 0; i < n; i++)
            lines += whole.data[i] == '\n';
        text_write(dir.output, whole.data, n);
        out = RUN(PLAIN);
        assert_done(&out);
        assert_int_equal(out.state.done_n, lines);
        assert_int_equal(out.polled_n, 5 - lines);
        assert_false(text_exists(damaged(1)));
        assert_file_is(dir.output, &whole);
    }
    buf_fini(&whole);
}

/* Damage in the middle, of many kinds: the tail from that line on is kept aside and answered again. */
static void damaged_tail_is_moved(void **state)
{
    static const struct { int line; int at; int n; int byte; } spots[] = {
        { 0, 0, 1, 0 }, { 1, 0, 20, 0 }, { 2, 40, 60, 0 }, { 2, 5, 4, 0xee }, { 3, 30, 1, '\t' }, { 3, 0, 1, '[' },
        { 1, -1, 1, 0 }, { 1, -2, 1, ']' }, { 0, 10, 1, '\r' }, { 4, 50, 1, 0x1f },
    };
    struct buf whole = BUF_EMPTY, bad = BUF_EMPTY, tail = BUF_EMPTY;
    struct job_outcome out;

    (void)state;
    finished_job(&whole);
    for (size_t i = 0; i < sizeof spots / sizeof spots[0]; i++) {
        size_t line = line_at(&whole, spots[i].line), next = line_at(&whole, spots[i].line + 1);
        size_t at = spots[i].at >= 0 ? line + (size_t)spots[i].at : next - (size_t)-spots[i].at;

        buf_reset(&bad);
        buf_add(&bad, whole.data, whole.n);
        memset(bad.data + at, spots[i].byte, (size_t)spots[i].n);
        text_write(dir.output, bad.data, bad.n);
        out = RUN(PLAIN);
        assert_done(&out);
        assert_int_equal(out.state.done_n, spots[i].line);
        buf_reset(&tail);
        buf_add(&tail, bad.data + line, bad.n - line);
        assert_file_is(damaged((int)i + 1), &tail);
        assert_file_is(dir.output, &whole);
    }
    buf_fini(&whole);
    buf_fini(&bad);
    buf_fini(&tail);
}

/* After a power loss the end may be zeros, with or without a newline somewhere; a tail that is not the beginning of one of our
 * lines is kept, too. */
static void tails_that_are_not_ours_are_kept(void **state)
{
    static const char zeros[5000];
    static const char *const tails[] = { zeros, "some notes without a newline", "{\"id\":\"batch_req_000" };
    static const size_t tails_n[] = { sizeof zeros, 28, 20 };
    struct buf whole = BUF_EMPTY, tail = BUF_EMPTY;
    struct job_outcome out;

    (void)state;
    finished_job(&whole);
    for (int i = 0; i < 3; i++) {
        text_append(dir.output, tails[i], tails_n[i]);
        out = RUN(PLAIN);
        assert_done(&out);
        assert_int_equal(out.state.done_n, 5);
        buf_reset(&tail);
        buf_add(&tail, tails[i], tails_n[i]);
        assert_file_is(damaged(i + 1), &tail);
        assert_file_is(dir.output, &whole);
    }
    buf_fini(&whole);
    buf_fini(&tail);
}

static void errors_file_is_mended_too(void **state)
{
    struct buf errors = BUF_EMPTY;
    struct job_outcome out;

    (void)state;
    input_text("a bad\nb\nc bad\n");
    out = RUN(.errors_file = true);
    assert_done(&out);
    assert_true(text_read(dir.errors, &errors));
    assert_int_equal(truncate(dir.errors, (off_t)errors.n - 3), 0);
    out = RUN(.errors_file = true);
    assert_done(&out);
    assert_int_equal(out.polled_n, 1);
    assert_file_is(dir.errors, &errors);
    errors.data[30] = 0;
    text_write(dir.errors, errors.data, errors.n);
    out = RUN(.errors_file = true);
    assert_done(&out);
    assert_int_equal(out.polled_n, 2);
    buf_fini(&errors);
}

/* Long lines, so that the scan's blocks end inside of ids, values and newlines. */
static void long_results_are_read_back(void **state)
{
    struct queue *q;
    struct record *r;
    struct error err;
    char id[64];
    struct buf line = BUF_EMPTY;

    (void)state;
    input_text("0\n1\n2\n3\n4\n5\n6\n7\n");
    q = queue_take(&(struct job_options){ PLAIN });
    for (int i = 0; i < 8; i++) {
        struct result res;
        bool durable;

        assert_int_equal(queue_poll(q, 0, &r, &err), ST_OK);
        res = (struct result){ .record = r };
        queue_result_id(q, 0, i, id);
        buf_reset(&line);
        buf_add_format(&line, "{\"id\":\"%s\",\"text\":\"", id);
        while (line.n < (size_t)((1 << 20) + (i - 4) * 17))
            buf_add_text(&line, "word");
        buf_add_text(&line, "\"}");
        res.value = line.data;
        res.value_n = line.n;
        assert_int_equal(queue_commit(q, &res, 1, &durable, &err), ST_OK);
        assert_true(durable);
        queue_record_give(q, r);
    }
    queue_close(q);
    q = queue_take(&(struct job_options){ PLAIN });
    assert_int_equal(queue_state(q)->done_n, 8);
    queue_close(q);
    buf_fini(&line);
}

/* ---- a disk that fails ---- */

/* Every write, sync and cut of a run fails once, in each way: the run stops with a word, the next one ends the job. */
static void every_disk_call_fails_once(void **state)
{
    static const int causes[] = { ENOSPC, EIO, EDQUOT };
    struct disk_fault *const kinds[] = { &write_fault, &sync_fault, &cut_fault };
    struct job_outcome out;
    int stops = 0;

    (void)state;
    for (int kind = 0; kind < 3; kind++)
        for (int call = 0;; call++) {
            int cause = causes[call % 3];

            job_dir_remove(&dir);
            job_dir_make(&dir);
            input_lines(60, 11);
            faults_clear();
            *kinds[kind] = (struct disk_fault){ .from = call, .count = 1, .cause = cause };
            out = RUN(.errors_file = true, .shuffle = 5);
            if (kinds[kind]->calls <= call)
                break;                                              /* the run makes no more of these calls */
            if (out.st != ST_OK) {
                assert_int_equal(out.st, ST_RETRY);
                assert_non_null(strstr(out.err.text, dir.path));
                assert_non_null(strstr(out.err.text, cause == EIO ? "Input/output" : cause == ENOSPC ? "No space" : "quota"));
                stops++;
            }
            assert_null(job_check(&dir, true));
            assert_int_equal(job_lines(&dir), out.committed_n);      /* what failed has left nothing */
            faults_clear();
            out = RUN(.errors_file = true);
            assert_done(&out);
        }
    assert_true(stops > 15);
}

/* The same call again, in the same run, after the disk has recovered. */
static void commit_works_after_a_failure(void **state)
{
    struct queue *q;
    struct record *r;
    struct error err;

    (void)state;
    input_text("0\n1\n2\n");
    q = queue_take(&(struct job_options){ PLAIN });
    for (int i = 0; i < 3; i++) {
        assert_int_equal(queue_poll(q, 0, &r, &err), ST_OK);
        queue_record_give(q, r);
    }
    assert_int_equal(answer(q, 1, RESULT_OUTPUT, &err), ST_OK);
    faults_clear();
    sync_fault = (struct disk_fault){ .count = 1, .cause = EIO };
    cut_fault = (struct disk_fault){ .count = 1, .cause = EIO };     /* not even taking it back works */
    assert_int_equal(answer(q, 2, RESULT_OUTPUT, &err), ST_RETRY);
    assert_int_equal(job_lines(&dir), 2);
    cut_fault = (struct disk_fault){ .count = 1, .cause = EIO };     /* nor before the next group */
    assert_int_equal(answer(q, 0, RESULT_OUTPUT, &err), ST_RETRY);
    faults_clear();
    assert_int_equal(answer(q, 0, RESULT_OUTPUT, &err), ST_OK);
    assert_int_equal(job_lines(&dir), 2);
    assert_int_equal(answer(q, 2, RESULT_OUTPUT, &err), ST_OK);
    assert_int_equal(queue_poll(q, 0, &r, &err), ST_AGAIN);
    assert_int_equal(queue_finish(q, &err), ST_OK);
    queue_close(q);
    assert_int_equal(job_lines(&dir), 3);
}

/* One append and one sync a file and commit. */
static void commit_is_one_write_and_one_sync(void **state)
{
    struct job_outcome out;

    (void)state;
    input_text("0\n1\n2\n3\n4\n5\n");
    out = RUN(.group_max = 100, .window = 100);
    assert_done(&out);
    faults_clear();
    text_append(dir.input, "6\n7 bad\n8\n", 10);
    out = RUN(.group_max = 100, .window = 100, .stop_after = 1, .shuffle = 0);
    assert_int_equal(out.committed_n, 3);
    assert_int_equal(sync_fault.calls, 1);
    assert_int_equal(write_fault.calls, 3);                          /* lock, sidecar, group */
}

/* ---- while a run goes on ---- */

static void appended_lines_wait_for_the_next_run(void **state)
{
    struct queue *q;
    struct record *r;
    struct error err;
    struct job_outcome out;

    (void)state;
    input_text("0\n1\n");
    q = queue_take(&(struct job_options){ PLAIN });
    text_append(dir.input, "2\n", 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(queue_poll(q, 0, &r, &err), ST_OK);
        queue_record_give(q, r);
        assert_int_equal(answer(q, i, RESULT_OUTPUT, &err), ST_OK);
    }
    assert_int_equal(queue_poll(q, 0, &r, &err), ST_AGAIN);
    assert_true(queue_ended(q));
    assert_int_equal(queue_finish(q, &err), ST_AGAIN);
    assert_non_null(strstr(err.text, "has grown by 2 bytes"));
    queue_close(q);
    out = RUN(.fingerprint = "{}");
    assert_int_equal(out.st, ST_OK);
    assert_int_equal(out.polled_n, 1);
    assert_int_equal(out.state.done_n, 2);
}

/* The last line is torn at the start and goes on before it is polled, or between the poll and the commit. */
static void torn_line_that_grows_gets_no_verdict(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        struct queue *q;
        struct record *r, *last = NULL;
        struct error err;
        struct job_outcome out;

        input_text("0\n{\"half\":");
        q = queue_take(&(struct job_options){ .overwrite = true });
        assert_int_equal(queue_state(q)->records_n, 2);
        assert_int_equal(queue_poll(q, 0, &r, &err), ST_OK);
        queue_record_give(q, r);
        assert_int_equal(answer(q, 0, RESULT_OUTPUT, &err), ST_OK);
        if (late)
            assert_int_equal(queue_poll(q, 0, &last, &err), ST_OK);
        text_append(dir.input, "1}\n", 3);
        if (late)
            assert_int_equal(answer(q, 1, RESULT_FAILURE, &err), ST_OK);
        queue_record_give(q, last);
        assert_int_equal(queue_poll(q, 0, &r, &err), ST_AGAIN);
        assert_true(queue_ended(q));
        assert_int_equal(job_lines(&dir), 1);
        assert_int_equal(queue_finish(q, &err), ST_AGAIN);
        queue_close(q);
        out = RUN(.fingerprint = "{}");
        assert_int_equal(out.st, ST_OK);
        assert_int_equal(out.polled_n, 1);
        assert_int_equal(job_lines(&dir), 2);
    }
}

static void torn_line_that_gets_its_newline_is_answered(void **state)
{
    struct queue *q;
    struct record *r;
    struct error err;

    (void)state;
    input_text("0");
    q = queue_take(&(struct job_options){ PLAIN });
    text_append(dir.input, "\r\n", 2);
    assert_int_equal(queue_poll(q, 0, &r, &err), ST_OK);
    queue_record_give(q, r);
    text_append(dir.input, "1\n", 2);
    assert_int_equal(answer(q, 0, RESULT_OUTPUT, &err), ST_OK);
    assert_int_equal(job_lines(&dir), 1);
    queue_close(q);
}

/* Changed in place, not yet read: no line of the new content is ever delivered. */
static void input_changed_before_it_is_read(void **state)
{
    struct queue *q;
    struct record *r;
    struct error err;

    (void)state;
    input_text("0\n1\n");
    q = queue_take(&(struct job_options){ PLAIN });
    input_text("0\n2\n");
    assert_int_equal(queue_poll(q, 0, &r, &err), ST_REJECT);
    assert_non_null(strstr(err.text, "was changed while it was being answered"));
    assert_null(r);
    assert_int_equal(queue_poll(q, 0, &r, &err), ST_REJECT);
    queue_close(q);
    q = queue_take(&(struct job_options){ .overwrite = true });
    assert_int_equal(truncate(dir.input, 2), 0);
    assert_int_equal(queue_poll(q, 0, &r, &err), ST_REJECT);
    queue_close(q);
}

/* Changed, cut, replaced or removed behind the reader's back: the end tells. */
static void input_changed_after_it_was_read(void **state)
{
    static const struct { const char *now; status st; const char *says; } cases[] = {
        { "0\n2\n", ST_REJECT, "was changed while" }, { "0\n", ST_REJECT, "was cut from 4 to 2 bytes" },
        { "0\n1\n2\n", ST_AGAIN, "has grown by 2 bytes" }, { "9\n1\n2\n", ST_REJECT, "was changed while" },
        { "0\n1\n", ST_OK, "" }, { NULL, ST_OK, "" },
    };
    char aside[160];

    (void)state;
    snprintf(aside, sizeof aside, "%s/aside", dir.path);
    for (int replace = 0; replace < 2; replace++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            struct queue *q;
            struct record *r;
            struct error err = { "" };

            input_text("0\n1\n");
            q = queue_take(&(struct job_options){ .overwrite = true });
            for (int k = 0; k < 2; k++) {
                assert_int_equal(queue_poll(q, 0, &r, &err), ST_OK);
                queue_record_give(q, r);
                assert_int_equal(answer(q, k, RESULT_OUTPUT, &err), ST_OK);
            }
            if (replace)
                rename(dir.input, aside);
            if (cases[i].now != NULL)
                input_text(cases[i].now);
            else
                unlink(dir.input);
            assert_int_equal(queue_finish(q, &err), cases[i].st);
            assert_non_null(strstr(err.text, cases[i].says));
            queue_close(q);
        }
}

/* Somebody takes the output away, or writes to it: the run stops instead of writing into nothing or over it. */
static void output_taken_away_is_noticed(void **state)
{
    static const char line[] = "their line\n";
    char aside[160];

    (void)state;
    snprintf(aside, sizeof aside, "%s/aside", dir.path);
    for (int how = 0; how < 3; how++) {
        struct queue *q;
        struct record *r;
        struct error err;
        struct job_outcome out;

        input_text("0\n1\n");
        q = queue_take(&(struct job_options){ .overwrite = true });
        for (int k = 0; k < 2; k++) {
            assert_int_equal(queue_poll(q, 0, &r, &err), ST_OK);
            queue_record_give(q, r);
        }
        assert_int_equal(answer(q, 0, RESULT_OUTPUT, &err), ST_OK);
        if (how == 0)
            unlink(dir.output);
        else if (how == 1)
            rename(dir.output, aside);
        else
            text_append(dir.output, line, sizeof line - 1);
        assert_int_equal(answer(q, 1, RESULT_OUTPUT, &err), ST_FENCED);
        assert_non_null(strstr(err.text, how < 2 ? "was removed or replaced" : "something else has written"));
        queue_close(q);
        out = RUN(.fingerprint = "{}");
        assert_int_equal(out.st, ST_OK);
        assert_int_equal(out.polled_n, how < 2 ? 2 : 1);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, dir_teardown)
    const struct CMUnitTest tests[] = {
        TEST(torn_tail_is_cut),
        TEST(damaged_tail_is_moved),
        TEST(tails_that_are_not_ours_are_kept),
        TEST(errors_file_is_mended_too),
        TEST(long_results_are_read_back),
        TEST(every_disk_call_fails_once),
        TEST(commit_works_after_a_failure),
        TEST(commit_is_one_write_and_one_sync),
        TEST(appended_lines_wait_for_the_next_run),
        TEST(torn_line_that_grows_gets_no_verdict),
        TEST(torn_line_that_gets_its_newline_is_answered),
        TEST(input_changed_before_it_is_read),
        TEST(input_changed_after_it_was_read),
        TEST(output_taken_away_is_noticed),
    };

    log_level_set(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
