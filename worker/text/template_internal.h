/* worker/text/template_internal.h - the parts of the Jinja interpreter, for template*.c alone.
 *
 * source --template_lex.c--> tokens --template_parse.c, template_expr.c--> nodes --template_scope.c--> names bound to
 * slots; then, a rendering at a time: template_exec.c walks statements, template_eval.c expressions; template_ops.c has
 * the operators, template_iter.c what can be iterated, template_call.c macros and the binding of arguments,
 * template_filters*.c, template_tests.c, template_methods.c and template_functions.c the names a template may call.
 *
 * Bounds: nesting of the source (NODE_DEPTH_MAX), depth of a rendering (RUN_DEPTH_MAX, so that the C stack is bounded:
 * a few hundred bytes a level, 2 KiB where it is a call), steps (one a node, one an item, and more by the bytes that an
 * operation looks at), bytes of any text and of the output, and bytes taken from the arena. An operation charges before
 * it works, or works in pieces that charge.
 *
 * Errors: functions that make a value return NULL once run_fail has said why; the first error wins. */
#ifndef WORKER_TEXT_TEMPLATE_INTERNAL_H
#define WORKER_TEXT_TEMPLATE_INTERNAL_H

#include "base/status.h"
#include "worker/text/template.h"
#include "worker/text/value_internal.h"

enum {
    SOURCE_BYTES_MAX = 1 << 20,
    BRACKETS_MAX = 200,             /* brackets open at once */
    PARSE_DEPTH_MAX = 600,          /* recursion of the parser: about three a bracket, one a statement */
    NODE_DEPTH_MAX = 500,           /* height of a template's tree: a + b + c + d is 4 */
    RUN_DEPTH_MAX = 1200,           /* nodes being evaluated at once, macros included */
    ARGS_MAX = 64,                  /* arguments of one call */
    NAME_BYTES_MAX = 1000,
    RANGE_MAX = 100000              /* as jinja2's sandbox */
};

/* Names, interned: equal names are one pointer. */
struct symbol;
struct name {
    struct name *next;              /* in its hash chain */
    const char *text;
    size_t n;
    const struct value *value;      /* the name as a text */
    uint32_t uses;                  /* times the parser met it as a variable */
    struct symbol *symbol;          /* while scopes are resolved: what it means here */
    int32_t global_i;               /* in template->globals, -1: it is none */
};

/* Nodes. */
enum node_kind {
    NODE_CONST, NODE_NAME, NODE_LIST, NODE_TUPLE, NODE_DICT, NODE_COND, NODE_OR, NODE_AND, NODE_NOT, NODE_COMPARE,
    NODE_CONCAT, NODE_BINARY, NODE_NEG, NODE_POS, NODE_ATTR, NODE_ITEM, NODE_SLICE, NODE_CALL, NODE_FILTER, NODE_TEST,
    NODE_NSREF,
    NODE_DATA, NODE_PRINT, NODE_FOR, NODE_IF, NODE_SET, NODE_SET_BLOCK, NODE_MACRO, NODE_CALL_BLOCK, NODE_FILTER_BLOCK,
    NODE_WITH, NODE_SCOPE, NODE_BREAK, NODE_CONTINUE
};

enum op {
    OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW,
    OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_IN, OP_NOT_IN
};

