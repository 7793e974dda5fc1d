/* Record to request: every row of design.md section 8 about the line and its fields, and every parameter with a good
 * value, a value out of range and a wrong type. */
#include "tests/support/lines_assert.h"

#include "tests/support/tiny_model.h"

/* ---- the line ---- */

static void blank_lines_are_nothing(void **state)
{
    static const char *const blank[] = { "", " ", "\r", " \t \r" };
    struct record tombstone = { .value = NULL }, empty = { .value = "", .at_bytes = -1 };
    struct request *r = NULL;
    (void)state;

    for (size_t i = 0; i < sizeof blank / sizeof blank[0]; i++)
        assert_null(lines_fixture_read(&fix, blank[i]));
    assert_int_equal(intake_read(fix.in, &tombstone, &r), ST_AGAIN);
    assert_null(r);
    /* a topic's record, and what a file's queue gives out, is answered */
    assert_int_equal(intake_read(fix.in, &empty, &r), ST_OK);
    assert_refused(r, 0, "invalid_json", NULL, "offset 0 of source 0");
}

static void marks_and_line_ends_are_accepted(void **state)
{
    static const char line[] = "\xef\xbb\xbf {\"custom_id\":\"x\",\"method\":\"POST\",\"url\":\"/v1/completions\","
                               "\"body\":{\"prompt\":\"hi\"}} \r";
    struct request *r = lines_fixture_read(&fix, line);
    (void)state;

    assert_good(r);
    assert_string_equal(r->custom_id, "\"x\"");
    request_free(r);
}

static void lines_that_are_no_json(void **state)
{
    static const struct { const char *line, *code, *text; } rows[] = {
        { "{\"custom_id\": \"a\", oops}", "invalid_json", "line 1, byte 19 (byte 19 of the file)" },
        { "{\"custom_id\": \"a\"", "invalid_json", "byte 17" },
        { "hello", "invalid_json", "byte 0" },
        { "\xef\xbb\xbf \r", "invalid_json", "line 1" },
        { "{} {}", "invalid_json", "something follows" },
        { "{\"custom_id\": NaN}", "invalid_json", "NaN" },
        { "[1,2,3]", "invalid_json", "not a list" },
        { "\"hello\"", "invalid_json", "not a string" },
        { "null", "invalid_json", "not null" },
        { "17", "invalid_json", "not a number" },
        { "{\"custom_id\": \"\xff\"}", "invalid_utf8", "byte 15" },
        { "{\"custom_id\": \"\xed\xa0\x80\"}", "invalid_utf8", "byte 15" },
        { "{\"custom_id\": \"x\\ud83d\"}", "invalid_utf8", "byte 16" },
        { "\xef\xbb\xbf{\"a\": \"\xff\"}", "invalid_utf8", "byte 10 (byte 10 of the file)" },
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct request *r = lines_fixture_read(&fix, rows[i].line);

        assert_string_equal(r->custom_id, "null");
        assert_refused(r, 0, rows[i].code, NULL, rows[i].text);
    }
    /* a NUL is a byte like any other */
    assert_refused(lines_fixture_read_bytes(&fix, "{\"a\": \0}", 8), 0, "invalid_json", NULL, "byte 6");
    assert_refused(lines_fixture_read_bytes(&fix, "{\"a\": 1\0}", 9), 0, "invalid_json", NULL, "byte 7");
}

static void places_count_from_the_file_or_the_topic(void **state)
{
    struct record rec = { .value = "{\"a\": x}", .value_n = 8, .offset = 41, .at_bytes = 1000 };
    struct request *r = NULL;
    (void)state;

    assert_int_equal(intake_read(fix.in, &rec, &r), ST_OK);
    assert_refused(r, 0, "invalid_json", NULL, "line 42, byte 6 (byte 1006 of the file)");
    rec.at_bytes = -1;
    rec.source = 3;
    assert_int_equal(intake_read(fix.in, &rec, &r), ST_OK);
    assert_refused(r, 0, "invalid_json", NULL, "offset 41 of source 3, byte 6:");
}

