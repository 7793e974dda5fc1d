/* A worker as the queue and the store see it: the real core of the Kafka queue, the real frames, a model of one line for a
 * model. Its sides (poll, decode, save, commit) are stepped apart; a step makes at most one call to the outside. */
#include <inttypes.h>
#include <stdlib.h>

#include "tests/sim/sim.h"

#define LOADS_MAX 8                    /* then it starts from token 0: the store is a cache */
#define REACQUIRE_NS NS_PER_S
#define PROBE_NS (30 * NS_PER_S)

static struct ckpt_key key_of(const struct record *r)
{
    return (struct ckpt_key){ SIM_JOB, r->source, r->offset, 0 };
}

static struct ckpt_identity identity_of(const struct record *r)
{
    return (struct ckpt_identity){ .record = hash128(r->value, r->value_n), .seed = 7 };
}

static struct holding *holding_find(struct sim_worker *w, int32_t source, uint32_t lease)
{
    for (int i = 0; i < w->holdings_n; i++)
        if (w->holding[i].source == source && w->holding[i].lease == lease)
            return &w->holding[i];
    return NULL;
}

static void flight_free(struct flight *f)
{
    kafka_record_free(f->rec);
    free(f);
}

static void flight_drop(struct sim_worker *w, const struct flight *f)
{
    for (int i = 0; i < w->flights_n; i++)
        if (w->flight[i] == f) {
            flight_free(w->flight[i]);
            w->flight[i] = w->flight[--w->flights_n];
            return;
        }
}

/* ---- saving ---- */

/* The store does not answer: the caller waits for its time-out, and the other sides go on. What was looked up before may be
 * gone then. */
static bool store_hangs(struct sim_worker *w)
{
    if (w->s->now_ns >= w->s->store_hangs_until_ns)
        return w->in_store;                    /* one connection, one call at a time */
    if (!w->in_store) {
        w->in_store = true;
        sim_pass(w->s, w->s->cfg.checkpoint_timeout_ms * NS_PER_MS);
        w->in_store = false;
    }
    return true;
}

static bool token_take(struct sim_worker *w, struct holding *h)
{
    uint64_t *newest = &w->s->newest_token[h->source];

    if (h->have)
        return true;
    if (w->s->now_ns < h->again_ns)
        return false;
    h->again_ns = w->s->now_ns + REACQUIRE_NS;
    if (ckpt_acquire(w->store, SIM_JOB, h->source, &h->token) != ST_OK)
        return false;
    h->have = true;
    if (h->token > *newest)
        *newest = h->token;
    sim_tell(w->s, "%" PRId64 " has token %" PRIu64 " of %" PRId32, w->born, h->token, h->source);
    return true;
}

static void item_saved(struct sim_worker *w, struct flight *f, const struct holding *h, status st, bool ok)
{
    struct check_input *in = check_input_find(&w->s->check, f->rec->source, f->rec->offset);
    uint64_t *newest = &w->s->newest_token[h->source];

    if (ok && st != ST_FENCED && h->token < *newest)
        check_wrong(&w->s->check, "I7: a save of %" PRId32 "/%" PRId64 " with an older token was taken", f->rec->source,
                    f->rec->offset);
    if (ok) {
        in->rotten = in->rotten && f->saved_n > 0;
        f->saved_n = f->tokens_n;
        in->saved_n = f->tokens_n;
        if (h->token > *newest)
            *newest = h->token;
    } else if (st == ST_AGAIN) {
        f->saved_n = 0;
    } else if (st == ST_RETRY && in->saved_n > f->tokens_n) {
        in->saved_n = f->tokens_n;     /* perhaps replaced by the shorter one */
    }
}

