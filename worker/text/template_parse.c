/* Statements, and the parser's own tools: jinja2/parser.py. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "worker/text/template_internal.h"

status parse_fail(struct error *err, int32_t line, const char *fmt, ...)
{
    char cause[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(cause, sizeof cause, fmt, ap);
    va_end(ap);
    return error_set(err, ST_REJECT, "chat template line %d: %s", (int)line, cause);
}

struct name *name_intern(struct parser *p, const char *text, size_t n)
{
    struct name **at = &p->names[hash64(text, n, 0) % NAMES_BUCKETS], *name;
    struct value *v;

    for (name = *at; name != NULL; name = name->next)
        if (name->n == n && memcmp(name->text, text, n) == 0)
            return name;
    name = arena_take_zero(p->arena, 1, sizeof *name);
    v = value_text_borrow(p->arena, text, n, TEXT_TRUSTED);
    text_chars(v);
    name->next = *at;
    name->text = text;
    name->n = n;
    name->value = v;
    name->global_i = -1;
    *at = name;
    return name;
}

status parse_advance(struct parser *p)
{
    if (p->has_ahead) {
        p->now = p->ahead;
        p->has_ahead = false;
        return ST_OK;
    }
    return lex_next(&p->lexer, &p->now);
}

status parse_ahead(struct parser *p, struct lexed *out)
{
    status st = ST_OK;

    if (!p->has_ahead)
        TRY(lex_next(&p->lexer, &p->ahead));
    p->has_ahead = true;
    *out = p->ahead;
out:
    return st;
}

static status unexpected(struct parser *p, const char *wanted)
{
    if (p->now.lexeme == LEX_NAME)
        return parse_fail(p->err, p->now.line, "expected %s, got '%.*s'", wanted, (int)(p->now.n < 40 ? p->now.n : 40),
                          p->now.text);
    return parse_fail(p->err, p->now.line, "expected %s, got %s", wanted, lexeme_text(p->now.lexeme));
}

status parse_expect(struct parser *p, enum lexeme lexeme)
{
    if (p->now.lexeme != lexeme)
        return unexpected(p, lexeme_text(lexeme));
    return parse_advance(p);
}

bool parse_is_name(const struct parser *p, const char *word)
{
    return p->now.lexeme == LEX_NAME && p->now.n == strlen(word) && memcmp(p->now.text, word, p->now.n) == 0;
}

static status expect_name(struct parser *p, const char *word)
{
    return parse_is_name(p, word) ? parse_advance(p) : unexpected(p, word);
}

status parse_enter(struct parser *p)
{
    if (++p->depth > PARSE_DEPTH_MAX)
        return parse_fail(p->err, p->now.line, "nested too deeply");
    return ST_OK;
}

void parse_leave(struct parser *p)
{
    p->depth--;
}

struct node *node_new(struct parser *p, enum node_kind kind, int32_t line)
{
    struct node *n = arena_take_zero(p->arena, 1, sizeof *n);

    n->kind = (uint8_t)kind;
    n->line = line;
    n->depth = 1;
    return n;
}

static uint16_t list_depth(const struct node *list, uint16_t depth)
{
    for (; list != NULL; list = list->next)
        if (list->depth > depth)
            depth = list->depth;
    return depth;
}

status node_close(struct parser *p, struct node *n)
{
    uint16_t depth = list_depth(n->a, list_depth(n->b, list_depth(n->c, 0)));

    if (n->kind == NODE_CALL || n->kind == NODE_FILTER || n->kind == NODE_TEST) {
        const struct call_spec *c = n->u.call;

        depth = list_depth(c->args, list_depth(c->star, list_depth(c->star_star, depth)));
        for (const struct keyword *k = c->keywords; k != NULL; k = k->next)
            depth = list_depth(k->value, depth);
    } else if (n->kind == NODE_FOR) {
        const struct for_spec *f = n->u.loop;

        depth = list_depth(f->target, list_depth(f->iter, list_depth(f->test, depth)));
        depth = list_depth(f->body, list_depth(f->otherwise, depth));
    } else if (n->kind == NODE_MACRO || n->kind == NODE_CALL_BLOCK) {
        depth = list_depth(n->u.macro->body, depth);
        for (size_t i = 0; i < n->u.macro->params_n; i++)
            depth = list_depth(n->u.macro->defaults[i], depth);
    }
    n->depth = (uint16_t)(depth + 1);
    if (n->depth > NODE_DEPTH_MAX)
        return parse_fail(p->err, n->line, "nested too deeply");
    return ST_OK;
}

status node_pair(struct parser *p, enum node_kind kind, struct node *a, struct node *b, int32_t line, struct node **out)
{
    struct node *n = node_new(p, kind, line);

    n->a = a;
    n->b = b;
    *out = n;
    return node_close(p, n);
}

void links_add(struct links *l, struct node *n)
{
    if (l->end == NULL)
        l->end = &l->first;
    *l->end = n;
    l->end = &n->next;
    l->n++;
}

/* Statements. The parser stands on the tag's name. */

