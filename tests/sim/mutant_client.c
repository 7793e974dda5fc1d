#include "tests/sim/mutant_client.h"

#include <stdlib.h>
#include <string.h>

#include "tests/sim/model_consumer.h"

struct mutant_client {
    struct kafka_client client;
    struct kafka_client *inner;
    enum mutant mutant;
    struct kafka_group good;                       /* NO_GUARD: the last one that was sound */
    int64_t seen[BROKER_PARTITIONS_MAX];           /* HIGHEST_SEEN */
    uint32_t hidden;                               /* STALE_OWNED: gone, and not told */
    struct kafka_event kept;                       /* ... an assignment that has to wait until it is */
    int32_t kept_partitions[BROKER_PARTITIONS_MAX], told[BROKER_PARTITIONS_MAX];
    bool telling;
    struct outgoing *outbox; size_t outbox_n;      /* COMMIT_FIRST */
    bool swallow_abort;                            /* UNKNOWN_IS_FAILED */
};

static struct mutant_client *self(struct kafka_client *k)
{
    return (struct mutant_client *)k;
}

const char *mutant_name(enum mutant m)
{
    static const char *const names[MUTANTS_N] = {
        "none", "commit before produce", "commit the highest seen", "no generation guard", "stale owned set after a revoke",
        "no stable read", "ignore the store's -1", "an unknown commit is done", "an unknown commit has failed",
    };

    return names[m];
}

static uint32_t set_of(const int32_t *partitions, size_t n)
{
    uint32_t set = 0;

    for (size_t i = 0; i < n; i++)
        set |= UINT32_C(1) << partitions[i];
    return set;
}

/* ---- consumer ---- */

static void revoke_hide(struct mutant_client *m, struct kafka_event *e)
{
    m->hidden |= set_of(e->partitions, e->partitions_n);
    m->inner->ops->unassign(m->inner, e->partitions, e->partitions_n);
    memset(e, 0, sizeof *e);
}

/* What was hidden comes back: only now the queue hears that it was gone. */
static void revoke_tell_late(struct mutant_client *m, struct kafka_event *e, uint32_t back)
{
    m->kept = *e;
    for (size_t i = 0; i < e->partitions_n; i++)
        m->kept_partitions[i] = e->partitions[i];
    m->kept.partitions = m->kept_partitions;
    memset(e, 0, sizeof *e);
    e->kind = KAFKA_REVOKED;
    e->partitions = m->told;
    for (int32_t p = 0; p < BROKER_PARTITIONS_MAX; p++)
        if (back >> p & 1)
            m->told[e->partitions_n++] = p;
    m->hidden &= ~back;
    m->telling = true;
}

static void mutant_poll(struct kafka_client *k, int timeout_ms, struct kafka_event *out)
{
    struct mutant_client *m = self(k);

    if (m->kept.kind != KAFKA_NOTHING) {
        *out = m->kept;
        m->kept.kind = KAFKA_NOTHING;
        return;
    }
    m->inner->ops->poll(m->inner, timeout_ms, out);
    if (m->mutant == MUTANT_HIGHEST_SEEN && out->kind == KAFKA_MESSAGE && out->message.offset > m->seen[out->message.partition])
        m->seen[out->message.partition] = out->message.offset;
    if (m->mutant != MUTANT_STALE_OWNED)
        return;
    if (out->kind == KAFKA_REVOKED)
        revoke_hide(m, out);
    else if (out->kind == KAFKA_ASSIGNED && (m->hidden & set_of(out->partitions, out->partitions_n)) != 0)
        revoke_tell_late(m, out, m->hidden & set_of(out->partitions, out->partitions_n));
}

static enum kafka_answer mutant_committed(struct kafka_client *k, struct kafka_place *places, size_t n, int timeout_ms,
                                          struct error *err)
{
    return self(k)->inner->ops->committed(self(k)->inner, places, n, timeout_ms, err);
}

static void mutant_assign(struct kafka_client *k, const struct kafka_place *places, size_t n)
{
    self(k)->inner->ops->assign(self(k)->inner, places, n);
}

static void mutant_unassign(struct kafka_client *k, const int32_t *partitions, size_t n)
{
    struct mutant_client *m = self(k);

    if (m->telling)
        m->telling = false;                        /* the library has long forgotten them */
    else
        m->inner->ops->unassign(m->inner, partitions, n);
}

static void mutant_pause(struct kafka_client *k, int32_t partition, bool paused)
{
    struct mutant_client *m = self(k);

    if (!(m->hidden >> partition & 1))
        m->inner->ops->pause(m->inner, partition, paused);
}

static void mutant_group(struct kafka_client *k, struct kafka_group *out)
{
    struct mutant_client *m = self(k);

    m->inner->ops->group(m->inner, out);
    if (m->mutant != MUTANT_NO_GUARD)
        return;
    if (out->generation >= 0 && out->member[0] != '\0' && !out->lost)
        m->good = *out;
    else if (m->good.member[0] != '\0')
        *out = m->good;
}

static int64_t mutant_end(struct kafka_client *k, int32_t partition)
{
    return self(k)->inner->ops->end(self(k)->inner, partition);
}

/* ---- producer ---- */

static void outbox_clear(struct mutant_client *m)
{
    for (size_t i = 0; i < m->outbox_n; i++)
        model_record_fini(&m->outbox[i].record);
    m->outbox_n = 0;
}

static enum kafka_answer mutant_init(struct kafka_client *k, struct error *err)
{
    return self(k)->inner->ops->init(self(k)->inner, err);
}

static enum kafka_answer mutant_begin(struct kafka_client *k, struct error *err)
{
    outbox_clear(self(k));
    return self(k)->inner->ops->begin(self(k)->inner, err);
}

