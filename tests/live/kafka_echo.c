/* A worker without a model: answers each record of a real topic with an echo, through queue.h alone. For what is between the queue
 * and a real broker: deaths between any two steps of a commit, zombies, rebalances, throughput.
 *
 * usage: kafka_echo fill URL RECORDS BYTES PARTITIONS     makes the topics, adds records that carry their number
 *        kafka_echo work URL [--set name=value]... [--idle-ms N] [--hold N] [--every N] [--dead N] [--lose N] [--quiet]
 *        kafka_echo audit URL [--set name=value]...      exit 1 where one of I1-I5 is broken; prints the counts
 *        kafka_echo commits URL                          what the group has committed: partition, offset, metadata
 *        kafka_echo commit URL PARTITION OFFSET TEXT     commits that as another tool would
 *        kafka_echo odd URL; kafka_echo odd-check URL    records of every shape (kafka_odd.c)
 * work ends after --idle-ms without a record and with nothing open, or after SIGTERM (drain, leave). --hold: records are answered
 * out of order, N of them at a time; --every: at most one group in N ms; --dead: each N-th is a dead letter; --lose: each N-th is not
 * answered at all (its age grows). NIGHTSHIFT_FAILPOINT kills it on cue. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/bqueue.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "queue/queue.h"
#include "queue/topic.h"
#include "queue/tracker.h"
#include "tests/live/kafka_odd.h"

static struct config cfg;
static volatile sig_atomic_t stop_asked;

struct options {
    const char *url;
    int64_t idle_ms, hold, every_ms, dead, lose;
    bool quiet;
};

static _Noreturn void die(const char *what, const struct error *err)
{
    fprintf(stderr, "kafka_echo: %s: %s\n", what, err->text);
    exit(2);
}

/* ---- fill ---- */

static int fill(const char *url, int64_t n, size_t bytes, int32_t partitions)
{
    const struct topic_shape shape = { .partitions_n = partitions, .replicas_n = -1 };
    struct topics *topics;
    struct topic_writer *w;
    char *value = mem_take(bytes + 64);
    struct error err;
    char id[300];
    bool made;

    if (topics_open(&cfg, url, &topics, &err) != ST_OK)
        die("open", &err);
    for (int kind = 0; kind < TOPIC_KINDS_N; kind++)
        if (topic_make(topics, (enum topic_kind)kind, &shape, &made, &err) != ST_OK)
            die("make", &err);
    snprintf(id, sizeof id, "fill.%.280s", topics_name(topics, TOPIC_PROMPTS));
    if (topic_writer_open(topics, id, &w, &err) != ST_OK)
        die("writer", &err);
    memset(value, 'x', bytes + 64);
    for (int64_t i = 0; i < n; i++) {
        char key[24];
        struct record r = { .key = key, .key_n = (size_t)snprintf(key, sizeof key, "k%" PRId64, i), .value = value, .value_n = bytes };
        int head = snprintf(value, 40, "{\"n\":%" PRId64 ",\"x\":\"", i);

        if (r.value_n < (size_t)head + 2)
            r.value_n = (size_t)head + 2;
        value[head] = 'x';
        memcpy(value + r.value_n - 2, "\"}", 2);
        if (i % 1000 == 0 && topic_writer_begin(w, &err) != ST_OK)
            die("begin", &err);
        if (topic_writer_add(w, TOPIC_PROMPTS, (int32_t)(i % partitions), &r, &err) != ST_OK)
            die("add", &err);
        value[r.value_n - 2] = value[r.value_n - 1] = 'x';
        if ((i % 1000 == 999 || i == n - 1) && topic_writer_commit(w, &err) != ST_OK)
            die("commit", &err);
    }
    topic_writer_close(w);
    topics_close(topics);
    free(value);
    return 0;
}

/* ---- work ---- */

struct worker {
    struct options o;
    struct queue *q;
    struct bqueue *records;
    atomic_llong polled_n, open_n, durable_n, lost_n, retries_n, groups_n;
    atomic_llong first_ns, last_ns;        /* of records: when the first one came, when the last one was durable */
    atomic_int exit_code;
    uint64_t dice;
    struct record **kept; int kept_n;      /* the poll side's: lost on purpose */
};

