/* The producer's half and what both halves share; the consumer's half is in model_consumer.c. */
#include "tests/sim/model_client.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/sim/model_consumer.h"

#define RETRY_NS (100 * NS_PER_MS)
#define RETRIES_MAX 40

enum effect { EFFECT_FATAL, EFFECT_HIDDEN, EFFECT_ABORT, EFFECT_FENCED, EFFECT_REFUSED };

/* Facts table 1.6. What is not here is fatal ("anything else: treat as fatal"). */
static const struct row { enum model_request request; enum broker_error error; enum effect effect; } rows[] = {
    { MODEL_INIT, BROKER_NOT_COORDINATOR, EFFECT_HIDDEN },
    { MODEL_INIT, BROKER_COORDINATOR_LOAD_IN_PROGRESS, EFFECT_HIDDEN },
    { MODEL_INIT, BROKER_CONCURRENT_TRANSACTIONS, EFFECT_HIDDEN },
    { MODEL_INIT, BROKER_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, EFFECT_REFUSED },
    { MODEL_ADD_PARTITION, BROKER_NOT_COORDINATOR, EFFECT_HIDDEN },
    { MODEL_ADD_PARTITION, BROKER_CONCURRENT_TRANSACTIONS, EFFECT_HIDDEN },
    { MODEL_ADD_PARTITION, BROKER_TOPIC_AUTHORIZATION_FAILED, EFFECT_REFUSED },
    { MODEL_ADD_PARTITION, BROKER_INVALID_PRODUCER_ID_MAPPING, EFFECT_ABORT },
    { MODEL_ADD_PARTITION, BROKER_INVALID_PRODUCER_EPOCH, EFFECT_FATAL },
    { MODEL_PRODUCE, BROKER_NOT_ENOUGH_REPLICAS, EFFECT_HIDDEN },
    { MODEL_PRODUCE, BROKER_STORAGE_ERROR, EFFECT_HIDDEN },
    { MODEL_PRODUCE, BROKER_DUPLICATE_SEQUENCE_NUMBER, EFFECT_HIDDEN },
    { MODEL_PRODUCE, BROKER_MSG_SIZE_TOO_LARGE, EFFECT_ABORT },
    { MODEL_PRODUCE, BROKER_UNKNOWN_PRODUCER_ID, EFFECT_ABORT },
    { MODEL_PRODUCE, BROKER_INVALID_TXN_STATE, EFFECT_ABORT },
    { MODEL_PRODUCE, BROKER_TOPIC_AUTHORIZATION_FAILED, EFFECT_REFUSED },
    { MODEL_PRODUCE, BROKER_OUT_OF_ORDER_SEQUENCE_NUMBER, EFFECT_FATAL },
    { MODEL_PRODUCE, BROKER_INVALID_PRODUCER_EPOCH, EFFECT_FATAL },
    { MODEL_ADD_OFFSETS, BROKER_CONCURRENT_TRANSACTIONS, EFFECT_HIDDEN },
    { MODEL_ADD_OFFSETS, BROKER_INVALID_PRODUCER_ID_MAPPING, EFFECT_ABORT },
    { MODEL_ADD_OFFSETS, BROKER_INVALID_PRODUCER_EPOCH, EFFECT_FATAL },
    { MODEL_OFFSET_COMMIT, BROKER_ILLEGAL_GENERATION, EFFECT_FENCED },
    { MODEL_OFFSET_COMMIT, BROKER_UNKNOWN_MEMBER_ID, EFFECT_FENCED },
    { MODEL_OFFSET_COMMIT, BROKER_FENCED_INSTANCE_ID, EFFECT_FENCED },
    { MODEL_OFFSET_COMMIT, BROKER_REBALANCE_IN_PROGRESS, EFFECT_FENCED },
    { MODEL_OFFSET_COMMIT, BROKER_OFFSET_METADATA_TOO_LARGE, EFFECT_REFUSED },
    { MODEL_OFFSET_COMMIT, BROKER_GROUP_AUTHORIZATION_FAILED, EFFECT_REFUSED },
    { MODEL_OFFSET_COMMIT, BROKER_NOT_COORDINATOR, EFFECT_HIDDEN },
    { MODEL_OFFSET_COMMIT, BROKER_COORDINATOR_LOAD_IN_PROGRESS, EFFECT_HIDDEN },
    { MODEL_OFFSET_COMMIT, BROKER_INVALID_PRODUCER_EPOCH, EFFECT_FATAL },
    { MODEL_OFFSET_COMMIT, BROKER_INVALID_PRODUCER_ID_MAPPING, EFFECT_FATAL },
    { MODEL_END_COMMIT, BROKER_CONCURRENT_TRANSACTIONS, EFFECT_HIDDEN },
    { MODEL_END_COMMIT, BROKER_COORDINATOR_NOT_AVAILABLE, EFFECT_HIDDEN },
    { MODEL_END_COMMIT, BROKER_INVALID_PRODUCER_ID_MAPPING, EFFECT_ABORT },
    { MODEL_END_COMMIT, BROKER_INVALID_TXN_STATE, EFFECT_FATAL },
    { MODEL_END_COMMIT, BROKER_INVALID_PRODUCER_EPOCH, EFFECT_FATAL },
    { MODEL_END_COMMIT, BROKER_PRODUCER_FENCED, EFFECT_FATAL },
    { MODEL_END_ABORT, BROKER_CONCURRENT_TRANSACTIONS, EFFECT_HIDDEN },
    { MODEL_END_ABORT, BROKER_COORDINATOR_NOT_AVAILABLE, EFFECT_HIDDEN },
    { MODEL_END_ABORT, BROKER_INVALID_PRODUCER_ID_MAPPING, EFFECT_ABORT },
    { MODEL_END_ABORT, BROKER_INVALID_TXN_STATE, EFFECT_FATAL },
    { MODEL_END_ABORT, BROKER_INVALID_PRODUCER_EPOCH, EFFECT_FATAL },
    { MODEL_END_ABORT, BROKER_PRODUCER_FENCED, EFFECT_FATAL },
    { MODEL_OFFSET_FETCH, BROKER_NOT_COORDINATOR, EFFECT_HIDDEN },
    { MODEL_OFFSET_FETCH, BROKER_COORDINATOR_LOAD_IN_PROGRESS, EFFECT_HIDDEN },
    { MODEL_OFFSET_FETCH, BROKER_UNSTABLE_OFFSET_COMMIT, EFFECT_HIDDEN },
    { MODEL_OFFSET_FETCH, BROKER_GROUP_AUTHORIZATION_FAILED, EFFECT_REFUSED },
    { MODEL_PLAIN_COMMIT, BROKER_ILLEGAL_GENERATION, EFFECT_FENCED },
    { MODEL_PLAIN_COMMIT, BROKER_UNKNOWN_MEMBER_ID, EFFECT_FENCED },
    { MODEL_PLAIN_COMMIT, BROKER_REBALANCE_IN_PROGRESS, EFFECT_FENCED },
    { MODEL_PLAIN_COMMIT, BROKER_OFFSET_METADATA_TOO_LARGE, EFFECT_REFUSED },
    { MODEL_PLAIN_COMMIT, BROKER_GROUP_AUTHORIZATION_FAILED, EFFECT_REFUSED },
    { MODEL_PLAIN_COMMIT, BROKER_NOT_COORDINATOR, EFFECT_HIDDEN },
    { MODEL_PLAIN_COMMIT, BROKER_COORDINATOR_LOAD_IN_PROGRESS, EFFECT_HIDDEN },
};
#define ROWS_N ((int)(sizeof rows / sizeof rows[0]))

