/* The progress store in Redis under everything that happens to a real server: death, hang, emptiness, demotion, no memory, no
 * disk, no scripts, a start that takes long, another's script. The promise is the same each time: an answer in bounded time, what
 * is loaded is a true beginning of what was saved, and once the server is well again so is the store. */
#define _GNU_SOURCE
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "tests/faults/redis_rig.h"

static const char *const aof[] = { "--appendonly", "yes", "--appendfsync", "everysec", NULL };

/* Every key has an end of life (I9). */
static void keys_expire(void)
{
    char names[65536], *at = names, *name;
    int n = 0;

    snprintf(names, sizeof names, "%s", redis_server_ask(&redis, "KEYS ns:*"));
    while ((name = strsep(&at, " ")) != NULL && *name != '\0') {
        if (strtoll(redis_server_ask(&redis, "TTL %s", name), NULL, 10) <= 0)
            fail_msg("%s has no end of life", name);
        n++;
    }
    assert_true(n > 0);
}

/* ---- life and death of the server ---- */

static void keys_have_an_end_of_life(void **state)
{
    struct ckpt_key keys[3] = { key_of(1), key_of(2), key_of(3) };
    struct ckpt_attempts a[3];
    struct ckpt *c;
    uint64_t token;

    (void)state;
    c = store_owned(NULL, &token);
    keys_expire();
    assert_int_equal(save(c, token, 1, 0, 100), ST_OK);
    keys_expire();
    redis_server_ask(&redis, "PERSIST ns:c:{0000000000000009:0}:1:0");
    redis_server_ask(&redis, "PERSIST ns:f:{0000000000000009:0}");
    assert_int_equal(save(c, token, 1, 100, 200), ST_OK);                  /* renewed at each write */
    assert_int_equal(save(c, token, 1, 50, 50), ST_AGAIN);
    assert_int_equal(save(c, token, 1, 100, 100), ST_OK);                  /* cuts off, which is a SET */
    assert_int_equal(ckpt_begin(c, token, keys, 3, true, 5, a), ST_OK);
    assert_int_equal(ckpt_begin(c, token, keys, 3, true, 6, a), ST_OK);
    assert_int_equal(ckpt_hand_over(c, token, keys, 2, true), ST_OK);
    keys_expire();
    assert_int_equal(load(c, 1), 100);
    assert_int_equal(ckpt_forget(c, token, keys, 3), ST_OK);
    keys_expire();
    assert_string_equal(redis_server_ask(&redis, "KEYS ns:[aci]:*"), "");  /* a fence and the sources are what stays */
    cfg.checkpoint_ttl_h = 1;
    ckpt_close(c);
    c = store_open();
    assert_int_equal(save(c, token, 1, 0, 100), ST_OK);
    assert_in_range(redis_server_number(&redis, "TTL ns:c:{0000000000000009:0}:1:0"), 3500, 3600);
    assert_in_range(redis_server_number(&redis, "TTL ns:f:{0000000000000009:0}"), 600000, 604800);
    ckpt_close(c);
}

/* Row 18. AOF everysec: a second may be lost, the rest is there. */
static void killed_and_restarted(void **state)
{
    struct ckpt *c;
    uint64_t token;
    int64_t begun;
    int gaps = 0;

    (void)state;
    c = store_owned(aof, &token);
    for (int i = 0; i < SEQUENCES; i++)
        assert_int_equal(save(c, token, i, 0, 500), ST_OK);
    pause_ms(2200);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < SEQUENCES / 2; i++)
            assert_int_equal(save(c, token, i, round == 0 ? 500 : 0, 700), ST_OK);
        redis_server_kill(&redis);
        begun = clock_mono_ns();
        assert_int_equal(save(c, token, 1, 700, 800), ST_RETRY);
        assert_int_equal(load(c, 1), -1);
        assert_int_equal(ckpt_count(c, 9), -1);
        assert_false(counts_of(c).up);
        assert_true(clock_mono_ns() - begun < 3 * NS_PER_S);                /* nobody listens there: no time-out is waited for */
        redis_server_start(&redis, aof);
        assert_true(heal(c, token, SEQUENCES - 1, 500) < 5);
        for (int i = 0; i < SEQUENCES; i++)
            assert_true(load(c, i) == 700 || load(c, i) == 500);
        for (int i = 0; i < SEQUENCES / 2; i++) {
            status st = save(c, token, i, 700, 800);

            gaps += st == ST_AGAIN;
            if (st == ST_AGAIN)
                st = save(c, token, i, 0, 800);
            assert_int_equal(st, ST_OK);
            assert_int_equal(load(c, i), 800);
        }
    }
    assert_int_equal(counts_of(c).gaps_n, gaps);
    assert_true(counts_of(c).reconnects_n >= 3);
    assert_true(counts_of(c).errors_n[CKPT_ERROR_LINK] >= 3);
    ckpt_close(c);
}

