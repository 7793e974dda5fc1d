/* The mem queue as a group: sources go to another member and come back, under a new lease, and a result of a holding that is
 * over is not durable. Alone: takeovers. And the times of commits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "queue/commit_times.h"
#include "queue/mem.h"

#define NAME "queue-mem"

struct told { char text[512]; bool give_while_lost; struct queue *q; struct record *rec; };

static void told_add(struct told *t, const char *what, int32_t source, uint32_t lease)
{
    size_t n = strlen(t->text);

    snprintf(t->text + n, sizeof t->text - n, "%s%d.%u ", what, source, lease);
}

static void on_gained(void *ctx, int32_t source, uint32_t lease)
{
    told_add(ctx, "+", source, lease);
}

static status commit_try(struct queue *q, const struct record *rec, bool *durable)
{
    char id[64], line[128];
    struct result r = { .record = rec, .value = line };

    *durable = false;
    queue_result_id(q, rec->source, rec->offset, id);
    r.value_n = (size_t)snprintf(line, sizeof line, "{\"id\":\"%s\"}", id);
    return queue_commit(q, &r, 1, durable, NULL);
}

static bool commit(struct queue *q, const struct record *rec)
{
    bool durable;

    assert_int_equal(commit_try(q, rec, &durable), ST_OK);
    return durable;
}

static void on_lost(void *ctx, int32_t source, uint32_t lease, bool already)
{
    struct told *t = ctx;

    told_add(t, already ? "!" : "-", source, lease);
    if (t->rec != NULL && t->rec->source == source)
        assert_true(commit(t->q, t->rec) != already);      /* ours until this call returns, unless it is late */
}

static struct queue *member(struct queue_events *events, struct told *t)
{
    struct queue_job job = { .url = "mem:" NAME, .fingerprint = "{}", .events = events };
    struct config cfg;
    struct queue *q;
    struct error err;

    config_defaults(&cfg);
    *events = (struct queue_events){ .ctx = t, .gained = on_gained, .lost = on_lost };
    memset(t, 0, sizeof *t);
    assert_int_equal(queue_open(&cfg, &job, &q, &err), ST_OK);
    t->q = q;
    return q;
}

static struct record *polled(struct queue *q, int32_t source, int64_t offset)
{
    struct record *rec = NULL;
    struct error err;

    assert_int_equal(queue_poll(q, 0, &rec, &err), ST_OK);
    assert_int_equal(rec->source, source);
    assert_int_equal(rec->offset, offset);
    return rec;
}

static void nothing(struct queue *q)
{
    struct record *rec = NULL;
    struct error err;

    assert_int_equal(queue_poll(q, 0, &rec, &err), ST_AGAIN);
}

static int records_add(void **state)
{
    (void)state;
    for (int32_t source = 0; source < 2; source++)
        for (int64_t offset = 0; offset < 3; offset++)
            queue_mem_add(NAME, source, offset, "{}", 2);
    queue_mem_group(NAME);
    return 0;
}

static int store_drop(void **state)
{
    (void)state;
    queue_mem_drop(NAME);
    return 0;
}

static void sources_move(void **state)
{
    struct queue_events ea, eb;
    struct told a, b;
    struct queue *qa = member(&ea, &a), *qb = member(&eb, &b);
    struct record *r0 = polled(qa, 0, 0), *r1 = polled(qa, 1, 0), *next;
    struct queue_counts counts;
    (void)state;

    assert_string_equal(a.text, "+0.1 +1.1 ");
    nothing(qb);
    queue_mem_assign(NAME, 1, 2, false);
    nothing(qb);                                       /* the owner does not know it yet */
    a.rec = r1;
    next = polled(qa, 0, 1);                           /* learns it, and commits what it has of it */
    queue_record_give(qa, next);
    assert_string_equal(a.text, "+0.1 +1.1 -1.1 ");
    queue_record_give(qb, polled(qb, 1, 1));           /* 1.0 is done */
    assert_string_equal(b.text, "+1.1 ");
    assert_false(commit(qa, r1));
    /* taken without a word: what was polled before is not durable, also when the source has come back meanwhile */
    a.rec = NULL;
    queue_mem_assign(NAME, 0, 0, true);
    assert_false(commit(qa, r0));
    queue_mem_assign(NAME, 0, 1, false);
    next = polled(qa, 0, 0);
    assert_string_equal(a.text, "+0.1 +1.1 -1.1 -0.1 +0.2 ");
    assert_int_equal(next->lease, 2);
    assert_false(commit(qa, r0));
    assert_true(commit(qa, next));
    queue_read_counts(qa, &counts);
    assert_int_equal(counts.sources_n, 1);
    assert_int_equal(counts.lag_n, 2);
    assert_int_equal(counts.rebalances_n, 2);
    /* leaving frees the sources; the group never ends by itself */
    assert_false(queue_ended(qa));
    queue_stop_taking(qa);
    assert_true(queue_ended(qa));
    nothing(qa);
    queue_leave(qa, 0);
    assert_int_equal(queue_mem_owner(NAME, 0), 0);
    assert_int_equal(queue_mem_owner(NAME, 1), 2);
    queue_record_give(qa, r0);
    queue_record_give(qa, r1);
    queue_record_give(qa, next);
    queue_close(qa);
    queue_close(qb);
}