static status parse_until(struct parser *p, const char *const *ends, struct node **out);

/* The end of this tag, a body, and the begin of the tag that ends it: now is its name. */
static status parse_body(struct parser *p, const char *const *ends, struct node **out)
{
    status st = ST_OK;

    if (p->now.lexeme == LEX_COLON)
        TRY(parse_advance(p));
    TRY(parse_expect(p, LEX_BLOCK_END));
    TRY(parse_until(p, ends, out));
out:
    return st;
}

/* ... and takes that name. */
static status parse_body_to(struct parser *p, const char *end, struct node **out)
{
    const char *ends[] = { end, NULL };
    status st = parse_body(p, ends, out);

    return st == ST_OK ? parse_advance(p) : st;
}

static struct scope *scope_new(struct parser *p)
{
    return arena_take_zero(p->arena, 1, sizeof(struct scope));
}

/* A copy of a target: names and tuples of them. */
static struct node *target_copy(struct parser *p, const struct node *from)
{
    struct links items = { NULL, NULL, 0 };
    struct node *n = node_new(p, (enum node_kind)from->kind, from->line);

    *n = *from;
    n->next = NULL;
    for (const struct node *item = from->kind == NODE_TUPLE ? from->a : NULL; item != NULL; item = item->next)
        links_add(&items, target_copy(p, item));
    n->a = items.first;
    return n;
}

static status parse_for(struct parser *p, struct node **out)
{
    static const char *const ends[] = { "endfor", "else", NULL };
    struct node *n = node_new(p, NODE_FOR, p->now.line);
    struct for_spec *f = arena_take_zero(p->arena, 1, sizeof *f);
    bool may_break = p->may_break, has_else;
    uint32_t loop_uses;
    status st = ST_OK;

    n->u.loop = f;
    f->test_scope = scope_new(p);
    f->body_scope = scope_new(p);
    f->else_scope = scope_new(p);
    p->fors++;
    TRY(parse_advance(p));
    TRY(parse_target(p, false, &f->target));
    TRY(expect_name(p, "in"));
    TRY(parse_tuple(p, false, false, &f->iter));
    if (parse_is_name(p, "if")) {
        TRY(parse_advance(p));
        TRY(parse_expression(p, true, &f->test));
        f->test_target = target_copy(p, f->target);
    }
    if (parse_is_name(p, "recursive"))
        return parse_fail(p->err, p->now.line, "recursive for loops are not supported");
    p->may_break = true;
    loop_uses = p->loop->uses;
    TRY(parse_body(p, ends, &f->body));
    f->loop_used = p->loop->uses > loop_uses;
    p->may_break = may_break;
    has_else = parse_is_name(p, "else");
    TRY(parse_advance(p));
    if (has_else)
        TRY(parse_body_to(p, "endfor", &f->otherwise));
    p->fors--;
    TRY(node_close(p, n));
    *out = n;
out:
    return st;
}

