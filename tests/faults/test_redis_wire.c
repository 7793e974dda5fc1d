/* Between the progress store and a real Redis stands a proxy that loses, cuts, delays, doubles and falsifies. Whatever it does to a
 * call, the call answers in bounded time, and making it again has the effect of one call. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "tests/support/redis_server.h"

enum { TIMEOUT_MS = 100, PATIENT_MS = 5000, TRIES = 400, TRY_MS = 10, TOKENS_N = 600, TRICKLE_MS = 5, BYTES_MAX = 1 << 17 };

/* What happens to the next exchange; then the proxy is a plain one again. */
enum mischief {
    NONE, LOSE_ANSWER_CLOSE, LOSE_ANSWER_HANG, HALF_ANSWER_CLOSE, HALF_ANSWER_HANG, HALF_REQUEST_CLOSE, HALF_REQUEST_HANG,
    REFUSE, DOUBLE_ANSWER, TRICKLE, FALSIFY, MISCHIEF_N
};

static struct redis_server redis;
static struct config cfg;
static char url[64];
static int32_t tokens[TOKENS_N];
static const struct ckpt_identity who = { .seed = 7 };

/* ---- the proxy: one thread, one connection at a time ---- */

static atomic_int mischief, done_n, refuse_n;
static const char *_Atomic falsehood;
static atomic_bool proxy_ends;
static int proxy_fd;
static pthread_t proxy_thread;

static int upstream_connect(void)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                              .sin_port = htons((uint16_t)redis.port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
        return fd;
    close(fd);
    return -1;
}

static bool send_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        bytes += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* Nothing more is said on this connection, until the client has enough of it. */
static void hang(int client)
{
    char rest[4096];

    while (!atomic_load(&proxy_ends)) {
        struct pollfd p = { .fd = client, .events = POLLIN };

        if (poll(&p, 1, 20) > 0 && recv(client, rest, sizeof rest, 0) <= 0)
            return;
    }
}

static bool request_pass(int client, int server, const char *bytes, size_t n)
{
    int what = atomic_load(&mischief);

    if (what == HALF_REQUEST_CLOSE || what == HALF_REQUEST_HANG) {
        atomic_store(&mischief, NONE);
        atomic_fetch_add(&done_n, 1);
        send_all(server, bytes, n / 2);
        if (what == HALF_REQUEST_HANG)
            hang(client);
        return false;
    }
    return send_all(server, bytes, n);
}

static bool answer_trickle(int client, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!send_all(client, bytes + i, 1))
            return false;
        nanosleep(&(struct timespec){ .tv_nsec = TRICKLE_MS * 1000000 }, NULL);
    }
    return true;
}

static bool answer_pass(int client, char *bytes, size_t n)
{
    int what = atomic_exchange(&mischief, NONE);
    const char *text = atomic_load(&falsehood);

    atomic_fetch_add(&done_n, what != NONE);
    switch (what) {
    case REFUSE:                                     /* and the next connections as well */
        atomic_store(&refuse_n, 3);
        return false;
    case LOSE_ANSWER_CLOSE:
        return false;
    case LOSE_ANSWER_HANG:
        hang(client);
        return false;
    case HALF_ANSWER_CLOSE:
        send_all(client, bytes, n / 2);
        return false;
    case HALF_ANSWER_HANG:
        send_all(client, bytes, n / 2);
        hang(client);
        return false;
    case DOUBLE_ANSWER:                              /* in one piece: what comes later cannot be told from an answer */
        assert_true(2 * n <= BYTES_MAX);
        memcpy(bytes + n, bytes, n);
        return send_all(client, bytes, 2 * n);
    case TRICKLE:
        return answer_trickle(client, bytes, n);
    case FALSIFY:
        send_all(client, text, strlen(text));
        hang(client);
        return false;
    default:
        return send_all(client, bytes, n);
    }
}

static void connection_serve(int client, int server)
{
    static char bytes[BYTES_MAX];
    bool open = true;

    while (open && !atomic_load(&proxy_ends)) {
        struct pollfd p[2] = { { .fd = client, .events = POLLIN }, { .fd = server, .events = POLLIN } };
        ssize_t n;

        if (poll(p, 2, 20) <= 0)
            continue;
        if (p[0].revents != 0) {
            n = recv(client, bytes, sizeof bytes, 0);
            open = n > 0 && request_pass(client, server, bytes, (size_t)n);
        } else if (p[1].revents != 0) {
            n = recv(server, bytes, sizeof bytes / 2, 0);
            open = n > 0 && answer_pass(client, bytes, (size_t)n);
        }
    }
}

static void *proxy_main(void *arg)
{
    (void)arg;
    while (!atomic_load(&proxy_ends)) {
        struct pollfd p = { .fd = proxy_fd, .events = POLLIN };
        int client, server;

        if (poll(&p, 1, 20) <= 0)
            continue;
        client = accept(proxy_fd, NULL, NULL);
        server = upstream_connect();
        if (atomic_load(&refuse_n) > 0)
            atomic_fetch_sub(&refuse_n, 1);
        else if (client >= 0 && server >= 0)
            connection_serve(client, server);
        close(client);
        close(server);
    }
    return NULL;
}

