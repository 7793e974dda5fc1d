#define _POSIX_C_SOURCE 200809L
#include "worker/preempt/signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

static atomic_int seen;
static volatile sig_atomic_t leave_code;

static void stop_asked(int signal_number)
{
    (void)signal_number;
    atomic_fetch_add(&seen, 1);
}

static void leave_asked(int signal_number)
{
    static const char text[] = "nightshift: stopped before the work began; run the same command again\n";

    (void)signal_number;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) { }
    _exit(leave_code);
}

static void handle(void (*handler)(int))
{
    struct sigaction stop = { .sa_handler = handler, .sa_flags = SA_RESTART }, ignore = { .sa_handler = SIG_IGN };

    sigemptyset(&stop.sa_mask);
    sigemptyset(&ignore.sa_mask);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
}

void signals_leave(int exit_code)
{
    leave_code = exit_code;
    handle(leave_asked);
}

void signals_install(void)
{
    handle(stop_asked);
}

int signals_seen(void)
{
    return atomic_load(&seen);
}
