/* The file queue, seen from its header: what it delivers, how far ahead, and what it writes. */
#define _XOPEN_SOURCE 700
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "queue/file.h"
#include "tests/support/queue_test.h"

/* ---- what is delivered ---- */

struct want { int64_t offset; const char *value; size_t n; int64_t at; };

static void assert_delivers(const void *input, size_t input_n, const struct want *want, size_t n)
{
    struct queue *q;
    struct record *r;
    struct error err;

    text_write(dir.input, input, input_n);
    q = queue_take(&(struct job_options){ .overwrite = true });
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
        q = queue_take(&(struct job_options){ .overwrite = true, .line_mb_max = 1 });
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
    out = RUN(.shuffle = 3);
    assert_done(&out);
    assert_int_equal(out.state.done_n, 0);
    assert_false(out.state.finished);
    out = RUN(.shuffle = 4);
    assert_done(&out);
    assert_true(out.state.finished);
    assert_int_equal(out.polled_n, 0);
    assert_int_equal(out.state.done_n, out.state.records_n);
    assert_int_equal(out.state.done_n, job_lines(&dir));
    assert_false(text_exists(dir.errors));
}

static void empty_jobs_are_over_at_once(void **state)
{
    static const char *const inputs[] = { "", "\n\n", "\xef\xbb\xbf", " \t" };

    (void)state;
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        struct job_outcome out;

        input_text(inputs[i]);
        out = RUN(.overwrite = true);
        assert_done(&out);
        assert_int_equal(out.state.records_n, 0);
        out = RUN(PLAIN);
        assert_done(&out);
    }
}

