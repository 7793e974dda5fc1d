/* A fencing token for each holding of a source (delivery.md 8.5): acquired before the first call for it, so that whoever had
 * the source before can write no more; given up when the source is lost. */
#include "worker/pipeline/saver.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

static struct fence *fence_of(struct saver *s, int32_t source, uint32_t lease)
{
    if (source < 0 || (size_t)source >= s->fences_n || !s->fences[source].ours || s->fences[source].lease != lease)
        return NULL;
    return &s->fences[source];
}

void fences_change(struct saver *s, const struct change *c)
{
    struct fence *f = fence_of(s, c->source, c->lease);

    if (!c->gained) {
        if (f != NULL)
            f->ours = false;
        return;
    }
    if (f != NULL)
        return;                        /* a file's, acquired at open */
    if ((size_t)c->source >= s->fences_n) {
        size_t n = (size_t)c->source + 16;

        s->fences = mem_grow(s->fences, n * sizeof s->fences[0]);
        memset(s->fences + s->fences_n, 0, (n - s->fences_n) * sizeof s->fences[0]);
        s->fences_n = n;
    }
    s->fences[c->source] = (struct fence){ .lease = c->lease, .ours = true };
}

bool fence_token(struct saver *s, int32_t source, uint32_t lease, uint64_t *token)
{
    struct fence *f = fence_of(s, source, lease);
    int64_t now = clock_mono_ns();
    status st;

    if (f == NULL)
        return false;
    if (!f->held) {
        if (now < f->acquire_at_ns || !store_answers(s))
            return false;
        f->acquire_at_ns = now + RETRY_MS * NS_PER_MS;
        st = ckpt_acquire(s->store, s->p->job_hash, source, &f->token);
        if (st != ST_OK) {
            store_away(s, "acquire");
            return false;
        }
        store_is_back(s);
        f->held = true;
    }
    *token = f->token;
    return true;
}

bool fence_is_ours(struct saver *s, int32_t source, uint32_t lease)
{
    return fence_of(s, source, lease) != NULL;
}

void fence_refused(struct saver *s, int32_t source, uint32_t lease)
{
    struct fence *f = fence_of(s, source, lease);

    if (f == NULL)
        return;
    if (!s->p->is_topic) {
        pipeline_fail(s->p, EXIT_CODE_FENCED, "another worker has taken this job's progress over");
        return;
    }
    log_warn("checkpoint.fenced", "source=%d lease=%u note=\"acquired again if it is still ours\"", source, lease);
    f->held = false;
}

uint64_t fences_highest(const struct saver *s)
{
    uint64_t token = 0;

    for (size_t i = 0; i < s->fences_n; i++)
        if (s->fences[i].held && s->fences[i].token > token)
            token = s->fences[i].token;
    return token;
}

/* ---- calls for many keys ---- */

void due_add(struct dues *d, const struct ckpt_key *key, uint32_t lease)
{
    if (d->n == d->room) {
        d->room = d->room > 0 ? 2 * d->room : 64;
        d->of = mem_grow(d->of, d->room * sizeof d->of[0]);
    }
    d->of[d->n++] = (struct due){ *key, lease };
}

static bool due_together(const struct due *a, const struct due *b)
{
    return a->key.source == b->key.source && a->lease == b->lease;
}

static int due_compare(const void *a, const void *b)
{
    const struct due *x = a, *y = b;

    if (x->key.source != y->key.source)
        return x->key.source < y->key.source ? -1 : 1;
    return (x->lease > y->lease) - (x->lease < y->lease);
}

void dues_call(struct saver *s, struct dues *d, const char *what,
               status (*call)(struct saver *s, uint64_t token, const struct ckpt_key *keys, size_t n))
{
    struct ckpt_key keys[DUES_MAX];

    if (d->n > 1)
        qsort(d->of, d->n, sizeof d->of[0], due_compare);
    for (size_t i = 0, n; i < d->n; i += n) {
        const struct due *first = &d->of[i];
        uint64_t token;
        status st;

        for (n = 0; i + n < d->n && n < sizeof keys / sizeof keys[0] && due_together(first, &d->of[i + n]); n++)
            keys[n] = d->of[i + n].key;
        if (!store_answers(s) || !fence_token(s, first->key.source, first->lease, &token))
            continue;
        st = call(s, token, keys, n);
        if (st == ST_FENCED)
            fence_refused(s, first->key.source, first->lease);
        else if (st != ST_OK)
            store_away(s, what);
    }
    d->n = 0;
}
