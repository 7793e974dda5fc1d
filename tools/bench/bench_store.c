#define _POSIX_C_SOURCE 200809L
#include "tools/bench/bench_store.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "checkpoint/checkpoint.h"

enum {
    SEQUENCES = 5000, FIRST_TOKENS = 256 /* 1 KB */, MORE_TOKENS = 32, BATCH = 64,
    TOKENS_N = FIRST_TOKENS + MORE_TOKENS
};

enum figure { SAVE_FIRST, SAVE_MORE, LOAD, BEGIN, FORGET, FIGURES_N };

static const struct { const char *name, *what; } figures[FIGURES_N] = {
    [SAVE_FIRST] = { "save_first", "5,000 sequences of 256 tokens saved in one call" },
    [SAVE_MORE] = { "save_more", "32 tokens more of each, in one call" },
    [LOAD] = { "load", "all of them looked up in one call, by another owner" },
    [BEGIN] = { "begin", "5,000 records begun, 64 a call" },
    [FORGET] = { "forget", "5,000 records forgotten, 64 a call" },
};

struct bench {
    struct ckpt *store;
    uint64_t job, token;
    int64_t best_ns[FIGURES_N];
    int32_t tokens[TOKENS_N];
    struct ckpt_key keys[SEQUENCES];
    struct ckpt_save_item saves[SEQUENCES];
    struct ckpt_load_item loads[SEQUENCES];
    struct ckpt_attempts attempts[BATCH];
    uint8_t ok[SEQUENCES];
    struct arena arena;
};

static void figure_note(struct bench *b, enum figure f, int64_t begun_ns)
{
    int64_t took = clock_mono_ns() - begun_ns;

    if (b->best_ns[f] == 0 || took < b->best_ns[f])
        b->best_ns[f] = took;
}

static status save(struct bench *b, enum figure f, int32_t saved_n, int32_t tokens_n)
{
    int64_t begun;
    status st;

    for (int i = 0; i < SEQUENCES; i++)
        b->saves[i] = (struct ckpt_save_item){ b->keys[i], { .seed = 1 }, b->tokens, tokens_n, saved_n };
    begun = clock_mono_ns();
    st = ckpt_save(b->store, b->token, b->saves, SEQUENCES, b->ok);
    figure_note(b, f, begun);
    return st;
}

static status load(struct bench *b)
{
    int64_t begun = clock_mono_ns();
    status st = ckpt_load_all(b->store, b->loads, SEQUENCES);

    figure_note(b, LOAD, begun);
    for (int i = 0; i < SEQUENCES && st == ST_OK; i++)
        if (b->loads[i].progress.tokens_n != TOKENS_N)
            st = ST_RETRY;
    arena_reset(&b->arena);
    return st;
}

static status batches(struct bench *b, enum figure f)
{
    int64_t begun = clock_mono_ns();
    status st = ST_OK;

    for (size_t i = 0; i < SEQUENCES && st == ST_OK; i += BATCH) {
        size_t n = SEQUENCES - i < BATCH ? SEQUENCES - i : BATCH;

        st = f == BEGIN ? ckpt_begin(b->store, b->token, &b->keys[i], n, false, b->job | 1, b->attempts)
                        : ckpt_forget(b->store, b->token, &b->keys[i], n);
    }
    figure_note(b, f, begun);
    return st;
}

static status round_make(struct bench *b, const struct config *cfg, const char *url, struct error *err)
{
    status st = ST_OK;

    TRY(save(b, SAVE_FIRST, 0, FIRST_TOKENS));
    TRY(save(b, SAVE_MORE, FIRST_TOKENS, TOKENS_N));
    TRY(batches(b, BEGIN));
    ckpt_close(b->store);
    b->store = NULL;
    TRY(ckpt_open(url, cfg, &b->store, err));
    TRY(ckpt_acquire(b->store, b->job, 0, &b->token));
    TRY(load(b));
    TRY(batches(b, FORGET));
out:
    return st;
}

static void report(const struct bench *b, bool json, FILE *out)
{
    for (int i = 0; i < FIGURES_N; i++) {
        double s = (double)b->best_ns[i] / 1e9, us = (double)b->best_ns[i] / 1e3 / SEQUENCES;

        if (json)
            fprintf(out, "%s\"%s_s\": %.4f", i > 0 ? ", " : "{", figures[i].name, s);
        else
            fprintf(out, "%-10s %8.3f s %8.2f us each   %s\n", figures[i].name, s, us, figures[i].what);
    }
    if (json)
        fprintf(out, "}\n");
}

status bench_store_run(const struct config *cfg, const struct bench_store *options, FILE *out, struct error *err)
{
    const int64_t life[2] = { clock_wall_ns(), getpid() };
    struct bench *b = mem_take_zero(1, sizeof *b);
    int64_t end;
    status st;

    arena_init(&b->arena, 1 << 20);
    b->job = hash64(life, sizeof life, 0);
    for (int32_t i = 0; i < TOKENS_N; i++)
        b->tokens[i] = 7 * i;
    for (int i = 0; i < SEQUENCES; i++) {
        b->keys[i] = (struct ckpt_key){ b->job, 0, i, 0 };
        b->loads[i] = (struct ckpt_load_item){ .key = b->keys[i], .identity = { .seed = 1 }, .arena = &b->arena };
    }
    TRY(ckpt_open(options->url, cfg, &b->store, err));
    error_set(err, ST_RETRY, "the store does not answer, or not in time (checkpoint_timeout_ms)");
    TRY(ckpt_acquire(b->store, b->job, 0, &b->token));
    end = clock_mono_ns() + (int64_t)(options->seconds * (double)NS_PER_S);
    do {
        TRY(round_make(b, cfg, options->url, err));
    } while (clock_mono_ns() < end);
    report(b, options->json, out);
    st = ckpt_forget_job(b->store, b->token, b->job);
out:
    ckpt_close(b->store);
    arena_fini(&b->arena);
    free(b);
    return st;
}
