/* Statements: what jinja2's compiler makes of them. */
#include <string.h>

#include "worker/text/template_internal.h"

const struct value *slot_get(const struct run *r, uint32_t hops, uint32_t slot)
{
    const struct activation *act = r->act;

    while (hops-- > 0)
        act = act->outer;
    return act->slots[slot];
}

void scope_enter(struct run *r, const struct scope *s)
{
    for (const struct load *l = s->loads; l != NULL; l = l->next)
        switch (l->kind) {
        case LOAD_PARAM:
            break;
        case LOAD_UNDEFINED:
            r->act->slots[l->slot] = NULL;
            break;
        case LOAD_ALIAS:
            r->act->slots[l->slot] = slot_get(r, l->hops, l->from);
            break;
        case LOAD_GLOBAL:
            r->act->slots[l->slot] = r->globals[l->from];
            break;
        }
}

static bool assign_attribute(struct run *r, const struct node *target, const struct value *v)
{
    const struct value *space = slot_get(r, target->u.var.hops, target->u.var.slot);
    const struct value *name = target->a->u.value;

    if (space == NULL || space->kind != VALUE_NAMESPACE) {
        run_fail(r, "cannot assign attribute on non-namespace object");
        return false;
    }
    if (name->u.text.spans[0].text[0] == '_') {
        run_fail(r, "attributes of a namespace may not begin with an underscore");
        return false;
    }
    dict_set(r->arena, (struct dict *)&space->u.dict, name, v);     /* the one value that changes; made by this run */
    return true;
}

static bool assign_tuple(struct run *r, const struct node *target, const struct value *v)
{
    const struct node *item = target->a;
    const struct value *part;
    struct iter it;
    int got;

    if (!iter_open(r, &it, v))
        return false;
    while ((got = iter_next(r, &it, &part)) == 1) {
        if (item == NULL) {
            run_fail(r, "too many values to unpack (expected %zu)", target->u.items_n);
            return false;
        }
        if (!assign(r, item, part))
            return false;
        item = item->next;
    }
    if (got == 0 && item != NULL)
        run_fail(r, "not enough values to unpack (expected %zu)", target->u.items_n);
    return got == 0 && item == NULL;
}

bool assign(struct run *r, const struct node *target, const struct value *v)
{
    if (target->kind == NODE_NAME) {
        r->act->slots[target->u.var.slot] = v;
        return true;
    }
    return target->kind == NODE_NSREF ? assign_attribute(r, target, v) : assign_tuple(r, target, v);
}

const struct value *exec_capture(struct run *r, const struct node *body, enum flow *flow)
{
    struct text_build *outer = r->out, b;

    run_build(r, &b);
    r->out = &b;
    *flow = exec(r, body);
    r->out = outer;
    return *flow == FLOW_NEXT ? run_build_end(r, &b) : NULL;
}

static enum flow print(struct run *r, const struct value *v)
{
    const struct value *text = v == NULL ? NULL : text_of(r, v);

    if (text == NULL)
        return FLOW_FAILED;
    text_build_value(r->out, text);
    if (r->out->over) {
        run_fail(r, "the output has more than %zu bytes", r->text_max);
        return FLOW_FAILED;
    }
    return FLOW_NEXT;
}

static enum flow exec_if(struct run *r, const struct node *n)
{
    for (; n != NULL && n->kind == NODE_IF; n = n->c) {
        const struct value *test;

        r->line = n->line;
        test = eval(r, n->a);
        if (test == NULL)
            return FLOW_FAILED;
        if (truth(r, test))
            return exec(r, n->b);
        if (n->c != NULL && n->c->next != NULL)
            return exec(r, n->c);       /* an else that begins with an if */
    }
    return n != NULL ? exec(r, n) : FLOW_NEXT;
}

/* What a target holds: the value of a name, a tuple of a tuple's. */
static const struct value *target_value(struct run *r, const struct node *target)
{
    struct value *v;

    if (target->kind == NODE_NAME)
        return r->act->slots[target->u.var.slot];
    v = value_tuple(r->arena, target->u.items_n);
    for (const struct node *item = target->a; item != NULL; item = item->next)
        value_list_add(r->arena, v, target_value(r, item));
    return v;
}

/* jinja2 makes a generator of the test, which yields the target again: (x, y) is a tuple from here on. */
int for_test(struct run *r, const struct iter *it, const struct value **item)
{
    const struct for_spec *f = it->test_of;
    struct activation *act = r->act;
    const struct value *v = NULL;
    int yes;

    r->act = it->act;
    scope_enter(r, f->test_scope);
    if (assign(r, f->test_target, *item))
        v = eval(r, f->test);
    yes = v == NULL ? -1 : truth(r, v);
    if (yes == 1)
        *item = target_value(r, f->test_target);
    r->act = act;
    return yes;
}

/* What a for goes over, its test put in between. NULL: failed. */
static struct iter *for_iter(struct run *r, const struct for_spec *f, const struct value *over)
{
    struct iter *it = arena_take_zero(r->arena, 1, sizeof *it), *outer;

    if (!iter_open(r, it, over))
        return NULL;
    if (f->test == NULL)
        return it;
    outer = arena_take_zero(r->arena, 1, sizeof *outer);
    outer->kind = ITER_FOR_TEST;
    outer->source = it;
    outer->test_of = f;
    outer->act = r->act;
    return outer;
}

static struct loop *loop_new(struct run *r, const struct for_spec *f, const struct value *over, struct iter *it)
{
    struct loop *l = arena_take_zero(r->arena, 1, sizeof *l);

