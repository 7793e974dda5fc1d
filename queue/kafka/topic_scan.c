/* queue/kafka/topic_scan.c - the tools' reader: all partitions of a topic, read_committed, to an end that was fixed at the start.
 * The end is the partition's high watermark: what an open transaction holds back is waited for. Gaps (control records, aborted
 * transactions) carry no message, so the end is passed either by a message or by the library's word that it has read so far. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "queue/kafka/topic_internal.h"

struct scan_part {
    struct topic_range range;
    int64_t from;
    bool ended;
};

struct topic_scan {
    struct topics *t;
    const char *topic;
    rd_kafka_t *rk;
    char trouble[256];
    struct scan_part *part;
    int32_t parts_n, open_n;
    bool follow;
    int64_t moved_ns;                    /* when something last came before the end */
    rd_kafka_message_t *message;         /* what the record below points into */
    struct record record;
    struct header *headers;
    size_t headers_room;
};

static status handle_make(struct topic_scan *s, struct error *err)
{
    /* A group is named because the library wants one; nothing joins it and nothing is committed. */
    static const char *const pairs[] = {
        "group.id", "nightshift-tools", "isolation.level", "read_committed", "enable.auto.commit", "false",
        "enable.auto.offset.store", "false", "auto.offset.reset", "error", "enable.partition.eof", "true", NULL
    };

    return topics_consumer_make(s->t, pairs, s->trouble, &s->rk, err);
}

static status assign(struct topic_scan *s, struct error *err)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(s->parts_n);
    rd_kafka_resp_err_t code;

    for (int32_t p = 0; p < s->parts_n; p++) {
        if (s->follow || !s->part[p].ended)
            rd_kafka_topic_partition_list_add(list, s->topic, p)->offset = s->part[p].from;
    }
    code = list->cnt > 0 ? rd_kafka_assign(s->rk, list) : RD_KAFKA_RESP_ERR_NO_ERROR;
    rd_kafka_topic_partition_list_destroy(list);
    return st_topic(err, s->t, s->trouble, code, "reading a topic");
}

status topic_scan_open(struct topics *t, enum topic_kind kind, const int64_t *from, bool follow, struct topic_scan **out,
                       struct error *err)
{
    struct topic_scan *s = mem_take_zero(1, sizeof *s);
    struct topic_range *ranges = NULL;
    status st;

    *out = NULL;
    s->t = t;
    s->topic = t->names.topic[kind];
    s->follow = follow;
    s->moved_ns = clock_mono_ns();
    TRY(topic_read_ranges(t, kind, &ranges, &s->parts_n, err));
    s->part = mem_take_zero((size_t)s->parts_n, sizeof *s->part);
    for (int32_t p = 0; p < s->parts_n; p++) {
        struct scan_part *part = &s->part[p];

        part->range = ranges[p];
        part->from = from != NULL && from[p] > ranges[p].low ? from[p] : ranges[p].low;
        part->ended = part->from >= ranges[p].high;
        s->open_n += !part->ended;
    }
    TRY(handle_make(s, err));
    TRY(assign(s, err));
    *out = s;
    s = NULL;
out:
    free(ranges);
    topic_scan_close(s);
    return st;
}

void topic_scan_close(struct topic_scan *s)
{
    if (s == NULL)
        return;
    if (s->message != NULL)
        rd_kafka_message_destroy(s->message);
    if (s->rk != NULL)
        rd_kafka_destroy(s->rk);
    free(s->part);
    free(s->headers);
    free(s);
}

bool topic_scan_ended(const struct topic_scan *s)
{
    return s->open_n == 0;
}

int32_t topic_scan_partitions(const struct topic_scan *s)
{
    return s->parts_n;
}

struct topic_range topic_scan_range(const struct topic_scan *s, int32_t partition)
{
    return s->part[partition].range;
}

static void read_to(struct topic_scan *s, int32_t partition, int64_t next)
{
    struct scan_part *part = &s->part[partition];

    s->moved_ns = clock_mono_ns();
    if (!part->ended && next >= part->range.high) {
        part->ended = true;
        s->open_n--;
    }
}

