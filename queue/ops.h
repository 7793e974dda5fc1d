/* queue/ops.h - what an implementation of queue.h fills in. Private to this folder. */
#ifndef QUEUE_OPS_H
#define QUEUE_OPS_H

#include "queue/queue.h"

struct queue_ops {
    status (*poll)(struct queue *q, int timeout_ms, struct record **out, struct error *err);
    bool (*ended)(const struct queue *q);
    void (*record_settle)(struct queue *q, struct record *r);
    void (*record_give)(struct queue *q, struct record *r);      /* r is not NULL */
    void (*pause)(struct queue *q, int32_t source, bool paused);
    void (*stop_taking)(struct queue *q);
    status (*commit)(struct queue *q, const struct result *results, size_t n, bool *durable, struct error *err);     /* n > 0;
                                                                                              * durable is all false */
    void (*result_id)(const struct queue *q, int32_t source, int64_t offset, char out[64]);
    status (*finish)(struct queue *q, struct error *err);
    void (*leave)(struct queue *q, int64_t deadline_ns);         /* NULL: nothing to leave */
    void (*read_counts)(struct queue *q, struct queue_counts *out);      /* out holds zeros */
    void (*close)(struct queue *q);
};

struct queue {                  /* first member of every implementation's struct */
    const struct queue_ops *ops;
    struct queue_state state;
};

status file_queue_open(const struct config *cfg, const struct queue_job *job, struct queue **out, struct error *err);
status read_queue_open(const struct config *cfg, const struct queue_job *job, struct queue **out, struct error *err);
status mem_queue_open(const struct config *cfg, const struct queue_job *job, struct queue **out, struct error *err);
status kafka_queue_open(const struct config *cfg, const struct queue_job *job, struct queue **out, struct error *err);

#endif