bool model_client_row(int i, enum model_request *request, enum broker_error *error)
{
    if (i >= ROWS_N)
        return false;
    *request = rows[i].request;
    *error = rows[i].error;
    return true;
}

const char *model_request_name(enum model_request r)
{
    static const char *const names[MODEL_REQUESTS_N] = {
        "InitProducerId", "AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn(commit)",
        "EndTxn(abort)", "OffsetFetch", "OffsetCommit",
    };

    return names[r];
}

/* ---- one request, as the library makes it ---- */

static enum effect effect_of(enum model_request request, enum broker_error e)
{
    for (int i = 0; i < ROWS_N; i++)
        if (rows[i].request == request && rows[i].error == e)
            return rows[i].effect;
    return EFFECT_FATAL;
}

static enum broker_error error_draw(struct model_client *c, enum model_request request)
{
    struct model_faults *f = c->setup.faults;
    int n = 0, pick;

    if (!dice_one_in(c->setup.dice, f->error_one_in))
        return BROKER_OK;
    for (int i = 0; i < ROWS_N; i++)
        n += rows[i].request == request;
    pick = dice_below(c->setup.dice, n);
    for (int i = 0; i < ROWS_N; i++)
        if (rows[i].request == request && pick-- == 0) {
            f->errors_n[request][rows[i].error]++;
            return rows[i].error;
        }
    return BROKER_OK;
}

