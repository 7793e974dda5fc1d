/* worker/worker.h - what the parts of nightshift-worker share. Private to the daemon: main.c, options.c, watch.c, look.c.
 *
 * Threads of this file's own: main (the life of the process, as a list in main.c), watch (a tick each 250 ms), and what they
 * start: notices, http, the pipeline's. `pipeline` is set once and stays valid until the threads that use it have ended. */
#ifndef WORKER_WORKER_H
#define WORKER_WORKER_H

#include <pthread.h>
#include <stdatomic.h>

#include "worker/observe/http.h"
#include "worker/observe/view.h"
#include "worker/preempt/drain.h"
#include "worker/preempt/notice.h"

struct worker {
    struct config cfg;
    struct pipeline_job job;
    bool topic;                                /* an endless queue: stopping is no loss, it ends with 0 */
    char queue_shown[CONF_TEXT_MAX];           /* the URL without what may be secret */
    double started_s;

    struct notices *notices;
    struct http *http;
    pthread_t watch;
    bool watching;
    atomic_bool watch_stop;

    pthread_mutex_t lock;                      /* of what follows */
    enum worker_state state;
    struct pipeline *pipeline;                 /* NULL: still loading */
    bool hinted;
    struct drain_times drain;                  /* end_ns 0: none */
    int64_t drain_begun_ns, drain_ended_ns;
    struct watchdog_silence silence;
};

/* ---- options.c ---- */

/* Fills cfg and job from the command line. Returns false when the process should end with *exit_code: --help, or a
 * mistake, which it has explained on stderr. */
bool options_read(struct worker *w, int argc, char **argv, int *exit_code);

/* ---- look.c ---- */

void worker_look(void *worker, struct worker_view *out);       /* any thread */
void worker_summary(struct worker *w);         /* one log line a minute; the main thread */

/* ---- watch.c: what the process does when it does not move ---- */

void watch_start(struct worker *w);
void watch_stop(struct worker *w);

/* ---- notices, on the notice thread (main.c) ---- */

void worker_notice(void *worker, const struct notice *n);

#endif
