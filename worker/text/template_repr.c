/* The text of values: str(), repr() and json.dumps() of Python. Quotes, brackets and escapes are plain text; what a
 * string holds keeps its trust. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "worker/text/template_internal.h"

const char *run_flat(struct run *r, const struct value *v, size_t *n)
{
    *n = v->u.text.bytes;
    return run_charge(r, (int64_t)(*n >> 9)) ? text_flat(r->arena, v) : NULL;
}

/* Shortest decimal that reads back as d, laid out as Python's float_repr_style 'short' does. */
size_t real_text(double d, char out[40])
{
    char digits[40], *e;
    int exponent, n, precision = 0;
    size_t at = 0;

    if (isnan(d))
        return (size_t)snprintf(out, 40, "nan");
    if (isinf(d))
        return (size_t)snprintf(out, 40, d < 0 ? "-inf" : "inf");
    do
        snprintf(digits, sizeof digits, "%.*e", precision, d);
    while (precision++ < 17 && strtod(digits, NULL) != d);
    e = strchr(digits, 'e');
    exponent = atoi(e + 1);
    *e = '\0';
    if (exponent < -4 || exponent >= 16)
        return (size_t)snprintf(out, 40, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
    /* digits is [-]D[.DDD]: without the dot, moved. */
    e = digits;
    if (*e == '-')
        out[at++] = *e++;
    if (e[1] == '.')
        memmove(e + 1, e + 2, strlen(e + 2) + 1);
    n = (int)strlen(e);
    if (exponent < 0) {
        at += (size_t)snprintf(out + at, 40 - at, "0.");
        for (int i = exponent + 1; i < 0; i++)
            out[at++] = '0';
        return at + (size_t)snprintf(out + at, 40 - at, "%s", e);
    }
    for (int i = 0; i <= exponent || i < n; i++) {
        if (i == exponent + 1)
            out[at++] = '.';
        out[at++] = i < n ? e[i] : '0';
    }
    if (n <= exponent + 1) {
        out[at++] = '.';
        out[at++] = '0';
    }
    out[at] = '\0';
    return at;
}

static void build_number(struct text_build *b, const struct value *v)
{
    char text[40];
    size_t n;

    if (v->kind == VALUE_INT)
        n = (size_t)snprintf(text, sizeof text, "%lld", (long long)v->u.i);
    else
        n = real_text(v->u.d, text);
    text_build_copy(b, text, n, (enum text_trust)v->trust);
}

/* A string as repr shows it. */

static void build_hex(struct text_build *b, uint32_t code)
{
    char text[16];

    snprintf(text, sizeof text, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
    text_build_word(b, text);
}

static bool plain_in_repr(uint32_t code, char quote)
{
    return code != (unsigned char)quote && code != '\\' && char_printable(code);
}

static bool repr_text(struct run *r, struct text_build *b, const struct value *v)
{
    size_t n, at = 0, span_i = 0;
    const char *text = run_flat(r, v, &n);
    char quote[2] = "'";

    if (text == NULL || !run_charge(r, (int64_t)(n >> 6)))
        return false;
    if (n > 0 && memchr(text, '\'', n) != NULL && memchr(text, '"', n) == NULL)
        quote[0] = '"';
    text_build_word(b, quote);
    while (at < n && !b->over) {
        size_t from = at;
        uint32_t code = 0;
        int used = 0;

        while (at < n && (used = utf8_char(text + at, n - at, &code), plain_in_repr(code, quote[0])))
            at += (size_t)used;
        text_build_part(b, v, from, at, &span_i);
        if (at >= n)
            break;
        at += (size_t)used;
        if (code == '\n')
            text_build_word(b, "\\n");
        else if (code == '\r')
            text_build_word(b, "\\r");
        else if (code == '\t')
            text_build_word(b, "\\t");
        else if (code == '\\')
            text_build_word(b, "\\\\");
        else if (code == (unsigned char)quote[0])
            text_build_word(b, quote[0] == '"' ? "\\\"" : "\\'");
        else
            build_hex(b, code);
    }
    text_build_word(b, quote);
    return true;
}

static bool repr_dict(struct run *r, struct text_build *b, const struct dict *d, enum view_kind view, bool braces,
                      int depth)
{
    text_build_word(b, braces ? "{" : "[");
    for (size_t i = 0; i < d->n; i++) {
        const char *between = braces ? ": " : ", ";

        if (i > 0)
            text_build_word(b, ", ");
        if (!braces && view == VIEW_ITEMS)
            text_build_word(b, "(");
        if (view != VIEW_VALUES && !repr_build(r, b, d->entries[i].key, depth))
            return false;
        if (view == VIEW_ITEMS)
            text_build_word(b, between);
        if (view != VIEW_KEYS && !repr_build(r, b, d->entries[i].item, depth))
            return false;
        if (!braces && view == VIEW_ITEMS)
            text_build_word(b, ")");
    }
    text_build_word(b, braces ? "}" : "]");
    return true;
}

static bool repr_list(struct run *r, struct text_build *b, const struct value *v, int depth)
{
    const struct list *l = &v->u.list;
    bool tuple = v->kind == VALUE_TUPLE;

    text_build_word(b, tuple ? "(" : "[");
    for (size_t i = 0; i < l->n; i++) {
        if (i > 0)
            text_build_word(b, ", ");
        if (!repr_build(r, b, l->items[i], depth))
            return false;
    }
    text_build_word(b, !tuple ? "]" : l->n == 1 ? ",)" : ")");
    return true;
}

static bool repr_range(struct text_build *b, const struct range *g)
{
    char text[96];

    if (g->step == 1)
        snprintf(text, sizeof text, "range(%lld, %lld)", (long long)g->start, (long long)g->stop);
    else
        snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)g->start, (long long)g->stop,
                 (long long)g->step);
    text_build_word(b, text);
    return true;
}

