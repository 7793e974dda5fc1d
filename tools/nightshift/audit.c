#include "tools/nightshift/audit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* A byte an offset of the prompts. Counts stop at 3. */
enum {
    FLAG_INPUT = 1, FLAG_TOMBSTONE = 2, FLAG_OUTPUT_ONE = 4, FLAG_OUTPUTS = 12, FLAG_DEAD_ONE = 16, FLAG_DEADS = 48,
    FLAG_MARKED = 64
};

const char *audit_fault_name(enum audit_fault f)
{
    static const char *const names[AUDIT_FAULTS_N] = { "missing", "open", "doubled", "orphaned", "lwm_too_high", "mark_without_result",
                                                       "metadata_unreadable", "uploaded_twice", "retried_twice", "unsent" };
    return names[f];
}

static void fault_add(struct audit *a, enum audit_fault fault, int32_t partition, int64_t offset)
{
    a->faults_n[fault]++;
    if (a->rows_n == AUDIT_ROWS_MAX)
        return;
    if (a->rows_n == a->rows_room) {
        a->rows_room = a->rows_room * 2 + 64;
        a->row = mem_grow(a->row, a->rows_room * sizeof *a->row);
    }
    a->row[a->rows_n++] = (struct audit_row){ fault, { partition, offset } };
}

void audit_fini(struct audit *a)
{
    for (int32_t p = 0; a->part != NULL && p < a->parts_n; p++)
        free(a->part[p].flags);
    free(a->part);
    free(a->row);
    place_map_close(a->late);
    place_map_close(a->lines);
    place_map_close(a->retries);
}

/* ---- commits: "W1:<hash>:<base64>", read here on our own, not with the code that wrote it ---- */

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static void mark_take(struct audit *a, int32_t p, int64_t offset)
{
    struct audit_part *part = &a->part[p];

    part->marks_n++;
    if (offset >= part->range.high)
        fault_add(a, AUDIT_MARK, p, offset);
    else if (offset >= part->range.low)
        part->flags[offset - part->range.low] |= FLAG_MARKED;
}

/* Six bits a digit, the first bit of a byte is its lowest. */
static bool marks_read(struct audit *a, int32_t p, const char *text)
{
    uint32_t bits = 0;
    int bits_n = 0;
    int64_t byte_i = 0;

    for (; *text != '\0' && *text != '='; text++) {
        int v = base64_value(*text);

        if (v < 0)
            return false;
        bits = bits << 6 | (uint32_t)v;
        bits_n += 6;
        if (bits_n < 8)
            continue;
        bits_n -= 8;
        for (int i = 0; i < 8; i++) {
            if (bits >> bits_n >> i & 1)
                mark_take(a, p, a->part[p].committed + byte_i * 8 + i);
        }
        byte_i++;
        bits &= (1u << bits_n) - 1;
    }
    return text[strspn(text, "=")] == '\0';
}

static void commit_take(struct audit *a, int32_t p, const struct topic_commit *c)
{
    const char *text = c->metadata;
    size_t hash_n;

    a->part[p].committed = c->offset;
    if (c->offset < 0)
        return;
    if (c->offset > a->part[p].range.high)
        fault_add(a, AUDIT_LWM, p, c->offset);
    if (text == NULL || text[0] == '\0')
        return;
    hash_n = strncmp(text, "W1:", 3) == 0 ? strcspn(text + 3, ":") : 0;
    if ((hash_n != 8 && !(hash_n == 1 && text[3] == '-')) || text[3 + hash_n] != ':' || !marks_read(a, p, text + 3 + hash_n + 1))
        fault_add(a, AUDIT_METADATA, p, c->offset);
}

