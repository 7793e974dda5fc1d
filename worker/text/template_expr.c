/* Expressions: jinja2/parser.py from parse_expression down, with its precedence and its oddities (** binds to the left,
 * ~ binds tighter than +, a filter after a sign takes the signed number). Left-hand chains are built in a loop, so that
 * only real nesting recurses; the height of what is built is bounded by node_close. */
#include <string.h>

#include "worker/text/template_internal.h"

/* Operators, from the tightest on. */

static status parse_unary(struct parser *p, bool with_filter, struct node **out)
{
    struct node *n, *operand;
    status st = ST_OK;

    TRY(parse_enter(p));
    if (p->now.lexeme == LEX_SUB || p->now.lexeme == LEX_ADD) {
        n = node_new(p, p->now.lexeme == LEX_SUB ? NODE_NEG : NODE_POS, p->now.line);
        TRY(parse_advance(p));
        TRY(parse_unary(p, false, &operand));
        n->a = operand;
        TRY(node_close(p, n));
    } else {
        TRY(parse_primary(p, false, &n));
    }
    TRY(parse_postfix(p, n, &n));
    if (with_filter)
        TRY(parse_filters_and_tests(p, n, &n));
    parse_leave(p);
    *out = n;
out:
    return st;
}

static status binary_node(struct parser *p, enum op op, struct node *a, struct node *b, int32_t line, struct node **out)
{
    status st = node_pair(p, NODE_BINARY, a, b, line, out);

    (*out)->op = (uint8_t)op;
    return st;
}

static status parse_power(struct parser *p, struct node **out)
{
    struct node *left, *right;
    status st = ST_OK;

    TRY(parse_unary(p, true, &left));
    while (p->now.lexeme == LEX_POW) {
        int32_t line = p->now.line;

        TRY(parse_advance(p));
        TRY(parse_unary(p, true, &right));
        TRY(binary_node(p, OP_POW, left, right, line, &left));
    }
    *out = left;
out:
    return st;
}

static status parse_product(struct parser *p, struct node **out)
{
    struct node *left, *right;
    status st = ST_OK;

    TRY(parse_power(p, &left));
    for (;;) {
        int32_t line = p->now.line;
        enum op op;

        switch (p->now.lexeme) {
        case LEX_MUL: op = OP_MUL; break;
        case LEX_DIV: op = OP_DIV; break;
        case LEX_FLOORDIV: op = OP_FLOORDIV; break;
        case LEX_MOD: op = OP_MOD; break;
        default:
            *out = left;
            return ST_OK;
        }
        TRY(parse_advance(p));
        TRY(parse_power(p, &right));
        TRY(binary_node(p, op, left, right, line, &left));
    }
out:
    return st;
}

static status parse_concat(struct parser *p, struct node **out)
{
    struct links items = { NULL, NULL, 0 };
    struct node *item, *n;
    status st = ST_OK;

    TRY(parse_product(p, &item));
    if (p->now.lexeme != LEX_TILDE) {
        *out = item;
        return ST_OK;
    }
    n = node_new(p, NODE_CONCAT, p->now.line);
    links_add(&items, item);
    while (p->now.lexeme == LEX_TILDE) {
        TRY(parse_advance(p));
        TRY(parse_product(p, &item));
        links_add(&items, item);
    }
    n->a = items.first;
    n->u.items_n = items.n;
    TRY(node_close(p, n));
    *out = n;
out:
    return st;
}

static status parse_sum(struct parser *p, struct node **out)
{
    struct node *left, *right;
    status st = ST_OK;

    TRY(parse_concat(p, &left));
    while (p->now.lexeme == LEX_ADD || p->now.lexeme == LEX_SUB) {
        enum op op = p->now.lexeme == LEX_ADD ? OP_ADD : OP_SUB;
        int32_t line = p->now.line;

        TRY(parse_advance(p));
        TRY(parse_concat(p, &right));
        TRY(binary_node(p, op, left, right, line, &left));
    }
    *out = left;
out:
    return st;
}

/* Takes a comparison operator; *found says whether there was one. */
static status comparison(struct parser *p, enum op *op, bool *found)
{
    struct lexed ahead;
    status st = ST_OK;

    *found = true;
    switch (p->now.lexeme) {
    case LEX_EQ: *op = OP_EQ; return parse_advance(p);
    case LEX_NE: *op = OP_NE; return parse_advance(p);
    case LEX_LT: *op = OP_LT; return parse_advance(p);
    case LEX_LE: *op = OP_LE; return parse_advance(p);
    case LEX_GT: *op = OP_GT; return parse_advance(p);
    case LEX_GE: *op = OP_GE; return parse_advance(p);
    default: break;
    }
    *op = OP_IN;
    if (parse_is_name(p, "in"))
        return parse_advance(p);
    if (parse_is_name(p, "not")) {
        TRY(parse_ahead(p, &ahead));
        if (ahead.lexeme == LEX_NAME && ahead.n == 2 && memcmp(ahead.text, "in", 2) == 0) {
            *op = OP_NOT_IN;
            TRY(parse_advance(p));
            return parse_advance(p);
        }
    }
    *found = false;
out:
    return st;
}

