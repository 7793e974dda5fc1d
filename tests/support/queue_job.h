/* tests/support/queue_job.h - jobs of the file queue without a model: a folder, an input, a run that answers each line with
 * a function of its bytes, and a checker that shares no code with the queue. Threads: one owner. */
#ifndef TESTS_SUPPORT_QUEUE_JOB_H
#define TESTS_SUPPORT_QUEUE_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "queue/queue.h"

struct job_dir {
    char path[64];
    char input[128], output[128], errors[128], sidecar[160];
};

void job_dir_make(struct job_dir *d);                            /* a fresh folder of its own */
void job_dir_make_in(struct job_dir *d, const char *parent);     /* ... in that folder */
void job_dir_remove(struct job_dir *d);

void text_write(const char *path, const void *bytes, size_t n);
void text_append(const char *path, const void *bytes, size_t n);
bool text_read(const char *path, struct buf *out);               /* replaces what is in out; false: cannot be read */
bool text_exists(const char *path);

/* Lines "line <i> ..." of many lengths, some blank, some with "bad" in them (those fail), the same for equal seeds. */
void lines_make(struct buf *out, int lines_n, uint64_t seed);

struct job_options {
    const char *fingerprint;     /* NULL: a fixed one */
    bool errors_file, overwrite, order_input;
    int64_t window;              /* 0: 64 */
    int group_max;               /* results a commit; 0: 7 */
    uint64_t shuffle;            /* 0: answers come in order; else the seed of their order inside the window */
    int stop_after;              /* stop without finishing after so many commits; 0: never */
    int64_t line_mb_max;         /* 0: 16 */
    void (*on_durable)(int64_t n);      /* after each commit of n results; may be NULL */
};

struct job_outcome {
    status st;                   /* of the first call that was not ST_OK, ST_AGAIN of queue_finish included */
    const char *call;            /* its name */
    struct error err;
    struct queue_state state;    /* after the open */
    int64_t polled_n, committed_n;
};

/* Opens, polls, commits, finishes, closes. */
void job_run(const struct job_dir *d, const struct job_options *o, struct job_outcome *out);

/* What the outputs must be when the job is over. Returns NULL, or a text that says what is wrong.
 * partial: lines may be missing, but what is there must be right and there once. */
const char *job_check(const struct job_dir *d, bool partial);
/* Lines in the output and the errors file together. */
int64_t job_lines(const struct job_dir *d);

#endif
