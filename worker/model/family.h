/* worker/model/family.h - private to worker/model: what a file says of its decoder, checked and found, before any
 * weight is touched. family.c has the table of families, decoder.c reads a file by it.
 * Threads: const after decoder_read. Ownership: tensors point into the struct gguf. */
#ifndef WORKER_MODEL_FAMILY_H
#define WORKER_MODEL_FAMILY_H

#include "worker/model/model.h"

/* One row a family. What differs between decoders stands here; forward.c asks the row and the tensors that were found. */
struct family {
    const char *arch;              /* general.architecture */
    enum rope_pairs pairs;         /* which elements of a head turn together, in the order of the file's q and k rows */
    enum gate_act act;
    const char *const *keys;       /* its metadata without "<arch>.", NULL at the end: any other key is refused,
                                    * because it may change what the model computes */
};

/* NULL: not supported. */
const struct family *family_find(const char *arch, size_t n);
/* "llama, ...": for messages. */
void family_names(char *out, size_t room);

struct layer_tensors {
    const struct tensor *attn_norm, *q, *k, *v, *o, *ff_norm, *gate, *up, *down;
    const struct tensor *q_bias, *k_bias, *v_bias, *o_bias;        /* NULL: none */
};

struct decoder {
    const struct family *family;
    struct model_shape shape;
    int rope_dim;
    double rope_shrink;            /* positions are divided by it (linear scaling); 1 */
    const struct tensor *rope_factors;     /* each frequency is divided by its own (Llama 3); NULL: none */
    const struct tensor *embed, *out_norm, *head;      /* head is embed when tied */
    struct layer_tensors *layers;
};

/* ST_REJECT: not supported or contradicts itself; the error names the file, the key or tensor, and what is missing. */
MUST_USE status decoder_read(const struct gguf *g, struct decoder *out, struct error *err);
void decoder_fini(struct decoder *d);

#endif
