/* Methods: of str, list, tuple, dict and loop; those that would change their object are refused, as in jinja2's
 * ImmutableSandboxedEnvironment. The work on texts is in template_text.c. */
#define _GNU_SOURCE                /* memmem */
#include <string.h>

#include "base/utf8.h"
#include "worker/text/template_internal.h"

bool arg_int(struct run *r, const struct value *v, int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    if (v == NULL || is_int(v, out))
        return true;
    if (v->kind == VALUE_UNDEFINED)
        undefined_fail(r, v);
    else
        run_fail(r, "'%s' object cannot be interpreted as an integer", type_name(v));
    return false;
}

bool arg_true(struct run *r, const struct value *v)
{
    return v != NULL && truth(r, v);
}

/* A str argument. false: failed. */
static bool arg_text(struct run *r, const struct value *v)
{
    if (v->kind == VALUE_TEXT)
        return true;
    if (v->kind == VALUE_UNDEFINED)
        undefined_fail(r, v);
    else
        run_fail(r, "must be str, not %s", type_name(v));
    return false;
}

/* chars of strip, sep of split: None and "not given" are the same. false: failed. */
static bool arg_text_or_none(struct run *r, const struct value **v)
{
    if (*v != NULL && (*v)->kind == VALUE_NONE)
        *v = NULL;
    return *v == NULL || arg_text(r, *v);
}

static const struct value *strip(struct run *r, const struct bound *b, int ends)
{
    const struct value *chars = b->arg[0];

    return arg_text_or_none(r, &chars) ? text_strip(r, b->self, chars, ends) : NULL;
}

static const struct value *str_strip(struct run *r, const struct bound *b)
{
    return strip(r, b, STRIP_LEFT | STRIP_RIGHT);
}

static const struct value *str_lstrip(struct run *r, const struct bound *b)
{
    return strip(r, b, STRIP_LEFT);
}

static const struct value *str_rstrip(struct run *r, const struct bound *b)
{
    return strip(r, b, STRIP_RIGHT);
}

static const struct value *str_lower(struct run *r, const struct bound *b)
{
    return text_case(r, b->self, STYLE_LOWER);
}

static const struct value *str_upper(struct run *r, const struct bound *b)
{
    return text_case(r, b->self, STYLE_UPPER);
}

static const struct value *str_title(struct run *r, const struct bound *b)
{
    return text_case(r, b->self, STYLE_TITLE);
}

static const struct value *str_capitalize(struct run *r, const struct bound *b)
{
    return text_case(r, b->self, STYLE_CAPITALIZE);
}

static const struct value *str_swapcase(struct run *r, const struct bound *b)
{
    return text_case(r, b->self, STYLE_SWAP);
}

static const struct value *str_replace(struct run *r, const struct bound *b)
{
    int64_t count;

    if (!arg_text(r, b->arg[0]) || !arg_text(r, b->arg[1]) || !arg_int(r, b->arg[2], -1, &count))
        return NULL;
    return text_replace(r, b->self, b->arg[0], b->arg[1], count);
}

/* Splitting. Limits below 0 mean none. */

static void add_part(struct run *r, struct value *list, const struct value *v, size_t from, size_t to)
{
    value_list_add(r->arena, list, text_slice(r->arena, v, from, to));
}

static size_t skip_spaces(const char *text, size_t n, size_t at, bool spaces)
{
    uint32_t code = 0;

    while (at < n) {
        int used = utf8_char(text + at, n - at, &code);

        if (char_space(code) != spaces)
            break;
        at += (size_t)used;
    }
    return at;
}

static const struct value *split_spaces(struct run *r, const struct value *v, int64_t limit)
{
    struct value *list = value_list(r->arena);
    size_t n, at;
    const char *text = run_flat(r, v, &n);

    if (text == NULL || !run_charge(r, (int64_t)(n >> 6)))
        return NULL;
    for (at = skip_spaces(text, n, 0, true); at < n; at = skip_spaces(text, n, at, true)) {
        size_t end = limit == 0 ? n : skip_spaces(text, n, at, false);

        if (!run_charge(r, 1))
            return NULL;
        add_part(r, list, v, at, end);
        at = end;
        limit -= limit > 0;
    }
    return list;
}

