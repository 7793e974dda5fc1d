/* Iteration: sequences, the generators that filters make (consumed once and lazily, as in Python), and loop. */
#include <string.h>

#include "worker/text/template_internal.h"

bool can_iterate(const struct value *v)
{
    switch (v->kind) {
    case VALUE_UNDEFINED:
    case VALUE_TEXT:
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT:
    case VALUE_RANGE:
    case VALUE_VIEW:
    case VALUE_ITER:
    case VALUE_LOOP:
        return true;
    default:
        return false;
    }
}

bool can_reverse(const struct value *v)
{
    return can_iterate(v) && v->kind != VALUE_ITER && v->kind != VALUE_LOOP && v->kind != VALUE_UNDEFINED;
}

bool iter_open(struct run *r, struct iter *it, const struct value *v)
{
    memset(it, 0, sizeof *it);
    it->over = v;
    switch (v->kind) {
    case VALUE_UNDEFINED:
        it->kind = ITER_EMPTY;
        return true;
    case VALUE_LIST:
    case VALUE_TUPLE:
        it->kind = ITER_LIST;
        it->n = (int64_t)v->u.list.n;
        return true;
    case VALUE_TEXT:
        it->kind = ITER_TEXT;
        it->n = text_chars(v);
        return run_flat(r, v, &it->byte) != NULL && (it->byte = 0, true);
    case VALUE_RANGE:
        it->kind = ITER_RANGE;
        it->n = v->u.range.n;
        return true;
    case VALUE_DICT:
    case VALUE_VIEW:
        it->kind = ITER_DICT;
        it->over = v->kind == VALUE_DICT ? v : v->u.view.dict;
        it->view = v->kind == VALUE_DICT ? VIEW_KEYS : v->u.view.kind;
        it->n = (int64_t)it->over->u.dict.n;
        return true;
    case VALUE_ITER:
        it->kind = ITER_SHARED;
        it->source = v->u.iter;
        it->depth = v->u.iter->depth;
        return true;
    case VALUE_LOOP:
        it->kind = ITER_LOOP;
        return true;
    default:
        run_fail(r, "'%s' object is not iterable", type_name(v));
        return false;
    }
}

struct iter *iter_new(struct run *r, enum iter_kind kind, const struct value *v)
{
    struct iter *it = arena_take_zero(r->arena, 1, sizeof *it);

    it->source = arena_take_zero(r->arena, 1, sizeof *it);
    it->source->kind = ITER_FAIL;
    it->source->over = v;
    if (can_iterate(v) && !iter_open(r, it->source, v))
        return NULL;
    it->kind = kind;
    it->depth = it->source->depth + 1;
    return it;
}

const struct value *iter_value(struct run *r, struct iter *it)
{
    struct value *v = value_new(r->arena, VALUE_ITER);

    v->u.iter = it;
    return v;
}

static const struct value *dict_item(struct run *r, const struct iter *it, int64_t i)
{
    const struct dict_entry *e = &it->over->u.dict.entries[i];
    struct value *pair;

    if (it->view != VIEW_ITEMS)
        return it->view == VIEW_KEYS ? e->key : e->item;
    pair = value_tuple(r->arena, 2);
    value_list_add(r->arena, pair, e->key);
    value_list_add(r->arena, pair, e->item);
    return pair;
}

static const struct value *next_char(struct run *r, struct iter *it)
{
    const char *text = it->over->u.text.spans[0].text;
    size_t n = it->over->u.text.bytes, from, to;

    if (!it->reverse) {
        from = it->byte;
        for (to = from + 1; to < n && ((unsigned char)text[to] & 0xc0) == 0x80; to++)
            ;
        it->byte = to;
    } else {
        to = n - it->byte;
        for (from = to - 1; ((unsigned char)text[from] & 0xc0) == 0x80; from--)
            ;
        it->byte = n - from;
    }
    return text_slice(r->arena, it->over, from, to);
}

