/* Chat: messages to template variables, through the template, into tokens.
 *
 * Every text of the line is TEXT_PLAIN, roles and names included; only the template's own words and bos_token/eos_token
 * can become control tokens. */
#include <string.h>

#include "base/clock.h"
#include "worker/lines/internal.h"

/* Stands behind the last message's text while it is rendered, so that the end of that text is found whatever the template
 * does around it. Noncharacters, which no text exchange holds (Unicode 23.7); the space tells whether the template trims
 * (as Hugging Face's apply_chat_template does it). */
#define END_MARK "\xef\xb7\x90\xef\xb7\x91\xef\xb7\x90"
#define END_MARK_SPACED END_MARK " "

static void set(struct draft *d, struct value *dict, const char *key, const struct value *item)
{
    value_dict_set(&d->in->scratch, dict, key, strlen(key), item);
}

static const struct value *plain(struct draft *d, const json_t *v)
{
    return value_text(&d->in->scratch, json_string_value(v), json_string_length(v), TEXT_PLAIN);
}

static status value_from(struct draft *d, const json_t *v, int depth, const struct value **out)
{
    struct arena *a = &d->in->scratch;
    status st = ST_OK;
    struct value *made;
    const char *key;
    size_t n;
    json_t *item;

    if (depth > KWARGS_DEPTH_MAX)
        return REJECT(d, TOO_DEEP, "chat_template_kwargs", "'chat_template_kwargs'", draft_text(d, "%d", KWARGS_DEPTH_MAX));
    *out = NULL;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        *out = made = value_dict(a);
        json_object_keylen_foreach((json_t *)(uintptr_t)v, key, n, item) {
            const struct value *member = NULL;

            TRY(value_from(d, item, depth + 1, &member));
            value_dict_set(a, made, key, n, member);
        }
        break;
    case JSON_ARRAY:
        *out = made = value_list(a);
        for (size_t i = 0; i < json_array_size(v); i++) {
            const struct value *member = NULL;

            TRY(value_from(d, json_array_get(v, i), depth + 1, &member));
            value_list_add(a, made, member);
        }
        break;
    case JSON_STRING: *out = plain(d, v); break;
    case JSON_INTEGER: *out = value_int(a, json_integer_value(v)); break;
    case JSON_REAL: *out = value_real(a, json_real_value(v)); break;
    case JSON_TRUE: *out = value_bool(true); break;
    case JSON_FALSE: *out = value_bool(false); break;
    case JSON_NULL: *out = value_none(); break;
    }
out:
    return st;
}

/* Adds the text of one content part to in->text. */
static status part_read(struct draft *d, const char *name, const json_t *part)
{
    const json_t *type = json_object_get(part, "type"), *text = json_object_get(part, "text");

    if (!json_is_object(part))
        return type_reject(d, name, "an object with 'type' and 'text'", part);
    if (type == NULL)
        return REJECT(d, MISSING, name, draft_text(d, "%s.type", name), "parts of type 'text' are supported");
    if (!json_is_string(type))
        return type_reject(d, draft_text(d, "%s.type", name), "a string", type);
    if (!word_is(type, "text"))
        return REJECT(d, CONTENT_KIND, name, name, name_quoted(d, json_string_value(type), json_string_length(type)));
    if (text == NULL)
        return REJECT(d, MISSING, name, draft_text(d, "%s.text", name), "a part of type 'text' needs one");
    if (!json_is_string(text))
        return type_reject(d, draft_text(d, "%s.text", name), "a string", text);
    buf_add(&d->in->text, json_string_value(text), json_string_length(text));
    return ST_OK;
}

/* The content's text into in->text. Parts are joined by newlines, as vLLM and llama.cpp do it. */
static status content_read(struct draft *d, size_t i, const json_t *message)
{
    status st = ST_OK;
    const json_t *content = json_object_get(message, "content");
    const char *name = "";

    buf_reset(&d->in->text);
    if (json_is_string(content)) {
        buf_add(&d->in->text, json_string_value(content), json_string_length(content));
        return ST_OK;
    }
    name = draft_text(d, "messages[%zu].content", i);
    if (content == NULL)
        return REJECT(d, MISSING, name, name, "a message needs a string or a list of text parts");
    if (!json_is_array(content))
        return type_reject(d, name, "a string or a list of text parts", content);
    if (json_array_size(content) == 0)
        return REJECT(d, EMPTY_PROMPT, name, name, "a list of content parts needs at least one");
    for (size_t k = 0; k < json_array_size(content); k++) {
        if (k > 0)
            buf_add_byte(&d->in->text, '\n');
        TRY(part_read(d, draft_text(d, "%s[%zu]", name, k), json_array_get(content, k)));
    }
out:
    return st;
}