/* Saves what is new of one source. */
static void source_save(struct sim_worker *w, struct holding *h)
{
    struct ckpt_save_item items[SIM_FLIGHTS_MAX];
    struct flight *of[SIM_FLIGHTS_MAX];
    uint8_t ok[SIM_FLIGHTS_MAX] = { 0 };
    size_t n = 0;
    status st;

    if (store_hangs(w) || !token_take(w, h))
        return;
    for (int i = 0; i < w->flights_n; i++) {
        struct flight *f = w->flight[i];

        if (f->rec->source != h->source || f->rec->lease != h->lease || f->lost || f->tokens_n <= f->saved_n)
            continue;
        of[n] = f;
        items[n++] = (struct ckpt_save_item){ key_of(f->rec), identity_of(f->rec), f->tokens, f->tokens_n, f->saved_n };
    }
    if (n == 0)
        return;
    st = ckpt_save(w->store, h->token, items, n, ok);
    sim_tell(w->s, "%" PRId64 " saves %zu of %" PRId32 ": %s", w->born, n, h->source, status_name(st));
    if (st == ST_FENCED && w->s->mutant == MUTANT_IGNORE_FENCED)
        memset(ok, 1, n);
    for (size_t i = 0; i < n; i++)
        item_saved(w, of[i], h, st, ok[i]);
    if (st == ST_FENCED && w->s->mutant != MUTANT_IGNORE_FENCED) {
        h->have = false;               /* we still hold the source, as far as we know: take the token back, once a second */
        h->again_ns = w->s->now_ns + REACQUIRE_NS;
    }
}

/* ---- the queue's events ---- */

static void on_gained(void *ctx, int32_t source, uint32_t lease)
{
    struct sim_worker *w = ctx;

    sim_tell(w->s, "%" PRId64 " gains %" PRId32 " (lease %" PRIu32 ")", w->born, source, lease);
    w->paused &= ~(UINT32_C(1) << source);
    for (int i = 0; i < w->holdings_n; i++)
        if (w->holding[i].source == source || w->holding[i].lease >= lease)
            check_wrong(&w->s->check, "%" PRId32 " was gained with lease %" PRIu32 ", though lease %" PRIu32 " of %" PRId32
                        " is held", source, lease, w->holding[i].lease, w->holding[i].source);
    if (w->holdings_n == BROKER_PARTITIONS_MAX)
        check_wrong(&w->s->check, "a source was gained that had not been lost");
    else
        w->holding[w->holdings_n++] = (struct holding){ .source = source, .lease = lease };
    if (!w->s->calm && dice_one_in(&w->s->dice, 10)) {
        w->paused |= UINT32_C(1) << source;
        sim_tell(w->s, "%" PRId64 " pauses %" PRId32, w->born, source);
        kafka_core_pause(w->core, source, true);
    }
}

static void holding_end(struct sim_worker *w, struct holding *h)
{
    for (int i = w->flights_n - 1; i >= 0; i--) {
        struct flight *f = w->flight[i];

        if (f->rec->source != h->source || f->rec->lease != h->lease)
            continue;
        if (f->committing)
            f->lost = true;            /* the group under way has it on its list */
        else
            flight_drop(w, f);
    }
    *h = w->holding[--w->holdings_n];
}

static void on_lost(void *ctx, int32_t source, uint32_t lease, bool already)
{
    struct sim_worker *w = ctx;
    struct holding *h = holding_find(w, source, lease);

    sim_tell(w->s, "%" PRId64 " loses %" PRId32 " (lease %" PRIu32 ")%s", w->born, source, lease, already ? " already" : "");
    if (h == NULL)
        check_wrong(&w->s->check, "a source was lost that had not been gained");
    else if (already)
        holding_end(w, h);
    else
        h->going = true;
}

static bool going_finished(const struct sim_worker *w, const struct holding *h)
{
    for (int i = 0; i < w->flights_n; i++) {
        const struct flight *f = w->flight[i];

        if (f->rec->source == h->source && f->rec->lease == h->lease && f->loaded && f->tokens_n >= f->prompt.tokens_n)
            return true;
    }
    return false;
}

/* Saves, and commits what has ended, while there is time; then it is over with what goes. */
static void on_lost_wait(void *ctx, int64_t deadline_ns)
{
    struct sim_worker *w = ctx;
    bool finished;

    do {
        finished = false;
        for (int i = 0; i < w->holdings_n; i++)
            if (w->holding[i].going) {
                source_save(w, &w->holding[i]);
                finished |= going_finished(w, &w->holding[i]);
            }
        if (finished && w->s->now_ns < deadline_ns)
            sim_pass(w->s, 20 * NS_PER_MS);
    } while (finished && w->s->now_ns < deadline_ns && !w->over);
    for (int i = w->holdings_n - 1; i >= 0; i--)
        if (w->holding[i].going)
            holding_end(w, &w->holding[i]);
}

