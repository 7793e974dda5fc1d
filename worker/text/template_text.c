/* Work on texts that methods and filters share. Results share the memory of what they are made from; each part keeps
 * the trust of where it came from. */
#define _GNU_SOURCE                /* memmem */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/utf8.h"
#include "worker/text/template_internal.h"

/* The characters to strip: those below 0x80 as a table, others by looking through the text of chars. */
struct strip_set {
    bool ascii[128];
    const char *text;
    size_t n;
    bool spaces;
};

static bool in_set(const struct strip_set *s, uint32_t code)
{
    char bytes[4];

    if (s->spaces)
        return char_space(code);
    if (code < 0x80)
        return s->ascii[code];
    return memmem(s->text, s->n, bytes, (size_t)utf8_put(bytes, code)) != NULL;
}

static bool strip_set_fill(struct run *r, const struct value *chars, struct strip_set *s)
{
    memset(s, 0, sizeof *s);
    s->spaces = chars == NULL;
    if (chars == NULL)
        return true;
    if ((s->text = run_flat(r, chars, &s->n)) == NULL)
        return false;
    for (size_t i = 0; i < s->n; i++)
        if ((unsigned char)s->text[i] < 0x80)
            s->ascii[(unsigned char)s->text[i]] = true;
    return true;
}

const struct value *text_strip(struct run *r, const struct value *v, const struct value *chars, int ends)
{
    struct strip_set s;
    size_t n, from = 0, to;
    const char *text = run_flat(r, v, &n);
    uint32_t code = 0;

    if (text == NULL || !strip_set_fill(r, chars, &s))
        return NULL;
    /* Characters outside ASCII are looked for one by one: at worst all of v in all of chars. */
    if (s.n > 64 && !run_charge(r, (int64_t)((n >> 5) * (s.n >> 5))))
        return NULL;
    to = n;
    while (ends & STRIP_LEFT && from < to) {
        int used = utf8_char(text + from, n - from, &code);

        if (!in_set(&s, code))
            break;
        from += (size_t)used;
    }
    while (ends & STRIP_RIGHT && to > from) {
        size_t at = to - 1;

        while (((unsigned char)text[at] & 0xc0) == 0x80)
            at--;
        utf8_char(text + at, n - at, &code);
        if (!in_set(&s, code))
            break;
        to = at;
    }
    return run_charge(r, (int64_t)((from + n - to) >> 6)) ? text_slice(r->arena, v, from, to) : NULL;
}

/* "abc".replace("", "-"): between all characters, and at both ends. */
static const struct value *replace_nothing(struct run *r, const struct value *v, const struct value *to, int64_t count)
{
    struct text_build b;
    size_t n, at = 0, span_i = 0;
    const char *text = run_flat(r, v, &n);

    if (text == NULL || !run_charge(r, (int64_t)(n >> 3)))
        return NULL;
    run_build(r, &b);
    while (count-- != 0 && !b.over) {
        size_t from = at;

        text_build_value(&b, to);
        if (at == n)
            return run_build_end(r, &b);
        for (at++; at < n && ((unsigned char)text[at] & 0xc0) == 0x80; at++)
            ;
        text_build_part(&b, v, from, at, &span_i);
    }
    text_build_part(&b, v, at, n, &span_i);
    return run_build_end(r, &b);
}

const struct value *text_replace(struct run *r, const struct value *v, const struct value *from, const struct value *to,
                                 int64_t count)
{
    struct text_build b;
    size_t n, m, at = 0, span_i = 0;
    const char *text = run_flat(r, v, &n), *cut = text == NULL ? NULL : run_flat(r, from, &m), *found;

    if (cut == NULL || !run_search(r, n, m))
        return NULL;
    if (count == 0)
        return v;
    if (m == 0)
        return replace_nothing(r, v, to, count);
    found = memmem(text, n, cut, m);
    if (found == NULL)
        return v;
    run_build(r, &b);
    while (found != NULL && count-- != 0 && !b.over) {
        if (!run_charge(r, 1))
            return NULL;
        text_build_part(&b, v, at, (size_t)(found - text), &span_i);
        text_build_value(&b, to);
        at = (size_t)(found - text) + m;
        found = memmem(text + at, n - at, cut, m);
    }
    text_build_part(&b, v, at, n, &span_i);
    return run_build_end(r, &b);
}

