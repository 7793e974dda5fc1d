/* What happens to the workers of a simulated run, and what comes into the prompts. */
#include <inttypes.h>
#include <stdlib.h>

#include "tests/sim/sim.h"

#define FEEDER "feeder"
#define STOP_NS_MAX (40 * NS_PER_S)
#define AWAY_NS_MAX (20 * NS_PER_S)

/* Up to max, mostly much less: every order of magnitude is as likely as the next. */
static int64_t span(struct sim *s, int64_t max)
{
    return max >> dice_below(&s->dice, 10);
}

/* ---- workers ---- */

static bool id_taken(const struct sim *s, const char *id)
{
    for (int i = 0; i < s->workers_n; i++)
        if (strcmp(s->worker[i]->id, id) == 0)
            return true;
    return false;
}

void sim_worker_born(struct sim *s)
{
    char id[64];
    int slot = 0;

    if (s->workers_n == SIM_WORKERS_MAX)
        return;
    do
        snprintf(id, sizeof id, s->slots ? "slot-%d" : "random-%d", s->slots ? slot++ : (int)s->births_n);
    while (id_taken(s, id));
    s->worker[s->workers_n] = sim_worker_start(s, id);
    s->workers_n++;
}

void sim_worker_buried(struct sim *s, int i)
{
    sim_worker_kill(s->worker[i]);
    s->worker[i] = s->worker[--s->workers_n];
}

/* Two with one transactional id: one must give up in the end. */
static void duel(struct sim *s, const struct sim_worker *w)
{
    char id[64];

    if (s->workers_n == SIM_WORKERS_MAX)
        return;
    snprintf(id, sizeof id, "%s", w->id);
    s->stats->duels_n++;
    s->worker[s->workers_n] = sim_worker_start(s, id);
    s->workers_n++;
}

/* Its EndTxn is on its way when it dies, and arrives when others may be at work. */
static void commit_in_flight(struct sim *s, struct sim_worker *w, int64_t late_ns)
{
    if (kafka_commit_at(w->core) == KAFKA_STEP_COMMIT && !s->setup.plain &&
        model_client_commit_late(w->model, s->now_ns + late_ns))
        sim_tell(s, "the commit of %" PRId64 " arrives in %" PRId64 " ms", w->born, late_ns / NS_PER_MS);
}

static void worker_fault(struct sim *s, int i)
{
    struct sim_worker *w = s->worker[i];

    switch (dice_below(&s->dice, 10)) {
    case 0: case 1: case 2:
        sim_tell(s, "%" PRId64 " is killed with %d in flight", w->born, w->flights_n);
        s->stats->kills_n++;
        if (dice_one_in(&s->dice, 2))
            commit_in_flight(s, w, span(s, AWAY_NS_MAX));
        sim_worker_buried(s, i);
        break;
    case 3: case 4:
        w->stopped_until_ns = s->now_ns + span(s, STOP_NS_MAX);
        if (dice_one_in(&s->dice, 2))          /* its threads do not wake together */
            w->poll_hung_until_ns = w->stopped_until_ns + span(s, 5 * NS_PER_S);
        s->stats->stops_n++;
        sim_tell(s, "%" PRId64 " is stopped for %" PRId64 " ms", w->born, (w->stopped_until_ns - s->now_ns) / NS_PER_MS);
        break;
    case 5:
        w->poll_hung_until_ns = s->now_ns + span(s, STOP_NS_MAX);
        sim_tell(s, "%" PRId64 " does not poll for %" PRId64 " ms", w->born, (w->poll_hung_until_ns - s->now_ns) / NS_PER_MS);
        break;
    case 6: case 7:
        w->commit_hung_until_ns = s->now_ns + span(s, STOP_NS_MAX);
        sim_tell(s, "%" PRId64 " does not commit for %" PRId64 " ms", w->born, (w->commit_hung_until_ns - s->now_ns) / NS_PER_MS);
        break;
    case 8:
        sim_worker_drain(w);
        break;
    default:
        if (dice_one_in(&s->dice, 2))
            model_client_end(w->model);
        else if (dice_one_in(&s->dice, 4))
            duel(s, w);
    }
}

