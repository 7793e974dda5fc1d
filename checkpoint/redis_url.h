/* checkpoint/redis_url.h - where a Redis is, as a person writes it. Private to this folder.
 *   redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]
 *   redis+sentinel://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/MASTER[/DB]
 *       user and password are the servers'; the Sentinels are asked without
 *   rediss:// and rediss+sentinel://      the same through TLS
 * A user name or password is percent-decoded (RFC 3986 section 2.1); an IPv6 address stands in brackets. */
#ifndef CHECKPOINT_REDIS_URL_H
#define CHECKPOINT_REDIS_URL_H

#include <stdbool.h>

#include "base/status.h"

#define REDIS_HOSTS_MAX 16
#define REDIS_TEXT_MAX 256

struct redis_host {
    char name[REDIS_TEXT_MAX];
    int port;
};

struct redis_url {
    bool tls, sentinel;
    struct redis_host hosts[REDIS_HOSTS_MAX];
    int hosts_n;
    char user[REDIS_TEXT_MAX], password[REDIS_TEXT_MAX];    /* empty: none */
    char master[REDIS_TEXT_MAX];                            /* its name among the Sentinels */
    int db;
};

/* ST_REJECT: malformed; the error quotes no user name or password. */
MUST_USE status redis_url_parse(const char *url, struct redis_url *out, struct error *err);

#endif
