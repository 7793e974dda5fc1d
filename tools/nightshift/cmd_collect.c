/* tools/nightshift/cmd_collect.c - a job's answers from its topics into files. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tools/nightshift/cli.h"
#include "tools/nightshift/collected.h"
#include "tools/nightshift/follow.h"
#include "worker/preempt/signals.h"

enum { MISSING_SHOWN_MAX = 20, PAST_N = 16 };

struct collect {
    struct cli cli;
    struct follow follow;
    struct collected files;
    const char *queue, *output, *errors;
    bool order, no_wait, overwrite, quiet;
    double timeout_s;                          /* 0: for ever */
    int64_t written_n, foreign_n;              /* answers written now; results that are no result line */
    struct buf line;
    struct live live;
    struct { int64_t at_ns, done_n; } past[PAST_N];      /* for the rate over the last seconds */
    int64_t past_n;
};

static void usage_fail(struct collect *c, const char *text)
{
    if (!c->cli.done)
        c->cli.exit_code = cli_fail(&c->cli, EXIT_CODE_USAGE, "%s; see `nightshift collect --help`", text);
    c->cli.done = true;
}

static void options_read(struct collect *c, int argc, char **argv)
{
    enum { JOB = 1, ORDER, NO_WAIT, TIMEOUT, OVERWRITE, QUIET };
    static const struct option options[] = {
        CLI_OPTIONS, { "queue", required_argument, NULL, 'q' }, { "output", required_argument, NULL, 'o' },
        { "errors", required_argument, NULL, 'e' }, { "job", required_argument, NULL, JOB }, { "order", required_argument, NULL, ORDER },
        { "no-wait", no_argument, NULL, NO_WAIT }, { "timeout", required_argument, NULL, TIMEOUT },
        { "overwrite", no_argument, NULL, OVERWRITE }, { "quiet", no_argument, NULL, QUIET }, { 0 }
    };
    char *end;
    int option;

    while ((option = getopt_long(argc, argv, "q:o:e:", options, NULL)) != -1) {
        switch (option) {
        case 'q': c->queue = optarg; break;
        case 'o': c->output = optarg; break;
        case 'e': c->errors = optarg; break;
        case JOB: c->follow.job = optarg; break;
        case NO_WAIT: c->no_wait = true; break;
        case OVERWRITE: c->overwrite = true; break;
        case QUIET: c->quiet = true; break;
        case TIMEOUT:
            c->timeout_s = strtod(optarg, &end);
            if (end == optarg || *end != '\0' || !(c->timeout_s > 0))
                usage_fail(c, "--timeout: seconds are needed");
            break;
        case ORDER:
            c->order = strcmp(optarg, "input") == 0;
            if (!c->order && strcmp(optarg, "any") != 0)
                usage_fail(c, "--order: input or any is needed");
            break;
        default: cli_option(&c->cli, option);
        }
    }
    cli_start(&c->cli);
    if (optind != argc || c->queue == NULL || c->follow.job == NULL || c->output == NULL)
        usage_fail(c, "--queue URL, --job ID and -o OUT.jsonl are needed");
    else if (!job_id_is_sound(c->follow.job))
        usage_fail(c, "--job: up to 64 letters, digits, '.', '_' and '-' are needed");
}

/* ---- one answer ---- */

static void text_add(struct buf *b, const struct header *h, const char *otherwise)
{
    struct buf text = BUF_EMPTY;

    if (h != NULL && h->value != NULL)
        buf_add(&text, h->value, h->value_n);
    else
        buf_add_text(&text, otherwise);
    buf_add_json(b, buf_text(&text));
    buf_fini(&text);
}

/* A dead letter without the worker's own words: its headers say what happened, its value whose it is. */
static void error_line_make(struct collect *c, const struct record *r, struct place place)
{
    json_t *root = r->value != NULL ? json_loadb(r->value, r->value_n, JSON_ALLOW_NUL, NULL) : NULL;
    const json_t *id = json_object_get(root, "custom_id");
    char *custom_id = id != NULL ? json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

    /* The job's digits are the worker's secret; zeros tell that the line was made here. */
    buf_add_format(&c->line, "{\"id\":\"batch_req_0000000000000000_%d_%" PRId64 "\",\"custom_id\":%s,\"response\":null,\"error\":{\"code\":",
                   (int)place.partition, place.offset, custom_id != NULL ? custom_id : "null");
    text_add(&c->line, topic_header(r, HEADER_CLASS), "failed");
    buf_add_text(&c->line, ",\"message\":");
    text_add(&c->line, topic_header(r, HEADER_ERROR), "the request failed");
    buf_add_text(&c->line, "}}");
    free(custom_id);
    json_decref(root);
}

