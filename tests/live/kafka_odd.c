/* Records of every shape, written to a real topic, and what must stand in the topics behind a worker that echoes. */
#include "tests/live/kafka_odd.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "queue/topic.h"

#define BIG 600000                         /* an echo of it is more than this topic of results takes; its dead letter is not */

static char big[BIG], wide[50000];

static const struct header many[] = {
    { "trace", "1", 1 }, { "trace", "2", 1 }, { "bytes", "\0\xff\xfe\x80", 4 }, { "null", NULL, 0 }, { "empty", "", 0 }, { "", "no name", 7 },
    { "ns-job", "job-1", 5 },
};
static const struct header too_many[] = { { "wide", wide, sizeof wide }, { "wide", wide, sizeof wide }, { "ns-job", "job-1", 5 } };

#define TEXT(t) t, sizeof t - 1
static const struct odd {
    const char *key; size_t key_n;
    const char *value; size_t value_n;
    const struct header *headers; size_t headers_n;
    int64_t timestamp_ms;
    bool aborted;
} odd[] = {
    { NULL, 0, TEXT("null key"), NULL, 0, 1000, false },
    { TEXT(""), TEXT("empty key"), NULL, 0, 0, false },
    { TEXT("k\0\xff"), TEXT("binary key"), many, sizeof many / sizeof many[0], 1700000000123, false },
    { TEXT("gone"), NULL, 0, NULL, 0, 0, false },
    { TEXT("aborted"), TEXT("nobody reads this"), NULL, 0, 0, true },
    { TEXT("e"), TEXT(""), NULL, 0, 0, false },
    { TEXT("wide"), TEXT("headers beyond the cap"), too_many, 3, 0, false },
    { TEXT("big"), big, BIG, NULL, 0, 0, false },
    { TEXT("gone"), NULL, 0, NULL, 0, 0, false },
    { TEXT("utf8"), TEXT("\xff\xc0 not UTF-8"), NULL, 0, 0, false },
    { TEXT("last"), TEXT("a neighbour of the big one"), NULL, 0, 0, false },
};
#define ODD_N (sizeof odd / sizeof odd[0])

#define CHECK(call) do { if ((call) != ST_OK) { fprintf(stderr, "%s: %s\n", #call, err.text); return 2; } } while (0)

int odd_write(const struct config *cfg, const char *url)
{
    static const char *const small[] = { "max.message.bytes", "500000", NULL };
    const struct topic_shape shape = { .partitions_n = 1, .replicas_n = -1 };
    const struct topic_shape results = { .partitions_n = 1, .replicas_n = -1, .configs = small };
    struct topic_writer *w;
    struct topics *t;
    struct error err;
    bool made;

    memset(big, 'b', sizeof big);
    memset(wide, 'w', sizeof wide);
    CHECK(topics_open(cfg, url, &t, &err));
    for (int kind = 0; kind < TOPIC_KINDS_N; kind++)
        CHECK(topic_make(t, (enum topic_kind)kind, kind == TOPIC_RESULTS ? &results : &shape, &made, &err));
    CHECK(topic_writer_open(t, "kafka_odd", &w, &err));
    for (size_t i = 0; i < ODD_N; i++) {
        const struct record r = { .key = odd[i].key, .key_n = odd[i].key_n, .value = odd[i].value, .value_n = odd[i].value_n,
                                  .headers = odd[i].headers, .headers_n = odd[i].headers_n, .timestamp_ms = odd[i].timestamp_ms };

        CHECK(topic_writer_begin(w, &err));
        CHECK(topic_writer_add(w, TOPIC_PROMPTS, 0, &r, &err));
        if (odd[i].aborted)
            CHECK(topic_writer_abort(w, &err));
        else
            CHECK(topic_writer_commit(w, &err));
    }
    topic_writer_close(w);
    topics_close(t);
    return 0;
}

static int wrong_n;

static void expect(bool good, size_t i, const char *what)
{
    if (good)
        return;
    wrong_n++;
    printf("record %zu (%.*s): %s\n", i, (int)odd[i].key_n, odd[i].key != NULL ? odd[i].key : "", what);
}

