/* printf of Python: "text" % values and |format; and plain fields of str.format. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "worker/text/template_internal.h"

enum { WIDTH_MAX = 1000, PRECISION_MAX = 100 };

struct format {
    struct run *r;
    struct text_build *b;
    const struct value *v;              /* the format, flat */
    const char *text;
    size_t n, at, span_i;
    const struct value *args;           /* a tuple, a dict, or one value */
    size_t arg_i;
};

struct field {
    bool left, zero, plus, space, alternate;
    int64_t width, precision;           /* precision -1: none given */
    char kind;
    const struct value *value;
};

static const struct value *next_arg(struct format *f)
{
    const struct list *l = &f->args->u.list;

    if (f->args->kind == VALUE_TUPLE)
        return f->arg_i < l->n ? l->items[f->arg_i++] : run_fail(f->r, "not enough arguments for format string");
    if (f->arg_i++ > 0)
        return run_fail(f->r, "not enough arguments for format string");
    return f->args;
}

static bool named_arg(struct format *f, struct field *field)
{
    size_t from = ++f->at;
    const struct value *name;

    while (f->at < f->n && f->text[f->at] != ')')
        f->at++;
    if (f->at == f->n || f->args->kind != VALUE_DICT) {
        run_fail(f->r, f->at == f->n ? "incomplete format key" : "format requires a mapping");
        return false;
    }
    name = text_slice(f->r->arena, f->v, from, f->at++);
    text_flat(f->r->arena, name);
    field->value = dict_get(&f->args->u.dict, name);
    if (field->value == NULL)
        run_fail(f->r, "a key of the format string is not in the mapping");
    return field->value != NULL;
}

static bool format_number(struct format *f, int64_t max, int64_t *out)
{
    *out = 0;
    if (f->at < f->n && f->text[f->at] == '*') {
        const struct value *v = next_arg(f);

        f->at++;
        if (v == NULL || !arg_int(f->r, v, 0, out))
            return false;
    }
    while (f->at < f->n && f->text[f->at] >= '0' && f->text[f->at] <= '9' && *out <= max)
        *out = *out * 10 + (f->text[f->at++] - '0');
    if (*out > max || *out < 0) {
        run_fail(f->r, "a width or precision of more than %lld", (long long)max);
        return false;
    }
    return true;
}

static bool parse_field(struct format *f, struct field *field)
{
    *field = (struct field){ .precision = -1 };
    if (f->at < f->n && f->text[f->at] == '(' && !named_arg(f, field))
        return false;
    for (; f->at < f->n && strchr("-+ #0", f->text[f->at]) != NULL; f->at++) {
        field->left |= f->text[f->at] == '-';
        field->plus |= f->text[f->at] == '+';
        field->space |= f->text[f->at] == ' ';
        field->alternate |= f->text[f->at] == '#';
        field->zero |= f->text[f->at] == '0';
    }
    if (!format_number(f, WIDTH_MAX, &field->width))
        return false;
    if (f->at < f->n && f->text[f->at] == '.') {
        f->at++;
        if (!format_number(f, PRECISION_MAX, &field->precision))
            return false;
    }
    while (f->at < f->n && strchr("hlL", f->text[f->at]) != NULL)
        f->at++;
    if (f->at == f->n) {
        run_fail(f->r, "incomplete format");
        return false;
    }
    field->kind = f->text[f->at++];
    return true;
}

/* Text of a number by the C library's printf, which agrees with Python's on these. */
static const struct value *number_text(struct format *f, const struct field *field)
{
    char spec[16], text[512];
    size_t at = 0;
    int64_t i = 0;
    double d = 0;
    int n;

    spec[at++] = '%';
    if (field->plus)
        spec[at++] = '+';
    if (field->space)
        spec[at++] = ' ';
    if (field->alternate)
        spec[at++] = '#';
    strcpy(spec + at, strchr("eEfFgG", field->kind) != NULL ? ".*?" : ".*ll?");
    spec[strlen(spec) - 1] = field->kind == 'i' || field->kind == 'u' ? 'd' : field->kind;
    if (strchr("eEfFgG", field->kind) != NULL) {
        if (!is_number(field->value, &d))
            return run_fail(f->r, "must be real number, not %s", type_name(field->value));
        n = snprintf(text, sizeof text, spec, (int)(field->precision < 0 ? 6 : field->precision), d);
    } else {
        if (field->value->kind == VALUE_REAL && fabs(field->value->u.d) < 9e18 && strchr("diu", field->kind) != NULL)
            i = (int64_t)field->value->u.d;
        else if (!is_int(field->value, &i))
            return run_fail(f->r, "%%%c format: a number is required, not %s", field->kind, type_name(field->value));
        if (i < 0 && strchr("xXo", field->kind) != NULL)
            return run_fail(f->r, "%%%c of a negative number is not supported", field->kind);
        n = snprintf(text, sizeof text, spec, (int)(field->precision < 0 ? 1 : field->precision), (long long)i);
    }
    if (n < 0 || (size_t)n >= sizeof text)
        return run_fail(f->r, "a number too long to format");
    return value_text(f->r->arena, text, (size_t)n, TEXT_PLAIN);
}

