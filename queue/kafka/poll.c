/* The poll side: one event of the client a step.
 *
 * An event of the group may need more than one step for its answer: an assignment waits for the commits of its partitions (the
 * broker holds them back while a dead owner's transaction is open), a revocation for the committer. Until it is answered the
 * client is not polled, and each step looks again. A message is received by the tracker before it is given out, so what comes
 * twice (librdkafka #4686: a resume from an earlier position) is passed over. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "queue/kafka/internal.h"

#define LOST_WAIT_NS NS_PER_S                  /* for saving progress, of all partitions that go together */
#define REVOKE_WAIT_NS (2 * NS_PER_S)          /* for the committer; the group waits for us meanwhile */
#define COMMITTED_TIMEOUT_MS 1000              /* of one question; the poll thread is not to be away for long */
#define COMMITTED_PAUSE_NS (200 * NS_PER_MS)
#define LOG_AGAIN_NS (10 * NS_PER_S)

/* ---- pauses, held records ---- */

static void pause_set(struct kafka_core *k, struct partition *p, bool paused)
{
    if (p->paused == paused || !p->assigned)
        return;
    p->paused = paused;
    k->client->ops->pause(k->client, p->id, paused);
}

/* What the client should do about p, now. */
static void pause_settle(struct kafka_core *k, struct partition *p)
{
    bool must, may;

    pthread_mutex_lock(&k->lock);
    must = p->stopped || p->paused_by_user || partition_full(p);
    may = !p->stopped && !p->paused_by_user && partition_roomy(p);
    pthread_mutex_unlock(&k->lock);
    if (must || atomic_load(&k->stopping))
        pause_set(k, p, true);
    else if (may)
        pause_set(k, p, false);
}

static void pauses_settle(struct kafka_core *k)
{
    bool stopping = atomic_load(&k->stopping);

    if (!atomic_exchange(&k->progress, false) && stopping == k->applied_stop)
        return;
    k->applied_stop = stopping;
    for (size_t i = 0; i < k->part_n; i++)
        if (k->part[i] != NULL && k->part[i]->owned)
            pause_settle(k, k->part[i]);
}

static void held_add(struct kafka_core *k, struct partition *p, struct record *r)
{
    if (p->held_n == p->held_room) {
        p->held_room = p->held_room ? p->held_room * 2 : 8;
        p->held = mem_grow(p->held, p->held_room * sizeof p->held[0]);
    }
    p->held[p->held_n++] = r;
    k->held_n++;
}

/* Stops a partition for good: it is held, so that no other worker runs into the same, but nothing of it is given out. */
static void partition_stop(struct kafka_core *k, struct partition *p, const char *why)
{
    atomic_store(&p->stopped, true);
    log_error("kafka.partition_stopped", "topic=%s partition=%" PRId32 " why=\"%s\"", k->topic, p->id, why);
    pause_set(k, p, true);
}

/* Is the first record that comes the one that the commit speaks of? false: the partition is stopped. */
static bool identity_check(struct kafka_core *k, struct partition *p, int64_t offset, uint32_t hash)
{
    uint32_t expected;

    if (p->expect[0] == '\0' || offset < p->expect_at)
        return true;
    expected = (uint32_t)strtoul(p->expect, NULL, 16);
    if (offset == p->expect_at && hash != expected) {
        partition_stop(k, p, "the record at the committed offset is not the one that was there: the topic was made anew or cut. Nothing "
                       "is done here. To start it from its beginning delete the group's offsets of this topic "
                       "(kafka-consumer-groups --delete-offsets)");
        return false;
    }
    if (offset > p->expect_at)
        log_warn("kafka.record_missing", "topic=%s partition=%" PRId32 " offset=%" PRId64 " first=%" PRId64
                 " what=\"the lowest open record is gone (compacted or deleted); going on with the next\"", k->topic, p->id,
                 p->expect_at, offset);
    pthread_mutex_lock(&k->lock);
    p->expect[0] = '\0';
    pthread_mutex_unlock(&k->lock);
    return true;
}

/* ST_OK: it is to be given out. ST_AGAIN: beyond the window. ST_REJECT: passed over. */
static status record_receive(struct kafka_core *k, struct partition *p, int64_t offset, uint32_t hash, int64_t at_ms, bool tombstone)
{
    status st;

    pthread_mutex_lock(&k->lock);
    st = tracker_receive(p->tracker, offset);
    if (st == ST_OK && tombstone) {      /* done at once, without a result; durable with the next commit of its partition */
        tracker_done(p->tracker, offset);
        k->counts.skipped_n++;
        st = ST_REJECT;
    } else if (st == ST_OK) {
        partition_receive(p, offset, hash, at_ms);
    }
    pthread_mutex_unlock(&k->lock);
    return st;
}

