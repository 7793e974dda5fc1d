#define _POSIX_C_SOURCE 200809L
#include "worker/observe/progress.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"

#define LIVE_NS (200 * NS_PER_MS)
#define PLAIN_NS (10 * NS_PER_S)
#define PAST_NS (500 * NS_PER_MS)

static void line_wipe(void)
{
    /* A terminal that cannot be written to is no reason to stop. */
    if (write(STDERR_FILENO, "\r\033[K", 4) < 0) { }
}

void progress_init(struct progress *p)
{
    memset(p, 0, sizeof *p);
    p->live = isatty(STDERR_FILENO);
    p->started_ns = clock_mono_ns();
    /* Not live: the first line comes soon, so that a log shows that work has begun. */
    p->shown_ns = p->live ? 0 : p->started_ns - PLAIN_NS + 2 * NS_PER_S;
    if (p->live)
        log_before_line(line_wipe);
}

static void past_add(struct progress *p, const struct pipeline_counts *c, int64_t now)
{
    int last = (p->past_i + PROGRESS_PAST_N - 1) % PROGRESS_PAST_N;

    if (p->past_n > 0 && now - p->past[last].at_ns < PAST_NS)
        return;
    p->past[p->past_i].at_ns = now;
    p->past[p->past_i].in = c->engine.prompt_tokens;
    p->past[p->past_i].out = c->engine.output_tokens;
    p->past_i = (p->past_i + 1) % PROGRESS_PAST_N;
    p->past_n += p->past_n < PROGRESS_PAST_N;
}

static void duration_add(struct buf *b, double s)
{
    int64_t t = (int64_t)(s + 0.5);

    if (t < 3600)
        buf_add_format(b, "%" PRId64 ":%02" PRId64, t / 60, t % 60);
    else
        buf_add_format(b, "%" PRId64 ":%02" PRId64 ":%02" PRId64, t / 3600, t / 60 % 60, t % 60);
}

static void line_make(const struct progress *p, const struct pipeline_counts *c, int64_t now, struct buf *b)
{
    int oldest = p->past_n < PROGRESS_PAST_N ? 0 : p->past_i;
    double s = (double)(now - p->past[oldest].at_ns) / 1e9, elapsed_s = (double)(now - p->started_ns) / 1e9;
    int64_t done_n = c->done_n + c->failed_n, left_n = c->records_n - c->before_n - done_n;

    buf_add_format(b, "%" PRId64, c->before_n + done_n);
    if (c->records_n >= 0)
        buf_add_format(b, "/%" PRId64, c->records_n);
    buf_add_format(b, " lines, %" PRId64 " failed", c->before_failed_n + c->failed_n);
    if (s > 0)
        buf_add_format(b, " | tok/s in %.0f, out %.0f", (double)(c->engine.prompt_tokens - p->past[oldest].in) / s,
                       (double)(c->engine.output_tokens - p->past[oldest].out) / s);
    if (c->engine.prompt_tokens > 0)
        buf_add_format(b, ", cached %.0f %%", 100.0 * (double)c->engine.cached_tokens / (double)c->engine.prompt_tokens);
    buf_add_format(b, " | running %d, waiting %" PRId64, c->engine.running_n, c->engine.waiting_n);
    if (c->records_n >= 0 && done_n > 0) {
        buf_add_text(b, " | ETA ");
        duration_add(b, elapsed_s / (double)done_n * (double)left_n);
    }
}

void progress_show(struct progress *p, const struct pipeline_counts *c)
{
    int64_t now = clock_mono_ns();
    struct buf b = BUF_EMPTY;

    past_add(p, c, now);
    if (now - p->shown_ns < (p->live ? LIVE_NS : PLAIN_NS))
        return;
    p->shown_ns = now;
    if (p->live)
        buf_add_text(&b, "\r\033[K");
    line_make(p, c, now, &b);
    if (!p->live)
        buf_add_byte(&b, '\n');
    if (write(STDERR_FILENO, b.data, b.n) < 0) { }
    buf_fini(&b);
}

void progress_end(struct progress *p)
{
    if (!p->live)
        return;
    line_wipe();
    log_before_line(NULL);
}

/* ---- the summary ---- */

