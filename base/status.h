/* base/status.h - one convention for errors: a status names what the caller does next, not who failed.
 * A status that a person will read about travels with a struct error that names the thing and the cure. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum status {
    ST_OK = 0,
    ST_AGAIN,     /* nothing there yet (empty poll, no record, timeout); not an error, never logged */
    ST_RETRY,     /* the other side failed (broker, store, full disk): the same call may work later */
    ST_REJECT,    /* this job, record or file is at fault: give its verdict, the worker goes on */
    ST_FENCED,    /* another owner has taken over: write nothing more, stop */
    ST_FATAL      /* this process cannot go on (device, communicator, memory): exit, acknowledge nothing more */
} status;

#define MUST_USE __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt_i, args_i) __attribute__((format(printf, fmt_i, args_i)))

/* Runs call; on anything but ST_OK leaves it in `st` and goes to the label `out`, which cleans up on every path. */
#define TRY(call) do { if ((st = (call)) != ST_OK) goto out; } while (0)

const char *status_name(status st);

/* What to tell the person: one line, names the thing and the cure. Always terminated; long texts end in "...". */
struct error {
    char text[1024];
};

/* Writes the text and returns st, so that a caller can `return error_set(err, ST_REJECT, ...)`. err may be NULL. */
status error_set(struct error *err, status st, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* A broken promise of our own code: logs where, then aborts. Stays on in release builds. */
#define ASSERT(cond) ((cond) ? (void)0 : assert_failed(#cond, __FILE__, __LINE__))
_Noreturn void assert_failed(const char *cond, const char *file, int line);

/* Memory for the life of the process or of a pooled thing; never returns NULL (out of memory ends the process,
 * because a worker that lost an allocation in the middle of a step cannot promise anything). free() gives back. */
void *mem_take(size_t bytes);
void *mem_take_zero(size_t n, size_t bytes);
void *mem_grow(void *p, size_t bytes);
char *mem_copy_text(const char *text);
/* While on, this thread takes no memory (to grow what is kept is allowed): a debug build ends at a take. The step loop runs so. */
void mem_quiet(bool on);

#endif
