/* The commit side: one group of results and the marks "these inputs are done" in one transaction, as an explicit list of steps.
 *
 *   TAKE ─ BEGIN ─ PRODUCE… ─ GUARD ─ OFFSETS ─ COMMIT ─ END
 *     ^       └───────┴─────────┴─────────┴─── ABORT ──> END (ST_RETRY: the same results come again)
 *     └─ REREAD ─ INIT ─ REMAKE <── fatal, fenced, or nobody knows
 *   at least once: TAKE ─ PRODUCE… ─ COMMIT (a flush) ─ GUARD ─ OFFSETS ─ END
 *
 * GUARD is right before OFFSETS: the group's generation is asked for first and the owned set is looked at second, so what is sent
 * is of a generation in which all these partitions were ours. A partition that is given away later is given away in a later
 * generation, which the broker refuses.
 * A commit that ended nobody knows how leaves its partitions in doubt: the producer is made anew (init_transactions with the same
 * id ends the transaction one way or the other), then the group's commits are read again. What they say is done is done here,
 * too; only the rest of the results goes into the next transaction (FoundationDB's commit_unknown_result). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "queue/kafka/internal.h"

#define AGAIN_PAUSE_NS (50 * NS_PER_MS)
#define REREAD_TIMEOUT_MS 1000
#define BUDGET_NS (60 * NS_PER_S)
#define INIT_FAILURES_MAX 3                /* then with a new handle: facts 1.11, #4970 */

static const char *const step_names[] = { "take", "remake", "init", "reread", "begin", "produce", "guard", "offsets", "commit", "abort",
                                          "end" };
static const char *const answer_names[] = { "ok", "again", "abort", "remake", "unknown", "refused", "fenced_offsets" };

static void touched_set_copy(struct touched **to, size_t *room, size_t *n, const struct touched *from, size_t from_n)
{
    if (from_n > *room) {
        *room = from_n * 2;
        *to = mem_grow(*to, *room * sizeof **to);
    }
    if (from_n > 0)
        memcpy(*to, from, from_n * sizeof *from);
    *n = from_n;
}

bool kafka_committer_holds(const struct kafka_core *k, const struct kafka_place *place, size_t n)
{
    for (size_t i = 0; i < k->busy_n; i++)
        for (size_t j = 0; j < n; j++)
            if (k->busy[i].id == place[j].partition)
                return true;
    return false;
}

static void aborts_count(struct kafka_core *k, const char *reason)
{
    struct queue_counts *c = &k->counts;
    int i = 0;

    pthread_mutex_lock(&k->lock);
    while (i < c->aborts_n && strcmp(c->aborts[i].reason, reason) != 0)
        i++;
    if (i < QUEUE_ABORTS_MAX) {
        strncpy(c->aborts[i].reason, reason, sizeof c->aborts[i].reason - 1);
        c->aborts[i].n++;
        if (i == c->aborts_n)
            c->aborts_n++;
    }
    pthread_mutex_unlock(&k->lock);
}

/* ---- how a group ends ---- */

static void finish(struct kafka_core *k, status st)
{
    struct committer *c = &k->committer;

    c->st = st;
    c->at = KAFKA_STEP_END;
    c->again_since_ns = 0;
    pthread_mutex_lock(&k->lock);
    k->busy_n = 0;
    commit_times_end(&k->times, clock_mono_ns(), st == ST_OK && c->committed);
    pthread_mutex_unlock(&k->lock);
    atomic_store(&k->committing, false);
}

static void go(struct committer *c, enum kafka_step at)
{
    c->at = at;
    c->again_since_ns = 0;
}

static void abort_go(struct kafka_core *k, const char *reason, bool take_again)
{
    aborts_count(k, reason);
    k->committer.take_again = take_again;
    go(&k->committer, KAFKA_STEP_ABORT);
}

/* The producer is over. spent: somebody else or the broker ended it, which happens now and then (a transaction that was too old)
 * and again and again where another process uses the same id. */
