/* Whole pipelines over a group's queue and a store that live in this process: sources move from one to another, are lost
 * without a word, commits are refused, fences fall, a drain hands everything over. The promise is always the same: every record
 * has exactly one result with the bytes of an undisturbed run, and what was saved is not made again. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/mem.h"
#include "queue/mem.h"
#include "tests/support/tiny_model.h"
#include "worker/pipeline/pipeline.h"

#define NAME "group"
#define SOURCES 2
#define RECORDS 24                 /* of a source */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TOKENS 200
#else
#define TOKENS 500
#endif

static char model_path[64];
static struct config cfg;
static char *answers[SOURCES][RECORDS];        /* texts of an undisturbed run */

/* ---- the world ---- */

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * NS_PER_MS }, NULL);
}

static void record_add(int32_t source, int64_t offset, const char *extra, const struct header *headers, size_t headers_n)
{
    char value[256];
    struct record r = { .source = source, .offset = offset, .value = value, .headers = headers, .headers_n = headers_n,
                        .key = "key", .key_n = 3, .timestamp_ms = 1700000000000 + offset };

    r.value_n = (size_t)snprintf(value, sizeof value, "{\"prompt\":\"source %d, record %d\",\"max_tokens\":%d,\"ignore_eos\":true,"
                                 "\"temperature\":0%s}", source, (int)offset, TOKENS, extra);
    queue_mem_add_record(NAME, &r);
}

static void records_add(void)
{
    for (int32_t source = 0; source < SOURCES; source++)
        for (int64_t offset = 0; offset < RECORDS; offset++)
            record_add(source, offset, "", NULL, 0);
    queue_mem_group(NAME);
}

static struct pipeline *worker_start(void)
{
    struct pipeline_job job = { .model_path = model_path, .name = "tiny", .queue = { .url = "mem:" NAME } };
    struct pipeline *p;
    struct error err;
    int exit_code;

    if (pipeline_open(&cfg, &job, &p, &exit_code, &err) != ST_OK)
        fail_msg("%s", err.text);
    pipeline_start(p);
    return p;
}

static void worker_drain(struct pipeline *p, int finish_ms)
{
    int64_t now = clock_mono_ns();
    struct drain_plan plan = { now + finish_ms * NS_PER_MS, now + (finish_ms + 5000) * NS_PER_MS,
                               now + (finish_ms + 5000) * NS_PER_MS, now + (finish_ms + 6000) * NS_PER_MS };

    pipeline_drain(p, &plan);
}

static struct pipeline_counts worker_end(struct pipeline *p)
{
    struct pipeline_counts counts;
    struct error err = { "" };
    int code = pipeline_join(p, &err);

    if (code != EXIT_CODE_DONE)
        fail_msg("exit code %d: %s", code, err.text);
    pipeline_read_counts(p, &counts);
    pipeline_close(p);
    return counts;
}

static size_t results_n(void)
{
    const struct queue_mem_result *results;

    return queue_mem_results(NAME, &results);
}

static void results_wait(size_t n)
{
    for (int ms = 0; results_n() < n; ms += 5) {
        if (ms > 60000)
            fail_msg("%zu of %zu results after a minute", results_n(), n);
        sleep_ms(5);
    }
}

static void tokens_wait(struct pipeline *p, int64_t n)
{
    struct pipeline_counts c;

    do {
        sleep_ms(1);
        pipeline_read_counts(p, &c);
    } while (c.engine.output_tokens < n);
}

static char *answer_text(const struct queue_mem_result *r)
{
    const char *from = strstr(r->value, "\"text\":\""), *to = from != NULL ? strstr(from, "\",\"logprobs\"") : NULL;

    assert_non_null(to);
    return strndup(from, (size_t)(to - from));
}

static const char *header_of(const struct queue_mem_result *r, const char *name)
{
    for (size_t i = 0; i < r->headers_n; i++)
        if (strcmp(r->headers[i].name, name) == 0)
            return r->headers[i].value;
    return NULL;
}

