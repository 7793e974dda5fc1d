/* The progress store in Redis at start: addresses, passwords and rights, servers that will not do, what is said about memory, and
 * Sentinel with a failover. What must never show: a password. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/redis_link.h"
#include "checkpoint/redis_resolve.h"
#include "checkpoint/redis_tls.h"
#include "checkpoint/redis_url.h"
#include "tests/support/redis_server.h"

#define SECRET "s3cr/t@:%"
#define SECRET_URL "s3cr%2Ft%40:%25"

static struct redis_server redis, second;
static struct config cfg;
static char said[65536];
static int said_fd, stderr_fd;

/* What the log and nobody else says goes to a file until said_end. */
static void said_begin(void)
{
    char path[] = "/tmp/nightshift-log-XXXXXX";

    said_fd = mkstemp(path);
    assert_true(said_fd >= 0);
    unlink(path);
    fflush(stderr);
    stderr_fd = dup(STDERR_FILENO);
    dup2(said_fd, STDERR_FILENO);
}

static void said_end(void)
{
    ssize_t n;

    fflush(stderr);
    dup2(stderr_fd, STDERR_FILENO);
    close(stderr_fd);
    n = pread(said_fd, said, sizeof said - 1, 0);
    assert_true(n >= 0);
    said[n] = '\0';
    close(said_fd);
}

static int setup(void **state)
{
    (void)state;
    config_defaults(&cfg);
    cfg.checkpoint_timeout_ms = 5000;
    log_level_set(LOG_INFO);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    log_level_set(LOG_ERROR);
    redis_server_end(&redis);
    redis_server_end(&second);
    return 0;
}

static status try_open(const char *url, struct ckpt **out, struct error *err)
{
    status st;

    err->text[0] = '\0';
    said_begin();
    st = ckpt_open(url, &cfg, out, err);
    said_end();
    assert_true((st == ST_OK) == (*out != NULL));
    return st;
}