static status role_read(struct draft *d, size_t i, const json_t *message)
{
    static const char *const roles[] = { "system", "developer", "user", "assistant", "tool" };
    const json_t *role = json_object_get(message, "role");
    const char *name;

    for (size_t k = 0; k < sizeof roles / sizeof roles[0]; k++) {
        if (word_is(role, roles[k]))
            return ST_OK;
    }
    name = draft_text(d, "messages[%zu].role", i);
    if (role == NULL)
        return REJECT(d, MISSING, name, name, "one of system, developer, user, assistant, tool");
    if (!json_is_string(role))
        return type_reject(d, name, "a string", role);
    return REJECT(d, VALUE, name, name, "one of system, developer, user, assistant, tool", value_quoted(d, role));
}

/* A field beside role and content: strings that templates look at are passed on, what an answer's message holds without
 * meaning anything (null, empty list) may be sent back, everything else would be lost and is refused. */
static status message_field_read(struct draft *d, size_t i, const char *key, size_t key_n, const json_t *v,
                                 struct value *message)
{
    static const char *const passed[] = { "name", "tool_call_id", "reasoning_content", "reasoning" };
    static const char *const answered[] = { "refusal", "annotations", "audio", "function_call", "tool_calls" };
    const char *name = draft_text(d, "messages[%zu].%s", i, name_quoted(d, key, key_n));

    for (size_t k = 0; k < sizeof passed / sizeof passed[0]; k++) {
        if (strcmp(key, passed[k]) != 0)
            continue;
        if (json_is_null(v))
            return ST_OK;
        if (!json_is_string(v))
            return type_reject(d, name, "a string", v);
        set(d, message, key, plain(d, v));
        return ST_OK;
    }
    for (size_t k = 0; k < sizeof answered / sizeof answered[0]; k++) {
        if (strcmp(key, answered[k]) != 0)
            continue;
        if (json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0))
            return ST_OK;
        return REJECT(d, UNSUPPORTED, name, name, "messages hold text only; tool calls, audio and refusals cannot be given");
    }
    return REJECT(d, UNKNOWN, name, name, "role, content, name, tool_call_id, reasoning_content, reasoning");
}

static status message_read(struct draft *d, size_t i, const json_t *m, bool marked, struct value **out)
{
    status st = ST_OK;
    struct value *message = value_dict(&d->in->scratch);
    const char *key;
    size_t n;
    json_t *v;

    if (!json_is_object(m))
        return type_reject(d, draft_text(d, "messages[%zu]", i), "an object with 'role' and 'content'", m);
    TRY(role_read(d, i, m));
    set(d, message, "role", plain(d, json_object_get(m, "role")));
    TRY(content_read(d, i, m));
    if (marked)
        buf_add_text(&d->in->text, END_MARK_SPACED);
    set(d, message, "content", value_text(&d->in->scratch, d->in->text.data, d->in->text.n, TEXT_PLAIN));
    json_object_keylen_foreach((json_t *)(uintptr_t)m, key, n, v) {
        if (strcmp(key, "role") != 0 && strcmp(key, "content") != 0)
            TRY(message_field_read(d, i, key, n, v, message));
    }
    *out = message;
out:
    return st;
}

static status messages_read(struct draft *d, struct value *variables)
{
    status st = ST_OK;
    struct value *list = value_list(&d->in->scratch);
    size_t n = json_array_size(d->messages);

    if (d->messages == NULL)
        return REJECT(d, MISSING, "messages", "messages", "/v1/chat/completions needs a list of messages");
    if (!json_is_array(d->messages))
        return type_reject(d, "messages", "a list", d->messages);
    if (n == 0)
        return REJECT(d, EMPTY_PROMPT, "messages", "messages", "at least one message is needed");
    if (d->continue_final && !word_is(json_object_get(json_array_get(d->messages, n - 1), "role"), "assistant"))
        return REJECT(d, CONFLICT, "continue_final_message", "continue_final_message",
                      "needs a last message of role 'assistant'");
    for (size_t i = 0; i < n; i++) {
        struct value *message = NULL;

        TRY(message_read(d, i, json_array_get(d->messages, i), d->continue_final && i + 1 == n, &message));
        value_list_add(&d->in->scratch, list, message);
    }
    set(d, variables, "messages", list);
out:
    return st;
}

