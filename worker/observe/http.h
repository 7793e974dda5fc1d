/* worker/observe/http.h - one port: GET /metrics, /healthz, /readyz, /status; POST /drain?seconds=N.
 *
 * Threads:   one of its own, which calls port's functions.
 * Bounds:    http_connections_max at once, each http_timeout_ms long whatever it sends, headers of 16 KiB, one answer a
 *            connection. A client that is slow or hostile costs its own connection.
 * Rights:    whoever reaches the port may read. POST /drain is for this machine alone unless http_drain_remote, and never for a
 *            web page (a request with an Origin). */
#ifndef WORKER_OBSERVE_HTTP_H
#define WORKER_OBSERVE_HTTP_H

#include "worker/observe/view.h"

struct http;

struct http_port {
    void *ctx;
    void (*look)(void *ctx, struct worker_view *out);
    void (*drain)(void *ctx, int64_t seconds);
};

/* ST_REJECT: http_listen makes no sense, or the port cannot be had; the error says which. With http_listen empty, *out is
 * NULL and all is well. */
MUST_USE status http_open(const struct config *cfg, const struct http_port *port, struct http **out, struct error *err);
const char *http_address(const struct http *h);        /* "127.0.0.1:9091", with the port that it got */
void http_close(struct http *h);                       /* NULL is allowed */

#endif
