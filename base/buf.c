#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *buf_reserve(struct buf *b, size_t n)
{
    if (b->room - b->n < n) {
        size_t room = b->room < 64 ? 64 : b->room;

        while (room - b->n < n) {
            ASSERT(room <= SIZE_MAX / 2);
            room *= 2;
        }
        b->data = mem_grow(b->data, room);
        b->room = room;
    }
    return b->data + b->n;
}

void buf_add(struct buf *b, const void *bytes, size_t n)
{
    if (n == 0)
        return;
    memcpy(buf_reserve(b, n), bytes, n);
    b->n += n;
}

void buf_add_text(struct buf *b, const char *text)
{
    buf_add(b, text, strlen(text));
}

void buf_add_byte(struct buf *b, int byte)
{
    *(char *)buf_reserve(b, 1) = (char)byte;
    b->n++;
}

void buf_add_format(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;
    int n;

    va_start(ap, fmt);
    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    ASSERT(n >= 0);
    vsnprintf(buf_reserve(b, (size_t)n + 1), (size_t)n + 1, fmt, again);
    va_end(again);
    b->n += (size_t)n;
}

void buf_add_json(struct buf *b, const char *text)
{
    if (text == NULL) {
        buf_add_text(b, "null");
        return;
    }
    buf_add_byte(b, '"');
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\')
            buf_add_byte(b, '\\');
        if (*c < 0x20)
            buf_add_format(b, "\\u%04x", *c);
        else
            buf_add_byte(b, *c);
    }
    buf_add_byte(b, '"');
}

const char *buf_text(struct buf *b)
{
    *(char *)buf_reserve(b, 1) = '\0';
    return b->data;
}

void buf_reset(struct buf *b)
{
    b->n = 0;
}

char *buf_steal(struct buf *b)
{
    char *data;

    buf_text(b);
    data = b->data;
    b->data = NULL;
    b->n = b->room = 0;
    return data;
}

void buf_fini(struct buf *b)
{
    free(b->data);
    b->data = NULL;
    b->n = b->room = 0;
}
