/* Prompts to requests: encoding, lengths, choices, seeds, and the group of a line with several prompts. */
#include <stdlib.h>
#include <string.h>

#include "worker/lines/internal.h"

enum { COMPLETIONS_MAX_TOKENS = 16 };      /* OpenAI's default for /v1/completions */

struct prompt {
    const int32_t *tokens;
    int32_t tokens_n;
    const char *text; size_t text_n;       /* for echo; NULL: none */
};

/* ---- one prompt of a completions line ---- */

static status length_check(struct draft *d, const char *name, size_t tokens_n)
{
    int32_t context = d->in->m->context;

    if (tokens_n >= (size_t)context)
        return REJECT(d, CONTEXT, name, draft_text(d, "%zu", tokens_n), draft_text(d, "%d", context));
    return ST_OK;
}

/* A raw text is the line's: plain, whatever it spells. */
static status text_encode(struct draft *d, const char *name, const json_t *v, struct prompt *out)
{
    const struct tokenizer *t = d->in->m->tokenizer;
    struct text_span span = { json_string_value(v), json_string_length(v), TEXT_PLAIN };
    const int32_t *encoded = NULL;
    size_t n = 0, bos_n;
    int32_t *tokens;

    if (encoder_encode(d->in->encoder, &span, 1, &encoded, &n) != ST_OK)
        return REJECT(d, TYPE, name, name, "UTF-8", "other bytes");
    bos_n = d->add_special && tokenizer_bos(t) >= 0 && (tokenizer_adds_bos(t) || n == 0);
    if (n + bos_n == 0)
        return REJECT(d, EMPTY_PROMPT, name, name, "the model has no token to begin a text with");
    if (length_check(d, name, n + bos_n) != ST_OK)
        return ST_REJECT;
    tokens = arena_take(&d->in->scratch, (n + bos_n) * sizeof *tokens);
    if (bos_n > 0)
        tokens[0] = tokenizer_bos(t);
    if (n > 0)
        memcpy(tokens + bos_n, encoded, n * sizeof *tokens);
    *out = (struct prompt){ tokens, (int32_t)(n + bos_n), span.text, span.n };
    return ST_OK;
}

/* Token ids are taken as they are: nothing is added, and any token of the vocabulary may stand there. */
static status ids_read(struct draft *d, const char *name, const json_t *v, struct prompt *out)
{
    size_t n = json_array_size(v);
    int32_t *tokens;

    if (n == 0)
        return REJECT(d, EMPTY_PROMPT, name, name, "at least one token is needed");
    if (length_check(d, name, n) != ST_OK)
        return ST_REJECT;
    tokens = arena_take(&d->in->scratch, n * sizeof *tokens);
    for (size_t i = 0; i < n; i++) {
        if (!token_value(d, json_array_get(v, i), &tokens[i]))
            return token_reject(d, draft_text(d, "%s[%zu]", name, i), json_array_get(v, i));
    }
    *out = (struct prompt){ .tokens = tokens, .tokens_n = (int32_t)n };
    return ST_OK;
}

static status prompt_read(struct draft *d, const char *name, const json_t *v, struct prompt *out)
{
    if (json_is_string(v))
        return text_encode(d, name, v, out);
    if (json_is_array(v))
        return ids_read(d, name, v, out);
    return type_reject(d, name, "a string or a list of token ids", v);
}

/* ---- a prompt becomes a request ---- */

/* What the tokens of a choice are a function of, besides the weights and the seed. */
static struct hash128 params_hash(struct buf *b, const struct request *r)
{
    const struct params *p = &r->params;
    struct hash128 prompt = hash128(r->prompt, (size_t)r->prompt_n * sizeof r->prompt[0]);
    const float reals[] = { p->temperature, p->top_p, p->min_p, p->repetition, p->presence, p->frequency };
    const int32_t whole[] = { r->prompt_n, p->top_k, p->max_tokens, p->min_tokens, p->ignore_eos, p->include_stop,
                              p->skip_special, p->logprobs, p->top_logprobs_n, p->echo, p->echo_logprobs,
                              p->stop_tokens_n, p->bias_n, (int32_t)p->stop.stops_n };

    buf_reset(b);
    buf_add(b, &prompt, sizeof prompt);
    buf_add(b, reals, sizeof reals);
    buf_add(b, whole, sizeof whole);
    buf_add(b, p->stop_tokens, (size_t)p->stop_tokens_n * sizeof p->stop_tokens[0]);
    for (int32_t i = 0; i < p->bias_n; i++) {
        buf_add(b, &p->bias[i].token, sizeof p->bias[i].token);
        buf_add(b, &p->bias[i].add, sizeof p->bias[i].add);
    }
    for (size_t i = 0; i < p->stop.stops_n; i++) {
        buf_add(b, &p->stop.stops_bytes[i], sizeof p->stop.stops_bytes[i]);
        buf_add(b, p->stop.stops[i], p->stop.stops_bytes[i]);
    }
    return hash128(b->data, b->n);
}

/* A given seed is choice 0's own, so that n = 1 is what the user would get alone; the others' follow from it. Without
 * one, the line's identity decides: the same line at another offset is another draw. */
static uint64_t choice_seed(const struct request *r, int32_t choice)
{
    struct { uint64_t seed, choice; } given = { r->params.seed, (uint64_t)choice };
    struct { struct hash128 params; int64_t offset; int32_t source, prompt_i, choice, zero; } line =
        { r->params_hash, r->offset, r->source, r->prompt_i, choice, 0 };

    if (!r->params.seed_given)
        return hash64(&line, sizeof line, 0);
    return choice == 0 ? r->params.seed : hash64(&given, sizeof given, 0);
}

