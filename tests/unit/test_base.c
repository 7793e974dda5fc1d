/* base: config table, arena, buffer, bounded queue, checksums, UTF-8, failpoints. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/bqueue.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/utf8.h"

static void config_checks_names_and_ranges(void **state)
{
    struct config cfg;
    struct error err;

    (void)state;
    config_defaults(&cfg);
    assert_int_equal(cfg.step_rows_max, 512);
    assert_string_equal(cfg.device, "cpu");
    assert_int_equal(config_set_pair(&cfg, "threads=3", &err), ST_OK);
    assert_int_equal(cfg.threads, 3);
    assert_int_equal(config_set_pair(&cfg, "threads=1025", &err), ST_REJECT);
    assert_non_null(strstr(err.text, "0 to 1024"));
    assert_int_equal(config_set_pair(&cfg, "threads=3x", &err), ST_REJECT);
    assert_int_equal(config_set_pair(&cfg, "threads=", &err), ST_REJECT);
    assert_int_equal(config_set_pair(&cfg, "threads=99999999999999999999", &err), ST_REJECT);
    assert_int_equal(config_set_pair(&cfg, "tread=3", &err), ST_REJECT);
    assert_non_null(strstr(err.text, "tread"));
    assert_int_equal(config_set_pair(&cfg, "threads", &err), ST_REJECT);
    assert_int_equal(cfg.threads, 3);
}

/* Settings of librdkafka's own: kept as they stand, secrets shown to nobody, read from files and the environment. */
static void config_keeps_pairs(void **state)
{
    char path[] = "/tmp/nightshift-pair-XXXXXX", pair[128], *value, *text = NULL;
    size_t text_n;
    struct config cfg;
    struct error err;
    FILE *out;
    int fd = mkstemp(path);

    (void)state;
    config_defaults(&cfg);
    assert_int_equal(config_set_pair(&cfg, "kafka.security.protocol=PLAINTEXT", &err), ST_OK);
    assert_int_equal(config_set_pair(&cfg, "kafka.security.protocol=SASL_SSL", &err), ST_OK);
    assert_int_equal(config_set_pair(&cfg, "kafka.sasl.password=hunter2", &err), ST_OK);
    assert_int_equal(cfg.kafka_pairs_n, 2);
    assert_string_equal(cfg.kafka_pairs[0].name, "security.protocol");
    assert_string_equal(cfg.kafka_pairs[0].value, "SASL_SSL");
    assert_int_equal(config_set_pair(&cfg, "kafka.=x", &err), ST_REJECT);
    for (int i = 2; i < CONF_PAIRS_MAX; i++) {
        snprintf(pair, sizeof pair, "kafka.x%d=y", i);
        assert_int_equal(config_set_pair(&cfg, pair, &err), ST_OK);
    }
    assert_int_equal(config_set_pair(&cfg, "kafka.one.more=y", &err), ST_REJECT);
    for (int format = CONFIG_TEXT; format <= CONFIG_JSON; format++) {
        out = open_memstream(&text, &text_n);
        config_print(&cfg, (enum config_format)format, out);
        fclose(out);
        assert_non_null(strstr(text, "SASL_SSL"));
        assert_null(strstr(text, "hunter2"));
        free(text);
    }
    assert_int_equal(write(fd, "from a file\r\n", 13), 13);
    close(fd);
    snprintf(pair, sizeof pair, "@%s", path);
    assert_int_equal(config_value_read("n", pair, &value, &err), ST_OK);
    assert_string_equal(value, "from a file");
    config_value_free(value);
    unlink(path);
    assert_int_equal(config_value_read("n", pair, &value, &err), ST_REJECT);
    setenv("NIGHTSHIFT_TEST_PAIR", "from the environment", 1);
    assert_int_equal(config_value_read("n", "$NIGHTSHIFT_TEST_PAIR", &value, &err), ST_OK);
    assert_string_equal(value, "from the environment");
    config_value_free(value);
    assert_int_equal(config_value_read("n", "$NIGHTSHIFT_TEST_NO_SUCH", &value, &err), ST_REJECT);
    assert_null(value);
}

