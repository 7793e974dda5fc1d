/* worker/plan/plan.h - the order of work over the whole window (design.md section 7).
 *
 * Waiting requests stand in the order of a depth-first walk over the radix tree of their prompts (which is their
 * lexicographic order, walked in a circle), so each shared prefix is computed once and stays resident while needed.
 * Before that order come, in this order:
 *   put-back requests, the one put back last first (it is the oldest: the youngest is put back first);
 *   the oldest request that has waited plan_wait_max_s beyond the moment at which arrival order would have started it;
 *   the earliest deadline, once it is less than plan_wait_max_s away;
 *   lower priority values: the walk serves the lowest one present.
 * Requests that may answer several times longer than most have a walk of their own, and the two take turns: long answers
 * begin early and among short ones, so that no few of them are left for the end.
 * A request that arrives ahead of the place where the walk stands is walked in this circle, one behind it in the next.
 * Cost: one search tree descent a request; comparisons skip what both neighbours of the search are known to share.
 * Threads: the engine's. Ownership: plan_add takes the request, plan_next and plan_take give it away; request.stage is the
 * plan's meanwhile. */
#ifndef WORKER_PLAN_PLAN_H
#define WORKER_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"
#include "worker/lines/request.h"

struct plan;

struct plan *plan_open(const struct config *cfg);
void plan_close(struct plan *p);               /* must be empty; NULL is allowed */
void plan_add(struct plan *p, struct request *r);
/* Back to the front of the line, with the tokens it has. */
void plan_put_back(struct plan *p, struct request *r);
/* The request that should start next, still the plan's; NULL: none. */
struct request *plan_peek(struct plan *p);
/* Removes what plan_peek shows now. */
struct request *plan_next(struct plan *p);
/* The one after r, to look beyond a request that must be held back: from the request of plan_peek each request comes
 * once, then NULL. Used with plan_take, which removes a given request. Valid until the next plan_peek. */
struct request *plan_after(struct plan *p, const struct request *r);
void plan_take(struct plan *p, struct request *r);
/* One that has not started and whose deadline is before now_ms (Unix time), still the plan's; NULL: none. */
struct request *plan_expired(const struct plan *p, int64_t now_ms);
bool plan_has_deadlines(const struct plan *p);
int64_t plan_length(const struct plan *p);
int64_t plan_bytes(const struct plan *p);      /* memory of the waiting requests, as it was when they were added */

/* What of the tokens is worth keeping: soon_n of them begin a request that comes next (put back, or where a walk stands),
 * later_n some waiting request; soon_n <= later_n. */
struct plan_wants { int32_t soon_n, later_n; };
struct plan_wants plan_wanted(const struct plan *p, const int32_t *tokens, int32_t tokens_n);

/* What prefix sharing saves, for `nightshift plan`: tokens in all prompts, and tokens of the radix tree's nodes. */
struct plan_savings { int64_t requests_n, prompt_tokens, unique_tokens, output_tokens_max; };
struct plan_savings plan_savings(const struct plan *p);

#endif