static int setup(void **state)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof at;

    (void)state;
    redis_server_start(&redis, NULL);
    config_defaults(&cfg);
    cfg.checkpoint_timeout_ms = TIMEOUT_MS;
    for (int32_t i = 0; i < TOKENS_N; i++)
        tokens[i] = 3 * i + 1;
    atomic_store(&proxy_ends, false);
    atomic_store(&mischief, NONE);
    proxy_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(proxy_fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(proxy_fd, 16), 0);
    assert_int_equal(getsockname(proxy_fd, (struct sockaddr *)&at, &n), 0);
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", ntohs(at.sin_port));
    return pthread_create(&proxy_thread, NULL, proxy_main, NULL);
}

static int teardown(void **state)
{
    (void)state;
    atomic_store(&proxy_ends, true);
    pthread_join(proxy_thread, NULL);
    close(proxy_fd);
    redis_server_end(&redis);
    return 0;
}

/* ---- calls that are made until they are answered ---- */

static struct ckpt *c;
static uint64_t token;
static int64_t longest_ns;

static struct ckpt_key key_of(int64_t offset)
{
    return (struct ckpt_key){ 9, 0, offset, 0 };
}

/* Makes `call` again while its answer is ST_RETRY; the first answer too must come in time. */
#define UNTIL_ANSWERED(st, call) do { \
        int tries = 0; \
        int64_t begun; \
        do { \
            if (tries++ > 0) \
                nanosleep(&(struct timespec){ .tv_nsec = TRY_MS * 1000000 }, NULL); \
            begun = clock_mono_ns(); \
            (st) = (call); \
            if (clock_mono_ns() - begun > longest_ns) \
                longest_ns = clock_mono_ns() - begun; \
        } while ((st) == ST_RETRY && tries < TRIES); \
    } while (0)

static void save(int64_t offset, int32_t saved_n, int32_t n)
{
    struct ckpt_save_item item = { key_of(offset), who, tokens, n, saved_n };
    uint8_t ok;
    status st;

    UNTIL_ANSWERED(st, ckpt_save(c, token, &item, 1, &ok));
    assert_int_equal(st, ST_OK);
    assert_int_equal(ok, 1);
}

static void loads(int64_t offset, int32_t n)
{
    struct ckpt_key key = key_of(offset);
    struct ckpt_progress p;
    struct arena a;
    status st;

    arena_init(&a, 4096);
    UNTIL_ANSWERED(st, ckpt_load(c, &key, &who, &a, &p));
    assert_int_equal(st, n > 0 ? ST_OK : ST_AGAIN);
    assert_int_equal(p.tokens_n, n);
    if (n > 0)
        assert_memory_equal(p.tokens, tokens, (size_t)n * sizeof tokens[0]);
    arena_fini(&a);
}

static void begins(int64_t offset, uint64_t run, int32_t starts)
{
    struct ckpt_key key = key_of(offset);
    struct ckpt_attempts a;
    status st;

    UNTIL_ANSWERED(st, ckpt_begin(c, token, &key, 1, true, run, &a));
    assert_int_equal(st, ST_OK);
    assert_int_equal(a.starts, starts);
    assert_int_equal(a.solo, starts);
}

static void stand(int64_t offset, int32_t starts)
{
    struct ckpt_key key = key_of(offset);
    struct ckpt_attempts a;
    status st;

    UNTIL_ANSWERED(st, ckpt_attempts(c, &key, 1, &a));
    assert_int_equal(st, ST_OK);
    assert_int_equal(a.starts, starts);
    assert_int_equal(a.solo, starts);
}

static void hands_over(int64_t offset)
{
    struct ckpt_key key = key_of(offset);
    status st;

    UNTIL_ANSWERED(st, ckpt_hand_over(c, token, &key, 1, true));
    assert_int_equal(st, ST_OK);
}

static void forgets(int64_t offset)
{
    struct ckpt_key key = key_of(offset);
    status st;

    UNTIL_ANSWERED(st, ckpt_forget(c, token, &key, 1));
    assert_int_equal(st, ST_OK);
}

static void acquires(void)
{
    uint64_t newer;
    status st;

    UNTIL_ANSWERED(st, ckpt_acquire(c, 9, 0, &newer));
    assert_int_equal(st, ST_OK);
    assert_true(newer > token);
    token = newer;
}

static void forgets_job(void)
{
    status st;

    UNTIL_ANSWERED(st, ckpt_forget_job(c, token, 9));
    assert_int_equal(st, ST_OK);
}

static void mischief_set(int what)
{
    atomic_store(&mischief, what);
}

static void opens(void)
{
    struct error err;

    token = 0;
    assert_int_equal(ckpt_open(url, &cfg, &c, &err), ST_OK);
    acquires();
}

