/* queue/mem.h - the queue for tests of whole workers: a topic with partitions that lives in the process under a name
 * ("mem:NAME") and outlives the workers that use it. It commits as Kafka will: results, LWM and metadata of every source in
 * one atomic act, by the owner of the day.
 * Alone (the default) a queue has every source, and whoever opened it before is fenced; it ends with queue_mem_end.
 * As a group the queues that are open are members 1, 2, ... in the order of their opening; the first one has every source
 * until queue_mem_assign; a result of a source that was lost is not durable; it ends with queue_stop_taking only.
 * Threads: any (one lock a store; events are called without it). */
#ifndef QUEUE_MEM_H
#define QUEUE_MEM_H

#include "queue/queue.h"

/* Adds a record; offsets of a source ascend, gaps are allowed. value NULL: a tombstone, which is passed over. */
void queue_mem_add(const char *name, int32_t source, int64_t offset, const char *value, size_t value_n);
void queue_mem_add_record(const char *name, const struct record *r);     /* with key, headers and timestamp; copied */
void queue_mem_end(const char *name);                    /* no more come: queue_ended may become true */

void queue_mem_group(const char *name);                  /* before the first queue is opened */
/* The source goes to a member, 0: to nobody. Its owner learns it in its next poll (queue_events.lost) and has it until that
 * call returns; already: it learns it too late, and commits nothing of it from now on. */
void queue_mem_assign(const char *name, int32_t source, int64_t member, bool already);
int64_t queue_mem_owner(const char *name, int32_t source);      /* 0: nobody */

/* After `skip` more commits the next `calls` are refused: ST_RETRY, nothing is written. */
void queue_mem_fail(const char *name, int skip, int calls);

/* What a reader of the result topic sees, in the order of the commits; valid until the next commit or drop. */
struct queue_mem_result {
    int32_t source;
    int64_t offset;
    enum result_kind kind;
    char *value; size_t value_n;
    struct header *headers; size_t headers_n;
};
size_t queue_mem_results(const char *name, const struct queue_mem_result **out);
/* Ends the store; no queue may be open on it. */
void queue_mem_drop(const char *name);

#endif