static void remake_go(struct kafka_core *k, bool spent)
{
    struct committer *c = &k->committer;
    int64_t now = clock_mono_ns(), max = k->cfg->kafka_remakes_max;

    c->producer = PRODUCER_NEEDS_REMAKE;
    if (!spent) {
        go(c, KAFKA_STEP_REMAKE);
        return;
    }
    if (c->remade_n >= max && now - c->remade_ns[c->remade_n % max] < BUDGET_NS) {
        log_error("kafka.fenced", "remakes=%" PRId64 " in_s=%" PRId64 " what=\"%s; another process uses this transactional id (kafka_slot), "
                  "or the broker refuses it: this one ends\"", max, BUDGET_NS / NS_PER_S, c->err.text);
        finish(k, ST_FENCED);
        return;
    }
    c->remade_ns[c->remade_n++ % max] = now;
    go(c, KAFKA_STEP_REMAKE);
}

static void doubt_note(struct committer *c)
{
    touched_set_copy(&c->doubt, &c->doubt_room, &c->doubt_n, c->touched, c->touched_n);
}

/* ---- TAKE ---- */

static bool upkeep_due(const struct kafka_core *k, const struct partition *p, int64_t now)
{
    return p != NULL && p->owned && !p->stopped && p->has_commit && now - p->commit_ns > k->cfg->kafka_recommit_s * NS_PER_S;
}

static struct touched *touched_find(struct committer *c, const struct partition *p)
{
    for (size_t i = 0; i < c->touched_n; i++)
        if (c->touched[i].id == p->id)
            return &c->touched[i];
    return NULL;
}

static void touched_add(struct committer *c, const struct partition *p)
{
    if (touched_find(c, p) != NULL)
        return;
    if (c->touched_n == c->touched_room) {
        c->touched_room = c->touched_room ? c->touched_room * 2 : 16;
        c->touched = mem_grow(c->touched, c->touched_room * sizeof c->touched[0]);
    }
    c->touched[c->touched_n++] = (struct touched){ .id = p->id, .lease = p->lease };
}

/* Under the lock. A result of a lost lease is dropped, one that a commit in doubt has made durable is durable. */
static void results_take(struct kafka_core *k)
{
    struct committer *c = &k->committer;

    if (c->n > c->take_room) {
        c->take_room = c->n;
        c->take = mem_grow(c->take, c->take_room * sizeof c->take[0]);
    }
    c->take_n = c->touched_n = 0;
    for (size_t i = 0; i < c->n; i++) {
        const struct record *r = c->results[i].record;
        struct partition *p = partition_held(k, r->source, r->lease);

        if (p == NULL || c->durable[i])
            continue;
        if (tracker_is_open(p->tracker, r->offset)) {
            c->take[c->take_n++] = i;
            if (c->touched_n == 0 || c->touched[c->touched_n - 1].id != p->id)
                touched_add(c, p);
        } else {
            ASSERT(tracker_is_done(p->tracker, r->offset));
            c->durable[i] = true;
        }
    }
}

static void idle_take(struct kafka_core *k)
{
    int64_t now = clock_mono_ns();

    for (size_t i = 0; i < k->part_n; i++)
        if (upkeep_due(k, k->part[i], now))
            touched_add(&k->committer, k->part[i]);
}

static void step_take(struct kafka_core *k)
{
    struct committer *c = &k->committer;

    c->again_since_ns = 0;
    if (c->producer == PRODUCER_NEEDS_REMAKE || c->producer == PRODUCER_NEEDS_INIT) {
        go(c, c->producer == PRODUCER_NEEDS_REMAKE ? KAFKA_STEP_REMAKE : KAFKA_STEP_INIT);
        return;
    }
    if (c->doubt_n > 0) {
        go(c, KAFKA_STEP_REREAD);
        return;
    }
    pthread_mutex_lock(&k->lock);
    results_take(k);
    idle_take(k);
    touched_set_copy(&k->busy, &k->busy_room, &k->busy_n, c->touched, c->touched_n);
    pthread_mutex_unlock(&k->lock);
    c->produced_n = c->dead_n = 0;
    if (c->touched_n == 0)
        finish(k, ST_OK);
    else
        go(c, k->transactional ? KAFKA_STEP_BEGIN : KAFKA_STEP_PRODUCE);
}

/* ---- what an answer means, step by step ---- */

/* Waits a little and asks again; a step that is told so for too long is over like one that timed out. */
static int64_t again(struct kafka_core *k, void (*given_up)(struct kafka_core *k))
{
    struct committer *c = &k->committer;
    int64_t now = clock_mono_ns();

    if (c->again_since_ns == 0)
        c->again_since_ns = now;
    if (now - c->again_since_ns < k->cfg->txn_timeout_ms * NS_PER_MS)
        return now + AGAIN_PAUSE_NS;
    error_set(&c->err, ST_RETRY, "%s was put off for %" PRId64 " ms", step_names[c->at], k->cfg->txn_timeout_ms);
    given_up(k);
    return 0;
}