/* Every record once, with the text of the undisturbed run. */
static void results_check(void)
{
    const struct queue_mem_result *results;
    size_t n = queue_mem_results(NAME, &results);
    bool seen[SOURCES][RECORDS] = { { false } };

    assert_int_equal(n, SOURCES * RECORDS);
    for (size_t i = 0; i < n; i++) {
        const struct queue_mem_result *r = &results[i];
        char *text = answer_text(r);

        assert_int_equal(r->kind, RESULT_OUTPUT);
        assert_false(seen[r->source][r->offset]);
        seen[r->source][r->offset] = true;
        if (answers[r->source][r->offset] == NULL)
            answers[r->source][r->offset] = strdup(text);
        assert_string_equal(text, answers[r->source][r->offset]);
        assert_string_equal(header_of(r, "ns-finish"), "length");
        assert_string_equal(header_of(r, "ns-model"), "tiny");
        assert_int_equal(strlen(header_of(r, "ns-hash")), 16);
        free(text);
    }
}

static uint64_t job_of(struct pipeline *p)
{
    return hash64(pipeline_queue(p)->job, strlen(pipeline_queue(p)->job), 0);
}

static struct ckpt *store_open(void)
{
    struct ckpt *c;
    struct error err;

    assert_int_equal(ckpt_open("mem:" NAME, NULL, &c, &err), ST_OK);
    return c;
}

/* Starts that nobody has taken back, over all records. */
static int starts_stand(uint64_t job)
{
    struct ckpt *c = store_open();
    int n = 0;

    for (int32_t source = 0; source < SOURCES; source++)
        for (int64_t offset = 0; offset < RECORDS; offset++) {
            struct ckpt_key key = { job, source, offset, 0 };
            struct ckpt_attempts a;

            assert_int_equal(ckpt_attempts(c, &key, 1, &a), ST_OK);
            n += a.starts;
        }
    ckpt_close(c);
    return n;
}

/* ---- cases ---- */

static void undisturbed(void **state)
{
    struct pipeline_counts c;
    struct pipeline_beats b;
    struct pipeline *p;
    (void)state;

    records_add();
    p = worker_start();
    results_wait(SOURCES * RECORDS);
    pipeline_read_beats(p, &b);
    worker_drain(p, 0);
    c = worker_end(p);
    results_check();
    assert_int_equal(c.done_n, SOURCES * RECORDS);
    assert_int_equal(c.queue.dead_n, 0);
    assert_true(c.queue.commits_n > 0 && b.step_ns > 0 && b.poll_ns > 0 && c.ckpt.up);
    assert_int_equal(queue_mem_owner(NAME, 0), 0);             /* it has left */
}

/* A source goes to another worker while its records run: their tokens come along. */
static void a_source_moves(void **state)
{
    struct pipeline_counts ca, cb;
    struct pipeline *a, *b;
    (void)state;

    records_add();
    a = worker_start();
    tokens_wait(a, SOURCES * RECORDS * TOKENS / 3);
    queue_mem_assign(NAME, 1, 2, false);
    b = worker_start();
    results_wait(SOURCES * RECORDS);
    worker_drain(a, 0);
    worker_drain(b, 0);
    ca = worker_end(a);
    cb = worker_end(b);
    results_check();
    assert_true(cb.done_n > 0 && ca.done_n >= RECORDS);
    assert_int_equal(ca.done_n + cb.done_n, SOURCES * RECORDS);
    assert_int_equal(cb.resumed_n, cb.done_n);
    assert_true(cb.engine.resumed_tokens > 0);
    assert_int_equal(ca.results_lost_n, 0);
    /* saved first, then given away: nothing at all is made twice */
    assert_int_equal(ca.engine.output_tokens + cb.engine.output_tokens, SOURCES * RECORDS * TOKENS);
    assert_int_equal(cb.engine.lane_n, 0);
}

/* The owner learns too late: whatever it still makes of the source is not published. */
static void a_source_is_lost(void **state)
{
    struct pipeline_counts ca, cb;
    struct pipeline *a, *b;
    (void)state;

    records_add();
    a = worker_start();
    tokens_wait(a, SOURCES * RECORDS * TOKENS / 2);
    queue_mem_assign(NAME, 0, 2, true);
    b = worker_start();
    results_wait(SOURCES * RECORDS);
    worker_drain(a, 0);
    worker_drain(b, 0);
    ca = worker_end(a);
    cb = worker_end(b);
    results_check();
    assert_int_equal(ca.done_n + cb.done_n, SOURCES * RECORDS);
}

