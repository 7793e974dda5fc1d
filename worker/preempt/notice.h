/* worker/preempt/notice.h - who may say that this machine, or this process, goes: signals, the clouds' metadata services, a
 * file, POST /drain. One thread reads them all and hands each notice on at once.
 *
 * Threads:   notices_open starts the thread; port.arrived is called on it. notices_post and notices_read_state: any thread.
 * Blocking:  the thread waits for no source: requests run beside one another, each bounded in time, and only addresses are
 *            asked that need no name service; a source that hangs delays neither the others nor a signal.
 * Signals:   SIGTERM, SIGINT: drain; again: leave now; SIGQUIT: the process ends at once (exit 130).
 * Sources:   facts behind each cloud stand in its file (aws.c, gcp.c, azure.c).
 * Time:      deadlines are clock_mono_ns; what a cloud says in wall time is converted when it is read. */
#ifndef WORKER_PREEMPT_NOTICE_H
#define WORKER_PREEMPT_NOTICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"

struct notices;

enum notice_kind {
    NOTICE_REBALANCE,      /* the machine may go soon: begin nothing long. No deadline */
    NOTICE_DRAIN_SOON,     /* it goes at the deadline: what ends in time may be finished */
    NOTICE_DRAIN,          /* drain now, be gone by the deadline */
    NOTICE_LEAVE_NOW       /* asked a second time: give the sources back and go */
};

enum notice_from {
    NOTICE_FROM_SIGNAL, NOTICE_FROM_HTTP, NOTICE_FROM_FILE, NOTICE_FROM_AWS, NOTICE_FROM_GCP, NOTICE_FROM_AZURE,
    NOTICE_FROM_N
};

struct notice {
    enum notice_kind kind;
    enum notice_from from;
    int64_t deadline_ns;           /* the process should be gone by then; 0: REBALANCE */
    char text[160];                /* for the log: what was said, printable ASCII */
};

struct notice_port {
    void *ctx;
    void (*arrived)(void *ctx, const struct notice *n);        /* short; may end the process */
};

enum notice_source_state { NOTICE_OFF, NOTICE_ASKING, NOTICE_ANSWERS, NOTICE_SILENT };

struct notice_state {              /* of one source, for /status and metrics */
    enum notice_source_state state;
    int64_t asked_n, failed_n;     /* requests; of them without a usable answer */
    int64_t notices_n;
};

const char *notice_kind_name(enum notice_kind k);              /* "drain_soon" */
const char *notice_from_name(enum notice_from f);              /* "aws" */
const char *notice_source_state_name(enum notice_source_state s);

/* The first act of a process, before it has a second thread: from here on the signals above reach notices_open alone, and
 * SIGPIPE and SIGXFSZ are answers of write(), not deaths. */
void notices_block_signals(void);

/* ST_REJECT: a setting makes no sense, the error names it. */
MUST_USE status notices_open(const struct config *cfg, const struct notice_port *port, struct notices **out,
                             struct error *err);
/* Hands a notice in (POST /drain): arrives on the thread like any other. */
void notices_post(struct notices *n, const struct notice *notice);
void notices_read_state(struct notices *n, struct notice_state out[NOTICE_FROM_N]);
/* The drain is over: where the notice came from a cloud that waits for an answer (Azure), tells it that the machine may go.
 * Returns when that is done, or at the deadline. */
void notices_acknowledge(struct notices *n, int64_t until_ns);
void notices_close(struct notices *n);         /* NULL is allowed; the signals stay blocked */

#endif
