/* Record to request: the line as bytes, as JSON, then field by field. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "worker/lines/internal.h"
#include "worker/lines/json_scan.h"

enum { SCRATCH_BYTES = 64 << 10 };

struct intake *intake_open(const struct lines_model *m)
{
    struct intake *in = mem_take_zero(1, sizeof *in);

    in->m = m;
    in->encoder = encoder_open(m->tokenizer);
    arena_init(&in->scratch, SCRATCH_BYTES);
    params_known(in);
    return in;
}

void intake_close(struct intake *in)
{
    if (in == NULL)
        return;
    encoder_close(in->encoder);
    arena_fini(&in->scratch);
    buf_fini(&in->text);
    free(in);
}

/* "byte 5 of line 17 (byte 1234 of the file)": bytes count from 0, lines from 1, as editors and dd do. */
static const char *place(struct draft *d, size_t at)
{
    const struct record *rec = d->rec;

    at += d->skipped;
    if (rec->at_bytes >= 0)
        return draft_text(d, "line %" PRId64 ", byte %zu (byte %" PRId64 " of the file)", rec->offset + 1, at,
                          rec->at_bytes + (int64_t)at);
    return draft_text(d, "offset %" PRId64 " of source %" PRId32 ", byte %zu", rec->offset, rec->source, at);
}

static void custom_id_found(struct draft *d, const struct json_scan *scan)
{
    if (scan->custom_id != NULL && utf8_valid(scan->custom_id, scan->custom_id_n) == scan->custom_id_n)
        d->r->custom_id = arena_copy(&d->r->arena, scan->custom_id, scan->custom_id_n);
}

/* The key that ends at `end`, behind its closing quote. */
static const char *key_before(struct draft *d, size_t end)
{
    size_t first = end > 0 ? end - 1 : 0;

    while (first > 0 && (d->text[first - 1] != '"' || (first > 1 && d->text[first - 2] == '\\')))
        first--;
    return name_quoted(d, d->text + first, end > first ? end - 1 - first : 0);
}

/* jansson has refused the text: find out where and why. A line whose grammar is sound keeps its custom_id. */
static status json_reject(struct draft *d, const json_error_t *error)
{
    struct json_scan scan;
    size_t end = error->position < 0 ? 0 : (size_t)error->position;

    json_scan(d->text, d->text_n, &scan);
    if (scan.fault != JSON_SYNTAX && scan.fault != JSON_CUT && scan.fault != JSON_SURROGATE)
        custom_id_found(d, &scan);
    switch (scan.fault) {
    case JSON_SYNTAX: case JSON_CUT: return REJECT(d, NOT_JSON, NULL, place(d, scan.at), scan.why);
    case JSON_SURROGATE: return REJECT(d, LONE_SURROGATE, NULL, place(d, scan.at));
    case JSON_KEY_NUL: return REJECT(d, KEY_NUL, NULL, place(d, scan.at));
    case JSON_NUMBER: return REJECT(d, NUMBER_TOO_BIG, NULL, place(d, scan.at));
    case JSON_DEEP: return REJECT(d, TOO_DEEP, NULL, place(d, scan.at), draft_text(d, "%d", JSON_DEPTH_MAX));
    case JSON_SOUND: break;
    }
    if (json_error_code(error) == json_error_duplicate_key && end <= d->text_n)
        return REJECT(d, TWICE, key_before(d, end), place(d, end), key_before(d, end));
    return REJECT(d, NOT_JSON, NULL, place(d, end < d->text_n ? end : d->text_n), error->text);
}

static status line_read(struct draft *d, struct request **out)
{
    status st = ST_OK;
    json_t *line = NULL, *body = NULL;
    json_error_t error = { .position = 0 };
    struct json_scan scan;
    size_t valid_n;

    if (d->rec->oversize) {
        json_scan(d->text, d->text_n, &scan);
        custom_id_found(d, &scan);
        return REJECT(d, LINE_TOO_LONG, NULL, place(d, 0), draft_text(d, "%lld", (long long)d->in->m->cfg->line_mb_max));
    }
    valid_n = utf8_valid(d->text, d->text_n);
    if (valid_n < d->text_n)
        return REJECT(d, NOT_UTF8, NULL, place(d, valid_n));
    if (memchr(d->text, '\0', d->text_n) != NULL)      /* jansson 2.14 skips one behind a number */
        return json_reject(d, &error);
    line = json_loadb(d->text, d->text_n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (line == NULL)
        return json_reject(d, &error);
    if (!json_is_object(line)) {
        st = REJECT(d, NOT_OBJECT, NULL, place(d, 0), value_kind_name(line));
        goto out;
    }
    TRY(envelope_read(d, line, &body));
    TRY(params_read(d, body));
    TRY(prompts_read(d, out));
out:
    json_decref(line);
    return st;
}

static bool blank(const char *text, size_t n)
{
    while (n > 0 && (*text == ' ' || *text == '\t' || *text == '\r' || *text == '\n')) {
        text++;
        n--;
    }
    return n == 0;
}

/* What the checkpoint knows the record by: key, value, timestamp. */
static struct hash128 record_hash(const struct record *rec)
{
    struct { struct hash128 value, key; int64_t timestamp_ms, key_given; } all =
        { hash128(rec->value, rec->value_n), hash128(rec->key, rec->key_n), rec->timestamp_ms, rec->key != NULL };

    return hash128(&all, sizeof all);
}

static struct request *request_begin(const struct record *rec)
{
    struct request *r = request_new();

    r->source = rec->source;
    r->offset = rec->offset;
    r->created_s = rec->timestamp_ms / 1000;
    r->record_hash = record_hash(rec);
    r->arrived_ns = clock_mono_ns();
    return r;
}

status intake_read(struct intake *in, const struct record *rec, struct request **out)
{
    struct draft d = { .in = in, .rec = rec, .text = rec->value, .text_n = rec->value_n };

    *out = NULL;
    if (rec->value == NULL)
        return ST_AGAIN;
    /* A byte order mark means nothing in UTF-8 and stands wherever files were put together. */
    if (d.text_n >= 3 && memcmp(d.text, "\xef\xbb\xbf", 3) == 0)
        d.skipped = 3;
    d.text += d.skipped;
    d.text_n -= d.skipped;
    /* A file's queue passes blank lines over. What it gives all the same needs an answer, and so does a topic's record. */
    if (!rec->oversize && rec->at_bytes >= 0 && d.skipped == 0 && blank(d.text, d.text_n))
        return ST_AGAIN;
    arena_reset(&in->scratch);
    d.r = request_begin(rec);
    d.r->model = draft_json(&d, in->m->name, strlen(in->m->name));
    draft_defaults(&d);
    if (line_read(&d, out) != ST_OK)
        *out = d.r;
    ASSERT((*out)->verdict == VERDICT_NONE || (*out)->choices == NULL);
    return ST_OK;
}