static status commits_read(struct audit *a, struct error *err)
{
    struct topic_commit *commits = NULL;
    struct topic_range *ranges = NULL;
    int32_t commits_n = 0;
    status st;

    TRY(topic_read_commits(a->topics, a->group, &commits, &commits_n, err));
    TRY(topic_read_ranges(a->topics, TOPIC_PROMPTS, &ranges, &a->parts_n, err));
    a->part = mem_take_zero((size_t)a->parts_n, sizeof *a->part);
    for (int32_t p = 0; p < a->parts_n; p++) {
        a->part[p].range = ranges[p];
        a->part[p].committed = -1;
        a->part[p].flags = mem_take_zero((size_t)(ranges[p].high - ranges[p].low) + 1, 1);
        if (p < commits_n)
            commit_take(a, p, &commits[p]);
    }
out:
    topic_commits_free(commits, commits_n);
    free(ranges);
    return st;
}

/* ---- records ---- */

static bool is_ours(const struct audit *a, const struct record *r)
{
    return a->job == NULL || topic_header_is(r, HEADER_JOB, a->job);
}

static void flag_count(uint8_t *flags, int one, int all)
{
    if ((*flags & all) != all)
        *flags = (uint8_t)(*flags + one);
}

static void result_take(struct audit *a, const struct record *r, bool dead)
{
    struct audit_part *part;
    struct place place;

    if (!is_ours(a, r))
        return;
    if (!place_read(r, HEADER_ID, topics_name(a->topics, TOPIC_PROMPTS), &place) || place.partition >= a->parts_n) {
        a->unnamed_n++;
        fault_add(a, AUDIT_ORPHANED, -1, r->offset);
        return;
    }
    a->outputs_n += !dead;
    a->dead_n += dead;
    part = &a->part[place.partition];
    if (place.offset < part->range.low)
        a->beyond_n++;
    else if (place.offset < part->range.high)
        flag_count(&part->flags[place.offset - part->range.low], dead ? FLAG_DEAD_ONE : FLAG_OUTPUT_ONE, dead ? FLAG_DEADS : FLAG_OUTPUTS);
    else if (!place_map_add(a->late, place, 0))
        fault_add(a, AUDIT_DOUBLED, place.partition, place.offset);
}

static void job_line_take(struct audit *a, const struct record *r)
{
    const struct header *job = topic_header(r, HEADER_JOB);
    int64_t line = job_line_of(r);
    uint64_t h;
    struct place dead;

    if (place_read(r, HEADER_RETRY, topics_name(a->topics, TOPIC_PROMPTS), &dead)) {
        if (!place_map_add(a->retries, dead, 0))
            fault_add(a, AUDIT_RETRIED_TWICE, r->source, r->offset);
        return;
    }
    if (job == NULL || job->value == NULL || line < 0)
        return;
    if (a->job != NULL && topic_header_int(r, HEADER_LINES) >= 0)
        a->job_lines_n = topic_header_int(r, HEADER_LINES);
    h = hash64(job->value, job->value_n, 0);       /* a job and a line as a place: 64 bits of hash, lines below 2^30 */
    if (!place_map_add(a->lines, (struct place){ (int32_t)(uint32_t)h, (int64_t)(h >> 32) << 31 ^ line }, 0))
        fault_add(a, AUDIT_UPLOADED_TWICE, r->source, r->offset);
}

static void prompt_take(struct audit *a, const struct record *r)
{
    struct audit_part *part;

    if (r->source >= a->parts_n || !is_ours(a, r))
        return;
    part = &a->part[r->source];
    a->inputs_n += r->value != NULL && r->offset < part->range.high;
    a->tombstones_n += r->value == NULL && r->offset < part->range.high;
    if (r->value != NULL)
        job_line_take(a, r);
    if (r->offset >= part->range.high) {
        /* Came while we read: what answers it is no orphan. */
        if (r->value != NULL && place_map_get(a->late, (struct place){ r->source, r->offset }) >= 0)
            place_map_add(a->late, (struct place){ -1 - r->source, r->offset }, 0);
        return;
    }
    if (r->offset >= part->range.low)
        part->flags[r->offset - part->range.low] |= r->value != NULL ? FLAG_INPUT : FLAG_TOMBSTONE;
}

