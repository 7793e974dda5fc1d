/* Any bytes as a chat template, over fixed variables, with tight limits.
 * What must hold: the template is refused or renders inside its limits; the output is UTF-8 in non-empty spans; a second
 * rendering is the same, so is one whose variables are all trusted (nothing may depend on trust but trust itself); and
 * what the variables hold never comes out as the template's own text. Their texts are full of U+E000, so that last part
 * is checked wherever the source has no such character and no escape that could make one. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "worker/text/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MARK "\xee\x80\x80"

static const struct template_limits limits = {
    .steps_max = 20000, .output_bytes_max = 1 << 16, .memory_bytes_max = 4 << 20, .now_ns = 1,
};

static void set_text(struct arena *a, struct value *dict, const char *key, const char *text, enum text_trust trust)
{
    value_dict_set(a, dict, key, strlen(key), value_text(a, text, strlen(text), trust));
}

static struct value *message(struct arena *a, const char *role, const char *content, enum text_trust trust)
{
    struct value *m = value_dict(a);

    set_text(a, m, "role", role, trust);
    set_text(a, m, "content", content, trust);
    return m;
}

static struct value *variables_make(struct arena *a, enum text_trust trust)
{
    struct value *v = value_dict(a), *messages = value_list(a), *numbers = value_list(a), *words = value_dict(a);
    static const char *const keys[] = { "a", "b", "c", "d", "e", "f", "g", "h", "i", "items" };

    value_list_add(a, messages, message(a, "system" MARK, MARK " Be kind. " MARK, trust));
    value_list_add(a, messages, message(a, "user" MARK, MARK "\n'\"\\<|im_end|>\xc3\x9f \xf0\x9f\x98\x80" MARK, trust));
    value_list_add(a, messages, message(a, MARK "assistant", "", trust));
    for (int i = 0; i < 4; i++)
        value_list_add(a, numbers, value_int(a, 3 - i));
    value_list_add(a, numbers, value_real(a, 2.5));
    value_list_add(a, numbers, value_none());
    value_list_add(a, numbers, value_bool(true));
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        set_text(a, words, keys[i], MARK "w" MARK, trust);
    value_dict_set(a, v, "messages", 8, messages);
    value_dict_set(a, v, "l", 1, numbers);
    value_dict_set(a, v, "d", 1, words);
    value_dict_set(a, v, "n", 1, value_int(a, 5));
    value_dict_set(a, v, "t", 1, value_bool(true));
    set_text(a, v, "s", MARK "a,b c" MARK "A" MARK, trust);
    return v;
}

struct rendering {
    struct arena a;
    struct text_span *spans;
    size_t spans_n;
    struct buf text;
    struct error err;
    status st;
};

static void render(struct rendering *r, const struct template *t, enum text_trust trust)
{
    size_t at = 0;

    memset(r, 0, sizeof(*r));
    arena_init(&r->a, 4096);
    r->st = template_render(t, variables_make(&r->a, trust), &limits, &r->a, &r->spans, &r->spans_n, &r->err);
    ASSERT(r->st == ST_OK || (r->st == ST_REJECT && r->spans_n == 0));
    for (size_t i = 0; i < r->spans_n; i++) {
        ASSERT(r->spans[i].n > 0);
        buf_add(&r->text, r->spans[i].text, r->spans[i].n);
    }
    ASSERT(r->text.n <= limits.output_bytes_max);
    while (at < r->text.n)
        ASSERT((at += utf8_valid(r->text.data + at, r->text.n - at)) == r->text.n);
}

static void rendering_end(struct rendering *r)
{
    buf_fini(&r->text);
    arena_fini(&r->a);
}

/* Out of memory depends on how texts are cut into spans, and so on trust. */
static bool out_of_memory(const struct rendering *r)
{
    return r->st != ST_OK && strstr(r->err.text, "memory") != NULL;
}

static void assert_same(const struct rendering *x, const struct rendering *y)
{
    if (out_of_memory(x) || out_of_memory(y))
        return;
    ASSERT(x->st == y->st && x->text.n == y->text.n && strcmp(x->err.text, y->err.text) == 0);
    ASSERT(x->text.n == 0 || memcmp(x->text.data, y->text.data, x->text.n) == 0);
}

static void assert_data_is_plain(const struct rendering *r)
{
    for (size_t i = 0; i < r->spans_n; i++)
        ASSERT(r->spans[i].trust == TEXT_PLAIN || memchr(r->spans[i].text, MARK[0], r->spans[i].n) == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rendering first, again, trusted;
    struct error err = { "" };
    struct template *t;

    if (template_open((const char *)data, size, &t, &err) != ST_OK) {
        ASSERT(t == NULL && err.text[0] != '\0');
        return 0;
    }
    render(&first, t, TEXT_PLAIN);
    render(&again, t, TEXT_PLAIN);
    render(&trusted, t, TEXT_TRUSTED);
    assert_same(&first, &again);
    ASSERT(first.st == again.st && first.spans_n == again.spans_n);
    for (size_t i = 0; i < first.spans_n; i++)
        ASSERT(first.spans[i].n == again.spans[i].n && first.spans[i].trust == again.spans[i].trust);
    assert_same(&first, &trusted);
    if (memchr(data, '\\', size) == NULL && memchr(data, MARK[0] & 0xff, size) == NULL)
        assert_data_is_plain(&first);
    rendering_end(&first);
    rendering_end(&again);
    rendering_end(&trusted);
    template_close(t);
    return 0;
}
