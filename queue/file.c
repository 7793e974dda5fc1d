/* The file queue: lines of a file in, lines of a file out, and the output is the commit log.
 *
 * What is done is what the output (and the errors file) holds: a whole line with the id of a line of this job. Nothing
 * else is ever asked, so no other write can disagree with it. queue_commit appends a group with one write and one fdatasync
 * a file; all of it is durable, or the file is cut back to where it was. After a crash, some lines of the group in
 * progress may be there and others not; each is whole, or is cut or moved away at the next start (file_output.c).
 *
 * Beside the output: OUT.job (what the job is made of: file_job.c), OUT.lock (one run at a time; the errors file has one, too), OUT.damaged-N (what a
 * power loss spoilt), OUT.sorting and OUT.job.tmp (half-made; replaced by the next try).
 *
 * The job is the input as it was at the start. The same input, or the same with complete lines appended, goes on with the
 * same ids; anything else is refused (file_open.c).
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
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "queue/file_queue.h"

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

    if (!f->told && f->events.gained != NULL)
        f->events.gained(f->events.ctx, 0, 0);
    f->told = true;
    if (f->stop_taking)
        f->ended = true;
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
    return self(q)->ended || self(q)->stop_taking;
}

static void file_stop_taking(struct queue *q)
{
    self(q)->stop_taking = true;
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
    if (r->record->offset != f->torn_i || input_torn_holds(&f->input))
        return false;
    if (!f->torn_grown)
        log_warn("queue.line_grown", "file=%s line=%" PRId64 " effect=\"its result is dropped; run again to answer it\"",
                 f->input.path, r->record->offset + 1);
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
        const struct record *r = results[i].record;

        ASSERT(r->source == 0 && tracker_is_open(f->tracker, r->offset));
        f->offsets[i] = r->offset;
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

/* The group is durable: its marks move the window. */
static void group_done(struct file_queue *f, const struct result *results, size_t n, bool *durable)
{
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < n; i++) {
        tracker_done(f->tracker, results[i].record->offset);
        f->dead_n += results[i].kind == RESULT_FAILURE;
        durable[i] = true;
    }
    f->committed_n += (int64_t)n;
    commit_times_end(&f->times, clock_mono_ns(), true);
    pthread_cond_broadcast(&f->moved);
    pthread_mutex_unlock(&f->lock);
}

static status file_commit(struct queue *q, const struct result *results, size_t n, bool *durable, struct error *err)
{
    struct file_queue *f = self(q);
    status st;

    results_check(f, results, n);
    pthread_mutex_lock(&f->lock);
    commit_times_begin(&f->times, clock_mono_ns());
    pthread_mutex_unlock(&f->lock);
    st = group_write(f, results, n, err);
    if (st == ST_OK) {
        output_settle(&f->output);
        output_settle(&f->errors);
        group_done(f, results, n, durable);
        return ST_OK;
    }
    output_undo(&f->output);
    output_undo(&f->errors);
    pthread_mutex_lock(&f->lock);
    commit_times_end(&f->times, clock_mono_ns(), false);
    pthread_mutex_unlock(&f->lock);
    return st;
}

static void file_read_counts(struct queue *q, struct queue_counts *out)
{
    struct file_queue *f = self(q);

    pthread_mutex_lock(&f->lock);
    commit_times_read(&f->times, out);
    out->sources_n = 1;
    out->window_used_n = tracker_ahead(f->tracker);
    out->lag_n = f->input.facts.records_n - f->done.done_n - f->committed_n;
    out->dead_n = f->dead_n;
    pthread_mutex_unlock(&f->lock);
    out->oldest_open_age_ms = out->generation = -1;
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

void file_queue_close(struct queue *q)
{
    struct file_queue *f = self(q);

    queue_record_give(q, f->held);
    free(f->offsets);
    tracker_close(f->tracker);
    free(f->done.bits);
    output_close(&f->errors);
    output_close(&f->output);
    input_close(&f->input);
    job_unlock(f->errors_lock_path, f->errors_lock_fd);
    job_unlock(f->lock_path, f->lock_fd);
    job_record_fini(&f->record);
    pthread_cond_destroy(&f->moved);
    pthread_mutex_destroy(&f->lock);
    free(f->output_path);
    free(f->sidecar_path);
    free(f->lock_path);
    free(f->errors_lock_path);
    free(f);
}

const struct queue_ops file_ops = {
    .poll = file_poll, .ended = file_ended, .record_settle = input_record_settle, .record_give = input_record_give,
    .pause = file_pause, .stop_taking = file_stop_taking, .commit = file_commit, .result_id = file_result_id,
    .finish = file_finish, .read_counts = file_read_counts, .close = file_queue_close,
};
