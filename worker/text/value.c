#include "worker/text/value.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/status.h"
#include "base/utf8.h"
#include "worker/text/value_internal.h"

static const struct value none_value = { .kind = VALUE_NONE };
static const struct value true_value = { .kind = VALUE_BOOL, .u.b = true };
static const struct value false_value = { .kind = VALUE_BOOL, .u.b = false };

struct value *value_new(struct arena *a, enum value_kind kind)
{
    struct value *v = arena_take(a, sizeof *v);

    v->kind = (uint8_t)kind;
    v->trust = TEXT_PLAIN;
    v->safe = 0;
    return v;
}

const struct value *value_none(void)
{
    return &none_value;
}

const struct value *value_bool(bool b)
{
    return b ? &true_value : &false_value;
}

struct value *value_int(struct arena *a, int64_t i)
{
    struct value *v = value_new(a, VALUE_INT);

    v->u.i = i;
    return v;
}

struct value *value_real(struct arena *a, double d)
{
    struct value *v = value_new(a, VALUE_REAL);

    v->u.d = d;
    return v;
}

struct value *value_text(struct arena *a, const char *text, size_t n, enum text_trust trust)
{
    /* Everything that walks characters relies on it: one that is cut off would be walked past the end. */
    ASSERT(utf8_valid(text, n) == n);
    return value_text_borrow(a, n > 0 ? arena_copy(a, text, n) : "", n, trust);
}

enum value_kind value_kind(const struct value *v)
{
    return v->kind;
}

/* Lists and tuples. */

struct value *value_list(struct arena *a)
{
    struct value *v = value_new(a, VALUE_LIST);

    v->u.list = (struct list){ NULL, 0, 0 };
    return v;
}

struct value *value_tuple(struct arena *a, size_t room)
{
    struct value *v = value_list(a);

    v->kind = VALUE_TUPLE;
    v->u.list.items = arena_take(a, room * sizeof v->u.list.items[0]);
    v->u.list.room = room;
    return v;
}

void value_list_add(struct arena *a, struct value *list, const struct value *item)
{
    struct list *l = &list->u.list;

    ASSERT(list->kind == VALUE_LIST || list->kind == VALUE_TUPLE);
    if (l->n == l->room) {
        size_t room = l->room ? l->room * 2 : 4;
        const struct value **items = arena_take(a, room * sizeof *items);

        if (l->n > 0)
            memcpy(items, l->items, l->n * sizeof *items);
        l->items = items;
        l->room = room;
    }
    l->items[l->n++] = item;
}

/* Equality, as Python's == has it. */

static bool is_number(const struct value *v)
{
    return v->kind == VALUE_BOOL || v->kind == VALUE_INT || v->kind == VALUE_REAL;
}

static bool number_equal(const struct value *a, const struct value *b)
{
    long double x, y;

    /* Exact: long double holds every int64 (64 bits of mantissa or more on the machines we build for). */
    x = a->kind == VALUE_REAL ? (long double)a->u.d : a->kind == VALUE_BOOL ? a->u.b : (long double)a->u.i;
    y = b->kind == VALUE_REAL ? (long double)b->u.d : b->kind == VALUE_BOOL ? b->u.b : (long double)b->u.i;
    return x == y;
}

static bool text_equal(const struct value *a, const struct value *b)
{
    const struct text *x = &a->u.text, *y = &b->u.text;
    size_t xi = 0, yi = 0, x_at = 0, y_at = 0;

    if (x->bytes != y->bytes)
        return false;
    while (xi < x->spans_n) {
        size_t x_n = x->spans[xi].n - x_at, y_n = y->spans[yi].n - y_at, n = x_n < y_n ? x_n : y_n;

        if (memcmp(x->spans[xi].text + x_at, y->spans[yi].text + y_at, n) != 0)
            return false;
        x_at = n == x_n ? 0 : x_at + n;
        y_at = n == y_n ? 0 : y_at + n;
        xi += n == x_n;
        yi += n == y_n;
    }
    return true;
}

static int equal_at(const struct value *a, const struct value *b, int64_t *steps, int depth);

static int list_equal(const struct list *a, const struct list *b, int64_t *steps, int depth)
{
    if (a->n != b->n)
        return 0;
    for (size_t i = 0; i < a->n; i++) {
        int equal = equal_at(a->items[i], b->items[i], steps, depth);

        if (equal != 1)
            return equal;
    }
    return 1;
}

