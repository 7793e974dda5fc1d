/* tools/nightshift/cmd_submit.c - a file's lines into a topic, each once. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "tools/nightshift/cli.h"
#include "tools/nightshift/upload.h"
#include "worker/pipeline/id_set.h"
#include "worker/preempt/signals.h"

enum { SHOWN_MAX = 20, PARTITIONS_DEFAULT = 8, RECORD_EXTRA_BYTES = 1024 };
#define HOUR_MS INT64_C(3600000)

struct submit {
    struct cli cli;
    struct upload up;
    const char *queue, *model, *key;
    char job[JOB_ID_MAX + 1];
    bool validate, made;
    int64_t partitions_n, replicas_n, retention_h;
    struct id_set *ids;
    int64_t invalid_n, longest_bytes;
    struct hasher *hasher;
};

static bool number_read(struct submit *s, const char *option, const char *text, int64_t min, int64_t max, int64_t *out)
{
    char *end;

    *out = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && *out >= min && *out <= max)
        return true;
    if (!s->cli.done) {
        s->cli.done = true;
        s->cli.exit_code = cli_fail(&s->cli, EXIT_CODE_USAGE, "--%s %s: a whole number from %" PRId64 " to %" PRId64 " is needed", option,
                                    text, min, max);
    }
    return false;
}

static void usage_fail(struct submit *s, const char *text, const char *value)
{
    if (s->cli.done)
        return;
    s->cli.done = true;
    s->cli.exit_code = cli_fail(&s->cli, EXIT_CODE_USAGE, text, value);
}

static void rate_read(struct submit *s, const char *text)
{
    char *end;

    s->up.rate = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(s->up.rate) || s->up.rate < 0.01 || s->up.rate > 1e9)
        usage_fail(s, "--rate %s: records a second are needed, from 0.01", text);
}

static void options_read(struct submit *s, int argc, char **argv)
{
    enum { JOB = 1, KEY, RATE, PARTITIONS, REPLICAS, RETENTION, NO_VALIDATE, QUIET };
    static const struct option options[] = {
        CLI_OPTIONS, { "queue", required_argument, NULL, 'q' }, { "model", required_argument, NULL, 'm' },
        { "job", required_argument, NULL, JOB }, { "key", required_argument, NULL, KEY }, { "rate", required_argument, NULL, RATE },
        { "partitions", required_argument, NULL, PARTITIONS }, { "replicas", required_argument, NULL, REPLICAS },
        { "retention-h", required_argument, NULL, RETENTION }, { "no-validate", no_argument, NULL, NO_VALIDATE },
        { "quiet", no_argument, NULL, QUIET }, { 0 }
    };
    int option;

    while ((option = getopt_long(argc, argv, "q:m:", options, NULL)) != -1) {
        switch (option) {
        case 'q': s->queue = optarg; break;
        case 'm': s->model = optarg; break;
        case KEY: s->key = strcmp(optarg, "none") == 0 ? NULL : optarg; break;
        case RATE: rate_read(s, optarg); break;
        case PARTITIONS: number_read(s, "partitions", optarg, 1, 10000, &s->partitions_n); break;
        case REPLICAS: number_read(s, "replicas", optarg, 1, 100, &s->replicas_n); break;
        case RETENTION: number_read(s, "retention-h", optarg, 1, 1000000, &s->retention_h); break;
        case NO_VALIDATE: s->validate = false; break;
        case QUIET: s->up.quiet = true; break;
        case JOB:
            if (!job_id_is_sound(optarg))
                usage_fail(s, "--job %s: up to 64 letters, digits, '.', '_' and '-' are needed", optarg);
            else
                strcpy(s->job, optarg);
            break;
        default: cli_option(&s->cli, option);
        }
    }
    cli_start(&s->cli);
    if (optind + 1 != argc || s->queue == NULL)
        usage_fail(s, "one input and --queue URL are needed; see `nightshift %s --help`", "submit");
    s->up.input = argv[optind];
}

/* ---- the file, before anything is sent ---- */

