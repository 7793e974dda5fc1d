/* queue/mem_store.h - the topic behind the mem queue. Private to this folder: see mem.h. */
#ifndef QUEUE_MEM_STORE_H
#define QUEUE_MEM_STORE_H

#include <pthread.h>

#include "queue/mem.h"

struct mem_record { struct record r; bool tombstone; };       /* what r points to is the store's */

struct mem_source {
    int32_t id;
    struct mem_record *record;
    size_t records_n, records_room;
    int64_t lwm;
    char *metadata;              /* NULL: nothing is committed */
    /* of a group */
    int64_t owner, next_owner;   /* member; different: the owner has to give it up */
    int64_t assigns_n;
};

struct mem_store {
    char *name;
    pthread_mutex_t lock;
    pthread_cond_t changed;      /* a record, a commit, an assignment, the end */
    struct mem_source *source;
    size_t sources_n;
    struct queue_mem_result *result;
    size_t results_n, results_room;
    bool ended, group;
    int fail_skip, fail_calls;
    int64_t owner;               /* number of the queue that opened last */
    int64_t generation;
    int queues_n;
    struct mem_store *next;
};

struct mem_store *mem_store_enter(const char *name);           /* made if need be; locked */
void mem_results_store(struct mem_store *s, const struct result *results, size_t n, const bool *durable);
bool mem_commit_refused(struct mem_store *s);                  /* as queue_mem_fail has told */

#endif