const struct value *text_join(struct run *r, const struct value *between, const struct value *items, bool strings_only,
                              const struct value *attribute)
{
    const struct value *item;
    struct text_build b;
    struct iter it;
    bool first = true;
    int got;

    run_build(r, &b);
    if (!iter_open(r, &it, items))
        return NULL;
    while ((got = iter_next(r, &it, &item)) == 1 && !b.over) {
        if (attribute != NULL && (item = get_path(r, item, attribute, NULL)) == NULL)
            return NULL;
        if (strings_only && item->kind != VALUE_TEXT)
            return run_fail(r, "join: expected str instance, %s found", type_name(item));
        if ((item = text_of(r, item)) == NULL)
            return NULL;
        if (!first)
            text_build_value(&b, between);
        text_build_value(&b, item);
        first = false;
    }
    return got < 0 ? NULL : run_build_end(r, &b);
}

/* Bytes of the line end at `at`, as str.splitlines knows them; 0: none. */
static size_t line_end(const char *text, size_t n, size_t at)
{
    uint32_t code = 0;
    int used;

    if (text[at] == '\r')
        return at + 1 < n && text[at + 1] == '\n' ? 2 : 1;
    used = utf8_char(text + at, n - at, &code);
    if ((code >= 10 && code <= 12) || (code >= 0x1c && code <= 0x1e))
        return (size_t)used;
    return code == 0x85 || code == 0x2028 || code == 0x2029 ? (size_t)used : 0;
}

bool text_ends_line(const struct value *v)
{
    size_t at = v->u.text.bytes;

    if (at == 0)
        return false;
    do
        at--;
    while (((unsigned char)v->u.text.spans[0].text[at] & 0xc0) == 0x80);
    return v->u.text.spans[0].text[at] != '\r' && line_end(v->u.text.spans[0].text, v->u.text.bytes, at) != 0;
}

struct value *text_lines(struct run *r, const struct value *v, bool keep_ends)
{
    struct value *list = value_list(r->arena);
    size_t n, from = 0, at = 0;
    const char *text = run_flat(r, v, &n);

    if (text == NULL || !run_charge(r, (int64_t)(n >> 6)))
        return NULL;
    while (at < n) {
        size_t end = line_end(text, n, at);

        if (end == 0) {
            at++;
            continue;
        }
        if (!run_charge(r, 1))
            return NULL;
        value_list_add(r->arena, list, text_slice(r->arena, v, from, keep_ends ? at + end : at));
        from = at += end;
    }
    if (from < n)
        value_list_add(r->arena, list, text_slice(r->arena, v, from, n));
    return list;
}

const struct value *text_pad(struct run *r, const struct value *v, int64_t width, const struct value *fill, int side)
{
    int64_t missing = width - text_chars(v), left = 0;
    const struct value *before, *after;

    if (width <= text_chars(v))
        return v;
    if (side == STRIP_LEFT)
        left = missing;
    else if (side != STRIP_RIGHT)
        left = missing / 2 + (missing & width & 1);        /* CPython's pad for center */
    if (fill == NULL)
        fill = value_text_borrow(r->arena, " ", 1, TEXT_PLAIN);
    before = repeat(r, fill, left);
    after = before == NULL ? NULL : repeat(r, fill, missing - left);
    before = after == NULL ? NULL : binary(r, OP_ADD, before, v);
    return before == NULL ? NULL : binary(r, OP_ADD, before, after);
}

/* Numbers in texts. */

static void trim_ascii(const char **text, size_t *n)
{
    while (*n > 0 && char_space((unsigned char)(*text)[0]) && (unsigned char)(*text)[0] < 0x80) {
        ++*text;
        --*n;
    }
    while (*n > 0 && char_space((unsigned char)(*text)[*n - 1]) && (unsigned char)(*text)[*n - 1] < 0x80)
        --*n;
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

/* "0x" and the like in front; base 0: found out from it. false: base 0 and a number such as 012. */
static bool int_prefix(const char **text, size_t *n, int64_t *base)
{
    char kind = *n > 2 && (*text)[0] == '0' ? (char)((*text)[1] | 0x20) : '\0';
    int64_t found = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;

    if (found != 0 && (*base == 0 || *base == found)) {
        *base = found;
        *text += 2;
        *n -= 2;
        if (*n > 1 && (*text)[0] == '_') {
            ++*text;
            --*n;
        }
        return true;
    }
    if (*base != 0)
        return true;
    *base = 10;
    for (size_t i = 0; *n > 1 && (*text)[0] == '0' && i < *n; i++)
        if ((*text)[i] != '0' && (*text)[i] != '_')
            return false;
    return true;
}

bool text_to_int(const char *text, size_t n, int64_t base, int64_t *out, bool *over)
{
    bool minus = false, digit = false;

    *over = false;
    *out = 0;
    trim_ascii(&text, &n);
    if (n > 0 && (text[0] == '-' || text[0] == '+')) {
        minus = text[0] == '-';
        text++;
        n--;
    }
    if ((base != 0 && base < 2) || base > 36 || !int_prefix(&text, &n, &base))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '_') {
            if (!digit || i + 1 == n)
                return false;
            digit = false;
            continue;
        }
        if (digit_of(text[i]) >= base)
            return false;
        digit = true;
        if (!*over && (__builtin_mul_overflow(*out, base, out)
                       || __builtin_sub_overflow(*out, (int64_t)digit_of(text[i]), out)))
            *over = true;
    }
    if (!digit)
        return false;
    if (!minus && !*over && __builtin_sub_overflow((int64_t)0, *out, out))
        *over = true;
    return true;
}