static const struct value *split(struct run *r, const struct value *v, const struct value *sep, int64_t limit)
{
    struct value *list = value_list(r->arena);
    size_t n, m, at = 0;
    const char *text = run_flat(r, v, &n), *cut = text == NULL ? NULL : run_flat(r, sep, &m), *found;

    if (cut == NULL || !run_search(r, n, m))
        return NULL;
    if (m == 0)
        return run_fail(r, "empty separator");
    while (limit != 0 && (found = memmem(text + at, n - at, cut, m)) != NULL) {
        if (!run_charge(r, 1))
            return NULL;
        add_part(r, list, v, at, (size_t)(found - text));
        at = (size_t)(found - text) + m;
        limit--;
    }
    add_part(r, list, v, at, n);
    return list;
}

static const struct value *str_split(struct run *r, const struct bound *b)
{
    const struct value *sep = b->arg[0];
    int64_t limit;

    if (!arg_text_or_none(r, &sep) || !arg_int(r, b->arg[1], -1, &limit))
        return NULL;
    return sep == NULL ? split_spaces(r, b->self, limit) : split(r, b->self, sep, limit);
}

/* The last place of cut in text[0, n): NULL when there is none. Charged by the caller for n bytes. */
static const char *find_last(const char *text, size_t n, const char *cut, size_t m)
{
    for (size_t at = n >= m ? n - m + 1 : 0; at > 0; at--)
        if (text[at - 1] == cut[0] && memcmp(text + at - 1, cut, m) == 0)
            return text + at - 1;
    return NULL;
}

static bool charge_backwards(struct run *r, size_t n, size_t m)
{
    /* find_last compares at every place: at worst n times m bytes. */
    return run_charge(r, (int64_t)(n >> 9) + (int64_t)((n >> 5) * (m >> 5)));
}

static void list_reverse(struct list *l)
{
    for (size_t i = 0; i + 1 < l->n - i; i++) {
        const struct value *v = l->items[i];

        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = v;
    }
}

static const struct value *rsplit(struct run *r, const struct value *v, const struct value *sep, int64_t limit)
{
    struct value *list = value_list(r->arena);
    size_t n, m;
    const char *text = run_flat(r, v, &n), *cut = text == NULL ? NULL : run_flat(r, sep, &m), *found;

    if (cut == NULL || !charge_backwards(r, n, m))
        return NULL;
    if (m == 0)
        return run_fail(r, "empty separator");
    while (limit != 0 && (found = find_last(text, n, cut, m)) != NULL) {
        if (!run_charge(r, 1))
            return NULL;
        add_part(r, list, v, (size_t)(found - text) + m, n);
        n = (size_t)(found - text);
        limit--;
    }
    add_part(r, list, v, 0, n);
    list_reverse(&list->u.list);
    return list;
}

static const struct value *str_rsplit(struct run *r, const struct bound *b)
{
    const struct value *sep = b->arg[0];
    int64_t limit;

    if (!arg_text_or_none(r, &sep) || !arg_int(r, b->arg[1], -1, &limit))
        return NULL;
    if (sep != NULL)
        return rsplit(r, b->self, sep, limit);
    if (limit >= 0)
        return run_fail(r, "rsplit at white space with a limit is not supported");
    return split_spaces(r, b->self, -1);
}

static const struct value *str_splitlines(struct run *r, const struct bound *b)
{
    return text_lines(r, b->self, arg_true(r, b->arg[0]));
}

static const struct value *partition(struct run *r, const struct bound *b, bool last)
{
    struct value *parts = value_tuple(r->arena, 3);
    const char *text, *cut, *found;
    size_t n, m, at;

    if (!arg_text(r, b->arg[0]) || (text = run_flat(r, b->self, &n)) == NULL
        || (cut = run_flat(r, b->arg[0], &m)) == NULL || !charge_backwards(r, n, m))
        return NULL;
    if (m == 0)
        return run_fail(r, "empty separator");
    found = last ? find_last(text, n, cut, m) : memmem(text, n, cut, m);
    at = found != NULL ? (size_t)(found - text) : last ? 0 : n;
    add_part(r, parts, b->self, 0, at);
    add_part(r, parts, b->self, at, found != NULL ? at + m : at);
    add_part(r, parts, b->self, found != NULL ? at + m : at, n);
    return parts;
}

