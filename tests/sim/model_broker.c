/* Logs and transactions; the group is in model_group.c. */
#include "tests/sim/model_broker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/sim/model_group.h"

const char *broker_error_name(enum broker_error e)
{
    static const char *const names[BROKER_ERRORS_N] = {
        "OK", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", "REBALANCE_IN_PROGRESS",
        "OFFSET_METADATA_TOO_LARGE", "UNSTABLE_OFFSET_COMMIT", "GROUP_AUTHORIZATION_FAILED", "NOT_COORDINATOR",
        "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "CONCURRENT_TRANSACTIONS", "INVALID_PRODUCER_EPOCH",
        "PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING", "INVALID_TXN_STATE", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "NOT_ENOUGH_REPLICAS", "KAFKA_STORAGE_ERROR", "DUPLICATE_SEQUENCE_NUMBER", "MSG_SIZE_TOO_LARGE",
        "UNKNOWN_PRODUCER_ID", "TOPIC_AUTHORIZATION_FAILED", "OUT_OF_ORDER_SEQUENCE_NUMBER",
    };

    return names[e];
}

void broker_init(struct broker *b, struct dice *dice, int partitions_n)
{
    ASSERT(partitions_n > 0 && partitions_n <= BROKER_PARTITIONS_MAX);
    memset(b, 0, sizeof *b);
    b->dice = dice;
    b->partitions_n = partitions_n;
    b->session_ns = 15 * NS_PER_S;
    b->rebalance_ns = 120 * NS_PER_S;
    b->scan_ns = 10 * NS_PER_S;
    b->metadata_max = 4096;
    b->scanned_ns = clock_mono_ns();
    b->generation = 0;
}

static void record_free(struct broker_record *r)
{
    for (size_t i = 0; i < r->headers_n; i++) {
        free((char *)(uintptr_t)r->headers[i].name);
        free((char *)(uintptr_t)r->headers[i].value);
    }
    free(r->headers);
    free(r->key);
    free(r->value);
}

void broker_fini(struct broker *b)
{
    for (int t = 0; t < BROKER_TOPICS_N; t++)
        for (int p = 0; p < BROKER_PARTITIONS_MAX; p++) {
            struct broker_log *log = &b->log[t][p];

            for (size_t i = 0; i < log->n; i++)
                record_free(&log->record[i]);
            free(log->record);
        }
    group_fini(b);
    free(b->ids);
    free(b->decided);
    free(b->marker);
    free(b->late);
}

/* ---- logs ---- */

static char *copy(const void *bytes, size_t n)
{
    char *out;

    if (bytes == NULL)
        return NULL;
    out = mem_take(n + 1);
    memcpy(out, bytes, n);
    out[n] = '\0';
    return out;
}

static struct broker_record *log_add(struct broker *b, enum kafka_topic topic, int32_t partition, enum broker_fate fate, int txn)
{
    struct broker_log *log = &b->log[topic][partition];
    struct broker_record *r;

    if (log->n == log->room) {
        log->room = log->room > 0 ? log->room * 2 : 32;
        log->record = mem_grow(log->record, log->room * sizeof log->record[0]);
    }
    r = &log->record[log->n++];
    memset(r, 0, sizeof *r);
    r->offset = log->end++;
    r->timestamp_ms = clock_wall_ns() / NS_PER_MS;
    r->fate = fate;
    r->txn = txn;
    b->changes_n++;
    return r;
}

static void record_fill(struct broker_record *r, const struct broker_record *from)
{
    r->key = copy(from->key, from->key_n);
    r->key_n = from->key_n;
    r->value = copy(from->value, from->value_n);
    r->value_n = from->value_n;
    r->headers_n = from->headers_n;
    r->headers = mem_take_zero(from->headers_n + 1, sizeof r->headers[0]);
    for (size_t i = 0; i < from->headers_n; i++)
        r->headers[i] = (struct header){ copy(from->headers[i].name, strlen(from->headers[i].name)),
                                         copy(from->headers[i].value, from->headers[i].value_n), from->headers[i].value_n };
}

void broker_append(struct broker *b, enum kafka_topic topic, int32_t partition, const void *key, size_t key_n,
                   const void *value, size_t value_n)
{
    const struct broker_record from = { .key = (char *)(uintptr_t)key, .key_n = key_n,
                                        .value = (char *)(uintptr_t)value, .value_n = value_n };

    record_fill(log_add(b, topic, partition, BROKER_PLAIN, -1), &from);
}

void broker_store(struct broker *b, enum kafka_topic topic, int32_t partition, const struct broker_record *r)
{
    record_fill(log_add(b, topic, partition, BROKER_PLAIN, -1), r);
}

