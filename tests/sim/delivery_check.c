#include "tests/sim/delivery_check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim_text.h"

void check_init(struct check *c, struct broker *b, bool huge_is_dead)
{
    memset(c, 0, sizeof *c);
    c->broker = b;
    c->huge_is_dead = huge_is_dead;
}

void check_fini(struct check *c)
{
    for (int p = 0; p < BROKER_PARTITIONS_MAX; p++) {
        for (size_t i = 0; i < c->inputs_n[p]; i++)
            free(c->input[p][i].value);
        free(c->input[p]);
        for (int t = 0; t < BROKER_TOPICS_N; t++)
            free(c->seen[t][p].counted);
    }
}

bool check_wrong(struct check *c, const char *fmt, ...)
{
    va_list ap;

    if (c->wrong[0] != '\0')
        return false;
    va_start(ap, fmt);
    vsnprintf(c->wrong, sizeof c->wrong, fmt, ap);
    va_end(ap);
    return false;
}

void check_input_excuse(struct check *c, struct check_input *in)
{
    if (in->answered || in->null || in->excused)
        return;
    in->excused = true;
    c->open_n--;
}

void check_input_add(struct check *c, int32_t partition, int64_t offset, const char *value, size_t value_n)
{
    struct check_input *in;

    c->input[partition] = mem_grow(c->input[partition], (c->inputs_n[partition] + 1) * sizeof *in);
    in = &c->input[partition][c->inputs_n[partition]++];
    *in = (struct check_input){ .offset = offset, .null = value == NULL, .value_n = value_n };
    if (value != NULL) {
        in->value = mem_take(value_n + 1);
        memcpy(in->value, value, value_n);
        c->open_n++;
        c->inputs_all_n++;
    }
    if (c->stopped[partition])
        check_input_excuse(c, in);
    c->order[partition] = -1;          /* a commit may have run ahead of it */
}

struct check_input *check_input_find(struct check *c, int32_t partition, int64_t offset)
{
    if (partition < 0 || partition >= BROKER_PARTITIONS_MAX)
        return NULL;
    for (size_t i = 0; i < c->inputs_n[partition]; i++)
        if (c->input[partition][i].offset == offset)
            return &c->input[partition][i];
    return NULL;
}

void check_partition_excuse(struct check *c, int32_t partition)
{
    c->stopped[partition] = true;
    for (size_t i = 0; i < c->inputs_n[partition]; i++)
        check_input_excuse(c, &c->input[partition][i]);
}

/* ---- results ---- */

static const struct header *header_find(const struct broker_record *r, const char *name)
{
    for (size_t i = 0; i < r->headers_n; i++)
        if (strcmp(r->headers[i].name, name) == 0)
            return &r->headers[i];
    return NULL;
}

/* "topic/partition/offset" */
static bool origin_read(const struct broker_record *r, int32_t *partition, int64_t *offset)
{
    const struct header *id = header_find(r, "ns-id");
    char text[128] = "";
    const char *slash;

    if (id == NULL || id->value == NULL || id->value_n >= sizeof text)
        return false;
    memcpy(text, id->value, id->value_n);
    slash = strchr(text, '/');
    return slash != NULL && sscanf(slash, "/%" SCNd32 "/%" SCNd64, partition, offset) == 2;
}

static bool text_right(const struct check_input *in, const struct broker_record *r)
{
    const char *answer = r->value != NULL ? strstr(r->value, "\"t\":\"") : NULL;

    return answer != NULL && strtoull(answer + 5, NULL, 16) == text_answer(in->value, in->value_n);
}

static bool result_look(struct check *c, enum kafka_topic topic, const struct broker_record *r)
{
    int32_t partition = -1;
    int64_t offset = -1;
    struct check_input *in;
    struct text_prompt prompt;
    bool dead;

    if (!origin_read(r, &partition, &offset))
        return check_wrong(c, "I2: a result does not say what it answers");
    in = check_input_find(c, partition, offset);
    if (in == NULL || in->null)
        return check_wrong(c, "I2: a result of %" PRId32 "/%" PRId64 ", which is no record", partition, offset);
    if (in->answered && !c->doubles)
        return check_wrong(c, "I3: %" PRId32 "/%" PRId64 " has two results", partition, offset);
    if (!in->answered)
        c->open_n -= !in->excused;
    in->answered = true;
    prompt = text_prompt_read(in->value, in->value_n);
    dead = prompt.kind == TEXT_BAD || (prompt.kind == TEXT_HUGE && c->huge_is_dead);
    if (dead != (topic == KAFKA_DEAD))
        return check_wrong(c, "I10: %" PRId32 "/%" PRId64 " (%c) went to the wrong topic", partition, offset, prompt.kind);
    if (prompt.kind == TEXT_GOOD && !text_right(in, r))
        return check_wrong(c, "I6: the text of %" PRId32 "/%" PRId64 " is wrong", partition, offset);
    return true;
}