static status parse_if(struct parser *p, struct node **out)
{
    static const char *const ends[] = { "endif", "elif", "else", NULL };
    struct node *first = NULL, **at = &first;
    struct links chain = { NULL, NULL, 0 };
    status st = ST_OK;

    /* elif becomes a chain through c that is executed in a loop: its length is not depth. */
    for (;;) {
        struct node *n = node_new(p, NODE_IF, p->now.line);

        TRY(parse_advance(p));
        TRY(parse_tuple(p, false, false, &n->a));
        TRY(parse_body(p, ends, &n->b));
        TRY(node_close(p, n));
        *at = n;
        at = &n->c;
        if (chain.n == 0 || n->depth > first->depth)
            first->depth = n->depth;
        chain.n++;
        if (!parse_is_name(p, "elif"))
            break;
    }
    if (parse_is_name(p, "else")) {
        TRY(parse_advance(p));
        TRY(parse_body_to(p, "endif", at));
        if (list_depth(*at, 0) + 1 > first->depth)
            first->depth = (uint16_t)(list_depth(*at, 0) + 1);
    } else {
        TRY(parse_advance(p));
    }
    *out = first;
out:
    return st;
}

static status parse_set(struct parser *p, struct node **out)
{
    struct node *n = node_new(p, NODE_SET, p->now.line);
    status st = ST_OK;

    TRY(parse_advance(p));
    TRY(parse_target(p, true, &n->a));
    if (p->now.lexeme == LEX_ASSIGN) {
        TRY(parse_advance(p));
        TRY(parse_tuple(p, true, false, &n->b));
    } else {
        n->kind = NODE_SET_BLOCK;
        n->u.scope = scope_new(p);
        TRY(parse_filters(p, NULL, false, &n->c));
        TRY(parse_body_to(p, "endset", &n->b));
    }
    TRY(node_close(p, n));
    *out = n;
out:
    return st;
}

static status parse_params(struct parser *p, struct macro_spec *m)
{
    struct links params = { NULL, NULL, 0 };
    struct node *defaults[ARGS_MAX / 2], *name;
    bool has_default = false;
    status st = ST_OK;

    TRY(parse_expect(p, LEX_LPAREN));
    while (p->now.lexeme != LEX_RPAREN) {
        if (params.n > 0)
            TRY(parse_expect(p, LEX_COMMA));
        if (params.n == ARGS_MAX / 2)
            return parse_fail(p->err, p->now.line, "more than %d parameters", ARGS_MAX / 2);
        TRY(parse_name_target(p, &name));
        for (const struct node *other = params.first; other != NULL; other = other->next)
            if (other->u.var.name == name->u.var.name)
                return parse_fail(p->err, name->line, "parameter '%.*s' twice", (int)name->u.var.name->n,
                                  name->u.var.name->text);
        defaults[params.n] = NULL;
        if (p->now.lexeme == LEX_ASSIGN) {
            TRY(parse_advance(p));
            TRY(parse_expression(p, true, &defaults[params.n]));
            has_default = true;
        } else if (has_default) {
            return parse_fail(p->err, p->now.line, "a parameter without default follows one with a default");
        }
        links_add(&params, name);
    }
    TRY(parse_advance(p));
    m->params = params.first;
    m->params_n = params.n;
    m->defaults = arena_take(p->arena, params.n * sizeof m->defaults[0]);
    if (params.n > 0)
        memcpy(m->defaults, defaults, params.n * sizeof m->defaults[0]);
out:
    return st;
}

/* Macro bodies are functions: break does not reach out of them. What they say of caller, kwargs and varargs decides
 * what they accept. */
static status parse_macro_body(struct parser *p, struct macro_spec *m, const char *end)
{
    uint32_t caller = p->caller->uses, kwargs = p->kwargs->uses, varargs = p->varargs->uses;
    bool may_break = p->may_break;
    status st = ST_OK;
    size_t i = 0;

    p->may_break = false;
    TRY(parse_body_to(p, end, &m->body));
    p->may_break = may_break;
    m->uses_caller = p->caller->uses > caller;
    m->uses_kwargs = p->kwargs->uses > kwargs;
    m->uses_varargs = p->varargs->uses > varargs;
    for (const struct node *param = m->params; param != NULL; param = param->next, i++) {
        const struct name *name = param->u.var.name;

        if (name == p->caller && m->uses_caller && m->defaults[i] == NULL)
            return parse_fail(p->err, param->line, "the parameter 'caller' must be left out or have a default");
        m->caller_param |= name == p->caller;
        m->uses_kwargs &= name != p->kwargs;
        m->uses_varargs &= name != p->varargs;
    }
out:
    return st;
}

