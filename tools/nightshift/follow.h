/* tools/nightshift/follow.h - one job, followed through the three topics: which lines there are, which have been answered how.
 *
 * A line's prompts: the uploaded one and those that `retry` put back. It is answered when one of them has a result, and dead when all of
 * them are dead letters. Answers are handed out as they come, each place once.
 * Memory: 24 to 48 bytes a prompt. Threads: one. */
#ifndef TOOLS_NIGHTSHIFT_FOLLOW_H
#define TOOLS_NIGHTSHIFT_FOLLOW_H

#include "queue/topic.h"
#include "tools/nightshift/jobs.h"

struct follow_line {
    uint16_t prompts_n, outputs_n, dead_n;
    struct place output, dead;                 /* of the first output; of the last dead letter */
};

struct follow {
    struct topics *topics;
    const char *job;
    struct topic_scan *scan[TOPIC_KINDS_N];
    struct place_map *places;                  /* prompt to line */
    struct follow_line *line;                  /* [lines_room], by number */
    int64_t lines_room;
    int64_t total_n;                           /* lines of the job as its records say; -1: they do not (or none came yet) */
    int64_t seen_n, answered_n, dead_n;        /* lines with a prompt, with an output, with nothing but dead letters */
    int64_t doubled_n, orphans_n;              /* places answered more than once; answers of this job to no prompt of it */
    int64_t uploaded_twice_n;
    bool (*stopped)(void);
};

/* An answer: line number, its place, the record. The record lives for the call. */
typedef status (*follow_fn)(void *ctx, int64_t line, struct place place, bool dead, const struct record *r, struct error *err);

MUST_USE status follow_open(struct follow *f, struct error *err);     /* topics, job and stopped are set, the rest is zero */
void follow_close(struct follow *f);
/* All prompts that are there now, before the first answers. */
MUST_USE status follow_read_prompts(struct follow *f, struct error *err);
/* What has come since, up to about timeout_ms. *caught_up: all that was there at the open has been read. */
MUST_USE status follow_step(struct follow *f, int timeout_ms, follow_fn fn, void *ctx, bool *caught_up, struct error *err);
/* Of all lines (those that the job says it has, at least those seen): how many have no verdict yet, and never came at all. */
int64_t follow_lines(const struct follow *f);
int64_t follow_open_lines(const struct follow *f);
int64_t follow_unsent(const struct follow *f);

#endif
