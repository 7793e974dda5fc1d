/* libmicrohttpd with its loop in our thread: so that the age of connections is bounded there, too, and nothing is locked. */
#define _POSIX_C_SOURCE 200809L
#include "worker/observe/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "worker/observe/metrics.h"

#define HEADERS_BYTES_MAX (16 * 1024)
#define BACKLOG 64
#define RUN_MS 100
#define DRAIN_S_MAX 86400

struct connection { int fd; int64_t begun_ns; bool cut; };

struct http {
    const struct config *cfg;
    struct http_port port;
    struct MHD_Daemon *daemon;
    pthread_t thread;
    bool started;
    atomic_bool stop;
    int listen_fd;                 /* -1: the daemon's */
    char address[128];
    struct connection *connections;        /* http_connections_max; fd -1: free */
};

/* ---- answers ---- */

static enum MHD_Result answer(struct MHD_Connection *c, unsigned code, const char *type, const char *allow, struct buf *body)
{
    size_t n = body->n;
    struct MHD_Response *r = MHD_create_response_from_buffer(n, buf_steal(body), MHD_RESPMEM_MUST_FREE);
    enum MHD_Result done;

    ASSERT(r != NULL);             /* out of memory */
    MHD_add_response_header(r, "Content-Type", type);
    MHD_add_response_header(r, "Cache-Control", "no-store");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(r, "Connection", "close");
    if (allow != NULL)
        MHD_add_response_header(r, "Allow", allow);
    done = MHD_queue_response(c, code, r);
    MHD_destroy_response(r);
    return done;
}

static enum MHD_Result answer_text(struct MHD_Connection *c, unsigned code, const char *allow, const char *text)
{
    struct buf b = BUF_EMPTY;

    buf_add_text(&b, text);
    buf_add_byte(&b, '\n');
    return answer(c, code, "text/plain; charset=utf-8", allow, &b);
}

static enum MHD_Result get(struct http *h, struct MHD_Connection *c, const char *path)
{
    struct worker_view v;
    struct buf b = BUF_EMPTY;
    const char *why;

    memset(&v, 0, sizeof v);
    h->port.look(h->port.ctx, &v);
    if (strcmp(path, "/metrics") == 0) {
        metrics_text(&v, h->cfg, &b);
        return answer(c, MHD_HTTP_OK, METRICS_CONTENT_TYPE, NULL, &b);
    }
    if (strcmp(path, "/status") == 0) {
        metrics_status(&v, h->cfg, &b);
        return answer(c, MHD_HTTP_OK, "application/json", NULL, &b);
    }
    why = strcmp(path, "/healthz") == 0 ? view_dead_why(&v, h->cfg) : view_unready_why(&v, h->cfg);
    return answer_text(c, why == NULL ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, NULL, why == NULL ? "ok" : why);
}

static bool from_this_machine(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr_in6 *six;
    const struct sockaddr_in *four;

    if (info == NULL || info->client_addr == NULL)
        return false;
    if (info->client_addr->sa_family == AF_INET) {
        four = (const struct sockaddr_in *)(const void *)info->client_addr;
        return ntohl(four->sin_addr.s_addr) >> 24 == 127;
    }
    if (info->client_addr->sa_family != AF_INET6)
        return false;
    six = (const struct sockaddr_in6 *)(const void *)info->client_addr;
    return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr) || (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr) && six->sin6_addr.s6_addr[12] == 127);
}

static enum MHD_Result drain(struct http *h, struct MHD_Connection *c)
{
    const char *text = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "seconds");
    long s = (long)h->cfg->drain_s;
    struct buf b = BUF_EMPTY;
    char *end;

    if (!h->cfg->http_drain_remote && !from_this_machine(c))
        return answer_text(c, MHD_HTTP_FORBIDDEN, NULL, "only from this machine; setting http_drain_remote allows others");
    if (MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Origin") != NULL)
        return answer_text(c, MHD_HTTP_FORBIDDEN, NULL, "not for web pages");
    if (text != NULL) {
        errno = 0;
        s = strtol(text, &end, 10);
        if (end == text || *end != '\0' || errno != 0 || s < 1 || s > DRAIN_S_MAX)
            return answer_text(c, MHD_HTTP_BAD_REQUEST, NULL, "seconds: 1 to 86400 is allowed");
    }
    h->port.drain(h->port.ctx, s);
    buf_add_format(&b, "{\"draining\": true, \"seconds\": %ld}\n", s);
    return answer(c, MHD_HTTP_ACCEPTED, "application/json", NULL, &b);
}

