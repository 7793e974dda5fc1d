/* checkpoint/redis_tls.h - TLS on a fresh connection, where hiredis has it (1.0 and later). Private to this folder. */
#ifndef CHECKPOINT_REDIS_TLS_H
#define CHECKPOINT_REDIS_TLS_H

#include <stdbool.h>

#include "base/status.h"

struct redisContext;

/* ST_REJECT: this build has none; the error says what to do instead. */
MUST_USE status redis_tls_known(struct error *err);
/* Verifies the server's certificate against the system's authorities (or SSL_CERT_FILE) and `host`. False: refused; ctx->errstr
 * says why. Blocks as long as the connection's time-out lets it. */
bool redis_tls_start(struct redisContext *ctx, const char *host);

#endif
