/* The file queue, seen from its header: what it delivers, what it writes, what it refuses. */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "queue/file.h"
#include "tests/support/queue_job.h"

static struct job_dir dir;
static const struct job_options plain;

static int setup(void **state)
{
    (void)state;
    job_dir_make(&dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    job_dir_remove(&dir);
    return 0;
}

static void input_text(const char *text)
{
    text_write(dir.input, text, strlen(text));
}

static void input_lines(int n, uint64_t seed)
{
    struct buf b = BUF_EMPTY;

    lines_make(&b, n, seed);
    text_write(dir.input, b.data, b.n);
    buf_fini(&b);
}

static struct job_outcome run(const struct job_options *o)
{
    struct job_outcome out;

    job_run(&dir, o, &out);
    return out;
}

static void assert_done(const struct job_outcome *out)
{
    const char *wrong;

    if (out->st != ST_OK)
        fail_msg("%s: %s: %s", out->call, status_name(out->st), out->err.text);
    wrong = job_check(&dir, false);
    if (wrong != NULL)
        fail_msg("%s", wrong);
}

static void assert_refused(const struct job_outcome *out, const char *call, status st, const char *says)
{
    assert_int_equal(out->st, st);
    assert_string_equal(out->call, call);
    if (strstr(out->err.text, says) == NULL)
        fail_msg("the refusal does not say \"%s\": %s", says, out->err.text);
}

/* ---- what is delivered ---- */

struct want { int64_t offset; const char *value; size_t n; int64_t at; };

static struct queue *open_queue(int64_t line_mb_max)
{
    struct queue_job job = { "file:", dir.input, dir.output, NULL, "{}", true, false };
    struct queue *q;
    struct config cfg;
    struct error err;

    config_defaults(&cfg);
    cfg.line_mb_max = line_mb_max;
    if (queue_open(&cfg, &job, &q, &err) != ST_OK)
        fail_msg("%s", err.text);
    return q;
}

static void assert_delivers(const void *input, size_t input_n, const struct want *want, size_t n)
{
    struct queue *q;
    struct record *r;
    struct error err;

    text_write(dir.input, input, input_n);
    q = open_queue(16);
    assert_int_equal(queue_state(q)->records_n, n);
    assert_int_equal(queue_state(q)->input_bytes, input_n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(queue_poll(q, 0, &r, &err), ST_OK);
        assert_int_equal(r->source, 0);
        assert_int_equal(r->offset, want[i].offset);
        assert_int_equal(r->at_bytes, want[i].at);
        assert_int_equal(r->value_n, want[i].n);
        assert_memory_equal(r->value, want[i].value, want[i].n);
        assert_false(r->oversize);
        queue_record_give(q, r);
    }
    assert_int_equal(queue_poll(q, 0, &r, &err), ST_AGAIN);
    assert_null(r);
    assert_true(queue_ended(q));
    queue_close(q);
}

#define TEXT(s) s, sizeof(s) - 1

static void delivers_physical_lines(void **state)
{
    const struct want three[] = { { 0, TEXT("a"), 0 }, { 1, TEXT("bb"), 2 }, { 2, TEXT("c"), 5 } };
    const struct want gaps[] = { { 1, TEXT("a"), 1 }, { 4, TEXT("b "), 8 } };
    const struct want marked[] = { { 0, TEXT("a"), 3 }, { 1, TEXT("\xef\xbb\xbf" "b"), 5 } };
    const struct want bytes[] = { { 0, TEXT("a\0b"), 0 }, { 1, TEXT("\xff\xfe\xed\xa0\x80"), 4 }, { 2, TEXT("\0"), 10 } };
    const struct want returns[] = { { 0, TEXT("a\r"), 0 }, { 1, TEXT("b\rc"), 4 } };

    (void)state;
    assert_delivers(TEXT("a\nbb\nc\n"), three, 3);
    assert_delivers(TEXT("a\nbb\nc"), three, 3);                       /* no newline at the end */
    assert_delivers(TEXT("\na\n\n \t\r\nb \n\n"), gaps, 2);            /* blank lines keep their numbers */
    assert_delivers(TEXT("\xef\xbb\xbf" "a\n\xef\xbb\xbf" "b"), marked, 2);      /* a BOM is one only at the start */
    assert_delivers(TEXT("a\0b\n\xff\xfe\xed\xa0\x80\n\0\n"), bytes, 3);
    assert_delivers(TEXT("a\r\r\nb\rc\r\n"), returns, 2);
    assert_delivers(TEXT(""), NULL, 0);
    assert_delivers(TEXT("\xef\xbb\xbf"), NULL, 0);
    assert_delivers(TEXT("\xef\xbb\xbf\n\n"), NULL, 0);
    assert_delivers(TEXT("\n"), NULL, 0);
    assert_delivers(TEXT("\r\n \r"), NULL, 0);
}

/* Lines whose ends fall on every place around a chunk's edge. */
static void lines_across_chunks(void **state)
{
    (void)state;
    for (int d = -3; d <= 3; d++)
        for (int crlf = 0; crlf < 2; crlf++) {
            size_t n = (size_t)(INPUT_CHUNK_BYTES + d);
            struct buf b = BUF_EMPTY;

            memset(buf_reserve(&b, n), 'x', n);
            b.n = n;
            buf_add_text(&b, crlf ? "\r\n" : "\n");
            buf_add_text(&b, "second\n\n");
            for (size_t i = 0; i < 2 * n; i++)
                buf_add_byte(&b, 'a' + (int)(i % 23));
            text_write(dir.input, b.data, b.n);
            assert_delivers(b.data, b.n, (struct want[]){ { 0, b.data, n, 0 },
                            { 1, TEXT("second"), (int64_t)n + 1 + crlf }, { 3, b.data + n + 9 + crlf, 2 * n, (int64_t)n + 9 + crlf } },
                            3);
            buf_fini(&b);
        }
}

static void oversize_line_is_cut_and_passed(void **state)
{
    const size_t max = 1 << 20;

    (void)state;
    for (size_t extra = 0; extra < 3; extra++) {
        struct buf b = BUF_EMPTY;
        struct queue *q;
        struct record *r;
        struct error err;

        buf_add_text(&b, "first\n");
        for (size_t i = 0; i < max + extra; i++)
            buf_add_byte(&b, 'a' + (int)(i % 26));
        buf_add_text(&b, "\r\nlast");
        text_write(dir.input, b.data, b.n);
        q = open_queue(1);
        assert_int_equal(queue_state(q)->records_n, 3);
        for (int64_t i = 0; i < 3; i++) {
            assert_int_equal(queue_poll(q, 0, &r, &err), ST_OK);
            assert_int_equal(r->offset, i);
            assert_int_equal(r->oversize, i == 1 && extra > 0);
            assert_int_equal(r->value_n, i == 0 ? 5 : i == 2 ? 4 : extra > 0 ? INPUT_OVERSIZE_KEEP : max);
            assert_memory_equal(r->value, i == 0 ? "first" : i == 2 ? "last" : b.data + 6, r->value_n);
            queue_record_give(q, r);
        }
        queue_close(q);
        buf_fini(&b);
    }
}

/* ---- whole jobs ---- */

static void job_is_answered(void **state)
{
    struct job_outcome out;

    (void)state;
    input_lines(500, 1);
    out = run(&(struct job_options){ .shuffle = 3 });
    assert_done(&out);
    assert_int_equal(out.state.done_n, 0);
    assert_false(out.state.finished);
    out = run(&(struct job_options){ .shuffle = 4 });
    assert_done(&out);
    assert_true(out.state.finished);
    assert_int_equal(out.polled_n, 0);
    assert_int_equal(out.state.done_n, out.state.records_n);
    assert_int_equal(out.state.done_n, job_lines(&dir));
    assert_false(text_exists(dir.errors));
}

static void stopped_job_goes_on(void **state)
{
    const struct job_options first = { .shuffle = 9, .stop_after = 12, .errors_file = true };
    const struct job_options second = { .shuffle = 8, .errors_file = true };
    struct job_outcome a, b;
    struct buf errors = BUF_EMPTY;

    (void)state;
    input_lines(400, 2);
    a = run(&first);
    assert_int_equal(a.st, ST_OK);
    assert_true(a.committed_n > 20);
    assert_int_equal(job_lines(&dir), a.committed_n);
    b = run(&second);
    assert_done(&b);
    assert_string_equal(a.state.job, b.state.job);
    assert_int_equal(b.state.done_n, a.committed_n);
    assert_int_equal(b.polled_n, b.state.records_n - a.committed_n);
    assert_true(text_read(dir.errors, &errors) && errors.n > 0);
    buf_fini(&errors);
}

static void failures_are_counted_in_either_file(void **state)
{
    struct job_outcome out;
    int64_t failed_n;

    (void)state;
    input_lines(200, 5);
    out = run(&(struct job_options){ .errors_file = true });
    assert_done(&out);
    out = run(&(struct job_options){ .errors_file = true });
    failed_n = out.state.failed_n;
    assert_true(failed_n > 5 && failed_n < 100);
    unlink(dir.errors);
    out = run(&(struct job_options){ .overwrite = true });
    assert_done(&out);
    out = run(&plain);
    assert_int_equal(out.state.failed_n, failed_n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(delivers_physical_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(lines_across_chunks, setup, teardown),
        cmocka_unit_test_setup_teardown(oversize_line_is_cut_and_passed, setup, teardown),
        cmocka_unit_test_setup_teardown(job_is_answered, setup, teardown),
        cmocka_unit_test_setup_teardown(stopped_job_goes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(failures_are_counted_in_either_file, setup, teardown),
    };

    log_level_set(LOG_ERROR);
    (void)assert_refused;
    (void)input_text;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
