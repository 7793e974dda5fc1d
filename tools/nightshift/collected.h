/* tools/nightshift/collected.h - the files that a job's answers are collected into. OUT is the record of what is there: it only grows,
 * whole lines at a time, so a collect that dies goes on where the file ends. At the end it is put in order if that is asked for, or if
 * a line was answered again after its dead letter.
 * OUT.collect says whose answers they are. Threads: one. */
#ifndef TOOLS_NIGHTSHIFT_COLLECTED_H
#define TOOLS_NIGHTSHIFT_COLLECTED_H

#include "base/buf.h"
#include "tools/nightshift/jobs.h"

struct collected_file {
    char *path;
    int fd;                                    /* -1: none */
    struct buf pending;
    int64_t bytes;                             /* of whole lines in the file */
};

struct collected {
    struct collected_file output, errors;      /* errors.path NULL: failures go to the output */
    struct place_map *there;                   /* places that stand in a file; value: 0 an output, 1 a failure */
    int lock_fd;
};

/* what: JSON text that names queue and job; a file that is there must be of the same. overwrite: begin anew.
 * ST_REJECT: the files are another job's, or another process collects into them. */
MUST_USE status collected_open(struct collected *c, const char *output, const char *errors, const char *what, bool overwrite,
                               struct error *err);
void collected_close(struct collected *c);
/* Is the answer of this place in a file already? */
bool collected_has(const struct collected *c, struct place place);
/* Without its newline. Nothing is written before a flush. */
void collected_add(struct collected *c, struct place place, bool failure, const char *line, size_t n);
MUST_USE status collected_flush(struct collected *c, struct error *err);      /* also makes it durable */
/* Writes both files anew: of each line the answer that `choose` gives, ordered by line number. choose: the number of the line that a
 * place answers, -1: this answer is left out. */
MUST_USE status collected_order(struct collected *c, int64_t (*choose)(void *ctx, struct place place, bool failure), void *ctx,
                                struct error *err);

#endif