static void invalid_show(const struct submit *s, const struct record *rec, const struct judgement *v)
{
    struct buf text = BUF_EMPTY;

    if (s->invalid_n <= SHOWN_MAX) {
        buf_add(&text, v->text.data, v->text.n);
        fprintf(stderr, "line %" PRId64 ": %s: %s\n", rec->offset + 1, v->code, buf_text(&text));
    }
    buf_fini(&text);
}

static void line_measure(struct submit *s, const struct record *rec, struct judgement *v)
{
    int64_t bytes = (int64_t)rec->value_n + RECORD_EXTRA_BYTES;

    upload_measure(&s->up, rec);
    hasher_add(s->hasher, rec->value, rec->value_n);
    hasher_add(s->hasher, "\n", 1);
    judge_line(s->up.judge, rec, v);
    if (!v->valid) {
        s->invalid_n++;
        if (s->validate)
            invalid_show(s, rec, v);
    }
    if (v->custom_id.n > 0)
        id_set_add(s->ids, buf_text(&v->custom_id));
    bytes += v->has_key ? (int64_t)v->key.n : 0;
    s->longest_bytes = bytes > s->longest_bytes ? bytes : s->longest_bytes;
}

static status file_measure(struct submit *s, struct error *err)
{
    struct queue_job job = { .url = "read:", .input = s->up.input };
    struct judgement v = { .valid = true };
    struct queue *q;
    char hex[33];
    status st;

    TRY(queue_open(&s->cli.cfg, &job, &q, err));
    s->hasher = hasher_open();
    while (st == ST_OK && !queue_ended(q) && signals_seen() == 0) {
        struct record *rec = NULL;

        st = queue_poll(q, 0, &rec, err);
        if (st == ST_OK && rec->oversize)
            st = error_set(err, ST_REJECT, "%s line %" PRId64 " is longer than the setting line_mb_max allows", s->up.input, rec->offset + 1);
        if (st == ST_OK)
            line_measure(s, rec, &v);
        queue_record_give(q, rec);
        st = st == ST_AGAIN ? ST_OK : st;
    }
    hash128_hex(hasher_end(s->hasher), hex);
    if (s->job[0] == '\0')
        snprintf(s->job, sizeof s->job, "%.16s", hex);
    queue_close(q);
    judgement_fini(&v);
    if (st == ST_OK && s->up.records_n == 0)
        st = error_set(err, ST_REJECT, "%s holds no line", s->up.input);
out:
    return st;
}

/* ---- the topics ---- */

static status topics_make(struct submit *s, struct error *err)
{
    static const enum topic_kind kinds[] = { TOPIC_PROMPTS, TOPIC_RESULTS, TOPIC_DEAD };
    char bytes[24], retention[24];
    const char *const configs[] = { "max.message.bytes", bytes, "retention.ms", retention, "cleanup.policy", "delete", NULL };
    struct topic_shape shape = { (int32_t)s->partitions_n, (int32_t)s->replicas_n, configs };
    int64_t max;
    status st;

    /* A line of line_mb_max, its key and its headers; a result may be as long. */
    snprintf(bytes, sizeof bytes, "%" PRId64, (s->cli.cfg.line_mb_max + 1) << 20);
    snprintf(retention, sizeof retention, "%" PRId64, s->retention_h * HOUR_MS);
    for (int i = 0; i < TOPIC_KINDS_N; i++) {
        int32_t partitions_n;
        bool made;

        TRY(topic_count_partitions(s->up.topics, kinds[i], &partitions_n, err));
        if (partitions_n > 0)
            continue;
        TRY(topic_make(s->up.topics, kinds[i], &shape, &made, err));
        s->made |= made;
    }
    TRY(topic_read_config(s->up.topics, TOPIC_PROMPTS, "max.message.bytes", &max, err));
    if (s->longest_bytes > max)
        st = error_set(err, ST_REJECT, "the longest line takes %" PRId64 " bytes as a record, the topic \"%s\" takes %" PRId64 "; raise its "
                       "max.message.bytes", s->longest_bytes, topics_name(s->up.topics, TOPIC_PROMPTS), max);
out:
    return st;
}

/* ---- the report ---- */

