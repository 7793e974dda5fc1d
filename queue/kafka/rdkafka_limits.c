/* What must be known before the first record: the topics are there, how large a record they take, and how much metadata of a commit
 * the brokers keep. Who may not read the settings of topics goes on with Kafka's defaults. */
#define _POSIX_C_SOURCE 200809L           /* pthread_rwlock_t */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "queue/kafka/rdkafka_internal.h"

#define ASK_TIMEOUT_MS 5000
#define RESOURCES_N 3                      /* results, dead, a broker */

static status topic_check(struct rd_client *c, enum topic_kind kind, int32_t *broker, struct error *err)
{
    const char *name = c->names.topic[kind];
    const struct rd_kafka_metadata *meta = NULL;
    rd_kafka_topic_t *topic = rd_kafka_topic_new(c->consumer, name, NULL);
    rd_kafka_resp_err_t code;
    status st = ST_OK;

    if (topic == NULL)
        return error_set(err, ST_REJECT, "the topic %s: %s", name, rd_kafka_err2str(rd_kafka_last_error()));
    code = rd_kafka_metadata(c->consumer, 0, topic, &meta, ASK_TIMEOUT_MS);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR && meta->topic_cnt == 1)
        code = meta->topics[0].err;
    if (code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || code == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC)
        st = error_set(err, ST_REJECT, "there is no topic %s on %s; `nightshift submit` makes the topics of a queue, kafka-topics --create "
                       "does, too", name, c->names.brokers);
    else if (code == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
        st = error_set(err, ST_REJECT, "the topic %s: not authorised; see the settings kafka.security.*, kafka.sasl.*", name);
    else if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        st = error_set(err, ST_RETRY, "no answer about the topic %s from %s: %s", name, c->names.brokers, rd_kafka_err2str(code));
    else if (meta->broker_cnt > 0)
        *broker = meta->brokers[0].id;
    if (meta != NULL)
        rd_kafka_metadata_destroy(meta);
    rd_kafka_topic_destroy(topic);
    return st;
}

status rd_topics_check(struct rd_client *c, int64_t deadline_ns, struct error *err)
{
    for (int i = 0; i < TOPIC_KINDS_N;) {
        status st = topic_check(c, (enum topic_kind)i, &c->broker, err);

        if (st == ST_OK)
            i++;
        else if (st != ST_RETRY || clock_mono_ns() >= deadline_ns)
            return st;
    }
    return ST_OK;
}

static bool entry_read(const rd_kafka_ConfigResource_t *r, const char *name, int64_t *out)
{
    size_t n;
    const rd_kafka_ConfigEntry_t **entries = rd_kafka_ConfigResource_configs(r, &n);

    for (size_t i = 0; i < n; i++) {
        const char *value = rd_kafka_ConfigEntry_value(entries[i]);
        char *end;
        long long v;

        if (strcmp(rd_kafka_ConfigEntry_name(entries[i]), name) != 0 || value == NULL)
            continue;
        errno = 0;
        v = strtoll(value, &end, 10);
        if (errno == 0 && end != value && *end == '\0' && v > 0) {
            *out = v;
            return true;
        }
    }
    return false;
}

static void answers_read(struct rd_client *c, const rd_kafka_ConfigResource_t **r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *name = rd_kafka_ConfigResource_name(r[i]);
        int64_t value;

        if (rd_kafka_ConfigResource_error(r[i]) != RD_KAFKA_RESP_ERR_NO_ERROR) {
            log_warn("kafka.limits", "of=%s error=%s what=\"Kafka's defaults are assumed\"", name,
                     rd_kafka_err2name(rd_kafka_ConfigResource_error(r[i])));
        } else if (rd_kafka_ConfigResource_type(r[i]) == RD_KAFKA_RESOURCE_BROKER) {
            if (entry_read(r[i], "offset.metadata.max.bytes", &value))
                c->metadata_max = (size_t)value;
        } else if (entry_read(r[i], "max.message.bytes", &value)) {
            if (strcmp(name, c->names.topic[TOPIC_RESULTS]) == 0)
                c->results_max = value;
            if (strcmp(name, c->names.topic[TOPIC_DEAD]) == 0)
                c->dead_max = value;
        }
    }
}

void rd_limits_read(struct rd_client *c)
{
    rd_kafka_queue_t *queue = rd_kafka_queue_new(c->consumer);
    rd_kafka_AdminOptions_t *options = rd_kafka_AdminOptions_new(c->consumer, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS);
    rd_kafka_ConfigResource_t *asked[RESOURCES_N];
    rd_kafka_event_t *event;
    char broker[16], text[128];

    snprintf(broker, sizeof broker, "%" PRId32, c->broker);
    asked[0] = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, c->names.topic[TOPIC_RESULTS]);
    asked[1] = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, c->names.topic[TOPIC_DEAD]);
    asked[2] = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_BROKER, broker);
    if (rd_kafka_AdminOptions_set_request_timeout(options, ASK_TIMEOUT_MS, text, sizeof text) != RD_KAFKA_RESP_ERR_NO_ERROR)
        log_warn("kafka.limits", "what=\"%s\"", text);
    /* Asked one resource a time: topics and brokers are answered by different nodes, and one refusal must not hide the rest. */
    for (int i = 0; i < RESOURCES_N; i++) {
        size_t n = 0;
        const rd_kafka_ConfigResource_t **r;

        rd_kafka_DescribeConfigs(c->consumer, &asked[i], 1, options, queue);
        event = rd_kafka_queue_poll(queue, ASK_TIMEOUT_MS + 1000);
        if (event != NULL && rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR_NO_ERROR) {
            r = rd_kafka_DescribeConfigs_result_resources(rd_kafka_event_DescribeConfigs_result(event), &n);
            answers_read(c, r, n);
        } else {
            log_warn("kafka.limits", "of=%s error=%s what=\"what was known stays\"", rd_kafka_ConfigResource_name(asked[i]),
                     event != NULL ? rd_kafka_event_error_string(event) : "no answer");
        }
        if (event != NULL)
            rd_kafka_event_destroy(event);
    }
    rd_kafka_ConfigResource_destroy_array(asked, RESOURCES_N);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_queue_destroy(queue);
}
