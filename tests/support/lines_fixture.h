/* tests/support/lines_fixture.h - what intake and results need, without a model's weights: the tiny model's tokenizer and
 * template. Threads: one owner. */
#ifndef TESTS_SUPPORT_LINES_FIXTURE_H
#define TESTS_SUPPORT_LINES_FIXTURE_H

#include <stddef.h>

#include "worker/lines/lines.h"

struct lines_fixture {
    struct config cfg;
    struct tokenizer *tokenizer;
    struct template *template;
    struct lines_model m;
    struct intake *in;
};

enum { FIXTURE_CONTEXT = 64 };

/* template: NULL: ChatML. bos: id of the token that begins texts, -1: none; add_bos: raw prompts get it. */
void lines_fixture_open(struct lines_fixture *f, const char *template, int bos, bool add_bos);
void lines_fixture_close(struct lines_fixture *f);

/* One line of a file, line number 1; NULL: blank. */
struct request *lines_fixture_read(struct lines_fixture *f, const char *line);
struct request *lines_fixture_read_bytes(struct lines_fixture *f, const void *line, size_t n);

/* Plays the engine for one choice: `tokens` are its output; log-probabilities are made up from the ids where the request
 * asked for some. */
void lines_fixture_answer(struct lines_fixture *f, struct request *r, int choice, const int32_t *tokens, int n,
                          enum finish finish);
/* The tokens of a plain text. Returns the count. */
int lines_fixture_encode(struct lines_fixture *f, const char *text, int32_t *tokens, int max);

#endif