static void sound_lines_that_cannot_be_read_keep_their_id(void **state)
{
    static const struct { const char *line, *code, *param, *text; } rows[] = {
        { "{\"custom_id\": \"a\", \"body\": {\"seed\": 99999999999999999999}}", "invalid_value", NULL, "byte 36" },
        { "{\"custom_id\": \"a\", \"body\": {\"temperature\": 1e999}}", "invalid_value", NULL, "too large" },
        { "{\"custom_id\": \"a\", \"body\": {\"n\": 1, \"n\": 2}}", "duplicate_field", "n", "'n' stands twice" },
        { "{\"custom_id\": \"a\", \"x\\u0000\": 1}", "invalid_value", NULL, "U+0000" },
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct request *r = lines_fixture_read(&fix, rows[i].line);

        assert_string_equal(r->custom_id, "\"a\"");
        assert_refused(r, 400, rows[i].code, rows[i].param, rows[i].text);
    }
}

static void depth_is_bounded(void **state)
{
    struct buf b = BUF_EMPTY;
    struct request *r;
    (void)state;

    for (int deep = 60; deep <= 70; deep += 10) {
        buf_reset(&b);
        buf_add_text(&b, "\"chat_template_kwargs\":{\"a\":");
        for (int i = 0; i < deep; i++)
            buf_add_byte(&b, '[');
        for (int i = 0; i < deep; i++)
            buf_add_byte(&b, ']');
        buf_add_byte(&b, '}');
        r = with_fields(ENDPOINT_CHAT, buf_text(&b));
        if (deep == 60) {
            assert_good(r);
            request_free(r);
        } else {
            assert_refused(r, 400, "invalid_value", "chat_template_kwargs", "deeper than 64");
        }
    }
    buf_reset(&b);
    buf_add_text(&b, "{\"custom_id\":\"a\",\"body\":");
    for (int i = 0; i < 3000; i++)
        buf_add_byte(&b, '[');
    for (int i = 0; i < 3000; i++)
        buf_add_byte(&b, ']');
    buf_add_byte(&b, '}');
    r = lines_fixture_read_bytes(&fix, b.data, b.n);
    assert_string_equal(r->custom_id, "\"a\"");
    assert_refused(r, 400, "invalid_value", NULL, "deeper than 2048");
    buf_fini(&b);
}

static void oversize_lines(void **state)
{
    struct record rec = { .value = "{\"custom_id\": \"big\", \"body\": {\"mess", .offset = 4, .oversize = true };
    struct request *r = NULL;
    (void)state;

    rec.value_n = strlen(rec.value);
    assert_int_equal(intake_read(fix.in, &rec, &r), ST_OK);
    assert_string_equal(r->custom_id, "\"big\"");
    assert_refused(r, 0, "line_too_long", NULL, "line 5");
    /* a cut in the middle of the id, and in the middle of a character */
    rec.value = "{\"custom_id\": \"bi\xc3";
    rec.value_n = strlen(rec.value);
    assert_int_equal(intake_read(fix.in, &rec, &r), ST_OK);
    assert_string_equal(r->custom_id, "null");
    assert_refused(r, 0, "line_too_long", NULL, "16 MB");
}

/* ---- the envelope ---- */

#define BODY "\"body\":{\"prompt\":\"hi\"}"
static const struct { const char *line, *custom_id, *code, *param, *text; } envelopes[] = {
    { "{" POST "," URL "," BODY "}", "null", "missing_field", "custom_id", NULL },
    { "{\"custom_id\":null," POST "," URL "," BODY "}", "null", "invalid_type", "custom_id", "not null" },
    { "{\"custom_id\":12.50," POST "," URL "," BODY "}", "12.50", "invalid_type", "custom_id", "not a number" },
    { "{\"custom_id\":[1]," POST "," URL "," BODY "}", "null", "invalid_type", "custom_id", "not a list" },
    { "{\"custom_id\":\"a\"," URL "," BODY "}", "\"a\"", "missing_field", "method", "POST" },
    { "{\"custom_id\":\"a\",\"method\":\"GET\"," URL "," BODY "}", "\"a\"", "invalid_value", "method", "'GET'" },
    { "{\"custom_id\":\"a\",\"method\":1," URL "," BODY "}", "\"a\"", "invalid_type", "method", NULL },
    { "{\"custom_id\":\"a\"," POST "," BODY "}", "\"a\"", "missing_field", "url", "/v1/completions" },
    { "{\"custom_id\":\"a\"," POST ",\"url\":\"/v1/embeddings\"," BODY "}", "\"a\"", "invalid_value", "url",
      "'/v1/embeddings'" },
    { "{\"custom_id\":\"a\"," POST ",\"url\":\"/v1/completions\\u0000\"," BODY "}", "\"a\"", "invalid_value", "url", NULL },
    { "{\"custom_id\":\"a\"," POST "," URL "}", "\"a\"", "missing_field", "body", NULL },
    { "{\"custom_id\":\"a\"," POST "," URL ",\"body\":[1]}", "\"a\"", "invalid_type", "body", "not a list" },
    { "{\"custom_id\":\"a\"," POST "," URL "," BODY ",\"temperature\":0}", "\"a\"", "unknown_field", "temperature",
      "belongs inside" },
    { "{\"custom_id\":\"a\"," POST "," URL "," BODY ",\"colour\":0}", "\"a\"", "unknown_field", "colour", "custom_id" },
};

