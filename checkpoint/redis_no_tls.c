#include <hiredis/hiredis.h>

#include "checkpoint/redis_tls.h"

status redis_tls_known(struct error *err)
{
    return error_set(err, ST_REJECT, "rediss:// needs TLS, which this build has not (hiredis %d.%d.%d): put stunnel in front of "
                     "the server and use redis://127.0.0.1:PORT, or build where hiredis 1.0 or later, its libhiredis_ssl and "
                     "libssl-dev are installed", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
}

bool redis_tls_start(struct redisContext *ctx, const char *host)
{
    (void)ctx;
    (void)host;
    return false;
}
