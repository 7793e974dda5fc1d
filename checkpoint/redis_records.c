#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/redis_store.h"

#define FORGET_MAX 1000                      /* of one script */

/* ---- attempts ---- */

static bool take_fenced(void *ctx, size_t i, const redisReply *r)
{
    bool *fenced = ctx;

    (void)i;
    *fenced |= r->integer == REDIS_FENCED;
    return r->type == REDIS_REPLY_INTEGER;
}

struct begin_call {
    struct ckpt_attempts *out;
    size_t n;
    bool fenced;
};

static int32_t count_of(const redisReply *r)
{
    long long n = r->type == REDIS_REPLY_INTEGER ? r->integer : r->type == REDIS_REPLY_STRING ? strtoll(r->str, NULL, 10) : 0;

    return n > 0 && n <= 1000000000 ? (int32_t)n : 0;
}

static struct ckpt_attempts attempts_of(redisReply *const *element)
{
    const redisReply *run = element[2];

    return (struct ckpt_attempts){ .starts = count_of(element[0]), .solo = count_of(element[1]),
                                   .last_run = run->type == REDIS_REPLY_STRING ? strtoull(run->str, NULL, 16) : 0 };
}

static size_t chunk_n(size_t keys_n, size_t first)
{
    return keys_n - first < REDIS_ITEMS_MAX ? keys_n - first : REDIS_ITEMS_MAX;
}

static bool take_begin(void *ctx, size_t i, const redisReply *r)
{
    struct begin_call *call = ctx;
    size_t first = i * REDIS_ITEMS_MAX, n = chunk_n(call->n, first);

    if (r->type == REDIS_REPLY_INTEGER)
        return take_fenced(&call->fenced, i, r);
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 3 * n)
        return false;
    for (size_t k = 0; k < n; k++)
        call->out[first + k] = attempts_of(r->element + 3 * k);
    return true;
}

/* One script a chunk, over the attempts of the records; run is NULL where the script takes none. */
static void scripts_add(struct redis_ckpt *c, enum redis_script script, uint64_t token, const struct ckpt_key *keys,
                        size_t keys_n, const char *run, bool solo)
{
    redis_sources_of(c, keys, keys_n);
    for (size_t first = 0; first < keys_n; first += REDIS_ITEMS_MAX) {
        const struct ckpt_key *chunk = keys + first;
        size_t n = chunk_n(keys_n, first);

        redis_script_begin(c, script, n, (run != NULL) + 1 + 2 * n);
        for (size_t i = 0; i < n; i++)
            redis_arg_record(c, &chunk[i]);
        redis_arguments_begin(c, token);
        if (run != NULL)
            redis_arg_text(c->link, run);
        redis_arg_number(c->link, solo);
        for (size_t i = 0; i < n; i++) {
            redis_arg_number(c->link, (int64_t)redis_source_add(c, &chunk[i]));
            redis_arg_member(c, &chunk[i], false);
        }
    }
}

status redis_begin(struct ckpt *ckpt, uint64_t token, const struct ckpt_key *keys, size_t keys_n, bool solo, uint64_t run,
                   struct ckpt_attempts *out)
{
    struct redis_ckpt *c = (struct redis_ckpt *)ckpt;
    struct begin_call call = { out, keys_n, false };
    char run_text[17];
    status st = ST_OK;

    snprintf(run_text, sizeof run_text, "%016" PRIx64, run);
    TRY(redis_link_ready(c->link));
    scripts_add(c, SCRIPT_BEGIN, token, keys, keys_n, run_text, solo);
    TRY(redis_link_exchange(c->link, take_begin, &call));
    TRY(call.fenced ? ST_FENCED : ST_OK);
out:
    return st;
}

status redis_hand_over(struct ckpt *ckpt, uint64_t token, const struct ckpt_key *keys, size_t keys_n, bool solo)
{
    struct redis_ckpt *c = (struct redis_ckpt *)ckpt;
    bool fenced = false;
    status st = ST_OK;

    TRY(redis_link_ready(c->link));
    scripts_add(c, SCRIPT_HAND_OVER, token, keys, keys_n, NULL, solo);
    TRY(redis_link_exchange(c->link, take_fenced, &fenced));
    TRY(fenced ? ST_FENCED : ST_OK);
out:
    return st;
}

static bool take_attempts(void *ctx, size_t i, const redisReply *r)
{
    struct ckpt_attempts *out = ctx;

    out[i] = (struct ckpt_attempts){ 0, 0, 0 };
    if (r->type == REDIS_REPLY_ERROR)
        return true;
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 3)
        return false;
    out[i] = attempts_of(r->element);
    return true;
}

status redis_attempts(struct ckpt *ckpt, const struct ckpt_key *keys, size_t keys_n, struct ckpt_attempts *out)
{
    struct redis_ckpt *c = (struct redis_ckpt *)ckpt;
    status st = ST_OK;

    TRY(redis_link_ready(c->link));
    for (size_t i = 0; i < keys_n; i++) {
        redis_command(c->link, 5);
        redis_arg_text(c->link, "HMGET");
        redis_arg_record(c, &keys[i]);
        redis_arg_text(c->link, "n");
        redis_arg_text(c->link, "solo");
        redis_arg_text(c->link, "run");
    }
    TRY(redis_link_exchange(c->link, take_attempts, out));
out:
    return st;
}

