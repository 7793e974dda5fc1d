/* One consumer group of the classic protocol. A rebalance has two halves: PREPARING until every member has joined again
 * (the old generation still commits), COMPLETING until the leader has sent the assignment (only the new one does).
 * The assignor is cooperative: a partition that moves is first taken from its owner, who joins again without it, and only
 * then given to the next. */
#include "tests/sim/model_group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define COMPLETING_NS (200 * NS_PER_MS)      /* at most */

void group_fini(struct broker *b)
{
    for (int p = 0; p < BROKER_PARTITIONS_MAX; p++)
        free(b->committed[p].metadata);
    for (size_t i = 0; i < b->pending_n; i++)
        free(b->pending[i].at.metadata);
    free(b->pending);
}

static struct broker_member *member_of(const struct broker *b, const char *id)
{
    for (int i = 0; i < b->members_n; i++)
        if (strcmp(b->member[i].id, id) == 0)
            return (struct broker_member *)(uintptr_t)&b->member[i];
    return NULL;
}

/* ClassicGroup.validateOffsetCommit, transactional. */
enum broker_error group_fence(const struct broker *b, int32_t generation, const char *member)
{
    if (generation < 0 && b->state == GROUP_EMPTY)
        return BROKER_OK;
    if (generation < 0 && member[0] == '\0')
        return BROKER_OK;                    /* as if from a client of before the fence */
    if (b->members_born_n == 0)
        return BROKER_ILLEGAL_GENERATION;    /* no such group */
    if (member_of(b, member) == NULL)
        return BROKER_UNKNOWN_MEMBER_ID;
    return generation == b->generation ? BROKER_OK : BROKER_ILLEGAL_GENERATION;
}

/* The same, not transactional: stricter about who is nobody, and refused while the assignment is being made. */
enum broker_error group_fence_plain(const struct broker *b, int32_t generation, const char *member)
{
    enum broker_error e;

    if (generation < 0 && member[0] == '\0')
        return b->state == GROUP_EMPTY ? BROKER_OK : BROKER_UNKNOWN_MEMBER_ID;
    e = group_fence(b, generation, member);
    return e == BROKER_OK && b->state == GROUP_COMPLETING ? BROKER_REBALANCE_IN_PROGRESS : e;
}

/* ---- offsets ---- */

static struct broker_offset offset_make(struct broker *b, const struct kafka_place *place)
{
    return (struct broker_offset){ place->offset, mem_copy_text(place->metadata != NULL ? place->metadata : ""),
                                   ++b->offsets_order };
}

void group_offset_set(struct broker *b, const struct kafka_place *place)
{
    free(b->committed[place->partition].metadata);
    b->committed[place->partition] = offset_make(b, place);
}

void group_offset_pend(struct broker *b, int txn, const struct kafka_place *place)
{
    struct broker_pending *at = NULL;

    for (size_t i = 0; i < b->pending_n; i++)
        if (b->pending[i].txn == txn && b->pending[i].partition == place->partition)
            at = &b->pending[i];
    if (at == NULL) {
        b->pending = mem_grow(b->pending, (b->pending_n + 1) * sizeof b->pending[0]);
        at = &b->pending[b->pending_n++];
        memset(at, 0, sizeof *at);
    }
    free(at->at.metadata);
    *at = (struct broker_pending){ place->partition, txn, offset_make(b, place) };
}

/* The marker in the offsets topic: what is pending becomes the commit, unless a later record is there already. */
void group_txn_end(struct broker *b, int txn, bool commit)
{
    for (size_t i = 0; i < b->pending_n;) {
        struct broker_pending p = b->pending[i];
        struct broker_offset *to = &b->committed[p.partition];

        if (p.txn != txn) {
            i++;
            continue;
        }
        if (commit && p.at.order > to->order) {
            free(to->metadata);
            *to = p.at;
        } else {
            free(p.at.metadata);
        }
        b->pending[i] = b->pending[--b->pending_n];
    }
}

enum broker_error broker_offset_fetch(const struct broker *b, int32_t partition, bool stable, int64_t *offset,
                                      const char **metadata)
{
    const struct broker_offset *at = &b->committed[partition];

    *offset = at->metadata != NULL ? at->offset : -1;
    *metadata = at->metadata;
    for (size_t i = 0; stable && i < b->pending_n; i++)
        if (b->pending[i].partition == partition)
            return BROKER_UNSTABLE_OFFSET_COMMIT;
    return BROKER_OK;
}

/* ---- members ---- */

static void prepare(struct broker *b)
{
    if (b->state == GROUP_PREPARING)
        return;
    b->state = b->members_n > 0 ? GROUP_PREPARING : GROUP_EMPTY;
    b->state_ends_ns = clock_mono_ns() + b->rebalance_ns;
    for (int i = 0; i < b->members_n; i++)
        b->member[i].joined = false;
}

static void member_drop(struct broker *b, int i)
{
    memmove(&b->member[i], &b->member[i + 1], (size_t)(--b->members_n - i) * sizeof b->member[0]);
    if (b->members_n == 0)
        b->state = GROUP_EMPTY;
    else
        prepare(b);
}

static int bits(uint32_t set)
{
    return __builtin_popcount(set);
}

