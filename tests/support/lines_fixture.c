#define _POSIX_C_SOURCE 200809L
#include "tests/support/lines_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/tiny_model.h"

/* The name is made up by the system, so that tests that run side by side do not meet. */
static void tiny_open(struct gguf **g)
{
    struct tiny_options o;
    struct gguf_writer w;
    struct buf file = BUF_EMPTY;
    struct error err;
    char path[] = "/tmp/ns_lines_XXXXXX";
    int fd = mkstemp(path);

    ASSERT(fd >= 0);
    close(fd);
    tiny_model_defaults(&o);
    gguf_writer_init(&w);
    tiny_model_put(&w, &o);
    gguf_writer_file(&w, &file);
    file_write(path, file.data, file.n);
    ASSERT(gguf_open(path, g, &err) == ST_OK);
    unlink(path);
    buf_fini(&file);
    gguf_writer_fini(&w);
}

void lines_fixture_open(struct lines_fixture *f, const char *template, int bos, bool add_bos)
{
    static const char chatml[] =
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    struct tokenizer_spec spec;
    struct gguf *g = NULL;
    void *memory = NULL;
    struct error err;

    memset(f, 0, sizeof *f);
    tiny_open(&g);
    ASSERT(gguf_tokenizer(g, &spec, &memory, &err) == ST_OK);
    spec.bos = bos;
    spec.add_bos = add_bos;
    ASSERT(tokenizer_open(&spec, &f->tokenizer, &err) == ST_OK);
    free(memory);
    gguf_close(g);
    if (template == NULL)
        template = chatml;
    ASSERT(template_open(template, strlen(template), &f->template, &err) == ST_OK);
    config_defaults(&f->cfg);
    f->m = (struct lines_model){ .cfg = &f->cfg, .tokenizer = f->tokenizer, .template = f->template, .bos_text = "",
                                 .eos_text = "<|im_end|>", .context = FIXTURE_CONTEXT, .name = "tiny", .fingerprint = "fp_1" };
    f->in = intake_open(&f->m);
}

void lines_fixture_close(struct lines_fixture *f)
{
    intake_close(f->in);
    template_close(f->template);
    tokenizer_close(f->tokenizer);
}

struct request *lines_fixture_read_bytes(struct lines_fixture *f, const void *line, size_t n)
{
    struct record rec = { .value = line, .value_n = n };
    struct request *r = NULL;
    status st = intake_read(f->in, &rec, &r);

    ASSERT(st == (r != NULL ? ST_OK : ST_AGAIN));
    return r;
}

struct request *lines_fixture_read(struct lines_fixture *f, const char *line)
{
    return lines_fixture_read_bytes(f, line, strlen(line));
}

static void logprob_make(struct request *r, struct logprob *l, int32_t token, int vocab)
{
    int32_t n = r->params.top_logprobs_n;

    l->token = token;
    l->logprob = -0.25f * (float)(token % 7);
    l->top_n = n;
    l->top = n > 0 ? arena_take(&r->arena, (size_t)n * sizeof l->top[0]) : NULL;
    for (int32_t i = 0; i < n; i++) {
        l->top[i].token = (token + i) % vocab;
        l->top[i].logprob = l->logprob - 0.5f * (float)i;
    }
}

void lines_fixture_answer(struct lines_fixture *f, struct request *r, int choice, const int32_t *tokens, int n,
                          enum finish finish)
{
    struct choice *c = &r->choices[choice];
    int vocab = tokenizer_vocab(f->tokenizer);

    c->tokens = mem_take((size_t)(n + 1) * sizeof *c->tokens);
    memcpy(c->tokens, tokens, (size_t)n * sizeof *tokens);
    c->tokens_n = c->tokens_room = n;
    detok_init(&c->detok, f->tokenizer, &r->params.stop, !r->params.skip_special);
    for (int i = 0; i < n; i++)
        (void)detok_add(&c->detok, tokens[i]);
    detok_end(&c->detok);
    if (r->params.logprobs) {
        c->logprobs = mem_take_zero((size_t)n + 1, sizeof *c->logprobs);
        for (int i = 0; i < n; i++)
            logprob_make(r, &c->logprobs[i], tokens[i], vocab);
    }
    if (r->params.echo_logprobs && r->prompt_logprobs == NULL) {
        r->prompt_logprobs = arena_take_zero(&r->arena, (size_t)r->prompt_n, sizeof *r->prompt_logprobs);
        for (int32_t i = 0; i < r->prompt_n; i++)
            logprob_make(r, &r->prompt_logprobs[i], r->prompt[i], vocab);
    }
    c->finish = finish;
    if (finish == FINISH_ERROR)
        c->error = arena_copy(&r->arena, "made up", 7);            /* as the engine does: a failed choice says why */
    r->verdict = VERDICT_DONE;
}

int lines_fixture_encode(struct lines_fixture *f, const char *text, int32_t *tokens, int max)
{
    struct encoder *e = encoder_open(f->tokenizer);
    struct text_span span = { text, strlen(text), TEXT_PLAIN };
    const int32_t *made;
    size_t n;

    ASSERT(encoder_encode(e, &span, 1, &made, &n) == ST_OK && n <= (size_t)max);
    if (n > 0)
        memcpy(tokens, made, n * sizeof *made);
    encoder_close(e);
    return (int)n;
}
