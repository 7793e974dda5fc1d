/* worker/text/template.h - chat templates: the part of Jinja that published templates use.
 *
 * A template is untrusted: steps, depth and output are bounded; it reaches nothing but its variables.
 * Threads:   a struct template is const after open; any number of threads may render it.
 * Ownership: rendered pieces live in the caller's arena.
 * Source:    Jinja 3.1 semantics with trim_blocks and lstrip_blocks on, as Hugging Face's apply_chat_template sets it. */
#ifndef WORKER_TEXT_TEMPLATE_H
#define WORKER_TEXT_TEMPLATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "worker/text/value.h"

struct template;

struct template_limits { int64_t steps_max; size_t output_bytes_max; };

/* ST_REJECT: the template cannot be parsed; the error names line and cause. */
MUST_USE status template_open(const char *source, size_t n, struct template **out, struct error *err);
void template_close(struct template *t);               /* NULL is allowed */

/* variables: a dict (messages, add_generation_prompt, bos_token ...). The output as spans for the encoder: what the
 * template's text wrote is TEXT_TRUSTED, what came from the variables keeps its own trust.
 * ST_REJECT: raise_exception, a wrong type, or a bound; the error has the template's own message. */
MUST_USE status template_render(const struct template *t, const struct value *variables,
                                const struct template_limits *limits, struct arena *a,
                                struct text_span **spans, size_t *spans_n, struct error *err);

#endif
