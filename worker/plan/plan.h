/* worker/plan/plan.h - the order of work over the whole window (design.md section 7).
 *
 * Waiting requests stand in the order of a depth-first walk over the radix tree of their prompts (which is their
 * lexicographic order, walked in a circle), so each shared prefix is computed once and stays resident while needed.
 * Before that order come: put-back requests, priorities, deadlines, and those that waited plan_wait_max_s.
 * Threads: the engine's. Ownership: plan_add takes the request, plan_next gives it away. */
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
/* Removes what plan_peek showed. */
struct request *plan_next(struct plan *p);
/* The one after peek in walk order, to look beyond a request that must be held back; NULL at the end. Used with
 * plan_take, which removes a given request. */
struct request *plan_after(struct plan *p, const struct request *r);
void plan_take(struct plan *p, struct request *r);
int64_t plan_length(const struct plan *p);

/* What prefix sharing saves, for `nightshift plan`: tokens in all prompts, and tokens of the radix tree's nodes. */
struct plan_savings { int64_t requests_n, prompt_tokens, unique_tokens, output_tokens_max; };
struct plan_savings plan_savings(const struct plan *p);

#endif
