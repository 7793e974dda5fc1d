#include "tests/support/kafka_script.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static struct script *self(struct kafka_client *c)
{
    return (struct script *)(void *)c;
}

static enum kafka_answer answer_next(struct script *s, const char *step, struct error *err)
{
    buf_add_format(&s->calls, "%s ", step);
    for (int i = 0; i < s->answers_n; i++) {
        enum kafka_answer answer = s->answers[i].answer;

        if (s->answers[i].step == NULL || strcmp(s->answers[i].step, step) != 0)
            continue;
        s->answers[i].step = NULL;
        error_set(err, ST_RETRY, "%s as scripted", step);
        return answer;
    }
    return KAFKA_OK;
}

static void s_poll(struct kafka_client *c, int timeout_ms, struct kafka_event *out)
{
    struct script *s = self(c);

    (void)timeout_ms;
    *out = s->event;
    memset(&s->event, 0, sizeof s->event);
}

static enum kafka_answer s_committed(struct kafka_client *c, struct kafka_place *places, size_t n, int timeout_ms, struct error *err)
{
    struct script *s = self(c);
    enum kafka_answer answer = answer_next(s, "COMMITTED", err);

    (void)timeout_ms;
    for (size_t i = 0; i < n && answer == KAFKA_OK; i++) {
        places[i].offset = s->committed[places[i].partition].offset;
        places[i].metadata = places[i].offset >= 0 ? s->committed[places[i].partition].metadata : NULL;
    }
    return answer;
}

static void s_assign(struct kafka_client *c, const struct kafka_place *places, size_t n)
{
    buf_add_text(&self(c)->calls, "ASSIGN ");
    for (size_t i = 0; i < n; i++)
        self(c)->assigned[places[i].partition] = places[i].offset;
}

static void s_unassign(struct kafka_client *c, const int32_t *partitions, size_t n)
{
    buf_add_text(&self(c)->calls, "UNASSIGN ");
    for (size_t i = 0; i < n; i++)
        self(c)->assigned[partitions[i]] = INT64_MIN;
}

static void s_pause(struct kafka_client *c, int32_t partition, bool paused)
{
    struct script *s = self(c);

    ASSERT(s->assigned[partition] != INT64_MIN && s->paused[partition] != paused);
    s->paused[partition] = paused;
    buf_add_text(&s->calls, paused ? "PAUSE " : "RESUME ");
}

static void s_group(struct kafka_client *c, struct kafka_group *out)
{
    *out = self(c)->group;
}

static int64_t s_end(struct kafka_client *c, int32_t partition)
{
    return self(c)->next_offset[partition];
}

static enum kafka_answer s_init(struct kafka_client *c, struct error *err) { return answer_next(self(c), "init", err); }
static enum kafka_answer s_begin(struct kafka_client *c, struct error *err) { return answer_next(self(c), "begin", err); }
static enum kafka_answer s_abort(struct kafka_client *c, struct error *err) { return answer_next(self(c), "abort", err); }
static enum kafka_answer s_remake(struct kafka_client *c, struct error *err) { return answer_next(self(c), "remake", err); }

static void produced_add(struct script *s, enum kafka_topic topic, const void *key, size_t key_n, const void *value, size_t value_n,
                         const struct header *headers, size_t headers_n)
{
    size_t bytes = key_n + value_n + 2;
    struct produced *p;
    char *at;

    for (size_t i = 0; i < headers_n; i++)
        bytes += strlen(headers[i].name) + headers[i].value_n + 2;
    s->produced = mem_grow(s->produced, (s->produced_n + 1) * sizeof s->produced[0]);
    p = &s->produced[s->produced_n++];
    *p = (struct produced){ .topic = topic, .key_n = key_n, .value_n = value_n, .bytes = mem_take_zero(1, bytes) };
    at = p->bytes;
    p->key = key != NULL ? memcpy(at, key, key_n) : NULL;
    at += key_n + 1;
    p->value = memcpy(at, value, value_n);
    at += value_n + 1;
    ASSERT(headers_n <= sizeof p->headers / sizeof p->headers[0]);
    for (size_t i = 0; i < headers_n; i++) {
        p->headers[i].name = strcpy(at, headers[i].name);
        at += strlen(at) + 1;
        p->headers[i].value_n = headers[i].value_n;
        p->headers[i].value = headers[i].value != NULL ? memcpy(at, headers[i].value, headers[i].value_n) : NULL;
        at += headers[i].value_n + 1;
    }
    p->headers_n = headers_n;
}

