/* The output and the errors file: the commit log. A line that is whole and ours is a result that was given; nothing else
 * says so. What a crash may leave behind, and what is done about it at the next start:
 *   - the beginning of one of our lines, without a newline (a torn append): cut off;
 *   - anything else that is not a clean line (after a power loss a file system may have kept later blocks and lost earlier
 *     ones: zeros): the tail from there on is moved to PATH.damaged-N, with a warning, and its lines are answered again;
 *   - a clean line that is not of this job: no crash does that, so the file is somebody's: refused, nothing is touched. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/utf8.h"
#include "queue/file.h"

#define SCAN_BYTES (1 << 20)
#define HEAD_BYTES 4096              /* of a line, kept to read its id and status from */
#define PENDING_BYTES_MAX (4 << 20)  /* a group larger than this is written in several goes */
#define DAMAGED_FILES_MAX 10000

bool done_get(const struct done_set *d, int64_t line_i)
{
    return d->bits[line_i >> 6] >> (line_i & 63) & 1;
}

void done_set_bit(struct done_set *d, int64_t line_i)
{
    d->bits[line_i >> 6] |= UINT64_C(1) << (line_i & 63);
    d->done_n++;
}

status output_open(struct file_output *o, const char *path, struct error *err)
{
    struct stat s;

    memset(o, 0, sizeof *o);
    o->path = mem_copy_text(path);
    o->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (o->fd < 0 && (errno == ENXIO || errno == EINVAL))
        return error_set(err, ST_REJECT, "the output %s is not a regular file: what is done is read back from it; give a path "
                         "to a file", path);
    if (o->fd < 0 || fstat(o->fd, &s) != 0)
        return st_errno(err, errno, "write", path);
    if (!S_ISREG(s.st_mode))
        return error_set(err, ST_REJECT, "the output %s is not a regular file: what is done is read back from it; give a path "
                         "to a file", path);
    o->bytes = s.st_size;
    return ST_OK;
}

void output_close(struct file_output *o)
{
    if (o->path != NULL && o->fd >= 0)
        close(o->fd);
    free(o->path);
    buf_fini(&o->pending);
    memset(o, 0, sizeof *o);
    o->fd = -1;
}

static status output_cut(struct file_output *o, int64_t bytes, struct error *err)
{
    if (!file_cut(o->fd, bytes) || !file_sync(o->fd, false))
        return st_errno(err, errno, "shorten", o->path);
    o->bytes = bytes;
    return ST_OK;
}

status output_clear(struct file_output *o, struct error *err)
{
    return o->bytes > 0 ? output_cut(o, 0, err) : ST_OK;
}

/* One line, as far as it was read. */
struct line_state {
    char head[HEAD_BYTES];
    size_t head_n;
    int64_t n;
    char last;
    bool control;
};

static void line_add(struct line_state *l, const char *p, size_t n)
{
    size_t room = HEAD_BYTES - l->head_n, keep = n < room ? n : room;
    unsigned control = 0;

    if (n == 0)
        return;
    memcpy(l->head + l->head_n, p, keep);
    l->head_n += keep;
    for (size_t i = 0; i < n; i++)
        control |= (unsigned char)p[i] < 0x20;
    l->control |= control != 0;
    l->n += (int64_t)n;
    l->last = p[n - 1];
}

/* Reads `{"id":"batch_req_<job>_<offset>"` and what must follow it. Returns the bytes of it, 0: it is not that. */
static size_t id_read(const char *head, size_t n, const char *id_begin, int64_t *offset)
{
    size_t begin_n = strlen(id_begin), i = begin_n;
    int64_t v = 0;

    if (n < begin_n || memcmp(head, id_begin, begin_n) != 0)
        return 0;
    for (; i < n && head[i] >= '0' && head[i] <= '9'; i++) {
        if (v > (INT64_MAX - 9) / 10 || (i > begin_n && v == 0))      /* too large, or a leading zero */
            return 0;
        v = v * 10 + (head[i] - '0');
    }
    if (i == begin_n || i + 2 > n || head[i] != '"' || (head[i + 1] != ',' && head[i + 1] != '}'))
        return 0;
    *offset = v;
    return i + 1;
}

