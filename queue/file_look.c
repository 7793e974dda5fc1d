/* How far a file job is, seen from outside. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "queue/file.h"
#include "queue/queue.h"

static status line_count(void *ctx, const struct output_line *line, struct error *err)
{
    struct queue_state *s = ctx;

    (void)err;
    s->done_n++;
    s->failed_n += line->failure;
    return ST_OK;
}

/* Whole lines so far; one that is being written is not counted, as a crash now would not keep it either. */
static status file_count(const char *path, struct queue_state *s, struct error *err)
{
    struct file_output o = { .path = (char *)(uintptr_t)path, .fd = open(path, O_RDONLY | O_CLOEXEC) };
    enum line_kind kind;
    int64_t at, line_i;
    struct stat facts;
    status st;

    if (o.fd < 0)
        return errno == ENOENT ? ST_OK : st_errno(err, errno, "read", path);
    if (fstat(o.fd, &facts) == 0)
        o.bytes = facts.st_size;
    st = output_scan(&o, s->job, line_count, s, &kind, &at, &line_i, err);
    close(o.fd);
    return st;
}

static bool is_held(const char *lock_path)
{
    int fd = open(lock_path, O_RDONLY | O_CLOEXEC);
    bool held;

    if (fd < 0)
        return false;
    held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return held;
}

status queue_look(const char *output, struct queue_state *out, bool *running, struct error *err)
{
    char *real = NULL, *sidecar = NULL, *lock = NULL, *errors = NULL;
    struct job_record record;
    status st;

    memset(out, 0, sizeof *out);
    memset(&record, 0, sizeof record);
    *running = false;
    TRY(path_resolve(output, &real, err));
    sidecar = path_join(real, ".job");
    lock = path_join(real, ".lock");
    st = job_record_read(sidecar, &record, err);
    if (st == ST_AGAIN)
        error_set(err, st, "no job was begun at %s (there is no %s)", output, sidecar);
    TRY(st);
    strcpy(out->job, record.job);
    out->begun_s = record.begun_s;
    out->records_n = record.input.records_n;
    out->input_bytes = record.input.bytes;
    *running = is_held(lock);
    TRY(file_count(real, out, err));
    errors = job_errors_path(&record, real);
    if (errors != NULL)
        TRY(file_count(errors, out, err));
    out->finished = record.finished && out->done_n == out->records_n;      /* answers that were taken out again are open */
out:
    job_record_fini(&record);
    free(errors);
    free(lock);
    free(sidecar);
    free(real);
    return st;
}