static void lost_too_late(void **state)
{
    struct queue_events ea;
    struct told a;
    struct queue *qa = member(&ea, &a);
    struct record *rec = polled(qa, 0, 0);
    (void)state;

    a.rec = rec;
    queue_mem_assign(NAME, 0, 7, true);
    queue_record_give(qa, polled(qa, 1, 0));
    assert_string_equal(a.text, "+0.1 +1.1 !0.1 ");
    queue_record_give(qa, rec);
    queue_close(qa);
}

/* Alone: the last one that opened it has everything, from where the marks say; a refused commit leaves nothing behind. */
static void a_takeover(void **state)
{
    struct queue_events ea, eb;
    struct told a, b;
    const struct queue_mem_result *results;
    struct queue *qa, *qb;
    struct record *r3, *r9;
    bool durable;
    (void)state;

    queue_mem_add(NAME, 0, 3, "{}", 2);
    queue_mem_add(NAME, 0, 4, NULL, 0);
    queue_mem_add(NAME, 0, 9, "{}", 2);
    queue_mem_add(NAME, 0, 10, "{}", 2);
    queue_mem_end(NAME);
    qa = member(&ea, &a);
    r3 = polled(qa, 0, 3);
    r9 = polled(qa, 0, 9);
    assert_true(commit(qa, r9));                       /* above the lowest open one: in the bitmap */
    queue_mem_fail(NAME, 0, 1);
    assert_int_equal(commit_try(qa, r3, &durable), ST_RETRY);
    assert_false(durable);
    assert_int_equal(queue_mem_results(NAME, &results), 1);
    qb = member(&eb, &b);
    assert_int_equal(commit_try(qa, r3, &durable), ST_FENCED);
    assert_int_equal(queue_mem_results(NAME, &results), 1);
    queue_record_give(qa, r3);
    queue_record_give(qa, r9);
    queue_close(qa);
    r3 = polled(qb, 0, 3);
    assert_false(queue_ended(qb));
    r9 = polled(qb, 0, 10);
    assert_true(queue_ended(qb));
    assert_true(commit(qb, r9));
    assert_true(commit(qb, r3));
    queue_record_give(qb, r3);
    queue_record_give(qb, r9);
    queue_close(qb);
    assert_int_equal(queue_mem_results(NAME, &results), 3);
}

static void times_are_told(void **state)
{
    static struct commit_times t;
    struct queue_counts c = { 0 };
    int64_t now = 7 * NS_PER_S;
    (void)state;

    commit_times_read(&t, &c);
    assert_int_equal(c.commit_ms_p99, 0);
    for (int i = 1; i <= 1000; i++) {
        commit_times_begin(&t, now);
        commit_times_read(&t, &c);
        assert_int_equal(c.pending_since_ns, now);
        now += i * NS_PER_MS;
        commit_times_end(&t, now, true);
    }
    commit_times_begin(&t, now);
    commit_times_end(&t, now + 3600 * NS_PER_S, false);        /* refused: no commit */
    commit_times_read(&t, &c);
    assert_int_equal(c.commits_n, 1000);
    assert_int_equal(c.commit_ms_last, 1000);
    assert_int_equal(c.commit_ms_max, 1000);
    assert_int_equal(c.last_commit_ns, now);
    assert_int_equal(c.pending_since_ns, 0);
    assert_in_range(c.commit_ms_p99, 990, 1000);
    for (int i = 0; i < 20000; i++) {                          /* what was slow fades */
        commit_times_begin(&t, now);
        commit_times_end(&t, now + 5 * NS_PER_MS, true);
    }
    commit_times_read(&t, &c);
    assert_int_equal(c.commit_ms_p99, 5);
    assert_int_equal(c.commit_ms_max, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sources_move, records_add, store_drop),
        cmocka_unit_test_setup_teardown(lost_too_late, records_add, store_drop),
        cmocka_unit_test_teardown(a_takeover, store_drop),
        cmocka_unit_test(times_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