/* Restarted between two calls: the next call finds out, and does not fail for it. */
static void restart_between_calls_goes_unnoticed(void **state)
{
    struct ckpt *c;
    uint64_t token;

    (void)state;
    c = store_owned(NULL, &token);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(save(c, token, 1, 0, 100), ST_OK);
        redis_server_kill(&redis);
        redis_server_start(&redis, NULL);
        if (round == 0)
            assert_int_equal(save(c, token, 1, 100, 200), ST_AGAIN);
        else if (round == 1)
            assert_int_equal(load(c, 1), 0);
        else
            assert_int_equal(starts_of(c, 1), 0);
        assert_int_equal(save(c, token, 1, 0, 200), ST_OK);
    }
    assert_int_equal(counts_of(c).reconnects_n, 3);
    ckpt_close(c);
}

/* Row 19, and the fence by TIME: a token that was acquired after the loss outgrows every one from before. */
static void emptied(void **state)
{
    struct ckpt_key key = key_of(1);
    struct ckpt_attempts a;
    struct ckpt *c, *other;
    uint64_t old, new;

    (void)state;
    redis_server_start(&redis, NULL);
    c = store_open();
    other = store_open();
    old = acquire(c);
    assert_int_equal(save(c, old, 1, 0, 100), ST_OK);
    assert_int_equal(ckpt_begin(c, old, &key, 1, false, 5, &a), ST_OK);
    redis_server_ask(&redis, "FLUSHALL");
    assert_int_equal(load(c, 1), 0);
    assert_int_equal(starts_of(c, 1), 0);
    assert_int_equal(ckpt_hand_over(c, old, &key, 1, false), ST_OK);
    assert_int_equal(save(c, old, 1, 100, 150), ST_AGAIN);
    assert_int_equal(save(c, old, 1, 0, 150), ST_OK);
    assert_int_equal(load(c, 1), 150);
    redis_server_ask(&redis, "FLUSHALL");
    pause_ms(2);
    new = acquire(other);
    assert_true(new > old);
    assert_int_equal(save(c, old, 1, 0, 99), ST_FENCED);
    redis_server_ask(&redis, "FLUSHALL");
    assert_int_equal(save(c, old, 1, 0, 99), ST_OK);                       /* nobody there knows better */
    assert_int_equal(save(other, new, 1, 0, 120), ST_OK);                  /* the owner's next write does */
    assert_int_equal(save(c, old, 1, 99, 110), ST_FENCED);
    assert_int_equal(load(other, 1), 120);
    ckpt_close(c);
    ckpt_close(other);
}

/* Row 22. */
static void hang_is_bounded_and_late_replies_go_nowhere(void **state)
{
    struct ckpt *c;
    uint64_t token;

    (void)state;
    redis_server_start(&redis, NULL);
    cfg.checkpoint_timeout_ms = TIMEOUT_MS;
    c = store_open();
    token = acquire(c);
    for (int i = 0; i < SEQUENCES; i++)
        assert_int_equal(save(c, token, i, 0, 10 + i), ST_OK);
    for (int round = 0; round < 4; round++) {
        int64_t begun = clock_mono_ns(), took;
        int answers = 0;

        kill(redis.pid, SIGSTOP);
        if (round % 2 == 0)
            assert_int_equal(save(c, token, 3, 13, 14), ST_RETRY);         /* perhaps it is carried out, later */
        else
            assert_int_equal(load(c, 5), -1);
        took = clock_mono_ns() - begun;
        assert_in_range(took / NS_PER_MS, TIMEOUT_MS - 1, 10 * TIMEOUT_MS);
        begun = clock_mono_ns();
        for (; clock_mono_ns() - begun < NS_PER_S; answers++)
            assert_int_equal(load(c, 7), -1);
        assert_true(answers > 3);                                          /* not each of them waits */
        kill(redis.pid, SIGCONT);
        heal(c, token, 3, 13);
        for (int i = 0; i < SEQUENCES; i++)
            assert_int_equal(load(c, i), 10 + i);                          /* each answer belongs to its question */
    }
    assert_true(counts_of(c).errors_n[CKPT_ERROR_TIMEOUT] >= 4);
    ckpt_close(c);
}