/* I11: what is beyond the window is held and the partition pauses; one more may be on its way. */
static void on_delivered(void *worker, int32_t partition, int64_t offset, bool first)
{
    struct sim_worker *w = worker;
    int64_t lowest = INT64_MAX;

    for (int i = 0; i < w->flights_n; i++) {
        const struct flight *f = w->flight[i];

        if (f->rec->source == partition && !f->lost && f->rec->offset < lowest &&
            !check_input_find(&w->s->check, partition, f->rec->offset)->answered)
            lowest = f->rec->offset;
    }
    if (first)
        w->beyond_n[partition] = 0;
    if (lowest != INT64_MAX && offset - lowest >= w->s->cfg.plan_window_max && ++w->beyond_n[partition] > 2)
        check_wrong(&w->s->check, "I11: %" PRId32 "/%" PRId64 " was fetched with %" PRId64 " open, beyond the window", partition,
                    offset, lowest);
}

/* ---- a life ---- */

struct sim_worker *sim_worker_start(struct sim *s, const char *id)
{
    struct sim_worker *w = mem_take_zero(1, sizeof *w);
    struct kafka_core_options o = { .cfg = &s->cfg, .topic = "sim.prompts" };
    struct model_client_setup setup = s->setup;
    struct error err = { "" };

    w->s = s;
    w->born = ++s->births_n;
    snprintf(w->id, sizeof w->id, "%s", id);
    setup.transactional_id = w->id;
    setup.delivered = on_delivered;
    setup.worker = w;
    w->model = model_client_open(&setup);
    o.client = model_client_border(w->model);
    if (s->mutant != MUTANT_NONE && s->mutant != MUTANT_IGNORE_FENCED)
        o.client = w->lies = mutant_client_open(w->model, s->mutant);
    w->events = (struct queue_events){ .ctx = w, .gained = on_gained, .lost = on_lost, .lost_wait = on_lost_wait };
    o.events = &w->events;
    if (kafka_core_open(&o, &w->core, &err) != ST_OK || ckpt_open("mem:" SIM_STORE, NULL, &w->store, &err) != ST_OK)
        check_wrong(&s->check, "a worker cannot start: %s", err.text);
    /* Now and then it asks first whether the broker fences. */
    if (w->core != NULL && s->mutant == MUTANT_NONE && s->faults.error_one_in == 0 && s->faults.lost_one_in == 0 &&
        s->now_ns >= s->faults.away_until_ns && !setup.plain && dice_one_in(&s->dice, 8) &&
        kafka_core_probe(w->core, s->now_ns + PROBE_NS, &err) != ST_OK)
        check_wrong(&s->check, "the probe says: %s", err.text);
    s->stats->starts_n++;
    sim_tell(s, "%" PRId64 " starts as %s", w->born, w->id);
    return w;
}

void sim_worker_kill(struct sim_worker *w)
{
    struct queue_counts counts;

    model_client_kill(w->model);
    if (w->core != NULL) {
        kafka_core_counts(w->core, &counts);
        w->s->stats->remade_n += counts.producers_remade_n;
        w->s->stats->rebalances_n += counts.rebalances_n;
    }
    kafka_core_close(w->core);
    mutant_client_free(w->lies);
    model_client_free(w->model);
    ckpt_close(w->store);
    for (int i = 0; i < w->flights_n; i++)
        flight_free(w->flight[i]);
    for (int i = 0; i < SIM_COMMIT_MAX; i++)
        buf_fini(&w->line[i]);
    free(w);
}

bool sim_worker_runs(const struct sim_worker *w)
{
    return !w->over && w->s->now_ns >= w->stopped_until_ns;
}

static void worker_exit(struct sim_worker *w, const char *why)
{
    sim_tell(w->s, "%" PRId64 " ends: %s", w->born, why);
    w->over = true;
    w->s->stats->exits_n++;
}

/* ---- the poll side ---- */

