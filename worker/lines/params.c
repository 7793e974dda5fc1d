/* Every field of a body, in one table: where it is known, what it may hold, where it goes. */
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/lines/internal.h"

/* What a field that does nothing here may hold all the same, because it then asks for nothing. */
enum { IF_FALSE = 1, IF_TRUE = 2, IF_EMPTY = 4, IF_NONE = 8, IF_AUTO = 16, IF_ONE = 32, IF_ZERO = 64 };

struct field {
    const char *name;
    int on;
    status (*read)(struct draft *d, const struct field *f, const json_t *v);
    size_t at;                     /* in struct draft */
    double min, max;
    int accepts;                   /* IF_...: of a field that does nothing */
    const char *why;               /* it is not supported */
};

status type_reject(struct draft *d, const char *name, const char *wanted, const json_t *got)
{
    return REJECT(d, TYPE, name, name, wanted, value_kind_name(got));
}

bool value_int64(const json_t *v, int64_t *out)
{
    double x;

    if (json_is_integer(v)) {
        *out = json_integer_value(v);
        return true;
    }
    x = json_is_real(v) ? json_real_value(v) : 0.5;
    if (x != floor(x) || !(x >= -0x1p63 && x < 0x1p63))
        return false;
    *out = (int64_t)x;
    return true;
}

static status read_number(struct draft *d, const struct field *f, const json_t *v)
{
    double x = json_number_value(v);

    if (!json_is_number(v))
        return type_reject(d, f->name, "a number", v);
    if (!(x >= f->min && x <= f->max))
        return REJECT(d, VALUE, f->name, f->name, draft_text(d, "a number from %g to %g", f->min, f->max),
                      value_quoted(d, v));
    *(double *)(void *)((char *)d + f->at) = x;
    return ST_OK;
}

static status read_integer(struct draft *d, const struct field *f, const json_t *v)
{
    int64_t i;

    if (!json_is_number(v))
        return type_reject(d, f->name, "an integer", v);
    if (!value_int64(v, &i) || (double)i < f->min || (double)i > f->max)
        return REJECT(d, VALUE, f->name, f->name, draft_text(d, "an integer from %.0f to %.0f", f->min, f->max),
                      value_quoted(d, v));
    *(int64_t *)(void *)((char *)d + f->at) = i;
    return ST_OK;
}

static status read_flag(struct draft *d, const struct field *f, const json_t *v)
{
    if (!json_is_boolean(v))
        return type_reject(d, f->name, "true or false", v);
    *(bool *)(void *)((char *)d + f->at) = json_is_true(v);
    return ST_OK;
}

static status read_nothing(struct draft *d, const struct field *f, const json_t *v)
{
    (void)d;
    (void)f;
    (void)v;
    return ST_OK;
}

bool word_is(const json_t *v, const char *word)
{
    return json_is_string(v) && json_string_length(v) == strlen(word) && strcmp(json_string_value(v), word) == 0;
}

static status read_unsupported(struct draft *d, const struct field *f, const json_t *v)
{
    bool empty = (json_is_array(v) && json_array_size(v) == 0) || (json_is_object(v) && json_object_size(v) == 0) ||
                 (json_is_string(v) && json_string_length(v) == 0);

    if (((f->accepts & IF_FALSE) && json_is_false(v)) || ((f->accepts & IF_TRUE) && json_is_true(v)) ||
        ((f->accepts & IF_EMPTY) && empty) || ((f->accepts & IF_NONE) && word_is(v, "none")) ||
        ((f->accepts & IF_AUTO) && word_is(v, "auto")) ||
        ((f->accepts & IF_ONE) && json_is_number(v) && json_number_value(v) == 1) ||
        ((f->accepts & IF_ZERO) && json_is_number(v) && json_number_value(v) == 0))
        return ST_OK;
    return REJECT(d, UNSUPPORTED, f->name, f->name, f->why);
}

static status read_model(struct draft *d, const struct field *f, const json_t *v)
{
    if (!json_is_string(v))
        return type_reject(d, f->name, "a string", v);
    d->r->model = draft_json(d, json_string_value(v), json_string_length(v));
    d->r->model_differs = !word_is(v, d->in->m->name);
    return ST_OK;
}

