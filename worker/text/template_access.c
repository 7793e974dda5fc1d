/* Attributes, elements and slices: SandboxedEnvironment.getattr and getitem of jinja2/sandbox.py. An attribute is
 * looked for as a method first and as a key second, a subscript the other way round; what is not there is an undefined
 * value. */
#include <string.h>

#include "worker/text/template_internal.h"

static const struct value *undefined_new(struct run *r, const struct value *object, const struct value *name,
                                         const char *hint)
{
    struct value *v = value_new(r->arena, VALUE_UNDEFINED);

    v->u.undefined = (struct undefined){ .object = object, .name = name, .hint = hint };
    return v;
}

const struct value *undefined_name(struct run *r, const struct value *name)
{
    return undefined_new(r, NULL, name, NULL);
}

const struct value *undefined_hint(struct run *r, const char *hint)
{
    return undefined_new(r, NULL, NULL, hint);
}

const struct value *undefined_of(struct run *r, const struct value *object, const struct value *name)
{
    return undefined_new(r, object, name, NULL);
}

static const struct value *undefined_unsafe(struct run *r, const struct value *object, const struct value *name)
{
    struct value *v = (struct value *)undefined_new(r, object, name, NULL);

    v->u.undefined.unsafe = true;
    return v;
}

/* A value as the error messages show it; cut to what fits. */
static void show(struct run *r, const struct value *v, char *out, size_t size)
{
    struct text_build b;
    size_t at = 0;

    run_build(r, &b);
    if (!repr_build(r, &b, v, 0))
        b.spans_n = 0;
    for (size_t i = 0; i < b.spans_n && at + 1 < size; i++) {
        size_t n = b.spans[i].n < size - 1 - at ? b.spans[i].n : size - 1 - at;

        memcpy(out + at, b.spans[i].text, n);
        at += n;
    }
    out[at] = '\0';
}

const struct value *undefined_fail(struct run *r, const struct value *undefined)
{
    const struct undefined *u = &undefined->u.undefined;
    char name[200], type[64];

    if (u->hint != NULL)
        return run_fail(r, "%s", u->hint);
    show(r, u->name, name, sizeof name);
    if (u->object == NULL)
        return run_fail(r, "%s is undefined", name);
    strcpy(type, type_name(u->object));
    if (u->unsafe)
        return run_fail(r, "access to attribute %s of '%s' object is unsafe.", name, type);
    if (u->object->kind != VALUE_NONE)
        strcat(type, " object");
    if (u->name->kind != VALUE_TEXT)
        return run_fail(r, "%s has no element %s", type, name);
    return run_fail(r, "'%s' has no attribute %s", type, name);
}

/* Methods and attributes. NULL: there is none of this name. */

static const struct value *macro_attr(struct run *r, const struct macro *m, const char *name)
{
    struct value *names;

    if (strcmp(name, "name") == 0)
        return m->spec->name;
    if (strcmp(name, "catch_kwargs") == 0)
        return value_bool(m->spec->uses_kwargs);
    if (strcmp(name, "catch_varargs") == 0)
        return value_bool(m->spec->uses_varargs);
    if (strcmp(name, "caller") == 0)
        return value_bool(m->spec->uses_caller);
    if (strcmp(name, "arguments") != 0)
        return NULL;
    names = value_tuple(r->arena, m->spec->params_n);
    for (const struct node *param = m->spec->params; param != NULL; param = param->next)
        value_list_add(r->arena, names, param->u.var.name->value);
    return names;
}

const struct value *own_attr(struct run *r, const struct value *object, const struct value *name)
{
    const char *text = name->u.text.bytes > 0 ? name->u.text.spans[0].text : "";
    size_t n = name->u.text.bytes;
    const struct builtin *method;
    struct value *v;
    char word[32];

    if (object->kind == VALUE_NAMESPACE)
        return dict_get_text(&object->u.dict, text, n);
    if (n > 4 && memcmp(text, "__", 2) == 0 && memcmp(text + n - 2, "__", 2) == 0)
        return undefined_unsafe(r, object, name);
    if (method_refused(object, text, n))
        return undefined_unsafe(r, object, name);
    if (n < sizeof word && (object->kind == VALUE_LOOP || object->kind == VALUE_MACRO)) {
        memcpy(word, text, n);
        word[n] = '\0';
        return object->kind == VALUE_LOOP ? loop_attr(r, object->u.loop, word) : macro_attr(r, object->u.macro, word);
    }
    method = method_find(object, text, n);
    if (method == NULL)
        return NULL;
    v = value_new(r->arena, VALUE_METHOD);
    v->u.method.self = object;
    v->u.method.builtin = method;
    return v;
}