/* Called when the headers are read; an answer queued there is the answer, a body is never waited for. */
static enum MHD_Result handle(void *http, struct MHD_Connection *c, const char *path, const char *method, const char *version,
                              const char *body, size_t *body_n, void **request)
{
    static const char *const pages[] = { "/metrics", "/status", "/healthz", "/readyz" };
    bool page = false;

    (void)version;
    (void)body;
    (void)body_n;
    (void)request;
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++)
        page |= strcmp(path, pages[i]) == 0;
    if (page) {
        if (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0)
            return get(http, c, path);
        return answer_text(c, MHD_HTTP_METHOD_NOT_ALLOWED, "GET, HEAD", "GET is allowed");
    }
    if (strcmp(path, "/drain") == 0) {
        if (strcmp(method, "POST") == 0)
            return drain(http, c);
        return answer_text(c, MHD_HTTP_METHOD_NOT_ALLOWED, "POST", "POST is allowed");
    }
    return answer_text(c, MHD_HTTP_NOT_FOUND, NULL, "/metrics, /healthz, /readyz, /status and POST /drain are known");
}

/* ---- connections live http_timeout_ms, however busy they are: no trickle of bytes keeps one ---- */

static void connection_noted(void *http, struct MHD_Connection *c, void **mine, enum MHD_ConnectionNotificationCode code)
{
    const union MHD_ConnectionInfo *info;
    struct http *h = http;
    struct connection *one = *mine;

    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (one != NULL)
            one->fd = -1;
        return;
    }
    info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    for (int64_t i = 0; i < h->cfg->http_connections_max && info != NULL; i++)
        if (h->connections[i].fd == -1) {
            h->connections[i] = (struct connection){ info->connect_fd, clock_mono_ns(), false };
            *mine = &h->connections[i];
            return;
        }
}

static void connections_cut(struct http *h)
{
    int64_t now = clock_mono_ns();

    for (int64_t i = 0; i < h->cfg->http_connections_max; i++) {
        struct connection *one = &h->connections[i];

        if (one->fd != -1 && !one->cut && now - one->begun_ns > h->cfg->http_timeout_ms * NS_PER_MS) {
            shutdown(one->fd, SHUT_RDWR);          /* the loop sees an end and closes it */
            one->cut = true;
        }
    }
}

static void *http_main(void *http)
{
    struct http *h = http;

    while (!atomic_load(&h->stop)) {
        if (MHD_run_wait(h->daemon, RUN_MS) != MHD_YES) {
            log_error("http.loop", "error=\"the event loop failed\"");
            nanosleep(&(struct timespec){ .tv_nsec = RUN_MS * NS_PER_MS }, NULL);
        }
        connections_cut(h);
    }
    return NULL;
}

/* ---- open ---- */

/* "HOST:PORT", "[V6]:PORT", ":PORT" for every address. */
static status listen_split(const char *text, char host[96], char port[24], struct error *err)
{
    const char *colon = strrchr(text, ':');
    size_t host_n = colon != NULL ? (size_t)(colon - text) : 0;
    const char *from = text;
    char *end;
    long number;

    if (colon != NULL && host_n >= 2 && text[0] == '[' && colon[-1] == ']') {
        from++;
        host_n -= 2;
    }
    number = colon != NULL ? strtol(colon + 1, &end, 10) : -1;
    if (colon == NULL || colon[1] < '0' || colon[1] > '9' || *end != '\0' || number < 0 || number > 65535 || host_n >= 96 ||
        memchr(from, '[', host_n) != NULL || memchr(from, ' ', host_n) != NULL)
        return error_set(err, ST_REJECT, "setting http_listen=%s: HOST:PORT is needed, as 127.0.0.1:9091 or [::1]:9091", text);
    memcpy(host, from, host_n);
    host[host_n] = '\0';
    snprintf(port, 24, "%ld", number);
    return ST_OK;
}

