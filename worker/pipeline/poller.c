/* The one thread that owns the queue's poll side. */
#include "worker/pipeline/internal.h"

void *poller_main(void *pipeline)
{
    struct pipeline *p = pipeline;
    struct error err;

    while (!atomic_load(&p->stopping)) {
        struct record *rec = NULL;
        status st = queue_poll(p->queue, 100, &rec, &err);

        if (st == ST_AGAIN) {
            if (queue_ended(p->queue))
                break;
            continue;
        }
        if (st != ST_OK) {
            pipeline_fail(p, EXIT_CODE_STOPPED, "%s", err.text);
            break;
        }
        if (bqueue_push(p->records, rec) != ST_OK) {
            queue_record_give(p->queue, rec);       /* stopping: it will be polled again by the next run */
            break;
        }
    }
    bqueue_close(p->records);
    return NULL;
}
