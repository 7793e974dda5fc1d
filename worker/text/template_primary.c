/* The leaves of expressions and what follows them: literals, names, subscripts, calls, filters, tests. */
#include <string.h>

#include "base/buf.h"
#include "worker/text/template_internal.h"

static struct node *literal(struct parser *p, const struct value *v, int32_t line)
{
    struct node *n = node_new(p, NODE_CONST, line);

    n->u.value = v;
    return n;
}

static struct node *literal_now(struct parser *p, const struct value *v)
{
    return literal(p, v, p->now.line);
}

static const struct value *text_literal(struct parser *p, const char *text, size_t n)
{
    struct value *v = value_text_borrow(p->arena, text, n, TEXT_TRUSTED);

    text_chars(v);      /* counted now: threads that share the template write nothing */
    return v;
}

/* Arguments of calls, filters and tests. */

static status parse_argument(struct parser *p, struct call_spec *c, struct links *args, struct keyword ***keywords_end)
{
    status st = ST_OK;
    struct lexed ahead;
    struct keyword *k;
    struct node *value;

    TRY(parse_ahead(p, &ahead));
    if (p->now.lexeme == LEX_MUL || p->now.lexeme == LEX_POW) {
        struct node **star = p->now.lexeme == LEX_MUL ? &c->star : &c->star_star;

        if (*star != NULL || c->star_star != NULL)
            return parse_fail(p->err, p->now.line, "invalid syntax for a call");
        TRY(parse_advance(p));
        return parse_expression(p, true, star);
    }
    if (p->now.lexeme == LEX_NAME && ahead.lexeme == LEX_ASSIGN) {
        if (c->star_star != NULL)
            return parse_fail(p->err, p->now.line, "invalid syntax for a call");
        k = arena_take_zero(p->arena, 1, sizeof *k);
        k->name = name_intern(p, p->now.text, p->now.n)->value;
        for (const struct keyword *other = c->keywords; other != NULL; other = other->next)
            if (other->name == k->name)
                return parse_fail(p->err, p->now.line, "keyword argument repeated: %.*s", (int)p->now.n, p->now.text);
        TRY(parse_advance(p));
        TRY(parse_advance(p));
        TRY(parse_expression(p, true, &k->value));
        **keywords_end = k;
        *keywords_end = &k->next;
        c->keywords_n++;
        return ST_OK;
    }
    if (c->star != NULL || c->star_star != NULL || c->keywords_n > 0)
        return parse_fail(p->err, p->now.line, "invalid syntax for a call");
    TRY(parse_expression(p, true, &value));
    links_add(args, value);
out:
    return st;
}

status parse_call_args(struct parser *p, struct call_spec **out)
{
    struct call_spec *c = arena_take_zero(p->arena, 1, sizeof *c);
    struct keyword **keywords_end = &c->keywords;
    struct links args = { NULL, NULL, 0 };
    status st = ST_OK;
    bool comma = false;

    TRY(parse_expect(p, LEX_LPAREN));
    while (p->now.lexeme != LEX_RPAREN) {
        if (comma) {
            TRY(parse_expect(p, LEX_COMMA));
            if (p->now.lexeme == LEX_RPAREN)
                break;
        }
        TRY(parse_argument(p, c, &args, &keywords_end));
        comma = true;
        if (args.n + c->keywords_n > ARGS_MAX / 2)
            return parse_fail(p->err, p->now.line, "more than %d arguments in a call", ARGS_MAX / 2);
    }
    TRY(parse_expect(p, LEX_RPAREN));
    c->args = args.first;
    c->args_n = args.n;
    *out = c;
out:
    return st;
}

static status parse_call(struct parser *p, struct node *callee, struct node **out)
{
    struct node *n = node_new(p, NODE_CALL, p->now.line);
    status st = ST_OK;

    n->a = callee;
    TRY(parse_call_args(p, &n->u.call));
    TRY(node_close(p, n));
    *out = n;
out:
    return st;
}

