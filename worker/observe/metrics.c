/* One walk over all families; what a family looks like is decided by the page: text for Prometheus, JSON for /status. */
#define _DEFAULT_SOURCE
#include "worker/observe/metrics.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"

enum type { GAUGE, COUNTER };

struct page {
    struct buf *out;
    bool json;
    bool inside;                   /* JSON: something stands before in this object */
    const char *name;
};

/* ---- the two forms ---- */

static void comma(struct page *p)
{
    if (p->inside)
        buf_add_text(p->out, ", ");
    p->inside = true;
}

static void head(struct page *p, const char *name, enum type type, const char *help)
{
    p->name = name;
    if (!p->json)
        buf_add_format(p->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type == COUNTER ? "counter" : "gauge");
}

static void whole(struct page *p, int64_t value)
{
    if (p->json) {
        comma(p);
        buf_add_format(p->out, "\"%s\": %" PRId64, p->name, value);
    } else {
        buf_add_format(p->out, "%s %" PRId64 "\n", p->name, value);
    }
}

static void real(struct page *p, double value)
{
    if (p->json) {
        comma(p);
        buf_add_format(p->out, "\"%s\": %.9g", p->name, value);
    } else {
        buf_add_format(p->out, "%s %.9g\n", p->name, value);
    }
}

/* A label's value in quotes: backslash, quote and newline are escaped, as the exposition format says. */
static void label_value(struct buf *b, const char *text)
{
    buf_add_byte(b, '"');
    for (; *text != '\0'; text++) {
        if (*text == '\\' || *text == '"')
            buf_add_byte(b, '\\');
        if (*text == '\n')
            buf_add_text(b, "\\n");
        else
            buf_add_byte(b, *text);
    }
    buf_add_byte(b, '"');
}

/* A family with one label: in JSON an object of its values. */
static void labelled_open(struct page *p)
{
    if (!p->json)
        return;
    comma(p);
    buf_add_format(p->out, "\"%s\": {", p->name);
    p->inside = false;
}

static void labelled(struct page *p, const char *label, const char *text, int64_t value)
{
    if (p->json) {
        comma(p);
        buf_add_json(p->out, text);
        buf_add_format(p->out, ": %" PRId64, value);
        return;
    }
    buf_add_format(p->out, "%s{%s=", p->name, label);
    label_value(p->out, text);
    buf_add_format(p->out, "} %" PRId64 "\n", value);
}

static void labelled_close(struct page *p)
{
    if (p->json)
        buf_add_byte(p->out, '}');
    p->inside = true;
}

/* ---- values ---- */

static double seconds(int64_t ns)
{
    return (double)ns / 1e9;
}

static double milliseconds(int64_t ms)
{
    return (double)ms / 1e3;
}

static double microseconds(int64_t us)
{
    return (double)us / 1e6;
}

static double drain_s(const struct worker_view *v)
{
    return v->drain_begun_ns == 0 ? 0 : seconds((v->drain_ended_ns != 0 ? v->drain_ended_ns : v->now_ns) - v->drain_begun_ns);
}

/* ---- families ---- */

static void info(struct page *p, const struct worker_view *v)
{
    if (p->json)
        return;                    /* stands in /status by name */
    head(p, "nightshift_build_info", GAUGE, "Which program this is.");
    buf_add_format(p->out, "nightshift_build_info{version=\"%s\"} 1\n", v->version);
    if (!v->opened)
        return;
    head(p, "nightshift_model_info", GAUGE, "Which model answers, on which device.");
    buf_add_text(p->out, "nightshift_model_info{model=");
    label_value(p->out, v->model);
    buf_add_text(p->out, ",quant=");
    label_value(p->out, v->quant);
    buf_add_text(p->out, ",device=");
    label_value(p->out, v->device);
    buf_add_text(p->out, ",isa=");
    label_value(p->out, v->isa);
    buf_add_text(p->out, "} 1\n");
}

static void states(struct page *p, const struct worker_view *v)
{
    head(p, "nightshift_state", GAUGE, "1 for the state that the worker is in.");
    labelled_open(p);
    for (int s = WORKER_LOADING; s <= WORKER_ENDED; s++)
        labelled(p, "state", worker_state_name((enum worker_state)s), (int)v->state == s);
    labelled_close(p);
}

#define NOTICE_FAMILY(name, help, field) \
    head(p, name, COUNTER, help); \
    labelled_open(p); \
    for (int i = 0; i < v->sources_n; i++) \
        labelled(p, "from", v->sources[i].from, v->sources[i].field); \
    labelled_close(p)

static void notices(struct page *p, const struct worker_view *v)
{
    NOTICE_FAMILY("nightshift_notices_total", "Notices that this process or machine goes.", notices_n);
    NOTICE_FAMILY("nightshift_notice_requests_total", "How often a source of notices was asked.", asked_n);
    NOTICE_FAMILY("nightshift_notice_failures_total", "Of them, without a usable answer.", failed_n);
}

static void results(struct page *p, const struct pipeline_counts *c)
{
    head(p, "nightshift_results_total", COUNTER, "Durable results by kind.");
    labelled_open(p);
    labelled(p, "kind", "output", c->done_n);
    labelled(p, "kind", "failure", c->failed_n);
    labelled_close(p);
    head(p, "nightshift_dlq_total", COUNTER, "Dead letters (of a file: error lines) by class.");
    labelled_open(p);
    for (int i = 0; i < c->failures_n; i++)
        labelled(p, "class", c->failures[i].code, c->failures[i].n);
    labelled_close(p);
    head(p, "nightshift_txn_abort_total", COUNTER, "Transactions that were aborted, by reason; their results went into the next.");
    labelled_open(p);
    for (int i = 0; i < c->queue.aborts_n; i++)
        labelled(p, "reason", c->queue.aborts[i].reason, c->queue.aborts[i].n);
    labelled_close(p);
    head(p, "nightshift_ckpt_errors_total", COUNTER, "Calls to the progress store that failed, by class.");
    labelled_open(p);
    for (int i = 0; i < CKPT_ERRORS_N; i++)
        labelled(p, "class", ckpt_error_name((enum ckpt_error)i), c->ckpt.errors_n[i]);
    labelled_close(p);
}

