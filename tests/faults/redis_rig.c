#define _POSIX_C_SOURCE 200809L
#include "tests/faults/redis_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"

struct redis_server redis;
struct config cfg;

static int32_t tokens[SEQUENCES][TOKENS_MAX];
static const struct ckpt_identity who = { { 1, 2 }, { 3, 4 }, { 5, 6 }, 7 };

int rig_setup(void **state)
{
    (void)state;
    config_defaults(&cfg);
    cfg.checkpoint_timeout_ms = PATIENT_MS;
    for (int i = 0; i < SEQUENCES; i++)
        for (int k = 0; k < TOKENS_MAX; k++) {
            int both[2] = { i, k };

            tokens[i][k] = (int32_t)(hash64(both, sizeof both, 0) % 50000);
        }
    return 0;
}

int rig_teardown(void **state)
{
    (void)state;
    redis_server_end(&redis);
    return 0;
}

struct ckpt *store_open(void)
{
    struct ckpt *c;
    struct error err;

    if (ckpt_open(redis.url, &cfg, &c, &err) != ST_OK)
        fail_msg("%s", err.text);
    return c;
}

struct ckpt_key key_of(int i)
{
    return (struct ckpt_key){ 9, 0, i, 0 };
}

uint64_t acquire(struct ckpt *c)
{
    uint64_t token;

    assert_int_equal(ckpt_acquire(c, 9, 0, &token), ST_OK);
    return token;
}

struct ckpt *store_owned(const char *const *options, uint64_t *token)
{
    struct ckpt *c;

    redis_server_start(&redis, options);
    c = store_open();
    *token = acquire(c);
    return c;
}

status save(struct ckpt *c, uint64_t token, int i, int32_t saved_n, int32_t n)
{
    struct ckpt_save_item item = { key_of(i), who, tokens[i], n, saved_n };
    uint8_t ok;
    status st = ckpt_save(c, token, &item, 1, &ok);

    assert_int_equal(ok, st == ST_OK);
    return st;
}

int32_t load(struct ckpt *c, int i)
{
    struct ckpt_key key = key_of(i);
    struct ckpt_progress p;
    struct arena a;
    int32_t n = -1;
    status st;

    arena_init(&a, 4096);
    st = ckpt_load(c, &key, &who, &a, &p);
    if (st != ST_RETRY) {
        assert_true(st == ST_OK || st == ST_AGAIN);
        n = st == ST_OK ? p.tokens_n : 0;
        assert_true(n <= TOKENS_MAX);
        if (n > 0)
            assert_memory_equal(p.tokens, tokens[i], (size_t)n * sizeof tokens[0][0]);
    }
    arena_fini(&a);
    return n;
}

int32_t starts_of(struct ckpt *c, int i)
{
    struct ckpt_key key = key_of(i);
    struct ckpt_attempts a;

    assert_int_equal(ckpt_attempts(c, &key, 1, &a), ST_OK);
    return a.starts;
}

struct ckpt_counts counts_of(struct ckpt *c)
{
    struct ckpt_counts counts;

    ckpt_read_counts(c, &counts);
    return counts;
}

void pause_ms(int ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

double heal(struct ckpt *c, uint64_t token, int i, int32_t n)
{
    int64_t begun = clock_mono_ns();

    while (save(c, token, i, 0, n) != ST_OK) {
        if (clock_mono_ns() - begun > HEAL_S * NS_PER_S)
            fail_msg("the store does not come back");
        pause_ms(5);
    }
    return (double)(clock_mono_ns() - begun) / 1e9;
}
