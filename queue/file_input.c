/* The input is read twice: once at the start, to know what it is (size, hash, number of lines), and once line by line as
 * the poll asks. Both go through one buffer of a chunk, so memory does not follow the size of the file. The first pass
 * keeps a hash of every chunk (8 bytes a MiB) and the second one checks it before any line of the chunk is delivered: a
 * result can never belong to other bytes than the fingerprint says. What is appended meanwhile lies beyond the snapshot
 * and waits for the next run. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "queue/file.h"

#define FIRST_HASH_BYTES_MAX (64 << 10)

static const char bom[] = "\xef\xbb\xbf";

static bool space_byte(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

status input_open(struct file_input *in, const char *path, int64_t line_max, struct error *err)
{
    memset(in, 0, sizeof *in);
    /* Not blocking: opening a pipe must give its refusal, not wait for a writer. */
    in->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (in->fd < 0)
        return st_errno(err, errno, "read", path);
    in->path = mem_copy_text(path);
    in->line_max = line_max;
    if (fstat(in->fd, &in->at_open) != 0)
        return st_errno(err, errno, "read", path);
    if (S_ISDIR(in->at_open.st_mode))
        return st_errno(err, EISDIR, "read", path);
    if (!S_ISREG(in->at_open.st_mode))
        return error_set(err, ST_REJECT, "the input %s is not a regular file: it is read again when a job resumes; save it "
                         "to a file first", path);
    in->facts.bytes = in->at_open.st_size;
    posix_fadvise(in->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    in->chunks_n = (size_t)((in->facts.bytes + INPUT_CHUNK_BYTES - 1) / INPUT_CHUNK_BYTES);
    in->chunk_hash = mem_take_zero(in->chunks_n, sizeof in->chunk_hash[0]);
    in->chunk = mem_take(INPUT_CHUNK_BYTES);
    return ST_OK;
}

void input_close(struct file_input *in)
{
    if (in->fd >= 0 && in->path != NULL)
        close(in->fd);
    free(in->path);
    free(in->chunk_hash);
    free(in->chunk);
    buf_fini(&in->line);
    memset(in, 0, sizeof *in);
    in->fd = -1;
}

static status input_changed(const struct file_input *in, struct error *err)
{
    return error_set(err, ST_REJECT, "the input %s was changed while it was being answered; the results so far belong to its "
                     "old content: restore it, or use --overwrite to begin anew", in->path);
}

static size_t chunk_bytes(const struct file_input *in, size_t i)
{
    int64_t left = in->facts.bytes - (int64_t)i * INPUT_CHUNK_BYTES;

    return left < INPUT_CHUNK_BYTES ? (size_t)left : INPUT_CHUNK_BYTES;
}

static status chunk_load(struct file_input *in, size_t i, struct error *err)
{
    size_t n = chunk_bytes(in, i);
    int64_t got = file_read_at(in->fd, in->chunk, n, (int64_t)i * INPUT_CHUNK_BYTES);

    if (got < 0)
        return st_errno(err, errno, "read", in->path);
    if ((size_t)got < n)
        return input_changed(in, err);
    in->chunk_n = n;
    in->chunk_at = 0;
    return ST_OK;
}

/* Counting lines: what is known of the one that the last chunk ended in. */
struct counter {
    bool inside;             /* some byte of the line was seen */
    bool seen;               /* ... one that is not blank */
    struct buf first;        /* the first record's first bytes */
    bool first_done;
};

static void first_collect(struct counter *c, const char *p, size_t n)
{
    size_t room = FIRST_HASH_BYTES_MAX - c->first.n;

    if (!c->first_done)
        buf_add(&c->first, p, n < room ? n : room);
}

static void line_end(struct counter *c, struct input_facts *f)
{
    f->lines_n++;
    if (c->seen) {
        f->records_n++;
        c->first_done = true;
    } else if (!c->first_done) {
        buf_reset(&c->first);
    }
    c->inside = c->seen = false;
}

static void chunk_count(struct counter *c, const char *p, const char *end, struct input_facts *f)
{
    while (p < end) {
        const char *from = p, *newline;

        while (!c->seen && p < end && space_byte(*p))
            p++;
        if (p == end || *p == '\n') {
            newline = p < end ? p : NULL;
        } else {
            c->seen = true;
            newline = memchr(p, '\n', (size_t)(end - p));
        }
        p = newline != NULL ? newline : end;
        c->inside |= p > from;
        first_collect(c, from, (size_t)(p - from));
        if (newline != NULL) {
            line_end(c, f);
            p++;
        }
    }
}

