/* worker/pipeline/id_set.h - how many custom_ids came more than once. Keeps a 64-bit hash of each, up to ID_SET_MAX of
 * them (32 MiB); beyond that new ids are no longer counted. Threads: one owner. */
#ifndef WORKER_PIPELINE_ID_SET_H
#define WORKER_PIPELINE_ID_SET_H

#include <stdint.h>

#define ID_SET_MAX 2000000

struct id_set;

struct id_set *id_set_open(void);
void id_set_close(struct id_set *s);           /* NULL is allowed */
void id_set_add(struct id_set *s, const char *id);     /* "null" is no id */
int64_t id_set_duplicates(const struct id_set *s);

#endif