static void echo_make(struct worker *w, struct record *r, struct buf *b, struct result *out)
{
    static const struct header stop[] = { { "ns-finish", "stop", 4 } };
    static const struct header dead[] = { { "ns-error", "asked for", 9 }, { "ns-error-class", "test", 4 } };
    char id[64];

    queue_result_id(w->q, r->source, r->offset, id);
    buf_reset(b);
    buf_add_format(b, "{\"id\":\"%s\",\"echo\":\"", id);
    for (size_t i = 0; i < r->value_n; i++)
        buf_add_byte(b, r->value[i] == '"' || r->value[i] == '\\' || (unsigned char)r->value[i] < 0x20 ? ' ' : r->value[i]);
    buf_add_text(b, "\"}");
    *out = (struct result){ .record = r, .kind = RESULT_OUTPUT, .value = b->data, .value_n = b->n, .headers = stop, .headers_n = 1 };
    if (w->o.dead > 0 && r->offset % w->o.dead == 0) {
        out->kind = RESULT_FAILURE;
        out->headers = dead;
        out->headers_n = 2;
    }
}

static bool group_commit(struct worker *w, struct record **r, size_t n)
{
    struct result *results = mem_take_zero(n, sizeof results[0]);
    struct buf *text = mem_take_zero(n, sizeof text[0]);
    bool *durable = mem_take_zero(n, sizeof durable[0]);
    struct error err;
    status st;

    for (size_t i = 0; i < n; i++)
        echo_make(w, r[i], &text[i], &results[i]);
    while ((st = queue_commit(w->q, results, n, durable, &err)) == ST_RETRY) {
        const struct timespec pause = { 0, 50000000 };

        w->retries_n++;
        if (!w->o.quiet)
            fprintf(stderr, "kafka_echo: retry: %s\n", err.text);
        nanosleep(&pause, NULL);
    }
    if (st != ST_OK)
        fprintf(stderr, "kafka_echo: commit: %s: %s\n", status_name(st), err.text);
    for (size_t i = 0; i < n; i++) {
        if (durable[i])
            w->durable_n++;
        else
            w->lost_n++;
        queue_record_give(w->q, r[i]);
        buf_fini(&text[i]);
    }
    w->groups_n++;
    w->last_ns = clock_mono_ns();
    w->open_n -= (long long)n;
    free(results);
    free(text);
    free(durable);
    if (st == ST_FENCED)
        atomic_store(&w->exit_code, 3);
    return st == ST_OK;
}

/* Answers in any order: of up to --hold records the last group is picked by dice. */
static void *commit_run(void *ctx)
{
    struct worker *w = ctx;
    size_t max = (size_t)cfg.txn_results_max, hold = (size_t)(w->o.hold > 0 ? w->o.hold : 1), held_n = 0;
    void **held = mem_take_zero(hold + max, sizeof held[0]);

    while (!bqueue_ended(w->records) || held_n > 0) {
        size_t room = held_n < hold ? hold + max - held_n : max, got, n;
        int64_t begun = clock_mono_ns();

        if (room > max)
            room = max;
        got = bqueue_pop(w->records, held + held_n, room, 20);
        while (got > 0 && got < room && clock_mono_ns() - begun < 20 * NS_PER_MS) {
            size_t more = bqueue_pop(w->records, held + held_n + got, room - got, 5);

            if (more == 0)
                break;
            got += more;
        }
        held_n += got;
        for (size_t i = held_n; w->o.hold > 0 && i > 1; i--) {
            size_t k = (size_t)((w->dice = w->dice * 6364136223846793005u + 1442695040888963407u) >> 33) % i;
            void *swap = held[i - 1];

            held[i - 1] = held[k];
            held[k] = swap;
        }
        n = got > 0 && held_n <= hold ? held_n / 2 : held_n;
        if (n > max)
            n = max;
        if (n == 0)
            continue;
        held_n -= n;
        if (!group_commit(w, (struct record **)(held + held_n), n))
            break;
        if (w->o.every_ms > 0) {
            const struct timespec pause = { w->o.every_ms / 1000, w->o.every_ms % 1000 * NS_PER_MS };

            nanosleep(&pause, NULL);
        }
    }
    while (held_n > 0)             /* fenced: another owner answers them */
        queue_record_give(w->q, held[--held_n]);
    free(held);
    return NULL;
}

static void stop_take(int sig)
{
    (void)sig;
    stop_asked = 1;
}

static void gained(void *ctx, int32_t source, uint32_t lease)
{
    (void)ctx;
    fprintf(stderr, "gained %" PRId32 " lease %" PRIu32 "\n", source, lease);
}

