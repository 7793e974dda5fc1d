/* tests/live/kafka_odd.h - records of every shape: written, and checked behind a worker. Exit codes: 0, 1 (said what), 2. */
#ifndef TESTS_LIVE_KAFKA_ODD_H
#define TESTS_LIVE_KAFKA_ODD_H

#include "base/config.h"

int odd_write(const struct config *cfg, const char *url);
int odd_check(const struct config *cfg, const char *url);

#endif
