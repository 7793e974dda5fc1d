/* Filters on one value, and the table of all filters: jinja2/filters.py with Hugging Face's tojson. Those on sequences
 * are in template_filters_list.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "worker/text/template_filters.h"

static const struct value *filter_trim(struct run *r, const struct bound *b)
{
    const struct value *text = text_of(r, b->self), *chars = b->arg[0];

    if (chars != NULL && chars->kind == VALUE_NONE)
        chars = NULL;
    if (chars != NULL && chars->kind != VALUE_TEXT)
        return chars->kind == VALUE_UNDEFINED ? undefined_fail(r, chars) : run_fail(r, "strip arg must be None or str");
    return text == NULL ? NULL : text_strip(r, text, chars, STRIP_LEFT | STRIP_RIGHT);
}

static const struct value *in_case(struct run *r, const struct bound *b, enum case_style style)
{
    const struct value *text = text_of(r, b->self);

    return text == NULL ? NULL : text_case(r, text, style);
}

static const struct value *filter_upper(struct run *r, const struct bound *b)
{
    return in_case(r, b, STYLE_UPPER);
}

static const struct value *filter_lower(struct run *r, const struct bound *b)
{
    return in_case(r, b, STYLE_LOWER);
}

static const struct value *filter_capitalize(struct run *r, const struct bound *b)
{
    return in_case(r, b, STYLE_CAPITALIZE);
}

static const struct value *filter_title(struct run *r, const struct bound *b)
{
    return in_case(r, b, STYLE_WORDS);
}

static const struct value *filter_string(struct run *r, const struct bound *b)
{
    return text_of(r, b->self);
}

static const struct value *filter_length(struct run *r, const struct bound *b)
{
    int64_t n;

    if (b->self->kind == VALUE_TEXT && !run_charge(r, (int64_t)(b->self->u.text.bytes >> 9)))
        return NULL;
    n = length(r, b->self);
    return n < 0 ? NULL : int_of(r, n);
}

static const struct value *filter_default(struct run *r, const struct bound *b)
{
    if (b->self->kind == VALUE_UNDEFINED || (arg_true(r, b->arg[1]) && !truth(r, b->self)))
        return b->arg[0] != NULL ? b->arg[0] : value_empty_text();
    return b->self;
}

static const struct value *filter_tojson(struct run *r, const struct bound *b)
{
    return json_of(r, b->self, arg_true(r, b->arg[0]), b->arg[1], b->arg[2], arg_true(r, b->arg[3]));
}

static const struct value *filter_replace(struct run *r, const struct bound *b)
{
    const struct value *text = text_of(r, b->self), *from, *to;
    const struct value *count_given = b->arg[2] != NULL && b->arg[2]->kind == VALUE_NONE ? NULL : b->arg[2];
    int64_t count;

    if (text == NULL || (from = text_of(r, b->arg[0])) == NULL || (to = text_of(r, b->arg[1])) == NULL
        || !arg_int(r, count_given, -1, &count))
        return NULL;
    return text_replace(r, text, from, to, count);
}

/* Numbers. */

static const struct value *int_of_real(struct run *r, double d, const struct value *otherwise)
{
    if (isnan(d) || isinf(d))
        return otherwise != NULL ? otherwise : int_of(r, 0);
    if (!(fabs(d) < 9.2e18))
        return run_fail(r, "an integer of more than 64 bits");
    return int_of(r, (int64_t)d);
}

static const struct value *filter_int(struct run *r, const struct bound *b)
{
    const struct value *v = b->self;
    int64_t i = 0, base;
    const char *text;
    bool over;
    double d;
    size_t n;

    if (b->arg[1] == NULL)
        base = 10;
    else if (!is_int(b->arg[1], &base))
        base = 1;                   /* no base at all, as far as Python's int() goes: the text is tried as a float */
    if (v->kind == VALUE_UNDEFINED)
        return undefined_fail(r, v);
    if (is_int(v, &i))
        return int_of(r, i);
    if (v->kind == VALUE_REAL && isinf(v->u.d))
        return run_fail(r, "cannot convert float infinity to integer");
    if (v->kind == VALUE_REAL)
        return int_of_real(r, v->u.d, b->arg[0]);
    if (v->kind == VALUE_TEXT) {
        if ((text = run_flat(r, v, &n)) == NULL)
            return NULL;
        if (text_to_int(text, n, base, &i, &over))
            return over ? run_fail(r, "an integer of more than 64 bits") : int_of(r, i);
        if (text_to_real(text, n, &d))
            return int_of_real(r, d, b->arg[0]);
    }
    return b->arg[0] != NULL ? b->arg[0] : int_of(r, 0);
}