static void line_make(struct collect *c, const struct record *r, struct place place, bool dead)
{
    const struct header *made = dead ? topic_header(r, HEADER_RESULT) : NULL;
    struct place own;

    buf_reset(&c->line);
    if (made != NULL && made->value != NULL)
        buf_add(&c->line, made->value, made->value_n);
    else if (!dead || topic_header(r, HEADER_DROPPED) != NULL)
        buf_add(&c->line, r->value, r->value != NULL ? r->value_n : 0);
    if (dead && !(place_read_line(c->line.data != NULL ? c->line.data : "", c->line.n, &own) && own.offset == place.offset)) {
        buf_reset(&c->line);
        error_line_make(c, r, place);
    }
}

static status answer_take(void *ctx, int64_t line, struct place place, bool dead, const struct record *r, struct error *err)
{
    struct collect *c = ctx;
    struct place own;

    (void)line;
    if (collected_has(&c->files, place))
        return ST_OK;
    line_make(c, r, place, dead);
    if (!place_read_line(c->line.data != NULL ? c->line.data : "", c->line.n, &own) || own.partition != place.partition ||
        own.offset != place.offset || memchr(c->line.data, '\n', c->line.n) != NULL) {
        c->foreign_n++;
        return error_set(err, ST_REJECT, "the result at %s/%d/%" PRId64 " is not a line of nightshift's",
                         topics_name(c->follow.topics, dead ? TOPIC_DEAD : TOPIC_RESULTS), (int)r->source, r->offset);
    }
    collected_add(&c->files, place, dead, c->line.data, c->line.n);
    c->written_n++;
    return c->files.output.pending.n + c->files.errors.pending.n > 4 << 20 ? collected_flush(&c->files, err) : ST_OK;
}

/* ---- waiting ---- */

static void progress(struct collect *c)
{
    const struct follow *f = &c->follow;
    int64_t done_n = f->answered_n + f->dead_n, now_ns = clock_mono_ns(), oldest = c->past_n > PAST_N ? c->past_n % PAST_N : 0;
    char left[32];
    double rate;

    if (c->quiet || !live_due(&c->live))
        return;
    rate = c->past_n == 0 ? 0 : (double)(done_n - c->past[oldest].done_n) * 1e9 / (double)(now_ns - c->past[oldest].at_ns + 1);
    c->past[c->past_n % PAST_N].at_ns = now_ns;
    c->past[c->past_n++ % PAST_N].done_n = done_n;
    duration_text(rate > 0 ? (double)follow_open_lines(f) / rate : -1, left);
    live_show(&c->live, "%" PRId64 " of %" PRId64 " lines are done (%" PRId64 " failed), %.1f lines/s, %s left%s", done_n, follow_lines(f),
              f->dead_n, rate, left, follow_unsent(f) > 0 ? "; the upload is not complete" : "");
}

static bool stop_asked(void)
{
    return signals_seen() > 0;
}

static bool time_is_over(const struct collect *c)
{
    return c->timeout_s > 0 && (double)(clock_mono_ns() - c->live.started_ns) > c->timeout_s * 1e9;
}

static status wait_all(struct collect *c, struct error *err)
{
    bool caught_up = false;
    status st = follow_read_prompts(&c->follow, err);

    while (st == ST_OK && !stop_asked()) {
        st = follow_step(&c->follow, 500, answer_take, c, &caught_up, err);
        if (st == ST_OK)
            st = collected_flush(&c->files, err);
        progress(c);
        if (caught_up && ((follow_lines(&c->follow) > 0 && follow_open_lines(&c->follow) == 0) || c->no_wait || time_is_over(c)))
            break;
    }
    live_end(&c->live);
    return st;
}

/* ---- the end ---- */

/* Of each line its output, or where there is none its last dead letter. */
static int64_t line_choose(void *ctx, struct place place, bool failure)
{
    const struct collect *c = ctx;
    int64_t number = place_map_get(c->follow.places, place);
    const struct follow_line *l = number >= 0 ? &c->follow.line[number] : NULL;
    struct place wanted;

    if (l == NULL)
        return -1;
    wanted = l->outputs_n > 0 ? l->output : l->dead;
    (void)failure;
    return wanted.partition == place.partition && wanted.offset == place.offset ? number : -1;
}

static status files_settle(struct collect *c, struct error *err)
{
    int64_t wanted_n = c->follow.answered_n + c->follow.dead_n;

    if (c->order || (int64_t)place_map_count(c->files.there) != wanted_n)
        return collected_order(&c->files, line_choose, c, err);
    return ST_OK;
}

