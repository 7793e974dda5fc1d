/* Calls: arguments, built-in functions, macros (Macro of jinja2/runtime.py). */
#include <string.h>

#include "worker/text/template_internal.h"

static bool too_many(struct run *r)
{
    run_fail(r, "more than %d arguments in a call", ARGS_MAX - 1);
    return false;
}

static bool star_args(struct run *r, const struct node *star, struct args *out)
{
    const struct value *v = eval(r, star), *item;
    struct iter it;
    int got;

    if (v == NULL || !iter_open(r, &it, v))
        return false;
    while ((got = iter_next(r, &it, &item)) == 1) {
        if (out->pos_n >= ARGS_MAX - 1)
            return too_many(r);
        out->pos[out->pos_n++] = item;
    }
    return got == 0;
}

static bool star_star_args(struct run *r, const struct node *star_star, struct args *out)
{
    const struct value *v = eval(r, star_star);

    if (v == NULL)
        return false;
    if (v->kind != VALUE_DICT) {
        run_fail(r, "argument after ** must be a mapping, not %s", type_name(v));
        return false;
    }
    for (size_t i = 0; i < v->u.dict.n; i++) {
        const struct dict_entry *e = &v->u.dict.entries[i];

        if (e->key->kind != VALUE_TEXT) {
            run_fail(r, "keywords must be strings");
            return false;
        }
        if (out->keys_n >= ARGS_MAX - 1)
            return too_many(r);
        for (size_t k = 0; k < out->keys_n; k++)
            if (value_equal(out->key[k], e->key, &r->steps) != 0) {
                run_fail(r, "a call got several values for one keyword argument");
                return false;
            }
        out->key[out->keys_n] = e->key;
        out->item[out->keys_n++] = e->item;
    }
    return true;
}

/* One place is left free for the caller of a call block. */
bool args_eval(struct run *r, const struct call_spec *c, struct args *out)
{
    out->pos_n = out->keys_n = 0;
    for (const struct node *arg = c->args; arg != NULL; arg = arg->next) {
        const struct value *v = eval(r, arg);

        if (v == NULL)
            return false;
        out->pos[out->pos_n++] = v;
    }
    for (const struct keyword *k = c->keywords; k != NULL; k = k->next) {
        const struct value *v = eval(r, k->value);

        if (v == NULL)
            return false;
        out->key[out->keys_n] = k->name;
        out->item[out->keys_n++] = v;
    }
    return (c->star == NULL || star_args(r, c->star, out))
           && (c->star_star == NULL || star_star_args(r, c->star_star, out));
}

/* args->keys_n: there is no such keyword. */
static size_t keyword_index(const struct args *args, const char *name, size_t n)
{
    size_t i = 0;

    for (; i < args->keys_n; i++) {
        const struct text *t = &args->key[i]->u.text;

        if (t->bytes == n && n > 0 && memcmp(t->spans[0].text, name, n) == 0)
            break;
    }
    return i;
}

static const struct value *keyword_find(const struct args *args, const char *name, size_t n)
{
    size_t i = keyword_index(args, name, n);

    return i < args->keys_n ? args->item[i] : NULL;
}

/* Takes a keyword out of args; NULL: it is not there. */
static const struct value *keyword_pop(struct args *args, const char *name, size_t n)
{
    size_t i = keyword_index(args, name, n);
    const struct value *v;

    if (i == args->keys_n)
        return NULL;
    v = args->item[i];
    args->keys_n--;
    memmove(args->key + i, args->key + i + 1, (args->keys_n - i) * sizeof args->key[0]);
    memmove(args->item + i, args->item + i + 1, (args->keys_n - i) * sizeof args->item[0]);
    return v;
}

const struct value *builtin_call(struct run *r, const struct builtin *f, const struct value *self,
                                 const struct args *args)
{
    struct bound b = { .self = self, .all = args };
    bool optional = false, any = false, named = f->params[0] != '/';
    size_t given = 0, i = 0;

    for (const char *p = f->params + !named; *p != '\0'; i++) {
        size_t n;

        optional |= *p == '?';
        p += *p == '?';
        if ((any = *p == '*'))
            break;
        n = strcspn(p, ",?*");
        ASSERT(i < sizeof b.arg / sizeof b.arg[0]);
        if (i < args->pos_n)
            b.arg[i] = args->pos[i];
        else if (named && (b.arg[i] = keyword_find(args, p, n)) != NULL)
            given++;
        else if (!optional)
            return run_fail(r, "%s needs the argument '%.*s'", f->name, (int)n, p);
        p += n + (p[n] == ',');
    }
    if (!any && args->pos_n > i)
        return run_fail(r, "%s takes %zu arguments at most, %zu were given", f->name, i, args->pos_n);
    if (!any && given != args->keys_n)
        return run_fail(r, "%s got a keyword argument that it does not know, or knows already", f->name);
    return f->call(r, &b);
}

