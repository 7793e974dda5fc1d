/* Any bytes as a line: always a request or a verdict, and the result line of either is one line of strict JSON. The first
 * byte of the input picks file or topic, oversize or not, and how the request is answered. */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tests/support/lines_fixture.h"
#include "tests/support/tiny_model.h"
#include "worker/lines/json_scan.h"

static struct lines_fixture fix;

static void fixture_once(void)
{
    static bool open;

    if (!open)
        lines_fixture_open(&fix, NULL, TINY_IM_START, true);
    open = true;
    fix.m.bos_text = "<|im_start|>";
    fix.cfg.line_choices_max = 64;
}

static void answer(struct request *r, unsigned how)
{
    int32_t tokens[8];
    int vocab = tokenizer_vocab(fix.tokenizer);

    for (int32_t i = 0; i < r->params.n; i++) {
        int n = r->params.max_tokens < 8 ? r->params.max_tokens : 8;

        for (int k = 0; k < n; k++)
            tokens[k] = (int32_t)(hash64(&how, sizeof how, (uint64_t)(8 * i + k)) % (uint64_t)vocab);
        lines_fixture_answer(&fix, r, i, tokens, n, (how & 0x70) == 0x70 ? FINISH_ERROR : FINISH_STOP);
    }
}

/* What the engine and the planner rely on. */
static void request_check(const struct request *r)
{
    const struct params *p = &r->params;

    ASSERT(r->prompt_n > 0 && r->prompt_n < fix.m.context && p->n >= 1);
    ASSERT(p->max_tokens >= 0 && p->max_tokens <= fix.m.context - r->prompt_n && p->min_tokens <= p->max_tokens);
    ASSERT(p->temperature >= 0 && p->top_p > 0 && p->top_p <= 1 && p->min_p >= 0 && p->min_p <= 1 && p->top_k >= 0);
    ASSERT(p->repetition > 0 && p->top_logprobs_n >= 0 && p->top_logprobs_n <= TOP_LOGPROBS_MAX);
    for (int32_t i = 0; i < r->prompt_n; i++)
        ASSERT(r->prompt[i] >= 0 && r->prompt[i] < tokenizer_vocab(fix.tokenizer));
    for (int32_t i = 1; i < p->bias_n; i++)
        ASSERT(p->bias[i - 1].token < p->bias[i].token);
    for (size_t i = 0; i < p->stop.stops_n; i++)
        ASSERT(p->stop.stops_bytes[i] > 0);
}

static void line_check(const struct request *r, bool failure)
{
    struct buf line = BUF_EMPTY;
    enum result_kind kind = lines_result(&fix.m, r, "batch_req_0123456789abcdef_0", &line);
    json_t *v = json_loadb(line.data, line.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);

    ASSERT(json_is_object(v) && json_object_size(v) == 4);
    ASSERT((kind == RESULT_FAILURE) == failure && (lines_failure_code(r) != NULL) == failure);
    ASSERT(memchr(line.data, '\n', line.n) == NULL && utf8_valid(line.data, line.n) == line.n);
    json_decref(v);
    buf_fini(&line);
}

/* jansson and the scan must agree, or messages would speak of faults that are none. */
static void scan_check(const char *text, size_t n)
{
    struct json_scan scan;
    json_t *v;

    if (utf8_valid(text, n) < n)
        return;
    v = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    json_scan(text, n, &scan);
    ASSERT((v != NULL && memchr(text, '\0', n) == NULL) == (scan.fault == JSON_SOUND) && scan.at <= n);
    json_decref(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned how = size > 0 ? data[0] : 0;
    struct record rec = { .at_bytes = (how & 1) != 0 ? -1 : 0, .oversize = (how & 6) == 6, .key = "key\xff", .key_n = 3 };
    struct request *r = NULL;

    fixture_once();
    rec.value = (const char *)data + (size > 0);
    rec.value_n = size - (size > 0);
    scan_check(rec.value, rec.value_n);
    if (intake_read(fix.in, &rec, &r) != ST_OK)
        return 0;
    if (r->verdict != VERDICT_NONE) {
        line_check(r, true);
    } else if (r->group == NULL) {
        request_check(r);
        answer(r, how);
        line_check(r, (how & 0x70) == 0x70);
    } else {
        for (int32_t i = 0; i < r->group->requests_n; i++) {
            request_check(r->group->requests[i]);
            answer(r->group->requests[i], how);
        }
        line_check(r, (how & 0x70) == 0x70);
    }
    request_free_line(r);
    return 0;
}