static void config_shows_urls_without_secrets(void **state)
{
    static const struct { const char *url, *shown; } urls[] = {
        { "redis://h:1/2", "redis://h:1/2" }, { "redis://:pw@h:1/2", "redis://***@h:1/2" },
        { "redis://ann:p@s/s@h", "redis://***@h" }, { "rediss+sentinel://u:p@a:1,b:2/m", "rediss+sentinel://***@a:1,b:2/m" },
        { "sqlite:/a@b", "sqlite:/a@b" }, { "@/run/secrets/url", "@/run/secrets/url" }, { "redis://@", "redis://***@" }, { "", "" },
    };
    struct config cfg;
    struct error err;
    char shown[CONF_TEXT_MAX], *text;
    size_t n;

    (void)state;
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++)
        assert_string_equal(config_url_shown(urls[i].url, shown), urls[i].shown);
    config_defaults(&cfg);
    assert_int_equal(config_set_pair(&cfg, "checkpoint_url=redis://:hunter2@h", &err), ST_OK);
    for (int format = CONFIG_TEXT; format <= CONFIG_MARKDOWN; format++) {
        FILE *out = open_memstream(&text, &n);

        assert_non_null(out);
        config_print(&cfg, (enum config_format)format, out);
        fclose(out);
        assert_null(strstr(text, "hunter2"));
        free(text);
    }
}

static void config_reads_a_file(void **state)
{
    char path[] = "/tmp/nightshift-config-XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    struct config cfg;
    struct error err;

    (void)state;
    config_defaults(&cfg);
    fputs("[machine]\nthreads = 7\n; a comment\n[lines]\nline_mb_max = 0\n", f);
    fclose(f);
    assert_int_equal(config_file(&cfg, path, &err), ST_REJECT);
    assert_non_null(strstr(err.text, "line 5"));
    assert_non_null(strstr(err.text, "line_mb_max"));
    assert_int_equal(cfg.threads, 7);
    unlink(path);
    assert_int_equal(config_file(&cfg, path, &err), ST_REJECT);
    assert_non_null(strstr(err.text, path));
}

/* One line is one setting, whatever its length: nothing of it is read as another line or goes over the setting before. */
static void config_lines_are_whole(void **state)
{
    static const struct { const char *text; int pad_n; const char *more, *refusal; int64_t threads; } cases[] = {
        { "threads = 3 ; ", 300, "\n", NULL, 3 },
        { "threads = 3 ; ", 190, " from there\nlog_level = info\n", NULL, 3 },      /* what `nightshift config` prints */
        { "; ", 300, " threads = 4\n# threads = 5\nx\n", "line 3: name = value", 0 },
        { "\xef\xbb\xbfthreads = 2\r\n", 0, "", NULL, 2 },
        { "threads = 3\n  4\n", 0, "", "line 2: name = value", 3 },
        { "  threads=3\t\n\n;\n\t\n", 0, "", NULL, 3 },
        { "threads = 3\nlog_level = ", 300, "\n", "line 2: it is too long", 3 },
        { "log_level = ", 198, " threads = 9\n", "line 1: it is too long", 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[] = "/tmp/nightshift-config-XXXXXX";
        int fd = mkstemp(path);
        FILE *f = fdopen(fd, "w");
        struct config cfg;
        struct error err = { "" };
        status st;

        config_defaults(&cfg);
        fputs(cases[i].text, f);
        for (int k = 0; k < cases[i].pad_n; k++)
            fputc('x', f);
        fputs(cases[i].more, f);
        fclose(f);
        st = config_file(&cfg, path, &err);
        unlink(path);
        assert_int_equal(cfg.threads, cases[i].threads);
        assert_int_equal(st, cases[i].refusal == NULL ? ST_OK : ST_REJECT);
        if (cases[i].refusal != NULL)
            assert_non_null(strstr(err.text, cases[i].refusal));
    }
}

static void arena_keeps_what_it_gave(void **state)
{
    struct arena a;
    unsigned char *p[200];

    (void)state;
    arena_init(&a, 256);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 200; i++) {
            p[i] = arena_take(&a, (size_t)i * 7);
            assert_int_equal((uintptr_t)p[i] % 16, 0);
            memset(p[i], i, (size_t)i * 7);
        }
        for (int i = 0; i < 200; i++)
            for (int k = 0; k < i * 7; k++)
                assert_int_equal(p[i][k], i);
        arena_reset(&a);
    }
    assert_string_equal(arena_copy(&a, "abc", 2), "ab");
    arena_fini(&a);
}

static void buffer_grows_and_formats(void **state)
{
    struct buf b = BUF_EMPTY;
    char *text;

    (void)state;
    for (int i = 0; i < 1000; i++)
        buf_add_format(&b, "%d,", i);
    assert_int_equal(b.n, 10 * 2 + 90 * 3 + 900 * 4);
    text = buf_steal(&b);
    assert_memory_equal(text, "0,1,2,", 6);
    assert_int_equal(strlen(text), 10 * 2 + 90 * 3 + 900 * 4);
    free(text);
    buf_fini(&b);
}