static void envelopes_are_checked(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof envelopes / sizeof envelopes[0]; i++) {
        struct request *r = lines_fixture_read(&fix, envelopes[i].line);

        assert_string_equal(r->custom_id, envelopes[i].custom_id);
        assert_refused(r, 400, envelopes[i].code, envelopes[i].param, envelopes[i].text);
    }
}

static void custom_ids_are_echoed(void **state)
{
    struct request *r = lines_fixture_read(&fix, "{\"custom_id\":\"\\u00e9\\n\\\"\\u0000/\"," POST "," URL "," BODY
                                           ",\"metadata\":{\"a\":1}}");
    (void)state;

    assert_good(r);
    assert_string_equal(r->custom_id, "\"\xc3\xa9\\n\\\"\\u0000/\"");
    request_free(r);
}

static void topics_may_send_less(void **state)
{
    static const char *const lines[] = {
        "{\"prompt\":\"hi\"}", "{\"body\":{\"prompt\":\"hi\"}}", "{\"custom_id\":\"k\"," BODY "}",
    };
    const struct header headers[] = { { "ns-deadline", "1700000000123", 13 }, { "other", NULL, 0 }, { "ns-priority", "-5", 2 } };
    struct record rec = { .at_bytes = -1, .key = "k", .key_n = 1, .headers = headers, .headers_n = 3,
                          .timestamp_ms = 1711475054123 };
    struct request *r = NULL;
    (void)state;

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        rec.value = lines[i];
        rec.value_n = strlen(lines[i]);
        assert_int_equal(intake_read(fix.in, &rec, &r), ST_OK);
        assert_good(r);
        assert_string_equal(r->custom_id, "\"k\"");
        assert_int_equal(r->endpoint, ENDPOINT_COMPLETIONS);
        assert_int_equal(r->deadline_ms, INT64_C(1700000000123));
        assert_int_equal(r->priority, -5);
        assert_int_equal(r->created_s, 1711475054);
        request_free(r);
    }
    rec.value = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"priority\":7}";
    rec.value_n = strlen(rec.value);
    assert_int_equal(intake_read(fix.in, &rec, &r), ST_OK);
    assert_good(r);
    assert_int_equal(r->endpoint, ENDPOINT_CHAT);
    assert_int_equal(r->priority, 7);
    request_free(r);
    rec.headers = &(const struct header){ "ns-priority", "soon", 4 };
    rec.headers_n = 1;
    assert_int_equal(intake_read(fix.in, &rec, &r), ST_OK);
    assert_refused(r, 400, "invalid_value", "ns-priority", NULL);
    /* neither body nor prompt */
    rec.headers_n = 0;
    rec.value = "{\"a\":1}";
    rec.value_n = 7;
    assert_int_equal(intake_read(fix.in, &rec, &r), ST_OK);
    assert_refused(r, 400, "unknown_field", "a", NULL);
}

/* ---- parameters ---- */