static bool bytes_equal(const void *a, size_t a_n, const void *b, size_t b_n)
{
    return (a == NULL) == (b == NULL) && a_n == b_n && (a_n == 0 || memcmp(a, b, a_n) == 0);
}

static void headers_expect(const struct record *r, size_t i)
{
    size_t at = 0;
    char text[32];

    for (size_t k = 0; k < odd[i].headers_n; k++) {
        const struct header *h = &odd[i].headers[k];

        if (odd[i].headers == too_many && k == 1)
            continue;      /* the second wide one is beyond 64 KB */
        expect(at < r->headers_n && strcmp(r->headers[at].name, h->name) == 0 &&
               bytes_equal(r->headers[at].value, r->headers[at].value_n, h->value, h->value_n), i, "its headers are not bytewise the same");
        at++;
    }
    if (odd[i].headers == too_many)
        expect(topic_header_is(r, "ns-headers-dropped", "1"), i, "no mark of the header that was left out");
    snprintf(text, sizeof text, "%" PRId64, odd[i].timestamp_ms);
    if (odd[i].timestamp_ms > 0)
        expect(topic_header_is(r, "ns-src-ts", text), i, "ns-src-ts");
    expect(r->timestamp_ms > 1750000000000, i, "the timestamp of a result is the time of its writing");
}

/* Which of the odd ones has this ns-id? The i-th that was written stands at an offset of its own; controls lie between. */
static size_t odd_find(const struct record *r, const int64_t *offsets)
{
    const struct header *id = topic_header(r, "ns-id");
    char text[64] = "";
    const char *slash;

    if (id != NULL && id->value_n < sizeof text)
        memcpy(text, id->value, id->value_n);
    slash = strrchr(text, '/');
    for (size_t i = 0; i < ODD_N && slash != NULL; i++)
        if (offsets[i] >= 0 && strtoll(slash + 1, NULL, 10) == offsets[i])
            return i;
    return ODD_N;
}

static int records_read(struct topics *t, enum topic_kind kind, int64_t *offsets, int *seen)
{
    struct topic_scan *s;
    const struct record *r;
    struct error err;
    size_t next = 0;
    status st;

    CHECK(topic_scan_open(t, kind, NULL, false, &s, &err));
    while ((st = topic_scan_next(s, 2000, &r, &err)) == ST_OK || !topic_scan_ended(s)) {
        size_t i;

        if (st == ST_AGAIN)
            continue;
        CHECK(st);
        if (kind == TOPIC_PROMPTS) {
            while (odd[next].aborted)
                next++;
            offsets[next++] = r->offset;
            continue;
        }
        i = odd_find(r, offsets);
        if (i == ODD_N) {
            wrong_n++;
            printf("an answer to nothing\n");
            continue;
        }
        seen[i]++;
        expect(bytes_equal(r->key, r->key_n, odd[i].key, odd[i].key_n), i, "its key is another");
        expect((kind == TOPIC_DEAD) == (odd[i].value == big), i, "the other topic");
        if (kind == TOPIC_DEAD)
            expect(topic_header_is(r, "ns-error-class", "oversize") && bytes_equal(r->value, r->value_n, big, BIG), i, "no whole dead letter");
        headers_expect(r, i);
    }
    topic_scan_close(s);
    return 0;
}

int odd_check(const struct config *cfg, const char *url)
{
    int64_t offsets[ODD_N];
    int seen[ODD_N] = { 0 };
    struct topics *t;
    struct error err;

    memset(big, 'b', sizeof big);
    memset(wide, 'w', sizeof wide);
    for (size_t i = 0; i < ODD_N; i++)
        offsets[i] = -1;
    CHECK(topics_open(cfg, url, &t, &err));
    for (int kind = 0; kind < TOPIC_KINDS_N; kind++)
        if (records_read(t, (enum topic_kind)kind, offsets, seen) != 0)
            return 2;
    for (size_t i = 0; i < ODD_N; i++)
        expect(seen[i] == (odd[i].value != NULL && !odd[i].aborted), i, "not answered once");
    topics_close(t);
    if (wrong_n == 0)
        printf("all as it should be\n");
    return wrong_n > 0;
}