static const struct value *next_plain(struct run *r, struct iter *it)
{
    int64_t i = it->reverse ? it->n - 1 - it->at : it->at;

    it->at++;
    switch (it->kind) {
    case ITER_LIST: return it->over->u.list.items[i];
    case ITER_TEXT: return next_char(r, it);
    case ITER_RANGE: return int_of(r, it->over->u.range.start + i * it->over->u.range.step);
    default: return dict_item(r, it, i);
    }
}

static int select_item(struct run *r, const struct iter *it, const struct value *item)
{
    const struct value *v = it->by_attribute ? get_path(r, item, it->attribute, NULL) : item;

    if (v != NULL && it->builtin != NULL)
        v = builtin_call(r, it->builtin, v, it->args);
    return v == NULL ? -1 : truth(r, v) != it->negate;
}

static int unique_item(struct run *r, const struct iter *it, const struct value *item)
{
    const struct value *key = get_path(r, item, it->attribute, NULL);

    if (key != NULL && key->kind == VALUE_TEXT && !it->case_sensitive)
        key = text_case(r, key, STYLE_LOWER);
    if (key == NULL || !run_key(r, key))
        return -1;
    if (dict_get(&it->seen->u.dict, key) != NULL)
        return 0;
    dict_set(r->arena, &it->seen->u.dict, key, value_none());
    return 1;
}

static const struct value *map_item(struct run *r, const struct iter *it, const struct value *item)
{
    return it->builtin != NULL ? builtin_call(r, it->builtin, item, it->args)
                               : get_path(r, item, it->attribute, it->otherwise);
}

static int next_batch(struct run *r, struct iter *it, const struct value **out)
{
    struct value *list = value_list(r->arena);
    const struct value *item;
    int got = 1;

    while ((int64_t)list->u.list.n < it->n && (got = iter_next(r, it->source, &item)) == 1)
        value_list_add(r->arena, list, item);
    if (got < 0 || list->u.list.n == 0)
        return got < 0 ? got : 0;
    while (it->otherwise != NULL && (int64_t)list->u.list.n < it->n) {
        if (!run_charge(r, 1))
            return -1;
        value_list_add(r->arena, list, it->otherwise);
    }
    *out = list;
    return 1;
}

/* The next item of the source that passes. */
static int next_derived(struct run *r, struct iter *it, const struct value **out)
{
    int got, pass = 0;

    if (it->kind == ITER_BATCH)
        return next_batch(r, it, out);
    while ((got = iter_next(r, it->source, out)) == 1) {
        switch (it->kind) {
        case ITER_SHARED:
            return 1;
        case ITER_MAP:
            *out = map_item(r, it, *out);
            return *out != NULL ? 1 : -1;
        case ITER_SELECT:
            pass = select_item(r, it, *out);
            break;
        case ITER_UNIQUE:
            pass = unique_item(r, it, *out);
            break;
        default:
            pass = for_test(r, it, out);
        }
        if (pass != 0)
            return pass;
    }
    return got;
}

/* A loop that is iterated goes on by itself: pairs of an item and the loop. */
static int next_of_loop(struct run *r, const struct value *loop, const struct value **out)
{
    struct value *pair;
    int got = loop_next(r, loop->u.loop, out);

    if (got != 1)
        return got;
    pair = value_tuple(r->arena, 2);
    value_list_add(r->arena, pair, *out);
    value_list_add(r->arena, pair, loop);
    *out = pair;
    return 1;
}

int iter_next(struct run *r, struct iter *it, const struct value **out)
{
    int got;

    if (!run_charge(r, 1))
        return -1;
    if (it->kind == ITER_FAIL) {
        run_fail(r, "'%s' object is not iterable", type_name(it->over));
        return -1;
    }
    if (it->kind == ITER_LOOP)
        return next_of_loop(r, it->over, out);
    if (it->source == NULL) {
        if (it->at >= it->n)
            return 0;
        *out = next_plain(r, it);
        return *out != NULL ? 1 : -1;
    }
    /* Generators may stand on generators, and their filters on others: as deep as nodes, and no deeper. */
    if (++r->depth > RUN_DEPTH_MAX || it->depth > VALUE_DEPTH_MAX) {
        run_fail(r, "generators nested too deeply");
        return -1;
    }
    got = next_derived(r, it, out);
    r->depth--;
    return got;
}