/* "name" or "name.name" of a filter or test. */
static status parse_dotted(struct parser *p, const char **name, size_t *n)
{
    status st = ST_OK;

    if (p->now.lexeme != LEX_NAME)
        return parse_expect(p, LEX_NAME);
    *name = p->now.text;
    *n = p->now.n;
    TRY(parse_advance(p));
    if (p->now.lexeme == LEX_DOT)
        return parse_fail(p->err, p->now.line, "no filter or test has a '.' in its name");
out:
    return st;
}

/* A name that is unknown is an error where it is certain to be reached: template_scope.c looks at that. */
static void builtin_bind(struct parser *p, struct call_spec *c, bool filter, const char *name, size_t n)
{
    c->builtin = filter ? filter_find(name, n) : test_find(name, n);
    c->builtin_name = arena_copy(p->arena, name, n);
}

static struct call_spec *no_args(struct parser *p)
{
    return arena_take_zero(p->arena, 1, sizeof(struct call_spec));
}

status parse_filters(struct parser *p, struct node *first, bool inline_start, struct node **out)
{
    struct node *value = first;
    status st = ST_OK;

    while (p->now.lexeme == LEX_PIPE || inline_start) {
        struct node *n;
        const char *name = NULL;
        size_t name_n = 0;

        if (!inline_start)
            TRY(parse_advance(p));
        inline_start = false;
        n = node_new(p, NODE_FILTER, p->now.line);
        TRY(parse_dotted(p, &name, &name_n));
        if (p->now.lexeme == LEX_LPAREN)
            TRY(parse_call_args(p, &n->u.call));
        else
            n->u.call = no_args(p);
        builtin_bind(p, n->u.call, true, name, name_n);
        n->a = value;
        TRY(node_close(p, n));
        value = n;
    }
    *out = value;
out:
    return st;
}

/* The argument of a test without parentheses: "x is divisibleby 3". */
static status parse_test_arg(struct parser *p, struct call_spec **out)
{
    status st = ST_OK;
    struct node *arg;

    *out = no_args(p);
    switch (p->now.lexeme) {
    case LEX_NAME:
        if (parse_is_name(p, "else") || parse_is_name(p, "or") || parse_is_name(p, "and"))
            return ST_OK;
        if (parse_is_name(p, "is"))
            return parse_fail(p->err, p->now.line, "tests with 'is' cannot be chained");
        break;
    case LEX_STRING:
    case LEX_INTEGER:
    case LEX_FLOAT:
    case LEX_LBRACKET:
    case LEX_LBRACE:
        break;
    default:
        return ST_OK;
    }
    TRY(parse_primary(p, false, &arg));
    TRY(parse_postfix(p, arg, &arg));
    (*out)->args = arg;
    (*out)->args_n = 1;
out:
    return st;
}

static status parse_test(struct parser *p, struct node *value, struct node **out)
{
    struct node *n = node_new(p, NODE_TEST, p->now.line);
    const char *name = NULL;
    size_t name_n = 0;
    status st = ST_OK;
    bool negated;

    TRY(parse_advance(p));
    negated = parse_is_name(p, "not");
    if (negated)
        TRY(parse_advance(p));
    TRY(parse_dotted(p, &name, &name_n));
    if (p->now.lexeme == LEX_LPAREN)
        TRY(parse_call_args(p, &n->u.call));
    else
        TRY(parse_test_arg(p, &n->u.call));
    builtin_bind(p, n->u.call, false, name, name_n);
    n->a = value;
    TRY(node_close(p, n));
    if (negated)
        return node_pair(p, NODE_NOT, n, NULL, n->line, out);
    *out = n;
out:
    return st;
}

/* Subscripts. */

static status parse_slice_part(struct parser *p, struct node **out)
{
    if (p->now.lexeme == LEX_COLON || p->now.lexeme == LEX_RBRACKET || p->now.lexeme == LEX_COMMA)
        return ST_OK;
    return parse_expression(p, true, out);
}