static void unknown_go(struct kafka_core *k)
{
    doubt_note(&k->committer);
    remake_go(k, false);
}

static void later(struct kafka_core *k)
{
    finish(k, ST_RETRY);
}

static void answer_log(const struct kafka_core *k, enum kafka_answer answer)
{
    const struct committer *c = &k->committer;

    log_line(answer == KAFKA_REFUSED ? LOG_ERROR : LOG_WARN, "kafka.commit", "step=%s answer=%s results=%zu what=\"%s\"",
             step_names[c->at], answer_names[answer], c->take_n, c->err.text);
}

/* Of a step inside a transaction that was not answered with OK. */
static int64_t txn_answer(struct kafka_core *k, enum kafka_answer answer)
{
    struct committer *c = &k->committer;

    if (answer != KAFKA_AGAIN)
        answer_log(k, answer);
    switch (answer) {
    case KAFKA_OK:
        ASSERT(!"not a failure");
        break;
    case KAFKA_AGAIN:
        return again(k, unknown_go);
    case KAFKA_ABORT:
        abort_go(k, step_names[c->at], false);
        break;
    case KAFKA_FENCED_OFFSETS:      /* the group has moved on: the results are kept, the next try asks for the new generation */
        pthread_mutex_lock(&k->lock);
        k->counts.fences_n++;
        pthread_mutex_unlock(&k->lock);
        abort_go(k, "fenced_offsets", false);
        break;
    case KAFKA_REFUSED:
        abort_go(k, "refused", false);
        break;
    case KAFKA_REMAKE:              /* even a fatal answer to a commit may have come after it was done */
        doubt_note(c);
        remake_go(k, true);
        break;
    case KAFKA_UNKNOWN:
        unknown_go(k);
        break;
    }
    return 0;
}

/* ---- the steps ---- */

static int64_t step_begin(struct kafka_core *k)
{
    enum kafka_answer answer;

    failpoint("kafka.begin");
    answer = k->client->ops->begin(k->client, &k->committer.err);
    if (answer != KAFKA_OK)
        return txn_answer(k, answer);
    go(&k->committer, k->committer.take_n > 0 ? KAFKA_STEP_PRODUCE : KAFKA_STEP_GUARD);
    return 0;
}

static int64_t step_produce(struct kafka_core *k)
{
    struct committer *c = &k->committer;
    struct output *o = c->out;
    enum kafka_answer answer;

    if (c->produced_n < c->take_n) {
        failpoint("kafka.produce");
        output_make(o, k, &c->results[c->take[c->produced_n]]);
        answer = k->client->ops->produce(k->client, o->topic, o->key, o->key_n, o->value, o->value_n, o->headers, o->headers_n, &c->err);
        if (answer != KAFKA_OK)
            return txn_answer(k, answer);
        c->again_since_ns = 0;
        c->produced_n++;
        c->dead_n += o->topic == KAFKA_DEAD;
    }
    if (c->produced_n == c->take_n)
        go(c, k->transactional ? KAFKA_STEP_GUARD : KAFKA_STEP_COMMIT);
    return 0;
}

/* Under the lock. Are all partitions of this transaction still held as they were taken? */
static bool touched_ours(const struct kafka_core *k)
{
    const struct committer *c = &k->committer;

    for (size_t i = 0; i < c->touched_n; i++)
        if (partition_held(k, c->touched[i].id, c->touched[i].lease) == NULL)
            return false;
    return true;
}

/* Under the lock. LWM and metadata of one partition, as they will be after this transaction. */
static void place_make(struct kafka_core *k, struct touched *t)
{
    struct committer *c = &k->committer;
    struct partition *p = partition_held(k, t->id, t->lease);
    struct tracker *after = tracker_copy(p->tracker);
    char *text;

    for (size_t i = 0; i < c->take_n; i++) {
        const struct record *r = c->results[c->take[i]].record;

        if (r->source == t->id)
            tracker_done(after, r->offset);
    }
    t->lwm = tracker_lwm(after);
    t->text_at = c->text.n;
    text = buf_reserve(&c->text, k->metadata_max + 1);
    /* It fits: the window is made for it, and a wider bitmap was refused at the assignment. */
    ASSERT(partition_encode(p, after, text, k->metadata_max + 1) == ST_OK);
    c->text.n += strlen(text) + 1;
    tracker_close(after);
}