/* What Python prints with an address prints without one here: equal bytes on every run. */
static bool repr_object(struct run *r, struct text_build *b, const struct value *v, int depth)
{
    bool good = true;
    char text[64];
    int64_t n;

    switch (v->kind) {
    case VALUE_VIEW:
        text_build_word(b, type_name(v));
        text_build_word(b, "(");
        good = repr_dict(r, b, &v->u.view.dict->u.dict, v->u.view.kind, false, depth);
        text_build_word(b, ")");
        return good;
    case VALUE_NAMESPACE:
        text_build_word(b, "<Namespace ");
        good = repr_dict(r, b, &v->u.dict, VIEW_ITEMS, true, depth);
        text_build_word(b, ">");
        return good;
    case VALUE_MACRO:
        text_build_word(b, "<Macro ");
        if (v->u.macro->spec->name->kind == VALUE_NONE)
            text_build_word(b, "anonymous");
        else
            good = repr_text(r, b, v->u.macro->spec->name);
        text_build_word(b, ">");
        return good;
    case VALUE_LOOP:
        n = loop_length(r, v->u.loop);
        snprintf(text, sizeof text, "<LoopContext %lld/%lld>", (long long)v->u.loop->index0 + 1, (long long)n);
        text_build_word(b, text);
        return n >= 0;
    case VALUE_METHOD:
        text_build_word(b, "<built-in method ");
        text_build_word(b, v->u.method.builtin->name);
        text_build_word(b, ">");
        return true;
    default:
        text_build_word(b, "<");
        text_build_word(b, type_name(v));
        text_build_word(b, " object>");
        return true;
    }
}

bool repr_build(struct run *r, struct text_build *b, const struct value *v, int depth)
{
    if (b->over || !run_charge(r, 1))
        return false;
    if (depth > VALUE_DEPTH_MAX) {
        run_fail(r, "values nested too deeply to print");
        return false;
    }
    switch (v->kind) {
    case VALUE_UNDEFINED:
        text_build_word(b, "Undefined");
        return true;
    case VALUE_NONE:
        text_build_word(b, "None");
        return true;
    case VALUE_BOOL:
        text_build_word(b, v->u.b ? "True" : "False");
        return true;
    case VALUE_INT:
    case VALUE_REAL:
        build_number(b, v);
        return true;
    case VALUE_TEXT:
        if (!v->safe)
            return repr_text(r, b, v);
        text_build_word(b, "Markup(");
        if (!repr_text(r, b, v))
            return false;
        text_build_word(b, ")");
        return true;
    case VALUE_LIST:
    case VALUE_TUPLE:
        return repr_list(r, b, v, depth + 1);
    case VALUE_DICT:
        return repr_dict(r, b, &v->u.dict, VIEW_ITEMS, true, depth + 1);
    case VALUE_RANGE:
        return repr_range(b, &v->u.range);
    default:
        return repr_object(r, b, v, depth + 1);
    }
}