/* ---- a server that says no ---- */

/* Row 20. */
static void demoted(void **state)
{
    struct ckpt *c;
    uint64_t token;
    double seconds;

    (void)state;
    c = store_owned(NULL, &token);
    assert_int_equal(save(c, token, 1, 0, 100), ST_OK);
    redis_server_ask(&redis, "REPLICAOF 127.0.0.1 1");
    assert_int_equal(save(c, token, 1, 100, 200), ST_RETRY);
    for (int i = 0; i < 20; i++) {
        status st = save(c, token, 1, 100, 200);

        assert_int_equal(st, ST_RETRY);
        pause_ms(20);
    }
    assert_true(counts_of(c).errors_n[CKPT_ERROR_READONLY] >= 2);
    assert_true(counts_of(c).errors_n[CKPT_ERROR_READONLY] < 15);          /* it is left in peace in between */
    redis_server_ask(&redis, "REPLICAOF NO ONE");
    seconds = heal(c, token, 1, 200);
    assert_true(seconds < 5);
    assert_int_equal(load(c, 1), 200);
    ckpt_close(c);
}

/* Row 21, OOM: what frees memory still works. */
static void out_of_memory(void **state)
{
    struct ckpt_key keys[SEQUENCES];
    struct ckpt_attempts a[SEQUENCES];
    struct ckpt *c;
    uint64_t token;

    (void)state;
    c = store_owned(NULL, &token);
    for (int i = 0; i < SEQUENCES; i++) {
        keys[i] = key_of(i);
        assert_int_equal(save(c, token, i, 0, 500), ST_OK);
    }
    redis_server_ask(&redis, "CONFIG SET maxmemory 1");
    assert_int_equal(save(c, token, 1, 500, 600), ST_RETRY);
    assert_int_equal(counts_of(c).errors_n[CKPT_ERROR_FULL], 1);
    pause_ms(60);
    assert_int_equal(ckpt_begin(c, token, keys, 2, false, 5, a), ST_RETRY);
    pause_ms(120);
    assert_int_equal(load(c, 1), 500);
    assert_int_equal(ckpt_forget(c, token, keys + 2, SEQUENCES - 2), ST_OK);
    assert_int_equal(load(c, 2), 0);
    assert_int_equal(counts_of(c).reconnects_n, 0);
    redis_server_ask(&redis, "CONFIG SET maxmemory 0");
    assert_int_equal(save(c, token, 1, 500, 600), ST_OK);
    ckpt_close(c);
}

/* Row 21, MISCONF: a snapshot could not be written. */
static void out_of_disk(void **state)
{
    char path[128];
    struct ckpt *c;
    uint64_t token;

    (void)state;
    c = store_owned((const char *const[]){ "--save", "3600 1", NULL }, &token);
    assert_int_equal(save(c, token, 1, 0, 100), ST_OK);
    snprintf(path, sizeof path, "%s/dump.rdb", redis.folder);
    assert_int_equal(mkdir(path, 0700), 0);
    redis_server_ask(&redis, "BGSAVE");
    for (int i = 0; i < 200 && strstr(redis_server_ask(&redis, "INFO persistence"), "last_bgsave_status:err") == NULL; i++)
        pause_ms(10);
    assert_int_equal(save(c, token, 1, 100, 200), ST_RETRY);
    assert_int_equal(counts_of(c).errors_n[CKPT_ERROR_FULL], 1);
    redis_server_ask(&redis, "CONFIG SET stop-writes-on-bgsave-error no");
    heal(c, token, 1, 200);
    assert_int_equal(load(c, 1), 200);
    assert_int_equal(counts_of(c).reconnects_n, 0);
    ckpt_close(c);
}