static void lost(void *ctx, int32_t source, uint32_t lease, bool already)
{
    (void)ctx;
    fprintf(stderr, "lost %" PRId32 " lease %" PRIu32 "%s\n", source, lease, already ? " already" : "");
}

static void poll_run(struct worker *w)
{
    int64_t idle_since = clock_mono_ns();
    struct record *r;
    struct error err;
    bool stopping = false;

    while (atomic_load(&w->exit_code) == 0) {
        status st = queue_poll(w->q, 50, &r, &err);
        int64_t now = clock_mono_ns();

        if (stop_asked && !stopping) {
            queue_stop_taking(w->q);
            stopping = true;
        }
        if (st == ST_OK) {
            idle_since = now;
            if (w->polled_n++ == 0)
                w->first_ns = now;
            if (w->o.lose > 0 && r->offset % w->o.lose == 0) {      /* kept open to the end */
                w->kept = mem_grow(w->kept, (size_t)(w->kept_n + 1) * sizeof w->kept[0]);
                w->kept[w->kept_n++] = r;
                continue;
            }
            w->open_n++;
            if (bqueue_push(w->records, r) != ST_OK)
                die("push", &err);
        } else if (st != ST_AGAIN) {
            fprintf(stderr, "kafka_echo: poll: %s: %s\n", status_name(st), err.text);
            atomic_store(&w->exit_code, 2);
        }
        if (w->open_n > 0)
            idle_since = now;
        if ((stopping && queue_ended(w->q) && w->open_n == 0) || (w->o.idle_ms > 0 && now - idle_since > w->o.idle_ms * NS_PER_MS))
            return;
    }
}

static int work(const struct options *o)
{
    const struct queue_events events = { .gained = gained, .lost = lost };
    const struct queue_job job = { .url = o->url, .events = o->quiet ? NULL : &events };
    static struct worker w;
    const struct sigaction on_term = { .sa_handler = stop_take };
    struct queue_counts counts;
    struct rusage use;
    double seconds;
    pthread_t commit;
    struct error err;
    status st;

    sigaction(SIGTERM, &on_term, NULL);
    w.o = *o;
    w.dice = (uint64_t)clock_wall_ns();
    st = queue_open(&cfg, &job, &w.q, &err);
    if (st != ST_OK) {
        fprintf(stderr, "kafka_echo: open: %s: %s\n", status_name(st), err.text);
        return 2;
    }
    w.records = bqueue_open(100000);
    if (pthread_create(&commit, NULL, commit_run, &w) != 0)
        return 2;
    poll_run(&w);
    bqueue_close(w.records);
    pthread_join(commit, NULL);
    queue_read_counts(w.q, &counts);
    getrusage(RUSAGE_SELF, &use);
    seconds = (double)(w.last_ns - w.first_ns) / 1e9;
    queue_leave(w.q, clock_mono_ns() + 3 * NS_PER_S);
    printf("{\"polled\": %lld, \"durable\": %lld, \"lost\": %lld, \"retries\": %lld, \"groups\": %lld, \"seconds\": %.3f, "
           "\"records_per_s\": %.0f, \"cpu_s\": %.2f, \"rss_kb\": %ld, ", (long long)w.polled_n, (long long)w.durable_n,
           (long long)w.lost_n, (long long)w.retries_n, (long long)w.groups_n, seconds,
           seconds > 0 ? (double)w.durable_n / seconds : 0, (double)clock_cpu_ns() / 1e9, use.ru_maxrss);
    printf("\"commits\": %" PRId64 ", \"commit_ms_p99\": %" PRId64 ", \"commit_ms_max\": %" PRId64 ", \"remade\": %" PRId64
           ", \"fences\": %" PRId64 ", \"rebalances\": %" PRId64 ", \"skipped\": %" PRId64 ", \"dead\": %" PRId64
           ", \"lag\": %" PRId64 "}\n", counts.commits_n, counts.commit_ms_p99, counts.commit_ms_max, counts.producers_remade_n,
           counts.fences_n, counts.rebalances_n, counts.skipped_n, counts.dead_n, counts.lag_n);
    fflush(stdout);
    for (void *left[1]; bqueue_pop(w.records, left, 1, 0) > 0;)
        queue_record_give(w.q, left[0]);
    bqueue_free(w.records);
    while (w.kept_n > 0)
        queue_record_give(w.q, w.kept[--w.kept_n]);
    free(w.kept);
    queue_close(w.q);
    return w.exit_code;
}

/* ---- audit: reads the topics alone ---- */