bool model_away(const struct model_client *c)
{
    return clock_mono_ns() < c->setup.faults->away_until_ns;
}

static enum broker_error call_send(struct model_client *c, const struct call *k)
{
    struct broker *b = c->setup.broker;
    const char *id = c->setup.transactional_id;
    enum broker_error e = BROKER_OK;

    switch (k->request) {
    case MODEL_INIT:
        return broker_init_producer(b, id, c->setup.txn_timeout_ns, &c->producer);
    case MODEL_ADD_PARTITION:
        return broker_add_partition(b, id, c->producer, k->topic, k->partition);
    case MODEL_PRODUCE:
        if (c->setup.plain)
            broker_store(b, k->topic, k->partition, k->record);
        else
            e = broker_produce(b, id, c->producer, k->topic, k->partition, k->record);
        return e;
    case MODEL_ADD_OFFSETS:
        return broker_add_offsets(b, id, c->producer);
    case MODEL_OFFSET_COMMIT:
        return broker_txn_offset_commit(b, id, c->producer, k->as->generation, k->as->member, k->places, k->places_n);
    case MODEL_END_COMMIT: case MODEL_END_ABORT:
        return broker_end_txn(b, id, c->producer, k->request == MODEL_END_COMMIT);
    case MODEL_PLAIN_COMMIT:
        return broker_offset_commit(b, c->generation, c->member, k->places, k->places_n);
    case MODEL_OFFSET_FETCH:
        for (size_t i = 0; i < k->places_n && e == BROKER_OK; i++) {
            const char *metadata;

            e = broker_offset_fetch(b, k->places[i].partition, !c->unstable, &c->fetched[i].offset, &metadata);
            free(c->fetched[i].metadata);
            c->fetched[i].metadata = metadata != NULL ? mem_copy_text(metadata) : NULL;
        }
        return e;
    default:
        return BROKER_OK;
    }
}

static enum kafka_answer answer_of(struct model_client *c, enum model_request request, enum broker_error e, struct error *err)
{
    error_set(err, ST_RETRY, "%s: %s", model_request_name(request), broker_error_name(e));
    switch (effect_of(request, e)) {
    case EFFECT_ABORT:
        c->abortable = !c->setup.plain;
        return KAFKA_ABORT;
    case EFFECT_FENCED:
        c->abortable = !c->setup.plain;
        return KAFKA_FENCED_OFFSETS;
    case EFFECT_REFUSED:
        c->abortable = c->phase == PRODUCER_IN_TXN && !c->setup.plain && request != MODEL_OFFSET_FETCH;
        return KAFKA_REFUSED;
    default:
        c->fatal = true;
        return KAFKA_REMAKE;
    }
}

/* Nothing came back in time. */
static enum kafka_answer timed_out(struct model_client *c, const struct call *k, struct error *err)
{
    error_set(err, ST_RETRY, "%s: timed out", model_request_name(k->request));
    switch (k->request) {
    case MODEL_INIT: case MODEL_PLAIN_COMMIT:
        return KAFKA_AGAIN;
    case MODEL_ADD_PARTITION: case MODEL_PRODUCE:            /* message.timeout.ms */
        c->abortable = !c->setup.plain;
        return KAFKA_ABORT;
    case MODEL_ADD_OFFSETS: case MODEL_OFFSET_COMMIT:
        return dice_one_in(c->setup.dice, 2) ? KAFKA_AGAIN : KAFKA_UNKNOWN;
    default:
        return KAFKA_UNKNOWN;
    }
}