status input_scan(struct file_input *in, int64_t prefix_bytes, struct hash128 *prefix, struct error *err)
{
    struct counter c = { .first = BUF_EMPTY };
    struct hasher *whole = hasher_open(), *part = hasher_open();
    struct input_facts *f = &in->facts;
    status st = ST_OK;

    for (size_t i = 0; i < in->chunks_n; i++) {
        int64_t part_n = prefix_bytes - (int64_t)i * INPUT_CHUNK_BYTES;
        size_t skip;

        TRY(chunk_load(in, i, err));
        in->chunk_hash[i] = hash64(in->chunk, in->chunk_n, 0);
        hasher_add(whole, in->chunk, in->chunk_n);
        if (part_n > 0)
            hasher_add(part, in->chunk, (uint64_t)part_n < in->chunk_n ? (size_t)part_n : in->chunk_n);
        skip = i == 0 && in->chunk_n >= 3 && memcmp(in->chunk, bom, 3) == 0 ? 3 : 0;
        chunk_count(&c, in->chunk + skip, in->chunk + in->chunk_n, f);
        f->ended = in->chunk[in->chunk_n - 1] == '\n';
    }
    if (f->bytes == 0)
        f->ended = true;
    if (!f->ended)
        line_end(&c, f);
    while (c.first.n > 0 && space_byte(c.first.data[c.first.n - 1]))      /* a newline that comes later changes nothing */
        c.first.n--;
    f->first_hash = hash64(c.first.data, c.first.n, 0);
out:
    buf_fini(&c.first);
    f->hash = hasher_end(whole);
    *prefix = hasher_end(part);
    in->chunk_n = in->chunk_at = 0;
    in->chunk_i = 0;
    return st;
}

/* Makes in->chunk hold the next unread byte. ST_AGAIN: the snapshot ends here. */
static status chunk_next(struct file_input *in, struct error *err)
{
    status st;

    if (in->chunk_at < in->chunk_n)
        return ST_OK;
    if (in->chunk_i == in->chunks_n)
        return ST_AGAIN;
    st = chunk_load(in, in->chunk_i, err);
    if (st != ST_OK)
        return st;
    if (hash64(in->chunk, in->chunk_n, 0) != in->chunk_hash[in->chunk_i]) {
        in->chunk_at = in->chunk_n;      /* nothing of it is delivered, also when asked again */
        return input_changed(in, err);
    }
    if (in->chunk_i == 0 && in->chunk_n >= 3 && memcmp(in->chunk, bom, 3) == 0)
        in->chunk_at = 3;
    in->chunk_i++;
    return ST_OK;
}

static bool bytes_blank(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!space_byte(p[i]))
            return false;
    return true;
}

/* A line that goes on in the next chunk: collects it in in->line, of an oversize one only its beginning. Returns its whole
 * length, and whether it is blank. */
static status line_collect(struct file_input *in, int64_t *total, bool *blank, char *last, bool *ended, struct error *err)
{
    status st = ST_OK;

    *total = 0;
    *blank = true;
    *ended = false;
    *last = 0;
    buf_reset(&in->line);
    while (!*ended && (st = chunk_next(in, err)) == ST_OK) {
        const char *p = in->chunk + in->chunk_at;
        size_t left = in->chunk_n - in->chunk_at, n;
        const char *newline = memchr(p, '\n', left);
        int64_t room = in->line_max - (int64_t)in->line.n;

        n = newline != NULL ? (size_t)(newline - p) : left;
        buf_add(&in->line, p, (int64_t)n < room ? n : (size_t)room);
        *blank = *blank && bytes_blank(p, n);
        *last = n > 0 ? p[n - 1] : *last;
        *total += (int64_t)n;
        *ended = newline != NULL;
        in->chunk_at += n + *ended;
    }
    return st == ST_AGAIN ? ST_OK : st;
}

