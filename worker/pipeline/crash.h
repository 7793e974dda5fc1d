/* worker/pipeline/crash.h - the last second of a process that dies by its own fault.
 *
 * A death from outside (kill -9, a machine that goes) says nothing about the request that ran; an abort or a memory fault
 * while one runs alone does. The handler runs on the thread that failed and only waits: another thread, which is sound, asks
 * crash_happened at each turn, writes down what it knows, and answers crash_noted; then, or after CRASH_WAIT_MS, the signal
 * takes its course. Threads: any. */
#ifndef WORKER_PIPELINE_CRASH_H
#define WORKER_PIPELINE_CRASH_H

#include <stdbool.h>

enum { CRASH_WAIT_MS = 2000 };

void crash_watch(void);            /* once; signals that somebody handles already (a sanitizer, a test) are left alone */
bool crash_happened(void);
void crash_noted(void);

#endif
