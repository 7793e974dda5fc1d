#define _POSIX_C_SOURCE 200809L
#include "tools/nightshift/collected.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failpoint.h"

static status st_io(struct error *err, const char *doing, const char *path)
{
    return error_set(err, errno == ENOSPC || errno == EDQUOT || errno == EIO ? ST_RETRY : ST_REJECT, "cannot %s %s: %s", doing, path,
                     strerror(errno));
}

static char *path_with(const char *path, const char *suffix)
{
    char *out = mem_take(strlen(path) + strlen(suffix) + 1);

    return strcat(strcpy(out, path), suffix);
}

/* ---- reading lines back ---- */

typedef status (*line_fn)(void *ctx, const char *line, size_t n, int64_t at, struct error *err);

/* Every whole line of the file, without its newline; *bytes: up to the end of the last one. */
static status lines_read(const char *path, line_fn fn, void *ctx, int64_t *bytes, struct error *err)
{
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    status st = ST_OK;

    *bytes = 0;
    if (f == NULL)
        return st_io(err, "read", path);
    while (st == ST_OK && (n = getline(&line, &room, f)) > 0 && line[n - 1] == '\n') {
        st = fn(ctx, line, (size_t)n - 1, *bytes, err);
        *bytes += n;
    }
    if (st == ST_OK && ferror(f))
        st = st_io(err, "read", path);
    free(line);
    fclose(f);
    return st;
}

struct reading { struct collected *c; const char *path; };

static bool line_is_failure(const char *line, size_t n);

static status line_recover(void *ctx, const char *line, size_t n, int64_t at, struct error *err)
{
    struct reading *r = ctx;
    struct place place;

    if (!place_read_line(line, n, &place))
        return error_set(err, ST_REJECT, "%s holds a line that is no answer of a topic's job (at byte %lld); give another file, or --overwrite",
                         r->path, (long long)at);
    place_map_add(r->c->there, place, line_is_failure(line, n));
    return ST_OK;
}

/* An answer of status 200 says so behind its custom_id, inside of which these quotes could not stand. */
static bool line_is_failure(const char *line, size_t n)
{
    static const char good[] = ",\"response\":{\"status_code\":200,";
    size_t good_n = sizeof good - 1;

    for (size_t i = 0; i + good_n <= n; i++) {
        if (line[i] == ',' && memcmp(line + i, good, good_n) == 0)
            return false;
    }
    return true;
}

/* ---- opening ---- */

static status file_open(struct collected *c, struct collected_file *f, const char *path, bool overwrite, struct error *err)
{
    struct reading reading = { c, path };
    status st;

    f->path = mem_copy_text(path);
    f->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | (overwrite ? O_TRUNC : 0), 0666);
    if (f->fd < 0)
        return st_io(err, "open", path);
    st = lines_read(path, line_recover, &reading, &f->bytes, err);
    if (st == ST_OK && ftruncate(f->fd, f->bytes) != 0)      /* a torn last line */
        st = st_io(err, "cut", path);
    return st;
}

/* Whose answers: written before the first of them. */
static status owner_check(const char *path, const char *what, bool overwrite, bool empty, struct error *err)
{
    char before[2048] = "";
    FILE *f = fopen(path, "r");
    size_t n = f != NULL ? fread(before, 1, sizeof before - 1, f) : 0;
    bool written;

    if (f != NULL)
        fclose(f);
    before[n] = '\0';
    before[strcspn(before, "\n")] = '\0';
    if (!overwrite && n > 0 && strcmp(before, what) != 0)
        return error_set(err, ST_REJECT, "the output is another job's: %s, not %s; give another file, or --overwrite", before, what);
    if (!overwrite && n == 0 && !empty)
        return error_set(err, ST_REJECT, "the output is there already and was not made by `collect` (there is no %s); give another file, or "
                         "--overwrite", path);
    if (!overwrite && n > 0)
        return ST_OK;
    f = fopen(path, "w");
    if (f == NULL)
        return st_io(err, "write", path);
    written = fprintf(f, "%s\n", what) > 0;
    written = fflush(f) == 0 && fsync(fileno(f)) == 0 && written;
    if (fclose(f) != 0 || !written)
        return st_io(err, "write", path);
    return ST_OK;
}

static int64_t size_of(const char *path)
{
    struct stat s;

    return path != NULL && stat(path, &s) == 0 ? (int64_t)s.st_size : 0;
}