    l->iter = it;
    l->over = f->test == NULL ? over : NULL;
    l->index0 = -1;
    l->length = -1;
    l->self = value_new(r->arena, VALUE_LOOP);
    l->self->u.loop = l;
    r->act->slots[f->loop_slot] = l->self;
    return l;
}

static enum flow exec_for(struct run *r, const struct node *n)
{
    const struct for_spec *f = n->u.loop;
    const struct value *over = eval(r, f->iter), *item;
    struct iter *it = over == NULL ? NULL : for_iter(r, f, over);
    struct loop *l;
    bool completed = false;
    int got;

    if (it == NULL)
        return FLOW_FAILED;
    l = f->loop_used ? loop_new(r, f, over, it) : NULL;
    while ((got = l != NULL ? loop_next(r, l, &item) : iter_next(r, it, &item)) == 1) {
        enum flow flow;

        r->line = n->line;
        if (l != NULL)
            r->act->slots[f->loop_slot] = l->self;
        if (!assign(r, f->target, item))
            return FLOW_FAILED;
        scope_enter(r, f->body_scope);
        flow = exec(r, f->body);
        if (flow == FLOW_FAILED)
            return flow;
        /* As jinja2 compiles it: an iteration counts against the else once it has come to its end. */
        completed |= flow == FLOW_NEXT;
        if (flow == FLOW_BREAK)
            break;
    }
    if (got < 0)
        return FLOW_FAILED;
    if (completed || f->otherwise == NULL)
        return FLOW_NEXT;
    scope_enter(r, f->else_scope);
    return exec(r, f->otherwise);
}

static enum flow exec_set(struct run *r, const struct node *n)
{
    const struct value *v = eval(r, n->b);

    return v != NULL && assign(r, n->a, v) ? FLOW_NEXT : FLOW_FAILED;
}

static enum flow exec_set_block(struct run *r, const struct node *n)
{
    enum flow flow;
    const struct value *v;

    scope_enter(r, n->u.scope);
    v = exec_capture(r, n->b, &flow);
    if (v == NULL)
        return flow == FLOW_NEXT ? FLOW_FAILED : flow;
    if (n->c != NULL) {
        r->block = v;
        v = eval(r, n->c);
    }
    return v != NULL && assign(r, n->a, v) ? FLOW_NEXT : FLOW_FAILED;
}

static enum flow exec_filter_block(struct run *r, const struct node *n)
{
    enum flow flow;
    const struct value *v;

    scope_enter(r, n->u.scope);
    v = exec_capture(r, n->b, &flow);
    if (v == NULL)
        return flow == FLOW_NEXT ? FLOW_FAILED : flow;
    r->block = v;
    return print(r, eval(r, n->a));
}

static enum flow exec_call_block(struct run *r, const struct node *n)
{
    const struct value *f = eval(r, n->a->a);
    struct args args;

    if (f == NULL || !args_eval(r, n->a->u.call, &args))
        return FLOW_FAILED;
    args.key[args.keys_n] = value_text_borrow(r->arena, "caller", 6, TEXT_TRUSTED);
    args.item[args.keys_n++] = macro_value(r, n->u.macro);
    return print(r, value_call(r, f, &args));
}

static enum flow exec_with(struct run *r, const struct node *n)
{
    const struct node *target = n->a;

    scope_enter(r, n->u.scope);
    for (const struct node *value = n->b; value != NULL; value = value->next, target = target->next) {
        const struct value *v = eval(r, value);

        if (v == NULL || !assign(r, target, v))
            return FLOW_FAILED;
    }
    return exec(r, n->c);
}

static enum flow exec_one(struct run *r, const struct node *n)
{
    switch (n->kind) {
    case NODE_DATA:
        text_build_ref(r->out, n->u.value->u.text.one.text, n->u.value->u.text.bytes, TEXT_TRUSTED);
        if (!r->out->over)
            return FLOW_NEXT;
        run_fail(r, "the output has more than %zu bytes", r->text_max);
        return FLOW_FAILED;
    case NODE_PRINT:
        return print(r, eval(r, n->a));
    case NODE_IF:
        return exec_if(r, n);
    case NODE_FOR:
        return exec_for(r, n);
    case NODE_SET:
        return exec_set(r, n);
    case NODE_SET_BLOCK:
        return exec_set_block(r, n);
    case NODE_MACRO:
        return assign(r, n->u.macro->target, macro_value(r, n->u.macro)) ? FLOW_NEXT : FLOW_FAILED;
    case NODE_CALL_BLOCK:
        return exec_call_block(r, n);
    case NODE_FILTER_BLOCK:
        return exec_filter_block(r, n);
    case NODE_WITH:
        return exec_with(r, n);
    case NODE_SCOPE:
        scope_enter(r, n->u.scope);
        return exec(r, n->a);
    case NODE_BREAK:
        return FLOW_BREAK;
    default:
        ASSERT(n->kind == NODE_CONTINUE);
        return FLOW_CONTINUE;
    }
}

enum flow exec(struct run *r, const struct node *body)
{
    enum flow flow = FLOW_NEXT;

    if (++r->depth > RUN_DEPTH_MAX) {
        run_fail(r, "nested too deeply (a macro that calls itself?)");
        return FLOW_FAILED;
    }
    for (const struct node *n = body; n != NULL && flow == FLOW_NEXT; n = n->next) {
        r->line = n->line;
        flow = run_charge(r, 1) ? exec_one(r, n) : FLOW_FAILED;
    }
    r->depth--;
    return flow;
}
