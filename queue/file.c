/* The file queue: lines of a file in, lines of a file out, and the output is the commit log.
 *
 * What is done is what the output (and the errors file) holds: a whole line with the id of a line of this job. Nothing
 * else is ever asked, so no other write can disagree with it. queue_commit appends a group with one write and one fdatasync
 * a file; all of it is durable, or the file is cut back to where it was. After a crash, some lines of the group in
 * progress may be there and others not; each is whole, or is cut or moved away at the next start (file_output.c).
 *
 * Beside the output: OUT.job (what the job is made of: file_job.c), OUT.lock (one run at a time), OUT.damaged-N (what a
 * power loss spoilt), OUT.sorting and OUT.job.tmp (half-made; replaced by the next try).
 *
 * The job is the input as it was at the start. The same input, or the same with complete lines appended, goes on with the
 * same ids; anything else is refused. Order at the start: lock, sidecar, input, and only when all of it fits together is
 * the output touched.
 *
 * The window: poll hands out lines up to plan_window_max beyond the lowest open one (tracker.h), so a job's memory does not
 * depend on its length: one bit a line, 8 bytes a MiB of input.
 *
 * Failpoints, in the order of a run:
 *   queue.job.write, queue.job.rename, queue.job.renamed       the sidecar: before its temp file, its rename, and after it
 *   queue.clear                                                --overwrite: before the old results go
 *   queue.repair.cut, queue.repair.copied                      before a torn line is cut; between copy and cut of a bad tail
 *   queue.append.before, queue.append.half, queue.append.after a group: before, in the middle of and after its write
 *   queue.sync.before, queue.sync.after                        around its fdatasync
 *   queue.order.write, queue.order.rename, queue.order.renamed sorting: before the copy, before and after its rename
 *   queue.finish.before, queue.finish.after                    around the end mark in the sidecar */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "queue/file.h"
#include "queue/ops.h"
#include "queue/tracker.h"

struct file_queue {
    struct queue queue;
    /* fixed after the open */
    char *output_path, *sidecar_path, *lock_path;
    struct job_record record;
    bool order_input;
    int64_t torn_i;                  /* the last line, if it has no newline; -1 */
    int lock_fd;
    struct file_input input;         /* the poll side's, but for its facts and descriptor */
    struct done_set done;            /* before this run: read only */
    /* the poll side */
    struct record *held;             /* beyond the window */
    bool paused;
    atomic_bool ended;
    /* the commit side */
    struct file_output output, errors;
    int64_t committed_n;
    int64_t *offsets;                /* scratch */
    size_t offsets_room;
    /* both */
    pthread_mutex_t lock;
    pthread_cond_t moved;            /* the LWM has moved */
    struct tracker *tracker;
    atomic_bool torn_grown;          /* the torn line went on after the snapshot: it waits for the next run */
};

static struct file_queue *self(const struct queue *q)
{
    return (struct file_queue *)(uintptr_t)q;
}

/* ---- the poll side ---- */

/* Waits until the LWM moves, at most until the deadline. Called with the lock held. */
static void wait_moved(struct file_queue *f, int timeout_ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * NS_PER_MS;
    if (until.tv_nsec >= NS_PER_S) {
        until.tv_sec++;
        until.tv_nsec -= NS_PER_S;
    }
    pthread_cond_timedwait(&f->moved, &f->lock, &until);
}

/* Takes the record into the window. ST_AGAIN: it is full. */
static status window_receive(struct file_queue *f, int64_t offset, int timeout_ms)
{
    status st;

    pthread_mutex_lock(&f->lock);
    st = tracker_receive(f->tracker, offset);
    if (st == ST_AGAIN && timeout_ms > 0) {
        wait_moved(f, timeout_ms);
        st = tracker_receive(f->tracker, offset);
    }
    pthread_mutex_unlock(&f->lock);
    ASSERT(st != ST_REJECT);
    return st;
}

/* The next line that needs an answer. ST_AGAIN: none is left. */
static status next_record(struct file_queue *f, struct record **out, struct error *err)
{
    struct input_line line;
    status st;

    do {
        st = input_next(&f->input, &line, err);
        if (st != ST_OK)
            return st;
    } while (line.blank || done_get(&f->done, line.line_i));
    if (line.torn && !input_torn_holds(&f->input)) {
        f->torn_grown = true;
        return ST_AGAIN;
    }
    *out = input_record(&line);
    return ST_OK;
}

