/* Dispatch by url, the counts, and the failpoints that every store has: checkpoint.save.before, checkpoint.save.after,
 * checkpoint.begin.before, checkpoint.begin.after, checkpoint.forget.before, checkpoint.forget.after. */
#include "checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "checkpoint/ops.h"

static status url_open(const char *url, const struct config *cfg, struct ckpt **out, struct error *err)
{
    if (strncmp(url, "sqlite:", 7) == 0)
        return sqlite_ckpt_open(url + 7, out, err);
    if (strncmp(url, "mem:", 4) == 0)
        return mem_ckpt_open(url + 4, out, err);
    if (strncmp(url, "redis", 5) == 0)
        return redis_ckpt_open(url, cfg, out, err);
    return error_set(err, ST_REJECT, "the progress store must begin with sqlite:, redis://, rediss://, redis+sentinel://, "
                     "rediss+sentinel:// or mem:");
}

status ckpt_open(const char *url, const struct config *cfg, struct ckpt **out, struct error *err)
{
    struct config *defaults = NULL;
    char *text;
    status st;

    *out = NULL;
    st = config_value_read("checkpoint_url", url, &text, err);
    if (st != ST_OK)
        return st;
    if (cfg == NULL) {
        defaults = mem_take(sizeof *defaults);
        config_defaults(defaults);
        cfg = defaults;
    }
    st = url_open(text, cfg, out, err);
    free(defaults);
    config_value_free(text);
    return st;
}

void ckpt_close(struct ckpt *c)
{
    if (c != NULL)
        c->ops->close(c);
}

/* Every call passes here with its answer. */
static status counted(struct ckpt *c, int64_t begun_ns, status st)
{
    struct ckpt_tally *t = &c->tally;
    int64_t us = (clock_mono_ns() - begun_ns) / 1000;

    atomic_store_explicit(&t->up, st != ST_RETRY && st != ST_FATAL, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->calls_n, 1, memory_order_relaxed);
    atomic_store_explicit(&t->rtt_us_last, us, memory_order_relaxed);
    if (us > atomic_load_explicit(&t->rtt_us_max, memory_order_relaxed))
        atomic_store_explicit(&t->rtt_us_max, us, memory_order_relaxed);
    if (st == ST_FENCED)
        atomic_fetch_add_explicit(&t->fenced_n, 1, memory_order_relaxed);
    return st;
}

status ckpt_acquire(struct ckpt *c, uint64_t job, int32_t source, uint64_t *token)
{
    int64_t begun_ns = clock_mono_ns();

    *token = 0;
    return counted(c, begun_ns, c->ops->acquire(c, job, source, token));
}

status ckpt_save(struct ckpt *c, uint64_t token, const struct ckpt_save_item *items, size_t items_n, uint8_t *ok)
{
    int64_t begun_ns = clock_mono_ns();
    status st;

    memset(ok, 0, items_n);
    if (items_n == 0)
        return ST_OK;
    for (size_t i = 0; i < items_n; i++)
        ASSERT(0 <= items[i].saved_n && items[i].saved_n <= items[i].tokens_n);
    failpoint("checkpoint.save.before");
    st = counted(c, begun_ns, c->ops->save(c, token, items, items_n, ok));
    if (st == ST_AGAIN)
        atomic_fetch_add_explicit(&c->tally.gaps_n, 1, memory_order_relaxed);
    failpoint("checkpoint.save.after");
    return st;
}

status ckpt_load_all(struct ckpt *c, struct ckpt_load_item *items, size_t items_n)
{
    int64_t begun_ns = clock_mono_ns();
    status st;

    if (items_n == 0)
        return ST_OK;
    for (size_t i = 0; i < items_n; i++)
        items[i].progress = (struct ckpt_progress){ NULL, 0 };
    st = counted(c, begun_ns, c->ops->load(c, items, items_n));
    for (size_t i = 0; st != ST_OK && i < items_n; i++)
        items[i].progress = (struct ckpt_progress){ NULL, 0 };
    return st;
}

status ckpt_load(struct ckpt *c, const struct ckpt_key *key, const struct ckpt_identity *identity, struct arena *a,
                 struct ckpt_progress *out)
{
    struct ckpt_load_item item = { .key = *key, .identity = *identity, .arena = a };
    status st = ckpt_load_all(c, &item, 1);

    *out = item.progress;
    return st == ST_OK && out->tokens_n == 0 ? ST_AGAIN : st;
}