/* Each call of a sequence's life meets the mischief once. */
static void life_under(int what, int64_t offset)
{
    mischief_set(what);
    save(offset, 0, 100);
    mischief_set(what);
    save(offset, 100, 250);
    mischief_set(what);
    loads(offset, 250);
    mischief_set(what);
    begins(offset, 5, 1);
    mischief_set(what);
    begins(offset, 6, 2);
    mischief_set(what);
    stand(offset, 2);
    mischief_set(what);
    hands_over(offset);
    stand(offset, 1);
    mischief_set(what);
    save(offset, 250, TOKENS_N);
    loads(offset, TOKENS_N);
    mischief_set(what);
    acquires();
    save(offset, TOKENS_N, TOKENS_N);
    mischief_set(what);
    forgets(offset);
    loads(offset, 0);
    stand(offset, 0);
    save(offset + 1, 0, 50);
    mischief_set(what);
    forgets_job();
    loads(offset + 1, 0);
}

static void lost_answers_are_harmless(void **state)
{
    (void)state;
    opens();
    for (int what = 0; what < FALSIFY; what++) {
        int before = atomic_load(&done_n);

        longest_ns = 0;
        life_under(what, 10 * what);
        if (what != NONE)
            assert_true(atomic_load(&done_n) - before >= 8);
        assert_true(longest_ns < (5 * TIMEOUT_MS + 2000) * NS_PER_MS);
    }
    ckpt_close(c);
}

/* Where the connection had worked before, its loss costs nothing at all: the call itself is made again. */
static void closed_connections_are_not_even_seen(void **state)
{
    static const int closing[] = { LOSE_ANSWER_CLOSE, HALF_ANSWER_CLOSE, HALF_REQUEST_CLOSE };
    struct ckpt_counts counts;

    (void)state;
    cfg.checkpoint_timeout_ms = PATIENT_MS;
    opens();
    for (int i = 0; i < 30; i++) {
        struct ckpt_save_item item = { key_of(1), who, tokens, 10 * (i + 1), 10 * i };
        uint8_t ok;

        mischief_set(closing[i % 3]);
        assert_int_equal(ckpt_save(c, token, &item, 1, &ok), ST_OK);
    }
    loads(1, 300);
    ckpt_read_counts(c, &counts);
    assert_int_equal(counts.reconnects_n, 30);
    for (int i = 0; i < CKPT_ERRORS_N; i++)
        assert_int_equal(counts.errors_n[i], 0);
    ckpt_close(c);
}

/* An answer that is there twice is not the answer to the next question. */
static void doubled_answers_go_nowhere(void **state)
{
    (void)state;
    opens();
    save(1, 0, 10);
    save(2, 0, 20);
    for (int i = 0; i < 10; i++) {
        mischief_set(DOUBLE_ANSWER);
        loads(1 + i % 2, i % 2 ? 20 : 10);
        loads(2 - i % 2, i % 2 ? 10 : 20);
    }
    ckpt_close(c);
}

/* Bytes that are no answer, or no answer to this. */
static void falsehoods_are_not_believed(void **state)
{
    static const char *const texts[] = {
        "HTTP/1.1 400 Bad Request\r\n\r\n", "+OK\r\n", "$-1\r\n", "*-1\r\n", "*0\r\n", ":abc\r\n", "*1\r\n*1\r\n*1\r\n:1\r\n",
        "*3\r\n:1\r\n", "$5\r\nab", "*2147483647\r\n", "$9999999999999999999\r\n", "*-7\r\n", "$-7\r\n", "\r\n", "\x15\x03\x01\x00\x02\x02\x46",
        "*2\r\n:1\r\n:2\r\n:3\r\n", "-\r\n", "-ERR\r\n", "*1\r\n$3\r\nabc\r\n", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
    };

    (void)state;
    opens();
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct ckpt_save_item item = { key_of((int64_t)i), who, tokens, 40, 0 };
        struct ckpt_progress p;
        struct arena a;
        uint8_t ok;
        status st;

        atomic_store(&falsehood, texts[i]);
        mischief_set(FALSIFY);
        assert_int_equal(ckpt_save(c, token, &item, 1, &ok), ST_RETRY);
        assert_int_equal(ok, 0);
        save((int64_t)i, 0, 40);
        mischief_set(FALSIFY);
        arena_init(&a, 4096);
        st = ckpt_load(c, &item.key, &who, &a, &p);
        assert_true(st == ST_RETRY || st == ST_AGAIN);
        assert_int_equal(p.tokens_n, 0);
        arena_fini(&a);
        loads((int64_t)i, 40);
    }
    ckpt_close(c);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(lost_answers_are_harmless),
        TEST(closed_connections_are_not_even_seen),
        TEST(doubled_answers_go_nowhere),
        TEST(falsehoods_are_not_believed),
    };

    if (!redis_server_there())
        return 77;
    log_level_set(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