static int dict_equal(const struct dict *a, const struct dict *b, int64_t *steps, int depth)
{
    if (a->n != b->n)
        return 0;
    for (size_t i = 0; i < a->n; i++) {
        const struct value *key = a->entries[i].key, *other = dict_get(b, key);
        int equal = other == NULL ? 0 : equal_at(a->entries[i].item, other, steps, depth);

        if (equal != 1)
            return equal;
        *steps -= key->kind == VALUE_TEXT ? (int64_t)(key->u.text.bytes >> 6) : 0;
    }
    return 1;
}

static bool range_equal(const struct range *a, const struct range *b)
{
    return a->n == b->n && (a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step)));
}

static int equal_at(const struct value *a, const struct value *b, int64_t *steps, int depth)
{
    if (--*steps < 0 || depth > VALUE_DEPTH_MAX)
        return -1;
    if (is_number(a) && is_number(b))
        return number_equal(a, b);
    if (a->kind != b->kind)
        return 0;
    switch (a->kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return 1;
    case VALUE_TEXT:
        *steps -= (int64_t)(a->u.text.bytes >> 9);
        return text_equal(a, b);
    case VALUE_LIST:
    case VALUE_TUPLE:
        return a == b ? 1 : list_equal(&a->u.list, &b->u.list, steps, depth + 1);
    case VALUE_DICT:
        return a == b ? 1 : dict_equal(&a->u.dict, &b->u.dict, steps, depth + 1);
    case VALUE_RANGE:
        return range_equal(&a->u.range, &b->u.range);
    case VALUE_METHOD:
        return a->u.method.self == b->u.method.self && a->u.method.builtin == b->u.method.builtin;
    case VALUE_FUNCTION:
        return a->u.function == b->u.function;
    default:
        return a == b;
    }
}

int value_equal(const struct value *a, const struct value *b, int64_t *steps)
{
    return equal_at(a, b, steps, 0);
}

/* Dicts. */

bool value_key(struct arena *a, const struct value *v)
{
    switch (v->kind) {
    case VALUE_LIST:
    case VALUE_DICT:
    case VALUE_VIEW:
        return false;
    case VALUE_TEXT:
        text_flat(a, v);
        return true;
    case VALUE_TUPLE:
        if (v->u.list.n > DICT_TUPLE_MAX)
            return false;
        for (size_t i = 0; i < v->u.list.n; i++)
            if (v->u.list.items[i]->kind == VALUE_TUPLE || !value_key(a, v->u.list.items[i]))
                return false;
        return true;
    default:
        return true;
    }
}

static uint64_t text_hash(const char *text, size_t n)
{
    return hash64(text, n, VALUE_TEXT);
}

static uint64_t key_hash(const struct value *v)
{
    uint64_t h = VALUE_TUPLE;
    int64_t i;

    switch (v->kind) {
    case VALUE_TEXT:
        return v->u.text.bytes > 0 ? text_hash(v->u.text.spans[0].text, v->u.text.bytes) : text_hash("", 0);
    case VALUE_REAL:
        if (!(fabs(v->u.d) < 9e18) || v->u.d != floor(v->u.d))
            return hash64(&v->u.d, sizeof v->u.d, VALUE_REAL);
        i = (int64_t)v->u.d;        /* 1.0 is the key 1 */
        return hash64(&i, sizeof i, VALUE_INT);
    case VALUE_BOOL:
    case VALUE_INT:
        i = v->kind == VALUE_BOOL ? v->u.b : v->u.i;
        return hash64(&i, sizeof i, VALUE_INT);
    case VALUE_TUPLE:
        for (size_t t = 0; t < v->u.list.n; t++) {
            uint64_t item = key_hash(v->u.list.items[t]);

            h = hash64(&item, sizeof item, h);
        }
        return h;
    default:
        return v->kind;
    }
}

