/* The output of every golden case equal to jinja2's, byte by byte; where jinja2 fails, we fail; where raise_exception
 * spoke, the same words. The files are made by make_templates.py, which says what they hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/buf.h"
#include "tests/support/json_value.h"
#include "worker/text/template.h"

#define FOLDER NIGHTSHIFT_ROOT "/tests/golden/templates/"

struct golden {
    json_t *file;
    struct template_limits limits;
    size_t cases, wrong;
};

static void golden_open(struct golden *g, const char *path)
{
    struct tm now = { .tm_year = 124, .tm_mon = 6, .tm_mday = 26, .tm_hour = 13, .tm_min = 5, .tm_sec = 9, .tm_isdst = -1 };
    json_error_t error;

    memset(g, 0, sizeof *g);
    g->file = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (g->file == NULL)
        fail_msg("%s:%d: %s", path, error.line, error.text);
    g->limits = (struct template_limits){ .steps_max = 2000000, .output_bytes_max = 32 << 20,
                                          .now_ns = (int64_t)mktime(&now) * 1000000000 };
}

static void report(struct golden *g, const char *name, const char *set, const char *want_kind, const json_t *want,
                   const char *got_kind, const char *got, size_t n)
{
    g->wrong++;
    fprintf(stderr, "--- %s [%s]\n    want %s: %s\n    got  %s: %.*s\n", name, set, want_kind, json_string_value(want), got_kind,
            (int)n, got);
}

/* case: [name or source, set, kind, text] */
static void check(struct golden *g, const json_t *c, const char *source, size_t source_n)
{
    const char *name = json_string_value(json_array_get(c, 0)), *set = json_string_value(json_array_get(c, 1));
    const char *kind = json_string_value(json_array_get(c, 2));
    const json_t *want = json_array_get(c, 3);
    const struct value *variables;
    struct template *t = NULL;
    struct text_span *spans = NULL;
    struct error err = { "" };
    struct buf out = BUF_EMPTY;
    struct arena a;
    size_t spans_n = 0;
    status st;

    arena_init(&a, 4096);
    variables = json_value_make(&a, json_object_get(json_object_get(g->file, "sets"), set), "bos_token,eos_token");
    st = template_open(source, source_n, &t, &err);
    if (st == ST_OK)
        st = template_render(t, variables, &g->limits, &a, &spans, &spans_n, &err);
    for (size_t i = 0; i < spans_n; i++)
        buf_add(&out, spans[i].text, spans[i].n);
    g->cases++;
    if (strcmp(kind, "out") == 0) {
        if (st != ST_OK)
            report(g, name, set, kind, want, "error", err.text, strlen(err.text));
        else if (out.n != json_string_length(want) || (out.n > 0 && memcmp(out.data, json_string_value(want), out.n) != 0))
            report(g, name, set, kind, want, "out", out.data, out.n);
    } else if (st != ST_REJECT || spans_n != 0) {
        report(g, name, set, kind, want, "out", out.data, out.n);
    } else if (strcmp(kind, "raise") == 0 && strcmp(err.text, json_string_value(want)) != 0) {
        report(g, name, set, kind, want, "error", err.text, strlen(err.text));
    }
    buf_fini(&out);
    template_close(t);
    arena_fini(&a);
}

static void golden_close(struct golden *g, size_t cases_min)
{
    assert_true(g->cases >= cases_min);
    assert_int_equal(g->wrong, 0);
    json_decref(g->file);
}

static void language_is_jinja(void **state)
{
    struct golden g;
    json_t *c;
    size_t i;

    (void)state;
    golden_open(&g, FOLDER "language.json");
    json_array_foreach(json_object_get(g.file, "cases"), i, c)
        check(&g, c, json_string_value(json_array_get(c, 0)), json_string_length(json_array_get(c, 0)));
    golden_close(&g, 1500);
}

static void file_read(const char *name, struct buf *out)
{
    char path[512];
    FILE *f;
    size_t n;

    snprintf(path, sizeof path, FOLDER "%s.jinja", name);
    f = fopen(path, "rb");
    if (f == NULL)
        fail_msg("%s is missing", path);
    buf_reset(out);
    while ((n = fread(buf_reserve(out, 4096), 1, 4096, f)) > 0)
        out->n += n;
    fclose(f);
}

static void chats_are_those_of_jinja(void **state)
{
    struct buf source = BUF_EMPTY;
    struct golden g;
    json_t *c;
    size_t i;

    (void)state;
    golden_open(&g, FOLDER "chat.json");
    json_array_foreach(json_object_get(g.file, "cases"), i, c) {
        file_read(json_string_value(json_array_get(c, 0)), &source);
        check(&g, c, source.data, source.n);
    }
    golden_close(&g, 500);
    buf_fini(&source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(language_is_jinja),
        cmocka_unit_test(chats_are_those_of_jinja),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
