#define _POSIX_C_SOURCE 200809L
#include "worker/preempt/signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_int seen;

static void stop_asked(int signal_number)
{
    (void)signal_number;
    atomic_fetch_add(&seen, 1);
}

void signals_install(void)
{
    struct sigaction stop = { .sa_handler = stop_asked, .sa_flags = SA_RESTART }, ignore = { .sa_handler = SIG_IGN };

    sigemptyset(&stop.sa_mask);
    sigemptyset(&ignore.sa_mask);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
}

int signals_seen(void)
{
    return atomic_load(&seen);
}
