/* tools/nightshift/upload.h - the lines of a file into the prompts, each once, whatever happens meanwhile.
 *
 * What is there is read back from the topic before anything is written: nothing else remembers an upload. Lines go in short
 * transactions under an id made of the job's, so a second upload of the same job fences the first, and what a dead one left open
 * ends before the reading. Any trouble whose outcome is not known is answered by doing that again.
 * Threads: one. */
#ifndef TOOLS_NIGHTSHIFT_UPLOAD_H
#define TOOLS_NIGHTSHIFT_UPLOAD_H

#include "queue/topic.h"
#include "tools/nightshift/jobs.h"
#include "tools/nightshift/judge.h"

struct upload {
    /* the caller's */
    const struct config *cfg;
    struct topics *topics;
    struct judge *judge;                       /* makes the keys */
    const char *input, *job;
    double rate;                               /* records a second; 0: as fast as it goes */
    bool quiet;
    bool (*stopped)(void);                     /* asked between records */
    /* of the file, filled in by upload_measure */
    uint64_t *hash;                            /* [lines_n + 1] of each line by its number; 0: a blank line */
    int64_t hash_room;
    int64_t lines_n, records_n;                /* physical lines; those that are not blank */
    /* outcome */
    uint64_t *there;                           /* bits: lines that are in the topic */
    int64_t there_n, before_n, doubled_n;      /* all; of them by an earlier upload; lines that stand there more than once */
    int64_t rounds_n;                          /* how often the topic was read back */
    int64_t *from;                             /* how far it was read */
};

/* hash, lines_n, records_n: grows the table and takes the line in. */
void upload_measure(struct upload *u, const struct record *rec);
/* ST_OK: every line is there. ST_AGAIN: stopped; what was begun is finished. ST_REJECT: the topic holds another job of this id, or the
 * broker refuses a record. ST_FENCED: another upload of this job runs. ST_RETRY: no broker answers. */
MUST_USE status upload_run(struct upload *u, struct error *err);
void upload_fini(struct upload *u);

#endif