static void flight_load(struct sim_worker *w, struct flight *f)
{
    struct check_input *in = check_input_find(&w->s->check, f->rec->source, f->rec->offset);
    struct holding *h = holding_find(w, f->rec->source, f->rec->lease);
    struct ckpt_key key = key_of(f->rec);
    struct ckpt_identity id = identity_of(f->rec);
    struct ckpt_progress p = { NULL, 0 };
    struct arena a;
    status st = ST_RETRY;

    arena_init(&a, 512);
    if (h != NULL && token_take(w, h))
        st = ckpt_load(w->store, &key, &id, &a, &p);
    f->loaded = st != ST_RETRY || ++f->loads_n == LOADS_MAX;
    if (st == ST_OK) {
        memcpy(f->tokens, p.tokens, (size_t)p.tokens_n * sizeof p.tokens[0]);
        f->tokens_n = p.tokens_n;
        w->s->stats->resumed_n++;
        sim_tell(w->s, "%" PRId64 " resumes %" PRId32 "/%" PRId64 " at %" PRId32, w->born, f->rec->source, f->rec->offset,
                 p.tokens_n);
    }
    if (f->tokens_n > f->prompt.tokens_n)
        check_wrong(&w->s->check, "I6: the store has more tokens of %" PRId32 "/%" PRId64 " than there are", f->rec->source,
                    f->rec->offset);
    if (st != ST_RETRY && f->tokens_n < in->saved_n && !in->rotten)
        check_wrong(&w->s->check, "I8: %" PRId32 " of %" PRId32 " saved tokens of %" PRId32 "/%" PRId64 " came back", f->tokens_n,
                    in->saved_n, f->rec->source, f->rec->offset);
    arena_fini(&a);
}

static void flight_add(struct sim_worker *w, struct record *r)
{
    struct check_input *in = check_input_find(&w->s->check, r->source, r->offset);
    struct flight *f;

    if (in == NULL || in->null || r->value == NULL || r->value_n != in->value_n ||
        memcmp(r->value, in->value, r->value_n) != 0) {
        check_wrong(&w->s->check, "%" PRId32 "/%" PRId64 " was polled, but is no record", r->source, r->offset);
        kafka_record_free(r);
        return;
    }
    ASSERT(w->flights_n < SIM_FLIGHTS_MAX);
    if (holding_find(w, r->source, r->lease) == NULL)
        check_wrong(&w->s->check, "%" PRId32 "/%" PRId64 " was given out, though its source is not held", r->source, r->offset);
    if (w->paused >> r->source & 1 || w->draining)
        check_wrong(&w->s->check, "%" PRId32 "/%" PRId64 " was given out against the worker's wish", r->source, r->offset);
    for (int i = 0; i < w->flights_n; i++) {
        const struct record *other = w->flight[i]->rec;

        if (other->source != r->source || other->lease != r->lease)
            continue;
        if (other->offset == r->offset)
            check_wrong(&w->s->check, "%" PRId32 "/%" PRId64 " was given out twice", r->source, r->offset);
        if (r->offset - other->offset >= w->s->cfg.plan_window_max &&
            !check_input_find(&w->s->check, other->source, other->offset)->answered)
            check_wrong(&w->s->check, "I11: %" PRId32 "/%" PRId64 " was given out with %" PRId64 " open, beyond the window",
                        r->source, r->offset, other->offset);
    }
    f = w->flight[w->flights_n++] = mem_take_zero(1, sizeof *f);
    f->rec = r;
    f->prompt = text_prompt_read(r->value, r->value_n);
    sim_tell(w->s, "%" PRId64 " polls %" PRId32 "/%" PRId64, w->born, r->source, r->offset);
}

static void step_poll(struct sim_worker *w)
{
    struct record *r;
    struct error err = { "" };
    bool busy;
    status st;

    if (w->in_poll || w->s->now_ns < w->poll_hung_until_ns)
        return;
    w->in_poll = true;
    if (w->holdings_n > 0 && dice_one_in(&w->s->dice, 40)) {
        int32_t source = w->holding[dice_below(&w->s->dice, w->holdings_n)].source;

        w->paused ^= UINT32_C(1) << source;
        sim_tell(w->s, "%" PRId64 " %s %" PRId32, w->born, w->paused >> source & 1 ? "pauses" : "resumes", source);
        kafka_core_pause(w->core, source, w->paused >> source & 1);
    }
    st = kafka_core_poll(w->core, 0, &r, &busy, &err);
    w->in_poll = false;
    if (st == ST_OK)
        flight_add(w, r);
    else if (st != ST_AGAIN)
        worker_exit(w, err.text);
}

/* ---- the engine ---- */