struct value *list_of(struct run *r, const struct value *v)
{
    struct value *list = value_list(r->arena);
    const struct value *item;
    struct iter it;
    int got;

    if (!iter_open(r, &it, v))
        return NULL;
    while ((got = iter_next(r, &it, &item)) == 1)
        value_list_add(r->arena, list, item);
    return got < 0 ? NULL : list;
}

/* loop: LoopContext of jinja2/runtime.py. */

int loop_next(struct run *r, struct loop *l, const struct value **out)
{
    int got = 1;

    if (l->after != NULL) {
        *out = l->after;
        l->after = NULL;
    } else {
        got = l->ended ? 0 : iter_next(r, l->iter, out);
    }
    if (got != 1)
        return got;
    l->index0++;
    l->before = l->now;
    l->now = *out;
    return 1;
}

/* The item after this one; 0: there is none. */
static int loop_peek(struct run *r, struct loop *l)
{
    int got;

    if (l->after != NULL)
        return 1;
    if (l->ended)
        return 0;
    got = iter_next(r, l->iter, &l->after);
    l->ended = got == 0;
    if (got != 1)
        l->after = NULL;
    return got;
}

int64_t loop_length(struct run *r, struct loop *l)
{
    const struct value *rest, *item;
    struct value *list;
    int got;

    if (l->length >= 0)
        return l->length;
    if (l->over != NULL && l->over->kind != VALUE_ITER)
        return l->length = length(r, l->over);
    /* No size known: everything is fetched now, as list() does, and iterated from there. */
    list = value_list(r->arena);
    while ((got = l->ended ? 0 : iter_next(r, l->iter, &item)) == 1)
        value_list_add(r->arena, list, item);
    if (got < 0)
        return -1;
    rest = list;
    l->ended = false;
    if (!iter_open(r, l->iter, rest))
        return -1;
    return l->length = (int64_t)list->u.list.n + l->index0 + 1 + (l->after != NULL);
}

static const struct value *loop_count(struct run *r, struct loop *l, int64_t minus)
{
    int64_t n = loop_length(r, l);

    return n < 0 ? NULL : int_of(r, n - minus);
}

static const struct value *loop_method(struct run *r, const struct loop *l, const char *name)
{
    const struct builtin *method = method_find(l->self, name, strlen(name));
    struct value *v;

    if (method == NULL)
        return NULL;
    v = value_new(r->arena, VALUE_METHOD);
    v->u.method.self = l->self;
    v->u.method.builtin = method;
    return v;
}

const struct value *loop_attr(struct run *r, struct loop *l, const char *name)
{
    int more;

    if (strcmp(name, "index0") == 0)
        return int_of(r, l->index0);
    if (strcmp(name, "index") == 0)
        return int_of(r, l->index0 + 1);
    if (strcmp(name, "first") == 0)
        return value_bool(l->index0 == 0);
    if (strcmp(name, "length") == 0)
        return loop_count(r, l, 0);
    if (strcmp(name, "revindex") == 0)
        return loop_count(r, l, l->index0);
    if (strcmp(name, "revindex0") == 0)
        return loop_count(r, l, l->index0 + 1);
    if (strcmp(name, "depth") == 0 || strcmp(name, "depth0") == 0)
        return int_of(r, name[5] == '\0');
    if (strcmp(name, "previtem") == 0)
        return l->index0 == 0 ? undefined_hint(r, "there is no previous item") : l->before;
    if (strcmp(name, "last") != 0 && strcmp(name, "nextitem") != 0)
        return loop_method(r, l, name);
    more = loop_peek(r, l);
    if (more < 0)
        return NULL;
    if (name[0] == 'l')
        return value_bool(!more);
    return more ? l->after : undefined_hint(r, "there is no next item");
}