static status read_json(struct draft *d, const struct field *f, const json_t *v)
{
    (void)f;
    *(const json_t **)(void *)((char *)d + f->at) = v;
    return ST_OK;
}

static status read_stop(struct draft *d, const struct field *f, const json_t *v)
{
    return stop_read(d, f->name, v);
}

static status read_stop_tokens(struct draft *d, const struct field *f, const json_t *v)
{
    return stop_tokens_read(d, f->name, v);
}

static status read_bias(struct draft *d, const struct field *f, const json_t *v)
{
    return bias_read(d, f->name, v);
}

static status read_seed(struct draft *d, const struct field *f, const json_t *v)
{
    d->seed_given = true;
    return json_is_number(v) && value_int64(v, &d->seed) ? ST_OK : type_reject(d, f->name, "an integer of 64 bits", v);
}

static status read_add_generation(struct draft *d, const struct field *f, const json_t *v)
{
    d->add_generation_given = true;
    return read_flag(d, f, v);
}

/* Chat: whether there are any. Completions: how many alternatives besides the token itself. */
static status read_logprobs(struct draft *d, const struct field *f, const json_t *v)
{
    if (d->r->endpoint == ENDPOINT_CHAT)
        return read_flag(d, f, v);
    if (json_is_boolean(v))
        return type_reject(d, f->name, "an integer from 0 to 20", v);
    d->logprobs = true;
    return read_integer(d, &(struct field){ .name = f->name, .at = offsetof(struct draft, top_logprobs),
                                            .max = TOP_LOGPROBS_MAX }, v);
}

static status read_response_format(struct draft *d, const struct field *f, const json_t *v)
{
    const json_t *type = json_object_get(v, "type");

    if (!json_is_object(v))
        return type_reject(d, f->name, "an object", v);
    if (type == NULL)
        return REJECT(d, MISSING, "response_format.type", "response_format.type", "'text' is supported");
    if (!json_is_string(type))
        return type_reject(d, "response_format.type", "a string", type);
    if (!word_is(type, "text"))
        return REJECT(d, UNSUPPORTED, f->name, f->name, "answers can be of type 'text' only, not yet JSON or a grammar");
    return ST_OK;
}

static status read_modalities(struct draft *d, const struct field *f, const json_t *v)
{
    if (!json_is_array(v))
        return type_reject(d, f->name, "a list", v);
    if (json_array_size(v) != 1 || !word_is(json_array_get(v, 0), "text"))
        return REJECT(d, UNSUPPORTED, f->name, f->name, "answers can be [\"text\"] only");
    return ST_OK;
}

static status read_template_kwargs(struct draft *d, const struct field *f, const json_t *v)
{
    return json_is_object(v) ? read_json(d, f, v) : type_reject(d, f->name, "an object", v);
}

#define AT(member) .at = offsetof(struct draft, member)
#define RANGE(low, high) .min = (low), .max = (high)
#define NO(mask, text) .read = read_unsupported, .accepts = (mask), .why = (text)

static const char no_tools[] = "tools and functions cannot be called yet";
static const char no_grammar[] = "answers cannot be bound to a grammar or schema yet";
static const char no_ids[] = "answers hold texts; with logprobs, also tokens and their bytes";