const struct value *repr_of(struct run *r, const struct value *v)
{
    struct text_build b;

    run_build(r, &b);
    if (!repr_build(r, &b, v, 0) && !b.over)
        return NULL;
    return run_build_end(r, &b);
}

const struct value *text_of(struct run *r, const struct value *v)
{
    switch (v->kind) {
    case VALUE_TEXT:
        return v;
    case VALUE_UNDEFINED:
        return value_empty_text();
    default:
        return repr_of(r, v);
    }
}

/* json.dumps */

struct json {
    struct run *r;
    struct text_build *b;
    bool ascii, sort;
    const struct value *indent;         /* a text, or NULL: one line */
    const struct value *comma, *colon;
};

static void json_escape(struct text_build *b, uint32_t code)
{
    char text[16];

    switch (code) {
    case '"': text_build_word(b, "\\\""); return;
    case '\\': text_build_word(b, "\\\\"); return;
    case '\n': text_build_word(b, "\\n"); return;
    case '\r': text_build_word(b, "\\r"); return;
    case '\t': text_build_word(b, "\\t"); return;
    case '\f': text_build_word(b, "\\f"); return;
    case '\b': text_build_word(b, "\\b"); return;
    default: break;
    }
    if (code >= 0x10000) {
        code -= 0x10000;
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + (code >> 10), 0xdc00 + (code & 0x3ff));
    } else {
        snprintf(text, sizeof text, "\\u%04x", code);
    }
    text_build_word(b, text);
}

static bool json_text(struct json *j, const struct value *v)
{
    size_t n, at = 0, span_i = 0;
    const char *text = run_flat(j->r, v, &n);

    if (text == NULL || !run_charge(j->r, (int64_t)(n >> 6)))
        return false;
    text_build_word(j->b, "\"");
    while (at < n && !j->b->over) {
        size_t from = at;
        uint32_t code = 0;

        for (; at < n; at++) {
            unsigned char c = (unsigned char)text[at];

            if (c < 0x20 || c == '"' || c == '\\' || (j->ascii && c >= 0x80))
                break;
        }
        text_build_part(j->b, v, from, at, &span_i);
        if (at < n) {
            at += (size_t)utf8_char(text + at, n - at, &code);
            json_escape(j->b, code);
        }
    }
    text_build_word(j->b, "\"");
    return true;
}

static void json_number(struct json *j, const struct value *v)
{
    if (v->kind == VALUE_REAL && isnan(v->u.d))
        text_build_word(j->b, "NaN");
    else if (v->kind == VALUE_REAL && isinf(v->u.d))
        text_build_word(j->b, v->u.d < 0 ? "-Infinity" : "Infinity");
    else
        build_number(j->b, v);
}

static void json_line(struct json *j, int depth)
{
    if (j->indent == NULL)
        return;
    text_build_word(j->b, "\n");
    for (int i = 0; i < depth && !j->b->over && run_charge(j->r, i % 8 == 7); i++)
        text_build_value(j->b, j->indent);
}

static bool json_value(struct json *j, const struct value *v, int depth);

static bool json_list(struct json *j, const struct list *l, int depth)
{
    text_build_word(j->b, "[");
    for (size_t i = 0; i < l->n; i++) {
        if (i > 0)
            text_build_value(j->b, j->comma);
        json_line(j, depth + 1);
        if (!json_value(j, l->items[i], depth + 1))
            return false;
    }
    if (l->n > 0)
        json_line(j, depth);
    text_build_word(j->b, "]");
    return true;
}

static bool json_key(struct json *j, const struct value *key)
{
    bool quoted = key->kind != VALUE_TEXT;

    if (key->kind != VALUE_TEXT && key->kind > VALUE_REAL) {
        run_fail(j->r, "keys must be str, int, float, bool or None, not %s", type_name(key));
        return false;
    }
    if (quoted)
        text_build_word(j->b, "\"");
    if (!json_value(j, key, 0))
        return false;
    if (quoted)
        text_build_word(j->b, "\"");
    return true;
}

