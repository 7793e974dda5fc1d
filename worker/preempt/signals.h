/* worker/preempt/signals.h - SIGINT and SIGTERM as a count that the main thread looks at. Handlers set one flag. */
#ifndef WORKER_PREEMPT_SIGNALS_H
#define WORKER_PREEMPT_SIGNALS_H

void signals_install(void);        /* before any thread is started; also ignores SIGPIPE and SIGXFSZ: writes say EPIPE, EFBIG */
int signals_seen(void);            /* how many asked to stop; any thread */

#endif
