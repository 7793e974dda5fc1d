/* Poll side, commit side and a reader of counts at the same time over one core, with partitions that come and go: for the thread
 * sanitizer, and for the promise. The client is a small honest broker behind one lock; time is the machine's. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "base/bqueue.h"
#include "base/log.h"
#include "queue/kafka/internal.h"

#define PARTITIONS 5
#define RECORDS 3000                       /* of each partition */

struct broker {
    struct kafka_client client;
    pthread_mutex_t lock;
    bool assigned[PARTITIONS], paused[PARTITIONS];
    int64_t next[PARTITIONS];              /* to be fetched */
    struct { int64_t offset; char metadata[4200]; } committed[PARTITIONS], sent[PARTITIONS];
    unsigned char answers[PARTITIONS][RECORDS];
    struct { int32_t partition; int64_t offset; } produced[4096];
    int produced_n;
    int32_t generation;
    uint64_t dice;
    int32_t going[PARTITIONS];
    int polls_n;
    atomic_bool over;
};

static struct broker b;

static unsigned roll(unsigned n)
{
    b.dice = b.dice * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(b.dice >> 33) % n;
}

/* Now and then some partitions are taken, and come back at the next poll. */
static bool rebalance_give(struct kafka_event *out)
{
    size_t n = 0;

    if (b.polls_n % 400 == 399)
        for (int32_t p = 0; p < PARTITIONS; p++)
            if (b.assigned[p] && roll(2))
                b.going[n++] = p;
    if (n > 0) {
        *out = (struct kafka_event){ .kind = roll(4) ? KAFKA_REVOKED : KAFKA_LOST, .partitions = b.going, .partitions_n = n };
        return true;
    }
    if (b.polls_n % 50 == 0)
        for (int32_t p = 0; p < PARTITIONS; p++)
            if (!b.assigned[p])
                b.going[n++] = p;
    if (n > 0)
        *out = (struct kafka_event){ .kind = KAFKA_ASSIGNED, .partitions = b.going, .partitions_n = n };
    return n > 0;
}

static void b_poll(struct kafka_client *c, int timeout_ms, struct kafka_event *out)
{
    (void)c, (void)timeout_ms;
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&b.lock);
    b.polls_n++;
    if (!rebalance_give(out))
        for (int i = 0; i < PARTITIONS && out->kind == KAFKA_NOTHING; i++) {
            int32_t p = (b.polls_n + i) % PARTITIONS;

            if (!b.assigned[p] || b.paused[p] || b.next[p] >= RECORDS)
                continue;
            out->kind = KAFKA_MESSAGE;
            out->message = (struct kafka_message){ .partition = p, .offset = b.next[p]++, .timestamp_ms = 5, .value = "v", .value_n = 1 };
        }
    pthread_mutex_unlock(&b.lock);
}

static enum kafka_answer b_committed(struct kafka_client *c, struct kafka_place *places, size_t n, int timeout_ms, struct error *err)
{
    static _Thread_local char text[PARTITIONS][4200];
    enum kafka_answer answer = KAFKA_OK;

    (void)c, (void)timeout_ms;
    pthread_mutex_lock(&b.lock);
    for (size_t i = 0; i < n; i++) {
        int32_t p = places[i].partition;

        if (b.sent[p].offset >= 0)      /* unstable: a transaction holds it */
            answer = KAFKA_UNKNOWN;
        strcpy(text[p], b.committed[p].metadata);
        places[i].offset = b.committed[p].offset;
        places[i].metadata = text[p];
    }
    pthread_mutex_unlock(&b.lock);
    error_set(err, ST_RETRY, "unstable");
    return answer;
}

static void b_assign(struct kafka_client *c, const struct kafka_place *places, size_t n)
{
    (void)c;
    pthread_mutex_lock(&b.lock);
    for (size_t i = 0; i < n; i++) {
        b.assigned[places[i].partition] = true;
        b.paused[places[i].partition] = false;
        b.next[places[i].partition] = places[i].offset < 0 ? 0 : places[i].offset;
    }
    b.generation++;
    pthread_mutex_unlock(&b.lock);
}

