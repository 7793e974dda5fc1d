/* queue/kafka/topic.c - topics made and counted, a group's commits. Reading and writing: topic_scan.c, topic_write.c. */
#include "queue/topic.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "queue/kafka/topic_internal.h"

#define FIRST_ANSWER_MS 10000          /* of a broker that is not there: a person waits for the message */

static void complaint_take(rd_kafka_t *rk, int code, const char *reason, void *opaque)
{
    (void)rk;
    if (opaque != NULL)
        snprintf(opaque, sizeof ((struct topics *)0)->trouble, "%s: %s", rd_kafka_err2str((rd_kafka_resp_err_t)code), reason);
}

status topics_consumer_make(const struct topics *t, const char *const *musts, char *trouble, rd_kafka_t **out, struct error *err)
{
    static const char *const defaults[] = {
        "check.crcs", "true", "max.poll.interval.ms", "86400000", "queued.max.messages.kbytes", "32768", NULL
    };
    char text[512];
    rd_kafka_conf_t *conf;
    status st = kafka_conf_make(t->cfg, t->names.brokers, defaults, musts, &conf, err);

    *out = NULL;
    if (st != ST_OK)
        return st;
    rd_kafka_conf_set_error_cb(conf, complaint_take);
    rd_kafka_conf_set_opaque(conf, trouble);
    *out = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    if (*out != NULL)
        return ST_OK;
    rd_kafka_conf_destroy(conf);
    return error_set(err, ST_REJECT, "the Kafka client cannot be set up: %s", text);
}

status st_topic(struct error *err, const struct topics *t, const char *trouble, rd_kafka_resp_err_t code, const char *doing)
{
    switch (code) {
    case RD_KAFKA_RESP_ERR_NO_ERROR:
        return ST_OK;
    case RD_KAFKA_RESP_ERR__FENCED:
    case RD_KAFKA_RESP_ERR_PRODUCER_FENCED:
    case RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH:
        return error_set(err, ST_FENCED, "%s: another process writes under the same transactional id", doing);
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
    case RD_KAFKA_RESP_ERR__RESOLVE:
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
    case RD_KAFKA_RESP_ERR__WAIT_COORD:
    case RD_KAFKA_RESP_ERR__WAIT_CACHE:
    case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
    case RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NOT_COORDINATOR:
    case RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS:
    case RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION:
    case RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS:
    case RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION:
    case RD_KAFKA_RESP_ERR_UNSTABLE_OFFSET_COMMIT:
    case RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS:
        return error_set(err, ST_RETRY, "%s: %s (brokers %s%s%s)", doing, rd_kafka_err2str(code), t->names.brokers,
                         trouble != NULL && trouble[0] != '\0' ? "; " : "", trouble != NULL ? trouble : "");
    default:
        return error_set(err, ST_REJECT, "%s: %s", doing, rd_kafka_err2str(code));
    }
}

status topics_open(const struct config *cfg, const char *url, struct topics **out, struct error *err)
{
    static const char *const pairs[] = { "isolation.level", "read_uncommitted", "enable.auto.commit", "false", NULL };
    struct topics *t = mem_take_zero(1, sizeof *t);
    status st;

    *out = NULL;
    t->cfg = cfg;
    TRY(kafka_names_read(cfg, url, &t->names, err));
    TRY(topics_consumer_make(t, pairs, t->trouble, &t->admin, err));
    *out = t;
    t = NULL;
out:
    topics_close(t);
    return st;
}

void topics_close(struct topics *t)
{
    if (t == NULL)
        return;
    if (t->admin != NULL)
        rd_kafka_destroy(t->admin);
    kafka_names_free(&t->names);
    free(t);
}

const char *topics_name(const struct topics *t, enum topic_kind kind)
{
    return t->names.topic[kind];
}

/* ---- looking ---- */

