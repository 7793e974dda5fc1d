/* worker/engine/poison.c - a request that kills its worker, for tests. NIGHTSHIFT_FAILPOINT=engine.poison=TEXT ends the process
 * by abort(), as a fault in a kernel would, when a step holds a sequence whose prompt has TEXT in it; with TEXT@N once it has N
 * output tokens. */
#include "worker/engine/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/failpoint.h"

struct poison { char text[128]; size_t n; int32_t after_n; };

static struct poison poison_read(const char *spec)
{
    const char *at = strrchr(spec, '@');
    struct poison p = { .n = at != NULL ? (size_t)(at - spec) : strlen(spec), .after_n = at != NULL ? atoi(at + 1) : 0 };

    memcpy(p.text, spec, p.n);
    return p;
}

static bool prompt_has(const struct engine *e, const struct request *r, const struct poison *p)
{
    struct buf text = BUF_EMPTY;
    bool has = false;

    for (int32_t i = 0; i < r->prompt_n; i++) {
        const char *bytes;
        size_t n = tokenizer_bytes(e->tokenizer, r->prompt[i], true, &bytes);

        buf_add(&text, bytes, n);
    }
    for (size_t i = 0; i + p->n <= text.n && !has; i++)
        has = memcmp(text.data + i, p->text, p->n) == 0;
    buf_fini(&text);
    return has;
}

void poison_act(const struct engine *e)
{
    const char *spec = failpoint_text("engine.poison");
    struct poison p;

    if (spec == NULL)
        return;
    p = poison_read(spec);
    for (int32_t i = 0; i < e->running_n; i++) {
        const struct seq *s = e->running[i];

        if (s->rows_n > 0 && s->c->tokens_n >= p.after_n && prompt_has(e, s->r, &p))
            abort();
    }
}