status collected_open(struct collected *c, const char *output, const char *errors, const char *what, bool overwrite, struct error *err)
{
    char *owner = path_with(output, ".collect");
    status st = ST_OK;

    *c = (struct collected){ .output.fd = -1, .errors.fd = -1, .lock_fd = -1 };
    c->there = place_map_open();
    c->lock_fd = open(owner, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (c->lock_fd < 0)
        st = st_io(err, "write", owner);
    else if (flock(c->lock_fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        st = error_set(err, ST_REJECT, "another process collects into %s", output);
    if (st == ST_OK)
        TRY(owner_check(owner, what, overwrite, size_of(output) + size_of(errors) == 0, err));
    if (st == ST_OK)
        TRY(file_open(c, &c->output, output, overwrite, err));
    if (st == ST_OK && errors != NULL)
        TRY(file_open(c, &c->errors, errors, overwrite, err));
out:
    free(owner);
    return st;
}

static void file_close(struct collected_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
    buf_fini(&f->pending);
}

void collected_close(struct collected *c)
{
    file_close(&c->output);
    file_close(&c->errors);
    place_map_close(c->there);
    if (c->lock_fd >= 0)
        close(c->lock_fd);
}

/* ---- adding ---- */

bool collected_has(const struct collected *c, struct place place)
{
    return place_map_get(c->there, place) >= 0;
}

void collected_add(struct collected *c, struct place place, bool failure, const char *line, size_t n)
{
    struct collected_file *f = failure && c->errors.path != NULL ? &c->errors : &c->output;

    place_map_add(c->there, place, failure);
    buf_add(&f->pending, line, n);
    buf_add_byte(&f->pending, '\n');
}

static bool bytes_write(int fd, const char *bytes, size_t n, int64_t at)
{
    while (n > 0) {
        ssize_t done = pwrite(fd, bytes, n, at);

        if (done < 0 && errno != EINTR)
            return false;
        if (done > 0) {
            bytes += done;
            n -= (size_t)done;
            at += done;
        }
    }
    return true;
}

static status file_flush(struct collected_file *f, struct error *err)
{
    size_t n = f->pending.n;

    if (n == 0)
        return ST_OK;
    failpoint("collect.write.before");
    if (failpoint_armed && n > 1 && bytes_write(f->fd, f->pending.data, n / 2, f->bytes))
        failpoint("collect.write.half");
    if (!bytes_write(f->fd, f->pending.data, n, f->bytes) || fdatasync(f->fd) != 0)
        return st_io(err, "write", f->path);
    failpoint("collect.write.after");
    f->bytes += (int64_t)n;
    buf_reset(&f->pending);
    return ST_OK;
}

status collected_flush(struct collected *c, struct error *err)
{
    status st = file_flush(&c->output, err);

    return st == ST_OK ? file_flush(&c->errors, err) : st;
}

/* ---- in order ---- */

struct ordered_line { int64_t number, at, bytes; };

struct ordering {
    int64_t (*choose)(void *ctx, struct place place, bool failure);
    void *ctx;
    struct ordered_line *line;
    size_t n, room;
    bool sorted;                               /* the file is already as it should be */
};

static status line_choose(void *ctx, const char *line, size_t n, int64_t at, struct error *err)
{
    struct ordering *o = ctx;
    struct place place;
    int64_t number;

    (void)err;
    number = place_read_line(line, n, &place) ? o->choose(o->ctx, place, line_is_failure(line, n)) : -1;
    if (number < 0) {
        o->sorted = false;
        return ST_OK;
    }
    if (o->n == o->room) {
        o->room = o->room * 2 + 1024;
        o->line = mem_grow(o->line, o->room * sizeof *o->line);
    }
    o->sorted = o->sorted && (o->n == 0 || o->line[o->n - 1].number < number);
    o->line[o->n++] = (struct ordered_line){ number, at, (int64_t)n + 1 };
    return ST_OK;
}

static int by_number(const void *a, const void *b)
{
    const struct ordered_line *x = a, *y = b;

    return (x->number > y->number) - (x->number < y->number);
}

static status lines_copy(const struct collected_file *from, const struct ordering *o, FILE *to, const char *to_path, struct error *err)
{
    char *bytes = NULL;
    size_t room = 0;
    status st = ST_OK;

    for (size_t i = 0; i < o->n && st == ST_OK; i++) {
        const struct ordered_line *l = &o->line[i];

        if ((size_t)l->bytes > room) {
            room = (size_t)l->bytes * 2;
            bytes = mem_grow(bytes, room);
        }
        if (pread(from->fd, bytes, (size_t)l->bytes, l->at) != (ssize_t)l->bytes)
            st = st_io(err, "read", from->path);
        else if (fwrite(bytes, 1, (size_t)l->bytes, to) != (size_t)l->bytes)
            st = st_io(err, "write", to_path);
    }
    free(bytes);
    return st;
}

static status file_replace(struct collected_file *f, const struct ordering *o, struct error *err)
{
    char *path = path_with(f->path, ".order");
    FILE *to = fopen(path, "w");
    status st;
    int fd;

    if (to == NULL) {
        st = st_io(err, "write", path);
        goto out;
    }
    st = lines_copy(f, o, to, path, err);
    if (st == ST_OK && (fflush(to) != 0 || fsync(fileno(to)) != 0))
        st = st_io(err, "write", path);
    if (fclose(to) != 0 && st == ST_OK)
        st = st_io(err, "write", path);
    failpoint("collect.order.rename");
    if (st == ST_OK && rename(path, f->path) != 0)
        st = st_io(err, "replace", f->path);
    failpoint("collect.order.renamed");
    if (st == ST_OK && (fd = open(f->path, O_RDWR | O_CLOEXEC)) >= 0) {
        close(f->fd);
        f->fd = fd;
    }
out:
    if (st != ST_OK)
        unlink(path);
    free(path);
    return st;
}

static status file_order(struct collected_file *f, struct ordering *o, struct error *err)
{
    status st;

    o->n = 0;
    o->sorted = true;
    if (f->path == NULL)
        return ST_OK;
    st = lines_read(f->path, line_choose, o, &f->bytes, err);
    if (st != ST_OK || o->sorted)
        return st;
    qsort(o->line, o->n, sizeof *o->line, by_number);
    return file_replace(f, o, err);
}

status collected_order(struct collected *c, int64_t (*choose)(void *ctx, struct place place, bool failure), void *ctx, struct error *err)
{
    struct ordering o = { .choose = choose, .ctx = ctx };
    status st = file_order(&c->output, &o, err);

    if (st == ST_OK)
        st = file_order(&c->errors, &o, err);
    free(o.line);
    return st;
}
