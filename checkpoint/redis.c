/* The store that workers share: Redis as a cache of progress that may always be gone, empty or older than the truth.
 *
 * A sequence is one string of frames that grows by SETRANGE at a fixed offset, so that a save whose answer got lost is sent
 * again without harm. Where the next frames go is remembered per sequence (struct redis_cut: how many tokens, the byte where
 * they end, the last bytes there, which are the running hash of all of them); the script compares those bytes, so a store that
 * lost or replaced something answers "gap" instead of being spoilt. The memory of cuts is a cache of fixed size: what is not in
 * it is learnt by reading the sequence.
 * A new owner replaces a sequence, or appends behind the longest valid prefix that it loaded: that write cuts off whatever its
 * predecessor had behind it.
 * Keys, scripts and the reason for each step: redis_scripts.[ch]. Connection, time-outs, errors: redis_link.[ch]. */
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/frames.h"
#include "checkpoint/redis_store.h"
#include "checkpoint/redis_tls.h"

#define CUTS_N 16384                         /* a window of running sequences has room */
#define CUT_WAYS 8                           /* places where one may stand: few are pushed out before the table is full */
#define TAIL_N 8
#define OFFSET_UNKNOWN (INT64_C(1) << 52)    /* beyond the end of any string: always a gap */
#define SAVE_BYTES_MAX (1 << 20)             /* of one script, while it runs nobody else is served */
#define LOADS_MAX 256                        /* in one exchange */
#define VALUE_BYTES_MAX (16 << 20)           /* read of a sequence: 4 M tokens. More is a stranger's, or goes unread */
#define KEEP_MS (INT64_C(7) * 24 * 3600 * 1000)
#define SEQUENCE_TOKENS 4096                 /* for the estimate of memory: a long answer */
#define GROWN_PERCENT 170                    /* a string that grows is given room ahead: 5176 B for 3072 B were measured */

struct place {
    int64_t end;                             /* the byte where the next frames go */
    char tail[TAIL_N];                       /* the bytes before it */
};

struct redis_cut {
    struct ckpt_key key;
    int32_t tokens_n;                        /* 0: the slot is free */
    struct place place;
};

/* ---- fencing ---- */

static bool take_number(void *ctx, size_t i, const redisReply *r)
{
    int64_t *out = ctx;

    (void)i;
    *out = r->integer;
    return r->type == REDIS_REPLY_INTEGER;
}

static status redis_acquire(struct ckpt *ckpt, uint64_t job, int32_t source, uint64_t *token)
{
    struct redis_ckpt *c = (struct redis_ckpt *)ckpt;
    int64_t next = 0;
    status st = ST_OK;

    TRY(redis_link_ready(c->link));
    redis_command_script(c->link, SCRIPT_ACQUIRE, 2, 2);
    redis_arg_name(c, 'f', job, source);
    redis_arg_sources(c, job);
    redis_arg_number(c->link, source);
    redis_arg_number(c->link, c->keep_ms);
    TRY(redis_link_exchange(c->link, take_number, &next));
    *token = (uint64_t)next;
out:
    return st;
}

/* ---- cuts ---- */

static bool key_equal(const struct ckpt_key *a, const struct ckpt_key *b)
{
    return a->job == b->job && a->source == b->source && a->offset == b->offset && a->choice == b->choice;
}

/* The first of the CUT_WAYS slots where it may stand. */
static struct redis_cut *cuts_of(const struct redis_ckpt *c, const struct ckpt_key *key)
{
    const uint64_t words[3] = { key->job, (uint64_t)key->offset,
                                (uint64_t)(uint32_t)key->source << 32 | (uint32_t)key->choice };

    return &c->cuts[hash64(words, sizeof words, 0) % (CUTS_N / CUT_WAYS) * CUT_WAYS];
}

static bool cut_get(const struct redis_ckpt *c, const struct ckpt_key *key, int32_t tokens_n, struct place *out)
{
    const struct redis_cut *cut = cuts_of(c, key);

    for (int i = 0; i < CUT_WAYS; i++)
        if (cut[i].tokens_n == tokens_n && key_equal(&cut[i].key, key)) {
            *out = cut[i].place;
            return true;
        }
    return false;
}

