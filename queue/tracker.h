/* queue/tracker.h - which offsets of one source are done: the lowest open one (LWM) and a bitmap beyond it.
 * The bitmap travels in the commit metadata (delivery.md 8.3): "W1:<hash>:<base64 of the bitmap>".
 * Threads: one owner. Gaps (offsets that never arrive) do not block the LWM: it is the lowest offset received and not
 * done, else the last received + 1. */
#ifndef QUEUE_TRACKER_H
#define QUEUE_TRACKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct tracker;

/* base: first offset that may be open. window: offsets beyond the LWM that can be told apart, > 0. */
struct tracker *tracker_open(int64_t base, int64_t window);
struct tracker *tracker_copy(const struct tracker *t);           /* to encode what a commit would make of it */
void tracker_close(struct tracker *t);                           /* NULL is allowed */

/* ST_OK: received now. ST_AGAIN: beyond the window, hold it back and offer it again after progress; never while nothing
 * is open. ST_REJECT: skip it: already done (below the LWM or its bit is set), or received before and still open.
 * Offsets arrive in ascending order: once one was received, those between it and the one before are gaps. */
MUST_USE status tracker_receive(struct tracker *t, int64_t offset);
void tracker_done(struct tracker *t, int64_t offset);            /* it must be open */
bool tracker_is_open(const struct tracker *t, int64_t offset);   /* received and not done */
bool tracker_is_done(const struct tracker *t, int64_t offset);   /* true for everything below the LWM, gaps, too */
int64_t tracker_lwm(const struct tracker *t);
int64_t tracker_open_n(const struct tracker *t);                 /* received and not done */
int64_t tracker_ahead(const struct tracker *t);                  /* last received + 1 - LWM: compare with the window */

/* Writes the metadata text (terminated). ST_REJECT: out is too small; a smaller window is needed. `hash` is 8 hex digits
 * of the record at the LWM, or "-". */
MUST_USE status tracker_encode(const struct tracker *t, const char *hash, char *out, size_t out_bytes);
/* A tracker as it was encoded, with LWM base. hash_out gets the text between the colons. ST_REJECT: not our format. */
MUST_USE status tracker_decode(const char *text, int64_t base, int64_t window, char hash_out[9], struct tracker **out,
                               struct error *err);

#endif