static int64_t written_ms(int64_t timestamp_ms)
{
    int64_t now = clock_wall_ns() / NS_PER_MS;

    return timestamp_ms > 0 && timestamp_ms < now ? timestamp_ms : now;
}

static struct record *held_take(struct kafka_core *k, struct partition *p)
{
    while (p->held_n > 0) {
        struct record *r = p->held[0];
        status st = record_receive(k, p, r->offset, kafka_record_hash(r), written_ms(r->timestamp_ms), r->value == NULL);

        if (st == ST_AGAIN)
            return NULL;
        p->held_n--;
        k->held_n--;
        memmove(p->held, p->held + 1, p->held_n * sizeof p->held[0]);
        if (p->held_n == 0)
            atomic_store(&k->progress, true);      /* the pause may be over */
        if (st == ST_OK)
            return r;
        kafka_record_free(r);
    }
    return NULL;
}

static struct record *any_held_take(struct kafka_core *k)
{
    for (size_t i = 0; i < k->part_n && k->held_n > 0; i++) {
        struct partition *p = k->part[(k->held_turn + i) % k->part_n];
        struct record *r;

        if (p == NULL || p->held_n == 0 || p->stopped || p->paused_by_user || !p->owned)
            continue;
        r = held_take(k, p);
        if (r != NULL) {
            k->held_turn = (size_t)p->id;
            return r;
        }
    }
    return NULL;
}

static struct record *message_take(struct kafka_core *k, const struct kafka_message *m)
{
    struct partition *p = partition_find(k, m->partition);
    uint32_t hash;
    status st;

    if (p == NULL || !p->owned || p->stopped || atomic_load(&k->stopping))      /* not ours any more, or not to be begun */
        return NULL;
    hash = kafka_message_hash(m);
    if (!identity_check(k, p, m->offset, hash))
        return NULL;
    if (p->held_n > 0 || p->paused_by_user)
        st = ST_AGAIN;      /* behind those that wait, or on its way when the pause came */
    else
        st = record_receive(k, p, m->offset, hash, written_ms(m->timestamp_ms), m->value == NULL);
    if (st == ST_AGAIN)
        held_add(k, p, kafka_record_copy(m, p->lease, (size_t)k->cfg->line_mb_max << 20));
    if (st == ST_AGAIN || !p->paused)
        pause_settle(k, p);
    return st == ST_OK ? kafka_record_copy(m, p->lease, (size_t)k->cfg->line_mb_max << 20) : NULL;
}

/* ---- the group's events ---- */

static void pending_begin(struct kafka_core *k, enum pending_kind kind, const struct kafka_event *e)
{
    struct pending *q = &k->pending;

    q->kind = kind;
    q->n = e->partitions_n;
    q->not_before_ns = q->logged_ns = 0;
    if (q->n > q->room) {
        q->room = q->n;
        q->place = mem_grow(q->place, q->room * sizeof q->place[0]);
    }
    for (size_t i = 0; i < q->n; i++)
        q->place[i] = (struct kafka_place){ e->partitions[i], -1, NULL };
    pthread_mutex_lock(&k->lock);
    k->counts.rebalances_n++;
    pthread_mutex_unlock(&k->lock);
}

static void pending_log(struct kafka_core *k, int64_t now, const char *answer, const struct error *why)
{
    struct pending *q = &k->pending;

    if (q->logged_ns != 0 && now - q->logged_ns < LOG_AGAIN_NS)
        return;
    q->logged_ns = now;
    log_warn("kafka.committed", "topic=%s partitions=%zu answer=%s what=\"%s\"", k->topic, q->n, answer, why->text);
}

/* Reads what is committed. false: no answer yet. */
static bool commits_read(struct kafka_core *k, int timeout_ms)
{
    struct pending *q = &k->pending;
    int64_t now = clock_mono_ns();
    struct error why = { "" };
    enum kafka_answer answer;

    if (q->n == 0)
        return true;
    if (now < q->not_before_ns)
        return false;
    answer = k->client->ops->committed(k->client, q->place, q->n, timeout_ms < COMMITTED_TIMEOUT_MS ? COMMITTED_TIMEOUT_MS : timeout_ms,
                                       &why);
    if (answer == KAFKA_OK)
        return true;
    now = clock_mono_ns();
    pending_log(k, now, answer == KAFKA_REFUSED ? "refused" : "none", &why);
    q->not_before_ns = now + (answer == KAFKA_REFUSED ? NS_PER_S : COMMITTED_PAUSE_NS);
    return false;
}

