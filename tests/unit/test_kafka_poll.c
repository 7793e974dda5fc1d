/* The Kafka queue's poll side against a scripted client: windows, pauses, held records, where a partition begins, how it goes. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "queue/kafka/internal.h"
#include "tests/support/kafka_script.h"

static struct script s;

static int setup(void **state)
{
    (void)state;
    script_init(&s);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    script_fini(&s);
    return 0;
}

static void bytes_pass_as_they_came(void **state)
{
    const struct header in[] = { { "a", "1", 1 }, { "a", "\0\xff", 2 }, { "null", NULL, 0 }, { "empty", "", 0 } };
    struct record *r;

    (void)state;
    script_open(&s);
    script_assign(&s, 0, 1);
    assert_string_equal(script_calls(&s), "COMMITTED ASSIGN ");
    assert_true(s.assigned[0] == KAFKA_EARLIEST);
    s.event = (struct kafka_event){ .kind = KAFKA_MESSAGE };
    s.event.message = (struct kafka_message){ 0, 5, 77, "", 0, "", 0, in, 4 };
    r = script_poll(&s);
    assert_non_null(r);
    assert_true(r->key != NULL && r->key_n == 0 && r->value != NULL && r->value_n == 0);      /* empty is not NULL */
    assert_true(r->source == 0 && r->offset == 5 && r->timestamp_ms == 77 && r->lease == 1 && r->at_bytes == -1 && !r->oversize);
    assert_int_equal(r->headers_n, 4);
    assert_memory_equal(r->headers[1].value, "\0\xff", 2);
    assert_true(r->headers[2].value == NULL && r->headers[3].value != NULL && r->headers[3].value_n == 0);
    kafka_record_free(r);
    s.event.kind = KAFKA_MESSAGE;
    s.event.message = (struct kafka_message){ .partition = 0, .offset = 6, .timestamp_ms = -1, .value = "v", .value_n = 1 };
    r = script_poll(&s);
    assert_true(r->key == NULL && r->timestamp_ms == 0);
    kafka_record_free(r);
}

static void window_pauses_and_resumes(void **state)
{
    struct record *r[100];
    bool durable[100];

    (void)state;
    s.cfg.plan_window_max = 100;
    script_open(&s);
    script_assign(&s, 0, 1);
    for (int i = 0; i < 100; i++) {
        assert_false(s.paused[0]);
        r[i] = script_message(&s, 0, i, "x");
        assert_non_null(r[i]);
    }
    assert_true(s.paused[0]);
    assert_int_equal(script_commit(&s, r + 50, 50, durable), ST_OK);      /* the LWM stays */
    assert_null(script_poll(&s));
    assert_true(s.paused[0]);
    assert_int_equal(script_commit(&s, r, 29, durable), ST_OK);
    assert_null(script_poll(&s));
    assert_true(s.paused[0]);                                             /* 71 %: not yet */
    assert_int_equal(script_commit(&s, r + 29, 1, durable), ST_OK);
    assert_null(script_poll(&s));
    assert_false(s.paused[0]);
    for (int i = 0; i < 100; i++)
        kafka_record_free(r[i]);
}

static void records_beyond_the_window_wait(void **state)
{
    struct record *first, *r[3];
    bool durable[3];

    (void)state;
    s.cfg.plan_window_max = 100;
    script_open(&s);
    script_assign(&s, 0, 1);
    first = script_message(&s, 0, 10, "x");
    assert_null(script_message(&s, 0, 500, "far"));       /* a wide gap */
    assert_true(s.paused[0]);
    assert_null(script_message(&s, 0, 501, NULL));        /* was on its way: waits behind it, in order */
    assert_null(script_message(&s, 0, 502, "near it"));
    assert_null(script_poll(&s));
    assert_int_equal(script_commit(&s, &first, 1, durable), ST_OK);
    r[0] = script_poll(&s);
    assert_true(r[0] != NULL && r[0]->offset == 500);
    r[1] = script_poll(&s);
    assert_true(r[1] != NULL && r[1]->offset == 502);     /* 501 is a tombstone */
    assert_null(script_poll(&s));
    assert_false(s.paused[0]);
    assert_int_equal(script_commit(&s, r, 2, durable), ST_OK);
    assert_true(s.committed[0].offset == 503);
    kafka_record_free(first);
    kafka_record_free(r[0]);
    kafka_record_free(r[1]);
}

