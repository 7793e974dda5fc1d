/* worker/lines/result.h - pieces of a result line. Private to this folder. */
#ifndef WORKER_LINES_RESULT_H
#define WORKER_LINES_RESULT_H

#include "worker/lines/lines.h"

/* verdict.c: the table of verdicts.def. */
const char *verdict_code(enum lines_verdict verdict);
void verdict_message_add(struct buf *b, enum lines_verdict verdict, const char *const *args);

/* logprobs.c: the value of "logprobs" of one choice in its endpoint's shape; "null" where none were asked for. */
void logprobs_add(struct buf *b, const struct lines_model *m, const struct request *r, const struct choice *c);

#endif