static const struct value *str_partition(struct run *r, const struct bound *b)
{
    return partition(r, b, false);
}

static const struct value *str_rpartition(struct run *r, const struct bound *b)
{
    return partition(r, b, true);
}

/* Searching, in [start, end) counted in characters as slices count. false: failed. *from > *to: nowhere. */

static bool find_window(struct run *r, const struct value *v, const struct value *start, const struct value *end,
                        size_t *from, size_t *to)
{
    int64_t n = text_chars(v), i, j;

    if (start != NULL && start->kind == VALUE_NONE)
        start = NULL;
    if (end != NULL && end->kind == VALUE_NONE)
        end = NULL;
    if (!arg_int(r, start, 0, &i) || !arg_int(r, end, n, &j))
        return false;
    i = i < 0 ? (i < -n ? 0 : i + n) : i;
    j = j < 0 ? (j < -n ? 0 : j + n) : j > n ? n : j;
    *from = i > j ? 1 : text_offset(v, i);
    *to = i > j ? 0 : text_offset(v, j);
    return true;
}

/* Whether v[from:to] begins (or ends) with fix. -1: failed. */
static int fix_at(struct run *r, const struct bound *b, const struct value *fix, bool end)
{
    size_t n, m, from, to;
    const char *text, *part;

    if (fix->kind != VALUE_TEXT) {
        run_fail(r, "%s first arg must be str or a tuple of str, not %s", end ? "endswith" : "startswith",
                 type_name(fix));
        return -1;
    }
    if ((text = run_flat(r, b->self, &n)) == NULL || (part = run_flat(r, fix, &m)) == NULL
        || !find_window(r, b->self, b->arg[1], b->arg[2], &from, &to))
        return -1;
    if (from > to || to - from < m)
        return 0;
    return memcmp(end ? text + to - m : text + from, part, m) == 0;
}

static const struct value *has_fix(struct run *r, const struct bound *b, bool end)
{
    const struct value *fix = b->arg[0];
    int yes = 0;

    if (fix->kind != VALUE_TUPLE)
        yes = fix_at(r, b, fix, end);
    for (size_t i = 0; fix->kind == VALUE_TUPLE && i < fix->u.list.n && yes == 0; i++)
        yes = fix_at(r, b, fix->u.list.items[i], end);
    return yes < 0 ? NULL : value_bool(yes);
}

static const struct value *str_startswith(struct run *r, const struct bound *b)
{
    return has_fix(r, b, false);
}

static const struct value *str_endswith(struct run *r, const struct bound *b)
{
    return has_fix(r, b, true);
}

/* Character index of the first or last place of arg[0]; -1: none, -2: failed. */
static int64_t find(struct run *r, const struct bound *b, bool last)
{
    size_t n, m, from, to;
    const char *text, *part, *found;
    int64_t chars = 0;

    if (!arg_text(r, b->arg[0]) || (text = run_flat(r, b->self, &n)) == NULL
        || (part = run_flat(r, b->arg[0], &m)) == NULL || !find_window(r, b->self, b->arg[1], b->arg[2], &from, &to))
        return -2;
    if (from > to)
        return -1;
    if (m == 0) {
        found = text + (last ? to : from);
    } else {
        if (!(last ? charge_backwards(r, n, m) : run_search(r, n, m)))
            return -2;
        found = last ? find_last(text + from, to - from, part, m) : memmem(text + from, to - from, part, m);
    }
    if (found == NULL)
        return -1;
    for (const char *p = text; p < found; p++)
        chars += ((unsigned char)*p & 0xc0) != 0x80;
    return chars;
}

static const struct value *found_at(struct run *r, int64_t at, bool must)
{
    if (at == -1 && must)
        return run_fail(r, "substring not found");
    return at == -2 ? NULL : int_of(r, at);
}

static const struct value *str_find(struct run *r, const struct bound *b)
{
    return found_at(r, find(r, b, false), false);
}

static const struct value *str_rfind(struct run *r, const struct bound *b)
{
    return found_at(r, find(r, b, true), false);
}

static const struct value *str_index(struct run *r, const struct bound *b)
{
    return found_at(r, find(r, b, false), true);
}

static const struct value *str_rindex(struct run *r, const struct bound *b)
{
    return found_at(r, find(r, b, true), true);
}