/* Back and forth, all the time. */
static void storm(void **state)
{
    struct pipeline *a, *b;
    (void)state;

    records_add();
    a = worker_start();
    b = worker_start();
    for (int i = 0; results_n() < SOURCES * RECORDS; i++) {
        queue_mem_assign(NAME, i % SOURCES, 1 + i / 2 % 2, i % 3 == 0);
        sleep_ms(30 + i % 40);
        if (i > 2000)
            fail_msg("%zu results only", results_n());
    }
    worker_drain(a, 0);
    worker_drain(b, 0);
    worker_end(a);
    worker_end(b);
    results_check();
}

static void commits_are_refused(void **state)
{
    struct pipeline_counts c;
    struct pipeline *p;
    (void)state;

    records_add();
    queue_mem_fail(NAME, 1, 6);
    p = worker_start();
    results_wait(SOURCES * RECORDS);
    worker_drain(p, 0);
    c = worker_end(p);
    results_check();
    assert_int_equal(c.done_n, SOURCES * RECORDS);
    assert_int_equal(c.engine.output_tokens, SOURCES * RECORDS * TOKENS);      /* kept, not made again */
}

/* Another writer came by with a newer token: acquired again. Then the store forgets everything, and goes away for a while. */
static void fences_fall_and_stores_fail(void **state)
{
    struct pipeline *p;
    struct ckpt *c;
    uint64_t token;
    (void)state;

    records_add();
    p = worker_start();
    tokens_wait(p, SOURCES * RECORDS * TOKENS / 5);
    c = store_open();
    assert_int_equal(ckpt_acquire(c, job_of(p), 0, &token), ST_OK);
    ckpt_close(c);
    tokens_wait(p, SOURCES * RECORDS * TOKENS * 2 / 5);
    ckpt_mem_lose(NAME);
    tokens_wait(p, SOURCES * RECORDS * TOKENS * 3 / 5);
    ckpt_mem_fail(NAME, CKPT_MEM_ANSWER_LOST, 0, 5);
    results_wait(SOURCES * RECORDS);
    worker_drain(p, 0);
    worker_end(p);
    results_check();
}

/* A drain in the middle: what runs is saved and handed over, the next worker goes on and knows of no death. */
static void a_drain_hands_over(void **state)
{
    struct pipeline_counts ca, cb;
    struct pipeline *p;
    uint64_t job;
    (void)state;

    records_add();
    p = worker_start();
    job = job_of(p);
    tokens_wait(p, SOURCES * RECORDS * TOKENS / 3);
    assert_true(starts_stand(job) > 0);
    worker_drain(p, 0);
    ca = worker_end(p);
    assert_int_equal(starts_stand(job), 0);
    assert_true(results_n() < SOURCES * RECORDS);
    queue_mem_assign(NAME, 0, 2, false);
    queue_mem_assign(NAME, 1, 2, false);
    p = worker_start();
    results_wait(SOURCES * RECORDS);
    worker_drain(p, 0);
    cb = worker_end(p);
    results_check();
    assert_int_equal(ca.engine.output_tokens + cb.engine.output_tokens, SOURCES * RECORDS * TOKENS);
    assert_int_equal(starts_stand(job), 0);
}

/* With time to finish, what runs ends and is committed. */
static void a_long_drain_finishes(void **state)
{
    struct pipeline_counts c;
    struct pipeline *p;
    (void)state;

    records_add();
    cfg.sequences_max = 8;
    p = worker_start();
    tokens_wait(p, 8 * TOKENS / 2);
    worker_drain(p, 60000);
    c = worker_end(p);
    cfg.sequences_max = 96;
    assert_int_equal(results_n(), c.done_n);
    assert_true(c.done_n >= 8 && c.done_n < SOURCES * RECORDS);
    assert_int_equal(c.engine.output_tokens, c.done_n * TOKENS);
}

