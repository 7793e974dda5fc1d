/* Expressions. */
#include <string.h>

#include "worker/text/template_internal.h"

static const struct value *eval_items(struct run *r, const struct node *n)
{
    struct value *v = n->kind == NODE_LIST ? value_list(r->arena) : value_tuple(r->arena, n->u.items_n);

    for (const struct node *item = n->a; item != NULL; item = item->next) {
        const struct value *i = eval(r, item);

        if (i == NULL)
            return NULL;
        value_list_add(r->arena, v, i);
    }
    return v;
}

static const struct value *eval_dict(struct run *r, const struct node *n)
{
    struct value *v = value_dict(r->arena);

    for (const struct node *item = n->a; item != NULL; item = item->next->next) {
        const struct value *key = eval(r, item), *value = key == NULL ? NULL : eval(r, item->next);

        if (value == NULL || !run_key(r, key))
            return NULL;
        dict_set(r->arena, &v->u.dict, key, value);
    }
    return v;
}

static const struct value *eval_compare(struct run *r, const struct node *n)
{
    const struct value *left = eval(r, n->a);

    for (const struct node *o = n->b; o != NULL; o = o->next) {
        const struct value *right = left == NULL ? NULL : eval(r, o->a);
        int yes = right == NULL ? -1 : compare(r, (enum op)o->op, left, right);

        if (yes < 0)
            return NULL;
        if (!yes)
            return value_bool(false);
        left = right;
    }
    return value_bool(true);
}

static const struct value *eval_concat(struct run *r, const struct node *n)
{
    const struct value *v = value_empty_text();

    for (const struct node *item = n->a; item != NULL; item = item->next) {
        const struct value *i = eval(r, item), *text = i == NULL ? NULL : text_of(r, i);

        if (text == NULL)
            return NULL;
        if (!run_fits(r, v->u.text.bytes, text->u.text.bytes))
            return NULL;
        v = text_join2(r->arena, v, text);
    }
    return v;
}

static const struct value *eval_logic(struct run *r, const struct node *n)
{
    const struct value *left = eval(r, n->a);

    if (left == NULL || truth(r, left) == (n->kind == NODE_OR))
        return left;
    return eval(r, n->b);
}

static const struct value *eval_cond(struct run *r, const struct node *n)
{
    const struct value *test = eval(r, n->b);

    if (test == NULL)
        return NULL;
    if (truth(r, test))
        return eval(r, n->a);
    if (n->c != NULL)
        return eval(r, n->c);
    return undefined_hint(r, "the inline if-expression evaluated to false and no else section was defined.");
}

static const struct value *eval_item(struct run *r, const struct node *n)
{
    const struct value *object = eval(r, n->a), *key, *part[3] = { NULL, NULL, NULL };
    const struct node *parts[3];

    if (object == NULL)
        return NULL;
    if (n->b->kind != NODE_SLICE) {
        key = eval(r, n->b);
        r->line = n->line;
        return key == NULL ? NULL : get_item(r, object, key);
    }
    parts[0] = n->b->a;
    parts[1] = n->b->b;
    parts[2] = n->b->c;
    for (int i = 0; i < 3; i++)
        if (parts[i] != NULL && (part[i] = eval(r, parts[i])) == NULL)
            return NULL;
    return get_slice(r, object, part[0], part[1], part[2]);
}

static const struct value *eval_attr(struct run *r, const struct node *n)
{
    const struct value *object = eval(r, n->a), *v;

    r->line = n->line;
    if (object == NULL)
        return NULL;
    if (object->kind != VALUE_DICT || n->op)
        return get_attr(r, object, n->u.attr);
    v = dict_get_text(&object->u.dict, n->u.attr->u.text.one.text, n->u.attr->u.text.bytes);
    return v != NULL ? v : undefined_of(r, object, n->u.attr);
}

/* Not inlined, so that the room for arguments is on the stack only while a call is evaluated: eval recurses. */
#define OWN_FRAME __attribute__((noinline))

OWN_FRAME static const struct value *eval_call(struct run *r, const struct node *n)
{
    const struct value *f = eval(r, n->a);
    struct args args;

    if (f == NULL || !args_eval(r, n->u.call, &args))
        return NULL;
    r->line = n->line;
    return value_call(r, f, &args);
}

OWN_FRAME static const struct value *eval_builtin(struct run *r, const struct node *n)
{
    const struct call_spec *c = n->u.call;
    const struct value *self;
    struct args args;

    /* A filter that is not there fails where it is reached, before its arguments are looked at. */
    if (c->builtin == NULL)
        return run_fail(r, "no %s named '%s'", n->kind == NODE_FILTER ? "filter" : "test", c->builtin_name);
    self = n->a != NULL ? eval(r, n->a) : r->block;
    if (self == NULL || !args_eval(r, c, &args))
        return NULL;
    r->line = n->line;
    return builtin_call(r, c->builtin, self, &args);
}

static const struct value *eval_name(struct run *r, const struct node *n)
{
    const struct value *v = slot_get(r, n->u.var.hops, n->u.var.slot);

    return v != NULL ? v : undefined_name(r, n->u.var.name->value);
}

static const struct value *eval_not(struct run *r, const struct node *n)
{
    const struct value *v = eval(r, n->a);

    return v == NULL ? NULL : value_bool(!truth(r, v));
}

static const struct value *eval_sign(struct run *r, const struct node *n)
{
    const struct value *v = eval(r, n->a);

    return v == NULL ? NULL : negate(r, v, n->kind == NODE_NEG);
}

static const struct value *eval_binary(struct run *r, const struct node *n)
{
    const struct value *a = eval(r, n->a), *b = a == NULL ? NULL : eval(r, n->b);

    r->line = n->line;
    return b == NULL ? NULL : binary(r, (enum op)n->op, a, b);
}

static const struct value *eval_one(struct run *r, const struct node *n)
{
    switch (n->kind) {
    case NODE_CONST: return n->u.value;
    case NODE_NAME: return eval_name(r, n);
    case NODE_LIST:
    case NODE_TUPLE: return eval_items(r, n);
    case NODE_DICT: return eval_dict(r, n);
    case NODE_COND: return eval_cond(r, n);
    case NODE_OR:
    case NODE_AND: return eval_logic(r, n);
    case NODE_NOT: return eval_not(r, n);
    case NODE_COMPARE: return eval_compare(r, n);
    case NODE_CONCAT: return eval_concat(r, n);
    case NODE_BINARY: return eval_binary(r, n);
    case NODE_NEG:
    case NODE_POS: return eval_sign(r, n);
    case NODE_ATTR: return eval_attr(r, n);
    case NODE_ITEM: return eval_item(r, n);
    case NODE_CALL: return eval_call(r, n);
    default: return eval_builtin(r, n);     /* FILTER, TEST */
    }
}

const struct value *eval(struct run *r, const struct node *n)
{
    const struct value *v;

    r->line = n->line;
    if (!run_charge(r, 1))
        return NULL;
    if (++r->depth > RUN_DEPTH_MAX)
        return run_fail(r, "nested too deeply (a macro that calls itself?)");
    v = eval_one(r, n);
    r->depth--;
    return v;
}
