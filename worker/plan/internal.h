/* worker/plan/internal.h - what plan.c and walk.c share. Private to worker/plan. */
#ifndef WORKER_PLAN_INTERNAL_H
#define WORKER_PLAN_INTERNAL_H

#include "worker/plan/plan.h"

/* A waiting request's places: in the walk, in arrival order, among the deadlines. */
struct waiting {
    struct request *request;
    struct walk *walk;                             /* NULL: put back */
    struct waiting *parent, *left, *right;         /* search tree */
    struct waiting *before, *after;                /* ring in walk order; of put-back requests, their list */
    struct waiting *older, *newer;                 /* arrival */
    int64_t arrival_i, turn_ns;                    /* turn_ns: when arrival order would have started it; 0: not yet */
    int64_t deadline_i;                            /* place in the heap; -1: none */
    int64_t bytes;
    uint32_t priority;                             /* of the treap */
};

/* The requests of one priority value, long or ordinary. The walk stands behind a prompt that is gone from it; its copy
 * tells whether a new request lies ahead (walked now) or behind (walked in the next circle). */
struct walk {
    int64_t value;
    bool is_long;
    struct waiting *root, *cursor;                 /* cursor: next in the circle; NULL: empty */
    bool wrapped;                                  /* nothing waits ahead: the cursor is the smallest */
    int64_t n;
    int32_t *stand, stand_n, stand_room;           /* the prompt; stand_n 0: the walk has not begun */
};

int32_t walk_common(const int32_t *a, const int32_t *b, int32_t from, int32_t n);
struct walk *walk_open(int64_t value, bool is_long);
void walk_close(struct walk *w);
void walk_insert(struct walk *w, struct waiting *x);
void walk_remove(struct walk *w, struct waiting *x);
struct waiting *walk_first(const struct walk *w);  /* smallest; NULL: empty */
int32_t walk_wanted(const struct walk *w, const int32_t *tokens, int32_t tokens_n);

#endif
