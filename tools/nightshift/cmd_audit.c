/* tools/nightshift/cmd_audit.c - proves from the topics alone that every input is answered once. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/nightshift/audit.h"
#include "tools/nightshift/cli.h"

enum { SHOWN_MAX = 50 };

struct command_audit {
    struct cli cli;
    struct audit audit;
    const char *queue;
    bool open_allowed;
    /* of each row's prompt, once looked up; NULL: not found */
    struct detail { char *job, *custom_id; int64_t line; } *detail;
    struct place_map *rows;
};

static void options_read(struct command_audit *c, int argc, char **argv)
{
    enum { GROUP = 1, JOB, OPEN, QUIET };
    static const struct option options[] = {
        CLI_OPTIONS, { "queue", required_argument, NULL, 'q' }, { "group", required_argument, NULL, GROUP },
        { "job", required_argument, NULL, JOB }, { "open-ok", no_argument, NULL, OPEN }, { "quiet", no_argument, NULL, QUIET }, { 0 }
    };
    int option;

    while ((option = getopt_long(argc, argv, "q:", options, NULL)) != -1) {
        switch (option) {
        case 'q': c->queue = optarg; break;
        case GROUP: c->audit.group = optarg; break;
        case JOB: c->audit.job = optarg; break;
        case OPEN: c->open_allowed = true; break;
        case QUIET: c->audit.quiet = true; break;
        default: cli_option(&c->cli, option);
        }
    }
    cli_start(&c->cli);
    if (!c->cli.done && (optind != argc || c->queue == NULL)) {
        c->cli.done = true;
        c->cli.exit_code = cli_fail(&c->cli, EXIT_CODE_USAGE, "--queue URL is needed and nothing else; see `nightshift audit --help`");
    }
    if (c->audit.group == NULL)
        c->audit.group = c->cli.cfg.kafka_group;
}

/* ---- whose prompts they are ---- */

static bool has_prompt(const struct audit_row *row)
{
    return row->place.partition >= 0 && row->fault != AUDIT_METADATA;
}

static char *custom_id_of(const struct record *r)
{
    json_t *root = r->value != NULL ? json_loadb(r->value, r->value_n, JSON_ALLOW_NUL, NULL) : NULL;
    const json_t *id = json_object_get(root, "custom_id");
    char *dumped = id != NULL ? json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

    json_decref(root);
    return dumped;
}

static void detail_take(struct command_audit *c, const struct record *r)
{
    int64_t row = place_map_get(c->rows, (struct place){ r->source, r->offset });
    const struct header *job;
    struct detail *d;

    if (row < 0)
        return;
    d = &c->detail[row];
    job = topic_header(r, HEADER_JOB);
    if (job != NULL && job->value != NULL) {
        d->job = mem_take(job->value_n + 1);
        memcpy(d->job, job->value, job->value_n);
        d->job[job->value_n] = '\0';
    }
    d->line = job_line_of(r);
    d->custom_id = custom_id_of(r);
}

/* Reads the prompts once more, for the words about what is wrong. */
static status details_read(struct command_audit *c, struct error *err)
{
    struct audit *a = &c->audit;
    struct topic_scan *s = NULL;
    const struct record *r;
    status st;

    c->detail = mem_take_zero(a->rows_n, sizeof *c->detail);
    c->rows = place_map_open();
    for (size_t i = 0; i < a->rows_n; i++) {
        c->detail[i].line = -1;
        if (has_prompt(&a->row[i]))
            place_map_add(c->rows, a->row[i].place, (int64_t)i);
    }
    TRY(topic_scan_open(a->topics, TOPIC_PROMPTS, NULL, false, &s, err));
    while (!topic_scan_ended(s)) {
        st = topic_scan_next(s, 200, &r, err);
        if (st == ST_OK)
            detail_take(c, r);
        if (st != ST_AGAIN)
            TRY(st);
        st = ST_OK;
    }
out:
    topic_scan_close(s);
    return st;
}

static void details_free(struct command_audit *c)
{
    for (size_t i = 0; c->detail != NULL && i < c->audit.rows_n; i++) {
        free(c->detail[i].job);
        free(c->detail[i].custom_id);
    }
    free(c->detail);
    place_map_close(c->rows);
}

/* ---- printing ---- */

/* A prompt that is wrong in two ways has its words with the first. */
static const struct detail *detail_of(const struct command_audit *c, size_t i)
{
    int64_t first = has_prompt(&c->audit.row[i]) ? place_map_get(c->rows, c->audit.row[i].place) : -1;

    return &c->detail[first >= 0 ? (size_t)first : i];
}

static void id_print(const struct command_audit *c, const struct audit_row *row, struct buf *b)
{
    const struct topics *t = c->audit.topics;

    if (row->place.partition < 0)
        buf_add_format(b, "a record at offset %" PRId64 " of %s or %s", row->place.offset, topics_name(t, TOPIC_RESULTS),
                       topics_name(t, TOPIC_DEAD));
    else
        buf_add_format(b, "%s/%d/%" PRId64, topics_name(t, TOPIC_PROMPTS), (int)row->place.partition, row->place.offset);
}