/* Deadlines, priorities, a line that was set aside, one that cannot be read. */
static void fates(void **state)
{
    const struct header past[] = { { "ns-deadline", "1700000000000", 13 } };
    const struct header *none = NULL;
    const struct queue_mem_result *results;
    struct pipeline *p;
    struct ckpt_key key;
    struct ckpt *c = store_open();
    struct ckpt_attempts a;
    uint64_t token, job;
    int found = 0;
    (void)state;

    record_add(0, 0, "", none, 0);
    record_add(0, 1, "", past, 1);
    record_add(0, 2, ",\"nonsense\":1", none, 0);
    record_add(0, 3, "", none, 0);
    queue_mem_group(NAME);
    queue_mem_assign(NAME, 0, 0, true);        /* not yet */
    p = worker_start();
    job = job_of(p);
    key = (struct ckpt_key){ job, 0, 3, 0 };
    assert_int_equal(ckpt_acquire(c, job, 0, &token), ST_OK);
    for (uint64_t run = 71; run < 73; run++)
        assert_int_equal(ckpt_begin(c, token, &key, 1, true, run, &a), ST_OK);
    ckpt_close(c);
    queue_mem_assign(NAME, 0, 1, false);
    results_wait(4);
    worker_drain(p, 0);
    worker_end(p);
    assert_int_equal(queue_mem_results(NAME, &results), 4);
    for (int i = 0; i < 4; i++) {
        const struct queue_mem_result *r = &results[i];

        switch (r->offset) {
        case 0:
            assert_int_equal(r->kind, RESULT_OUTPUT);
            assert_string_equal(header_of(r, "ns-attempt"), "1");
            assert_string_equal(header_of(r, "ns-resumed-tokens"), "0");
            assert_null(header_of(r, "ns-error"));
            break;
        case 1:
            assert_int_equal(r->kind, RESULT_OUTPUT);
            assert_string_equal(header_of(r, "ns-finish"), "expired");
            break;
        case 2:
            assert_int_equal(r->kind, RESULT_FAILURE);
            assert_string_equal(header_of(r, "ns-finish"), "error");
            assert_string_equal(header_of(r, "ns-error-class"), "unknown_field");
            assert_non_null(strstr(header_of(r, "ns-error"), "nonsense"));
            break;
        case 3:
            assert_int_equal(r->kind, RESULT_FAILURE);
            assert_string_equal(header_of(r, "ns-error-class"), "quarantined");
            assert_string_equal(header_of(r, "ns-attempts"), "2");
            assert_string_equal(header_of(r, "ns-solo-crashes"), "2");
            assert_string_equal(header_of(r, "ns-last-run"), "0000000000000048");
            break;
        }
        found |= 1 << r->offset;
    }
    assert_int_equal(found, 15);
}

/* ---- the frame ---- */

static int model_make(void **state)
{
    struct tiny_options o;
    (void)state;

    snprintf(model_path, sizeof model_path, "pipeline_group_%d.gguf", (int)getpid());
    tiny_model_defaults(&o);
    tiny_model_write(model_path, &o);
    config_defaults(&cfg);
    strcpy(cfg.checkpoint_url, "mem:" NAME);
    cfg.threads = 1;
    cfg.kv_pages_max = 4000;
    cfg.txn_ms = 20;
    return 0;
}

static int model_remove(void **state)
{
    (void)state;
    for (int i = 0; i < SOURCES * RECORDS; i++)
        free(answers[i / RECORDS][i % RECORDS]);
    return unlink(model_path);
}

static int world_end(void **state)
{
    (void)state;
    queue_mem_drop(NAME);
    ckpt_mem_drop(NAME);
    return 0;
}

#define CASE(f) cmocka_unit_test_teardown(f, world_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(undisturbed), CASE(a_source_moves), CASE(a_source_is_lost), CASE(storm), CASE(commits_are_refused),
        CASE(fences_fall_and_stores_fail), CASE(a_drain_hands_over), CASE(a_long_drain_finishes), CASE(fates),
    };

    log_level_set(LOG_ERROR);
    return cmocka_run_group_tests(tests, model_make, model_remove);
}
