/* The consumer handle: one message or one event of the group a poll.
 *
 * The rebalance callback runs inside rd_kafka_consumer_poll and only notes what is to come; the assignment is answered after it,
 * by rd_assign or rd_unassign, which librdkafka waits for. A message that came in the same call waits for the next poll.
 * auto.offset.reset is error and every assignment has its offset, so nothing is ever skipped in silence. */
#define _GNU_SOURCE                        /* pthread_timedjoin_np */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "queue/kafka/rdkafka_internal.h"

#define AWAY_REMAKE_NS (60 * NS_PER_S)     /* without any broker: the handle may be stuck on addresses of old (#4970) */
#define LEAVE_WAIT_NS (3 * NS_PER_S)       /* for a first assignment, before a close (#4381) */
#define GENERATION_MAGIC "CGMDv2:"

static _Thread_local const struct rd_client *polls_for;      /* of the poll side's thread: its answers of `committed` have their own place */

static struct rd_client *self(struct kafka_client *client)
{
    return (struct rd_client *)(void *)client;
}

static rd_kafka_topic_partition_list_t *list_of(const struct rd_client *c, const int32_t *ids, size_t n)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)n);

    for (size_t i = 0; i < n; i++)
        rd_kafka_topic_partition_list_add(list, c->names.topic[TOPIC_PROMPTS], ids[i]);
    return list;
}

static bool cooperative(const struct rd_client *c)
{
    const char *protocol = rd_kafka_rebalance_protocol(c->consumer);

    return protocol != NULL && strcmp(protocol, "COOPERATIVE") == 0;
}

static void error_log(const char *doing, rd_kafka_error_t *e)
{
    if (e == NULL)
        return;
    log_error("kafka.client", "call=%s error=%s text=\"%s\"", doing, rd_kafka_error_name(e), rd_kafka_error_string(e));
    rd_kafka_error_destroy(e);
}

static void assignment_add(struct rd_client *c, const rd_kafka_topic_partition_list_t *list)
{
    if (cooperative(c))
        error_log("incremental_assign", rd_kafka_incremental_assign(c->consumer, list));
    else if (rd_kafka_assign(c->consumer, list) != RD_KAFKA_RESP_ERR_NO_ERROR)
        log_error("kafka.client", "call=assign error=%s", rd_kafka_err2name(rd_kafka_last_error()));
}

static void assignment_remove(struct rd_client *c, const rd_kafka_topic_partition_list_t *list)
{
    if (cooperative(c))
        error_log("incremental_unassign", rd_kafka_incremental_unassign(c->consumer, list));
    else if (rd_kafka_assign(c->consumer, NULL) != RD_KAFKA_RESP_ERR_NO_ERROR)
        log_error("kafka.client", "call=assign error=%s", rd_kafka_err2name(rd_kafka_last_error()));
}

static void on_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t code, rd_kafka_topic_partition_list_t *list, void *ctx)
{
    struct rd_client *c = ctx;
    size_t n = 0;

    if (atomic_load(&c->closing)) {      /* nobody is there any more to ask; what was committed is committed */
        if (code != RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
            assignment_remove(c, list);
            return;
        }
        assignment_add(c, list);
        return;
    }
    if ((size_t)list->cnt > c->ids_room) {
        c->ids_room = (size_t)list->cnt;
        c->ids = mem_grow(c->ids, c->ids_room * sizeof c->ids[0]);
    }
    for (int i = 0; i < list->cnt; i++)
        if (strcmp(list->elems[i].topic, c->names.topic[TOPIC_PROMPTS]) == 0)
            c->ids[n++] = list->elems[i].partition;
    c->ids_n = n;
    if (code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS)
        c->rebalance = KAFKA_ASSIGNED;
    else if (rd_kafka_assignment_lost(rk) || code != RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS)
        c->rebalance = KAFKA_LOST;
    else
        c->rebalance = KAFKA_REVOKED;
}