const struct value *macro_value(struct run *r, const struct macro_spec *spec)
{
    struct macro *m = arena_take(r->arena, sizeof *m);
    struct value *v = value_new(r->arena, VALUE_MACRO);

    m->spec = spec;
    m->outer = r->act;
    v->u.macro = m;
    return v;
}

static const struct value *rest_of(struct run *r, const struct args *args, size_t from)
{
    struct value *v = value_tuple(r->arena, args->pos_n > from ? args->pos_n - from : 0);

    for (size_t i = from; i < args->pos_n; i++)
        value_list_add(r->arena, v, args->pos[i]);
    return v;
}

static const struct value *keywords_of(struct run *r, const struct args *args)
{
    struct value *v = value_dict(r->arena);

    for (size_t i = 0; i < args->keys_n; i++)
        dict_set(r->arena, &v->u.dict, args->key[i], args->item[i]);
    return v;
}

/* The arguments into the slots of the new activation; a parameter that is not given stays NULL. */
static bool macro_bind(struct run *r, const struct macro_spec *m, struct args *args, const struct value **slots)
{
    const struct node *param = m->params;
    bool found_caller = m->caller_param && args->pos_n >= m->params_n;
    const struct value *v;
    size_t i = 0;

    for (; param != NULL; param = param->next, i++) {
        const struct name *name = param->u.var.name;

        slots[param->u.var.slot] = i < args->pos_n ? args->pos[i] : keyword_pop(args, name->text, name->n);
        found_caller |= i >= args->pos_n && text_is(name->value, "caller");
    }
    if (m->uses_caller && !found_caller) {
        v = keyword_pop(args, "caller", 6);
        slots[m->caller_slot] = v != NULL && v->kind != VALUE_NONE ? v : undefined_hint(r, "No caller defined");
    }
    if (m->uses_kwargs) {
        slots[m->kwargs_slot] = keywords_of(r, args);
    } else if (args->keys_n > 0) {
        run_fail(r, "a macro got a keyword argument that it does not take");
        return false;
    }
    if (m->uses_varargs) {
        slots[m->varargs_slot] = rest_of(r, args, m->params_n);
    } else if (args->pos_n > m->params_n) {
        run_fail(r, "a macro takes not more than %zu argument(s)", m->params_n);
        return false;
    }
    return true;
}

/* Defaults are evaluated inside the macro, from the left: a later one sees the earlier parameters. */
static bool macro_defaults(struct run *r, const struct macro_spec *m)
{
    const struct node *param = m->params;

    for (size_t i = 0; param != NULL; param = param->next, i++) {
        const struct value **slot = &r->act->slots[param->u.var.slot];

        if (*slot != NULL)
            continue;
        *slot = m->defaults[i] != NULL ? eval(r, m->defaults[i])
                                       : undefined_hint(r, "a parameter of a macro was not provided");
        if (*slot == NULL)
            return false;
    }
    return true;
}

static const struct value *macro_call(struct run *r, const struct macro *m, struct args *args)
{
    struct activation act = { m->outer, NULL }, *kept, *caller = r->act;
    const struct value *v = NULL;
    enum flow flow;

    if (!run_charge(r, 1 + m->spec->slots_n / 16))
        return NULL;
    act.slots = arena_take_zero(r->arena, m->spec->slots_n, sizeof act.slots[0]);
    if (!macro_bind(r, m->spec, args, act.slots))
        return NULL;
    kept = arena_take(r->arena, sizeof *kept);      /* a macro defined inside may outlive the call */
    *kept = act;
    r->act = kept;
    scope_enter(r, m->spec->scope);
    if (macro_defaults(r, m->spec))
        v = exec_capture(r, m->spec->body, &flow);
    r->act = caller;
    return v;
}

const struct value *value_call(struct run *r, const struct value *f, struct args *args)
{
    switch (f->kind) {
    case VALUE_MACRO:
        return macro_call(r, f->u.macro, args);
    case VALUE_FUNCTION:
        return builtin_call(r, f->u.function, NULL, args);
    case VALUE_METHOD:
        return builtin_call(r, f->u.method.builtin, f->u.method.self, args);
    case VALUE_UNDEFINED:
        return undefined_fail(r, f);
    default:
        return run_fail(r, "'%s' object is not callable", type_name(f));
    }
}