static const struct value *str_count(struct run *r, const struct bound *b)
{
    size_t n, m, from, to;
    const char *text, *part, *found;
    int64_t count = 0;

    if (!arg_text(r, b->arg[0]) || (text = run_flat(r, b->self, &n)) == NULL
        || (part = run_flat(r, b->arg[0], &m)) == NULL || !find_window(r, b->self, b->arg[1], b->arg[2], &from, &to))
        return NULL;
    if (from > to)
        return int_of(r, 0);
    if (m == 0) {
        for (size_t i = from; i < to; i++)
            count += ((unsigned char)text[i] & 0xc0) != 0x80;
        return int_of(r, count + 1);
    }
    if (!run_search(r, n, m))
        return NULL;
    for (; (found = memmem(text + from, to - from, part, m)) != NULL; count++) {
        if (!run_charge(r, 1))
            return NULL;
        from = (size_t)(found - text) + m;
    }
    return int_of(r, count);
}

static const struct value *remove_fix(struct run *r, const struct bound *b, bool end)
{
    size_t n = b->self->u.text.bytes, m;
    int yes;

    if (!arg_text(r, b->arg[0]) || (yes = fix_at(r, b, b->arg[0], end)) < 0)
        return NULL;
    m = yes ? b->arg[0]->u.text.bytes : 0;
    return text_slice(r->arena, b->self, end ? 0 : m, end ? n - m : n);
}

static const struct value *str_removeprefix(struct run *r, const struct bound *b)
{
    return remove_fix(r, b, false);
}

static const struct value *str_removesuffix(struct run *r, const struct bound *b)
{
    return remove_fix(r, b, true);
}

static const struct value *str_join(struct run *r, const struct bound *b)
{
    return text_join(r, b->self, b->arg[0], true, NULL);
}

static const struct value *pad(struct run *r, const struct bound *b, int side)
{
    int64_t width;

    if (!arg_int(r, b->arg[0], 0, &width))
        return NULL;
    if (b->arg[1] != NULL && (!arg_text(r, b->arg[1]) || text_chars(b->arg[1]) != 1))
        return run_fail(r, "the fill character must be exactly one character long");
    return text_pad(r, b->self, width, b->arg[1], side);
}

static const struct value *str_ljust(struct run *r, const struct bound *b)
{
    return pad(r, b, STRIP_RIGHT);
}

static const struct value *str_rjust(struct run *r, const struct bound *b)
{
    return pad(r, b, STRIP_LEFT);
}

static const struct value *str_center(struct run *r, const struct bound *b)
{
    return pad(r, b, STRIP_LEFT | STRIP_RIGHT);
}

static const struct value *str_zfill(struct run *r, const struct bound *b)
{
    size_t n, sign;
    const char *text = run_flat(r, b->self, &n);
    const struct value *zeros, *rest, *v;
    int64_t width, missing;

    if (text == NULL || !arg_int(r, b->arg[0], 0, &width))
        return NULL;
    missing = width > text_chars(b->self) ? width - text_chars(b->self) : 0;
    sign = n > 0 && (text[0] == '+' || text[0] == '-');
    zeros = repeat(r, value_text_borrow(r->arena, "0", 1, TEXT_PLAIN), missing);
    if (zeros == NULL)
        return NULL;
    rest = text_slice(r->arena, b->self, sign, n);
    v = binary(r, OP_ADD, text_slice(r->arena, b->self, 0, sign), zeros);
    return v == NULL ? NULL : binary(r, OP_ADD, v, rest);
}

/* Questions about all characters. An empty text answers no, but to isascii and isprintable. */

static const struct value *all_chars(struct run *r, const struct bound *b, bool (*good)(uint32_t code), bool empty)
{
    size_t n, at = 0;
    const char *text = run_flat(r, b->self, &n);
    uint32_t code = 0;

    if (text == NULL || !run_charge(r, (int64_t)(n >> 6)))
        return NULL;
    while (at < n) {
        at += (size_t)utf8_char(text + at, n - at, &code);
        if (!good(code))
            return value_bool(false);
    }
    return value_bool(n > 0 || empty);
}

static bool is_ascii(uint32_t code)
{
    return code < 0x80;
}

static bool is_decimal(uint32_t code)
{
    return char_is(code, CHAR_DECIMAL);
}