static void tombstones_and_doubles_are_passed_over(void **state)
{
    struct queue_counts counts = { .sources_n = 0 };
    struct record *r;
    bool durable;

    (void)state;
    script_open(&s);
    script_assign(&s, 0, 1);
    assert_null(script_message(&s, 0, 0, NULL));
    r = script_message(&s, 0, 1, "x");
    assert_null(script_message(&s, 0, 2, NULL));
    assert_null(script_message(&s, 0, 1, "x"));           /* #4686 */
    assert_int_equal(script_commit(&s, &r, 1, &durable), ST_OK);
    assert_true(s.committed[0].offset == 3);
    kafka_core_counts(s.core, &counts);
    assert_true(counts.skipped_n == 2 && counts.sources_n == 1 && counts.lag_n == 0 && counts.commits_n == 1);
    kafka_record_free(r);
}

/* Leaves offset 0 open and 1 done, gives the partition away, and changes what stands at the committed offset by `value`. */
static struct record *taken_again(const char *value, int64_t offset)
{
    struct record *r[2];
    bool durable;

    script_open(&s);
    script_assign(&s, 0, 1);
    r[0] = script_message(&s, 0, 0, "zero");
    r[1] = script_message(&s, 0, 1, "one");
    assert_int_equal(script_commit(&s, r + 1, 1, &durable), ST_OK);
    kafka_record_free(r[0]);
    kafka_record_free(r[1]);
    assert_true(s.committed[0].offset == 0 && strlen(s.committed[0].metadata) > 12);
    script_event(&s, KAFKA_REVOKED, 0);
    assert_null(script_poll(&s));
    script_assign(&s, 0, 1);
    assert_true(s.assigned[0] == 0);
    return script_message(&s, 0, offset, value);
}

static void marks_are_taken_up(void **state)
{
    struct record *r = taken_again("zero", 0);

    (void)state;
    assert_non_null(r);
    assert_int_equal(r->lease, 2);
    assert_null(script_message(&s, 0, 1, "one"));         /* done before */
    assert_false(s.paused[0]);
    assert_true(s.gained_n == 2 && s.lost_n == 1 && !s.lost_already);
    kafka_record_free(r);
}

static void another_record_there_stops_the_partition(void **state)
{
    (void)state;
    assert_null(taken_again("another topic", 0));
    assert_true(s.paused[0]);
    assert_null(script_message(&s, 0, 1, "one"));
    assert_null(script_message(&s, 0, 2, "two"));
}

static void a_missing_record_does_not(void **state)
{
    struct record *r = taken_again("two", 2);

    (void)state;
    assert_true(r != NULL && r->offset == 2);
    assert_false(s.paused[0]);
    kafka_record_free(r);
}

static void what_was_committed_stays_until_its_record_comes(void **state)
{
    char before[8192];

    (void)state;
    assert_null(taken_again("one", 1));       /* the record at the LWM comes late: that would be "missing" */
    strcpy(before, s.committed[0].metadata);
    script_event(&s, KAFKA_REVOKED, 0);
    script_poll(&s);
    script_assign(&s, 0, 1);
    s.now_ns += (s.cfg.kafka_recommit_s + 1) * NS_PER_S;
    assert_true(kafka_commit_upkeep_due(s.core));
    assert_int_equal(script_commit(&s, NULL, 0, NULL), ST_OK);
    assert_string_equal(s.committed[0].metadata, before);
    assert_false(kafka_commit_upkeep_due(s.core));
}

static void foreign_metadata(void **state)
{
    struct record *r;

    (void)state;
    s.committed[0].offset = 4;
    strcpy(s.committed[0].metadata, "W2:what is this");
    s.committed[1].offset = 4;                /* a plain commit of another tool: no metadata */
    script_open(&s);
    script_assign(&s, 0, 2);
    assert_true(s.paused[0] && s.paused[1] && s.gained_n == 0);
    assert_null(script_message(&s, 0, 4, "x"));
    assert_null(script_message(&s, 1, 4, "x"));
    kafka_core_close(s.core);
    s.paused[0] = s.paused[1] = false;
    s.cfg.kafka_ignore_foreign_metadata = 1;
    script_open(&s);
    script_assign(&s, 0, 2);
    assert_true(s.gained_n == 2 && s.assigned[0] == 4);
    assert_null(script_message(&s, 0, 3, "below"));
    r = script_message(&s, 0, 4, "x");
    assert_non_null(r);
    kafka_record_free(r);
}

