/* tools/nightshift/cmd_retry.c - dead letters back to the prompts, each at most once.
 *
 * What was put back says whose it is (ns-retry-of: the ns-id of the dead letter) and is read back before anything is written, as an
 * upload's lines are. All writers of a queue's retries share one transactional id: a second one fences the first, and what a dead one
 * left open ends before the reading. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failpoint.h"
#include "tools/nightshift/cli.h"
#include "tools/nightshift/jobs.h"
#include "worker/preempt/signals.h"

enum { CLASSES_MAX = 32, BATCH_RECORDS_MAX = 500, BATCH_BYTES_MAX = 4 << 20 };

struct class_count { char name[64]; int64_t n; };

struct retry {
    struct cli cli;
    struct topics *topics;
    struct topic_writer *writer;
    const char *queue, *job;
    const char *class[CLASSES_MAX];
    int classes_n;
    bool again, dry_run;
    struct place_map *put_back;                /* places of dead letters that a prompt names */
    struct class_count counts[CLASSES_MAX];    /* of those chosen */
    int counts_n;
    int64_t dead_n, chosen_n, before_n, retries_n, cut_n, sent_n;
    int64_t batch_n, batch_bytes;
};

static void options_read(struct retry *r, int argc, char **argv)
{
    enum { JOB = 1, CLASS, AGAIN, DRY };
    static const struct option options[] = {
        CLI_OPTIONS, { "queue", required_argument, NULL, 'q' }, { "job", required_argument, NULL, JOB },
        { "class", required_argument, NULL, CLASS }, { "again", no_argument, NULL, AGAIN }, { "dry-run", no_argument, NULL, DRY }, { 0 }
    };
    int option;

    while ((option = getopt_long(argc, argv, "q:", options, NULL)) != -1) {
        switch (option) {
        case 'q': r->queue = optarg; break;
        case JOB: r->job = optarg; break;
        case AGAIN: r->again = true; break;
        case DRY: r->dry_run = true; break;
        case CLASS:
            if (r->classes_n < CLASSES_MAX)
                r->class[r->classes_n] = optarg;
            r->classes_n++;
            break;
        default: cli_option(&r->cli, option);
        }
    }
    cli_start(&r->cli);
    if (!r->cli.done && (optind != argc || r->queue == NULL || r->classes_n > CLASSES_MAX)) {
        r->cli.done = true;
        r->cli.exit_code = cli_fail(&r->cli, EXIT_CODE_USAGE, "--queue URL is needed, and at most %d --class; see `nightshift retry --help`",
                                    CLASSES_MAX);
    }
}

/* ---- which ---- */

/* Every record of a topic. ST_AGAIN from fn: go on. */
static status topic_walk(struct retry *r, enum topic_kind kind, status (*fn)(struct retry *, const struct record *, struct error *),
                         struct error *err)
{
    const struct record *record;
    struct topic_scan *s = NULL;
    status st;

    TRY(topic_scan_open(r->topics, kind, NULL, false, &s, err));
    while (!topic_scan_ended(s) && signals_seen() == 0) {
        st = topic_scan_next(s, 200, &record, err);
        if (st == ST_OK)
            st = fn(r, record, err);
        if (st != ST_AGAIN)
            TRY(st);
        st = ST_OK;
    }
out:
    topic_scan_close(s);
    return st;
}

static status put_back_take(struct retry *r, const struct record *record, struct error *err)
{
    struct place place;

    (void)err;
    if (place_read(record, HEADER_RETRY, topics_name(r->topics, TOPIC_PROMPTS), &place))
        place_map_add(r->put_back, place, 0);
    return ST_OK;
}

static void class_read(const struct record *record, char out[64])
{
    const struct header *h = topic_header(record, HEADER_CLASS);
    size_t n = h != NULL && h->value != NULL ? h->value_n : 0;

    n = n < 63 ? n : 63;
    memcpy(out, n > 0 ? h->value : "", n);
    out[n] = '\0';
    if (n == 0)
        strcpy(out, "unknown");
}

static bool class_is_chosen(const struct retry *r, const char *class)
{
    for (int i = 0; i < r->classes_n; i++) {
        if (strcmp(r->class[i], class) == 0)
            return true;
    }
    return r->classes_n == 0;
}

static void class_count(struct retry *r, const char *class)
{
    int i = 0;

    while (i < r->counts_n && strcmp(r->counts[i].name, class) != 0)
        i++;
    if (i == CLASSES_MAX)
        i--;                                   /* the last one stands for all others */
    else if (i == r->counts_n)
        snprintf(r->counts[r->counts_n++].name, sizeof r->counts[0].name, "%s", class);
    r->counts[i].n++;
}

/* ---- writing ---- */

/* What the sender gave goes back; what workers wrote about the dead one does not. */
static bool header_travels(const char *name)
{
    static const char *const ours[] = { HEADER_JOB, HEADER_LINE, HEADER_LINES, "ns-priority" };

    if (strncmp(name, "ns-", 3) != 0)
        return true;
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
        if (strcmp(name, ours[i]) == 0)
            return true;
    }
    return false;
}

static status batch_commit(struct retry *r, struct error *err)
{
    status st;

    if (r->batch_n == 0)
        return ST_OK;
    failpoint("retry.commit.before");
    st = topic_writer_commit(r->writer, err);
    failpoint("retry.commit.after");
    r->sent_n += st == ST_OK ? r->batch_n : 0;
    r->batch_n = r->batch_bytes = 0;
    return st;
}