static void headers_take(struct topic_scan *s)
{
    rd_kafka_headers_t *list;
    size_t n = rd_kafka_message_headers(s->message, &list) == RD_KAFKA_RESP_ERR_NO_ERROR ? rd_kafka_header_cnt(list) : 0;

    if (n > s->headers_room) {
        s->headers = mem_grow(s->headers, n * sizeof *s->headers);
        s->headers_room = n;
    }
    for (size_t i = 0; i < n; i++)
        rd_kafka_header_get_all(list, i, &s->headers[i].name, &s->headers[i].value, &s->headers[i].value_n);
    s->record.headers = s->headers;
    s->record.headers_n = n;
}

static void record_take(struct topic_scan *s)
{
    const rd_kafka_message_t *m = s->message;
    rd_kafka_timestamp_type_t kind;
    int64_t timestamp_ms = rd_kafka_message_timestamp(m, &kind);

    s->record = (struct record){ .source = m->partition, .offset = m->offset, .key = m->key, .key_n = m->key_len, .value = m->payload,
                                 .value_n = m->len, .timestamp_ms = timestamp_ms > 0 ? timestamp_ms : 0, .at_bytes = -1 };
    headers_take(s);
}

/* ST_OK: s->record is a record to give. ST_AGAIN: not, go on. */
static status message_take(struct topic_scan *s, struct error *err)
{
    const rd_kafka_message_t *m = s->message;
    bool beyond;

    if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        read_to(s, m->partition, m->offset);
        return ST_AGAIN;
    }
    if (m->err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET || m->err == RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE)
        return error_set(err, ST_REJECT, "records of \"%s\" partition %d went before they were read (retention, a topic made anew?)",
                         s->topic, (int)m->partition);
    if (m->err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || m->err == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
        return st_topic(err, s->t, s->trouble, m->err, s->topic);
    if (m->err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return ST_AGAIN;                       /* brokers come and go: the library goes on */
    beyond = m->offset >= s->part[m->partition].range.high;
    read_to(s, m->partition, m->offset + 1);
    if (beyond && !s->follow)
        return ST_AGAIN;
    record_take(s);
    return ST_OK;
}

status topic_scan_next(struct topic_scan *s, int timeout_ms, const struct record **out, struct error *err)
{
    int64_t deadline_ns = clock_mono_ns() + timeout_ms * NS_PER_MS;
    status st;

    *out = NULL;
    do {
        int64_t left_ns = deadline_ns - clock_mono_ns();

        if (!s->follow && s->open_n == 0)
            return ST_AGAIN;
        if (s->message != NULL)
            rd_kafka_message_destroy(s->message);
        s->message = rd_kafka_consumer_poll(s->rk, left_ns > 0 ? (int)(left_ns / NS_PER_MS) : 0);
        if (s->message == NULL)
            continue;
        st = message_take(s, err);
        if (st == ST_OK)
            *out = &s->record;
        if (st != ST_AGAIN)
            return st;
    } while (clock_mono_ns() < deadline_ns);
    if (s->open_n > 0 && clock_mono_ns() - s->moved_ns > TOPIC_SILENT_S * NS_PER_S)
        return error_set(err, ST_RETRY, "nothing came from \"%s\" for %d s though its end is not reached: an open transaction holds it "
                         "back, or the brokers are away (%s)", s->topic, TOPIC_SILENT_S, s->trouble);
    return ST_AGAIN;
}

/* ---- headers ---- */

const struct header *topic_header(const struct record *r, const char *name)
{
    for (size_t i = r->headers_n; i-- > 0;) {
        if (strcmp(r->headers[i].name, name) == 0)
            return &r->headers[i];
    }
    return NULL;
}

int64_t topic_header_int(const struct record *r, const char *name)
{
    const struct header *h = topic_header(r, name);
    const char *text = h != NULL ? h->value : NULL;
    int64_t v = 0;

    if (text == NULL || h->value_n == 0 || h->value_n > 18)
        return -1;
    for (size_t i = 0; i < h->value_n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        v = v * 10 + (text[i] - '0');
    }
    return v;
}

bool topic_header_is(const struct record *r, const char *name, const char *value)
{
    const struct header *h = topic_header(r, name);

    return h != NULL && h->value != NULL && h->value_n == strlen(value) && memcmp(h->value, value, h->value_n) == 0;
}
