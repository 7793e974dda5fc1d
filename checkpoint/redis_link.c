#define _POSIX_C_SOURCE 200809L
#include "checkpoint/redis_link.h"

#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/ops.h"
#include "checkpoint/redis_resolve.h"
#include "checkpoint/redis_tls.h"

#define BACKOFF_FIRST_MS 50
#define BACKOFF_MAX_MS 2000
#define CALL_TIMEOUTS 5
#define LOG_AGAIN_S 10
#define SHA_N 40
#define ELEMENTS_MAX (1 << 20)       /* of a reply; the longest true one lists the sources of a job */

#if HIREDIS_MAJOR >= 1
typedef size_t elements_n;
#else
typedef int elements_n;
#endif

struct failure {
    enum ckpt_error error;
    enum redis_reaction reaction;
    char text[160];            /* printable, without quotes: for a log line */
};

struct redis_link {
    struct redis_url url;
    int64_t timeout_ns;
    struct ckpt *counts;
    struct redis_resolver *resolver;
    redisContext *ctx;                   /* NULL: no connection */
    redisReplyObjectFunctions replies, *replies_unlimited;
    struct redis_host at;                /* where it leads, or the last try led */
    bool greeted;                        /* the connection is ready for work */
    bool connected_once;
    int sentinel_i;                      /* the one to ask first: it knew the answer last time */
    char sha[SCRIPTS_N][SHA_N + 1];

    struct buf out;                      /* the next exchange */
    size_t commands_n;
    int64_t deadline_ns;                 /* of the call */

    struct failure last;
    int failures_n;                      /* in a row */
    int64_t retry_at_ns;
    int64_t said_at_ns;                  /* of the log line about this outage; 0: there is none */
    uint64_t random;
};

/* ---- what went wrong ---- */

struct redis_meaning redis_error_meaning(const char *text)
{
    static const struct { const char *word; struct redis_meaning meaning; } known[] = {
        { "READONLY", { CKPT_ERROR_READONLY, REDIS_LEAVE } },
        { "LOADING", { CKPT_ERROR_LOADING, REDIS_WAIT } },
        { "MASTERDOWN", { CKPT_ERROR_UNSAFE, REDIS_LEAVE } },
        { "NOREPLICAS", { CKPT_ERROR_UNSAFE, REDIS_LEAVE } },
        { "CLUSTERDOWN", { CKPT_ERROR_UNSAFE, REDIS_LEAVE } },
        { "MOVED", { CKPT_ERROR_UNSAFE, REDIS_LEAVE } },
        { "ASK", { CKPT_ERROR_UNSAFE, REDIS_LEAVE } },
        { "CROSSSLOT", { CKPT_ERROR_UNSAFE, REDIS_LEAVE } },
        { "NOSCRIPT", { CKPT_ERROR_OTHER, REDIS_LOAD_SCRIPTS } },
        { "OOM", { CKPT_ERROR_FULL, REDIS_WAIT } },
        { "MISCONF", { CKPT_ERROR_FULL, REDIS_WAIT } },
        { "BUSY", { CKPT_ERROR_BUSY, REDIS_WAIT } },
        { "NOAUTH", { CKPT_ERROR_DENIED, REDIS_LEAVE } },
        { "WRONGPASS", { CKPT_ERROR_DENIED, REDIS_LEAVE } },
        { "NOPERM", { CKPT_ERROR_DENIED, REDIS_LEAVE } },
        { "WRONGTYPE", { CKPT_ERROR_OTHER, REDIS_TYPE } },
    };
    const char *word = text;

    while (word != NULL) {
        size_t n = strcspn(word, " ");

        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            if (strlen(known[i].word) == n && memcmp(known[i].word, word, n) == 0)
                return known[i].meaning;
        if (strncmp(text, "ERR Error running script", 24) != 0)
            break;
        word = strstr(word, " -");
        word = word != NULL ? word + 2 : NULL;
    }
    return (struct redis_meaning){ CKPT_ERROR_OTHER, REDIS_LEAVE };
}

static status fail(struct failure *f, enum ckpt_error error, enum redis_reaction reaction, const char *text)
{
    size_t n = 0;

    f->error = error;
    f->reaction = reaction;
    for (; text[n] != '\0' && n + 1 < sizeof f->text; n++)
        f->text[n] = text[n] < ' ' || text[n] > '~' || text[n] == '"' ? '?' : text[n];
    f->text[n] = '\0';
    return ST_RETRY;
}

