/* The notice thread: waits for signals, posts, a file and the answers of the clouds in one place, and hands notices on. */
#define _GNU_SOURCE
#include "worker/preempt/notice.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/log.h"
#include "worker/preempt/internal.h"

#define EXIT_QUIT 130
#define POSTS_MAX 8
#define WAIT_MS_MAX 1000
#define NEVER INT64_MAX

struct notices {
    const struct config *cfg;
    struct notice_port port;
    pthread_t thread;
    int signal_fd, wake_fd;
    struct fetches *fetches;
    struct source sources[NOTICE_FROM_N];      /* those without ops are off, or no clouds */
    bool file_on, file_seen;
    int64_t file_next_ns;
    int signals_n;                 /* that asked to stop; the thread only */
    struct fetch *ack;
    int64_t ack_until_ns;

    pthread_mutex_t lock;          /* of what follows */
    pthread_cond_t changed;
    bool stop;
    struct notice posts[POSTS_MAX];
    int posts_n;
    enum { ACK_NONE, ACK_WANTED, ACK_SENT, ACK_DONE } ack_state;
    struct notice_state states[NOTICE_FROM_N];
};

/* ---- names ---- */

const char *notice_kind_name(enum notice_kind k)
{
    static const char *const names[] = { "rebalance", "drain_soon", "drain", "leave_now" };

    return names[k];
}

const char *notice_from_name(enum notice_from f)
{
    static const char *const names[] = { "signal", "http", "file", "aws", "gcp", "azure" };

    return names[f];
}

const char *notice_source_state_name(enum notice_source_state s)
{
    static const char *const names[] = { "off", "asking", "answers", "silent" };

    return names[s];
}

void text_printable(const char *text, char *out, size_t out_n)
{
    size_t n = 0;

    for (; text[n] != '\0' && n + 1 < out_n; n++)
        out[n] = text[n] >= ' ' && text[n] <= '~' && text[n] != '"' ? text[n] : '?';
    out[n] = '\0';
}

/* ---- handing on ---- */

static void hand_on(struct notices *n, const struct notice *notice)
{
    pthread_mutex_lock(&n->lock);
    n->states[notice->from].notices_n++;
    pthread_mutex_unlock(&n->lock);
    log_warn("notice.arrived", "kind=%s from=%s left_ms=%lld text=\"%s\"", notice_kind_name(notice->kind), notice_from_name(notice->from),
             notice->deadline_ns == 0 ? -1LL : (long long)((notice->deadline_ns - clock_mono_ns()) / NS_PER_MS), notice->text);
    n->port.arrived(n->port.ctx, notice);
}

static void state_set(struct source *s, enum notice_source_state state, int asked, int failed)
{
    struct notice_state *st = &s->notices->states[s->from];

    pthread_mutex_lock(&s->notices->lock);
    st->state = state;
    st->asked_n += asked;
    st->failed_n += failed;
    pthread_mutex_unlock(&s->notices->lock);
}

/* ---- what sources call ---- */

void source_fetch(struct source *s, const struct request_plan *plan)
{
    s->busy = true;
    s->next_ns = NEVER;
    fetch_begin(s->fetch, plan);
}

void source_found(struct source *s)
{
    if (s->probing || s->complained)
        log_info("notice.source", "from=%s state=answers", notice_from_name(s->from));
    s->probing = false;
}

void source_round_ended(struct source *s, int64_t period_ms)
{
    int64_t now = clock_mono_ns(), next = s->begun_ns + period_ms * NS_PER_MS;

    source_found(s);
    s->complained = false;
    s->next_ns = next > now ? next : now;
    state_set(s, NOTICE_ANSWERS, 1, 0);
}

void source_round_failed(struct source *s, const char *what, const struct answer *a)
{
    char why[160];

    if (s->probing) {              /* we are not on this cloud */
        s->ops = NULL;
        s->next_ns = NEVER;
        state_set(s, NOTICE_OFF, 1, 1);
        return;
    }
    if (!s->complained) {
        text_printable(a->failure != NULL ? a->failure : "", why, sizeof why);
        log_warn("notice.source", "from=%s state=silent what=\"%s\" http_status=%d why=\"%s\"", notice_from_name(s->from), what, a->status, why);
    }
    s->complained = true;
    s->next_ns = s->begun_ns + s->cfg->notice_poll_ms * NS_PER_MS;
    state_set(s, NOTICE_SILENT, 1, 1);
}