enum { CHAT = 1, COMP = 2, BOTH = 3 };
static const struct { int on; const char *fields; } accepted[] = {
    { BOTH, "" },
    { BOTH, "\"model\":\"x\",\"temperature\":0,\"top_p\":0.5,\"top_k\":-1,\"min_p\":0.1,\"seed\":-3,\"n\":1.0" },
    { BOTH, "\"temperature\":null,\"top_p\":null,\"n\":null,\"stop\":null,\"logprobs\":null,\"max_tokens\":null,\"stream\":null" },
    { BOTH, "\"user\":1,\"metadata\":{},\"store\":true,\"service_tier\":\"flex\",\"request_id\":\"r\",\"safety_identifier\":\"s\","
            "\"prompt_cache_key\":\"p\",\"stream_options\":{\"include_usage\":true},\"cache_salt\":\"x\"" },
    { BOTH, "\"stream\":false,\"use_beam_search\":false,\"best_of\":1,\"length_penalty\":1,\"response_format\":{\"type\":\"text\"}" },
    { BOTH, "\"stop\":\"a\"" },
    { BOTH, "\"stop\":[\"a\",\"b\"],\"stop_token_ids\":[0,1,2],\"ignore_eos\":true,\"min_tokens\":2" },
    { BOTH, "\"presence_penalty\":-2,\"frequency_penalty\":2,\"repetition_penalty\":1.1,\"logit_bias\":{\"5\":-100,\"4\":1e1}" },
    { BOTH, "\"include_stop_str_in_output\":true,\"skip_special_tokens\":false,\"priority\":-1,\"detokenize\":true" },
    { CHAT, "\"logprobs\":true,\"top_logprobs\":20" },
    { CHAT, "\"logprobs\":false,\"top_logprobs\":0" },
    { CHAT, "\"max_tokens\":5,\"max_completion_tokens\":5" },
    { CHAT, "\"tools\":[],\"tool_choice\":\"none\",\"parallel_tool_calls\":true,\"functions\":[],\"modalities\":[\"text\"]" },
    { CHAT, "\"chat_template_kwargs\":{\"enable_thinking\":false,\"a\":{\"b\":[1,2.5,null,\"x\"]}}" },
    { CHAT, "\"add_generation_prompt\":false,\"continue_final_message\":false,\"echo\":false" },
    { COMP, "\"logprobs\":20,\"echo\":true,\"max_tokens\":0,\"suffix\":null" },
    { COMP, "\"logprobs\":0,\"add_special_tokens\":false,\"suffix\":\"\"" },
};