static void report(const struct submit *s)
{
    const struct upload *u = &s->up;
    struct buf b = BUF_EMPTY;

    if (s->cli.json) {
        buf_add_text(&b, "{\"job\": ");
        buf_add_json(&b, s->job);
        buf_add_text(&b, ", \"queue\": ");
        buf_add_json(&b, s->queue);
        buf_add_format(&b, ", \"lines\": %" PRId64 ", \"there\": %" PRId64 ", \"there_before\": %" PRId64 ", \"doubled\": %" PRId64
                       ", \"invalid\": %" PRId64 ", \"duplicate_custom_ids\": %" PRId64 ", \"topics_made\": %s}\n", u->records_n, u->there_n,
                       u->before_n, u->doubled_n, s->invalid_n, id_set_duplicates(s->ids), s->made ? "true" : "false");
    } else if (!u->quiet) {
        buf_add_format(&b, "job %s: %" PRId64 " of %" PRId64 " lines are in %s", s->job, u->there_n, u->records_n,
                       topics_name(u->topics, TOPIC_PROMPTS));
        if (u->before_n > 0)
            buf_add_format(&b, " (%" PRId64 " were there before)", u->before_n);
        if (u->doubled_n > 0)
            buf_add_format(&b, "; %" PRId64 " stand there twice", u->doubled_n);
        if (id_set_duplicates(s->ids) > 0)
            buf_add_format(&b, "; %" PRId64 " lines have a custom_id that an earlier line has, all are answered", id_set_duplicates(s->ids));
        buf_add_format(&b, "\nnext: nightshift collect --queue %s --job %s -o OUT.jsonl\n", s->queue, s->job);
    }
    fwrite(b.data, 1, b.n, stdout);
    buf_fini(&b);
}

static bool stop_asked(void)
{
    return signals_seen() > 0;
}

static int exit_code_of(const struct submit *s, status st, const struct error *err)
{
    if (st == ST_OK)
        return EXIT_CODE_DONE;
    if (st == ST_AGAIN)
        return cli_fail(&s->cli, EXIT_CODE_STOPPED, "stopped with %" PRId64 " of %" PRId64 " lines in the topic: run the same command to go on",
                        s->up.there_n, s->up.records_n);
    return cli_fail(&s->cli, st == ST_FENCED ? EXIT_CODE_FENCED : EXIT_CODE_CANNOT_START, "%s%s", err->text,
                    st == ST_RETRY && s->up.there != NULL ? "; run the same command to go on" : "");
}

static int submit(struct submit *s)
{
    struct upload *u = &s->up;
    struct error err;
    status st;

    s->ids = id_set_open();
    TRY(judge_open(&s->cli.cfg, s->model, s->key, &u->judge, &err));
    TRY(topics_open(&s->cli.cfg, s->queue, &u->topics, &err));
    TRY(file_measure(s, &err));
    u->job = s->job;
    if (signals_seen() > 0) {
        st = ST_AGAIN;
        goto out;
    }
    if (s->invalid_n > 0 && s->validate) {
        cli_fail(&s->cli, EXIT_CODE_USAGE, "%" PRId64 " of %" PRId64 " lines are not valid, nothing was sent; correct them, or let "
                 "--no-validate send them to become dead letters", s->invalid_n, u->records_n);
        goto out;
    }
    TRY(topics_make(s, &err));
    TRY(upload_run(u, &err));
out:
    if (st == ST_OK && u->there != NULL)
        report(s);
    if (st == ST_OK && u->there == NULL)
        return EXIT_CODE_USAGE;
    return exit_code_of(s, st, &err);
}

int cmd_submit(int argc, char **argv)
{
    struct submit s = { .validate = true, .key = "custom_id", .partitions_n = PARTITIONS_DEFAULT, .replicas_n = -1, .retention_h = 720 };
    int exit_code;

    cli_init(&s.cli, argv);
    options_read(&s, argc, argv);
    if (s.cli.done)
        return s.cli.exit_code;
    signals_install();
    s.up.cfg = &s.cli.cfg;
    s.up.stopped = stop_asked;
    exit_code = submit(&s);
    id_set_close(s.ids);
    judge_close(s.up.judge);
    upload_fini(&s.up);
    topics_close(s.up.topics);
    return exit_code;
}
