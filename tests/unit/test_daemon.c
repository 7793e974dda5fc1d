/* The daemon's pure parts: deadlines of a drain, silence, times of the clouds, pages of metrics. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "worker/observe/metrics.h"
#include "worker/observe/watchdog.h"
#include "worker/preempt/drain.h"
#include "worker/preempt/internal.h"

#define S NS_PER_S

static void drain_keeps_its_reserve(void **state)
{
    const int64_t now = 1000 * S;
    struct drain_times t = drain_times_make(now, now + 15 * S), before;

    (void)state;
    /* the table of the design for 15 s: stop decoding at B-12, saved by B-8, committed by B-5, left by B-2 */
    assert_int_equal(t.plan.finish_until_ns, now + 3 * S);
    assert_int_equal(t.plan.save_until_ns, now + 7 * S);
    assert_int_equal(t.plan.commit_until_ns, now + 10 * S);
    assert_int_equal(t.plan.leave_until_ns, now + 13 * S);
    assert_int_equal(t.end_ns, now + 15 * S);
    assert_int_equal(drain_times_make(now, now + 120 * S).plan.finish_until_ns, now + 100 * S);
    assert_int_equal(drain_times_make(now, now + 5 * S).plan.finish_until_ns, now);
    assert_int_equal(drain_times_make(now, now - 5 * S).end_ns, now);          /* the machine should be gone already */
    /* Every budget: in order, and more time is never less time for a part. */
    before = drain_times_make(now, now);
    for (int64_t ms = 0; ms <= 200000; ms += 7) {
        t = drain_times_make(now, now + ms * NS_PER_MS);
        assert_true(t.plan.finish_until_ns >= now && t.plan.finish_until_ns <= t.plan.save_until_ns);
        assert_true(t.plan.save_until_ns <= t.plan.commit_until_ns && t.plan.commit_until_ns <= t.plan.leave_until_ns);
        assert_true(t.plan.leave_until_ns <= t.end_ns && t.end_ns == now + ms * NS_PER_MS);
        assert_true(t.plan.finish_until_ns >= before.plan.finish_until_ns);
        assert_true(t.plan.save_until_ns - t.plan.finish_until_ns >= before.plan.save_until_ns - before.plan.finish_until_ns);
        assert_true(t.end_ns - t.plan.leave_until_ns >= before.end_ns - before.plan.leave_until_ns);
        before = t;
    }
    t = drain_times_leave(now);
    assert_true(t.plan.commit_until_ns == now && t.plan.leave_until_ns > now && t.end_ns > t.plan.leave_until_ns && t.end_ns <= now + 5 * S);
}

static void silence_counts_while_we_run(void **state)
{
    struct pipeline_beats beats = { .poll_ns = 5 * S, .step_ns = 5 * S };
    struct watchdog dog = { .ticked_ns = 0 };
    struct config cfg;
    int64_t now = 10 * S;
    int ticks = 0;

    (void)state;
    config_defaults(&cfg);
    assert_int_equal(watchdog_tick(&dog, &cfg, &beats, now), WATCHDOG_FINE);
    now += 3600 * S;               /* SIGSTOP for an hour: half a second of silence, at most */
    assert_int_equal(watchdog_tick(&dog, &cfg, &beats, now), WATCHDOG_FINE);
    assert_true(dog.silence.poll_ns <= S);
    while (beats.step_ns++, watchdog_tick(&dog, &cfg, &beats, now += S / 4) == WATCHDOG_FINE)
        ticks++;
    assert_in_range(ticks, 4 * 30 - 4, 4 * 30);
    assert_true(dog.silence.poll_ns >= 30 * S && dog.silence.step_ns == 0);
    beats.poll_ns++;               /* it moves again */
    assert_int_equal(watchdog_tick(&dog, &cfg, &beats, now += S / 4), WATCHDOG_FINE);
    assert_int_equal(dog.silence.poll_ns, 0);
    beats.poll_ns = 0;             /* not watched: the input is over */
    for (ticks = 0; watchdog_tick(&dog, &cfg, &beats, now += S / 4) == WATCHDOG_FINE; ticks++)
        assert_true(ticks < 4 * 61);
    assert_true(ticks > 4 * 59 - 4 && dog.silence.step_ns >= 60 * S && dog.silence.poll_ns == 0);
}

static void a_commit_is_late_then_dead(void **state)
{
    struct pipeline_beats beats = { .results_since_ns = 7, .step_ns = 5 };
    struct watchdog dog = { .ticked_ns = 0 };
    int64_t now = 10 * S, late_n = 0;
    enum watchdog_verdict v;
    struct config cfg;

    (void)state;
    config_defaults(&cfg);
    for (int i = 0; i < 4 * 31; i++)
        late_n += watchdog_tick(&dog, &cfg, &beats, now += S / 4) == WATCHDOG_COMMIT_LATE;
    assert_int_equal(late_n, 1);
    beats.results_since_ns = 8;    /* that one went through; the next is as slow */
    for (late_n = 0; (v = watchdog_tick(&dog, &cfg, &beats, now += S / 4)) != WATCHDOG_COMMIT_DEAD;)
        late_n += v == WATCHDOG_COMMIT_LATE;
    assert_int_equal(late_n, 1);
    assert_true(dog.silence.commit_ns >= 90 * S && dog.silence.commit_ns < 91 * S);
    assert_int_equal(dog.silence.step_ns, 0);      /* held back by what waits, not hung */
    beats.results_since_ns = 0;
    assert_int_equal(watchdog_tick(&dog, &cfg, &beats, now += S / 4), WATCHDOG_FINE);
    assert_int_equal(dog.silence.commit_ns, 0);
}

