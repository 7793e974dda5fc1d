/* queue/file.h - the parts of the file queue. Private to this folder. See file.c for the design. */
#ifndef QUEUE_FILE_H
#define QUEUE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/status.h"
#include "queue/queue.h"

/* ---- file_io.c: the durable steps ---- */

/* The one place where errno becomes a status. What the person must change is ST_REJECT, what may pass (a full disk, an
 * I/O error) is ST_RETRY. The text is "cannot <doing> <path>: <cause>; <cure>". */
status st_errno(struct error *err, int cause, const char *doing, const char *path);
/* Whole, whatever the kernel does in one go. They leave errno. */
bool file_write_at(int fd, const void *bytes, size_t n, int64_t at);
/* Returns the bytes read: fewer than n only at the end of the file; -1: error. */
int64_t file_read_at(int fd, void *bytes, size_t n, int64_t at);
bool file_sync(int fd, bool all);            /* all: times and owner, too; else what reading back needs */
bool file_cut(int fd, int64_t bytes);
MUST_USE status folder_sync(const char *path_in_it, struct error *err);
/* The folder of a path, with no slash at its end unless it is the root; the caller frees it. */
char *path_folder(const char *path);
char *path_join(const char *path, const char *suffix);      /* path + suffix; the caller frees it */
/* The path of an output without symbolic links, so that a rename replaces the file and not a link, and one file has one
 * lock. It need not be there, its folder must. The caller frees *out. */
MUST_USE status path_resolve(const char *path, char **out, struct error *err);

/* ---- file_input.c: the input, as it was when the run began ---- */

#define INPUT_CHUNK_BYTES (1 << 20)
#define INPUT_OVERSIZE_KEEP (64 << 10)      /* of an oversize line this much is delivered */

struct input_facts {             /* of the snapshot */
    int64_t bytes;
    int64_t lines_n;             /* physical, a last one without newline included */
    int64_t records_n;           /* of them, not blank */
    bool ended;                  /* nothing stands behind the last newline */
    struct hash128 hash;         /* of all bytes */
    uint64_t first_hash;         /* of the first record, or of its first 64 KiB */
};

struct input_line {
    int64_t line_i;
    int64_t at_bytes;            /* where the value starts in the file */
    const char *value;           /* valid until the next call */
    size_t value_n;
    bool blank, oversize;
    bool torn;                   /* the last one, without newline */
};

struct file_input {
    char *path;
    int fd;
    struct stat at_open;
    struct input_facts facts;
    int64_t line_max;
    uint64_t *chunk_hash;        /* [chunks_n]: each chunk is checked again when its lines are delivered */
    size_t chunks_n;
    /* the reader */
    char *chunk;
    size_t chunk_n, chunk_at;    /* bytes in it, next one to be read */
    size_t chunk_i;              /* next to be loaded */
    int64_t line_i;
    struct buf line;             /* a line that spans chunks */
};

MUST_USE status input_open(struct file_input *in, const char *path, int64_t line_max, struct error *err);
void input_close(struct file_input *in);
/* Reads the whole input once: facts, chunk hashes. If prefix_bytes >= 0, *prefix gets the hash of that many bytes. */
MUST_USE status input_scan(struct file_input *in, int64_t prefix_bytes, struct hash128 *prefix, struct error *err);
/* The next physical line. ST_AGAIN: the snapshot is read to its end. ST_REJECT: the file has changed meanwhile. */
MUST_USE status input_next(struct file_input *in, struct input_line *out, struct error *err);
/* A copy of the line as a record, and its ends (any thread): the value is an allocation of its own and goes at the first. */
struct record *input_record(const struct input_line *line);
void input_record_settle(struct queue *q, struct record *r);
void input_record_give(struct queue *q, struct record *r);
/* Is the last line, which had no newline at the snapshot, still what it was? (A newline behind it changes nothing.) */
bool input_torn_holds(const struct file_input *in);
/* At the end: ST_OK: as it was. ST_AGAIN: grown. ST_REJECT: changed or cut. */
MUST_USE status input_recheck(const struct file_input *in, struct error *err);

/* ---- file_output.c: the output and the errors file: the commit log ---- */

struct file_output {
    char *path;
    int fd;                      /* -1: this job has no such file */
    int64_t bytes;               /* durable length */
    bool begun;                  /* a group is being written */
    bool dirty;                  /* something may stand beyond the durable length */
    int64_t lines_n, failures_n; /* found at the start */
    struct buf pending;
    int64_t pending_at;          /* where pending goes */
};

struct output_line {
    int64_t at, bytes;           /* newline included */
    int64_t offset;              /* which input line it answers */
    bool failure;                /* its status says so */
};