static status parse_subscript(struct parser *p, struct node **out)
{
    struct node *start = NULL, *n;
    status st = ST_OK;

    if (p->now.lexeme != LEX_COLON) {
        TRY(parse_expression(p, true, &start));
        if (p->now.lexeme != LEX_COLON) {
            *out = start;
            return ST_OK;
        }
    }
    n = node_new(p, NODE_SLICE, p->now.line);
    n->a = start;
    TRY(parse_advance(p));
    TRY(parse_slice_part(p, &n->b));
    if (p->now.lexeme == LEX_COLON) {
        TRY(parse_advance(p));
        TRY(parse_slice_part(p, &n->c));
    }
    TRY(node_close(p, n));
    *out = n;
out:
    return st;
}

static status parse_brackets(struct parser *p, struct node *value, struct node **out)
{
    struct links args = { NULL, NULL, 0 };
    struct node *n, *arg;
    int32_t line = p->now.line;
    status st = ST_OK;

    TRY(parse_advance(p));
    while (p->now.lexeme != LEX_RBRACKET) {
        if (args.n > 0)
            TRY(parse_expect(p, LEX_COMMA));
        TRY(parse_subscript(p, &arg));
        links_add(&args, arg);
        if (args.n > 1 && (arg->kind == NODE_SLICE || args.first->kind == NODE_SLICE))
            return parse_fail(p->err, line, "a slice among several subscripts");
    }
    TRY(parse_advance(p));
    if (args.n == 1)
        return node_pair(p, NODE_ITEM, value, args.first, line, out);
    n = node_new(p, NODE_TUPLE, line);
    n->a = args.first;
    n->u.items_n = args.n;
    TRY(node_close(p, n));
    return node_pair(p, NODE_ITEM, value, n, line, out);
out:
    return st;
}

static status parse_dot(struct parser *p, struct node *value, struct node **out)
{
    int32_t line = p->now.line;
    status st = ST_OK;
    struct node *n;

    TRY(parse_advance(p));
    if (p->now.lexeme == LEX_NAME) {
        n = node_new(p, NODE_ATTR, line);
        n->a = value;
        n->u.attr = name_intern(p, p->now.text, p->now.n)->value;
        n->op = dict_attribute(p->now.text, p->now.n);
        TRY(node_close(p, n));
        *out = n;
        return parse_advance(p);
    }
    if (p->now.lexeme != LEX_INTEGER)
        return parse_fail(p->err, p->now.line, "expected a name or a number after '.'");
    n = literal_now(p, value_int(p->arena, p->now.integer));
    TRY(parse_advance(p));
    return node_pair(p, NODE_ITEM, value, n, line, out);
out:
    return st;
}

status parse_postfix(struct parser *p, struct node *value, struct node **out)
{
    status st = ST_OK;

    for (;;) {
        if (p->now.lexeme == LEX_DOT)
            TRY(parse_dot(p, value, &value));
        else if (p->now.lexeme == LEX_LBRACKET)
            TRY(parse_brackets(p, value, &value));
        else if (p->now.lexeme == LEX_LPAREN)
            TRY(parse_call(p, value, &value));
        else
            break;
    }
    *out = value;
out:
    return st;
}

status parse_filters_and_tests(struct parser *p, struct node *value, struct node **out)
{
    status st = ST_OK;

    for (;;) {
        if (p->now.lexeme == LEX_PIPE)
            TRY(parse_filters(p, value, false, &value));
        else if (parse_is_name(p, "is"))
            TRY(parse_test(p, value, &value));
        else if (p->now.lexeme == LEX_LPAREN)
            TRY(parse_call(p, value, &value));
        else
            break;
    }
    *out = value;
out:
    return st;
}

/* Literals. */

static status parse_strings(struct parser *p, struct node **out)
{
    struct buf joined = BUF_EMPTY;
    const char *text = p->now.text;
    size_t n = p->now.n;
    int32_t line = p->now.line;
    status st = ST_OK;

    TRY(parse_advance(p));
    if (p->now.lexeme == LEX_STRING) {
        buf_add(&joined, text, n);
        while (p->now.lexeme == LEX_STRING) {
            buf_add(&joined, p->now.text, p->now.n);
            TRY(parse_advance(p));
        }
        n = joined.n;
        text = arena_copy(p->arena, joined.data, n);
    }
    *out = literal(p, text_literal(p, text, n), line);
out:
    buf_fini(&joined);
    return st;
}

