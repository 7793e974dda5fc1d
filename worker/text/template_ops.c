/* Operators, as Python's: arithmetic with integers of 64 bits (more is an error, not a wrap), comparisons, truth,
 * length, membership, sorting. */
#define _GNU_SOURCE                /* memmem */
#include <math.h>
#include <string.h>

#include "worker/text/template_internal.h"

const char *type_name(const struct value *v)
{
    switch ((enum value_kind)v->kind) {
    case VALUE_UNDEFINED: return "Undefined";
    case VALUE_NONE: return "None";
    case VALUE_BOOL: return "bool";
    case VALUE_INT: return "int";
    case VALUE_REAL: return "float";
    case VALUE_TEXT: return v->safe ? "Markup" : "str";
    case VALUE_LIST: return "list";
    case VALUE_DICT: return "dict";
    case VALUE_TUPLE: return "tuple";
    case VALUE_RANGE: return "range";
    case VALUE_VIEW: return v->u.view.kind == VIEW_KEYS ? "dict_keys" : v->u.view.kind == VIEW_ITEMS ? "dict_items"
                                                                                                     : "dict_values";
    case VALUE_ITER: return "generator";
    case VALUE_NAMESPACE: return "Namespace";
    case VALUE_LOOP: return "LoopContext";
    case VALUE_MACRO: return "Macro";
    case VALUE_FUNCTION: return "function";
    case VALUE_METHOD: return "builtin_function_or_method";
    }
    return "object";
}

bool is_int(const struct value *v, int64_t *out)
{
    if (v->kind == VALUE_INT)
        *out = v->u.i;
    else if (v->kind == VALUE_BOOL)
        *out = v->u.b;
    return v->kind == VALUE_INT || v->kind == VALUE_BOOL;
}

bool is_number(const struct value *v, double *out)
{
    int64_t i = 0;

    if (v->kind == VALUE_REAL)
        *out = v->u.d;
    else if (is_int(v, &i))
        *out = (double)i;
    else
        return false;
    return true;
}

const struct value *int_of(struct run *r, int64_t i)
{
    return value_int(r->arena, i);
}

int truth(struct run *r, const struct value *v)
{
    (void)r;
    switch (v->kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE: return 0;
    case VALUE_BOOL: return v->u.b;
    case VALUE_INT: return v->u.i != 0;
    case VALUE_REAL: return v->u.d != 0;
    case VALUE_TEXT: return v->u.text.bytes > 0;
    case VALUE_LIST:
    case VALUE_TUPLE: return v->u.list.n > 0;
    case VALUE_DICT: return v->u.dict.n > 0;
    case VALUE_RANGE: return v->u.range.n > 0;
    case VALUE_VIEW: return v->u.view.dict->u.dict.n > 0;
    default: return 1;
    }
}

/* Arithmetic. */

static const struct value *too_large(struct run *r)
{
    return run_fail(r, "an integer of more than 64 bits");
}

static const struct value *real_of(struct run *r, double d)
{
    return value_real(r->arena, d);
}

static const struct value *int_power(struct run *r, int64_t base, int64_t exponent)
{
    int64_t out = 1;

    if (exponent < 0) {
        if (base == 0)
            return run_fail(r, "0.0 cannot be raised to a negative power");
        return real_of(r, pow((double)base, (double)exponent));
    }
    while (exponent > 0) {
        if (exponent & 1 && __builtin_mul_overflow(out, base, &out))
            return too_large(r);
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base))
            return too_large(r);
    }
    return int_of(r, out);
}

static const struct value *int_divide(struct run *r, enum op op, int64_t a, int64_t b)
{
    int64_t quotient, rest;

    if (b == 0)
        return run_fail(r, op == OP_MOD ? "integer modulo by zero" : "division by zero");
    if (op == OP_DIV)
        return real_of(r, (double)((long double)a / (long double)b));
    if (a == INT64_MIN && b == -1)
        return op == OP_MOD ? int_of(r, 0) : too_large(r);
    quotient = a / b;
    rest = a % b;
    if (rest != 0 && (rest < 0) != (b < 0)) {       /* towards minus infinity */
        quotient--;
        rest += b;
    }
    return int_of(r, op == OP_MOD ? rest : quotient);
}

static const struct value *int_binary(struct run *r, enum op op, int64_t a, int64_t b)
{
    int64_t out = 0;
    bool over;

    switch (op) {
    case OP_ADD: over = __builtin_add_overflow(a, b, &out); break;
    case OP_SUB: over = __builtin_sub_overflow(a, b, &out); break;
    case OP_MUL: over = __builtin_mul_overflow(a, b, &out); break;
    case OP_POW: return int_power(r, a, b);
    default: return int_divide(r, op, a, b);
    }
    return over ? too_large(r) : int_of(r, out);
}

