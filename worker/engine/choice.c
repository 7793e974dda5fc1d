/* worker/engine/choice.c - a choice's tokens, text, log-probabilities and end. All of it lives in the request, so that a
 * sequence can be put back at any moment and taken up again, here or after a restart. */
#include "worker/engine/internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TOKENS_ROOM_FIRST 64

static void logprobs_clear(struct logprob *l, int32_t from, int32_t to)
{
    for (int32_t i = from; i < to; i++)
        l[i] = (struct logprob){ .token = -1 };            /* not there yet */
}

/* Entries are filled in order: those that are there come first. */
static int32_t logprobs_count(const struct logprob *l, int32_t n)
{
    int32_t low = 0, high = n;

    while (low < high) {
        int32_t middle = low + (high - low) / 2;

        if (l[middle].token >= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int32_t choice_prompt_lp_n(const struct request *r, int32_t i)
{
    return r->params.echo_logprobs && i == 0 ? logprobs_count(r->prompt_logprobs, r->prompt_n) : r->prompt_n;
}

int32_t choice_output_lp_n(const struct request *r, int32_t i)
{
    const struct choice *c = &r->choices[i];

    return r->params.logprobs ? logprobs_count(c->logprobs, c->tokens_n) : c->tokens_n;
}

struct need choice_need(const struct request *r, int32_t i)
{
    const struct choice *c = &r->choices[i];
    int32_t known_n = r->prompt_n + c->tokens_n, prompt_lp_n, output_lp_n;
    struct need need;

    /* The row of a position tells of the token behind it. */
    need.end = c->finish == FINISH_NONE ? known_n : known_n - 1;
    need.from = known_n - 1;
    if (c->finish == FINISH_ERROR)
        return need;
    output_lp_n = choice_output_lp_n(r, i);
    if (output_lp_n < c->tokens_n)
        need.from = r->prompt_n + output_lp_n - 1;
    prompt_lp_n = choice_prompt_lp_n(r, i);
    if (prompt_lp_n < r->prompt_n)
        need.from = prompt_lp_n - 1;
    return need;
}

bool choice_is_done(const struct request *r, int32_t i)
{
    struct need need = choice_need(r, i);

    return need.from >= need.end;
}

void choice_fail(struct request *r, struct choice *c, const char *fmt, ...)
{
    char text[160];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    c->error = arena_copy(&r->arena, text, strlen(text));
    c->finish = FINISH_ERROR;
    detok_end(&c->detok);
}

bool token_ends(const struct engine *e, const struct request *r, int32_t token)
{
    const struct params *p = &r->params;

    if (!p->ignore_eos && tokenizer_ends(e->tokenizer, token))
        return true;
    for (int32_t i = 0; i < p->stop_tokens_n; i++)
        if (p->stop_tokens[i] == token)
            return true;
    return false;
}

/* What the token at index `at` of the output means for the text and for the end. */
static enum finish token_judge(struct engine *e, struct request *r, struct choice *c, int32_t at)
{
    int32_t token = c->tokens[at];
    bool ends = token_ends(e, r, token), stopped = false;

    if (!ends || r->params.include_stop)
        stopped = detok_add(&c->detok, token);
    if (ends || stopped)
        return FINISH_STOP;
    if (at + 1 >= r->params.max_tokens)                     /* which ends with the context: engine_submit sees to it */
        return FINISH_LENGTH;
    return FINISH_NONE;
}

static void tokens_reserve(struct request *r, struct choice *c)
{
    int32_t room = c->tokens_room;

    if (c->tokens_n < room)
        return;
    room = room > 0 ? 2 * room : TOKENS_ROOM_FIRST;
    c->tokens = mem_grow(c->tokens, (size_t)room * sizeof c->tokens[0]);
    if (r->params.logprobs) {
        c->logprobs = mem_grow(c->logprobs, (size_t)room * sizeof c->logprobs[0]);
        logprobs_clear(c->logprobs, c->tokens_room, room);
    }
    c->tokens_room = room;
}

void choice_token_add(struct engine *e, struct request *r, int32_t i, int32_t token)
{
    struct choice *c = &r->choices[i];

    tokens_reserve(r, c);
    c->tokens[c->tokens_n] = token;
    c->finish = token_judge(e, r, c, c->tokens_n++);
    if (c->finish != FINISH_NONE)
        detok_end(&c->detok);
}

void choice_logprob_set(struct request *r, struct logprob *l, const struct sampled *from, int32_t token)
{
    l->token = token;
    l->logprob = from->logprob;
    l->top_n = from->top_n;
    l->top = NULL;
    if (l->top_n == 0)
        return;
    l->top = arena_take(&r->arena, (size_t)l->top_n * sizeof l->top[0]);
    for (int32_t k = 0; k < l->top_n; k++) {
        l->top[k].token = from->top[k].token;
        l->top[k].logprob = from->top[k].logprob;
    }
}

/* Tokens from a checkpoint pass the same judgement as decoded ones; what lies beyond an end, or cannot be a token of this
 * model, is dropped. */
static void resume(struct engine *e, struct request *r, struct choice *c)
{
    int32_t n = c->tokens_n < r->params.max_tokens ? c->tokens_n : r->params.max_tokens;

    c->tokens_n = 0;
    while (c->tokens_n < n && c->finish == FINISH_NONE) {
        int32_t token = c->tokens[c->tokens_n];

        if (token < 0 || token >= e->vocab)
            break;
        c->finish = token_judge(e, r, c, c->tokens_n++);
    }
    c->resumed_n = c->tokens_n;
    e->counts.resumed_tokens += c->resumed_n;
}

void choice_prepare(struct engine *e, struct request *r, int32_t i)
{
    struct choice *c = &r->choices[i];

    if (c->detok.tokenizer != NULL)
        return;
    detok_init(&c->detok, e->tokenizer, &r->params.stop, !r->params.skip_special);
    if (r->params.echo_logprobs && i == 0 && r->prompt_logprobs == NULL) {
        r->prompt_logprobs = arena_take_zero(&r->arena, (size_t)r->prompt_n, sizeof r->prompt_logprobs[0]);
        logprobs_clear(r->prompt_logprobs, 0, r->prompt_n);
        r->prompt_logprobs[0] = (struct logprob){ .token = r->prompt[0], .logprob = NAN };
    }
    resume(e, r, c);
    if (r->params.logprobs && c->tokens_room > 0) {
        c->logprobs = mem_grow(c->logprobs, (size_t)c->tokens_room * sizeof c->logprobs[0]);
        logprobs_clear(c->logprobs, 0, c->tokens_room);
    }
    if (c->finish == FINISH_NONE && c->tokens_n >= r->params.max_tokens)
        c->finish = FINISH_LENGTH;                         /* max_tokens 0 */
    if (c->finish != FINISH_NONE)
        detok_end(&c->detok);
}