/* Where echo needs the text of a prompt that came as token ids. */
static void echo_text(struct draft *d, struct request *r)
{
    struct detok t;

    detok_init(&t, d->in->m->tokenizer, NULL, false);
    for (int32_t i = 0; i < r->prompt_n; i++)
        (void)detok_add(&t, r->prompt[i]);
    detok_end(&t);
    r->prompt_text = arena_copy(&r->arena, t.text.data, t.shown_n);
    r->prompt_text_n = t.shown_n;
    detok_fini(&t);
}

static void request_fill(struct draft *d, struct request *r, const struct prompt *p)
{
    const struct config *cfg = d->in->m->cfg;
    int32_t room = d->in->m->context - p->tokens_n;
    int64_t max = d->max_tokens >= 0                      ? d->max_tokens
                : r->endpoint == ENDPOINT_COMPLETIONS     ? COMPLETIONS_MAX_TOKENS
                : cfg->max_tokens_default > 0             ? cfg->max_tokens_default : room;
    int32_t *tokens;

    arena_reserve(&r->arena, (size_t)p->tokens_n * sizeof *tokens + (size_t)r->params.n * sizeof r->choices[0] + 32);
    tokens = arena_take(&r->arena, (size_t)p->tokens_n * sizeof *tokens);
    memcpy(tokens, p->tokens, (size_t)p->tokens_n * sizeof *tokens);
    r->prompt = tokens;
    r->prompt_n = p->tokens_n;
    r->params.max_tokens = max < room ? (int32_t)max : room;
    r->params.min_tokens = d->min_tokens < r->params.max_tokens ? (int32_t)d->min_tokens : r->params.max_tokens;
    if (r->params.echo && p->text != NULL) {
        r->prompt_text = arena_copy(&r->arena, p->text, p->text_n);
        r->prompt_text_n = p->text_n;
    } else if (r->params.echo) {
        echo_text(d, r);
    }
    r->params_hash = params_hash(&d->in->text, r);
    r->choices = arena_take_zero(&r->arena, (size_t)r->params.n, sizeof r->choices[0]);
    for (int32_t i = 0; i < r->params.n; i++)
        r->choices[i].seed = choice_seed(r, i);
}

/* The draft's request becomes the first member; what it holds so far is shared and goes to the group. */
static void group_make(struct draft *d, const struct prompt *prompts, size_t n)
{
    struct request_group *g = mem_take_zero(1, sizeof *g);
    struct request *first = d->r;

    g->arena = first->arena;
    arena_init(&first->arena, REQUEST_BLOCK_BYTES);
    g->requests = mem_take(n * sizeof g->requests[0]);
    g->requests_n = g->open_n = (int32_t)n;
    g->held_n = (int32_t)n;
    first->group = g;
    for (size_t i = 0; i < n; i++) {
        struct request *r = first;

        if (i > 0) {
            struct arena own;

            r = request_new();
            own = r->arena;
            *r = *first;
            r->arena = own;
        }
        r->prompt_i = (int32_t)i;
        g->requests[i] = r;
    }
    for (size_t i = 0; i < n; i++)
        request_fill(d, g->requests[i], &prompts[i]);
}

/* A list of prompts, or one prompt that is a list of token ids. */
static bool prompt_is_ids(const json_t *v)
{
    return json_is_array(v) && json_array_size(v) > 0 && json_is_number(json_array_get(v, 0));
}

static status prompt_list_read(struct draft *d, const json_t *list, struct request **out)
{
    status st = ST_OK;
    size_t n = json_array_size(list);
    int64_t max = d->in->m->cfg->line_choices_max;
    struct prompt *prompts;

    if (n == 0)
        return REJECT(d, EMPTY_PROMPT, "prompt", "prompt", "a list of prompts needs at least one");
    if ((int64_t)n > max / d->n)
        return REJECT(d, VALUE, "prompt", "prompt",
                      draft_text(d, "at most %lld prompts times 'n' (setting line_choices_max)", (long long)max),
                      draft_text(d, "%zu times %lld", n, (long long)d->n));
    prompts = arena_take(&d->in->scratch, n * sizeof *prompts);
    for (size_t i = 0; i < n; i++)
        TRY(prompt_read(d, draft_text(d, "prompt[%zu]", i), json_array_get(list, i), &prompts[i]));
    if (n == 1)
        request_fill(d, d->r, &prompts[0]);
    else
        group_make(d, prompts, n);
    *out = d->r;
out:
    return st;
}

static status chat_read(struct draft *d, struct request **out)
{
    status st = ST_OK;
    struct prompt p = { 0 };
    size_t n = 0;

    TRY(messages_encode(d, &p.tokens, &n));
    TRY(length_check(d, "messages", n));
    p.tokens_n = (int32_t)n;
    request_fill(d, d->r, &p);
    *out = d->r;
out:
    return st;
}

status prompts_read(struct draft *d, struct request **out)
{
    struct prompt p;

    *out = NULL;
    if (d->r->endpoint == ENDPOINT_CHAT)
        return chat_read(d, out);
    if (d->prompt == NULL)
        return REJECT(d, MISSING, "prompt", "prompt", "/v1/completions needs a string, token ids, or a list of them");
    if (json_is_array(d->prompt) && !prompt_is_ids(d->prompt))
        return prompt_list_read(d, d->prompt, out);
    if (prompt_read(d, "prompt", d->prompt, &p) != ST_OK)
        return ST_REJECT;
    request_fill(d, d->r, &p);
    *out = d->r;
    return ST_OK;
}