struct node {
    struct node *next;              /* in a list of items, arguments, operands or statements */
    uint8_t kind, op;               /* enum node_kind, enum op */
    uint16_t depth;                 /* of the tree below; 1: a leaf */
    int32_t line;
    struct node *a, *b, *c;         /* by kind, see below */
    union {
        const struct value *value;              /* CONST; DATA: a text */
        struct { struct name *name; uint32_t hops, slot; } var;     /* NAME, NSREF (attribute: a, a CONST) */
        const struct value *attr;               /* ATTR; op: dict_attribute of it */
        struct call_spec *call;                 /* CALL, FILTER, TEST */
        struct for_spec *loop;                  /* FOR */
        struct macro_spec *macro;               /* MACRO, CALL_BLOCK */
        struct scope *scope;                    /* SET_BLOCK, FILTER_BLOCK, WITH, SCOPE */
        size_t items_n;                         /* LIST, TUPLE, DICT (pairs), CONCAT */
    } u;
};
/* LIST, TUPLE, CONCAT  a: items          DICT    a: key, item, key, item ...
 * COND    a if b else c (c may be NULL)  COMPARE a, then b: the operands, each with its op
 * OR AND NOT NEG POS BINARY              a, b
 * ATTR    a.attr                         ITEM    a[b]                     SLICE  a:b:c, each may be NULL
 * CALL    a(call)                        FILTER  a|call, a NULL: a block  TEST   a is call
 * PRINT   a                              IF      a then b else c (elif: an IF alone in c)
 * SET     a = b                          SET_BLOCK  a = body b, filter c  FILTER_BLOCK  filter a, body b
 * WITH    a: targets, b: values, c: body SCOPE   a: body                  CALL_BLOCK    call a */

struct keyword {                    /* name=value in a call */
    struct keyword *next;
    const struct value *name;
    struct node *value;
};

struct call_spec {
    struct node *args;              /* positional, linked */
    size_t args_n;
    struct keyword *keywords;
    size_t keywords_n;
    struct node *star, *star_star;  /* *args, **kwargs */
    const struct builtin *builtin;  /* of a FILTER or TEST; NULL: there is none of this name */
    const char *builtin_name;
};

/* What entering a scope does to a slot, as jinja2's compiler decides it (idtracking.py). */
enum load_kind { LOAD_PARAM, LOAD_UNDEFINED, LOAD_ALIAS, LOAD_GLOBAL };
struct load {
    struct load *next;
    enum load_kind kind;
    uint32_t slot;
    uint32_t hops, from;            /* ALIAS: the outer variable; GLOBAL: from is its index in template->globals */
};
struct scope { struct load *loads; };

struct for_spec {
    struct node *target, *iter, *test, *body, *otherwise;
    struct node *test_target;       /* the test has variables of its own: loop.last runs it ahead of the body */
    struct scope *test_scope, *body_scope, *else_scope;
    bool loop_used;
    uint32_t loop_slot;
};

struct macro_spec {
    const struct value *name;       /* none for a call block */
    struct node *params;            /* NAMEs */
    struct node **defaults;         /* [params_n], NULL: no default */
    size_t params_n;
    struct node *body;
    struct scope *scope;
    uint32_t slots_n;               /* of one activation */
    bool uses_caller, uses_kwargs, uses_varargs;
    uint32_t caller_slot, kwargs_slot, varargs_slot;
    bool caller_param;              /* caller is among params */
    struct node *target;            /* MACRO: where its value goes, a NAME */
};

struct template {
    struct arena arena;
    struct node *body;
    struct scope *scope;
    uint32_t slots_n;
    struct name **globals;          /* names that come from the variables or the built-in functions */
    size_t globals_n, globals_room;
};

/* Lexer: one token ahead of the parser's current one. */
enum lexeme {
    LEX_EOF, LEX_DATA, LEX_BLOCK_BEGIN, LEX_BLOCK_END, LEX_PRINT_BEGIN, LEX_PRINT_END, LEX_NAME,
    LEX_STRING, LEX_INTEGER, LEX_FLOAT, LEX_ADD, LEX_SUB, LEX_DIV, LEX_FLOORDIV, LEX_MUL, LEX_MOD,
    LEX_POW, LEX_TILDE, LEX_LBRACKET, LEX_RBRACKET, LEX_LPAREN, LEX_RPAREN, LEX_LBRACE, LEX_RBRACE,
    LEX_EQ, LEX_NE, LEX_GT, LEX_GE, LEX_LT, LEX_LE, LEX_ASSIGN, LEX_DOT, LEX_COLON, LEX_PIPE,
    LEX_COMMA, LEX_SEMICOLON
};