static bool is_digit(uint32_t code)
{
    return char_is(code, CHAR_DIGIT);
}

static bool is_numeric(uint32_t code)
{
    return char_is(code, CHAR_NUMERIC) || char_is(code, CHAR_DIGIT);
}

static bool is_alpha(uint32_t code)
{
    return char_is(code, CHAR_ALPHA);
}

static bool is_alnum(uint32_t code)
{
    return is_alpha(code) || is_numeric(code);
}

#define STR_ALL(name, good, empty) \
    static const struct value *str_##name(struct run *r, const struct bound *b) \
    { \
        return all_chars(r, b, good, empty); \
    }

STR_ALL(isascii, is_ascii, true)
STR_ALL(isdecimal, is_decimal, false)
STR_ALL(isdigit, is_digit, false)
STR_ALL(isnumeric, is_numeric, false)
STR_ALL(isalpha, is_alpha, false)
STR_ALL(isalnum, is_alnum, false)
STR_ALL(isspace, char_space, false)
STR_ALL(isprintable, char_printable, true)

static const struct value *str_isupper(struct run *r, const struct bound *b)
{
    return text_is_case(r, b->self, CHAR_UPPER);
}

static const struct value *str_islower(struct run *r, const struct bound *b)
{
    return text_is_case(r, b->self, CHAR_LOWER);
}

/* Lists and tuples. */

static const struct value *list_count(struct run *r, const struct bound *b)
{
    int64_t count = 0;

    for (size_t i = 0; i < b->self->u.list.n; i++) {
        int yes = equal(r, b->self->u.list.items[i], b->arg[0]);

        if (yes < 0)
            return NULL;
        count += yes;
    }
    return int_of(r, count);
}

static const struct value *list_index(struct run *r, const struct bound *b)
{
    int64_t n = (int64_t)b->self->u.list.n, i, end;

    if (!arg_int(r, b->arg[1], 0, &i) || !arg_int(r, b->arg[2], n, &end))
        return NULL;
    i = i < 0 ? (i < -n ? 0 : i + n) : i;
    end = end < 0 ? end + n : end < n ? end : n;
    for (; i < end; i++) {
        int yes = equal(r, b->self->u.list.items[i], b->arg[0]);

        if (yes != 0)
            return yes < 0 ? NULL : int_of(r, i);
    }
    return run_fail(r, "the value is not in the %s", type_name(b->self));
}

/* Nothing can change a list or dict while a template runs: a copy is the same value. */
static const struct value *copy(struct run *r, const struct bound *b)
{
    (void)r;
    return b->self;
}

/* Dicts. */

static const struct value *dict_get_method(struct run *r, const struct bound *b)
{
    const struct value *v;

    if (!run_key(r, b->arg[0]))
        return NULL;
    v = dict_get(&b->self->u.dict, b->arg[0]);
    return v != NULL ? v : b->arg[1] != NULL ? b->arg[1] : value_none();
}

static const struct value *dict_view(struct run *r, const struct bound *b, enum view_kind kind)
{
    struct value *v = value_new(r->arena, VALUE_VIEW);

    v->u.view.dict = b->self;
    v->u.view.kind = kind;
    return v;
}

static const struct value *dict_keys(struct run *r, const struct bound *b)
{
    return dict_view(r, b, VIEW_KEYS);
}

static const struct value *dict_values(struct run *r, const struct bound *b)
{
    return dict_view(r, b, VIEW_VALUES);
}

static const struct value *dict_items(struct run *r, const struct bound *b)
{
    return dict_view(r, b, VIEW_ITEMS);
}

/* loop */

static const struct value *loop_cycle(struct run *r, const struct bound *b)
{
    if (b->all->pos_n == 0)
        return run_fail(r, "no items for cycling given");
    return b->all->pos[(size_t)b->self->u.loop->index0 % b->all->pos_n];
}

static const struct value *loop_changed(struct run *r, const struct bound *b)
{
    struct value *now = value_tuple(r->arena, b->all->pos_n);
    struct loop *l = b->self->u.loop;
    int yes = 0;

    for (size_t i = 0; i < b->all->pos_n; i++)
        value_list_add(r->arena, now, b->all->pos[i]);
    if (l->changed != NULL && (yes = equal(r, l->changed, now)) < 0)
        return NULL;
    if (!yes)
        l->changed = now;
    return value_bool(!yes);
}

