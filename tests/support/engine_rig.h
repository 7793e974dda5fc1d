/* tests/support/engine_rig.h - an engine over the tiny model, requests made by hand, and what came back.
 * Threads: one. Ownership: the rig keeps every request that ended or was dropped until rig_forget or rig_close. */
#ifndef TESTS_SUPPORT_ENGINE_RIG_H
#define TESTS_SUPPORT_ENGINE_RIG_H

#include "tests/support/tiny_model.h"
#include "worker/engine/engine.h"

struct rig {
    struct config cfg;                 /* of the next rig_start */
    struct gguf *gguf;
    struct device *device;
    struct model *model;
    struct tokenizer *tokenizer;
    struct engine *engine;
    struct request **ended, **dropped;
    size_t ended_n, dropped_n, room;
    struct engine_ports ports;         /* of the next rig_start: begin, cleared and safe; NULL by default */
    int64_t progress_n;                /* calls of ports.progress, and the last one's */
    int64_t progress_offset;
    int32_t progress_choice, progress_tokens_n;
};

/* The device is the CPU, or what the environment variable NIGHTSHIFT_TEST_DEVICE names ("cuda").
 * Writes the tiny model, opens it with cfg.threads of `threads`; one layer less than the default keeps tests short. */
void rig_open(struct rig *g, int threads, const struct tiny_options *o);
void rig_close(struct rig *g);
/* A fresh engine with g->cfg; ends the one before, which must be empty. */
void rig_start(struct rig *g);
/* Steps until there is nothing to do. */
void rig_run(struct rig *g);
void rig_forget(struct rig *g);
/* Ended request by offset and prompt_i 0; fails the test where there is none. */
struct request *rig_ended(struct rig *g, int64_t offset);

/* temperature 0, top_p 1, n 1, no penalty, ignore_eos off; seed of choice i: hash of (offset, i). */
struct request *rig_request(int64_t offset, const int32_t *prompt, int32_t prompt_n, int32_t max_tokens);
/* Before submit, after params.n was set: room for the choices (rig_request makes one). */
void rig_choices(struct request *r, int32_t n);
/* Deterministic prompt: `shared` tokens of a family, then own ones; ids above the control tokens. */
void rig_prompt(int32_t *out, int32_t n, int32_t shared, uint64_t family, uint64_t own);
/* The whole outcome as one number: tokens, text, finish, log-probabilities' bits, prompt log-probabilities. */
uint64_t rig_outcome(const struct request *r);

#endif
