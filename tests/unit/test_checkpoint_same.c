/* The same random calls on every kind of store give the same answers: whoever depends on one depends on checkpoint.h alone.
 * Tokens are numbers of each store's own, so the calls name them by their place in the order in which they were acquired. */
#define _XOPEN_SOURCE 700
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/mem.h"
#include "tests/support/redis_server.h"

enum {
    STORES_MAX = 3, JOBS = 2, SOURCES = 3, FEW = 5, OFFSETS = 60, CHOICES = 2, TOKENS_MAX = 400, ITEMS_MAX = 100,
    OWNERS_MAX = 4000, SEEDS = 3, CALLS = 3000
};

static struct redis_server redis;
static char folder[64], urls[STORES_MAX][128];
static struct ckpt *stores[STORES_MAX];
static int stores_n;
static int32_t tokens[TOKENS_MAX];
static uint64_t owners[JOBS][SOURCES][OWNERS_MAX][STORES_MAX];     /* tokens, oldest first */
static int owners_n[JOBS][SOURCES];
static uint64_t random_word;

static uint64_t below(uint64_t n)      /* splitmix64 */
{
    uint64_t z = (random_word += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % n;
}

static void all_open(void)
{
    for (int i = 0; i < stores_n; i++) {
        struct error err;

        if (ckpt_open(urls[i], NULL, &stores[i], &err) != ST_OK)
            fail_msg("%s", err.text);
    }
}

static void all_close(void)
{
    for (int i = 0; i < stores_n; i++)
        ckpt_close(stores[i]);
}

static struct ckpt_key key_random(int job, int source)
{
    return (struct ckpt_key){ (uint64_t)job + UINT64_C(0xfffffffffffffff0), source, (int64_t)below(FEW), (int32_t)below(CHOICES) };
}

/* Up to ITEMS_MAX keys, each once; most calls are about a few that come again and again. with_choice: else one a record. */
static size_t keys_random(int job, int source, bool with_choice, struct ckpt_key *keys)
{
    bool many = below(12) == 0;
    size_t n = 0;

    for (int64_t offset = 0; offset < (many ? OFFSETS : FEW); offset++)
        for (int32_t choice = 0; choice < (with_choice ? CHOICES : 1); choice++)
            if (n < ITEMS_MAX && below(many ? 8 : 4) != 0) {
                keys[n] = key_random(job, source);
                keys[n].offset = offset;
                if (with_choice)
                    keys[n].choice = choice;
                n++;
            }
    return n;
}

static struct ckpt_identity identity_of(bool other)
{
    return (struct ckpt_identity){ .record = { 1, 2 }, .seed = other ? 4 : 3 };
}

/* What a call answered, as bytes to compare: its status, then whatever it filled in. */
static void same(const struct buf *answers, const char *what, int seed, int call)
{
    for (int i = 1; i < stores_n; i++)
        if (answers[i].n != answers[0].n || memcmp(answers[i].data, answers[0].data, answers[0].n) != 0)
            fail_msg("seed %d call %d: %s: %.4s says %s, %.4s says %s", seed, call, what, urls[0],
                     buf_text((struct buf *)(uintptr_t)&answers[0]), urls[i], buf_text((struct buf *)(uintptr_t)&answers[i]));
}

/* A token is a time: waits until this one will be newer than all before it, in every store. */
static void call_acquire(int job, int source, struct buf *answers)
{
    static uint64_t newest;
    int place = owners_n[job][source]++;

    assert_true(place < OWNERS_MAX);
    while (clock_wall_ns() / NS_PER_MS <= (int64_t)newest)
        nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
    for (int i = 0; i < stores_n; i++) {
        uint64_t *token = &owners[job][source][place][i];

        buf_add_format(&answers[i], "%d", ckpt_acquire(stores[i], key_random(job, source).job, source, token));
        if (*token > newest)
            newest = *token;
    }
}

/* Mostly the owner, sometimes an earlier one. -1: nobody has acquired it. */
static int owner_random(int job, int source)
{
    int n = owners_n[job][source];

    return n == 0 ? -1 : n - 1 - (below(8) == 0 ? (int)below((uint64_t)(n < 3 ? n : 3)) : 0);
}

static void call_save(int job, int source, int owner, struct buf *answers)
{
    static const int32_t ends[] = { 0, 0, 20, 33, 64, 65, 100, 150, 200, 399 };
    struct ckpt_save_item items[ITEMS_MAX];
    struct ckpt_key keys[ITEMS_MAX];
    size_t n = keys_random(job, source, true, keys);

    for (size_t i = 0; i < n; i++) {
        size_t a = below(sizeof ends / sizeof ends[0]), b = a + below(sizeof ends / sizeof ends[0] - a);

        items[i] = (struct ckpt_save_item){ keys[i], identity_of(false), tokens, ends[b], ends[a] };
    }
    for (int s = 0; s < stores_n; s++) {
        uint8_t ok[ITEMS_MAX];

        buf_add_format(&answers[s], "%d", ckpt_save(stores[s], owners[job][source][owner][s], items, n, ok));
        for (size_t i = 0; i < n; i++)
            buf_add_format(&answers[s], " %d", ok[i]);
    }
}

static void call_load(int job, int source, struct buf *answers)
{
    struct ckpt_load_item items[8];
    struct arena a;
    size_t n = 1 + below(8);

    arena_init(&a, 4096);
    for (size_t i = 0; i < n; i++)
        items[i] = (struct ckpt_load_item){ .key = key_random(job, source), .identity = identity_of(below(10) == 0), .arena = &a };
    for (int s = 0; s < stores_n; s++) {
        buf_add_format(&answers[s], "%d", ckpt_load_all(stores[s], items, n));
        for (size_t i = 0; i < n; i++) {
            buf_add_format(&answers[s], " %d", items[i].progress.tokens_n);
            if (items[i].progress.tokens_n > 0)
                assert_memory_equal(items[i].progress.tokens, tokens, (size_t)items[i].progress.tokens_n * sizeof *tokens);
        }
    }
    arena_fini(&a);
}

static void attempts_add(struct buf *answer, const struct ckpt_attempts *stand, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_add_format(answer, " %d/%d/%" PRIx64, stand[i].starts, stand[i].solo, stand[i].last_run);
}

/* A record may be named by each of its choices. */
static void call_attempts(int job, int source, int owner, uint64_t kind, struct buf *answers)
{
    struct ckpt_key keys[ITEMS_MAX];
    struct ckpt_attempts stand[ITEMS_MAX];
    size_t n = keys_random(job, source, below(3) == 0, keys);
    uint64_t run = UINT64_C(0xfffffffffffffff0) + below(4);
    bool solo = below(2) == 0;

    for (int s = 0; s < stores_n; s++) {
        uint64_t token = owners[job][source][owner][s];

        memset(stand, 0, sizeof stand);
        if (kind == 0)
            buf_add_format(&answers[s], "%d", ckpt_begin(stores[s], token, keys, n, solo, run, stand));
        else if (kind == 1)
            buf_add_format(&answers[s], "%d", ckpt_hand_over(stores[s], token, keys, n, solo));
        else
            buf_add_format(&answers[s], "%d", ckpt_attempts(stores[s], keys, n, stand));
        attempts_add(&answers[s], stand, n);
    }
}

static void call_forget(int job, int source, int owner, struct buf *answers)
{
    struct ckpt_key keys[ITEMS_MAX];
    size_t n = keys_random(job, source, true, keys);

    for (int s = 0; s < stores_n; s++)
        buf_add_format(&answers[s], "%d", ckpt_forget(stores[s], owners[job][source][owner][s], keys, n));
}

/* Everything is gone, fences too. */
static void all_lose(void)
{
    all_close();
    for (int s = 0; s < stores_n; s++) {
        if (urls[s][0] == 'm')
            ckpt_mem_lose(urls[s] + 4);
        else if (urls[s][0] == 'r')
            redis_server_ask(&redis, "FLUSHALL");
        else
            unlink(urls[s] + 7);
    }
    all_open();
}

static const char *call_random(struct buf *answers)
{
    int job = (int)below(JOBS), source = (int)below(SOURCES), owner = owner_random(job, source);
    uint64_t what = below(100);

    if (owner < 0 || what < 3) {
        call_acquire(job, source, answers);
        return "acquire";
    }
    if (what < 35) {
        call_save(job, source, owner, answers);
        return "save";
    }
    if (what < 60) {
        call_load(job, source, answers);
        return "load";
    }
    if (what < 85) {
        call_attempts(job, source, owner, what % 3, answers);
        return what % 3 == 0 ? "begin" : what % 3 == 1 ? "hand_over" : "attempts";
    }
    if (what < 92) {
        call_forget(job, source, owner, answers);
        return "forget";
    }
    if (what < 96) {
        for (int s = 0; s < stores_n; s++)
            buf_add_format(&answers[s], "%" PRId64, ckpt_count(stores[s], key_random(job, 0).job));
        return "count";
    }
    if (what < 98) {
        for (int s = 0; s < stores_n; s++)
            buf_add_format(&answers[s], "%d", ckpt_forget_job(stores[s], owners[job][source][owner][s], key_random(job, 0).job));
        return "forget_job";
    }
    if (what < 99) {
        all_close();
        all_open();
        return "reopen";
    }
    if (below(4) == 0)
        all_lose();
    return "lose";
}

static void stores_answer_alike(void **state)
{
    struct buf answers[STORES_MAX] = { BUF_EMPTY, BUF_EMPTY, BUF_EMPTY };
    int seen = 0;

    (void)state;
    for (int seed = 1; seed <= SEEDS; seed++) {
        random_word = (uint64_t)seed;
        memset(owners_n, 0, sizeof owners_n);
        all_open();
        all_lose();
        for (int call = 0; call < CALLS; call++) {
            for (int i = 0; i < stores_n; i++)
                buf_reset(&answers[i]);
            same(answers, call_random(answers), seed, call);
            seen += answers[0].n > 0;
        }
        all_close();
    }
    assert_true(seen > SEEDS * CALLS * 9 / 10);
    for (int i = 0; i < STORES_MAX; i++)
        buf_fini(&answers[i]);
}

static int begin(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/nightshift-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(urls[0], sizeof urls[0], "mem:%s", folder);
    snprintf(urls[1], sizeof urls[1], "sqlite:%s/progress", folder);
    stores_n = 2;
    if (redis_server_there()) {
        redis_server_start(&redis, NULL);
        strcpy(urls[stores_n++], redis.url);
    }
    for (int i = 0; i < TOKENS_MAX; i++)
        tokens[i] = (int32_t)(hash64(&i, sizeof i, 0) % 50000);
    return 0;
}

static int end(void **state)
{
    char command[128];

    (void)state;
    ckpt_mem_drop(urls[0] + 4);
    redis_server_end(&redis);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(stores_answer_alike) };

    log_level_set(LOG_ERROR);
    return cmocka_run_group_tests(tests, begin, end);
}