static void report_json(const struct run_report *r, struct buf *b)
{
    const struct pipeline_counts *c = r->counts;
    const struct engine_counts *e = &c->engine;

    buf_add_format(b, "{\"exit_code\": %d, \"message\": ", r->exit_code);
    buf_add_json(b, r->message);
    buf_add_format(b, ", \"lines\": %" PRId64 ", \"done\": %" PRId64 ", \"failed\": %" PRId64 ", \"before\": %" PRId64
                   ", \"before_failed\": %" PRId64 ", \"duplicate_ids\": %" PRId64 ", \"failures\": {", c->records_n,
                   c->done_n, c->failed_n, c->before_n, c->before_failed_n, c->duplicate_ids_n);
    for (int i = 0; i < c->failures_n; i++)
        buf_add_format(b, "%s\"%s\": %" PRId64, i ? ", " : "", c->failures[i].code, c->failures[i].n);
    buf_add_format(b, "}, \"prompt_tokens\": %" PRId64 ", \"cached_tokens\": %" PRId64 ", \"computed_prompt_tokens\": %"
                   PRId64 ", \"output_tokens\": %" PRId64 ", \"resumed_sequences\": %" PRId64 ", \"resumed_tokens\": %"
                   PRId64, e->prompt_tokens, e->cached_tokens, e->prefill_tokens, e->output_tokens, c->resumed_n,
                   e->resumed_tokens);
    buf_add_format(b, ", \"put_back\": %" PRId64 ", \"steps\": %" PRId64 ", \"rows\": %" PRId64
                   ", \"device_s\": %.3f, \"host_s\": %.3f, \"pages\": %d, \"evicted_pages\": %" PRId64, e->put_back_n,
                   e->steps_n, e->rows_n, e->device_s, e->host_s, c->cache.total, c->cache.evicted_pages);
    buf_add_format(b, ", \"open_s\": %.3f, \"wall_s\": %.3f, \"cpu_s\": %.3f, \"peak_memory_bytes\": %" PRId64
                   ", \"model\": ", r->open_s, r->wall_s, r->cpu_s, r->peak_memory_bytes);
    buf_add_json(b, r->model->name);
    buf_add_text(b, ", \"device\": ");
    buf_add_json(b, r->device->name);
    buf_add_text(b, ", \"isa\": ");
    buf_add_json(b, r->device->isa);
    buf_add_text(b, "}\n");
}

static void report_lines(const struct pipeline_counts *c, struct buf *b)
{
    buf_add_format(b, "lines    %" PRId64 " of %" PRId64 " have their verdict: %" PRId64 " done, %" PRId64 " failed",
                   c->before_n + c->done_n + c->failed_n, c->records_n, c->before_n - c->before_failed_n + c->done_n,
                   c->before_failed_n + c->failed_n);
    if (c->before_n > 0)
        buf_add_format(b, " (%" PRId64 " of them before this start)", c->before_n);
    buf_add_byte(b, '\n');
    for (int i = 0; i < c->failures_n; i++)
        buf_add_format(b, "         %" PRId64 " x %s\n", c->failures[i].n, c->failures[i].code);
    if (c->duplicate_ids_n > 0)
        buf_add_format(b, "warning  %" PRId64 " lines have a custom_id that an earlier line has; each was answered\n",
                       c->duplicate_ids_n);
}

static void report_text(const struct run_report *r, struct buf *b)
{
    const struct engine_counts *e = &r->counts->engine;
    double s = r->wall_s > 0 ? r->wall_s : 1e-9, busy_s = e->device_s + e->host_s;

    report_lines(r->counts, b);
    buf_add_format(b, "tokens   in %" PRId64 " (%" PRId64 " cached, %.1f %%), out %" PRId64 "\n", e->prompt_tokens,
                   e->cached_tokens, e->prompt_tokens ? 100.0 * (double)e->cached_tokens / (double)e->prompt_tokens : 0.0,
                   e->output_tokens);
    if (r->counts->resumed_n > 0)
        buf_add_format(b, "resumed  %" PRId64 " answers went on from %" PRId64 " stored tokens\n", r->counts->resumed_n,
                       e->resumed_tokens);
    buf_add_format(b, "speed    in %.0f tok/s, out %.0f tok/s, %.2f lines/s\n", (double)e->prompt_tokens / s,
                   (double)e->output_tokens / s, (double)(r->counts->done_n + r->counts->failed_n) / s);
    buf_add_format(b, "time     %.1f s wall (%.2f s of it to load), %.1f s CPU; device busy %.1f %%\n", r->wall_s,
                   r->open_s, r->cpu_s, busy_s > 0 ? 100 * e->device_s / busy_s : 0.0);
    buf_add_format(b, "memory   %.0f MiB at most\n", (double)r->peak_memory_bytes / (1 << 20));
    buf_add_format(b, "output   %s%s%s\n", r->output, r->errors != NULL ? ", failures in " : "",
                   r->errors != NULL ? r->errors : "");
}

void report_print(const struct run_report *r, bool json, FILE *out)
{
    struct buf b = BUF_EMPTY;

    if (json)
        report_json(r, &b);
    else
        report_text(r, &b);
    fwrite(b.data, 1, b.n, out);
    buf_fini(&b);
}
