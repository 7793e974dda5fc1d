/* The producer handle, and what its errors mean (facts 1.6).
 *
 *   fatal, fenced, anything unknown     KAFKA_REMAKE    destroy, make anew, init_transactions with the same id
 *   a time-out of offsets or commit     KAFKA_UNKNOWN   the library would let the call be made again, but a delayed answer of the
 *                                                       old protocol could land in the next transaction: a new epoch first
 *   abortable                           KAFKA_ABORT, or KAFKA_FENCED_OFFSETS, KAFKA_REFUSED where the cause says so
 *   retriable                           KAFKA_AGAIN
 * Delivery reports come for failures only: in a transaction a failed record makes the commit fail, outside of one `failed` tells. */
#define _POSIX_C_SOURCE 200809L           /* pthread_rwlock_t */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "queue/kafka/rdkafka_internal.h"

#define INIT_TIMEOUT_MS 15000
#define LOOK_UP_TIMEOUT_MS 2000
#define BATCH_BYTES_MAX 1000000
#define RECORD_MARGIN_BYTES 512            /* of a batch around one record, and what the library counts on top (facts 1.7) */
#define QUEUE_FULL_POLL_MS 20

static struct rd_client *self(struct kafka_client *client)
{
    return (struct rd_client *)(void *)client;
}

static void on_error(rd_kafka_t *rk, int code, const char *reason, void *ctx)
{
    (void)rk;
    (void)ctx;
    log_debug("kafka.client", "producer error=%s text=\"%s\"", rd_kafka_err2name(code), reason);
}

/* ---- errors ---- */

static bool is_refusal(rd_kafka_resp_err_t code)
{
    switch (code) {
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_INVALID_TRANSACTION_TIMEOUT:
    case RD_KAFKA_RESP_ERR_POLICY_VIOLATION:
    case RD_KAFKA_RESP_ERR_INVALID_RECORD:
    case RD_KAFKA_RESP_ERR__AUTHENTICATION:
    case RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED:
        return true;
    default:
        return false;
    }
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *m, void *ctx)
{
    struct rd_client *c = ctx;

    (void)rk;
    if (m->err == RD_KAFKA_RESP_ERR_NO_ERROR || c->failed != RD_KAFKA_RESP_ERR_NO_ERROR ||
        m->err == RD_KAFKA_RESP_ERR__PURGE_QUEUE || m->err == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT)      /* thrown away for another's fault */
        return;
    c->failed = m->err;
    c->topics_stale |= is_refusal(m->err);
    if (m->err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE)
        atomic_store(&c->limits_stale, true);
}

static bool is_fence(rd_kafka_resp_err_t code)
{
    return code == RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION || code == RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID ||
           code == RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID || code == RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS;
}

static bool is_timeout(rd_kafka_resp_err_t code)
{
    return code == RD_KAFKA_RESP_ERR__TIMED_OUT || code == RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE || code == RD_KAFKA_RESP_ERR__TRANSPORT ||
           code == RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT;
}

static const char *cure(rd_kafka_resp_err_t code)
{
    if (code == RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE)
        return "; set kafka_metadata_max to the broker's offset.metadata.max.bytes";
    if (code == RD_KAFKA_RESP_ERR_INVALID_TRANSACTION_TIMEOUT)
        return "; txn_timeout_ms is above the broker's transaction.max.timeout.ms";
    return "";
}

static enum kafka_answer answer_of_code(rd_kafka_resp_err_t code, const char *doing, const char *text, struct error *err)
{
    error_set(err, ST_RETRY, "%s: %s: %s%s", doing, rd_kafka_err2name(code), text, cure(code));
    if (is_refusal(code))
        return KAFKA_REFUSED;
    return is_fence(code) ? KAFKA_FENCED_OFFSETS : KAFKA_ABORT;
}

/* Takes e. c->failed is what made the library give up, where its own code only says that something did. */
static enum kafka_answer answer_take(struct rd_client *c, rd_kafka_error_t *e, const char *doing, struct error *err)
{
    rd_kafka_resp_err_t code = rd_kafka_error_code(e), cause = c->failed != RD_KAFKA_RESP_ERR_NO_ERROR ? c->failed : code;
    enum kafka_answer answer;