static const struct { int on; const char *fields, *code, *param, *text; } refused[] = {
    /* wrong types are named */
    { BOTH, "\"model\":5", "invalid_type", "model", "not a number" },
    { BOTH, "\"temperature\":\"0\"", "invalid_type", "temperature", "a number, not a string" },
    { BOTH, "\"top_p\":[1]", "invalid_type", "top_p", "not a list" },
    { BOTH, "\"top_k\":\"5\"", "invalid_type", "top_k", "an integer" },
    { BOTH, "\"min_p\":true", "invalid_type", "min_p", "not true" },
    { BOTH, "\"seed\":\"1\"", "invalid_type", "seed", NULL },
    { BOTH, "\"seed\":1.5", "invalid_type", "seed", NULL },
    { BOTH, "\"n\":false", "invalid_type", "n", "not false" },
    { BOTH, "\"max_tokens\":{}", "invalid_type", "max_tokens", "not an object" },
    { BOTH, "\"min_tokens\":\"1\"", "invalid_type", "min_tokens", NULL },
    { BOTH, "\"ignore_eos\":1", "invalid_type", "ignore_eos", "true or false" },
    { BOTH, "\"skip_special_tokens\":\"no\"", "invalid_type", "skip_special_tokens", NULL },
    { BOTH, "\"include_stop_str_in_output\":0", "invalid_type", "include_stop_str_in_output", NULL },
    { BOTH, "\"stop\":5", "invalid_type", "stop", NULL },
    { BOTH, "\"stop\":[\"a\",null]", "invalid_type", "stop[1]", "not null" },
    { BOTH, "\"stop_token_ids\":7", "invalid_type", "stop_token_ids", NULL },
    { BOTH, "\"stop_token_ids\":[\"7\"]", "invalid_type", "stop_token_ids[0]", NULL },
    { BOTH, "\"logit_bias\":[]", "invalid_type", "logit_bias", NULL },
    { BOTH, "\"logit_bias\":{\"5\":\"x\"}", "invalid_type", "logit_bias.5", NULL },
    { BOTH, "\"presence_penalty\":\"\"", "invalid_type", "presence_penalty", NULL },
    { BOTH, "\"response_format\":\"text\"", "invalid_type", "response_format", NULL },
    { BOTH, "\"priority\":\"high\"", "invalid_type", "priority", NULL },
    { CHAT, "\"logprobs\":5", "invalid_type", "logprobs", "true or false" },
    { COMP, "\"logprobs\":true", "invalid_type", "logprobs", "an integer" },
    { CHAT, "\"top_logprobs\":true,\"logprobs\":true", "invalid_type", "top_logprobs", NULL },
    { CHAT, "\"chat_template_kwargs\":[]", "invalid_type", "chat_template_kwargs", NULL },
    { CHAT, "\"max_completion_tokens\":\"9\"", "invalid_type", "max_completion_tokens", NULL },
    { COMP, "\"echo\":1", "invalid_type", "echo", NULL },
    /* ranges are in the message */
    { BOTH, "\"temperature\":-0.1", "invalid_value", "temperature", "from 0 to 100, not -0.1" },
    { BOTH, "\"temperature\":101", "invalid_value", "temperature", NULL },
    { BOTH, "\"top_p\":1.01", "invalid_value", "top_p", "from 0 to 1" },
    { BOTH, "\"min_p\":-1", "invalid_value", "min_p", "from 0 to 1" },
    { BOTH, "\"top_k\":-2", "invalid_value", "top_k", "from -1 to 2147483647, not -2" },
    { BOTH, "\"top_k\":1.5", "invalid_value", "top_k", "not 1.5" },
    { BOTH, "\"n\":0", "invalid_value", "n", "from 1" },
    { BOTH, "\"n\":129,\"best_of\":129", "invalid_value", "n", "choices_max" },
    { BOTH, "\"best_of\":2", "unsupported", "best_of", NULL },
    { BOTH, "\"max_tokens\":-1", "invalid_value", "max_tokens", NULL },
    { BOTH, "\"max_tokens\":2147483648", "invalid_value", "max_tokens", NULL },
    { CHAT, "\"max_tokens\":0", "invalid_value", "max_tokens", "from 1" },
    { CHAT, "\"max_completion_tokens\":0", "invalid_value", "max_completion_tokens", "from 1" },
    { CHAT, "\"max_tokens\":5,\"max_completion_tokens\":6", "invalid_value", "max_tokens", "contradict" },
    { BOTH, "\"min_tokens\":6,\"max_tokens\":5", "invalid_value", "min_tokens", "more than" },
    { BOTH, "\"stop\":\"\"", "invalid_value", "stop", "empty" },
    { BOTH, "\"stop\":[\"\"]", "invalid_value", "stop[0]", "empty" },
    { BOTH, "\"stop\":[\"\",1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]", "invalid_value", "stop", "at most 16" },
    { BOTH, "\"stop_token_ids\":[-1]", "invalid_value", "stop_token_ids[0]", "not -1" },
    { BOTH, "\"stop_token_ids\":[0,100000]", "invalid_value", "stop_token_ids[1]", "not 100000" },
    { BOTH, "\"logit_bias\":{\"100000\":1}", "invalid_value", "logit_bias", "'100000'" },
    { BOTH, "\"logit_bias\":{\"05\":1}", "invalid_value", "logit_bias", "'05'" },
    { BOTH, "\"logit_bias\":{\"-1\":1}", "invalid_value", "logit_bias", NULL },
    { BOTH, "\"logit_bias\":{\"\":1}", "invalid_value", "logit_bias", NULL },
    { BOTH, "\"logit_bias\":{\"5\":101}", "invalid_value", "logit_bias.5", "-100 to 100, not 101" },
    { BOTH, "\"presence_penalty\":2.1", "invalid_value", "presence_penalty", "from -2 to 2" },
    { BOTH, "\"frequency_penalty\":-3", "invalid_value", "frequency_penalty", "from -2 to 2" },
    { BOTH, "\"repetition_penalty\":0", "invalid_value", "repetition_penalty", "from 0.01" },
    { CHAT, "\"top_logprobs\":21,\"logprobs\":true", "invalid_value", "top_logprobs", "from 0 to 20" },
    { CHAT, "\"top_logprobs\":2", "invalid_value", "top_logprobs", "'logprobs'" },
    { COMP, "\"logprobs\":21", "invalid_value", "logprobs", "from 0 to 20" },
    { CHAT, "\"continue_final_message\":true,\"add_generation_prompt\":true", "invalid_value", "continue_final_message", NULL },
    { CHAT, "\"continue_final_message\":true", "invalid_value", "continue_final_message", "'assistant'" },
    /* what is not there says so */
    { BOTH, "\"stream\":true", "unsupported", "stream", "streams" },
    { BOTH, "\"stream\":\"yes\"", "unsupported", "stream", NULL },
    { BOTH, "\"response_format\":{\"type\":\"json_object\"}", "unsupported", "response_format", "'text' only" },
    { BOTH, "\"response_format\":{}", "missing_field", "response_format.type", NULL },
    { CHAT, "\"tools\":[{\"type\":\"function\"}]", "unsupported", "tools", NULL },
    { CHAT, "\"tool_choice\":\"required\"", "unsupported", "tool_choice", NULL },
    { CHAT, "\"functions\":[{}]", "unsupported", "functions", NULL },
    { CHAT, "\"function_call\":{\"name\":\"f\"}", "unsupported", "function_call", NULL },
    { CHAT, "\"audio\":{}", "unsupported", "audio", NULL },
    { CHAT, "\"modalities\":[\"text\",\"audio\"]", "unsupported", "modalities", NULL },
    { CHAT, "\"reasoning_effort\":\"high\"", "unsupported", "reasoning_effort", "chat_template_kwargs" },
    { CHAT, "\"chat_template\":\"x\"", "unsupported", "chat_template", NULL },
    { CHAT, "\"chat_template_kwargs\":{\"messages\":[]}", "unsupported", "chat_template_kwargs.messages", NULL },
    { CHAT, "\"documents\":[{}]", "unsupported", "documents", NULL },
    { BOTH, "\"guided_json\":{}", "unsupported", "guided_json", NULL },
    { BOTH, "\"structured_outputs\":{}", "unsupported", "structured_outputs", NULL },
    { BOTH, "\"use_beam_search\":true", "unsupported", "use_beam_search", NULL },
    { BOTH, "\"prompt_logprobs\":1", "unsupported", "prompt_logprobs", "echo" },
    { BOTH, "\"truncate_prompt_tokens\":5", "unsupported", "truncate_prompt_tokens", NULL },
    { COMP, "\"suffix\":\"end\"", "unsupported", "suffix", NULL },
    { CHAT, "\"echo\":true", "unsupported", "echo", "/v1/completions" },
    { CHAT, "\"prompt\":\"x\"", "unsupported", "prompt", "/v1/completions" },
    { COMP, "\"messages\":[]", "unsupported", "messages", "/v1/chat/completions" },
    { COMP, "\"top_logprobs\":1", "unsupported", "top_logprobs", "/v1/chat/completions" },
    /* slips of the pen */
    { BOTH, "\"temprature\":0", "unknown_field", "temprature", "did you mean 'temperature'?" },
    { BOTH, "\"max_token\":1", "unknown_field", "max_token", "did you mean 'max_tokens'?" },
    { BOTH, "\"maxtokens\":1", "unknown_field", "maxtokens", "did you mean 'max_tokens'?" },
    { BOTH, "\"flavour\":1", "unknown_field", "flavour", "temperature" },
    { BOTH, "\"\":1", "unknown_field", "", NULL },
    { BOTH, "\"x\":null", "unknown_field", "x", NULL },
};