/* float_divmod of CPython. */
static const struct value *real_divide(struct run *r, enum op op, double a, double b)
{
    double rest, quotient;

    if (b == 0)
        return run_fail(r, op == OP_MOD ? "float modulo" : "float division by zero");
    if (op == OP_DIV)
        return real_of(r, a / b);
    rest = fmod(a, b);
    quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) {
        rest += b;
        quotient -= 1;
    } else if (rest == 0) {
        rest = copysign(0.0, b);
    }
    if (op == OP_MOD)
        return real_of(r, rest);
    if (quotient == 0)
        return real_of(r, copysign(0.0, a / b));
    rest = floor(quotient);
    return real_of(r, quotient - rest > 0.5 ? rest + 1 : rest);
}

static const struct value *real_power(struct run *r, double a, double b)
{
    double out;

    if (a == 0 && b < 0)
        return run_fail(r, "0.0 cannot be raised to a negative power");
    out = pow(a, b);
    if (isnan(out) && !isnan(a) && !isnan(b))
        return run_fail(r, "a power that is a complex number");
    if (isinf(out) && isfinite(a) && isfinite(b))
        return run_fail(r, "a power that is too large");
    return real_of(r, out);
}

static const struct value *real_binary(struct run *r, enum op op, double a, double b)
{
    switch (op) {
    case OP_ADD: return real_of(r, a + b);
    case OP_SUB: return real_of(r, a - b);
    case OP_MUL: return real_of(r, a * b);
    case OP_POW: return real_power(r, a, b);
    default: return real_divide(r, op, a, b);
    }
}

/* + and * of texts and lists. */

static const struct value *text_add(struct run *r, const struct value *a, const struct value *b)
{
    const struct value *v;

    if (!run_fits(r, a->u.text.bytes, b->u.text.bytes))
        return NULL;
    if (!a->safe && !b->safe)
        return text_join2(r->arena, a, b);
    /* Markup + str escapes the str. */
    a = a->safe ? a : escape_of(r, a);
    b = b->safe ? b : escape_of(r, b);
    if (a == NULL || b == NULL)
        return NULL;
    v = text_join2(r->arena, a, b);
    return text_safe(r, v);
}

static const struct value *list_add(struct run *r, const struct value *a, const struct value *b)
{
    size_t n = a->u.list.n + b->u.list.n;
    struct value *v;

    if (!run_charge(r, (int64_t)(n / 16)) || !run_room(r, n * sizeof a->u.list.items[0]))
        return NULL;
    v = value_tuple(r->arena, n);
    v->kind = a->kind;
    for (size_t i = 0; i < n; i++)
        value_list_add(r->arena, v, i < a->u.list.n ? a->u.list.items[i] : b->u.list.items[i - a->u.list.n]);
    return v;
}

static const struct value *repeat_list(struct run *r, const struct value *v, size_t times)
{
    size_t n = v->u.list.n * times;
    struct value *out;

    if (!run_charge(r, (int64_t)(n / 16)) || !run_room(r, n * sizeof v->u.list.items[0]))
        return NULL;
    out = value_tuple(r->arena, n);
    out->kind = v->kind;
    for (size_t i = 0; i < n; i++)
        value_list_add(r->arena, out, v->u.list.items[i % v->u.list.n]);
    return out;
}

const struct value *repeat(struct run *r, const struct value *v, int64_t times)
{
    bool text = v->kind == VALUE_TEXT;
    size_t n = text ? v->u.text.bytes : v->u.list.n, bound = text ? r->text_max : r->taken_max / sizeof(void *);
    struct text_build b;

    if (times < 0)
        times = 0;
    if (n > 0 && (uint64_t)times > bound / n)
        return run_fail(r, text ? "the template makes a text of more than %zu bytes"
                                : "the template makes a list of more than %zu items", bound);
    if (!text)
        return n == 0 ? repeat_list(r, v, 0) : repeat_list(r, v, (size_t)times);
    if (!run_charge(r, n == 0 ? 0 : (int64_t)(n * (size_t)times >> 9) + times / 16))
        return NULL;
    run_build(r, &b);
    for (int64_t i = 0; n > 0 && i < times && !b.over; i++) {
        if (v->u.text.spans_n == 1 && n <= 64)
            text_build_copy(&b, v->u.text.spans[0].text, n, v->u.text.spans[0].trust);
        else
            text_build_value(&b, v);
    }
    return run_build_end(r, &b);
}

