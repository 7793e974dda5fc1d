/* The records of a file and nothing else: for commands that look at a job without doing it. No lock, no output, no job
 * id; every line comes, whatever an output may hold. */
#include <stdatomic.h>
#include <stdlib.h>

#include "queue/file.h"
#include "queue/ops.h"

struct read_queue {
    struct queue queue;
    struct file_input input;
    atomic_bool ended;
};

static struct read_queue *self(const struct queue *q)
{
    return (struct read_queue *)(uintptr_t)q;
}

static status read_poll(struct queue *q, int timeout_ms, struct record **out, struct error *err)
{
    struct input_line line;
    status st;

    (void)timeout_ms;           /* a file's next line is there or never */
    if (self(q)->ended)
        return ST_AGAIN;
    do {
        st = input_next(&self(q)->input, &line, err);
        if (st != ST_OK) {
            self(q)->ended = st == ST_AGAIN;
            return st;
        }
    } while (line.blank);
    *out = input_record(&line);
    return ST_OK;
}

static bool read_ended(const struct queue *q)
{
    return self(q)->ended;
}

static void read_stop_taking(struct queue *q)
{
    self(q)->ended = true;
}

static void read_counts(struct queue *q, struct queue_counts *out)
{
    (void)q;
    out->sources_n = 1;
    out->oldest_open_age_ms = out->generation = -1;
}

static void read_pause(struct queue *q, int32_t source, bool paused)
{
    (void)q;
    (void)source;
    (void)paused;               /* nothing comes unasked */
}

static status read_commit(struct queue *q, const struct result *results, size_t n, bool *durable, struct error *err)
{
    (void)q;
    (void)results;
    (void)n;
    (void)durable;
    return error_set(err, ST_REJECT, "this queue was opened to read: it takes no results");
}

static void read_result_id(const struct queue *q, int32_t source, int64_t offset, char out[64])
{
    (void)q;
    (void)source;
    snprintf(out, 64, "line_%lld", (long long)offset + 1);
}

static status read_finish(struct queue *q, struct error *err)
{
    return input_recheck(&self(q)->input, err);
}

static void read_close(struct queue *q)
{
    input_close(&self(q)->input);
    free(q);
}

static const struct queue_ops read_ops = {
    .poll = read_poll, .ended = read_ended, .record_settle = input_record_settle, .record_give = input_record_give,
    .pause = read_pause, .stop_taking = read_stop_taking, .commit = read_commit, .result_id = read_result_id,
    .finish = read_finish, .read_counts = read_counts, .close = read_close,
};

status read_queue_open(const struct config *cfg, const struct queue_job *job, struct queue **out, struct error *err)
{
    struct read_queue *r;
    struct hash128 unused;
    status st;

    if (job->input == NULL)
        return error_set(err, ST_REJECT, "an input file is needed");
    r = mem_take_zero(1, sizeof *r);
    r->queue.ops = &read_ops;
    r->input.fd = -1;
    TRY(input_open(&r->input, job->input, cfg->line_mb_max << 20, err));
    TRY(input_scan(&r->input, -1, &unused, err));
    r->queue.state.records_n = r->input.facts.records_n;
    r->queue.state.input_bytes = r->input.facts.bytes;
    *out = &r->queue;
    r = NULL;
out:
    if (r != NULL)
        read_close(&r->queue);
    return st;
}