    error_set(err, ST_RETRY, "%s: %s: %s", doing, rd_kafka_error_name(e), rd_kafka_error_string(e));
    if (rd_kafka_error_is_fatal(e))
        answer = KAFKA_REMAKE;
    else if (is_timeout(code))
        answer = KAFKA_UNKNOWN;
    else if (rd_kafka_error_txn_requires_abort(e))
        answer = answer_of_code(cause, doing, rd_kafka_error_string(e), err);
    else if (rd_kafka_error_is_retriable(e))
        answer = KAFKA_AGAIN;
    else
        answer = is_refusal(code) ? KAFKA_REFUSED : KAFKA_REMAKE;
    c->topics_stale |= is_refusal(cause);
    rd_kafka_error_destroy(e);
    return answer;
}

/* ---- open, close ---- */

static status conf_make(struct rd_client *c, rd_kafka_conf_t **out, struct error *err)
{
    char timeout[24], message[24], bytes[24], batch[24];
    int64_t least = c->results_max < c->dead_max ? c->results_max : c->dead_max;
    int64_t most = c->results_max > c->dead_max ? c->results_max : c->dead_max;
    const char *const defaults[] = {
        "linger.ms", "5", "compression.type", "lz4", "partitioner", "murmur2_random", "message.max.bytes", bytes, "batch.size", batch,
        "reconnect.backoff.max.ms", "2000", NULL,
    };
    const char *const musts[] = {
        "enable.idempotence", "true", "acks", "all", "delivery.report.only.error", "true", "message.timeout.ms", message,
        c->transactional ? "transactional.id" : NULL, c->id, "transaction.timeout.ms", timeout, NULL,
    };

    snprintf(timeout, sizeof timeout, "%" PRId64, c->cfg->txn_timeout_ms);
    snprintf(message, sizeof message, "%" PRId64, c->cfg->txn_timeout_ms * 8 / 10);      /* must end before the transaction does */
    snprintf(bytes, sizeof bytes, "%" PRId64, most < 1000 ? 1000 : most > 1000000000 ? 1000000000 : most);
    /* One producer writes both topics: a record may have what its own topic takes, many together what either does. */
    snprintf(batch, sizeof batch, "%" PRId64, least < 1000 ? 1000 : least < BATCH_BYTES_MAX ? least : BATCH_BYTES_MAX);
    return kafka_conf_make(c->cfg, c->names.brokers, defaults, musts, out, err);
}

status rd_producer_open(struct rd_client *c, struct error *err)
{
    static const enum topic_kind kind[2] = { TOPIC_RESULTS, TOPIC_DEAD };
    rd_kafka_conf_t *conf;
    char text[256];
    size_t text_n;
    status st = conf_make(c, &conf, err);

    if (st != ST_OK)
        return st;
    text_n = sizeof text;
    if (rd_kafka_conf_get(conf, "message.max.bytes", text, &text_n) == RD_KAFKA_CONF_OK)      /* it may be the user's */
        c->client_max = strtoll(text, NULL, 10);
    rd_kafka_conf_set_opaque(conf, c);
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_conf_set_error_cb(conf, on_error);
    c->producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    if (c->producer == NULL) {
        rd_kafka_conf_destroy(conf);
        return error_set(err, ST_REJECT, "the Kafka producer cannot be made: %s", text);
    }
    for (int i = 0; i < 2; i++)
        c->topic[i] = rd_kafka_topic_new(c->producer, c->names.topic[kind[i]], NULL);
    return ST_OK;
}

void rd_producer_close(struct rd_client *c)
{
    if (c->producer == NULL)
        return;
    rd_kafka_purge(c->producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT | RD_KAFKA_PURGE_F_NON_BLOCKING);
    for (int i = 0; i < 2; i++)
        if (c->topic[i] != NULL)
            rd_kafka_topic_destroy(c->topic[i]);
    c->topic[0] = c->topic[1] = NULL;
    rd_kafka_destroy(c->producer);
    c->producer = NULL;
}

/* ---- the steps ---- */

/* #5032: without it the first record waits for a second. And a topic that was refused once is refused by the library itself until
 * its metadata comes again. */
static void topics_look_up(struct rd_client *c)
{
    const struct rd_kafka_metadata *meta;

    c->topics_stale = false;
    for (int i = 0; i < 2; i++)
        if (rd_kafka_metadata(c->producer, 0, c->topic[i], &meta, LOOK_UP_TIMEOUT_MS) == RD_KAFKA_RESP_ERR_NO_ERROR)
            rd_kafka_metadata_destroy(meta);
}

enum kafka_answer rd_init(struct kafka_client *client, struct error *err)
{
    struct rd_client *c = self(client);
    rd_kafka_error_t *e;