static enum kafka_answer mutant_produce(struct kafka_client *k, enum kafka_topic topic, const void *key, size_t key_n,
                                        const void *value, size_t value_n, const struct header *headers, size_t headers_n,
                                        struct error *err)
{
    struct mutant_client *m = self(k);
    const struct broker_record from = { .key = (char *)(uintptr_t)key, .key_n = key_n, .value = (char *)(uintptr_t)value,
                                        .value_n = value_n, .headers = (struct header *)(uintptr_t)headers,
                                        .headers_n = headers_n };

    if (m->mutant != MUTANT_COMMIT_FIRST)
        return m->inner->ops->produce(m->inner, topic, key, key_n, value, value_n, headers, headers_n, err);
    m->outbox = mem_grow(m->outbox, (m->outbox_n + 1) * sizeof m->outbox[0]);
    m->outbox[m->outbox_n] = (struct outgoing){ .topic = topic };
    model_record_copy(&m->outbox[m->outbox_n++].record, &from);
    return KAFKA_OK;
}

static enum kafka_answer outbox_send(struct mutant_client *m, struct error *err)
{
    enum kafka_answer answer = m->inner->ops->commit(m->inner, err);

    if (answer == KAFKA_OK)
        answer = m->inner->ops->begin(m->inner, err);
    for (size_t i = 0; i < m->outbox_n && answer == KAFKA_OK; i++) {
        const struct broker_record *r = &m->outbox[i].record;

        do
            answer = m->inner->ops->produce(m->inner, m->outbox[i].topic, r->key, r->key_n, r->value, r->value_n, r->headers,
                                            r->headers_n, err);
        while (answer == KAFKA_AGAIN);
    }
    return answer;
}

static enum kafka_answer mutant_offsets(struct kafka_client *k, const struct kafka_place *places, size_t n,
                                        const struct kafka_group *as, struct error *err)
{
    struct mutant_client *m = self(k);
    struct kafka_place lies[BROKER_PARTITIONS_MAX];
    struct kafka_group real;
    enum kafka_answer answer;

    m->inner->ops->group(m->inner, &real);
    for (size_t i = 0; i < n; i++)
        lies[i] = m->mutant == MUTANT_HIGHEST_SEEN
                  ? (struct kafka_place){ places[i].partition, m->seen[places[i].partition] + 1, "W1:-:" } : places[i];
    answer = m->inner->ops->offsets(m->inner, lies, n, m->mutant == MUTANT_NO_GUARD ? &real : as, err);
    return answer == KAFKA_OK && m->mutant == MUTANT_COMMIT_FIRST ? outbox_send(m, err) : answer;
}

static enum kafka_answer mutant_commit(struct kafka_client *k, struct error *err)
{
    struct mutant_client *m = self(k);
    enum kafka_answer answer = m->inner->ops->commit(m->inner, err);

    if (answer != KAFKA_UNKNOWN || (m->mutant != MUTANT_UNKNOWN_IS_DONE && m->mutant != MUTANT_UNKNOWN_IS_FAILED))
        return answer;
    m->inner->ops->remake(m->inner, err);
    while ((answer = m->inner->ops->init(m->inner, err)) == KAFKA_AGAIN)
        ;
    if (answer != KAFKA_OK)
        return KAFKA_UNKNOWN;
    m->swallow_abort = m->mutant == MUTANT_UNKNOWN_IS_FAILED;
    return m->swallow_abort ? KAFKA_ABORT : KAFKA_OK;
}

static enum kafka_answer mutant_abort(struct kafka_client *k, struct error *err)
{
    struct mutant_client *m = self(k);

    if (m->swallow_abort) {
        m->swallow_abort = false;
        return KAFKA_OK;
    }
    return m->inner->ops->abort(m->inner, err);
}

static enum kafka_answer mutant_remake(struct kafka_client *k, struct error *err)
{
    return self(k)->inner->ops->remake(self(k)->inner, err);
}

static int64_t mutant_value_max(struct kafka_client *k, enum kafka_topic topic)
{
    return self(k)->inner->ops->value_max(self(k)->inner, topic);
}

static size_t mutant_metadata_max(struct kafka_client *k)
{
    return self(k)->inner->ops->metadata_max(self(k)->inner);
}

static void mutant_leave(struct kafka_client *k, int64_t deadline_ns)
{
    self(k)->inner->ops->leave(self(k)->inner, deadline_ns);
}

static void mutant_close(struct kafka_client *k)
{
    self(k)->inner->ops->close(self(k)->inner);
}

static const struct kafka_client_ops mutant_ops = {
    .poll = mutant_poll, .committed = mutant_committed, .assign = mutant_assign, .unassign = mutant_unassign,
    .pause = mutant_pause, .group = mutant_group, .end = mutant_end, .init = mutant_init, .begin = mutant_begin,
    .produce = mutant_produce, .offsets = mutant_offsets, .commit = mutant_commit, .abort = mutant_abort,
    .remake = mutant_remake, .value_max = mutant_value_max, .metadata_max = mutant_metadata_max, .leave = mutant_leave,
    .close = mutant_close,
};

struct kafka_client *mutant_client_open(struct model_client *model, enum mutant mutant)
{
    struct mutant_client *m = mem_take_zero(1, sizeof *m);

    m->client.ops = &mutant_ops;
    m->inner = model_client_border(model);
    m->mutant = mutant;
    for (int p = 0; p < BROKER_PARTITIONS_MAX; p++)
        m->seen[p] = -1;
    if (mutant == MUTANT_UNSTABLE_READ)
        model_client_read_unstable(model);
    return &m->client;
}

void mutant_client_free(struct kafka_client *c)
{
    if (c == NULL)
        return;
    outbox_clear(self(c));
    free(self(c)->outbox);
    free(c);
}