static void missing_add(const struct collect *c, struct buf *b, const char *between, int64_t shown_max)
{
    const struct follow *f = &c->follow;
    int64_t shown_n = 0;

    for (int64_t i = 1; i < f->lines_room && shown_n < shown_max; i++) {
        const struct follow_line *l = &f->line[i];

        if (l->prompts_n > 0 && l->outputs_n == 0 && l->dead_n < l->prompts_n)
            buf_add_format(b, "%s%" PRId64, shown_n++ > 0 ? between : "", i);
    }
}

static void report(const struct collect *c, bool complete)
{
    const struct follow *f = &c->follow;
    struct buf b = BUF_EMPTY;

    if (c->cli.json) {
        buf_add_format(&b, "{\"complete\": %s, \"lines\": %" PRId64 ", \"done\": %" PRId64 ", \"failed\": %" PRId64 ", \"open\": %" PRId64
                       ", \"unsent\": %" PRId64 ", \"written\": %" PRId64 ", \"doubled\": %" PRId64 ", \"orphaned\": %" PRId64
                       ", \"uploaded_twice\": %" PRId64 ", \"open_lines\": [", complete ? "true" : "false", follow_lines(f), f->answered_n,
                       f->dead_n, follow_open_lines(f), follow_unsent(f), c->written_n, f->doubled_n, f->orphans_n, f->uploaded_twice_n);
        missing_add(c, &b, ", ", INT64_MAX);
        buf_add_text(&b, "]}\n");
    } else if (!c->quiet) {
        buf_add_format(&b, "job %s: %" PRId64 " of %" PRId64 " lines are in %s", f->job, f->answered_n + f->dead_n, follow_lines(f), c->output);
        if (f->dead_n > 0)
            buf_add_format(&b, " (%" PRId64 " failed%s%s)", f->dead_n, c->errors != NULL ? ", in " : "", c->errors != NULL ? c->errors : "");
        if (follow_unsent(f) > 0)
            buf_add_format(&b, "\n%" PRId64 " lines are not in the topic: run `nightshift submit` again", follow_unsent(f));
        if (follow_open_lines(f) > follow_unsent(f)) {
            buf_add_format(&b, "\n%" PRId64 " lines have no answer yet: line ", follow_open_lines(f) - follow_unsent(f));
            missing_add(c, &b, ", ", MISSING_SHOWN_MAX);
        }
        if (f->doubled_n + f->orphans_n + f->uploaded_twice_n > 0)
            buf_add_format(&b, "\n%" PRId64 " answers are doubled, %" PRId64 " answer nothing, %" PRId64 " lines were uploaded twice: "
                           "`nightshift audit` tells which", f->doubled_n, f->orphans_n, f->uploaded_twice_n);
        buf_add_text(&b, "\n");
    }
    fwrite(b.data, 1, b.n, stdout);
    buf_fini(&b);
}

static status files_open(struct collect *c, struct error *err)
{
    struct buf what = BUF_EMPTY;
    status st;

    buf_add_text(&what, "{\"topic\": ");
    buf_add_json(&what, topics_name(c->follow.topics, TOPIC_RESULTS));
    buf_add_text(&what, ", \"job\": ");
    buf_add_json(&what, c->follow.job);
    buf_add_text(&what, "}");
    st = collected_open(&c->files, c->output, c->errors, buf_text(&what), c->overwrite, err);
    buf_fini(&what);
    return st;
}

static int collect(struct collect *c)
{
    struct error err;
    bool complete;
    status st;

    c->files.output.fd = c->files.errors.fd = c->files.lock_fd = -1;
    TRY(topics_open(&c->cli.cfg, c->queue, &c->follow.topics, &err));
    TRY(follow_open(&c->follow, &err));
    TRY(files_open(c, &err));
    live_init(&c->live);
    TRY(wait_all(c, &err));
    if (!stop_asked() && follow_lines(&c->follow) == 0)
        TRY(error_set(&err, ST_REJECT, "the topic \"%s\" holds no job \"%s\"", topics_name(c->follow.topics, TOPIC_PROMPTS), c->follow.job));
    complete = follow_lines(&c->follow) > 0 && follow_open_lines(&c->follow) == 0;
    if (complete)
        TRY(files_settle(c, &err));
    report(c, complete);
    return complete ? EXIT_CODE_DONE : EXIT_CODE_STOPPED;
out:
    return cli_fail(&c->cli, EXIT_CODE_CANNOT_START, "%s", err.text);
}

int cmd_collect(int argc, char **argv)
{
    struct collect c = { .follow.stopped = stop_asked };
    int exit_code;

    cli_init(&c.cli, argv);
    options_read(&c, argc, argv);
    if (c.cli.done)
        return c.cli.exit_code;
    signals_install();
    exit_code = collect(&c);
    collected_close(&c.files);
    follow_close(&c.follow);
    topics_close(c.follow.topics);
    buf_fini(&c.line);
    return exit_code;
}
