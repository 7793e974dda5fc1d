/* Fields whose values are lists: what ends an answer, and what is made likelier in it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/lines/internal.h"

static status stop_add(struct draft *d, const char *name, const json_t *v, const char **stops, size_t *bytes)
{
    size_t n = json_string_length(v);

    if (!json_is_string(v))
        return type_reject(d, name, "a string", v);
    if (n == 0)
        return REJECT(d, VALUE, name, name, "a string of at least one byte", "empty");
    if (n > STOP_BYTES_MAX)
        return REJECT(d, VALUE, name, name, draft_text(d, "a string of at most %d bytes", STOP_BYTES_MAX),
                      draft_text(d, "%zu bytes", n));
    *stops = arena_copy(&d->r->arena, json_string_value(v), n);
    *bytes = n;
    return ST_OK;
}

status stop_read(struct draft *d, const char *name, const json_t *v)
{
    status st = ST_OK;
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    const char **stops;
    size_t *bytes;

    if (!json_is_array(v) && !json_is_string(v))
        return type_reject(d, name, "a string or a list of strings", v);
    if (n > STOPS_MAX)
        return REJECT(d, VALUE, name, name, draft_text(d, "at most %d strings", STOPS_MAX), draft_text(d, "%zu", n));
    stops = arena_take(&d->r->arena, n * sizeof *stops);
    bytes = arena_take(&d->r->arena, n * sizeof *bytes);
    if (json_is_string(v)) {
        TRY(stop_add(d, name, v, &stops[0], &bytes[0]));
    } else {
        for (size_t i = 0; i < n; i++)
            TRY(stop_add(d, draft_text(d, "%s[%zu]", name, i), json_array_get(v, i), &stops[i], &bytes[i]));
    }
    d->r->params.stop.stops = stops;
    d->r->params.stop.stops_bytes = bytes;
    d->r->params.stop.stops_n = n;
out:
    return st;
}

bool token_value(const struct draft *d, const json_t *v, int32_t *out)
{
    int64_t id;

    if (!value_int64(v, &id) || id < 0 || id >= tokenizer_vocab(d->in->m->tokenizer))
        return false;
    *out = (int32_t)id;
    return true;
}

status token_reject(struct draft *d, const char *name, const json_t *v)
{
    if (!json_is_number(v))
        return type_reject(d, name, "a token id", v);
    return REJECT(d, VALUE, name, name,
                  draft_text(d, "a token id from 0 to %d", tokenizer_vocab(d->in->m->tokenizer) - 1), value_quoted(d, v));
}

status stop_tokens_read(struct draft *d, const char *name, const json_t *v)
{
    size_t n = json_array_size(v);
    int32_t *tokens;

    if (!json_is_array(v))
        return type_reject(d, name, "a list of token ids", v);
    if (n > STOP_TOKENS_MAX)
        return REJECT(d, VALUE, name, name, draft_text(d, "at most %d token ids", STOP_TOKENS_MAX), draft_text(d, "%zu", n));
    tokens = arena_take(&d->r->arena, n * sizeof *tokens);
    for (size_t i = 0; i < n; i++) {
        if (!token_value(d, json_array_get(v, i), &tokens[i]))
            return token_reject(d, draft_text(d, "%s[%zu]", name, i), json_array_get(v, i));
    }
    d->r->params.stop_tokens = tokens;
    d->r->params.stop_tokens_n = (int32_t)n;
    return ST_OK;
}

/* Decimal without sign or leading zero, so that one token has one spelling and none stands twice. */
static bool token_spelled(const struct draft *d, const char *key, size_t n, int32_t *out)
{
    int64_t id = 0;

    if (n == 0 || n > 10 || (key[0] == '0' && n > 1))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (key[i] < '0' || key[i] > '9')
            return false;
        id = id * 10 + (key[i] - '0');
    }
    *out = (int32_t)id;
    return id < tokenizer_vocab(d->in->m->tokenizer);
}

static int bias_compare(const void *a, const void *b)
{
    int32_t x = ((const struct token_bias *)a)->token, y = ((const struct token_bias *)b)->token;

    return x < y ? -1 : x > y;
}

status bias_read(struct draft *d, const char *name, const json_t *v)
{
    struct token_bias *bias;
    size_t n = json_object_size(v), i = 0, key_n;
    const char *key;
    json_t *item;

    if (!json_is_object(v))
        return type_reject(d, name, "an object of token ids and numbers", v);
    bias = arena_take(&d->r->arena, n * sizeof *bias);
    json_object_keylen_foreach((json_t *)(uintptr_t)v, key, key_n, item) {
        if (!token_spelled(d, key, key_n, &bias[i].token))
            return REJECT(d, VALUE, name, draft_text(d, "the keys of %s", name), draft_text(d, "token ids from 0 to %d",
                          tokenizer_vocab(d->in->m->tokenizer) - 1), draft_text(d, "'%s'", name_quoted(d, key, key_n)));
        if (!json_is_number(item) || fabs(json_number_value(item)) > 100) {
            const char *shown = draft_text(d, "%s.%s", name, key);

            return json_is_number(item)
                       ? REJECT(d, VALUE, shown, shown, "a number from -100 to 100", value_quoted(d, item))
                       : type_reject(d, shown, "a number from -100 to 100", item);
        }
        bias[i++].add = (float)json_number_value(item);
    }
    qsort(bias, n, sizeof *bias, bias_compare);
    d->r->params.bias = bias;
    d->r->params.bias_n = (int32_t)n;
    return ST_OK;
}