void source_notice(struct source *s, enum notice_kind kind, int64_t deadline_ns, const char *fmt, ...)
{
    struct notice notice = { .kind = kind, .from = s->from, .deadline_ns = deadline_ns };
    char text[sizeof s->seen];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (strcmp(text, s->seen) == 0)
        return;
    /* A rebalance hint comes beside an interruption in every round: only what ends the machine is remembered as the last. */
    if (kind != NOTICE_REBALANCE)
        memcpy(s->seen, text, sizeof text);
    else if (s->hinted)
        return;
    s->hinted |= kind == NOTICE_REBALANCE;
    text_printable(text, notice.text, sizeof notice.text);
    hand_on(s->notices, &notice);
}

/* ---- clouds ---- */

static void source_answered(void *source, const struct answer *a)
{
    struct source *s = source;

    s->busy = false;
    s->ops->answered(s, a);
}

static void sources_ask(struct notices *n)
{
    int64_t now = clock_mono_ns();

    for (int i = 0; i < NOTICE_FROM_N; i++) {
        struct source *s = &n->sources[i];

        if (s->ops == NULL || s->busy || now < s->next_ns)
            continue;
        s->begun_ns = now;
        s->ops->ask(s);
    }
}

/* Turns the sources of the setting on. */
static status sources_choose(struct notices *n, struct error *err)
{
    static const struct { const char *word; enum notice_from from; const struct source_ops *ops; } known[] = {
        { "aws", NOTICE_FROM_AWS, &source_aws }, { "gcp", NOTICE_FROM_GCP, &source_gcp },
        { "azure", NOTICE_FROM_AZURE, &source_azure }, { "file", NOTICE_FROM_FILE, NULL } };
    const size_t known_n = sizeof known / sizeof known[0];
    bool everything = strcmp(n->cfg->notice, "auto") == 0;
    const char *at = n->cfg->notice;

    if (strcmp(at, "none") == 0)
        return ST_OK;
    while (*at != '\0') {
        size_t word_n = strcspn(at, ", "), i;

        for (i = 0; i < known_n; i++) {
            struct source *s = &n->sources[known[i].from];

            if (!everything && (strlen(known[i].word) != word_n || strncmp(at, known[i].word, word_n) != 0))
                continue;
            if (known[i].ops == NULL) {
                n->file_on = true;
            } else {
                s->ops = known[i].ops;
                s->probing = everything;
            }
            n->states[known[i].from].state = NOTICE_ASKING;
            if (!everything)
                break;
        }
        if (!everything && i == known_n)
            return error_set(err, ST_REJECT, "setting notice=%s: auto, none or a list of aws, gcp, azure, file is needed", n->cfg->notice);
        at += word_n;
        at += strspn(at, ", ");
    }
    return ST_OK;
}

static void sources_open(struct notices *n)
{
    for (int i = 0; i < NOTICE_FROM_N; i++) {
        struct source *s = &n->sources[i];

        s->notices = n;
        s->cfg = n->cfg;
        s->from = (enum notice_from)i;
        if (s->ops != NULL)
            s->fetch = fetch_open(n->fetches, source_answered, s);
    }
}

/* ---- the file ---- */

/* Its first number: seconds left. A file that cannot be read is a notice all the same. */
static int64_t file_seconds(int fd, int64_t otherwise)
{
    char text[64], *end;
    ssize_t got = read(fd, text, sizeof text - 1);
    long s;

    if (got <= 0)
        return otherwise;
    text[got] = '\0';
    s = strtol(text, &end, 10);
    return end != text && s > 0 && s <= 86400 ? s : otherwise;
}