/* ---- the store ---- */

static void store_loses(struct sim *s)
{
    sim_tell(s, "the store loses all");
    ckpt_mem_lose(SIM_STORE);
    for (int p = 0; p < s->broker.partitions_n; p++) {
        s->newest_token[p] = 0;
        for (size_t i = 0; i < s->check.inputs_n[p]; i++)
            s->check.input[p][i].saved_n = 0;
    }
}

/* A replica that was behind takes over: the newest part of a sequence is gone; or bits of it are rotten. */
static void store_stale(struct sim *s)
{
    int p = dice_below(&s->dice, s->broker.partitions_n);
    struct ckpt_key key = { SIM_JOB, p, 0, 0 };
    struct check_input *in;

    if (s->check.inputs_n[p] == 0)
        return;
    in = &s->check.input[p][dice_below(&s->dice, (int)s->check.inputs_n[p])];
    key.offset = in->offset;
    if (dice_one_in(&s->dice, 2) && ckpt_mem_cut(SIM_STORE, &key, (size_t)dice_below(&s->dice, 200))) {
        sim_tell(s, "the store is stale at %d/%" PRId64, p, in->offset);
        in->saved_n = 0;
    } else if (ckpt_mem_flip(SIM_STORE, &key, (size_t)dice_below(&s->dice, 200))) {
        sim_tell(s, "the store is damaged at %d/%" PRId64, p, in->offset);
        in->rotten = true;
    }
}

static void store_fault(struct sim *s)
{
    int skip = dice_below(&s->dice, 4), calls = 1 + dice_below(&s->dice, 12);

    switch (dice_below(&s->dice, 6)) {
    case 5:
        s->store_hangs_until_ns = s->now_ns + span(s, AWAY_NS_MAX);
        sim_tell(s, "the store does not answer for %" PRId64 " ms", (s->store_hangs_until_ns - s->now_ns) / NS_PER_MS);
        break;
    case 0:
        ckpt_mem_fail(SIM_STORE, CKPT_MEM_REFUSE, skip, calls);
        break;
    case 1:
        ckpt_mem_fail(SIM_STORE, CKPT_MEM_ANSWER_LOST, skip, calls);
        break;
    case 2:
        store_stale(s);
        break;
    case 3:
        s->wall_shift_ns += (dice_below(&s->dice, 7201) - 3600) * NS_PER_S;
        break;
    default:
        if (dice_one_in(&s->dice, 3))
            store_loses(s);
    }
}

/* ---- the broker ---- */

static void broker_fault(struct sim *s)
{
    switch (dice_below(&s->dice, 5)) {
    case 0:
        s->faults.away_until_ns = s->now_ns + span(s, AWAY_NS_MAX);
        sim_tell(s, "no broker answers for %" PRId64 " ms", (s->faults.away_until_ns - s->now_ns) / NS_PER_MS);
        break;
    case 1:
        sim_tell(s, "transactional ids expire");
        broker_expire_ids(&s->broker);
        break;
    case 2:
        sim_tell(s, "the group's coordinator moves");
        broker_sessions_renew(&s->broker);
        break;
    default:
        sim_tell(s, "a new generation");
        broker_rebalance(&s->broker);
    }
}

/* ---- the prompts, by their owners ---- */

static void compacted(struct sim *s, int32_t p)
{
    struct check_input *in;

    if (s->check.inputs_n[p] == 0)
        return;
    in = &s->check.input[p][dice_below(&s->dice, (int)s->check.inputs_n[p])];
    sim_tell(s, "%" PRId32 "/%" PRId64 " is compacted away", p, in->offset);
    broker_compact(&s->broker, KAFKA_PROMPTS, p, in->offset);
    in->compacted = true;
    check_input_excuse(&s->check, in);
}

