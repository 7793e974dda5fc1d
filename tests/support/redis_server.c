#define _GNU_SOURCE
#include "tests/support/redis_server.h"

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/buf.h"

enum { START_TRIES = 1000, TRY_MS = 10, ARGS_MAX = 48 };

static struct buf answer;

bool redis_server_there(void)
{
    if (system("redis-server --version >/dev/null 2>&1") == 0)
        return true;
    fprintf(stderr, "skipped: redis-server is not installed here (package redis-server)\n");
    return false;
}

int port_free(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    close(fd);
    return ntohs(at.sin_port);
}

static void port_set(struct redis_server *s)
{
    s->port = port_free();
    snprintf(s->url, sizeof s->url, "redis://127.0.0.1:%d", s->port);
}

void redis_server_launch(struct redis_server *s, const char *const *more)
{
    char port[16], log[96];
    const char *args[ARGS_MAX] = { "redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", s->folder, "--logfile", log,
                                   "--save", "", "--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0" };
    int args_n = 15;

    assert_int_equal(s->pid, 0);
    if (s->folder[0] == '\0') {
        strcpy(s->folder, "/tmp/nightshift-redis-XXXXXX");
        assert_non_null(mkdtemp(s->folder));
        port_set(s);
    }
    snprintf(port, sizeof port, "%d", s->port);
    snprintf(log, sizeof log, "%s/log", s->folder);
    for (; more != NULL && *more != NULL; more++) {
        assert_true(args_n + 1 < ARGS_MAX);
        args[args_n++] = *more;
    }
    s->pid = fork();
    if (s->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);            /* a test that dies leaves no server behind */
        setpgid(0, 0);                               /* with the children that write snapshots for it */
        execvp(args[0], (char *const *)(uintptr_t)args);
        _exit(127);
    }
    assert_true(s->pid > 0);
    setpgid(s->pid, s->pid);
}

static bool takes_commands(const struct redis_server *s)
{
    redisContext *c = redisConnect("127.0.0.1", s->port);
    redisReply *r = c != NULL && c->err == 0 ? redisCommand(c, "PING") : NULL;
    /* A server with a password is there, too. */
    bool yes = r != NULL && (r->type == REDIS_REPLY_STATUS || strncmp(r->str, "NOAUTH", 6) == 0);

    if (r != NULL)
        freeReplyObject(r);
    if (c != NULL)
        redisFree(c);
    return yes;
}

/* False: it has ended. */
static bool comes_up(const struct redis_server *s)
{
    for (int i = 0; i < START_TRIES; i++) {
        if (takes_commands(s))
            return true;
        if (waitpid(s->pid, NULL, WNOHANG) != 0)
            return false;
        nanosleep(&(struct timespec){ .tv_nsec = TRY_MS * 1000000 }, NULL);
    }
    return false;
}

void redis_server_wait(const struct redis_server *s)
{
    if (!comes_up(s))
        fail_msg("redis-server does not take commands: see %s/log", s->folder);
}

void redis_server_start(struct redis_server *s, const char *const *more)
{
    bool moves = s->folder[0] == '\0';               /* its port may be another's by now; one that is known must stay */

    for (int tries = 0; tries < 5; tries++) {
        redis_server_launch(s, more);
        if (comes_up(s))
            return;
        redis_server_kill(s);
        if (!moves)
            break;
        port_set(s);
    }
    fail_msg("redis-server does not start: see %s/log", s->folder);
}

void redis_server_kill(struct redis_server *s)
{
    if (s->pid == 0)
        return;
    kill(-s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    s->pid = 0;
}

void redis_server_end(struct redis_server *s)
{
    char command[128];

    redis_server_kill(s);
    if (s->folder[0] != '\0') {
        snprintf(command, sizeof command, "rm -rf %s", s->folder);
        assert_int_equal(system(command), 0);
    }
    s->folder[0] = '\0';
    buf_fini(&answer);
}

static void answer_add(const redisReply *r)
{
    switch (r->type) {
    case REDIS_REPLY_INTEGER:
        buf_add_format(&answer, "%lld", r->integer);
        break;
    case REDIS_REPLY_ARRAY:
        for (size_t i = 0; i < r->elements; i++) {
            buf_add_text(&answer, i > 0 ? " " : "");
            answer_add(r->element[i]);
        }
        break;
    case REDIS_REPLY_NIL:
        break;
    default:
        buf_add(&answer, r->str, r->len);
    }
}

const char *redis_server_ask(const struct redis_server *s, const char *fmt, ...)
{
    const char *args[ARGS_MAX];
    redisContext *c = redisConnect("127.0.0.1", s->port);
    redisReply *r;
    char text[1024], *at = text;
    int args_n = 0;
    va_list list;

    va_start(list, fmt);
    assert_true(vsnprintf(text, sizeof text, fmt, list) < (int)sizeof text);
    va_end(list);
    for (char *word; (word = strsep(&at, " ")) != NULL && args_n < ARGS_MAX;)
        args[args_n++] = word;
    assert_true(c != NULL && c->err == 0);
    r = redisCommandArgv(c, args_n, args, NULL);
    buf_reset(&answer);
    if (r != NULL)                                   /* NULL: it hung up, as SHUTDOWN does */
        answer_add(r);
    if (r != NULL)
        freeReplyObject(r);
    redisFree(c);
    return buf_text(&answer);
}

int64_t redis_server_number(const struct redis_server *s, const char *command)
{
    return strtoll(redis_server_ask(s, "%s", command), NULL, 10);
}
