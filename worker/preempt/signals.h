/* worker/preempt/signals.h - SIGINT and SIGTERM as a count that the main thread looks at. Handlers set one flag. */
#ifndef WORKER_PREEMPT_SIGNALS_H
#define WORKER_PREEMPT_SIGNALS_H

void signals_install(void);        /* also ignores SIGPIPE and SIGXFSZ: writes say EPIPE, EFBIG */
/* The same, but until signals_install the first signal ends the process at once: while a model is loaded or a large input is read
 * nobody looks at the count, and nothing has begun that could be saved. */
void signals_leave(int exit_code);
int signals_seen(void);            /* how many asked to stop; any thread */

#endif
