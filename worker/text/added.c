#include "worker/text/added.h"

#include <stdlib.h>
#include <string.h>

static int text_order(const char *a, size_t a_n, const char *b, size_t b_n)
{
    int order = memcmp(a, b, a_n < b_n ? a_n : b_n);

    return order != 0 ? order : (a_n > b_n) - (a_n < b_n);
}

static int token_order(const void *left, const void *right)
{
    const struct added_token *a = left, *b = right;
    int order = text_order(a->text, a->n, b->text, b->n);

    if (order == 0)
        order = b->control - a->control;
    return order != 0 ? order : (a->token > b->token) - (a->token < b->token);
}

void added_init(struct added *a, struct added_token *tokens, size_t n)
{
    size_t kept = 0;

    memset(a, 0, sizeof(*a));
    if (n > 0)
        qsort(tokens, n, sizeof(*tokens), token_order);
    for (size_t i = 0; i < n; i++) {
        if (kept > 0 && text_order(tokens[kept - 1].text, tokens[kept - 1].n, tokens[i].text, tokens[i].n) == 0)
            continue;
        tokens[kept++] = tokens[i];
        a->first[(unsigned char)tokens[i].text[0]] |= tokens[i].control ? 2 : 1;
        a->any_plain |= !tokens[i].control;
    }
    a->tokens = tokens;
    a->n = kept;
}

void added_fini(struct added *a)
{
    free(a->tokens);
    a->tokens = NULL;
    a->n = 0;
}

/* In [low, high), whose tokens share their first `depth` bytes: the first whose next byte is at least `byte`. */
static size_t byte_bound(const struct added *a, size_t low, size_t high, size_t depth, int byte)
{
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const struct added_token *t = &a->tokens[mid];

        if (t->n > depth && (unsigned char)t->text[depth] >= byte)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

const struct added_token *added_match(const struct added *a, const char *text, size_t n, size_t trusted_n)
{
    const struct added_token *best = NULL;
    size_t low = 0, high = a->n;

    for (size_t depth = 0; depth < n; depth++) {
        int byte = (unsigned char)text[depth];

        low = byte_bound(a, low, high, depth, byte);
        high = byte_bound(a, low, high, depth, byte + 1);
        if (low == high)
            break;
        /* The shortest of the range stands first. */
        if (a->tokens[low].n == depth + 1 && (!a->tokens[low].control || depth + 1 <= trusted_n))
            best = &a->tokens[low];
    }
    return best;
}

const struct added_token *added_find(const struct added *a, const char *text, size_t n)
{
    size_t low = 0, high = a->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = text_order(a->tokens[mid].text, a->tokens[mid].n, text, n);

        if (order == 0)
            return &a->tokens[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}
