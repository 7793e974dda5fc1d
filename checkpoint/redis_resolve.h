/* checkpoint/redis_resolve.h - the addresses of a host, without ever waiting longer than told: the system's resolver may hang for
 * half a minute, and keeps only a thread of its own then. Private to this folder.
 * Threads: one calls; one more looks up. One look-up is under way at a time, so a resolver that hangs costs one thread. */
#ifndef CHECKPOINT_REDIS_RESOLVE_H
#define CHECKPOINT_REDIS_RESOLVE_H

#include <stdint.h>

#include "base/status.h"

#define REDIS_ADDRESSES_MAX 8
#define REDIS_ADDRESS_N 64

struct redis_addresses {
    char text[REDIS_ADDRESSES_MAX][REDIS_ADDRESS_N];      /* numeric */
    int n;
};

/* Blocks; NULL, or what is wrong (static text). Runs on the resolver's thread, perhaps after redis_resolver_close. */
typedef const char *redis_lookup(const char *name, struct redis_addresses *out);

struct redis_resolver;

struct redis_resolver *redis_resolver_open(redis_lookup *lookup);      /* NULL: the system's */
void redis_resolver_close(struct redis_resolver *r);                   /* does not wait for a look-up; NULL is allowed */

/* ST_AGAIN: not known by then; the look-up goes on, and a later call takes its answer. ST_RETRY: there is no such name, or the
 * like. Both with the reason in *why. */
MUST_USE status redis_resolve(struct redis_resolver *r, const char *name, int64_t deadline_ns, struct redis_addresses *out,
                              const char **why);

#endif