static void times_of_clouds(void **state)
{
    static const struct { const char *text; int64_t unix_s; } good[] = {
        { "1970-01-01T00:00:00Z", 0 }, { "2017-09-18T08:22:00Z", 1505722920 }, { "2024-02-29T23:59:60Z", 1709251200 },
        { "2026-11-29T17:00:00.123456Z", 1795971600 }, { "Mon, 19 Sep 2016 18:29:47 GMT", 1474309787 },
        { "Sun, 29 Nov 2026 17:00:00 GMT", 1795971600 } };
    static const char *const bad[] = { "", "Z", "2017-09-18", "2017-09-18T08:22:00", "2017-09-18T08:22:00+02:00", "2017-13-18T08:22:00Z",
        "2017-09-18T24:00:00Z", "1969-12-31T23:59:59Z", "2017-09-18T08:22:00Zx", "2017-09-18T08:22:00.Zx", "Mon, 19 Sepp 2016 18:29:47 GMT",
        "Mon, 19 epS 2016 18:29:47 GMT", "Mon, 19 Sep 2016 18:29:47 CET", "Mon, 19 Sep 2016 18:29 GMT", "Monday, 19 Sep 2016 18:29:47 GMT",
        "99999999999999999999-01-01T00:00:00Z" };
    int64_t unix_s, now;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(when_parse(good[i].text, &unix_s), ST_OK);
        assert_int_equal(unix_s, good[i].unix_s);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(when_parse(bad[i], &unix_s), ST_REJECT);
    now = clock_mono_ns();
    assert_in_range(when_deadline_ns(0, 600) - now, 0, S);                     /* long over: now */
    assert_in_range(when_deadline_ns(INT64_MAX / NS_PER_S, 600) - now, 599 * S, 601 * S);
    assert_in_range(when_deadline_ns(clock_wall_ns() / NS_PER_S + 100, 600) - now, 98 * S, 101 * S);
}

static void foreign_names_stay_in_their_quotes(void **state)
{
    struct worker_view v = { .version = "1", .queue_url = "kafka://a\"b\\c\nd", .opened = true, .model = "a\"b\\c\nd\xc3\xa9" };
    struct buf b = BUF_EMPTY;
    struct config cfg;

    (void)state;
    config_defaults(&cfg);
    strcpy(v.counts.failures[0].code, "bad_code");
    v.counts.failures[0].n = 3;
    v.counts.failures_n = 1;
    metrics_text(&v, &cfg, &b);
    assert_non_null(strstr(buf_text(&b), "model=\"a\\\"b\\\\c\\nd\xc3\xa9\""));
    assert_non_null(strstr(buf_text(&b), "\nnightshift_dlq_total{class=\"bad_code\"} 3\n"));
    assert_int_equal(b.data[b.n - 1], '\n');
    buf_reset(&b);
    metrics_status(&v, &cfg, &b);
    assert_non_null(strstr(buf_text(&b), "\"queue\": \"kafka://a\\\"b\\\\c\\u000ad\""));
    assert_non_null(strstr(buf_text(&b), "\"nightshift_dlq_total\": {\"bad_code\": 3}"));
    buf_fini(&b);
}

static void health_tells_why(void **state)
{
    struct worker_view v = { .state = WORKER_LOADING };
    struct config cfg;

    (void)state;
    config_defaults(&cfg);
    assert_null(view_dead_why(&v, &cfg));
    assert_string_equal(view_unready_why(&v, &cfg), "loading");
    v.state = WORKER_RUNNING;
    assert_null(view_unready_why(&v, &cfg));
    v.silence.commit_ns = 30 * S;                /* alive, but no progress */
    assert_null(view_dead_why(&v, &cfg));
    assert_string_equal(view_unready_why(&v, &cfg), "results wait for a commit");
    v.silence.poll_ns = 30 * S;
    assert_string_equal(view_dead_why(&v, &cfg), "the queue is not polled");
    v.silence = (struct watchdog_silence){ .step_ns = 60 * S };
    assert_string_equal(view_unready_why(&v, &cfg), "the engine makes no step");
    v = (struct worker_view){ .state = WORKER_DRAINING };
    assert_null(view_dead_why(&v, &cfg));
    assert_string_equal(view_unready_why(&v, &cfg), "draining");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drain_keeps_its_reserve),
        cmocka_unit_test(silence_counts_while_we_run),
        cmocka_unit_test(a_commit_is_late_then_dead),
        cmocka_unit_test(times_of_clouds),
        cmocka_unit_test(foreign_names_stay_in_their_quotes),
        cmocka_unit_test(health_tells_why),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