/* object[key] without the attributes behind it. NULL: a LookupError or TypeError in Python. */
static const struct value *element(struct run *r, const struct value *object, const struct value *key)
{
    const struct list *l = &object->u.list;
    int64_t i, n;

    switch (object->kind) {
    case VALUE_DICT:
        if (!value_key(r->arena, key))
            return NULL;
        return dict_get(&object->u.dict, key);
    case VALUE_LIST:
    case VALUE_TUPLE:
        if (!is_int(key, &i))
            return NULL;
        i += i < 0 ? (int64_t)l->n : 0;
        return i >= 0 && i < (int64_t)l->n ? l->items[i] : NULL;
    case VALUE_TEXT:
        if (!is_int(key, &i))
            return NULL;
        n = text_chars(object);
        i += i < 0 ? n : 0;
        if (i < 0 || i >= n)
            return NULL;
        text_flat(r->arena, object);
        return text_slice(r->arena, object, text_offset(object, i), text_offset(object, i + 1));
    case VALUE_RANGE:
        if (!is_int(key, &i))
            return NULL;
        i += i < 0 ? object->u.range.n : 0;
        return i >= 0 && i < object->u.range.n ? int_of(r, object->u.range.start + i * object->u.range.step) : NULL;
    default:
        return NULL;
    }
}

/* What looking into object by key costs beyond the step of its node: characters are counted, keys compared. */
static bool charge_access(struct run *r, const struct value *object, const struct value *key)
{
    size_t bytes = 0;

    if (object->kind == VALUE_TEXT && key->kind != VALUE_TEXT)
        bytes = object->u.text.bytes;
    else if (object->kind == VALUE_DICT && key->kind == VALUE_TEXT)
        bytes = key->u.text.bytes * DICT_LINEAR_MAX;
    return bytes < 512 || run_charge(r, (int64_t)(bytes >> 9));
}

const struct value *get_attr(struct run *r, const struct value *object, const struct value *name)
{
    const struct value *v;

    if (object->kind == VALUE_UNDEFINED)
        return undefined_fail(r, object);
    v = own_attr(r, object, name);
    if (v == NULL && !r->failed && object->kind == VALUE_DICT)
        v = dict_get_text(&object->u.dict, name->u.text.spans[0].text, name->u.text.bytes);
    return v != NULL || r->failed ? v : undefined_of(r, object, name);
}

const struct value *get_item(struct run *r, const struct value *object, const struct value *key)
{
    const struct value *v;

    if (object->kind == VALUE_UNDEFINED)
        return undefined_fail(r, object);
    if (!charge_access(r, object, key))
        return NULL;
    v = element(r, object, key);
    if (v == NULL && key->kind == VALUE_TEXT) {
        text_flat(r->arena, key);
        v = own_attr(r, object, key);
    }
    return v != NULL || r->failed ? v : undefined_of(r, object, key);
}

/* Slices. */

static bool slice_index(struct run *r, const struct value *v, int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    if (v == NULL || v->kind == VALUE_NONE || is_int(v, out))
        return true;
    run_fail(r, "slice indices must be integers or None");
    return false;
}

/* As PySlice_AdjustIndices: start and stop inside a sequence of n, returns how many items. */
static int64_t slice_adjust(int64_t n, int64_t *start, int64_t *stop, int64_t step)
{
    int64_t *bounds[2] = { start, stop };

    for (int i = 0; i < 2; i++) {
        int64_t *b = bounds[i];

        if (*b < 0) {
            *b = *b < -n ? -1 : *b + n;
            if (*b < 0)
                *b = step < 0 ? -1 : 0;
        } else if (*b >= n) {
            *b = step < 0 ? n - 1 : n;
        }
    }
    if (step < 0)
        return *stop < *start ? (*start - *stop - 1) / -step + 1 : 0;
    return *start < *stop ? (*stop - *start - 1) / step + 1 : 0;
}

