/* Filters on sequences: jinja2/filters.py. Those that Python makes generators of stay lazy: they are consumed once, and
 * an error in an item that nobody asks for is no error. */
#include <string.h>

#include "worker/text/template_filters.h"

static bool is_none(const struct value *v)
{
    return v == NULL || v->kind == VALUE_NONE;
}

const struct value *filter_join(struct run *r, const struct bound *b)
{
    const struct value *between = b->arg[0] != NULL ? text_of(r, b->arg[0]) : value_empty_text();

    return between == NULL ? NULL : text_join(r, between, b->self, false, is_none(b->arg[1]) ? NULL : b->arg[1]);
}

const struct value *filter_first(struct run *r, const struct bound *b)
{
    const struct value *item;
    struct iter it;
    int got;

    if (!iter_open(r, &it, b->self))
        return NULL;
    got = iter_next(r, &it, &item);
    return got < 0 ? NULL : got ? item : undefined_hint(r, "No first item, sequence was empty.");
}

const struct value *filter_last(struct run *r, const struct bound *b)
{
    const struct value *item;
    struct iter it;
    int got;

    if (b->self->kind != VALUE_UNDEFINED && !can_reverse(b->self))
        return run_fail(r, "'%s' object is not reversible", type_name(b->self));
    if (!iter_open(r, &it, b->self))
        return NULL;
    it.reverse = true;
    got = iter_next(r, &it, &item);
    return got < 0 ? NULL : got ? item : undefined_hint(r, "No last item, sequence was empty.");
}

const struct value *filter_list(struct run *r, const struct bound *b)
{
    return list_of(r, b->self);
}

const struct value *filter_items(struct run *r, const struct bound *b)
{
    struct value *view;
    struct iter *it;

    it = arena_take_zero(r->arena, 1, sizeof *it);
    if (b->self->kind == VALUE_DICT) {
        view = value_new(r->arena, VALUE_VIEW);
        view->u.view.dict = b->self;
        view->u.view.kind = VIEW_ITEMS;
        return iter_open(r, it, view) ? iter_value(r, it) : NULL;
    }
    it->kind = b->self->kind == VALUE_UNDEFINED ? ITER_EMPTY : ITER_FAIL;
    it->over = b->self;
    return iter_value(r, it);
}

static const struct value *reverse_text(struct run *r, const struct value *v)
{
    struct text_build out;
    struct iter it;
    const struct value *item;
    int got;

    if (!iter_open(r, &it, v))
        return NULL;
    it.reverse = true;
    run_build(r, &out);
    while ((got = iter_next(r, &it, &item)) == 1 && !out.over)
        text_build_copy(&out, item->u.text.spans[0].text, item->u.text.bytes, item->u.text.spans[0].trust);
    return got < 0 ? NULL : run_build_end(r, &out);
}

const struct value *filter_reverse(struct run *r, const struct bound *b)
{
    const struct value *v = b->self;
    struct value *list;
    struct iter *it;

    if (v->kind == VALUE_TEXT)
        return reverse_text(r, v);
    if (v->kind == VALUE_ITER || v->kind == VALUE_LOOP) {      /* reversed() cannot: a list, turned round */
        if ((list = list_of(r, v)) == NULL)
            return NULL;
        for (size_t i = 0, n = list->u.list.n; i + 1 < n - i; i++) {
            const struct value *item = list->u.list.items[i];

            list->u.list.items[i] = list->u.list.items[n - 1 - i];
            list->u.list.items[n - 1 - i] = item;
        }
        return list;
    }
    it = arena_take_zero(r->arena, 1, sizeof *it);
    if (!iter_open(r, it, v))
        return NULL;
    it->reverse = true;
    return iter_value(r, it);
}

/* map, select ... */

static const struct value *nothing(struct run *r)
{
    struct iter *it = arena_take_zero(r->arena, 1, sizeof *it);

    it->kind = ITER_EMPTY;
    return iter_value(r, it);
}

/* The arguments behind the first `used` ones, kept for as long as the generator lives. */
static struct args *args_rest(struct run *r, const struct args *all, size_t used)
{
    struct args *rest = arena_take(r->arena, sizeof *rest);

    *rest = *all;
    rest->pos_n = all->pos_n - used;
    memmove(rest->pos, all->pos + used, rest->pos_n * sizeof rest->pos[0]);
    return rest;
}

/* The filter or test that is named by a value. */
static bool builtin_named(struct run *r, const struct value *name, bool filter, const struct builtin **out)
{
    const char *text;
    size_t n = 0;

    *out = NULL;
    if (name->kind == VALUE_TEXT) {
        if ((text = run_flat(r, name, &n)) == NULL)
            return false;
        *out = filter ? filter_find(text, n) : test_find(text, n);
    }
    if (*out == NULL) {
        text = name->kind == VALUE_TEXT ? text_flat(r->arena, name) : type_name(name);
        n = name->kind == VALUE_TEXT ? n : strlen(text);
        run_fail(r, "no %s named '%.*s'", filter ? "filter" : "test", (int)(n < 60 ? n : 60), text);
    }
    return *out != NULL;
}