/* Ascending by name. */
static const struct field fields[] = {
    { "add_generation_prompt", ON_CHAT, .read = read_add_generation, AT(add_generation) },
    { "add_special_tokens", ON_COMPLETIONS, .read = read_flag, AT(add_special) },
    { "allowed_token_ids", ON_BOTH, NO(IF_EMPTY, "use logit_bias") },
    { "audio", ON_CHAT, NO(0, "answers are texts") },
    { "bad_words", ON_BOTH, NO(IF_EMPTY, "use logit_bias") },
    { "best_of", ON_BOTH, .read = read_integer, AT(best_of), RANGE(1, INT_MAX) },
    { "cache_salt", ON_BOTH, .read = read_nothing },
    { "chat_template", ON_CHAT, NO(0, "the model's own chat template is used") },
    { "chat_template_kwargs", ON_CHAT, .read = read_template_kwargs, AT(template_kwargs) },
    { "continue_final_message", ON_CHAT, .read = read_flag, AT(continue_final) },
    { "detokenize", ON_BOTH, NO(IF_TRUE, no_ids) },
    { "documents", ON_CHAT, NO(IF_EMPTY, "put the documents into the messages") },
    { "echo", ON_BOTH, .read = read_flag, AT(echo) },
    { "frequency_penalty", ON_BOTH, .read = read_number, AT(frequency), RANGE(-2, 2) },
    { "function_call", ON_CHAT, NO(IF_NONE | IF_AUTO, no_tools) },
    { "functions", ON_CHAT, NO(IF_EMPTY, no_tools) },
    { "guided_choice", ON_BOTH, NO(0, no_grammar) },
    { "guided_grammar", ON_BOTH, NO(0, no_grammar) },
    { "guided_json", ON_BOTH, NO(0, no_grammar) },
    { "guided_regex", ON_BOTH, NO(0, no_grammar) },
    { "ignore_eos", ON_BOTH, .read = read_flag, AT(ignore_eos) },
    { "include_stop_str_in_output", ON_BOTH, .read = read_flag, AT(include_stop) },
    { "length_penalty", ON_BOTH, NO(IF_ONE, "it belongs to beam search") },
    { "logit_bias", ON_BOTH, .read = read_bias },
    { "logits_processors", ON_BOTH, NO(IF_EMPTY, "use logit_bias") },
    { "logprobs", ON_BOTH, .read = read_logprobs, AT(logprobs) },
    { "max_completion_tokens", ON_CHAT, .read = read_integer, AT(max_completion_tokens), RANGE(1, INT_MAX) },
    { "max_tokens", ON_BOTH, .read = read_integer, AT(max_tokens), RANGE(0, INT_MAX) },
    { "messages", ON_CHAT, .read = read_json, AT(messages) },
    { "metadata", ON_BOTH, .read = read_nothing },
    { "min_p", ON_BOTH, .read = read_number, AT(min_p), RANGE(0, 1) },
    { "min_tokens", ON_BOTH, .read = read_integer, AT(min_tokens), RANGE(0, INT_MAX) },
    { "modalities", ON_CHAT, .read = read_modalities },
    { "model", ON_BOTH, .read = read_model },
    { "n", ON_BOTH, .read = read_integer, AT(n), RANGE(1, INT_MAX) },
    { "parallel_tool_calls", ON_CHAT, .read = read_nothing },
    { "prediction", ON_CHAT, .read = read_nothing },
    { "presence_penalty", ON_BOTH, .read = read_number, AT(presence), RANGE(-2, 2) },
    { "priority", ON_BOTH, .read = read_integer, AT(priority), RANGE(INT_MIN, INT_MAX) },
    { "prompt", ON_COMPLETIONS, .read = read_json, AT(prompt) },
    { "prompt_cache_key", ON_BOTH, .read = read_nothing },
    { "prompt_cache_retention", ON_BOTH, .read = read_nothing },
    { "prompt_logprobs", ON_BOTH, NO(0, "use /v1/completions with echo and logprobs") },
    { "reasoning_effort", ON_CHAT, NO(0, "pass what the model's template knows in chat_template_kwargs") },
    { "repetition_penalty", ON_BOTH, .read = read_number, AT(repetition), RANGE(0.01, 100) },
    { "request_id", ON_BOTH, .read = read_nothing },
    { "response_format", ON_BOTH, .read = read_response_format },
    { "return_token_ids", ON_BOTH, NO(IF_FALSE, no_ids) },
    { "return_tokens_as_token_ids", ON_BOTH, NO(IF_FALSE, no_ids) },
    { "safety_identifier", ON_BOTH, .read = read_nothing },
    { "seed", ON_BOTH, .read = read_seed },
    { "service_tier", ON_BOTH, .read = read_nothing },
    { "skip_special_tokens", ON_BOTH, .read = read_flag, AT(skip_special) },
    { "spaces_between_special_tokens", ON_BOTH, NO(IF_TRUE, "texts are exactly what the tokens say") },
    { "stop", ON_BOTH, .read = read_stop },
    { "stop_token_ids", ON_BOTH, .read = read_stop_tokens },
    { "store", ON_BOTH, .read = read_nothing },
    { "stream", ON_BOTH, NO(IF_FALSE, "a batch has no streams; leave it out or set it to false") },
    { "stream_options", ON_BOTH, .read = read_nothing },
    { "structured_outputs", ON_BOTH, NO(0, no_grammar) },
    { "suffix", ON_COMPLETIONS, NO(IF_EMPTY, "text cannot be filled in between prompt and suffix") },
    { "temperature", ON_BOTH, .read = read_number, AT(temperature), RANGE(0, 100) },
    { "tool_choice", ON_CHAT, NO(IF_NONE | IF_AUTO, no_tools) },
    { "tools", ON_CHAT, NO(IF_EMPTY, no_tools) },
    { "top_k", ON_BOTH, .read = read_integer, AT(top_k), RANGE(-1, INT_MAX) },
    { "top_logprobs", ON_CHAT, .read = read_integer, AT(top_logprobs), RANGE(0, TOP_LOGPROBS_MAX) },
    { "top_p", ON_BOTH, .read = read_number, AT(top_p), RANGE(0, 1) },
    { "truncate_prompt_tokens", ON_BOTH, NO(0, "a prompt is never shortened; one that is too long is refused") },
    { "use_beam_search", ON_BOTH, NO(IF_FALSE, "there is no beam search") },
    { "user", ON_BOTH, .read = read_nothing },
    { "verbosity", ON_CHAT, NO(0, "say in the messages how long the answer should be") },
    { "web_search_options", ON_CHAT, NO(0, "there is no web search") },
};
#define FIELDS_N (sizeof fields / sizeof fields[0])

