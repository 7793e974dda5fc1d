#define _POSIX_C_SOURCE 200809L
#include "checkpoint/redis_resolve.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"

/* Belongs to the resolver and to its thread: whoever lets go last frees it. */
struct look_up {
    pthread_mutex_t lock;
    pthread_cond_t ends;
    int owners;
    bool done;
    const char *wrong;
    struct redis_addresses found;
    redis_lookup *lookup;
    char *name;
};

struct redis_resolver {
    redis_lookup *lookup;
    struct look_up *under_way;               /* NULL: none */
};

static const char *system_lookup(const char *name, struct redis_addresses *out)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    struct addrinfo *list;
    int code = getaddrinfo(name, NULL, &hints, &list);

    if (code != 0)
        return gai_strerror(code);
    for (const struct addrinfo *a = list; a != NULL && out->n < REDIS_ADDRESSES_MAX; a = a->ai_next)
        if (getnameinfo(a->ai_addr, a->ai_addrlen, out->text[out->n], REDIS_ADDRESS_N, NULL, 0, NI_NUMERICHOST) == 0)
            out->n++;
    freeaddrinfo(list);
    return out->n > 0 ? NULL : "the name has no address";
}

static void look_up_let_go(struct look_up *u)
{
    bool last;

    pthread_mutex_lock(&u->lock);
    last = --u->owners == 0;
    pthread_mutex_unlock(&u->lock);
    if (!last)
        return;
    pthread_cond_destroy(&u->ends);
    pthread_mutex_destroy(&u->lock);
    free(u->name);
    free(u);
}

static void *look_up_main(void *arg)
{
    struct look_up *u = arg;
    struct redis_addresses found = { .n = 0 };
    const char *wrong = u->lookup(u->name, &found);

    pthread_mutex_lock(&u->lock);
    u->found = found;
    u->wrong = wrong;
    u->done = true;
    pthread_cond_signal(&u->ends);
    pthread_mutex_unlock(&u->lock);
    look_up_let_go(u);
    return NULL;
}

/* NULL: there is no thread for it. */
static struct look_up *look_up_begin(redis_lookup *lookup, const char *name)
{
    struct look_up *u = mem_take_zero(1, sizeof *u);
    pthread_condattr_t clock;
    pthread_attr_t detached;
    pthread_t thread;
    int code;

    pthread_mutex_init(&u->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&u->ends, &clock);
    pthread_condattr_destroy(&clock);
    u->owners = 2;
    u->lookup = lookup;
    u->name = mem_copy_text(name);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    code = pthread_create(&thread, &detached, look_up_main, u);
    pthread_attr_destroy(&detached);
    if (code == 0)
        return u;
    u->owners = 1;
    look_up_let_go(u);
    return NULL;
}

static bool look_up_wait(struct look_up *u, int64_t deadline_ns)
{
    int64_t left_ns = deadline_ns - clock_mono_ns();
    struct timespec until;
    bool done;

    clock_gettime(CLOCK_MONOTONIC, &until);
    if (left_ns > 0) {
        until.tv_sec += (time_t)((until.tv_nsec + left_ns) / NS_PER_S);
        until.tv_nsec = (long)((until.tv_nsec + left_ns) % NS_PER_S);
    }
    pthread_mutex_lock(&u->lock);
    while (!u->done && pthread_cond_timedwait(&u->ends, &u->lock, &until) == 0)
        ;
    done = u->done;
    pthread_mutex_unlock(&u->lock);
    return done;
}

static bool is_numeric(const char *name)
{
    unsigned char address[sizeof(struct in6_addr)];

    return strlen(name) < REDIS_ADDRESS_N && (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1);
}

status redis_resolve(struct redis_resolver *r, const char *name, int64_t deadline_ns, struct redis_addresses *out,
                     const char **why)
{
    out->n = 0;
    if (is_numeric(name)) {
        strcpy(out->text[0], name);
        out->n = 1;
        return ST_OK;
    }
    for (;;) {
        struct look_up *u = r->under_way;
        bool ours;

        if (u == NULL && (u = r->under_way = look_up_begin(r->lookup, name)) == NULL) {
            *why = "no thread can be started to look the name up";
            return ST_RETRY;
        }
        if (!look_up_wait(u, deadline_ns)) {
            *why = "the resolver does not answer";
            return ST_AGAIN;
        }
        ours = strcmp(u->name, name) == 0;
        *out = u->found;
        *why = u->wrong;
        r->under_way = NULL;
        look_up_let_go(u);
        if (ours)                            /* else an earlier name's answer, that came too late for it */
            return *why == NULL ? ST_OK : ST_RETRY;
    }
}

struct redis_resolver *redis_resolver_open(redis_lookup *lookup)
{
    struct redis_resolver *r = mem_take_zero(1, sizeof *r);

    r->lookup = lookup != NULL ? lookup : system_lookup;
    return r;
}

void redis_resolver_close(struct redis_resolver *r)
{
    if (r == NULL)
        return;
    if (r->under_way != NULL)
        look_up_let_go(r->under_way);
    free(r);
}