static void parameters_are_accepted(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
        for (int e = 0; e < 2; e++) {
            struct request *r = (accepted[i].on & 1 << e) != 0 ? with_fields((enum endpoint)e, accepted[i].fields) : NULL;

            if (r != NULL && r->verdict != VERDICT_NONE)
                fail_msg("%s: %s", accepted[i].fields, r->error_text);
            request_free_line(r);
        }
    }
}

static void parameters_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        for (int e = 0; e < 2; e++) {
            if ((refused[i].on & 1 << e) != 0)
                assert_refused(with_fields((enum endpoint)e, refused[i].fields), 400, refused[i].code, refused[i].param,
                               refused[i].text);
        }
    }
}

static void parameters_arrive(void **state)
{
    struct request *r = with_fields(ENDPOINT_CHAT,
        "\"model\":\"some \\\"model\\\"\",\"temperature\":0.5,\"top_p\":0.25,\"top_k\":7,\"min_p\":0.125,\"repetition_penalty\":1.5,"
        "\"presence_penalty\":0.5,\"frequency_penalty\":-0.5,\"seed\":-1,\"max_completion_tokens\":9,\"min_tokens\":3,"
        "\"ignore_eos\":true,\"logprobs\":true,\"top_logprobs\":4,\"skip_special_tokens\":false,"
        "\"include_stop_str_in_output\":true,\"n\":3,\"stop\":[\"a\\u0000b\",\"c\"],\"stop_token_ids\":[9,8],"
        "\"logit_bias\":{\"7\":1,\"3\":-2.5},\"priority\":4");
    const struct params *p = &r->params;
    (void)state;

    assert_good(r);
    assert_string_equal(r->model, "\"some \\\"model\\\"\"");
    assert_true(r->model_differs);
    assert_true(p->temperature == 0.5f && p->top_p == 0.25f && p->min_p == 0.125f && p->repetition == 1.5f);
    assert_true(p->presence == 0.5f && p->frequency == -0.5f);
    assert_int_equal(p->top_k, 7);
    assert_true(p->seed_given && p->seed == UINT64_MAX);
    assert_int_equal(p->max_tokens, 9);
    assert_int_equal(p->min_tokens, 3);
    assert_true(p->ignore_eos && p->logprobs && !p->skip_special && p->include_stop && p->stop.include && !p->echo);
    assert_int_equal(p->top_logprobs_n, 4);
    assert_int_equal(p->n, 3);
    assert_int_equal(p->stop.stops_n, 2);
    assert_int_equal(p->stop.stops_bytes[0], 3);
    assert_memory_equal(p->stop.stops[0], "a\0b", 3);
    assert_int_equal(p->stop_tokens_n, 2);
    assert_int_equal(p->stop_tokens[0], 9);
    assert_int_equal(p->bias_n, 2);
    assert_int_equal(p->bias[0].token, 3);
    assert_true(p->bias[0].add == -2.5f && p->bias[1].token == 7);
    assert_int_equal(r->priority, 4);
    request_free(r);
}

