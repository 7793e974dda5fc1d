/* worker/lines/lines.h - record to request, request to result line: the OpenAI Batch shapes and every verdict's wording.
 * Threads: a struct intake belongs to one thread; lines_result may run on another. */
#ifndef WORKER_LINES_LINES_H
#define WORKER_LINES_LINES_H

#include "base/config.h"
#include "queue/queue.h"
#include "worker/lines/request.h"
#include "worker/text/template.h"
#include "worker/text/tokenizer.h"

/* What every line is read against. Const, shared by all intake threads. */
struct lines_model {
    const struct config *cfg;
    const struct tokenizer *tokenizer;
    const struct template *template;           /* NULL: the model has none; chat lines get a 400 that says so */
    const char *bos_text, *eos_text;           /* "" when there is none */
    int32_t context;                           /* of the model */
    const char *name;                          /* used where a line names no model */
};

struct intake;
struct intake *intake_open(const struct lines_model *m);
void intake_close(struct intake *in);          /* NULL is allowed */

/* Parses, validates, renders, encodes. Always fills *out (ST_OK): a good line is a request with verdict NONE; a bad one
 * has its verdict and error set and goes straight to its result. *out is the first member where the line has several
 * prompts. ST_AGAIN: a blank line, no request and no result. The record may be given back afterwards. */
MUST_USE status intake_read(struct intake *in, const struct record *rec, struct request **out);

/* Writes the result line (no newline) of an ended request or group into `line`. Its kind tells output from failure. */
enum result_kind lines_result(const struct lines_model *m, const struct request *r, const char *id, struct buf *line);
/* The code that the summary counts failures under: "invalid_json", "context_length_exceeded" ... NULL: done. */
const char *lines_failure_code(const struct request *r);

#endif