enum { PUSHERS = 3, ITEMS = 20000 };

static void *pusher(void *arg)
{
    struct bqueue *q = arg;

    for (uintptr_t i = 1; i <= ITEMS; i++)
        assert_int_equal(bqueue_push(q, (void *)i), ST_OK);
    return NULL;
}

static void queue_loses_nothing_between_threads(void **state)
{
    struct bqueue *q = bqueue_open(7);
    pthread_t threads[PUSHERS];
    void *items[5];
    uint64_t sum = 0, n = 0;
    size_t got;

    (void)state;
    for (int i = 0; i < PUSHERS; i++)
        pthread_create(&threads[i], NULL, pusher, q);
    while (n < PUSHERS * ITEMS) {
        got = bqueue_pop(q, items, 5, 1000);
        assert_in_range(got, 1, 5);
        for (size_t i = 0; i < got; i++)
            sum += (uintptr_t)items[i];
        n += got;
    }
    for (int i = 0; i < PUSHERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(sum, (uint64_t)PUSHERS * ITEMS * (ITEMS + 1) / 2);
    assert_int_equal(bqueue_pop(q, items, 5, 1), 0);
    assert_false(bqueue_ended(q));
    bqueue_free(q);
}

static void queue_pushes_back_and_closes(void **state)
{
    struct bqueue *q = bqueue_open(2);
    void *items[4];

    (void)state;
    assert_int_equal(bqueue_push_now(q, (void *)1), ST_OK);
    assert_int_equal(bqueue_push_now(q, (void *)2), ST_OK);
    assert_int_equal(bqueue_push_now(q, (void *)3), ST_AGAIN);
    bqueue_close(q);
    assert_int_equal(bqueue_push(q, (void *)3), ST_FENCED);
    assert_false(bqueue_ended(q));
    assert_int_equal(bqueue_pop(q, items, 4, -1), 2);
    assert_ptr_equal(items[0], (void *)1);
    assert_ptr_equal(items[1], (void *)2);
    assert_true(bqueue_ended(q));
    assert_int_equal(bqueue_pop(q, items, 4, -1), 0);
    bqueue_free(q);
}

static void checksums_match_published_values(void **state)
{
    unsigned char zeros[32] = { 0 }, ramp[32];
    struct hasher *h = hasher_open();
    struct hash128 whole = hash128("123456789", 9), parts;
    char hex[33];

    (void)state;
    for (int i = 0; i < 32; i++)
        ramp[i] = (unsigned char)i;
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);       /* RFC 3720 B.4 and the usual check value */
    assert_int_equal(crc32c(0, zeros, 32), 0x8a9136aa);
    assert_int_equal(crc32c(0, ramp, 32), 0x46dd794e);
    assert_int_equal(crc32c(crc32c(0, ramp, 11), ramp + 11, 21), 0x46dd794e);
    hasher_add(h, "1234", 4);
    hasher_add(h, "56789", 5);
    parts = hasher_end(h);
    assert_true(parts.high == whole.high && parts.low == whole.low);
    hash128_hex(whole, hex);
    assert_int_equal(strlen(hex), 32);
}

/* Every string of up to four bytes from a set of interesting ones, against the table of RFC 3629 section 4. */
static int oracle_char(const unsigned char *p, size_t n)
{
    unsigned c = p[0], lo = 0x80, hi = 0xbf;
    int len;

    if (c < 0x80)
        return 1;
    if (c >= 0xc2 && c <= 0xdf) len = 2;
    else if (c >= 0xe0 && c <= 0xef) len = 3;
    else if (c >= 0xf0 && c <= 0xf4) len = 4;
    else return 0;
    if (c == 0xe0) lo = 0xa0;
    if (c == 0xed) hi = 0x9f;
    if (c == 0xf0) lo = 0x90;
    if (c == 0xf4) hi = 0x8f;
    for (int i = 1; i < len; i++) {
        if ((size_t)i == n)
            return -1;
        if (p[i] < (i == 1 ? lo : 0x80) || p[i] > (i == 1 ? hi : 0xbf))
            return 0;
    }
    return len;
}