static const struct value *bad_operands(struct run *r, const char *op, const struct value *a, const struct value *b)
{
    if (a->kind == VALUE_UNDEFINED)
        return undefined_fail(r, a);
    if (b->kind == VALUE_UNDEFINED)
        return undefined_fail(r, b);
    return run_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'", op, type_name(a), type_name(b));
}

static bool is_sequence(const struct value *v)
{
    return v->kind == VALUE_TEXT || v->kind == VALUE_LIST || v->kind == VALUE_TUPLE;
}

const struct value *binary(struct run *r, enum op op, const struct value *a, const struct value *b)
{
    static const char *const names[] = { "+", "-", "*", "/", "//", "%", "**" };
    int64_t i = 0, j = 0;
    double x = 0, y = 0;

    if (a->kind == VALUE_TEXT && b->kind == VALUE_TEXT && op == OP_ADD)
        return text_add(r, a, b);
    if (is_int(a, &i) && is_int(b, &j))
        return int_binary(r, op, i, j);
    if (is_number(a, &x) && is_number(b, &y))
        return real_binary(r, op, x, y);
    if (op == OP_ADD && a->kind == b->kind && (a->kind == VALUE_LIST || a->kind == VALUE_TUPLE))
        return list_add(r, a, b);
    if (op == OP_MUL && is_sequence(a) && is_int(b, &j))
        return repeat(r, a, j);
    if (op == OP_MUL && is_int(a, &i) && is_sequence(b))
        return repeat(r, b, i);
    if (op == OP_MOD && a->kind == VALUE_TEXT)
        return format_percent(r, a, b);
    return bad_operands(r, names[op], a, b);
}

const struct value *negate(struct run *r, const struct value *v, bool minus)
{
    int64_t i = 0, zero = 0;

    if (is_int(v, &i)) {
        if (minus && __builtin_sub_overflow(zero, i, &i))
            return too_large(r);
        if (minus && v->trust == TEXT_TRUSTED) {    /* -1 is the template's own word too */
            struct value *out = value_int(r->arena, i);

            out->trust = TEXT_TRUSTED;
            return out;
        }
        return minus ? int_of(r, i) : v->kind == VALUE_INT ? v : int_of(r, i);
    }
    if (v->kind == VALUE_REAL)
        return minus ? real_of(r, -v->u.d) : v;
    if (v->kind == VALUE_UNDEFINED)
        return undefined_fail(r, v);
    return run_fail(r, "bad operand type for unary %s: '%s'", minus ? "-" : "+", type_name(v));
}

/* Comparisons. */

int equal(struct run *r, const struct value *a, const struct value *b)
{
    int yes = value_equal(a, b, &r->steps);

    if (yes < 0)
        run_fail(r, r->steps < 0 ? "the template takes more steps than it may" : "values nested too deeply to compare");
    return yes;
}

/* -1, 0, 1 for numbers; 2: one of them is not a number (NaN). Exact, as value_equal. */
static int number_order(const struct value *a, const struct value *b)
{
    int64_t i = 0, j = 0;
    long double x = is_int(a, &i) ? (long double)i : (long double)a->u.d;
    long double y = is_int(b, &j) ? (long double)j : (long double)b->u.d;

    return isnan(x) || isnan(y) ? 2 : x < y ? -1 : x > y;
}

static int text_order(struct run *r, const struct value *a, const struct value *b)
{
    size_t x_n, y_n;
    const char *x = run_flat(r, a, &x_n), *y = run_flat(r, b, &y_n);
    int order;

    if (x == NULL || y == NULL)
        return -3;
    /* The order of UTF-8 bytes is the order of code points. */
    order = memcmp(x, y, x_n < y_n ? x_n : y_n);
    return order != 0 ? (order < 0 ? -1 : 1) : x_n < y_n ? -1 : x_n > y_n;
}

static int order_at(struct run *r, const struct value *a, const struct value *b, int depth);

static int list_order(struct run *r, const struct list *a, const struct list *b, int depth)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        int yes = equal(r, a->items[i], b->items[i]);

        if (yes != 1)
            return yes < 0 ? -3 : order_at(r, a->items[i], b->items[i], depth + 1);
    }
    return a->n < b->n ? -1 : a->n > b->n;
}

