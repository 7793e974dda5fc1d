/* worker/engine/sequence.c - one sequence: its tokens, what it wants of the device, what it does with the answer. */
#include "worker/engine/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static void known_reserve(struct seq *s, int32_t n)
{
    if (n <= s->known_room)
        return;
    s->known_room = n + n / 2 + 64;
    s->known = mem_grow(s->known, (size_t)s->known_room * sizeof s->known[0]);
}

/* ---- penalties: every token seen, ascending ---- */

static bool has_penalty(const struct params *p)
{
    return p->repetition != 1.0f || p->presence != 0.0f || p->frequency != 0.0f;
}

static void seen_reserve(struct seq *s, int32_t n)
{
    if (n <= s->seen_room)
        return;
    s->seen_room = n + n / 2 + 64;
    s->seen = mem_grow(s->seen, (size_t)s->seen_room * sizeof s->seen[0]);
}

static void seen_add(struct seq *s, int32_t token)
{
    int32_t low = 0, high = s->seen_n;

    while (low < high) {
        int32_t middle = low + (high - low) / 2;

        if (s->seen[middle].token < token)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == s->seen_n || s->seen[low].token != token) {
        seen_reserve(s, s->seen_n + 1);
        memmove(s->seen + low + 1, s->seen + low, (size_t)(s->seen_n - low) * sizeof s->seen[0]);
        s->seen[low] = (struct token_count){ token, 0 };
        s->seen_n++;
    }
    s->seen[low].output_n++;
}

static int compare_seen(const void *a, const void *b)
{
    int32_t x = ((const struct token_count *)a)->token, y = ((const struct token_count *)b)->token;

    return (x > y) - (x < y);
}

static void seen_fill(struct seq *s)
{
    const struct request *r = s->r;
    int32_t n = 0;

    s->seen_n = 0;
    if (!has_penalty(&r->params))
        return;
    seen_reserve(s, r->prompt_n);
    for (int32_t i = 0; i < r->prompt_n; i++)
        s->seen[i] = (struct token_count){ r->prompt[i], 0 };
    qsort(s->seen, (size_t)r->prompt_n, sizeof s->seen[0], compare_seen);
    for (int32_t i = 0; i < r->prompt_n; i++)
        if (i == 0 || s->seen[i].token != s->seen[i - 1].token)
            s->seen[n++] = s->seen[i];
    s->seen_n = n;
    for (int32_t i = 0; i < s->c->tokens_n; i++)
        seen_add(s, s->c->tokens[i]);
}

/* ---- min_tokens: the request's bias with every end token forbidden ---- */

static int compare_bias(const void *a, const void *b)
{
    int32_t x = ((const struct token_bias *)a)->token, y = ((const struct token_bias *)b)->token;

    return (x > y) - (x < y);
}

static void bias_fill(struct engine *e, struct seq *s)
{
    const struct params *p = &s->r->params;
    int32_t ends_n = p->ignore_eos ? 0 : e->ends_n, n = 0, kept = 0;

    s->bias_n = 0;
    if (s->c->tokens_n >= p->min_tokens)
        return;
    if (ends_n + p->stop_tokens_n + p->bias_n > s->bias_room) {
        s->bias_room = ends_n + p->stop_tokens_n + p->bias_n;
        s->bias = mem_grow(s->bias, (size_t)s->bias_room * sizeof s->bias[0]);
    }
    for (int32_t i = 0; i < ends_n; i++)
        s->bias[n++] = (struct token_bias){ e->ends[i], -INFINITY };
    for (int32_t i = 0; i < p->stop_tokens_n; i++)
        s->bias[n++] = (struct token_bias){ p->stop_tokens[i], -INFINITY };
    for (int32_t i = 0; i < p->bias_n; i++)
        if (!token_ends(e, s->r, p->bias[i].token))
            s->bias[n++] = p->bias[i];
    if (n > 0)
        qsort(s->bias, (size_t)n, sizeof s->bias[0], compare_bias);
    for (int32_t i = 0; i < n; i++)
        if (i == 0 || s->bias[i].token != s->bias[i - 1].token)
            s->bias[kept++] = s->bias[i];
    s->bias_n = kept;
}

/* ---- life ---- */

void seq_fill(struct engine *e, struct seq *s, struct request *r, int32_t choice_i)
{
    struct need need = choice_need(r, choice_i);

    s->r = r;
    s->c = &r->choices[choice_i];
    s->choice_i = choice_i;
    s->known_n = r->prompt_n + s->c->tokens_n;
    known_reserve(s, s->known_n);
    memcpy(s->known, r->prompt, (size_t)r->prompt_n * sizeof s->known[0]);
    if (s->c->tokens_n > 0)
        memcpy(s->known + r->prompt_n, s->c->tokens, (size_t)s->c->tokens_n * sizeof s->known[0]);
    s->computed_n = need.from;             /* at best; what the cache has decides */
    s->end_n = need.end;
    s->fresh_n = s->known_n;
    s->prompt_lp_n = choice_prompt_lp_n(r, choice_i);
    s->output_lp_n = choice_output_lp_n(r, choice_i);
    s->rows_n = s->outs_n = 0;
    s->saved_n = s->c->tokens_n;
    s->saved_ns = e->now_ns;
    s->safe_n = 0;
    seen_fill(s);
    bias_fill(e, s);
}

