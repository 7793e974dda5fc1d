#define _POSIX_C_SOURCE 200809L
#include "worker/pipeline/wait.h"

#include <time.h>

#include "base/clock.h"

#define WAIT_MAX_NS (3600 * NS_PER_S)          /* a deadline may be for ever */

void cond_init_mono(pthread_cond_t *c)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

bool cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, int64_t deadline_ns)
{
    int64_t left_ns = deadline_ns - clock_mono_ns();
    struct timespec until;

    if (left_ns <= 0)
        return false;
    left_ns = left_ns < WAIT_MAX_NS ? left_ns : WAIT_MAX_NS;
    clock_gettime(CLOCK_MONOTONIC, &until);
    left_ns += until.tv_nsec;
    until.tv_sec += left_ns / NS_PER_S;
    until.tv_nsec = left_ns % NS_PER_S;
    return pthread_cond_timedwait(c, lock, &until) == 0;
}