/* Where the index has the key, or the free place for it. text is the key's bytes where it is a text. */
static uint32_t *index_find(const struct dict *d, uint64_t hash, const struct value *key, const char *text, size_t n)
{
    size_t mask = d->index_n - 1, at = (size_t)hash & mask;

    for (;; at = (at + 1) & mask) {
        const struct dict_entry *e;
        int64_t steps = 2 * DICT_TUPLE_MAX + 2;

        if (d->index[at] == 0)
            return &d->index[at];
        e = &d->entries[d->index[at] - 1];
        if (e->hash != hash)
            continue;
        if (key != NULL ? value_equal(e->key, key, &steps) == 1
                        : e->key->kind == VALUE_TEXT && e->key->u.text.bytes == n
                          && (n == 0 || memcmp(e->key->u.text.spans[0].text, text, n) == 0))
            return &d->index[at];
    }
}

const struct value *dict_get_text(const struct dict *d, const char *key, size_t n)
{
    if (d->index != NULL) {
        uint32_t at = *index_find(d, text_hash(key, n), NULL, key, n);

        return at != 0 ? d->entries[at - 1].item : NULL;
    }
    for (size_t i = 0; i < d->n; i++) {
        const struct value *k = d->entries[i].key;

        if (k->kind == VALUE_TEXT && k->u.text.bytes == n && (n == 0 || memcmp(k->u.text.spans[0].text, key, n) == 0))
            return d->entries[i].item;
    }
    return NULL;
}

static struct dict_entry *dict_find(const struct dict *d, const struct value *key)
{
    if (d->index != NULL) {
        uint32_t at = *index_find(d, key_hash(key), key, NULL, 0);

        return at != 0 ? &d->entries[at - 1] : NULL;
    }
    for (size_t i = 0; i < d->n; i++) {
        int64_t steps = 2 * DICT_TUPLE_MAX + 2;

        if (d->entries[i].key == key || value_equal(d->entries[i].key, key, &steps) == 1)
            return &d->entries[i];
    }
    return NULL;
}

const struct value *dict_get(const struct dict *d, const struct value *key)
{
    const struct dict_entry *e;

    if (key->kind == VALUE_TEXT)
        return dict_get_text(d, key->u.text.bytes > 0 ? key->u.text.spans[0].text : "", key->u.text.bytes);
    e = dict_find(d, key);
    return e != NULL ? e->item : NULL;
}

static void dict_index(struct arena *a, struct dict *d)
{
    d->index_n = d->index_n ? d->index_n * 2 : 32;
    d->index = arena_take_zero(a, d->index_n, sizeof d->index[0]);
    for (size_t i = 0; i < d->n; i++) {
        d->entries[i].hash = key_hash(d->entries[i].key);
        *index_find(d, d->entries[i].hash, d->entries[i].key, NULL, 0) = (uint32_t)i + 1;
    }
}

void dict_set(struct arena *a, struct dict *d, const struct value *key, const struct value *item)
{
    struct dict_entry *e = dict_find(d, key);

    if (e != NULL) {
        e->item = item;
        return;
    }
    if (d->n == d->room) {
        size_t room = d->room ? d->room * 2 : 4;
        struct dict_entry *entries = arena_take(a, room * sizeof *entries);

        ASSERT(room < UINT32_MAX);
        if (d->n > 0)
            memcpy(entries, d->entries, d->n * sizeof *entries);
        d->entries = entries;
        d->room = room;
    }
    e = &d->entries[d->n++];
    e->key = key;
    e->item = item;
    if (d->index == NULL ? d->n > DICT_LINEAR_MAX : d->n * 2 > d->index_n) {
        dict_index(a, d);
    } else if (d->index != NULL) {
        e->hash = key_hash(key);
        *index_find(d, e->hash, key, NULL, 0) = (uint32_t)d->n;
    }
}

struct value *value_dict(struct arena *a)
{
    struct value *v = value_new(a, VALUE_DICT);

    v->u.dict = (struct dict){ NULL, 0, 0, NULL, 0 };
    return v;
}

void value_dict_set(struct arena *a, struct value *dict, const char *key, size_t key_n, const struct value *item)
{
    ASSERT(dict->kind == VALUE_DICT);
    dict_set(a, &dict->u.dict, value_text(a, key, key_n, TEXT_PLAIN), item);
}

const struct value *value_dict_get(const struct value *dict, const char *key)
{
    ASSERT(dict->kind == VALUE_DICT);
    return dict_get_text(&dict->u.dict, key, strlen(key));
}