struct part {                              /* of the prompts: one byte an offset */
    unsigned char *answers;
    int64_t n;
};

static const struct record *scan_next(struct topic_scan *s)
{
    const struct record *r;
    struct error err;
    status st;

    while ((st = topic_scan_next(s, 1000, &r, &err)) == ST_AGAIN)
        if (topic_scan_ended(s))
            return NULL;
    if (st != ST_OK)
        die("scan", &err);
    return r;
}

enum { IS_INPUT = 0x80 };

static struct part *inputs_read(struct topics *t, int32_t *parts_n, int64_t *inputs_n)
{
    struct topic_scan *s;
    const struct record *r;
    struct part *part;
    struct error err;

    if (topic_scan_open(t, TOPIC_PROMPTS, NULL, false, &s, &err) != ST_OK)
        die("scan", &err);
    *parts_n = topic_scan_partitions(s);
    part = mem_take_zero((size_t)*parts_n, sizeof part[0]);
    for (int32_t i = 0; i < *parts_n; i++) {
        part[i].n = topic_scan_range(s, i).high;
        part[i].answers = mem_take_zero((size_t)part[i].n + 1, 1);
    }
    *inputs_n = 0;
    while ((r = scan_next(s)) != NULL)
        if (r->value != NULL && r->offset < part[r->source].n) {
            part[r->source].answers[r->offset] = IS_INPUT;
            ++*inputs_n;
        }
    topic_scan_close(s);
    return part;
}

static int64_t answers_read(struct topics *t, enum topic_kind kind, struct part *part, int32_t parts_n, int64_t *orphans_n)
{
    struct topic_scan *s;
    const struct record *r;
    int64_t n = 0;
    struct error err;

    if (topic_scan_open(t, kind, NULL, false, &s, &err) != ST_OK)
        die("scan", &err);
    while ((r = scan_next(s)) != NULL) {
        const struct header *id = topic_header(r, "ns-id");
        char text[320] = "", *slash;
        long source = -1;
        long long offset = -1;

        n++;
        if (id != NULL && id->value_n < sizeof text)
            memcpy(text, id->value, id->value_n);
        slash = strchr(text, '/');
        if (slash == NULL || sscanf(slash, "/%ld/%lld", &source, &offset) != 2 || source < 0 || source >= parts_n ||
            offset < 0 || offset >= part[source].n || part[source].answers[offset] == 0)
            ++*orphans_n;
        else if ((part[source].answers[offset] & 0x7f) < 0x7f)
            part[source].answers[offset]++;
    }
    topic_scan_close(s);
    return n;
}

/* I4: nothing below the LWM lacks its answer. I5: nor does anything whose bit is set. */
static int64_t marks_check(struct topics *t, const struct part *part)
{
    struct topic_commit *commit;
    int64_t wrong_n = 0;
    int32_t n;
    struct error err;

    if (topic_read_commits(t, cfg.kafka_group, &commit, &n, &err) != ST_OK)
        die("commits", &err);
    for (int32_t i = 0; i < n; i++) {
        struct tracker *marks;
        char hash[9];

        if (commit[i].offset < 0)
            continue;
        if (tracker_decode(commit[i].metadata != NULL ? commit[i].metadata : "", commit[i].offset, 1 << 20, hash, &marks, &err) != ST_OK)
            die("marks", &err);
        for (int64_t o = 0; o < part[i].n; o++)
            wrong_n += part[i].answers[o] == IS_INPUT && tracker_is_done(marks, o);
        tracker_close(marks);
    }
    topic_commits_free(commit, n);
    return wrong_n;
}

static int audit(const char *url)
{
    struct topics *t;
    struct part *part;
    int32_t parts_n;
    int64_t inputs_n, results_n, dead_n, missing_n = 0, doubled_n = 0, orphans_n = 0, marks_n;
    struct error err;

    if (topics_open(&cfg, url, &t, &err) != ST_OK)
        die("open", &err);
    part = inputs_read(t, &parts_n, &inputs_n);
    results_n = answers_read(t, TOPIC_RESULTS, part, parts_n, &orphans_n);
    dead_n = answers_read(t, TOPIC_DEAD, part, parts_n, &orphans_n);
    for (int32_t i = 0; i < parts_n; i++)
        for (int64_t o = 0; o < part[i].n; o++) {
            missing_n += part[i].answers[o] == IS_INPUT;
            doubled_n += (part[i].answers[o] & 0x7f) > 1;
        }
    marks_n = marks_check(t, part);
    printf("{\"inputs\": %" PRId64 ", \"results\": %" PRId64 ", \"dead\": %" PRId64 ", \"missing\": %" PRId64 ", \"doubled\": %" PRId64
           ", \"orphans\": %" PRId64 ", \"marks_without_result\": %" PRId64 "}\n", inputs_n, results_n, dead_n, missing_n, doubled_n,
           orphans_n, marks_n);
    for (int32_t i = 0; i < parts_n; i++)
        free(part[i].answers);
    free(part);
    topics_close(t);
    return missing_n + doubled_n + orphans_n + marks_n > 0;
}