/* For the count of failures only: `,"custom_id":...,"response":` and then null or a status code other than 200. */
static bool failure_read(const char *p, size_t n)
{
    static const char custom[] = ",\"custom_id\":", response[] = ",\"response\":", code[] = "{\"status_code\":";
    const char *end = p + n;

    if ((size_t)(end - p) < sizeof custom || memcmp(p, custom, sizeof custom - 1) != 0)
        return false;
    p += sizeof custom - 1;
    if (*p == '"') {
        for (p++; p < end && *p != '"'; p++)
            if (*p == '\\')
                p++;
        p++;
    } else {
        while (p < end && *p != ',')
            p++;
    }
    if (end - p < (ptrdiff_t)sizeof response + 4 || memcmp(p, response, sizeof response - 1) != 0)
        return false;
    p += sizeof response - 1;
    if (memcmp(p, "null", 4) == 0)
        return true;
    return end - p >= (ptrdiff_t)sizeof code + 3 && memcmp(p, code, sizeof code - 1) == 0 &&
           memcmp(p + sizeof code - 1, "200", 3) != 0;
}

/* Text, or what a disk made of it? A character that the head's end cuts is fine. */
static bool head_clean(const struct line_state *l)
{
    size_t valid = utf8_valid(l->head, l->head_n);
    uint32_t code;

    return valid == l->head_n || (l->head_n == HEAD_BYTES && utf8_char(l->head + valid, l->head_n - valid, &code) < 0);
}

static enum line_kind line_kind_of(const struct line_state *l, const char *id_begin, struct output_line *line)
{
    size_t id_n;

    if (l->control || l->n == 0 || l->last != '}')
        return LINE_DAMAGED;
    id_n = id_read(l->head, l->head_n, id_begin, &line->offset);
    if (id_n == 0)
        return l->head[0] == '{' && head_clean(l) ? LINE_FOREIGN : LINE_DAMAGED;
    line->failure = failure_read(l->head + id_n, l->head_n - id_n);
    return LINE_OURS;
}

/* A tail without newline: the beginning of one of our lines? Anything else may be worth keeping. */
static enum line_kind tail_kind_of(const struct line_state *l, const char *id_begin)
{
    size_t n = strlen(id_begin) < l->head_n ? strlen(id_begin) : l->head_n;

    return memcmp(l->head, id_begin, n) == 0 ? LINE_TORN : LINE_DAMAGED;
}

status output_scan(const struct file_output *o, const char *job, output_line_fn fn, void *ctx, enum line_kind *kind,
                   int64_t *at, int64_t *line_i, struct error *err)
{
    struct line_state *l = mem_take_zero(1, sizeof *l);
    char *block = mem_take(SCAN_BYTES), id_begin[64];
    int64_t read_at = 0, got;
    status st = ST_OK;

    snprintf(id_begin, sizeof id_begin, "{\"id\":\"batch_req_%s_", job);
    *kind = LINE_OURS;
    *at = *line_i = 0;
    while ((got = file_read_at(o->fd, block, SCAN_BYTES, read_at)) > 0) {
        const char *p = block, *end = block + got;

        read_at += got;
        while (p < end) {
            const char *newline = memchr(p, '\n', (size_t)(end - p));
            struct output_line line = { .at = *at };

            line_add(l, p, (size_t)((newline != NULL ? newline : end) - p));
            if (newline == NULL)
                break;
            *kind = line_kind_of(l, id_begin, &line);
            if (*kind != LINE_OURS)
                goto out;
            line.bytes = l->n + 1;
            TRY(fn(ctx, &line, err));
            p = newline + 1;
            *at += line.bytes;
            ++*line_i;
            l->head_n = 0;
            l->n = 0;
            l->control = false;
        }
    }
    if (got < 0)
        TRY(st_errno(err, errno, "read", o->path));
    if (l->n > 0)
        *kind = tail_kind_of(l, id_begin);
out:
    free(block);
    free(l);
    return st;
}

/* Finding where an input line was answered first, for the refusal of a second one. */
struct finder {
    int64_t offset, at, line_i;
    int64_t found_line_i;
};