static void start_log(struct kafka_core *k, const struct kafka_place *place, bool others)
{
    if (place->offset >= 0)
        log_info("kafka.assigned", "topic=%s partition=%" PRId32 " offset=%" PRId64, k->topic, place->partition, place->offset);
    else if (others)      /* a new partition, or its commit was deleted or has expired */
        log_warn("kafka.assigned", "topic=%s partition=%" PRId32 " offset=earliest what=\"no commit, others have one\"", k->topic,
                 place->partition);
    else
        log_info("kafka.assigned", "topic=%s partition=%" PRId32 " offset=earliest what=\"no commit\"", k->topic, place->partition);
}

static void assign_answer(struct kafka_core *k)
{
    struct pending *q = &k->pending;
    struct kafka_group group;
    bool some = false;

    for (size_t i = 0; i < q->n; i++)
        some |= q->place[i].offset >= 0;
    for (size_t i = 0; i < q->n; i++) {
        struct kafka_place *place = &q->place[i];
        struct error why;
        const char *wrong = partition_take(k, place, &why);
        struct partition *p = partition_find(k, place->partition);

        if (wrong != NULL) {
            log_error("kafka.partition_stopped", "topic=%s partition=%" PRId32 " offset=%" PRId64 " why=\"%s\"", k->topic, p->id,
                      place->offset, wrong);
        } else {
            start_log(k, place, some);
            p->announced = true;
            if (k->events.gained != NULL)
                k->events.gained(k->events.ctx, p->id, p->lease);
        }
        if (place->offset < 0)
            place->offset = KAFKA_EARLIEST;
        place->metadata = NULL;
    }
    q->kind = PENDING_NONE;
    k->client->ops->assign(k->client, q->place, q->n);
    for (size_t i = 0; i < q->n; i++) {
        struct partition *p = partition_find(k, q->place[i].partition);

        p->assigned = true;      /* what `gained` asked to be paused, and what is stopped, is paused now */
        pause_settle(k, p);
    }
    k->client->ops->group(k->client, &group);
    pthread_mutex_lock(&k->lock);
    k->counts.generation = group.generation;
    pthread_mutex_unlock(&k->lock);
}

/* `lost` of each, then one wait for all: what has ended of them can still be committed meanwhile. */
static void revoke_tell(struct kafka_core *k)
{
    struct pending *q = &k->pending;
    bool already = q->kind == PENDING_LOST, told = false;

    for (size_t i = 0; i < q->n; i++) {
        struct partition *p = partition_find(k, q->place[i].partition);

        if (p == NULL)
            continue;
        log_info(already ? "kafka.lost" : "kafka.revoked", "topic=%s partition=%" PRId32, k->topic, p->id);
        if (p->announced && k->events.lost != NULL)
            k->events.lost(k->events.ctx, p->id, p->lease, already);
        told |= p->announced;
        p->announced = false;
    }
    if (told && !already && k->events.lost_wait != NULL)
        k->events.lost_wait(k->events.ctx, clock_mono_ns() + LOST_WAIT_NS);
}

/* From here on no transaction takes anything of them: this is what keeps a live member from committing a partition that it has
 * given away, because the broker fences by generation and not by partition (facts 1.6). */
static void ownership_end(struct kafka_core *k)
{
    struct pending *q = &k->pending;

    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < q->n; i++) {
        struct partition *p = partition_find(k, q->place[i].partition);

        if (p != NULL)
            p->owned = false;
    }
    pthread_mutex_unlock(&k->lock);
    q->deadline_ns = clock_mono_ns() + REVOKE_WAIT_NS;
}

static void revoke_begin(struct kafka_core *k)
{
    if (k->pending.kind == PENDING_LOST)
        ownership_end(k);
    revoke_tell(k);
    ownership_end(k);
}