static bool guard_pass(struct kafka_core *k)
{
    struct committer *c = &k->committer;
    bool ours;

    pthread_mutex_lock(&k->lock);
    k->counts.generation = c->as.generation;
    ours = touched_ours(k);
    buf_reset(&c->text);
    for (size_t i = 0; i < c->touched_n && ours; i++)
        place_make(k, &c->touched[i]);
    pthread_mutex_unlock(&k->lock);
    if (!ours)
        return false;
    if (c->touched_n > c->place_room) {
        c->place_room = c->touched_n;
        c->place = mem_grow(c->place, c->place_room * sizeof c->place[0]);
    }
    for (size_t i = 0; i < c->touched_n; i++)
        c->place[i] = (struct kafka_place){ c->touched[i].id, c->touched[i].lwm, c->text.data + c->touched[i].text_at };
    return true;
}

/* At least once: the results are stored already, so it is only the marks that wait or are left out. */
static void stored_retake(struct kafka_core *k)
{
    struct committer *c = &k->committer;
    size_t n = 0, taken_n = 0;

    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < c->take_n; i++) {
        const struct record *r = c->results[c->take[i]].record;

        if (partition_held(k, r->source, r->lease) != NULL)
            c->take[n++] = c->take[i];
    }
    for (size_t i = 0; i < c->touched_n; i++)
        if (partition_held(k, c->touched[i].id, c->touched[i].lease) != NULL)
            c->touched[taken_n++] = c->touched[i];
    c->take_n = n;
    c->touched_n = taken_n;
    pthread_mutex_unlock(&k->lock);
    if (taken_n == 0)
        finish(k, ST_OK);
}

/* A commit with generation -1 and no member passes every fence of the broker (it is meant for old clients, facts 1.6). */
static int64_t step_guard(struct kafka_core *k)
{
    struct committer *c = &k->committer;

    failpoint("kafka.guard");
    k->client->ops->group(k->client, &c->as);
    if (c->as.generation < 0 || c->as.member[0] == '\0' || c->as.lost) {
        error_set(&c->err, ST_RETRY, "this worker is not in its group at the moment (generation %" PRId32 "%s)", c->as.generation,
                  c->as.lost ? ", assignment lost" : "");
        if (!k->transactional)
            return again(k, later);
        abort_go(k, "not_member", false);
    } else if (guard_pass(k)) {
        c->at = KAFKA_STEP_OFFSETS;      /* how long the offsets were put off goes on counting: at least once comes here again */
    } else if (k->transactional) {
        abort_go(k, "not_owner", true);
    } else {
        stored_retake(k);
    }
    return 0;
}

/* Everything is durable: the live trackers learn it, which have received more meanwhile. */
static void step_apply(struct kafka_core *k)
{
    struct committer *c = &k->committer;
    int64_t now = clock_mono_ns();

    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < c->take_n; i++) {
        const struct record *r = c->results[c->take[i]].record;
        struct partition *p = partition_find(k, r->source);

        c->durable[c->take[i]] = true;
        if (p != NULL && p->lease == r->lease && tracker_is_open(p->tracker, r->offset))
            tracker_done(p->tracker, r->offset);
    }
    for (size_t i = 0; i < c->touched_n; i++) {
        struct partition *p = partition_find(k, c->touched[i].id);

        if (p != NULL && p->lease == c->touched[i].lease) {
            p->has_commit = true;
            p->commit_ns = now;
        }
    }
    k->counts.dead_n += c->dead_n;
    pthread_mutex_unlock(&k->lock);
    c->committed = true;
    atomic_store(&k->progress, true);
    finish(k, ST_OK);
}

static int64_t step_offsets(struct kafka_core *k)
{
    struct committer *c = &k->committer;
    enum kafka_answer answer;

    failpoint("kafka.offsets");
    answer = k->client->ops->offsets(k->client, c->place, c->touched_n, &c->as, &c->err);
    if (answer == KAFKA_FENCED_OFFSETS && !k->transactional) {
        c->at = KAFKA_STEP_GUARD;        /* with the new generation */
        return again(k, later);
    }
    if (answer != KAFKA_OK)
        return txn_answer(k, answer);
    if (k->transactional)
        go(c, KAFKA_STEP_COMMIT);
    else
        step_apply(k);
    return 0;
}

