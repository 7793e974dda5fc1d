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
#define OLD_STICKY 0x020601ff              /* facts 1.11: #4783, and commits while rebalancing up to 2.10 */
#define OLD_PLAIN_COMMIT 0x020a00ff

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

/* ---- the real client ---- */

static void rd_close(struct kafka_client *client)
{
    struct rd_client *c = (struct rd_client *)(void *)client;
    bool abandoned = c->abandoned;

    rd_producer_close(c);
    rd_consumer_close(c);
    if (abandoned)
        return;      /* a thread still hangs in the consumer and knows c */
    kafka_names_free(&c->names);
    free(c);
}

static const struct kafka_client_ops rd_client_ops = {
    .poll = rd_poll, .committed = rd_committed, .assign = rd_assign, .unassign = rd_unassign, .pause = rd_pause, .group = rd_group,
    .end = rd_end, .init = rd_init, .begin = rd_begin, .produce = rd_produce, .offsets = rd_offsets, .commit = rd_commit,
    .abort = rd_abort, .remake = rd_remake, .value_max = rd_value_max, .metadata_max = rd_metadata_max, .leave = rd_leave,
    .close = rd_close,
};

/* <group>.<slot>, or <group>.<random>: both are safe (delivery 8.1), the first one is quicker after a death. */
static void id_choose(struct rd_client *c)
{
    uint64_t seed[3] = { (uint64_t)clock_wall_ns(), (uint64_t)clock_mono_ns(), (uint64_t)(uintptr_t)c };
    FILE *f;

    if (c->cfg->kafka_slot[0] != '\0') {
        snprintf(c->id, sizeof c->id, "%.150s.%.150s", c->cfg->kafka_group, c->cfg->kafka_slot);
        return;
    }
    f = fopen("/dev/urandom", "rb");
    if (f == NULL || fread(&seed[2], sizeof seed[2], 1, f) != 1)
        log_debug("kafka.id", "what=\"no /dev/urandom\"");
    if (f != NULL)
        fclose(f);
    snprintf(c->id, sizeof c->id, "%.150s.%016" PRIx64, c->cfg->kafka_group, hash64(seed, sizeof seed, 0));
}

static void library_log(struct rd_client *c)
{
    int version = rd_kafka_version();

    log_info("kafka.library", "version=%s delivery=%s id=%s", rd_kafka_version_str(), c->cfg->kafka_delivery, c->id);
    if (!c->transactional && !c->eager && version < OLD_PLAIN_COMMIT) {
        c->eager = true;
        log_warn("kafka.library", "version=%s what=\"commits during a cooperative rebalance lose the assignment before 2.10: at least once "
                 "uses range assignment; every worker of the group must (kafka_eager)\"", rd_kafka_version_str());
    } else if (!c->eager && version < OLD_STICKY) {
        log_info("kafka.library", "version=%s what=\"cooperative-sticky before 2.6.1 may rebalance without end (kafka_eager=1 helps); 2.12 or "
                 "later is better\"", rd_kafka_version_str());
    }
}

static status client_open(const struct config *cfg, const char *url, struct rd_client **out, struct error *err)
{
    struct rd_client *c = mem_take_zero(1, sizeof *c);
    status st;

    c->client.ops = &rd_client_ops;
    c->cfg = cfg;
    c->transactional = strcmp(cfg->kafka_delivery, "at_least_once") != 0;
    c->eager = cfg->kafka_eager;
    c->results_max = c->dead_max = KAFKA_RECORD_BYTES_DEFAULT;
    id_choose(c);
    TRY(kafka_names_read(cfg, url, &c->names, err));
    library_log(c);
    TRY(rd_consumer_open(c, err));
    TRY(rd_group_check(c, err));
    TRY(rd_topics_check(c, clock_mono_ns() + OPEN_TIMEOUT_NS, err));
    rd_limits_read(c);
    TRY(rd_producer_open(c, err));
    *out = c;
    c = NULL;
out:
    if (c != NULL)
        rd_close(&c->client);
    return st;
}

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
    TRY(client_open(cfg, job->url, &c, err));
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
