/* Log-probabilities in the shapes of the two endpoints. Every token's text is shown, control tokens' too; bytes that are
 * no character by themselves are spelled "\xf0\x9f" (chat, which has them in "bytes" as well) and "bytes:\xf0\x9f"
 * (completions), as OpenAI does it; so is a NUL, which many readers cannot hold in a key. */
#include <string.h>

#include "base/utf8.h"
#include "worker/lines/json_write.h"
#include "worker/lines/result.h"

static void token_add(struct buf *b, const struct tokenizer *t, int32_t token, const char *raw_prefix)
{
    const char *bytes = "";
    size_t n = tokenizer_bytes(t, token, true, &bytes);

    if (utf8_valid(bytes, n) == n && memchr(bytes, '\0', n) == NULL) {
        json_add_text(b, bytes, n);
        return;
    }
    buf_add_byte(b, '"');
    buf_add_text(b, raw_prefix);
    for (size_t i = 0; i < n; i++)
        buf_add_format(b, "\\\\x%02x", (unsigned char)bytes[i]);
    buf_add_byte(b, '"');
}

/* ---- chat: a list of tokens, each with its alternatives ---- */

static void chat_token_add(struct buf *b, const struct tokenizer *t, int32_t token, float logprob)
{
    const char *bytes = "";
    size_t n = tokenizer_bytes(t, token, true, &bytes);

    buf_add_text(b, "{\"token\":");
    token_add(b, t, token, "");
    buf_add_text(b, ",\"logprob\":");
    json_add_logprob(b, logprob);
    buf_add_text(b, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_add_byte(b, ',');
        json_add_int(b, (unsigned char)bytes[i]);
    }
    buf_add_byte(b, ']');
}

static void chat_logprobs_add(struct buf *b, const struct tokenizer *t, const struct choice *c)
{
    buf_add_text(b, "{\"content\":[");
    for (int32_t i = 0; i < c->tokens_n; i++) {
        const struct logprob *l = &c->logprobs[i];

        if (i > 0)
            buf_add_byte(b, ',');
        chat_token_add(b, t, l->token, l->logprob);
        buf_add_text(b, ",\"top_logprobs\":[");
        for (int32_t k = 0; k < l->top_n; k++) {
            if (k > 0)
                buf_add_byte(b, ',');
            chat_token_add(b, t, l->top[k].token, l->top[k].logprob);
            buf_add_byte(b, '}');
        }
        buf_add_text(b, "]}");
    }
    buf_add_text(b, "],\"refusal\":null}");
}

/* ---- completions: four lists side by side ---- */

/* The tokens of a choice's text in order: with echo the prompt's, then the output's. */
struct run {
    const struct request *r;
    const struct choice *c;
    int32_t prompt_n, n;
};

static const struct logprob *run_at(const struct run *u, int32_t i)
{
    return i < u->prompt_n ? &u->r->prompt_logprobs[i] : &u->c->logprobs[i - u->prompt_n];
}

static bool same_spelling(const struct tokenizer *t, int32_t a, int32_t b)
{
    const char *a_bytes = "", *b_bytes = "";
    size_t a_n = tokenizer_bytes(t, a, true, &a_bytes), b_n = tokenizer_bytes(t, b, true, &b_bytes);

    return a_n == b_n && memcmp(a_bytes, b_bytes, a_n) == 0;
}

/* The best tokens, and the token itself where it is none of them. Two tokens of one spelling (a control token and its
 * look-alike) would be one key twice: the better one stands for both. */
static void top_add(struct buf *b, const struct tokenizer *t, const struct logprob *l)
{
    bool first = true;

    buf_add_byte(b, '{');
    for (int32_t k = 0; k <= l->top_n; k++) {
        int32_t token = k < l->top_n ? l->top[k].token : l->token;
        bool there = false;

        for (int32_t j = 0; j < k && !there; j++)
            there = same_spelling(t, l->top[j].token, token);
        if (there)
            continue;
        if (!first)
            buf_add_byte(b, ',');
        first = false;
        token_add(b, t, token, "bytes:");
        buf_add_byte(b, ':');
        json_add_logprob(b, k < l->top_n ? l->top[k].logprob : l->logprob);
    }
    buf_add_byte(b, '}');
}

