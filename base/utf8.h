/* base/utf8.h - UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. Threads: any. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Length of the longest valid prefix; n when all is valid. */
size_t utf8_valid(const char *text, size_t n);
/* Bytes of the character at text (n >= 1 bytes there): 1-4; 0: invalid; -1: a valid start that is cut off at n. */
int utf8_char(const char *text, size_t n, uint32_t *code);
/* Writes 1-4 bytes, returns how many. code must be a scalar value. */
int utf8_put(char out[4], uint32_t code);

#endif