static status finder_line(void *ctx, const struct output_line *line, struct error *err)
{
    struct finder *f = ctx;

    (void)err;
    if (line->offset == f->offset && line->at != f->at && f->found_line_i < 0)
        f->found_line_i = f->line_i;
    f->line_i++;
    return ST_OK;
}

struct recovery {
    struct file_output *o;
    const struct file_output *other;
    const char *job;
    struct done_set *done;
};

static status answered_twice(const struct recovery *r, const struct output_line *line, struct error *err)
{
    const struct file_output *files[2] = { r->o, r->other };
    int64_t here = r->o->lines_n;

    for (int i = 0; i < 2; i++) {
        struct finder f = { .offset = line->offset, .at = files[i] == r->o ? line->at : -1, .found_line_i = -1 };
        enum line_kind kind;
        int64_t at, line_i;

        if (files[i] == NULL || files[i]->fd < 0)
            continue;
        if (output_scan(files[i], r->job, finder_line, &f, &kind, &at, &line_i, NULL) == ST_OK && f.found_line_i >= 0)
            return error_set(err, ST_REJECT, "input line %" PRId64 " is answered twice: by line %" PRId64 " of %s and line %"
                             PRId64 " of %s; two runs without a lock or an edited file can do that. Take one of the two lines "
                             "out, or use --overwrite to begin anew", line->offset + 1, f.found_line_i + 1, files[i]->path,
                             here + 1, r->o->path);
    }
    return error_set(err, ST_REJECT, "input line %" PRId64 " is answered twice, the second time by line %" PRId64 " of %s: take "
                     "one of the two lines out, or use --overwrite to begin anew", line->offset + 1, here + 1, r->o->path);
}

static status recovery_line(void *ctx, const struct output_line *line, struct error *err)
{
    struct recovery *r = ctx;

    if (line->offset >= r->done->lines_n)
        return error_set(err, ST_REJECT, "line %" PRId64 " of %s answers input line %" PRId64 ", but the input has only %" PRId64
                         " lines: these are not the results of this input; restore it, or use --overwrite to begin anew",
                         r->o->lines_n + 1, r->o->path, line->offset + 1, r->done->lines_n);
    if (done_get(r->done, line->offset))
        return answered_twice(r, line, err);
    done_set_bit(r->done, line->offset);
    r->o->lines_n++;
    r->o->failures_n += line->failure;
    return ST_OK;
}

static status copy_range(const struct file_output *o, int64_t from, int to_fd, const char *to, struct error *err)
{
    char *block = mem_take(SCAN_BYTES);
    int64_t got, at = 0;
    status st = ST_OK;

    while ((got = file_read_at(o->fd, block, SCAN_BYTES, from + at)) > 0) {
        if (!file_write_at(to_fd, block, (size_t)got, at))
            TRY(st_errno(err, errno, "write", to));
        at += got;
    }
    if (got < 0)
        TRY(st_errno(err, errno, "read", o->path));
    if (!file_sync(to_fd, true))
        TRY(st_errno(err, errno, "write", to));
out:
    free(block);
    return st;
}

/* Copied and synced first, cut afterwards: death in between leaves the damage to be found, and copied, again. */
static status tail_move(struct file_output *o, int64_t from, int64_t line_i, struct error *err)
{
    char suffix[32], *to = NULL;
    int fd = -1;
    status st = ST_OK;

    for (int n = 1; fd < 0 && n <= DAMAGED_FILES_MAX; n++) {
        free(to);
        snprintf(suffix, sizeof suffix, ".damaged-%d", n);
        to = path_join(o->path, suffix);
        fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0)
        TRY(st_errno(err, errno, "create", to));
    st = copy_range(o, from, fd, to, err);
    if (st != ST_OK) {
        unlink(to);
        goto out;
    }
    TRY(folder_sync(to, err));
    failpoint("queue.repair.copied");
    TRY(output_cut(o, from, err));
    log_warn("queue.damaged", "file=%s line=%" PRId64 " at_bytes=%" PRId64 " moved_to=%s effect=\"the results from that line on "
             "are made again\"", o->path, line_i + 1, from, to);
out:
    if (fd >= 0)
        close(fd);
    free(to);
    return st;
}