static const struct value *slice_text(struct run *r, const struct value *v, int64_t start, int64_t step, int64_t n)
{
    struct text_build b;
    size_t span_i = 0, bytes;
    const char *text;

    if ((text = run_flat(r, v, &bytes)) == NULL)
        return NULL;
    if (step == 1)
        return text_slice(r->arena, v, text_offset(v, start), text_offset(v, start + n));
    run_build(r, &b);
    for (int64_t i = 0; i < n; i++) {
        size_t at = text_offset(v, start + i * step), end = at + 1;

        /* Finding a character of a text that is not ASCII walks from its nearer end. */
        if (!run_charge(r, 1 + (text_chars(v) == (int64_t)v->u.text.bytes ? 0 : (int64_t)(v->u.text.bytes >> 9))))
            return NULL;
        while (end < v->u.text.bytes && ((unsigned char)text[end] & 0xc0) == 0x80)
            end++;
        text_build_part(&b, v, at, end, &span_i);
    }
    return run_build_end(r, &b);
}

static const struct value *slice_list(struct run *r, const struct value *v, int64_t start, int64_t step, int64_t n)
{
    struct value *out;

    if (!run_charge(r, n / 16) || !run_room(r, (size_t)n * sizeof v->u.list.items[0]))
        return NULL;
    out = value_tuple(r->arena, (size_t)n);
    out->kind = v->kind;
    for (int64_t i = 0; i < n; i++)
        value_list_add(r->arena, out, v->u.list.items[start + i * step]);
    return out;
}

const struct value *get_slice(struct run *r, const struct value *object, const struct value *start,
                              const struct value *stop, const struct value *step)
{
    bool sliceable = object->kind == VALUE_TEXT || object->kind == VALUE_LIST || object->kind == VALUE_TUPLE
                     || object->kind == VALUE_RANGE;
    int64_t from, to, by, n;
    struct value *v;

    if (object->kind == VALUE_UNDEFINED)
        return undefined_fail(r, object);
    if (!sliceable)
        return run_fail(r, "'%s' object cannot be sliced", type_name(object));
    if (!slice_index(r, step, 1, &by))
        return NULL;
    if (by == 0)
        return run_fail(r, "slice step cannot be zero");
    if (by < -INT64_MAX)
        by = -INT64_MAX;
    if (!slice_index(r, start, by < 0 ? INT64_MAX : 0, &from)
        || !slice_index(r, stop, by < 0 ? INT64_MIN : INT64_MAX, &to))
        return NULL;
    if ((n = length(r, object)) < 0)
        return NULL;
    n = slice_adjust(n, &from, &to, by);
    if (object->kind == VALUE_TEXT)
        return slice_text(r, object, from, by, n);
    if (object->kind != VALUE_RANGE)
        return slice_list(r, object, from, by, n);
    v = value_new(r->arena, VALUE_RANGE);
    v->u.range.start = object->u.range.start + from * object->u.range.step;
    if (__builtin_mul_overflow(object->u.range.step, by, &v->u.range.step))
        v->u.range.step = object->u.range.step;     /* one item at most: the step is never taken */
    if (__builtin_mul_overflow(to, object->u.range.step, &v->u.range.stop)
        || __builtin_add_overflow(v->u.range.stop, object->u.range.start, &v->u.range.stop))
        v->u.range.stop = object->u.range.stop;
    v->u.range.n = n;
    return v;
}

/* Paths: make_attrgetter of jinja2/filters.py. */

static bool all_digits(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return n > 0 && n < 18;
}

static const struct value *path_part(struct run *r, const char *text, size_t n)
{
    int64_t i = 0;

    if (!all_digits(text, n))
        return value_text_borrow(r->arena, text, n, TEXT_PLAIN);
    for (size_t k = 0; k < n; k++)
        i = i * 10 + (text[k] - '0');
    return int_of(r, i);
}

const struct value *get_path(struct run *r, const struct value *object, const struct value *attribute,
                             const struct value *otherwise)
{
    const char *text, *end, *dot;
    size_t n;

    if (attribute == NULL || attribute->kind == VALUE_NONE)
        return object;
    if (attribute->kind != VALUE_TEXT) {
        object = get_item(r, object, attribute);
        return object != NULL && object->kind == VALUE_UNDEFINED && otherwise != NULL ? otherwise : object;
    }
    if ((text = run_flat(r, attribute, &n)) == NULL)
        return NULL;
    for (end = text + n; object != NULL; text = dot + 1) {
        dot = memchr(text, '.', (size_t)(end - text));
        if (!run_charge(r, 1))
            return NULL;
        object = get_item(r, object, path_part(r, text, (size_t)((dot != NULL ? dot : end) - text)));
        if (object != NULL && object->kind == VALUE_UNDEFINED && otherwise != NULL)
            object = otherwise;
        if (dot == NULL)
            break;
    }
    return object;
}