static status parse_compare(struct parser *p, struct node **out)
{
    struct links operands = { NULL, NULL, 0 };
    struct node *first, *n;
    int32_t line = p->now.line;
    status st = ST_OK;

    TRY(parse_sum(p, &first));
    for (;;) {
        struct node *operand, *o;
        enum op op;
        bool found;

        TRY(comparison(p, &op, &found));
        if (!found)
            break;
        TRY(parse_sum(p, &operand));
        /* The operator stands in a node of its own: the operand may use op for itself. */
        o = node_new(p, NODE_COMPARE, operand->line);
        o->op = (uint8_t)op;
        o->a = operand;
        TRY(node_close(p, o));
        links_add(&operands, o);
    }
    if (operands.n == 0) {
        *out = first;
        return ST_OK;
    }
    n = node_new(p, NODE_COMPARE, line);
    n->a = first;
    n->b = operands.first;
    TRY(node_close(p, n));
    *out = n;
out:
    return st;
}

static status parse_not(struct parser *p, struct node **out)
{
    struct node *operand;
    int32_t line = p->now.line;
    status st = ST_OK;

    if (!parse_is_name(p, "not"))
        return parse_compare(p, out);
    TRY(parse_enter(p));
    TRY(parse_advance(p));
    TRY(parse_not(p, &operand));
    parse_leave(p);
    return node_pair(p, NODE_NOT, operand, NULL, line, out);
out:
    return st;
}

static status parse_and(struct parser *p, struct node **out)
{
    struct node *left, *right;
    status st = ST_OK;

    TRY(parse_not(p, &left));
    while (parse_is_name(p, "and")) {
        int32_t line = p->now.line;

        TRY(parse_advance(p));
        TRY(parse_not(p, &right));
        TRY(node_pair(p, NODE_AND, left, right, line, &left));
    }
    *out = left;
out:
    return st;
}

static status parse_or(struct parser *p, struct node **out)
{
    struct node *left, *right;
    status st = ST_OK;

    TRY(parse_and(p, &left));
    while (parse_is_name(p, "or")) {
        int32_t line = p->now.line;

        TRY(parse_advance(p));
        TRY(parse_and(p, &right));
        TRY(node_pair(p, NODE_OR, left, right, line, &left));
    }
    *out = left;
out:
    return st;
}

status parse_expression(struct parser *p, bool ternary, struct node **out)
{
    struct node *value, *n;
    status st = ST_OK;

    TRY(parse_enter(p));
    TRY(parse_or(p, &value));
    while (ternary && parse_is_name(p, "if")) {
        n = node_new(p, NODE_COND, p->now.line);
        n->a = value;
        TRY(parse_advance(p));
        TRY(parse_or(p, &n->b));
        if (parse_is_name(p, "else")) {
            TRY(parse_advance(p));
            TRY(parse_expression(p, true, &n->c));
        }
        TRY(node_close(p, n));
        value = n;
    }
    parse_leave(p);
    *out = value;
out:
    return st;
}

/* Tuples and targets. */

static bool tuple_ends(const struct parser *p)
{
    return p->now.lexeme == LEX_PRINT_END || p->now.lexeme == LEX_BLOCK_END || p->now.lexeme == LEX_RPAREN;
}

struct tuple_kind {
    bool target, namespaces;        /* names to assign to; with attributes of namespaces */
    bool ternary, parentheses;
};

static status tuple_of(struct parser *p, const struct tuple_kind *kind, struct node **out)
{
    struct links items = { NULL, NULL, 0 };
    struct node *item, *n;
    bool is_tuple = false;
    int32_t line = p->now.line;
    status st = ST_OK;

    for (;;) {
        if (items.n > 0)
            TRY(parse_expect(p, LEX_COMMA));
        if (tuple_ends(p))
            break;
        TRY(kind->target ? parse_primary(p, kind->namespaces, &item) : parse_expression(p, kind->ternary, &item));
        links_add(&items, item);
        if (p->now.lexeme != LEX_COMMA)
            break;
        is_tuple = true;
    }
    if (!is_tuple && items.n == 1) {
        *out = items.first;
        return ST_OK;
    }
    if (!is_tuple && !kind->parentheses)
        return parse_fail(p->err, p->now.line, "expected an expression, got %s", lexeme_text(p->now.lexeme));
    n = node_new(p, NODE_TUPLE, line);
    n->a = items.first;
    n->u.items_n = items.n;
    TRY(node_close(p, n));
    *out = n;
out:
    return st;
}

status parse_tuple(struct parser *p, bool ternary, bool parentheses, struct node **out)
{
    struct tuple_kind kind = { .ternary = ternary, .parentheses = parentheses };

    return tuple_of(p, &kind, out);
}

static bool can_assign(const struct node *n)
{
    if (n->kind == NODE_TUPLE) {
        for (const struct node *item = n->a; item != NULL; item = item->next)
            if (!can_assign(item))
                return false;
        return true;
    }
    return n->kind == NODE_NAME || n->kind == NODE_NSREF;
}

static status check_target(struct parser *p, const struct node *n)
{
    if (!can_assign(n))
        return parse_fail(p->err, n->line, "can't assign to this expression");
    if (p->fors > 0 && n->kind == NODE_NAME && n->u.var.name == p->loop)
        return parse_fail(p->err, n->line, "can't assign to the special variable loop inside a for");
    for (const struct node *item = n->kind == NODE_TUPLE ? n->a : NULL; item != NULL; item = item->next)
        if (check_target(p, item) != ST_OK)
            return ST_REJECT;
    return ST_OK;
}

status parse_target(struct parser *p, bool namespaces, struct node **out)
{
    struct tuple_kind kind = { .target = true, .namespaces = namespaces };
    status st = tuple_of(p, &kind, out);

    return st == ST_OK ? check_target(p, *out) : st;
}

status parse_name_target(struct parser *p, struct node **out)
{
    status st = ST_OK;

    if (p->now.lexeme != LEX_NAME)
        return parse_expect(p, LEX_NAME);
    TRY(parse_word(p, false, out));
    return check_target(p, *out);
out:
    return st;
}
