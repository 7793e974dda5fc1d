/* worker/lines/json_scan.h - where and why a text is not JSON. jansson decides whether it is; this finds the exact byte
 * for the message, and the line's custom_id where the text as such is sound. For lines that failed, so speed is no goal.
 * Threads: any. Source: RFC 8259. */
#ifndef WORKER_LINES_JSON_SCAN_H
#define WORKER_LINES_JSON_SCAN_H

#include <stddef.h>

#define JSON_DEPTH_MAX 2048        /* jansson's JSON_PARSER_MAX_DEPTH */

enum json_fault {
    JSON_SOUND,                    /* nothing is wrong with the grammar */
    JSON_SYNTAX,                   /* `why` says what is wrong */
    JSON_CUT,                      /* the text ends in the middle */
    JSON_SURROGATE,                /* an escape that is half of a surrogate pair */
    JSON_KEY_NUL,                  /* a key holds \u0000 */
    JSON_DEEP,                     /* nested deeper than JSON_DEPTH_MAX */
    JSON_NUMBER                    /* larger than a double, or an integer beyond 64 bits */
};

struct json_scan {
    enum json_fault fault;
    size_t at;                     /* byte of the fault, from 0 */
    const char *why;
    /* Value of the one top-level key "custom_id", a sound string or number seen before the fault; NULL: none */
    const char *custom_id;
    size_t custom_id_n;
};

/* text: UTF-8. */
void json_scan(const char *text, size_t n, struct json_scan *out);

#endif