static void on_error(rd_kafka_t *rk, int code, const char *reason, void *ctx)
{
    struct rd_client *c = ctx;

    (void)rk;
    if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
        atomic_store(&c->away, true);
    log_debug("kafka.client", "error=%s text=\"%s\"", rd_kafka_err2name(code), reason);
}

/* ---- poll ---- */

static void headers_read(struct rd_client *c, rd_kafka_message_t *m, struct kafka_message *out)
{
    rd_kafka_headers_t *list;
    size_t n;

    out->headers_n = 0;
    if (rd_kafka_message_headers(m, &list) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return;
    n = rd_kafka_header_cnt(list);
    if (n > c->headers_room) {
        c->headers_room = n * 2;
        c->headers = mem_grow(c->headers, c->headers_room * sizeof c->headers[0]);
    }
    for (size_t i = 0; i < n; i++) {
        struct header *h = &c->headers[i];

        if (rd_kafka_header_get_all(list, i, &h->name, &h->value, &h->value_n) != RD_KAFKA_RESP_ERR_NO_ERROR)
            break;
        out->headers_n = i + 1;
    }
    out->headers = c->headers;
}

/* NULL and empty differ by the pointer alone (facts 1.7). */
static void message_read(struct rd_client *c, rd_kafka_message_t *m, struct kafka_event *out)
{
    rd_kafka_timestamp_type_t type;
    struct kafka_message *to = &out->message;

    out->kind = KAFKA_MESSAGE;
    to->partition = m->partition;
    to->offset = m->offset;
    to->timestamp_ms = rd_kafka_message_timestamp(m, &type);
    if (type == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE)
        to->timestamp_ms = -1;
    to->key = m->key;
    to->key_n = m->key != NULL ? m->key_len : 0;
    to->value = m->payload;
    to->value_n = m->payload != NULL ? m->len : 0;
    headers_read(c, m, to);
}

static void event_text(struct rd_client *c, struct kafka_event *out, enum kafka_event_kind kind, const char *name, const char *text)
{
    snprintf(c->text, sizeof c->text, "%.60s: %.400s", name, text);
    out->kind = kind;
    out->text = c->text;
}

/* What the library reports as a message with an error. */
static void trouble_read(struct rd_client *c, const rd_kafka_message_t *m, struct kafka_event *out)
{
    const char *text = rd_kafka_message_errstr(m);
    char fatal[256];

    if (text == NULL)
        text = rd_kafka_err2str(m->err);
    switch (m->err) {
    case RD_KAFKA_RESP_ERR__PARTITION_EOF:
        break;
    case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
        c->ids_n = 1;
        if (c->ids_room < 1)
            c->ids = mem_grow(c->ids, (c->ids_room = 1) * sizeof c->ids[0]);
        c->ids[0] = m->partition;
        out->partitions = c->ids;
        out->partitions_n = 1;
        event_text(c, out, KAFKA_OFFSET_GONE, rd_kafka_err2name(m->err), text);
        break;
    case RD_KAFKA_RESP_ERR__MAX_POLL_EXCEEDED:      /* KAFKA_LOST follows */
        log_warn("kafka.max_poll", "poll_max_ms=%" PRId64 " what=\"the poll side was away for longer; the partitions are lost and come "
                 "again\"", c->cfg->poll_max_ms);
        break;
    case RD_KAFKA_RESP_ERR__FATAL:
        rd_kafka_fatal_error(c->consumer, fatal, sizeof fatal);
        event_text(c, out, KAFKA_OVER, "fatal", fatal);
        break;
    default:
        event_text(c, out, KAFKA_AWAY, rd_kafka_err2name(m->err), text);
        break;
    }
}

static void away_end(struct rd_client *c)
{
    atomic_store(&c->away, false);
    c->away_since_ns = 0;
}

static bool holds_partitions(struct rd_client *c)
{
    rd_kafka_topic_partition_list_t *list = NULL;
    bool some = rd_kafka_assignment(c->consumer, &list) != RD_KAFKA_RESP_ERR_NO_ERROR || list->cnt > 0;

    if (list != NULL)
        rd_kafka_topic_partition_list_destroy(list);
    return some;
}

/* A handle of the same settings, which looks the bootstrap addresses up again. Only with nothing assigned: after the session's
 * time without a broker everything is lost anyway. */
static void consumer_remake(struct rd_client *c, struct kafka_event *out)
{
    struct error err = { "" };
    status st;

    log_warn("kafka.away", "what=\"no broker for a minute: the consumer is made anew, the brokers' addresses are looked up again\"");
    pthread_rwlock_wrlock(&c->consumer_life);
    rd_kafka_destroy_flags(c->consumer, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    c->consumer = NULL;
    c->subscribed = c->assigned_once = false;
    st = rd_consumer_open(c, &err);
    pthread_rwlock_unlock(&c->consumer_life);
    away_end(c);
    if (st != ST_OK)
        event_text(c, out, KAFKA_OVER, "remake", err.text);
}

/* The library says once that no broker is up, and not that one is again. A message tells, partitions that come, or those that
 * are still held after a session's time. */
static void away_read(struct rd_client *c, struct kafka_event *out)
{
    int64_t now = clock_mono_ns();
    bool holds;

    if (!atomic_load(&c->away))
        return;
    if (c->away_since_ns == 0)
        c->away_since_ns = now;
    holds = holds_partitions(c);
    if (holds && now - c->away_since_ns > c->cfg->session_timeout_ms * 2 * NS_PER_MS) {
        away_end(c);
        return;
    }
    event_text(c, out, KAFKA_AWAY, "away", "no broker answers, or nothing has come since one does again");
    if (!holds && now - c->away_since_ns > AWAY_REMAKE_NS)
        consumer_remake(c, out);
}

static void rebalance_give(struct rd_client *c, struct kafka_event *out)
{
    out->kind = c->rebalance;
    out->partitions = c->ids;
    out->partitions_n = c->ids_n;
    c->rebalance = KAFKA_NOTHING;
    c->assigned_once |= out->kind == KAFKA_ASSIGNED;
    if (out->kind == KAFKA_ASSIGNED)      /* what is lost is lost without a broker, too */
        away_end(c);
}

/* Joins the group: with the first poll, because a member that does not poll holds its partitions in vain. */
static bool subscribe(struct rd_client *c, struct kafka_event *out)
{
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_resp_err_t code;

    rd_kafka_topic_partition_list_add(topics, c->names.topic[TOPIC_PROMPTS], RD_KAFKA_PARTITION_UA);
    code = rd_kafka_subscribe(c->consumer, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    c->subscribed = code == RD_KAFKA_RESP_ERR_NO_ERROR;
    if (!c->subscribed)
        event_text(c, out, KAFKA_OVER, "subscribe", rd_kafka_err2str(code));
    return c->subscribed;
}

void rd_poll(struct kafka_client *client, int timeout_ms, struct kafka_event *out)
{
    struct rd_client *c = self(client);
    rd_kafka_message_t *m = c->next;

    memset(out, 0, sizeof *out);
    if (!c->subscribed && !subscribe(c, out))
        return;
    polls_for = c;
    c->next = NULL;
    if (c->last != NULL)
        rd_kafka_message_destroy(c->last);
    c->last = NULL;
    if (m == NULL)
        m = rd_kafka_consumer_poll(c->consumer, timeout_ms);
    if (c->rebalance != KAFKA_NOTHING) {
        c->next = m;
        rebalance_give(c, out);
        return;
    }
    if (m == NULL) {
        away_read(c, out);
        return;
    }
    c->last = m;
    if (m->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        trouble_read(c, m, out);
        return;
    }
    if (c->away_since_ns != 0)
        away_end(c);
    message_read(c, m, out);
}

/* ---- the group ---- */

/* Terminated texts; the list frees them. */
static void metadata_terminate(struct rd_client *c, rd_kafka_topic_partition_list_t *list)
{
    for (int i = 0; i < list->cnt; i++) {
        rd_kafka_topic_partition_t *p = &list->elems[i];
        char *text;

        if (p->metadata_size == 0)
            continue;
        text = rd_kafka_mem_malloc(c->consumer, p->metadata_size + 1);
        memcpy(text, p->metadata, p->metadata_size);
        text[p->metadata_size] = '\0';
        rd_kafka_mem_free(c->consumer, p->metadata);
        p->metadata = text;
    }
}

/* isolation.level=read_committed makes this RequireStable: no answer while a transaction holds a commit (facts 1.5). */
static rd_kafka_resp_err_t commits_ask(struct rd_client *c, rd_kafka_topic_partition_list_t *list, int timeout_ms)
{
    rd_kafka_resp_err_t code;

    pthread_rwlock_rdlock(&c->consumer_life);
    code = rd_kafka_committed(c->consumer, list, timeout_ms);
    for (int i = 0; i < list->cnt && code == RD_KAFKA_RESP_ERR_NO_ERROR; i++)
        code = list->elems[i].err;
    metadata_terminate(c, list);
    pthread_rwlock_unlock(&c->consumer_life);
    return code;
}

enum kafka_answer rd_committed(struct kafka_client *client, struct kafka_place *places, size_t n, int timeout_ms, struct error *err)
{
    struct rd_client *c = self(client);
    rd_kafka_topic_partition_list_t **kept = &c->answers[polls_for == c ? 0 : 1];
    rd_kafka_resp_err_t code;

    if (*kept != NULL)
        rd_kafka_topic_partition_list_destroy(*kept);
    *kept = rd_kafka_topic_partition_list_new((int)n);
    for (size_t i = 0; i < n; i++)
        rd_kafka_topic_partition_list_add(*kept, c->names.topic[TOPIC_PROMPTS], places[i].partition);
    code = commits_ask(c, *kept, timeout_ms);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        error_set(err, ST_RETRY, "%s: %s", rd_kafka_err2name(code), rd_kafka_err2str(code));
    if (code == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED || code == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
        return KAFKA_REFUSED;
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        return KAFKA_UNKNOWN;
    for (size_t i = 0; i < n; i++) {
        const rd_kafka_topic_partition_t *p = &(*kept)->elems[i];

        places[i].offset = p->offset >= 0 ? p->offset : -1;
        places[i].metadata = p->metadata_size > 0 ? p->metadata : NULL;
    }
    return KAFKA_OK;
}

void rd_assign(struct kafka_client *client, const struct kafka_place *places, size_t n)
{
    struct rd_client *c = self(client);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)n);

    for (size_t i = 0; i < n; i++)
        rd_kafka_topic_partition_list_add(list, c->names.topic[TOPIC_PROMPTS], places[i].partition)->offset =
            places[i].offset == KAFKA_EARLIEST ? RD_KAFKA_OFFSET_BEGINNING : places[i].offset;
    assignment_add(c, list);
    rd_kafka_topic_partition_list_destroy(list);
}

void rd_unassign(struct kafka_client *client, const int32_t *partitions, size_t n)
{
    struct rd_client *c = self(client);
    rd_kafka_topic_partition_list_t *list = list_of(c, partitions, n);

    assignment_remove(c, list);
    rd_kafka_topic_partition_list_destroy(list);
}

void rd_pause(struct kafka_client *client, int32_t partition, bool paused)
{
    struct rd_client *c = self(client);
    rd_kafka_topic_partition_list_t *list = list_of(c, &partition, 1);
    rd_kafka_resp_err_t code = paused ? rd_kafka_pause_partitions(c->consumer, list) : rd_kafka_resume_partitions(c->consumer, list);

    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        log_error("kafka.client", "call=pause error=%s", rd_kafka_err2name(code));
    rd_kafka_topic_partition_list_destroy(list);
}

/* "CGMDv2:", int32 generation in this machine's order, group\0, member\0 ... (facts 1.6). false: written otherwise. */
static bool group_parse(const unsigned char *text, size_t n, struct kafka_group *out)
{
    const size_t magic_n = strlen(GENERATION_MAGIC);
    const unsigned char *group = text + magic_n + sizeof out->generation, *member, *end;

    if (n < magic_n + sizeof out->generation + 2 || memcmp(text, GENERATION_MAGIC, magic_n) != 0)
        return false;
    memcpy(&out->generation, text + magic_n, sizeof out->generation);
    member = memchr(group, '\0', (size_t)(text + n - group));
    end = member != NULL ? memchr(member + 1, '\0', (size_t)(text + n - member - 1)) : NULL;
    if (end == NULL || (size_t)(end - member - 1) >= sizeof out->member)
        return false;
    memcpy(out->member, member + 1, (size_t)(end - member));
    return true;
}

static bool group_read(struct rd_client *c, struct kafka_group *out)
{
    rd_kafka_consumer_group_metadata_t *meta = rd_kafka_consumer_group_metadata(c->consumer);
    rd_kafka_error_t *e;
    void *text = NULL;
    size_t n = 0;
    bool read = false;

    memset(out, 0, sizeof *out);
    out->generation = -1;
    if (meta == NULL)
        return false;
    e = rd_kafka_consumer_group_metadata_write(meta, &text, &n);
    if (e == NULL)
        read = group_parse(text, n, out);
    else
        rd_kafka_error_destroy(e);
    if (!read)
        out->generation = -1;
    rd_kafka_mem_free(c->consumer, text);
    rd_kafka_consumer_group_metadata_destroy(meta);
    return read;
}

void rd_group(struct kafka_client *client, struct kafka_group *out)
{
    struct rd_client *c = self(client);

    pthread_rwlock_rdlock(&c->consumer_life);
    group_read(c, out);
    out->lost = rd_kafka_assignment_lost(c->consumer) != 0;
    pthread_rwlock_unlock(&c->consumer_life);
}

status rd_group_check(struct rd_client *c, struct error *err)
{
    struct kafka_group g;

    if (group_read(c, &g))
        return ST_OK;
    return error_set(err, ST_REJECT, "librdkafka %s writes group metadata in a form that is not known here, so commits cannot be "
                     "guarded: use 2.0.2 to 2.15", rd_kafka_version_str());
}

int64_t rd_end(struct kafka_client *client, int32_t partition)
{
    struct rd_client *c = self(client);
    int64_t low, high;
    rd_kafka_resp_err_t code;

    if (pthread_rwlock_tryrdlock(&c->consumer_life) != 0)      /* never waits */
        return -1;
    code = rd_kafka_get_watermark_offsets(c->consumer, c->names.topic[TOPIC_PROMPTS], partition, &low, &high);
    pthread_rwlock_unlock(&c->consumer_life);
    return code == RD_KAFKA_RESP_ERR_NO_ERROR && high >= 0 ? high : -1;
}

/* ---- the end ---- */

static void *close_run(void *ctx)
{
    struct rd_client *c = ctx;
    rd_kafka_resp_err_t code = rd_kafka_consumer_close(c->consumer);

    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        log_warn("kafka.leave", "error=%s", rd_kafka_err2name(code));
    return NULL;
}

/* 2.0.2 dies closing a cooperative consumer that never had an assignment (#4381): it is waited for a little. */
static bool assignment_await(struct rd_client *c, int64_t deadline_ns)
{
    int64_t until = clock_mono_ns() + LEAVE_WAIT_NS;
    struct kafka_event e;

    if (until > deadline_ns)
        until = deadline_ns;
    while (!c->assigned_once && clock_mono_ns() < until) {
        rd_poll(&c->client, 50, &e);
        if (e.kind == KAFKA_ASSIGNED)
            rd_assign(&c->client, NULL, 0);
        else if (e.kind == KAFKA_OVER)
            break;
    }
    return c->assigned_once;
}

void rd_leave(struct kafka_client *client, int64_t deadline_ns)
{
    struct rd_client *c = self(client);
    struct timespec until;
    pthread_t thread;
    int64_t wall;

    if (c->left || c->abandoned || !c->subscribed)
        return;
    if (!assignment_await(c, deadline_ns)) {
        log_warn("kafka.leave", "what=\"never had partitions; the group notices by itself after session_timeout_ms=%" PRId64 "\"",
                 c->cfg->session_timeout_ms);
        return;
    }
    atomic_store(&c->closing, true);
    if (pthread_create(&thread, NULL, close_run, c) != 0)
        return;
    wall = clock_wall_ns() + deadline_ns - clock_mono_ns();
    until = (struct timespec){ wall / NS_PER_S, wall % NS_PER_S };
    c->left = pthread_timedjoin_np(thread, NULL, &until) == 0;
    if (c->left)
        return;
    c->abandoned = true;      /* the handle stays behind for the thread that hangs in it; the process ends soon */
    pthread_detach(thread);
    log_warn("kafka.leave", "what=\"the group was not left in time; it notices after session_timeout_ms=%" PRId64 "\"",
             c->cfg->session_timeout_ms);
}

status rd_consumer_open(struct rd_client *c, struct error *err)
{
    char session[24], poll_max[24], heartbeat[24];
    const char *const defaults[] = {
        "heartbeat.interval.ms", heartbeat, "queued.min.messages", "10000", "queued.max.messages.kbytes", "16384",
        "fetch.wait.max.ms", "100", "socket.timeout.ms", "15000", "reconnect.backoff.max.ms", "2000", NULL,
    };
    const char *const musts[] = {
        "group.id", c->cfg->kafka_group, "enable.auto.commit", "false", "enable.auto.offset.store", "false",
        "auto.offset.reset", "error", "isolation.level", "read_committed", "enable.partition.eof", "false",
        "partition.assignment.strategy", c->eager ? "range" : "cooperative-sticky", "session.timeout.ms", session,
        "max.poll.interval.ms", poll_max, NULL,
    };
    rd_kafka_conf_t *conf;
    char text[256];
    status st;

    /* Three beats a session: one that is as short as a beat ends between two of them. */
    snprintf(heartbeat, sizeof heartbeat, "%" PRId64, c->cfg->session_timeout_ms < 9000 ? c->cfg->session_timeout_ms / 3 : 3000);
    snprintf(session, sizeof session, "%" PRId64, c->cfg->session_timeout_ms);
    snprintf(poll_max, sizeof poll_max, "%" PRId64,
             c->cfg->poll_max_ms > c->cfg->session_timeout_ms ? c->cfg->poll_max_ms : c->cfg->session_timeout_ms);
    st = kafka_conf_make(c->cfg, c->names.brokers, defaults, musts, &conf, err);
    if (st != ST_OK)
        return st;
    rd_kafka_conf_set_opaque(conf, c);
    rd_kafka_conf_set_rebalance_cb(conf, on_rebalance);
    rd_kafka_conf_set_error_cb(conf, on_error);
    c->consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    if (c->consumer == NULL) {
        rd_kafka_conf_destroy(conf);
        return error_set(err, ST_REJECT, "the Kafka consumer cannot be made: %s", text);
    }
    rd_kafka_poll_set_consumer(c->consumer);
    return ST_OK;
}

void rd_consumer_close(struct rd_client *c)
{
    for (int i = 0; i < 2; i++)
        if (c->answers[i] != NULL)
            rd_kafka_topic_partition_list_destroy(c->answers[i]);
    if (c->last != NULL)
        rd_kafka_message_destroy(c->last);
    if (c->next != NULL)
        rd_kafka_message_destroy(c->next);
    if (c->consumer != NULL && !c->abandoned)
        rd_kafka_destroy_flags(c->consumer, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    free(c->ids);
    free(c->headers);
}
