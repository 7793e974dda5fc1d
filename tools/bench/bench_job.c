#define _POSIX_C_SOURCE 200809L
#include "tools/bench/bench_job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/bench/bench_step.h"
#include "worker/pipeline/pipeline.h"

struct bench {
    char folder[64], output[80];
    double open_s, wall_s;
    struct pipeline_counts counts;
    struct model_shape shape;              /* its texts are gone with the model */
    struct device_ceilings ceilings;
};

static status folder_make(struct bench *b, struct error *err)
{
    strcpy(b->folder, "/tmp/nightshift-bench-XXXXXX");
    if (mkdtemp(b->folder) == NULL)
        return error_set(err, ST_REJECT, "no folder can be made in /tmp: %s", strerror(errno));
    snprintf(b->output, sizeof b->output, "%s/out.jsonl", b->folder);
    return ST_OK;
}

static void folder_remove(const struct bench *b)
{
    static const char *const ends[] = { "", ".job", ".lock", ".progress", ".progress-wal", ".progress-shm" };
    char path[128];

    if (b->output[0] == '\0')
        return;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(path, sizeof path, "%s%s", b->output, ends[i]);
        unlink(path);
    }
    rmdir(b->folder);
}

/* The better of two moments: what disturbs the machine now and then is no ceiling. */
static status ceilings_measure(const struct config *cfg, struct bench *b, struct error *err)
{
    struct device_ceilings now;
    struct device *d = NULL;
    status st;

    TRY(device_open(cfg, &d, err));
    st = device_measure(d, &now);
    if (st != ST_OK)
        error_set(err, st, "the device's ceilings cannot be measured");
    else if (now.dot_flops > b->ceilings.dot_flops)
        b->ceilings = now;
out:
    device_close(d);
    return st;
}

static status job_run(const struct config *cfg, const struct bench_job *options, struct bench *b, struct error *err)
{
    struct pipeline_job job = { .model_path = options->model_path,
                                .queue = { .url = "file:", .input = options->input, .output = b->output } };
    int64_t begun = clock_mono_ns();
    struct pipeline *p = NULL;
    int exit_code;
    status st;

    TRY(pipeline_open(cfg, &job, &p, &exit_code, err));
    b->open_s = (double)(clock_mono_ns() - begun) / NS_PER_S;
    b->shape = *pipeline_model(p);
    pipeline_start(p);
    while (!pipeline_ended(p))
        nanosleep(&(struct timespec){ .tv_nsec = NS_PER_MS }, NULL);
    exit_code = pipeline_join(p, err);
    b->wall_s = (double)(clock_mono_ns() - begun) / NS_PER_S;
    pipeline_read_counts(p, &b->counts);
    st = exit_code == EXIT_CODE_DONE ? ST_OK : ST_REJECT;
out:
    pipeline_close(p);
    return st;
}

static void report(const struct bench *b, bool json, FILE *out)
{
    const struct engine_counts *e = &b->counts.engine;
    double flops = bench_row_flops(&b->shape) * (double)e->rows_n + 2.0 * b->shape.dim * b->shape.vocab * (double)e->output_tokens;
    double share = flops / b->wall_s / b->ceilings.dot_flops;
    int64_t lines = b->counts.done_n + b->counts.failed_n;

    fprintf(out, json ? "{\"lines\": %lld, \"failed\": %lld, \"wall_s\": %.2f, \"open_s\": %.2f, \"lines_s\": %.2f, \"tok_in_s\": %.0f, "
                        "\"tok_computed_s\": %.0f, \"tok_out_s\": %.0f, \"dot_gflops\": %.0f, \"peak_share\": %.3f}\n"
                      : "job: %lld lines (%lld failed) in %.2f s, %.2f s of it to load: %.2f lines/s\n"
                        "tok/s: %.0f in, %.0f rows computed, %.0f out\n"
                        "products of all rows: dot-product peak %.0f GFLOP/s, %.2f of it\n",
            (long long)lines, (long long)b->counts.failed_n, b->wall_s, b->open_s, (double)lines / b->wall_s,
            (double)e->prompt_tokens / b->wall_s, (double)e->rows_n / b->wall_s, (double)e->output_tokens / b->wall_s,
            b->ceilings.dot_flops / 1e9, share);
}

status bench_job_run(const struct config *cfg, const struct bench_job *options, FILE *out, struct error *err)
{
    struct bench b = { .folder = "" };
    status st;

    TRY(folder_make(&b, err));
    TRY(ceilings_measure(cfg, &b, err));
    TRY(job_run(cfg, options, &b, err));
    TRY(ceilings_measure(cfg, &b, err));
    report(&b, options->json, out);
out:
    folder_remove(&b);
    return st;
}