static void cut_set(struct redis_ckpt *c, const struct ckpt_key *key, int32_t tokens_n, const struct place *place)
{
    struct redis_cut *cut = cuts_of(c, key), *to = NULL;

    for (int i = 0; i < CUT_WAYS && to == NULL; i++)
        if (cut[i].tokens_n > 0 && key_equal(&cut[i].key, key))
            to = &cut[i];
    for (int i = 0; i < CUT_WAYS && to == NULL; i++)
        if (cut[i].tokens_n == 0)
            to = &cut[i];
    if (to == NULL)
        to = &cut[c->pushed_n++ % CUT_WAYS];
    *to = (struct redis_cut){ *key, tokens_n, *place };
}

void redis_cut_forget(struct redis_ckpt *c, const struct ckpt_key *key)
{
    struct redis_cut *cut = cuts_of(c, key);

    for (int i = 0; i < CUT_WAYS; i++)
        if (key_equal(&cut[i].key, key))
            cut[i].tokens_n = 0;
}

/* `end`: where frames end in a stored sequence; 0: nowhere. */
static bool place_at(const redisReply *r, size_t end, struct place *out)
{
    if (end < TAIL_N)
        return false;
    out->end = (int64_t)end;
    memcpy(out->tail, r->str + end - TAIL_N, TAIL_N);
    return true;
}

/* ---- reading ---- */

static void read_add(struct redis_ckpt *c, const struct ckpt_key *key)
{
    redis_command(c->link, 4);
    redis_arg_text(c->link, "GETRANGE");
    redis_arg_sequence(c, key);
    redis_arg_number(c->link, 0);
    redis_arg_number(c->link, VALUE_BYTES_MAX - 1);
}

struct load_call {
    struct redis_ckpt *c;
    struct ckpt_load_item *items;            /* of this exchange */
    status st;
};

static bool take_load(void *ctx, size_t i, const redisReply *r)
{
    struct load_call *call = ctx;
    struct ckpt_load_item *item = &call->items[i];
    struct place place;
    size_t end;
    status st;

    if (r->type == REDIS_REPLY_ERROR)
        return true;
    if (r->type != REDIS_REPLY_STRING)
        return false;
    st = frames_read(r->str, r->len, &item->identity, item->arena, &item->progress, &end);
    if (st == ST_OK && place_at(r, end, &place))
        cut_set(call->c, &item->key, item->progress.tokens_n, &place);
    if (st != ST_OK && st != ST_AGAIN)
        call->st = st;
    return true;
}

static status redis_load(struct ckpt *ckpt, struct ckpt_load_item *items, size_t items_n)
{
    struct redis_ckpt *c = (struct redis_ckpt *)ckpt;
    status st = redis_link_ready(c->link);

    for (size_t i = 0; i < items_n && st == ST_OK; i += LOADS_MAX) {
        struct load_call call = { c, items + i, ST_OK };

        for (size_t k = i; k < items_n && k < i + LOADS_MAX; k++)
            read_add(c, &items[k].key);
        st = redis_link_exchange(c->link, take_load, &call);
        if (st == ST_OK)
            st = call.st;
    }
    return st;
}

/* ---- saving ---- */

/* What is written of one item. */
struct piece {
    size_t from, n;                          /* in c->frames */
    bool replaces;
    struct place place;                      /* else: where */
};

struct learn_call {
    const struct ckpt_save_item *items;
    struct piece *pieces;
    size_t which[LOADS_MAX], n;
};

static bool take_learn(void *ctx, size_t i, const redisReply *r)
{
    struct learn_call *call = ctx;
    const struct ckpt_save_item *item = &call->items[call->which[i]];

    if (r->type == REDIS_REPLY_STRING)
        place_at(r, frames_end(r->str, r->len, &item->identity, item->saved_n), &call->pieces[call->which[i]].place);
    return r->type == REDIS_REPLY_STRING || r->type == REDIS_REPLY_ERROR;
}