/* A request that the caller gave up may still arrive: EndTxn in the next transaction, if nobody re-initialises. */
static void end_late(struct model_client *c, const struct call *k)
{
    int64_t delay = (int64_t)(dice_next(c->setup.dice) % (uint64_t)(5 * NS_PER_S));

    if ((k->request == MODEL_END_COMMIT || k->request == MODEL_END_ABORT) && dice_one_in(c->setup.dice, 2))
        broker_end_txn_late(c->setup.broker, c->setup.transactional_id, c->producer, k->request == MODEL_END_COMMIT,
                            clock_mono_ns() + delay);
}

/* 0: the request arrives and its answer, too; 1: neither does, for now; 2: it is carried out, but the answer is lost. */
static int lost_draw(struct model_client *c, enum model_request request)
{
    int lost = 0;

    if (model_away(c))
        return 1;
    if (dice_one_in(c->setup.dice, c->setup.faults->lost_one_in))
        lost = 1 + dice_below(c->setup.dice, 2);
    if (c->setup.faults->lose_next != 0) {
        lost = c->setup.faults->lose_next;
        c->setup.faults->lose_next = 0;
    }
    if (lost > 0)
        c->setup.faults->lost_n[request][lost - 1]++;
    return lost;
}

enum kafka_answer model_call(struct model_client *c, const struct call *k, int64_t timeout_ns, struct error *err)
{
    int64_t until = clock_mono_ns() + timeout_ns;
    bool stored = false;             /* sequence numbers: a record that is sent again is stored once */

    for (;;) {
        enum broker_error e = error_draw(c, k->request);
        int lost = lost_draw(c, k->request);

        if (lost != 1 && e == BROKER_OK && !stored) {
            e = call_send(c, k);
            stored = e == BROKER_OK && k->request == MODEL_PRODUCE;
        }
        if (lost == 0 && e == BROKER_OK)
            return KAFKA_OK;
        if (lost == 0 && effect_of(k->request, e) != EFFECT_HIDDEN)
            return answer_of(c, k->request, e, err);
        if (clock_mono_ns() >= until || (lost > 0 && dice_one_in(c->setup.dice, 2))) {
            if (lost == 1)
                end_late(c, k);
            return timed_out(c, k, err);
        }
        c->setup.pass(c->setup.ctx, RETRY_NS);
        if (c->dead)
            return KAFKA_UNKNOWN;
    }
}

/* ---- the producer ---- */

static struct model_client *self(struct kafka_client *k)
{
    return (struct model_client *)k;
}

static void outbox_clear(struct model_client *c)
{
    for (size_t i = 0; i < c->outbox_n; i++)
        model_record_fini(&c->outbox[i].record);
    c->outbox_n = c->outbox_sent = 0;
}

/* What every producer's call begins with. True: *answer is it. */
static bool stopped(struct model_client *c, enum kafka_answer *answer, struct error *err)
{
    if (c->dead || c->fatal) {
        error_set(err, ST_RETRY, "the producer is over");
        *answer = c->dead ? KAFKA_UNKNOWN : KAFKA_REMAKE;
        return true;
    }
    if (c->abortable) {
        error_set(err, ST_RETRY, "the transaction has failed");
        *answer = KAFKA_ABORT;
        return true;
    }
    return false;
}

static void rule(struct model_client *c, bool kept, const char *what)
{
    if (!kept && !c->dead)
        c->setup.misused(c->setup.ctx, what);
}

static enum kafka_answer model_init(struct kafka_client *kc, struct error *err)
{
    struct model_client *c = self(kc);
    struct call k = { .request = MODEL_INIT };
    enum kafka_answer answer;

    if (stopped(c, &answer, err))
        return answer;
    rule(c, c->phase == PRODUCER_NEW, "init of a producer that has been initialised");
    answer = c->setup.plain ? KAFKA_OK : model_call(c, &k, 2 * NS_PER_S, err);
    if (answer == KAFKA_OK)
        c->phase = PRODUCER_READY;
    return answer;
}

static enum kafka_answer model_begin(struct kafka_client *kc, struct error *err)
{
    struct model_client *c = self(kc);
    enum kafka_answer answer;

    if (stopped(c, &answer, err))
        return answer;
    rule(c, c->phase == PRODUCER_READY, "begin without init, or inside a transaction");
    c->phase = c->setup.plain ? PRODUCER_READY : PRODUCER_IN_TXN;
    c->used = false;
    memset(c->added, 0, sizeof c->added);
    return KAFKA_OK;
}

static enum kafka_answer outbox_send(struct model_client *c, struct error *err)
{
    enum kafka_answer answer = KAFKA_OK;

