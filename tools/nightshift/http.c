#define _POSIX_C_SOURCE 200809L
#include "tools/nightshift/http.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { ANSWER_BYTES_MAX = 4 << 20, SILENT_S = 10 };

struct address { char host[256], port[8]; };

static bool url_read(const char *url, struct address *out)
{
    static const char scheme[] = "http://";
    const char *host = url + sizeof scheme - 1, *end, *colon;
    size_t host_n;

    if (strncmp(url, scheme, sizeof scheme - 1) != 0)
        return false;
    end = host + strcspn(host, "/");
    if (end[0] != '\0' && end[1] != '\0')
        return false;
    if (host[0] == '[') {                      /* an IPv6 address */
        colon = memchr(host, ']', (size_t)(end - host));
        if (colon == NULL)
            return false;
        host++;
        host_n = (size_t)(colon - host);
        colon++;
    } else {
        colon = memchr(host, ':', (size_t)(end - host));
        colon = colon != NULL ? colon : end;
        host_n = (size_t)(colon - host);
    }
    if (host_n == 0 || host_n >= sizeof out->host || (colon != end && *colon != ':') || end - colon > (long)sizeof out->port)
        return false;
    snprintf(out->host, sizeof out->host, "%.*s", (int)host_n, host);
    snprintf(out->port, sizeof out->port, "%.*s", colon == end ? 2 : (int)(end - colon - 1), colon == end ? "80" : colon + 1);
    return out->port[0] != '\0';
}

static int connected(const struct addrinfo *list)
{
    const struct timeval silent = { .tv_sec = SILENT_S };

    for (; list != NULL; list = list->ai_next) {
        int fd = socket(list->ai_family, list->ai_socktype | SOCK_CLOEXEC, list->ai_protocol);

        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silent, sizeof silent);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &silent, sizeof silent);
        if (connect(fd, list->ai_addr, list->ai_addrlen) == 0)
            return fd;
        close(fd);
    }
    return -1;
}

static bool exchange(int fd, const struct buf *request, struct buf *answer)
{
    char bytes[16384];
    ssize_t n;

    for (size_t at = 0; at < request->n; at += (size_t)n) {
        n = send(fd, request->data + at, request->n - at, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
    }
    while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0 && answer->n < ANSWER_BYTES_MAX)
        buf_add(answer, bytes, (size_t)n);
    return n == 0;
}

/* HTTP/1.0 is asked for, so the body is what follows the head, to the end of the connection. */
static status answer_read(struct buf *answer, const char *url, int *code, struct buf *body, struct error *err)
{
    const char *text = buf_text(answer), *head_end = strstr(text, "\r\n\r\n");
    int major, minor;

    if (head_end == NULL || sscanf(text, "HTTP/%d.%d %d", &major, &minor, code) != 3)
        return error_set(err, ST_REJECT, "what answers at %s does not speak HTTP", url);
    buf_add(body, head_end + 4, answer->n - (size_t)(head_end + 4 - text));
    return ST_OK;
}

status http_call(const char *method, const char *url, const char *path, int *code, struct buf *body, struct error *err)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
    struct buf request = BUF_EMPTY, answer = BUF_EMPTY;
    struct address a;
    status st;
    int fd, fault;

    *code = 0;
    if (!url_read(url, &a))
        return error_set(err, ST_REJECT, "\"%s\": http://HOST:PORT is needed", url);
    fault = getaddrinfo(a.host, a.port, &hints, &list);
    if (fault != 0)
        return error_set(err, ST_RETRY, "%s: %s", url, gai_strerror(fault));
    fd = connected(list);
    freeaddrinfo(list);
    if (fd < 0)
        return error_set(err, ST_RETRY, "%s does not answer: %s", url, strerror(errno));
    buf_add_format(&request, "%s %s HTTP/1.0\r\nHost: %s:%s\r\nContent-Length: 0\r\n\r\n", method, path, a.host, a.port);
    if (exchange(fd, &request, &answer))
        st = answer_read(&answer, url, code, body, err);
    else
        st = error_set(err, ST_RETRY, "%s broke off its answer: %s", url, strerror(errno));
    close(fd);
    buf_fini(&request);
    buf_fini(&answer);
    return st;
}
