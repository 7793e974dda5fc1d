/* kernels/device.h - private to kernels/: what a device implements. kernels.h is the door; device.c leads each call
 * to the device's own function. A device embeds struct device (and struct matrix) as its first member. */
#ifndef KERNELS_DEVICE_H
#define KERNELS_DEVICE_H

#include "kernels/kernels.h"

struct matrix {
    int64_t rows_n;                /* N: outputs; of a gated matrix: of gate and of up each */
    int k;
    bool gated;
    size_t bytes;
};

/* The functions of kernels.h under the same names; device.c has checked what does not depend on the device. */
struct device_ops {
    void (*close)(struct device *d);
    status (*sync)(struct device *d);
    void *(*buffer_take)(struct device *d, size_t bytes);
    void *(*memory_take)(struct device *d, size_t bytes);
    void (*buffer_give)(struct device *d, void *p);
    status (*copy)(struct device *d, void *to, const void *from, size_t bytes);
    float *(*vector_load)(struct device *d, const float *from, int n);
    size_t (*act_bytes)(const struct device *d, enum act role, int dim);
    status (*measure)(struct device *d, struct device_ceilings *out);

    status (*matrix_load)(struct device *d, int k, const struct matrix_source *sources, int sources_n,
                          struct matrix **out, struct error *err);
    status (*matrix_load_gated)(struct device *d, int k, const struct matrix_source *gate,
                                const struct matrix_source *up, struct matrix **out, struct error *err);
    void (*matrix_give)(struct device *d, struct matrix *m);

    size_t (*kv_page_bytes)(const struct device *d, const struct kv_shape *shape);
    status (*kv_open)(struct device *d, const struct kv_shape *shape, struct kv **out, struct error *err);
    void (*kv_close)(struct device *d, struct kv *kv);
    status (*kv_pages_copy)(struct device *d, struct kv *kv, const int32_t *src, const int32_t *dst, int pages_n);
    status (*kv_positions_move)(struct device *d, struct kv *kv, const struct kv_move *moves, int moves_n);

    status (*step_begin)(struct device *d, const struct step *s);
    status (*embed)(struct device *d, const struct matrix *table, const struct step *s, float scale, void *x);
    status (*rmsnorm)(struct device *d, const void *x, const float *w, float eps, const int32_t *rows, int rows_n,
                      int dim, void *out);
    status (*gather)(struct device *d, enum act role, int dim, const void *in, const int32_t *rows, int rows_n, void *out);
    status (*linear)(struct device *d, const struct matrix *w, const float *bias, const void *in, int rows_n,
                     enum linear_to to, void *out);
    status (*linear_gated)(struct device *d, const struct matrix *w, enum gate_act act, const void *in, int rows_n,
                           void *out);
    status (*rope_write)(struct device *d, const void *qkv, const struct step *s, int layer,
                         const struct attention_shape *a, const struct rope *rope, const struct qk_norm *norm,
                         struct kv *kv, void *q);
    status (*attention)(struct device *d, const void *q, const struct step *s, int layer,
                        const struct attention_shape *a, const struct kv *kv, void *out);
    status (*logits)(struct device *d, const struct matrix *head, const void *in, int rows_n, float softcap,
                     float *logits);
    status (*sample)(struct device *d, float *logits, int vocab, const struct step *s);
};

struct device {
    const struct device_ops *ops;
    struct device_info info;
};

/* Each device's own open; device_open chooses by cfg->device. */
MUST_USE status cpu_device_open(const struct config *cfg, struct device **out, struct error *err);
/* In builds with NIGHTSHIFT_CUDA; else cuda_none.c, which says so. */
MUST_USE status cuda_device_open(const struct config *cfg, struct device **out, struct error *err);

#endif