static void is_said(const char *text, const char *what)
{
    if (strstr(text, what) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", text, what);
}

static bool works(struct ckpt *c)
{
    static const int32_t tokens[3] = { 1, 2, 3 };
    const struct ckpt_save_item item = { { 9, 0, 1, 0 }, { .seed = 7 }, tokens, 3, 0 };
    uint64_t token;
    uint8_t ok;

    return ckpt_acquire(c, 9, 0, &token) == ST_OK && ckpt_save(c, token, &item, 1, &ok) == ST_OK;
}

static void url_set(char url[128], const char *user, const char *db)
{
    snprintf(url, 128, "redis://%s@127.0.0.1:%d%s", user, redis.port, db);
}

/* ---- addresses ---- */

static void urls_are_read(void **state)
{
    struct redis_url u;
    struct error err;

    (void)state;
    assert_int_equal(redis_url_parse("redis://db.example", &u, &err), ST_OK);
    assert_string_equal(u.hosts[0].name, "db.example");
    assert_int_equal(u.hosts[0].port, 6379);
    assert_int_equal(u.hosts_n, 1);
    assert_false(u.tls || u.sentinel || u.db || u.user[0] || u.password[0]);
    assert_int_equal(redis_url_parse("redis://ann:" SECRET_URL "@[fd00::7]:6380/12", &u, &err), ST_OK);
    assert_string_equal(u.hosts[0].name, "fd00::7");
    assert_int_equal(u.hosts[0].port, 6380);
    assert_string_equal(u.user, "ann");
    assert_string_equal(u.password, SECRET);
    assert_int_equal(u.db, 12);
    assert_int_equal(redis_url_parse("rediss://:p@h/", &u, &err), ST_OK);
    assert_true(u.tls);
    assert_string_equal(u.user, "");
    assert_string_equal(u.password, "p");
    assert_int_equal(redis_url_parse("redis+sentinel://a:1,b,[::1]:3/master-1/2", &u, &err), ST_OK);
    assert_true(u.sentinel);
    assert_int_equal(u.hosts_n, 3);
    assert_int_equal(u.hosts[1].port, 26379);
    assert_string_equal(u.hosts[2].name, "::1");
    assert_string_equal(u.master, "master-1");
    assert_int_equal(u.db, 2);
}

static void odd_urls_are_refused(void **state)
{
    static const char *const odd[] = {
        "redis://", "redis:/h", "redis://h:0", "redis://h:65536", "redis://h:x", "redis://h:-1", "redis://h:", "redis://a,b",
        "redis://h/x", "redis://h/65536", "redis://h/1/2", "redis://@h", "redis://u@h", "redis://:@h", "redis://:%zz@h",
        "redis://:%0@h", "redis://:%00@h", "redis://[::1", "redis://[::1]x", "redis://:p@", "redis+sentinel://a:1", "redis+sentinel://a:1/",
        "redis+sentinel://a,,b/m", "redis+sentinel://a/m/x", "redis+sentinel://1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17/m", "redisx://h",
    };
    char longest[1200] = "redis://:";
    struct redis_url u;
    struct error err;

    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        if (redis_url_parse(odd[i], &u, &err) != ST_REJECT || err.text[0] == '\0')
            fail_msg("%s is taken", odd[i]);
    memset(longest + 9, 'x', 1000);
    strcpy(longest + 1009, "@h");
    assert_int_equal(redis_url_parse(longest, &u, &err), ST_REJECT);
    assert_null(strstr(err.text, "xxx"));
}

/* A server with a certificate of its own for localhost; its authority is itself. False: there is no openssl to make one. */
static bool tls_server_start(struct redis_server *s, char certificate[128])
{
    char command[512], key[128], port[16];

    redis_server_start(s, NULL);                                           /* for its folder */
    redis_server_kill(s);
    snprintf(certificate, 128, "%s/cert.pem", s->folder);
    snprintf(key, sizeof key, "%s/key.pem", s->folder);
    snprintf(command, sizeof command, "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext "
             "subjectAltName=DNS:localhost -keyout %s -out %s 2>/dev/null", key, certificate);
    if (system(command) != 0)
        return false;
    s->tls_port = port_free();
    snprintf(port, sizeof port, "%d", s->tls_port);
    redis_server_start(s, (const char *const[]){ "--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key,
                                                 "--tls-auth-clients", "no", NULL });
    return true;
}

/* More than any one read or record of TLS holds. */
static void much_goes_there_and_back(struct ckpt *c)
{
    enum { N = 300000 };
    static int32_t tokens[N];
    struct ckpt_save_item item = { { 9, 0, 2, 0 }, { .seed = 7 }, tokens, N, 0 };
    struct ckpt_progress p;
    struct arena a;
    uint64_t token;
    uint8_t ok;

    for (int32_t i = 0; i < N; i++)
        tokens[i] = 31 * i;
    assert_int_equal(ckpt_acquire(c, 9, 0, &token), ST_OK);
    assert_int_equal(ckpt_save(c, token, &item, 1, &ok), ST_OK);
    arena_init(&a, 4096);
    assert_int_equal(ckpt_load(c, &item.key, &item.identity, &a, &p), ST_OK);
    assert_int_equal(p.tokens_n, N);
    assert_memory_equal(p.tokens, tokens, sizeof tokens);
    arena_fini(&a);
}

static void tls_url_set(char url[128], const char *host, const struct redis_server *s)
{
    snprintf(url, 128, "rediss://%s:%d", host, s->tls_port);
}

/* Where this build has TLS, a server is believed whose certificate is sound and bears the name that was asked for. */
static void tls_verifies_or_names_the_cure(void **state)
{
    char url[128], certificate[128], other[128];
    struct ckpt *c;
    struct error err;

    (void)state;
    if (redis_tls_known(&err) != ST_OK) {
        assert_int_equal(try_open("rediss://127.0.0.1:1", &c, &err), ST_REJECT);
        is_said(err.text, "stunnel");
        is_said(err.text, "hiredis 1.0");
        return;
    }
    if (!tls_server_start(&redis, certificate) || !tls_server_start(&second, other))
        skip();
    setenv("SSL_CERT_FILE", certificate, 1);
    tls_url_set(url, "localhost", &redis);
    assert_int_equal(try_open(url, &c, &err), ST_OK);
    assert_true(works(c));
    much_goes_there_and_back(c);
    ckpt_close(c);
    tls_url_set(url, "127.0.0.1", &redis);
    assert_int_equal(try_open(url, &c, &err), ST_OK);
    is_said(said, "IP address mismatch");
    assert_false(works(c));
    ckpt_close(c);
    tls_url_set(url, "localhost", &second);
    assert_int_equal(try_open(url, &c, &err), ST_OK);
    is_said(said, "self-signed");
    assert_false(works(c));
    ckpt_close(c);
    snprintf(url, sizeof url, "rediss://localhost:%d", redis.port);        /* no TLS there */
    assert_int_equal(try_open(url, &c, &err), ST_OK);
    is_said(said, "state=away");
    ckpt_close(c);
}

/* ---- names ---- */

static atomic_int look_ups;

/* A resolver that hangs for "slow", knows nobody called "none", and everybody else. */
static const char *lookup(const char *name, struct redis_addresses *out)
{
    atomic_fetch_add(&look_ups, 1);
    if (strcmp(name, "slow") == 0)
        nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
    if (strcmp(name, "none") == 0)
        return "no such name";
    snprintf(out->text[0], REDIS_ADDRESS_N, "192.0.2.%zu", strlen(name));
    out->n = 1;
    return NULL;
}

static status resolve(struct redis_resolver *r, const char *name, int wait_ms, struct redis_addresses *out, const char **why)
{
    int64_t begun = clock_mono_ns();
    status st = redis_resolve(r, name, begun + wait_ms * NS_PER_MS, out, why);

    assert_true(clock_mono_ns() - begun < (wait_ms + 900) * NS_PER_MS);
    return st;
}

static void names_are_looked_up_without_waiting(void **state)
{
    struct redis_resolver *r = redis_resolver_open(lookup);
    struct redis_addresses found;
    const char *why = NULL;

    (void)state;
    assert_int_equal(resolve(r, "abc", 5000, &found, &why), ST_OK);
    assert_string_equal(found.text[0], "192.0.2.3");
    assert_int_equal(resolve(r, "none", 5000, &found, &why), ST_RETRY);
    is_said(why, "no such name");
    assert_int_equal(found.n, 0);
    assert_int_equal(atomic_load(&look_ups), 2);
    assert_int_equal(resolve(r, "192.0.2.77", 0, &found, &why), ST_OK);    /* no name at all */
    assert_int_equal(resolve(r, "fd00::7", 0, &found, &why), ST_OK);
    assert_int_equal(atomic_load(&look_ups), 2);
    assert_int_equal(resolve(r, "slow", 20, &found, &why), ST_AGAIN);
    is_said(why, "does not answer");
    assert_int_equal(resolve(r, "abc", 20, &found, &why), ST_AGAIN);       /* one at a time */
    assert_int_equal(resolve(r, "slow", 20, &found, &why), ST_AGAIN);
    assert_int_equal(atomic_load(&look_ups), 3);
    assert_int_equal(resolve(r, "abcd", 5000, &found, &why), ST_OK);       /* not the answer to "slow" */
    assert_string_equal(found.text[0], "192.0.2.4");
    assert_int_equal(resolve(r, "slow", 20, &found, &why), ST_AGAIN);
    nanosleep(&(struct timespec){ .tv_sec = 1, .tv_nsec = 300 * 1000000 }, NULL);
    assert_int_equal(resolve(r, "slow", 20, &found, &why), ST_OK);         /* it has come meanwhile */
    assert_int_equal(atomic_load(&look_ups), 5);
    assert_int_equal(resolve(r, "slow", 20, &found, &why), ST_AGAIN);
    redis_resolver_close(r);                                               /* and waits for nobody */
    nanosleep(&(struct timespec){ .tv_sec = 1, .tv_nsec = 300 * 1000000 }, NULL);
    redis_resolver_close(NULL);
}

/* The system's own. */
static void localhost_is_known(void **state)
{
    struct redis_resolver *r = redis_resolver_open(NULL);
    struct redis_addresses found;
    const char *why = NULL;

    (void)state;
    assert_int_equal(resolve(r, "localhost", 20000, &found, &why), ST_OK);
    assert_true(found.n >= 1);
    for (int i = 0; i < found.n; i++)
        assert_true(strcmp(found.text[i], "127.0.0.1") == 0 || strcmp(found.text[i], "::1") == 0);
    redis_resolver_close(r);
}

/* ---- error replies ---- */

static void error_replies_are_understood(void **state)
{
    static const struct { const char *text; enum ckpt_error error; enum redis_reaction reaction; } replies[] = {
        { "READONLY You can't write against a read only replica.", CKPT_ERROR_READONLY, REDIS_LEAVE },
        { "LOADING Redis is loading the dataset in memory", CKPT_ERROR_LOADING, REDIS_WAIT },
        { "MASTERDOWN Link with MASTER is down", CKPT_ERROR_UNSAFE, REDIS_LEAVE },
        { "NOREPLICAS Not enough good replicas to write.", CKPT_ERROR_UNSAFE, REDIS_LEAVE },
        { "CLUSTERDOWN Hash slot not served", CKPT_ERROR_UNSAFE, REDIS_LEAVE },
        { "MOVED 3999 127.0.0.1:6381", CKPT_ERROR_UNSAFE, REDIS_LEAVE },
        { "ASK 3999 127.0.0.1:6381", CKPT_ERROR_UNSAFE, REDIS_LEAVE },
        { "NOSCRIPT No matching script. Please use EVAL.", CKPT_ERROR_OTHER, REDIS_LOAD_SCRIPTS },
        { "OOM command not allowed when used memory > 'maxmemory'. script: 5f, on @user_script:1.", CKPT_ERROR_FULL, REDIS_WAIT },
        { "MISCONF Redis is configured to save RDB snapshots", CKPT_ERROR_FULL, REDIS_WAIT },
        { "BUSY Redis is busy running a script.", CKPT_ERROR_BUSY, REDIS_WAIT },
        { "NOAUTH Authentication required.", CKPT_ERROR_DENIED, REDIS_LEAVE },
        { "WRONGPASS invalid username-password pair", CKPT_ERROR_DENIED, REDIS_LEAVE },
        { "NOPERM this user has no permissions", CKPT_ERROR_DENIED, REDIS_LEAVE },
        { "WRONGTYPE Operation against a key", CKPT_ERROR_OTHER, REDIS_TYPE },
        { "ERR Error running script (call to f_0a): @user_script:3: @user_script: 3: -READONLY You can't write against a read "
          "only replica.", CKPT_ERROR_READONLY, REDIS_LEAVE },
        { "ERR Error running script (call to f_0a): @user_script:3: -OOM command not allowed when used memory > 'maxmemory'.",
          CKPT_ERROR_FULL, REDIS_WAIT },
        { "ERR Error running script (call to f_0a): @user_script:3: -MISCONF Redis is configured", CKPT_ERROR_FULL, REDIS_WAIT },
        { "ERR Error running script (call to f_0a): @user_script:3: - - -", CKPT_ERROR_OTHER, REDIS_LEAVE },
        { "ERR max number of clients reached", CKPT_ERROR_OTHER, REDIS_LEAVE },
        { "ERR unknown command 'x', with args beginning with: '-OOM '", CKPT_ERROR_OTHER, REDIS_LEAVE },
        { "BUSYGROUP", CKPT_ERROR_OTHER, REDIS_LEAVE }, { "OO", CKPT_ERROR_OTHER, REDIS_LEAVE }, { "", CKPT_ERROR_OTHER, REDIS_LEAVE },
    };

    (void)state;
    for (size_t i = 0; i < sizeof replies / sizeof replies[0]; i++) {
        struct redis_meaning m = redis_error_meaning(replies[i].text);

        if (m.error != replies[i].error || m.reaction != replies[i].reaction)
            fail_msg("\"%s\" means %d %d", replies[i].text, m.error, m.reaction);
    }
}

/* ---- passwords and rights ---- */

static void passwords_are_told_apart_and_never_shown(void **state)
{
    char url[128];
    struct ckpt *c;
    struct error err;

    (void)state;
    redis_server_start(&redis, (const char *const[]){ "--requirepass", SECRET, NULL });
    assert_int_equal(try_open(redis.url, &c, &err), ST_REJECT);
    is_said(err.text, "denies access");
    is_said(err.text, "NOAUTH");
    url_set(url, ":wr0ng", "");
    assert_int_equal(try_open(url, &c, &err), ST_REJECT);
    is_said(err.text, "WRONGPASS");
    assert_null(strstr(err.text, "wr0ng"));
    assert_null(strstr(said, "wr0ng"));
    url_set(url, ":" SECRET_URL, "/3");
    assert_int_equal(try_open(url, &c, &err), ST_OK);
    assert_true(works(c));
    assert_null(strstr(said, "s3cr"));
    ckpt_close(c);
    assert_int_equal(setenv("NIGHTSHIFT_TEST_URL", url, 1), 0);
    assert_int_equal(try_open("$NIGHTSHIFT_TEST_URL", &c, &err), ST_OK);
    assert_true(works(c));
    ckpt_close(c);
    url_set(url, "default:" SECRET_URL, "/99");
    assert_int_equal(try_open(url, &c, &err), ST_OK);                      /* no such db: an error of the server's own */
    assert_false(works(c));
    is_said(said, "DB index is out of range");
    assert_null(strstr(said, "s3cr"));
    ckpt_close(c);
}

/* A server that does not know AUTH quotes what it was given. */
static void what_a_server_quotes_is_not_repeated(void **state)
{
    char url[128];
    struct ckpt *c;
    struct error err;

    (void)state;
    redis_server_start(&redis, (const char *const[]){ "--rename-command", "AUTH", "", NULL });
    url_set(url, ":" SECRET_URL, "");
    assert_int_equal(try_open(url, &c, &err), ST_REJECT);
    is_said(err.text, "refuses AUTH");
    assert_null(strstr(err.text, "s3cr"));
    assert_null(strstr(said, "s3cr"));
}

static void too_few_rights_are_told(void **state)
{
    char url[128];
    struct ckpt *c;
    struct error err;

    (void)state;
    redis_server_start(&redis, NULL);
    redis_server_ask(&redis, "ACL SETUSER ann on >pw ~ns:* +@all -@scripting");
    redis_server_ask(&redis, "ACL SETUSER bob on >pw ~ns:* -@all +@read +@write +@scripting +time +info");
    redis_server_ask(&redis, "ACL SETUSER eve on >pw ~other:* +@all");
    url_set(url, "ann:pw", "");
    assert_int_equal(try_open(url, &c, &err), ST_REJECT);
    is_said(err.text, "NOPERM");
    url_set(url, "bob:pw", "");
    assert_int_equal(try_open(url, &c, &err), ST_OK);                      /* what docs/operations.md asks for is enough */
    assert_true(works(c));
    assert_true(ckpt_count(c, 9) > 0);
    ckpt_close(c);
    url_set(url, "eve:pw", "");
    assert_int_equal(try_open(url, &c, &err), ST_OK);
    assert_false(works(c));                                                /* at run time: away, and someone must act */
    ckpt_close(c);
}

/* ---- servers that will not do, that are not there, that are small ---- */

static void cluster_is_refused(void **state)
{
    char bus[16];
    struct ckpt *c;
    struct error err;

    (void)state;
    snprintf(bus, sizeof bus, "%d", port_free());
    redis_server_start(&redis, (const char *const[]){ "--cluster-enabled", "yes", "--cluster-port", bus, NULL });
    assert_int_equal(try_open(redis.url, &c, &err), ST_REJECT);
    is_said(err.text, "cluster");
    is_said(err.text, "redis+sentinel://");
}

static void server_that_comes_later(void **state)
{
    struct ckpt *c;
    struct error err;
    int64_t begun = clock_mono_ns();
    uint64_t token;

    (void)state;
    redis_server_start(&redis, NULL);                                      /* for its port and folder */
    redis_server_kill(&redis);
    assert_int_equal(try_open(redis.url, &c, &err), ST_OK);
    is_said(said, "state=away");
    assert_int_equal(ckpt_acquire(c, 9, 0, &token), ST_RETRY);
    assert_true(clock_mono_ns() - begun < 3 * NS_PER_S);
    redis_server_start(&redis, NULL);
    said_begin();
    for (int i = 0; i < 500 && !works(c); i++)
        nanosleep(&(struct timespec){ .tv_nsec = 10 * 1000000 }, NULL);
    said_end();
    assert_true(works(c));
    is_said(said, "works again");
    ckpt_close(c);
    assert_int_equal(try_open("redis://no-such-host.invalid", &c, &err), ST_OK);
    assert_int_equal(ckpt_acquire(c, 9, 0, &token), ST_RETRY);
    ckpt_close(c);
}

static void small_memory_is_warned_of(void **state)
{
    struct ckpt *c;
    struct error err;

    (void)state;
    redis_server_start(&redis, (const char *const[]){ "--maxmemory", "2mb", "--maxmemory-policy", "allkeys-lru", NULL });
    assert_int_equal(try_open(redis.url, &c, &err), ST_OK);
    is_said(said, "needed_mb=");
    is_said(said, "maxmemory_policy=allkeys-lru");
    is_said(said, "appendonly=no");
    ckpt_close(c);
    redis_server_ask(&redis, "CONFIG SET maxmemory 1gb maxmemory-policy noeviction appendonly yes");
    assert_int_equal(try_open(redis.url, &c, &err), ST_OK);
    assert_string_equal(said, "");
    ckpt_close(c);
}

/* ---- Sentinel ---- */

static pid_t sentinel_start(int port)
{
    char path[96];
    FILE *f;
    pid_t pid;

    snprintf(path, sizeof path, "%s/sentinel.conf", redis.folder);
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "port %d\nbind 127.0.0.1\ndir %s\nlogfile %s/sentinel.log\nsentinel monitor mymaster 127.0.0.1 %d 1\n"
            "sentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 2000\n", port, redis.folder,
            redis.folder, redis.port);
    fclose(f);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execlp("redis-server", "redis-server", path, "--sentinel", (char *)NULL);
        _exit(127);
    }
    return pid;
}