static enum kafka_answer s_produce(struct kafka_client *c, enum kafka_topic topic, const void *key, size_t key_n, const void *value,
                                   size_t value_n, const struct header *headers, size_t headers_n, struct error *err)
{
    enum kafka_answer answer = answer_next(self(c), "produce", err);

    if (answer == KAFKA_OK)
        produced_add(self(c), topic, key, key_n, value, value_n, headers, headers_n);
    return answer;
}

static enum kafka_answer s_offsets(struct kafka_client *c, const struct kafka_place *places, size_t n, const struct kafka_group *as,
                                   struct error *err)
{
    struct script *s = self(c);
    enum kafka_answer answer = answer_next(s, "offsets", err);

    (void)as;
    for (size_t i = 0; i < n; i++) {
        s->sent[places[i].partition].offset = places[i].offset;
        snprintf(s->sent[places[i].partition].metadata, sizeof s->sent[0].metadata, "%s", places[i].metadata);
    }
    return answer;
}

static enum kafka_answer s_commit(struct kafka_client *c, struct error *err)
{
    struct script *s = self(c);
    enum kafka_answer answer = answer_next(s, "commit", err);

    if (answer == KAFKA_OK || s->commit_applies)
        for (int i = 0; i < 16; i++)
            if (s->sent[i].offset >= 0)
                s->committed[i] = s->sent[i];
    return answer;
}

static int64_t s_value_max(struct kafka_client *c, enum kafka_topic topic)
{
    return topic == KAFKA_DEAD ? self(c)->dead_max : self(c)->results_max;
}

static size_t s_metadata_max(struct kafka_client *c)
{
    return self(c)->metadata_max;
}

static const struct kafka_client_ops script_ops = {
    .poll = s_poll, .committed = s_committed, .assign = s_assign, .unassign = s_unassign, .pause = s_pause, .group = s_group,
    .end = s_end, .init = s_init, .begin = s_begin, .produce = s_produce, .offsets = s_offsets, .commit = s_commit, .abort = s_abort,
    .remake = s_remake, .value_max = s_value_max, .metadata_max = s_metadata_max,
};

static struct script *clock_of;            /* one script at a time owns the clock */

static int64_t clock_read(void *ctx)
{
    (void)ctx;
    return clock_of->now_ns;
}

void script_init(struct script *s)
{
    static const struct clock clock = { clock_read, clock_read, NULL };

    memset(s, 0, sizeof *s);
    s->client.ops = &script_ops;
    config_defaults(&s->cfg);
    s->now_ns = 1000 * NS_PER_S;
    s->group.generation = 7;
    strcpy(s->group.member, "member-1");
    s->results_max = s->dead_max = 1000000;
    for (int i = 0; i < 16; i++) {
        s->committed[i].offset = s->sent[i].offset = -1;
        s->assigned[i] = INT64_MIN;
    }
    clock_of = s;
    clock_use(&clock);
}

static void on_gained(void *ctx, int32_t source, uint32_t lease)
{
    (void)lease;
    ((struct script *)ctx)->gained_n++;
    if (((struct script *)ctx)->pause_gained)
        kafka_core_pause(((struct script *)ctx)->core, source, true);
}

static void on_lost(void *ctx, int32_t source, uint32_t lease, bool already)
{
    (void)source, (void)lease;
    ((struct script *)ctx)->lost_n++;
    ((struct script *)ctx)->lost_already = already;
}

static void on_lost_wait(void *ctx, int64_t deadline_ns)
{
    struct script *s = ctx;

    ASSERT(deadline_ns == s->now_ns + NS_PER_S);
    s->lost_waits_n++;
    if (s->during_lost != NULL)
        s->during_lost();
}