/* *leaders_n: partitions that have one. */
static status partitions_look(struct topics *t, enum topic_kind kind, int32_t *partitions_n, int32_t *leaders_n, struct error *err)
{
    rd_kafka_topic_t *topic = rd_kafka_topic_new(t->admin, t->names.topic[kind], NULL);
    const struct rd_kafka_metadata *meta = NULL;
    rd_kafka_resp_err_t code;

    *partitions_n = *leaders_n = 0;
    if (topic == NULL)
        return st_topic(err, t, t->trouble, rd_kafka_last_error(), "asking for a topic");
    code = rd_kafka_metadata(t->admin, 0, topic, &meta, FIRST_ANSWER_MS);
    rd_kafka_topic_destroy(topic);
    rd_kafka_poll(t->admin, 0);                /* complaints */
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR && meta->topic_cnt == 1) {
        code = meta->topics[0].err;
        *partitions_n = meta->topics[0].partition_cnt;
        for (int i = 0; i < meta->topics[0].partition_cnt; i++)
            *leaders_n += meta->topics[0].partitions[i].leader >= 0;
    }
    if (meta != NULL)
        rd_kafka_metadata_destroy(meta);
    if (code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || code == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC) {
        *partitions_n = *leaders_n = 0;
        return ST_OK;
    }
    return st_topic(err, t, t->trouble, code, t->names.topic[kind]);
}

status topic_count_partitions(struct topics *t, enum topic_kind kind, int32_t *partitions_n, struct error *err)
{
    int32_t leaders_n;

    return partitions_look(t, kind, partitions_n, &leaders_n, err);
}

/* Right after a broker's return others still name the old leader: looking at the topic again makes the library ask anew. */
static status range_read(struct topics *t, enum topic_kind kind, int32_t p, int64_t deadline_ns, struct topic_range *out,
                         struct error *err)
{
    int32_t partitions_n, leaders_n;
    struct error unused;

    for (;;) {
        int64_t left_ms = (deadline_ns - clock_mono_ns()) / NS_PER_MS;
        status st = st_topic(err, t, t->trouble, rd_kafka_query_watermark_offsets(t->admin, t->names.topic[kind], p, &out->low,
                             &out->high, left_ms > 1 ? (int)left_ms : 1), t->names.topic[kind]);

        if (st != ST_RETRY || clock_mono_ns() >= deadline_ns)
            return st;
        rd_kafka_poll(t->admin, 100);
        (void)partitions_look(t, kind, &partitions_n, &leaders_n, &unused);      /* its answer is the next try's */
    }
}

status topic_read_ranges(struct topics *t, enum topic_kind kind, struct topic_range **out, int32_t *partitions_n,
                         struct error *err)
{
    int64_t deadline_ns = clock_mono_ns() + TOPIC_ANSWER_S * NS_PER_S;
    struct topic_range *ranges = NULL;
    status st;

    *out = NULL;
    TRY(topic_count_partitions(t, kind, partitions_n, err));
    if (*partitions_n == 0)
        return error_set(err, ST_REJECT, "there is no topic \"%s\" (brokers %s)", t->names.topic[kind], t->names.brokers);
    ranges = mem_take_zero((size_t)*partitions_n, sizeof *ranges);
    for (int32_t p = 0; p < *partitions_n; p++)
        TRY(range_read(t, kind, p, deadline_ns, &ranges[p], err));
    *out = ranges;
    ranges = NULL;
out:
    free(ranges);
    return st;
}

/* ---- administration: one request, one answer ---- */

/* Waits for the answer of what was just asked on q; NULL: none came. */
static rd_kafka_event_t *answer_wait(struct topics *t, rd_kafka_queue_t *q, const char *doing, status *st, struct error *err)
{
    rd_kafka_event_t *e = rd_kafka_queue_poll(q, TOPIC_ANSWER_MS + 1000);

    rd_kafka_poll(t->admin, 0);
    *st = st_topic(err, t, t->trouble, e == NULL ? RD_KAFKA_RESP_ERR__TIMED_OUT : rd_kafka_event_error(e), doing);
    return e;
}

static rd_kafka_AdminOptions_t *options_make(struct topics *t)
{
    rd_kafka_AdminOptions_t *o = rd_kafka_AdminOptions_new(t->admin, RD_KAFKA_ADMIN_OP_ANY);
    char text[64];

    rd_kafka_AdminOptions_set_request_timeout(o, TOPIC_ANSWER_MS, text, sizeof text);
    return o;
}