/* Who holds what may keep up to its share; the rest of it is taken now and given in the next round. */
static void assign(struct broker *b)
{
    uint32_t free_set = (UINT32_C(1) << b->partitions_n) - 1, doubly = 0, seen = 0;
    int share = b->partitions_n / b->members_n, larger_n = b->partitions_n % b->members_n;

    for (int i = 0; i < b->members_n; i++) {
        doubly |= seen & b->member[i].claims;
        seen |= b->member[i].claims;
    }
    for (int i = 0; i < b->members_n; i++) {
        struct broker_member *m = &b->member[i];
        uint32_t claims = m->claims & ~doubly;
        int quota = share;

        free_set &= ~claims;
        if (bits(claims) > share && larger_n > 0) {
            quota++;
            larger_n--;
        }
        m->assigned = 0;
        for (int p = 0; p < b->partitions_n && bits(m->assigned) < quota; p++)
            m->assigned |= claims & UINT32_C(1) << p;
    }
    for (int p = 0; p < b->partitions_n; p++) {
        int first = dice_below(b->dice, b->members_n);

        for (int k = 0; k < b->members_n && (free_set >> p & 1); k++) {
            struct broker_member *m = &b->member[(first + k) % b->members_n];

            if (bits(m->assigned) < share || (bits(m->assigned) == share && larger_n > 0)) {
                larger_n -= bits(m->assigned) == share;
                m->assigned |= UINT32_C(1) << p;
                free_set &= ~(UINT32_C(1) << p);
            }
        }
    }
}

static void prepared(struct broker *b, int64_t now)
{
    bool all = true;

    for (int i = 0; i < b->members_n; i++)
        all = all && b->member[i].joined;
    if (!all && now < b->state_ends_ns)
        return;
    for (int i = b->members_n - 1; i >= 0; i--)
        if (!b->member[i].joined)
            memmove(&b->member[i], &b->member[i + 1], (size_t)(--b->members_n - i) * sizeof b->member[0]);
    b->generation++;
    if (b->members_n == 0) {
        b->state = GROUP_EMPTY;
        return;
    }
    assign(b);
    b->shared_n = b->partitions_n;
    b->state = GROUP_COMPLETING;
    b->state_ends_ns = now + (int64_t)(dice_next(b->dice) % (uint64_t)COMPLETING_NS);
    broker_sessions_renew(b);
}

void group_tick(struct broker *b, int64_t now)
{
    for (int i = b->members_n - 1; i >= 0; i--)
        if (now >= b->member[i].session_ends_ns && !(b->state == GROUP_PREPARING && b->member[i].joined))
            member_drop(b, i);
    if (b->state == GROUP_PREPARING)
        prepared(b, now);
    else if (b->state == GROUP_COMPLETING && now >= b->state_ends_ns)
        b->state = GROUP_STABLE;
    else if (b->state == GROUP_STABLE && b->shared_n != b->partitions_n)
        prepare(b);                          /* the leader has seen new partitions */
}

void broker_sessions_renew(struct broker *b)
{
    for (int i = 0; i < b->members_n; i++)
        b->member[i].session_ends_ns = clock_mono_ns() + b->session_ns;
}

enum broker_error broker_join(struct broker *b, char member[32], uint32_t claims)
{
    struct broker_member *m;

    if (member[0] == '\0') {
        ASSERT(b->members_n < BROKER_MEMBERS_MAX);
        m = &b->member[b->members_n++];
        memset(m, 0, sizeof *m);
        snprintf(m->id, sizeof m->id, "member-%d", ++b->members_born_n);
        strcpy(member, m->id);
    } else if ((m = member_of(b, member)) == NULL) {
        return BROKER_UNKNOWN_MEMBER_ID;
    }
    prepare(b);
    m->joined = true;
    m->claims = claims;
    m->session_ends_ns = clock_mono_ns() + b->session_ns;
    return BROKER_OK;
}

bool broker_joined(const struct broker *b, const char *member, int32_t *generation)
{
    const struct broker_member *m = member_of(b, member);

    if (m == NULL || !m->joined || b->state == GROUP_PREPARING)
        return false;
    *generation = b->generation;
    return true;
}

enum broker_error broker_sync(const struct broker *b, const char *member, int32_t generation, uint32_t *assigned, bool *wait)
{
    const struct broker_member *m = member_of(b, member);

    *wait = false;
    if (m == NULL)
        return BROKER_UNKNOWN_MEMBER_ID;
    if (generation != b->generation)
        return BROKER_ILLEGAL_GENERATION;
    *wait = b->state == GROUP_COMPLETING;
    if (b->state != GROUP_STABLE)
        return BROKER_REBALANCE_IN_PROGRESS;
    *assigned = m->assigned;
    return BROKER_OK;
}

enum broker_error broker_heartbeat(struct broker *b, const char *member, int32_t generation)
{
    struct broker_member *m = member_of(b, member);

    if (m == NULL)
        return BROKER_UNKNOWN_MEMBER_ID;
    if (generation != b->generation)
        return BROKER_ILLEGAL_GENERATION;
    m->session_ends_ns = clock_mono_ns() + b->session_ns;
    return b->state == GROUP_PREPARING ? BROKER_REBALANCE_IN_PROGRESS : BROKER_OK;
}

void broker_leave(struct broker *b, const char *member)
{
    const struct broker_member *m = member_of(b, member);

    if (m != NULL)
        member_drop(b, (int)(m - b->member));
}

void broker_rebalance(struct broker *b)
{
    if (b->members_n > 0 && b->state == GROUP_STABLE)
        prepare(b);
}