/* Whether the log-probability of the known token at this position is still missing. */
static bool logprob_missing(const struct seq *s, int32_t pos)
{
    return pos < s->r->prompt_n ? pos >= s->prompt_lp_n : pos - s->r->prompt_n >= s->output_lp_n;
}

int32_t seq_want(struct engine *e, struct seq *s, int32_t row, int32_t pos, int32_t out)
{
    const struct params *p = &s->r->params;
    struct sampling *to = &e->step.sampling[out];
    bool sample = pos + 1 == s->known_n;

    if (!sample && !logprob_missing(s, pos + 1))
        return 0;
    e->step.want[out] = row;
    *to = (struct sampling){
        .temperature = p->temperature, .top_p = p->top_p, .min_p = p->min_p, .top_k = p->top_k,
        .repetition = p->repetition, .presence = p->presence, .frequency = p->frequency,
        .seed = s->c->seed, .pos = pos + 1,
        .target = sample ? -1 : s->known[pos + 1],
        .top_logprobs_n = p->logprobs || p->echo_logprobs ? p->top_logprobs_n : -1,
        .bias = s->bias_n > 0 ? s->bias : p->bias, .bias_n = s->bias_n > 0 ? s->bias_n : p->bias_n,
        .seen = s->seen_n > 0 ? s->seen : NULL, .seen_n = s->seen_n,
    };
    return 1;
}

static void sampled_add(struct engine *e, struct seq *s, const struct sampled *from)
{
    struct request *r = s->r;
    struct choice *c = s->c;

    if (from->token < 0 || from->token >= e->vocab) {
        choice_fail(r, c, "no token could be chosen at position %d: the logits hold a NaN, or every token is forbidden",
                    s->known_n);
        return;
    }
    choice_token_add(e, r, s->choice_i, from->token);
    e->counts.output_tokens++;
    known_reserve(s, s->known_n + 1);
    s->known[s->known_n++] = from->token;
    s->end_n = c->finish == FINISH_NONE ? s->known_n : s->known_n - 1;
    if (r->params.logprobs)
        choice_logprob_set(r, &c->logprobs[s->output_lp_n], from, from->token);
    s->output_lp_n++;
    if (has_penalty(&r->params))
        seen_add(s, from->token);
    if (s->bias_n > 0 && c->tokens_n >= r->params.min_tokens)
        s->bias_n = 0;
}

/* A log-probability that is no number ends nothing here: its row's own token will tell. */
static void target_set(struct seq *s, int32_t token, const struct sampled *from)
{
    struct request *r = s->r;

    if (s->prompt_lp_n < r->prompt_n)
        choice_logprob_set(r, &r->prompt_logprobs[s->prompt_lp_n++], from, token);
    else
        choice_logprob_set(r, &s->c->logprobs[s->output_lp_n++], from, token);
}

static bool is_behind(struct engine *e, struct seq *s, int64_t by)
{
    if (e->ports.safe == NULL || s->c->tokens_n - s->safe_n < by)
        return false;
    s->safe_n = e->ports.safe(e->ports.ctx, s->r, s->choice_i);
    return s->c->tokens_n - s->safe_n >= by;
}

bool seq_sits_out(struct engine *e, struct seq *s)
{
    return is_behind(e, s, 2 * e->cfg->checkpoint_tokens);
}

static void progress_check(struct engine *e, struct seq *s)
{
    int32_t new_n = s->c->tokens_n - s->saved_n;

    /* Asked a while before it is too late, so that whoever writes may hurry. */
    (void)is_behind(e, s, 2 * e->cfg->checkpoint_tokens * 3 / 4);
    if (new_n <= 0)
        return;
    if (new_n < e->cfg->checkpoint_tokens && e->now_ns - s->saved_ns < e->cfg->checkpoint_ms * NS_PER_MS)
        return;
    e->ports.progress(e->ports.ctx, s->r, s->choice_i);
    s->saved_n = s->c->tokens_n;
    s->saved_ns = e->now_ns;
}

void seq_apply(struct engine *e, struct seq *s, const struct sampled *outs)
{
    int32_t before = s->computed_n;

    s->computed_n += s->rows_n;
    e->counts.prefill_tokens += (s->computed_n < s->fresh_n ? s->computed_n : s->fresh_n)
                              - (before < s->fresh_n ? before : s->fresh_n);
    if (s->computed_n / PAGE_POSITIONS > s->lease.shared_n)
        cache_lease_publish(e->cache, &s->lease, s->known, s->computed_n);
    for (int32_t o = 0; o < s->outs_n && s->c->finish != FINISH_ERROR; o++) {
        const struct sampling *asked = &e->step.sampling[outs - e->step.sampled + o];

        if (asked->target >= 0)
            target_set(s, asked->target, &outs[o]);
        else
            sampled_add(e, s, &outs[o]);
    }
    if (s->c->finish == FINISH_ERROR || (s->c->finish != FINISH_NONE && s->computed_n >= s->end_n))
        seq_end(e, s);
    else {
        progress_check(e, s);
        lane_check(e, s->r);
    }
}