static void utf8_agrees_with_the_rfc_table(void **state)
{
    static const unsigned char set[] = { 0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0,
                                         0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff };
    unsigned char p[4];
    uint32_t code;
    char put[4];

    (void)state;
    for (size_t i = 0; i < sizeof set; i++)
    for (size_t j = 0; j < sizeof set; j++)
    for (size_t k = 0; k < sizeof set; k++)
    for (size_t l = 0; l < sizeof set; l++) {
        p[0] = set[i]; p[1] = set[j]; p[2] = set[k]; p[3] = set[l];
        for (size_t n = 1; n <= 4; n++) {
            int len = utf8_char((char *)p, n, &code);

            assert_int_equal(len, oracle_char(p, n));
            if (len > 0) {
                assert_int_equal(utf8_put(put, code), len);
                assert_memory_equal(put, p, (size_t)len);
            }
        }
    }
    assert_int_equal(utf8_valid("0123456789abcdef\xc3\xa9 0123456\xff", 27), 26);
    assert_int_equal(utf8_valid("01234567\xc3\xa9 01234567", 19), 19);
}

static void failpoint_kills_at_the_nth_time(void **state)
{
    int how, reached[2];
    char byte;
    pid_t pid;

    (void)state;
    assert_int_equal(failpoint_arm("x"), ST_REJECT);
    assert_int_equal(failpoint_arm("x:0"), ST_REJECT);
    assert_int_equal(failpoint_arm(":1"), ST_REJECT);
    assert_int_equal(failpoint_arm("x:1y"), ST_REJECT);
    assert_int_equal(pipe(reached), 0);
    pid = fork();
    if (pid == 0) {
        if (failpoint_arm("here:3") != ST_OK)
            _exit(9);
        for (int i = 0; i < 2; i++)
            failpoint("here");
        if (write(reached[1], "2", 1) != 1)
            _exit(7);
        failpoint("there");
        failpoint("here");
        _exit(8);
    }
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    close(reached[1]);
    assert_int_equal(read(reached[0], &byte, 1), 1);       /* two times were survived */
    close(reached[0]);
    assert_int_equal(failpoint_arm(NULL), ST_OK);
    failpoint("here");
}

static void failpoint_has_a_text(void **state)
{
    (void)state;
    assert_int_equal(failpoint_arm("=x"), ST_REJECT);
    assert_int_equal(failpoint_arm("here="), ST_REJECT);
    assert_null(failpoint_text("here"));
    assert_int_equal(failpoint_arm("here=a text:1"), ST_OK);
    assert_string_equal(failpoint_text("here"), "a text:1");
    assert_null(failpoint_text("there"));
    failpoint("here");                 /* one that looks for a text kills nobody by being reached */
    assert_int_equal(failpoint_arm("here:9"), ST_OK);
    assert_null(failpoint_text("here"));
    assert_int_equal(failpoint_arm(NULL), ST_OK);
    assert_null(failpoint_text("here"));
}

static void failpoint_stops_and_sleeps(void **state)
{
    int64_t begun_ns = clock_mono_ns();
    int how;
    pid_t pid;

    (void)state;
    assert_int_equal(failpoint_arm("x:1:"), ST_REJECT);
    assert_int_equal(failpoint_arm("x:1:dance"), ST_REJECT);
    assert_int_equal(failpoint_arm("x:1:sleep="), ST_REJECT);
    assert_int_equal(failpoint_arm("x:1:sleep=0"), ST_REJECT);
    assert_int_equal(failpoint_arm("x:1:sleep=5s"), ST_REJECT);
    assert_int_equal(failpoint_arm("x:1:sleep=60"), ST_OK);
    failpoint("x");
    assert_true(clock_mono_ns() - begun_ns >= 60 * NS_PER_MS);
    assert_int_equal(failpoint_arm(NULL), ST_OK);
    pid = fork();
    if (pid == 0) {
        if (failpoint_arm("x:2:stop") != ST_OK)
            _exit(9);
        failpoint("x");
        failpoint("x");
        _exit(8);
    }
    assert_int_equal(waitpid(pid, &how, WUNTRACED), pid);
    assert_true(WIFSTOPPED(how) && WSTOPSIG(how) == SIGSTOP);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 8);  /* it goes on where it stood */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_checks_names_and_ranges),
        cmocka_unit_test(config_keeps_pairs),
        cmocka_unit_test(config_shows_urls_without_secrets),
        cmocka_unit_test(config_reads_a_file),
        cmocka_unit_test(config_lines_are_whole),
        cmocka_unit_test(arena_keeps_what_it_gave),
        cmocka_unit_test(buffer_grows_and_formats),
        cmocka_unit_test(queue_loses_nothing_between_threads),
        cmocka_unit_test(queue_pushes_back_and_closes),
        cmocka_unit_test(checksums_match_published_values),
        cmocka_unit_test(utf8_agrees_with_the_rfc_table),
        cmocka_unit_test(failpoint_kills_at_the_nth_time),
        cmocka_unit_test(failpoint_has_a_text),
        cmocka_unit_test(failpoint_stops_and_sleeps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
