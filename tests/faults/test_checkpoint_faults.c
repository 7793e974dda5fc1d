/* The progress stores under everything that can happen to a cache: damage, loss, strangers' files, locks, kill -9. The promise
 * is always the same: never fatal, and what is loaded is a true beginning of what was saved. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/mem.h"

#define SEQUENCES 12
#define TOKENS_MAX 2000

static char folder[64], path[96], url[128];
static int32_t tokens[SEQUENCES][TOKENS_MAX];
static uint64_t random_word = 1;

static uint64_t random_next(void)      /* splitmix64 */
{
    uint64_t z = (random_word += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static int setup(void **state)
{
    (void)state;
    strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/nightshift-XXXXXX" : "/tmp/nightshift-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/progress", folder);
    snprintf(url, sizeof url, "sqlite:%s", path);
    for (int i = 0; i < SEQUENCES; i++)
        for (int k = 0; k < TOKENS_MAX; k++) {
            int both[2] = { i, k };

            tokens[i][k] = (int32_t)(hash64(both, sizeof both, 0) % 50000);
        }
    return 0;
}

static int teardown(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static struct ckpt *store_open(void)
{
    struct ckpt *c;
    struct error err;

    if (ckpt_open(url, NULL, &c, &err) != ST_OK)
        fail_msg("%s", err.text);
    return c;
}

static struct ckpt_key key_of(int i)
{
    return (struct ckpt_key){ 9, 0, i, 0 };
}

static const struct ckpt_identity who = { { 1, 2 }, { 3, 4 }, { 5, 6 }, 7 };

static status save(struct ckpt *c, uint64_t token, int i, int32_t saved_n, int32_t n)
{
    struct ckpt_save_item item = { key_of(i), who, tokens[i], n, saved_n };
    uint8_t ok;

    return ckpt_save(c, token, &item, 1, &ok);
}

/* What the store has of a sequence; every token of it must be right. */
static int32_t load(struct ckpt *c, int i)
{
    struct ckpt_key key = key_of(i);
    struct ckpt_progress p;
    struct arena a;
    int32_t n;
    status st;

    arena_init(&a, 4096);
    st = ckpt_load(c, &key, &who, &a, &p);
    if (st != ST_OK && st != ST_AGAIN)
        fail_msg("a load answers %s", status_name(st));
    n = st == ST_OK ? p.tokens_n : 0;
    assert_true(n <= TOKENS_MAX);
    if (n > 0)
        assert_memory_equal(p.tokens, tokens[i], (size_t)n * sizeof tokens[0][0]);
    arena_fini(&a);
    return n;
}

static void fill(struct ckpt *c, uint64_t token)
{
    for (int i = 0; i < SEQUENCES; i++)
        for (int32_t n = 0; n < TOKENS_MAX; n += 100)
            assert_int_equal(save(c, token, i, n, n + 100), ST_OK);
}

static void works(struct ckpt *c)
{
    uint64_t token;

    assert_int_equal(ckpt_acquire(c, 9, 0, &token), ST_OK);
    assert_int_equal(save(c, token, 3, 0, 50), ST_OK);
    assert_int_equal(save(c, token, 3, 50, 80), ST_OK);
    assert_int_equal(load(c, 3), 80);
}

static void bytes_read(const char *from, struct buf *out)
{
    FILE *f = fopen(from, "rb");
    size_t n;

    buf_reset(out);
    if (f == NULL)
        return;
    while ((n = fread(buf_reserve(out, 65536), 1, 65536, f)) > 0)
        out->n += n;
    fclose(f);
}

static void bytes_write(const char *to, const void *bytes, size_t n)
{
    FILE *f = fopen(to, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* ---- files ---- */

static void strangers_files_are_moved_aside(void **state)
{
    static const char text[] = "dear diary, ................................................................................ x";
    char aside[128];
    struct buf b = BUF_EMPTY;
    struct ckpt *c;
    struct stat s;

    (void)state;
    bytes_write(path, text, sizeof text);
    c = store_open();
    works(c);
    ckpt_close(c);
    snprintf(aside, sizeof aside, "%s.damaged-1", path);
    bytes_read(aside, &b);
    assert_int_equal(b.n, sizeof text);
    assert_memory_equal(b.data, text, sizeof text);
    /* A sound database of another program, or of another version of this one: only the header differs. */
    for (int at = 60; at <= 68; at += 8) {                           /* user_version, application_id */
        bytes_read(path, &b);
        b.data[at + 3] ^= 0x40;
        bytes_write(path, b.data, b.n);
        c = store_open();
        assert_int_equal(load(c, 3), 0);
        works(c);
        ckpt_close(c);
        snprintf(aside, sizeof aside, "%s.damaged-%d", path, at == 60 ? 2 : 3);
        assert_int_equal(stat(aside, &s), 0);
    }
    buf_fini(&b);
}

static void places_that_hold_no_file(void **state)
{
    static const struct { const char *url; status st; } places[] = {
        { "sqlite:", ST_REJECT }, { "sqlite:/nowhere/at/all/progress", ST_RETRY }, { "sqlite:/", ST_RETRY },
        { "redis", ST_REJECT }, { "", ST_REJECT }, { "sqlite", ST_REJECT },
    };

    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct ckpt *c = (struct ckpt *)&url;
        struct error err = { "" };

        assert_int_equal(ckpt_open(places[i].url, NULL, &c, &err), places[i].st);
        assert_null(c);
        assert_true(err.text[0] != '\0');
    }
}

/* Any bytes of a full store changed while it is closed: what comes back is right or nothing, and it goes on working. */
static void flipped_bytes(void **state)
{
    struct buf whole = BUF_EMPTY, bad = BUF_EMPTY;
    struct ckpt *c = store_open();
    struct ckpt_key first = key_of(0);
    struct ckpt_attempts stands;
    uint64_t token;
    int lost = 0, kept = 0;

    (void)state;
    assert_int_equal(ckpt_acquire(c, 9, 0, &token), ST_OK);
    fill(c, token);
    assert_int_equal(ckpt_begin(c, token, &first, 1, true, 5, &stands), ST_OK);
    ckpt_close(c);
    bytes_read(path, &whole);
    assert_true(whole.n > 50000);
    for (int round = 0; round < 150; round++) {
        char command[160];

        buf_reset(&bad);
        buf_add(&bad, whole.data, round % 10 == 9 ? random_next() % whole.n : whole.n);
        for (uint64_t k = random_next() % 40; k > 0 && bad.n > 0; k--) {
            size_t at = random_next() % (round % 3 == 0 && bad.n > 4096 ? 4096 : bad.n);

            bad.data[at] = (char)random_next();
        }
        snprintf(command, sizeof command, "rm -f %s*", path);
        assert_int_equal(system(command), 0);
        bytes_write(path, bad.data, bad.n);
        c = store_open();
        for (int i = 0; i < SEQUENCES; i++) {
            int32_t n = load(c, i);

            lost += n < TOKENS_MAX;
            kept += n == TOKENS_MAX;
        }
        assert_true(ckpt_count(c, 9) >= -1);
        for (int i = 0; i < 4 && ckpt_attempts(c, &first, 1, &stands) != ST_OK; i++)
            ;
        for (int i = 0; i < 4 && ckpt_acquire(c, 9, 0, &token) != ST_OK; i++)
            ;
        for (int i = 0; i < 4 && save(c, token, 3, 0, 80) != ST_OK; i++)
            ;
        assert_int_equal(load(c, 3), 80);
        for (int i = 0; i < 4 && ckpt_begin(c, token, &first, 1, true, 6, &stands) != ST_OK; i++)
            ;
        assert_true(stands.starts >= 1);
        ckpt_close(c);
    }
    assert_true(lost > 100 && kept > 100);
    buf_fini(&whole);
    buf_fini(&bad);
}

/* The file goes, or is spoilt, under an open handle. */
static void file_lost_while_open(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        struct ckpt *c = store_open();
        uint64_t token;
        status st = ST_OK;
        int calls = 0;

        assert_int_equal(ckpt_acquire(c, 9, 0, &token), ST_OK);
        fill(c, token);
        ckpt_close(c);
        c = store_open();
        assert_int_equal(load(c, 1), TOKENS_MAX);
        if (how == 0) {
            char wal[128];

            unlink(path);
            snprintf(wal, sizeof wal, "%s-wal", path);
            unlink(wal);
        } else {
            struct buf b = BUF_EMPTY;

            bytes_read(path, &b);
            memset(b.data + 4096, 0xa5, b.n - 4096);
            bytes_write(path, b.data, b.n);
            buf_fini(&b);
        }
        for (int i = 0; i < SEQUENCES; i++)
            load(c, i);
        do {
            st = save(c, token, 5, 0, 60);
            assert_true(st == ST_OK || st == ST_RETRY || st == ST_AGAIN);
        } while (st != ST_OK && ++calls < 5);
        assert_int_equal(st, ST_OK);
        assert_int_equal(load(c, 5), 60);
        ckpt_close(c);
        for (int n = 0; n < 4; n++) {
            char aside[128];

            snprintf(aside, sizeof aside, n ? "%s.damaged-%d" : "%s", path, n);
            unlink(aside);
        }
    }
}

/* Another process holds the write lock: the call waits its two seconds and says so; later it works. */
static void locked_store_is_away(void **state)
{
    struct ckpt *c = store_open();
    struct timespec a, b;
    uint64_t token;
    int ends[2], how;
    char shm[128], byte;
    pid_t child;
    double seconds;

    (void)state;
    assert_int_equal(ckpt_acquire(c, 9, 0, &token), ST_OK);
    assert_int_equal(save(c, token, 1, 0, 10), ST_OK);
    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        /* The write lock of a database in WAL mode is byte 120 of its shared-memory file (sqlite.org/walformat.html). */
        struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 120, .l_len = 1 };
        int fd;

        snprintf(shm, sizeof shm, "%s-shm", path);
        fd = open(shm, O_RDWR);
        if (fd < 0 || fcntl(fd, F_SETLK, &lock) != 0 || write(ends[1], "x", 1) != 1)
            _exit(1);
        pause();
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    clock_gettime(CLOCK_MONOTONIC, &a);
    assert_int_equal(save(c, token, 1, 10, 20), ST_RETRY);
    clock_gettime(CLOCK_MONOTONIC, &b);
    seconds = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
    assert_true(seconds > 1.0);
    assert_int_equal(load(c, 1), 10);                                /* readers do not wait */
    kill(child, SIGKILL);
    waitpid(child, &how, 0);
    assert_int_equal(save(c, token, 1, 10, 20), ST_OK);
    assert_int_equal(load(c, 1), 20);
    ckpt_close(c);
    close(ends[0]);
    close(ends[1]);
}

/* ---- kill -9 ---- */

/* Saves and forgets, and notes in `told` what it was told to be saved. */
_Noreturn static void writer(int round, const char *spec, int32_t *told)
{
    struct ckpt *c = store_open();
    uint64_t token;

    if (failpoint_arm(spec) != ST_OK || ckpt_acquire(c, 9, 0, &token) != ST_OK)
        _exit(1);
    for (int step = 0; step < 100; step++) {
        int i = (round + step) % SEQUENCES;
        int32_t more = 20 + step % 20;
        struct ckpt_key key = key_of(i);

        if (step % 5 == 4) {
            told[i] = 0;
            if (ckpt_forget(c, token, &key, 1) != ST_OK)
                _exit(1);
        } else if (told[i] + more <= TOKENS_MAX) {
            if (save(c, token, i, told[i], told[i] + more) != ST_OK) {
                told[i] = 0;                 /* a try that was not told has gone further, or a forget was not told */
                if (save(c, token, i, 0, more) != ST_OK)
                    _exit(1);
            }
            told[i] += more;
        }
    }
    _exit(0);
}

/* A writer dies on cue or at any moment; what it was told to be saved is there, whole. */
static void killed_writer_loses_nothing(void **state)
{
    static const char *const points[] = { "checkpoint.save.before", "checkpoint.save.after", "checkpoint.forget.before",
                                          "checkpoint.forget.after" };
    int32_t *told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int deaths = 0;

    (void)state;
    assert_true(told != MAP_FAILED);
    for (int round = 0; round < 60; round++) {
        char spec[64];
        struct ckpt *c;
        pid_t child;
        int how;

        snprintf(spec, sizeof spec, "%s:%d", points[round % 4], 1 + round / 4);
        child = fork();
        if (child == 0)
            writer(round, round < 40 ? spec : NULL, told);
        if (round >= 40) {
            const struct timespec pause_for = { 0, (long)(random_next() % 4000000) };

            nanosleep(&pause_for, NULL);
            kill(child, SIGKILL);
        }
        waitpid(child, &how, 0);
        assert_true(WIFSIGNALED(how) ? WTERMSIG(how) == SIGKILL : WEXITSTATUS(how) == 0);
        deaths += WIFSIGNALED(how);
        c = store_open();
        for (int i = 0; i < SEQUENCES; i++)
            if (load(c, i) < told[i])
                fail_msg("round %d: of sequence %d %d tokens were saved", round, i, told[i]);
        ckpt_close(c);
    }
    assert_true(deaths > 30);
    munmap(told, 4096);
}

/* Begins and forgets; told[i] is the starts that it was told of, trying[i] a call whose answer is not there yet. */
_Noreturn static void beginner(int round, const char *spec, volatile int32_t *told, volatile int32_t *trying)
{
    struct ckpt *c = store_open();
    uint64_t token;

    if (failpoint_arm(spec) != ST_OK || ckpt_acquire(c, 9, 0, &token) != ST_OK)
        _exit(1);
    for (int step = 0; step < 40; step++) {
        int i = (round + step) % SEQUENCES;
        struct ckpt_key key = key_of(i);
        struct ckpt_attempts a;

        trying[i] = 1;
        if (step % 8 == 7) {
            if (ckpt_forget(c, token, &key, 1) != ST_OK)
                _exit(1);
            told[i] = 0;
        } else {
            if (ckpt_begin(c, token, &key, 1, step % 3 == 0, (uint64_t)round + 1, &a) != ST_OK)
                _exit(1);
            told[i] = a.starts;
        }
        trying[i] = 0;
    }
    _exit(0);
}

/* Attempts are what is known after a death: each start that was answered is counted, once. */
static void killed_beginner_is_counted(void **state)
{
    static const char *const points[] = { "checkpoint.begin.before", "checkpoint.begin.after", "checkpoint.forget.before",
                                          "checkpoint.forget.after" };
    volatile int32_t *told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    volatile int32_t *trying = told + SEQUENCES;
    int deaths = 0, counted = 0;

    (void)state;
    assert_true(told != MAP_FAILED);
    for (int round = 0; round < 60; round++) {
        char spec[64];
        struct ckpt *c;
        pid_t child;
        int how;

        snprintf(spec, sizeof spec, "%s:%d", points[round % 4], 1 + round / 4 % 5);
        child = fork();
        if (child == 0)
            beginner(round, round < 40 ? spec : NULL, told, trying);
        if (round >= 40) {
            const struct timespec pause_for = { 0, (long)(random_next() % 4000000) };

            nanosleep(&pause_for, NULL);
            kill(child, SIGKILL);
        }
        waitpid(child, &how, 0);
        assert_true(WIFSIGNALED(how) ? WTERMSIG(how) == SIGKILL : WEXITSTATUS(how) == 0);
        deaths += WIFSIGNALED(how);
        c = store_open();
        for (int i = 0; i < SEQUENCES; i++) {
            struct ckpt_key key = key_of(i);
            struct ckpt_attempts a;

            assert_int_equal(ckpt_attempts(c, &key, 1, &a), ST_OK);
            assert_true(a.solo <= a.starts);
            if (trying[i] ? a.starts != 0 && a.starts != told[i] && a.starts != told[i] + 1 : a.starts != told[i])
                fail_msg("round %d: of record %d %d starts were told, %d stand there", round, i, told[i], a.starts);
            counted += a.starts;
            told[i] = a.starts;
            trying[i] = 0;
        }
        ckpt_close(c);
    }
    assert_true(deaths > 30 && counted > 100);
    munmap((void *)(uintptr_t)told, 4096);
}

/* ---- the store for tests can fail ---- */

static void mem_store_fails_on_cue(void **state)
{
    struct ckpt_key key = key_of(2);
    struct ckpt_attempts stands;
    struct ckpt *c;
    struct error err;
    uint64_t token;
    int64_t calls;

    (void)state;
    assert_int_equal(ckpt_open("mem:faulty", NULL, &c, &err), ST_OK);
    assert_int_equal(ckpt_acquire(c, 9, 0, &token), ST_OK);
    ckpt_mem_fail("faulty", CKPT_MEM_REFUSE, 1, 2);
    calls = ckpt_mem_calls("faulty");
    assert_int_equal(save(c, token, 2, 0, 10), ST_OK);
    assert_int_equal(save(c, token, 2, 10, 20), ST_RETRY);
    assert_int_equal(ckpt_count(c, 9), -1);
    assert_int_equal(load(c, 2), 10);
    assert_int_equal(ckpt_mem_calls("faulty"), calls + 4);
    ckpt_mem_fail("faulty", CKPT_MEM_ANSWER_LOST, 0, 1);
    assert_int_equal(save(c, token, 2, 10, 20), ST_RETRY);
    assert_int_equal(load(c, 2), 20);
    assert_int_equal(save(c, token, 2, 10, 30), ST_OK);
    assert_true(ckpt_mem_flip("faulty", &key, 230));                  /* in the second frame of tokens */
    assert_int_equal(load(c, 2), 10);
    assert_int_equal(save(c, token, 2, 0, 30), ST_OK);
    assert_true(ckpt_mem_cut("faulty", &key, 150));
    assert_int_equal(load(c, 2), 0);
    assert_int_equal(save(c, token, 2, 30, 40), ST_AGAIN);
    ckpt_mem_fail("faulty", CKPT_MEM_REFUSE, 0, 1);
    assert_int_equal(ckpt_begin(c, token, &key, 1, false, 3, &stands), ST_RETRY);
    assert_int_equal(stands.starts, 0);
    ckpt_mem_fail("faulty", CKPT_MEM_ANSWER_LOST, 0, 1);
    assert_int_equal(ckpt_begin(c, token, &key, 1, false, 3, &stands), ST_RETRY);
    assert_int_equal(ckpt_begin(c, token, &key, 1, false, 3, &stands), ST_OK);
    assert_int_equal(stands.starts, 1);
    ckpt_mem_lose("faulty");
    assert_int_equal(ckpt_attempts(c, &key, 1, &stands), ST_OK);
    assert_int_equal(stands.starts, 0);
    assert_int_equal(load(c, 2), 0);
    assert_int_equal(save(c, token, 2, 0, 40), ST_OK);
    ckpt_close(c);
    ckpt_mem_drop("faulty");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(strangers_files_are_moved_aside),
        TEST(places_that_hold_no_file),
        TEST(flipped_bytes),
        TEST(file_lost_while_open),
        TEST(locked_store_is_away),
        TEST(killed_writer_loses_nothing),
        TEST(killed_beginner_is_counted),
        TEST(mem_store_fails_on_cue),
    };

    signal(SIGPIPE, SIG_IGN);
    log_level_set(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
