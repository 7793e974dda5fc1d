/* The Kafka queue's committer against a scripted client: every step's answers, the guard, doubt, the budget of remakes. */
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
static struct record *r[4];
static bool durable[4];

static int setup(void **state)
{
    (void)state;
    script_init(&s);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        kafka_record_free(r[i]);
    memset(r, 0, sizeof r);
    script_fini(&s);
    return 0;
}

/* Partitions 0 and 1 with two records each; the producer is ready. */
static void begin(void)
{
    script_open(&s);
    script_assign(&s, 0, 2);
    r[0] = script_message(&s, 0, 0, "a");
    r[1] = script_message(&s, 0, 1, "b");
    r[2] = script_message(&s, 1, 0, "c");
    r[3] = script_message(&s, 1, 1, "d");
    assert_int_equal(kafka_core_probe(s.core, 0, &(struct error){ "" }), ST_REJECT);      /* accepts: a mock would */
    script_calls(&s);
}

static void assert_durable(int n)
{
    for (int i = 0; i < n; i++)
        assert_true(durable[i]);
}

static void one_transaction(void **state)
{
    (void)state;
    begin();
    assert_int_equal(script_commit(&s, r + 1, 2, durable), ST_OK);
    assert_durable(2);
    assert_string_equal(script_calls(&s), "begin produce produce offsets commit ");
    assert_true(s.committed[0].offset == 0 && strncmp(s.committed[0].metadata, "W1:", 3) == 0 && s.committed[0].metadata[3] != '-');
    assert_true(s.committed[1].offset == 1);
    assert_int_equal(script_commit(&s, r, 1, durable), ST_OK);
    assert_true(s.committed[0].offset == 2 && strcmp(s.committed[0].metadata, "W1:-:") == 0);
    assert_int_equal(s.produced_n, 3);
}

/* What each answer of each step leads to, and that the same results go out whole the next time. */
static void answers(void **state)
{
    static const struct { const char *step; enum kafka_answer answer; const char *calls; status st; } table[] = {
        { "begin", KAFKA_ABORT, "begin abort ", ST_RETRY },
        { "begin", KAFKA_REMAKE, "begin remake init COMMITTED begin produce produce offsets commit ", ST_OK },
        { "produce", KAFKA_AGAIN, "begin produce produce produce offsets commit ", ST_OK },
        { "produce", KAFKA_ABORT, "begin produce abort ", ST_RETRY },
        { "produce", KAFKA_REFUSED, "begin produce abort ", ST_RETRY },
        { "produce", KAFKA_REMAKE, "begin produce remake init COMMITTED begin produce produce offsets commit ", ST_OK },
        { "offsets", KAFKA_AGAIN, "begin produce produce offsets offsets commit ", ST_OK },
        { "offsets", KAFKA_ABORT, "begin produce produce offsets abort ", ST_RETRY },
        { "offsets", KAFKA_FENCED_OFFSETS, "begin produce produce offsets abort ", ST_RETRY },
        { "offsets", KAFKA_REFUSED, "begin produce produce offsets abort ", ST_RETRY },
        { "offsets", KAFKA_UNKNOWN, "begin produce produce offsets remake init COMMITTED begin produce produce offsets commit ", ST_OK },
        { "offsets", KAFKA_REMAKE, "begin produce produce offsets remake init COMMITTED begin produce produce offsets commit ", ST_OK },
        { "commit", KAFKA_AGAIN, "begin produce produce offsets commit commit ", ST_OK },
        { "commit", KAFKA_ABORT, "begin produce produce offsets commit abort ", ST_RETRY },
        { "commit", KAFKA_UNKNOWN, "begin produce produce offsets commit remake init COMMITTED begin produce produce offsets commit ", ST_OK },
        { "commit", KAFKA_REMAKE, "begin produce produce offsets commit remake init COMMITTED begin produce produce offsets commit ", ST_OK },
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        setup(NULL);
        begin();
        script_answer(&s, table[i].step, table[i].answer);
        if (script_commit(&s, r, 2, durable) != table[i].st)
            fail_msg("%s %d: another status", table[i].step, table[i].answer);
        assert_string_equal(script_calls(&s), table[i].calls);
        if (table[i].st == ST_RETRY) {
            assert_true(s.committed[0].offset == -1);
            assert_int_equal(script_commit(&s, r, 2, durable), ST_OK);
        }
        assert_durable(2);
        assert_true(s.committed[0].offset == 2);
        teardown(NULL);
    }
    setup(NULL);
}

