/* tests/support/queue_test.h - what the cmocka programs around the file queue share: one folder a test, and assertions that
 * say what a job says. Include after cmocka.h. */
#ifndef TESTS_SUPPORT_QUEUE_TEST_H
#define TESTS_SUPPORT_QUEUE_TEST_H

#include <stdlib.h>
#include <string.h>

#include "tests/support/queue_job.h"

static struct job_dir dir;

static inline int dir_setup(void **state)
{
    (void)state;
    job_dir_make(&dir);
    return 0;
}

static inline int dir_teardown(void **state)
{
    (void)state;
    job_dir_remove(&dir);
    return 0;
}

static inline void input_text(const char *text)
{
    text_write(dir.input, text, strlen(text));
}

static inline void input_lines(int n, uint64_t seed)
{
    struct buf b = BUF_EMPTY;

    lines_make(&b, n, seed);
    text_write(dir.input, b.data, b.n);
    buf_fini(&b);
}

static inline struct job_outcome run(const struct job_options *o)
{
    struct job_outcome out;

    job_run(&dir, o, &out);
    return out;
}

#define RUN(...) run(&(struct job_options){ __VA_ARGS__ })
#define PLAIN .group_max = 0

static inline void assert_done(const struct job_outcome *out)
{
    const char *wrong;

    if (out->st != ST_OK)
        fail_msg("%s: %s: %s", out->call, status_name(out->st), out->err.text);
    wrong = job_check(&dir, false);
    if (wrong != NULL)
        fail_msg("%s", wrong);
}

/* The call that was refused, how, and words that its text must hold. */
static inline void assert_refused(const struct job_outcome *out, const char *call, status st, const char *says)
{
    if (out->st != st || out->call == NULL || strcmp(out->call, call) != 0)
        fail_msg("%s wanted from %s, not %s from %s: %s", status_name(st), call, status_name(out->st),
                 out->call ? out->call : "the job", out->err.text);
    if (strstr(out->err.text, says) == NULL)
        fail_msg("the refusal does not say \"%s\": %s", says, out->err.text);
}

static inline void assert_file_is(const char *path, const struct buf *want)
{
    struct buf b = BUF_EMPTY;

    assert_true(text_read(path, &b));
    assert_int_equal(b.n, want->n);
    assert_memory_equal(b.data, want->data, want->n);
    buf_fini(&b);
}

/* A queue on dir whose calls the test makes itself. */
static inline struct queue *queue_take(const struct job_options *o)
{
    struct queue_job job = { "file:", dir.input, dir.output, o->errors_file ? dir.errors : NULL,
                             o->fingerprint ? o->fingerprint : "{}", o->overwrite, o->order_input, NULL };
    struct queue *q;
    struct config cfg;
    struct error err;

    config_defaults(&cfg);
    cfg.line_mb_max = o->line_mb_max ? o->line_mb_max : 16;
    cfg.plan_window_max = o->window ? o->window : 64;
    if (queue_open(&cfg, &job, &q, &err) != ST_OK)
        fail_msg("%s", err.text);
    return q;
}

static inline status answer(struct queue *q, int64_t offset, enum result_kind kind, struct error *err)
{
    char id[64], line[256];
    const struct record rec = { .offset = offset };
    struct result r = { .record = &rec, .kind = kind, .value = line };
    bool durable;
    status st;

    queue_result_id(q, 0, offset, id);
    r.value_n = (size_t)snprintf(line, sizeof line, "{\"id\":\"%s\",\"n\":%lld}", id, (long long)offset);
    st = queue_commit(q, &r, 1, &durable, err);
    assert_true(durable == (st == ST_OK));
    return st;
}

#endif
