/* The consumer's half of the model client: one member of the group, the classic protocol with cooperative assignment as
 * librdkafka plays it. What the background learns waits here until the application polls and answers; the group metadata
 * changes at once, so it may be ahead of what the application has been told, or stale after a loss (facts 1.6). */
#include "tests/sim/model_consumer.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static struct model_client *self(struct kafka_client *k)
{
    return (struct model_client *)k;
}

static char *copy(const void *bytes, size_t n)
{
    char *out;

    if (bytes == NULL)
        return NULL;
    out = mem_take(n > 0 ? n : 1);                 /* exactly: a reader beyond the end is found by the sanitizer */
    memcpy(out, bytes, n);
    return out;
}

void model_record_copy(struct broker_record *to, const struct broker_record *from)
{
    *to = *from;
    to->key = copy(from->key, from->key_n);
    to->value = copy(from->value, from->value_n);
    to->headers = from->headers_n > 0 ? mem_take_zero(from->headers_n, sizeof to->headers[0]) : NULL;
    for (size_t i = 0; i < from->headers_n; i++)
        to->headers[i] = (struct header){ mem_copy_text(from->headers[i].name),
                                          copy(from->headers[i].value, from->headers[i].value_n), from->headers[i].value_n };
}

void model_record_fini(struct broker_record *r)
{
    for (size_t i = 0; i < r->headers_n; i++) {
        free((char *)(uintptr_t)r->headers[i].name);
        free((char *)(uintptr_t)r->headers[i].value);
    }
    free(r->headers);
    free(r->key);
    free(r->value);
    memset(r, 0, sizeof *r);
}

static void rule(struct model_client *c, bool kept, const char *what)
{
    if (!kept && !c->dead)
        c->setup.misused(c->setup.ctx, what);
}

/* ---- the background ---- */

/* The group has thrown this member out, or it left. What it held, another may hold already. */
static void membership_lost(struct model_client *c, bool member_gone, bool generation_gone)
{
    if (member_gone)
        c->member[0] = '\0';
    if (generation_gone)
        c->generation = -1;
    c->in_group = GROUP_OUT;
    c->to_assign = c->to_revoke = 0;
    c->assign_told = true;
    c->to_join = false;
    if (c->asked == ASKED_ASSIGN)
        c->owned |= c->asked_set;                  /* they go as they came: through the application's answer */
    c->to_lose = c->owned != 0;
    c->lost = c->to_lose;
}

static void assignment_take(struct model_client *c, uint32_t assigned)
{
    c->in_group = GROUP_IN;
    c->beaten_ns = clock_mono_ns();
    c->to_revoke = c->owned & ~assigned;
    c->to_assign = assigned & ~c->owned;
    c->assign_told = c->to_assign == 0 && !c->first;
    c->first = false;
    c->to_join = c->to_revoke != 0;
}

static void join(struct model_client *c)
{
    enum broker_error e;

    c->to_join = false;
    e = broker_join(c->setup.broker, c->member, c->owned);
    if (e == BROKER_UNKNOWN_MEMBER_ID)
        membership_lost(c, true, dice_one_in(c->setup.dice, 2));
    else
        c->in_group = GROUP_JOINING;
}

static bool unanswered(const struct model_client *c)
{
    return c->asked != ASKED_NOTHING || c->to_lose || c->to_revoke != 0 || !c->assign_told;
}

static void sync(struct model_client *c)
{
    uint32_t assigned = 0;
    bool wait;

    switch (broker_sync(c->setup.broker, c->member, c->generation, &assigned, &wait)) {
    case BROKER_OK:
        assignment_take(c, assigned);
        break;
    case BROKER_UNKNOWN_MEMBER_ID:
        membership_lost(c, true, dice_one_in(c->setup.dice, 2));
        break;
    case BROKER_ILLEGAL_GENERATION:
        join(c);
        break;
    default:
        if (!wait)
            join(c);
    }
}

static void heartbeat(struct model_client *c)
{
    if (clock_mono_ns() - c->beaten_ns < c->setup.heartbeat_ns)
        return;
    c->beaten_ns = clock_mono_ns();
    switch (broker_heartbeat(c->setup.broker, c->member, c->generation)) {
    case BROKER_REBALANCE_IN_PROGRESS:
        c->to_join = true;
        if (c->setup.eager && c->asked == ASKED_NOTHING && c->assign_told)
            c->to_revoke = c->owned;
        break;
    case BROKER_UNKNOWN_MEMBER_ID:
        membership_lost(c, true, dice_one_in(c->setup.dice, 2));
        break;
    case BROKER_ILLEGAL_GENERATION:
        membership_lost(c, false, true);
        break;
    default:
        break;
    }
}