void broker_compact(struct broker *b, enum kafka_topic topic, int32_t partition, int64_t offset)
{
    struct broker_log *log = &b->log[topic][partition];

    for (size_t i = log->start_i; i < log->n; i++)
        if (log->record[i].offset == offset && (log->record[i].fate == BROKER_PLAIN || log->record[i].fate == BROKER_COMMITTED))
            log->record[i].fate = BROKER_CONTROL;
    b->changes_n++;
}

void broker_skip(struct broker *b, enum kafka_topic topic, int32_t partition, int64_t offsets_n)
{
    b->log[topic][partition].end += offsets_n;
}

int64_t broker_start(const struct broker *b, enum kafka_topic topic, int32_t partition)
{
    const struct broker_log *log = &b->log[topic][partition];

    return log->start_i > 0 ? (log->start_i < log->n ? log->record[log->start_i].offset : log->end) : 0;
}

void broker_delete(struct broker *b, enum kafka_topic topic, int32_t partition, int64_t below)
{
    struct broker_log *log = &b->log[topic][partition];
    int64_t stable = broker_stable(b, topic, partition);

    while (log->start_i < log->n && log->record[log->start_i].offset < below && log->record[log->start_i].offset < stable)
        log->start_i++;
    b->changes_n++;
}

int64_t broker_stable(struct broker *b, enum kafka_topic topic, int32_t partition)
{
    struct broker_log *log = &b->log[topic][partition];

    while (log->stable_i < log->n && log->record[log->stable_i].fate != BROKER_OPEN)
        log->stable_i++;
    return log->stable_i < log->n ? log->record[log->stable_i].offset : log->end;
}

const struct broker_record *broker_fetch(struct broker *b, enum kafka_topic topic, int32_t partition, int64_t from,
                                         bool committed)
{
    struct broker_log *log = &b->log[topic][partition];
    int64_t stable = broker_stable(b, topic, partition);
    size_t low = log->start_i, high = log->n;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (log->record[middle].offset < from)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t i = low; i < log->n; i++) {
        const struct broker_record *r = &log->record[i];

        if (committed && r->offset >= stable)
            return NULL;
        if (r->fate != BROKER_CONTROL && !(committed && r->fate == BROKER_ABORTED))
            return r;
    }
    return NULL;
}

enum broker_decision broker_decision(const struct broker *b, const struct broker_record *r)
{
    if (r->fate == BROKER_CONTROL)
        return BROKER_DECIDED_ABORT;
    return r->txn < 0 ? BROKER_DECIDED_COMMIT : b->decided[r->txn];
}

/* ---- transactions ---- */

static struct broker_txn *txn_of(struct broker *b, const char *id)
{
    for (size_t i = 0; i < b->ids_n; i++)
        if (strcmp(b->ids[i].id, id) == 0)
            return &b->ids[i];
    return NULL;
}

static bool preparing(const struct broker_txn *t)
{
    return t->state == TXN_PREPARE_COMMIT || t->state == TXN_PREPARE_ABORT;
}

static void marker_add(struct broker *b, struct broker_txn *t, int topic, int partition)
{
    int64_t delay = b->marker_delay_ns > 0 ? (int64_t)(dice_next(b->dice) % (uint64_t)b->marker_delay_ns) : 0;

    b->marker = mem_grow(b->marker, (b->markers_n + 1) * sizeof b->marker[0]);
    b->marker[b->markers_n++] = (struct broker_marker){ clock_mono_ns() + delay, (size_t)(t - b->ids), t->txn, topic, partition,
                                                        t->state == TXN_PREPARE_COMMIT };
    t->markers_n++;
}

/* The decision is durable with this; what readers see follows marker by marker. */
static void txn_prepare(struct broker *b, struct broker_txn *t, bool commit)
{
    t->state = commit ? TXN_PREPARE_COMMIT : TXN_PREPARE_ABORT;
    b->decided[t->txn] = commit ? BROKER_DECIDED_COMMIT : BROKER_DECIDED_ABORT;
    b->changes_n++;
    for (int topic = 0; topic < BROKER_TOPICS_N; topic++)
        for (int p = 0; p < b->partitions_n; p++)
            if (t->part[topic][p])
                marker_add(b, t, topic, p);
    if (t->group)
        marker_add(b, t, -1, 0);
    memset(t->part, 0, sizeof t->part);
    t->group = false;
    if (t->markers_n == 0)
        t->state = commit ? TXN_COMPLETE_COMMIT : TXN_COMPLETE_ABORT;
}