/* A server quotes the arguments of what it does not understand, and they may be anything: a password, tokens. */
static status fail_reply(struct failure *f, const redisReply *r)
{
    struct redis_meaning m = redis_error_meaning(r->str);
    const char *arguments = strstr(r->str, ", with args beginning with");
    char text[sizeof f->text];

    snprintf(text, sizeof text, "%.*s", arguments != NULL ? (int)(arguments - r->str) : (int)sizeof text, r->str);
    return fail(f, m.error, m.reaction, text);
}

static void link_drop(struct redis_link *l)
{
    if (l->ctx != NULL)
        redisFree(l->ctx);
    l->ctx = NULL;
    l->greeted = false;
}

static uint64_t random_next(struct redis_link *l)       /* xorshift64: spreads reconnects, nothing more */
{
    l->random ^= l->random << 13;
    l->random ^= l->random >> 7;
    l->random ^= l->random << 17;
    return l->random;
}

/* After a failure: the connection goes unless waiting is the cure, and the server is left in peace for a while. */
static void link_failed(struct redis_link *l)
{
    int64_t now = clock_mono_ns(), room_ms = BACKOFF_MAX_MS;
    const struct failure *f = &l->last;

    if (f->reaction != REDIS_WAIT)
        link_drop(l);
    if (l->failures_n < 6 && (BACKOFF_FIRST_MS << l->failures_n) < BACKOFF_MAX_MS)
        room_ms = BACKOFF_FIRST_MS << l->failures_n;
    l->failures_n++;
    l->retry_at_ns = now + (int64_t)(random_next(l) % (uint64_t)(room_ms * NS_PER_MS));
    ckpt_error_count(l->counts, f->error);
    if (l->said_at_ns != 0 && now - l->said_at_ns < LOG_AGAIN_S * NS_PER_S)
        return;
    l->said_at_ns = now;
    log_line(f->error == CKPT_ERROR_DENIED || f->error == CKPT_ERROR_FULL ? LOG_ERROR : LOG_WARN, "checkpoint.redis",
             "server=%s:%d state=away cause=%s failures=%d error=\"%s\" note=\"work goes on; a crash now costs more\"",
             l->at.name, l->at.port, ckpt_error_name(f->error), l->failures_n, f->text);
}

/* Only a whole exchange says so: a server may greet and then refuse every write. */
static void link_works(struct redis_link *l)
{
    l->failures_n = 0;
    l->retry_at_ns = 0;
    if (l->said_at_ns != 0)
        log_info("checkpoint.redis", "server=%s:%d state=\"works again\"", l->at.name, l->at.port);
    l->said_at_ns = 0;
}

/* ---- commands ---- */

void redis_command(struct redis_link *l, size_t args_n)
{
    buf_add_format(&l->out, "*%zu\r\n", args_n);
    l->commands_n++;
}

void redis_arg(struct redis_link *l, const void *bytes, size_t n)
{
    buf_add_format(&l->out, "$%zu\r\n", n);
    buf_add(&l->out, bytes, n);
    buf_add(&l->out, "\r\n", 2);
}

void redis_arg_text(struct redis_link *l, const char *text)
{
    redis_arg(l, text, strlen(text));
}

void redis_arg_number(struct redis_link *l, int64_t value)
{
    char text[24];

    redis_arg(l, text, (size_t)snprintf(text, sizeof text, "%" PRId64, value));
}

void redis_command_script(struct redis_link *l, enum redis_script script, size_t keys_n, size_t args_n)
{
    redis_command(l, 3 + keys_n + args_n);
    redis_arg_text(l, "EVALSHA");
    redis_arg(l, l->sha[script], SHA_N);
    redis_arg_number(l, (int64_t)keys_n);
}

static void commands_forget(struct redis_link *l)
{
    buf_reset(&l->out);
    l->commands_n = 0;
}

/* ---- bytes ---- */

/* False: nothing happened until then. */
static bool fd_wait(int fd, int events, int64_t until_ns, int *happened)
{
    for (;;) {
        struct pollfd p = { .fd = fd, .events = (short)events };
        int64_t left_ns = until_ns - clock_mono_ns();
        int n = poll(&p, 1, left_ns > 0 ? (int)((left_ns + NS_PER_MS - 1) / NS_PER_MS) : 0);

        *happened = p.revents;
        if (n > 0)
            return true;
        if (n == 0 && left_ns <= 0)
            return false;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return false;
    }
}

