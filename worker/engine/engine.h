/* worker/engine/engine.h - sequences and the step loop: composes a step, runs it, applies what came back.
 *
 * Threads:   all calls belong to one thread (the engine's), which is also the device's.
 * Ownership: engine_submit takes a request; it comes back through ports.ended, with verdict and choices filled in.
 * Order:     every running sequence decodes one row a step; the rest of the row budget are prefill chunks, oldest sequence
 *            first. The budget is step_rows_max, or less where the measured cost of a row says that the step would take
 *            longer than step_ms_max (decode rows are never left out: they share the reading of the weights).
 * Admission: by pages (prompt + the output length that ended requests let expect), up to sequences_max sequences and
 *            never more than step_rows_max; when pages run out the youngest sequence goes back, with its tokens. A request
 *            whose prompt begins with a run that another is computing right now waits for it; others are looked for
 *            beyond it. The oldest sequence is never put back, so the engine always gets on; a sequence that the whole
 *            pool cannot hold ends with FINISH_ERROR.
 * Choices:   a request's choices are sequences of their own; the first computes the prompt, the others take its pages.
 *            Tokens found in a choice at engine_submit (a checkpoint's) are kept as if they had been decoded here.
 * Lane:      a request whose earlier starts ended in the death of a process runs apart from all others, see lane.c.
 * Endings:   an end token (of the model or of stop_tokens) is the last of choice.tokens and no part of the text, unless
 *            params.include_stop. Log-probabilities asked for are there for every token, resumed ones too.
 * The step loop allocates nothing once a sequence is admitted, but for output growth. */
#ifndef WORKER_ENGINE_ENGINE_H
#define WORKER_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"
#include "worker/cache/cache.h"
#include "worker/lines/request.h"
#include "worker/model/model.h"
#include "worker/plan/cost.h"

struct engine;

/* What the store that counts starts says of one. */
enum engine_begun {
    BEGUN_NOT_YET,                 /* asked; ask again at the next step */
    BEGUN_GO,                      /* counted, or there is no store */
    BEGUN_SUSPECT,                 /* not counted: earlier starts ended in a death (request.starts says how many); to the lane */
    BEGUN_OVER                     /* ... often enough and alone: the request's verdict is LINES_QUARANTINED, already set */
};

struct engine_ports {
    void *ctx;
    /* New tokens of a choice are worth a frame (checkpoint_tokens or checkpoint_ms are over, or it was put back). Must not
     * block. */
    void (*progress)(void *ctx, const struct request *r, int32_t choice);
    /* The request has its verdict and is the callee's now. May block: that is the back-pressure. Must not call the
     * engine. */
    void (*ended)(void *ctx, struct request *r);
    /* A request is about to start; alone: with no other in the step. Must not block. Asked again until there is an answer.
     * NULL: starts are not counted. */
    enum engine_begun (*begin)(void *ctx, struct request *r, bool alone);
    /* It has lived through what killed earlier starts: the start that was counted is taken back. NULL with begin. */
    void (*cleared)(void *ctx, struct request *r);
    /* How many tokens of a choice a death would not cost: they are in the store, or it cannot be helped (INT32_MAX). Asked when
     * that matters: a sequence with twice checkpoint_tokens more sits out steps. Must not block. NULL: it never matters. */
    int32_t (*safe)(void *ctx, const struct request *r, int32_t choice);
};

struct engine_counts {             /* since the start; read on the engine's thread */
    int64_t steps_n, rows_n, prompt_tokens, cached_tokens, output_tokens, resumed_tokens, put_back_n;
    int64_t expired_n, quarantined_n;
    int64_t prefill_tokens;        /* known tokens that were really computed (recomputing after a put-back included) */
    double device_s, host_s;       /* in model_forward; everything else between steps while there was work, without the
                                    * time that ports.ended took */
    int running_n;                 /* sequences */
    int64_t waiting_n;
    int64_t lane_n;                /* of them, those that run apart because a start of theirs ended in a death */
};

/* tokenizer: for detok and end tokens. The engine owns KV pool, cache and plan. ST_REJECT: the KV pool would have no page,
 * or could not be had. */
MUST_USE status engine_open(const struct config *cfg, struct device *d, struct model *m, const struct tokenizer *t,
                            const struct engine_ports *ports, struct engine **out, struct error *err);
void engine_close(struct engine *e);           /* drops nothing: call engine_drop first; NULL is allowed */

void engine_submit(struct engine *e, struct request *r);
/* How many more requests it wants now (window and its memory). */
int64_t engine_room(const struct engine *e);
/* One step. ST_AGAIN: nothing to do. ST_FATAL: the device failed. */
MUST_USE status engine_step(struct engine *e);
/* Takes out every request, running or waiting, without a verdict: each comes back once through the callback. For a drain,
 * after which free + cached = total is checked. */
void engine_drop(struct engine *e, void (*dropped)(void *ctx, struct request *r), void *ctx);

/* Those for which `which` is true, as engine_drop; the others go on. */
void engine_drop_some(struct engine *e, bool (*which)(void *ctx, const struct request *r),
                      void (*dropped)(void *ctx, struct request *r), void *ctx);
/* Nothing more is started, what runs goes on: for a drain. */
void engine_hold(struct engine *e);

const struct engine_counts *engine_counts(const struct engine *e);
struct cache_counts engine_cache_counts(const struct engine *e);
const struct cost_model *engine_cost(const struct engine *e);

#endif
