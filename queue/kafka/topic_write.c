/* queue/kafka/topic_write.c - the tools' transactional writer.
 * librdkafka 2.0.2 speaks the old transaction protocol (no epoch bump a transaction): after a commit whose end is not known the
 * producer is never used again, so that a late EndTxn cannot hit the next transaction. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failpoint.h"
#include "queue/kafka/topic_internal.h"

#define VALUE_BYTES_MAX "33554432"       /* the client's bound on a record; the topic's own is smaller (1 MiB unless set) */
#define TRANSACTION_MS "60000"

struct topic_writer {
    struct topics *t;
    rd_kafka_t *rk;
    char trouble[256];
    bool begun;
    rd_kafka_resp_err_t refused;         /* of a delivery in this transaction: says why a commit had to be aborted */
};

static void delivery_take(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque)
{
    struct topic_writer *w = opaque;

    (void)rk;
    if (m->err != RD_KAFKA_RESP_ERR_NO_ERROR && m->err != RD_KAFKA_RESP_ERR__PURGE_QUEUE &&
        m->err != RD_KAFKA_RESP_ERR__PURGE_INFLIGHT)
        w->refused = m->err;
}

static void complaint_take(rd_kafka_t *rk, int code, const char *reason, void *opaque)
{
    struct topic_writer *w = opaque;

    (void)rk;
    snprintf(w->trouble, sizeof w->trouble, "%s: %s", rd_kafka_err2str((rd_kafka_resp_err_t)code), reason);
}

/* A call that only says "fatal error": the one that made it so. */
static rd_kafka_resp_err_t cause_of(const struct topic_writer *w, rd_kafka_resp_err_t code)
{
    char text[256];

    return code == RD_KAFKA_RESP_ERR__FATAL ? rd_kafka_fatal_error(w->rk, text, sizeof text) : code;
}

/* Destroys e. */
static status st_topic_error(struct error *err, const struct topic_writer *w, rd_kafka_error_t *e, const char *doing)
{
    status st;

    if (e == NULL)
        return ST_OK;
    st = st_topic(err, w->t, w->trouble, cause_of(w, rd_kafka_error_code(e)), doing);
    if (st == ST_REJECT && rd_kafka_error_is_fatal(e))
        st = error_set(err, ST_RETRY, "%s: %s", doing, rd_kafka_error_string(e));
    rd_kafka_error_destroy(e);
    return st;
}

static status handle_make(struct topic_writer *w, const char *id, struct error *err)
{
    static const char *const defaults[] = { "linger.ms", "20", "compression.type", "lz4", "partitioner", "murmur2_random",
                                            "message.max.bytes", VALUE_BYTES_MAX, NULL };
    const char *const musts[] = { "transactional.id", id, "transaction.timeout.ms", TRANSACTION_MS, "enable.idempotence", "true",
                                  "acks", "all", NULL };
    char text[512];
    rd_kafka_conf_t *conf;
    status st = kafka_conf_make(w->t->cfg, w->t->names.brokers, defaults, musts, &conf, err);

    if (st != ST_OK)
        return st;
    rd_kafka_conf_set_dr_msg_cb(conf, delivery_take);
    rd_kafka_conf_set_error_cb(conf, complaint_take);
    rd_kafka_conf_set_opaque(conf, w);
    w->rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    if (w->rk != NULL)
        return ST_OK;
    rd_kafka_conf_destroy(conf);
    return error_set(err, ST_REJECT, "the Kafka client cannot be set up: %s", text);
}

status topic_writer_open(struct topics *t, const char *id, struct topic_writer **out, struct error *err)
{
    struct topic_writer *w = mem_take_zero(1, sizeof *w);
    rd_kafka_error_t *e;
    status st;
    int tries = 0;

    *out = NULL;
    w->t = t;
    TRY(handle_make(w, id, err));
    /* Ends what an earlier writer left open; while the broker is at that, it asks to call again. */
    while ((e = rd_kafka_init_transactions(w->rk, TOPIC_ANSWER_MS)) != NULL && rd_kafka_error_is_retriable(e) && ++tries < 4)
        rd_kafka_error_destroy(e);
    TRY(st_topic_error(err, w, e, "beginning to write"));
    *out = w;
    w = NULL;
out:
    topic_writer_close(w);
    return st;
}

