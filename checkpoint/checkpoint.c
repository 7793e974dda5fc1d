/* Dispatch by url, and the failpoints that every store has: checkpoint.save.before, checkpoint.save.after,
 * checkpoint.forget.before, checkpoint.forget.after. */
#include "checkpoint/checkpoint.h"

#include <string.h>

#include "base/failpoint.h"
#include "checkpoint/ops.h"

status ckpt_open(const char *url, struct ckpt **out, struct error *err)
{
    *out = NULL;
    if (strncmp(url, "sqlite:", 7) == 0)
        return sqlite_ckpt_open(url + 7, out, err);
    if (strncmp(url, "mem:", 4) == 0)
        return mem_ckpt_open(url + 4, out, err);
    return error_set(err, ST_REJECT, "no progress store is called \"%s\"; sqlite:PATH and mem:NAME are known", url);
}

void ckpt_close(struct ckpt *c)
{
    if (c != NULL)
        c->ops->close(c);
}

status ckpt_acquire(struct ckpt *c, uint64_t job, int32_t source, uint64_t *token)
{
    *token = 0;
    return c->ops->acquire(c, job, source, token);
}

status ckpt_save(struct ckpt *c, uint64_t token, const struct ckpt_save_item *items, size_t items_n, uint8_t *ok)
{
    status st;

    memset(ok, 0, items_n);
    if (items_n == 0)
        return ST_OK;
    for (size_t i = 0; i < items_n; i++)
        ASSERT(0 <= items[i].saved_n && items[i].saved_n <= items[i].tokens_n);
    failpoint("checkpoint.save.before");
    st = c->ops->save(c, token, items, items_n, ok);
    failpoint("checkpoint.save.after");
    return st;
}

status ckpt_load(struct ckpt *c, const struct ckpt_key *key, const struct ckpt_identity *identity, struct arena *a,
                 struct ckpt_progress *out)
{
    out->tokens = NULL;
    out->tokens_n = 0;
    return c->ops->load(c, key, identity, a, out);
}

int64_t ckpt_count(struct ckpt *c, uint64_t job)
{
    return c->ops->count(c, job);
}

status ckpt_forget(struct ckpt *c, uint64_t token, const struct ckpt_key *keys, size_t keys_n)
{
    status st;

    if (keys_n == 0)
        return ST_OK;
    failpoint("checkpoint.forget.before");
    st = c->ops->forget(c, token, keys, keys_n);
    failpoint("checkpoint.forget.after");
    return st;
}

status ckpt_forget_job(struct ckpt *c, uint64_t token, uint64_t job)
{
    return c->ops->forget_job(c, token, job);
}
