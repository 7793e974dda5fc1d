/* tools/nightshift/jobs.h - what the commands about topics share: a job's headers, places of prompts, the live line.
 *
 * A job is the records that one `submit` wrote: each carries ns-job (its id), ns-line (the line of the file, from 1) and ns-lines (how
 * many lines the job has). A prompt that was put back by `retry` carries them, too, and ns-retry-of: the ns-id of the dead letter.
 * Threads: one. */
#ifndef TOOLS_NIGHTSHIFT_JOBS_H
#define TOOLS_NIGHTSHIFT_JOBS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "queue/topic.h"

#define HEADER_JOB "ns-job"
#define HEADER_LINE "ns-line"
#define HEADER_LINES "ns-lines"
#define HEADER_RETRY "ns-retry-of"
#define HEADER_ID "ns-id"
#define HEADER_RESULT "ns-result"              /* of a dead letter: the line that a file job would have in its errors */
#define HEADER_ERROR "ns-error"
#define HEADER_CLASS "ns-error-class"
#define HEADER_DROPPED "ns-value-dropped"      /* of a dead letter: the original did not fit, its value is the error line */

#define JOB_ID_MAX 64
#define JOB_LINES_MAX INT64_C(1000000000)

/* Letters, digits, '.', '_' and '-', at most JOB_ID_MAX. */
bool job_id_is_sound(const char *id);
/* The line that a record of the job stands for; -1: it says none. */
int64_t job_line_of(const struct record *r);

struct place { int32_t partition; int64_t offset; };
/* Of "TOPIC/PARTITION/OFFSET" in a result's ns-id. false: absent, of another topic, or not of that form. */
bool place_read(const struct record *r, const char *header, const char *topic, struct place *out);
/* Of a result line's {"id":"batch_req_<job>_<partition>_<offset>". */
bool place_read_line(const char *line, size_t n, struct place *out);

/* Places to numbers: 16 bytes an entry and some room. */
struct place_map;
struct place_map *place_map_open(void);
void place_map_close(struct place_map *m);     /* NULL is allowed */
/* false: it was there already, and stays as it was. */
bool place_map_add(struct place_map *m, struct place place, int64_t value);
int64_t place_map_get(const struct place_map *m, struct place place);      /* -1: not there */
size_t place_map_count(const struct place_map *m);
/* Walks all of them in no order; begin with *i = 0. false: no more. */
bool place_map_next(const struct place_map *m, size_t *i, struct place *out);

/* One line on stderr: on a terminal written over, elsewhere a line every 10 s. */
struct live {
    bool terminal, shown;
    int64_t shown_ns, started_ns;
};
void live_init(struct live *l);
bool live_due(const struct live *l);           /* ask before making the text */
void live_show(struct live *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
void live_end(struct live *l);                 /* wipes it */
/* "1 h 02 min", "3 min 20 s", "12 s"; "?" below 0. */
void duration_text(double seconds, char out[32]);

#endif
