#include "tests/support/engine_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"

#define VOCAB_SAFE 300                 /* ids below it are in the tiny model's vocabulary */
#define STEP_ROWS 512

static void check(status st, const struct error *err)
{
    if (st != ST_OK)
        fail_msg("%s: %s", status_name(st), err->text);
}

void rig_open(struct rig *g, int threads, const struct tiny_options *o)
{
    struct tiny_options defaults;
    struct tokenizer_spec spec;
    struct error err = { "" };
    const char *device = getenv("NIGHTSHIFT_TEST_DEVICE");
    void *memory = NULL;
    char path[64];

    memset(g, 0, sizeof *g);
    tiny_model_defaults(&defaults);
    defaults.layers_n = 2;
    snprintf(path, sizeof path, "engine_rig_%d.gguf", (int)getpid());
    tiny_model_write(path, o != NULL ? o : &defaults);
    config_defaults(&g->cfg);
    if (device != NULL)
        snprintf(g->cfg.device, sizeof g->cfg.device, "%s", device);
    g->cfg.threads = threads;
    g->cfg.kv_pages_max = 1000;
    check(gguf_open(path, &g->gguf, &err), &err);
    unlink(path);
    check(device_open(&g->cfg, &g->device, &err), &err);
    check(model_open(g->gguf, g->device, STEP_ROWS, 64, &g->model, &err), &err);
    check(gguf_tokenizer(g->gguf, &spec, &memory, &err), &err);
    check(tokenizer_open(&spec, &g->tokenizer, &err), &err);
    free(memory);
}

static void keep(struct rig *g, struct request ***list, size_t *n, struct request *r)
{
    if (g->room == 0) {
        g->room = 1 << 16;
        g->ended = mem_take(g->room * sizeof g->ended[0]);
        g->dropped = mem_take(g->room * sizeof g->dropped[0]);
    }
    assert_true(*n < g->room);
    (*list)[(*n)++] = r;
}

static void on_ended(void *rig, struct request *r)
{
    struct rig *g = rig;

    assert_true(r->verdict != VERDICT_NONE);
    keep(g, &g->ended, &g->ended_n, r);
}

static void on_dropped(void *rig, struct request *r)
{
    struct rig *g = rig;

    assert_true(r->verdict == VERDICT_NONE);
    keep(g, &g->dropped, &g->dropped_n, r);
}

static void on_progress(void *rig, const struct request *r, int32_t choice)
{
    struct rig *g = rig;

    free(mem_take(1));                 /* as the saver does: wherever the engine calls, a port may take memory */
    g->progress_n++;
    g->progress_offset = r->offset;
    g->progress_choice = choice;
    g->progress_tokens_n = r->choices[choice].tokens_n;
}

static void stop(struct rig *g)
{
    if (g->engine == NULL)
        return;
    engine_drop(g->engine, on_dropped, g);
    engine_close(g->engine);
    g->engine = NULL;
}

void rig_start(struct rig *g)
{
    struct engine_ports ports = g->ports;
    struct error err = { "" };

    ports.ctx = g;
    ports.progress = on_progress;
    ports.ended = on_ended;
    stop(g);
    check(engine_open(&g->cfg, g->device, g->model, g->tokenizer, &ports, &g->engine, &err), &err);
}

void rig_run(struct rig *g)
{
    status st;

    while ((st = engine_step(g->engine)) == ST_OK)
        ;
    assert_int_equal(st, ST_AGAIN);
    assert_int_equal(engine_cache_counts(g->engine).held, 0);
}

void rig_forget(struct rig *g)
{
    while (g->ended_n > 0)
        request_free(g->ended[--g->ended_n]);
    while (g->dropped_n > 0)
        request_free(g->dropped[--g->dropped_n]);
}

void rig_close(struct rig *g)
{
    stop(g);
    rig_forget(g);
    free(g->ended);
    free(g->dropped);
    tokenizer_close(g->tokenizer);
    model_close(g->model);
    device_close(g->device);
    gguf_close(g->gguf);
}

struct request *rig_ended(struct rig *g, int64_t offset)
{
    for (size_t i = 0; i < g->ended_n; i++)
        if (g->ended[i]->offset == offset)
            return g->ended[i];
    fail_msg("request %lld has not ended", (long long)offset);
    return NULL;
}

void rig_choices(struct request *r, int32_t n)
{
    r->params.n = n;
    r->choices = arena_take_zero(&r->arena, (size_t)n, sizeof r->choices[0]);
    for (int32_t i = 0; i < n; i++)
        r->choices[i].seed = hash64(&i, sizeof i, (uint64_t)r->offset + 99);
}

struct request *rig_request(int64_t offset, const int32_t *prompt, int32_t prompt_n, int32_t max_tokens)
{
    struct request *r = request_new();

    r->offset = offset;
    r->endpoint = ENDPOINT_COMPLETIONS;
    r->params = (struct params){ .top_p = 1, .repetition = 1, .max_tokens = max_tokens, .skip_special = true };
    r->prompt = (int32_t *)(void *)arena_copy(&r->arena, prompt, (size_t)prompt_n * sizeof prompt[0]);
    r->prompt_n = prompt_n;
    rig_choices(r, 1);
    return r;
}

void rig_prompt(int32_t *out, int32_t n, int32_t shared, uint64_t family, uint64_t own)
{
    for (int32_t i = 0; i < n; i++) {
        uint64_t h = hash64(&i, sizeof i, i < shared ? family : own + 1000000);

        out[i] = 3 + (int32_t)(h % (VOCAB_SAFE - 3));
    }
}

static void logprob_add(struct hasher *h, const struct logprob *l)
{
    hasher_add(h, &l->token, sizeof l->token);
    hasher_add(h, &l->logprob, sizeof l->logprob);
    hasher_add(h, &l->top_n, sizeof l->top_n);
    for (int32_t k = 0; k < l->top_n; k++) {
        hasher_add(h, &l->top[k].token, sizeof l->top[k].token);
        hasher_add(h, &l->top[k].logprob, sizeof l->top[k].logprob);
    }
}

uint64_t rig_outcome(const struct request *r)
{
    struct hasher *h = hasher_open();

    hasher_add(h, &r->verdict, sizeof r->verdict);
    for (int32_t i = 0; i < r->params.n; i++) {
        const struct choice *c = &r->choices[i];

        hasher_add(h, &c->finish, sizeof c->finish);
        hasher_add(h, &c->tokens_n, sizeof c->tokens_n);
        hasher_add(h, c->tokens, (size_t)c->tokens_n * sizeof c->tokens[0]);
        hasher_add(h, &c->detok.shown_n, sizeof c->detok.shown_n);
        hasher_add(h, c->detok.text.data, c->detok.shown_n);
        for (int32_t k = 0; r->params.logprobs && k < c->tokens_n; k++)
            logprob_add(h, &c->logprobs[k]);
    }
    for (int32_t i = 1; r->params.echo_logprobs && i < r->prompt_n; i++)
        logprob_add(h, &r->prompt_logprobs[i]);
    return hasher_end(h).low;
}