static bool results_look(struct check *c, enum kafka_topic topic, int32_t partition)
{
    const struct broker_log *log = &c->broker->log[topic][partition];
    struct check_seen *s = &c->seen[topic][partition];
    bool settled = true;

    if (s->room < log->n) {
        s->counted = mem_grow(s->counted, log->room * sizeof s->counted[0]);
        memset(s->counted + s->room, 0, (log->room - s->room) * sizeof s->counted[0]);
        s->room = log->room;
    }
    for (size_t i = s->settled_i; i < log->n; i++) {
        const struct broker_record *r = &log->record[i];
        enum broker_decision d = broker_decision(c->broker, r);

        settled = settled && d != BROKER_UNDECIDED;
        if (settled)
            s->settled_i = i + 1;
        if (s->counted[i] || d == BROKER_UNDECIDED)
            continue;
        s->counted[i] = true;
        if (d == BROKER_DECIDED_COMMIT && !result_look(c, topic, r))
            return false;
    }
    return true;
}

/* ---- marks ---- */

static int digit64(char x)
{
    if (x >= 'A' && x <= 'Z')
        return x - 'A';
    if (x >= 'a' && x <= 'z')
        return x - 'a' + 26;
    if (x >= '0' && x <= '9')
        return x - '0' + 52;
    return x == '+' ? 62 : x == '/' ? 63 : -1;
}

/* Bit i of "W1:<hash>:<base64>", least significant bit of each byte first. -1: not readable. */
static int mark_bit(const char *metadata, int64_t i)
{
    const char *map = strncmp(metadata, "W1:", 3) == 0 ? strchr(metadata + 3, ':') : NULL;
    int64_t byte = i / 8, at = byte / 3 * 4;
    int v[4], bytes[3];

    if (map == NULL)
        return -1;
    map++;
    if (at + 4 > (int64_t)strlen(map))
        return 0;
    for (int k = 0; k < 4; k++) {
        v[k] = digit64(map[at + k]);
        if (v[k] < 0 && map[at + k] != '=')
            return -1;
        if (v[k] < 0)
            v[k] = 0;
    }
    bytes[0] = v[0] << 2 | v[1] >> 4;
    bytes[1] = (v[1] & 15) << 4 | v[2] >> 2;
    bytes[2] = (v[2] & 3) << 6 | v[3];
    return bytes[byte % 3] >> (i % 8) & 1;
}

static bool marks_look(struct check *c, int32_t partition)
{
    const struct broker_offset *at = &c->broker->committed[partition];

    if (at->metadata == NULL || at->order == c->order[partition])
        return true;
    c->order[partition] = at->order;
    for (size_t i = 0; i < c->inputs_n[partition]; i++) {
        const struct check_input *in = &c->input[partition][i];
        int bit;

        if (in->null || in->answered || in->excused)
            continue;
        if (in->offset < at->offset)
            return check_wrong(c, "I4: LWM %" PRId64 " is beyond %" PRId32 "/%" PRId64 ", which has no result", at->offset,
                               partition, in->offset);
        bit = c->stopped[partition] && strncmp(at->metadata, "W1:", 3) != 0 ? 0 : mark_bit(at->metadata, in->offset - at->offset);
        if (bit < 0)
            return check_wrong(c, "the metadata of %" PRId32 " cannot be read", partition);
        if (bit > 0)
            return check_wrong(c, "I5: the bit of %" PRId32 "/%" PRId64 " is set, but it has no result", partition, in->offset);
    }
    return true;
}

bool check_look(struct check *c)
{
    if (c->wrong[0] != '\0')
        return false;
    if (c->looked_n == c->broker->changes_n)
        return true;
    c->looked_n = c->broker->changes_n;
    for (int32_t p = 0; p < c->broker->partitions_n; p++)
        if (!results_look(c, KAFKA_RESULTS, p) || !results_look(c, KAFKA_DEAD, p))
            return false;
    for (int32_t p = 0; p < c->broker->partitions_n; p++)
        if (!marks_look(c, p))
            return false;
    return true;
}

bool check_all_answered(const struct check *c)
{
    return c->open_n == 0;
}

static const struct check_input *unmarked_find(const struct check *c, int32_t partition)
{
    const struct broker_offset *at = &c->broker->committed[partition];

    for (size_t i = 0; i < c->inputs_n[partition] && !c->stopped[partition]; i++) {
        const struct check_input *in = &c->input[partition][i];

        if (in->answered && !(c->doubles && in->compacted) &&
            (at->metadata == NULL || (in->offset >= at->offset && mark_bit(at->metadata, in->offset - at->offset) != 1)))
            return in;
    }
    return NULL;
}

bool check_all_marked(const struct check *c)
{
    for (int32_t p = 0; p < c->broker->partitions_n; p++)
        if (unmarked_find(c, p) != NULL)
            return false;
    return true;
}

bool check_end(struct check *c)
{
    if (!check_look(c))
        return false;
    for (int32_t p = 0; p < c->broker->partitions_n; p++) {
        const struct check_input *unmarked = unmarked_find(c, p);

        for (size_t i = 0; i < c->inputs_n[p]; i++)
            if (!c->input[p][i].null && !c->input[p][i].excused && !c->input[p][i].answered)
                return check_wrong(c, "I1: %" PRId32 "/%" PRId64 " has no result", p, c->input[p][i].offset);
        if (unmarked != NULL)
            return check_wrong(c, "I1: the result of %" PRId32 "/%" PRId64 " has no mark", p, unmarked->offset);
    }
    return true;
}
