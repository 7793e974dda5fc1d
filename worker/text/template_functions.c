/* The functions that a chat template finds: those of Hugging Face's apply_chat_template and of jinja2's sandbox. */
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "worker/text/template_internal.h"

static const struct value *function_range(struct run *r, const struct bound *b)
{
    int64_t start = 0, stop, step;
    struct value *v;
    __int128 n;

    if (!arg_int(r, b->arg[0], 0, &start) || !arg_int(r, b->arg[1], 0, &stop) || !arg_int(r, b->arg[2], 1, &step))
        return NULL;
    if (b->arg[1] == NULL) {
        stop = start;
        start = 0;
    }
    if (step == 0)
        return run_fail(r, "range() arg 3 must not be zero");
    n = step > 0 ? ((__int128)stop - start + step - 1) / step : ((__int128)start - stop - step - 1) / -(__int128)step;
    if ((step > 0 && start >= stop) || (step < 0 && start <= stop))
        n = 0;
    if (n > RANGE_MAX)
        return run_fail(r, "range too big: more than %d items", RANGE_MAX);
    v = value_new(r->arena, VALUE_RANGE);
    v->u.range = (struct range){ start, stop, step, (int64_t)n };
    return v;
}

/* dict(mapping or pairs, key=value ...) into d. */
static bool dict_fill(struct run *r, struct dict *d, const struct args *args)
{
    const struct value *from = args->pos_n > 0 ? args->pos[0] : NULL, *item;
    struct iter it;
    int got = 0;

    if (args->pos_n > 1) {
        run_fail(r, "dict expected at most 1 argument, got %zu", args->pos_n);
        return false;
    }
    for (size_t i = 0; from != NULL && from->kind == VALUE_DICT && i < from->u.dict.n; i++) {
        if (!run_charge(r, 1))
            return false;
        dict_set(r->arena, d, from->u.dict.entries[i].key, from->u.dict.entries[i].item);
    }
    if (from != NULL && from->kind != VALUE_DICT) {
        if (!iter_open(r, &it, from))
            return false;
        while ((got = iter_next(r, &it, &item)) == 1) {
            const struct value *pair = list_of(r, item);

            if (pair == NULL)
                return false;
            if (pair->u.list.n != 2) {
                run_fail(r, "dict takes pairs of a key and a value");
                return false;
            }
            if (!run_key(r, pair->u.list.items[0]))
                return false;
            dict_set(r->arena, d, pair->u.list.items[0], pair->u.list.items[1]);
        }
    }
    for (size_t i = 0; got == 0 && i < args->keys_n; i++)
        dict_set(r->arena, d, args->key[i], args->item[i]);
    return got == 0;
}

static const struct value *function_dict(struct run *r, const struct bound *b)
{
    struct value *v = value_dict(r->arena);

    return dict_fill(r, &v->u.dict, b->all) ? v : NULL;
}

static const struct value *function_namespace(struct run *r, const struct bound *b)
{
    struct value *v = value_dict(r->arena);

    if (!dict_fill(r, &v->u.dict, b->all))
        return NULL;
    v->kind = VALUE_NAMESPACE;
    for (size_t i = 0; i < v->u.dict.n; i++) {
        const struct value *key = v->u.dict.entries[i].key;

        if (key->kind == VALUE_TEXT && key->u.text.bytes > 0 && key->u.text.spans[0].text[0] == '_')
            return run_fail(r, "attributes of a namespace may not begin with an underscore");
    }
    return v;
}

/* The template's own words, alone: this is what the person who sent the request reads. */
static const struct value *function_raise_exception(struct run *r, const struct bound *b)
{
    const struct value *text = text_of(r, b->arg[0]);
    size_t n;
    const char *message = text == NULL ? NULL : run_flat(r, text, &n);

    if (message == NULL || r->failed)
        return NULL;
    r->failed = true;
    error_set(r->err, ST_REJECT, "%.*s", (int)(n < 4096 ? n : 4096), message);
    return NULL;
}

static const struct value *function_strftime_now(struct run *r, const struct bound *b)
{
    char format[256], text[1024];
    time_t now = (time_t)(r->now_ns / NS_PER_S);
    struct tm local;
    size_t n;
    const char *given;

    if (b->arg[0]->kind != VALUE_TEXT)
        return run_fail(r, "strftime_now: the format must be a string");
    given = run_flat(r, b->arg[0], &n);
    if (given == NULL)
        return NULL;
    if (n >= sizeof format || memchr(given, '\0', n) != NULL)
        return run_fail(r, "strftime_now: a format of at most %zu bytes", sizeof format - 1);
    memcpy(format, given, n);
    format[n] = '\0';
    if (localtime_r(&now, &local) == NULL)
        return run_fail(r, "strftime_now: the clock is out of range");
    n = strftime(text, sizeof text, format, &local);
    /* A locale's names may be in another encoding: the output is UTF-8 or nothing. */
    if ((n == 0 && format[0] != '\0') || utf8_valid(text, n) != n)
        return run_fail(r, "strftime_now: this format is not supported");
    return value_text(r->arena, text, n, TEXT_PLAIN);
}

static const struct builtin functions[] = {
    { "range", function_range, "start,?stop,step" },
    { "dict", function_dict, "*" },
    { "namespace", function_namespace, "*" },
    { "raise_exception", function_raise_exception, "message" },
    { "strftime_now", function_strftime_now, "format" },
};

const struct builtin *function_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strlen(functions[i].name) == n && memcmp(functions[i].name, name, n) == 0)
            return &functions[i];
    return NULL;
}