    for (; c->outbox_sent < c->outbox_n && answer == KAFKA_OK; c->outbox_sent += answer == KAFKA_OK) {
        struct outgoing *o = &c->outbox[c->outbox_sent];
        struct call k = { .request = MODEL_ADD_PARTITION, .topic = o->topic, .partition = o->partition, .record = &o->record };

        c->used = true;
        if (!c->setup.plain && !c->added[o->topic][o->partition])
            answer = model_call(c, &k, 8 * NS_PER_S, err);
        if (answer != KAFKA_OK)
            break;
        c->added[o->topic][o->partition] = true;
        if (o->sent)
            continue;
        k.request = MODEL_PRODUCE;
        answer = model_call(c, &k, 8 * NS_PER_S, err);
        o->sent = answer == KAFKA_OK;
    }
    return answer;
}

static int64_t record_bytes(const struct broker_record *r)
{
    size_t n = r->key_n + r->value_n;

    for (size_t i = 0; i < r->headers_n; i++)
        n += strlen(r->headers[i].name) + r->headers[i].value_n;
    return (int64_t)n;
}

static enum kafka_answer model_produce(struct kafka_client *kc, enum kafka_topic topic, const void *key, size_t key_n,
                                       const void *value, size_t value_n, const struct header *headers, size_t headers_n,
                                       struct error *err)
{
    struct model_client *c = self(kc);
    const struct broker_record from = { .key = (char *)(uintptr_t)key, .key_n = key_n, .value = (char *)(uintptr_t)value,
                                        .value_n = value_n, .headers = (struct header *)(uintptr_t)headers,
                                        .headers_n = headers_n };
    enum kafka_answer answer;
    struct outgoing *o;

    if (stopped(c, &answer, err))
        return answer;
    rule(c, c->phase == (c->setup.plain ? PRODUCER_READY : PRODUCER_IN_TXN), "produce outside a transaction");
    rule(c, topic != KAFKA_PROMPTS, "produce to the prompts");
    rule(c, record_bytes(&from) <= c->setup.value_max[topic], "a record beyond value_max was produced");
    if (dice_one_in(c->setup.dice, 50))
        return KAFKA_AGAIN;                      /* the library's queue is full */
    c->outbox = mem_grow(c->outbox, (c->outbox_n + 1) * sizeof c->outbox[0]);
    o = &c->outbox[c->outbox_n++];
    *o = (struct outgoing){ .topic = topic, .partition = dice_below(c->setup.dice, c->setup.broker->partitions_n) };
    model_record_copy(&o->record, &from);
    if (c->setup.plain ? c->failed == KAFKA_OK && dice_one_in(c->setup.dice, 3) : dice_one_in(c->setup.dice, 3))
        c->failed = outbox_send(c, err);         /* the background sends; what it meets shows at the next call */
    return KAFKA_OK;
}

/* At least once: waits for everything that was produced; what failed is told once, and is for the caller to produce again. */
static enum kafka_answer outbox_flush(struct model_client *c, struct error *err)
{
    enum kafka_answer answer = c->failed != KAFKA_OK ? c->failed : outbox_send(c, err);

    outbox_clear(c);
    c->failed = KAFKA_OK;
    return answer;
}

static enum kafka_answer model_offsets(struct kafka_client *kc, const struct kafka_place *places, size_t n,
                                       const struct kafka_group *as, struct error *err)
{
    struct model_client *c = self(kc);
    struct call k = { .request = MODEL_ADD_OFFSETS, .places = places, .places_n = n, .as = as };
    enum kafka_answer answer;

    if (stopped(c, &answer, err))
        return answer;
    if (c->setup.plain) {
        k.request = MODEL_PLAIN_COMMIT;
        return model_call(c, &k, 4 * NS_PER_S, err);
    }
    rule(c, c->phase == PRODUCER_IN_TXN, "offsets outside a transaction");
    c->used = true;
    answer = model_call(c, &k, 4 * NS_PER_S, err);
    if (answer != KAFKA_OK)
        return answer;
    k.request = MODEL_OFFSET_COMMIT;
    return model_call(c, &k, 4 * NS_PER_S, err);
}