static const char *endpoint_path(enum endpoint e)
{
    return e == ENDPOINT_CHAT ? "/v1/chat/completions" : "/v1/completions";
}

static int field_compare(const void *name, const void *f)
{
    return strcmp(name, ((const struct field *)f)->name);
}

void params_known(struct intake *in)
{
    for (int e = 0; e < 2; e++) {
        size_t at = 0;

        for (size_t i = 0; i < FIELDS_N; i++) {
            const struct field *f = &fields[i];

            ASSERT(i == 0 || strcmp(fields[i - 1].name, f->name) < 0);
            if ((f->on & 1 << e) == 0 || f->read == read_unsupported)
                continue;
            at += (size_t)snprintf(in->known[e] + at, sizeof in->known[e] - at, "%s%s", at > 0 ? ", " : "", f->name);
            ASSERT(at < sizeof in->known[e]);
        }
    }
}

/* Edits between two names (insert, delete, replace: Levenshtein 1966), or more than `most`. */
static int edits(const char *a, const char *b, int most)
{
    enum { NAME_MAX_N = 48 };
    int row[NAME_MAX_N + 1];
    size_t a_n = strlen(a), b_n = strlen(b);

    if (a_n > NAME_MAX_N || b_n > NAME_MAX_N)
        return most + 1;
    for (size_t j = 0; j <= b_n; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= a_n; i++) {
        int diagonal = row[0];

        row[0] = (int)i;
        for (size_t j = 1; j <= b_n; j++) {
            int replaced = diagonal + (a[i - 1] != b[j - 1]);
            int shorter = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;

            diagonal = row[j];
            row[j] = replaced < shorter ? replaced : shorter;
        }
    }
    return row[b_n];
}

static status unknown_reject(struct draft *d, const char *name, size_t n)
{
    int on = 1 << d->r->endpoint, best = n < 6 ? 2 : 3;      /* fewer edits than this are a slip of the pen */
    const char *near = NULL, *shown = name_quoted(d, name, n);

    for (size_t i = 0; i < FIELDS_N; i++) {
        int e = (fields[i].on & on) != 0 ? edits(name, fields[i].name, best) : best;

        if (e < best) {
            best = e;
            near = fields[i].name;
        }
    }
    if (near != NULL)
        return REJECT(d, UNKNOWN_DID, shown, shown, near);
    return REJECT(d, UNKNOWN, shown, shown, d->in->known[d->r->endpoint]);
}

bool params_misplaced(const char *name, bool *harmless)
{
    const struct field *f = bsearch(name, fields, FIELDS_N, sizeof fields[0], field_compare);

    *harmless = f != NULL && f->read == read_nothing;
    return f != NULL;
}

void draft_defaults(struct draft *d)
{
    d->temperature = d->top_p = d->repetition = 1;
    d->top_k = d->best_of = d->max_tokens = d->max_completion_tokens = d->top_logprobs = -1;
    d->n = 1;
    d->skip_special = d->add_special = d->add_generation = true;
}

