#define _XOPEN_SOURCE 700
#include "worker/pipeline/crash.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

enum { SOUND, CRASHED, NOTED };

static const int signals[] = { SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL };
static _Atomic int crash_state;

/* Async-signal-safe calls only. The action was reset when the handler was entered, so the signal ends the process. */
static void on_crash(int number)
{
    int state = SOUND;

    if (atomic_compare_exchange_strong(&crash_state, &state, CRASHED))
        for (int ms = 0; ms < CRASH_WAIT_MS && atomic_load(&crash_state) == CRASHED; ms++)
            nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    raise(number);
}

void crash_watch(void)
{
    struct sigaction act, old;

    memset(&act, 0, sizeof act);
    act.sa_handler = on_crash;
    act.sa_flags = (int)SA_RESETHAND;
    sigemptyset(&act.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            sigaction(signals[i], &act, NULL);
}

bool crash_happened(void)
{
    return atomic_load(&crash_state) == CRASHED;
}

void crash_noted(void)
{
    atomic_store(&crash_state, NOTED);
}