static void marker_write(struct broker *b, const struct broker_marker *m)
{
    struct broker_txn *t = &b->ids[m->id_i];

    if (m->topic < 0) {
        group_txn_end(b, m->txn, m->commit);
    } else {
        struct broker_log *log = &b->log[m->topic][m->partition];

        for (size_t i = log->stable_i; i < log->n; i++)
            if (log->record[i].txn == m->txn && log->record[i].fate == BROKER_OPEN)
                log->record[i].fate = m->commit ? BROKER_COMMITTED : BROKER_ABORTED;
        log_add(b, (enum kafka_topic)m->topic, m->partition, BROKER_CONTROL, -1);
    }
    b->changes_n++;
    if (--t->markers_n == 0)
        t->state = t->state == TXN_PREPARE_COMMIT ? TXN_COMPLETE_COMMIT : TXN_COMPLETE_ABORT;
}

static enum broker_error producer_check(struct broker *b, const char *id, struct broker_producer p, struct broker_txn **out)
{
    struct broker_txn *t = txn_of(b, id);

    *out = t;
    if (t == NULL || t->producer.id != p.id)
        return BROKER_INVALID_PRODUCER_ID_MAPPING;
    if (t->producer.epoch != p.epoch)
        return dice_one_in(b->dice, 2) ? BROKER_PRODUCER_FENCED : BROKER_INVALID_PRODUCER_EPOCH;
    return BROKER_OK;
}

enum broker_error broker_init_producer(struct broker *b, const char *id, int64_t timeout_ns, struct broker_producer *out)
{
    struct broker_txn *t = txn_of(b, id);

    if (t == NULL) {
        b->ids = mem_grow(b->ids, (b->ids_n + 1) * sizeof b->ids[0]);
        t = &b->ids[b->ids_n++];
        memset(t, 0, sizeof *t);
        ASSERT(strlen(id) < sizeof t->id);
        strcpy(t->id, id);
        t->producer = (struct broker_producer){ 1000 + b->producers_n++, -1 };
    }
    if (t->state == TXN_ONGOING) {
        t->producer.epoch++;
        txn_prepare(b, t, false);
    }
    if (preparing(t))
        return BROKER_CONCURRENT_TRANSACTIONS;
    t->state = TXN_EMPTY;
    t->producer.epoch++;
    t->timeout_ns = timeout_ns;
    *out = t->producer;
    return BROKER_OK;
}

static void txn_begin(struct broker *b, struct broker_txn *t)
{
    if (t->state == TXN_ONGOING)
        return;
    t->state = TXN_ONGOING;
    t->begun_ns = clock_mono_ns();
    t->txn = b->txns_n;
    b->decided = mem_grow(b->decided, (size_t)(b->txns_n + 1) * sizeof b->decided[0]);
    b->decided[b->txns_n++] = BROKER_UNDECIDED;
}

enum broker_error broker_add_partition(struct broker *b, const char *id, struct broker_producer p, enum kafka_topic topic,
                                       int32_t partition)
{
    struct broker_txn *t;
    enum broker_error e = producer_check(b, id, p, &t);

    if (e != BROKER_OK)
        return e;
    if (preparing(t))
        return BROKER_CONCURRENT_TRANSACTIONS;
    txn_begin(b, t);
    t->part[topic][partition] = true;
    return BROKER_OK;
}

enum broker_error broker_produce(struct broker *b, const char *id, struct broker_producer p, enum kafka_topic topic,
                                 int32_t partition, const struct broker_record *r)
{
    struct broker_txn *t;
    enum broker_error e = producer_check(b, id, p, &t);

    if (e != BROKER_OK)
        return BROKER_INVALID_PRODUCER_EPOCH;
    if (t->state != TXN_ONGOING || !t->part[topic][partition])
        return BROKER_INVALID_TXN_STATE;
    record_fill(log_add(b, topic, partition, BROKER_OPEN, t->txn), r);
    return BROKER_OK;
}

enum broker_error broker_add_offsets(struct broker *b, const char *id, struct broker_producer p)
{
    struct broker_txn *t;
    enum broker_error e = producer_check(b, id, p, &t);

    if (e != BROKER_OK)
        return e;
    if (preparing(t))
        return BROKER_CONCURRENT_TRANSACTIONS;
    txn_begin(b, t);
    t->group = true;
    return BROKER_OK;
}