/* Fields that speak about each other. */
static status params_agree(struct draft *d)
{
    const struct config *cfg = d->in->m->cfg;
    int64_t n_max = cfg->choices_max < cfg->line_choices_max ? cfg->choices_max : cfg->line_choices_max;
    bool chat = d->r->endpoint == ENDPOINT_CHAT;

    if (chat && d->max_tokens == 0)
        return REJECT(d, VALUE, "max_tokens", "max_tokens", draft_text(d, "an integer from 1 to %d", INT_MAX), "0");
    if (d->max_completion_tokens >= 0 && d->max_tokens >= 0 && d->max_tokens != d->max_completion_tokens)
        return REJECT(d, CONFLICT, "max_tokens", "max_tokens", "and 'max_completion_tokens' contradict each other");
    if (d->max_tokens < 0)
        d->max_tokens = d->max_completion_tokens;
    if (d->max_tokens >= 0 && d->min_tokens > d->max_tokens)
        return REJECT(d, CONFLICT, "min_tokens", "min_tokens", "is more than 'max_tokens'");
    if (d->n > n_max)
        return REJECT(d, VALUE, "n", "n", draft_text(d, "an integer from 1 to %lld (setting choices_max)",
                                                     (long long)n_max), draft_text(d, "%lld", (long long)d->n));
    if (d->best_of >= 0 && d->best_of != d->n)
        return REJECT(d, UNSUPPORTED, "best_of", "best_of", "only a value equal to 'n' is possible");
    if (chat && d->top_logprobs > 0 && !d->logprobs)
        return REJECT(d, CONFLICT, "top_logprobs", "top_logprobs", "needs 'logprobs' to be true");
    if (chat && d->echo)
        return REJECT(d, OTHER_ENDPOINT, "echo", "echo", endpoint_path(ENDPOINT_COMPLETIONS), endpoint_path(ENDPOINT_CHAT));
    if (d->continue_final && d->add_generation_given && d->add_generation)
        return REJECT(d, CONFLICT, "continue_final_message", "continue_final_message",
                      "and 'add_generation_prompt' cannot both be true: the answer either goes on with the last message "
                      "or begins a new one");
    if (d->continue_final)
        d->add_generation = false;
    return ST_OK;
}

static void params_keep(const struct draft *d)
{
    struct params *p = &d->r->params;

    /* Below this a division by it overflows; vLLM draws the same line to greedy. */
    p->temperature = d->temperature < 1e-5 ? 0 : (float)d->temperature;
    p->top_p = d->top_p < 1e-9 ? 1e-9f : (float)d->top_p;
    p->min_p = (float)d->min_p;
    p->top_k = d->top_k < 0 ? 0 : (int32_t)d->top_k;
    p->repetition = (float)d->repetition;
    p->presence = (float)d->presence;
    p->frequency = (float)d->frequency;
    p->seed_given = d->seed_given;
    p->seed = (uint64_t)d->seed;
    p->ignore_eos = d->ignore_eos;
    p->echo = d->echo;
    p->echo_logprobs = d->echo && d->logprobs;
    p->logprobs = d->logprobs;
    p->top_logprobs_n = d->logprobs && d->top_logprobs > 0 ? (int32_t)d->top_logprobs : 0;
    p->skip_special = d->skip_special;
    p->include_stop = p->stop.include = d->include_stop;
    p->n = (int32_t)d->n;
    d->r->priority = d->priority;
}

status params_read(struct draft *d, json_t *body)
{
    status st = ST_OK;
    int on = 1 << d->r->endpoint;
    const char *name;
    size_t name_n;
    json_t *v;

    json_object_keylen_foreach(body, name, name_n, v) {
        const struct field *f = bsearch(name, fields, FIELDS_N, sizeof fields[0], field_compare);

        if (f == NULL)
            return unknown_reject(d, name, name_n);
        if (json_is_null(v))
            continue;
        if ((f->on & on) == 0)
            return REJECT(d, OTHER_ENDPOINT, name, name, endpoint_path(d->r->endpoint == ENDPOINT_CHAT ?
                          ENDPOINT_COMPLETIONS : ENDPOINT_CHAT), endpoint_path(d->r->endpoint));
        TRY(f->read(d, f, v));
    }
    TRY(params_agree(d));
    params_keep(d);
out:
    return st;
}
