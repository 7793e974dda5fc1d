/* tests/support/json_value.h - JSON of test files as values of a chat template. */
#ifndef TESTS_SUPPORT_JSON_VALUE_H
#define TESTS_SUPPORT_JSON_VALUE_H

#include <jansson.h>

#include "worker/text/value.h"

/* All texts plain, but for the members of the outermost object that are named in trusted ("bos_token,eos_token"). */
const struct value *json_value_make(struct arena *a, const json_t *j, const char *trusted);

#endif
