/* worker/lines/internal.h - what the files of this folder share while a line becomes a request. */
#ifndef WORKER_LINES_INTERNAL_H
#define WORKER_LINES_INTERNAL_H

#include <jansson.h>

#include "base/buf.h"
#include "worker/lines/lines.h"

enum { STOPS_MAX = 16, STOP_BYTES_MAX = 1024, STOP_TOKENS_MAX = 1024, KWARGS_DEPTH_MAX = 64 };
enum { ON_CHAT = 1, ON_COMPLETIONS = 2, ON_BOTH = 3 };        /* bit of an endpoint: 1 << enum endpoint */

/* One thread's working memory. */
struct intake {
    const struct lines_model *m;
    struct encoder *encoder;
    struct arena scratch;          /* values and rendered spans of one line */
    struct buf text;               /* for whoever makes a short text */
    char known[2][2048];           /* the field names of each endpoint, for messages */
};

/* What a line has said so far. -1, NULL, false: nothing. */
struct draft {
    struct intake *in;
    const struct record *rec;
    const char *text; size_t text_n;           /* the record's value behind its byte order mark */
    size_t skipped;                            /* bytes of that mark */
    struct request *r;             /* carries the verdict; becomes the first request */
    const json_t *messages, *prompt, *template_kwargs;
    /* plain fields, filled by name (params.c) */
    double temperature, top_p, min_p, repetition, presence, frequency;
    int64_t top_k, seed, n, best_of, max_tokens, max_completion_tokens, min_tokens, priority, top_logprobs;
    bool seed_given, logprobs, echo, ignore_eos, include_stop, skip_special, add_special;
    bool continue_final, add_generation, add_generation_given;
};

/* Gives the line its verdict; args are texts, as many as the wording has {}. Returns ST_REJECT. */
status draft_reject(struct draft *d, enum lines_verdict verdict, const char *param, const char *const *args);
#define REJECT(d, verdict, param, ...) \
    draft_reject(d, LINES_##verdict, param, (const char *const[]){ __VA_ARGS__, NULL })

/* A text made for a message, in the scratch arena. */
const char *draft_text(struct draft *d, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* A JSON string, quotes included, in the request's arena. */
const char *draft_json(struct draft *d, const char *text, size_t n);
/* How a message speaks of a value: "a string", "3.5", "null". Long things are named, not quoted. */
const char *value_kind_name(const json_t *v);
const char *value_quoted(struct draft *d, const json_t *v);
/* Bytes of a name that came from the line, cut to what a message can bear; valid UTF-8. */
const char *name_quoted(struct draft *d, const char *name, size_t n);

/* envelope.c: custom_id, method, url, headers; *body is the object with the parameters. */
status envelope_read(struct draft *d, json_t *line, json_t **body);

/* params.c */
void params_known(struct intake *in);
void draft_defaults(struct draft *d);
status params_read(struct draft *d, json_t *body);
/* Whether a field beside `body` belongs inside it; harmless ones may stand anywhere. */
bool params_misplaced(const char *name, bool *harmless);
/* An integer of any spelling (5, 5.0, 5e0). false: not a whole number of 64 bits. */
bool word_is(const json_t *v, const char *word);
bool value_int64(const json_t *v, int64_t *out);
status type_reject(struct draft *d, const char *name, const char *wanted, const json_t *got);

/* stops.c: fields whose values are lists */
status stop_read(struct draft *d, const char *name, const json_t *v);
status stop_tokens_read(struct draft *d, const char *name, const json_t *v);
status bias_read(struct draft *d, const char *name, const json_t *v);
/* false: not a token id of the vocabulary; token_reject says why (name is made for the message only). */
bool token_value(const struct draft *d, const json_t *v, int32_t *out);
status token_reject(struct draft *d, const char *name, const json_t *v);

/* messages.c: chat. The rendered prompt's tokens, in the encoder's memory until its next call. */
status messages_encode(struct draft *d, const int32_t **tokens, size_t *tokens_n);

/* prompts.c: finishes the request, or makes its group; *out: the first request. Unless ST_OK the draft's request has
 * its verdict. */
status prompts_read(struct draft *d, struct request **out);

#endif
