/* A run has as many parts as the team has threads, and a thread first takes the part of its own number, so that what it
 * left in its cache in one run serves it in the next; a moment later any that is open. So the caller computes what no worker has
 * come for: on a machine that others use, too, it never waits for a worker that the kernel has not let run. A part is
 * taken by moving its `taken` from the number of the run before to that of this one, so a worker that wakes late finds
 * nothing to take in a run that is over.
 * `epoch` (runs begun: workers wait for it to change) and `left` (parts not ended: the caller waits for 0) are waited for
 * by spinning first; a sleeper announces itself in `sleepers` before it looks a last time, a waker changes the number
 * before it looks at `sleepers`, both sequentially consistent, so that one of them sees the other. Only atomics and a
 * mutex each: ThreadSanitizer follows it. */
#define _POSIX_C_SOURCE 200809L
#include "kernels/cpu/team.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cpu/cores.h"

#define SPIN_NS 200000             /* longer than any gap between two operations of a step, far shorter than a step */
#define SPINS_PER_LOOK 64          /* pauses between two looks at the clock */
#define SPINS_BEFORE_HELP 64       /* pauses of one who is done, before he looks for the parts of others: 1-2 us */

struct bed {                       /* where sleepers sleep: only touched when there are any */
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

struct waitable {
    atomic_uint value;
    atomic_int sleepers;
    struct bed *bed;
};

struct member {
    _Alignas(64) atomic_uint taken;            /* the last run whose part i was taken */
    struct team *team;
    int i;
    pthread_t thread;
};

struct team {
    int threads_n, started_n;
    int64_t spin_ns;
    atomic_bool closing;
    struct bed epoch_bed, left_bed;
    struct member *members;
    _Alignas(64) struct waitable epoch;        /* one line from the caller to each worker */
    void (*fn)(void *ctx, int part_i, int parts_n);
    void *ctx;
    _Alignas(64) struct waitable left;         /* and one back */
};

static void waitable_init(struct waitable *w, struct bed *bed)
{
    atomic_init(&w->value, 0);
    atomic_init(&w->sleepers, 0);
    pthread_mutex_init(&bed->lock, NULL);
    pthread_cond_init(&bed->changed, NULL);
    w->bed = bed;
}

static void waitable_fini(struct waitable *w)
{
    pthread_cond_destroy(&w->bed->changed);
    pthread_mutex_destroy(&w->bed->lock);
}

static void waitable_wake(struct waitable *w)
{
    if (atomic_load(&w->sleepers) == 0)
        return;
    pthread_mutex_lock(&w->bed->lock);
    pthread_cond_broadcast(&w->bed->changed);
    pthread_mutex_unlock(&w->bed->lock);
}

static inline void pause_short(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

static int64_t now_ns(void)        /* the machine's own clock, whatever base/clock.h pretends: this is about cores */
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Until value != not (want false) or value == is (want true). */
static void waitable_wait(struct waitable *w, unsigned number, bool want_equal, int64_t spin_ns)
{
    int64_t end = 0;
    int i;

    for (;;) {
        for (i = 0; i < SPINS_PER_LOOK; i++) {
            if ((atomic_load_explicit(&w->value, memory_order_acquire) == number) == want_equal)
                return;
            pause_short();
        }
        if (end == 0)
            end = now_ns() + spin_ns;
        else if (now_ns() > end)
            break;
    }
    pthread_mutex_lock(&w->bed->lock);
    atomic_fetch_add(&w->sleepers, 1);
    while ((atomic_load(&w->value) == number) != want_equal)
        pthread_cond_wait(&w->bed->changed, &w->bed->lock);
    atomic_fetch_sub(&w->sleepers, 1);
    pthread_mutex_unlock(&w->bed->lock);
}

/* Takes part i of run `epoch` if it is open. fn and ctx are read behind a taken part only: the caller cannot change them
 * while a part is not ended. Answers how many parts are not ended. */
static unsigned part_run(struct team *t, unsigned epoch, int i)
{
    unsigned before = epoch - 1, left;

    if (!atomic_compare_exchange_strong(&t->members[i].taken, &before, epoch))
        return atomic_load_explicit(&t->left.value, memory_order_relaxed);
    t->fn(t->ctx, i, t->threads_n);
    left = atomic_fetch_sub(&t->left.value, 1) - 1;
    if (left == 0)
        waitable_wake(&t->left);
    return left;
}

/* The thread's own part, then what is open of the others'. Only after a moment: as a rule they are all at work, and to
 * look at what they have taken costs each of them a line. */
static void parts_run(struct team *t, unsigned epoch, int own)
{
    unsigned left = part_run(t, epoch, own);
    int i;

    for (i = 0; i < SPINS_BEFORE_HELP && left > 0; i++) {
        pause_short();
        left = atomic_load_explicit(&t->left.value, memory_order_acquire);
    }
    for (i = 1; i < t->threads_n && left > 0; i++)
        left = part_run(t, epoch, own + i < t->threads_n ? own + i : own + i - t->threads_n);
}

static void *member_main(void *arg)
{
    const struct member *m = arg;
    struct team *t = m->team;
    unsigned seen = 0;

    for (;;) {
        waitable_wait(&t->epoch, seen, false, t->spin_ns);
        seen = atomic_load(&t->epoch.value);
        if (atomic_load(&t->closing))
            return NULL;
        parts_run(t, seen, m->i);
    }
}

status team_open(int threads_n, struct team **out, struct error *err)
{
    struct team *t;
    sigset_t all, before;
    int i, rc = 0;

    *out = NULL;
    ASSERT(threads_n >= 1);
    t = aligned_alloc(64, (sizeof *t + 63) / 64 * 64);
    ASSERT(t != NULL);
    memset(t, 0, sizeof *t);
    t->threads_n = threads_n;
    t->spin_ns = threads_n <= cores_allowed() ? SPIN_NS : 0;      /* who spins would keep the one he waits for from a core */
    t->members = aligned_alloc(64, (size_t)threads_n * sizeof *t->members);
    ASSERT(t->members != NULL);
    memset(t->members, 0, (size_t)threads_n * sizeof *t->members);
    for (i = 0; i < threads_n; i++)
        atomic_init(&t->members[i].taken, 0);
    waitable_init(&t->epoch, &t->epoch_bed);
    waitable_init(&t->left, &t->left_bed);
    atomic_init(&t->closing, false);

    sigfillset(&all);              /* signals belong to the threads that expect them */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (i = 1; i < threads_n && rc == 0; i++) {
        t->members[i].team = t;
        t->members[i].i = i;
        rc = pthread_create(&t->members[i].thread, NULL, member_main, &t->members[i]);
        if (rc == 0)
            t->started_n++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        error_set(err, ST_REJECT, "threads=%d: only %d could be started: %s", threads_n, t->started_n + 1, strerror(rc));
        team_close(t);
        return ST_REJECT;
    }
    *out = t;
    return ST_OK;
}

void team_close(struct team *t)
{
    int i;

    if (t == NULL)
        return;
    atomic_store(&t->closing, true);
    atomic_fetch_add(&t->epoch.value, 1);
    waitable_wake(&t->epoch);
    for (i = 1; i <= t->started_n; i++)
        pthread_join(t->members[i].thread, NULL);
    waitable_fini(&t->left);
    waitable_fini(&t->epoch);
    free(t->members);
    free(t);
}

int team_threads(const struct team *t)
{
    return t->threads_n;
}

void team_run(struct team *t, void (*fn)(void *ctx, int part_i, int parts_n), void *ctx)
{
    unsigned epoch;

    if (t->threads_n == 1) {
        fn(ctx, 0, 1);
        return;
    }
    epoch = atomic_load_explicit(&t->epoch.value, memory_order_relaxed) + 1;
    t->fn = fn;
    t->ctx = ctx;
    atomic_store_explicit(&t->left.value, (unsigned)t->threads_n, memory_order_relaxed);
    atomic_store(&t->epoch.value, epoch);
    waitable_wake(&t->epoch);
    parts_run(t, epoch, 0);
    waitable_wait(&t->left, 0, true, t->spin_ns);
}
