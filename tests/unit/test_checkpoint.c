/* The stores of token progress: the same promises from each, then what is special to one. */
#define _XOPEN_SOURCE 700
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/frames.h"
#include "checkpoint/mem.h"
#include "tests/support/redis_server.h"

#define TOKENS_MAX 5000

static char folder[64], url[96], path[80];
static int32_t tokens[TOKENS_MAX];
static const struct ckpt_identity who = { { 1, 2 }, { 3, 4 }, { 5, 6 }, UINT64_C(0xfedcba9876543210) };

static struct redis_server redis;      /* one for all tests, emptied for each; pid 0: none is installed */

static void begin(const char *scheme)
{
    strcpy(folder, "/tmp/nightshift-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/progress", folder);
    snprintf(url, sizeof url, "%s:%s", scheme, path);
    for (int i = 0; i < TOKENS_MAX; i++)
        tokens[i] = (int32_t)(hash64(&i, sizeof i, 0) % 50000);
}

static int begin_sqlite(void **state)
{
    (void)state;
    begin("sqlite");
    return 0;
}

static int begin_mem(void **state)
{
    (void)state;
    begin("mem");
    return 0;
}

static int begin_redis(void **state)
{
    (void)state;
    begin("redis");
    strcpy(url, redis.url);
    if (redis.pid != 0)
        assert_string_equal(redis_server_ask(&redis, "FLUSHALL"), "OK");
    return 0;
}

