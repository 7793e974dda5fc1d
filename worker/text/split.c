#include "worker/text/split.h"

#include <string.h>

#include "base/status.h"
#include "worker/text/unicode.h"

static unsigned flags_at(const struct splitter *s, size_t i, size_t *next)
{
    unsigned len, flags = unicode_flags(s->table, s->text + i, &len);

    *next = i + len;
    return flags;
}

/* The end of the run of characters that have one of the flags. */
static size_t run_end(const struct splitter *s, size_t i, unsigned flags)
{
    size_t next;

    while (i < s->limit && (flags_at(s, i, &next) & flags))
        i = next;
    return i;
}

/* \s+(?!\S)|\s+ : all of the white space at the end of the text, else all but its last character, but at least one.
 * With newlines, \s*[\r\n]+ comes first: up to and with the last newline of the white space. */
static size_t space_end(const struct splitter *s, size_t from, bool newlines)
{
    size_t i = from, last = from, newline_end = from, next;
    unsigned flags;

    while (i < s->limit && ((flags = flags_at(s, i, &next)) & UNICODE_SPACE)) {
        if (flags & UNICODE_NEWLINE)
            newline_end = next;
        last = i;
        i = next;
    }
    if (newlines && newline_end > from)
        return newline_end;
    return i == s->limit || last == from ? i : last;
}

/* 's|'t|'re|'ve|'m|'ll|'d at the apostrophe at from. Returns its end, or from. Where case is ignored, the long s counts
 * as an s, too. */
static size_t contraction_end(const struct splitter *s, size_t from, bool any_case)
{
    static const char *const ends[] = { "s", "t", "re", "ve", "m", "ll", "d" };
    const char *at = s->text + from + 1;
    size_t left = s->limit - from - 1;

    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        size_t n = strlen(ends[i]), same = 0;

        while (same < n && same < left && (at[same] == ends[i][same] || (any_case && at[same] == ends[i][same] - 32)))
            same++;
        if (same == n)
            return from + 1 + n;
    }
    if (any_case && left >= 2 && memcmp(at, "\xc5\xbf", 2) == 0)
        return from + 3;
    return from;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t gpt2_word_end(const struct splitter *s, size_t from)
{
    size_t body = from, next;
    unsigned flags;

    if (s->text[from] == '\'') {
        size_t end = contraction_end(s, from, false);

        if (end > from)
            return end;
    }
    if (s->text[from] == ' ')
        body++;
    if (body < s->limit) {
        flags = flags_at(s, body, &next) & (UNICODE_LETTER | UNICODE_NUMBER | UNICODE_OTHER);
        if (flags != 0)
            return run_end(s, next, flags);
    }
    return space_end(s, from, false);
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 * where 3 is the rules' numbers_max. */
static size_t llama3_word_end(const struct splitter *s, size_t from)
{
    size_t body, next;
    unsigned flags;

    if (s->text[from] == '\'') {
        size_t end = contraction_end(s, from, true);

        if (end > from)
            return end;
    }
    flags = flags_at(s, from, &next);
    if (flags & UNICODE_LETTER)
        return run_end(s, next, UNICODE_LETTER);
    if (flags & UNICODE_NUMBER) {
        for (size_t i = 1; i < s->rules->numbers_max && next < s->limit; i++) {
            size_t after;

            if (!(flags_at(s, next, &after) & UNICODE_NUMBER))
                break;
            next = after;
        }
        return next;
    }
    if (!(flags & UNICODE_NEWLINE)) {
        size_t end = run_end(s, next, UNICODE_LETTER);

        if (end > next)
            return end;
    }
    body = s->text[from] == ' ' ? from + 1 : from;
    next = run_end(s, body, UNICODE_OTHER);
    if (next > body)
        return run_end(s, next, UNICODE_NEWLINE);
    return space_end(s, from, true);
}

/* The names after the first of a row are those that llama.cpp gives the same rules; only the first is checked against
 * the reference tokenizers here. */
static const struct split_rules rules_known[] = {
    { "gpt2 gpt-2 phi-2 gigachat a.x-4.0 mellum ", gpt2_word_end, 0, false, false, false },
    { "smollm ", gpt2_word_end, 0, true, false, false },
    { "llama-bpe llama3 llama-v3 falcon3 falcon-h1 midm-2.0 lfm2 ", llama3_word_end, 3, false, false, true },
    { "qwen2 deepseek-r1-qwen kormo ", llama3_word_end, 1, false, true, false },
};

const struct split_rules *split_rules_find(const char *pre)
{
    size_t n = strlen(pre);

    if (n == 0 || strchr(pre, ' ') != NULL)
        return NULL;
    for (size_t i = 0; i < sizeof(rules_known) / sizeof(*rules_known); i++) {
        for (const char *name = rules_known[i].names; *name != '\0'; name = strchr(name, ' ') + 1) {
            if (strncmp(name, pre, n) == 0 && name[n] == ' ')
                return &rules_known[i];
        }
    }
    return NULL;
}

void split_rules_names(struct buf *out)
{
    for (size_t i = 0; i < sizeof(rules_known) / sizeof(*rules_known); i++)
        buf_add_text(out, rules_known[i].names);
    out->n--;                      /* the last space */
}

static size_t digit_find(const struct splitter *s, size_t i)
{
    size_t next;

    while (i < s->n && !(flags_at(s, i, &next) & UNICODE_NUMERIC))
        i = next;
    return i;
}

void splitter_init(struct splitter *s, const struct split_rules *rules, const uint8_t *table, const char *text,
                   size_t n)
{
    *s = (struct splitter){ rules, table, text, n, 0, rules->digits ? 0 : n };
}

size_t splitter_next(struct splitter *s)
{
    size_t next;

    if (s->at == s->limit) {       /* with digits only: find the next digit, or take the one that stands here */
        if (flags_at(s, s->at, &next) & UNICODE_NUMERIC) {
            s->at = s->limit = next;
            return next;
        }
        s->limit = digit_find(s, next);
    }
    s->at = s->rules->word_end(s, s->at);
    return s->at;
}
