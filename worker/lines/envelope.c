/* What stands around the body: custom_id, method, url; in a topic also the record's key and headers. */
#include <string.h>

#include "base/utf8.h"
#include "worker/lines/internal.h"
#include "worker/lines/json_scan.h"

/* A topic's records may leave out what their producer has no use for. */
static bool from_topic(const struct draft *d)
{
    return d->rec->at_bytes < 0;
}

/* Set before anything is judged, so that every verdict can name its line. */
static void custom_id_keep(struct draft *d, const json_t *line)
{
    const struct record *rec = d->rec;
    const json_t *id = json_object_get(line, "custom_id");

    if (json_is_string(id)) {
        d->r->custom_id = draft_json(d, json_string_value(id), json_string_length(id));
    } else if (json_is_number(id)) {
        struct json_scan scan;

        json_scan(d->text, d->text_n, &scan);
        if (scan.custom_id != NULL)
            d->r->custom_id = arena_copy(&d->r->arena, scan.custom_id, scan.custom_id_n);
    } else if (id == NULL && from_topic(d) && rec->key != NULL && utf8_valid(rec->key, rec->key_n) == rec->key_n) {
        d->r->custom_id = draft_json(d, rec->key, rec->key_n);
    }
}

static status custom_id_check(struct draft *d, const json_t *line)
{
    const json_t *id = json_object_get(line, "custom_id");

    if (json_is_string(id) || (id == NULL && from_topic(d)))
        return ST_OK;
    if (id == NULL)
        return REJECT(d, MISSING, "custom_id", "custom_id", "each line needs a string that names it");
    return type_reject(d, "custom_id", "a string", id);
}

static status method_check(struct draft *d, const json_t *line)
{
    const json_t *method = json_object_get(line, "method");

    if (word_is(method, "POST") || (method == NULL && from_topic(d)))
        return ST_OK;
    if (method == NULL)
        return REJECT(d, MISSING, "method", "method", "it must be 'POST'");
    if (!json_is_string(method))
        return type_reject(d, "method", "the string 'POST'", method);
    return REJECT(d, VALUE, "method", "method", "'POST'", value_quoted(d, method));
}

static status url_read(struct draft *d, const json_t *line, const json_t *body)
{
    static const char allowed[] = "'/v1/chat/completions' or '/v1/completions'";
    const json_t *url = json_object_get(line, "url");

    if (word_is(url, "/v1/chat/completions") || (url == NULL && from_topic(d) && json_object_get(body, "messages") != NULL)) {
        d->r->endpoint = ENDPOINT_CHAT;
        return ST_OK;
    }
    if (word_is(url, "/v1/completions") || (url == NULL && from_topic(d) && json_object_get(body, "prompt") != NULL)) {
        d->r->endpoint = ENDPOINT_COMPLETIONS;
        return ST_OK;
    }
    if (url == NULL)
        return REJECT(d, MISSING, "url", "url", draft_text(d, "it must be %s", allowed));
    if (!json_is_string(url))
        return type_reject(d, "url", draft_text(d, "the string %s", allowed), url);
    return REJECT(d, VALUE, "url", "url", allowed, value_quoted(d, url));
}

static status fields_check(struct draft *d, json_t *line)
{
    const char *name, *shown;
    size_t n;
    json_t *v;

    json_object_keylen_foreach(line, name, n, v) {
        bool harmless = false;

        if (strcmp(name, "custom_id") == 0 || strcmp(name, "method") == 0 || strcmp(name, "url") == 0 ||
            strcmp(name, "body") == 0)
            continue;
        shown = name_quoted(d, name, n);
        if (!params_misplaced(name, &harmless))
            return REJECT(d, UNKNOWN, shown, shown, "custom_id, method, url, body");
        if (!harmless)
            return REJECT(d, MISPLACED, shown, shown);
    }
    return ST_OK;
}

/* A header's decimal integer; what a producer wrote wrongly must not silently change the order of work. */
static status header_read(struct draft *d, const struct header *h, int64_t max, int64_t *out)
{
    const char *p = h->value;
    size_t i = h->value_n > 0 && *p == '-';
    int64_t v = 0;
    bool good = h->value_n > i && h->value_n <= 15;

    for (size_t k = i; good && k < h->value_n; k++) {
        good = p[k] >= '0' && p[k] <= '9';
        v = v * 10 + (p[k] - '0');
    }
    v = i > 0 ? -v : v;
    if (!good || v > max || v < -max)
        return REJECT(d, VALUE, h->name, draft_text(d, "header %s", h->name),
                      draft_text(d, "a decimal integer of at most %lld", (long long)max), "what it is");
    *out = v;
    return ST_OK;
}

static status headers_read(struct draft *d)
{
    status st = ST_OK;
    int64_t deadline_ms = 0;

    for (size_t i = 0; i < d->rec->headers_n; i++) {
        const struct header *h = &d->rec->headers[i];

        if (h->value == NULL)
            continue;
        if (strcmp(h->name, "ns-deadline") == 0)
            TRY(header_read(d, h, INT64_C(99999999999999), &deadline_ms));
        else if (strcmp(h->name, "ns-priority") == 0)
            TRY(header_read(d, h, INT32_MAX, &d->priority));
    }
    d->r->deadline_ms = deadline_ms;
out:
    return st;
}

status envelope_read(struct draft *d, json_t *line, json_t **body)
{
    status st = ST_OK;
    json_t *b = json_object_get(line, "body");
    bool bare = b == NULL && from_topic(d) &&
                (json_object_get(line, "messages") != NULL || json_object_get(line, "prompt") != NULL);

    custom_id_keep(d, line);
    *body = bare ? line : b;
    if (!bare) {
        TRY(custom_id_check(d, line));
        TRY(fields_check(d, line));
        TRY(method_check(d, line));
    }
    TRY(url_read(d, line, *body));
    TRY(headers_read(d));
    if (b == NULL && !bare)
        return REJECT(d, MISSING, "body", "body", "an object with the parameters of the request");
    if (!bare && !json_is_object(b))
        return type_reject(d, "body", "an object", b);
out:
    return st;
}