static status parse_macro(struct parser *p, struct node **out)
{
    struct node *n = node_new(p, NODE_MACRO, p->now.line);
    struct macro_spec *m = arena_take_zero(p->arena, 1, sizeof *m);
    status st = ST_OK;

    n->u.macro = m;
    m->scope = scope_new(p);
    TRY(parse_advance(p));
    TRY(parse_name_target(p, &m->target));
    if (m->target->kind != NODE_NAME)
        return parse_fail(p->err, n->line, "a macro needs a name");
    m->name = m->target->u.var.name->value;
    TRY(parse_params(p, m));
    TRY(parse_macro_body(p, m, "endmacro"));
    TRY(node_close(p, n));
    *out = n;
out:
    return st;
}

static status parse_call_block(struct parser *p, struct node **out)
{
    struct node *n = node_new(p, NODE_CALL_BLOCK, p->now.line);
    struct macro_spec *m = arena_take_zero(p->arena, 1, sizeof *m);
    status st = ST_OK;

    n->u.macro = m;
    m->name = value_none();
    m->scope = scope_new(p);
    TRY(parse_advance(p));
    if (p->now.lexeme == LEX_LPAREN)
        TRY(parse_params(p, m));
    TRY(parse_expression(p, true, &n->a));
    if (n->a->kind != NODE_CALL)
        return parse_fail(p->err, n->line, "a call block needs a call");
    TRY(parse_macro_body(p, m, "endcall"));
    TRY(node_close(p, n));
    *out = n;
out:
    return st;
}

static status parse_filter_block(struct parser *p, struct node **out)
{
    struct node *n = node_new(p, NODE_FILTER_BLOCK, p->now.line);
    status st = ST_OK;

    n->u.scope = scope_new(p);
    TRY(parse_advance(p));
    TRY(parse_filters(p, NULL, true, &n->a));
    TRY(parse_body_to(p, "endfilter", &n->b));
    TRY(node_close(p, n));
    *out = n;
out:
    return st;
}

static status parse_with(struct parser *p, struct node **out)
{
    struct node *n = node_new(p, NODE_WITH, p->now.line), *item;
    struct links targets = { NULL, NULL, 0 }, values = { NULL, NULL, 0 };
    status st = ST_OK;

    n->u.scope = scope_new(p);
    TRY(parse_advance(p));
    while (p->now.lexeme != LEX_BLOCK_END) {
        if (targets.n > 0)
            TRY(parse_expect(p, LEX_COMMA));
        TRY(parse_target(p, false, &item));
        links_add(&targets, item);
        TRY(parse_expect(p, LEX_ASSIGN));
        TRY(parse_expression(p, true, &item));
        links_add(&values, item);
    }
    n->a = targets.first;
    n->b = values.first;
    TRY(parse_body_to(p, "endwith", &n->c));
    TRY(node_close(p, n));
    *out = n;
out:
    return st;
}

/* {% generation %} marks what the assistant said, for training: here it is only its body. */
static status parse_generation(struct parser *p, struct node **out)
{
    struct node *n = node_new(p, NODE_SCOPE, p->now.line);
    bool may_break = p->may_break;
    status st = ST_OK;

    n->u.scope = scope_new(p);
    p->may_break = false;
    TRY(parse_advance(p));
    TRY(parse_body_to(p, "endgeneration", &n->a));
    p->may_break = may_break;
    TRY(node_close(p, n));
    *out = n;
out:
    return st;
}

static status parse_print(struct parser *p, struct node **out)
{
    struct links prints = { NULL, NULL, 0 };
    status st = ST_OK;

    TRY(parse_advance(p));
    while (p->now.lexeme != LEX_BLOCK_END) {
        struct node *n = node_new(p, NODE_PRINT, p->now.line);

        if (prints.n > 0)
            TRY(parse_expect(p, LEX_COMMA));
        TRY(parse_expression(p, true, &n->a));
        TRY(node_close(p, n));
        links_add(&prints, n);
    }
    *out = prints.first;
out:
    return st;
}

