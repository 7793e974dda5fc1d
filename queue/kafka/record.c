/* A record is one block of memory: struct record, its headers, and every byte they point to. It lives as long as its result is
 * not durable, because a dead letter carries the original and an output carries the headers. */
#include <stdlib.h>
#include <string.h>

#include "queue/kafka/internal.h"

/* NULL and empty are different things for a key and a value (facts 1.7): the pointer tells, so an empty one gets a place, too. */
static const char *bytes_copy(char **at, const void *from, size_t n)
{
    char *to = *at;

    if (from == NULL)
        return NULL;
    if (n > 0)
        memcpy(to, from, n);
    to[n] = '\0';
    *at += n + 1;
    return to;
}

struct record *kafka_record_copy(const struct kafka_message *m, uint32_t lease, size_t value_max)
{
    size_t bytes = sizeof(struct record) + m->headers_n * sizeof(struct header) + m->key_n + 1 + m->value_n + 1;
    struct header *headers;
    struct record *r;
    char *at;

    for (size_t i = 0; i < m->headers_n; i++)
        bytes += strlen(m->headers[i].name) + 1 + m->headers[i].value_n + 1;
    r = mem_take(bytes);
    memset(r, 0, sizeof *r);
    headers = (struct header *)(r + 1);
    at = (char *)(headers + m->headers_n);
    r->source = m->partition;
    r->lease = lease;
    r->offset = m->offset;
    r->key_n = m->key_n;
    r->key = bytes_copy(&at, m->key, m->key_n);
    r->value_n = m->value_n;
    r->value = bytes_copy(&at, m->value, m->value_n);
    for (size_t i = 0; i < m->headers_n; i++) {
        headers[i].name = bytes_copy(&at, m->headers[i].name, strlen(m->headers[i].name));
        headers[i].value_n = m->headers[i].value_n;
        headers[i].value = bytes_copy(&at, m->headers[i].value, m->headers[i].value_n);
    }
    r->headers = headers;
    r->headers_n = m->headers_n;
    r->timestamp_ms = m->timestamp_ms > 0 ? m->timestamp_ms : 0;
    r->at_bytes = -1;
    r->oversize = m->value_n > value_max;      /* a dead letter carries it whole all the same */
    return r;
}

void kafka_record_free(struct record *r)
{
    free(r);
}

/* Key, value and timestamp: what tells the record of one topic from that of another made under the same name. */
static uint32_t identity_hash(const void *key, size_t key_n, const void *value, size_t value_n, int64_t timestamp_ms)
{
    uint64_t h = hash64(key != NULL ? key : "", key_n, (uint64_t)timestamp_ms * 2 + (key != NULL));

    h = hash64(value != NULL ? value : "", value_n, h + (value != NULL));
    return (uint32_t)(h ^ h >> 32);
}

uint32_t kafka_message_hash(const struct kafka_message *m)
{
    return identity_hash(m->key, m->key_n, m->value, m->value_n, m->timestamp_ms > 0 ? m->timestamp_ms : 0);
}

uint32_t kafka_record_hash(const struct record *r)
{
    return identity_hash(r->key, r->key_n, r->value, r->value_n, r->timestamp_ms);
}
