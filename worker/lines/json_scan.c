#include "worker/lines/json_scan.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

struct cursor {
    const char *text;
    size_t n, i;
    struct json_scan *out;
    size_t soft_n;                 /* faults that leave the grammar sound: the first one is told */
    bool in_object[JSON_DEPTH_MAX + 1];
    int depth;
};

static bool fault(struct cursor *c, enum json_fault f, size_t at, const char *why)
{
    if (c->soft_n == 0 || f == JSON_SYNTAX || f == JSON_CUT) {
        c->out->fault = f;
        c->out->at = at;
        c->out->why = why;
    }
    return false;
}

/* What a reader could have read, were the limits wider; scanning goes on, for the grammar comes first. */
static void soft_fault(struct cursor *c, enum json_fault f, size_t at)
{
    (void)fault(c, f, at, "");
    c->soft_n++;
}

static bool cut_or(struct cursor *c, const char *why)
{
    return c->i >= c->n ? fault(c, JSON_CUT, c->n, "the text ends in the middle")
                        : fault(c, JSON_SYNTAX, c->i, why);
}

static void space_skip(struct cursor *c)
{
    while (c->i < c->n && (c->text[c->i] == ' ' || c->text[c->i] == '\t' || c->text[c->i] == '\n' || c->text[c->i] == '\r'))
        c->i++;
}

static bool word_scan(struct cursor *c, const char *word)
{
    size_t len = strlen(word);

    for (size_t k = 0; k < len; k++, c->i++) {
        if (c->i >= c->n || c->text[c->i] != word[k])
            return cut_or(c, "a value is expected (true, false and null are written small; NaN and Infinity do not exist)");
    }
    return true;
}

