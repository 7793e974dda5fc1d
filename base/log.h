/* base/log.h - one line an event: time, level, event, key=value pairs with units.
 * Threads: any; a line is written whole. Never logs a prompt or a completion, only its length. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/status.h"

enum log_level { LOG_NONE = -1, LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* error: someone must act; warn: we recovered; info: life cycle and one summary a minute; debug: for developers.
 * `event` is folder.verb ("queue.torn_tail"); fmt makes the key=value pairs. */
void log_line(enum log_level level, const char *event, const char *fmt, ...) PRINTF_LIKE(3, 4);
#define log_error(event, ...) log_line(LOG_ERROR, event, __VA_ARGS__)
#define log_warn(event, ...) log_line(LOG_WARN, event, __VA_ARGS__)
#define log_info(event, ...) log_line(LOG_INFO, event, __VA_ARGS__)
#define log_debug(event, ...) log_line(LOG_DEBUG, event, __VA_ARGS__)

/* Lines above this level are dropped; LOG_NONE: all are. At start only. */
void log_level_set(enum log_level level);
/* ST_REJECT: no such level; the known ones are error, warn, info, debug. */
MUST_USE status log_level_parse(const char *name, enum log_level *out);
/* Called before a line is written, so that a live progress line can be wiped first; NULL: none. At start only. */
void log_before_line(void (*wipe)(void));

#endif