static void file_look(struct notices *n)
{
    struct notice notice = { .kind = NOTICE_DRAIN, .from = NOTICE_FROM_FILE };
    int64_t now = clock_mono_ns(), s;
    int fd;

    if (!n->file_on || now < n->file_next_ns)
        return;
    n->file_next_ns = now + n->cfg->notice_poll_ms / 5 * NS_PER_MS;
    fd = open(n->cfg->notice_file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);         /* not even a FIFO holds us */
    pthread_mutex_lock(&n->lock);
    n->states[NOTICE_FROM_FILE].asked_n++;
    n->states[NOTICE_FROM_FILE].state = NOTICE_ANSWERS;
    pthread_mutex_unlock(&n->lock);
    if (fd < 0 && errno != EACCES) {
        n->file_seen = false;
        return;
    }
    s = fd < 0 ? n->cfg->drain_s : file_seconds(fd, n->cfg->drain_s);
    if (fd >= 0)
        close(fd);
    if (n->file_seen)
        return;
    n->file_seen = true;
    notice.kind = s > n->cfg->drain_s ? NOTICE_DRAIN_SOON : NOTICE_DRAIN;
    notice.deadline_ns = now + s * NS_PER_S;
    snprintf(notice.text, sizeof notice.text, "the file is there, %lld s", (long long)s);
    hand_on(n, &notice);
}

/* ---- signals and posts ---- */

static void signals_read(struct notices *n)
{
    struct signalfd_siginfo info;
    struct notice notice;

    while (read(n->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGQUIT) {
            log_warn("notice.quit", "signal=%u", info.ssi_signo);
            _exit(EXIT_QUIT);
        }
        memset(&notice, 0, sizeof notice);
        notice.from = NOTICE_FROM_SIGNAL;
        notice.kind = n->signals_n++ == 0 ? NOTICE_DRAIN : NOTICE_LEAVE_NOW;
        notice.deadline_ns = clock_mono_ns() + (notice.kind == NOTICE_DRAIN ? n->cfg->drain_s : 5) * NS_PER_S;
        snprintf(notice.text, sizeof notice.text, "%s", info.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM");
        hand_on(n, &notice);
    }
}

/* Returns false when the thread should end. */
static bool posts_take(struct notices *n)
{
    struct notice posts[POSTS_MAX];
    uint64_t rung;
    int posts_n;
    bool stop;

    if (read(n->wake_fd, &rung, sizeof rung) < 0) { }      /* nothing to read: nobody rang */
    pthread_mutex_lock(&n->lock);
    posts_n = n->posts_n;
    memcpy(posts, n->posts, sizeof posts);
    n->posts_n = 0;
    stop = n->stop;
    pthread_mutex_unlock(&n->lock);
    for (int i = 0; i < posts_n; i++)
        hand_on(n, &posts[i]);
    return !stop;
}

static void wake(struct notices *n)
{
    uint64_t one = 1;

    if (write(n->wake_fd, &one, sizeof one) < 0) { }       /* it is awake as long as the counter is not 0 */
}

/* ---- acknowledgement ---- */

static void acknowledge_state(struct notices *n, int from, int to)
{
    pthread_mutex_lock(&n->lock);
    if ((int)n->ack_state == from)
        n->ack_state = to;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

static void acknowledged(void *notices, const struct answer *a)
{
    struct notices *n = notices;

    log_info("notice.acknowledged", "from=azure http_status=%d", a->status);
    acknowledge_state(n, ACK_SENT, ACK_DONE);
}

static void acknowledge_begin(struct notices *n)
{
    struct source *s = &n->sources[NOTICE_FROM_AZURE];
    bool wanted;

    pthread_mutex_lock(&n->lock);
    wanted = n->ack_state == ACK_WANTED;
    if (wanted)
        n->ack_state = ACK_SENT;
    pthread_mutex_unlock(&n->lock);
    if (!wanted)
        return;
    if (n->ack == NULL)
        n->ack = fetch_open(n->fetches, acknowledged, n);
    if (s->ops == NULL || !azure_acknowledge(s, n->ack))
        acknowledge_state(n, ACK_SENT, ACK_DONE);
}

void notices_acknowledge(struct notices *n, int64_t until_ns)
{
    struct timespec until = { .tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S };

    pthread_mutex_lock(&n->lock);
    n->ack_state = ACK_WANTED;
    wake(n);
    while (n->ack_state != ACK_DONE && pthread_cond_timedwait(&n->changed, &n->lock, &until) == 0)
        continue;
    pthread_mutex_unlock(&n->lock);
}

/* ---- the thread ---- */

static int wait_ms(const struct notices *n)
{
    int64_t now = clock_mono_ns(), next = now + WAIT_MS_MAX * NS_PER_MS;

    for (int i = 0; i < NOTICE_FROM_N; i++)
        if (n->sources[i].ops != NULL && !n->sources[i].busy && n->sources[i].next_ns < next)
            next = n->sources[i].next_ns;
    if (n->file_on && n->file_next_ns < next)
        next = n->file_next_ns;
    return next > now ? (int)((next - now) / NS_PER_MS) + 1 : 0;
}

static void *notices_main(void *notices)
{
    struct notices *n = notices;
    int fds[2] = { n->signal_fd, n->wake_fd };

    do {
        sources_ask(n);
        file_look(n);
        fetches_run(n->fetches, fds, 2, wait_ms(n));
        signals_read(n);
        acknowledge_begin(n);
    } while (posts_take(n));
    return NULL;
}

static void signal_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGQUIT);
}