/* What is cut beyond the group's commit is lost, and the partition stops: that is not for the queue to decide. */
static void cut(struct sim *s, int32_t p)
{
    const struct broker_offset *at = &s->broker.committed[p];
    int64_t below = dice_below(&s->dice, (int)s->broker.log[KAFKA_PROMPTS][p].end + 1);

    if (s->faults.delivers_again)
        return;
    broker_delete(&s->broker, KAFKA_PROMPTS, p, below);
    sim_tell(s, "%" PRId32 " begins at %" PRId64 " now", p, broker_start(&s->broker, KAFKA_PROMPTS, p));
    if (broker_start(&s->broker, KAFKA_PROMPTS, p) > (at->metadata != NULL ? at->offset : 0))
        check_partition_excuse(&s->check, p);
}

static void altered(struct sim *s, int32_t p)
{
    const struct broker_offset *at = &s->broker.committed[p];
    const struct kafka_place place = { p, at->metadata != NULL ? at->offset : 0,
                                       dice_one_in(&s->dice, 2) ? "" : "W2:of a later age" };

    sim_tell(s, "another tool commits %" PRId32, p);
    check_partition_excuse(&s->check, p);
    broker_offset_alter(&s->broker, &place);
}

static void topic_fault(struct sim *s)
{
    int32_t p = dice_below(&s->dice, s->broker.partitions_n);

    switch (dice_below(&s->dice, 8)) {
    case 0:
        cut(s, p);
        break;
    case 1:
        altered(s, p);
        break;
    case 2:
        if (s->broker.partitions_n == BROKER_PARTITIONS_MAX)
            break;
        sim_tell(s, "a new partition");
        s->to_feed[s->broker.partitions_n++] = dice_below(&s->dice, SIM_RECORDS_MAX);
        break;
    default:
        compacted(s, p);
    }
}

/* ---- one thing at one step ---- */

void sim_act(struct sim *s, struct sim_worker *w)
{
    sim_tell(s, "act %d on %" PRId64, (int)s->act, w->born);
    switch (s->act) {
    case ACT_KILL_IN_COMMIT:
        commit_in_flight(s, w, 8 * NS_PER_S);
        /* fallthrough */
    case ACT_KILL:
        w->over = true;
        break;
    case ACT_STOP:
        w->stopped_until_ns = s->now_ns + s->broker.session_ns + 3 * NS_PER_S;
        break;
    case ACT_STOP_LONG:
        w->stopped_until_ns = s->now_ns + 60 * NS_PER_S;
        break;
    case ACT_COMMIT_HANGS:
        w->commit_hung_until_ns = s->now_ns + 30 * NS_PER_S;
        break;
    case ACT_POLL_HANGS:
        w->poll_hung_until_ns = s->now_ns + 30 * NS_PER_S;
        break;
    case ACT_LEAVE_AT_ONCE:
        sim_worker_drain(w);
        /* fallthrough */
    case ACT_DRAIN:
        sim_worker_drain(w);
        break;
    case ACT_ANOTHER_JOINS:
        sim_worker_born(s);
        break;
    case ACT_NEW_GENERATION:
        broker_rebalance(&s->broker);
        break;
    case ACT_AWAY:
        s->faults.away_until_ns = s->now_ns + 2 * NS_PER_S;
        break;
    case ACT_AWAY_LONG:
        s->faults.away_until_ns = s->now_ns + 30 * NS_PER_S;
        break;
    case ACT_REQUEST_LOST:
        s->faults.lose_next = 1;
        break;
    case ACT_ANSWER_LOST:
        s->faults.lose_next = 2;
        break;
    case ACT_ID_EXPIRES:
        broker_expire_ids(&s->broker);
        break;
    case ACT_SAME_ID:
        duel(s, w);
        break;
    default:
        break;
    }
}

/* Rather one that is in the middle of a group. */
static int victim(struct sim *s)
{
    int i = 0;

    for (int tries = 0; tries < 4; tries++) {
        i = dice_below(&s->dice, s->workers_n);
        if (s->worker[i]->committing)
            break;
    }
    return i;
}