static void row_print(const struct command_audit *c, size_t i, struct buf *b)
{
    const struct audit_row *row = &c->audit.row[i];
    const struct detail *d = detail_of(c, i);
    struct buf id = BUF_EMPTY;

    id_print(c, row, &id);
    if (c->cli.json) {
        buf_add_format(b, "{\"fault\": \"%s\", \"id\": ", audit_fault_name(row->fault));
        buf_add_json(b, buf_text(&id));
        buf_add_text(b, ", \"job\": ");
        buf_add_json(b, d->job);
        buf_add_format(b, d->line >= 0 ? ", \"line\": %" PRId64 : ", \"line\": null", d->line);
        buf_add_format(b, ", \"custom_id\": %s}\n", d->custom_id != NULL ? d->custom_id : "null");
    } else {
        buf_add_format(b, "%-19s  %s", audit_fault_name(row->fault), buf_text(&id));
        if (d->line >= 0)
            buf_add_format(b, "  line %" PRId64 " of job %s", d->line, d->job != NULL ? d->job : "?");
        if (d->custom_id != NULL)
            buf_add_format(b, "  %s", d->custom_id);
        buf_add_text(b, "\n");
    }
    buf_fini(&id);
}

static bool counts_as_fault(const struct command_audit *c, enum audit_fault f)
{
    return !(c->open_allowed && (f == AUDIT_OPEN || f == AUDIT_UNSENT));
}

static void rows_print(const struct command_audit *c, struct buf *b)
{
    int64_t shown_n = 0, hidden_n = 0;

    for (size_t i = 0; i < c->audit.rows_n; i++) {
        if (!counts_as_fault(c, c->audit.row[i].fault))
            continue;
        if (!c->cli.json && shown_n == SHOWN_MAX) {
            hidden_n++;
            continue;
        }
        row_print(c, i, b);
        shown_n++;
    }
    if (hidden_n > 0)
        buf_add_format(b, "... and %" PRId64 " more (--json prints all)\n", hidden_n);
}

static void summary_json(const struct command_audit *c, bool clean, struct buf *b)
{
    const struct audit *a = &c->audit;

    buf_add_format(b, "{\"clean\": %s, \"inputs\": %" PRId64 ", \"tombstones\": %" PRId64 ", \"results\": %" PRId64 ", \"dead\": %" PRId64,
                   clean ? "true" : "false", a->inputs_n, a->tombstones_n, a->outputs_n, a->dead_n);
    for (int f = 0; f < AUDIT_FAULTS_N; f++)
        buf_add_format(b, ", \"%s\": %" PRId64, audit_fault_name((enum audit_fault)f), a->faults_n[f]);
    buf_add_format(b, ", \"beyond_retention\": %" PRId64 ", \"partitions\": [", a->beyond_n);
    for (int32_t p = 0; p < a->parts_n; p++)
        buf_add_format(b, "%s{\"low\": %" PRId64 ", \"high\": %" PRId64 ", \"committed\": %" PRId64 ", \"marks\": %" PRId64 "}", p > 0 ? ", " : "",
                       a->part[p].range.low, a->part[p].range.high, a->part[p].committed, a->part[p].marks_n);
    buf_add_text(b, "]}\n");
}

static void summary_text(const struct command_audit *c, bool clean, struct buf *b)
{
    const struct audit *a = &c->audit;

    buf_add_format(b, "%" PRId64 " inputs, %" PRId64 " results, %" PRId64 " dead letters", a->inputs_n, a->outputs_n, a->dead_n);
    for (int f = 0; f < AUDIT_FAULTS_N; f++) {
        if (a->faults_n[f] > 0)
            buf_add_format(b, ", %" PRId64 " %s", a->faults_n[f], audit_fault_name((enum audit_fault)f));
    }
    if (a->beyond_n > 0)
        buf_add_format(b, "; of %" PRId64 " results the input is gone (retention): they prove nothing", a->beyond_n);
    buf_add_text(b, clean ? "\nclean: every input has exactly one result or dead letter, and the marks agree\n" : "\nNOT CLEAN\n");
}

static bool report(const struct command_audit *c)
{
    struct buf b = BUF_EMPTY;
    bool clean = true;

    for (int f = 0; f < AUDIT_FAULTS_N; f++)
        clean = clean && (c->audit.faults_n[f] == 0 || !counts_as_fault(c, (enum audit_fault)f));
    rows_print(c, &b);
    if (c->cli.json)
        summary_json(c, clean, &b);
    else
        summary_text(c, clean, &b);
    fwrite(b.data, 1, b.n, stdout);
    buf_fini(&b);
    return clean;
}

int cmd_audit(int argc, char **argv)
{
    struct command_audit c = { .open_allowed = false };
    struct error err;
    int exit_code = EXIT_CODE_DONE;
    status st;

    cli_init(&c.cli, argv);
    options_read(&c, argc, argv);
    if (c.cli.done)
        return c.cli.exit_code;
    TRY(topics_open(&c.cli.cfg, c.queue, &c.audit.topics, &err));
    TRY(audit_run(&c.audit, &err));
    if (c.audit.rows_n > 0)
        TRY(details_read(&c, &err));
    exit_code = report(&c) ? EXIT_CODE_DONE : EXIT_CODE_UNSOUND;
out:
    details_free(&c);
    audit_fini(&c.audit);
    topics_close(c.audit.topics);
    return st == ST_OK ? exit_code : cli_fail(&c.cli, EXIT_CODE_CANNOT_START, "%s", err.text);
}
