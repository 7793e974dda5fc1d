/* Result lines: the shape of OpenAI's batch output (facts in the specification openai-openapi, BatchRequestOutput,
 * CreateChatCompletionResponse, CreateCompletionResponse). Written once, straight into the line. */
#include "worker/lines/result.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "worker/lines/json_write.h"

static const char id_prefix[] = "batch_req_";

/* The members whose answers make the line. */
struct members { const struct request *const *r; int32_t n; };

static struct members members_of(const struct request *const *r)
{
    const struct request_group *g = (*r)->group;

    return g == NULL ? (struct members){ r, 1 } : (struct members){ (const struct request *const *)g->requests, g->requests_n };
}

/* The first member that ended otherwise than done; NULL: none. */
static const struct request *refused_member(struct members ms)
{
    for (int32_t i = 0; i < ms.n; i++) {
        if (ms.r[i]->verdict != VERDICT_DONE)
            return ms.r[i];
    }
    return NULL;
}

/* The line's number of the first choice that failed; -1: none. */
static int32_t failed_choice(struct members ms, const struct choice **out)
{
    for (int32_t i = 0; i < ms.n; i++) {
        for (int32_t k = 0; k < ms.r[i]->params.n; k++) {
            if (ms.r[i]->choices[k].finish == FINISH_ERROR) {
                *out = &ms.r[i]->choices[k];
                return i * ms.r[i]->params.n + k;
            }
        }
    }
    return -1;
}

static void id_add(struct buf *b, const char *kind, const char *id)
{
    size_t prefix_n = strlen(id_prefix);

    buf_add_byte(b, '"');
    buf_add_text(b, kind);
    id += strncmp(id, id_prefix, prefix_n) == 0 ? prefix_n : 0;
    json_add_chars(b, id, strlen(id));
    buf_add_byte(b, '"');
}

static void text_or_null(struct buf *b, const char *text)
{
    if (text == NULL)
        buf_add_text(b, "null");
    else
        json_add_text(b, text, strlen(text));
}

static void error_object_add(struct buf *b, const char *message, int http, const char *param, const char *code)
{
    buf_add_text(b, "{\"message\":");
    text_or_null(b, message);
    buf_add_text(b, http >= 500 ? ",\"type\":\"server_error\",\"param\":" : ",\"type\":\"invalid_request_error\",\"param\":");
    text_or_null(b, param);
    buf_add_text(b, ",\"code\":");
    text_or_null(b, code);
    buf_add_byte(b, '}');
}

static void failed_choice_add(struct buf *b, int32_t index, const struct choice *c)
{
    struct buf message = BUF_EMPTY;
    char number[16];

    snprintf(number, sizeof number, "%" PRId32, index);
    verdict_message_add(&message, LINES_SEQUENCE, (const char *const[]){ number, c->error, NULL });
    buf_add_text(b, ",\"error\":");
    error_object_add(b, buf_text(&message), 500, NULL, verdict_code(LINES_SEQUENCE));
    buf_fini(&message);
}

static void line_begin(struct buf *b, const struct request *r, const char *id)
{
    buf_add_text(b, "{\"id\":");
    json_add_text(b, id, strlen(id));
    buf_add_text(b, ",\"custom_id\":");
    buf_add_text(b, r->custom_id);
}

static void response_begin(struct buf *b, int http, const char *id)
{
    buf_add_text(b, ",\"response\":{\"status_code\":");
    json_add_int(b, http);
    buf_add_text(b, ",\"request_id\":");
    id_add(b, "req_", id);
    buf_add_text(b, ",\"body\":");
}

static void refused_add(struct buf *b, const struct request *r, const char *id)
{
    if (r->http_status != 0) {
        response_begin(b, r->http_status, id);
        buf_add_text(b, "{\"error\":");
        error_object_add(b, r->error_text, r->http_status, r->error_param, lines_failure_code(r));
        buf_add_text(b, "}},\"error\":null}");
        return;
    }
    buf_add_text(b, ",\"response\":null,\"error\":{\"code\":");
    text_or_null(b, lines_failure_code(r));
    buf_add_text(b, ",\"message\":");
    text_or_null(b, r->error_text);
    buf_add_text(b, "}}");
}

static const char *finish_name(enum finish f)
{
    switch (f) {
    case FINISH_STOP: return "\"stop\"";
    case FINISH_LENGTH: return "\"length\"";
    case FINISH_ERROR: return "\"error\"";
    case FINISH_NONE: break;
    }
    ASSERT(!"a choice of a finished request is not finished");
    return "";
}