static int end(void **state)
{
    char command[128];

    (void)state;
    if (url[0] == 'm')
        ckpt_mem_drop(path);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static struct ckpt *store_open(void)
{
    struct ckpt *c;
    struct error err;

    if (url[0] == 'r' && redis.pid == 0)
        skip();
    if (ckpt_open(url, NULL, &c, &err) != ST_OK)
        fail_msg("%s", err.text);
    return c;
}

static struct ckpt_key key_of(int64_t offset)
{
    return (struct ckpt_key){ UINT64_C(0xffffffffffffff01), 0, offset, 0 };
}

static status save_as(struct ckpt *c, uint64_t token, struct ckpt_key key, const struct ckpt_identity *id, int32_t saved_n,
                      int32_t n)
{
    struct ckpt_save_item item = { key, *id, tokens, n, saved_n };
    uint8_t ok = 7;
    status st = ckpt_save(c, token, &item, 1, &ok);

    assert_int_equal(ok, st == ST_OK);
    return st;
}

static status save(struct ckpt *c, uint64_t token, int64_t offset, int32_t saved_n, int32_t n)
{
    return save_as(c, token, key_of(offset), &who, saved_n, n);
}

/* The number of tokens that come back, each compared; -1: ST_AGAIN. */
static int32_t load_as(struct ckpt *c, struct ckpt_key key, const struct ckpt_identity *id)
{
    struct ckpt_progress p;
    struct arena a;
    int32_t n;
    status st;

    arena_init(&a, 4096);
    st = ckpt_load(c, &key, id, &a, &p);
    assert_true(st == ST_OK || st == ST_AGAIN);
    n = st == ST_OK ? p.tokens_n : -1;
    assert_true(st == ST_OK ? n > 0 : p.tokens == NULL && p.tokens_n == 0);
    if (n > 0)
        assert_memory_equal(p.tokens, tokens, (size_t)n * sizeof tokens[0]);
    arena_fini(&a);
    return n;
}

static int32_t load(struct ckpt *c, int64_t offset)
{
    return load_as(c, key_of(offset), &who);
}

static uint64_t acquire(struct ckpt *c)
{
    uint64_t token = 0;

    assert_int_equal(ckpt_acquire(c, key_of(0).job, 0, &token), ST_OK);
    assert_true(token > 0);
    return token;
}

/* ---- every store ---- */

static void progress_grows(void **state)
{
    struct ckpt *c = store_open();
    uint64_t token = acquire(c);
    int32_t n = 0;

    (void)state;
    assert_int_equal(load(c, 5), -1);
    assert_int_equal(ckpt_count(c, key_of(0).job), 0);
    for (int32_t step = 1; n + step <= TOKENS_MAX; n += step, step += 7) {
        assert_int_equal(save(c, token, 5, n, n + step), ST_OK);
        assert_int_equal(load(c, 5), n + step);
    }
    assert_int_equal(ckpt_count(c, key_of(0).job), 1);
    assert_int_equal(ckpt_count(c, 77), 0);
    ckpt_close(c);
    c = store_open();                                                    /* outlives its handles */
    assert_int_equal(load(c, 5), n);
    assert_int_equal(save(c, token, 5, n, n), ST_OK);                    /* nothing new is fine */
    assert_int_equal(load(c, 5), n);
    ckpt_close(c);
}

static void keys_are_apart(void **state)
{
    struct ckpt *c = store_open();
    uint64_t token = acquire(c);
    struct ckpt_key k[5];

    (void)state;
    for (int i = 0; i < 5; i++)
        k[i] = key_of(1);
    k[1].job++;
    k[2].source = 1;
    k[3].offset = INT64_MAX - 7;
    k[4].choice = 1;
    for (int i = 0; i < 5; i++)
        assert_int_equal(save_as(c, token, k[i], &who, 0, 10 + i), ST_OK);
    for (int i = 0; i < 5; i++)
        assert_int_equal(load_as(c, k[i], &who), 10 + i);
    assert_int_equal(ckpt_forget(c, token, &k[3], 2), ST_OK);
    assert_int_equal(ckpt_forget(c, token, &k[3], 2), ST_OK);            /* missing keys are no error */
    for (int i = 0; i < 5; i++)
        assert_int_equal(load_as(c, k[i], &who), i < 3 ? 10 + i : -1);
    assert_int_equal(ckpt_count(c, k[0].job), 2);
    assert_int_equal(ckpt_forget_job(c, token, k[0].job), ST_OK);
    assert_int_equal(ckpt_count(c, k[0].job), 0);
    assert_int_equal(load_as(c, k[1], &who), 11);
    ckpt_close(c);
}

static void another_identity_is_ignored(void **state)
{
    struct ckpt *c = store_open();
    uint64_t token = acquire(c);

    (void)state;
    assert_int_equal(save(c, token, 1, 0, 40), ST_OK);
    for (int i = 0; i < 4; i++) {
        struct ckpt_identity other = who;
        uint64_t *field[4] = { &other.record.low, &other.model.high, &other.params.low, &other.seed };

        ++*field[i];
        assert_int_equal(load_as(c, key_of(1), &other), -1);
    }
    assert_int_equal(load(c, 1), 40);
    ckpt_close(c);
}

/* Saves again from an earlier point: what an answer that got lost makes the caller do. */
static void saving_again_is_safe(void **state)
{
    struct ckpt *c = store_open();
    uint64_t token = acquire(c);

    (void)state;
    assert_int_equal(save(c, token, 1, 0, 32), ST_OK);
    assert_int_equal(save(c, token, 1, 32, 64), ST_OK);
    assert_int_equal(save(c, token, 1, 64, 96), ST_OK);
    assert_int_equal(save(c, token, 1, 32, 64), ST_OK);
    assert_int_equal(load(c, 1), 64);
    assert_int_equal(save(c, token, 1, 32, 70), ST_OK);
    assert_int_equal(load(c, 1), 70);
    assert_int_equal(save(c, token, 1, 64, 80), ST_AGAIN);               /* no frame ends there any more */
    assert_int_equal(load(c, 1), 70);
    assert_int_equal(save(c, token, 1, 0, 20), ST_OK);
    assert_int_equal(load(c, 1), 20);
    ckpt_close(c);
}

static void missing_part_is_told_item_by_item(void **state)
{
    struct ckpt *c = store_open();
    uint64_t token = acquire(c);
    struct ckpt_save_item items[3] = { { key_of(1), who, tokens, 20, 10 }, { key_of(2), who, tokens, 9, 0 },
                                       { key_of(3), who, tokens, 8, 8 } };
    uint8_t ok[3];

    (void)state;
    assert_int_equal(ckpt_save(c, token, items, 3, ok), ST_AGAIN);
    assert_int_equal(ok[0], 0);
    assert_int_equal(ok[1], 1);
    assert_int_equal(ok[2], 0);
    assert_int_equal(load(c, 1), -1);
    assert_int_equal(load(c, 2), 9);
    items[0].saved_n = items[2].saved_n = 0;
    assert_int_equal(ckpt_save(c, token, items, 3, ok), ST_OK);
    assert_int_equal(load(c, 1), 20);
    assert_int_equal(load(c, 3), 8);
    assert_int_equal(ckpt_save(c, token, items, 0, ok), ST_OK);
    ckpt_close(c);
}

static void older_token_is_fenced(void **state)
{
    struct ckpt *a = store_open(), *b = store_open();
    uint64_t old = acquire(a), new = acquire(b);
    struct ckpt_key key = key_of(1);

    (void)state;
    assert_true(new > old);
    assert_int_equal(save(b, new, 1, 0, 10), ST_OK);
    assert_int_equal(save(a, old, 1, 0, 99), ST_FENCED);
    assert_int_equal(save(a, old, 2, 0, 99), ST_FENCED);
    assert_int_equal(ckpt_forget(a, old, &key, 1), ST_FENCED);
    assert_int_equal(ckpt_forget_job(a, old, key.job), ST_FENCED);
    assert_int_equal(load(a, 1), 10);
    assert_int_equal(load(a, 2), -1);
    assert_int_equal(ckpt_forget_job(b, new, key.job), ST_OK);
    assert_int_equal(save(a, old, 1, 0, 99), ST_FENCED);                 /* the fence outlives the job */
    ckpt_close(a);
    ckpt_close(b);
}

/* A batch is refused whole when one source of it is fenced. */
static void fence_refuses_the_whole_batch(void **state)
{
    struct ckpt *c = store_open();
    uint64_t old = acquire(c), newer;
    struct ckpt_save_item items[2] = { { key_of(1), who, tokens, 5, 0 }, { key_of(1), who, tokens, 5, 0 } };
    uint8_t ok[2];

    (void)state;
    items[1].key.source = 3;
    assert_int_equal(ckpt_acquire(c, items[1].key.job, 3, &newer), ST_OK);
    assert_int_equal(ckpt_acquire(c, items[1].key.job, 3, &newer), ST_OK);
    assert_true(newer > old);
    assert_int_equal(ckpt_save(c, old, items, 2, ok), ST_FENCED);
    assert_int_equal(ok[0] | ok[1], 0);
    assert_int_equal(load(c, 1), -1);
    ckpt_close(c);
}

static int64_t clock_zero(void *ctx)
{
    return *(int64_t *)ctx;
}

/* The clock may stand still or jump back: tokens go up all the same. */
static void tokens_go_up_whatever_the_clock(void **state)
{
    int64_t now_ns = INT64_C(1700000000) * NS_PER_S;
    const struct clock clock = { clock_zero, clock_zero, &now_ns };
    struct ckpt *c = store_open();
    uint64_t last = 0;

    (void)state;
    clock_use(&clock);
    for (int i = 0; i < 5; i++) {
        uint64_t token = acquire(c);

        assert_true(token > last);
        last = token;
        if (i == 2)
            now_ns -= 3600 * NS_PER_S;
    }
    clock_use(NULL);
    ckpt_close(c);
}

/* A finished job leaves no file; one that goes on after another has ended keeps its own. */
static void ended_job_leaves_no_file(void **state)
{
    struct ckpt *c = store_open();
    uint64_t token = acquire(c);
    struct ckpt_key other = key_of(1);

    (void)state;
    other.job = 5;
    assert_int_equal(save(c, token, 1, 0, 40), ST_OK);
    assert_int_equal(ckpt_forget_job(c, token, key_of(1).job), ST_OK);
    assert_int_equal(save_as(c, token, other, &who, 0, 30), ST_OK);
    ckpt_close(c);
    c = store_open();
    assert_int_equal(load_as(c, other, &who), 30);
    assert_int_equal(ckpt_forget_job(c, token, key_of(1).job), ST_OK);      /* the other one is still there */
    ckpt_close(c);
    assert_int_equal(access(path, F_OK), 0);
    c = store_open();
    assert_int_equal(ckpt_forget_job(c, token, 5), ST_OK);
    ckpt_close(c);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* ---- attempts, in every store ---- */

static void attempts_are(struct ckpt *c, int64_t offset, int32_t starts, int32_t solo, uint64_t last_run)
{
    struct ckpt_key key = key_of(offset);
    struct ckpt_attempts a = { 9, 9, 9 };

    key.choice = 3;                                                      /* it is the record that counts */
    assert_int_equal(ckpt_attempts(c, &key, 1, &a), ST_OK);
    assert_int_equal(a.starts, starts);
    assert_int_equal(a.solo, solo);
    assert_int_equal(a.last_run, last_run);
}

static struct ckpt_attempts begin_one(struct ckpt *c, uint64_t token, int64_t offset, bool solo, uint64_t run)
{
    struct ckpt_key key = key_of(offset);
    struct ckpt_attempts a;

    assert_int_equal(ckpt_begin(c, token, &key, 1, solo, run, &a), ST_OK);
    attempts_are(c, offset, a.starts, a.solo, a.last_run);
    return a;
}

static void hand_over(struct ckpt *c, uint64_t token, int64_t offset, bool solo)
{
    struct ckpt_key key = key_of(offset);

    assert_int_equal(ckpt_hand_over(c, token, &key, 1, solo), ST_OK);
}

/* A run that dies leaves its start standing, one that hands over does not, and a run counts once. */
static void starts_count_runs_that_died(void **state)
{
    struct ckpt *c = store_open();
    uint64_t token = acquire(c), run = UINT64_C(0xf000000000000001);
    struct ckpt_attempts a;

    (void)state;
    attempts_are(c, 7, 0, 0, 0);
    a = begin_one(c, token, 7, false, run);
    assert_int_equal(a.starts, 1);
    assert_int_equal(a.last_run, run);
    a = begin_one(c, token, 7, false, run);                              /* the answer got lost, or the record came back */
    assert_int_equal(a.starts, 1);
    a = begin_one(c, token, 7, false, run + 1);                          /* died */
    assert_int_equal(a.starts, 2);
    a = begin_one(c, token, 7, true, run + 1);                           /* begun among others, then alone: the same run */
    assert_int_equal(a.starts, 2);
    assert_int_equal(a.solo, 1);
    a = begin_one(c, token, 7, true, run + 1);
    assert_int_equal(a.solo, 1);
    a = begin_one(c, token, 7, true, run + 2);                           /* died alone */
    assert_int_equal(a.starts, 3);
    assert_int_equal(a.solo, 2);
    hand_over(c, token, 7, true);
    attempts_are(c, 7, 2, 1, 0);
    hand_over(c, token, 7, true);                                        /* again is safe */
    attempts_are(c, 7, 2, 1, 0);
    a = begin_one(c, token, 7, false, run + 2);                          /* handed over and taken up again by the same run */
    assert_int_equal(a.starts, 3);
    assert_int_equal(a.solo, 1);
    hand_over(c, token, 7, true);                                        /* it was not begun alone */
    attempts_are(c, 7, 2, 1, 0);
    attempts_are(c, 8, 0, 0, 0);
    ckpt_close(c);
    c = store_open();
    attempts_are(c, 7, 2, 1, 0);
    ckpt_close(c);
}

static void hand_over_of_all_leaves_nothing(void **state)
{
    struct ckpt *c = store_open();
    uint64_t token = acquire(c);

    (void)state;
    hand_over(c, token, 1, false);                                       /* nobody has begun it */
    attempts_are(c, 1, 0, 0, 0);
    begin_one(c, token, 1, true, 5);
    assert_int_equal(ckpt_count(c, key_of(1).job), 1);
    hand_over(c, token, 1, true);
    attempts_are(c, 1, 0, 0, 0);
    assert_int_equal(ckpt_count(c, key_of(1).job), 0);
    ckpt_close(c);
}

static void attempts_go_with_their_record(void **state)
{
    struct ckpt *c = store_open();
    uint64_t token = acquire(c);
    struct ckpt_key keys[64];
    struct ckpt_attempts a[64];

    (void)state;
    for (int i = 0; i < 64; i++)
        keys[i] = key_of(100 + i);
    keys[62].job++;
    keys[63].source = 4;
    assert_int_equal(ckpt_begin(c, token, keys, 64, false, 5, a), ST_OK);
    for (int i = 0; i < 64; i++)
        assert_int_equal(a[i].starts, 1);
    assert_int_equal(ckpt_count(c, keys[0].job), 63);
    assert_int_equal(save(c, token, 100, 0, 40), ST_OK);
    assert_int_equal(ckpt_count(c, keys[0].job), 64);
    assert_int_equal(ckpt_forget(c, token, keys, 10), ST_OK);
    assert_int_equal(ckpt_attempts(c, keys, 64, a), ST_OK);
    for (int i = 0; i < 64; i++)
        assert_int_equal(a[i].starts, i >= 10);
    assert_int_equal(ckpt_forget_job(c, token, keys[0].job), ST_OK);
    assert_int_equal(ckpt_count(c, keys[0].job), 0);
    assert_int_equal(ckpt_attempts(c, keys, 64, a), ST_OK);
    for (int i = 0; i < 64; i++)
        assert_int_equal(a[i].starts, i == 62);
    assert_int_equal(ckpt_begin(c, token, keys, 0, false, 5, NULL), ST_OK);
    ckpt_close(c);
}

static void older_token_begins_nothing(void **state)
{
    struct ckpt *c = store_open();
    uint64_t old = acquire(c), new;
    struct ckpt_key keys[2] = { key_of(1), key_of(2) };
    struct ckpt_attempts a[2] = { { 9, 9, 9 }, { 9, 9, 9 } };
    struct ckpt_counts counts;

    (void)state;
    keys[1].source = 6;
    assert_int_equal(ckpt_acquire(c, keys[1].job, 6, &new), ST_OK);
    assert_int_equal(ckpt_acquire(c, keys[1].job, 6, &new), ST_OK);
    assert_true(new > old);
    assert_int_equal(ckpt_begin(c, old, keys, 2, true, 5, a), ST_FENCED);
    assert_int_equal(a[0].starts + a[1].starts + a[1].solo, 0);
    assert_int_equal(ckpt_attempts(c, keys, 2, a), ST_OK);
    assert_int_equal(a[0].starts + a[1].starts, 0);                      /* refused whole */
    assert_int_equal(ckpt_begin(c, new, keys, 2, true, 5, a), ST_OK);
    assert_int_equal(ckpt_hand_over(c, old, keys, 2, true), ST_FENCED);
    assert_int_equal(ckpt_attempts(c, keys, 2, a), ST_OK);
    assert_int_equal(a[0].starts + a[1].starts, 2);
    assert_int_equal(a[0].solo + a[1].solo, 2);
    ckpt_read_counts(c, &counts);
    assert_int_equal(counts.fenced_n, 2);
    assert_int_equal(counts.calls_n, 8);
    assert_true(counts.up && counts.rtt_us_max >= counts.rtt_us_last);
    ckpt_close(c);
}

static void many_are_loaded_in_one_call(void **state)
{
    struct ckpt *c = store_open();
    uint64_t token = acquire(c);
    struct ckpt_load_item items[40];
    struct arena a;

    (void)state;
    arena_init(&a, 4096);
    for (int i = 0; i < 40; i++) {
        if (i % 3 > 0)
            assert_int_equal(save(c, token, i, 0, 10 + i), ST_OK);
        items[i] = (struct ckpt_load_item){ key_of(i), who, &a, { tokens, 7 } };
        items[i].identity.seed += i % 3 == 2;
    }
    assert_int_equal(ckpt_load_all(c, items, 40), ST_OK);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(items[i].progress.tokens_n, i % 3 == 1 ? 10 + i : 0);
        if (i % 3 == 1)
            assert_memory_equal(items[i].progress.tokens, tokens, (size_t)(10 + i) * sizeof tokens[0]);
    }
    assert_int_equal(ckpt_load_all(c, items, 0), ST_OK);
    arena_fini(&a);
    ckpt_close(c);
}

static void errors_have_names(void **state)
{
    (void)state;
    for (int i = 0; i < CKPT_ERRORS_N; i++) {
        assert_non_null(ckpt_error_name((enum ckpt_error)i));
        for (int k = 0; k < i; k++)
            assert_string_not_equal(ckpt_error_name((enum ckpt_error)i), ckpt_error_name((enum ckpt_error)k));
    }
}

/* ---- frames ---- */

static void frames_survive_any_cut_and_flip(void **state)
{
    struct buf whole = BUF_EMPTY, b = BUF_EMPTY;
    size_t ends[9], good_n;
    struct ckpt_progress p;
    struct arena a;

    (void)state;
    begin("mem");
    frame_add_identity(&whole, &who);
    for (int i = 0; i < 8; i++) {
        ends[i] = whole.n;
        frame_add_tokens(&whole, &who, tokens, i * 20, i * 20 + 20);
    }
    ends[8] = whole.n;
    arena_init(&a, 4096);
    for (size_t n = 0; n <= whole.n; n++) {
        int frames = 0;

        while (frames < 8 && ends[frames + 1] <= n)
            frames++;
        assert_int_equal(frames_read(whole.data, n, &who, &a, &p, &good_n), frames ? ST_OK : ST_AGAIN);
        assert_int_equal(p.tokens_n, frames * 20);
        assert_int_equal(good_n, n >= ends[0] ? ends[frames] : 0);
        assert_int_equal(frames_end(whole.data, n, &who, 20), frames >= 1 ? ends[1] : 0);
        assert_int_equal(frames_end(whole.data, n, &who, 25), 0);
        arena_reset(&a);
    }
    for (size_t at = 0; at < whole.n; at++) {
        int frame = 0;

        buf_reset(&b);
        buf_add(&b, whole.data, whole.n);
        b.data[at] ^= 0x10;
        while (frame < 8 && ends[frame + 1] <= at)
            frame++;
        if (at < ends[0])
            frame = 0;
        assert_int_equal(frames_read(b.data, b.n, &who, &a, &p, &good_n), frame ? ST_OK : ST_AGAIN);
        assert_int_equal(p.tokens_n, frame * 20);
        if (p.tokens_n > 0)
            assert_memory_equal(p.tokens, tokens, (size_t)p.tokens_n * 4);
        arena_reset(&a);
    }
    arena_fini(&a);
    buf_fini(&whole);
    buf_fini(&b);
    ckpt_mem_drop(path);
    rmdir(folder);
}

/* Whole, sound frames that do not belong together: the running hash finds it. */
static void frames_of_two_writers_are_cut(void **state)
{
    int32_t other[60];
    struct buf b = BUF_EMPTY;
    struct ckpt_progress p;
    struct ckpt_identity seeded = who;
    struct arena a;
    size_t good_n;

    (void)state;
    for (int i = 0; i < 60; i++)
        other[i] = 7 * i + 1;
    arena_init(&a, 4096);
    frame_add_identity(&b, &who);
    frame_add_tokens(&b, &who, tokens, 0, 20);
    frame_add_tokens(&b, &who, other, 20, 40);
    assert_int_equal(frames_read(b.data, b.n, &who, &a, &p, &good_n), ST_OK);
    assert_int_equal(p.tokens_n, 20);
    buf_reset(&b);
    seeded.seed++;
    frame_add_identity(&b, &who);
    frame_add_tokens(&b, &seeded, tokens, 0, 20);
    assert_int_equal(frames_read(b.data, b.n, &who, &a, &p, &good_n), ST_AGAIN);
    buf_reset(&b);
    frame_add_identity(&b, &who);
    frame_add_tokens(&b, &who, tokens, 0, 20);
    frame_add_tokens(&b, &who, tokens, 30, 40);
    assert_int_equal(frames_read(b.data, b.n, &who, &a, &p, &good_n), ST_OK);
    assert_int_equal(p.tokens_n, 20);
    arena_fini(&a);
    buf_fini(&b);
}

static int redis_begin(void **state)
{
    (void)state;
    if (redis_server_there())
        redis_server_start(&redis, NULL);
    return 0;
}

static int redis_end(void **state)
{
    (void)state;
    redis_server_end(&redis);
    return 0;
}

int main(void)
{
#define EACH(f) \
    cmocka_unit_test_setup_teardown(f, begin_sqlite, end), cmocka_unit_test_setup_teardown(f, begin_mem, end), \
    cmocka_unit_test_setup_teardown(f, begin_redis, end)
    const struct CMUnitTest tests[] = {
        EACH(progress_grows),
        EACH(keys_are_apart),
        EACH(another_identity_is_ignored),
        EACH(saving_again_is_safe),
        EACH(missing_part_is_told_item_by_item),
        EACH(older_token_is_fenced),
        EACH(fence_refuses_the_whole_batch),
        EACH(tokens_go_up_whatever_the_clock),
        EACH(starts_count_runs_that_died),
        EACH(hand_over_of_all_leaves_nothing),
        EACH(attempts_go_with_their_record),
        EACH(older_token_begins_nothing),
        EACH(many_are_loaded_in_one_call),
        cmocka_unit_test(errors_have_names),
        cmocka_unit_test_setup_teardown(ended_job_leaves_no_file, begin_sqlite, end),
        cmocka_unit_test(frames_survive_any_cut_and_flip),
        cmocka_unit_test(frames_of_two_writers_are_cut),
    };

    log_level_set(LOG_ERROR);
    return cmocka_run_group_tests(tests, redis_begin, redis_end);
}