static enum kafka_answer model_commit(struct kafka_client *kc, struct error *err)
{
    struct model_client *c = self(kc);
    struct call k = { .request = MODEL_END_COMMIT };
    enum kafka_answer answer;

    if (stopped(c, &answer, err))
        return answer;
    if (c->setup.plain)
        return outbox_flush(c, err);
    rule(c, c->phase == PRODUCER_IN_TXN, "commit outside a transaction");
    answer = outbox_send(c, err);
    if (answer == KAFKA_OK && c->used)
        answer = model_call(c, &k, 4 * NS_PER_S, err);
    /* Carried out, answered, and the answer lost; the next one hears that a newer epoch is there. */
    if (answer == KAFKA_OK && c->used && dice_one_in(c->setup.dice, c->setup.faults->lost_one_in)) {
        c->fatal = true;
        error_set(err, ST_RETRY, "EndTxn(commit): PRODUCER_FENCED, but carried out");
        return KAFKA_REMAKE;
    }
    if (answer == KAFKA_OK) {
        outbox_clear(c);
        c->phase = PRODUCER_READY;
    }
    return answer;
}

static enum kafka_answer model_abort(struct kafka_client *kc, struct error *err)
{
    struct model_client *c = self(kc);
    struct call k = { .request = MODEL_END_ABORT };
    enum kafka_answer answer = KAFKA_OK;

    if (c->dead || c->fatal)
        return stopped(c, &answer, err) ? answer : KAFKA_REMAKE;
    if (c->setup.plain)
        return KAFKA_OK;
    rule(c, c->phase == PRODUCER_IN_TXN, "abort outside a transaction");
    outbox_clear(c);
    if (c->used)
        answer = model_call(c, &k, 4 * NS_PER_S, err);
    if (answer == KAFKA_OK) {
        c->abortable = false;
        c->phase = PRODUCER_READY;
    }
    return answer;
}

static enum kafka_answer model_remake(struct kafka_client *kc, struct error *err)
{
    struct model_client *c = self(kc);

    (void)err;
    outbox_clear(c);
    c->fatal = c->abortable = false;
    c->failed = KAFKA_OK;
    c->phase = PRODUCER_NEW;
    return c->dead ? KAFKA_UNKNOWN : KAFKA_OK;
}

static int64_t model_value_max(struct kafka_client *kc, enum kafka_topic topic)
{
    return self(kc)->setup.value_max[topic];
}

static void model_close(struct kafka_client *kc)
{
    model_client_kill(self(kc));
}

static const struct kafka_client_ops model_ops = {
    .poll = model_poll, .committed = model_committed, .assign = model_assign, .unassign = model_unassign,
    .pause = model_pause, .group = model_group, .end = model_end, .init = model_init, .begin = model_begin,
    .produce = model_produce, .offsets = model_offsets, .commit = model_commit, .abort = model_abort,
    .remake = model_remake, .value_max = model_value_max, .metadata_max = model_metadata_max, .leave = model_leave,
    .close = model_close,
};

struct model_client *model_client_open(const struct model_client_setup *setup)
{
    struct model_client *c = mem_take_zero(1, sizeof *c);

    c->client.ops = &model_ops;
    c->setup = *setup;
    c->generation = -1;
    c->assign_told = c->first = true;
    c->polled_ns = c->beaten_ns = clock_mono_ns();
    return c;
}

struct kafka_client *model_client_border(struct model_client *c)
{
    return &c->client;
}

void model_client_kill(struct model_client *c)
{
    c->dead = true;
}

void model_client_end(struct model_client *c)
{
    c->over = true;
}

bool model_client_commit_late(struct model_client *c, int64_t due_ns)
{
    struct error err;

    if (c->dead || c->fatal || c->abortable || c->phase != PRODUCER_IN_TXN || !c->used || outbox_send(c, &err) != KAFKA_OK)
        return false;
    broker_end_txn_late(c->setup.broker, c->setup.transactional_id, c->producer, true, due_ns);
    return true;
}

void model_client_read_unstable(struct model_client *c)
{
    c->unstable = true;
}

void model_client_free(struct model_client *c)
{
    if (c == NULL)
        return;
    outbox_clear(c);
    free(c->outbox);
    for (int i = 0; i < BROKER_PARTITIONS_MAX; i++)
        free(c->fetched[i].metadata);
    model_record_fini(&c->held);
    free(c);
}
