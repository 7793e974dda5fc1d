/* The sidecar OUT.job and the lock OUT.lock.
 * The sidecar is replaced as a whole: temp file, fsync, rename, fsync of the folder. It is written before the first result
 * and holds nothing that a result changes, so it is never in the way of a commit; what is done is read from the output. */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "queue/file.h"

#define SIDECAR_VERSION 1
#define SIDECAR_BYTES_MAX (16 << 20)
#define CHANGES_SHOWN_MAX 5
#define VALUE_SHOWN_MAX 60
#define LOCK_BYTES 32
#define LOOKS_MAX 1000

void job_record_fini(struct job_record *r)
{
    free(r->input_path);
    free(r->errors);
    free(r->fingerprint);
    memset(r, 0, sizeof *r);
}

char *job_errors_path(const struct job_record *r, const char *output_path)
{
    char *folder, *slash, *path;

    if (r->errors == NULL || r->errors[0] == '/')
        return r->errors != NULL ? mem_copy_text(r->errors) : NULL;
    folder = path_folder(output_path);
    slash = path_join(folder, "/");
    path = path_join(slash, r->errors);
    free(slash);
    free(folder);
    return path;
}

void job_id_make(const char *fingerprint, uint64_t first_hash, char out[17])
{
    snprintf(out, 17, "%016" PRIx64, hash64(fingerprint, strlen(fingerprint), first_hash));
}

static bool number_read(const struct json_fields *f, const char *path, int64_t *out)
{
    const char *value = json_field_get(f, path);
    char *end;

    if (value == NULL)
        return false;
    errno = 0;
    *out = strtoll(value, &end, 10);
    return end != value && *end == '\0' && errno == 0;
}

static bool flag_read(const struct json_fields *f, const char *path, bool *out)
{
    const char *value = json_field_get(f, path);

    if (value == NULL || (strcmp(value, "true") != 0 && strcmp(value, "false") != 0))
        return false;
    *out = value[0] == 't';
    return true;
}

static bool hash_read(const char *hex, struct hash128 *out)
{
    if (hex == NULL || strlen(hex) != 32 || strspn(hex, "0123456789abcdef") != 32)
        return false;
    return sscanf(hex, "%16" SCNx64 "%16" SCNx64, &out->high, &out->low) == 2;
}

static bool record_parse(const char *text, size_t n, struct job_record *out)
{
    struct json_fields f;
    const char *fingerprint, *value;
    size_t fingerprint_n;
    int64_t version = 0;
    char *job = NULL, *hash = NULL;
    bool good = false;

    if (json_fields_read(text, n, &f) != ST_OK)
        return false;
    if (!number_read(&f, "nightshift_job", &version) || version != SIDECAR_VERSION ||
        json_member_find(text, n, "fingerprint", &fingerprint, &fingerprint_n) != ST_OK)
        goto out;
    value = json_field_get(&f, "job");
    job = value != NULL ? json_text_read(value) : NULL;
    value = json_field_get(&f, "input.hash");
    hash = value != NULL ? json_text_read(value) : NULL;
    value = json_field_get(&f, "errors");
    out->errors = value != NULL ? json_text_read(value) : NULL;
    value = json_field_get(&f, "input.path");
    out->input_path = value != NULL ? json_text_read(value) : NULL;
    out->fingerprint = mem_take(fingerprint_n + 1);
    memcpy(out->fingerprint, fingerprint, fingerprint_n);
    out->fingerprint[fingerprint_n] = '\0';
    good = job != NULL && strlen(job) == 16 && strspn(job, "0123456789abcdef") == 16 && hash_read(hash, &out->input.hash) &&
           out->input_path != NULL && number_read(&f, "begun", &out->begun_s) &&
           flag_read(&f, "finished", &out->finished) && flag_read(&f, "ordered", &out->ordered) &&
           number_read(&f, "input.bytes", &out->input.bytes) && number_read(&f, "input.lines", &out->input.lines_n) &&
           number_read(&f, "input.records", &out->input.records_n) && flag_read(&f, "input.ended", &out->input.ended) &&
           out->input.bytes >= 0 && out->input.lines_n >= 0 && out->input.records_n >= 0;
    if (good)
        strcpy(out->job, job);
out:
    free(job);
    free(hash);
    json_fields_fini(&f);
    return good;
}