/* The entries in the order of their keys. NULL: failed. */
static const struct value **sorted_entries(struct json *j, const struct dict *d)
{
    const struct value **keys, **items;

    if (!run_room(j->r, 2 * d->n * sizeof *keys))
        return NULL;
    keys = arena_take(j->r->arena, 2 * d->n * sizeof *keys);
    items = keys + d->n;
    for (size_t i = 0; i < d->n; i++) {
        keys[i] = d->entries[i].key;
        items[i] = d->entries[i].item;
    }
    return sort_items(j->r, keys, items, d->n, false) ? keys : NULL;
}

static bool json_dict(struct json *j, const struct dict *d, int depth)
{
    const struct value **sorted = j->sort ? sorted_entries(j, d) : NULL;

    if (j->sort && sorted == NULL)
        return false;
    text_build_word(j->b, "{");
    for (size_t i = 0; i < d->n; i++) {
        if (i > 0)
            text_build_value(j->b, j->comma);
        json_line(j, depth + 1);
        if (!json_key(j, sorted != NULL ? sorted[i] : d->entries[i].key))
            return false;
        text_build_value(j->b, j->colon);
        if (!json_value(j, sorted != NULL ? sorted[d->n + i] : d->entries[i].item, depth + 1))
            return false;
    }
    if (d->n > 0)
        json_line(j, depth);
    text_build_word(j->b, "}");
    return true;
}

static bool json_value(struct json *j, const struct value *v, int depth)
{
    if (j->b->over || !run_charge(j->r, 1))
        return false;
    if (depth > VALUE_DEPTH_MAX) {
        run_fail(j->r, "values nested too deeply for JSON");
        return false;
    }
    switch (v->kind) {
    case VALUE_NONE:
        text_build_word(j->b, "null");
        return true;
    case VALUE_BOOL:
        text_build_word(j->b, v->u.b ? "true" : "false");
        return true;
    case VALUE_INT:
    case VALUE_REAL:
        json_number(j, v);
        return true;
    case VALUE_TEXT:
        return json_text(j, v);
    case VALUE_LIST:
    case VALUE_TUPLE:
        return json_list(j, &v->u.list, depth);
    case VALUE_DICT:
        return json_dict(j, &v->u.dict, depth);
    default:
        run_fail(j->r, "Object of type %s is not JSON serializable", type_name(v));
        return false;
    }
}

static const struct value *word(struct run *r, const char *text)
{
    return value_text_borrow(r->arena, text, strlen(text), TEXT_PLAIN);
}

static bool json_options(struct json *j, const struct value *indent, const struct value *separators)
{
    int64_t width;

    j->comma = word(j->r, ", ");
    j->colon = word(j->r, ": ");
    if (indent != NULL && indent->kind != VALUE_NONE) {
        j->comma = word(j->r, ",");
        if (is_int(indent, &width))
            j->indent = repeat(j->r, word(j->r, " "), width);
        else if (indent->kind == VALUE_TEXT)
            j->indent = indent;
        else
            run_fail(j->r, "indent must be an integer or a string");
        if (j->indent == NULL)
            return false;
    }
    if (separators == NULL || separators->kind == VALUE_NONE)
        return true;
    if ((separators->kind != VALUE_TUPLE && separators->kind != VALUE_LIST) || separators->u.list.n != 2
        || separators->u.list.items[0]->kind != VALUE_TEXT || separators->u.list.items[1]->kind != VALUE_TEXT) {
        run_fail(j->r, "separators must be two strings");
        return false;
    }
    j->comma = separators->u.list.items[0];
    j->colon = separators->u.list.items[1];
    return true;
}

const struct value *json_of(struct run *r, const struct value *v, bool ascii, const struct value *indent,
                            const struct value *separators, bool sort)
{
    struct text_build b;
    struct json j = { .r = r, .b = &b, .ascii = ascii, .sort = sort };

    run_build(r, &b);
    if (!json_options(&j, indent, separators))
        return NULL;
    if (!json_value(&j, v, 0) && !b.over)
        return NULL;
    return run_build_end(r, &b);
}