static status topic_read(struct audit *a, enum topic_kind kind, struct error *err)
{
    struct topic_scan *s = NULL;
    const struct record *r;
    struct live live;
    int64_t n = 0;
    status st;

    live_init(&live);
    TRY(topic_scan_open(a->topics, kind, NULL, false, &s, err));
    while (!topic_scan_ended(s)) {
        st = topic_scan_next(s, 200, &r, err);
        if (st == ST_OK) {
            n++;
            if (kind == TOPIC_PROMPTS)
                prompt_take(a, r);
            else
                result_take(a, r, kind == TOPIC_DEAD);
        }
        if (!a->quiet && live_due(&live))
            live_show(&live, "%s: %" PRId64 " records", topics_name(a->topics, kind), n);
        if (st != ST_AGAIN)
            TRY(st);
        st = ST_OK;
    }
out:
    live_end(&live);
    topic_scan_close(s);
    return st;
}

/* ---- the verdict ---- */

static void offset_judge(struct audit *a, int32_t p, int64_t offset, uint8_t flags)
{
    int results_n = (flags & FLAG_OUTPUTS) / FLAG_OUTPUT_ONE + (flags & FLAG_DEADS) / FLAG_DEAD_ONE;
    bool below = offset < a->part[p].committed, marked = flags & FLAG_MARKED;

    if (!(flags & FLAG_INPUT)) {
        if (results_n > 0)
            fault_add(a, AUDIT_ORPHANED, p, offset);
        return;
    }
    if (results_n > 1)
        fault_add(a, AUDIT_DOUBLED, p, offset);
    if (results_n > 0)
        return;
    fault_add(a, below || marked ? AUDIT_MISSING : AUDIT_OPEN, p, offset);
    if (below)
        fault_add(a, AUDIT_LWM, p, offset);
    if (marked)
        fault_add(a, AUDIT_MARK, p, offset);
}

static void late_judge(struct audit *a, int32_t p, int64_t offset)
{
    if (place_map_get(a->late, (struct place){ -1 - p, offset }) < 0)
        fault_add(a, AUDIT_ORPHANED, p, offset);
}

static status judge(struct audit *a, struct error *err)
{
    struct place place;

    for (int32_t p = 0; p < a->parts_n; p++) {
        const struct audit_part *part = &a->part[p];

        for (int64_t i = 0; i < part->range.high - part->range.low; i++) {
            if (part->flags[i] & ~FLAG_MARKED)
                offset_judge(a, p, part->range.low + i, part->flags[i]);
        }
    }
    for (size_t i = 0; place_map_next(a->late, &i, &place);) {
        if (place.partition >= 0)
            late_judge(a, place.partition, place.offset);
    }
    if (a->job != NULL && a->job_lines_n >= 0) {
        int64_t unsent_n = a->job_lines_n - (int64_t)place_map_count(a->lines);

        a->faults_n[AUDIT_UNSENT] = unsent_n > 0 ? unsent_n : 0;
    }
    if (a->job != NULL && a->inputs_n == 0)
        return error_set(err, ST_REJECT, "the topic \"%s\" holds no job \"%s\"", topics_name(a->topics, TOPIC_PROMPTS), a->job);
    return ST_OK;
}

status audit_run(struct audit *a, struct error *err)
{
    status st;

    a->job_lines_n = -1;
    a->late = place_map_open();
    a->lines = place_map_open();
    a->retries = place_map_open();
    TRY(commits_read(a, err));
    TRY(topic_read(a, TOPIC_RESULTS, err));
    TRY(topic_read(a, TOPIC_DEAD, err));
    TRY(topic_read(a, TOPIC_PROMPTS, err));
    TRY(judge(a, err));
out:
    return st;
}