static void b_unassign(struct kafka_client *c, const int32_t *partitions, size_t n)
{
    (void)c;
    pthread_mutex_lock(&b.lock);
    for (size_t i = 0; i < n; i++)
        b.assigned[partitions[i]] = false;      /* the generation ends when they are given to somebody */
    pthread_mutex_unlock(&b.lock);
}

static void b_pause(struct kafka_client *c, int32_t partition, bool paused)
{
    (void)c;
    pthread_mutex_lock(&b.lock);
    ASSERT(b.assigned[partition] && b.paused[partition] != paused);
    b.paused[partition] = paused;
    pthread_mutex_unlock(&b.lock);
}

static void b_group(struct kafka_client *c, struct kafka_group *out)
{
    (void)c;
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&b.lock);
    out->generation = b.generation;
    strcpy(out->member, "m");
    pthread_mutex_unlock(&b.lock);
}

static int64_t b_end(struct kafka_client *c, int32_t partition)
{
    (void)c, (void)partition;
    return RECORDS;
}

static enum kafka_answer b_ok(struct kafka_client *c, struct error *err)
{
    (void)c, (void)err;
    return KAFKA_OK;
}

static enum kafka_answer b_produce(struct kafka_client *c, enum kafka_topic topic, const void *key, size_t key_n, const void *value,
                                   size_t value_n, const struct header *headers, size_t headers_n, struct error *err)
{
    (void)c, (void)topic, (void)key, (void)key_n, (void)value, (void)value_n, (void)err;
    pthread_mutex_lock(&b.lock);
    ASSERT(headers_n == 2 && b.produced_n < 4096);
    ASSERT(sscanf(headers[0].value, "t/%" SCNd32 "/%" SCNd64, &b.produced[b.produced_n].partition, &b.produced[b.produced_n].offset) == 2);
    b.produced_n++;
    pthread_mutex_unlock(&b.lock);
    return KAFKA_OK;
}

static enum kafka_answer b_offsets(struct kafka_client *c, const struct kafka_place *places, size_t n, const struct kafka_group *as,
                                   struct error *err)
{
    enum kafka_answer answer = KAFKA_OK;

    (void)c;
    pthread_mutex_lock(&b.lock);
    if (as->generation != b.generation)
        answer = KAFKA_FENCED_OFFSETS;
    for (size_t i = 0; i < n && answer == KAFKA_OK; i++) {
        b.sent[places[i].partition].offset = places[i].offset;
        strcpy(b.sent[places[i].partition].metadata, places[i].metadata);
    }
    pthread_mutex_unlock(&b.lock);
    error_set(err, ST_RETRY, "another generation");
    return answer;
}

static void txn_end(bool committed)
{
    pthread_mutex_lock(&b.lock);
    for (int i = 0; i < b.produced_n && committed; i++)
        b.answers[b.produced[i].partition][b.produced[i].offset]++;
    b.produced_n = 0;
    for (int p = 0; p < PARTITIONS; p++) {
        if (b.sent[p].offset >= 0 && committed)
            b.committed[p] = b.sent[p];
        b.sent[p].offset = -1;
    }
    pthread_mutex_unlock(&b.lock);
}

/* Ends nobody knows how, now and then, and then it has or has not taken effect. */
static enum kafka_answer b_commit(struct kafka_client *c, struct error *err)
{
    unsigned fate;

    (void)c;
    pthread_mutex_lock(&b.lock);
    fate = roll(20);
    pthread_mutex_unlock(&b.lock);
    error_set(err, ST_RETRY, "nobody knows");
    txn_end(fate != 0);
    return fate <= 1 ? KAFKA_UNKNOWN : KAFKA_OK;
}

static enum kafka_answer b_abort(struct kafka_client *c, struct error *err)
{
    (void)c, (void)err;
    txn_end(false);
    return KAFKA_OK;
}

