#define _POSIX_C_SOURCE 200809L
#include "tools/nightshift/upload.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/log.h"

enum {
    BATCH_RECORDS_MAX = 1000, BATCH_BYTES_MAX = 4 << 20, BATCH_MS_MAX = 500,
    TRIES_MAX = 5                              /* in a row without a line more in the topic */
};

struct batch {                                 /* the open transaction */
    struct topic_writer *writer;
    int64_t *line;
    int64_t n, bytes, begun_ns;
};

struct sender {
    struct upload *u;
    struct batch batch;
    struct judgement judgement;
    struct live live;
    int64_t due_ns;                            /* when the next record may go, with a rate */
    int64_t sent_n;
};

/* ---- the file ---- */

void upload_measure(struct upload *u, const struct record *rec)
{
    int64_t line = rec->offset + 1;

    if (line > u->lines_n) {
        if (line >= u->hash_room) {
            u->hash_room = line * 2 + 1024;
            u->hash = mem_grow(u->hash, (size_t)u->hash_room * sizeof *u->hash);
        }
        memset(u->hash + u->lines_n + 1, 0, (size_t)(line - u->lines_n) * sizeof *u->hash);
        u->lines_n = line;
    }
    u->hash[line] = hash64(rec->value, rec->value_n, 0) | 1;
    u->records_n++;
}

void upload_fini(struct upload *u)
{
    free(u->hash);
    free(u->there);
    free(u->from);
}

static bool is_there(const struct upload *u, int64_t line)
{
    return u->there[line / 64] >> (line % 64) & 1;
}

static void there_mark(struct upload *u, int64_t line)
{
    u->there[line / 64] |= UINT64_C(1) << (line % 64);
    u->there_n++;
}

/* ---- reading back ---- */

/* A record of this job: of this file, too? */
static status record_check(struct upload *u, const struct record *r, struct error *err)
{
    int64_t line = job_line_of(r);

    if (topic_header(r, HEADER_RETRY) != NULL || r->value == NULL)
        return ST_OK;
    if (line < 1 || line > u->lines_n || topic_header_int(r, HEADER_LINES) != u->records_n || u->hash[line] == 0 ||
        u->hash[line] != (hash64(r->value, r->value_n, 0) | 1))
        return error_set(err, ST_REJECT, "the topic \"%s\" holds a job \"%s\" of another file (its line %" PRId64 " differs); give this one "
                         "an id of its own with --job", topics_name(u->topics, TOPIC_PROMPTS), u->job, line);
    if (is_there(u, line))
        u->doubled_n++;
    else
        there_mark(u, line);
    return ST_OK;
}

static status read_back(struct upload *u, struct error *err)
{
    const struct record *r;
    struct topic_scan *s;
    struct live live;
    int64_t seen_n = 0;
    status st;

    live_init(&live);
    TRY(topic_scan_open(u->topics, TOPIC_PROMPTS, u->from, false, &s, err));
    while (!topic_scan_ended(s)) {
        st = topic_scan_next(s, 200, &r, err);
        if (st == ST_OK) {
            seen_n++;
            if (topic_header_is(r, HEADER_JOB, u->job))
                st = record_check(u, r, err);
        }
        if (st != ST_OK && st != ST_AGAIN)
            break;
        st = ST_OK;
        if (!u->quiet && live_due(&live))
            live_show(&live, "reading back what the topic holds: %" PRId64 " records, %" PRId64 " of this job", seen_n, u->there_n);
    }
    live_end(&live);
    if (st == ST_OK) {
        free(u->from);
        u->from = mem_take_zero((size_t)topic_scan_partitions(s), sizeof *u->from);
        for (int32_t p = 0; p < topic_scan_partitions(s); p++)
            u->from[p] = topic_scan_range(s, p).high;
        u->before_n = u->rounds_n++ == 0 ? u->there_n : u->before_n;
    }
    topic_scan_close(s);
out:
    return st;
}

/* ---- sending ---- */

static status batch_commit(struct sender *s, struct error *err)
{
    struct batch *b = &s->batch;
    status st;

    if (b->n == 0)
        return ST_OK;
    failpoint("submit.commit.before");
    st = topic_writer_commit(b->writer, err);
    failpoint("submit.commit.after");
    if (st != ST_OK)
        return st;
    for (int64_t i = 0; i < b->n; i++)
        there_mark(s->u, b->line[i]);
    s->sent_n += b->n;
    b->n = b->bytes = 0;
    return ST_OK;
}

static void progress(struct sender *s)
{
    double seconds = (double)(clock_mono_ns() - s->live.started_ns) / 1e9;
    char left[32];

    if (s->u->quiet || !live_due(&s->live))
        return;
    duration_text(s->sent_n > 0 ? (double)(s->u->records_n - s->u->there_n) * seconds / (double)s->sent_n : -1, left);
    live_show(&s->live, "%" PRId64 " of %" PRId64 " lines are in the topic, %.0f lines/s, %s left", s->u->there_n, s->u->records_n,
              (double)s->sent_n / seconds, left);
}

