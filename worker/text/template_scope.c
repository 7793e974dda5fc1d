/* Names become slots: jinja2/idtracking.py and the scoping of jinja2/compiler.py.
 *
 * A frame is the template, the body, test or else of a for, a macro, a block that captures, a with. Each frame is
 * looked at twice: first which names it stores and loads (a name stored anywhere in a frame is its own variable in all
 * of it, and starts as what the outer variable, or the caller's variable, was when the frame was entered), then every
 * name in it is bound and the frames inside it follow. Frames of one function share an activation; a macro is a
 * function of its own that reaches out over `hops` activations. A name's meaning hangs on the name itself
 * (name->symbol), shadowed ones behind it, so that a lookup costs one step however many names there are. */
#include <string.h>

#include "worker/text/template_internal.h"

struct function { int level; uint32_t slots_n; };

struct frame {
    struct frame *outer;
    struct function *function;
    struct scope *scope;
    struct symbol *symbols;
    bool outer_soft;
    int outer_branches;
};

struct symbol {
    struct symbol *next;            /* of the same frame */
    struct symbol *shadowed;        /* what the name means outside */
    struct name *name;
    struct frame *frame;
    uint32_t slot;
    struct load *load;              /* NULL: a parameter */
};

struct resolver {
    struct parser *p;
    struct frame *frame;
    int branches;                   /* ifs around this place, in this frame */
    bool soft;                      /* in this frame inside an if: an unknown filter fails only when it is reached */
};

static void frame_enter(struct resolver *s, struct frame *f, struct function *function, struct scope *scope)
{
    *f = (struct frame){ s->frame, function, scope, NULL, s->soft, s->branches };
    s->frame = f;
    s->soft = false;
    s->branches = 0;
}

static void frame_leave(struct resolver *s)
{
    for (struct symbol *y = s->frame->symbols; y != NULL; y = y->next)
        y->name->symbol = y->shadowed;
    s->soft = s->frame->outer_soft;
    s->branches = s->frame->outer_branches;
    s->frame = s->frame->outer;
}

static struct symbol *symbol_new(struct resolver *s, struct name *name, uint32_t slot)
{
    struct symbol *y = arena_take_zero(s->p->arena, 1, sizeof *y);

    y->name = name;
    y->frame = s->frame;
    y->slot = slot;
    y->shadowed = name->symbol;
    y->next = s->frame->symbols;
    s->frame->symbols = y;
    name->symbol = y;
    return y;
}

static bool is_own(const struct resolver *s, const struct name *name)
{
    return name->symbol != NULL && name->symbol->frame == s->frame;
}

static uint32_t global_of(struct template *t, struct name *name)
{
    if (name->global_i < 0) {
        if (t->globals_n == t->globals_room) {
            size_t room = t->globals_room ? t->globals_room * 2 : 16;
            struct name **globals = arena_take(&t->arena, room * sizeof *globals);

            if (t->globals_n > 0)
                memcpy(globals, t->globals, t->globals_n * sizeof *globals);
            t->globals = globals;
            t->globals_room = room;
        }
        name->global_i = (int32_t)t->globals_n;
        t->globals[t->globals_n++] = name;
    }
    return (uint32_t)name->global_i;
}

static void define(struct resolver *s, struct name *name, enum load_kind kind)
{
    struct symbol *outer = name->symbol;
    struct load *load = arena_take_zero(s->p->arena, 1, sizeof *load);
    struct symbol *y = symbol_new(s, name, s->frame->function->slots_n++);

    load->kind = kind;
    load->slot = y->slot;
    if (kind == LOAD_GLOBAL) {
        load->from = global_of(s->p->t, name);
    } else if (kind == LOAD_ALIAS) {
        load->hops = (uint32_t)(s->frame->function->level - outer->frame->function->level);
        load->from = outer->slot;
    }
    load->next = s->frame->scope->loads;
    s->frame->scope->loads = load;
    y->load = load;
}

static void name_load(struct resolver *s, struct name *name)
{
    if (name->symbol == NULL)
        define(s, name, LOAD_GLOBAL);
}

static void name_store(struct resolver *s, struct name *name)
{
    if (is_own(s, name))
        return;
    if (name->symbol != NULL)
        define(s, name, LOAD_ALIAS);
    else    /* stored in a branch only: where it is not taken, the name still means the caller's variable */
        define(s, name, s->branches > 0 ? LOAD_GLOBAL : LOAD_UNDEFINED);
}

static uint32_t name_param(struct resolver *s, struct name *name)
{
    if (!is_own(s, name))
        symbol_new(s, name, s->frame->function->slots_n++);
    else if (name->symbol->load != NULL)
        name->symbol->load->kind = LOAD_PARAM;
    return name->symbol->slot;
}

static void bind(struct resolver *s, struct node *n)
{
    struct symbol *y = n->u.var.name->symbol;

    ASSERT(y != NULL);
    n->u.var.hops = (uint32_t)(s->frame->function->level - y->frame->function->level);
    n->u.var.slot = y->slot;
}