struct lexed {
    enum lexeme lexeme;
    int32_t line;
    const char *text;               /* DATA, NAME, STRING (unescaped) */
    size_t n;
    int64_t integer;
    double real;
};

enum lex_state { LEXING_DATA, LEXING_BLOCK, LEXING_PRINT };

struct lexer {
    struct arena *arena;
    struct error *err;
    const char *source;             /* newlines normalised */
    size_t n, at;
    int32_t line;
    enum lex_state state;
    bool line_starting;             /* the last match ended in a newline */
    char balance[BRACKETS_MAX];       /* closing brackets that are due */
    size_t balance_n;
};

void lex_open(struct lexer *lx, struct arena *a, const char *source, size_t n, struct error *err);
MUST_USE status lex_next(struct lexer *lx, struct lexed *out);
const char *lexeme_text(enum lexeme lexeme);
status parse_fail(struct error *err, int32_t line, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Parser. */
enum { NAMES_BUCKETS = 1024 };

struct parser {
    struct template *t;
    struct arena *arena;            /* t's */
    struct error *err;
    struct lexer lexer;
    struct lexed now, ahead;
    bool has_ahead;
    int depth;                      /* of the recursion */
    int fors;                       /* for statements around this place */
    bool may_break;                 /* break and continue are allowed here */
    struct name *names[NAMES_BUCKETS];
    struct name *loop, *caller, *kwargs, *varargs;
};

struct name *name_intern(struct parser *p, const char *text, size_t n);
MUST_USE status parse_advance(struct parser *p);
MUST_USE status parse_ahead(struct parser *p, struct lexed *out);
MUST_USE status parse_expect(struct parser *p, enum lexeme lexeme);
bool parse_is_name(const struct parser *p, const char *word);
MUST_USE status parse_enter(struct parser *p);      /* bounds the recursion; pairs with parse_leave */
void parse_leave(struct parser *p);
struct node *node_new(struct parser *p, enum node_kind kind, int32_t line);
/* Sets depth from the children; ST_REJECT: too deep. */
MUST_USE status node_close(struct parser *p, struct node *n);

MUST_USE status parse_expression(struct parser *p, bool ternary, struct node **out);
/* One expression, or several with commas: a tuple. parentheses: it may be empty. */
MUST_USE status parse_tuple(struct parser *p, bool ternary, bool parentheses, struct node **out);
MUST_USE status parse_target(struct parser *p, bool namespaces, struct node **out);
MUST_USE status parse_name_target(struct parser *p, struct node **out);     /* one plain name */
/* "|a|b(c)" behind first (NULL: filters of a block); inline_start: the first '|' is left out. */
MUST_USE status parse_filters(struct parser *p, struct node *first, bool inline_start, struct node **out);
MUST_USE status parse_call_args(struct parser *p, struct call_spec **out);
/* A name, literal or bracket; namespaces: a name may have one ".attribute" (NODE_NSREF). */
MUST_USE status parse_primary(struct parser *p, bool namespaces, struct node **out);
MUST_USE status parse_word(struct parser *p, bool namespaces, struct node **out);
/* What follows a primary: .a [b] (c); then, after the sign, filters, tests and calls. */
MUST_USE status parse_postfix(struct parser *p, struct node *value, struct node **out);
MUST_USE status parse_filters_and_tests(struct parser *p, struct node *value, struct node **out);
/* A node of two operands, closed. */
MUST_USE status node_pair(struct parser *p, enum node_kind kind, struct node *a, struct node *b, int32_t line,
                          struct node **out);
/* A list being linked. */
struct links { struct node *first, **end; size_t n; };
void links_add(struct links *l, struct node *n);
MUST_USE status parse_template(struct parser *p);

MUST_USE status scope_resolve(struct parser *p);

/* A rendering. */
struct iter;

struct activation {                 /* of the template or of one call of a macro */
    struct activation *outer;       /* where the macro was defined */
    const struct value **slots;     /* NULL: not assigned */
};

struct macro {
    const struct macro_spec *spec;
    struct activation *outer;
};

struct run {
    const struct template *t;
    struct arena *arena;
    struct error *err;
    int32_t line;
    int64_t steps;                  /* left */
    int depth;
    size_t text_max;                /* bytes of any text */
    size_t taken_max;               /* arena->taken_bytes may grow so far */
    int64_t now_ns;
    const struct value **globals;   /* [t->globals_n], NULL: undefined */
    struct activation *act;
    struct text_build *out;         /* where output goes: the result, or a block that is being captured */
    const struct value *block;      /* what the filters of a block start from */
    bool failed;
};

const struct value *run_fail(struct run *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
bool run_exhausted(struct run *r);                  /* says which bound it was; returns false */
/* Takes steps; false: there are none left, or the arena is used up (and run_fail has been called). */
static inline bool run_charge(struct run *r, int64_t steps)
{
    r->steps -= steps;
    return r->steps >= 0 && r->arena->taken_bytes <= r->taken_max ? true : run_exhausted(r);
}
bool run_room(struct run *r, size_t bytes);         /* before taking much at once */
/* Before looking for m bytes in n: the C library's search takes up to m times n/32 where m is small. */
bool run_search(struct run *r, size_t n, size_t m);
/* Makes v ready to be a key, charged; false: failed, it cannot be one. */
bool run_key(struct run *r, const struct value *v);
/* false: failed, a text of so many bytes together would be too long. */
bool run_fits(struct run *r, size_t bytes, size_t more);
void run_build(struct run *r, struct text_build *b);
const struct value *run_build_end(struct run *r, struct text_build *b);

/* Evaluation: NULL: failed. */
const struct value *eval(struct run *r, const struct node *n);
enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE, FLOW_FAILED };
enum flow exec(struct run *r, const struct node *body);
bool assign(struct run *r, const struct node *target, const struct value *v);
void scope_enter(struct run *r, const struct scope *s);
const struct value *slot_get(const struct run *r, uint32_t hops, uint32_t slot);      /* NULL: not assigned */
/* Whether an item passes the test of a for: 1, 0, -1: failed. *item becomes what the target took it apart into. */
int for_test(struct run *r, const struct iter *it, const struct value **item);
/* Runs a body with its output caught. NULL: failed, or *flow says that a break or continue left it. */
const struct value *exec_capture(struct run *r, const struct node *body, enum flow *flow);

/* Arguments of a call. */
struct args {
    const struct value *pos[ARGS_MAX];
    size_t pos_n;
    const struct value *key[ARGS_MAX], *item[ARGS_MAX];     /* keywords */
    size_t keys_n;
};

/* What a template may call: a filter (self: the value), a test, a method (self: the object) or a function (no self).
 * params: the names of the arguments, comma-separated; those after '?' may be left out (NULL); "*" alone: any number and
 * any keywords, in `all`; '/' in front: by position only. */
struct bound {
    const struct value *self;
    const struct value *arg[8];     /* by params; NULL: not given */
    const struct args *all;
};
struct builtin {
    const char *name;
    const struct value *(*call)(struct run *r, const struct bound *b);
    const char *params;
};

bool args_eval(struct run *r, const struct call_spec *c, struct args *out);
const struct value *builtin_call(struct run *r, const struct builtin *f, const struct value *self,
                                 const struct args *args);
const struct value *value_call(struct run *r, const struct value *f, struct args *args);
const struct value *macro_value(struct run *r, const struct macro_spec *spec);

const struct builtin *filter_find(const char *name, size_t n);
const struct builtin *test_find(const char *name, size_t n);
const struct builtin *function_find(const char *name, size_t n);
const struct builtin *method_find(const struct value *self, const char *name, size_t n);
bool method_refused(const struct value *self, const char *name, size_t n);     /* it would modify self */
/* Whether an attribute of this name of a dict could be anything but the member of the name. Known when the template is
 * parsed: most attributes in a template are members, and need no look at the methods. */
bool dict_attribute(const char *name, size_t n);

/* Access. */
const struct value *undefined_name(struct run *r, const struct value *name);      /* a variable */
const struct value *undefined_hint(struct run *r, const char *hint);
const struct value *undefined_of(struct run *r, const struct value *object, const struct value *name);
const struct value *undefined_fail(struct run *r, const struct value *undefined);
const struct value *get_attr(struct run *r, const struct value *object, const struct value *name);
const struct value *get_item(struct run *r, const struct value *object, const struct value *key);
const struct value *get_slice(struct run *r, const struct value *object, const struct value *start,
                              const struct value *stop, const struct value *step);
/* Methods and attributes alone, without the keys of a dict; name is flat. NULL without failing: there is none. */
const struct value *own_attr(struct run *r, const struct value *object, const struct value *name);
/* "a.b.0" or an integer, as the attribute= of filters has it; attribute NULL: the object itself. */
const struct value *get_path(struct run *r, const struct value *object, const struct value *attribute,
                             const struct value *otherwise);
const struct value *loop_attr(struct run *r, struct loop *l, const char *name);    /* NULL: no such attribute */

/* Operators. */
int truth(struct run *r, const struct value *v);                /* 1, 0 */
const struct value *binary(struct run *r, enum op op, const struct value *a, const struct value *b);
const struct value *negate(struct run *r, const struct value *v, bool minus);
int compare(struct run *r, enum op op, const struct value *a, const struct value *b);      /* 1, 0, -1: failed */
int equal(struct run *r, const struct value *a, const struct value *b);
int contains(struct run *r, const struct value *container, const struct value *item);
int64_t length(struct run *r, const struct value *v);           /* -1: failed */
int64_t loop_length(struct run *r, struct loop *l);
const char *type_name(const struct value *v);
bool is_int(const struct value *v, int64_t *out);               /* int or bool */
bool is_number(const struct value *v, double *out);
const struct value *int_of(struct run *r, int64_t i);
const struct value *repeat(struct run *r, const struct value *v, int64_t times);

/* Characters (template_chars.c). */
bool char_space(uint32_t code);             /* Python's str.isspace */
bool char_printable(uint32_t code);         /* Python's str.isprintable */
bool char_word_start(uint32_t code), char_word(uint32_t code);
/* Full case mappings; return how many code points (1-3). */
enum text_case { CASE_LOWER, CASE_UPPER, CASE_TITLE };
int char_case(uint32_t code, enum text_case to, uint32_t out[3]);
enum char_class { CHAR_CASED, CHAR_UPPER, CHAR_LOWER, CHAR_TITLE, CHAR_ALPHA, CHAR_DECIMAL, CHAR_DIGIT, CHAR_NUMERIC };
bool char_is(uint32_t code, enum char_class what);
/* The text in another case: sentence: first character title, others lower (str.capitalize). */
enum case_style { STYLE_LOWER, STYLE_UPPER, STYLE_CAPITALIZE, STYLE_TITLE, STYLE_SWAP, STYLE_WORDS };
const struct value *text_case(struct run *r, const struct value *v, enum case_style style);

/* Text of values. */
const struct value *text_of(struct run *r, const struct value *v);          /* str() */
const struct value *repr_of(struct run *r, const struct value *v);
bool repr_build(struct run *r, struct text_build *b, const struct value *v, int depth);
const struct value *json_of(struct run *r, const struct value *v, bool ascii, const struct value *indent,
                            const struct value *separators, bool sort);
size_t real_text(double d, char out[40]);                       /* as Python's repr */
const struct value *format_braces(struct run *r, const struct bound *b);    /* str.format, plain fields only */
const struct value *text_is_case(struct run *r, const struct value *v, enum char_class what);   /* isupper, islower */
const struct value *format_percent(struct run *r, const struct value *format, const struct value *args);
const struct value *escape_of(struct run *r, const struct value *v);        /* HTML-escaped, marked safe */
const struct value *text_safe(struct run *r, const struct value *v);        /* the same text, marked safe */
/* Flat text of a VALUE_TEXT, its bytes charged; NULL: failed. */
const char *run_flat(struct run *r, const struct value *v, size_t *n);

/* What methods of str and filters have in common. Texts may be of any value_kind TEXT; chars NULL: white space. */
enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
const struct value *text_strip(struct run *r, const struct value *v, const struct value *chars, int ends);
const struct value *text_replace(struct run *r, const struct value *v, const struct value *from, const struct value *to,
                                 int64_t count);
const struct value *text_join(struct run *r, const struct value *between, const struct value *items, bool strings_only,
                              const struct value *attribute);
struct value *text_lines(struct run *r, const struct value *v, bool keep_ends);
bool text_ends_line(const struct value *v);                /* a flat text; its last character ends a line, but "\r" */
const struct value *text_pad(struct run *r, const struct value *v, int64_t width, const struct value *fill, int side);
/* Python's int(text, base) and float(text); false: not a number. *over: an integer of more than 64 bits. */
bool text_to_int(const char *text, size_t n, int64_t base, int64_t *out, bool *over);
bool text_to_real(const char *text, size_t n, double *out);
/* An optional integer argument. false: failed. */
bool arg_int(struct run *r, const struct value *v, int64_t otherwise, int64_t *out);
bool arg_true(struct run *r, const struct value *v);       /* NULL: false */

/* Iteration. */
struct iter {
    struct iter *source;            /* of map, select ... */
    const struct value *over;       /* what is iterated */
    enum iter_kind {
        ITER_EMPTY, ITER_LIST, ITER_TEXT, ITER_RANGE, ITER_DICT, ITER_MAP, ITER_SELECT, ITER_UNIQUE, ITER_BATCH,
        ITER_FOR_TEST, ITER_SHARED, ITER_LOOP, ITER_FAIL
    } kind;
    int depth;                      /* of sources of sources */
    enum view_kind view;            /* DICT */
    bool reverse;
    int64_t at, n;                  /* items done, items in all; BATCH: n a list */
    size_t byte;                    /* TEXT: where the next character is */
    /* MAP, SELECT */
    const struct builtin *builtin;  /* NULL: the attribute, or truth */
    struct args *args;
    bool by_attribute, negate;
    const struct value *attribute, *otherwise;
    struct value *seen;             /* UNIQUE: a dict */
    bool case_sensitive;
    const struct for_spec *test_of; /* FOR_TEST, with the activation that the for belongs to */
    struct activation *act;
};
bool iter_open(struct run *r, struct iter *it, const struct value *v);
/* 1: *out, 0: the end, -1: failed. */
int iter_next(struct run *r, struct iter *it, const struct value **out);
bool can_iterate(const struct value *v);
bool can_reverse(const struct value *v);
/* A new iteration over v, to be filled in further by the filter that makes it. NULL: failed. That v cannot be iterated
 * fails when the first item is asked for, as a generator does in Python. */
struct iter *iter_new(struct run *r, enum iter_kind kind, const struct value *v);
const struct value *iter_value(struct run *r, struct iter *it);             /* as a value; shared by all who hold it */
struct value *list_of(struct run *r, const struct value *v);                /* list() */

struct loop {
    struct iter *iter;
    const struct value *over;
    int64_t index0, length;         /* length -1: not known yet */
    const struct value *before, *now, *after;       /* after: peeked, or NULL */
    bool ended;                     /* a peek saw the end */
    const struct value *changed;
    struct value *self;
    int depth;
};
int loop_next(struct run *r, struct loop *l, const struct value **out);

/* Sorting: stable, charged. Keys are compared with <, items moved along. */
bool sort_items(struct run *r, const struct value **keys, const struct value **items, size_t n, bool reverse);

#endif