status job_record_read(const char *path, struct job_record *out, struct error *err)
{
    struct stat s;
    char *text = NULL;
    status st = ST_OK;
    int fd;

    memset(out, 0, sizeof *out);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? ST_AGAIN : st_errno(err, errno, "read", path);
    if (fstat(fd, &s) != 0) {
        st = st_errno(err, errno, "read", path);
    } else if (!S_ISREG(s.st_mode) || s.st_size > SIDECAR_BYTES_MAX) {
        st = error_set(err, ST_REJECT, "%s is not the record of a job; move it away, or use --overwrite to begin anew", path);
    } else {
        text = mem_take((size_t)s.st_size + 1);
        if (file_read_at(fd, text, (size_t)s.st_size, 0) != s.st_size)
            st = st_errno(err, errno, "read", path);
        else if (!record_parse(text, (size_t)s.st_size, out))
            st = error_set(err, ST_REJECT, "%s is damaged or of another version of nightshift: it cannot tell what the "
                           "results beside it belong to; restore it, or use --overwrite to begin anew", path);
    }
    if (st != ST_OK)
        job_record_fini(out);
    free(text);
    close(fd);
    return st;
}

static void record_print(const struct job_record *r, struct buf *b)
{
    char hash[33];

    hash128_hex(r->input.hash, hash);
    buf_add_format(b, "{\n  \"nightshift_job\": %d,\n  \"job\": \"%s\",\n  \"begun\": %" PRId64
                   ",\n  \"finished\": %s,\n  \"ordered\": %s,\n",
                   SIDECAR_VERSION, r->job, r->begun_s, r->finished ? "true" : "false", r->ordered ? "true" : "false");
    buf_add_text(b, "  \"errors\": ");
    buf_add_json(b, r->errors);
    buf_add_text(b, ",\n  \"input\": {\"path\": ");
    buf_add_json(b, r->input_path);
    buf_add_format(b, ", \"bytes\": %" PRId64 ", \"lines\": %" PRId64 ", \"records\": %" PRId64
                   ", \"ended\": %s, \"hash\": \"%s\"},\n",
                   r->input.bytes, r->input.lines_n, r->input.records_n, r->input.ended ? "true" : "false", hash);
    buf_add_format(b, "  \"fingerprint\": %s\n}\n", r->fingerprint);
}

status job_record_write(const char *path, const struct job_record *r, struct error *err)
{
    char *temp = path_join(path, ".tmp");
    struct buf text = BUF_EMPTY;
    status st = ST_OK;
    int fd;

    record_print(r, &text);
    failpoint("queue.job.write");
    fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || !file_write_at(fd, text.data, text.n, 0) || !file_sync(fd, true)) {
        st = st_errno(err, errno, "write", temp);
        if (fd >= 0) {
            unlink(temp);
            close(fd);
        }
        goto out;
    }
    close(fd);
    failpoint("queue.job.rename");
    if (rename(temp, path) != 0) {
        st = st_errno(err, errno, "write", path);
        unlink(temp);
        goto out;
    }
    failpoint("queue.job.renamed");
    TRY(folder_sync(path, err));
out:
    buf_fini(&text);
    free(temp);
    return st;
}

/* Adds "field: was X, now Y" unless the list is full. */
static void change_add(struct buf *b, int *changes_n, const char *path, const char *was, const char *now)
{
    if (++*changes_n > CHANGES_SHOWN_MAX)
        return;
    buf_add_format(b, "%s%s was %.*s, now %.*s", *changes_n > 1 ? "; " : "", path, VALUE_SHOWN_MAX,
                   was != NULL ? was : "not set", VALUE_SHOWN_MAX, now != NULL ? now : "not set");
}

status fingerprint_check(const char *text, struct error *err)
{
    struct json_fields f;

    if (json_fields_read(text, strlen(text), &f) != ST_OK)
        return error_set(err, ST_REJECT, "the job's fingerprint is not a JSON object");
    json_fields_fini(&f);
    return ST_OK;
}

status fingerprint_compare(const char *before, const char *now, const char *output, struct error *err)
{
    struct json_fields a = { NULL, 0 }, b = { NULL, 0 };
    struct buf text = BUF_EMPTY;
    int changes_n = 0;
    status st = ST_OK;

    if (json_fields_read(before, strlen(before), &a) != ST_OK || json_fields_read(now, strlen(now), &b) != ST_OK) {
        st = error_set(err, ST_REJECT, "the fingerprint of the job in %s.job cannot be read; restore it, or use --overwrite "
                       "to begin anew", output);
        goto out;
    }
    for (size_t i = 0; i < a.n; i++) {
        const char *value = json_field_get(&b, a.field[i].path);

        if (value == NULL || strcmp(value, a.field[i].value) != 0)
            change_add(&text, &changes_n, a.field[i].path, a.field[i].value, value);
    }
    for (size_t i = 0; i < b.n; i++)
        if (json_field_get(&a, b.field[i].path) == NULL)
            change_add(&text, &changes_n, b.field[i].path, NULL, b.field[i].value);
    if (changes_n > CHANGES_SHOWN_MAX)
        buf_add_format(&text, "; and %d more", changes_n - CHANGES_SHOWN_MAX);
    if (changes_n > 0)
        st = error_set(err, ST_REJECT, "the results in %s were begun with other settings: %s. Use the ones of before, "
                       "choose another output, or use --overwrite to begin anew", output, buf_text(&text));
out:
    json_fields_fini(&a);
    json_fields_fini(&b);
    buf_fini(&text);
    return st;
}

