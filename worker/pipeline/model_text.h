/* worker/pipeline/model_text.h - the text side of a model file: tokenizer, chat template, special tokens; everything that
 * reading a line needs, and no weights. Threads: const after open. */
#ifndef WORKER_PIPELINE_MODEL_TEXT_H
#define WORKER_PIPELINE_MODEL_TEXT_H

#include "base/config.h"
#include "worker/lines/lines.h"
#include "worker/model/gguf.h"
#include "worker/model/model.h"

struct model_text {
    struct gguf *gguf;
    struct model_shape shape;
    struct tokenizer *tokenizer;
    struct template *template;     /* NULL: the model has none */
    char *bos_text, *eos_text, *name;
    struct lines_model lines;      /* points at the above */
};

/* name: what answers call the model where a line does not; NULL: the file's own name. cfg is borrowed until the close.
 * ST_REJECT: the file is damaged or unsupported; the error says what. t is zero or open, ready for model_text_close. */
MUST_USE status model_text_open(struct model_text *t, const struct config *cfg, const char *path, const char *name,
                                struct error *err);
void model_text_close(struct model_text *t);

#endif