static int64_t step_commit(struct kafka_core *k)
{
    enum kafka_answer answer;

    failpoint("kafka.commit.before");
    answer = k->client->ops->commit(k->client, &k->committer.err);
    failpoint("kafka.commit.after");
    if (answer != KAFKA_OK)
        return txn_answer(k, answer);
    if (k->transactional)
        step_apply(k);
    else
        go(&k->committer, KAFKA_STEP_GUARD);
    return 0;
}

static int64_t step_abort(struct kafka_core *k)
{
    struct committer *c = &k->committer;
    enum kafka_answer answer;
    struct error err;

    failpoint("kafka.abort");
    answer = k->client->ops->abort(k->client, &err);
    if (answer == KAFKA_AGAIN)
        return again(k, unknown_go);
    if (answer != KAFKA_OK) {      /* whatever it says: a new producer with this id ends the transaction ... */
        c->err = err;
        answer_log(k, answer);
        doubt_note(c);             /* ... and it may be what a failed commit has done after all: read again */
        remake_go(k, answer == KAFKA_REMAKE);
        return 0;
    }
    if (c->take_again)
        go(c, KAFKA_STEP_TAKE);
    else
        finish(k, ST_RETRY);
    return 0;
}

static int64_t step_remake(struct kafka_core *k)
{
    struct committer *c = &k->committer;
    enum kafka_answer answer;

    failpoint("kafka.remake");
    answer = k->client->ops->remake(k->client, &c->err);
    if (answer == KAFKA_AGAIN)
        return again(k, later);
    if (answer != KAFKA_OK) {
        answer_log(k, answer);
        finish(k, ST_RETRY);
        return 0;
    }
    pthread_mutex_lock(&k->lock);
    k->counts.producers_remade_n++;
    pthread_mutex_unlock(&k->lock);
    c->producer = PRODUCER_NEEDS_INIT;
    go(c, KAFKA_STEP_INIT);
    return 0;
}

static int64_t step_init(struct kafka_core *k)
{
    struct committer *c = &k->committer;
    enum kafka_answer answer;

    failpoint("kafka.init");
    answer = k->client->ops->init(k->client, &c->err);
    if (answer == KAFKA_OK) {
        c->producer = PRODUCER_READY;
        c->init_failures_n = 0;
        go(c, KAFKA_STEP_TAKE);
        return 0;
    }
    if (answer == KAFKA_AGAIN)
        return again(k, later);
    answer_log(k, answer);
    if (answer == KAFKA_REMAKE) {
        remake_go(k, true);
        return 0;
    }
    if (++c->init_failures_n % INIT_FAILURES_MAX == 0)
        c->producer = PRODUCER_NEEDS_REMAKE;
    finish(k, ST_RETRY);
    return 0;
}

/* ---- REREAD ---- */

/* Under the lock. The partitions in doubt that are still held; those that went are read again by whoever takes them. */
static size_t doubt_places(struct kafka_core *k)
{
    struct committer *c = &k->committer;
    size_t n = 0;

    if (c->doubt_n > c->place_room) {
        c->place_room = c->doubt_n;
        c->place = mem_grow(c->place, c->place_room * sizeof c->place[0]);
    }
    for (size_t i = 0; i < c->doubt_n; i++)
        if (partition_held(k, c->doubt[i].id, c->doubt[i].lease) != NULL) {
            c->doubt[n] = c->doubt[i];
            c->place[n++] = (struct kafka_place){ c->doubt[i].id, -1, NULL };
        }
    c->doubt_n = n;
    return n;
}

static void doubt_settle(struct kafka_core *k, size_t n)
{
    struct committer *c = &k->committer;

    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < n; i++) {
        struct partition *p = partition_held(k, c->doubt[i].id, c->doubt[i].lease);
        struct error why;

        if (p == NULL || partition_sync(p, &c->place[i], &why) == ST_OK)
            continue;
        atomic_store(&p->stopped, true);
        log_error("kafka.partition_stopped", "topic=%s partition=%" PRId32 " offset=%" PRId64 " why=\"%s\"", k->topic, p->id,
                  c->place[i].offset, why.text);
    }
    pthread_mutex_unlock(&k->lock);
    c->doubt_n = 0;
    atomic_store(&k->progress, true);
    go(c, KAFKA_STEP_TAKE);
}

