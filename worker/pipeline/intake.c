/* The pool of threads that parse, render and encode ahead of the engine. */
#include "worker/pipeline/internal.h"

static void request_hand_on(struct pipeline *p, struct request *r)
{
    status st = r->verdict != VERDICT_NONE || !record_is_ours(p, r->record) ? ST_FENCED
              : saver_looks_up(p->saver)                                    ? saver_look_up(p->saver, r)
                                                                            : bqueue_push(p->admits, r);

    /* With a verdict to its result line; without one, because we are stopping or it is another's now, to be dropped there. */
    if (st != ST_OK)
        outcome_push(p, r);
}

/* The record stays with the request until the outbox is done with it. */
static void line_hand_on(struct pipeline *p, struct request *r, struct record *rec)
{
    struct request_group *g = r->group;
    int members_n = g != NULL ? g->requests_n : 1;

    queue_record_settle(p->queue, rec);
    for (int m = 0; m < members_n; m++)
        (g != NULL ? g->requests[m] : r)->record = rec;
    /* The array is the group's own: a member may be freed as soon as it is handed on, the group not before its last one. */
    for (int m = 0; m < members_n; m++)
        request_hand_on(p, g != NULL ? g->requests[m] : r);
}

void *intake_main(void *pipeline)
{
    struct pipeline *p = pipeline;
    struct intake *in = intake_open(&p->text.lines);
    void *items[8];
    size_t n;

    while (!bqueue_ended(p->records)) {
        n = bqueue_pop(p->records, items, sizeof items / sizeof items[0], 100);
        for (size_t i = 0; i < n; i++) {
            struct record *rec = items[i];
            struct request *r = NULL;

            if (!atomic_load(&p->stopping) && record_is_ours(p, rec) && intake_read(in, rec, &r) == ST_OK)
                line_hand_on(p, r, rec);
            else
                record_end(p, rec);
        }
    }
    intake_close(in);
    if (atomic_fetch_sub(&p->intakes_left, 1) == 1)
        saver_look_ups_end(p->saver);       /* the saver closes admits behind the last look-up */
    return NULL;
}