/* Row 21, NOSCRIPT: the same call goes on. */
static void scripts_flushed(void **state)
{
    struct ckpt_key key = key_of(1);
    struct ckpt_attempts a;
    struct ckpt *c;
    uint64_t token;

    (void)state;
    c = store_owned(NULL, &token);
    for (int round = 0; round < 5; round++) {
        redis_server_ask(&redis, "SCRIPT FLUSH");
        if (round == 0)
            assert_int_equal(save(c, token, 1, 0, 100), ST_OK);
        else if (round == 1)
            assert_int_equal(ckpt_begin(c, token, &key, 1, false, 5, &a), ST_OK);
        else if (round == 2)
            assert_int_equal(ckpt_hand_over(c, token, &key, 1, false), ST_OK);
        else if (round == 3)
            assert_int_equal(ckpt_forget(c, token, &key, 1), ST_OK);
        else
            token = acquire(c);
    }
    assert_int_equal(ckpt_forget_job(c, token, 9), ST_OK);
    ckpt_close(c);
}

/* Row 21, LOADING: a start that takes long. */
static void loading(void **state)
{
    struct ckpt *c;
    uint64_t token;
    int64_t begun;

    (void)state;
    redis_server_start(&redis, aof);
    redis_server_ask(&redis, "DEBUG POPULATE 3000 other 100");
    c = store_open();
    token = acquire(c);
    assert_int_equal(save(c, token, 1, 0, 100), ST_OK);
    redis_server_ask(&redis, "BGREWRITEAOF");
    for (int i = 0; i < 500 && strstr(redis_server_ask(&redis, "INFO persistence"), "aof_rewrite_in_progress:0") == NULL; i++)
        pause_ms(10);
    redis_server_kill(&redis);
    redis_server_launch(&redis, (const char *const[]){ "--appendonly", "yes", "--key-load-delay", "500",
                                                       "--loading-process-events-interval-bytes", "1024", NULL });
    begun = clock_mono_ns();
    while (counts_of(c).errors_n[CKPT_ERROR_LOADING] == 0 && clock_mono_ns() - begun < HEAL_S * NS_PER_S) {
        save(c, token, 1, 100, 200);
        pause_ms(2);
    }
    assert_true(counts_of(c).errors_n[CKPT_ERROR_LOADING] > 0);
    redis_server_wait(&redis);
    heal(c, token, 2, 50);
    assert_int_equal(load(c, 2), 50);
    assert_true(load(c, 1) >= 100);
    ckpt_close(c);
}

/* Row 21, BUSY: somebody else's script runs and runs. */
static void busy(void **state)
{
    struct ckpt *c;
    uint64_t token;
    pid_t other;

    (void)state;
    c = store_owned((const char *const[]){ "--busy-reply-threshold", "20", NULL }, &token);
    assert_int_equal(save(c, token, 1, 0, 100), ST_OK);
    other = fork();
    if (other == 0) {
        redis_server_ask(&redis, "EVAL while(true)do(redis.call)('PING')end 0");
        _exit(0);
    }
    for (int i = 0; i < 200 && counts_of(c).errors_n[CKPT_ERROR_BUSY] == 0; i++) {
        save(c, token, 1, 0, 100);
        pause_ms(10);
    }
    assert_true(counts_of(c).errors_n[CKPT_ERROR_BUSY] > 0);
    assert_string_equal(redis_server_ask(&redis, "SCRIPT KILL"), "OK");
    waitpid(other, NULL, 0);
    heal(c, token, 1, 200);
    assert_int_equal(load(c, 1), 200);
    ckpt_close(c);
}

/* Connections cut from outside, again and again. */
static void cut_off(void **state)
{
    struct ckpt *c;
    uint64_t token;

    (void)state;
    c = store_owned(NULL, &token);
    for (int32_t n = 0; n < 300; n += 10) {
        assert_int_equal(save(c, token, 1, n, n + 10), ST_OK);
        redis_server_ask(&redis, "CLIENT KILL TYPE normal SKIPME yes");
    }
    assert_int_equal(load(c, 1), 300);
    assert_int_equal(counts_of(c).reconnects_n, 30);
    ckpt_close(c);
}

/* ---- everything at once ---- */

