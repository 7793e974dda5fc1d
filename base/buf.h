/* base/buf.h - a byte buffer that grows. Threads: one owner at a time. Ownership: buf_fini frees; buf_steal gives away. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct buf {
    char *data;         /* not terminated unless buf_text was called */
    size_t n, room;
};

#define BUF_EMPTY { NULL, 0, 0 }

void buf_add(struct buf *b, const void *bytes, size_t n);
void buf_add_text(struct buf *b, const char *text);
void buf_add_byte(struct buf *b, int byte);
void buf_add_format(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void buf_add_json(struct buf *b, const char *text);     /* as a JSON string; NULL: null. Bytes beyond ASCII as they are */
void *buf_reserve(struct buf *b, size_t n);     /* room for n more bytes at data + n; the caller adds to b->n */
const char *buf_text(struct buf *b);            /* terminated; valid until the next change */
void buf_reset(struct buf *b);                  /* empty, keeps the memory */
char *buf_steal(struct buf *b);                 /* terminated; the caller frees it; b is empty afterwards */
void buf_fini(struct buf *b);

#endif