static void target_store(struct resolver *s, const struct node *n, bool param)
{
    if (n->kind == NODE_NSREF)
        name_load(s, n->u.var.name);
    else if (n->kind == NODE_NAME && param)
        name_param(s, n->u.var.name);
    else if (n->kind == NODE_NAME)
        name_store(s, n->u.var.name);
    for (const struct node *item = n->kind == NODE_TUPLE ? n->a : NULL; item != NULL; item = item->next)
        target_store(s, item, param);
}

/* Expressions: the first look (bind_too false) loads, the second binds. */

static status walk_list(struct resolver *s, struct node *list, bool bind_too);

static status walk_call(struct resolver *s, struct node *n, bool bind_too)
{
    struct call_spec *c = n->u.call;
    status st = ST_OK;

    if (bind_too && n->kind != NODE_CALL && c->builtin == NULL && !s->soft)
        return parse_fail(s->p->err, n->line, "no %s named '%s'", n->kind == NODE_FILTER ? "filter" : "test",
                          c->builtin_name);
    TRY(walk_list(s, c->args, bind_too));
    for (struct keyword *k = c->keywords; k != NULL; k = k->next)
        TRY(walk_list(s, k->value, bind_too));
    TRY(walk_list(s, c->star, bind_too));
    TRY(walk_list(s, c->star_star, bind_too));
out:
    return st;
}

static status walk(struct resolver *s, struct node *n, bool bind_too)
{
    bool soft = s->soft;
    status st = ST_OK;

    if (n->kind == NODE_NAME) {
        if (bind_too)
            bind(s, n);
        else
            name_load(s, n->u.var.name);
        return ST_OK;
    }
    s->soft |= n->kind == NODE_COND;
    if (n->kind == NODE_CALL || n->kind == NODE_FILTER || n->kind == NODE_TEST)
        TRY(walk_call(s, n, bind_too));
    TRY(walk_list(s, n->a, bind_too));
    TRY(walk_list(s, n->b, bind_too));
    TRY(walk_list(s, n->c, bind_too));
    s->soft = soft;
out:
    return st;
}

static status walk_list(struct resolver *s, struct node *list, bool bind_too)
{
    status st = ST_OK;

    for (; list != NULL; list = list->next)
        TRY(walk(s, list, bind_too));
out:
    return st;
}

/* Whether what follows n's branch is an elif (or an else that is nothing but an if, which is the same). */
static bool has_elif(const struct node *n)
{
    return n->c != NULL && n->c->kind == NODE_IF && n->c->next == NULL;
}

static status look(struct resolver *s, struct node *body);

static status look_if(struct resolver *s, struct node *n)
{
    status st = ST_OK;

    s->branches++;
    for (;; n = n->c) {
        TRY(walk(s, n->a, false));
        TRY(look(s, n->b));
        if (!has_elif(n))
            break;
    }
    TRY(look(s, n->c));
    s->branches--;
out:
    return st;
}

/* The first look at a frame's statements. */
static status look(struct resolver *s, struct node *body)
{
    status st = ST_OK;

    for (struct node *n = body; n != NULL; n = n->next) {
        switch (n->kind) {
        case NODE_PRINT:
        case NODE_CALL_BLOCK:
        case NODE_FILTER_BLOCK:
            TRY(walk(s, n->a, false));
            break;
        case NODE_FOR:
            TRY(walk(s, n->u.loop->iter, false));
            break;
        case NODE_IF:
            TRY(look_if(s, n));
            break;
        case NODE_SET:
            TRY(walk(s, n->b, false));
            target_store(s, n->a, false);
            break;
        case NODE_SET_BLOCK:
            target_store(s, n->a, false);
            break;
        case NODE_MACRO:
            name_store(s, n->u.macro->target->u.var.name);
            break;
        case NODE_WITH:
            TRY(walk_list(s, n->b, false));
            break;
        default:
            break;
        }
    }
out:
    return st;
}

/* The second look. */

static status settle(struct resolver *s, struct node *body);

static void target_bind(struct resolver *s, struct node *n)
{
    if (n->kind == NODE_NSREF || n->kind == NODE_NAME)
        bind(s, n);
    for (struct node *item = n->kind == NODE_TUPLE ? n->a : NULL; item != NULL; item = item->next)
        target_bind(s, item);
}