/* Lines as an editor numbers them, records as they are answered: what the sidecar says of an input. */
static void sidecar_counts_lines(void **state)
{
    static const struct { const char *input, *lines; } cases[] = {
        { "", "\"lines\": 0, \"records\": 0, \"ended\": true" }, { "\n", "\"lines\": 1, \"records\": 0, \"ended\": true" },
        { "a", "\"lines\": 1, \"records\": 1, \"ended\": false" }, { "a\n", "\"lines\": 1, \"records\": 1, \"ended\": true" },
        { "a\n\n b", "\"lines\": 3, \"records\": 2, \"ended\": false" },
        { "\xef\xbb\xbf \r\n\na\n", "\"lines\": 3, \"records\": 1, \"ended\": true" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf sidecar = BUF_EMPTY;
        struct job_outcome out;

        input_text(cases[i].input);
        out = RUN(.overwrite = true);
        assert_int_equal(out.st, ST_OK);
        assert_true(text_read(dir.sidecar, &sidecar));
        if (strstr(buf_text(&sidecar), cases[i].lines) == NULL)
            fail_msg("%s: wanted %s", buf_text(&sidecar), cases[i].lines);
        buf_fini(&sidecar);
    }
}

static void stopped_job_goes_on(void **state)
{
    struct job_outcome a, b;
    struct buf errors = BUF_EMPTY;

    (void)state;
    input_lines(400, 2);
    a = RUN(.shuffle = 9, .stop_after = 12, .errors_file = true);
    assert_int_equal(a.st, ST_OK);
    assert_true(a.committed_n > 20);
    assert_int_equal(job_lines(&dir), a.committed_n);
    b = RUN(.shuffle = 8, .errors_file = true);
    assert_done(&b);
    assert_string_equal(a.state.job, b.state.job);
    assert_int_equal(b.state.done_n, a.committed_n);
    assert_int_equal(b.polled_n, b.state.records_n - a.committed_n);
    assert_true(text_read(dir.errors, &errors) && errors.n > 0);
    buf_fini(&errors);
}

/* Stopped again and again, with a window that changes: nothing is asked for twice. */
static void many_stops_and_windows(void **state)
{
    struct job_outcome out = { 0 };
    int64_t polled_n = 0, committed_n = 0;
    int runs_n = 0;

    (void)state;
    input_lines(700, 3);
    while (!out.state.finished) {
        out = RUN(.shuffle = 100 + (uint64_t)runs_n, .stop_after = 9, .window = runs_n % 3 == 0 ? 200 : 1 + runs_n % 40);
        assert_int_equal(out.st, ST_OK);
        assert_int_equal(out.state.done_n, committed_n);
        committed_n += out.committed_n;
        polled_n += out.polled_n;
        assert_true(++runs_n < 200);
    }
    assert_true(runs_n > 10);
    assert_int_equal(committed_n, out.state.records_n);
    assert_null(job_check(&dir, false));
    assert_true(polled_n < committed_n + 200 * runs_n);
}

static void failures_are_counted_in_either_file(void **state)
{
    struct job_outcome out;
    int64_t failed_n;

    (void)state;
    input_lines(200, 5);
    out = RUN(.errors_file = true);
    assert_done(&out);
    out = RUN(.errors_file = true);
    failed_n = out.state.failed_n;
    assert_true(failed_n > 5 && failed_n < 100);
    unlink(dir.errors);
    out = RUN(.overwrite = true);
    assert_done(&out);
    out = RUN(PLAIN);
    assert_int_equal(out.state.failed_n, failed_n);
}

/* Equal bytes from an interrupted and an uninterrupted run, in another folder, under another name. */
static void order_input_gives_equal_bytes(void **state)
{
    struct buf output = BUF_EMPTY, errors = BUF_EMPTY;
    struct job_outcome out;

    (void)state;
    input_lines(600, 6);
    out = RUN(.order_input = true, .errors_file = true);
    assert_done(&out);
    assert_true(text_read(dir.output, &output) && text_read(dir.errors, &errors));
    job_dir_remove(&dir);
    job_dir_make(&dir);
    input_lines(600, 6);
    for (int i = 0; i < 5; i++)
        out = RUN(.order_input = true, .errors_file = true, .shuffle = 50 + (uint64_t)i, .stop_after = 7, .window = 300);
    assert_int_equal(out.st, ST_OK);
    assert_true(out.committed_n > 0);
    out = RUN(.order_input = true, .errors_file = true, .shuffle = 77, .window = 300);
    assert_done(&out);
    assert_file_is(dir.output, &output);
    assert_file_is(dir.errors, &errors);
    out = RUN(.order_input = true, .errors_file = true);
    assert_true(out.state.finished);
    buf_fini(&output);
    buf_fini(&errors);
}

/* Order can be asked for when all is answered already; a finished and sorted job stays as it is without. */
static void order_may_come_later(void **state)
{
    struct job_outcome out;
    struct buf sorted = BUF_EMPTY, b = BUF_EMPTY;

    (void)state;
    input_lines(300, 7);
    out = RUN(.shuffle = 5);
    assert_done(&out);
    assert_true(text_read(dir.output, &b));
    out = RUN(.order_input = true);
    assert_done(&out);
    assert_false(out.state.finished);
    assert_int_equal(out.polled_n, 0);
    assert_true(text_read(dir.output, &sorted));
    assert_int_equal(b.n, sorted.n);
    assert_memory_not_equal(b.data, sorted.data, b.n);
    out = RUN(PLAIN);
    assert_true(out.state.finished);
    assert_file_is(dir.output, &sorted);
    buf_fini(&sorted);
    buf_fini(&b);
}

static void grown_input_is_the_same_job(void **state)
{
    struct job_outcome a, b;

    (void)state;
    input_lines(100, 8);
    a = RUN(.order_input = true);
    assert_done(&a);
    text_append(dir.input, TEXT("\nmore 1\nmore bad 2\nmore 3"));
    b = RUN(.order_input = true);
    assert_done(&b);
    assert_false(b.state.finished);
    assert_string_equal(a.state.job, b.state.job);
    assert_int_equal(b.polled_n, 3);
    assert_int_equal(b.state.done_n, a.state.records_n);
    text_append(dir.input, TEXT("\r\n"));                            /* the last line gets its end: still the same */
    b = RUN(.order_input = true);
    assert_done(&b);
    assert_int_equal(b.polled_n, 0);
}

/* The whole input at once, or in two parts: the same ids, so the same bytes. */
static void growing_makes_no_other_bytes(void **state)
{
    struct buf parts = BUF_EMPTY;
    struct job_outcome out;

    (void)state;
    input_text("\n  \none\ntwo\n");
    out = RUN(PLAIN);
    assert_done(&out);
    text_append(dir.input, TEXT("three\n"));
    out = RUN(PLAIN);
    assert_done(&out);
    assert_true(text_read(dir.output, &parts));
    unlink(dir.output);
    unlink(dir.sidecar);
    out = RUN(PLAIN);
    assert_done(&out);
    assert_file_is(dir.output, &parts);
    buf_fini(&parts);
}

/* Nothing is answered yet and the first line turns out to have been a torn one: the id follows the whole line. */
static void id_follows_a_first_line_that_was_torn(void **state)
{
    struct job_outcome a, b, c;

    (void)state;
    input_text("on");
    queue_close(queue_take(&(struct job_options){ PLAIN }));
    text_append(dir.input, TEXT("e\ntwo\n"));
    a = RUN(.fingerprint = "{}");
    assert_done(&a);
    b = RUN(.fingerprint = "{}", .overwrite = true);
    assert_string_equal(a.state.job, b.state.job);
    c = RUN(.fingerprint = "{\"a\":1}", .overwrite = true);
    assert_string_not_equal(a.state.job, c.state.job);
    input_text("other\ntwo\n");
    c = RUN(.fingerprint = "{}", .overwrite = true);
    assert_string_not_equal(a.state.job, c.state.job);
}

static int64_t clock_given(void *now_ns)
{
    return *(int64_t *)now_ns;
}

/* A run that died before its first result goes on as the same job, begun when it was begun; one that begins anew does not. */
static void begun_once(void **state)
{
    int64_t now_ns = 1000 * NS_PER_S;
    const struct clock clock = { clock_given, clock_given, &now_ns };
    struct job_outcome out;

    (void)state;
    input_text("one\ntwo\n");
    clock_use(&clock);
    queue_close(queue_take(&(struct job_options){ PLAIN }));
    now_ns = 2000 * NS_PER_S;
    out = RUN(.fingerprint = "{}", .stop_after = 1, .group_max = 1);
    assert_int_equal(out.state.begun_s, 1000);
    out = RUN(.fingerprint = "{}");
    assert_int_equal(out.state.begun_s, 1000);
    out = RUN(.fingerprint = "{}", .overwrite = true);
    assert_int_equal(out.state.begun_s, 2000);
    clock_use(NULL);
}

/* ---- the window ---- */

static void window_holds_the_poll_back(void **state)
{
    struct queue *q;
    struct record *r[8], *none;
    struct error err;

    (void)state;
    input_text("0\n1\n\n\n4\n5\n6\n7\n8\n");
    q = queue_take(&(struct job_options){ .window = 4 });
    for (int i = 0; i < 2; i++)
        assert_int_equal(queue_poll(q, 0, &r[i], &err), ST_OK);
    assert_int_equal(queue_poll(q, 0, &none, &err), ST_AGAIN);       /* 4 is 4 beyond 0 */
    assert_int_equal(queue_poll(q, 10, &none, &err), ST_AGAIN);
    assert_false(queue_ended(q));
    assert_int_equal(answer(q, 1, RESULT_OUTPUT, &err), ST_OK);
    assert_int_equal(queue_poll(q, 0, &none, &err), ST_AGAIN);       /* the lowest open one has not moved */
    assert_int_equal(answer(q, 0, RESULT_OUTPUT, &err), ST_OK);
    for (int i = 2; i < 6; i++) {
        assert_int_equal(queue_poll(q, 0, &r[i], &err), ST_OK);
        assert_int_equal(r[i]->offset, i + 2);
    }
    assert_int_equal(queue_poll(q, 0, &none, &err), ST_AGAIN);
    assert_int_equal(answer(q, 4, RESULT_OUTPUT, &err), ST_OK);
    assert_int_equal(queue_poll(q, 0, &r[6], &err), ST_OK);
    assert_int_equal(r[6]->offset, 8);
    assert_int_equal(queue_poll(q, 0, &none, &err), ST_AGAIN);
    assert_true(queue_ended(q));
    for (int i = 0; i < 7; i++)
        queue_record_give(q, r[i]);
    queue_close(q);
}

static void pause_stops_the_poll(void **state)
{
    struct queue *q;
    struct record *r;
    struct error err;

    (void)state;
    input_text("0\n1\n");
    q = queue_take(&(struct job_options){ PLAIN });
    queue_pause(q, 0, true);
    assert_int_equal(queue_poll(q, 5, &r, &err), ST_AGAIN);
    assert_false(queue_ended(q));
    queue_pause(q, 0, false);
    assert_int_equal(queue_poll(q, 0, &r, &err), ST_OK);
    queue_record_give(q, r);
    queue_close(q);
}

/* Both sides at once: a poller that is held back again and again, a committer that answers out of order. */
struct two_sides {
    struct queue *q;
    pthread_mutex_t lock;
    struct record *ready[64];
    size_t ready_n;
    atomic_bool polled_all;
    int64_t polled_n;
};

static void *poll_side(void *ctx)
{
    struct two_sides *t = ctx;
    struct record *r;
    struct error err;

    while (!queue_ended(t->q)) {
        if (queue_poll(t->q, 50, &r, &err) != ST_OK)
            continue;
        pthread_mutex_lock(&t->lock);
        ASSERT(t->ready_n < 64);
        t->ready[t->ready_n++] = r;
        t->polled_n++;
        pthread_mutex_unlock(&t->lock);
    }
    t->polled_all = true;
    return NULL;
}

static void two_threads(void **state)
{
    struct two_sides t = { .lock = PTHREAD_MUTEX_INITIALIZER };
    pthread_t poller;
    uint64_t word = 1;
    struct error err;

    (void)state;
    input_lines(3000, 9);
    t.q = queue_take(&(struct job_options){ .window = 16 });
    pthread_create(&poller, NULL, poll_side, &t);
    while (!t.polled_all || t.ready_n > 0) {
        struct record *r = NULL;

        pthread_mutex_lock(&t.lock);
        if (t.ready_n > 0) {
            size_t i = (word = word * 6364136223846793005u + 1442695040888963407u) % t.ready_n;

            r = t.ready[i];
            t.ready[i] = t.ready[t.ready_n - 1];
            t.ready_n--;
        }
        pthread_mutex_unlock(&t.lock);
        if (r == NULL)
            continue;
        assert_int_equal(answer(t.q, r->offset, RESULT_OUTPUT, &err), ST_OK);
        queue_record_give(t.q, r);
    }
    pthread_join(poller, NULL);
    assert_int_equal(t.polled_n, queue_state(t.q)->records_n);
    assert_int_equal(queue_finish(t.q, &err), ST_OK);
    queue_close(t.q);
    assert_int_equal(job_lines(&dir), t.polled_n);
}

/* ---- our own bugs must not reach the file ---- */

static bool dies(void (*bug)(struct queue *q))
{
    pid_t child = fork();
    int how = 0;

    if (child == 0) {
        struct queue *q;
        struct record *r;
        struct error err;

        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(9);
        q = queue_take(&(struct job_options){ PLAIN });
        if (queue_poll(q, 0, &r, &err) != ST_OK || queue_poll(q, 0, &r, &err) != ST_OK)
            _exit(9);
        bug(q);
        _exit(0);
    }
    waitpid(child, &how, 0);
    return WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT;
}

static void commit_raw(struct queue *q, int64_t offset, const char *line)
{
    const struct record rec = { .offset = offset };
    struct result r = { .record = &rec, .value = line, .value_n = strlen(line) };
    bool durable;
    status st = queue_commit(q, &r, 1, &durable, NULL);

    (void)st;
}

static void bug_not_polled(struct queue *q)
{
    status st = answer(q, 2, RESULT_OUTPUT, NULL);

    (void)st;
}

static void bug_twice(struct queue *q)
{
    status st = answer(q, 0, RESULT_OUTPUT, NULL);

    st = answer(q, 0, RESULT_OUTPUT, NULL);
    (void)st;
}

static void bug_twice_in_a_group(struct queue *q)
{
    char id[64], line[2][128];
    const struct record rec = { .offset = 1 };
    struct result r[2];
    bool durable[2];
    status st;

    memset(r, 0, sizeof r);
    for (int i = 0; i < 2; i++) {
        queue_result_id(q, 0, 1, id);
        r[i].record = &rec;
        r[i].value = line[i];
        r[i].value_n = (size_t)snprintf(line[i], sizeof line[i], "{\"id\":\"%s\"}", id);
    }
    st = queue_commit(q, r, 2, durable, NULL);
    (void)st;
}

static void bug_other_id(struct queue *q)
{
    char id[64], line[128];

    queue_result_id(q, 0, 1, id);
    snprintf(line, sizeof line, "{\"id\":\"%s\"}", id);
    commit_raw(q, 0, line);
}

static void bug_newline(struct queue *q)
{
    char id[64], line[128];

    queue_result_id(q, 0, 0, id);
    snprintf(line, sizeof line, "{\"id\":\"%s\",\n\"a\":1}", id);
    commit_raw(q, 0, line);
}

static void bug_not_an_object(struct queue *q)
{
    char id[64], line[128];

    queue_result_id(q, 0, 0, id);
    snprintf(line, sizeof line, "{\"id\":\"%s\",", id);
    commit_raw(q, 0, line);
}

static void bug_finish_early(struct queue *q)
{
    status st = queue_finish(q, NULL);

    (void)st;
}

static void own_bugs_abort_before_the_file(void **state)
{
    void (*const bugs[])(struct queue *q) = { bug_not_polled, bug_twice, bug_twice_in_a_group, bug_other_id, bug_newline,
                                              bug_not_an_object, bug_finish_early };
    struct buf b = BUF_EMPTY;

    (void)state;
    for (size_t i = 0; i < sizeof bugs / sizeof bugs[0]; i++) {
        input_text("0\n1\n2\n");
        if (!dies(bugs[i]))
            fail_msg("bug %zu goes through", i);
        assert_true(text_read(dir.output, &b));
        assert_true(i == 1 ? b.n > 0 : b.n == 0);
        unlink(dir.output);
        unlink(dir.sidecar);
    }
    buf_fini(&b);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, dir_setup, dir_teardown)
    const struct CMUnitTest tests[] = {
        TEST(delivers_physical_lines),
        TEST(lines_across_chunks),
        TEST(oversize_line_is_cut_and_passed),
        TEST(job_is_answered),
        TEST(empty_jobs_are_over_at_once),
        TEST(sidecar_counts_lines),
        TEST(stopped_job_goes_on),
        TEST(many_stops_and_windows),
        TEST(failures_are_counted_in_either_file),
        TEST(order_input_gives_equal_bytes),
        TEST(order_may_come_later),
        TEST(grown_input_is_the_same_job),
        TEST(growing_makes_no_other_bytes),
        TEST(id_follows_a_first_line_that_was_torn),
        TEST(begun_once),
        TEST(window_holds_the_poll_back),
        TEST(pause_stops_the_poll),
        TEST(two_threads),
        TEST(own_bugs_abort_before_the_file),
    };

    log_level_set(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