static void parameters_have_defaults(void **state)
{
    struct request *r = with_fields(ENDPOINT_CHAT, "");
    const struct params *p = &r->params;
    (void)state;

    assert_good(r);
    assert_string_equal(r->model, "\"tiny\"");
    assert_false(r->model_differs);
    assert_true(p->temperature == 1 && p->top_p == 1 && p->min_p == 0 && p->repetition == 1 && p->top_k == 0);
    assert_true(p->presence == 0 && p->frequency == 0 && !p->seed_given && !p->logprobs && p->skip_special && p->n == 1);
    assert_int_equal(p->max_tokens, FIXTURE_CONTEXT - r->prompt_n);
    request_free(r);
    r = with_fields(ENDPOINT_COMPLETIONS, "");
    assert_int_equal(r->params.max_tokens, 16);
    request_free(r);
    fix.cfg.max_tokens_default = 11;
    r = with_fields(ENDPOINT_CHAT, "");
    assert_int_equal(r->params.max_tokens, 11);
    fix.cfg.max_tokens_default = 0;
    request_free(r);
    /* nearly 0 is greedy; top_p 0 leaves one token and is not "off" */
    r = with_fields(ENDPOINT_CHAT, "\"temperature\":1e-9,\"top_p\":0");
    assert_true(r->params.temperature == 0 && r->params.top_p > 0 && r->params.top_p < 1e-8);
    request_free(r);
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
        cmocka_unit_test(blank_lines_are_nothing),
        cmocka_unit_test(marks_and_line_ends_are_accepted),
        cmocka_unit_test(lines_that_are_no_json),
        cmocka_unit_test(places_count_from_the_file_or_the_topic),
        cmocka_unit_test(sound_lines_that_cannot_be_read_keep_their_id),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(oversize_lines),
        cmocka_unit_test(envelopes_are_checked),
        cmocka_unit_test(custom_ids_are_echoed),
        cmocka_unit_test(topics_may_send_less),
        cmocka_unit_test(parameters_are_accepted),
        cmocka_unit_test(parameters_are_refused),
        cmocka_unit_test(parameters_arrive),
        cmocka_unit_test(parameters_have_defaults),
    };

    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