/* -1, 0, 1; 2: unordered (NaN); -3: failed. */
static int order_at(struct run *r, const struct value *a, const struct value *b, int depth)
{
    double x, y;

    if (!run_charge(r, 1))
        return -3;
    if (depth > VALUE_DEPTH_MAX) {
        run_fail(r, "values nested too deeply to compare");
        return -3;
    }
    if (is_number(a, &x) && is_number(b, &y))
        return number_order(a, b);
    if (a->kind == VALUE_TEXT && b->kind == VALUE_TEXT)
        return text_order(r, a, b);
    if (a->kind == b->kind && (a->kind == VALUE_LIST || a->kind == VALUE_TUPLE))
        return list_order(r, &a->u.list, &b->u.list, depth);
    bad_operands(r, "<", a, b);
    return -3;
}

int compare(struct run *r, enum op op, const struct value *a, const struct value *b)
{
    int order;

    switch (op) {
    case OP_EQ: return equal(r, a, b);
    case OP_NE: order = equal(r, a, b); return order < 0 ? order : !order;
    case OP_IN: return contains(r, b, a);
    case OP_NOT_IN: order = contains(r, b, a); return order < 0 ? order : !order;
    default: break;
    }
    order = order_at(r, a, b, 0);
    if (order == -3)
        return -1;
    if (order == 2)
        return 0;
    return op == OP_LT ? order < 0 : op == OP_LE ? order <= 0 : op == OP_GT ? order > 0 : order >= 0;
}

int contains(struct run *r, const struct value *container, const struct value *item)
{
    const struct value *v;
    struct iter it;
    int got, yes;

    if (container->kind == VALUE_TEXT) {
        size_t n, m;
        const char *text, *part;

        if (item->kind != VALUE_TEXT) {
            run_fail(r, "'in <string>' requires string as left operand, not %s", type_name(item));
            return -1;
        }
        text = run_flat(r, container, &n);
        part = run_flat(r, item, &m);
        if (text == NULL || part == NULL || !run_search(r, n, m))
            return -1;
        return m == 0 || memmem(text, n, part, m) != NULL;
    }
    if (container->kind == VALUE_VIEW && container->u.view.kind == VIEW_KEYS)
        container = container->u.view.dict;
    if (container->kind == VALUE_DICT)
        return run_key(r, item) ? dict_get(&container->u.dict, item) != NULL : -1;
    if (!can_iterate(container)) {
        run_fail(r, "argument of type '%s' is not iterable", type_name(container));
        return -1;
    }
    if (!iter_open(r, &it, container))
        return -1;
    while ((got = iter_next(r, &it, &v)) == 1)
        if ((yes = v == item ? 1 : equal(r, v, item)) != 0)
            return yes;
    return got;
}

int64_t length(struct run *r, const struct value *v)
{
    switch (v->kind) {
    case VALUE_UNDEFINED: return 0;
    case VALUE_TEXT: return text_chars(v);
    case VALUE_LIST:
    case VALUE_TUPLE: return (int64_t)v->u.list.n;
    case VALUE_DICT: return (int64_t)v->u.dict.n;
    case VALUE_RANGE: return v->u.range.n;
    case VALUE_VIEW: return (int64_t)v->u.view.dict->u.dict.n;
    case VALUE_LOOP: return loop_length(r, v->u.loop);
    default:
        run_fail(r, "object of type '%s' has no len()", type_name(v));
        return -1;
    }
}

/* Sorting: merges runs, which is stable; reverse keeps equal ones in order too, as Python's does. */
bool sort_items(struct run *r, const struct value **keys, const struct value **items, size_t n, bool reverse)
{
    const struct value **spare_keys, **spare_items;

    if (!run_room(r, 2 * n * sizeof keys[0]))
        return false;
    spare_keys = arena_take(r->arena, n * sizeof keys[0]);
    spare_items = arena_take(r->arena, n * sizeof items[0]);
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t low = 0; low < n; low += 2 * width) {
            size_t middle = low + width < n ? low + width : n, high = middle + width < n ? middle + width : n;
            size_t i = low, j = middle;

            for (size_t k = low; k < high; k++) {
                int second = i >= middle;       /* takes the right one: it is smaller, or the left ones are gone */

                if (i < middle && j < high)
                    second = reverse ? compare(r, OP_LT, keys[i], keys[j]) : compare(r, OP_LT, keys[j], keys[i]);
                if (second < 0)
                    return false;
                spare_keys[k] = second ? keys[j] : keys[i];
                spare_items[k] = second ? items[j++] : items[i++];
            }
        }
        memcpy(keys, spare_keys, n * sizeof keys[0]);
        memcpy(items, spare_items, n * sizeof items[0]);
    }
    return true;
}