void sim_fault(struct sim *s)
{
    int what = dice_below(&s->dice, 8);

    if (what == 0)
        store_fault(s);
    else if (what <= 2)
        broker_fault(s);
    else if (what == 3)
        s->odd && dice_one_in(&s->dice, 2) ? topic_fault(s) : sim_worker_born(s);
    else if (s->workers_n > 0)
        worker_fault(s, victim(s));
}

/* ---- prompts ---- */

static size_t prompt_make(struct sim *s, int32_t p, char value[64])
{
    int kind = dice_below(&s->dice, 12), tokens_n = 1 + dice_below(&s->dice, TEXT_TOKENS_MAX);

    return (size_t)snprintf(value, 64, "%c %d #%" PRId32 ".%d", kind == 0 ? TEXT_BAD : kind == 1 ? TEXT_HUGE : TEXT_GOOD,
                            kind == 0 ? 0 : tokens_n, p, s->fed_n++);
}

static void feed_plain(struct sim *s, int32_t p)
{
    static const char *const keys[] = { NULL, "", "key", "another key" };
    const char *key = keys[dice_below(&s->dice, 4)];
    int64_t offset = s->broker.log[KAFKA_PROMPTS][p].end;
    char value[64];
    size_t n = prompt_make(s, p, value);
    bool null = dice_one_in(&s->dice, 12);

    broker_append(&s->broker, KAFKA_PROMPTS, p, key, key != NULL ? strlen(key) : 0, null ? NULL : value, null ? 0 : n);
    check_input_add(&s->check, p, offset, null ? NULL : value, n);
}

/* Its records become prompts, or gaps, when the transaction ends. */
static void feed_txn_end(struct sim *s, bool commit)
{
    ASSERT(broker_end_txn(&s->broker, FEEDER, s->feeder, commit) == BROKER_OK);
    s->feeding = false;
    for (int i = 0; i < s->fed_open_n && commit; i++) {
        const struct broker_record *r = broker_fetch(&s->broker, KAFKA_PROMPTS, s->fed[i].partition, s->fed[i].offset, false);

        check_input_add(&s->check, s->fed[i].partition, r->offset, r->value, r->value_n);
    }
}

static void feed_txn_begin(struct sim *s, int32_t p)
{
    while (broker_init_producer(&s->broker, FEEDER, INT64_MAX / 2, &s->feeder) != BROKER_OK)
        sim_pass(s, 100 * NS_PER_MS);
    s->feeding = true;
    s->fed_open_n = 0;
    for (int n = 1 + dice_below(&s->dice, 4); n > 0 && s->to_feed[p] > 0; n--) {
        char value[64];
        struct broker_record r = { .value = value, .value_n = prompt_make(s, p, value) };

        s->fed[s->fed_open_n].partition = p;
        s->fed[s->fed_open_n++].offset = s->broker.log[KAFKA_PROMPTS][p].end;
        ASSERT(broker_add_partition(&s->broker, FEEDER, s->feeder, KAFKA_PROMPTS, p) == BROKER_OK &&
               broker_produce(&s->broker, FEEDER, s->feeder, KAFKA_PROMPTS, p, &r) == BROKER_OK);
        s->to_feed[p]--;
    }
}

void sim_feed(struct sim *s)
{
    int32_t p = dice_below(&s->dice, s->broker.partitions_n);
    int what = dice_below(&s->dice, 12);

    if (s->feeding) {
        feed_txn_end(s, !dice_one_in(&s->dice, 3));
        return;
    }
    if (s->to_feed[p] == 0)
        return;
    if (what == 0) {
        feed_txn_begin(s, p);
    } else if (what == 1) {
        broker_skip(&s->broker, KAFKA_PROMPTS, p, 1 + dice_below(&s->dice, dice_one_in(&s->dice, 3) ? 200 : 5));
    } else {
        feed_plain(s, p);
        s->to_feed[p]--;
    }
}

void sim_feed_end(struct sim *s)
{
    if (s->feeding)
        feed_txn_end(s, true);
    for (int32_t p = 0; p < s->broker.partitions_n; p++)
        for (; s->to_feed[p] > 0; s->to_feed[p]--)
            feed_plain(s, p);
}