static void step_decode(struct sim_worker *w)
{
    bool asked = false;

    for (int i = 0; i < w->flights_n && !w->halted; i++) {
        struct flight *f = w->flight[i];

        if (!f->loaded && !f->lost && !asked) {
            if (store_hangs(w))
                return;
            flight_load(w, f);
            asked = true;
        }
        for (int n = dice_below(&w->s->dice, 3); n > 0 && f->loaded && f->tokens_n < f->prompt.tokens_n; n--) {
            f->tokens[f->tokens_n] = text_token(f->rec->value, f->rec->value_n, f->tokens_n,
                                                f->tokens_n > 0 ? f->tokens[f->tokens_n - 1] : 0);
            f->tokens_n++;
        }
    }
}

static void step_save(struct sim_worker *w)
{
    if (w->holdings_n > 0)
        source_save(w, &w->holding[dice_below(&w->s->dice, w->holdings_n)]);
}

/* ---- the commit side ---- */

static void line_make(struct sim_worker *w, int i)
{
    static const struct header finish = { "ns-finish", "stop", 4 };
    struct flight *f = w->group[i];
    struct buf *b = &w->line[i];

    buf_reset(b);
    buf_add_format(b, "{\"id\":\"%" PRId32 "_%" PRId64 "\",\"t\":\"%016" PRIx64 "\"", f->rec->source, f->rec->offset,
                   text_hash(f->tokens, f->tokens_n));
    if (f->prompt.kind == TEXT_HUGE) {
        buf_add_text(b, ",\"pad\":\"");
        for (int64_t k = 0; k < w->s->setup.value_max[KAFKA_RESULTS]; k++)
            buf_add_byte(b, 'x');
        buf_add_byte(b, '"');
    }
    buf_add_byte(b, '}');
    w->result[i] = (struct result){ .record = f->rec, .kind = f->prompt.kind == TEXT_BAD ? RESULT_FAILURE : RESULT_OUTPUT,
                                    .value = b->data, .value_n = b->n, .headers = &finish, .headers_n = 1 };
}

static void group_begin(struct sim_worker *w)
{
    if (!w->group_again) {
        w->group_n = 0;
        for (int i = 0; i < w->flights_n && w->group_n < SIM_COMMIT_MAX; i++)
            if (w->flight[i]->loaded && w->flight[i]->tokens_n >= w->flight[i]->prompt.tokens_n && !dice_one_in(&w->s->dice, 4))
                w->group[w->group_n++] = w->flight[i];
    }
    if (w->group_n == 0 && !kafka_commit_upkeep_due(w->core))
        return;
    for (int i = 0; i < w->group_n; i++) {
        w->group[i]->committing = true;
        w->durable[i] = false;
        line_make(w, i);
    }
    sim_tell(w->s, "%" PRId64 " begins a group of %d", w->born, w->group_n);
    kafka_commit_begin(w->core, w->result, (size_t)w->group_n, w->durable);
    w->committing = true;
    w->not_before_ns = 0;
}

static void result_durable(struct sim_worker *w, struct flight *f)
{
    struct check_input *in = check_input_find(&w->s->check, f->rec->source, f->rec->offset);
    struct holding *h = holding_find(w, f->rec->source, f->rec->lease);
    struct ckpt_key key = key_of(f->rec);

    if (!in->answered && !in->excused)
        check_wrong(&w->s->check, "I1: %" PRId32 "/%" PRId64 " is said to be durable, but has no result", f->rec->source,
                    f->rec->offset);
    in->saved_n = 0;
    /* Not always: it may die before it can, and the store may be away. Harmless. */
    if (h != NULL && h->have && w->s->now_ns >= w->s->store_hangs_until_ns && dice_below(&w->s->dice, 8) > 0)
        if (ckpt_forget(w->store, h->token, &key, 1) == ST_FENCED)
            h->have = false;
}