/* The next reply; sends what is not yet sent. */
static status reply_next(struct redis_link *l, bool *sent, redisReply **out, struct failure *f)
{
    int64_t now = clock_mono_ns(), until = now + l->timeout_ns;

    for (;;) {
        void *reply = NULL;
        int done = 1, happened;

        if (redisGetReplyFromReader(l->ctx, &reply) != REDIS_OK)
            return fail(f, CKPT_ERROR_OTHER, REDIS_LEAVE, l->ctx->errstr);
        *out = reply;
        if (reply != NULL)
            return ST_OK;
        if (!*sent && redisBufferWrite(l->ctx, &done) != REDIS_OK)
            return fail(f, CKPT_ERROR_LINK, REDIS_LEAVE, l->ctx->errstr);
        *sent = done;
        if (until > l->deadline_ns)
            until = l->deadline_ns;
        if (!fd_wait(l->ctx->fd, *sent ? POLLIN : POLLIN | POLLOUT, until, &happened))
            return fail(f, CKPT_ERROR_TIMEOUT, REDIS_LEAVE, "no answer in time");
        if ((happened & ~POLLOUT) != 0 && redisBufferRead(l->ctx) != REDIS_OK)
            return fail(f, CKPT_ERROR_LINK, REDIS_LEAVE, l->ctx->errstr);
        until = clock_mono_ns() + l->timeout_ns;
    }
}

