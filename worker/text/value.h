/* worker/text/value.h - the values a chat template works on. Strings know, byte by byte, whether the template wrote
 * them or the data did. Threads: one owner. Ownership: everything lives in an arena. */
#ifndef WORKER_TEXT_VALUE_H
#define WORKER_TEXT_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "worker/text/tokenizer.h"

enum value_kind { VALUE_UNDEFINED, VALUE_NONE, VALUE_BOOL, VALUE_INT, VALUE_REAL, VALUE_TEXT, VALUE_LIST, VALUE_DICT };

struct value;

/* A text is a run of pieces, each with one trust; joining two texts joins their pieces. */
struct text_piece { const char *text; size_t n; enum text_trust trust; };

const struct value *value_none(void);
const struct value *value_bool(bool b);
struct value *value_int(struct arena *a, int64_t i);
struct value *value_real(struct arena *a, double d);
struct value *value_text(struct arena *a, const char *text, size_t n, enum text_trust trust);   /* copies */
struct value *value_list(struct arena *a);
void value_list_add(struct arena *a, struct value *list, const struct value *item);
struct value *value_dict(struct arena *a);
/* Keeps the place of an existing key (Python's dict). */
void value_dict_set(struct arena *a, struct value *dict, const char *key, size_t key_n, const struct value *item);
const struct value *value_dict_get(const struct value *dict, const char *key);    /* NULL: no such key */
enum value_kind value_kind(const struct value *v);

#endif