static double seconds_until_works(struct ckpt *c, int at_most)
{
    int64_t begun = clock_mono_ns();

    while (!works(c)) {
        if (clock_mono_ns() - begun > at_most * NS_PER_S)
            fail_msg("the store does not come back");
        nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000000 }, NULL);
    }
    return (double)(clock_mono_ns() - begun) / 1e9;
}

static void sentinel_follows_the_master(void **state)
{
    struct redis_server ask = { .port = port_free() };
    char url[128], port[16];
    struct ckpt *c;
    struct error err;
    struct ckpt_counts counts;
    pid_t sentinel;

    (void)state;
    redis_server_start(&redis, NULL);
    snprintf(port, sizeof port, "%d", redis.port);
    redis_server_start(&second, (const char *const[]){ "--replicaof", "127.0.0.1", port, NULL });
    sentinel = sentinel_start(ask.port);
    ask.pid = sentinel;
    redis_server_wait(&ask);
    for (int i = 0; i < 500 && redis_server_ask(&ask, "SENTINEL replicas mymaster")[0] == '\0'; i++)
        nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000000 }, NULL);
    /* The first Sentinel named is not there. */
    snprintf(url, sizeof url, "redis+sentinel://127.0.0.1:1,127.0.0.1:%d/mymaster", ask.port);
    assert_int_equal(try_open(url, &c, &err), ST_OK);
    assert_true(works(c));
    assert_string_equal(redis_server_ask(&redis, "EXISTS ns:f:{0000000000000009:0}"), "1");
    redis_server_kill(&redis);
    seconds_until_works(c, 30);
    assert_string_equal(redis_server_ask(&second, "EXISTS ns:f:{0000000000000009:0}"), "1");
    is_said(redis_server_ask(&second, "ROLE"), "master");
    ckpt_read_counts(c, &counts);
    assert_int_equal(counts.reconnects_n, 1);
    ckpt_close(c);
    snprintf(url, sizeof url, "redis+sentinel://127.0.0.1:%d/nobody", ask.port);
    assert_int_equal(try_open(url, &c, &err), ST_OK);
    is_said(said, "no master of that name");
    ckpt_close(c);
    kill(sentinel, SIGKILL);
    waitpid(sentinel, NULL, 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(urls_are_read),
        TEST(odd_urls_are_refused),
        TEST(tls_verifies_or_names_the_cure),
        TEST(names_are_looked_up_without_waiting),
        TEST(localhost_is_known),
        TEST(error_replies_are_understood),
        TEST(passwords_are_told_apart_and_never_shown),
        TEST(what_a_server_quotes_is_not_repeated),
        TEST(too_few_rights_are_told),
        TEST(cluster_is_refused),
        TEST(server_that_comes_later),
        TEST(small_memory_is_warned_of),
        TEST(sentinel_follows_the_master),
    };

    if (!redis_server_there())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
