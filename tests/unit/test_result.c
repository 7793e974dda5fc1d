/* Ended requests to result lines: the shapes, word for word, and what odd outputs do to them. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/lines_fixture.h"
#include "tests/support/tiny_model.h"

static struct lines_fixture fix;
static const char id[] = "batch_req_0123456789abcdef_7";

static struct request *read_body(const char *url, const char *body)
{
    char line[4096];
    struct request *r;

    snprintf(line, sizeof line, "{\"custom_id\":\"c\",\"method\":\"POST\",\"url\":\"%s\",\"body\":{%s}}", url, body);
    r = lines_fixture_read(&fix, line);
    if (r->verdict != VERDICT_NONE)
        fail_msg("%s", r->error_text);
    return r;
}

static struct request *read_chat(const char *fields)
{
    char body[2048];

    snprintf(body, sizeof body, "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]%s", fields);
    return read_body("/v1/chat/completions", body);
}

static struct request *read_prompt(const char *fields)
{
    char body[2048];

    snprintf(body, sizeof body, "\"prompt\":%s", fields);
    return read_body("/v1/completions", body);
}

static void answer_text(struct request *r, int choice, const char *text, enum finish finish)
{
    int32_t tokens[256];
    int n = lines_fixture_encode(&fix, text, tokens, 256);

    lines_fixture_answer(&fix, r, choice, tokens, n, finish);
}

/* The line as JSON; what it holds must be one line of strict JSON. */
static json_t *result_of(const struct request *r, enum result_kind want, struct buf *line)
{
    json_t *v;

    buf_reset(line);
    assert_int_equal(lines_result(&fix.m, r, id, line), want);
    assert_null(memchr(line->data, '\n', line->n));
    v = json_loadb(line->data, line->n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (v == NULL)
        fail_msg("not JSON: %s", buf_text(line));
    return v;
}

static void assert_line(struct request *r, enum result_kind kind, const char *want)
{
    struct buf line = BUF_EMPTY;

    json_decref(result_of(r, kind, &line));
    assert_string_equal(buf_text(&line), want);
    buf_fini(&line);
    request_free_line(r);
}

static const json_t *at(const json_t *v, const char *path)
{
    char part[64];

    while (*path != '\0') {
        size_t n = strcspn(path, ".");

        snprintf(part, sizeof part, "%.*s", (int)n, path);
        path += n + (path[n] == '.');
        v = json_is_array(v) ? json_array_get(v, (size_t)atoi(part)) : json_object_get(v, part);
        if (v == NULL)
            fail_msg("no %s", part);
    }
    return v;
}

static void chat(void **state)
{
    struct request *r = read_chat(",\"model\":\"m\"");
    (void)state;

    answer_text(r, 0, "caf\u00e9 \"x\"\n", FINISH_STOP);
    r->cached_n = 4;
    assert_int_equal(r->prompt_n, 16);
    assert_int_equal(r->choices[0].tokens_n, 10);
    assert_null(lines_failure_code(r));
    assert_line(r, RESULT_OUTPUT,
        "{\"id\":\"batch_req_0123456789abcdef_7\",\"custom_id\":\"c\",\"response\":{\"status_code\":200,"
        "\"request_id\":\"req_0123456789abcdef_7\",\"body\":{\"id\":\"chatcmpl-0123456789abcdef_7\","
        "\"object\":\"chat.completion\",\"created\":0,\"model\":\"m\",\"choices\":[{\"index\":0,\"message\":"
        "{\"role\":\"assistant\",\"content\":\"caf\u00e9 \\\"x\\\"\\n\",\"refusal\":null},\"logprobs\":null,"
        "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":16,\"completion_tokens\":10,\"total_tokens\":26,"
        "\"prompt_tokens_details\":{\"cached_tokens\":4}},\"system_fingerprint\":\"fp_1\"}},\"error\":null}");
}

static void completions(void **state)
{
    struct request *r = read_prompt("\"hi\",\"echo\":true,\"n\":2");
    (void)state;

    answer_text(r, 0, " a", FINISH_LENGTH);
    answer_text(r, 1, "", FINISH_STOP);
    fix.m.fingerprint = NULL;
    assert_line(r, RESULT_OUTPUT,
        "{\"id\":\"batch_req_0123456789abcdef_7\",\"custom_id\":\"c\",\"response\":{\"status_code\":200,"
        "\"request_id\":\"req_0123456789abcdef_7\",\"body\":{\"id\":\"cmpl-0123456789abcdef_7\","
        "\"object\":\"text_completion\",\"created\":0,\"model\":\"tiny\",\"choices\":["
        "{\"index\":0,\"text\":\"hi a\",\"logprobs\":null,\"finish_reason\":\"length\"},"
        "{\"index\":1,\"text\":\"hi\",\"logprobs\":null,\"finish_reason\":\"stop\"}],"
        "\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1,\"total_tokens\":3,"
        "\"prompt_tokens_details\":{\"cached_tokens\":0}},\"system_fingerprint\":null}},\"error\":null}");
    fix.m.fingerprint = "fp_1";
}

static void several_prompts(void **state)
{
    struct request *r = read_prompt("[\"a\",\"bc\"],\"n\":2");
    struct buf line = BUF_EMPTY;
    json_t *v;
    (void)state;

    for (int i = 0; i < 4; i++) {
        char text[16];

        snprintf(text, sizeof text, "%d", i);
        answer_text(r->group->requests[i / 2], i % 2, text, FINISH_LENGTH);
    }
    r->group->requests[0]->cached_n = 2;
    r->group->requests[1]->cached_n = 1;
    v = result_of(r->group->requests[1], RESULT_OUTPUT, &line);      /* any member speaks for the line */
    for (int i = 0; i < 4; i++) {
        char path[64], text[16];

        snprintf(path, sizeof path, "response.body.choices.%d.index", i);
        assert_int_equal(json_integer_value(at(v, path)), i);
        snprintf(path, sizeof path, "response.body.choices.%d.text", i);
        snprintf(text, sizeof text, "%d", i);
        assert_string_equal(json_string_value(at(v, path)), text);
    }
    assert_int_equal(json_integer_value(at(v, "response.body.usage.prompt_tokens")), 3);
    assert_int_equal(json_integer_value(at(v, "response.body.usage.completion_tokens")), 4);
    assert_int_equal(json_integer_value(at(v, "response.body.usage.prompt_tokens_details.cached_tokens")), 3);
    json_decref(v);
    buf_fini(&line);
    request_free_line(r);
}

static void refusals(void **state)
{
    struct request *r = lines_fixture_read(&fix, "{\"custom_id\":\"c\",\"method\":\"POST\",\"url\":\"/v1/completions\","
                                           "\"body\":{\"prompt\":\"hi\",\"n\":\"x\\u0000\\ny\"}}");
    (void)state;

    assert_string_equal(lines_failure_code(r), "invalid_type");
    assert_line(r, RESULT_FAILURE,
        "{\"id\":\"batch_req_0123456789abcdef_7\",\"custom_id\":\"c\",\"response\":{\"status_code\":400,"
        "\"request_id\":\"req_0123456789abcdef_7\",\"body\":{\"error\":{\"message\":\"'n' must be an integer, not a string\","
        "\"type\":\"invalid_request_error\",\"param\":\"n\",\"code\":\"invalid_type\"}}},\"error\":null}");
    r = lines_fixture_read(&fix, "{\"a\": \"\xff\"}");
    assert_string_equal(lines_failure_code(r), "invalid_utf8");
    assert_line(r, RESULT_FAILURE,
        "{\"id\":\"batch_req_0123456789abcdef_7\",\"custom_id\":null,\"response\":null,\"error\":{\"code\":\"invalid_utf8\","
        "\"message\":\"line 1, byte 7 (byte 7 of the file): this is not UTF-8\"}}");
}

static void verdicts_after_the_intake(void **state)
{
    struct request *r = read_prompt("[\"a\",\"b\"]"), *second = r->group->requests[1];
    (void)state;

    answer_text(r, 0, "x", FINISH_STOP);
    lines_reject(second, LINES_KV_TOO_SMALL, NULL, (const char *const[]){ "9", "4", NULL });
    lines_reject(second, LINES_EXPIRED, NULL, (const char *const[]){ NULL });           /* the first one stays */
    assert_string_equal(lines_failure_code(r), "kv_memory_exceeded");
    assert_line(r, RESULT_FAILURE,
        "{\"id\":\"batch_req_0123456789abcdef_7\",\"custom_id\":\"c\",\"response\":{\"status_code\":400,"
        "\"request_id\":\"req_0123456789abcdef_7\",\"body\":{\"error\":{\"message\":\"the prompt and its answer need 9 KV pages "
        "and the pool has 4; raise the setting kv_memory_mb\",\"type\":\"invalid_request_error\",\"param\":null,"
        "\"code\":\"kv_memory_exceeded\"}}},\"error\":null}");
    r = read_chat("");
    lines_reject(r, LINES_QUARANTINED, NULL, (const char *const[]){ "2", NULL });
    assert_int_equal(r->verdict, VERDICT_QUARANTINED);
    assert_line(r, RESULT_FAILURE,
        "{\"id\":\"batch_req_0123456789abcdef_7\",\"custom_id\":\"c\",\"response\":null,\"error\":{\"code\":\"quarantined\","
        "\"message\":\"the worker died 2 times while it computed this line; it is set aside\"}}");
    r = read_chat("");
    lines_reject(r, LINES_EXPIRED, NULL, (const char *const[]){ NULL });
    assert_int_equal(r->verdict, VERDICT_EXPIRED);
    assert_string_equal(lines_failure_code(r), "batch_expired");
    assert_line(r, RESULT_OUTPUT,
        "{\"id\":\"batch_req_0123456789abcdef_7\",\"custom_id\":\"c\",\"response\":null,\"error\":{\"code\":\"batch_expired\","
        "\"message\":\"the line's deadline passed before it was done\"}}");
}

static void one_failed_choice(void **state)
{
    struct request *r = read_prompt("\"hi\",\"n\":2");
    struct buf line = BUF_EMPTY;
    json_t *v;
    (void)state;

    answer_text(r, 0, "good", FINISH_STOP);
    answer_text(r, 1, "half", FINISH_ERROR);
    r->choices[1].error = "the logits are NaN";
    assert_string_equal(lines_failure_code(r), "sequence_failed");
    v = result_of(r, RESULT_FAILURE, &line);
    assert_int_equal(json_integer_value(at(v, "response.status_code")), 500);
    assert_string_equal(json_string_value(at(v, "response.body.choices.0.text")), "good");
    assert_string_equal(json_string_value(at(v, "response.body.choices.0.finish_reason")), "stop");
    assert_string_equal(json_string_value(at(v, "response.body.choices.1.finish_reason")), "error");
    assert_string_equal(json_string_value(at(v, "response.body.error.message")), "choice 1: the logits are NaN");
    assert_string_equal(json_string_value(at(v, "response.body.error.code")), "sequence_failed");
    assert_string_equal(json_string_value(at(v, "response.body.error.type")), "server_error");
    json_decref(v);
    buf_fini(&line);
    request_free(r);
}

/* Bytes that are no text, cut characters, control tokens: what the engine may make of a model's whims. */
static void odd_outputs(void **state)
{
    int32_t tokens[] = { 0, 0, 0, TINY_IM_END };
    struct request *r = read_chat("");
    struct buf line = BUF_EMPTY;
    json_t *v;
    (void)state;

    tokens[0] = tokenizer_find(fix.tokenizer, "\xff", 1);
    tokens[1] = tokenizer_find(fix.tokenizer, "\xf0", 1);
    tokens[2] = tokenizer_find(fix.tokenizer, "\x9f", 1);
    lines_fixture_answer(&fix, r, 0, tokens, 4, FINISH_STOP);
    v = result_of(r, RESULT_OUTPUT, &line);
    assert_string_equal(json_string_value(at(v, "response.body.choices.0.message.content")), "\ufffd\ufffd");
    assert_int_equal(json_integer_value(at(v, "response.body.usage.completion_tokens")), 4);
    json_decref(v);
    request_free(r);
    r = read_chat(",\"skip_special_tokens\":false");
    lines_fixture_answer(&fix, r, 0, tokens + 3, 1, FINISH_STOP);
    v = result_of(r, RESULT_OUTPUT, &line);
    assert_string_equal(json_string_value(at(v, "response.body.choices.0.message.content")), "<|im_end|>");
    json_decref(v);
    buf_fini(&line);
    request_free(r);
}

/* ---- log-probabilities ---- */

static const char *logprobs_text(const struct request *r, struct buf *line, char *out, size_t out_n)
{
    json_t *v = result_of(r, RESULT_OUTPUT, line);
    char *text = json_dumps(at(v, "response.body.choices.0.logprobs"), JSON_COMPACT);

    snprintf(out, out_n, "%s", text);
    free(text);
    json_decref(v);
    return out;
}

static void chat_logprobs(void **state)
{
    struct request *r = read_chat(",\"logprobs\":true,\"top_logprobs\":2");
    struct buf line = BUF_EMPTY;
    int32_t tokens[3] = { TINY_BYTE('A'), 0, TINY_IM_END };
    char text[2048];
    (void)state;

    tokens[0] = tokenizer_find(fix.tokenizer, "A", 1);
    tokens[1] = tokenizer_find(fix.tokenizer, "\xc3", 1);
    lines_fixture_answer(&fix, r, 0, tokens, 3, FINISH_STOP);
    r->choices[0].logprobs[0].logprob = -0.1f;
    r->choices[0].logprobs[0].top[0].token = tokens[0];
    r->choices[0].logprobs[0].top[0].logprob = -0.1f;
    r->choices[0].logprobs[0].top[1].token = tokenizer_find(fix.tokenizer, "B", 1);
    r->choices[0].logprobs[0].top[1].logprob = -INFINITY;
    r->choices[0].logprobs[1].logprob = -INFINITY;
    r->choices[0].logprobs[1].top_n = 0;
    r->choices[0].logprobs[2].logprob = NAN;
    r->choices[0].logprobs[2].top_n = 0;
    assert_string_equal(logprobs_text(r, &line, text, sizeof text),
        "{\"content\":[{\"token\":\"A\",\"logprob\":-0.10000000000000001,\"bytes\":[65],\"top_logprobs\":["
        "{\"token\":\"A\",\"logprob\":-0.10000000000000001,\"bytes\":[65]},{\"token\":\"B\",\"logprob\":-9999.0,\"bytes\":[66]}]},"
        "{\"token\":\"\\\\xc3\",\"logprob\":-9999.0,\"bytes\":[195],\"top_logprobs\":[]},"
        "{\"token\":\"<|im_end|>\",\"logprob\":-9999.0,\"bytes\":[60,124,105,109,95,101,110,100,124,62],\"top_logprobs\":[]}],"
        "\"refusal\":null}");
    assert_non_null(strstr(buf_text(&line), "\"logprob\":-0.1,"));
    buf_fini(&line);
    request_free(r);
}

static void completions_logprobs(void **state)
{
    struct request *r = read_prompt("\"h\u00e9\",\"logprobs\":1,\"echo\":true,\"stop\":\"Y\"");
    struct buf line = BUF_EMPTY;
    int32_t tokens[5];
    char text[2048];
    (void)state;

    tokens[0] = tokenizer_find(fix.tokenizer, "X", 1);
    tokens[1] = tokenizer_find(fix.tokenizer, "\xc3", 1);
    tokens[2] = tokenizer_find(fix.tokenizer, "\xa9", 1);
    tokens[3] = tokenizer_find(fix.tokenizer, "Y", 1);
    tokens[4] = TINY_IM_END;
    lines_fixture_answer(&fix, r, 0, tokens, 5, FINISH_STOP);
    for (int i = 0; i < 5; i++) {
        struct logprob *l = &r->choices[0].logprobs[i];

        l->logprob = -1;
        l->top[0].token = i == 0 ? tokenizer_find(fix.tokenizer, "Z", 1) : l->token;
        l->top[0].logprob = i == 0 ? -0.5f : -1;
    }
    for (int i = 0; i < r->prompt_n; i++) {
        r->prompt_logprobs[i].logprob = -2;
        r->prompt_logprobs[i].top[0].token = r->prompt[i];
        r->prompt_logprobs[i].top[0].logprob = -2;
    }
    assert_int_equal(r->prompt_n, 3);
    assert_string_equal(logprobs_text(r, &line, text, sizeof text),
        "{\"tokens\":[\"h\",\"bytes:\\\\xc3\",\"bytes:\\\\xa9\",\"X\",\"bytes:\\\\xc3\",\"bytes:\\\\xa9\",\"Y\",\"<|im_end|>\"],"
        "\"token_logprobs\":[null,-2.0,-2.0,-1.0,-1.0,-1.0,-1.0,-1.0],"
        "\"top_logprobs\":[null,{\"bytes:\\\\xc3\":-2.0},{\"bytes:\\\\xa9\":-2.0},{\"Z\":-0.5,\"X\":-1.0},"
        "{\"bytes:\\\\xc3\":-1.0},{\"bytes:\\\\xa9\":-1.0},{\"Y\":-1.0},{\"<|im_end|>\":-1.0}],"
        "\"text_offset\":[0,1,1,2,3,3,4,4]}");
    assert_non_null(strstr(buf_text(&line), "\"text\":\"h\u00e9X\u00e9\""));
    buf_fini(&line);
    request_free(r);
}

/* Without alternatives a token's own log-probability is there all the same. */
static void completions_logprobs_zero(void **state)
{
    struct request *r = read_prompt("\"h\",\"logprobs\":0");
    struct buf line = BUF_EMPTY;
    int32_t token = tokenizer_find(fix.tokenizer, "X", 1);
    char text[512];
    (void)state;

    lines_fixture_answer(&fix, r, 0, &token, 1, FINISH_LENGTH);
    r->choices[0].logprobs[0].logprob = -1.5f;
    assert_string_equal(logprobs_text(r, &line, text, sizeof text),
        "{\"tokens\":[\"X\"],\"token_logprobs\":[-1.5],\"top_logprobs\":[{\"X\":-1.5}],\"text_offset\":[0]}");
    buf_fini(&line);
    request_free(r);
}

/* Every token of the vocabulary, in text and in log-probabilities, makes valid JSON without a key twice. */
static void every_token(void **state)
{
    int vocab = tokenizer_vocab(fix.tokenizer);
    struct buf line = BUF_EMPTY;
    (void)state;

    for (int e = 0; e < 2; e++) {
        struct request *r = e == 0 ? read_chat(",\"logprobs\":true,\"top_logprobs\":20") : read_prompt("\"h\",\"logprobs\":20");
        int32_t *tokens = malloc((size_t)vocab * sizeof *tokens);

        for (int i = 0; i < vocab; i++)
            tokens[i] = i;
        lines_fixture_answer(&fix, r, 0, tokens, vocab, FINISH_LENGTH);
        json_decref(result_of(r, RESULT_OUTPUT, &line));
        free(tokens);
        request_free(r);
    }
    buf_fini(&line);
}

static int open_fixture(void **state)
{
    (void)state;
    lines_fixture_open(&fix, NULL, TINY_IM_START, false);
    return 0;
}

static int close_fixture(void **state)
{
    (void)state;
    lines_fixture_close(&fix);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat),
        cmocka_unit_test(completions),
        cmocka_unit_test(several_prompts),
        cmocka_unit_test(refusals),
        cmocka_unit_test(verdicts_after_the_intake),
        cmocka_unit_test(one_failed_choice),
        cmocka_unit_test(odd_outputs),
        cmocka_unit_test(chat_logprobs),
        cmocka_unit_test(completions_logprobs),
        cmocka_unit_test(completions_logprobs_zero),
        cmocka_unit_test(every_token),
    };

    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