status input_next(struct file_input *in, struct input_line *out, struct error *err)
{
    status st = chunk_next(in, err);
    const char *p, *newline;
    int64_t total;
    bool ended = true;
    char last;

    memset(out, 0, sizeof *out);
    if (st != ST_OK)
        return st;
    p = in->chunk + in->chunk_at;
    out->line_i = in->line_i;
    out->at_bytes = (int64_t)(in->chunk_i - 1) * INPUT_CHUNK_BYTES + (int64_t)in->chunk_at;
    newline = memchr(p, '\n', in->chunk_n - in->chunk_at);
    if (in->line.room > INPUT_CHUNK_BYTES)
        buf_fini(&in->line);
    if (newline != NULL) {
        total = newline - p;
        out->value = p;
        out->blank = bytes_blank(p, (size_t)total);
        last = total > 0 ? newline[-1] : 0;
        in->chunk_at += (size_t)total + 1;
    } else {
        st = line_collect(in, &total, &out->blank, &last, &ended, err);
        if (st != ST_OK)
            return st;
        out->value = buf_text(&in->line);
    }
    if (last == '\r')
        total--;
    out->torn = !ended;
    out->oversize = total > in->line_max;
    if (out->oversize)
        total = INPUT_OVERSIZE_KEEP < in->line_max ? INPUT_OVERSIZE_KEEP : in->line_max;
    out->value_n = (size_t)total;
    in->line_i++;
    return ST_OK;
}

bool input_torn_holds(const struct file_input *in)
{
    char next[2] = { 0, 0 };
    int64_t got = file_read_at(in->fd, next, 2, in->facts.bytes);

    return got == 0 || (got > 0 && next[0] == '\n') || (got == 2 && next[0] == '\r' && next[1] == '\n');
}

/* Hashes the file that stands at the path now, as far as the snapshot went. */
static status hash_again(const struct file_input *in, int fd, struct hash128 *out, struct error *err)
{
    struct hasher *h = hasher_open();
    char *chunk = mem_take(INPUT_CHUNK_BYTES);
    status st = ST_OK;

    for (size_t i = 0; i < in->chunks_n; i++) {
        size_t n = chunk_bytes(in, i);
        int64_t got = file_read_at(fd, chunk, n, (int64_t)i * INPUT_CHUNK_BYTES);

        TRY(got < 0 ? st_errno(err, errno, "read", in->path) : ST_OK);
        TRY((size_t)got < n ? input_changed(in, err) : ST_OK);
        hasher_add(h, chunk, n);
    }
out:
    *out = hasher_end(h);
    free(chunk);
    return st;
}

status input_recheck(const struct file_input *in, struct error *err)
{
    const struct stat *before = &in->at_open;
    struct hash128 hash;
    struct stat now;
    status st = ST_OK;
    int fd = open(in->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 && errno == ENOENT) {
        log_warn("queue.input_gone", "file=%s effect=\"its results are complete\"", in->path);
        return ST_OK;
    }
    if (fd < 0 || fstat(fd, &now) != 0)
        TRY(st_errno(err, errno, "read", in->path));
    if (now.st_size == before->st_size && now.st_ino == before->st_ino && now.st_dev == before->st_dev &&
        now.st_mtim.tv_sec == before->st_mtim.tv_sec && now.st_mtim.tv_nsec == before->st_mtim.tv_nsec)
        goto out;
    if (now.st_size < before->st_size || !S_ISREG(now.st_mode))
        TRY(error_set(err, ST_REJECT, "the input %s was cut from %" PRId64 " to %" PRId64 " bytes while it was being answered: "
                      "restore it, or use --overwrite to begin anew", in->path, (int64_t)before->st_size,
                      (int64_t)now.st_size));
    TRY(hash_again(in, fd, &hash, err));
    if (hash.high != in->facts.hash.high || hash.low != in->facts.hash.low)
        TRY(input_changed(in, err));
    if (now.st_size > before->st_size)
        st = error_set(err, ST_AGAIN, "the input %s has grown by %" PRId64 " bytes since the run began: run the same command "
                       "again to answer the new lines", in->path, (int64_t)(now.st_size - before->st_size));
out:
    if (fd >= 0)
        close(fd);
    return st;
}

struct record *input_record(const struct input_line *line)
{
    struct record *r = mem_take_zero(1, sizeof *r);
    char *value = mem_take(line->value_n + 1);

    if (line->value_n > 0)
        memcpy(value, line->value, line->value_n);
    value[line->value_n] = '\0';
    r->offset = line->line_i;
    r->value = value;
    r->value_n = line->value_n;
    r->at_bytes = line->at_bytes;
    r->oversize = line->oversize;
    return r;
}

void input_record_settle(struct queue *q, struct record *r)
{
    (void)q;
    free((void *)(uintptr_t)r->value);
    r->value = NULL;
    r->value_n = 0;
}

void input_record_give(struct queue *q, struct record *r)
{
    input_record_settle(q, r);
    free(r);
}
