/* checkpoint/redis_store.h - the store in Redis, for the two files that carry out its calls: redis.c (fences, sequences) and
 * redis_records.c (attempts, the end of records and jobs), and for redis_keys.c (names, how a script begins). Private. */
#ifndef CHECKPOINT_REDIS_STORE_H
#define CHECKPOINT_REDIS_STORE_H

#include "base/buf.h"
#include "checkpoint/ops.h"
#include "checkpoint/redis_link.h"

enum { REDIS_FENCED = -1, REDIS_GAP = -2 };      /* answers of the scripts */

struct redis_source {
    uint64_t job;
    int32_t number;
};

struct redis_cut;

struct redis_ckpt {
    struct ckpt ckpt;
    struct redis_link *link;
    int64_t life_ms, keep_ms;                /* of items; of fences and sets */
    struct redis_cut *cuts;
    uint32_t pushed_n;                       /* cuts pushed out so far: which of the ways is next */
    /* of the call under way */
    struct redis_source *sources;
    size_t sources_n, sources_room;
    struct buf frames, ends, name;
};

/* ---- redis_keys.c: adds an argument each ---- */

void redis_arg_name(struct redis_ckpt *c, char kind, uint64_t job, int32_t source);    /* ns:f:{...} and ns:i:{...} */
void redis_arg_sources(struct redis_ckpt *c, uint64_t job);
void redis_arg_sequence(struct redis_ckpt *c, const struct ckpt_key *key);
void redis_arg_record(struct redis_ckpt *c, const struct ckpt_key *key);
void redis_arg_member(struct redis_ckpt *c, const struct ckpt_key *key, bool with_choice);

/* The sources of a call: redis_source_add gives the number of one among them, from 1. */
size_t redis_source_add(struct redis_ckpt *c, const struct ckpt_key *key);
void redis_sources_of(struct redis_ckpt *c, const struct ckpt_key *keys, size_t keys_n);
/* A script that writes: items_keys_n keys follow, then redis_arguments_begin, then args_n arguments. Each script of a call checks
 * every fence of the call. */
void redis_script_begin(struct redis_ckpt *c, enum redis_script script, size_t items_keys_n, size_t args_n);
void redis_arguments_begin(struct redis_ckpt *c, uint64_t token);

/* ---- redis.c ---- */

void redis_cut_forget(struct redis_ckpt *c, const struct ckpt_key *key);

/* ---- redis_records.c: as in ops.h ---- */

status redis_begin(struct ckpt *ckpt, uint64_t token, const struct ckpt_key *keys, size_t keys_n, bool solo, uint64_t run,
                   struct ckpt_attempts *out);
status redis_hand_over(struct ckpt *ckpt, uint64_t token, const struct ckpt_key *keys, size_t keys_n, bool solo);
status redis_attempts(struct ckpt *ckpt, const struct ckpt_key *keys, size_t keys_n, struct ckpt_attempts *out);
status redis_forget(struct ckpt *ckpt, uint64_t token, const struct ckpt_key *keys, size_t keys_n);
status redis_forget_job(struct ckpt *ckpt, uint64_t token, uint64_t job);
status redis_count(struct ckpt *ckpt, uint64_t job, int64_t *out);

#endif
