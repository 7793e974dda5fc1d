/* worker/lines/json_write.h - JSON out, fast and always valid. Threads: any. Source: RFC 8259. */
#ifndef WORKER_LINES_JSON_WRITE_H
#define WORKER_LINES_JSON_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* The characters of a JSON string, without quotes. What is not UTF-8 becomes U+FFFD, one for each maximal invalid part.
 * Line separators that are not \n (U+0085, U+2028, U+2029) are escaped: some readers split lines at them. */
void json_add_chars(struct buf *b, const char *text, size_t n);
void json_add_text(struct buf *b, const char *text, size_t n);       /* with quotes */
void json_add_int(struct buf *b, int64_t v);
/* The fewest digits that read back as the same float, with a point or an exponent: "-0.25", "3.0". Any locale. */
void json_add_float(struct buf *b, float v);
/* As json_add_float; what is not finite is -9999.0, the floor that OpenAI uses. */
void json_add_logprob(struct buf *b, float v);

#endif
