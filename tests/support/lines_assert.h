/* tests/support/lines_assert.h - what tests of the intake ask of a fixture `fix` and of its requests. */
#ifndef TESTS_SUPPORT_LINES_ASSERT_H
#define TESTS_SUPPORT_LINES_ASSERT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/lines_fixture.h"

static struct lines_fixture fix;

#define POST "\"method\":\"POST\""
#define URL "\"url\":\"/v1/completions\""

/* A chat line, or a completions line, whose body has `fields` besides what it needs. */
static inline struct request *with_fields(enum endpoint e, const char *fields)
{
    char line[4096];

    snprintf(line, sizeof line, "{\"custom_id\":\"c\",\"method\":\"POST\",\"url\":\"%s\",\"body\":{%s%s%s}}",
             e == ENDPOINT_CHAT ? "/v1/chat/completions" : "/v1/completions",
             e == ENDPOINT_CHAT ? "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]" : "\"prompt\":\"hi\"",
             fields[0] != '\0' ? "," : "", fields);
    return lines_fixture_read(&fix, line);
}

static inline struct request *with_messages(const char *messages)
{
    char line[4096];

    snprintf(line, sizeof line, "{\"custom_id\":\"c\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":"
             "{\"messages\":%s}}", messages);
    return lines_fixture_read(&fix, line);
}

static inline struct request *with_prompt(const char *prompt, const char *fields)
{
    char line[4096];

    snprintf(line, sizeof line, "{\"custom_id\":\"c\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":"
             "{\"prompt\":%s%s}}", prompt, fields);
    return lines_fixture_read(&fix, line);
}

static inline void assert_good(struct request *r)
{
    assert_non_null(r);
    if (r->verdict != VERDICT_NONE)
        fail_msg("%s: %s", r->error_code, r->error_text);
    assert_non_null(r->choices);
    assert_true(r->prompt_n > 0);
}

/* text: a part of the message; NULL: any. Frees r. */
static inline void assert_refused(struct request *r, int http, const char *code, const char *param, const char *text)
{
    assert_non_null(r);
    if (r->verdict != VERDICT_REJECTED)
        fail_msg("not refused; %s with '%s' was expected", code, text != NULL ? text : "");
    if (r->http_status != http || strcmp(r->error_code, code) != 0)
        fail_msg("%d %s: %s", r->http_status, r->error_code, r->error_text);
    if ((param == NULL) != (r->error_param == NULL) || (param != NULL && strcmp(param, r->error_param) != 0))
        fail_msg("param %s, not %s: %s", r->error_param != NULL ? r->error_param : "none", param != NULL ? param : "none",
                 r->error_text);
    if (text != NULL && strstr(r->error_text, text) == NULL)
        fail_msg("'%s' is not in: %s", text, r->error_text);
    assert_null(r->choices);
    request_free_line(r);
}

static inline int controls_in(const struct request *r)
{
    int n = 0;

    for (int32_t i = 0; i < r->prompt_n; i++)
        n += tokenizer_is_control(fix.tokenizer, r->prompt[i]);
    return n;
}

static inline void assert_prompt(const struct request *r, const char *text)
{
    struct detok t;

    detok_init(&t, fix.tokenizer, NULL, true);
    for (int32_t i = 0; i < r->prompt_n; i++)
        detok_add(&t, r->prompt[i]);
    detok_end(&t);
    assert_string_equal(buf_text(&t.text), text);
    detok_fini(&t);
}

#endif