static const struct value *field_text(struct format *f, const struct field *field)
{
    const struct value *v = field->value;
    int64_t i = 0;

    if (v->kind == VALUE_UNDEFINED && field->kind != 's' && field->kind != 'r')
        return undefined_fail(f->r, v);
    switch (field->kind) {
    case 's':
        v = text_of(f->r, v);
        break;
    case 'r':
        v = repr_of(f->r, v);
        break;
    case 'c':
        if (is_int(v, &i))
            return run_fail(f->r, "%%c of a number is not supported");
        if (v->kind != VALUE_TEXT || text_chars(v) != 1)
            return run_fail(f->r, "%%c requires int or char");
        return v;
    case 'd': case 'i': case 'u': case 'x': case 'X': case 'o':
    case 'e': case 'E': case 'f': case 'F': case 'g': case 'G':
        return number_text(f, field);
    default:
        return run_fail(f->r, "unsupported format character");
    }
    if (v == NULL || field->precision < 0 || text_chars(v) <= field->precision)
        return v;
    text_flat(f->r->arena, v);
    return text_slice(f->r->arena, v, 0, text_offset(v, field->precision));
}

static bool put_field(struct format *f, const struct field *field)
{
    bool zeros = field->zero && !field->left && strchr("srca", field->kind) == NULL;
    const struct value *v = field_text(f, field);
    int64_t missing = v == NULL ? 0 : field->width - text_chars(v);
    size_t n, sign = 0, span_i = 0;

    if (v == NULL || run_flat(f->r, v, &n) == NULL)
        return false;
    if (zeros && n > 0 && strchr("+- ", v->u.text.spans[0].text[0]) != NULL) {
        sign = 1;
        text_build_part(f->b, v, 0, 1, &span_i);
    }
    for (int64_t i = 0; !field->left && i < missing; i++)
        text_build_word(f->b, zeros ? "0" : " ");
    text_build_part(f->b, v, sign, n, &span_i);
    for (int64_t i = 0; field->left && i < missing; i++)
        text_build_word(f->b, " ");
    return true;
}

static bool format_fields(struct format *f)
{
    while (f->at < f->n && !f->b->over) {
        const char *percent = memchr(f->text + f->at, '%', f->n - f->at);
        size_t end = percent != NULL ? (size_t)(percent - f->text) : f->n;
        struct field field;

        if (!run_charge(f->r, 1))
            return false;
        text_build_part(f->b, f->v, f->at, end, &f->span_i);
        if ((f->at = end) == f->n)
            break;
        f->at++;
        if (!parse_field(f, &field))
            return false;
        if (field.kind == '%') {
            text_build_part(f->b, f->v, end, end + 1, &f->span_i);
            continue;
        }
        if (field.value == NULL && (field.value = next_arg(f)) == NULL)
            return false;
        if (!put_field(f, &field))
            return false;
    }
    return true;
}

/* What Python's % takes for a mapping, which need not be used up. */
static bool is_subscriptable(const struct value *v)
{
    return v->kind == VALUE_DICT || v->kind == VALUE_LIST || v->kind == VALUE_RANGE || v->kind == VALUE_UNDEFINED;
}

const struct value *format_percent(struct run *r, const struct value *format, const struct value *args)
{
    struct text_build b;
    struct format f = { .r = r, .b = &b, .v = format, .args = args };
    bool left;

    run_build(r, &b);
    if ((f.text = run_flat(r, format, &f.n)) == NULL || !format_fields(&f))
        return NULL;
    left = args->kind == VALUE_TUPLE ? f.arg_i < args->u.list.n : !is_subscriptable(args) && f.arg_i == 0;
    if (!b.over && left)
        return run_fail(r, "not all arguments converted during string formatting");
    return run_build_end(r, &b);
}

/* str.format */

static const struct value *brace_value(struct run *r, const struct bound *b, const char *name, size_t n, size_t *auto_i)
{
    int64_t i = (int64_t)*auto_i;
    bool over;

    if (n == 0)
        ++*auto_i;
    if (n == 0 || (name[0] >= '0' && name[0] <= '9' && text_to_int(name, n, 10, &i, &over) && !over))
        return i < (int64_t)b->all->pos_n ? b->all->pos[i] : run_fail(r, "str.format: not enough arguments");
    for (size_t k = 0; k < b->all->keys_n; k++) {
        const struct text *t = &b->all->key[k]->u.text;

        if (t->bytes == n && memcmp(t->spans[0].text, name, n) == 0)
            return b->all->item[k];
    }
    return run_fail(r, "str.format: no argument of this name, or more than a plain name in a field");
}

const struct value *format_braces(struct run *r, const struct bound *b)
{
    size_t n, at = 0, span_i = 0, auto_i = 0;
    const char *text = run_flat(r, b->self, &n);
    struct text_build out;

    if (text == NULL)
        return NULL;
    run_build(r, &out);
    while (at < n && !out.over) {
        size_t end = at, name;
        const struct value *v;

        while (end < n && text[end] != '{' && text[end] != '}')
            end++;
        text_build_part(&out, b->self, at, end, &span_i);
        if ((at = end) == n)
            break;
        if (!run_charge(r, 1))
            return NULL;
        if (at + 1 < n && text[at + 1] == text[at]) {
            text_build_part(&out, b->self, at, at + 1, &span_i);
            at += 2;
            continue;
        }
        for (name = ++at; at < n && text[at] != '}'; at++)
            ;
        if (at == n || text[end] == '}')
            return run_fail(r, "str.format: a single '%c' in the format string", text[end]);
        if ((v = brace_value(r, b, text + name, at++ - name, &auto_i)) == NULL || (v = text_of(r, v)) == NULL)
            return NULL;
        text_build_value(&out, v);
    }
    return run_build_end(r, &out);
}