/* hiredis writes without MSG_NOSIGNAL before 1.0: a server that is gone must not end the process. */
static void sigpipe_block(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* Sends l->out and takes all replies. The first failure is told, after the last reply: the connection stays in step. */
static status commands_run(struct redis_link *l, redis_take *take, void *ctx, struct failure *f)
{
    status st = ST_OK;
    bool sent = false;
    int happened;

    sigpipe_block();
    /* Between exchanges a server says nothing: it has hung up, or is out of step. */
    if (l->greeted && (l->ctx->reader->pos < l->ctx->reader->len || fd_wait(l->ctx->fd, POLLIN, 0, &happened)))
        return fail(f, CKPT_ERROR_LINK, REDIS_LEAVE, "closed by the server, or more was said than asked");
    if (redisAppendFormattedCommand(l->ctx, l->out.data, l->out.n) != REDIS_OK)
        return fail(f, CKPT_ERROR_OTHER, REDIS_LEAVE, l->ctx->errstr);
    for (size_t i = 0; i < l->commands_n; i++) {
        redisReply *reply;
        status answered = reply_next(l, &sent, &reply, f);

        if (answered != ST_OK)
            return answered;
        if (reply->type == REDIS_REPLY_ERROR && redis_error_meaning(reply->str).reaction != REDIS_TYPE) {
            if (st == ST_OK)
                st = fail_reply(f, reply);
        } else if (st == ST_OK && !take(ctx, i, reply)) {
            freeReplyObject(reply);
            return fail(f, CKPT_ERROR_OTHER, REDIS_LEAVE, "a reply that makes no sense");
        }
        freeReplyObject(reply);
    }
    return st;
}

/* ---- the way there ---- */

/* hiredis takes memory for as many elements as a reply claims to have, before it has seen one. */
static void *array_create(const redisReadTask *task, elements_n n)
{
    const struct redis_link *l = task->privdata;

    return n > ELEMENTS_MAX ? NULL : l->replies_unlimited->createArray(task, n);
}

static void replies_limit(struct redis_link *l)
{
    redisReader *reader = l->ctx->reader;

    l->replies_unlimited = reader->fn;
    l->replies = *reader->fn;
    l->replies.createArray = array_create;
    reader->fn = &l->replies;
    reader->privdata = l;
}

static status address_connect(struct redis_link *l, const char *address, int port, struct failure *f)
{
    int64_t left_ns = l->deadline_ns - clock_mono_ns(), wait_ns = left_ns < l->timeout_ns ? left_ns : l->timeout_ns;
    struct timeval wait;

    if (wait_ns < NS_PER_MS)
        return fail(f, CKPT_ERROR_TIMEOUT, REDIS_LEAVE, "no time left to connect");
    wait.tv_sec = (time_t)(wait_ns / NS_PER_S);
    wait.tv_usec = (suseconds_t)(wait_ns % NS_PER_S / 1000);
    l->ctx = redisConnectWithTimeout(address, port, wait);
    if (l->ctx == NULL)
        return fail(f, CKPT_ERROR_OTHER, REDIS_LEAVE, "out of memory");
    if (l->ctx->err != 0)
        return fail(f, CKPT_ERROR_LINK, REDIS_LEAVE, l->ctx->errstr);
    if (l->url.tls && (redisSetTimeout(l->ctx, wait) != REDIS_OK || !redis_tls_start(l->ctx, l->at.name)))
        return fail(f, CKPT_ERROR_LINK, REDIS_LEAVE, l->ctx->errstr);
    return ST_OK;
}

/* A connection that waits nowhere but in fd_wait. */
static status host_connect(struct redis_link *l, const struct redis_host *host, struct failure *f)
{
    int64_t until = clock_mono_ns() + l->timeout_ns;
    struct redis_addresses addresses;
    const char *why;
    status st;
    int flags;

    l->at = *host;
    st = redis_resolve(l->resolver, host->name, until < l->deadline_ns ? until : l->deadline_ns, &addresses, &why);
    if (st != ST_OK)
        return fail(f, st == ST_AGAIN ? CKPT_ERROR_TIMEOUT : CKPT_ERROR_LINK, REDIS_LEAVE, why);
    for (int i = 0; i < addresses.n; i++) {
        link_drop(l);
        st = address_connect(l, addresses.text[i], host->port, f);
        if (st == ST_OK)
            break;
    }
    if (st != ST_OK)
        return st;
    redisEnableKeepAlive(l->ctx);
    flags = fcntl(l->ctx->fd, F_GETFL);
    if (flags < 0 || fcntl(l->ctx->fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return fail(f, CKPT_ERROR_LINK, REDIS_LEAVE, strerror(errno));
    l->ctx->flags &= ~REDIS_BLOCK;
    replies_limit(l);
    return ST_OK;
}

static bool take_master(void *ctx, size_t i, const redisReply *r)
{
    struct redis_host *out = ctx;
    char *end;
    long port;

    (void)i;
    if (r->type == REDIS_REPLY_NIL || (r->type == REDIS_REPLY_ARRAY && r->elements == (size_t)-1))
        return true;
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 2 || r->element[0]->type != REDIS_REPLY_STRING ||
        r->element[1]->type != REDIS_REPLY_STRING || r->element[0]->len >= sizeof out->name)
        return false;
    port = strtol(r->element[1]->str, &end, 10);
    if (*end != '\0' || port <= 0 || port > 65535)
        return false;
    memcpy(out->name, r->element[0]->str, r->element[0]->len + 1);
    out->port = (int)port;
    return true;
}

/* Asks the Sentinels one after the other, each for its share of the time. */
static status master_find(struct redis_link *l, struct redis_host *out, struct failure *f)
{
    int64_t timeout_ns = l->timeout_ns;
    status st = ST_RETRY;

    out->name[0] = '\0';
    l->timeout_ns = timeout_ns / l->url.hosts_n;
    for (int tries = 0; tries < l->url.hosts_n; tries++) {
        commands_forget(l);
        redis_command(l, 3);
        redis_arg_text(l, "SENTINEL");
        redis_arg_text(l, "get-master-addr-by-name");
        redis_arg_text(l, l->url.master);
        st = host_connect(l, &l->url.hosts[l->sentinel_i], f);
        if (st == ST_OK)
            st = commands_run(l, take_master, out, f);
        if (st == ST_OK && out->name[0] == '\0')
            st = fail(f, CKPT_ERROR_UNSAFE, REDIS_LEAVE, "this Sentinel knows no master of that name");
        link_drop(l);
        if (st == ST_OK)
            break;
        l->sentinel_i = (l->sentinel_i + 1) % l->url.hosts_n;
    }
    l->timeout_ns = timeout_ns;
    return st;
}

static bool take_status(void *ctx, size_t i, const redisReply *r)
{
    (void)ctx;
    (void)i;
    return r->type == REDIS_REPLY_STATUS;
}

/* A server before 6.0 answers a wrong password with a plain ERR: whatever refuses AUTH, we are denied. */
static status greet_password(struct redis_link *l, struct failure *f)
{
    status st;

    if (l->url.password[0] == '\0')
        return ST_OK;
    commands_forget(l);
    redis_command(l, l->url.user[0] != '\0' ? 3 : 2);
    redis_arg_text(l, "AUTH");
    if (l->url.user[0] != '\0')
        redis_arg_text(l, l->url.user);
    redis_arg_text(l, l->url.password);
    st = commands_run(l, take_status, NULL, f);
    if (st != ST_OK && f->error == CKPT_ERROR_OTHER)
        st = fail(f, CKPT_ERROR_DENIED, REDIS_LEAVE, "the server refuses AUTH");
    return st;
}

struct greeting {
    struct redis_link *l;
    size_t role_i, scripts_i;
    bool master;
};

static bool take_greeting(void *ctx, size_t i, const redisReply *r)
{
    struct greeting *g = ctx;

    if (i == g->role_i) {
        g->master = r->type == REDIS_REPLY_ARRAY && r->elements > 0 && r->element[0]->type == REDIS_REPLY_STRING &&
                    strcmp(r->element[0]->str, "master") == 0;
        return true;
    }
    if (i < g->scripts_i)
        return r->type == REDIS_REPLY_STATUS;
    if (r->type != REDIS_REPLY_STRING || r->len != SHA_N)
        return false;
    memcpy(g->l->sha[i - g->scripts_i], r->str, SHA_N);
    return true;
}

/* What every connection begins with. The Sentinels may name a master that is none any more, so it is asked itself. */
static status greet(struct redis_link *l, struct failure *f)
{
    struct greeting g = { .l = l, .role_i = SIZE_MAX, .master = true };
    status st = greet_password(l, f);

    if (st != ST_OK)
        return st;
    commands_forget(l);
    if (l->url.db != 0) {
        redis_command(l, 2);
        redis_arg_text(l, "SELECT");
        redis_arg_number(l, l->url.db);
    }
    if (l->url.sentinel) {
        g.role_i = l->commands_n;
        redis_command(l, 1);
        redis_arg_text(l, "ROLE");
    }
    g.scripts_i = l->commands_n;
    for (int i = 0; i < SCRIPTS_N; i++) {
        redis_command(l, 3);
        redis_arg_text(l, "SCRIPT");
        redis_arg_text(l, "LOAD");
        redis_arg_text(l, redis_script_text[i]);
    }
    st = commands_run(l, take_greeting, &g, f);
    if (st == ST_OK && !g.master)
        st = fail(f, CKPT_ERROR_READONLY, REDIS_LEAVE, "the Sentinels name a server that is no master");
    return st;
}

/* A connection that is ready for work. The commands of an exchange under way stay as they are. */
static status link_connect(struct redis_link *l, struct failure *f)
{
    struct buf pending = l->out;
    size_t pending_n = l->commands_n;
    struct redis_host master;
    status st = ST_OK;

    l->out = (struct buf)BUF_EMPTY;
    l->commands_n = 0;
    if (l->url.sentinel)
        TRY(master_find(l, &master, f));
    TRY(host_connect(l, l->url.sentinel ? &master : &l->url.hosts[0], f));
    TRY(greet(l, f));
    if (l->connected_once)
        atomic_fetch_add_explicit(&l->counts->tally.reconnects_n, 1, memory_order_relaxed);
    l->connected_once = true;
    l->greeted = true;
out:
    if (st != ST_OK)
        link_drop(l);
    buf_fini(&l->out);
    l->out = pending;
    l->commands_n = pending_n;
    return st;
}

status redis_link_ready(struct redis_link *l)
{
    int64_t now = clock_mono_ns();
    status st = ST_OK;

    commands_forget(l);
    l->deadline_ns = now + CALL_TIMEOUTS * l->timeout_ns;
    if (now < l->retry_at_ns)
        return ST_RETRY;
    if (l->ctx == NULL && (st = link_connect(l, &l->last)) != ST_OK)
        link_failed(l);
    return st;
}

/* May the exchange be made again at once? Prepares it. */
static bool again(struct redis_link *l, bool had_worked)
{
    if (l->last.reaction != REDIS_LOAD_SCRIPTS && !(l->last.error == CKPT_ERROR_LINK && had_worked))
        return false;
    link_drop(l);                           /* whoever greets loads the scripts */
    return link_connect(l, &l->last) == ST_OK;
}

status redis_link_exchange(struct redis_link *l, redis_take *take, void *ctx)
{
    bool had_worked = l->greeted;
    status st = commands_run(l, take, ctx, &l->last);

    if (st != ST_OK && again(l, had_worked))
        st = commands_run(l, take, ctx, &l->last);
    if (st == ST_OK)
        link_works(l);
    else
        link_failed(l);
    commands_forget(l);
    return st;
}

/* ---- life ---- */

/* The number or word behind "name:" in the answer to INFO; false: it is not there. */
static bool info_get(const char *info, const char *name, char *out, size_t out_room)
{
    size_t name_n = strlen(name), n;

    for (const char *line = info; line != NULL; line = strchr(line, '\n'), line = line != NULL ? line + 1 : NULL)
        if (strncmp(line, name, name_n) == 0 && line[name_n] == ':') {
            line += name_n + 1;
            n = strcspn(line, "\r\n");
            snprintf(out, out_room, "%.*s", (int)(n < out_room ? n : out_room - 1), line);
            return true;
        }
    return false;
}

static int64_t info_number(const char *info, const char *name)
{
    char text[32];

    return info_get(info, name, text, sizeof text) ? strtoll(text, NULL, 10) : -1;
}

static bool take_text(void *ctx, size_t i, const redisReply *r)
{
    (void)i;
    if (r->type != REDIS_REPLY_STRING)
        return false;
    buf_add(ctx, r->str, r->len);
    return true;
}

/* Memory and persistence: nothing here makes a result wrong, but who loses progress should know why. */
static void settings_warn(const struct redis_link *l, const char *info, int64_t needed_bytes)
{
    int64_t max = info_number(info, "maxmemory"), used = info_number(info, "used_memory");
    char policy[32] = "noeviction";

    info_get(info, "maxmemory_policy", policy, sizeof policy);
    if (max > 0 && used >= 0 && max - used < needed_bytes)
        log_warn("checkpoint.redis", "server=%s:%d maxmemory_mb=%" PRId64 " used_mb=%" PRId64 " needed_mb=%" PRId64
                 " note=\"progress of this worker may not fit: raise maxmemory\"", l->at.name, l->at.port, max >> 20,
                 used >> 20, needed_bytes >> 20);
    if (max > 0 && strcmp(policy, "noeviction") != 0)
        log_warn("checkpoint.redis", "server=%s:%d maxmemory_policy=%s note=\"progress may be evicted, which costs its work "
                 "again: set noeviction\"", l->at.name, l->at.port, policy);
    if (info_number(info, "aof_enabled") == 0)
        log_info("checkpoint.redis", "server=%s:%d appendonly=no note=\"a restart of the server loses progress\"", l->at.name,
                 l->at.port);
}

status redis_link_check(struct redis_link *l, int64_t needed_bytes, struct error *err)
{
    struct buf info = BUF_EMPTY;
    char version[32] = "";
    status st = ST_OK;

    TRY(redis_link_ready(l));
    redis_command(l, 1);
    redis_arg_text(l, "INFO");
    TRY(redis_link_exchange(l, take_text, &info));
    if (info_number(buf_text(&info), "cluster_enabled") == 1) {
        st = error_set(err, ST_REJECT, "the Redis at %s:%d is a cluster, which the progress store does not work with: name a "
                       "plain server, or one behind Sentinel with redis+sentinel://", l->at.name, l->at.port);
        goto out;
    }
    if (info_get(info.data, "redis_version", version, sizeof version) && strtol(version, NULL, 10) < 5) {
        st = error_set(err, ST_REJECT, "the Redis at %s:%d is version %s; 5.0 or later is needed", l->at.name, l->at.port,
                       version);
        goto out;
    }
    settings_warn(l, info.data, needed_bytes);
out:
    buf_fini(&info);
    if (st == ST_RETRY)
        st = error_set(err, l->last.error == CKPT_ERROR_DENIED ? ST_REJECT : ST_RETRY, "the Redis at %s:%d %s: %s", l->at.name,
                       l->at.port, l->last.error == CKPT_ERROR_DENIED ? "denies access (checkpoint_url: user, password, rights)"
                       : "is away", l->last.text);
    return st;
}

struct redis_link *redis_link_open(const struct redis_url *url, int64_t timeout_ms, struct ckpt *counts)
{
    struct redis_link *l = mem_take_zero(1, sizeof *l);

    l->url = *url;
    l->timeout_ns = timeout_ms * NS_PER_MS;
    l->counts = counts;
    l->resolver = redis_resolver_open(NULL);
    l->random = (uint64_t)clock_wall_ns() ^ (uint64_t)(uintptr_t)l ^ (uint64_t)getpid() << 32;
    l->random |= l->random == 0;
    return l;
}

void redis_link_close(struct redis_link *l)
{
    if (l == NULL)
        return;
    link_drop(l);
    redis_resolver_close(l->resolver);
    buf_fini(&l->out);
    free(l);
}
