/* notice_watch [NAME=VALUE ...]: the notice thread alone, for tests that play signals and metadata services to it.
 * Prints "open", then one line a notice: kind, from, milliseconds left, text. Commands on stdin, one a line:
 * "state" (one line a source), "post SECONDS", "ack" (prints "acknowledged"), "quit" (or the end of stdin). */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "worker/preempt/notice.h"

static void arrived(void *ctx, const struct notice *n)
{
    int64_t left_ms = n->deadline_ns != 0 ? (n->deadline_ns - clock_mono_ns()) / NS_PER_MS : -1;

    (void)ctx;
    printf("notice %s %s %" PRId64 " %s\n", notice_kind_name(n->kind), notice_from_name(n->from), left_ms, n->text);
    fflush(stdout);
}

static void state_print(struct notices *n)
{
    struct notice_state states[NOTICE_FROM_N];

    notices_read_state(n, states);
    for (int i = 0; i < NOTICE_FROM_N; i++)
        printf("state %s %s %" PRId64 " %" PRId64 " %" PRId64 "\n", notice_from_name((enum notice_from)i),
               notice_source_state_name(states[i].state), states[i].asked_n, states[i].failed_n, states[i].notices_n);
    puts("state end");
}

static void post(struct notices *n, const char *line)
{
    struct notice notice = { .kind = NOTICE_DRAIN, .from = NOTICE_FROM_HTTP, .text = "posted" };

    notice.deadline_ns = clock_mono_ns() + strtol(line, NULL, 10) * NS_PER_S;
    notices_post(n, &notice);
}

int main(int argc, char **argv)
{
    struct notice_port port = { NULL, arrived };
    struct notices *n;
    struct config cfg;
    struct error err;
    char line[128];

    notices_block_signals();
    log_level_set(LOG_INFO);
    config_defaults(&cfg);
    for (int i = 1; i < argc; i++)
        if (config_set_pair(&cfg, argv[i], &err) != ST_OK) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
    puts("open");                  /* before the first notice can come */
    fflush(stdout);
    if (notices_open(&cfg, &port, &n, &err) != ST_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    while (fgets(line, sizeof line, stdin) != NULL && strncmp(line, "quit", 4) != 0) {
        if (strncmp(line, "state", 5) == 0)
            state_print(n);
        else if (strncmp(line, "post ", 5) == 0)
            post(n, line + 5);
        else if (strncmp(line, "ack", 3) == 0) {
            notices_acknowledge(n, clock_mono_ns() + 3 * NS_PER_S);
            puts("acknowledged");
        }
        fflush(stdout);
    }
    notices_close(n);
    return 0;
}