/* A commit that ended nobody knows how, and had taken effect: the re-read tells, nothing goes out twice. */
static void unknown_was_done(void **state)
{
    (void)state;
    begin();
    s.commit_applies = true;
    script_answer(&s, "commit", KAFKA_UNKNOWN);
    assert_int_equal(script_commit(&s, r, 4, durable), ST_OK);
    assert_durable(4);
    assert_string_equal(script_calls(&s), "begin produce produce produce produce offsets commit remake init COMMITTED ");
}

/* ... also where the re-read has no answer for now, and comes with the next call, and its results. */
static void doubt_outlives_the_call(void **state)
{
    struct queue_counts counts;

    (void)state;
    begin();
    s.commit_applies = true;
    script_answer(&s, "commit", KAFKA_UNKNOWN);
    for (int i = 0; i < 60; i++)
        script_answer(&s, "COMMITTED", KAFKA_UNKNOWN);
    s.cfg.txn_timeout_ms = 1000;
    assert_int_equal(script_commit(&s, r, 2, durable), ST_RETRY);
    script_calls(&s);
    s.answers_n = 0;
    assert_int_equal(script_commit(&s, r, 4, durable), ST_OK);
    assert_durable(4);
    assert_string_equal(script_calls(&s), "COMMITTED begin produce produce offsets commit ");      /* of the other partition */
    kafka_core_counts(s.core, &counts);
    assert_true(counts.producers_remade_n == 1 && counts.commits_n == 1);
}

/* Found by sim_kafka: the abort that follows fails, and the commit had been carried out. */
static void failed_abort_is_doubt(void **state)
{
    (void)state;
    begin();
    s.commit_applies = true;
    script_answer(&s, "commit", KAFKA_ABORT);
    script_answer(&s, "abort", KAFKA_REMAKE);
    assert_int_equal(script_commit(&s, r, 2, durable), ST_OK);
    assert_durable(2);
    assert_string_equal(script_calls(&s), "begin produce produce offsets commit abort remake init COMMITTED ");
}

static void guard_wants_a_member(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < 3; i++) {
        const struct kafka_group good = s.group;

        if (i == 0)
            s.group.generation = -1;
        else if (i == 1)
            s.group.member[0] = '\0';
        else
            s.group.lost = true;
        assert_int_equal(script_commit(&s, r, 2, durable), ST_RETRY);
        assert_string_equal(script_calls(&s), "begin produce produce abort ");
        s.group = good;
    }
    assert_int_equal(script_commit(&s, r, 2, durable), ST_OK);
}

static void commit_until(enum kafka_step at, const struct result *results, size_t n)
{
    memset(durable, 0, sizeof durable);
    kafka_commit_begin(s.core, results, n, durable);
    while (kafka_commit_at(s.core) != at)
        assert_true(script_step(&s));
}

/* Partition 1 goes between produce and guard: aborted, and the rest goes on without it. */
static void given_away_before_the_guard(void **state)
{
    struct result results[4];
    struct error err;

    (void)state;
    begin();
    for (int i = 0; i < 4; i++)
        script_result(r[i], &results[i]);
    commit_until(KAFKA_STEP_GUARD, results, 4);
    script_event(&s, KAFKA_REVOKED, 1);
    assert_true(s.lost_n == 1 && !s.lost_already);
    script_poll(&s);
    assert_true(s.assigned[1] != INT64_MIN);      /* waits for the committer */
    while (script_step(&s))
        ;
    assert_int_equal(kafka_commit_end(s.core, &err), ST_OK);
    assert_true(durable[0] && durable[1] && !durable[2] && !durable[3]);
    assert_string_equal(script_calls(&s), "begin produce produce produce produce abort begin produce produce offsets commit ");
    script_poll(&s);
    assert_true(s.assigned[1] == INT64_MIN);
    assert_true(s.committed[0].offset == 2 && s.committed[1].offset == -1);
}

/* It goes behind the guard: the transaction is whole, and the group waits for it, but not for ever. */
static void given_away_behind_the_guard(void **state)
{
    struct result results[4];

    (void)state;
    begin();
    for (int i = 0; i < 4; i++)
        script_result(r[i], &results[i]);
    commit_until(KAFKA_STEP_COMMIT, results, 4);
    script_event(&s, KAFKA_REVOKED, 1);
    for (int i = 0; i < 19; i++) {
        s.now_ns += 100 * NS_PER_MS;
        assert_null(script_poll(&s));
        assert_true(s.assigned[1] != INT64_MIN);
    }
    s.now_ns += 200 * NS_PER_MS;
    assert_null(script_poll(&s));
    assert_true(s.assigned[1] == INT64_MIN);
    while (script_step(&s))
        ;
    assert_int_equal(kafka_commit_end(s.core, &(struct error){ "" }), ST_OK);
    assert_durable(4);
}

static void commit_in_time(void)
{
    assert_int_equal(script_commit(&s, r + 2, 2, durable), ST_OK);
}