static status file_poll(struct queue *q, int timeout_ms, struct record **out, struct error *err)
{
    struct file_queue *f = self(q);
    status st;

    if (f->paused || f->ended) {
        pthread_mutex_lock(&f->lock);
        if (timeout_ms > 0 && !f->ended)
            wait_moved(f, timeout_ms);
        pthread_mutex_unlock(&f->lock);
        return ST_AGAIN;
    }
    if (f->held == NULL) {
        st = next_record(f, &f->held, err);
        if (st == ST_AGAIN)
            f->ended = true;
        if (st != ST_OK)
            return st;
    }
    st = window_receive(f, f->held->offset, timeout_ms);
    if (st != ST_OK)
        return st;
    *out = f->held;
    f->held = NULL;
    return ST_OK;
}

static bool file_ended(const struct queue *q)
{
    return self(q)->ended;
}

static void file_record_give(struct queue *q, struct record *r)
{
    (void)q;
    free(r);
}

static void file_pause(struct queue *q, int32_t source, bool paused)
{
    (void)source;
    self(q)->paused = paused;
}

/* ---- the commit side ---- */

static void file_result_id(const struct queue *q, int32_t source, int64_t offset, char out[64])
{
    (void)source;
    snprintf(out, 64, "batch_req_%s_%" PRId64, q->state.job, offset);
}

/* A verdict on the torn half of a line that has grown is none: the whole line is answered by the next run. */
static bool result_withheld(struct file_queue *f, const struct result *r)
{
    if (r->offset != f->torn_i || input_torn_holds(&f->input))
        return false;
    if (!f->torn_grown)
        log_warn("queue.line_grown", "file=%s line=%" PRId64 " effect=\"its result is dropped; run again to answer it\"",
                 f->input.path, r->offset + 1);
    f->torn_grown = true;
    return true;
}

static int offset_compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Every result must be of a record that was polled and is open, and once: else the output would hold a line twice. */
static void results_check(struct file_queue *f, const struct result *results, size_t n)
{
    if (n > f->offsets_room) {
        f->offsets = mem_grow(f->offsets, n * sizeof f->offsets[0]);
        f->offsets_room = n;
    }
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < n; i++) {
        ASSERT(results[i].source == 0 && tracker_is_open(f->tracker, results[i].offset));
        f->offsets[i] = results[i].offset;
    }
    pthread_mutex_unlock(&f->lock);
    qsort(f->offsets, n, sizeof f->offsets[0], offset_compare);
    for (size_t i = 1; i < n; i++)
        ASSERT(f->offsets[i - 1] != f->offsets[i]);
}

static status group_write(struct file_queue *f, const struct result *results, size_t n, struct error *err)
{
    status st = ST_OK;

    for (size_t i = 0; i < n; i++) {
        const struct result *r = &results[i];
        struct file_output *o = r->kind == RESULT_FAILURE && f->errors.fd >= 0 ? &f->errors : &f->output;

        if (!result_withheld(f, r))
            TRY(output_add(o, r->value, r->value_n, err));
    }
    TRY(output_write(&f->output, err));
    if (f->errors.fd >= 0)
        TRY(output_write(&f->errors, err));
    TRY(output_sync(&f->output, err));
    if (f->errors.fd >= 0)
        TRY(output_sync(&f->errors, err));
out:
    return st;
}

static status file_commit(struct queue *q, const struct result *results, size_t n, struct error *err)
{
    struct file_queue *f = self(q);
    status st;

    results_check(f, results, n);
    st = group_write(f, results, n, err);
    if (st != ST_OK) {
        output_undo(&f->output);
        output_undo(&f->errors);
        return st;
    }
    output_settle(&f->output);
    output_settle(&f->errors);
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < n; i++)
        tracker_done(f->tracker, results[i].offset);
    f->committed_n += (int64_t)n;
    pthread_cond_broadcast(&f->moved);
    pthread_mutex_unlock(&f->lock);
    return ST_OK;
}

static status file_finish(struct queue *q, struct error *err)
{
    struct file_queue *f = self(q);
    status st = ST_OK, grown;

    grown = input_recheck(&f->input, err);
    if (grown != ST_OK && grown != ST_AGAIN)
        return grown;
    ASSERT(f->held == NULL && tracker_open_n(f->tracker) == 0);
    if (grown == ST_AGAIN || f->torn_grown)
        return grown == ST_AGAIN ? grown : error_set(err, ST_AGAIN, "the last line of %s has changed since the run began: run "
                                                     "the same command again", f->input.path);
    ASSERT(f->done.done_n + f->committed_n == f->input.facts.records_n);
    if (f->order_input) {
        TRY(output_order(&f->output, f->record.job, err));
        if (f->errors.fd >= 0)
            TRY(output_order(&f->errors, f->record.job, err));
    }
    failpoint("queue.finish.before");
    f->record.finished = true;
    f->record.ordered = f->order_input;
    TRY(job_record_write(f->sidecar_path, &f->record, err));
    failpoint("queue.finish.after");
out:
    return st;
}

