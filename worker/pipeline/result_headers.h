/* worker/pipeline/result_headers.h - what a topic's result says beside its value: how its request ended and came about. */
#ifndef WORKER_PIPELINE_RESULT_HEADERS_H
#define WORKER_PIPELINE_RESULT_HEADERS_H

#include "queue/queue.h"
#include "worker/lines/request.h"

enum { RESULT_HEADERS_MAX = 12 };

/* Of an ended request or its whole group. code: of its failure, NULL: done. The headers and all they point to are one block
 * that the caller frees. */
struct header *result_headers_make(const struct request *r, const char *code, const char *model, size_t *n);

#endif