static bool real_word(const char *text, size_t n, double *out)
{
    static const struct { const char *word; double value; } words[] = {
        { "inf", HUGE_VAL }, { "infinity", HUGE_VAL }, { "nan", 0 },
    };
    double sign = n > 0 && text[0] == '-' ? -1 : 1;

    if (n > 0 && (text[0] == '-' || text[0] == '+')) {
        text++;
        n--;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i].word) == n && strncasecmp(text, words[i].word, n) == 0) {
            *out = i == 2 ? (double)NAN : sign * words[i].value;
            return true;
        }
    return false;
}

bool text_to_real(const char *text, size_t n, double *out)
{
    enum { DIGITS_MAX = 1000 };
    char clean[DIGITS_MAX], *end;
    size_t at = 0;

    trim_ascii(&text, &n);
    if (real_word(text, n, out))
        return true;
    if (n == 0 || n >= DIGITS_MAX)
        return false;
    for (size_t i = 0; i < n; i++) {
        bool digit = digit_of(text[i]) < 10;

        if (text[i] == '_') {       /* only between digits */
            if (i == 0 || i + 1 == n || digit_of(text[i - 1]) >= 10 || digit_of(text[i + 1]) >= 10)
                return false;
            continue;
        }
        if (!digit && strchr("+-.eE", text[i]) == NULL)
            return false;
        clean[at++] = text[i];
    }
    clean[at] = '\0';
    *out = strtod(clean, &end);
    return end != clean && *end == '\0';
}

/* HTML: markupsafe.escape. */

const struct value *text_safe(struct run *r, const struct value *v)
{
    struct value *safe = value_new(r->arena, VALUE_TEXT);

    *safe = *v;
    safe->safe = 1;
    safe->u.text.pool = NULL;
    if (v->u.text.spans == &v->u.text.one)
        safe->u.text.spans = &safe->u.text.one;
    return safe;
}

const struct value *escape_of(struct run *r, const struct value *v)
{
    static const char from[] = "&<>'\"", *const to[] = { "&amp;", "&lt;", "&gt;", "&#39;", "&#34;" };
    struct text_build b;
    size_t n, at = 0, span_i = 0;
    const char *text;
    bool safe = v->kind == VALUE_TEXT && v->safe;

    if ((v = text_of(r, v)) == NULL || (text = run_flat(r, v, &n)) == NULL || !run_charge(r, (int64_t)(n >> 6)))
        return NULL;
    if (safe)
        return v;
    run_build(r, &b);
    while (at < n && !b.over) {
        size_t start = at;

        while (at < n && (text[at] == '\0' || strchr(from, text[at]) == NULL))
            at++;
        text_build_part(&b, v, start, at, &span_i);
        if (at < n)
            text_build_word(&b, to[strchr(from, text[at++]) - from]);
    }
    v = run_build_end(r, &b);
    return v == NULL ? NULL : text_safe(r, v);
}

/* isupper: at least one such letter, and none of the other cases. */
const struct value *text_is_case(struct run *r, const struct value *v, enum char_class what)
{
    enum char_class other = what == CHAR_UPPER ? CHAR_LOWER : CHAR_UPPER;
    size_t n, at = 0;
    const char *text = run_flat(r, v, &n);
    uint32_t code = 0;
    bool any = false;

    if (text == NULL || !run_charge(r, (int64_t)(n >> 6)))
        return NULL;
    while (at < n) {
        at += (size_t)utf8_char(text + at, n - at, &code);
        if (char_is(code, other) || char_is(code, CHAR_TITLE))
            return value_bool(false);
        any |= char_is(code, what);
    }
    return value_bool(any);
}
