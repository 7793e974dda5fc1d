/* The record that answers one result (delivery 8.7).
 *
 * Headers: the record's own, bytewise and in order; then ns-id (TOPIC/PARTITION/OFFSET of the prompt: what a reader drops doubles
 * by) and ns-src-ts (its timestamp, ms); then the worker's. A name may stand twice: the last one is ours.
 * A dead letter's value is the original, so that it can be put back; ns-result holds the error line, so that a job is collected as a
 * file job would be. Where the original does not fit, the error line is the value.
 * Marks of what was left out: ns-headers-dropped (how many), ns-value-dropped and ns-key-dropped (bytes).
 * Sizes are known before produce, because the broker refuses a whole batch for one record that is too large (facts 1.7). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "queue/kafka/internal.h"

#define OWN_HEADERS_BYTES_MAX (64 * 1024)
#define RECORD_BYTES 40                    /* lengths, deltas and attributes of a record (KIP-98, message format v2), at most */
#define HEADER_BYTES 10                    /* two lengths of a header, at most */

static void header_add(struct output *o, const char *name, const void *value, size_t value_n)
{
    if (o->headers_n == o->headers_room) {
        o->headers_room = o->headers_room ? o->headers_room * 2 : 16;
        o->headers = mem_grow(o->headers, o->headers_room * sizeof o->headers[0]);
    }
    o->headers[o->headers_n++] = (struct header){ name, value, value_n };
}

static void header_add_text(struct output *o, const char *name, const char *text)
{
    header_add(o, name, text, strlen(text));
}

static size_t header_bytes(const struct header *h)
{
    return strlen(h->name) + h->value_n + HEADER_BYTES;
}

static int64_t output_bytes(const struct output *o)
{
    size_t n = RECORD_BYTES + o->key_n + o->value_n;

    for (size_t i = 0; i < o->headers_n; i++)
        n += header_bytes(&o->headers[i]);
    return (int64_t)n;
}

/* Ours always travel: a job is collected by its ns-job. */
static void own_headers_add(struct output *o, const struct record *r, size_t bytes_max)
{
    size_t bytes = 0, dropped_n = 0;

    for (size_t i = 0; i < r->headers_n; i++) {
        const struct header *h = &r->headers[i];

        if (bytes + header_bytes(h) > bytes_max && !(strcmp(h->name, "ns-job") == 0 && h->value_n <= 256)) {
            dropped_n++;
            continue;
        }
        bytes += header_bytes(h);
        header_add(o, h->name, h->value, h->value_n);
    }
    if (dropped_n > 0) {
        snprintf(o->dropped, sizeof o->dropped, "%zu", dropped_n);
        header_add_text(o, "ns-headers-dropped", o->dropped);
    }
}

static void headers_make(struct output *o, struct kafka_core *k, const struct result *r, size_t own_bytes_max)
{
    const struct record *in = r->record;

    o->headers_n = 0;
    own_headers_add(o, in, own_bytes_max);
    snprintf(o->id, sizeof o->id, "%s/%" PRId32 "/%" PRId64, k->topic, in->source, in->offset);
    header_add_text(o, "ns-id", o->id);
    if (in->timestamp_ms > 0) {
        snprintf(o->stamp, sizeof o->stamp, "%" PRId64, in->timestamp_ms);
        header_add_text(o, "ns-src-ts", o->stamp);
    }
    for (size_t i = 0; i < r->headers_n; i++)
        header_add(o, r->headers[i].name, r->headers[i].value, r->headers[i].value_n);
}

/* The largest parts go first: the original, then the headers, then the key, then the words about it. Something always fits: a
 * record must not stand still for ever because of its size. */
static void dead_fit(struct output *o, struct kafka_core *k, const struct result *r, const char *error, const char *class)
{
    const struct record *in = r->record;
    int64_t max = k->client->ops->value_max(k->client, KAFKA_DEAD);

    o->topic = KAFKA_DEAD;
    for (int tries = 0; tries < 5; tries++) {
        headers_make(o, k, r, tries < 2 ? OWN_HEADERS_BYTES_MAX : 0);
        if (error != NULL) {
            header_add_text(o, "ns-error", error);
            header_add_text(o, "ns-error-class", class);
        }
        o->value = in->value;
        o->value_n = in->value_n;
        if (tries == 0 && r->kind == RESULT_FAILURE)
            header_add(o, "ns-result", r->value, r->value_n);
        if (tries >= 1) {
            snprintf(o->value_dropped, sizeof o->value_dropped, "%zu", in->value_n);
            header_add_text(o, "ns-value-dropped", o->value_dropped);
            o->value = r->kind == RESULT_FAILURE && tries < 4 ? r->value : "";
            o->value_n = r->kind == RESULT_FAILURE && tries < 4 ? r->value_n : 0;
        }
        o->key = in->key;
        o->key_n = in->key_n;
        if (tries >= 3) {
            snprintf(o->key_dropped, sizeof o->key_dropped, "%zu", in->key_n);
            header_add_text(o, "ns-key-dropped", o->key_dropped);
            o->key = NULL;
            o->key_n = 0;
        }
        if (output_bytes(o) <= max)
            return;
    }
    log_error("kafka.dead_letter", "id=%s bytes=%" PRId64 " max=%" PRId64 " what=\"the topic of dead letters takes not even its headers\"",
              o->id, output_bytes(o), max);
}

/* The line's longest texts are cut until it fits, and it says so. */
static bool truncate_fit(struct output *o, const struct result *r, int64_t max)
{
    static const char finish[] = "ns-finish";
    int64_t room;
    bool marked = false;

    for (size_t i = 0; i < o->headers_n; i++)
        if (strcmp(o->headers[i].name, finish) == 0) {
            o->headers[i] = (struct header){ finish, "truncated", strlen("truncated") };
            marked = true;
        }
    if (!marked)
        header_add_text(o, finish, "truncated");
    room = max - (output_bytes(o) - (int64_t)o->value_n);
    buf_reset(&o->text);
    if (room <= 0 || !json_shorten(r->value, r->value_n, (size_t)room, &o->text))
        return false;
    o->value = o->text.data;
    o->value_n = o->text.n;
    return true;
}

void output_make(struct output *o, struct kafka_core *k, const struct result *r)
{
    int64_t max;
    char text[160];

    if (r->kind == RESULT_FAILURE) {
        dead_fit(o, k, r, NULL, NULL);
        return;
    }
    max = k->client->ops->value_max(k->client, KAFKA_RESULTS);
    o->topic = KAFKA_RESULTS;
    o->key = r->record->key;
    o->key_n = r->record->key_n;
    o->value = r->value;
    o->value_n = r->value_n;
    headers_make(o, k, r, OWN_HEADERS_BYTES_MAX);
    if (output_bytes(o) <= max)
        return;
    if (k->truncates && truncate_fit(o, r, max))
        return;
    snprintf(text, sizeof text, "the result has %" PRId64 " bytes with key and headers, its topic takes %" PRId64 " (max.message.bytes)",
             output_bytes(o), max);
    buf_reset(&o->text);
    buf_add_text(&o->text, text);
    log_warn("kafka.oversize", "id=%s bytes=%" PRId64 " max=%" PRId64, o->id, output_bytes(o), max);
    dead_fit(o, k, r, buf_text(&o->text), "oversize");
}

void output_fini(struct output *o)
{
    if (o == NULL)
        return;
    free(o->headers);
    buf_fini(&o->text);
}
