/* tests/sim/sim_text.h - the simulated model: what is asked, and the one right answer. A prompt is "<kind> <tokens> ...";
 * token i of its answer follows from the prompt, i and the token before, so a text that was resumed wrongly shows. */
#ifndef TESTS_SIM_SIM_TEXT_H
#define TESTS_SIM_SIM_TEXT_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

#define TEXT_TOKENS_MAX 24

enum text_kind {
    TEXT_GOOD = 'g',         /* an output */
    TEXT_BAD = 'b',          /* a failure at once: a dead letter */
    TEXT_HUGE = 'h'          /* an output that is larger than the topic takes */
};

struct text_prompt { enum text_kind kind; int32_t tokens_n; };

static inline struct text_prompt text_prompt_read(const char *value, size_t value_n)
{
    struct text_prompt p = { TEXT_BAD, 0 };
    char text[32] = "", kind;
    int tokens_n;

    memcpy(text, value, value_n < sizeof text ? value_n : sizeof text - 1);
    if (sscanf(text, "%c %d", &kind, &tokens_n) == 2)
        p = (struct text_prompt){ (enum text_kind)kind, tokens_n };
    return p;
}

static inline int32_t text_token(const char *value, size_t value_n, int32_t i, int32_t before)
{
    return (int32_t)((hash64(value, value_n, (uint64_t)i) ^ (uint64_t)before * 31) % 50000);
}

static inline uint64_t text_hash(const int32_t *tokens, int32_t n)
{
    return hash64(tokens, (size_t)n * sizeof tokens[0], (uint64_t)n);
}

static inline uint64_t text_answer(const char *value, size_t value_n)
{
    struct text_prompt p = text_prompt_read(value, value_n);
    int32_t tokens[TEXT_TOKENS_MAX];

    for (int32_t i = 0; i < p.tokens_n; i++)
        tokens[i] = text_token(value, value_n, i, i > 0 ? tokens[i - 1] : 0);
    return text_hash(tokens, p.tokens_n);
}

#endif
