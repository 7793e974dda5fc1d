/* worker/pipeline/wait.h - condition variables with deadlines on the monotonic clock. */
#ifndef WORKER_PIPELINE_WAIT_H
#define WORKER_PIPELINE_WAIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

void cond_init_mono(pthread_cond_t *c);
/* False: the deadline (of clock_mono_ns) has passed. */
bool cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, int64_t deadline_ns);

#endif