/* Finds where each item goes; reads those that are to be continued at a place that is not remembered. */
static status places_find(struct redis_ckpt *c, const struct ckpt_save_item *items, size_t items_n, struct piece *pieces)
{
    struct learn_call call = { .items = items, .pieces = pieces, .n = 0 };
    status st = ST_OK;

    for (size_t i = 0; i < items_n && st == ST_OK; i++) {
        pieces[i] = (struct piece){ .replaces = items[i].saved_n == 0, .place = { .end = OFFSET_UNKNOWN } };
        if (!pieces[i].replaces && !cut_get(c, &items[i].key, items[i].saved_n, &pieces[i].place)) {
            read_add(c, &items[i].key);
            call.which[call.n++] = i;
        }
        if (call.n > 0 && (call.n == LOADS_MAX || i + 1 == items_n)) {
            st = redis_link_exchange(c->link, take_learn, &call);
            call.n = 0;
        }
    }
    return st;
}

/* The new frames of one item. Nothing new: no bytes, and what follows the place is cut off all the same. */
static void piece_fill(struct redis_ckpt *c, const struct ckpt_save_item *item, struct piece *p)
{
    p->from = c->frames.n;
    if (p->replaces)
        frame_add_identity(&c->frames, &item->identity);
    if (item->tokens_n > item->saved_n)
        frame_add_tokens(&c->frames, &item->identity, item->tokens, item->saved_n, item->tokens_n);
    p->n = c->frames.n - p->from;
}

struct save_call {
    struct redis_ckpt *c;
    uint8_t *ok;
    bool fenced, gap;
};

/* A script's items begin where the last one's end: c->ends. */
static bool take_save(void *ctx, size_t i, const redisReply *r)
{
    struct save_call *call = ctx;
    struct redis_ckpt *c = call->c;
    const size_t *ends = (const size_t *)(const void *)c->ends.data;
    size_t first = i > 0 ? ends[i - 1] : 0;

    if (r->type == REDIS_REPLY_INTEGER && r->integer == REDIS_FENCED) {
        call->fenced = true;
        return true;
    }
    if (r->type != REDIS_REPLY_ARRAY || r->elements != ends[i] - first)
        return false;
    for (size_t k = 0; k < r->elements; k++) {
        if (r->element[k]->type != REDIS_REPLY_INTEGER)
            return false;
        call->ok[first + k] = r->element[k]->integer >= 0;
        call->gap |= r->element[k]->integer < 0;
    }
    return true;
}

static void script_save(struct redis_ckpt *c, uint64_t token, const struct ckpt_save_item *items, const struct piece *pieces,
                        size_t n)
{
    redis_script_begin(c, SCRIPT_SAVE, n, 5 * n);
    for (size_t i = 0; i < n; i++)
        redis_arg_sequence(c, &items[i].key);
    redis_arguments_begin(c, token);
    for (size_t i = 0; i < n; i++) {
        redis_arg_number(c->link, (int64_t)redis_source_add(c, &items[i].key));
        redis_arg_member(c, &items[i].key, true);
        redis_arg_number(c->link, pieces[i].replaces ? -1 : pieces[i].place.end);
        redis_arg(c->link, pieces[i].place.tail, TAIL_N);
        redis_arg(c->link, c->frames.data + pieces[i].from, pieces[i].n);
    }
}

/* One script for up to REDIS_ITEMS_MAX items and about SAVE_BYTES_MAX bytes. */
static void scripts_save(struct redis_ckpt *c, uint64_t token, const struct ckpt_save_item *items, const struct piece *pieces,
                         size_t items_n)
{
    size_t first = 0, bytes = 0;

    buf_reset(&c->ends);
    for (size_t i = 0; i < items_n; i++) {
        size_t end = i + 1;

        bytes += pieces[i].n;
        if (end < items_n && end - first < REDIS_ITEMS_MAX && bytes < SAVE_BYTES_MAX)
            continue;
        script_save(c, token, items + first, pieces + first, end - first);
        buf_add(&c->ends, &end, sizeof end);
        first = end;
        bytes = 0;
    }
}