/* The lock is a file of its own: the output and the sidecar are replaced by renames, which a lock would not survive. */
static status lock_refused(int fd, const char *output, struct error *err)
{
    char text[LOCK_BYTES + 1] = { 0 };

    if (file_read_at(fd, text, LOCK_BYTES, 0) > 0 && strspn(text, "0123456789") > 0) {
        text[strspn(text, "0123456789")] = '\0';
        return error_set(err, ST_REJECT, "another nightshift (process %s) is writing %s; wait until it has ended, or choose "
                         "another output", text, output);
    }
    return error_set(err, ST_REJECT, "another nightshift is writing %s; wait until it has ended, or choose another output",
                     output);
}

/* A lock file of ours is empty or holds a process number (after a power loss perhaps zeros); anything else that happens to
 * have its name is not overwritten. */
static status lock_check(int fd, const char *path, struct error *err)
{
    char text[LOCK_BYTES + 1] = { 0 };
    int64_t n = file_read_at(fd, text, LOCK_BYTES, 0);
    bool mine = n < LOCK_BYTES;

    if (n < 0)
        return st_errno(err, errno, "read", path);
    for (int64_t i = 0; i < n; i++)
        mine &= (text[i] >= '0' && text[i] <= '9') || text[i] == '\n' || text[i] == '\0';
    if (!mine)
        return error_set(err, ST_REJECT, "%s is in the way: the lock of the output goes there, but this is another file; choose "
                         "another output", path);
    return ST_OK;
}

/* Somebody has a lock, but only to look (queue_look)? That is over in a moment. */
static bool only_looked_at(int fd)
{
    const struct timespec moment = { 0, 1000000 };

    if (flock(fd, LOCK_SH | LOCK_NB) != 0)
        return false;
    flock(fd, LOCK_UN);
    nanosleep(&moment, NULL);
    return true;
}

/* With the lock held: is the file still the one that others find, and ours to write into? ST_AGAIN: try again, the holder
 * before us took the file away between our open and our lock, and another can lock a new one. */
static status lock_mark(int fd, const char *path, struct error *err)
{
    struct stat mine, there;
    char text[LOCK_BYTES];
    status st;
    int n;

    if (fstat(fd, &mine) != 0 || stat(path, &there) != 0 || mine.st_ino != there.st_ino || mine.st_dev != there.st_dev)
        return ST_AGAIN;
    st = lock_check(fd, path, err);
    if (st != ST_OK)
        return st;
    /* The number is for the message only; a full disk must not keep us from resuming. */
    n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (!file_cut(fd, 0) || !file_write_at(fd, text, (size_t)n, 0))
        log_debug("queue.lock", "file=%s note=\"process number not written\"", path);
    return ST_OK;
}

/* ST_OK with a lock; ST_AGAIN: try again. *without: the file system has no locks. */
static status lock_try(int fd, const char *output, int *looks, bool *without, struct error *err)
{
    *without = false;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return ST_OK;
    if (errno == EINTR)
        return ST_AGAIN;
    if (errno != EWOULDBLOCK) {
        *without = true;
        return ST_OK;
    }
    return (*looks)++ < LOOKS_MAX && only_looked_at(fd) ? ST_AGAIN : lock_refused(fd, output, err);
}

status job_lock(const char *path, const char *output, int *fd, struct error *err)
{
    int looks = 0;

    *fd = -1;
    for (;;) {
        int f = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        bool without;
        status st;

        if (f < 0)
            return st_errno(err, errno, "create", path);
        st = lock_try(f, output, &looks, &without, err);
        if (st == ST_OK && without) {
            log_warn("queue.no_lock", "file=%s cause=\"this file system has no locks\" effect=\"nothing keeps a second run from "
                     "writing the same output: do not start one\"", path);
            close(f);
            return ST_OK;
        }
        if (st == ST_OK)
            st = lock_mark(f, path, err);
        if (st == ST_OK) {
            *fd = f;
            return ST_OK;
        }
        close(f);
        if (st != ST_AGAIN)
            return st;
    }
}

void job_unlock(const char *path, int fd)
{
    if (fd < 0)
        return;
    unlink(path);
    close(fd);
}