/* One nemesis after the other, at random moments, until told to stop; whatever it stopped goes on in the end. */
_Noreturn static void nemesis(int go_on_fd)
{
    struct pollfd stop = { .fd = go_on_fd, .events = POLLIN };

    for (unsigned i = 0; poll(&stop, 1, 20 + (int)(i * 37 % 60)) == 0; i++)
        switch (i % 6) {
        case 0:
            redis_server_ask(&redis, "SCRIPT FLUSH");
            break;
        case 1:
            redis_server_ask(&redis, "CLIENT KILL TYPE normal SKIPME yes");
            break;
        case 2:
            redis_server_ask(&redis, "FLUSHALL");
            break;
        case 3:
            kill(redis.pid, SIGSTOP);
            poll(&stop, 1, i % 4 == 0 ? 2 * TIMEOUT_MS : TIMEOUT_MS / 2);
            kill(redis.pid, SIGCONT);
            break;
        case 4:
            redis_server_ask(&redis, "REPLICAOF 127.0.0.1 1");
            poll(&stop, 1, 50);
            redis_server_ask(&redis, "REPLICAOF NO ONE");
            break;
        default:
            redis_server_ask(&redis, "CONFIG SET maxmemory 1");
            poll(&stop, 1, 50);
            redis_server_ask(&redis, "CONFIG SET maxmemory 0");
        }
    _exit(0);
}

/* Two owners fight over a source, each with a store of its own; what is loaded is never anything but a true beginning, and the
 * token that is the newest in a healthy store wins. */
static void all_at_once(void **state)
{
    struct ckpt *c[2];
    uint64_t token[2];
    int32_t saved[SEQUENCES] = { 0 };
    int ends[2], answered = 0, refused = 0, how;
    unsigned word = 1;
    int64_t begun;
    pid_t other;

    (void)state;
    redis_server_start(&redis, NULL);
    cfg.checkpoint_timeout_ms = TIMEOUT_MS;
    c[0] = store_open();
    c[1] = store_open();
    token[0] = acquire(c[0]);
    token[1] = acquire(c[1]);
    assert_int_equal(pipe(ends), 0);
    other = fork();
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[1]);
        nemesis(ends[0]);
    }
    for (begun = clock_mono_ns(); clock_mono_ns() - begun < 6 * NS_PER_S;) {
        int who_i = (int)((word = word * 1103515245 + 12345) >> 16) & 1, i = (int)(word >> 18) % SEQUENCES;
        int32_t n = saved[i] + 1 + (int32_t)(word >> 20) % 50;
        status st;

        if (n > TOKENS_MAX)
            n = saved[i] = 0;
        st = save(c[who_i], token[who_i], i, saved[i], n);
        saved[i] = st == ST_OK ? n : st == ST_AGAIN ? 0 : saved[i];
        answered += st == ST_OK;
        refused += st == ST_RETRY;
        if (st == ST_FENCED) {
            pause_ms(2);                             /* a token is a time: none may be ahead of the clock when the fence gets lost */
            if (ckpt_acquire(c[who_i], 9, 0, &token[who_i]) != ST_OK)
                token[who_i] = 1;
        }
        load(c[1 - who_i], i);
    }
    close(ends[1]);
    waitpid(other, &how, 0);
    assert_int_equal(how, 0);
    assert_true(answered > 100 && refused > 0);
    while (ckpt_acquire(c[0], 9, 0, &token[0]) != ST_OK && clock_mono_ns() - begun < 20 * NS_PER_S)
        pause_ms(10);
    heal(c[0], token[0], 1, 500);
    while (save(c[1], token[1], 1, 0, 99) == ST_RETRY && clock_mono_ns() - begun < 20 * NS_PER_S)
        pause_ms(10);
    assert_int_equal(save(c[1], token[1], 1, 0, 99), ST_FENCED);
    assert_int_equal(load(c[0], 1), 500);
    ckpt_close(c[0]);
    ckpt_close(c[1]);
    close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        REDIS_TEST(keys_have_an_end_of_life),
        REDIS_TEST(killed_and_restarted),
        REDIS_TEST(restart_between_calls_goes_unnoticed),
        REDIS_TEST(emptied),
        REDIS_TEST(hang_is_bounded_and_late_replies_go_nowhere),
        REDIS_TEST(demoted),
        REDIS_TEST(out_of_memory),
        REDIS_TEST(out_of_disk),
        REDIS_TEST(scripts_flushed),
        REDIS_TEST(loading),
        REDIS_TEST(busy),
        REDIS_TEST(cut_off),
        REDIS_TEST(all_at_once),
    };

    if (!redis_server_there())
        return 77;
    log_level_set(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