static int64_t step_reread(struct kafka_core *k)
{
    struct committer *c = &k->committer;
    enum kafka_answer answer;
    size_t n;

    failpoint("kafka.reread");
    pthread_mutex_lock(&k->lock);
    n = doubt_places(k);
    pthread_mutex_unlock(&k->lock);
    answer = n == 0 ? KAFKA_OK : k->client->ops->committed(k->client, c->place, n, REREAD_TIMEOUT_MS, &c->err);
    if (answer == KAFKA_OK) {
        doubt_settle(k, n);
        return 0;
    }
    if (answer != KAFKA_REFUSED)      /* the old transaction is not over yet, or no answer */
        return again(k, later);
    answer_log(k, answer);
    finish(k, ST_RETRY);
    return 0;
}

/* ---- one group ---- */

void kafka_commit_begin(struct kafka_core *k, const struct result *results, size_t n, bool *durable)
{
    struct committer *c = &k->committer;

    ASSERT(c->at == KAFKA_STEP_END);
    atomic_store(&k->committing, true);
    c->results = results;
    c->n = n;
    c->durable = durable;
    c->take_again = c->committed = false;
    c->err.text[0] = '\0';
    c->take_n = c->touched_n = c->produced_n = 0;
    go(c, KAFKA_STEP_TAKE);
    pthread_mutex_lock(&k->lock);
    commit_times_begin(&k->times, clock_mono_ns());
    pthread_mutex_unlock(&k->lock);
}

bool kafka_commit_step(struct kafka_core *k, int64_t *not_before_ns)
{
    *not_before_ns = 0;
    switch (k->committer.at) {
    case KAFKA_STEP_TAKE: step_take(k); break;
    case KAFKA_STEP_REMAKE: *not_before_ns = step_remake(k); break;
    case KAFKA_STEP_INIT: *not_before_ns = step_init(k); break;
    case KAFKA_STEP_REREAD: *not_before_ns = step_reread(k); break;
    case KAFKA_STEP_BEGIN: *not_before_ns = step_begin(k); break;
    case KAFKA_STEP_PRODUCE: *not_before_ns = step_produce(k); break;
    case KAFKA_STEP_GUARD: *not_before_ns = step_guard(k); break;
    case KAFKA_STEP_OFFSETS: *not_before_ns = step_offsets(k); break;
    case KAFKA_STEP_COMMIT: *not_before_ns = step_commit(k); break;
    case KAFKA_STEP_ABORT: *not_before_ns = step_abort(k); break;
    case KAFKA_STEP_END: break;
    }
    return k->committer.at != KAFKA_STEP_END;
}

status kafka_commit_end(struct kafka_core *k, struct error *err)
{
    ASSERT(k->committer.at == KAFKA_STEP_END);
    if (k->committer.st == ST_OK)
        return ST_OK;
    return error_set(err, k->committer.st, "%s", k->committer.err.text);
}

enum kafka_step kafka_commit_at(const struct kafka_core *k)
{
    return k->committer.at;
}

bool kafka_commit_upkeep_due(struct kafka_core *k)
{
    int64_t now = clock_mono_ns();
    bool due = false;

    if (atomic_load(&k->committing))
        return false;
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->part_n && !due; i++)
        due = upkeep_due(k, k->part[i], now);
    pthread_mutex_unlock(&k->lock);
    return due;
}

void kafka_committer_init(struct kafka_core *k)
{
    struct committer *c = &k->committer;

    c->at = KAFKA_STEP_END;
    c->producer = PRODUCER_NEEDS_INIT;
    c->remade_ns = mem_take_zero((size_t)k->cfg->kafka_remakes_max, sizeof c->remade_ns[0]);
    c->out = mem_take_zero(1, sizeof *c->out);
}

void kafka_committer_fini(struct kafka_core *k)
{
    struct committer *c = &k->committer;

    free(c->take);
    free(c->touched);
    free(c->place);
    free(c->doubt);
    free(c->remade_ns);
    buf_fini(&c->text);
    output_fini(c->out);
    free(c->out);
    free(k->busy);
}