enum broker_error broker_txn_offset_commit(struct broker *b, const char *id, struct broker_producer p, int32_t generation,
                                           const char *member, const struct kafka_place *places, size_t n)
{
    struct broker_txn *t;
    enum broker_error e = group_fence(b, generation, member);

    if (e != BROKER_OK)
        return e;
    e = producer_check(b, id, p, &t);
    if (e != BROKER_OK)
        return e == BROKER_PRODUCER_FENCED ? BROKER_INVALID_PRODUCER_EPOCH : e;
    if (t->state != TXN_ONGOING || !t->group)
        return BROKER_INVALID_PRODUCER_EPOCH;
    for (size_t i = 0; i < n; i++)
        if (places[i].metadata != NULL && strlen(places[i].metadata) > b->metadata_max)
            return BROKER_OFFSET_METADATA_TOO_LARGE;
    for (size_t i = 0; i < n; i++)
        group_offset_pend(b, t->txn, &places[i]);
    return BROKER_OK;
}

enum broker_error broker_offset_commit(struct broker *b, int32_t generation, const char *member,
                                       const struct kafka_place *places, size_t n)
{
    enum broker_error e = group_fence_plain(b, generation, member);

    if (e != BROKER_OK)
        return e;
    for (size_t i = 0; i < n; i++)
        if (places[i].metadata != NULL && strlen(places[i].metadata) > b->metadata_max)
            return BROKER_OFFSET_METADATA_TOO_LARGE;
    for (size_t i = 0; i < n; i++)
        group_offset_set(b, &places[i]);
    b->changes_n++;
    return BROKER_OK;
}

void broker_offset_alter(struct broker *b, const struct kafka_place *place)
{
    group_offset_set(b, place);
    b->changes_n++;
}

enum broker_error broker_end_txn(struct broker *b, const char *id, struct broker_producer p, bool commit)
{
    struct broker_txn *t;
    enum broker_error e = producer_check(b, id, p, &t);

    if (e != BROKER_OK)
        return e;
    switch (t->state) {
    case TXN_ONGOING:
        txn_prepare(b, t, commit);
        return BROKER_OK;
    case TXN_PREPARE_COMMIT: case TXN_PREPARE_ABORT:
        return (t->state == TXN_PREPARE_COMMIT) == commit ? BROKER_CONCURRENT_TRANSACTIONS : BROKER_INVALID_TXN_STATE;
    case TXN_COMPLETE_COMMIT: case TXN_COMPLETE_ABORT:
        return (t->state == TXN_COMPLETE_COMMIT) == commit ? BROKER_OK : BROKER_INVALID_TXN_STATE;
    default:
        return BROKER_INVALID_TXN_STATE;
    }
}

void broker_end_txn_late(struct broker *b, const char *id, struct broker_producer p, bool commit, int64_t due_ns)
{
    struct broker_late_end *l;

    b->late = mem_grow(b->late, (b->late_n + 1) * sizeof b->late[0]);
    l = &b->late[b->late_n++];
    *l = (struct broker_late_end){ .due_ns = due_ns, .producer = p, .commit = commit };
    ASSERT(strlen(id) < sizeof l->id);
    strcpy(l->id, id);
}

void broker_expire_ids(struct broker *b)
{
    for (size_t i = 0; i < b->ids_n; i++)
        if (b->ids[i].state != TXN_ONGOING && !preparing(&b->ids[i])) {
            b->ids[i].producer = (struct broker_producer){ 1000 + b->producers_n++, -1 };
            b->ids[i].state = TXN_EMPTY;
        }
}

/* ---- time ---- */

static void timeouts_scan(struct broker *b, int64_t now)
{
    if (now - b->scanned_ns < b->scan_ns)
        return;
    b->scanned_ns = now;
    for (size_t i = 0; i < b->ids_n; i++) {
        struct broker_txn *t = &b->ids[i];

        if (t->state != TXN_ONGOING || now - t->begun_ns < t->timeout_ns)
            continue;
        t->producer.epoch++;
        txn_prepare(b, t, false);
    }
}

void broker_tick(struct broker *b)
{
    int64_t now = clock_mono_ns();

    for (size_t i = 0; i < b->late_n;) {
        struct broker_late_end l = b->late[i];

        if (l.due_ns > now) {
            i++;
            continue;
        }
        b->late[i] = b->late[--b->late_n];
        (void)broker_end_txn(b, l.id, l.producer, l.commit);      /* nobody waits for the answer any more */
    }
    for (size_t i = 0; i < b->markers_n;) {
        struct broker_marker m = b->marker[i];

        if (m.due_ns > now) {
            i++;
            continue;
        }
        b->marker[i] = b->marker[--b->markers_n];
        marker_write(b, &m);
    }
    timeouts_scan(b, now);
    group_tick(b, now);
}
