/* How a job of the file queue begins: is it a new one, the same as before, or the same with more input; and is nothing in the
 * way. Lock, sidecar and input come first; the output is touched when all of them fit together. */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "queue/file_queue.h"

static bool same_file(const char *path, const struct stat *s)
{
    struct stat there;

    return stat(path, &there) == 0 && there.st_ino == s->st_ino && there.st_dev == s->st_dev;
}

/* As the sidecar keeps it: without the folder where that is the output's, so that a job can be moved as a whole. */
static char *errors_name(const struct file_queue *f, const char *errors_path)
{
    char *mine = path_folder(f->output_path), *its = path_folder(errors_path);
    char *name = mem_copy_text(strcmp(mine, its) == 0 ? strrchr(errors_path, '/') + 1 : errors_path);

    free(mine);
    free(its);
    return name;
}

/* What stands beside a file: the queue's own companions, then the worker's progress store (SQLite's files). The errors file
 * has the first three only. */
static const char *const companions[] = { "", ".sorting", ".lock", ".job", ".job.tmp", ".progress", ".progress-wal",
                                          ".progress-shm", ".progress-journal" };
enum { COMPANIONS_N = sizeof companions / sizeof companions[0], ERRORS_COMPANIONS_N = 3 };

/* Is one of the errors file's companions one of the output's? */
static bool companions_clash(const char *output_path, const char *errors_path)
{
    bool clash = false;

    for (int i = 0; i < COMPANIONS_N; i++) {
        char *mine = path_join(output_path, companions[i]);

        for (int k = 0; k < ERRORS_COMPANIONS_N; k++) {
            char *its = path_join(errors_path, companions[k]);

            clash |= strcmp(mine, its) == 0;
            free(its);
        }
        free(mine);
    }
    return clash;
}

/* No file that is going to be written may be the input under whatever name, nor two of them one. */
static status paths_check(const struct file_queue *f, const char *errors_path, struct error *err)
{
    status st = ST_OK;
    char *path = NULL;
    struct stat s;

    for (int i = 0; i < COMPANIONS_N; i++) {
        free(path);
        path = path_join(f->output_path, companions[i]);
        if (same_file(path, &f->input.at_open))
            TRY(error_set(err, ST_REJECT, "the output %s would overwrite the input %s; choose another output", path,
                          f->input.path));
    }
    if (errors_path == NULL)
        goto out;
    if (companions_clash(f->output_path, errors_path))
        TRY(error_set(err, ST_REJECT, "the errors file %s is the output or stands where a companion of it goes; choose "
                      "another one, or leave -e out to have failures in the output", errors_path));
    if (stat(errors_path, &s) == 0 && same_file(f->output_path, &s))
        TRY(error_set(err, ST_REJECT, "the errors file %s and the output %s are one file; choose another one, or leave -e out to "
                      "have failures in the output", errors_path, f->output_path));
    for (int i = 0; i < ERRORS_COMPANIONS_N; i++) {
        free(path);
        path = path_join(errors_path, companions[i]);
        if (same_file(path, &f->input.at_open))
            TRY(error_set(err, ST_REJECT, "the errors file %s would overwrite the input %s; choose another one", path,
                          f->input.path));
    }
out:
    free(path);
    return st;
}

static status fresh_begin(struct file_queue *f, const struct queue_job *job, struct error *err)
{
    const struct file_output *used = f->output.bytes > 0 ? &f->output : f->errors.fd >= 0 ? &f->errors : &f->output;
    status st = ST_OK;

    if (used->bytes > 0 && !job->overwrite)
        return error_set(err, ST_REJECT, "%s is there already and has no %s.job beside it that says what it belongs to; choose "
                         "another output, or use --overwrite to begin anew", used->path, f->output_path);
    if (used->bytes > 0)
        failpoint("queue.clear");
    TRY(output_clear(&f->output, err));
    if (f->errors.fd >= 0)
        TRY(output_clear(&f->errors, err));
    job_id_make(job->fingerprint, f->input.facts.first_hash, f->record.job);
    f->record.begun_s = clock_wall_ns() / NS_PER_S;
out:
    return st;
}

/* The input of before against the one of now: the same, or the same with something appended. */
static status input_compare(const struct file_queue *f, const struct input_facts *before, const struct hash128 *prefix,
                            struct error *err)
{
    const struct input_facts *now = &f->input.facts;

