/* tests/faults/redis_rig.h - sequences with tokens that are known, in a store on a real Redis of the test's own. */
#ifndef TESTS_FAULTS_REDIS_RIG_H
#define TESTS_FAULTS_REDIS_RIG_H

#include "checkpoint/checkpoint.h"
#include "tests/support/redis_server.h"

enum { SEQUENCES = 40, TOKENS_MAX = 2000, TIMEOUT_MS = 200, PATIENT_MS = 5000, HEAL_S = 10 };

extern struct redis_server redis;
extern struct config cfg;                /* defaults but for checkpoint_timeout_ms: PATIENT_MS */

int rig_setup(void **state);
int rig_teardown(void **state);

struct ckpt *store_open(void);
struct ckpt_key key_of(int i);
uint64_t acquire(struct ckpt *c);
/* A server with these options (redis_server_start), a store on it, source 0 taken over. */
struct ckpt *store_owned(const char *const *options, uint64_t *token);
status save(struct ckpt *c, uint64_t token, int i, int32_t saved_n, int32_t n);
/* What the store has of a sequence, every token of it right; -1: no answer. */
int32_t load(struct ckpt *c, int i);
int32_t starts_of(struct ckpt *c, int i);
struct ckpt_counts counts_of(struct ckpt *c);
void pause_ms(int ms);
/* Seconds until a save of a whole sequence is taken again. */
double heal(struct ckpt *c, uint64_t token, int i, int32_t n);

#define REDIS_TEST(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)

#endif