/* Remembers where the next frames go. */
static void cuts_move(struct redis_ckpt *c, const struct ckpt_save_item *items, const struct piece *pieces, size_t items_n,
                      const uint8_t *ok)
{
    for (size_t i = 0; i < items_n; i++) {
        const struct piece *p = &pieces[i];
        struct place place = { .end = (p->replaces ? 0 : p->place.end) + (int64_t)p->n };

        if (!ok[i] || items[i].tokens_n == 0)
            continue;
        memcpy(place.tail, p->n > 0 ? c->frames.data + p->from + p->n - TAIL_N : p->place.tail, TAIL_N);
        cut_set(c, &items[i].key, items[i].tokens_n, &place);
    }
}

static status redis_save(struct ckpt *ckpt, uint64_t token, const struct ckpt_save_item *items, size_t items_n, uint8_t *ok)
{
    struct redis_ckpt *c = (struct redis_ckpt *)ckpt;
    struct save_call call = { c, ok, false, false };
    struct piece *pieces = mem_take(items_n * sizeof *pieces);
    status st = ST_OK;

    TRY(redis_link_ready(c->link));
    TRY(places_find(c, items, items_n, pieces));
    c->sources_n = 0;
    buf_reset(&c->frames);
    for (size_t i = 0; i < items_n; i++) {
        redis_source_add(c, &items[i].key);
        piece_fill(c, &items[i], &pieces[i]);
    }
    scripts_save(c, token, items, pieces, items_n);
    st = redis_link_exchange(c->link, take_save, &call);
    if (call.fenced) {
        memset(ok, 0, items_n);
        st = ST_FENCED;
    }
    cuts_move(c, items, pieces, items_n, ok);
    if (st == ST_OK && call.gap)
        st = ST_AGAIN;
out:
    free(pieces);
    return st;
}

/* ---- life ---- */

static void redis_close(struct ckpt *ckpt)
{
    struct redis_ckpt *c = (struct redis_ckpt *)ckpt;

    redis_link_close(c->link);
    buf_fini(&c->frames);
    buf_fini(&c->ends);
    buf_fini(&c->name);
    free(c->sources);
    free(c->cuts);
    free(c);
}

static const struct ckpt_ops redis_ops = {
    .close = redis_close, .acquire = redis_acquire, .save = redis_save, .load = redis_load, .count = redis_count,
    .begin = redis_begin, .hand_over = redis_hand_over, .attempts = redis_attempts, .forget = redis_forget,
    .forget_job = redis_forget_job,
};

static int64_t bytes_needed(const struct config *cfg)
{
    int64_t frames_n = SEQUENCE_TOKENS / cfg->checkpoint_tokens + 2, frame_bytes = 40;

    return cfg->sequences_max * (SEQUENCE_TOKENS * 4 + frames_n * frame_bytes) / 100 * GROWN_PERCENT;
}

status redis_ckpt_open(const char *url_text, const struct config *cfg, struct ckpt **out, struct error *err)
{
    struct redis_url url;
    struct redis_ckpt *c;
    struct error why;
    status st = redis_url_parse(url_text, &url, err);

    if (st == ST_OK && url.tls)
        st = redis_tls_known(err);
    if (st != ST_OK)
        return st;
    c = mem_take_zero(1, sizeof *c);
    c->ckpt.ops = &redis_ops;
    c->life_ms = cfg->checkpoint_ttl_h * 3600 * 1000;
    c->keep_ms = c->life_ms > KEEP_MS ? c->life_ms : KEEP_MS;
    c->cuts = mem_take_zero(CUTS_N, sizeof *c->cuts);
    c->link = redis_link_open(&url, cfg->checkpoint_timeout_ms, &c->ckpt);
    st = redis_link_check(c->link, bytes_needed(cfg), &why);
    if (st == ST_REJECT) {
        redis_close(&c->ckpt);
        return error_set(err, st, "%s", why.text);
    }
    *out = &c->ckpt;                         /* a server that is away now is one that comes */
    return ST_OK;
}