/* All that go are told, then there is one wait, in which what has ended of them is committed. */
static void what_ended_is_committed_before_it_goes(void **state)
{
    (void)state;
    begin();
    s.during_lost = commit_in_time;
    s.ids[0] = 0;
    s.ids[1] = 1;
    s.event = (struct kafka_event){ .kind = KAFKA_REVOKED, .partitions = s.ids, .partitions_n = 2 };
    script_poll(&s);
    assert_true(s.lost_n == 2 && s.lost_waits_n == 1);
    assert_durable(2);
    assert_true(s.committed[1].offset == 2);
    assert_int_equal(script_commit(&s, r, 2, durable), ST_OK);      /* too late: dropped */
    assert_false(durable[0] || durable[1]);
    script_poll(&s);
    assert_true(s.assigned[0] == INT64_MIN && s.assigned[1] == INT64_MIN);
}

static void lost_is_not_waited_for(void **state)
{
    struct result results[4];

    (void)state;
    begin();
    for (int i = 0; i < 4; i++)
        script_result(r[i], &results[i]);
    commit_until(KAFKA_STEP_GUARD, results, 4);
    script_event(&s, KAFKA_LOST, 1);
    script_poll(&s);
    assert_true(s.assigned[1] == INT64_MIN && s.lost_already && s.lost_waits_n == 0);
    while (script_step(&s))
        ;
    assert_true(durable[0] && !durable[2]);
}

/* A result of an earlier lease is dropped even where the partition has come back. */
static void an_old_lease_is_dropped(void **state)
{
    (void)state;
    begin();
    script_event(&s, KAFKA_REVOKED, 1);
    script_poll(&s);
    script_assign(&s, 1, 2);
    assert_int_equal(script_commit(&s, r, 4, durable), ST_OK);
    assert_true(durable[0] && durable[1] && !durable[2] && !durable[3]);
    assert_true(s.committed[1].offset == -1);
}

static void budget(void **state)
{
    (void)state;
    s.cfg.kafka_remakes_max = 5;
    begin();
    for (int i = 0; i < 5; i++)
        script_answer(&s, "commit", KAFKA_REMAKE);
    assert_int_equal(script_commit(&s, r, 1, durable), ST_OK);
    s.now_ns += 61 * NS_PER_S;                /* forgotten */
    for (int i = 0; i < 5; i++)
        script_answer(&s, "offsets", KAFKA_REMAKE);
    assert_int_equal(script_commit(&s, r + 1, 1, durable), ST_OK);
    script_answer(&s, "begin", KAFKA_REMAKE);
    assert_int_equal(script_commit(&s, r + 2, 1, durable), ST_FENCED);
    assert_false(durable[0]);
}

/* Time-outs alone are a broker that is away, not a rival. */
static void timeouts_do_not_spend_the_budget(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < 20; i++)
        script_answer(&s, "commit", KAFKA_UNKNOWN);
    assert_int_equal(script_commit(&s, r, 1, durable), ST_OK);
}

static void init_is_tried_again(void **state)
{
    (void)state;
    begin();
    script_answer(&s, "begin", KAFKA_UNKNOWN);
    for (int i = 0; i < 4; i++)
        script_answer(&s, "init", KAFKA_UNKNOWN);
    assert_int_equal(script_commit(&s, r, 1, durable), ST_RETRY);
    assert_string_equal(script_calls(&s), "begin remake init ");
    assert_int_equal(script_commit(&s, r, 1, durable), ST_RETRY);
    assert_int_equal(script_commit(&s, r, 1, durable), ST_RETRY);
    assert_string_equal(script_calls(&s), "init init ");
    assert_int_equal(script_commit(&s, r, 1, durable), ST_RETRY);      /* after three failures with a new handle */
    assert_string_equal(script_calls(&s), "remake init ");
    assert_int_equal(script_commit(&s, r, 1, durable), ST_OK);
}

static void put_off_for_too_long(void **state)
{
    int64_t begun;

    (void)state;
    begin();
    begun = s.now_ns;
    s.cfg.txn_timeout_ms = 1000;
    for (int i = 0; i < 60; i++)
        script_answer(&s, "offsets", KAFKA_AGAIN);
    script_commit(&s, r, 1, durable);
    assert_true(s.now_ns - begun >= NS_PER_S);
    assert_non_null(strstr(script_calls(&s), "remake init COMMITTED"));
}