void model_client_tick(struct model_client *c)
{
    uint32_t assigned;
    bool wait;

    if (c->dead)
        return;
    if (c->in_group != GROUP_OUT && clock_mono_ns() - c->polled_ns > c->setup.poll_max_ns) {
        if (!model_away(c))
            broker_leave(c->setup.broker, c->member);
        membership_lost(c, true, false);
        c->late = true;
    }
    if (model_away(c) || c->late)
        return;
    switch (c->in_group) {
    case GROUP_OUT:
        if (!unanswered(c))
            join(c);
        break;
    case GROUP_JOINING:
        if (broker_joined(c->setup.broker, c->member, &c->generation))
            c->in_group = GROUP_SYNCING;
        else if (broker_sync(c->setup.broker, c->member, -1, &assigned, &wait) == BROKER_UNKNOWN_MEMBER_ID)
            membership_lost(c, true, dice_one_in(c->setup.dice, 2));
        break;
    case GROUP_SYNCING:
        sync(c);
        break;
    default:
        heartbeat(c);
        if (c->in_group == GROUP_IN && c->to_join && !unanswered(c) && !(c->setup.eager && c->owned != 0))
            join(c);
    }
}

/* ---- events ---- */

static void tell(struct model_client *c, struct kafka_event *out, enum kafka_event_kind kind, uint32_t set)
{
    out->kind = kind;
    out->partitions = c->told;
    for (int p = 0; p < BROKER_PARTITIONS_MAX; p++)
        if (set >> p & 1)
            c->told[out->partitions_n++] = p;
}

static bool group_event(struct model_client *c, struct kafka_event *out)
{
    if (c->to_lose) {
        bool as_revoked = c->setup.faults->tells_lost_as_revoked && dice_one_in(c->setup.dice, 2);

        c->to_lose = false;
        c->asked = as_revoked ? ASKED_REVOKE : ASKED_LOST;
        c->asked_set = c->owned;
        c->lost = !as_revoked;
        tell(c, out, as_revoked ? KAFKA_REVOKED : KAFKA_LOST, c->owned);
    } else if (c->to_revoke != 0) {
        c->asked = ASKED_REVOKE;
        c->asked_set = c->to_revoke;
        c->to_revoke = 0;
        tell(c, out, KAFKA_REVOKED, c->asked_set);
    } else if (!c->assign_told) {
        c->assign_told = true;
        c->asked = ASKED_ASSIGN;
        c->asked_set = c->to_assign;
        c->to_assign = 0;
        tell(c, out, KAFKA_ASSIGNED, c->asked_set);
    } else {
        return false;
    }
    return true;
}

static bool message_event(struct model_client *c, struct kafka_event *out)
{
    struct broker *b = c->setup.broker;

    for (int i = 0; i < b->partitions_n; i++) {
        int p = (c->turn + i) % b->partitions_n;
        const struct broker_record *r;
        bool late = c->setup.faults->pauses_late && (c->just_paused >> p & 1);

        if (!((c->owned & ~c->gone) >> p & 1) || ((c->paused >> p & 1) && !late))
            continue;
        if (c->position[p] < broker_start(b, KAFKA_PROMPTS, p)) {
            c->gone |= UINT32_C(1) << p;
            tell(c, out, KAFKA_OFFSET_GONE, UINT32_C(1) << p);
            return true;
        }
        r = broker_fetch(b, KAFKA_PROMPTS, p, c->position[p], true);
        if (r == NULL)
            continue;
        c->just_paused &= ~(UINT32_C(1) << p);
        if (c->setup.delivered != NULL)
            c->setup.delivered(c->setup.worker, p, r->offset, c->fresh >> p & 1);
        c->fresh &= ~(UINT32_C(1) << p);
        c->turn = p + (int)dice_below(c->setup.dice, 2);
        c->position[p] = r->offset + 1;
        model_record_copy(&c->held, r);
        out->kind = KAFKA_MESSAGE;
        out->message = (struct kafka_message){ .partition = p, .offset = r->offset, .timestamp_ms = r->timestamp_ms,
                                               .key = c->held.key, .key_n = c->held.key_n, .value = c->held.value,
                                               .value_n = c->held.value_n, .headers = c->held.headers,
                                               .headers_n = c->held.headers_n };
        return true;
    }
    return false;
}

void model_poll(struct kafka_client *kc, int timeout_ms, struct kafka_event *out)
{
    struct model_client *c = self(kc);

    (void)timeout_ms;                              /* whoever polls in the simulation comes again by itself */
    memset(out, 0, sizeof *out);
    model_record_fini(&c->held);
    if (c->dead)
        return;
    rule(c, c->asked == ASKED_NOTHING, "poll before an event was answered");
    c->polled_ns = clock_mono_ns();
    c->late = false;
    if (c->over) {
        out->kind = KAFKA_OVER;
        out->text = "the consumer has met an error that it cannot recover from";
        return;
    }
    if (group_event(c, out))
        return;
    if (model_away(c)) {
        if (dice_one_in(c->setup.dice, 4)) {
            out->kind = KAFKA_AWAY;
            out->text = "all brokers are down";
        }
        return;
    }
    if (c->in_group != GROUP_OUT)
        (void)message_event(c, out);
}

