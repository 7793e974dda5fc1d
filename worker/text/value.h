/* worker/text/value.h - the values a chat template works on. Strings know, byte by byte, whether the template wrote
 * them or the data did.
 * Threads:   one owner while values are made and while a template is rendered with them.
 * Ownership: everything lives in an arena; a list or dict borrows its items.
 * Source:    the value model of Python as far as Jinja templates can see it. */
#ifndef WORKER_TEXT_VALUE_H
#define WORKER_TEXT_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "worker/text/tokenizer.h"

enum value_kind {
    VALUE_UNDEFINED, VALUE_NONE, VALUE_BOOL, VALUE_INT, VALUE_REAL, VALUE_TEXT, VALUE_LIST, VALUE_DICT,
    /* These exist only while a template runs. */
    VALUE_TUPLE, VALUE_RANGE, VALUE_VIEW, VALUE_ITER, VALUE_NAMESPACE, VALUE_LOOP, VALUE_MACRO, VALUE_FUNCTION,
    VALUE_METHOD
};

struct value;

const struct value *value_none(void);
const struct value *value_bool(bool b);
struct value *value_int(struct arena *a, int64_t i);
struct value *value_real(struct arena *a, double d);
/* Copies. text must be valid UTF-8. */
struct value *value_text(struct arena *a, const char *text, size_t n, enum text_trust trust);
struct value *value_list(struct arena *a);
void value_list_add(struct arena *a, struct value *list, const struct value *item);
struct value *value_dict(struct arena *a);
/* Copies the key, which becomes plain text. Keeps the place of an existing key (Python's dict). */
void value_dict_set(struct arena *a, struct value *dict, const char *key, size_t key_n, const struct value *item);
const struct value *value_dict_get(const struct value *dict, const char *key);    /* NULL: no such key */
enum value_kind value_kind(const struct value *v);

#endif