static status topic_request_make(struct topics *t, rd_kafka_NewTopic_t *request, bool *made, struct error *err)
{
    rd_kafka_queue_t *q = rd_kafka_queue_new(t->admin);
    rd_kafka_AdminOptions_t *options = options_make(t);
    const rd_kafka_topic_result_t **results;
    rd_kafka_event_t *e;
    size_t n;
    status st;

    rd_kafka_CreateTopics(t->admin, &request, 1, options, q);
    e = answer_wait(t, q, "making a topic", &st, err);
    if (st == ST_OK) {
        results = rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(e), &n);
        if (n == 1 && rd_kafka_topic_result_error(results[0]) == RD_KAFKA_RESP_ERR_NO_ERROR)
            *made = true;
        else if (n == 1 && rd_kafka_topic_result_error(results[0]) != RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS)
            st = error_set(err, ST_REJECT, "the topic \"%s\" cannot be made: %s", rd_kafka_topic_result_name(results[0]),
                           rd_kafka_topic_result_error_string(results[0]));
    }
    if (e != NULL)
        rd_kafka_event_destroy(e);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_queue_destroy(q);
    return st;
}

static status leaders_wait(struct topics *t, enum topic_kind kind, struct error *err)
{
    int64_t deadline_ns = clock_mono_ns() + TOPIC_ANSWER_S * NS_PER_S;
    int32_t partitions_n, leaders_n;
    status st;

    do {
        st = partitions_look(t, kind, &partitions_n, &leaders_n, err);
        if (st == ST_OK && partitions_n > 0 && leaders_n == partitions_n)
            return ST_OK;
        if (st == ST_REJECT)
            return st;
        rd_kafka_poll(t->admin, 50);
    } while (clock_mono_ns() < deadline_ns);
    return st != ST_OK ? st : error_set(err, ST_RETRY, "the topic \"%s\" has no leader yet", t->names.topic[kind]);
}

status topic_make(struct topics *t, enum topic_kind kind, const struct topic_shape *shape, bool *made, struct error *err)
{
    rd_kafka_NewTopic_t *request;
    char text[256];
    status st;

    *made = false;
    request = rd_kafka_NewTopic_new(t->names.topic[kind], shape->partitions_n, shape->replicas_n, text, sizeof text);
    if (request == NULL)
        return error_set(err, ST_REJECT, "the topic \"%s\" cannot be made: %s", t->names.topic[kind], text);
    for (const char *const *c = shape->configs; c != NULL && *c != NULL; c += 2)
        rd_kafka_NewTopic_set_config(request, c[0], c[1]);
    st = topic_request_make(t, request, made, err);
    rd_kafka_NewTopic_destroy(request);
    return st == ST_OK ? leaders_wait(t, kind, err) : st;
}

static status config_number_find(const rd_kafka_ConfigResource_t *resource, const char *name, int64_t *out, struct error *err)
{
    size_t n;
    const rd_kafka_ConfigEntry_t **entries = rd_kafka_ConfigResource_configs(resource, &n);

    for (size_t i = 0; i < n; i++) {
        const char *value = rd_kafka_ConfigEntry_value(entries[i]);
        char *end;

        if (strcmp(rd_kafka_ConfigEntry_name(entries[i]), name) != 0 || value == NULL)
            continue;
        errno = 0;
        *out = strtoll(value, &end, 10);
        if (end != value && *end == '\0' && errno == 0)
            return ST_OK;
    }
    return error_set(err, ST_REJECT, "the broker tells no number for %s", name);
}