static status socket_bind(struct http *h, const struct addrinfo *a, struct error *err)
{
    int on = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return error_set(err, ST_REJECT, "setting http_listen=%s: %s", h->cfg->http_listen, strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        error_set(err, ST_REJECT, "setting http_listen=%s: %s%s", h->cfg->http_listen, strerror(errno),
                  errno == EADDRINUSE ? "; another worker has it? port 0 takes any free one, empty listens nowhere" : "");
        close(fd);
        return ST_REJECT;
    }
    h->listen_fd = fd;
    return ST_OK;
}

static void address_note(struct http *h)
{
    struct sockaddr_storage sa;
    socklen_t sa_n = sizeof sa;
    char host[96] = "?", port[8] = "?";

    if (getsockname(h->listen_fd, (struct sockaddr *)&sa, &sa_n) == 0)
        getnameinfo((struct sockaddr *)&sa, sa_n, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(h->address, sizeof h->address, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, port);
}

static status socket_open(struct http *h, struct error *err)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV }, *found;
    char host[96], port[24];
    status st = listen_split(h->cfg->http_listen, host, port, err);
    int code;

    if (st != ST_OK)
        return st;
    code = getaddrinfo(host[0] != '\0' ? host : NULL, port, &hints, &found);
    if (code != 0)
        return error_set(err, ST_REJECT, "setting http_listen=%s: %s", h->cfg->http_listen, gai_strerror(code));
    st = socket_bind(h, found, err);
    freeaddrinfo(found);
    if (st == ST_OK)
        address_note(h);
    return st;
}

static status daemon_start(struct http *h, struct error *err)
{
    h->connections = mem_take_zero((size_t)h->cfg->http_connections_max, sizeof *h->connections);
    for (int64_t i = 0; i < h->cfg->http_connections_max; i++)
        h->connections[i].fd = -1;
    h->daemon = MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, handle, h,
        MHD_OPTION_LISTEN_SOCKET, h->listen_fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)h->cfg->http_connections_max,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)((h->cfg->http_timeout_ms + 999) / 1000),
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADERS_BYTES_MAX,
        MHD_OPTION_NOTIFY_CONNECTION, connection_noted, h,
        MHD_OPTION_END);
    if (h->daemon == NULL)
        return error_set(err, ST_FATAL, "the HTTP server cannot be started (libmicrohttpd %s)", MHD_get_version());
    h->listen_fd = -1;
    if (pthread_create(&h->thread, NULL, http_main, h) != 0)
        return error_set(err, ST_FATAL, "no thread for the HTTP server");
    h->started = true;
    log_info("http.listen", "address=%s", h->address);
    return ST_OK;
}

status http_open(const struct config *cfg, const struct http_port *port, struct http **out, struct error *err)
{
    struct http *h;
    status st;

    *out = NULL;
    if (cfg->http_listen[0] == '\0')
        return ST_OK;
    h = mem_take_zero(1, sizeof *h);
    h->cfg = cfg;
    h->port = *port;
    h->listen_fd = -1;
    TRY(socket_open(h, err));
    TRY(daemon_start(h, err));
    *out = h;
    h = NULL;
out:
    http_close(h);
    return st;
}

const char *http_address(const struct http *h)
{
    return h->address;
}

void http_close(struct http *h)
{
    if (h == NULL)
        return;
    atomic_store(&h->stop, true);
    if (h->started)
        pthread_join(h->thread, NULL);
    if (h->daemon != NULL)
        MHD_stop_daemon(h->daemon);
    if (h->listen_fd >= 0)
        close(h->listen_fd);
    free(h->connections);
    free(h);
}