static const struct value *filter_float(struct run *r, const struct bound *b)
{
    const struct value *v = b->self;
    const char *text;
    double d;
    size_t n;

    if (v->kind == VALUE_UNDEFINED)
        return undefined_fail(r, v);
    if (is_number(v, &d))
        return value_real(r->arena, d);
    if (v->kind == VALUE_TEXT) {
        if ((text = run_flat(r, v, &n)) == NULL)
            return NULL;
        if (text_to_real(text, n, &d))
            return value_real(r->arena, d);
    }
    return b->arg[0] != NULL ? b->arg[0] : value_real(r->arena, 0);
}

/* round() of Python: to the nearest, halves to even, by the exact decimal value, which is what printf does too. */
static const struct value *round_real(struct run *r, double d, int64_t precision)
{
    char text[512];
    double scale;

    if (isnan(d) || isinf(d) || precision > 323)
        return value_real(r->arena, d);
    if (precision >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)precision > 100 ? 100 : (int)precision, d);
        return value_real(r->arena, strtod(text, NULL));
    }
    if (precision < -308)
        return value_real(r->arena, copysign(0.0, d));
    scale = pow(10, (double)-precision);
    return value_real(r->arena, nearbyint(d / scale) * scale);
}

static const struct value *round_int(struct run *r, int64_t i, int64_t precision)
{
    int64_t scale = 1, rest, half;

    if (precision >= 0)
        return int_of(r, i);
    if (precision < -18)
        return int_of(r, 0);
    while (precision++ < 0)
        scale *= 10;
    rest = i % scale;
    if (rest < 0)
        rest += scale;
    half = scale / 2;
    if (__builtin_sub_overflow(i, rest, &i)
        || ((rest > half || (rest == half && i / scale % 2 != 0)) && __builtin_add_overflow(i, scale, &i)))
        return run_fail(r, "an integer of more than 64 bits");
    return int_of(r, i);
}

static const struct value *filter_round(struct run *r, const struct bound *b)
{
    bool ceiling = b->arg[1] != NULL && text_is(b->arg[1], "ceil");
    bool floored = b->arg[1] != NULL && text_is(b->arg[1], "floor");
    int64_t precision, i = 0;
    double d, scale;

    if (b->arg[1] != NULL && !ceiling && !floored && !text_is(b->arg[1], "common"))
        return run_fail(r, "method must be common, ceil or floor");
    if (!arg_int(r, b->arg[0], 0, &precision))
        return NULL;
    if (b->self->kind == VALUE_UNDEFINED)
        return undefined_fail(r, b->self);
    if (!is_number(b->self, &d))
        return run_fail(r, "type %s has no round", type_name(b->self));
    if (!ceiling && !floored)
        return is_int(b->self, &i) ? round_int(r, i, precision) : round_real(r, d, precision);
    scale = pow(10, (double)precision);
    return value_real(r->arena, (ceiling ? ceil(d * scale) : floor(d * scale)) / scale);
}

static const struct value *filter_abs(struct run *r, const struct bound *b)
{
    int64_t i = 0;

    if (b->self->kind == VALUE_UNDEFINED)
        return undefined_fail(r, b->self);
    if (is_int(b->self, &i))
        return negate(r, int_of(r, i), i < 0);
    if (b->self->kind == VALUE_REAL)
        return value_real(r->arena, fabs(b->self->u.d));
    return run_fail(r, "bad operand type for abs(): '%s'", type_name(b->self));
}

/* Layout. */

static const struct value *space(struct run *r, int64_t n)
{
    return repeat(r, value_text_borrow(r->arena, " ", 1, TEXT_PLAIN), n);
}