/* attribute= and default= of map. */
static bool map_attribute(struct run *r, const struct args *args, struct iter *it)
{
    for (size_t i = 0; i < args->keys_n; i++) {
        if (text_is(args->key[i], "attribute")) {
            it->attribute = args->item[i];
        } else if (text_is(args->key[i], "default")) {
            it->otherwise = is_none(args->item[i]) ? NULL : args->item[i];
        } else {
            run_fail(r, "map: unexpected keyword argument");
            return false;
        }
    }
    if (it->attribute == NULL)
        run_fail(r, "map requires a filter argument");
    return it->attribute != NULL;
}

const struct value *filter_map(struct run *r, const struct bound *b)
{
    struct iter *it;

    if (!truth(r, b->self))
        return nothing(r);
    if ((it = iter_new(r, ITER_MAP, b->self)) == NULL)
        return NULL;
    if (b->all->pos_n == 0)
        return map_attribute(r, b->all, it) ? iter_value(r, it) : NULL;
    if (!builtin_named(r, b->all->pos[0], true, &it->builtin))
        return NULL;
    it->args = args_rest(r, b->all, 1);
    return iter_value(r, it);
}

static const struct value *filter_some(struct run *r, const struct bound *b, bool by_attribute, bool negate)
{
    size_t used = by_attribute;
    struct iter *it;

    if (!truth(r, b->self))
        return nothing(r);
    if ((it = iter_new(r, ITER_SELECT, b->self)) == NULL)
        return NULL;
    if (by_attribute && b->all->pos_n == 0)
        return run_fail(r, "Missing parameter for attribute name");
    it->by_attribute = by_attribute;
    it->attribute = by_attribute ? b->all->pos[0] : NULL;
    it->negate = negate;
    if (b->all->pos_n > used) {
        if (!builtin_named(r, b->all->pos[used], false, &it->builtin))
            return NULL;
        it->args = args_rest(r, b->all, used + 1);
    }
    return iter_value(r, it);
}

const struct value *filter_select(struct run *r, const struct bound *b)
{
    return filter_some(r, b, false, false);
}

const struct value *filter_reject(struct run *r, const struct bound *b)
{
    return filter_some(r, b, false, true);
}

const struct value *filter_selectattr(struct run *r, const struct bound *b)
{
    return filter_some(r, b, true, false);
}

const struct value *filter_rejectattr(struct run *r, const struct bound *b)
{
    return filter_some(r, b, true, true);
}

const struct value *filter_unique(struct run *r, const struct bound *b)
{
    struct iter *it = iter_new(r, ITER_UNIQUE, b->self);

    if (it == NULL)
        return NULL;
    it->case_sensitive = arg_true(r, b->arg[0]);
    it->attribute = b->arg[1];
    it->seen = value_dict(r->arena);
    return iter_value(r, it);
}

const struct value *filter_batch(struct run *r, const struct bound *b)
{
    struct iter *it = iter_new(r, ITER_BATCH, b->self);

    if (it == NULL || !arg_int(r, b->arg[0], 0, &it->n))
        return NULL;
    if (it->n <= 0)
        return run_fail(r, "batch takes a positive number");
    it->otherwise = is_none(b->arg[1]) ? NULL : b->arg[1];
    return iter_value(r, it);
}

const struct value *filter_slice(struct run *r, const struct bound *b)
{
    struct value *all, *out = value_list(r->arena);
    int64_t slices, n, at = 0;
    struct iter *it;

    if (!can_iterate(b->self))
        return iter_value(r, iter_new(r, ITER_SHARED, b->self));
    if ((all = list_of(r, b->self)) == NULL || !arg_int(r, b->arg[0], 0, &slices))
        return NULL;
    if (slices == 0)
        return run_fail(r, "integer modulo by zero");
    n = (int64_t)all->u.list.n;
    for (int64_t i = 0; i < slices; i++) {
        int64_t size = n / slices + (i < n % slices);
        struct value *part;

        if (!run_charge(r, 1 + size))
            return NULL;
        part = value_list(r->arena);
        for (int64_t k = 0; k < size; k++)
            value_list_add(r->arena, part, all->u.list.items[at++]);
        if (!is_none(b->arg[1]) && i >= n % slices)
            value_list_add(r->arena, part, b->arg[1]);
        value_list_add(r->arena, out, part);
    }
    it = arena_take_zero(r->arena, 1, sizeof *it);
    return iter_open(r, it, out) ? iter_value(r, it) : NULL;
}

/* Order. */

static const struct value *ignore_case(struct run *r, const struct value *v, bool case_sensitive)
{
    return v != NULL && v->kind == VALUE_TEXT && !case_sensitive ? text_case(r, v, STYLE_LOWER) : v;
}

