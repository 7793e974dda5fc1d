/* Texts made of spans: flattening, slices, joins, and the builder that every operation on text ends in. */
#include <string.h>

#include "base/status.h"
#include "worker/text/value_internal.h"

enum { CHUNK_MIN = 256, CHUNK_MAX = 65536, POOL_MIN = 8 };

static const struct value empty_text = { .kind = VALUE_TEXT, .u.text = { .chars = 0 } };

const struct value *value_empty_text(void)
{
    return &empty_text;
}

struct value *value_text_borrow(struct arena *a, const char *text, size_t n, enum text_trust trust)
{
    struct value *v = value_new(a, VALUE_TEXT);
    struct text *t = &v->u.text;

    t->one = (struct text_span){ text, n, trust };
    t->spans = &t->one;
    t->spans_n = n > 0;
    t->bytes = n;
    t->chars = n > 0 ? -1 : 0;
    t->pool = NULL;
    return v;
}

static int64_t count_chars(const char *text, size_t n)
{
    int64_t chars = 0;

    for (size_t i = 0; i < n; i++)
        chars += ((unsigned char)text[i] & 0xc0) != 0x80;
    return chars;
}

int64_t text_chars(const struct value *v)
{
    const struct text *t = &v->u.text;
    int64_t chars = 0;

    if (t->chars >= 0)
        return t->chars;
    for (size_t i = 0; i < t->spans_n; i++)
        chars += count_chars(t->spans[i].text, t->spans[i].n);
    ((struct text *)t)->chars = chars;      /* a cache; literals come counted, so no thread writes to a shared one */
    return chars;
}

size_t text_offset(const struct value *v, int64_t i)
{
    enum { BLOCK = 64 };
    const struct text *t = &v->u.text;
    const char *p;
    size_t at = 0;

    if (text_chars(v) == (int64_t)t->bytes)
        return (size_t)i;
    if (i >= t->chars)
        return t->bytes;
    p = t->spans[0].text;
    /* Whole blocks first: counting has no branches. A block may end inside a character, walked out of below. */
    while (t->bytes - at > BLOCK) {
        int64_t chars = count_chars(p + at, BLOCK);

        if (chars > i)
            break;
        i -= chars;
        at += BLOCK;
    }
    for (;; at++) {
        bool start = ((unsigned char)p[at] & 0xc0) != 0x80;

        if (start && i-- == 0)
            return at;
    }
}

static bool is_flat(const struct text *t)
{
    for (size_t i = 1; i < t->spans_n; i++)
        if (t->spans[i].text != t->spans[i - 1].text + t->spans[i - 1].n || t->spans[i].trust == t->spans[i - 1].trust)
            return false;
    return true;
}

const char *text_flat(struct arena *a, const struct value *v)
{
    struct text *t = (struct text *)&v->u.text;
    struct text_span *spans;
    char *bytes;
    size_t at = 0, n = 0;

    if (t->spans_n == 0)
        return "";
    if (is_flat(t))
        return t->spans[0].text;
    bytes = arena_take(a, t->bytes);
    spans = arena_take(a, t->spans_n * sizeof *spans);
    for (size_t i = 0; i < t->spans_n; i++) {
        const struct text_span *s = &t->spans[i];

        memcpy(bytes + at, s->text, s->n);
        if (n > 0 && spans[n - 1].trust == s->trust)
            spans[n - 1].n += s->n;
        else
            spans[n++] = (struct text_span){ bytes + at, s->n, s->trust };
        at += s->n;
    }
    t->one = spans[0];
    t->spans = n == 1 ? &t->one : spans;
    t->spans_n = n;
    t->pool = NULL;
    return bytes;
}

bool text_is(const struct value *v, const char *word)
{
    const struct text *t = &v->u.text;
    size_t n;

    if (v->kind != VALUE_TEXT)
        return false;
    n = strlen(word);
    if (t->bytes != n)
        return false;
    for (size_t i = 0; i < t->spans_n; word += t->spans[i++].n)
        if (memcmp(t->spans[i].text, word, t->spans[i].n) != 0)
            return false;
    return true;
}

const struct value *text_slice(struct arena *a, const struct value *v, size_t from, size_t to)
{
    struct text_build b = { .arena = a, .bytes_max = SIZE_MAX, .taken_max = SIZE_MAX };
    size_t span_i = 0;

    if (from >= to)
        return &empty_text;
    if (from == 0 && to == v->u.text.bytes)
        return v;
    if (v->u.text.spans_n == 1)
        return value_text_borrow(a, v->u.text.spans[0].text + from, to - from, v->u.text.spans[0].trust);
    text_build_part(&b, v, from, to, &span_i);
    return text_build_end(&b);
}

