/* worker/text/value_internal.h - how values are laid out: for value*.c and template*.c alone.
 *
 * A text is a run of spans, each with one trust and none empty; joining two texts joins their spans and copies no
 * bytes. Spans that were appended to are kept in a pool with room behind them: `x = x + y` in a loop extends the pool in
 * place, so building a text of n pieces costs O(n), not O(n^2); an older text sees only its own count of the pool.
 * An operation that looks at characters first makes the text flat (one stretch of bytes, neighbouring spans of equal
 * trust merged), once: the flat form replaces the old one inside the value. The literals of a template are flat and
 * counted from the start, so that threads may share them. */
#ifndef WORKER_TEXT_VALUE_INTERNAL_H
#define WORKER_TEXT_VALUE_INTERNAL_H

#include "worker/text/value.h"

enum {
    VALUE_DEPTH_MAX = 500,          /* lists in lists, where a recursion follows them */
    DICT_LINEAR_MAX = 8,            /* above this many keys a dict has a hash index */
    DICT_TUPLE_MAX = 16
};

struct span_pool {
    struct text_span *spans;
    size_t used, room;
};

struct text {
    const struct text_span *spans;
    size_t spans_n;
    size_t bytes;
    int64_t chars;                  /* code points; -1: not counted yet */
    struct span_pool *pool;         /* NULL, or where spans ends and may grow */
    struct text_span one;           /* spans points here where one is enough */
};

struct list {
    const struct value **items;
    size_t n, room;
};

struct dict_entry {
    const struct value *key, *item;
    uint64_t hash;                  /* set once there is an index */
};

struct dict {
    struct dict_entry *entries;     /* in order of insertion */
    size_t n, room;
    uint32_t *index;                /* [index_n] entry + 1, 0: free; NULL up to DICT_LINEAR_MAX keys */
    size_t index_n;                 /* power of two */
};

struct undefined {
    const struct value *object;     /* whose attribute or element is missing; NULL: a variable */
    const struct value *name;       /* NULL: hint says it all */
    const char *hint;
    bool unsafe;                    /* exists in Python, and the sandbox refuses it */
};

struct range { int64_t start, stop, step, n; };
enum view_kind { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };
struct view { const struct value *dict; enum view_kind kind; };

struct value {
    uint8_t kind;                   /* enum value_kind */
    uint8_t trust;                  /* of a number or word as the template's own literal: enum text_trust */
    uint8_t safe;                   /* text marked by |safe or |escape (Python's Markup) */
    union {
        bool b;
        int64_t i;
        double d;
        struct text text;
        struct list list;           /* VALUE_LIST, VALUE_TUPLE */
        struct dict dict;           /* VALUE_DICT, VALUE_NAMESPACE */
        struct undefined undefined;
        struct range range;
        struct view view;
        struct iter *iter;
        struct loop *loop;
        const struct macro *macro;
        const struct builtin *function;
        struct { const struct value *self; const struct builtin *builtin; } method;
    } u;
};

struct value *value_new(struct arena *a, enum value_kind kind);
struct value *value_tuple(struct arena *a, size_t room);
/* Borrows bytes that live at least as long as the arena. */
struct value *value_text_borrow(struct arena *a, const char *text, size_t n, enum text_trust trust);
const struct value *value_empty_text(void);

/* 1, 0, or -1: nested too deeply or out of steps. Every comparison of two values takes a step. */
int value_equal(const struct value *a, const struct value *b, int64_t *steps);
/* Makes v ready to be a key of a dict (its text flat). false: Python calls it unhashable, or it is a tuple of tuples or
 * of more than DICT_TUPLE_MAX items, which no template needs and which would make a comparison of keys unbounded. */
bool value_key(struct arena *a, const struct value *v);
/* NULL: no such key. These take keys that value_key has seen. */
const struct value *dict_get(const struct dict *d, const struct value *key);
const struct value *dict_get_text(const struct dict *d, const char *key, size_t n);
void dict_set(struct arena *a, struct dict *d, const struct value *key, const struct value *item);

/* Text. `v` is a VALUE_TEXT everywhere. */
const char *text_flat(struct arena *a, const struct value *v);
int64_t text_chars(const struct value *v);
/* Byte offset of character i (0 <= i <= text_chars) of a flat text. */
size_t text_offset(const struct value *v, int64_t i);
/* Bytes [from, to) of a flat text, sharing its memory. */
const struct value *text_slice(struct arena *a, const struct value *v, size_t from, size_t to);
const struct value *text_join2(struct arena *a, const struct value *x, const struct value *y);
bool text_is(const struct value *v, const char *word);      /* any value; false unless it is this text */

/* Makes a text span by span. Over a bound it stops adding, and the end says so. */
struct text_build {
    struct arena *arena;
    size_t bytes_max, taken_max;    /* of the text; of the arena */
    struct text_span *spans;
    size_t spans_n, spans_room;
    size_t bytes;
    char *chunk;                    /* where copied bytes go */
    size_t chunk_room;
    bool over;
};

void text_build_ref(struct text_build *b, const char *text, size_t n, enum text_trust trust);    /* borrows */
void text_build_copy(struct text_build *b, const char *text, size_t n, enum text_trust trust);
void text_build_word(struct text_build *b, const char *word);       /* copies, plain */
void text_build_value(struct text_build *b, const struct value *v);     /* all of a text */
/* Bytes [from, to) of a flat text. *span_i is a cursor for calls with rising offsets; starts at 0. */
void text_build_part(struct text_build *b, const struct value *v, size_t from, size_t to, size_t *span_i);
/* The trust of the byte at `at` of a flat text; *span_i as above. */
enum text_trust text_trust_at(const struct value *v, size_t at, size_t *span_i);
/* NULL: over a bound. */
const struct value *text_build_end(struct text_build *b);

#endif
