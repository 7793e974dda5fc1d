/* worker/preempt/drain.h - the deadlines of a drain (design: delivery of work on machines that vanish). Pure; threads: any. */
#ifndef WORKER_PREEMPT_DRAIN_H
#define WORKER_PREEMPT_DRAIN_H

#include "worker/pipeline/pipeline.h"

#define DRAIN_RESERVE_S 12         /* kept at the end for handing over; up to 20 where the notice is 30 s or longer */

struct drain_times {               /* clock_mono_ns, ascending */
    struct drain_plan plan;
    int64_t end_ns;                /* the process is gone, or a watchdog ends it */
};

/* Decoding goes on until the reserve begins. Of the reserve:
 *   a third     saves progress and commits the last results       (4 s of 12)
 *   a quarter   a commit that is still open is aborted            (3 s)
 *   a quarter   gives the sources back                            (3 s)
 *   the rest    is for what was late                              (2 s)
 * A time shorter than the reserve is all reserve; a deadline that is over leaves no time for anything. */
struct drain_times drain_times_make(int64_t now_ns, int64_t deadline_ns);
/* Asked a second time: nothing is waited for but giving the sources back; gone within 5 s. */
struct drain_times drain_times_leave(int64_t now_ns);

#endif