static status letter_send(struct retry *r, const struct record *dead, struct error *err)
{
    struct header *headers = mem_take((dead->headers_n + 1) * sizeof *headers);
    struct record out = { .key = dead->key, .key_n = dead->key_n, .value = dead->value, .value_n = dead->value_n, .headers = headers };
    const struct header *id = topic_header(dead, HEADER_ID);
    status st = ST_OK;

    for (size_t i = 0; i < dead->headers_n; i++) {
        if (header_travels(dead->headers[i].name))
            headers[out.headers_n++] = dead->headers[i];
    }
    headers[out.headers_n++] = (struct header){ HEADER_RETRY, id->value, id->value_n };
    if (r->batch_n == 0)
        TRY(topic_writer_begin(r->writer, err));
    TRY(topic_writer_add(r->writer, TOPIC_PROMPTS, TOPIC_ANY_PARTITION, &out, err));
    r->batch_n++;
    r->batch_bytes += (int64_t)(out.value_n + out.key_n);
    if (r->batch_n == BATCH_RECORDS_MAX || r->batch_bytes >= BATCH_BYTES_MAX)
        TRY(batch_commit(r, err));
out:
    free(headers);
    return st;
}

static status letter_take(struct retry *r, const struct record *dead, struct error *err)
{
    struct place place;
    char class[64];

    if (r->job != NULL && !topic_header_is(dead, HEADER_JOB, r->job))
        return ST_OK;
    if (!place_read(dead, HEADER_ID, topics_name(r->topics, TOPIC_PROMPTS), &place))
        return ST_OK;
    r->dead_n++;
    class_read(dead, class);
    if (!class_is_chosen(r, class))
        return ST_OK;
    if (place_map_get(r->put_back, place) >= 0) {
        r->before_n++;
        return ST_OK;
    }
    if (topic_header(dead, HEADER_RETRY) != NULL && !r->again) {
        r->retries_n++;
        return ST_OK;
    }
    if (dead->value == NULL || topic_header(dead, HEADER_DROPPED) != NULL) {
        r->cut_n++;
        return ST_OK;
    }
    place_map_add(r->put_back, place, 0);      /* a doubled dead letter goes once */
    r->chosen_n++;
    class_count(r, class);
    return r->dry_run ? ST_OK : letter_send(r, dead, err);
}

static status put_back_all(struct retry *r, struct error *err)
{
    char id[300];
    status st;

    snprintf(id, sizeof id, "nightshift-retry.%s", topics_name(r->topics, TOPIC_PROMPTS));
    if (!r->dry_run)
        TRY(topic_writer_open(r->topics, id, &r->writer, err));
    TRY(topic_walk(r, TOPIC_PROMPTS, put_back_take, err));
    TRY(topic_walk(r, TOPIC_DEAD, letter_take, err));
    TRY(batch_commit(r, err));
out:
    return st;
}

/* ---- the report ---- */

static void report(const struct retry *r)
{
    struct buf b = BUF_EMPTY;

    if (r->cli.json) {
        buf_add_format(&b, "{\"dead\": %" PRId64 ", \"chosen\": %" PRId64 ", \"put_back\": %" PRId64 ", \"before\": %" PRId64
                       ", \"were_retries\": %" PRId64 ", \"without_original\": %" PRId64 ", \"classes\": {", r->dead_n, r->chosen_n, r->sent_n,
                       r->before_n, r->retries_n, r->cut_n);
        for (int i = 0; i < r->counts_n; i++) {
            buf_add_text(&b, i > 0 ? ", " : "");
            buf_add_json(&b, r->counts[i].name);
            buf_add_format(&b, ": %" PRId64, r->counts[i].n);
        }
        buf_add_text(&b, "}}\n");
    } else {
        buf_add_format(&b, "%" PRId64 " dead letters, %" PRId64 " %s back", r->dead_n, r->dry_run ? r->chosen_n : r->sent_n,
                       r->dry_run ? "would be put" : "were put");
        for (int i = 0; i < r->counts_n; i++)
            buf_add_format(&b, "%s%" PRId64 " %s", i > 0 ? ", " : ": ", r->counts[i].n, r->counts[i].name);
        if (r->before_n > 0)
            buf_add_format(&b, "; %" PRId64 " were put back before", r->before_n);
        if (r->retries_n > 0)
            buf_add_format(&b, "; %" PRId64 " died again (--again puts them back)", r->retries_n);
        if (r->cut_n > 0)
            buf_add_format(&b, "; of %" PRId64 " the original did not fit into the dead letter: submit them anew", r->cut_n);
        buf_add_text(&b, "\n");
    }
    fwrite(b.data, 1, b.n, stdout);
    buf_fini(&b);
}

int cmd_retry(int argc, char **argv)
{
    struct retry r = { .again = false };
    struct error err;
    status st;

    cli_init(&r.cli, argv);
    options_read(&r, argc, argv);
    if (r.cli.done)
        return r.cli.exit_code;
    signals_install();
    r.put_back = place_map_open();
    TRY(topics_open(&r.cli.cfg, r.queue, &r.topics, &err));
    TRY(put_back_all(&r, &err));
    report(&r);
out:
    topic_writer_close(r.writer);
    topics_close(r.topics);
    place_map_close(r.put_back);
    if (st != ST_OK)
        return cli_fail(&r.cli, st == ST_FENCED ? EXIT_CODE_FENCED : EXIT_CODE_CANNOT_START, "%s%s", err.text,
                        st == ST_RETRY ? "; run the same command to go on" : "");
    return signals_seen() > 0 ? cli_fail(&r.cli, EXIT_CODE_STOPPED, "stopped: run the same command to go on") : EXIT_CODE_DONE;
}