/* The four digits of \uXXXX; i stands on the first. -1: not four hex digits. */
static int hex4(struct cursor *c)
{
    int v = 0;

    for (int k = 0; k < 4; k++, c->i++) {
        char ch = c->i < c->n ? c->text[c->i] : '\0';
        int d = ch >= '0' && ch <= '9' ? ch - '0' : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10
              : ch >= 'A' && ch <= 'F' ? ch - 'A' + 10 : -1;

        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

/* i stands behind the backslash. */
static bool escape_scan(struct cursor *c, bool key)
{
    size_t at = c->i - 1;
    int v;

    if (c->i >= c->n || strchr("\"\\/bfnrtu", c->text[c->i]) == NULL || c->text[c->i] == '\0')
        return cut_or(c, "an unknown escape (known are \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX)");
    if (c->text[c->i++] != 'u')
        return true;
    v = hex4(c);
    if (v < 0)
        return cut_or(c, "four hexadecimal digits must follow \\u");
    if (v == 0 && key)
        soft_fault(c, JSON_KEY_NUL, at);
    if (v >= 0xdc00 && v <= 0xdfff) {
        soft_fault(c, JSON_SURROGATE, at);
    } else if (v >= 0xd800 && v <= 0xdbff) {
        size_t pair_at = c->i;

        if (c->n - c->i >= 2 && c->text[c->i] == '\\' && c->text[c->i + 1] == 'u') {
            c->i += 2;
            v = hex4(c);
            if (v < 0)
                return cut_or(c, "four hexadecimal digits must follow \\u");
            if (v >= 0xdc00 && v <= 0xdfff)
                return true;
        }
        c->i = pair_at;            /* what followed is read again on its own */
        soft_fault(c, JSON_SURROGATE, at);
    }
    return true;
}

/* i stands on the opening quote. */
static bool string_scan(struct cursor *c, bool key)
{
    c->i++;
    while (c->i < c->n) {
        unsigned char ch = (unsigned char)c->text[c->i];

        if (ch < 0x20)
            return fault(c, JSON_SYNTAX, c->i, "a control character inside a string must be written as an escape");
        c->i++;
        if (ch == '"')
            return true;
        if (ch == '\\' && !escape_scan(c, key))
            return false;
    }
    return cut_or(c, "");
}

static size_t digits_skip(struct cursor *c)
{
    size_t first = c->i;

    while (c->i < c->n && c->text[c->i] >= '0' && c->text[c->i] <= '9')
        c->i++;
    return c->i - first;
}

/* The limits of jansson: int64 for integers, finite doubles for the rest. */
static bool number_fits(const char *text, size_t n, bool whole)
{
    char *copy = mem_take(n + 1);
    bool fits;

    memcpy(copy, text, n);
    copy[n] = '\0';
    errno = 0;
    if (whole) {
        (void)strtoll(copy, NULL, 10);
        fits = errno != ERANGE;
    } else {
        fits = isfinite(strtod(copy, NULL));
    }
    free(copy);
    return fits;
}

static bool number_scan(struct cursor *c)
{
    size_t at = c->i, digits_at;
    bool whole = true;

    c->i += c->text[c->i] == '-';
    digits_at = c->i;
    if (digits_skip(c) == 0)
        return cut_or(c, "a digit is expected (NaN and Infinity do not exist)");
    if (c->text[digits_at] == '0' && c->i - digits_at > 1)
        return fault(c, JSON_SYNTAX, digits_at, "a number cannot begin with 0");
    if (c->i < c->n && c->text[c->i] == '.') {
        whole = false;
        c->i++;
        if (digits_skip(c) == 0)
            return cut_or(c, "a digit is expected");
    }
    if (c->i < c->n && (c->text[c->i] == 'e' || c->text[c->i] == 'E')) {
        whole = false;
        c->i++;
        c->i += c->i < c->n && (c->text[c->i] == '+' || c->text[c->i] == '-');
        if (digits_skip(c) == 0)
            return cut_or(c, "a digit is expected");
    }
    if (!number_fits(c->text + at, c->i - at, whole))
        soft_fault(c, JSON_NUMBER, at);
    return true;
}

static bool scalar_scan(struct cursor *c)
{
    char ch = c->i < c->n ? c->text[c->i] : '\0';

    if (ch == '"')
        return string_scan(c, false);
    if (ch == '-' || (ch >= '0' && ch <= '9'))
        return number_scan(c);
    return word_scan(c, ch == 't' ? "true" : ch == 'f' ? "false" : "null");
}

/* A key and its colon. At the top level *is_id tells whether it is custom_id. */
static bool key_scan(struct cursor *c, bool *is_id)
{
    size_t at;

    space_skip(c);
    at = c->i;
    if (at >= c->n || c->text[at] != '"')
        return cut_or(c, "a field's name in double quotes is expected");
    if (!string_scan(c, true))
        return false;
    *is_id = c->depth == 1 && c->i - at == strlen("\"custom_id\"") && memcmp(c->text + at, "\"custom_id\"", c->i - at) == 0;
    space_skip(c);
    if (c->i >= c->n || c->text[c->i] != ':')
        return cut_or(c, "a colon is expected behind a field's name");
    c->i++;
    return true;
}

/* Goes into an object or list. *empty: it has already been left again. */
static bool enter(struct cursor *c, bool *empty)
{
    bool object = c->text[c->i] == '{';

    if (c->depth == JSON_DEPTH_MAX) {
        soft_fault(c, JSON_DEEP, c->i);
        return false;
    }
    c->i++;
    c->in_object[++c->depth] = object;
    space_skip(c);
    *empty = c->i < c->n && c->text[c->i] == (object ? '}' : ']');
    if (*empty) {
        c->i++;
        c->depth--;
    }
    return true;
}

/* Behind a value: closes what ends here. *more: a comma came, another value follows. */
static bool leave(struct cursor *c, bool *more)
{
    *more = false;
    while (c->depth > 0) {
        bool object = c->in_object[c->depth];

        space_skip(c);
        if (c->i < c->n && c->text[c->i] == ',') {
            c->i++;
            *more = true;
            return true;
        }
        if (c->i >= c->n || c->text[c->i] != (object ? '}' : ']'))
            return cut_or(c, object ? "a comma or } is expected" : "a comma or ] is expected");
        c->i++;
        c->depth--;
    }
    return true;
}

static bool text_scan(struct cursor *c)
{
    bool more = true;
    int ids_n = 0;

    while (more) {
        bool is_id = false, empty = true;
        size_t at, soft_n;

        if (c->depth > 0 && c->in_object[c->depth] && !key_scan(c, &is_id))
            return false;
        space_skip(c);
        at = c->i;
        soft_n = c->soft_n;
        if (at < c->n && (c->text[at] == '{' || c->text[at] == '[')) {
            if (!enter(c, &empty))
                return false;
            if (!empty)
                continue;
        } else if (!scalar_scan(c)) {
            return false;
        }
        if (is_id) {
            bool echoed = c->text[at] == '"' || c->text[at] == '-' || (c->text[at] >= '0' && c->text[at] <= '9');

            ids_n++;
            c->out->custom_id = echoed && ids_n == 1 && c->soft_n == soft_n ? c->text + at : NULL;
            c->out->custom_id_n = c->i - at;
        }
        if (!leave(c, &more))
            return false;
    }
    space_skip(c);
    return c->i == c->n || fault(c, JSON_SYNTAX, c->i, "something follows behind the end of the value");
}

void json_scan(const char *text, size_t n, struct json_scan *out)
{
    struct cursor c = { .text = text, .n = n, .out = out };

    *out = (struct json_scan){ .fault = JSON_SOUND, .why = "" };
    (void)text_scan(&c);
}
