/* A strict walk over JSON text (RFC 8259) that keeps values as text: the sidecar is ours, small and flat, and a fingerprint
 * is compared field by field, so nothing needs to be understood beyond where a value ends. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "queue/file.h"

#define JSON_DEPTH_MAX 64

struct walk { const char *at, *end; };

static void skip_space(struct walk *w)
{
    while (w->at < w->end && (*w->at == ' ' || *w->at == '\t' || *w->at == '\n' || *w->at == '\r'))
        w->at++;
}

static bool skip_byte(struct walk *w, char byte)
{
    skip_space(w);
    if (w->at == w->end || *w->at != byte)
        return false;
    w->at++;
    return true;
}

static bool skip_string(struct walk *w)
{
    if (!skip_byte(w, '"'))
        return false;
    while (w->at < w->end && *w->at != '"') {
        if ((unsigned char)*w->at < 0x20)
            return false;
        if (*w->at == '\\' && ++w->at == w->end)
            return false;
        w->at++;
    }
    if (w->at == w->end)
        return false;
    w->at++;
    return true;
}

static bool skip_plain(struct walk *w)      /* a number, true, false, null */
{
    const char *from = w->at;

    while (w->at < w->end && strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzE", *w->at) != NULL && *w->at != '\0')
        w->at++;
    return w->at > from;
}

static bool skip_value(struct walk *w, int depth)
{
    char open, close;

    skip_space(w);
    if (w->at == w->end || depth > JSON_DEPTH_MAX)
        return false;
    open = *w->at;
    if (open == '"')
        return skip_string(w);
    if (open != '{' && open != '[')
        return skip_plain(w);
    close = open == '{' ? '}' : ']';
    w->at++;
    if (skip_byte(w, close))
        return true;
    do {
        if (open == '{' && (!skip_string(w) || !skip_byte(w, ':')))
            return false;
        if (!skip_value(w, depth + 1))
            return false;
    } while (skip_byte(w, ','));
    return skip_byte(w, close);
}

/* Inside an object, behind '{' or ',': the next member's name (without quotes) and value (without outer spaces). */
static bool next_member(struct walk *w, int depth, const char **name, size_t *name_n, const char **value, size_t *value_n)
{
    skip_space(w);
    *name = w->at + 1;
    if (!skip_string(w))
        return false;
    *name_n = (size_t)(w->at - 1 - *name);
    if (!skip_byte(w, ':'))
        return false;
    skip_space(w);
    *value = w->at;
    if (!skip_value(w, depth))
        return false;
    *value_n = (size_t)(w->at - *value);
    return true;
}

static char *text_copy(const char *text, size_t n)
{
    char *copy = mem_take(n + 1);

    memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}

static void field_add(struct json_fields *f, char *path, const char *value, size_t value_n)
{
    if ((f->n & (f->n - 1)) == 0)
        f->field = mem_grow(f->field, (f->n ? f->n * 2 : 1) * sizeof f->field[0]);
    f->field[f->n].path = path;
    f->field[f->n++].value = text_copy(value, value_n);
}

static bool fields_collect(const char *text, size_t n, const char *prefix, int depth, struct json_fields *out)
{
    struct walk w = { text, text + n };
    const char *name, *value;
    size_t name_n, value_n;

    if (!skip_byte(&w, '{'))
        return false;
    if (!skip_byte(&w, '}')) {
        do {
            struct buf path = BUF_EMPTY;
            bool walked = true;

            if (!next_member(&w, depth, &name, &name_n, &value, &value_n))
                return false;
            buf_add_format(&path, "%s%s%.*s", prefix, prefix[0] ? "." : "", (int)name_n, name);
            if (value[0] == '{' && value_n > 2) {
                walked = fields_collect(value, value_n, buf_text(&path), depth + 1, out);
                buf_fini(&path);
            } else {
                field_add(out, buf_steal(&path), value, value_n);
            }
            if (!walked)
                return false;
        } while (skip_byte(&w, ','));
        if (!skip_byte(&w, '}'))
            return false;
    }
    skip_space(&w);
    return w.at == w.end;
}

status json_fields_read(const char *text, size_t n, struct json_fields *out)
{
    out->field = NULL;
    out->n = 0;
    if (fields_collect(text, n, "", 1, out))
        return ST_OK;
    json_fields_fini(out);
    return ST_REJECT;
}

void json_fields_fini(struct json_fields *f)
{
    for (size_t i = 0; i < f->n; i++) {
        free(f->field[i].path);
        free(f->field[i].value);
    }
    free(f->field);
    f->field = NULL;
    f->n = 0;
}

const char *json_field_get(const struct json_fields *f, const char *path)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->field[i].path, path) == 0)
            return f->field[i].value;
    return NULL;
}

status json_member_find(const char *text, size_t n, const char *name, const char **value, size_t *value_n)
{
    struct walk w = { text, text + n };
    const char *at;
    size_t at_n;

    if (!skip_byte(&w, '{'))
        return ST_REJECT;
    do {
        if (!next_member(&w, 1, &at, &at_n, value, value_n))
            return ST_REJECT;
        if (at_n == strlen(name) && memcmp(at, name, at_n) == 0)
            return ST_OK;
    } while (skip_byte(&w, ','));
    return ST_REJECT;
}

static const char *escape_read(const char *p, struct buf *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *plain = *p != '\0' ? strchr(from, *p) : NULL;
    char four[5] = { 0 }, utf8[4];
    unsigned long code;
    char *end;

    if (plain != NULL) {
        buf_add_byte(out, to[plain - from]);
        return p + 1;
    }
    if (*p != 'u' || strnlen(p + 1, 4) < 4)
        return NULL;
    memcpy(four, p + 1, 4);
    code = strtoul(four, &end, 16);
    if (end != four + 4 || code == 0 || (code >= 0xd800 && code < 0xe000))      /* what buf_add_json never writes */
        return NULL;
    buf_add(out, utf8, (size_t)utf8_put(utf8, (uint32_t)code));
    return p + 5;
}

char *json_text_read(const char *value)
{
    struct buf out = BUF_EMPTY;
    const char *p = value;

    if (*p++ != '"')
        return NULL;
    while (p != NULL && *p != '\0' && *p != '"') {
        if (*p == '\\')
            p = escape_read(p + 1, &out);
        else
            buf_add_byte(&out, *p++);
    }
    if (p == NULL || p[0] != '"' || p[1] != '\0') {
        buf_fini(&out);
        return NULL;
    }
    return buf_steal(&out);
}