static const struct value *filter_indent(struct run *r, const struct bound *b)
{
    const struct value *indent = b->arg[0] != NULL && b->arg[0]->kind == VALUE_TEXT ? b->arg[0] : NULL;
    bool first = arg_true(r, b->arg[1]), blank = arg_true(r, b->arg[2]);
    struct text_build out;
    struct value *lines;
    int64_t width;

    if (b->self->kind != VALUE_TEXT)
        return binary(r, OP_ADD, b->self, value_empty_text());      /* fails as Python's s += newline does */
    if (indent == NULL && (!arg_int(r, b->arg[0], 4, &width) || (indent = space(r, width)) == NULL))
        return NULL;
    if ((lines = text_lines(r, b->self, false)) == NULL)
        return NULL;
    /* The filter adds a newline and splits: a line end that is there already leaves an empty last line, but for "\r",
     * which becomes one end with it. */
    if (b->self->u.text.bytes == 0 || text_ends_line(b->self))
        value_list_add(r->arena, lines, value_empty_text());
    run_build(r, &out);
    if (first)
        text_build_value(&out, indent);
    for (size_t i = 0; i < lines->u.list.n; i++) {
        const struct value *line = lines->u.list.items[i];

        if (i > 0)
            text_build_word(&out, "\n");
        if (i > 0 && (blank || line->u.text.bytes > 0))
            text_build_value(&out, indent);
        text_build_value(&out, line);
    }
    return run_build_end(r, &out);
}

static const struct value *filter_center(struct run *r, const struct bound *b)
{
    const struct value *text = text_of(r, b->self);
    int64_t width;

    if (text == NULL || !arg_int(r, b->arg[0], 80, &width))
        return NULL;
    return text_pad(r, text, width, NULL, STRIP_LEFT | STRIP_RIGHT);
}

/* The place of the last space among the first n bytes; n: there is none. */
static size_t last_space(const char *text, size_t n)
{
    for (size_t at = n; at > 0; at--)
        if (text[at - 1] == ' ')
            return at - 1;
    return n;
}

static const struct value *filter_truncate(struct run *r, const struct bound *b)
{
    const struct value *end = b->arg[2] != NULL ? b->arg[2] : value_text_borrow(r->arena, "...", 3, TEXT_PLAIN);
    const struct value *v = b->self;
    int64_t max, leeway, chars;
    size_t n, cut;
    const char *text;

    if (end->kind != VALUE_TEXT)
        return run_fail(r, "truncate takes a text for its end");
    if (!arg_int(r, b->arg[0], 255, &max)
        || !arg_int(r, b->arg[3] != NULL && b->arg[3]->kind == VALUE_NONE ? NULL : b->arg[3], 5, &leeway))
        return NULL;
    if (max < text_chars(end) || leeway < 0)
        return run_fail(r, "truncate: expected length >= %lld and leeway >= 0", (long long)text_chars(end));
    if ((chars = length(r, v)) < 0)
        return NULL;
    if (chars - max <= leeway)
        return v;                   /* whatever it is */
    if (v->kind != VALUE_TEXT)
        return run_fail(r, "truncate takes a text");
    if ((text = run_flat(r, v, &n)) == NULL)
        return NULL;
    cut = text_offset(v, max - text_chars(end));
    if (!arg_true(r, b->arg[1]))
        cut = last_space(text, cut);
    return binary(r, OP_ADD, text_slice(r->arena, v, 0, cut), end);
}

static const struct value *filter_wordcount(struct run *r, const struct bound *b)
{
    const struct value *v = text_of(r, b->self);
    int64_t words = 0;
    bool inside = false;
    size_t n, at = 0;
    const char *text = v == NULL ? NULL : run_flat(r, v, &n);
    uint32_t code = 0;

    if (text == NULL || !run_charge(r, (int64_t)(n >> 6)))
        return NULL;
    while (at < n) {
        bool word;

        at += (size_t)utf8_char(text + at, n - at, &code);
        word = code == '_' || char_is(code, CHAR_ALPHA) || char_is(code, CHAR_NUMERIC);
        words += word && !inside;
        inside = word;
    }
    return int_of(r, words);
}

static const struct value *filter_escape(struct run *r, const struct bound *b)
{
    return escape_of(r, b->self);
}

