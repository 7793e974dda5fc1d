/* The wordings and what is put into them. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "worker/lines/internal.h"
#include "worker/lines/json_write.h"
#include "worker/lines/result.h"

static const struct { int http; const char *code, *text; } verdicts[] = {
#define LINES_VERDICT(name, http, code, text) { http, code, text },
#include "worker/lines/verdicts.def"
};

const char *verdict_code(enum lines_verdict verdict)
{
    return verdicts[verdict].code;
}

void verdict_message_add(struct buf *b, enum lines_verdict verdict, const char *const *args)
{
    for (const char *t = verdicts[verdict].text; *t != '\0'; t++) {
        if (t[0] != '{' || t[1] != '}') {
            buf_add_byte(b, *t);
            continue;
        }
        ASSERT(*args != NULL);
        buf_add_text(b, *args++);
        t++;
    }
    ASSERT(*args == NULL);
}

void lines_reject(struct request *r, enum lines_verdict verdict, const char *param, const char *const *args)
{
    struct buf b = BUF_EMPTY;

    if (r->verdict != VERDICT_NONE)
        return;
    verdict_message_add(&b, verdict, args);
    r->verdict = verdict == LINES_QUARANTINED ? VERDICT_QUARANTINED
               : verdict == LINES_EXPIRED     ? VERDICT_EXPIRED : VERDICT_REJECTED;
    r->http_status = verdicts[verdict].http;
    r->error_code = verdicts[verdict].code;
    r->error_text = arena_copy(&r->arena, b.data, b.n);
    r->error_param = param == NULL ? NULL : arena_copy(&r->arena, param, strlen(param));
    buf_fini(&b);
}

status draft_reject(struct draft *d, enum lines_verdict verdict, const char *param, const char *const *args)
{
    lines_reject(d->r, verdict, param, args);
    return ST_REJECT;
}

const char *draft_text(struct draft *d, const char *fmt, ...)
{
    va_list ap, again;
    char *text;
    int n;

    va_start(ap, fmt);
    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    ASSERT(n >= 0);
    text = arena_take(&d->in->scratch, (size_t)n + 1);
    vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}

const char *draft_json(struct draft *d, const char *text, size_t n)
{
    struct buf *b = &d->in->text;

    buf_reset(b);
    json_add_text(b, text, n);
    return arena_copy(&d->r->arena, b->data, b->n);
}

const char *name_quoted(struct draft *d, const char *name, size_t n)
{
    enum { NAME_BYTES_MAX = 64 };
    size_t shown = n;

    if (n > NAME_BYTES_MAX)
        shown = utf8_valid(name, NAME_BYTES_MAX);
    return draft_text(d, "%.*s%s", (int)shown, name, shown < n ? "..." : "");
}

const char *value_kind_name(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: case JSON_REAL: return "a number";
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    case JSON_NULL: return "null";
    }
    return "something else";
}

const char *value_quoted(struct draft *d, const json_t *v)
{
    if (json_is_integer(v))
        return draft_text(d, "%lld", (long long)json_integer_value(v));
    if (json_is_real(v))
        return draft_text(d, "%.12g", json_real_value(v));
    if (json_is_string(v))
        return draft_text(d, "'%s'", name_quoted(d, json_string_value(v), json_string_length(v)));
    return value_kind_name(v);
}
