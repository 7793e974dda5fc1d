/* worker/lines/lines.h - record to request, request to result line: the OpenAI Batch shapes and every verdict's wording.
 * Threads: a struct intake belongs to one thread; lines_result may run on another.
 *
 * What a line may hold, where the specifications leave it open:
 * - A field that is null is a field that is absent. 5.0 is the integer 5; 1e400 and integers beyond 64 bits are refused.
 * - A field that stands twice in one object is refused: readers disagree which one counts.
 * - custom_id must be a string and is echoed; a number is refused but echoed, so that the failure finds its line.
 * - "\u0000" in a text is the character U+0000, kept in prompts and answers.
 * - Messages: roles system, developer, user, assistant, tool go to the template as they are; text parts are joined by
 *   newlines (as vLLM does). add_generation_prompt is true unless continue_final_message is; without that, a trailing
 *   assistant message is a finished turn and a new assistant turn is begun after it (as vLLM does). With
 *   continue_final_message the prompt ends with the last message's text and the answer holds only what follows it.
 * - Texts of the line never become control tokens, in chat or in raw prompts; token-id prompts may hold any token.
 * - Answers hold nothing that differs between two runs of a job: ids come from the job and the offset, `created` is the
 *   record's own time (0 in a file, which has none). usage.prompt_tokens_details.cached_tokens tells what the prefix cache
 *   did in this run, and only it may differ.
 * - A line of which one choice fails is a failure of status 500 that still holds the choices that were made. */
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
    int64_t now_ns;                            /* Unix time that a template is told where the record has none; 0: the clock's,
                                                * which makes the prompt of such a template depend on the day it is read */
    const char *fingerprint;                   /* system_fingerprint of every answer; NULL: null */
};

struct intake;
struct intake *intake_open(const struct lines_model *m);
void intake_close(struct intake *in);          /* NULL is allowed */

/* Parses, validates, renders, encodes. ST_OK: a good line is a request with verdict NONE, its choices set up for the
 * engine; a bad one has its verdict and goes straight to its result. *out is the first member where the line has several
 * prompts. ST_AGAIN: a blank line of a file or a tombstone, *out is NULL. Nothing of the record is kept. */
MUST_USE status intake_read(struct intake *in, const struct record *rec, struct request **out);

enum lines_verdict {
#define LINES_VERDICT(name, http, code, text) LINES_##name,
#include "worker/lines/verdicts.def"
};
/* Gives r its verdict with the table's wording: as many args, ended by NULL, as the text has {}; param names the field, or
 * is NULL. An earlier verdict stays. */
void lines_reject(struct request *r, enum lines_verdict verdict, const char *param, const char *const *args);

/* Writes the result line (no newline) of an ended request or of its whole group into `line`. Its kind tells output from
 * failure. id: "batch_req_...". */
enum result_kind lines_result(const struct lines_model *m, const struct request *r, const char *id, struct buf *line);
/* The code that the summary counts the line's failure under: "invalid_json", "context_length_exceeded" ... NULL: done. */
const char *lines_failure_code(const struct request *r);

#endif
