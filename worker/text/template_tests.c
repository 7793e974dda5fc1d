/* Tests ("x is y"): jinja2/tests.py. */
#include <string.h>

#include "worker/text/template_internal.h"

static const struct value *answer(int yes)
{
    return yes < 0 ? NULL : value_bool(yes);
}

/* value % divisor == rest, whatever % makes of the types. */
static const struct value *modulo_is(struct run *r, const struct value *v, const struct value *divisor, int64_t rest)
{
    const struct value *modulo = binary(r, OP_MOD, v, divisor);

    return modulo == NULL ? NULL : answer(equal(r, modulo, int_of(r, rest)));
}

static const struct value *test_odd(struct run *r, const struct bound *b)
{
    return modulo_is(r, b->self, int_of(r, 2), 1);
}

static const struct value *test_even(struct run *r, const struct bound *b)
{
    return modulo_is(r, b->self, int_of(r, 2), 0);
}

static const struct value *test_divisibleby(struct run *r, const struct bound *b)
{
    return modulo_is(r, b->self, b->arg[0], 0);
}

#define KIND_TEST(name, yes) \
    static const struct value *test_##name(struct run *r, const struct bound *b) \
    { \
        const struct value *v = b->self; \
        (void)r; \
        return value_bool(yes); \
    }

KIND_TEST(defined, v->kind != VALUE_UNDEFINED)
KIND_TEST(undefined, v->kind == VALUE_UNDEFINED)
KIND_TEST(none, v->kind == VALUE_NONE)
KIND_TEST(boolean, v->kind == VALUE_BOOL)
KIND_TEST(true, v->kind == VALUE_BOOL && v->u.b)
KIND_TEST(false, v->kind == VALUE_BOOL && !v->u.b)
KIND_TEST(integer, v->kind == VALUE_INT)
KIND_TEST(float, v->kind == VALUE_REAL)
KIND_TEST(number, v->kind == VALUE_BOOL || v->kind == VALUE_INT || v->kind == VALUE_REAL)
KIND_TEST(string, v->kind == VALUE_TEXT)
KIND_TEST(mapping, v->kind == VALUE_DICT)
KIND_TEST(iterable, can_iterate(v))
KIND_TEST(sequence, v->kind == VALUE_UNDEFINED || v->kind == VALUE_TEXT || v->kind == VALUE_LIST
                    || v->kind == VALUE_TUPLE || v->kind == VALUE_DICT || v->kind == VALUE_RANGE)
KIND_TEST(callable, v->kind == VALUE_MACRO || v->kind == VALUE_FUNCTION || v->kind == VALUE_METHOD
                    || v->kind == VALUE_LOOP || v->kind == VALUE_UNDEFINED)
KIND_TEST(escaped, v->kind == VALUE_TEXT && v->safe)

static const struct value *test_lower(struct run *r, const struct bound *b)
{
    const struct value *text = text_of(r, b->self);

    return text == NULL ? NULL : text_is_case(r, text, CHAR_LOWER);
}

static const struct value *test_upper(struct run *r, const struct bound *b)
{
    const struct value *text = text_of(r, b->self);

    return text == NULL ? NULL : text_is_case(r, text, CHAR_UPPER);
}

/* Python's `is`: the same object. CPython has one object a small integer. */
static const struct value *test_sameas(struct run *r, const struct bound *b)
{
    const struct value *v = b->self, *other = b->arg[0];

    (void)r;
    if (v == other || v->kind != other->kind)
        return value_bool(v == other);
    if (v->kind == VALUE_BOOL)
        return value_bool(v->u.b == other->u.b);
    if (v->kind == VALUE_INT)
        return value_bool(v->u.i == other->u.i && v->u.i >= -5 && v->u.i <= 256);
    return value_bool(v->kind == VALUE_NONE);
}

static const struct value *test_in(struct run *r, const struct bound *b)
{
    return answer(contains(r, b->arg[0], b->self));
}

static const struct value *test_filter(struct run *r, const struct bound *b)
{
    size_t n;
    const char *name = b->self->kind == VALUE_TEXT ? run_flat(r, b->self, &n) : NULL;

    return r->failed ? NULL : value_bool(name != NULL && filter_find(name, n) != NULL);
}

static const struct value *test_test(struct run *r, const struct bound *b)
{
    size_t n;
    const char *name = b->self->kind == VALUE_TEXT ? run_flat(r, b->self, &n) : NULL;

    return r->failed ? NULL : value_bool(name != NULL && test_find(name, n) != NULL);
}

#define ORDER_TEST(name, op) \
    static const struct value *test_##name(struct run *r, const struct bound *b) \
    { \
        return answer(compare(r, op, b->self, b->arg[0])); \
    }

ORDER_TEST(eq, OP_EQ)
ORDER_TEST(ne, OP_NE)
ORDER_TEST(lt, OP_LT)
ORDER_TEST(le, OP_LE)
ORDER_TEST(gt, OP_GT)
ORDER_TEST(ge, OP_GE)

static const struct builtin tests[] = {
    { "odd", test_odd, "" }, { "even", test_even, "" }, { "divisibleby", test_divisibleby, "num" },
    { "defined", test_defined, "" }, { "undefined", test_undefined, "" }, { "filter", test_filter, "" },
    { "test", test_test, "" }, { "none", test_none, "" }, { "boolean", test_boolean, "" }, { "false", test_false, "" },
    { "true", test_true, "" }, { "integer", test_integer, "" }, { "float", test_float, "" },
    { "lower", test_lower, "" }, { "upper", test_upper, "" }, { "string", test_string, "" },
    { "mapping", test_mapping, "" }, { "number", test_number, "" }, { "sequence", test_sequence, "" },
    { "iterable", test_iterable, "" }, { "callable", test_callable, "" }, { "sameas", test_sameas, "other" },
    { "escaped", test_escaped, "" }, { "in", test_in, "seq" }, { "==", test_eq, "other" }, { "eq", test_eq, "other" },
    { "equalto", test_eq, "other" }, { "!=", test_ne, "other" }, { "ne", test_ne, "other" }, { ">", test_gt, "other" },
    { "gt", test_gt, "other" }, { "greaterthan", test_gt, "other" }, { "ge", test_ge, "other" },
    { ">=", test_ge, "other" }, { "<", test_lt, "other" }, { "lt", test_lt, "other" }, { "lessthan", test_lt, "other" },
    { "<=", test_le, "other" }, { "le", test_le, "other" },
};

const struct builtin *test_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (strlen(tests[i].name) == n && memcmp(tests[i].name, name, n) == 0)
            return &tests[i];
    return NULL;
}