void script_open(struct script *s)
{
    const struct queue_events events = { s, on_gained, on_lost, on_lost_wait };
    const struct kafka_core_options o = { &s->client, &s->cfg, "t.prompts", &events };
    struct error err;

    if (kafka_core_open(&o, &s->core, &err) != ST_OK)
        ASSERT(!"the core opens");
}

void script_fini(struct script *s)
{
    kafka_core_close(s->core);
    for (size_t i = 0; i < s->produced_n; i++)
        free(s->produced[i].bytes);
    free(s->produced);
    buf_fini(&s->calls);
    clock_use(NULL);
}

void script_answer(struct script *s, const char *step, enum kafka_answer answer)
{
    ASSERT(s->answers_n < SCRIPT_ANSWERS_MAX);
    s->answers[s->answers_n].step = step;
    s->answers[s->answers_n++].answer = answer;
}

struct record *script_poll(struct script *s)
{
    struct record *r = NULL;
    struct error err;
    bool busy;

    if (kafka_core_poll(s->core, 0, &r, &busy, &err) == ST_FATAL)
        ASSERT(!"the consumer is over");
    return r;
}

void script_event(struct script *s, enum kafka_event_kind kind, int32_t id)
{
    s->ids[0] = id;
    s->event = (struct kafka_event){ .kind = kind, .partitions = s->ids, .partitions_n = 1 };
    ASSERT(script_poll(s) == NULL);
}

void script_assign(struct script *s, int32_t from, int32_t to)
{
    for (int32_t i = from; i < to; i++)
        s->ids[i - from] = i;
    s->event = (struct kafka_event){ .kind = KAFKA_ASSIGNED, .partitions = s->ids, .partitions_n = (size_t)(to - from) };
    ASSERT(script_poll(s) == NULL && script_poll(s) == NULL);
}

struct record *script_message(struct script *s, int32_t id, int64_t offset, const char *value)
{
    s->event = (struct kafka_event){ .kind = KAFKA_MESSAGE };
    s->event.message = (struct kafka_message){ .partition = id, .offset = offset, .timestamp_ms = 1000 + offset, .value = value,
                                               .value_n = value != NULL ? strlen(value) : 0 };
    if (s->next_offset[id] <= offset)
        s->next_offset[id] = offset + 1;
    return script_poll(s);
}

void script_result(const struct record *r, struct result *out)
{
    static const struct header worker[] = { { "ns-finish", "stop", 4 } };
    static char line[] = "{\"id\":\"x\",\"text\":\"an answer\"}";

    *out = (struct result){ .record = r, .kind = RESULT_OUTPUT, .value = line, .value_n = sizeof line - 1, .headers = worker,
                            .headers_n = 1 };
}

bool script_step(struct script *s)
{
    int64_t not_before;
    bool more = kafka_commit_step(s->core, &not_before);

    if (not_before > s->now_ns)
        s->now_ns = not_before;
    return more;
}

status script_commit(struct script *s, struct record *const *records, size_t n, bool *durable)
{
    struct result *results = mem_take_zero(n + 1, sizeof results[0]);
    struct error err;

    for (size_t i = 0; i < n; i++)
        script_result(records[i], &results[i]);
    if (n > 0)
        memset(durable, 0, n * sizeof durable[0]);
    kafka_commit_begin(s->core, results, n, durable);
    while (script_step(s))
        ;
    free(results);
    return kafka_commit_end(s->core, &err);
}

const char *script_calls(struct script *s)
{
    static char text[4096];

    snprintf(text, sizeof text, "%s", buf_text(&s->calls));
    buf_reset(&s->calls);
    return text;
}

const struct header *produced_header(const struct produced *p, const char *name)
{
    const struct header *found = NULL;

    for (size_t i = 0; i < p->headers_n; i++)
        if (strcmp(p->headers[i].name, name) == 0)
            found = &p->headers[i];
    return found;
}
