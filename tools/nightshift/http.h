/* tools/nightshift/http.h - one request to a worker's port: HTTP/1.0, plain, bounded. For http:// URLs of one's own
 * machines; nothing here follows, caches or encrypts. Threads: any. */
#ifndef TOOLS_NIGHTSHIFT_HTTP_H
#define TOOLS_NIGHTSHIFT_HTTP_H

#include "base/buf.h"

/* url: "http://HOST[:PORT]", to which path is added. *code is the answer's status, its body goes to *body.
 * ST_RETRY: nobody answers. ST_REJECT: the URL, or what answers is no HTTP. */
MUST_USE status http_call(const char *method, const char *url, const char *path, int *code, struct buf *body, struct error *err);

#endif
