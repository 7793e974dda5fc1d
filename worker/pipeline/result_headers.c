#include "worker/pipeline/result_headers.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"

struct maker {
    struct buf text;
    struct { const char *name; size_t at, n; } of[RESULT_HEADERS_MAX];
    size_t n;
};

static void PRINTF_LIKE(3, 4) add(struct maker *m, const char *name, const char *fmt, ...)
{
    char value[512];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(value, sizeof value, fmt, ap);
    va_end(ap);
    n = n < (int)sizeof value ? n : (int)sizeof value - 1;
    ASSERT(m->n < RESULT_HEADERS_MAX && n >= 0);
    m->of[m->n].name = name;
    m->of[m->n].at = m->text.n;
    m->of[m->n++].n = (size_t)n;
    buf_add(&m->text, value, (size_t)n);
}

struct outcome {
    const char *finish, *error;
    int32_t resumed_n, starts, solo;
    uint64_t last_run, hash;
    bool quarantined;
};

static void member_add(struct outcome *o, struct hasher *h, const struct request *r)
{
    o->starts = r->starts > o->starts ? r->starts : o->starts;
    o->solo = r->solo > o->solo ? r->solo : o->solo;
    o->last_run = r->last_run != 0 ? r->last_run : o->last_run;
    o->quarantined |= r->verdict == VERDICT_QUARANTINED;
    if (r->verdict == VERDICT_EXPIRED)
        o->finish = "expired";
    if (r->verdict != VERDICT_DONE) {
        o->error = o->error != NULL ? o->error : r->error_text;
        return;
    }
    for (int32_t i = 0; i < r->params.n; i++) {
        const struct choice *c = &r->choices[i];

        o->resumed_n += c->resumed_n;
        hasher_add(h, &c->tokens_n, sizeof c->tokens_n);
        hasher_add(h, c->tokens, (size_t)c->tokens_n * sizeof c->tokens[0]);
        if (c->finish == FINISH_LENGTH && o->finish == NULL)
            o->finish = "length";
        if (c->finish == FINISH_ERROR && o->error == NULL)
            o->error = c->error;
    }
}

static struct header *block_make(struct maker *m, size_t *n)
{
    struct header *headers = mem_take(m->n * sizeof *headers + m->text.n);
    char *text = (char *)(headers + m->n);

    memcpy(text, m->text.data, m->text.n);
    for (size_t i = 0; i < m->n; i++)
        headers[i] = (struct header){ m->of[i].name, text + m->of[i].at, m->of[i].n };
    *n = m->n;
    buf_fini(&m->text);
    return headers;
}

struct header *result_headers_make(const struct request *r, const char *code, const char *model, size_t *n)
{
    const struct request_group *g = r->group;
    struct hasher *h = hasher_open();
    struct maker m = { .text = BUF_EMPTY };
    struct outcome o = { 0 };

    for (int32_t i = 0; i < (g != NULL ? g->requests_n : 1); i++)
        member_add(&o, h, g != NULL ? g->requests[i] : r);
    o.hash = hasher_end(h).low;
    if (o.finish == NULL || (o.error != NULL && strcmp(o.finish, "expired") != 0))
        o.finish = code == NULL ? "stop" : "error";
    add(&m, "ns-finish", "%s", o.finish);
    add(&m, "ns-attempt", "%" PRId32, o.starts + 1);
    add(&m, "ns-resumed-tokens", "%" PRId32, o.resumed_n);
    add(&m, "ns-model", "%s", model);
    add(&m, "ns-hash", "%016" PRIx64, o.hash);
    if (code != NULL) {
        add(&m, "ns-error", "%s", o.error != NULL ? o.error : code);
        add(&m, "ns-error-class", "%s", code);
    }
    if (o.quarantined) {
        add(&m, "ns-attempts", "%" PRId32, o.starts);
        add(&m, "ns-solo-crashes", "%" PRId32, o.solo);
        add(&m, "ns-last-run", "%016" PRIx64, o.last_run);
    }
    return block_make(&m, n);
}