void notices_block_signals(void)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    sigset_t set;

    sigemptyset(&ignore.sa_mask);
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
    signal_set(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void notices_free(struct notices *n)
{
    for (int i = 0; i < NOTICE_FROM_N; i++)
        fetch_close(n->sources[i].fetch);
    fetch_close(n->ack);
    fetches_close(n->fetches);
    if (n->signal_fd >= 0)
        close(n->signal_fd);
    if (n->wake_fd >= 0)
        close(n->wake_fd);
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->lock);
    free(n);
}

static status thread_start(struct notices *n, struct error *err)
{
    sigset_t set;
    int code;

    signal_set(&set);
    n->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    n->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (n->signal_fd < 0 || n->wake_fd < 0)
        return error_set(err, ST_FATAL, "no file descriptor for signals: %s", strerror(errno));
    code = pthread_create(&n->thread, NULL, notices_main, n);
    return code == 0 ? ST_OK : error_set(err, ST_FATAL, "no thread for notices: %s", strerror(code));
}

status notices_open(const struct config *cfg, const struct notice_port *port, struct notices **out, struct error *err)
{
    struct notices *n = mem_take_zero(1, sizeof *n);
    pthread_condattr_t attr;
    status st;

    *out = NULL;
    n->cfg = cfg;
    n->port = *port;
    n->signal_fd = n->wake_fd = -1;
    pthread_mutex_init(&n->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&n->changed, &attr);
    pthread_condattr_destroy(&attr);
    n->fetches = fetches_open();
    n->states[NOTICE_FROM_SIGNAL].state = n->states[NOTICE_FROM_HTTP].state = NOTICE_ANSWERS;      /* always heard */
    TRY(sources_choose(n, err));
    sources_open(n);
    TRY(thread_start(n, err));
    *out = n;
    n = NULL;
out:
    if (n != NULL)
        notices_free(n);
    return st;
}

void notices_post(struct notices *n, const struct notice *notice)
{
    pthread_mutex_lock(&n->lock);
    /* Full only where hundreds post in one moment; then the last place is for the one that leaves the least time. */
    if (n->posts_n < POSTS_MAX)
        n->posts[n->posts_n++] = *notice;
    else if (notice->deadline_ns < n->posts[POSTS_MAX - 1].deadline_ns)
        n->posts[POSTS_MAX - 1] = *notice;
    pthread_mutex_unlock(&n->lock);
    wake(n);
}

void notices_read_state(struct notices *n, struct notice_state out[NOTICE_FROM_N])
{
    pthread_mutex_lock(&n->lock);
    memcpy(out, n->states, sizeof n->states);
    pthread_mutex_unlock(&n->lock);
}

void notices_close(struct notices *n)
{
    if (n == NULL)
        return;
    pthread_mutex_lock(&n->lock);
    n->stop = true;
    pthread_mutex_unlock(&n->lock);
    wake(n);
    pthread_join(n->thread, NULL);
    notices_free(n);
}