static void upkeep_renews_idle_commits(void **state)
{
    (void)state;
    s.cfg.kafka_recommit_s = 100;
    begin();
    assert_int_equal(script_commit(&s, r, 2, durable), ST_OK);
    s.now_ns += 101 * NS_PER_S;
    assert_true(kafka_commit_upkeep_due(s.core));
    s.committed[0].offset = -1;
    script_calls(&s);
    assert_int_equal(script_commit(&s, r + 2, 2, durable), ST_OK);      /* goes along with others ... */
    assert_true(s.committed[0].offset == 2 && s.committed[1].offset == 2);
    s.now_ns += 101 * NS_PER_S;
    script_calls(&s);
    assert_int_equal(script_commit(&s, NULL, 0, NULL), ST_OK);          /* ... or alone */
    assert_string_equal(script_calls(&s), "begin offsets commit ");
    assert_false(kafka_commit_upkeep_due(s.core));
    assert_int_equal(script_commit(&s, NULL, 0, NULL), ST_OK);
    assert_string_equal(script_calls(&s), "");
}

static void at_least_once(void **state)
{
    (void)state;
    strcpy(s.cfg.kafka_delivery, "at_least_once");
    begin();
    assert_int_equal(script_commit(&s, r, 2, durable), ST_OK);
    assert_string_equal(script_calls(&s), "produce produce commit offsets ");
    script_answer(&s, "offsets", KAFKA_FENCED_OFFSETS);      /* stored already: only the marks are tried again */
    assert_int_equal(script_commit(&s, r + 2, 1, durable), ST_OK);
    assert_string_equal(script_calls(&s), "produce commit offsets offsets ");
    script_answer(&s, "commit", KAFKA_ABORT);
    assert_int_equal(script_commit(&s, r + 3, 1, durable), ST_RETRY);
    assert_int_equal(script_commit(&s, r + 3, 1, durable), ST_OK);
    assert_durable(1);
}

static void probe(void **state)
{
    struct error err;

    (void)state;
    script_open(&s);
    assert_int_equal(kafka_core_probe(s.core, INT64_MAX, &err), ST_REJECT);
    assert_non_null(strstr(err.text, "does not fence"));
    assert_string_equal(script_calls(&s), "init begin offsets abort ");
    s.cfg.kafka_allow_unfenced = 1;
    assert_int_equal(kafka_core_probe(s.core, INT64_MAX, &err), ST_OK);
    s.cfg.kafka_allow_unfenced = 0;
    script_calls(&s);
    script_answer(&s, "begin", KAFKA_REMAKE);
    script_answer(&s, "init", KAFKA_UNKNOWN);
    script_answer(&s, "offsets", KAFKA_UNKNOWN);
    script_answer(&s, "offsets", KAFKA_ABORT);               /* says nothing about the fence */
    script_answer(&s, "offsets", KAFKA_FENCED_OFFSETS);
    assert_int_equal(kafka_core_probe(s.core, INT64_MAX, &err), ST_OK);
    script_answer(&s, "offsets", KAFKA_REFUSED);
    assert_int_equal(kafka_core_probe(s.core, INT64_MAX, &err), ST_REJECT);
    script_answer(&s, "offsets", KAFKA_UNKNOWN);
    assert_int_equal(kafka_core_probe(s.core, 0, &err), ST_RETRY);
}

static void settings_are_checked(void **state)
{
    const struct kafka_core_options o = { &s.client, &s.cfg, "t.prompts", NULL };
    struct kafka_core *core;
    struct error err;

    (void)state;
    strcpy(s.cfg.kafka_start, "latest");
    assert_int_equal(kafka_core_open(&o, &core, &err), ST_REJECT);
    strcpy(s.cfg.kafka_start, "earliest");
    strcpy(s.cfg.kafka_oversize, "split");
    assert_int_equal(kafka_core_open(&o, &core, &err), ST_REJECT);
    strcpy(s.cfg.kafka_oversize, "dead");
    strcpy(s.cfg.kafka_delivery, "at_most_once");
    assert_int_equal(kafka_core_open(&o, &core, &err), ST_REJECT);
    strcpy(s.cfg.kafka_delivery, "exactly_once");
    s.metadata_max = 64;
    assert_int_equal(kafka_core_open(&o, &core, &err), ST_REJECT);
    assert_null(core);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(one_transaction), TEST(answers), TEST(unknown_was_done), TEST(doubt_outlives_the_call), TEST(failed_abort_is_doubt),
        TEST(guard_wants_a_member), TEST(given_away_before_the_guard), TEST(given_away_behind_the_guard), TEST(what_ended_is_committed_before_it_goes), TEST(lost_is_not_waited_for),
        TEST(an_old_lease_is_dropped), TEST(budget), TEST(timeouts_do_not_spend_the_budget), TEST(init_is_tried_again),
        TEST(put_off_for_too_long), TEST(upkeep_renews_idle_commits), TEST(at_least_once), TEST(probe), TEST(settings_are_checked),
    };

    log_level_set(LOG_NONE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
