#include "worker/text/template.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "worker/text/template_internal.h"

enum { ARENA_BLOCK = 16384, MEMORY_MIN = 1 << 20 };

status template_open(const char *source, size_t n, struct template **out, struct error *err)
{
    struct template *t;
    struct parser *p;
    status st = ST_OK;

    *out = NULL;
    if (n > SOURCE_BYTES_MAX)
        return error_set(err, ST_REJECT, "the chat template has %zu bytes, at most %d are taken", n, SOURCE_BYTES_MAX);
    if (utf8_valid(source, n) != n)
        return error_set(err, ST_REJECT, "the chat template is not UTF-8 at byte %zu", utf8_valid(source, n));
    t = mem_take_zero(1, sizeof *t);
    p = mem_take_zero(1, sizeof *p);
    arena_init(&t->arena, ARENA_BLOCK);
    p->t = t;
    p->arena = &t->arena;
    p->err = err;
    lex_open(&p->lexer, p->arena, source, n, err);
    TRY(parse_template(p));
    *out = t;
    t = NULL;
out:
    free(p);
    template_close(t);
    return st;
}

void template_close(struct template *t)
{
    if (t == NULL)
        return;
    arena_fini(&t->arena);
    free(t);
}

const struct value *run_fail(struct run *r, const char *fmt, ...)
{
    char cause[768];
    va_list ap;

    if (r->failed)
        return NULL;
    r->failed = true;
    va_start(ap, fmt);
    vsnprintf(cause, sizeof cause, fmt, ap);
    va_end(ap);
    error_set(r->err, ST_REJECT, "chat template line %d: %s", (int)r->line, cause);
    return NULL;
}

bool run_exhausted(struct run *r)
{
    run_fail(r, "the template takes more %s than it may", r->steps < 0 ? "steps" : "memory");
    return false;
}

bool run_room(struct run *r, size_t bytes)
{
    if (r->arena->taken_bytes > r->taken_max || bytes > r->taken_max - r->arena->taken_bytes) {
        run_fail(r, "the template takes more memory than it may");
        return false;
    }
    return true;
}

bool run_search(struct run *r, size_t n, size_t m)
{
    return run_charge(r, (int64_t)(n >> 9) * (m > 256 ? 1 : 1 + (int64_t)(m / 32)));
}

bool run_key(struct run *r, const struct value *v)
{
    if (!value_key(r->arena, v)) {
        run_fail(r, "unhashable type: '%s'", type_name(v));
        return false;
    }
    return v->kind != VALUE_TEXT || v->u.text.bytes < 64 || run_charge(r, (int64_t)(v->u.text.bytes >> 6));
}

bool run_fits(struct run *r, size_t bytes, size_t more)
{
    if (bytes <= r->text_max && more <= r->text_max - bytes)
        return true;
    run_fail(r, "the template makes a text of more than %zu bytes", r->text_max);
    return false;
}

void run_build(struct run *r, struct text_build *b)
{
    *b = (struct text_build){ .arena = r->arena, .bytes_max = r->text_max, .taken_max = r->taken_max };
}

const struct value *run_build_end(struct run *r, struct text_build *b)
{
    const struct value *v = text_build_end(b);

    if (v == NULL)
        return run_fail(r, "the template makes a text of more than %zu bytes", r->text_max);
    return v;
}

/* The names that no frame of the template assigns: the caller's variables first, then the built-in functions. */
static void globals_set(struct run *r, const struct value *variables)
{
    const struct template *t = r->t;

    r->globals = arena_take(r->arena, t->globals_n * sizeof r->globals[0]);
    for (size_t i = 0; i < t->globals_n; i++) {
        const struct name *name = t->globals[i];
        const struct builtin *function;

        r->globals[i] = dict_get_text(&variables->u.dict, name->text, name->n);
        if (r->globals[i] == NULL && (function = function_find(name->text, name->n)) != NULL) {
            struct value *v = value_new(r->arena, VALUE_FUNCTION);

            v->u.function = function;
            r->globals[i] = v;
        }
    }
}

status template_render(const struct template *t, const struct value *variables, const struct template_limits *limits,
                       struct arena *a, struct text_span **spans, size_t *spans_n, struct error *err)
{
    size_t memory = limits->memory_bytes_max;
    struct activation act = { NULL, NULL };
    struct text_build out;
    struct run r = { .t = t, .arena = a, .err = err, .line = 1, .steps = limits->steps_max, .act = &act, .out = &out };

    *spans = NULL;
    *spans_n = 0;
    ASSERT(variables->kind == VALUE_DICT);
    if (memory == 0)
        memory = limits->output_bytes_max > SIZE_MAX / 8 ? SIZE_MAX / 2 : 4 * limits->output_bytes_max + MEMORY_MIN;
    r.text_max = limits->output_bytes_max;
    r.taken_max = memory > SIZE_MAX - a->taken_bytes ? SIZE_MAX : a->taken_bytes + memory;
    r.now_ns = limits->now_ns != 0 ? limits->now_ns : clock_wall_ns();
    run_build(&r, &out);
    globals_set(&r, variables);
    act.slots = arena_take_zero(a, t->slots_n, sizeof act.slots[0]);
    scope_enter(&r, t->scope);
    if (exec(&r, t->body) == FLOW_FAILED)
        return ST_REJECT;
    if (out.over) {
        run_fail(&r, "the output has more than %zu bytes", limits->output_bytes_max);
        return ST_REJECT;
    }
    *spans = out.spans;
    *spans_n = out.spans_n;
    return ST_OK;
}