/* ---- the end of records and jobs ---- */

status redis_forget(struct ckpt *ckpt, uint64_t token, const struct ckpt_key *keys, size_t keys_n)
{
    struct redis_ckpt *c = (struct redis_ckpt *)ckpt;
    bool fenced = false;
    status st = ST_OK;

    TRY(redis_link_ready(c->link));
    redis_sources_of(c, keys, keys_n);
    for (size_t i = 0; i < keys_n; i++)
        redis_cut_forget(c, &keys[i]);
    for (size_t first = 0; first < keys_n; first += REDIS_ITEMS_MAX) {
        size_t end = first + chunk_n(keys_n, first);

        redis_script_begin(c, SCRIPT_FORGET, 2 * (end - first), 3 * (end - first));
        for (size_t i = first; i < end; i++) {
            redis_arg_sequence(c, &keys[i]);
            redis_arg_record(c, &keys[i]);
        }
        redis_arguments_begin(c, token);
        for (size_t i = first; i < end; i++) {
            redis_arg_number(c->link, (int64_t)redis_source_add(c, &keys[i]));
            redis_arg_member(c, &keys[i], true);
            redis_arg_member(c, &keys[i], false);
        }
    }
    TRY(redis_link_exchange(c->link, take_fenced, &fenced));
    TRY(fenced ? ST_FENCED : ST_OK);
out:
    return st;
}

static bool take_sources(void *ctx, size_t i, const redisReply *r)
{
    struct redis_ckpt *c = ctx;

    (void)i;
    c->sources_n = 0;
    if (r->type == REDIS_REPLY_ERROR)
        return true;
    if (r->type != REDIS_REPLY_ARRAY)
        return false;
    for (size_t k = 0; k < r->elements; k++) {
        struct ckpt_key key = { 0 };

        if (r->element[k]->type != REDIS_REPLY_STRING)
            return false;
        key.source = (int32_t)strtol(r->element[k]->str, NULL, 10);
        redis_source_add(c, &key);
    }
    return true;
}

/* The sources of a job, in c->sources. */
static status sources_read(struct redis_ckpt *c, uint64_t job)
{
    status st = ST_OK;

    redis_command(c->link, 2);
    redis_arg_text(c->link, "SMEMBERS");
    redis_arg_sources(c, job);
    TRY(redis_link_exchange(c->link, take_sources, c));
    for (size_t i = 0; i < c->sources_n; i++)
        c->sources[i].job = job;
out:
    return st;
}

struct forget_call {
    bool fenced;
    int64_t left;
};

static bool take_left(void *ctx, size_t i, const redisReply *r)
{
    struct forget_call *call = ctx;

    (void)i;
    call->fenced |= r->integer == REDIS_FENCED;
    call->left += r->integer > 0 ? r->integer : 0;
    return r->type == REDIS_REPLY_INTEGER;
}

/* Takes up to `most` items of each source away, and tells what is left. */
static status sources_forget(struct redis_ckpt *c, uint64_t token, int64_t most, int64_t *left)
{
    struct forget_call call = { false, 0 };
    status st = ST_OK;

    for (size_t i = 0; i < c->sources_n; i++) {
        uint64_t job = c->sources[i].job;
        int32_t source = c->sources[i].number;

        redis_command_script(c->link, SCRIPT_FORGET_SOURCE, 2, 2);
        redis_arg_name(c, 'f', job, source);
        redis_arg_name(c, 'i', job, source);
        redis_arg_number(c->link, (int64_t)token);
        redis_arg_number(c->link, most);
    }
    if (c->sources_n > 0)
        TRY(redis_link_exchange(c->link, take_left, &call));
    *left = call.left;
    TRY(call.fenced ? ST_FENCED : ST_OK);
out:
    return st;
}

/* All fences first, so that a job with a newer owner keeps everything. Fences and the set of sources stay until they expire. */
status redis_forget_job(struct ckpt *ckpt, uint64_t token, uint64_t job)
{
    struct redis_ckpt *c = (struct redis_ckpt *)ckpt;
    status st = ST_OK;
    int64_t left;

    TRY(redis_link_ready(c->link));
    TRY(sources_read(c, job));
    TRY(sources_forget(c, token, 0, &left));
    while (left > 0)
        TRY(sources_forget(c, token, FORGET_MAX, &left));
out:
    return st;
}

static bool take_sum(void *ctx, size_t i, const redisReply *r)
{
    int64_t *sum = ctx;

    if (i == 0)
        *sum = 0;
    if (r->type == REDIS_REPLY_INTEGER)
        *sum += r->integer;
    return r->type == REDIS_REPLY_INTEGER || r->type == REDIS_REPLY_ERROR;
}

status redis_count(struct ckpt *ckpt, uint64_t job, int64_t *out)
{
    struct redis_ckpt *c = (struct redis_ckpt *)ckpt;
    status st = ST_OK;

    TRY(redis_link_ready(c->link));
    TRY(sources_read(c, job));
    for (size_t i = 0; i < c->sources_n; i++) {
        redis_command(c->link, 2);
        redis_arg_text(c->link, "SCARD");
        redis_arg_name(c, 'i', job, c->sources[i].number);
    }
    *out = 0;
    if (c->sources_n > 0)
        TRY(redis_link_exchange(c->link, take_sum, out));
out:
    return st;
}
