/* Outcomes to durable results: builds the lines, commits them in groups, then lets the saver forget.
 * Once a commit has failed nothing more is written; what arrives is dropped and will be answered by the next run. */
#include "worker/pipeline/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "worker/pipeline/id_set.h"

/* A result that waits for the commit. */
struct entry {
    struct record *record;
    size_t at;                     /* where its line begins in lines */
    struct save_slot *slots;
    const char *code;              /* static text; NULL: done */
    int32_t from_engine_n;         /* requests behind it that the engine has ended */
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
    int64_t first_ns;
};

void outcome_push(struct pipeline *p, struct request *r)
{
    /* The outbox takes until both sides that push here have ended, and only then is the queue closed. */
    status st = bqueue_push(p->outcomes, r);

    ASSERT(st == ST_OK);
}

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
        if (!o->durable[i])
            continue;
        if (e->code == NULL) {
            p->counts.done_n++;
        } else {
            p->counts.failed_n++;
            failure_count(&p->counts, e->code);
        }
    }
    p->counts.duplicate_ids_n = id_set_duplicates(o->ids);
    pthread_mutex_unlock(&p->lock);
}

static void commit(struct outbox *o)
{
    struct error err;
    status st;

    if (o->n == 0)
        return;
    for (size_t i = 0; i < o->n; i++)
        o->results[i].value = o->lines.data + o->entries[i].at;
    st = o->failed ? ST_RETRY : queue_commit(o->p->queue, o->results, o->n, o->durable, &err);
    if (st == ST_OK)
        committed_count(o);
    for (size_t i = 0; i < o->n; i++) {
        if (st == ST_OK && o->durable[i])
            saver_forget(o->p->saver, o->entries[i].slots);
        else
            saver_keep(o->p->saver, o->entries[i].slots);
        queue_record_give(o->p->queue, o->entries[i].record);
    }
    if (st != ST_OK && !o->failed) {
        o->failed = true;
        pipeline_fail(o->p, st == ST_FENCED ? EXIT_CODE_FENCED : EXIT_CODE_STOPPED, "%s", err.text);
    }
    buf_reset(&o->lines);
    o->n = 0;
}

static void results_grow(struct outbox *o)
{
    o->room = o->room ? 2 * o->room : 64;
    o->results = mem_grow(o->results, o->room * sizeof *o->results);
    o->entries = mem_grow(o->entries, o->room * sizeof *o->entries);
    o->durable = mem_grow(o->durable, o->room * sizeof *o->durable);
}

static void result_add(struct outbox *o, struct request *r, struct save_slot *slots, int32_t from_engine_n)
{
    struct entry *e;
    struct result *res;
    char id[64];

    if (o->n == o->room)
        results_grow(o);
    if (o->n == 0)
        o->first_ns = clock_mono_ns();
    id_set_add(o->ids, r->custom_id);
    queue_result_id(o->p->queue, r->source, r->offset, id);
    e = &o->entries[o->n];
    res = &o->results[o->n++];
    *e = (struct entry){ r->record, o->lines.n, slots, lines_failure_code(r), from_engine_n };
    memset(res, 0, sizeof *res);
    res->record = r->record;
    res->kind = lines_result(&o->p->text.lines, r, id, &o->lines);
    res->value_n = o->lines.n - e->at;
}

/* Every member of a group comes by; the last one makes the line of all. */
static void outcome_take(struct outbox *o, struct request *r)
{
    struct request_group *g = r->group;
    struct request *alone[1] = { r }, **members = g != NULL ? g->requests : alone;
    int members_n = g != NULL ? g->requests_n : 1;
    struct save_slot *slots = NULL;
    int32_t from_engine_n = 0;
    bool dropped = false;

    if (g != NULL && --g->open_n > 0)
        return;
    for (int i = 0; i < members_n; i++) {
        dropped |= members[i]->verdict == VERDICT_NONE;
        from_engine_n += members[i]->started_ns != 0;
        slots = saver_detach(members[i], slots);
    }
    if (dropped) {
        saver_keep(o->p->saver, slots);
        queue_record_give(o->p->queue, r->record);
    } else {
        result_add(o, members[0], slots, from_engine_n);
    }
    request_free_line(r);
}

static int commit_wait_ms(const struct outbox *o)
{
    int64_t left_ns;

    if (o->n == 0)
        return 200;
    left_ns = o->first_ns + o->p->cfg->commit_ms * NS_PER_MS - clock_mono_ns();
    return left_ns > 0 ? (int)(left_ns / NS_PER_MS) + 1 : 0;
}

static void *outbox_main(void *outbox)
{
    struct outbox *o = outbox;
    struct bqueue *q = o->p->outcomes;
    void *items[POP_MAX];

    while (!bqueue_ended(q)) {
        size_t n = bqueue_pop(q, items, POP_MAX, commit_wait_ms(o));

        for (size_t i = 0; i < n; i++)
            outcome_take(o, items[i]);
        if (commit_wait_ms(o) == 0 || o->n >= (size_t)o->p->cfg->commit_results_max)
            commit(o);
    }
    commit(o);
    return NULL;
}

struct outbox *outbox_open(struct pipeline *p)
{
    struct outbox *o = mem_take_zero(1, sizeof *o);

    o->p = p;
    o->ids = id_set_open();
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
    free(o->results);
    free(o->entries);
    free(o->durable);
    free(o);
}
