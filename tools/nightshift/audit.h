/* tools/nightshift/audit.h - is every input answered once? Reads topics and commits alone and knows nothing of workers: what it finds
 * sound is sound for any reader.
 *
 * Order of reading, so that a running queue does not look unsound: commits, the prompts' ends, results, dead letters, prompts. A mark
 * that was committed by then has its result behind it; a result's prompt was there before it.
 * Checked (numbers of the delivery design): I1 each prompt that is no tombstone has one result or one dead letter; I2 none of those
 * without a prompt; I3 no two results of one prompt; I4 no commit beyond a prompt without either; I5 no mark in its metadata without
 * either. Also: no line of a job uploaded twice, no dead letter put back twice.
 * Memory: a byte an offset, 24 to 48 a prompt of a job. Threads: one. */
#ifndef TOOLS_NIGHTSHIFT_AUDIT_H
#define TOOLS_NIGHTSHIFT_AUDIT_H

#include "queue/topic.h"
#include "tools/nightshift/jobs.h"

enum audit_fault {
    AUDIT_MISSING,                             /* I1: neither, though the commit says that it is done */
    AUDIT_OPEN,                                /* neither, and no commit says so: not done yet */
    AUDIT_DOUBLED,                             /* I1, I3 */
    AUDIT_ORPHANED,                            /* I2 */
    AUDIT_LWM,                                 /* I4: a prompt below the committed offset has neither; or it lies beyond the end */
    AUDIT_MARK,                                /* I5 */
    AUDIT_METADATA,                            /* I5: it cannot be read */
    AUDIT_UPLOADED_TWICE, AUDIT_RETRIED_TWICE,
    AUDIT_UNSENT,                              /* of one job: lines that never came */
    AUDIT_FAULTS_N
};

struct audit_row {
    enum audit_fault fault;
    struct place place;                        /* of the prompt; AUDIT_UNSENT: offset is the line */
};

struct audit_part {
    struct topic_range range;                  /* of the prompts, high: as it was before the results were read */
    int64_t committed;                         /* -1: none */
    int64_t marks_n;
    uint8_t *flags;                            /* [high - low] */
};

struct audit {
    /* the caller's */
    struct topics *topics;
    const char *group, *job;                   /* job NULL: every record counts */
    bool quiet;
    /* outcome */
    int32_t parts_n;
    struct audit_part *part;
    int64_t inputs_n, tombstones_n, outputs_n, dead_n;
    int64_t beyond_n;                          /* results whose prompt is below the first offset: retention took it */
    int64_t unnamed_n;                         /* records of results and dead letters without an ns-id of these prompts */
    int64_t job_lines_n;                       /* of one job: what ns-lines says; -1: nothing */
    int64_t faults_n[AUDIT_FAULTS_N];
    struct audit_row *row;                     /* the first AUDIT_ROWS_MAX of them */
    size_t rows_n, rows_room;
    /* inside */
    struct place_map *late;                    /* results of prompts that came after the ends were read */
    struct place_map *lines, *retries;
};
#define AUDIT_ROWS_MAX 1000000

const char *audit_fault_name(enum audit_fault f);
MUST_USE status audit_run(struct audit *a, struct error *err);
void audit_fini(struct audit *a);

#endif