static void group_end(struct sim_worker *w)
{
    struct error err = { "" };
    status st = kafka_commit_end(w->core, &err);
    int durable_n = 0;

    w->committing = false;
    (void)check_look(&w->s->check);
    w->s->stats->groups_n++;
    w->s->stats->groups_retry_n += st == ST_RETRY;
    w->group_again = st == ST_RETRY && w->group_n > 0;
    for (int i = 0; i < w->group_n; i++)
        durable_n += w->durable[i];
    sim_tell(w->s, "%" PRId64 " ends a group: %s, %d of %d durable %s", w->born, status_name(st), durable_n, w->group_n,
             err.text);
    if (st != ST_OK && st != ST_RETRY) {
        w->s->stats->groups_fenced_n++;
        worker_exit(w, err.text);
        return;
    }
    for (int i = 0; i < w->group_n && st == ST_OK; i++) {
        struct flight *f = w->group[i];

        if (w->durable[i])
            result_durable(w, f);
        else
            w->s->stats->dropped_n++;
        if (!w->durable[i] && holding_find(w, f->rec->source, f->rec->lease) != NULL && !f->lost &&
            !w->s->check.stopped[f->rec->source])
            check_wrong(&w->s->check, "%" PRId32 "/%" PRId64 " was dropped, though its source is held", f->rec->source,
                        f->rec->offset);
        flight_drop(w, f);
    }
}

static void step_commit(struct sim_worker *w)
{
    bool more;

    if (w->in_commit || w->s->now_ns < w->commit_hung_until_ns || w->s->now_ns < w->not_before_ns)
        return;
    if (!w->committing) {
        group_begin(w);
        return;
    }
    w->in_commit = true;
    more = kafka_commit_step(w->core, &w->not_before_ns);
    if (++w->s->commit_steps_n == w->s->act_at)
        sim_act(w->s, w);
    w->in_commit = false;
    if (!more && !w->over)
        group_end(w);
}

/* ---- SIGTERM ---- */

void sim_worker_drain(struct sim_worker *w)
{
    static const int budget_s[] = { 3, 15, 30, 120 };
    int64_t now = w->s->now_ns;

    sim_tell(w->s, "%" PRId64 " drains%s", w->born, w->draining ? " at once" : "");
    kafka_core_stop(w->core);
    w->drain = w->draining ? drain_times_leave(now)
                           : drain_times_make(now, now + budget_s[dice_below(&w->s->dice, 4)] * NS_PER_S);
    w->s->stats->drains_n += !w->draining;
    w->draining = true;
}

/* Saves what is not saved. True: nothing is left. */
static bool all_save(struct sim_worker *w)
{
    bool all = true;

    for (int i = 0; i < w->holdings_n; i++)
        source_save(w, &w->holding[i]);
    for (int i = 0; i < w->flights_n; i++)
        all = all && (w->flight[i]->lost || w->flight[i]->tokens_n <= w->flight[i]->saved_n);
    return all;
}

static void drain_step(struct sim_worker *w)
{
    const struct drain_plan *plan = &w->drain.plan;
    struct kafka_client *client = w->lies != NULL ? w->lies : model_client_border(w->model);
    int64_t now = w->s->now_ns;
    bool finished = false;

    if (now >= w->drain.end_ns) {
        worker_exit(w, "the drain took too long");
        return;
    }
    for (int i = 0; i < w->flights_n; i++)
        finished |= w->flight[i]->loaded && w->flight[i]->tokens_n >= w->flight[i]->prompt.tokens_n;
    if ((w->flights_n > 0 || w->committing) && now < plan->finish_until_ns)
        return;
    w->halted = true;
    w->saved = w->saved || all_save(w) || now >= plan->save_until_ns;
    if (!w->saved || ((w->committing || finished) && now < plan->commit_until_ns) || w->in_poll || w->in_commit)
        return;                        /* a call that waits is one that a thread is in */
    client->ops->leave(client, plan->leave_until_ns);
    sim_tell(w->s, "%" PRId64 " has drained, %d handed over", w->born, w->flights_n);
    w->over = true;
}

void sim_worker_calm(struct sim_worker *w)
{
    w->stopped_until_ns = w->poll_hung_until_ns = w->commit_hung_until_ns = 0;
    for (int32_t p = 0; p < BROKER_PARTITIONS_MAX; p++)
        if (w->paused >> p & 1)
            kafka_core_pause(w->core, p, false);
    w->paused = 0;
}

void sim_worker_step(struct sim_worker *w)
{
    int side = dice_below(&w->s->dice, 10);

    w->s->depth++;
    if (w->draining && side == 9)
        drain_step(w);
    else if (side < 4)
        step_poll(w);
    else if (side < 6)
        step_decode(w);
    else if (side < 7)
        step_save(w);
    else
        step_commit(w);
    w->s->depth--;
}