void topic_writer_close(struct topic_writer *w)
{
    if (w == NULL)
        return;
    if (w->rk != NULL) {
        if (w->begun) {
            rd_kafka_error_t *e = rd_kafka_abort_transaction(w->rk, TOPIC_ANSWER_MS);

            if (e != NULL)
                rd_kafka_error_destroy(e);
        }
        rd_kafka_destroy(w->rk);
    }
    free(w);
}

status topic_writer_begin(struct topic_writer *w, struct error *err)
{
    status st = st_topic_error(err, w, rd_kafka_begin_transaction(w->rk), "beginning a transaction");

    w->begun = st == ST_OK;
    w->refused = RD_KAFKA_RESP_ERR_NO_ERROR;
    return st;
}

static rd_kafka_headers_t *headers_make(const struct record *r)
{
    rd_kafka_headers_t *out = rd_kafka_headers_new(r->headers_n);

    for (size_t i = 0; i < r->headers_n; i++)
        rd_kafka_header_add(out, r->headers[i].name, -1, r->headers[i].value, (ssize_t)r->headers[i].value_n);
    return out;
}

/* The library keeps what the pointers say: NULL is a tombstone (or no key), not NULL with length 0 is an empty one. */
static rd_kafka_resp_err_t produce(struct topic_writer *w, const char *topic, int32_t partition, const struct record *r)
{
    rd_kafka_headers_t *headers = headers_make(r);
    rd_kafka_resp_err_t code;

    code = rd_kafka_producev(w->rk, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                             RD_KAFKA_V_KEY(r->key, r->key_n), RD_KAFKA_V_VALUE((void *)(uintptr_t)r->value, r->value_n),
                             RD_KAFKA_V_TIMESTAMP(r->timestamp_ms), RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        rd_kafka_headers_destroy(headers);
    return code;
}

status topic_writer_add(struct topic_writer *w, enum topic_kind kind, int32_t partition, const struct record *r, struct error *err)
{
    const char *topic = w->t->names.topic[kind];
    rd_kafka_resp_err_t code;

    rd_kafka_poll(w->rk, 0);
    while ((code = produce(w, topic, partition == TOPIC_ANY_PARTITION ? RD_KAFKA_PARTITION_UA : partition, r)) ==
           RD_KAFKA_RESP_ERR__QUEUE_FULL)
        rd_kafka_poll(w->rk, 100);             /* what waits is sent, or times out with the transaction */
    if (code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE)
        return error_set(err, ST_REJECT, "a record of %zu bytes is longer than " VALUE_BYTES_MAX, r->value_n);
    code = cause_of(w, code);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR && st_topic(err, w->t, w->trouble, code, "writing a record") == ST_REJECT)
        return error_set(err, ST_RETRY, "writing a record: %s", rd_kafka_err2str(code));
    return st_topic(err, w->t, w->trouble, code, "writing a record");
}

status topic_writer_abort(struct topic_writer *w, struct error *err)
{
    w->begun = false;
    return st_topic_error(err, w, rd_kafka_abort_transaction(w->rk, -1), "ending a transaction");
}

status topic_writer_commit(struct topic_writer *w, struct error *err)
{
    rd_kafka_error_t *e;
    status st;

    failpoint("topic.commit.before");
    do {
        e = rd_kafka_commit_transaction(w->rk, -1);
        if (e == NULL || !rd_kafka_error_is_retriable(e))
            break;
        rd_kafka_error_destroy(e);
    } while (true);
    failpoint("topic.commit.after");
    if (e != NULL && rd_kafka_error_txn_requires_abort(e)) {
        struct error aborted;

        st = w->refused != RD_KAFKA_RESP_ERR_NO_ERROR ? st_topic(err, w->t, w->trouble, w->refused, "the broker refuses a record")
                                                     : st_topic(err, w->t, w->trouble, cause_of(w, rd_kafka_error_code(e)), "writing");
        rd_kafka_error_destroy(e);
        return topic_writer_abort(w, &aborted) == ST_OK || st == ST_FENCED ? st : error_set(err, ST_RETRY, "%s", aborted.text);
    }
    w->begun = false;
    return st_topic_error(err, w, e, "committing");
}