    if (now->bytes < before->bytes)
        return error_set(err, ST_REJECT, "the input %s is shorter than when %s was begun (%" PRId64 " bytes, then %" PRId64
                         "); restore it, choose another output, or use --overwrite to begin anew", f->input.path,
                         f->output_path, now->bytes, before->bytes);
    if (prefix->high != before->hash.high || prefix->low != before->hash.low)
        return error_set(err, ST_REJECT, "the input %s is not the one that %s was begun with (%s); restore it, choose another "
                         "output, or use --overwrite to begin anew", f->input.path, f->output_path,
                         now->bytes > before->bytes ? "its beginning has changed" : "same size, other content");
    return ST_OK;
}

/* The old last line had no newline. If it has gone on since, a verdict on its half may not stand. */
static status torn_check(const struct file_queue *f, const struct input_facts *before, struct error *err)
{
    struct file_input old = f->input;

    old.facts.bytes = before->bytes;
    if (before->ended || before->lines_n == 0 || !done_get(&f->done, before->lines_n - 1) || input_torn_holds(&old))
        return ST_OK;
    return error_set(err, ST_REJECT, "line %" PRId64 " of %s had no newline when it was answered and has been continued since: "
                     "restore it, choose another output, or use --overwrite to begin anew", before->lines_n, f->input.path);
}

static status resume_begin(struct file_queue *f, const struct job_record *before, struct error *err)
{
    bool grown = f->input.facts.bytes > before->input.bytes;
    status st = ST_OK;

    strcpy(f->record.job, before->job);
    f->record.begun_s = before->begun_s;
    TRY(output_recover(&f->output, &f->errors, f->record.job, &f->done, err));
    if (f->errors.fd >= 0)
        TRY(output_recover(&f->errors, &f->output, f->record.job, &f->done, err));
    if (grown)
        TRY(torn_check(f, &before->input, err));
    f->record.finished = before->finished && !grown && f->done.done_n == f->input.facts.records_n;
    f->record.ordered = before->ordered && f->record.finished;
    if (f->done.done_n == 0)      /* nothing carries the old id yet, and its first line may have been a torn one */
        job_id_make(f->record.fingerprint, f->input.facts.first_hash, f->record.job);
out:
    return st;
}

static status settings_compare(const struct file_queue *f, const struct job_record *before, struct error *err)
{
    const char *was = before->errors, *now = f->record.errors;

    if ((was == NULL) != (now == NULL) || (was != NULL && strcmp(was, now) != 0))
        return error_set(err, ST_REJECT, "%s was begun with %s%s, now it is %s%s: what has failed so far would be lost sight of. "
                         "Use the same -e as before, choose another output, or use --overwrite to begin anew", f->output_path,
                         was != NULL ? "-e " : "no -e", was != NULL ? was : "", now != NULL ? "-e " : "none",
                         now != NULL ? now : "");
    return fingerprint_compare(before->fingerprint, f->record.fingerprint, f->output_path, err);
}

static bool file_empty(const char *path)
{
    struct stat s;

    return stat(path, &s) != 0 || s.st_size == 0;
}

/* A job that has no result yet binds nobody: whatever it was begun with, the next run may begin anew. */
static bool nothing_answered(const struct file_queue *f, const struct job_record *before)
{
    char *errors = job_errors_path(before, f->output_path);
    bool empty = file_empty(f->output_path) && (errors == NULL || file_empty(errors));

    free(errors);
    return empty;
}

static bool record_equal(const struct job_record *a, const struct job_record *b)
{
    return strcmp(a->job, b->job) == 0 && a->finished == b->finished && a->ordered == b->ordered &&
           a->input.bytes == b->input.bytes && strcmp(a->input_path, b->input_path) == 0;
}

/* What a run that died had half made. */
static void leftovers_remove(const struct file_queue *f, const char *errors_path)
{
    char *path[3] = { path_join(f->output_path, ".sorting"), path_join(f->sidecar_path, ".tmp"),
                      errors_path != NULL ? path_join(errors_path, ".sorting") : NULL };

    for (int i = 0; i < 3; i++) {
        if (path[i] != NULL)
            unlink(path[i]);
        free(path[i]);
    }
}

static status files_open(struct file_queue *f, const struct queue_job *job, char **errors_path, struct error *err)
{
    status st = ST_OK;

    TRY(path_resolve(job->output, &f->output_path, err));
    f->sidecar_path = path_join(f->output_path, ".job");
    f->lock_path = path_join(f->output_path, ".lock");
    if (job->errors != NULL) {
        TRY(path_resolve(job->errors, errors_path, err));
        f->record.errors = errors_name(f, *errors_path);
    }
    TRY(paths_check(f, *errors_path, err));
    TRY(job_lock(f->lock_path, f->output_path, &f->lock_fd, err));
    if (*errors_path != NULL) {      /* two jobs may share no file, and none may write another's output */
        f->errors_lock_path = path_join(*errors_path, ".lock");
        TRY(job_lock(f->errors_lock_path, *errors_path, &f->errors_lock_fd, err));
    }
    leftovers_remove(f, *errors_path);
out:
    return st;
}

