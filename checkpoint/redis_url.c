#include "checkpoint/redis_url.h"

#include <string.h>

#define REDIS_PORT 6379
#define SENTINEL_PORT 26379
#define DB_MAX 65535

/* A whole number without sign or space. */
static bool number_parse(const char *text, size_t n, int max, int *out)
{
    *out = 0;
    if (n == 0 || n > 5)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *out = 10 * *out + (text[i] - '0');
    }
    return *out <= max;
}

static bool text_take(const char *text, size_t n, char out[REDIS_TEXT_MAX])
{
    if (n >= REDIS_TEXT_MAX)
        return false;
    memcpy(out, text, n);
    out[n] = '\0';
    return true;
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = memchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c, 16);

    return at == NULL ? -1 : (int)(at - digits);
}

static bool text_decode(const char *text, size_t n, char out[REDIS_TEXT_MAX])
{
    size_t n_out = 0;

    for (size_t i = 0; i < n; i++) {
        int byte = (unsigned char)text[i];

        if (byte == '%') {
            int high, low;

            if (n - i < 3 || (high = hex_digit(text[i + 1])) < 0 || (low = hex_digit(text[i + 2])) < 0)
                return false;
            byte = 16 * high + low;
            i += 2;
        }
        if (byte == '\0' || n_out + 1 >= REDIS_TEXT_MAX)
            return false;
        out[n_out++] = (char)byte;
    }
    out[n_out] = '\0';
    return true;
}

/* HOST, HOST:PORT or [IPv6]:PORT. */
static bool host_parse(const char *text, size_t n, int default_port, struct redis_host *out)
{
    const char *end = text + n, *name_end, *port;

    out->port = default_port;
    if (n > 0 && *text == '[') {
        text++;
        name_end = memchr(text, ']', (size_t)(end - text));
        if (name_end == NULL)
            return false;
        port = name_end + 1;
    } else {
        name_end = memchr(text, ':', n);
        if (name_end == NULL)
            name_end = end;
        port = name_end;
    }
    if (name_end == text || !text_take(text, (size_t)(name_end - text), out->name))
        return false;
    if (port == end)
        return true;
    return *port == ':' && number_parse(port + 1, (size_t)(end - port - 1), 65535, &out->port) && out->port > 0;
}

static bool hosts_parse(const char *text, size_t n, struct redis_url *out)
{
    const char *end = text + n;

    for (;;) {
        const char *comma = memchr(text, ',', (size_t)(end - text)), *host_end = comma != NULL ? comma : end;

        if (out->hosts_n == REDIS_HOSTS_MAX || (out->hosts_n > 0 && !out->sentinel) ||
            !host_parse(text, (size_t)(host_end - text), out->sentinel ? SENTINEL_PORT : REDIS_PORT, &out->hosts[out->hosts_n]))
            return false;
        out->hosts_n++;
        if (comma == NULL)
            return true;
        text = comma + 1;
    }
}

static bool user_parse(const char *text, size_t n, struct redis_url *out)
{
    const char *colon = memchr(text, ':', n);

    return colon != NULL && text_decode(text, (size_t)(colon - text), out->user) &&
           text_decode(colon + 1, n - (size_t)(colon + 1 - text), out->password) && out->password[0] != '\0';
}

/* What stands behind the hosts: /DB, or /MASTER and perhaps /DB. */
static bool path_parse(const char *path, struct redis_url *out)
{
    if (out->sentinel) {
        size_t n = *path == '/' ? strcspn(path + 1, "/") : 0;

        if (n == 0 || !text_take(path + 1, n, out->master))
            return false;
        path += 1 + n;
    }
    return *path == '\0' || (*path == '/' && (path[1] == '\0' || number_parse(path + 1, strlen(path + 1), DB_MAX, &out->db)));
}

status redis_url_parse(const char *url, struct redis_url *out, struct error *err)
{
    static const struct { const char *scheme; bool tls, sentinel; } schemes[] = {
        { "redis://", false, false }, { "rediss://", true, false },
        { "redis+sentinel://", false, true }, { "rediss+sentinel://", true, true },
    };
    const char *rest = NULL, *at;
    size_t n;

    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++)
        if (strncmp(url, schemes[i].scheme, strlen(schemes[i].scheme)) == 0) {
            rest = url + strlen(schemes[i].scheme);
            out->tls = schemes[i].tls;
            out->sentinel = schemes[i].sentinel;
        }
    if (rest == NULL)
        return error_set(err, ST_REJECT, "a Redis is named redis://, rediss:// (TLS), redis+sentinel:// or rediss+sentinel://");
    n = strcspn(rest, "/");
    at = memchr(rest, '@', n);
    if (at != NULL) {
        if (!user_parse(rest, (size_t)(at - rest), out))
            return error_set(err, ST_REJECT, "the Redis URL's user part is malformed: USER:PASSWORD@ or :PASSWORD@ is needed, "
                             "with / @ : and %% of a password written as %%2F %%40 %%3A %%25");
        n -= (size_t)(at + 1 - rest);
        rest = at + 1;
    }
    if (!hosts_parse(rest, n, out) || !path_parse(rest + n, out))
        return error_set(err, ST_REJECT, "the Redis URL is malformed behind its user part: %s is needed",
                         out->sentinel ? "HOST:PORT,HOST:PORT/MASTER or HOST:PORT,HOST:PORT/MASTER/DB"
                                       : "HOST:PORT or HOST:PORT/DB");
    return ST_OK;
}