static void small_metadata_makes_a_small_window(void **state)
{
    char wide[2048] = "W1:-:";
    struct record *r[600];
    bool durable[600];
    int n = 0;

    (void)state;
    s.metadata_max = 128;
    script_open(&s);
    script_assign(&s, 0, 1);
    while (n < 600 && !s.paused[0])
        r[n] = script_message(&s, 0, n, "x"), n++;
    assert_int_equal(n, (128 - 32) * 6);
    assert_int_equal(script_commit(&s, r + 1, (size_t)n - 1, durable), ST_OK);
    assert_true(strlen(s.committed[0].metadata) <= 128 && strlen(s.committed[0].metadata) > 100);
    for (int i = 0; i < n; i++)
        kafka_record_free(r[i]);
    /* A bitmap from when the broker kept more could never be committed again: refused in words. */
    memset(wide + 5, 'A', 400);
    memcpy(wide + 5 + 396, "AAAB", 5);
    s.committed[3].offset = 0;
    strcpy(s.committed[3].metadata, wide);
    script_assign(&s, 3, 4);
    assert_true(s.paused[3]);
}

static void no_answer_about_commits_is_waited_for(void **state)
{
    struct error err;
    struct record *r;
    bool busy = false;

    (void)state;
    script_answer(&s, "COMMITTED", KAFKA_UNKNOWN);
    script_answer(&s, "COMMITTED", KAFKA_REFUSED);
    script_open(&s);
    s.ids[0] = 0;
    s.event = (struct kafka_event){ .kind = KAFKA_ASSIGNED, .partitions = s.ids, .partitions_n = 1 };
    script_poll(&s);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kafka_core_poll(s.core, 10, &r, &busy, &err), ST_AGAIN);
        assert_true(busy);
    }
    assert_string_equal(script_calls(&s), "COMMITTED ");      /* not asked again at once */
    s.now_ns += NS_PER_S;
    script_poll(&s);
    s.now_ns += 2 * NS_PER_S;
    assert_int_equal(kafka_core_poll(s.core, 10, &r, &busy, &err), ST_AGAIN);
    assert_false(busy);
    assert_string_equal(script_calls(&s), "COMMITTED COMMITTED ASSIGN ");
}

static void offset_gone_stops(void **state)
{
    (void)state;
    script_open(&s);
    script_assign(&s, 0, 2);
    script_event(&s, KAFKA_OFFSET_GONE, 0);
    assert_true(s.paused[0] && !s.paused[1]);
    assert_null(script_message(&s, 0, 9, "x"));
}

static void stop_taking(void **state)
{
    (void)state;
    script_open(&s);
    script_assign(&s, 0, 2);
    kafka_core_stop(s.core);
    assert_null(script_message(&s, 0, 0, "was on its way"));
    assert_true(s.paused[0] && s.paused[1] && kafka_core_stopped(s.core));
    script_assign(&s, 2, 3);                  /* comes while draining: held, and gives nothing */
    assert_true(s.paused[2]);
    assert_null(script_message(&s, 2, 0, "x"));
}

static void pause_by_the_caller(void **state)
{
    struct record *r;

    (void)state;
    script_open(&s);
    script_assign(&s, 0, 1);
    kafka_core_pause(s.core, 0, true);
    kafka_core_pause(s.core, 0, true);
    assert_true(s.paused[0]);
    assert_null(script_message(&s, 0, 0, "was on its way"));
    kafka_core_pause(s.core, 0, false);
    r = script_poll(&s);
    assert_true(r != NULL && r->offset == 0);
    assert_null(script_poll(&s));
    assert_false(s.paused[0]);
    kafka_record_free(r);
    kafka_core_pause(s.core, 5, true);        /* not ours */
}

/* Inside `gained` there is nothing to pause yet; it holds as soon as there is. */
static void paused_as_it_comes(void **state)
{
    (void)state;
    s.pause_gained = true;
    script_open(&s);
    script_assign(&s, 0, 2);
    assert_true(s.paused[0] && s.paused[1]);
    assert_string_equal(script_calls(&s), "COMMITTED ASSIGN PAUSE PAUSE ");
    kafka_core_pause(s.core, 1, false);
    assert_false(s.paused[1]);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(bytes_pass_as_they_came), TEST(window_pauses_and_resumes), TEST(records_beyond_the_window_wait),
        TEST(tombstones_and_doubles_are_passed_over), TEST(marks_are_taken_up), TEST(another_record_there_stops_the_partition),
        TEST(a_missing_record_does_not), TEST(what_was_committed_stays_until_its_record_comes), TEST(foreign_metadata),
        TEST(small_metadata_makes_a_small_window), TEST(no_answer_about_commits_is_waited_for), TEST(offset_gone_stops),
        TEST(stop_taking), TEST(pause_by_the_caller), TEST(paused_as_it_comes),
    };

    log_level_set(LOG_NONE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
