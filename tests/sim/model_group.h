/* tests/sim/model_group.h - the group's half of the model broker. Private to model_broker.c and model_group.c. */
#ifndef TESTS_SIM_MODEL_GROUP_H
#define TESTS_SIM_MODEL_GROUP_H

#include "tests/sim/model_broker.h"

enum broker_error group_fence(const struct broker *b, int32_t generation, const char *member);
enum broker_error group_fence_plain(const struct broker *b, int32_t generation, const char *member);
void group_offset_set(struct broker *b, const struct kafka_place *place);
void group_offset_pend(struct broker *b, int txn, const struct kafka_place *place);
void group_txn_end(struct broker *b, int txn, bool commit);
void group_tick(struct broker *b, int64_t now);
void group_fini(struct broker *b);

#endif