/* Is this the job of before? *fresh: no, and there is nothing that binds to it. Settings first: they are told without reading
 * a large input. */
static status job_compare(struct file_queue *f, const struct job_record *before, bool *fresh, struct error *err)
{
    bool bound = !nothing_answered(f, before);
    struct hash128 prefix;
    status st = settings_compare(f, before, err);

    if (st != ST_OK && bound)
        return st;
    *fresh = st != ST_OK;
    TRY(input_scan(&f->input, before->input.bytes, &prefix, err));
    if (*fresh)
        return ST_OK;
    st = input_compare(f, &before->input, &prefix, err);
    if (st != ST_OK && !bound) {
        *fresh = true;
        st = ST_OK;
    }
out:
    return st;
}

/* Everything between the lock and a queue that can be polled. */
static status job_begin(struct file_queue *f, const struct queue_job *job, const char *errors_path, struct error *err)
{
    struct job_record before;
    struct hash128 unused;
    bool fresh = true;
    status st = job->overwrite ? ST_AGAIN : job_record_read(f->sidecar_path, &before, err);

    if (st == ST_AGAIN) {
        memset(&before, 0, sizeof before);
        TRY(input_scan(&f->input, -1, &unused, err));
    } else {
        if (st != ST_OK)
            return st;
        TRY(job_compare(f, &before, &fresh, err));
    }
    f->record.input = f->input.facts;
    f->done.lines_n = f->input.facts.lines_n;
    f->done.bits = mem_take_zero((size_t)(f->done.lines_n / 64 + 1), sizeof f->done.bits[0]);
    TRY(output_open(&f->output, f->output_path, err));
    if (errors_path != NULL)
        TRY(output_open(&f->errors, errors_path, err));
    TRY(folder_sync(f->output_path, err));
    if (errors_path != NULL)
        TRY(folder_sync(errors_path, err));
    TRY(fresh ? fresh_begin(f, job, err) : resume_begin(f, &before, err));
    if (fresh || !record_equal(&before, &f->record))
        TRY(job_record_write(f->sidecar_path, &f->record, err));
out:
    job_record_fini(&before);
    return st;
}

static void state_fill(struct file_queue *f)
{
    struct queue_state *s = &f->queue.state;

    strcpy(s->job, f->record.job);
    s->begun_s = f->record.begun_s;
    s->records_n = f->input.facts.records_n;
    s->done_n = f->done.done_n;
    s->failed_n = f->errors.lines_n + f->output.failures_n;
    s->input_bytes = f->input.facts.bytes;
    s->finished = f->record.finished && s->done_n == s->records_n && (f->record.ordered || !f->order_input);
    f->torn_i = f->input.facts.ended ? -1 : f->input.facts.lines_n - 1;
}

static struct file_queue *file_queue_new(const struct queue_job *job)
{
    struct file_queue *f = mem_take_zero(1, sizeof *f);
    pthread_condattr_t attr;

    f->queue.ops = &file_ops;
    f->order_input = job->order_input;
    if (job->events != NULL)
        f->events = *job->events;
    f->lock_fd = f->errors_lock_fd = f->input.fd = f->output.fd = f->errors.fd = -1;
    pthread_mutex_init(&f->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&f->moved, &attr);
    pthread_condattr_destroy(&attr);
    return f;
}

status file_queue_open(const struct config *cfg, const struct queue_job *job, struct queue **out, struct error *err)
{
    struct file_queue *f;
    char *errors_path = NULL;
    status st;

    if (job->input == NULL || job->output == NULL)
        return error_set(err, ST_REJECT, "an input file and an output file are needed");
    st = fingerprint_check(job->fingerprint, err);
    if (st != ST_OK)
        return st;
    f = file_queue_new(job);
    f->record.fingerprint = mem_copy_text(job->fingerprint);
    f->record.input_path = mem_copy_text(job->input);
    TRY(input_open(&f->input, job->input, cfg->line_mb_max << 20, err));
    TRY(files_open(f, job, &errors_path, err));
    TRY(job_begin(f, job, errors_path, err));
    state_fill(f);
    f->tracker = tracker_open(0, cfg->plan_window_max);
    *out = &f->queue;
    f = NULL;
out:
    free(errors_path);
    if (f != NULL)
        file_queue_close(&f->queue);
    return st;
}
