/* tests/sim/mutant_client.h - a client that lies to the queue, so that a sound queue acts as a broken one would: what the
 * checks are worth is what they find here (facts 5.4). The queue itself knows nothing of it. Threads: one. */
#ifndef TESTS_SIM_MUTANT_CLIENT_H
#define TESTS_SIM_MUTANT_CLIENT_H

#include "tests/sim/model_client.h"

enum mutant {
    MUTANT_NONE,
    MUTANT_COMMIT_FIRST,         /* the marks are committed before the results are produced */
    MUTANT_HIGHEST_SEEN,         /* the commit is the highest offset seen, without a bitmap */
    MUTANT_NO_GUARD,             /* whatever group metadata the library has is sent, the -1/"" pair too */
    MUTANT_STALE_OWNED,          /* a revoked partition stays in the owned set */
    MUTANT_UNSTABLE_READ,        /* commits are read without waiting for open transactions */
    MUTANT_IGNORE_FENCED,        /* the store's -1 is taken for a save; the worker's own, see sim_worker.c */
    MUTANT_UNKNOWN_IS_DONE,      /* a commit that timed out is taken for done */
    MUTANT_UNKNOWN_IS_FAILED,    /* ... or for failed */
    MUTANTS_N
};
const char *mutant_name(enum mutant m);

/* Speaks to `model` for whoever holds the result. Freed with mutant_client_free, after the queue is gone. */
struct kafka_client *mutant_client_open(struct model_client *model, enum mutant m);
void mutant_client_free(struct kafka_client *c);      /* NULL is allowed */

#endif