static size_t chars_n(const char *text, size_t n)
{
    size_t chars = 0;

    for (size_t i = 0; i < n; i++)
        chars += ((unsigned char)text[i] & 0xc0) != 0x80;
    return chars;
}

/* Where each token begins, in characters of the choice's text: what a reader of text[offset:] expects. Decoded once more
 * without stop strings; tokens behind a cut stand at its end. */
static void offsets_add(struct buf *b, const struct tokenizer *t, const struct logprob *l, int32_t n, bool control,
                        size_t end, size_t chars, bool *first)
{
    struct detok d;
    size_t seen = 0;

    detok_init(&d, t, NULL, control);
    for (int32_t i = 0; i < n; i++) {
        if (!*first)
            buf_add_byte(b, ',');
        *first = false;
        json_add_int(b, (int64_t)(chars < end ? chars : end));
        (void)detok_add(&d, l[i].token);
        if (d.shown_n > seen)
            chars += chars_n(d.text.data + seen, d.shown_n - seen);
        seen = d.shown_n;
    }
    detok_fini(&d);
}

static void completions_offsets_add(struct buf *b, const struct lines_model *m, const struct run *u)
{
    const struct request *r = u->r;
    size_t echoed = r->params.echo ? chars_n(r->prompt_text, r->prompt_text_n) : 0;
    size_t end = echoed + chars_n(u->c->detok.text.data, u->c->detok.shown_n);
    bool first = true;

    buf_add_byte(b, '[');
    offsets_add(b, m->tokenizer, r->prompt_logprobs, u->prompt_n, false, echoed, 0, &first);
    offsets_add(b, m->tokenizer, u->c->logprobs, u->c->tokens_n, !r->params.skip_special, end, echoed, &first);
    buf_add_byte(b, ']');
}

static void completions_logprobs_add(struct buf *b, const struct lines_model *m, const struct request *r,
                                     const struct choice *c)
{
    struct run u = { r, c, r->params.echo_logprobs ? r->prompt_n : 0, 0 };

    u.n = u.prompt_n + c->tokens_n;
    buf_add_text(b, "{\"tokens\":[");
    for (int32_t i = 0; i < u.n; i++) {
        if (i > 0)
            buf_add_byte(b, ',');
        token_add(b, m->tokenizer, run_at(&u, i)->token, "bytes:");
    }
    buf_add_text(b, "],\"token_logprobs\":[");
    for (int32_t i = 0; i < u.n; i++) {
        if (i > 0)
            buf_add_byte(b, ',');
        if (i == 0 && u.prompt_n > 0)
            buf_add_text(b, "null");           /* nothing comes before the first token of a prompt */
        else
            json_add_logprob(b, run_at(&u, i)->logprob);
    }
    buf_add_text(b, "],\"top_logprobs\":[");
    for (int32_t i = 0; i < u.n; i++) {
        if (i > 0)
            buf_add_byte(b, ',');
        if (i == 0 && u.prompt_n > 0)
            buf_add_text(b, "null");
        else
            top_add(b, m->tokenizer, run_at(&u, i));
    }
    buf_add_text(b, "],\"text_offset\":");
    completions_offsets_add(b, m, &u);
    buf_add_byte(b, '}');
}

void logprobs_add(struct buf *b, const struct lines_model *m, const struct request *r, const struct choice *c)
{
    if (!r->params.logprobs)
        buf_add_text(b, "null");
    else if (r->endpoint == ENDPOINT_CHAT)
        chat_logprobs_add(b, m->tokenizer, c);
    else
        completions_logprobs_add(b, m, r, c);
}
