/* bench_kernels [--json] [--attention cases] [--cpu-time] [--set name=value] [rows ...]: until `nightshift bench kernels` takes it over.
 * --cpu-time, with threads=1: counts the thread's own time, for a machine that others use, too. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tools/bench/bench_attention.h"
#include "tools/bench/bench_kernels.h"

static int64_t thread_ns(void *ctx)
{
    (void)ctx;
    return clock_thread_cpu_ns();
}

static const struct clock cpu_clock = { thread_ns, thread_ns, NULL };

int main(int argc, char **argv)
{
    int rows[64] = { 1, 2, 4, 8, 13, 16, 32, 33, 64, 96, 128, 512 }, given_n = 0, i;
    struct bench_kernels b = { .decoder = bench_smollm2_135m, .rows = rows, .rows_n = 12, .wanted_max = 96,
                               .seconds = 1.5 };
    struct bench_attention a = { .decoder = bench_smollm2_135m, .seconds = 1.5 };
    struct config cfg;
    struct error err = { "" };
    struct device *d = NULL;
    status st;

    config_defaults(&cfg);
    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            b.json = a.json = true;
        } else if (strcmp(argv[i], "--cpu-time") == 0) {
            clock_use(&cpu_clock);
        } else if (strcmp(argv[i], "--attention") == 0 && i + 1 < argc) {
            a.cases = argv[++i];
        } else if (strcmp(argv[i], "--set") == 0 && i + 1 < argc) {
            if (config_set_pair(&cfg, argv[++i], &err) != ST_OK)
                goto usage;
        } else if (atoi(argv[i]) > 0 && atoi(argv[i]) <= cfg.step_rows_max && given_n < 64) {
            rows[given_n++] = atoi(argv[i]);
            b.rows_n = given_n;
        } else {
            error_set(&err, ST_REJECT, "usage: bench_kernels [--json] [--attention cases] [--cpu-time] [--set name=value] [rows ...]");
            goto usage;
        }
    }
    st = device_open(&cfg, &d, &err);
    if (st == ST_OK)
        st = a.cases != NULL ? bench_attention_run(d, &a, stdout, &err) : bench_kernels_run(d, &b, stdout, &err);
    device_close(d);
    if (st == ST_OK)
        return 0;
usage:
    fprintf(stderr, "%s\n", err.text);
    return 1;
}
