/* nightshift-worker: the daemon of the pool. Below, the start order and the stop order as a list.
 *
 * Signals are blocked before the first thread, and heard before anything that takes time, so that a worker that is still
 * loading leaves at once. The port is taken before the model is loaded: /healthz answers meanwhile, and a port that another
 * has is known after a moment, not after minutes. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "worker/worker.h"

#define SUMMARY_NS (60 * NS_PER_S)
#define LOOK_MS 20
#define ACKNOWLEDGE_NS (2 * NS_PER_S)

/* ---- notices ---- */

/* Handed over is well done for a worker of a topic: another goes on. A file's job waits for the same command. */
static int stopped_code(const struct worker *w)
{
    return w->topic ? EXIT_CODE_DONE : EXIT_CODE_STOPPED;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Notices add up: each part of the drain ends when the first of them says so. */
static void times_merge(struct drain_times *t, const struct drain_times *more)
{
    if (t->end_ns == 0) {
        *t = *more;
        return;
    }
    t->plan.finish_until_ns = earlier(t->plan.finish_until_ns, more->plan.finish_until_ns);
    t->plan.save_until_ns = earlier(t->plan.save_until_ns, more->plan.save_until_ns);
    t->plan.commit_until_ns = earlier(t->plan.commit_until_ns, more->plan.commit_until_ns);
    t->plan.leave_until_ns = earlier(t->plan.leave_until_ns, more->plan.leave_until_ns);
    t->end_ns = earlier(t->end_ns, more->end_ns);
}

void worker_notice(void *worker, const struct notice *n)
{
    struct worker *w = worker;
    int64_t now = clock_mono_ns();
    struct drain_times times = n->kind == NOTICE_LEAVE_NOW ? drain_times_leave(now) : drain_times_make(now, n->deadline_ns);
    struct pipeline *p;

    pthread_mutex_lock(&w->lock);
    p = w->pipeline;
    w->hinted |= n->kind == NOTICE_REBALANCE;
    if (n->kind != NOTICE_REBALANCE) {
        times_merge(&w->drain, &times);
        if (w->drain_begun_ns == 0)
            w->drain_begun_ns = now;
        w->state = w->state == WORKER_ENDED ? WORKER_ENDED : WORKER_DRAINING;
        times = w->drain;
    }
    pthread_mutex_unlock(&w->lock);
    if (n->kind == NOTICE_REBALANCE)
        return;
    if (p == NULL) {               /* nothing was taken yet, so there is nothing to hand over */
        log_info("worker.end", "exit_code=%d why=\"asked to stop before the model was loaded\"", stopped_code(w));
        _exit(stopped_code(w));
    }
    log_info("worker.drain", "end_ms=%lld finish_ms=%lld save_ms=%lld leave_ms=%lld", (long long)((times.end_ns - now) / NS_PER_MS),
             (long long)((times.plan.finish_until_ns - now) / NS_PER_MS), (long long)((times.plan.save_until_ns - now) / NS_PER_MS),
             (long long)((times.plan.leave_until_ns - now) / NS_PER_MS));
    pipeline_drain(p, &times.plan);
}

static void drain_asked(void *worker, int64_t seconds)
{
    struct worker *w = worker;
    struct notice n = { .kind = seconds > w->cfg.drain_s ? NOTICE_DRAIN_SOON : NOTICE_DRAIN, .from = NOTICE_FROM_HTTP };

    n.deadline_ns = clock_mono_ns() + seconds * NS_PER_S;
    snprintf(n.text, sizeof n.text, "POST /drain, %lld s", (long long)seconds);
    notices_post(w->notices, &n);
}

/* ---- life ---- */

static int cannot_start(int exit_code, const char *text)
{
    log_error("worker.end", "exit_code=%d", exit_code);
    fprintf(stderr, "nightshift-worker: %s\n", text);
    return exit_code;
}

/* From here on a notice drains instead of ending the process. */
static void opened(struct worker *w, struct pipeline *p, int64_t begun_ns)
{
    pthread_mutex_lock(&w->lock);
    w->pipeline = p;
    if (w->state == WORKER_LOADING)
        w->state = WORKER_RUNNING;
    pthread_mutex_unlock(&w->lock);
    log_info("worker.loaded", "model=\"%s\" quant=%s device=\"%s\" isa=%s load_ms=%lld", pipeline_model(p)->name,
             pipeline_model(p)->quant, pipeline_device(p)->name, pipeline_device(p)->isa,
             (long long)((clock_mono_ns() - begun_ns) / NS_PER_MS));
}

static void run(struct worker *w)
{
    int64_t next_ns = clock_mono_ns() + SUMMARY_NS;

    while (!pipeline_ended(w->pipeline)) {
        nanosleep(&(struct timespec){ .tv_nsec = LOOK_MS * NS_PER_MS }, NULL);
        if (clock_mono_ns() >= next_ns) {
            worker_summary(w);
            next_ns += SUMMARY_NS;
        }
    }
}

/* The last words. drained: this process or its machine goes, and another goes on. */
static int ended(struct worker *w, int exit_code, const char *why, bool *drained)
{
    int64_t now = clock_mono_ns(), begun;

    pthread_mutex_lock(&w->lock);
    w->state = WORKER_ENDED;
    w->drain_ended_ns = now;
    begun = w->drain_begun_ns;
    pthread_mutex_unlock(&w->lock);
    *drained = begun != 0;
    if (*drained && exit_code == EXIT_CODE_STOPPED)
        exit_code = stopped_code(w);
    worker_summary(w);
    if (exit_code != EXIT_CODE_DONE && exit_code != EXIT_CODE_STOPPED)
        log_error("worker.failed", "exit_code=%d why=\"%s\"", exit_code, why);
    log_info("worker.end", "exit_code=%d drain_ms=%lld", exit_code, *drained ? (long long)((now - begun) / NS_PER_MS) : -1LL);
    return exit_code;
}

int main(int argc, char **argv)
{
    static struct worker w;        /* threads outlive main where it leaves by _exit */
    int64_t begun_ns = clock_mono_ns();
    struct pipeline *p = NULL;
    bool drained = false;
    struct error err;
    int exit_code;

    notices_block_signals();
    w.started_s = (double)clock_wall_ns() / 1e9;
    pthread_mutex_init(&w.lock, NULL);
    if (!options_read(&w, argc, argv, &exit_code))
        return exit_code;
    w.topic = strncmp(w.cfg.queue_url, "file:", 5) != 0;
    log_info("worker.start", "version=" NIGHTSHIFT_VERSION " pid=%ld queue=%s", (long)getpid(), w.queue_shown);

    /* start */
    if (notices_open(&w.cfg, &(struct notice_port){ &w, worker_notice }, &w.notices, &err) != ST_OK)
        return cannot_start(EXIT_CODE_USAGE, err.text);
    if (http_open(&w.cfg, &(struct http_port){ &w, worker_look, drain_asked }, &w.http, &err) != ST_OK)
        exit_code = cannot_start(EXIT_CODE_CANNOT_START, err.text);
    else if (failpoint("worker.load"), pipeline_open(&w.cfg, &w.job, &p, &exit_code, &err) != ST_OK)
        exit_code = cannot_start(exit_code, err.text);
    if (p != NULL) {
        opened(&w, p, begun_ns);
        watch_start(&w);
        pipeline_start(p);

        run(&w);

        /* stop */
        exit_code = ended(&w, pipeline_join(p, &err), err.text, &drained);
    }
    if (drained) {                 /* the machine goes: what a close would free is of no more use, and it might hang */
        notices_acknowledge(w.notices, earlier(clock_mono_ns() + ACKNOWLEDGE_NS, w.drain.end_ns));
        _exit(exit_code);
    }
    watch_stop(&w);
    http_close(w.http);
    notices_close(w.notices);
    pipeline_close(p);
    return exit_code;
}