static int64_t b_value_max(struct kafka_client *c, enum kafka_topic topic)
{
    (void)c, (void)topic;
    return 1000000;
}

static const struct kafka_client_ops ops = {
    .poll = b_poll, .committed = b_committed, .assign = b_assign, .unassign = b_unassign, .pause = b_pause, .group = b_group,
    .end = b_end, .init = b_ok, .begin = b_ok, .produce = b_produce, .offsets = b_offsets, .commit = b_commit, .abort = b_abort,
    .remake = b_abort, .value_max = b_value_max,
};

static struct kafka_core *core;
static struct bqueue *records;

static void *commit_run(void *ctx)
{
    void *got[64];
    size_t n;

    (void)ctx;
    while ((n = bqueue_pop(records, got, 64, 20)) > 0 || !bqueue_ended(records)) {
        struct result results[64];
        bool durable[64] = { false };
        status st = n > 0 ? ST_RETRY : ST_OK;
        struct error err;

        for (size_t i = 0; i < n; i++)
            results[i] = (struct result){ .record = got[i], .kind = RESULT_OUTPUT, .value = "{}", .value_n = 2 };
        while (st == ST_RETRY) {
            int64_t not_before;

            memset(durable, 0, sizeof durable);
            kafka_commit_begin(core, results, n, durable);
            while (kafka_commit_step(core, &not_before))
                ;
            st = kafka_commit_end(core, &err);
        }
        assert_int_equal(st, ST_OK);
        for (size_t i = 0; i < n; i++)
            kafka_record_free(got[i]);
    }
    return NULL;
}

static void *counts_run(void *ctx)
{
    const struct timespec pause = { 0, 1000000 };
    struct queue_counts counts;

    while (!atomic_load(&b.over)) {
        kafka_core_counts(core, &counts);
        kafka_commit_upkeep_due(core);
        nanosleep(&pause, NULL);
    }
    return ctx;
}

static bool all_answered(void)
{
    bool all = true;

    pthread_mutex_lock(&b.lock);
    for (int p = 0; p < PARTITIONS; p++)
        all &= b.committed[p].offset == RECORDS;
    pthread_mutex_unlock(&b.lock);
    return all;
}

static void three_threads(void **state)
{
    struct config cfg;
    const struct kafka_core_options o = { &b.client, &cfg, "t", NULL };
    pthread_t commit, counts;
    struct error err;

    (void)state;
    config_defaults(&cfg);
    cfg.plan_window_max = 200;
    cfg.kafka_remakes_max = 1000;
    b.client.ops = &ops;
    b.dice = 11;
    pthread_mutex_init(&b.lock, NULL);
    for (int p = 0; p < PARTITIONS; p++)
        b.committed[p].offset = b.sent[p].offset = -1;
    assert_int_equal(kafka_core_open(&o, &core, &err), ST_OK);
    records = bqueue_open(10000);
    pthread_create(&commit, NULL, commit_run, NULL);
    pthread_create(&counts, NULL, counts_run, NULL);
    for (int idle_n = 0; !all_answered();) {
        struct record *r;
        bool busy;
        status st = kafka_core_poll(core, 0, &r, &busy, &err);

        if (st == ST_OK)
            assert_int_equal(bqueue_push(records, r), ST_OK);
        else if (++idle_n % 100 == 0)
            nanosleep(&(struct timespec){ 0, 200000 }, NULL);
    }
    atomic_store(&b.over, true);
    bqueue_close(records);
    pthread_join(commit, NULL);
    pthread_join(counts, NULL);
    bqueue_free(records);
    for (int p = 0; p < PARTITIONS; p++)
        for (int i = 0; i < RECORDS; i++)
            assert_int_equal(b.answers[p][i], 1);
    kafka_core_close(core);
    pthread_mutex_destroy(&b.lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(three_threads) };

    log_level_set(LOG_NONE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
