/* Outcomes to durable results: builds the lines, commits them in groups, then lets the saver forget.
 *
 * A topic whose broker does not answer keeps its results here and tries again; beyond a bound nothing more is taken, which
 * holds the engine back. A file that cannot be written is for a person to look at: the run stops, nothing more is written, and
 * what arrives is dropped and will be answered by the next run. */
#define _POSIX_C_SOURCE 200809L
#include "worker/pipeline/internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "worker/pipeline/id_set.h"
#include "worker/pipeline/result_headers.h"

enum { HELD_GROUPS_MAX = 8, RETRY_MIN_MS = 50, RETRY_MAX_MS = 1000, TOLD_S = 10 };

/* A result that waits for the commit. */
struct entry {
    struct record *record;
    size_t at;                     /* where its line begins in lines */
    struct save_slot *slots;
    struct start *starts;
    const char *code;              /* static text; NULL: done */
    struct header *headers;        /* one block */
    int32_t from_engine_n;         /* requests behind it that the engine has ended */
    int64_t tokens_n;              /* made here, not resumed */
};

struct outbox {
    struct pipeline *p;
    pthread_t thread;
    struct id_set *ids;            /* hashes of the custom_ids of this run */
    bool failed;
    struct buf lines;
    struct entry *entries;
    struct result *results;        /* value is filled in at the commit: lines moves as it grows */
    bool *durable;
    size_t n, room;
    int64_t group_ms, group_n, group_bytes;        /* when a group is committed */
    int64_t first_ns;
    int64_t retry_at_ns, retry_ms, told_ns;        /* 0: the last commit went through */
};

void outcome_push(struct pipeline *p, struct request *r)
{
    /* The outbox takes until both sides that push here have ended, and only then is the queue closed. */
    status st = bqueue_push(p->outcomes, r);

    ASSERT(st == ST_OK);
}

/* ---- commit ---- */

static void failure_count(struct pipeline_counts *c, const char *code)
{
    for (int i = 0; i < c->failures_n; i++)
        if (strcmp(c->failures[i].code, code) == 0) {
            c->failures[i].n++;
            return;
        }
    if (c->failures_n == FAILURE_CODES_MAX)
        return;
    strncpy(c->failures[c->failures_n].code, code, sizeof c->failures[0].code - 1);
    c->failures[c->failures_n++].n = 1;
}

static void committed_count(struct outbox *o)
{
    struct pipeline *p = o->p;

    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < o->n; i++) {
        const struct entry *e = &o->entries[i];

        p->durable_n += e->from_engine_n;
        if (!o->durable[i]) {
            p->counts.results_lost_n++;
            p->counts.tokens_regenerated_n += e->tokens_n;
        } else if (e->code == NULL) {
            p->counts.done_n++;
        } else {
            p->counts.failed_n++;
            failure_count(&p->counts, e->code);
        }
    }
    p->counts.duplicate_ids_n = id_set_duplicates(o->ids);
    pthread_mutex_unlock(&p->lock);
}

static void group_end(struct outbox *o, bool committed)
{
    for (size_t i = 0; i < o->n; i++) {
        const struct entry *e = &o->entries[i];

        saver_end(o->p->saver, e->slots, e->starts, committed && o->durable[i]);
        record_end(o->p, e->record);
        free(e->headers);
    }
    buf_reset(&o->lines);
    o->n = 0;
    atomic_store(&o->p->results_since_ns, 0);
}

/* Kept, for another try. */
static void commit_later(struct outbox *o, const struct error *err)
{
    int64_t now = clock_mono_ns();

    if (o->told_ns == 0 || now - o->told_ns > TOLD_S * NS_PER_S) {
        log_warn("outbox.commit", "results=%zu note=\"kept, tried again\" cause=\"%s\"", o->n, err->text);
        o->told_ns = now;
    }
    o->retry_ms = o->retry_ms == 0 ? RETRY_MIN_MS : o->retry_ms < RETRY_MAX_MS / 2 ? 2 * o->retry_ms : RETRY_MAX_MS;
    o->retry_at_ns = now + o->retry_ms * NS_PER_MS;
}

static void commit(struct outbox *o)
{
    struct error err = { "" };
    status st;

    if (o->n == 0)
        return;
    for (size_t i = 0; i < o->n; i++)
        o->results[i].value = o->lines.data + o->entries[i].at;
    st = o->failed ? ST_RETRY : queue_commit(o->p->queue, o->results, o->n, o->durable, &err);
    if (st == ST_RETRY && !o->failed && o->p->is_topic) {
        commit_later(o, &err);
        return;
    }
    o->retry_at_ns = o->retry_ms = o->told_ns = 0;
    if (st == ST_OK)
        committed_count(o);
    group_end(o, st == ST_OK);
    if (st != ST_OK && !o->failed) {
        o->failed = true;
        pipeline_fail(o->p, st == ST_FENCED ? EXIT_CODE_FENCED : EXIT_CODE_STOPPED, "%s", err.text);
    }
}

/* ---- outcomes ---- */

static void results_grow(struct outbox *o)
{
    o->room = o->room ? 2 * o->room : 64;
    o->results = mem_grow(o->results, o->room * sizeof *o->results);
    o->entries = mem_grow(o->entries, o->room * sizeof *o->entries);
    o->durable = mem_grow(o->durable, o->room * sizeof *o->durable);
}

