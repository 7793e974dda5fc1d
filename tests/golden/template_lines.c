/* Renders templates for compare_templates.py: template_lines VARIABLES.json reads a JSON string a line from stdin and
 * writes ["out", text] or ["error", message] a line. */
#define _POSIX_C_SOURCE 200809L    /* getline */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/buf.h"
#include "tests/support/json_value.h"
#include "worker/text/template.h"

static json_t *render(const char *source, size_t n, const json_t *variables)
{
    struct template_limits limits = { .steps_max = 300000, .output_bytes_max = 1 << 20, .now_ns = 1 };
    struct text_span *spans = NULL;
    struct template *t = NULL;
    struct error err = { "" };
    struct buf out = BUF_EMPTY;
    struct arena a;
    size_t spans_n = 0;
    json_t *answer;
    status st;

    arena_init(&a, 4096);
    st = template_open(source, n, &t, &err);
    if (st == ST_OK)
        st = template_render(t, json_value_make(&a, variables, ""), &limits, &a, &spans, &spans_n, &err);
    for (size_t i = 0; i < spans_n; i++)
        buf_add(&out, spans[i].text, spans[i].n);
    answer = json_array();
    json_array_append_new(answer, json_string(st == ST_OK ? "out" : "error"));
    json_array_append_new(answer, st == ST_OK ? json_stringn(buf_text(&out), out.n) : json_string(err.text));
    buf_fini(&out);
    template_close(t);
    arena_fini(&a);
    return answer;
}

int main(int argc, char **argv)
{
    json_t *variables = argc == 2 ? json_load_file(argv[1], JSON_ALLOW_NUL, NULL) : NULL;
    char *line = NULL;
    size_t room = 0;

    if (variables == NULL) {
        fprintf(stderr, "usage: template_lines VARIABLES.json < SOURCES\n");
        return 1;
    }
    while (getline(&line, &room, stdin) > 0) {
        json_t *source = json_loads(line, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL), *answer;

        if (!json_is_string(source)) {
            fprintf(stderr, "not a JSON string: %s", line);
            return 1;
        }
        answer = render(json_string_value(source), json_string_length(source), variables);
        json_dumpf(answer, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(answer);
        json_decref(source);
    }
    free(line);
    json_decref(variables);
    return 0;
}
