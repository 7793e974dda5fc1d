/* worker/text/template.h - chat templates: the part of Jinja that published templates use.
 *
 * A template is untrusted: steps, depth and output are bounded; it reaches nothing but its variables.
 * Threads:   a struct template is const after open; any number of threads may render it.
 * Ownership: the spans live in the caller's arena; their text lives there, in the variables or in the template.
 * Source:    Jinja 3.1 semantics with trim_blocks and lstrip_blocks on, as Hugging Face's apply_chat_template sets it. */
#ifndef WORKER_TEXT_TEMPLATE_H
#define WORKER_TEXT_TEMPLATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "worker/text/value.h"

struct template;

struct template_limits {
    int64_t steps_max;             /* nodes, items, 512-byte stretches of text looked at */
    size_t output_bytes_max;       /* of the output, and of any text on the way to it */
    size_t memory_bytes_max;       /* what a rendering may take from the arena; 0: 4 times output_bytes_max and 1 MiB */
    int64_t now_ns;                /* Unix time that strftime_now shows, local; 0: the clock's */
};

/* ST_REJECT: the template cannot be parsed; the error names line and cause. */
MUST_USE status template_open(const char *source, size_t n, struct template **out, struct error *err);
void template_close(struct template *t);               /* NULL is allowed */

/* variables: a dict (messages, add_generation_prompt, bos_token ...). The output as spans for the encoder: what the
 * template's text wrote is TEXT_TRUSTED, what came from the variables keeps its own trust, what is made on the way
 * (numbers, quotes and braces of tojson, escapes) is TEXT_PLAIN.
 * ST_REJECT: raise_exception (the error is the template's own message and nothing else), a wrong type, or a bound. */
MUST_USE status template_render(const struct template *t, const struct value *variables,
                                const struct template_limits *limits, struct arena *a,
                                struct text_span **spans, size_t *spans_n, struct error *err);

#endif