static void file_close(struct queue *q)
{
    struct file_queue *f = self(q);

    free(f->held);
    free(f->offsets);
    tracker_close(f->tracker);
    free(f->done.bits);
    output_close(&f->errors);
    output_close(&f->output);
    input_close(&f->input);
    job_unlock(f->lock_path, f->lock_fd);
    job_record_fini(&f->record);
    pthread_cond_destroy(&f->moved);
    pthread_mutex_destroy(&f->lock);
    free(f->output_path);
    free(f->sidecar_path);
    free(f->lock_path);
    free(f);
}

static const struct queue_ops file_ops = {
    .poll = file_poll, .ended = file_ended, .record_give = file_record_give, .pause = file_pause, .commit = file_commit,
    .result_id = file_result_id, .finish = file_finish, .close = file_close,
};

/* ---- the open ---- */

/* The path without symbolic links, so that a rename replaces the file and not a link, and one file has one lock. */
static status path_resolve(const char *path, char **out, struct error *err)
{
    char *folder = path_folder(path), *real = NULL, *base;
    const char *name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    struct stat s;
    status st = ST_OK;

    *out = NULL;
    if (name[0] == '\0')
        TRY(st_errno(err, EISDIR, "write", path));
    if (stat(path, &s) == 0) {
        if (S_ISDIR(s.st_mode))
            TRY(st_errno(err, EISDIR, "write", path));
        if (!S_ISREG(s.st_mode))
            TRY(error_set(err, ST_REJECT, "the output %s is not a regular file: what is done is read back from it; give a "
                          "path to a file", path));
        real = realpath(path, NULL);
        if (real == NULL)
            TRY(st_errno(err, errno, "write", path));
        *out = mem_copy_text(real);
        goto out;
    }
    if (errno != ENOENT || lstat(path, &s) == 0)      /* a link to nowhere must not be taken for a new file */
        TRY(st_errno(err, errno ? errno : ENOENT, "write", path));
    real = realpath(folder, NULL);
    if (real == NULL)
        TRY(st_errno(err, errno, "write into the folder", folder));
    base = path_join(real, strcmp(real, "/") == 0 ? "" : "/");
    *out = path_join(base, name);
    free(base);
out:
    free(real);
    free(folder);
    return st;
}

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

/* What the queue makes beside a file, for the output; for the errors file only the first two. */
static const char *const companions[] = { "", ".sorting", ".job", ".job.tmp", ".lock" };
enum { COMPANIONS_N = sizeof companions / sizeof companions[0], ERRORS_COMPANIONS_N = 2 };

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
        if (errors_path != NULL && strcmp(path, errors_path) == 0)
            TRY(error_set(err, ST_REJECT, "the errors file %s is the output or stands where a companion of it goes; choose "
                          "another one, or leave -e out to have failures in the output", errors_path));
    }
    if (errors_path != NULL && stat(errors_path, &s) == 0 && same_file(f->output_path, &s))
        TRY(error_set(err, ST_REJECT, "the errors file %s and the output %s are one file; choose another one, or leave -e out to "
                      "have failures in the output", errors_path, f->output_path));
    for (int i = 0; i < ERRORS_COMPANIONS_N && errors_path != NULL; i++) {
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
    char *folder = path_folder(f->output_path), *slash = path_join(folder, "/"), *path = NULL;
    bool empty = file_empty(f->output_path);

    if (before->errors != NULL) {
        path = before->errors[0] == '/' ? mem_copy_text(before->errors) : path_join(slash, before->errors);
        empty = empty && file_empty(path);
    }
    free(path);
    free(slash);
    free(folder);
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
    leftovers_remove(f, *errors_path);
out:
    return st;
}

/* Everything between the lock and a queue that can be polled. */
static status job_begin(struct file_queue *f, const struct queue_job *job, const char *errors_path, struct error *err)
{
    struct job_record before;
    struct hash128 prefix;
    bool fresh;
    status st = job->overwrite ? ST_AGAIN : job_record_read(f->sidecar_path, &before, err);

    if (st == ST_AGAIN)
        memset(&before, 0, sizeof before);
    else if (st != ST_OK)
        return st;
    fresh = st == ST_AGAIN || nothing_answered(f, &before);
    st = ST_OK;
    if (!fresh)
        TRY(settings_compare(f, &before, err));
    TRY(input_scan(&f->input, fresh ? -1 : before.input.bytes, &prefix, err));
    if (!fresh)
        TRY(input_compare(f, &before.input, &prefix, err));
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
    f->lock_fd = f->input.fd = f->output.fd = f->errors.fd = -1;
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
        file_close(&f->queue);
    return st;
}
