/* worker/model/model.h - a decoder on a device: weights, shape, and the forward pass as a list of kernel calls.
 * Threads: model_forward belongs to the engine's thread; the rest is const after open.
 * Families: worker/model/family.c has one row each; anything else is refused by name. */
#ifndef WORKER_MODEL_MODEL_H
#define WORKER_MODEL_MODEL_H

#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"
#include "kernels/kernels.h"
#include "worker/model/gguf.h"
#include "worker/text/tokenizer.h"

struct model;

struct model_shape {
    char family[32], name[96], quant[16];      /* "llama", general.name, "Q4_1" (type of most weights) */
    int layers_n, dim, heads_n, kv_heads_n, head_dim, ff, vocab, context;
    float norm_eps;
    bool tied_head;
    double rope_base;
    int64_t parameters_n, file_bytes;
};

/* ST_REJECT: unsupported or damaged, the error names what. Loads with the device's threads. */
MUST_USE status model_open(const struct gguf *g, struct device *d, int step_rows_max, int step_outs_max,
                           struct model **out, struct error *err);
/* Random weights at the shape of a known model ("llama-3-8b"; names in model_shape_names), for benches. */
MUST_USE status model_open_random(const char *name, struct device *d, int step_rows_max, int step_outs_max,
                                  struct model **out, struct error *err);
MUST_USE status model_shape_known(const char *name, struct model_shape *out, struct error *err);   /* its shape alone */
void model_shape_names(char *out, size_t room);        /* "smollm2-135m, ...": for messages */
void model_close(struct model *m);                     /* NULL is allowed */
/* Shape alone, without weights or device: what `nightshift model` and `plan` print. */
MUST_USE status model_inspect(const struct gguf *g, struct model_shape *out, struct error *err);

const struct model_shape *model_shape(const struct model *m);
struct kv_shape model_kv_shape(const struct model *m, int pages_n);
struct hash128 model_hash(const struct model *m);
size_t model_weight_bytes(const struct model *m);      /* as packed on the device */

/* One step: embeds, runs every layer, and fills s->sampled for the wanted rows. Allocates nothing. */
MUST_USE status model_forward(struct model *m, const struct step *s, struct kv *kv);

#endif