static const struct value *filter_forceescape(struct run *r, const struct bound *b)
{
    struct value plain;

    if (b->self->kind != VALUE_TEXT || !b->self->safe)
        return escape_of(r, b->self);
    plain = *text_safe(r, b->self);
    plain.safe = 0;
    if (plain.u.text.spans_n == 1)
        plain.u.text.spans = &plain.u.text.one;
    return escape_of(r, &plain);
}

static const struct value *filter_safe(struct run *r, const struct bound *b)
{
    const struct value *text = text_of(r, b->self);

    return text == NULL ? NULL : text_safe(r, text);
}

static const struct value *filter_format(struct run *r, const struct bound *b)
{
    const struct value *text = text_of(r, b->self);
    struct value *args;

    if (text == NULL)
        return NULL;
    if (b->all->pos_n > 0 && b->all->keys_n > 0)
        return run_fail(r, "format: can't handle positional and keyword arguments at the same time");
    args = b->all->keys_n > 0 ? value_dict(r->arena) : value_tuple(r->arena, b->all->pos_n);
    for (size_t i = 0; i < b->all->keys_n; i++)
        dict_set(r->arena, &args->u.dict, b->all->key[i], b->all->item[i]);
    for (size_t i = 0; i < b->all->pos_n; i++)
        value_list_add(r->arena, args, b->all->pos[i]);
    return format_percent(r, text, args);
}

static const struct value *filter_attr(struct run *r, const struct bound *b)
{
    const struct value *name = b->arg[0], *v;

    if (b->self->kind == VALUE_UNDEFINED)
        return undefined_fail(r, b->self);
    if (name->kind != VALUE_TEXT)
        return run_fail(r, "attribute name must be string, not '%s'", type_name(name));
    text_flat(r->arena, name);
    v = own_attr(r, b->self, name);
    return v != NULL || r->failed ? v : undefined_of(r, b->self, name);
}

static const struct builtin filters[] = {
    { "abs", filter_abs, "" }, { "attr", filter_attr, "name" }, { "batch", filter_batch, "linecount,?fill_with" },
    { "capitalize", filter_capitalize, "" }, { "center", filter_center, "?width" }, { "count", filter_length, "" },
    { "d", filter_default, "?default_value,boolean" }, { "default", filter_default, "?default_value,boolean" },
    { "dictsort", filter_dictsort, "?case_sensitive,by,reverse" }, { "e", filter_escape, "" },
    { "escape", filter_escape, "" }, { "first", filter_first, "" }, { "float", filter_float, "?default" },
    { "forceescape", filter_forceescape, "" }, { "format", filter_format, "*" },
    { "indent", filter_indent, "?width,first,blank" }, { "int", filter_int, "?default,base" },
    { "items", filter_items, "" }, { "join", filter_join, "?d,attribute" }, { "last", filter_last, "" },
    { "length", filter_length, "" }, { "list", filter_list, "" }, { "lower", filter_lower, "" },
    { "map", filter_map, "*" }, { "max", filter_max, "?case_sensitive,attribute" },
    { "min", filter_min, "?case_sensitive,attribute" }, { "reject", filter_reject, "*" },
    { "rejectattr", filter_rejectattr, "*" }, { "replace", filter_replace, "old,new,?count" },
    { "reverse", filter_reverse, "" }, { "round", filter_round, "?precision,method" }, { "safe", filter_safe, "" },
    { "select", filter_select, "*" }, { "selectattr", filter_selectattr, "*" },
    { "slice", filter_slice, "slices,?fill_with" }, { "sort", filter_sort, "?reverse,case_sensitive,attribute" },
    { "string", filter_string, "" }, { "sum", filter_sum, "?attribute,start" }, { "title", filter_title, "" },
    { "tojson", filter_tojson, "?ensure_ascii,indent,separators,sort_keys" }, { "trim", filter_trim, "?chars" },
    { "truncate", filter_truncate, "?length,killwords,end,leeway" },
    { "unique", filter_unique, "?case_sensitive,attribute" }, { "upper", filter_upper, "" },
    { "wordcount", filter_wordcount, "" },
};

const struct builtin *filter_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
        if (strlen(filters[i].name) == n && memcmp(filters[i].name, name, n) == 0)
            return &filters[i];
    return NULL;
}
