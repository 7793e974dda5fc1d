#include "worker/pipeline/model_text.h"

#include <stdlib.h>
#include <string.h>

/* The text of one special token, "" when there is none. */
static char *special_text(const struct tokenizer *t, int32_t token)
{
    const char *bytes = "";
    size_t n = token >= 0 ? tokenizer_bytes(t, token, true, &bytes) : 0;
    char *text = mem_take(n + 1);

    memcpy(text, bytes, n);
    text[n] = '\0';
    return text;
}

static char *name_of(const char *path, const char *name, const struct model_shape *shape)
{
    const char *slash = strrchr(path, '/');

    return mem_copy_text(name != NULL ? name : shape->name[0] != '\0' ? shape->name : slash != NULL ? slash + 1 : path);
}

status model_text_open(struct model_text *t, const struct config *cfg, const char *path, const char *name,
                       struct error *err)
{
    struct tokenizer_spec spec;
    void *memory = NULL;
    const char *source;
    size_t n;
    status st;

    memset(t, 0, sizeof *t);
    TRY(gguf_open(path, &t->gguf, err));
    TRY(model_inspect(t->gguf, &t->shape, err));
    TRY(gguf_tokenizer(t->gguf, &spec, &memory, err));
    TRY(tokenizer_open(&spec, &t->tokenizer, err));
    source = gguf_template(t->gguf, &n);
    if (source != NULL)
        TRY(template_open(source, n, &t->template, err));
    t->bos_text = special_text(t->tokenizer, tokenizer_bos(t->tokenizer));
    t->eos_text = special_text(t->tokenizer, tokenizer_eos(t->tokenizer));
    t->name = name_of(path, name, &t->shape);
    t->lines = (struct lines_model){ .cfg = cfg, .tokenizer = t->tokenizer, .template = t->template,
                                     .bos_text = t->bos_text, .eos_text = t->eos_text, .context = t->shape.context,
                                     .name = t->name };
out:
    free(memory);
    return st;
}

void model_text_close(struct model_text *t)
{
    template_close(t->template);
    tokenizer_close(t->tokenizer);
    gguf_close(t->gguf);
    free(t->bos_text);
    free(t->eos_text);
    free(t->name);
    memset(t, 0, sizeof *t);
}