/* false: the committer is in a transaction that holds some of them; it ends by itself, or by the guard. */
static bool revoke_ready(struct kafka_core *k)
{
    struct pending *q = &k->pending;
    bool busy;

    if (q->kind == PENDING_LOST)      /* others may be at work already: nothing to wait for, the generation fences us */
        return true;
    pthread_mutex_lock(&k->lock);
    busy = kafka_committer_holds(k, q->place, q->n);
    pthread_mutex_unlock(&k->lock);
    if (busy && clock_mono_ns() < q->deadline_ns)
        return false;
    if (busy)
        log_warn("kafka.revoke", "topic=%s what=\"a transaction with partitions that go is still open; their next owner waits for its "
                 "end\"", k->topic);
    return true;
}

static void revoke_answer(struct kafka_core *k)
{
    struct pending *q = &k->pending;
    int32_t *ids = mem_take((q->n + 1) * sizeof ids[0]);

    for (size_t i = 0; i < q->n; i++)
        ids[i] = q->place[i].partition;
    q->kind = PENDING_NONE;
    for (size_t i = 0; i < q->n; i++)
        partition_drop(k, ids[i]);
    k->client->ops->unassign(k->client, ids, q->n);
    free(ids);
}

/* One step towards the answer. false: it is not there yet. */
static bool pending_step(struct kafka_core *k, int timeout_ms)
{
    if (k->pending.kind == PENDING_ASSIGN) {
        if (!commits_read(k, timeout_ms))
            return false;
        assign_answer(k);
        return true;
    }
    if (!revoke_ready(k))
        return false;
    revoke_answer(k);
    return true;
}

static void offset_gone(struct kafka_core *k, const struct kafka_event *e)
{
    for (size_t i = 0; i < e->partitions_n; i++) {
        struct partition *p = partition_find(k, e->partitions[i]);

        if (p != NULL && !p->stopped)
            partition_stop(k, p, "the committed offset does not exist any more (retention, delete-records, or a topic made anew): records "
                           "without a result are gone. To go on, reset the group's offset (kafka-consumer-groups "
                           "--reset-offsets) and start once with kafka_ignore_foreign_metadata=1");
    }
}

static void away_log(struct kafka_core *k, const char *text)
{
    int64_t now = clock_mono_ns();

    if (k->away_logged_ns != 0 && now - k->away_logged_ns < LOG_AGAIN_NS)
        return;
    k->away_logged_ns = now;
    log_warn("kafka.away", "topic=%s what=\"%s\"", k->topic, text != NULL ? text : "no broker answers");
}

static status event_handle(struct kafka_core *k, const struct kafka_event *e, struct record **out, struct error *err)
{
    switch (e->kind) {
    case KAFKA_NOTHING:
        break;
    case KAFKA_MESSAGE:
        *out = message_take(k, &e->message);
        break;
    case KAFKA_ASSIGNED:
        pending_begin(k, PENDING_ASSIGN, e);
        break;
    case KAFKA_REVOKED:
        pending_begin(k, PENDING_REVOKE, e);
        revoke_begin(k);
        break;
    case KAFKA_LOST:
        pending_begin(k, PENDING_LOST, e);
        revoke_begin(k);
        break;
    case KAFKA_OFFSET_GONE:
        offset_gone(k, e);
        break;
    case KAFKA_AWAY:
        away_log(k, e->text);
        break;
    case KAFKA_OVER:
        return error_set(err, ST_FATAL, "the Kafka consumer of %s is over: %s", k->topic, e->text != NULL ? e->text : "no reason given");
    }
    return *out != NULL ? ST_OK : ST_AGAIN;
}

status kafka_core_poll(struct kafka_core *k, int timeout_ms, struct record **out, bool *busy, struct error *err)
{
    struct kafka_event e;

    *out = NULL;
    *busy = false;
    if (k->pending.kind != PENDING_NONE) {
        *busy = !pending_step(k, timeout_ms);
        return ST_AGAIN;
    }
    pauses_settle(k);
    if (!atomic_load(&k->stopping) && (*out = any_held_take(k)) != NULL)
        return ST_OK;
    memset(&e, 0, sizeof e);
    k->client->ops->poll(k->client, timeout_ms, &e);
    return event_handle(k, &e, out, err);
}

void kafka_core_pause(struct kafka_core *k, int32_t id, bool paused)
{
    struct partition *p = partition_find(k, id);

    if (p == NULL || !p->owned)
        return;
    p->paused_by_user = paused;
    pause_settle(k, p);
}

void kafka_poll_fini(struct kafka_core *k)
{
    free(k->pending.place);
}