static status template_kwargs_read(struct draft *d, struct value *variables)
{
    static const char *const reserved[] = { "messages", "add_generation_prompt", "continue_final_message", "bos_token",
                                            "eos_token", "tools", "chat_template", "tokenize" };
    status st = ST_OK;
    const char *key;
    size_t n;
    json_t *v;

    if (d->template_kwargs == NULL)
        return ST_OK;
    json_object_keylen_foreach((json_t *)(uintptr_t)d->template_kwargs, key, n, v) {
        const struct value *item = NULL;
        const char *name = draft_text(d, "chat_template_kwargs.%s", name_quoted(d, key, n));

        for (size_t k = 0; k < sizeof reserved / sizeof reserved[0]; k++) {
            if (strcmp(key, reserved[k]) == 0)
                return REJECT(d, UNSUPPORTED, name, name, "this variable of the template is not the line's to set");
        }
        TRY(value_from(d, v, 1, &item));
        value_dict_set(&d->in->scratch, variables, key, n, item);
    }
out:
    return st;
}

/* Cuts the rendered prompt behind the last message's own text. */
static status final_cut(struct draft *d, struct text_span *spans, size_t *spans_n)
{
    for (size_t i = *spans_n; i-- > 0;) {
        struct text_span *s = &spans[i];
        const size_t mark_n = strlen(END_MARK);

        for (size_t at = s->n; s->trust == TEXT_PLAIN && at-- > 0;) {
            if (s->n - at < mark_n || memcmp(s->text + at, END_MARK, mark_n) != 0)
                continue;
            if (at + mark_n == s->n || s->text[at + mark_n] != ' ') {       /* the template trims */
                while (at > 0 && strchr(" \t\r\n\f\v", s->text[at - 1]) != NULL && s->text[at - 1] != '\0')
                    at--;
            }
            s->n = at;
            *spans_n = at > 0 ? i + 1 : i;
            return ST_OK;
        }
    }
    return REJECT(d, CONTINUE, "continue_final_message", NULL);
}

status messages_encode(struct draft *d, const int32_t **tokens, size_t *tokens_n)
{
    status st = ST_OK;
    const struct lines_model *m = d->in->m;
    struct arena *a = &d->in->scratch;
    struct template_limits limits = { .steps_max = m->cfg->template_steps_max,
                                      .output_bytes_max = (size_t)m->cfg->template_output_mb << 20,
                                      .now_ns = d->r->created_s > 0 ? d->r->created_s * NS_PER_S : m->now_ns };
    struct value *variables = value_dict(a);
    struct text_span *spans;
    size_t spans_n;
    struct error err;

    TRY(template_kwargs_read(d, variables));
    TRY(messages_read(d, variables));
    if (m->template == NULL)
        return REJECT(d, NO_TEMPLATE, "messages", NULL);
    set(d, variables, "add_generation_prompt", value_bool(d->add_generation));
    set(d, variables, "bos_token", value_text(a, m->bos_text, strlen(m->bos_text), TEXT_TRUSTED));
    set(d, variables, "eos_token", value_text(a, m->eos_text, strlen(m->eos_text), TEXT_TRUSTED));
    set(d, variables, "tools", value_none());
    set(d, variables, "documents", value_none());
    if (template_render(m->template, variables, &limits, a, &spans, &spans_n, &err) != ST_OK)
        return REJECT(d, TEMPLATE, "messages", err.text);
    if (d->continue_final)
        TRY(final_cut(d, spans, &spans_n));
    if (encoder_encode(d->in->encoder, spans, spans_n, tokens, tokens_n) != ST_OK)
        return REJECT(d, TEMPLATE, "messages", "what it makes of them is not UTF-8");
    if (*tokens_n == 0)
        return REJECT(d, EMPTY_PROMPT, "messages", "messages", "the chat template makes no token of them");
out:
    return st;
}