/* Until the next record may go. What waits in the transaction does not wait for it. */
static status rate_wait(struct sender *s, struct error *err)
{
    int64_t now_ns, wait_ns;
    status st;

    if (s->u->rate <= 0)
        return ST_OK;
    s->due_ns = s->due_ns == 0 ? clock_mono_ns() : s->due_ns + (int64_t)(1e9 / s->u->rate);
    while ((now_ns = clock_mono_ns()) < s->due_ns && !s->u->stopped()) {
        if (s->batch.n > 0 && now_ns - s->batch.begun_ns > BATCH_MS_MAX * NS_PER_MS && (st = batch_commit(s, err)) != ST_OK)
            return st;
        wait_ns = s->due_ns - now_ns < 50 * NS_PER_MS ? s->due_ns - now_ns : 50 * NS_PER_MS;
        nanosleep(&(struct timespec){ .tv_nsec = wait_ns }, NULL);
        progress(s);
    }
    return ST_OK;
}

static status record_add(struct sender *s, const struct record *line, struct error *err)
{
    struct upload *u = s->u;
    char number[24], total[24];
    struct header headers[3] = { { HEADER_JOB, u->job, strlen(u->job) }, { HEADER_LINE, number, 0 }, { HEADER_LINES, total, 0 } };
    struct record r = { .value = line->value, .value_n = line->value_n, .headers = headers, .headers_n = 3 };
    struct batch *b = &s->batch;

    headers[1].value_n = (size_t)snprintf(number, sizeof number, "%" PRId64, line->offset + 1);
    headers[2].value_n = (size_t)snprintf(total, sizeof total, "%" PRId64, u->records_n);
    judge_key(u->judge, line, &s->judgement);
    if (s->judgement.has_key) {
        r.key = s->judgement.key.n > 0 ? s->judgement.key.data : "";
        r.key_n = s->judgement.key.n;
    }
    if (b->n == 0) {
        status st = topic_writer_begin(b->writer, err);

        if (st != ST_OK)
            return st;
        b->begun_ns = clock_mono_ns();
    }
    b->line[b->n++] = line->offset + 1;
    b->bytes += (int64_t)(r.value_n + r.key_n);
    failpoint("submit.add");
    return topic_writer_add(b->writer, TOPIC_PROMPTS, TOPIC_ANY_PARTITION, &r, err);
}

static bool batch_is_full(const struct batch *b)
{
    return b->n == BATCH_RECORDS_MAX || b->bytes >= BATCH_BYTES_MAX ||
           (b->n > 0 && clock_mono_ns() - b->begun_ns > BATCH_MS_MAX * NS_PER_MS);
}

/* The line must still be what it was when it was measured. */
static status line_send(struct sender *s, const struct record *line, struct error *err)
{
    struct upload *u = s->u;
    int64_t number = line->offset + 1;
    status st;

    if (number > u->lines_n || u->hash[number] != (hash64(line->value, line->value_n, 0) | 1))
        return error_set(err, ST_REJECT, "%s has changed while it was read (line %" PRId64 ")", u->input, number);
    if (is_there(u, number))
        return ST_OK;
    TRY(rate_wait(s, err));
    if (u->stopped())
        return ST_OK;
    TRY(record_add(s, line, err));
    if (batch_is_full(&s->batch))
        TRY(batch_commit(s, err));
    progress(s);
out:
    return st;
}

static status lines_send(struct sender *s, struct error *err)
{
    struct queue_job job = { .url = "read:", .input = s->u->input };
    struct queue *q;
    status st;

    TRY(queue_open(s->u->cfg, &job, &q, err));
    while (st == ST_OK && !queue_ended(q) && !s->u->stopped()) {
        struct record *line = NULL;

        st = queue_poll(q, 0, &line, err);
        if (st == ST_OK) {
            st = line_send(s, line, err);
            queue_record_give(q, line);
        } else if (st == ST_AGAIN) {
            st = ST_OK;
        }
    }
    queue_close(q);
    if (st == ST_OK)
        st = batch_commit(s, err);
out:
    return st;
}

/* One life of a writer. */
static status round_run(struct sender *s, struct error *err)
{
    char id[JOB_ID_MAX + 300];
    status st;

    snprintf(id, sizeof id, "nightshift-submit.%s.%s", topics_name(s->u->topics, TOPIC_PROMPTS), s->u->job);
    s->batch.n = s->batch.bytes = 0;
    TRY(topic_writer_open(s->u->topics, id, &s->batch.writer, err));
    TRY(read_back(s->u, err));
    if (s->u->there_n < s->u->records_n)
        TRY(lines_send(s, err));
out:
    topic_writer_close(s->batch.writer);
    s->batch.writer = NULL;
    return st;
}

status upload_run(struct upload *u, struct error *err)
{
    struct sender s = { .u = u };
    int64_t best_n = -1;
    status st;
    int tries = 0;

    u->there = mem_take_zero((size_t)u->lines_n / 64 + 1, sizeof *u->there);
    s.batch.line = mem_take(BATCH_RECORDS_MAX * sizeof *s.batch.line);
    live_init(&s.live);
    while ((st = round_run(&s, err)) == ST_RETRY && !u->stopped()) {
        tries = u->there_n > best_n ? 0 : tries + 1;
        best_n = u->there_n;
        if (tries == TRIES_MAX)
            break;
        log_warn("submit.again", "lines_n=%" PRId64 " try=%d why=\"%s\"", u->there_n, tries, err->text);
        nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
    }
    live_end(&s.live);
    judgement_fini(&s.judgement);
    free(s.batch.line);
    return st == ST_OK && u->there_n < u->records_n ? ST_AGAIN : st;
}