static void choice_add(struct buf *b, const struct lines_model *m, const struct request *r, const struct choice *c,
                       int32_t index)
{
    bool chat = r->endpoint == ENDPOINT_CHAT;

    buf_add_text(b, "{\"index\":");
    json_add_int(b, index);
    buf_add_text(b, chat ? ",\"message\":{\"role\":\"assistant\",\"content\":\"" : ",\"text\":\"");
    if (r->params.echo)
        json_add_chars(b, r->prompt_text, r->prompt_text_n);
    json_add_chars(b, c->detok.text.data, c->detok.shown_n);
    buf_add_text(b, chat ? "\",\"refusal\":null},\"logprobs\":" : "\",\"logprobs\":");
    logprobs_add(b, m, r, c);
    buf_add_text(b, ",\"finish_reason\":");
    buf_add_text(b, finish_name(c->finish));
    buf_add_byte(b, '}');
}

static void usage_add(struct buf *b, struct members ms)
{
    int64_t prompt_n = 0, completion_n = 0, cached_n = 0;

    for (int32_t i = 0; i < ms.n; i++) {
        prompt_n += ms.r[i]->prompt_n;
        cached_n += ms.r[i]->cached_n;
        for (int32_t k = 0; k < ms.r[i]->params.n; k++)
            completion_n += ms.r[i]->choices[k].tokens_n;
    }
    buf_add_text(b, "\"usage\":{\"prompt_tokens\":");
    json_add_int(b, prompt_n);
    buf_add_text(b, ",\"completion_tokens\":");
    json_add_int(b, completion_n);
    buf_add_text(b, ",\"total_tokens\":");
    json_add_int(b, prompt_n + completion_n);
    buf_add_text(b, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    json_add_int(b, cached_n);
    buf_add_text(b, "}}");
}

static void answer_add(struct buf *b, const struct lines_model *m, struct members ms, const char *id)
{
    const struct request *first = ms.r[0];
    bool chat = first->endpoint == ENDPOINT_CHAT;

    buf_add_text(b, "\"id\":");
    id_add(b, chat ? "chatcmpl-" : "cmpl-", id);
    buf_add_text(b, chat ? ",\"object\":\"chat.completion\",\"created\":" : ",\"object\":\"text_completion\",\"created\":");
    json_add_int(b, first->created_s);
    buf_add_text(b, ",\"model\":");
    buf_add_text(b, first->model);
    buf_add_text(b, ",\"choices\":[");
    for (int32_t i = 0; i < ms.n; i++) {
        const struct request *r = ms.r[i];

        for (int32_t k = 0; k < r->params.n; k++) {
            if (i > 0 || k > 0)
                buf_add_byte(b, ',');
            choice_add(b, m, r, &r->choices[k], i * r->params.n + k);
        }
    }
    buf_add_text(b, "],");
    usage_add(b, ms);
    buf_add_text(b, ",\"system_fingerprint\":");
    text_or_null(b, m->fingerprint);
}

enum result_kind lines_result(const struct lines_model *m, const struct request *r, const char *id, struct buf *line)
{
    struct members ms = members_of(&r);
    const struct request *refused = refused_member(ms);
    const struct choice *failed = NULL;
    int32_t failed_i = -1;

    line_begin(line, r, id);
    if (refused != NULL) {
        ASSERT(refused->verdict != VERDICT_NONE);
        refused_add(line, refused, id);
        return refused->verdict == VERDICT_EXPIRED ? RESULT_OUTPUT : RESULT_FAILURE;     /* no fault of the record's */
    }
    failed_i = failed_choice(ms, &failed);
    response_begin(line, failed_i < 0 ? 200 : 500, id);
    buf_add_byte(line, '{');
    answer_add(line, m, ms, id);
    if (failed_i >= 0)
        failed_choice_add(line, failed_i, failed);
    buf_add_text(line, "}},\"error\":null}");
    return failed_i < 0 ? RESULT_OUTPUT : RESULT_FAILURE;
}

const char *lines_failure_code(const struct request *r)
{
    struct members ms = members_of(&r);
    const struct request *refused = refused_member(ms);
    const struct choice *failed;

    if (refused == NULL)
        return failed_choice(ms, &failed) >= 0 ? verdict_code(LINES_SEQUENCE) : NULL;
    return refused->error_code != NULL ? refused->error_code : "internal_error";
}