int64_t ckpt_count(struct ckpt *c, uint64_t job)
{
    int64_t begun_ns = clock_mono_ns(), n = 0;

    return counted(c, begun_ns, c->ops->count(c, job, &n)) == ST_OK ? n : -1;
}

status ckpt_begin(struct ckpt *c, uint64_t token, const struct ckpt_key *keys, size_t keys_n, bool solo, uint64_t run,
                  struct ckpt_attempts *out)
{
    int64_t begun_ns = clock_mono_ns();
    status st;

    ASSERT(run != 0);
    if (keys_n == 0)
        return ST_OK;
    failpoint("checkpoint.begin.before");
    st = counted(c, begun_ns, c->ops->begin(c, token, keys, keys_n, solo, run, out));
    if (st != ST_OK)
        memset(out, 0, keys_n * sizeof *out);
    failpoint("checkpoint.begin.after");
    return st;
}

void attempt_begin(struct attempt *t, bool solo, uint64_t run)
{
    if (t->stands.last_run != run) {
        t->stands.starts++;
        t->stands.last_run = run;
        t->last_solo = false;
    }
    if (solo && !t->last_solo) {
        t->stands.solo++;
        t->last_solo = true;
    }
}

void attempt_hand_over(struct attempt *t, bool solo)
{
    if (t->stands.last_run == 0)
        return;
    t->stands.starts--;
    t->stands.solo -= solo && t->last_solo;
    t->stands.last_run = 0;
    t->last_solo = false;
}

bool attempt_nothing(const struct attempt *t)
{
    return t->stands.starts <= 0 && t->stands.solo <= 0;
}

status ckpt_hand_over(struct ckpt *c, uint64_t token, const struct ckpt_key *keys, size_t keys_n, bool solo)
{
    int64_t begun_ns = clock_mono_ns();

    return keys_n == 0 ? ST_OK : counted(c, begun_ns, c->ops->hand_over(c, token, keys, keys_n, solo));
}

status ckpt_attempts(struct ckpt *c, const struct ckpt_key *keys, size_t keys_n, struct ckpt_attempts *out)
{
    int64_t begun_ns = clock_mono_ns();
    status st;

    if (keys_n == 0)
        return ST_OK;
    st = counted(c, begun_ns, c->ops->attempts(c, keys, keys_n, out));
    if (st != ST_OK)
        memset(out, 0, keys_n * sizeof *out);
    return st;
}

status ckpt_forget(struct ckpt *c, uint64_t token, const struct ckpt_key *keys, size_t keys_n)
{
    int64_t begun_ns = clock_mono_ns();
    status st;

    if (keys_n == 0)
        return ST_OK;
    failpoint("checkpoint.forget.before");
    st = counted(c, begun_ns, c->ops->forget(c, token, keys, keys_n));
    failpoint("checkpoint.forget.after");
    return st;
}

status ckpt_forget_job(struct ckpt *c, uint64_t token, uint64_t job)
{
    int64_t begun_ns = clock_mono_ns();

    return counted(c, begun_ns, c->ops->forget_job(c, token, job));
}

void ckpt_read_counts(const struct ckpt *c, struct ckpt_counts *out)
{
    const struct ckpt_tally *t = &c->tally;

    *out = (struct ckpt_counts){ .up = t->up, .calls_n = t->calls_n, .rtt_us_last = t->rtt_us_last, .rtt_us_max = t->rtt_us_max,
                                 .fenced_n = t->fenced_n, .gaps_n = t->gaps_n, .reconnects_n = t->reconnects_n };
    for (int i = 0; i < CKPT_ERRORS_N; i++)
        out->errors_n[i] = t->errors_n[i];
}

const char *ckpt_error_name(enum ckpt_error e)
{
    static const char *const names[CKPT_ERRORS_N] = {
        [CKPT_ERROR_LINK] = "link", [CKPT_ERROR_TIMEOUT] = "timeout", [CKPT_ERROR_READONLY] = "readonly",
        [CKPT_ERROR_LOADING] = "loading", [CKPT_ERROR_UNSAFE] = "unsafe", [CKPT_ERROR_FULL] = "full",
        [CKPT_ERROR_BUSY] = "busy", [CKPT_ERROR_DENIED] = "denied", [CKPT_ERROR_DAMAGED] = "damaged",
        [CKPT_ERROR_OTHER] = "other",
    };

    return names[e];
}