status output_recover(struct file_output *o, const struct file_output *other, const char *job, struct done_set *done,
                      struct error *err)
{
    struct recovery r = { o, other, job, done };
    enum line_kind kind;
    int64_t at, line_i;
    status st = output_scan(o, job, recovery_line, &r, &kind, &at, &line_i, err);

    if (st != ST_OK)
        return st;
    switch (kind) {
    case LINE_OURS:
        return ST_OK;
    case LINE_TORN:
        failpoint("queue.repair.cut");
        log_info("queue.torn_tail", "file=%s at_bytes=%" PRId64 " cut_bytes=%" PRId64, o->path, at, o->bytes - at);
        return output_cut(o, at, err);
    case LINE_FOREIGN:
        return error_set(err, ST_REJECT, "line %" PRId64 " of %s is not a result of this job (%s): move the file away, choose "
                         "another output, or use --overwrite to begin anew", line_i + 1, o->path, job);
    case LINE_DAMAGED:
        return tail_move(o, at, line_i, err);
    }
    return ST_FATAL;
}

/* Appending. */

static status pending_write(struct file_output *o, struct error *err)
{
    size_t half = failpoint_armed ? o->pending.n / 2 : 0;

    if (o->pending.n == 0)
        return ST_OK;
    o->dirty = true;
    failpoint("queue.append.before");
    if (half > 0) {
        if (!file_write_at(o->fd, o->pending.data, half, o->pending_at))
            return st_errno(err, errno, "write", o->path);
        failpoint("queue.append.half");
    }
    if (!file_write_at(o->fd, o->pending.data + half, o->pending.n - half, o->pending_at + (int64_t)half))
        return st_errno(err, errno, "write", o->path);
    failpoint("queue.append.after");
    o->pending_at += (int64_t)o->pending.n;
    buf_reset(&o->pending);
    return ST_OK;
}

/* Before the first byte of a group: is the file still ours, and does it end where we left it? */
static status group_begin(struct file_output *o, struct error *err)
{
    struct stat mine, there;

    if (o->dirty && !file_cut(o->fd, o->bytes))      /* what a failed group left and could not take away */
        return st_errno(err, errno, "shorten", o->path);
    o->dirty = false;
    if (fstat(o->fd, &mine) != 0)
        return st_errno(err, errno, "write", o->path);
    if (stat(o->path, &there) != 0 || there.st_ino != mine.st_ino || there.st_dev != mine.st_dev)
        return error_set(err, ST_FENCED, "%s was removed or replaced while it was being written; what was in it is gone with it. "
                         "Run the same command again: it answers what is missing", o->path);
    if (mine.st_size != o->bytes)
        return error_set(err, ST_FENCED, "something else has written to %s (%" PRId64 " bytes, not %" PRId64 "); make sure that "
                         "only one run writes it and run the same command again", o->path, (int64_t)mine.st_size, o->bytes);
    o->pending_at = o->bytes;
    return ST_OK;
}

status output_add(struct file_output *o, const char *line, size_t n, struct error *err)
{
    status st;

    if (!o->begun) {
        st = group_begin(o, err);
        if (st != ST_OK)
            return st;
        o->begun = true;
    }
    buf_add(&o->pending, line, n);
    buf_add_byte(&o->pending, '\n');
    return o->pending.n >= PENDING_BYTES_MAX ? pending_write(o, err) : ST_OK;
}

status output_write(struct file_output *o, struct error *err)
{
    return pending_write(o, err);
}

status output_sync(struct file_output *o, struct error *err)
{
    if (!o->begun)
        return ST_OK;
    failpoint("queue.sync.before");
    if (!file_sync(o->fd, false))
        return st_errno(err, errno, "write", o->path);
    failpoint("queue.sync.after");
    return ST_OK;
}

void output_settle(struct file_output *o)
{
    if (o->begun)
        o->bytes = o->pending_at;
    o->begun = o->dirty = false;
}

void output_undo(struct file_output *o)
{
    buf_reset(&o->pending);
    o->begun = false;
    if (o->dirty && file_cut(o->fd, o->bytes))
        o->dirty = false;
}
