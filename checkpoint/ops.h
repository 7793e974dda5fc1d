/* checkpoint/ops.h - what an implementation of checkpoint.h fills in. Private to this folder. */
#ifndef CHECKPOINT_OPS_H
#define CHECKPOINT_OPS_H

#include <stdatomic.h>

#include "checkpoint/checkpoint.h"

struct ckpt_ops {
    void (*close)(struct ckpt *c);
    status (*acquire)(struct ckpt *c, uint64_t job, int32_t source, uint64_t *token);
    status (*save)(struct ckpt *c, uint64_t token, const struct ckpt_save_item *items, size_t items_n, uint8_t *ok);
    status (*load)(struct ckpt *c, struct ckpt_load_item *items, size_t items_n);
    status (*count)(struct ckpt *c, uint64_t job, int64_t *out);
    status (*begin)(struct ckpt *c, uint64_t token, const struct ckpt_key *keys, size_t keys_n, bool solo, uint64_t run,
                    struct ckpt_attempts *out);
    status (*hand_over)(struct ckpt *c, uint64_t token, const struct ckpt_key *keys, size_t keys_n, bool solo);
    status (*attempts)(struct ckpt *c, const struct ckpt_key *keys, size_t keys_n, struct ckpt_attempts *out);
    status (*forget)(struct ckpt *c, uint64_t token, const struct ckpt_key *keys, size_t keys_n);
    status (*forget_job)(struct ckpt *c, uint64_t token, uint64_t job);
};

/* Written by the store's thread alone, read by any. What a store adds itself: reconnects_n and errors_n. */
struct ckpt_tally {
    atomic_bool up;
    _Atomic int64_t calls_n, rtt_us_last, rtt_us_max, fenced_n, gaps_n, reconnects_n, errors_n[CKPT_ERRORS_N];
};

struct ckpt {                   /* first member of every implementation's struct */
    const struct ckpt_ops *ops;
    struct ckpt_tally tally;
};

static inline void ckpt_error_count(struct ckpt *c, enum ckpt_error e)
{
    atomic_fetch_add_explicit(&c->tally.errors_n[e], 1, memory_order_relaxed);
}

/* What a store that computes here keeps of a record's attempts: the rules of ckpt_begin and ckpt_hand_over. */
struct attempt {
    struct ckpt_attempts stands;
    bool last_solo;             /* the last run has counted a solo start */
};
void attempt_begin(struct attempt *t, bool solo, uint64_t run);
void attempt_hand_over(struct attempt *t, bool solo);
bool attempt_nothing(const struct attempt *t);

/* `at` is what stands behind the scheme in the url. */
status sqlite_ckpt_open(const char *at, struct ckpt **out, struct error *err);
status mem_ckpt_open(const char *at, struct ckpt **out, struct error *err);
status redis_ckpt_open(const char *url, const struct config *cfg, struct ckpt **out, struct error *err);

#endif