static void result_add(struct outbox *o, struct request *r, struct entry e)
{
    struct result *res;
    char id[64];

    if (o->n == o->room)
        results_grow(o);
    if (o->n == 0)
        atomic_store(&o->p->results_since_ns, o->first_ns = clock_mono_ns());
    id_set_add(o->ids, r->custom_id);
    queue_result_id(o->p->queue, r->source, r->offset, id);
    res = &o->results[o->n];
    memset(res, 0, sizeof *res);
    res->record = e.record = r->record;
    e.at = o->lines.n;
    e.code = lines_failure_code(r);
    res->kind = lines_result(&o->p->text.lines, r, id, &o->lines);
    res->value_n = o->lines.n - e.at;
    if (o->p->is_topic)
        res->headers = e.headers = result_headers_make(r, e.code, o->p->text.name, &res->headers_n);
    o->entries[o->n++] = e;
}

static int64_t tokens_made(const struct request *r)
{
    int64_t n = 0;

    for (int32_t i = 0; r->choices != NULL && i < r->params.n; i++)
        n += r->choices[i].tokens_n - r->choices[i].resumed_n;
    return n;
}

/* Every member of a group comes by; the last one makes the line of all. */
static void outcome_take(struct outbox *o, struct request *r)
{
    struct request_group *g = r->group;
    struct request *alone[1] = { r }, **members = g != NULL ? g->requests : alone;
    int members_n = g != NULL ? g->requests_n : 1;
    struct entry e = { 0 };
    bool dropped = false;

    if (g != NULL && --g->open_n > 0)
        return;
    for (int i = 0; i < members_n; i++) {
        dropped |= members[i]->verdict == VERDICT_NONE;
        e.from_engine_n += members[i]->started_ns != 0;
        e.tokens_n += tokens_made(members[i]);
        e.slots = saver_detach(members[i], e.slots);
        e.starts = saver_detach_start(members[i], e.starts);
    }
    if (dropped) {
        saver_end(o->p->saver, e.slots, e.starts, false);
        record_end(o->p, r->record);
    } else {
        result_add(o, members[0], e);
    }
    request_free_line(r);
}

/* ---- the thread ---- */

static int wait_ms(int64_t until_ns)
{
    int64_t left_ns = until_ns - clock_mono_ns();

    return left_ns > 0 ? (int)(left_ns / NS_PER_MS) + 1 : 0;
}

static int commit_wait_ms(const struct outbox *o)
{
    if (o->n == 0)
        return 200;
    if (o->retry_at_ns != 0)
        return wait_ms(o->retry_at_ns);
    if (o->n >= (size_t)o->group_n || (int64_t)o->lines.n >= o->group_bytes || atomic_load(&o->p->hurries_n) > 0)
        return 0;
    return wait_ms(o->first_ns + o->group_ms * NS_PER_MS);
}

/* So many results wait for a broker that nothing more is taken. */
static bool is_full(const struct outbox *o)
{
    return o->retry_at_ns != 0
        && (o->n >= (size_t)(HELD_GROUPS_MAX * o->group_n) || (int64_t)o->lines.n >= HELD_GROUPS_MAX * o->group_bytes);
}

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * NS_PER_MS }, NULL);
}

/* The last results: tried until the deadline of the drain; what is left then is done again by the next owner. */
static void outbox_empty(struct outbox *o)
{
    if (clock_mono_ns() < atomic_load(&o->p->commit_until_ns))
        commit(o);
    while (o->n > 0 && clock_mono_ns() < atomic_load(&o->p->commit_until_ns)) {
        pause_ms(o->retry_ms < 100 ? (int)o->retry_ms : 100);
        commit(o);
    }
    if (o->n == 0)
        return;
    log_warn("outbox.end", "results=%zu effect=\"not committed in time: they will be made again\"", o->n);
    memset(o->durable, 0, o->n * sizeof *o->durable);
    committed_count(o);
    group_end(o, false);
}

static void *outbox_main(void *outbox)
{
    struct outbox *o = outbox;
    struct bqueue *q = o->p->outcomes;
    void *items[POP_MAX];

    while (!bqueue_ended(q)) {
        if (is_full(o) && commit_wait_ms(o) > 0 && clock_mono_ns() < atomic_load(&o->p->commit_until_ns)) {
            pause_ms(commit_wait_ms(o) < 20 ? commit_wait_ms(o) : 20);
            continue;
        }
        for (size_t i = 0, n = bqueue_pop(q, items, POP_MAX, commit_wait_ms(o)); i < n; i++)
            outcome_take(o, items[i]);
        if (commit_wait_ms(o) == 0)
            commit(o);
    }
    outbox_empty(o);
    return NULL;
}

struct outbox *outbox_open(struct pipeline *p)
{
    struct outbox *o = mem_take_zero(1, sizeof *o);

    o->p = p;
    o->ids = id_set_open();
    o->group_ms = p->is_topic ? p->cfg->txn_ms : p->cfg->commit_ms;
    o->group_n = p->is_topic ? p->cfg->txn_results_max : p->cfg->commit_results_max;
    o->group_bytes = p->is_topic ? p->cfg->txn_bytes_max : INT64_MAX / HELD_GROUPS_MAX;
    return o;
}

void outbox_start(struct outbox *o)
{
    pthread_create(&o->thread, NULL, outbox_main, o);
}

void outbox_join(struct outbox *o)
{
    pthread_join(o->thread, NULL);
}

void outbox_close(struct outbox *o)
{
    if (o == NULL)
        return;
    id_set_close(o->ids);
    buf_fini(&o->lines);
    free(o->entries);
    free(o->results);
    free(o->durable);
    free(o);
}