/* "a,b" of sort: the list of what each path finds. */
static const struct value *sort_key(struct run *r, const struct value *item, const struct value *attribute,
                                    bool case_sensitive)
{
    struct value *key = value_list(r->arena);
    const char *text, *end, *comma;
    const struct value *v;
    size_t n;

    if (is_none(attribute) || attribute->kind != VALUE_TEXT) {
        v = ignore_case(r, get_path(r, item, attribute, NULL), case_sensitive);
        if (v == NULL)
            return NULL;
        value_list_add(r->arena, key, v);
        return key;
    }
    if ((text = run_flat(r, attribute, &n)) == NULL)
        return NULL;
    for (end = text + n;; text = comma + 1) {
        const struct value *path;

        comma = memchr(text, ',', (size_t)(end - text));
        path = value_text_borrow(r->arena, text, (size_t)((comma != NULL ? comma : end) - text), TEXT_PLAIN);
        v = ignore_case(r, get_path(r, item, path, NULL), case_sensitive);
        if (v == NULL || !run_charge(r, 1))
            return NULL;
        value_list_add(r->arena, key, v);
        if (comma == NULL)
            return key;
    }
}

const struct value *filter_sort(struct run *r, const struct bound *b)
{
    struct value *list = list_of(r, b->self), *keys;
    bool reverse = arg_true(r, b->arg[0]), case_sensitive = arg_true(r, b->arg[1]);

    if (list == NULL)
        return NULL;
    keys = value_list(r->arena);
    for (size_t i = 0; i < list->u.list.n; i++) {
        const struct value *key = sort_key(r, list->u.list.items[i], b->arg[2], case_sensitive);

        if (key == NULL)
            return NULL;
        value_list_add(r->arena, keys, key);
    }
    return sort_items(r, keys->u.list.items, list->u.list.items, list->u.list.n, reverse) ? list : NULL;
}

const struct value *filter_dictsort(struct run *r, const struct bound *b)
{
    struct value *list = value_list(r->arena), *keys = value_list(r->arena);
    bool case_sensitive = arg_true(r, b->arg[0]), reverse = arg_true(r, b->arg[2]);
    bool by_value = b->arg[1] != NULL && text_is(b->arg[1], "value");

    if (b->arg[1] != NULL && !by_value && !text_is(b->arg[1], "key"))
        return run_fail(r, "You can only sort by either \"key\" or \"value\"");
    if (b->self->kind == VALUE_UNDEFINED)
        return undefined_fail(r, b->self);
    if (b->self->kind != VALUE_DICT)
        return run_fail(r, "'%s' object has no attribute 'items'", type_name(b->self));
    for (size_t i = 0; i < b->self->u.dict.n; i++) {
        const struct dict_entry *e = &b->self->u.dict.entries[i];
        const struct value *key = ignore_case(r, by_value ? e->item : e->key, case_sensitive);
        struct value *pair = value_tuple(r->arena, 2);

        if (key == NULL || !run_charge(r, 1))
            return NULL;
        value_list_add(r->arena, pair, e->key);
        value_list_add(r->arena, pair, e->item);
        value_list_add(r->arena, list, pair);
        value_list_add(r->arena, keys, key);
    }
    return sort_items(r, keys->u.list.items, list->u.list.items, list->u.list.n, reverse) ? list : NULL;
}

static const struct value *extreme(struct run *r, const struct bound *b, enum op op)
{
    bool case_sensitive = arg_true(r, b->arg[0]);
    const struct value *item, *best = NULL, *best_key = NULL;
    struct iter it;
    int got;

    if (!iter_open(r, &it, b->self))
        return NULL;
    while ((got = iter_next(r, &it, &item)) == 1) {
        const struct value *key = ignore_case(r, get_path(r, item, b->arg[1], NULL), case_sensitive);
        int better = key == NULL ? -1 : best == NULL ? 1 : compare(r, op, key, best_key);

        if (better < 0)
            return NULL;
        if (better) {
            best = item;
            best_key = key;
        }
    }
    return got < 0 ? NULL : best != NULL ? best : undefined_hint(r, "No aggregated item, sequence was empty.");
}

const struct value *filter_min(struct run *r, const struct bound *b)
{
    return extreme(r, b, OP_LT);
}

const struct value *filter_max(struct run *r, const struct bound *b)
{
    return extreme(r, b, OP_GT);
}

const struct value *filter_sum(struct run *r, const struct bound *b)
{
    const struct value *sum = b->arg[1] != NULL ? b->arg[1] : int_of(r, 0), *item;
    struct iter it;
    int got;

    if (sum->kind == VALUE_TEXT)
        return run_fail(r, "sum() can't sum strings");
    if (!iter_open(r, &it, b->self))
        return NULL;
    while ((got = iter_next(r, &it, &item)) == 1) {
        item = is_none(b->arg[0]) ? item : get_path(r, item, b->arg[0], NULL);
        if (item == NULL || (sum = binary(r, OP_ADD, sum, item)) == NULL)
            return NULL;
    }
    return got < 0 ? NULL : sum;
}
