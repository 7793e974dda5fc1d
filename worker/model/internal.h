/* worker/model/internal.h - private to worker/model: a loaded model, shared by weights.c and forward.c. */
#ifndef WORKER_MODEL_INTERNAL_H
#define WORKER_MODEL_INTERNAL_H

#include "worker/model/model.h"

struct layer {
    float *attn_norm, *ff_norm;
    struct matrix *qkv, *o, *gate_up, *down;       /* qkv: queries, keys, values, one after the other */
    float *qkv_bias, *o_bias;                      /* NULL: none */
    struct qk_norm qk_norm;                        /* its vectors NULL: none */
};

struct model {
    struct device *device;
    struct model_shape shape;
    struct hash128 hash;
    size_t weight_bytes;
    int rows_max, outs_max;

    struct matrix *embed, *head;                   /* the same when tied */
    float *out_norm, *inv_freq;
    struct layer *layers;
    struct attention_shape attention;
    struct rope rope;
    enum gate_act act;

    /* activations of rows_max rows (normed and gated: of whichever is more), then those of outs_max outputs */
    void *x, *normed, *qkv, *query, *attended, *gated;
    void *out_x, *out_attended;
    float *logits;
};

/* Memory for rows_max rows and outs_max outputs. ST_REJECT: the device has not so much. weights.c */
MUST_USE status model_activations_take(struct model *m, struct error *err);

#endif
