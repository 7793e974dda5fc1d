/* Dispatch by url, and the check that every implementation makes of what it is given. */
#include "queue/queue.h"

#include <string.h>

#include "queue/ops.h"

status queue_open(const struct config *cfg, const struct queue_job *job, struct queue **out, struct error *err)
{
    *out = NULL;
    if (job->url == NULL || strcmp(job->url, "file:") == 0)
        return file_queue_open(cfg, job, out, err);
    if (strcmp(job->url, "read:") == 0)
        return read_queue_open(cfg, job, out, err);
    if (strncmp(job->url, "mem:", 4) == 0)
        return mem_queue_open(cfg, job, out, err);
    if (strncmp(job->url, "kafka://", 8) == 0)
        return kafka_queue_open(cfg, job, out, err);
    return error_set(err, ST_REJECT, "no queue is called \"%s\"; kafka://HOST:PORT/NAME, file:, read: and mem:NAME are known", job->url);
}

const struct queue_state *queue_state(const struct queue *q)
{
    return &q->state;
}

status queue_poll(struct queue *q, int timeout_ms, struct record **out, struct error *err)
{
    *out = NULL;
    return q->ops->poll(q, timeout_ms, out, err);
}

bool queue_ended(const struct queue *q)
{
    return q->ops->ended(q);
}

void queue_record_settle(struct queue *q, struct record *r)
{
    q->ops->record_settle(q, r);
}

void queue_record_give(struct queue *q, struct record *r)
{
    if (r != NULL)
        q->ops->record_give(q, r);
}

void queue_pause(struct queue *q, int32_t source, bool paused)
{
    q->ops->pause(q, source, paused);
}

void queue_stop_taking(struct queue *q)
{
    q->ops->stop_taking(q);
}

/* A result must carry its own id as the first field of one clean line, because the id is what a restart finds it by:
 * {"id":"<id>", ... } without control characters. */
static void result_check(const struct queue *q, const struct result *r)
{
    static const char begin[] = "{\"id\":\"";
    const size_t begin_n = sizeof begin - 1;
    const char *p = r->value;
    unsigned control = 0;
    char id[64];
    size_t id_n;

    queue_result_id(q, r->record->source, r->record->offset, id);
    id_n = strlen(id);
    ASSERT(r->value_n >= begin_n + id_n + 2 && memcmp(p, begin, begin_n) == 0 && memcmp(p + begin_n, id, id_n) == 0);
    p += begin_n + id_n;
    ASSERT(p[0] == '"' && (p[1] == ',' || p[1] == '}') && r->value[r->value_n - 1] == '}');
    for (size_t i = 0; i < r->value_n; i++)
        control |= (unsigned char)r->value[i] < 0x20;
    ASSERT(control == 0);
}

status queue_commit(struct queue *q, const struct result *results, size_t n, bool *durable, struct error *err)
{
    if (n == 0)
        return ST_OK;
    for (size_t i = 0; i < n; i++) {
        result_check(q, &results[i]);
        durable[i] = false;
    }
    return q->ops->commit(q, results, n, durable, err);
}

void queue_result_id(const struct queue *q, int32_t source, int64_t offset, char out[64])
{
    q->ops->result_id(q, source, offset, out);
}

status queue_finish(struct queue *q, struct error *err)
{
    return q->ops->finish(q, err);
}

void queue_leave(struct queue *q, int64_t deadline_ns)
{
    if (q->ops->leave != NULL)
        q->ops->leave(q, deadline_ns);
}

void queue_read_counts(struct queue *q, struct queue_counts *out)
{
    memset(out, 0, sizeof *out);
    q->ops->read_counts(q, out);
}

void queue_close(struct queue *q)
{
    if (q != NULL)
        q->ops->close(q);
}
