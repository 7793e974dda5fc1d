/* queue/file_queue.h - the file queue itself: what file.c runs and file_open.c makes. Private to this folder. */
#ifndef QUEUE_FILE_QUEUE_H
#define QUEUE_FILE_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>

#include "queue/commit_times.h"
#include "queue/file.h"
#include "queue/ops.h"
#include "queue/tracker.h"

struct file_queue {
    struct queue queue;
    /* fixed after the open */
    char *output_path, *sidecar_path, *lock_path, *errors_lock_path;
    struct job_record record;
    bool order_input;
    int64_t torn_i;                  /* the last line, if it has no newline; -1 */
    int lock_fd, errors_lock_fd;
    struct file_input input;         /* the poll side's, but for its facts and descriptor */
    struct done_set done;            /* before this run: read only */
    /* the poll side */
    struct record *held;             /* beyond the window */
    bool paused, told;               /* told: the events know of the source */
    struct queue_events events;
    atomic_bool ended, stop_taking;
    /* the commit side */
    struct file_output output, errors;
    int64_t committed_n;
    int64_t *offsets;                /* scratch */
    size_t offsets_room;
    /* both */
    pthread_mutex_t lock;
    pthread_cond_t moved;            /* the LWM has moved */
    struct tracker *tracker;
    struct commit_times times;
    int64_t dead_n;
    atomic_bool torn_grown;          /* the torn line went on after the snapshot: it waits for the next run */
};

extern const struct queue_ops file_ops;
void file_queue_close(struct queue *q);      /* also of one that is only half made */

#endif
