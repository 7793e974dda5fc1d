/* checkpoint/ops.h - what an implementation of checkpoint.h fills in. Private to this folder. */
#ifndef CHECKPOINT_OPS_H
#define CHECKPOINT_OPS_H

#include "checkpoint/checkpoint.h"

struct ckpt_ops {
    void (*close)(struct ckpt *c);
    status (*acquire)(struct ckpt *c, uint64_t job, int32_t source, uint64_t *token);
    status (*save)(struct ckpt *c, uint64_t token, const struct ckpt_save_item *items, size_t items_n, uint8_t *ok);
    status (*load)(struct ckpt *c, const struct ckpt_key *key, const struct ckpt_identity *identity, struct arena *a,
                   struct ckpt_progress *out);
    int64_t (*count)(struct ckpt *c, uint64_t job);
    status (*forget)(struct ckpt *c, uint64_t token, const struct ckpt_key *keys, size_t keys_n);
    status (*forget_job)(struct ckpt *c, uint64_t token, uint64_t job);
};

struct ckpt {                   /* first member of every implementation's struct */
    const struct ckpt_ops *ops;
};

/* `at` is what stands behind the scheme in the url. */
status sqlite_ckpt_open(const char *at, struct ckpt **out, struct error *err);
status mem_ckpt_open(const char *at, struct ckpt **out, struct error *err);

#endif