    if (c->transactional && (e = rd_kafka_init_transactions(c->producer, INIT_TIMEOUT_MS)) != NULL)
        return answer_take(c, e, "init_transactions", err);
    topics_look_up(c);
    return KAFKA_OK;
}

enum kafka_answer rd_begin(struct kafka_client *client, struct error *err)
{
    struct rd_client *c = self(client);
    rd_kafka_error_t *e;

    c->failed = RD_KAFKA_RESP_ERR_NO_ERROR;
    if (c->topics_stale)
        topics_look_up(c);
    if (!c->transactional || (e = rd_kafka_begin_transaction(c->producer)) == NULL)
        return KAFKA_OK;
    return answer_take(c, e, "begin_transaction", err);
}

static enum kafka_answer produce_failed(struct rd_client *c, rd_kafka_resp_err_t code, struct error *err)
{
    error_set(err, ST_RETRY, "produce: %s: %s", rd_kafka_err2name(code), rd_kafka_err2str(code));
    c->topics_stale |= is_refusal(code) || code == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC || code == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
    switch (code) {
    case RD_KAFKA_RESP_ERR__QUEUE_FULL:
        rd_kafka_poll(c->producer, QUEUE_FULL_POLL_MS);
        return KAFKA_AGAIN;
    case RD_KAFKA_RESP_ERR__FATAL:
    case RD_KAFKA_RESP_ERR__FENCED:
        return KAFKA_REMAKE;
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
        return KAFKA_REFUSED;
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
        atomic_store(&c->limits_stale, true);
        return KAFKA_ABORT;
    default:      /* _STATE: the transaction has failed already; the abort tells whether the producer has, too */
        return answer_of_code(code, "produce", rd_kafka_err2str(code), err);
    }
}

enum kafka_answer rd_produce(struct kafka_client *client, enum kafka_topic topic, const void *key, size_t key_n, const void *value,
                             size_t value_n, const struct header *headers, size_t headers_n, struct error *err)
{
    struct rd_client *c = self(client);
    rd_kafka_headers_t *list = rd_kafka_headers_new(headers_n);
    rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR_NO_ERROR;

    for (size_t i = 0; i < headers_n && code == RD_KAFKA_RESP_ERR_NO_ERROR; i++)
        code = rd_kafka_header_add(list, headers[i].name, -1, headers[i].value,
                                   headers[i].value != NULL ? (ssize_t)headers[i].value_n : 0);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR)      /* producev: produceva frees the headers twice (#4628) */
        code = rd_kafka_producev(c->producer, RD_KAFKA_V_RKT(c->topic[topic == KAFKA_DEAD]),
                                 RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_KEY(key, key_n),
                                 RD_KAFKA_V_VALUE((void *)(uintptr_t)value, value_n), RD_KAFKA_V_HEADERS(list), RD_KAFKA_V_END);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
        return KAFKA_OK;
    rd_kafka_headers_destroy(list);
    return produce_failed(c, code, err);
}

static rd_kafka_topic_partition_list_t *places_list(const struct rd_client *c, const struct kafka_place *places, size_t n)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)n);

    for (size_t i = 0; i < n; i++) {
        rd_kafka_topic_partition_t *p = rd_kafka_topic_partition_list_add(list, c->names.topic[TOPIC_PROMPTS], places[i].partition);
        size_t text_n = places[i].metadata != NULL ? strlen(places[i].metadata) : 0;

        p->offset = places[i].offset;
        if (text_n == 0)
            continue;
        p->metadata = rd_kafka_mem_malloc(c->producer, text_n + 1);      /* the list frees it */
        memcpy(p->metadata, places[i].metadata, text_n + 1);
        p->metadata_size = text_n;
    }
    return list;
}

/* At least once: the consumer's own commit, answered before it returns. */
static enum kafka_answer offsets_plain(struct rd_client *c, const rd_kafka_topic_partition_list_t *list, struct error *err)
{
    rd_kafka_resp_err_t code;

    pthread_rwlock_rdlock(&c->consumer_life);
    code = rd_kafka_commit(c->consumer, list, 0);
    pthread_rwlock_unlock(&c->consumer_life);
    for (int i = 0; i < list->cnt && code == RD_KAFKA_RESP_ERR_NO_ERROR; i++)
        code = list->elems[i].err;
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
        return KAFKA_OK;
    error_set(err, ST_RETRY, "commit: %s: %s%s", rd_kafka_err2name(code), rd_kafka_err2str(code), cure(code));
    if (is_refusal(code))
        return KAFKA_REFUSED;
    return is_fence(code) || code == RD_KAFKA_RESP_ERR__STATE ? KAFKA_FENCED_OFFSETS : KAFKA_AGAIN;
}