static status parse_jump(struct parser *p, enum node_kind kind, struct node **out)
{
    if (!p->may_break)
        return parse_fail(p->err, p->now.line, "%s outside of a for", kind == NODE_BREAK ? "break" : "continue");
    *out = node_new(p, kind, p->now.line);
    return parse_advance(p);
}

static status parse_statement(struct parser *p, struct node **out)
{
    static const struct { const char *name; status (*parse)(struct parser *p, struct node **out); } tags[] = {
        { "for", parse_for }, { "if", parse_if }, { "set", parse_set }, { "macro", parse_macro },
        { "call", parse_call_block }, { "filter", parse_filter_block }, { "with", parse_with },
        { "generation", parse_generation }, { "print", parse_print },
    };
    static const char *const refused[] = { "block", "extends", "include", "import", "from", "autoescape", "do" };

    if (p->now.lexeme != LEX_NAME)
        return unexpected(p, "the name of a tag");
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++)
        if (parse_is_name(p, tags[i].name))
            return tags[i].parse(p, out);
    if (parse_is_name(p, "break"))
        return parse_jump(p, NODE_BREAK, out);
    if (parse_is_name(p, "continue"))
        return parse_jump(p, NODE_CONTINUE, out);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (parse_is_name(p, refused[i]))
            return parse_fail(p->err, p->now.line, "the tag '%s' is not supported", refused[i]);
    return parse_fail(p->err, p->now.line, "unknown tag '%.*s'", (int)(p->now.n < 40 ? p->now.n : 40), p->now.text);
}

static bool is_one_of(const struct parser *p, const char *const *ends)
{
    for (; ends != NULL && *ends != NULL; ends++)
        if (parse_is_name(p, *ends))
            return true;
    return false;
}

/* {{ ... }} */
static status parse_output(struct parser *p, struct node **out)
{
    struct node *n = node_new(p, NODE_PRINT, p->now.line);
    status st = ST_OK;

    TRY(parse_advance(p));
    TRY(parse_tuple(p, true, false, &n->a));
    TRY(parse_expect(p, LEX_PRINT_END));
    TRY(node_close(p, n));
    *out = n;
out:
    return st;
}

static struct node *data_node(struct parser *p)
{
    struct node *n = node_new(p, NODE_DATA, p->now.line);
    struct value *v = value_text_borrow(p->arena, p->now.text, p->now.n, TEXT_TRUSTED);

    n->u.value = v;
    return n;
}

/* Data, output and statements up to one of the ends (now is its name); ends NULL: to the end of the template. */
static status parse_until(struct parser *p, const char *const *ends, struct node **out)
{
    struct links body = { NULL, NULL, 0 };
    status st = ST_OK;

    TRY(parse_enter(p));
    for (;;) {
        struct node *n = NULL;

        if (p->now.lexeme == LEX_EOF) {
            if (ends != NULL)
                return parse_fail(p->err, p->now.line, "the template ends where '%s' is missing", ends[0]);
            break;
        }
        if (p->now.lexeme == LEX_DATA) {
            if (p->now.n > 0)
                n = data_node(p);
            TRY(parse_advance(p));
        } else if (p->now.lexeme == LEX_PRINT_BEGIN) {
            TRY(parse_output(p, &n));
        } else {
            TRY(parse_expect(p, LEX_BLOCK_BEGIN));
            if (is_one_of(p, ends))
                break;
            TRY(parse_statement(p, &n));
            TRY(parse_expect(p, LEX_BLOCK_END));
        }
        while (n != NULL) {     /* a print statement is several nodes */
            struct node *next = n->next;

            n->next = NULL;
            links_add(&body, n);
            n = next;
        }
    }
    parse_leave(p);
    *out = body.first;
out:
    return st;
}

status parse_template(struct parser *p)
{
    status st = ST_OK;

    p->loop = name_intern(p, "loop", 4);
    p->caller = name_intern(p, "caller", 6);
    p->kwargs = name_intern(p, "kwargs", 6);
    p->varargs = name_intern(p, "varargs", 7);
    TRY(parse_advance(p));
    TRY(parse_until(p, NULL, &p->t->body));
    p->t->scope = scope_new(p);
    TRY(scope_resolve(p));
out:
    return st;
}