status topic_read_config(struct topics *t, enum topic_kind kind, const char *name, int64_t *out, struct error *err)
{
    rd_kafka_ConfigResource_t *asked = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, t->names.topic[kind]);
    rd_kafka_queue_t *q = rd_kafka_queue_new(t->admin);
    rd_kafka_AdminOptions_t *options = options_make(t);
    const rd_kafka_ConfigResource_t **results;
    rd_kafka_event_t *e;
    size_t n;
    status st;

    *out = 0;
    rd_kafka_DescribeConfigs(t->admin, &asked, 1, options, q);
    e = answer_wait(t, q, "reading a topic's configuration", &st, err);
    if (st == ST_OK) {
        results = rd_kafka_DescribeConfigs_result_resources(rd_kafka_event_DescribeConfigs_result(e), &n);
        st = st_topic(err, t, t->trouble, n == 1 ? rd_kafka_ConfigResource_error(results[0]) : RD_KAFKA_RESP_ERR__BAD_MSG,
                      "reading a topic's configuration");
        if (st == ST_OK)
            st = config_number_find(results[0], name, out, err);
    }
    if (e != NULL)
        rd_kafka_event_destroy(e);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_queue_destroy(q);
    rd_kafka_ConfigResource_destroy(asked);
    return st;
}

/* ---- commits of a group ---- */

/* read_committed, so that the answer waits for transactions that hold commits (RequireStable). */
static status group_handle_make(struct topics *t, const char *group, rd_kafka_t **out, struct error *err)
{
    const char *const pairs[] = { "group.id", group, "isolation.level", "read_committed", "enable.auto.commit", "false", NULL };

    return topics_consumer_make(t, pairs, t->trouble, out, err);
}

status topic_read_commits(struct topics *t, const char *group, struct topic_commit **out, int32_t *partitions_n, struct error *err)
{
    rd_kafka_topic_partition_list_t *list = NULL;
    rd_kafka_t *rk = NULL;
    status st;

    *out = NULL;
    TRY(topic_count_partitions(t, TOPIC_PROMPTS, partitions_n, err));
    if (*partitions_n == 0)
        return error_set(err, ST_REJECT, "there is no topic \"%s\"", t->names.topic[TOPIC_PROMPTS]);
    TRY(group_handle_make(t, group, &rk, err));
    list = rd_kafka_topic_partition_list_new(*partitions_n);
    rd_kafka_topic_partition_list_add_range(list, t->names.topic[TOPIC_PROMPTS], 0, *partitions_n - 1);
    TRY(st_topic(err, t, t->trouble, rd_kafka_committed(rk, list, TOPIC_ANSWER_MS), "reading the group's commits"));
    *out = mem_take_zero((size_t)*partitions_n, sizeof **out);
    for (int i = 0; i < list->cnt && st == ST_OK; i++) {
        const rd_kafka_topic_partition_t *p = &list->elems[i];
        struct topic_commit *c = &(*out)[p->partition];

        st = st_topic(err, t, t->trouble, p->err, "reading the group's commits");
        c->offset = p->offset >= 0 ? p->offset : -1;
        if (p->metadata != NULL) {
            c->metadata = mem_take(p->metadata_size + 1);
            memcpy(c->metadata, p->metadata, p->metadata_size);
            c->metadata[p->metadata_size] = '\0';
        }
    }
    if (st != ST_OK) {
        topic_commits_free(*out, *partitions_n);
        *out = NULL;
    }
out:
    if (list != NULL)
        rd_kafka_topic_partition_list_destroy(list);
    if (rk != NULL)
        rd_kafka_destroy(rk);
    return st;
}

void topic_commits_free(struct topic_commit *commits, int32_t n)
{
    for (int32_t i = 0; commits != NULL && i < n; i++)
        free(commits[i].metadata);
    free(commits);
}

status topic_write_commit(struct topics *t, const char *group, int32_t partition, int64_t offset, const char *metadata,
                          struct error *err)
{
    rd_kafka_topic_partition_list_t *list;
    rd_kafka_topic_partition_t *place;
    rd_kafka_t *rk;
    status st = group_handle_make(t, group, &rk, err);

    if (st != ST_OK)
        return st;
    list = rd_kafka_topic_partition_list_new(1);
    place = rd_kafka_topic_partition_list_add(list, t->names.topic[TOPIC_PROMPTS], partition);
    place->offset = offset;
    if (metadata != NULL) {
        place->metadata = mem_copy_text(metadata);       /* the list frees it (rd_free is free) */
        place->metadata_size = strlen(metadata);
    }
    st = st_topic(err, t, t->trouble, rd_kafka_commit(rk, list, 0), "writing a commit");
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_destroy(rk);
    return st;
}