/* What every process shows under names of its own (Prometheus, "Writing client libraries: process metrics"). */
static int64_t resident_bytes(void)
{
    long long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    if (f == NULL)
        return 0;
    if (fscanf(f, "%lld %lld", &size, &resident) != 2)
        resident = 0;
    fclose(f);
    return resident * sysconf(_SC_PAGESIZE);
}

static int64_t open_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int64_t n = -3;                /* ".", "..", and the folder itself */

    if (d == NULL)
        return 0;
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n;
}

static void process(struct page *p, const struct worker_view *v)
{
    struct rlimit fds = { 0 };

    getrlimit(RLIMIT_NOFILE, &fds);
    head(p, "process_start_time_seconds", GAUGE, "Start time of the process since the Unix epoch in seconds.");
    if (p->json) {
        comma(p);
        buf_add_format(p->out, "\"process_start_time_seconds\": %.3f", v->started_s);
    } else {
        buf_add_format(p->out, "process_start_time_seconds %.3f\n", v->started_s);
    }
    head(p, "process_cpu_seconds_total", COUNTER, "Total user and system CPU time spent in seconds.");
    real(p, seconds(clock_cpu_ns()));
    head(p, "process_resident_memory_bytes", GAUGE, "Resident memory size in bytes.");
    whole(p, resident_bytes());
    head(p, "process_open_fds", GAUGE, "Number of open file descriptors.");
    whole(p, open_fds());
    head(p, "process_max_fds", GAUGE, "Maximum number of open file descriptors.");
    whole(p, (int64_t)fds.rlim_cur);
}

/* A value below 0 has no meaning for this queue or store. */
static void plain_whole(struct page *p, const char *name, enum type type, const char *help, int64_t value)
{
    if (value < 0)
        return;
    head(p, name, type, help);
    whole(p, value);
}

static void plain_real(struct page *p, const char *name, enum type type, const char *help, double value)
{
    if (value < 0)
        return;
    head(p, name, type, help);
    real(p, value);
}

static void plain(struct page *p, const struct worker_view *v, const struct config *cfg)
{
    const char *dead = view_dead_why(v, cfg), *unready = view_unready_why(v, cfg);
    const struct pipeline_counts *c = &v->counts;
    const struct engine_counts *e = &c->engine;
    const struct queue_counts *q = &c->queue;
    const struct ckpt_counts *s = &c->ckpt;

#define METRIC(name, type, value, help) plain_whole(p, "nightshift_" #name, type, help, (int64_t)(value));
#define METRIC_REAL(name, type, value, help) plain_real(p, "nightshift_" #name, type, help, value);
#define OPENED if (!v->opened) return;
#include "worker/observe/metrics.def"
#undef METRIC
#undef METRIC_REAL
#undef OPENED
    results(p, c);
}

static void families(struct page *p, const struct worker_view *v, const struct config *cfg)
{
    info(p, v);
    states(p, v);
    notices(p, v);
    process(p, v);
    plain(p, v, cfg);
}

void metrics_text(const struct worker_view *v, const struct config *cfg, struct buf *out)
{
    struct page p = { .out = out };

    families(&p, v, cfg);
}

/* ---- /status ---- */

static void why(struct buf *b, const char *name, const char *reason)
{
    buf_add_format(b, ", \"%s\": %s, \"%s_why\": ", name, reason == NULL ? "true" : "false", name);
    buf_add_json(b, reason);
}

void metrics_status(const struct worker_view *v, const struct config *cfg, struct buf *out)
{
    struct page p = { .out = out, .json = true };

    buf_add_format(out, "{\"version\": \"%s\", \"pid\": %ld, \"state\": \"%s\"", v->version, (long)getpid(), worker_state_name(v->state));
    why(out, "alive", view_dead_why(v, cfg));
    why(out, "ready", view_unready_why(v, cfg));
    buf_add_format(out, ", \"uptime_seconds\": %.3f, \"queue\": ", (double)clock_wall_ns() / 1e9 - v->started_s);
    buf_add_json(out, v->queue_url);
    buf_add_text(out, ", \"drain\": ");
    if (v->drain_begun_ns == 0)
        buf_add_text(out, "null");
    else
        buf_add_format(out, "{\"since_seconds\": %.3f, \"left_seconds\": %.3f}", drain_s(v),
                       v->drain_end_ns > v->now_ns ? seconds(v->drain_end_ns - v->now_ns) : 0.0);
    buf_add_text(out, ", \"notice_sources\": {");
    for (int i = 0; i < v->sources_n; i++)
        buf_add_format(out, "%s\"%s\": \"%s\"", i ? ", " : "", v->sources[i].from, v->sources[i].state);
    buf_add_text(out, "}");
    if (v->opened) {
        buf_add_text(out, ", \"model\": ");
        buf_add_json(out, v->model);
        buf_add_text(out, ", \"quant\": ");
        buf_add_json(out, v->quant);
        buf_add_text(out, ", \"device\": ");
        buf_add_json(out, v->device);
        buf_add_text(out, ", \"isa\": ");
        buf_add_json(out, v->isa);
    }
    buf_add_text(out, ", \"counts\": {");
    families(&p, v, cfg);
    buf_add_text(out, "}}\n");
}