enum line_kind { LINE_OURS, LINE_TORN, LINE_FOREIGN, LINE_DAMAGED };

/* Streams over the lines of a file. Calls back for each of ours, in order, until one is not; *kind and *at say what
 * stopped it (LINE_OURS: the end of the file). */
typedef status (*output_line_fn)(void *ctx, const struct output_line *line, struct error *err);
MUST_USE status output_scan(const struct file_output *o, const char *job, output_line_fn fn, void *ctx,
                            enum line_kind *kind, int64_t *at, int64_t *line_i, struct error *err);

/* Which input lines have their result, one bit each. */
struct done_set {
    uint64_t *bits;
    int64_t lines_n;
    int64_t done_n;
};

bool done_get(const struct done_set *d, int64_t line_i);
void done_set_bit(struct done_set *d, int64_t line_i);

/* Opens for reading and writing; makes it if it is not there. */
MUST_USE status output_open(struct file_output *o, const char *path, struct error *err);
void output_close(struct file_output *o);
/* Empties it, durably. */
MUST_USE status output_clear(struct file_output *o, struct error *err);
/* Reads back what is done. A torn last line is cut; a tail that is damaged from some line on is moved to PATH.damaged-N.
 * ST_REJECT: the file holds what is not of this job, or answers a line twice (also one that `other` answers). */
MUST_USE status output_recover(struct file_output *o, const struct file_output *other, const char *job,
                               struct done_set *done, struct error *err);

/* A group: output_add for each line, output_write puts the rest of it behind the durable length, output_sync makes it
 * durable, output_settle makes that the new length. Whatever fails, output_undo takes the group away again.
 * ST_RETRY: the disk. ST_FENCED: the file was replaced, or something else writes to it. */
MUST_USE status output_add(struct file_output *o, const char *line, size_t n, struct error *err);
MUST_USE status output_write(struct file_output *o, struct error *err);
MUST_USE status output_sync(struct file_output *o, struct error *err);
void output_settle(struct file_output *o);
void output_undo(struct file_output *o);

/* ---- file_order.c ---- */

/* Replaces the file by one whose lines are in the order of their offsets, if they are not. 16 bytes of memory a line. */
MUST_USE status output_order(struct file_output *o, const char *job, struct error *err);

/* ---- file_job.c: the sidecar and the lock ---- */

struct job_record {              /* what PATH.job holds */
    char job[17];
    int64_t begun_s;             /* Unix time of the first start: what a template is told of the date, in every run */
    bool finished, ordered;
    struct input_facts input;
    char *input_path;            /* for people */
    char *errors;                /* relative to the output's folder where it is in it; NULL: none */
    char *fingerprint;           /* JSON object text */
};

void job_record_fini(struct job_record *r);
char *job_errors_path(const struct job_record *r, const char *output_path);      /* NULL: none; the caller frees it */
/* ST_AGAIN: there is none. ST_REJECT: it cannot be read or is not ours. */
MUST_USE status job_record_read(const char *path, struct job_record *out, struct error *err);
MUST_USE status job_record_write(const char *path, const struct job_record *r, struct error *err);
/* ST_REJECT: the fingerprints differ; the text names what changed, from what to what. */
MUST_USE status fingerprint_compare(const char *before, const char *now, const char *output, struct error *err);
MUST_USE status fingerprint_check(const char *text, struct error *err);      /* a JSON object? */
/* 16 hex digits of what the job is: the fingerprint and its first record. Neither time, machine nor path go in, so two
 * runs give equal bytes; nor what follows the first record, so a job keeps its id when its input grows. */
void job_id_make(const char *fingerprint, uint64_t first_hash, char out[17]);

/* One run at a time for one output. *fd is -1 where the file system knows no locks (a warning tells). */
MUST_USE status job_lock(const char *path, const char *output, int *fd, struct error *err);
void job_unlock(const char *path, int fd);

/* ---- json_fields.c: just enough JSON for the sidecar ---- */

/* A field of a JSON object at any depth: "model.hash". */
struct json_field {
    char *path;
    char *value;                 /* its JSON text without outer spaces; objects are walked into, other values are kept whole */
};

struct json_fields {
    struct json_field *field;
    size_t n;
};

/* ST_REJECT: the text is not one JSON object. */
MUST_USE status json_fields_read(const char *text, size_t n, struct json_fields *out);
void json_fields_fini(struct json_fields *f);
const char *json_field_get(const struct json_fields *f, const char *path);      /* NULL: not there */
/* Finds the text of one top-level member, unparsed. */
MUST_USE status json_member_find(const char *text, size_t n, const char *name, const char **value, size_t *value_n);
char *json_text_read(const char *value);                                        /* unquoted; NULL: not a string */

#endif
