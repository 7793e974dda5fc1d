/* Sorting the finished output: an index of (offset, place) in memory, the lines copied in that order to a temp file, which
 * then replaces the output. Death at any point leaves either the old file or the new one, and doing it again is harmless. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "queue/file.h"

#define READ_BYTES (256 << 10)
#define WRITE_BYTES (1 << 20)

struct place { int64_t offset, at; };

struct order {
    struct place *place;
    size_t n, room;
    bool sorted;
};

static status order_line(void *ctx, const struct output_line *line, struct error *err)
{
    struct order *o = ctx;

    (void)err;
    if (o->n == o->room) {
        o->room = o->room ? o->room * 2 : 1024;
        o->place = mem_grow(o->place, o->room * sizeof o->place[0]);
    }
    if (o->n > 0 && o->place[o->n - 1].offset > line->offset)
        o->sorted = false;
    o->place[o->n++] = (struct place){ line->offset, line->at };
    return ST_OK;
}

static int place_compare(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Results lie nearly in order, so the lines that follow are mostly in the block that was read for the one before. */
struct line_reader {
    int fd;
    char *block;
    int64_t block_at, block_n;
};

/* Adds the line at `at`, newline included, to out. */
static bool line_copy(struct line_reader *r, int64_t at, struct buf *out)
{
    for (;;) {
        const char *from, *newline;
        size_t left;

        if (at < r->block_at || at >= r->block_at + r->block_n) {
            r->block_n = file_read_at(r->fd, r->block, READ_BYTES, at);
            r->block_at = at;
            if (r->block_n <= 0) {
                errno = r->block_n < 0 ? errno : EIO;      /* it was there a moment ago */
                r->block_n = 0;
                return false;
            }
        }
        from = r->block + (at - r->block_at);
        left = (size_t)(r->block_at + r->block_n - at);
        newline = memchr(from, '\n', left);
        if (newline != NULL) {
            buf_add(out, from, (size_t)(newline - from) + 1);
            return true;
        }
        buf_add(out, from, left);
        at += (int64_t)left;
    }
}

static status lines_copy(const struct file_output *o, const struct order *order, int fd, const char *to, struct error *err)
{
    struct line_reader r = { .fd = o->fd, .block = mem_take(READ_BYTES) };
    struct buf out = BUF_EMPTY;
    int64_t at = 0;
    status st = ST_OK;

    for (size_t i = 0; i < order->n; i++) {
        if (!line_copy(&r, order->place[i].at, &out))
            TRY(st_errno(err, errno, "read", o->path));
        if (out.n >= WRITE_BYTES || i + 1 == order->n) {
            if (!file_write_at(fd, out.data, out.n, at))
                TRY(st_errno(err, errno, "sort: write", to));
            at += (int64_t)out.n;
            buf_reset(&out);
        }
    }
    if (at != o->bytes)
        TRY(error_set(err, ST_RETRY, "sorting %s: it has changed meanwhile; run the same command again", o->path));
    if (!file_sync(fd, true))
        TRY(st_errno(err, errno, "sort: write", to));
out:
    buf_fini(&out);
    free(r.block);
    return st;
}

static status sorted_replace(struct file_output *o, const struct order *order, struct error *err)
{
    char *temp = path_join(o->path, ".sorting");
    struct stat s;
    status st = ST_OK;
    int fd;

    failpoint("queue.order.write");
    fd = open(temp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        TRY(st_errno(err, errno, "sort: create", temp));
    if (fstat(o->fd, &s) == 0 && fchmod(fd, s.st_mode & 07777) != 0)
        TRY(st_errno(err, errno, "sort: create", temp));
    TRY(lines_copy(o, order, fd, temp, err));
    failpoint("queue.order.rename");
    if (rename(temp, o->path) != 0)
        TRY(st_errno(err, errno, "sort: replace", o->path));
    close(o->fd);
    o->fd = fd;
    fd = -1;
    failpoint("queue.order.renamed");
    TRY(folder_sync(o->path, err));
out:
    if (fd >= 0) {
        unlink(temp);
        close(fd);
    }
    free(temp);
    return st;
}

status output_order(struct file_output *o, const char *job, struct error *err)
{
    struct order order = { .sorted = true };
    enum line_kind kind;
    int64_t at, line_i;
    status st;

    TRY(output_scan(o, job, order_line, &order, &kind, &at, &line_i, err));
    if (kind != LINE_OURS)
        TRY(error_set(err, ST_RETRY, "sorting %s: its line %lld is damaged; run the same command again: it repairs that", o->path,
                      (long long)line_i + 1));
    if (!order.sorted) {
        qsort(order.place, order.n, sizeof order.place[0], place_compare);
        TRY(sorted_replace(o, &order, err));
    }
out:
    free(order.place);
    return st;
}