static const struct builtin str_methods[] = {
    { "strip", str_strip, "/?chars" }, { "lstrip", str_lstrip, "/?chars" }, { "rstrip", str_rstrip, "/?chars" },
    { "lower", str_lower, "" }, { "upper", str_upper, "" }, { "title", str_title, "" },
    { "capitalize", str_capitalize, "" }, { "swapcase", str_swapcase, "" },
    { "replace", str_replace, "/old,new,?count" }, { "split", str_split, "?sep,maxsplit" },
    { "rsplit", str_rsplit, "?sep,maxsplit" }, { "splitlines", str_splitlines, "?keepends" },
    { "partition", str_partition, "/sep" }, { "rpartition", str_rpartition, "/sep" },
    { "startswith", str_startswith, "/prefix,?start,end" }, { "endswith", str_endswith, "/suffix,?start,end" },
    { "find", str_find, "/sub,?start,end" }, { "rfind", str_rfind, "/sub,?start,end" },
    { "index", str_index, "/sub,?start,end" }, { "rindex", str_rindex, "/sub,?start,end" },
    { "count", str_count, "/sub,?start,end" }, { "removeprefix", str_removeprefix, "/prefix" },
    { "removesuffix", str_removesuffix, "/suffix" }, { "join", str_join, "/iterable" },
    { "ljust", str_ljust, "/width,?fillchar" }, { "rjust", str_rjust, "/width,?fillchar" },
    { "center", str_center, "/width,?fillchar" }, { "zfill", str_zfill, "/width" }, { "isascii", str_isascii, "" },
    { "isdecimal", str_isdecimal, "" }, { "isdigit", str_isdigit, "" }, { "isnumeric", str_isnumeric, "" },
    { "isalpha", str_isalpha, "" }, { "isalnum", str_isalnum, "" }, { "isspace", str_isspace, "" },
    { "isprintable", str_isprintable, "" }, { "isupper", str_isupper, "" }, { "islower", str_islower, "" },
    { "format", format_braces, "*" }, { NULL, NULL, NULL },
};
static const struct builtin list_methods[] = {
    { "count", list_count, "/value" }, { "index", list_index, "/value,?start,stop" }, { "copy", copy, "" },
    { NULL, NULL, NULL },
};
static const struct builtin dict_methods[] = {
    { "get", dict_get_method, "/key,?default" }, { "items", dict_items, "" }, { "keys", dict_keys, "" },
    { "values", dict_values, "" }, { "copy", copy, "" }, { NULL, NULL, NULL },
};
static const struct builtin loop_methods[] = {
    { "cycle", loop_cycle, "*" }, { "changed", loop_changed, "*" }, { NULL, NULL, NULL },
};

const struct builtin *method_find(const struct value *self, const char *name, size_t n)
{
    const struct builtin *m = NULL;

    switch (self->kind) {
    case VALUE_TEXT: m = str_methods; break;
    case VALUE_TUPLE:
    case VALUE_LIST: m = list_methods; break;
    case VALUE_DICT: m = dict_methods; break;
    case VALUE_LOOP: m = loop_methods; break;
    default: return NULL;
    }
    for (; m->name != NULL; m++)
        if (strlen(m->name) == n && memcmp(m->name, name, n) == 0)
            return self->kind == VALUE_TUPLE && m->call == copy ? NULL : m;
    return NULL;
}

static bool is_one_of(const char *const *names, const char *name, size_t n)
{
    for (; *names != NULL; names++)
        if (strlen(*names) == n && memcmp(*names, name, n) == 0)
            return true;
    return false;
}

static const char *const list_refused[] = {
    "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove", NULL,
};
static const char *const dict_refused[] = { "clear", "pop", "popitem", "setdefault", "update", NULL };

bool method_refused(const struct value *self, const char *name, size_t n)
{
    if (self->kind == VALUE_LIST)
        return is_one_of(list_refused, name, n);
    return self->kind == VALUE_DICT && is_one_of(dict_refused, name, n);
}

bool dict_attribute(const char *name, size_t n)
{
    const struct value dict = { .kind = VALUE_DICT };

    return (n > 1 && memcmp(name, "__", 2) == 0) || method_refused(&dict, name, n)
           || method_find(&dict, name, n) != NULL;
}