static int commits_print(const char *url)
{
    struct topic_commit *commit;
    struct topics *t;
    int32_t n;
    struct error err;

    if (topics_open(&cfg, url, &t, &err) != ST_OK)
        die("open", &err);
    if (topic_read_commits(t, cfg.kafka_group, &commit, &n, &err) != ST_OK)
        die("commits", &err);
    for (int32_t i = 0; i < n; i++)
        printf("%" PRId32 " %" PRId64 " %s\n", i, commit[i].offset, commit[i].metadata != NULL ? commit[i].metadata : "");
    topic_commits_free(commit, n);
    topics_close(t);
    return 0;
}

static int commit_write(const char *url, int32_t partition, int64_t offset, const char *metadata)
{
    struct topics *t;
    struct error err;

    if (topics_open(&cfg, url, &t, &err) != ST_OK)
        die("open", &err);
    if (topic_write_commit(t, cfg.kafka_group, partition, offset, metadata, &err) != ST_OK)
        die("commit", &err);
    topics_close(t);
    return 0;
}

/* Takes every flag; returns how many other arguments there are. */
static int flags_read(int argc, char **argv, struct options *o)
{
    const struct { const char *name; int64_t *to; } numbers[] = {
        { "--idle-ms", &o->idle_ms }, { "--hold", &o->hold }, { "--every", &o->every_ms }, { "--dead", &o->dead }, { "--lose", &o->lose },
    };
    struct error err;
    int n = 0;

    for (int i = 1; i < argc; i++) {
        size_t k = 0;

        if (strcmp(argv[i], "--quiet") == 0) {
            o->quiet = true;
            continue;
        }
        if (strcmp(argv[i], "--set") == 0 && i + 1 < argc) {
            if (config_set_pair(&cfg, argv[++i], &err) != ST_OK)
                die("setting", &err);
            continue;
        }
        while (k < sizeof numbers / sizeof numbers[0] && strcmp(argv[i], numbers[k].name) != 0)
            k++;
        if (k < sizeof numbers / sizeof numbers[0] && i + 1 < argc)
            *numbers[k].to = strtoll(argv[++i], NULL, 10);
        else
            argv[n++] = argv[i];
    }
    return n;
}

int main(int argc, char **argv)
{
    struct options o = { .idle_ms = 0 };
    enum log_level level;
    int n;

    config_defaults(&cfg);
    n = flags_read(argc, argv, &o);
    if (failpoint_arm(config_env("NIGHTSHIFT_FAILPOINT")) != ST_OK || log_level_parse(cfg.log_level, &level) != ST_OK)
        return 1;
    log_level_set(level);
    o.url = n > 1 ? argv[1] : NULL;
    if (n == 5 && strcmp(argv[0], "fill") == 0)
        return fill(argv[1], strtoll(argv[2], NULL, 10), (size_t)strtoull(argv[3], NULL, 10), (int32_t)strtol(argv[4], NULL, 10));
    if (n == 2 && strcmp(argv[0], "work") == 0)
        return work(&o);
    if (n == 2 && strcmp(argv[0], "audit") == 0)
        return audit(argv[1]);
    if (n == 2 && strcmp(argv[0], "commits") == 0)
        return commits_print(argv[1]);
    if (n == 5 && strcmp(argv[0], "commit") == 0)
        return commit_write(argv[1], (int32_t)strtol(argv[2], NULL, 10), strtoll(argv[3], NULL, 10), argv[4]);
    if (n == 2 && strcmp(argv[0], "odd") == 0)
        return odd_write(&cfg, argv[1]);
    if (n == 2 && strcmp(argv[0], "odd-check") == 0)
        return odd_check(&cfg, argv[1]);
    fprintf(stderr, "usage: the first lines of tests/live/kafka_echo.c\n");
    return 1;
}