const struct value *text_join2(struct arena *a, const struct value *x, const struct value *y)
{
    const struct text *s = &x->u.text, *t = &y->u.text;
    struct span_pool *pool = s->pool;
    struct value *v;

    if (s->bytes == 0)
        return y;
    if (t->bytes == 0)
        return x;
    if (pool == NULL || s->spans + s->spans_n != pool->spans + pool->used || pool->room - pool->used < t->spans_n) {
        pool = arena_take(a, sizeof *pool);
        pool->room = 2 * (s->spans_n + t->spans_n);
        if (pool->room < POOL_MIN)
            pool->room = POOL_MIN;
        pool->spans = arena_take(a, pool->room * sizeof pool->spans[0]);
        memcpy(pool->spans, s->spans, s->spans_n * sizeof pool->spans[0]);
        pool->used = s->spans_n;
    }
    memcpy(pool->spans + pool->used, t->spans, t->spans_n * sizeof pool->spans[0]);
    pool->used += t->spans_n;
    v = value_new(a, VALUE_TEXT);
    v->u.text.spans_n = s->spans_n + t->spans_n;
    v->u.text.spans = pool->spans + pool->used - v->u.text.spans_n;
    v->u.text.bytes = s->bytes + t->bytes;
    v->u.text.chars = s->chars >= 0 && t->chars >= 0 ? s->chars + t->chars : -1;
    v->u.text.pool = pool;
    return v;
}

/* The builder. */

static bool build_room(struct text_build *b, size_t n)
{
    if (b->over || n > b->bytes_max - b->bytes) {
        b->over = true;
        return false;
    }
    if (b->spans_n == b->spans_room) {
        size_t room = b->spans_room ? b->spans_room * 2 : 4;
        struct text_span *spans;

        if (b->arena->taken_bytes > b->taken_max || room * sizeof *spans > b->taken_max - b->arena->taken_bytes) {
            b->over = true;
            return false;
        }
        spans = arena_take(b->arena, room * sizeof *spans);
        if (b->spans_n > 0)
            memcpy(spans, b->spans, b->spans_n * sizeof *spans);
        b->spans = spans;
        b->spans_room = room;
    }
    return true;
}

void text_build_ref(struct text_build *b, const char *text, size_t n, enum text_trust trust)
{
    struct text_span *last;

    if (n == 0 || !build_room(b, n))
        return;
    last = b->spans_n > 0 ? &b->spans[b->spans_n - 1] : NULL;
    if (last != NULL && last->trust == trust && last->text + last->n == text)
        last->n += n;
    else
        b->spans[b->spans_n++] = (struct text_span){ text, n, trust };
    b->bytes += n;
}

void text_build_copy(struct text_build *b, const char *text, size_t n, enum text_trust trust)
{
    if (b->over || n > b->bytes_max - b->bytes) {
        b->over = true;
        return;
    }
    if (n > b->chunk_room) {
        size_t room = b->bytes < CHUNK_MIN ? CHUNK_MIN : b->bytes > CHUNK_MAX ? CHUNK_MAX : b->bytes;

        if (room < n)
            room = n;
        if (b->arena->taken_bytes > b->taken_max || room > b->taken_max - b->arena->taken_bytes) {
            b->over = true;
            return;
        }
        b->chunk = arena_take(b->arena, room);
        b->chunk_room = room;
    }
    if (n > 0) {
        memcpy(b->chunk, text, n);
        text_build_ref(b, b->chunk, n, trust);
        b->chunk += n;
        b->chunk_room -= n;
    }
}

void text_build_word(struct text_build *b, const char *word)
{
    text_build_copy(b, word, strlen(word), TEXT_PLAIN);
}

void text_build_value(struct text_build *b, const struct value *v)
{
    for (size_t i = 0; i < v->u.text.spans_n && !b->over; i++)
        text_build_ref(b, v->u.text.spans[i].text, v->u.text.spans[i].n, v->u.text.spans[i].trust);
}

static bool holds(const struct text *t, size_t i, const char *p)
{
    return i < t->spans_n && p >= t->spans[i].text && p < t->spans[i].text + t->spans[i].n;
}

/* Moves the cursor to the span that holds the byte at `at`: spans of a flat text follow each other in memory. The same
 * span or the next one is found at once, any other by halving: a text of very many spans stays cheap to take apart. */
static const struct text_span *span_at(const struct text *t, size_t at, size_t *span_i)
{
    const char *p = t->spans[0].text + at;
    size_t low = 0, high = t->spans_n - 1;

    if (!holds(t, *span_i, p) && !holds(t, ++*span_i, p)) {
        while (low < high) {
            size_t middle = (low + high + 1) / 2;

            if (t->spans[middle].text <= p)
                low = middle;
            else
                high = middle - 1;
        }
        *span_i = low;
    }
    return &t->spans[*span_i];
}

enum text_trust text_trust_at(const struct value *v, size_t at, size_t *span_i)
{
    return span_at(&v->u.text, at, span_i)->trust;
}

void text_build_part(struct text_build *b, const struct value *v, size_t from, size_t to, size_t *span_i)
{
    const struct text *t = &v->u.text;

    while (from < to && !b->over) {
        const struct text_span *s = span_at(t, from, span_i);
        const char *p = t->spans[0].text + from;
        size_t left = (size_t)(s->text + s->n - p), n = to - from < left ? to - from : left;

        text_build_ref(b, p, n, s->trust);
        from += n;
    }
}

const struct value *text_build_end(struct text_build *b)
{
    struct value *v;

    if (b->over)
        return NULL;
    if (b->spans_n == 0)
        return &empty_text;
    v = value_new(b->arena, VALUE_TEXT);
    v->u.text.one = b->spans[0];
    v->u.text.spans = b->spans_n == 1 ? &v->u.text.one : b->spans;
    v->u.text.spans_n = b->spans_n;
    v->u.text.bytes = b->bytes;
    v->u.text.chars = -1;
    v->u.text.pool = NULL;
    return v;
}