enum kafka_answer rd_offsets(struct kafka_client *client, const struct kafka_place *places, size_t n, const struct kafka_group *as,
                             struct error *err)
{
    struct rd_client *c = self(client);
    rd_kafka_topic_partition_list_t *list = places_list(c, places, n);
    rd_kafka_consumer_group_metadata_t *group;
    enum kafka_answer answer = KAFKA_OK;
    rd_kafka_error_t *e;

    if (!c->transactional) {
        answer = offsets_plain(c, list, err);
        rd_kafka_topic_partition_list_destroy(list);
        return answer;
    }
    group = rd_kafka_consumer_group_metadata_new_with_genid(c->cfg->kafka_group, as->generation, as->member, NULL);
    e = rd_kafka_send_offsets_to_transaction(c->producer, list, group, -1);
    if (e != NULL)
        answer = answer_take(c, e, "send_offsets_to_transaction", err);
    rd_kafka_consumer_group_metadata_destroy(group);
    rd_kafka_topic_partition_list_destroy(list);
    return answer;
}

static enum kafka_answer flush(struct rd_client *c, struct error *err)
{
    rd_kafka_resp_err_t failed, code = rd_kafka_flush(c->producer, (int)c->cfg->txn_timeout_ms);
    char text[256];

    if (rd_kafka_fatal_error(c->producer, text, sizeof text) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        error_set(err, ST_RETRY, "flush: %s", text);
        return KAFKA_REMAKE;
    }
    failed = c->failed;
    c->failed = RD_KAFKA_RESP_ERR_NO_ERROR;
    if (failed != RD_KAFKA_RESP_ERR_NO_ERROR)
        return answer_of_code(failed, "produce", rd_kafka_err2str(failed), err);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
        return KAFKA_OK;
    error_set(err, ST_RETRY, "flush: %s", rd_kafka_err2str(code));
    return KAFKA_AGAIN;
}

enum kafka_answer rd_commit(struct kafka_client *client, struct error *err)
{
    struct rd_client *c = self(client);
    rd_kafka_error_t *e;

    if (!c->transactional)
        return flush(c, err);
    e = rd_kafka_commit_transaction(c->producer, -1);
    if (e == NULL)
        return KAFKA_OK;
    return answer_take(c, e, "commit_transaction", err);
}

/* After a record was refused for its size: the topic's limit was changed, and the producer is made for the old one. */
static bool limits_changed(struct rd_client *c)
{
    int64_t results = c->results_max, dead = c->dead_max;

    pthread_rwlock_rdlock(&c->consumer_life);
    rd_limits_read(c);
    pthread_rwlock_unlock(&c->consumer_life);
    return results != c->results_max || dead != c->dead_max;
}

enum kafka_answer rd_abort(struct kafka_client *client, struct error *err)
{
    struct rd_client *c = self(client);
    rd_kafka_error_t *e = c->transactional ? rd_kafka_abort_transaction(c->producer, -1) : NULL;

    if (e != NULL)
        return answer_take(c, e, "abort_transaction", err);
    if (atomic_exchange(&c->limits_stale, false) && limits_changed(c)) {
        error_set(err, ST_RETRY, "max.message.bytes of a topic has changed: the producer is made anew for it");
        return KAFKA_UNKNOWN;
    }
    return KAFKA_OK;
}

enum kafka_answer rd_remake(struct kafka_client *client, struct error *err)
{
    struct rd_client *c = self(client);

    rd_producer_close(c);
    c->failed = RD_KAFKA_RESP_ERR_NO_ERROR;
    return rd_producer_open(c, err) == ST_OK ? KAFKA_OK : KAFKA_REFUSED;
}

int64_t rd_value_max(struct kafka_client *client, enum kafka_topic topic)
{
    struct rd_client *c = self(client);
    int64_t max = topic == KAFKA_DEAD ? c->dead_max : c->results_max;

    return (c->client_max > 0 && c->client_max < max ? c->client_max : max) - RECORD_MARGIN_BYTES;
}

size_t rd_metadata_max(struct kafka_client *client)
{
    return self(client)->metadata_max;
}
