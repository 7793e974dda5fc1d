/* kafka:// behind queue.h: the waiting around the core's steps, on the real client. Topics never end, so a job of this queue has no
 * sidecar and no finish: the group's commits are its state. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "queue/kafka/core.h"
#include "queue/kafka/rdkafka_internal.h"
#include "queue/ops.h"

#define OPEN_TIMEOUT_NS (30 * NS_PER_S)
#define BUSY_PAUSE_NS (2 * NS_PER_MS)      /* an event waits for its answer */
#define UPKEEP_EVERY_NS (10 * NS_PER_S)

struct kafka_queue {
    struct queue queue;
    struct kafka_client *client;
    struct kafka_core *core;
    atomic_flag committer;                 /* taken: somebody steps the committer; by right the commit side, once a day upkeep */
    int64_t upkeep_ns;                     /* when idle partitions are looked at next; poll side */
};

static struct kafka_queue *self(const struct queue *q)
{
    return (struct kafka_queue *)(uintptr_t)q;
}

static void sleep_ns(int64_t ns)
{
    const struct timespec t = { ns / NS_PER_S, ns % NS_PER_S };

    if (ns > 0)
        nanosleep(&t, NULL);
}

/* ---- the commit side ---- */

static status group_run(struct kafka_queue *k, const struct result *results, size_t n, bool *durable, struct error *err)
{
    int64_t not_before;

    kafka_commit_begin(k->core, results, n, durable);
    while (kafka_commit_step(k->core, &not_before))
        if (not_before != 0)
            sleep_ns(not_before - clock_mono_ns());
    return kafka_commit_end(k->core, err);
}

static status kafka_commit(struct queue *q, const struct result *results, size_t n, bool *durable, struct error *err)
{
    struct kafka_queue *k = self(q);
    status st;

    while (atomic_flag_test_and_set(&k->committer))
        sleep_ns(BUSY_PAUSE_NS);
    st = group_run(k, results, n, durable, err);
    atomic_flag_clear(&k->committer);
    return st;
}

/* Brokers forget the commits of a group after a week: an idle partition's is renewed (by the poll side, because nobody commits
 * where nothing is done). */
static void upkeep(struct kafka_queue *k, int64_t now)
{
    struct error err;
    status st;

    if (now < k->upkeep_ns)
        return;
    k->upkeep_ns = now + UPKEEP_EVERY_NS;
    if (!kafka_commit_upkeep_due(k->core) || atomic_flag_test_and_set(&k->committer))
        return;
    st = group_run(k, NULL, 0, NULL, &err);
    atomic_flag_clear(&k->committer);
    if (st != ST_OK)
        log_warn("kafka.upkeep", "status=%s what=\"%s\"", status_name(st), err.text);
}

/* ---- the poll side ---- */

static status kafka_poll(struct queue *q, int timeout_ms, struct record **out, struct error *err)
{
    struct kafka_queue *k = self(q);
    int64_t now = clock_mono_ns(), deadline = now + timeout_ms * NS_PER_MS;
    bool busy;

    upkeep(k, now);
    do {
        int left_ms = now < deadline ? (int)((deadline - now + NS_PER_MS - 1) / NS_PER_MS) : 0;
        status st = kafka_core_poll(k->core, left_ms, out, &busy, err);

        if (st != ST_AGAIN)
            return st;
        if (busy)
            sleep_ns(BUSY_PAUSE_NS);
        now = clock_mono_ns();
    } while (now < deadline);
    return ST_AGAIN;
}

static bool kafka_ended(const struct queue *q)
{
    return kafka_core_stopped(self(q)->core);
}

static void kafka_record_settle(struct queue *q, struct record *r)
{
    (void)q;
    (void)r;      /* a dead letter carries the original */
}

static void kafka_record_give(struct queue *q, struct record *r)
{
    (void)q;
    kafka_record_free(r);
}

static void kafka_pause(struct queue *q, int32_t source, bool paused)
{
    kafka_core_pause(self(q)->core, source, paused);
}

static void kafka_stop_taking(struct queue *q)
{
    kafka_core_stop(self(q)->core);
}

static void kafka_result_id(const struct queue *q, int32_t source, int64_t offset, char out[64])
{
    snprintf(out, 64, "batch_req_%s_%" PRId32 "_%" PRId64, q->state.job, source, offset);
}

static status kafka_finish(struct queue *q, struct error *err)
{
    (void)q;
    (void)err;
    return ST_OK;
}

static void kafka_leave(struct queue *q, int64_t deadline_ns)
{
    struct kafka_queue *k = self(q);

    k->client->ops->leave(k->client, deadline_ns);
}

static void kafka_read_counts(struct queue *q, struct queue_counts *out)
{
    kafka_core_counts(self(q)->core, out);
}

static void kafka_close(struct queue *q)
{
    struct kafka_queue *k = self(q);

    kafka_core_close(k->core);
    if (k->client != NULL)
        k->client->ops->close(k->client);
    free(k);
}

static const struct queue_ops kafka_ops = {
    .poll = kafka_poll, .ended = kafka_ended, .record_settle = kafka_record_settle, .record_give = kafka_record_give,
    .pause = kafka_pause, .stop_taking = kafka_stop_taking, .commit = kafka_commit, .result_id = kafka_result_id,
    .finish = kafka_finish, .leave = kafka_leave, .read_counts = kafka_read_counts, .close = kafka_close,
};

/* 16 hex digits of group and topic: part of every id, the same in every worker of the group. */
static void job_name(const struct config *cfg, const char *topic, char out[17])
{
    uint64_t h = hash64(cfg->kafka_group, strlen(cfg->kafka_group), 0);

    snprintf(out, 17, "%016" PRIx64, hash64(topic, strlen(topic), h));
}

status kafka_queue_open(const struct config *cfg, const struct queue_job *job, struct queue **out, struct error *err)
{
    struct kafka_queue *k = mem_take_zero(1, sizeof *k);
    struct rd_client *c = NULL;
    struct kafka_core_options o = { .cfg = cfg, .events = job->events };
    status st;

    k->queue.ops = &kafka_ops;
    k->queue.state.records_n = -1;
    atomic_flag_clear(&k->committer);
    TRY(rd_client_open(cfg, job->url, clock_mono_ns() + OPEN_TIMEOUT_NS, &c, err));
    k->client = o.client = &c->client;
    o.topic = c->names.topic[TOPIC_PROMPTS];
    job_name(cfg, o.topic, k->queue.state.job);
    TRY(kafka_core_open(&o, &k->core, err));
    if (c->transactional)
        TRY(kafka_core_probe(k->core, clock_mono_ns() + OPEN_TIMEOUT_NS, err));
    *out = &k->queue;
    k = NULL;
out:
    if (k != NULL)
        kafka_close(&k->queue);
    return st;
}
