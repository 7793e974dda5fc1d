/* tools/nightshift/status.h - what `nightshift status` can look at besides a file job. Prints to stdout. */
#ifndef TOOLS_NIGHTSHIFT_STATUS_H
#define TOOLS_NIGHTSHIFT_STATUS_H

#include "tools/nightshift/cli.h"

/* A queue's topics, or with a job that job alone. */
MUST_USE status status_topic(struct cli *cli, const char *url, const char *job, const char *group, struct error *err);
/* A worker's own page. */
MUST_USE status status_worker(struct cli *cli, const char *url, struct error *err);

#endif