static status settle_for(struct resolver *s, struct node *n)
{
    struct for_spec *f = n->u.loop;
    struct frame frame;
    status st = ST_OK;

    TRY(walk(s, f->iter, true));
    frame_enter(s, &frame, s->frame->function, f->body_scope);
    if (f->loop_used)
        f->loop_slot = name_param(s, s->p->loop);
    target_store(s, f->target, true);
    TRY(look(s, f->body));
    target_bind(s, f->target);
    TRY(settle(s, f->body));
    frame_leave(s);
    if (f->test != NULL) {
        frame_enter(s, &frame, s->frame->function, f->test_scope);
        target_store(s, f->test_target, true);
        target_bind(s, f->test_target);
        TRY(walk(s, f->test, false));
        TRY(walk(s, f->test, true));
        frame_leave(s);
    }
    frame_enter(s, &frame, s->frame->function, f->else_scope);
    TRY(look(s, f->otherwise));
    TRY(settle(s, f->otherwise));
    frame_leave(s);
out:
    return st;
}

static status settle_macro(struct resolver *s, struct macro_spec *m)
{
    struct function function = { s->frame->function->level + 1, 0 };
    struct frame frame;
    status st = ST_OK;
    size_t i;

    frame_enter(s, &frame, &function, m->scope);
    for (struct node *param = m->params; param != NULL; param = param->next)
        name_param(s, param->u.var.name);
    if (m->uses_caller && !m->caller_param)
        m->caller_slot = name_param(s, s->p->caller);
    if (m->uses_kwargs)
        m->kwargs_slot = name_param(s, s->p->kwargs);
    if (m->uses_varargs)
        m->varargs_slot = name_param(s, s->p->varargs);
    for (i = 0; i < m->params_n; i++)
        if (m->defaults[i] != NULL)
            TRY(walk(s, m->defaults[i], false));
    TRY(look(s, m->body));
    for (struct node *param = m->params; param != NULL; param = param->next)
        bind(s, param);
    for (i = 0; i < m->params_n; i++)
        if (m->defaults[i] != NULL)
            TRY(walk(s, m->defaults[i], true));
    TRY(settle(s, m->body));
    frame_leave(s);
    m->slots_n = function.slots_n;
out:
    return st;
}

/* A block with a frame of its own in the same function: its filter, if any, belongs to it. */
static status settle_block(struct resolver *s, struct scope *scope, struct node *filter, struct node *body)
{
    struct frame frame;
    status st = ST_OK;

    frame_enter(s, &frame, s->frame->function, scope);
    TRY(look(s, body));
    TRY(walk_list(s, filter, false));
    TRY(walk_list(s, filter, true));
    TRY(settle(s, body));
    frame_leave(s);
out:
    return st;
}

static status settle_with(struct resolver *s, struct node *n)
{
    struct frame frame;
    status st = ST_OK;

    TRY(walk_list(s, n->b, true));
    frame_enter(s, &frame, s->frame->function, n->u.scope);
    for (struct node *target = n->a; target != NULL; target = target->next)
        target_store(s, target, true);
    TRY(look(s, n->c));
    for (struct node *target = n->a; target != NULL; target = target->next)
        target_bind(s, target);
    TRY(settle(s, n->c));
    frame_leave(s);
out:
    return st;
}

static status settle_if(struct resolver *s, struct node *n)
{
    bool soft = s->soft;
    status st = ST_OK;

    s->soft = true;
    for (;; n = n->c) {
        TRY(walk(s, n->a, true));
        TRY(settle(s, n->b));
        if (!has_elif(n))
            break;
    }
    TRY(settle(s, n->c));
    s->soft = soft;
out:
    return st;
}

static status settle_statement(struct resolver *s, struct node *n)
{
    status st = ST_OK;

    switch (n->kind) {
    case NODE_PRINT:
        return walk(s, n->a, true);
    case NODE_FOR:
        return settle_for(s, n);
    case NODE_SET:
        TRY(walk(s, n->b, true));
        target_bind(s, n->a);
        return ST_OK;
    case NODE_SET_BLOCK:
        target_bind(s, n->a);
        return settle_block(s, n->u.scope, n->c, n->b);
    case NODE_MACRO:
        bind(s, n->u.macro->target);
        return settle_macro(s, n->u.macro);
    case NODE_CALL_BLOCK:
        TRY(walk(s, n->a, true));
        return settle_macro(s, n->u.macro);
    case NODE_FILTER_BLOCK:
        return settle_block(s, n->u.scope, n->a, n->b);
    case NODE_WITH:
        return settle_with(s, n);
    case NODE_SCOPE:
        return settle_block(s, n->u.scope, NULL, n->a);
    default:
        return ST_OK;
    }
out:
    return st;
}

static status settle(struct resolver *s, struct node *body)
{
    status st = ST_OK;

    for (struct node *n = body; n != NULL; n = n->next)
        TRY(n->kind == NODE_IF ? settle_if(s, n) : settle_statement(s, n));
out:
    return st;
}

status scope_resolve(struct parser *p)
{
    struct resolver s = { .p = p };
    struct function function = { 0, 0 };
    struct frame frame;
    status st = ST_OK;

    frame_enter(&s, &frame, &function, p->t->scope);
    TRY(look(&s, p->t->body));
    TRY(settle(&s, p->t->body));
    frame_leave(&s);
    p->t->slots_n = function.slots_n;
out:
    return st;
}