static status parse_number(struct parser *p, struct node **out)
{
    struct value *v = p->now.lexeme == LEX_INTEGER ? value_int(p->arena, p->now.integer)
                                                   : value_real(p->arena, p->now.real);

    v->trust = TEXT_TRUSTED;
    *out = literal_now(p, v);
    return parse_advance(p);
}

static status parse_list(struct parser *p, struct node **out)
{
    struct links items = { NULL, NULL, 0 };
    struct node *n = node_new(p, NODE_LIST, p->now.line), *item;
    status st = ST_OK;

    TRY(parse_advance(p));
    while (p->now.lexeme != LEX_RBRACKET) {
        if (items.n > 0)
            TRY(parse_expect(p, LEX_COMMA));
        if (p->now.lexeme == LEX_RBRACKET)
            break;
        TRY(parse_expression(p, true, &item));
        links_add(&items, item);
    }
    TRY(parse_advance(p));
    n->a = items.first;
    n->u.items_n = items.n;
    TRY(node_close(p, n));
    *out = n;
out:
    return st;
}

static status parse_dict(struct parser *p, struct node **out)
{
    struct links items = { NULL, NULL, 0 };
    struct node *n = node_new(p, NODE_DICT, p->now.line), *item;
    status st = ST_OK;

    TRY(parse_advance(p));
    while (p->now.lexeme != LEX_RBRACE) {
        if (items.n > 0)
            TRY(parse_expect(p, LEX_COMMA));
        if (p->now.lexeme == LEX_RBRACE)
            break;
        TRY(parse_expression(p, true, &item));
        links_add(&items, item);
        TRY(parse_expect(p, LEX_COLON));
        TRY(parse_expression(p, true, &item));
        links_add(&items, item);
    }
    TRY(parse_advance(p));
    n->a = items.first;
    n->u.items_n = items.n / 2;
    TRY(node_close(p, n));
    *out = n;
out:
    return st;
}

status parse_word(struct parser *p, bool namespaces, struct node **out)
{
    static const char *const words[] = { "true", "True", "false", "False", "none", "None" };
    struct node *n;
    struct name *name;
    int32_t line = p->now.line;
    status st = ST_OK;

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (parse_is_name(p, words[i])) {
            *out = literal_now(p, i < 4 ? value_bool(i < 2) : value_none());
            return parse_advance(p);
        }
    name = name_intern(p, p->now.text, p->now.n);
    name->uses++;
    TRY(parse_advance(p));
    if (!namespaces || p->now.lexeme != LEX_DOT) {
        *out = node_new(p, NODE_NAME, line);
        (*out)->u.var.name = name;
        return ST_OK;
    }
    TRY(parse_advance(p));
    if (p->now.lexeme != LEX_NAME)
        return parse_expect(p, LEX_NAME);
    n = node_new(p, NODE_NSREF, line);
    n->u.var.name = name;
    n->a = literal_now(p, name_intern(p, p->now.text, p->now.n)->value);
    *out = n;
    return parse_advance(p);
out:
    return st;
}

status parse_primary(struct parser *p, bool namespaces, struct node **out)
{
    status st = ST_OK;

    TRY(parse_enter(p));
    switch (p->now.lexeme) {
    case LEX_NAME:
        TRY(parse_word(p, namespaces, out));
        break;
    case LEX_STRING:
        TRY(parse_strings(p, out));
        break;
    case LEX_INTEGER:
    case LEX_FLOAT:
        TRY(parse_number(p, out));
        break;
    case LEX_LPAREN:
        TRY(parse_advance(p));
        TRY(parse_tuple(p, true, true, out));
        TRY(parse_expect(p, LEX_RPAREN));
        break;
    case LEX_LBRACKET:
        TRY(parse_list(p, out));
        break;
    case LEX_LBRACE:
        TRY(parse_dict(p, out));
        break;
    default:
        TRY(parse_fail(p->err, p->now.line, "unexpected %s", lexeme_text(p->now.lexeme)));
    }
    parse_leave(p);
out:
    return st;
}