void model_assign(struct kafka_client *kc, const struct kafka_place *places, size_t n)
{
    struct model_client *c = self(kc);
    uint32_t set = 0;

    if (c->dead)
        return;
    rule(c, c->asked == ASKED_ASSIGN, "assign without its event");
    for (size_t i = 0; i < n; i++) {
        int32_t p = places[i].partition;

        rule(c, p >= 0 && p < c->setup.broker->partitions_n && (c->asked_set >> p & 1),
             "assign of a partition that did not come");
        rule(c, places[i].offset >= 0 || places[i].offset == KAFKA_EARLIEST, "assign without a place");
        set |= UINT32_C(1) << p;
        c->position[p] = places[i].offset == KAFKA_EARLIEST ? broker_start(c->setup.broker, KAFKA_PROMPTS, p) : places[i].offset;
    }
    for (int p = 0; c->setup.faults->delivers_again && p < c->setup.broker->partitions_n; p++)
        if ((c->owned & ~set) >> p & 1 && c->position[p] > broker_start(c->setup.broker, KAFKA_PROMPTS, p))
            c->position[p] -= dice_below(c->setup.dice, (int)(c->position[p] - broker_start(c->setup.broker, KAFKA_PROMPTS, p)));
    c->owned |= c->asked_set;
    c->paused &= ~c->asked_set;
    c->just_paused &= ~c->asked_set;
    c->fresh |= c->asked_set;
    c->gone &= ~c->asked_set;
    c->gone |= c->asked_set & ~set;                /* not answered with a place: it is held, and nothing is fetched */
    c->asked = ASKED_NOTHING;
}

void model_unassign(struct kafka_client *kc, const int32_t *partitions, size_t n)
{
    struct model_client *c = self(kc);
    uint32_t set = 0;

    if (c->dead)
        return;
    rule(c, c->asked == ASKED_REVOKE || c->asked == ASKED_LOST, "unassign without its event");
    for (size_t i = 0; i < n; i++)
        set |= UINT32_C(1) << partitions[i];
    rule(c, set == c->asked_set, "unassign of other partitions than those that go");
    c->owned &= ~c->asked_set;
    c->paused &= ~c->asked_set;
    c->asked = ASKED_NOTHING;
    if (c->owned == 0)
        c->lost = c->to_lose = false;
    else if (c->lost)
        c->to_lose = true;                         /* lost while a revocation was under way: the rest goes, too */
}

void model_pause(struct kafka_client *kc, int32_t partition, bool paused)
{
    struct model_client *c = self(kc);

    if (c->dead)
        return;
    rule(c, c->owned >> partition & 1, "pause of a partition that is not assigned");
    rule(c, paused != (c->paused >> partition & 1), "pause of what is paused, or resume of what is not");
    c->paused ^= UINT32_C(1) << partition;
    c->just_paused &= ~(UINT32_C(1) << partition);
    if (!paused)
        c->fresh |= UINT32_C(1) << partition;
    else if (dice_one_in(c->setup.dice, 3))
        c->just_paused |= UINT32_C(1) << partition;
}

void model_group(struct kafka_client *kc, struct kafka_group *out)
{
    struct model_client *c = self(kc);

    memset(out, 0, sizeof *out);
    out->generation = c->generation;
    strcpy(out->member, c->member);
    out->lost = c->lost;
}

int64_t model_end(struct kafka_client *kc, int32_t partition)
{
    struct model_client *c = self(kc);

    return c->dead ? -1 : broker_stable(c->setup.broker, KAFKA_PROMPTS, partition);
}

size_t model_metadata_max(struct kafka_client *kc)
{
    struct model_client *c = self(kc);

    return c->setup.broker->metadata_max;
}

enum kafka_answer model_committed(struct kafka_client *kc, struct kafka_place *places, size_t n, int timeout_ms,
                                  struct error *err)
{
    struct model_client *c = self(kc);
    const struct call k = { .request = MODEL_OFFSET_FETCH, .places = places, .places_n = n };
    enum kafka_answer answer;

    if (c->dead)
        return KAFKA_UNKNOWN;
    rule(c, n <= BROKER_PARTITIONS_MAX, "more partitions than there are");
    answer = model_call(c, &k, timeout_ms * NS_PER_MS, err);
    for (size_t i = 0; i < n && answer == KAFKA_OK; i++) {
        places[i].offset = c->fetched[i].offset;
        places[i].metadata = c->fetched[i].metadata;
    }
    return answer;
}

void model_leave(struct kafka_client *kc, int64_t deadline_ns)
{
    struct model_client *c = self(kc);

    (void)deadline_ns;
    if (c->dead)
        return;
    if (!model_away(c))
        broker_leave(c->setup.broker, c->member);
    membership_lost(c, true, true);
    c->owned = 0;
    c->lost = c->to_lose = false;
    c->asked = ASKED_NOTHING;
    c->late = true;                                /* it does not join again by itself */
}
