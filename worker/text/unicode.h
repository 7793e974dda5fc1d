/* worker/text/unicode.h - what the reference tokenizers think of a character: classes of the pre-tokenizer patterns and
 * what their NFC would touch. From a table of our own, so that token ids do not depend on which Unicode version a
 * library of this machine has. Threads: const after unicode_expand. Made by: tests/golden/make_unicode.py. */
#ifndef WORKER_TEXT_UNICODE_H
#define WORKER_TEXT_UNICODE_H

#include <stddef.h>
#include <stdint.h>

enum {
    UNICODE_LETTER = 1,            /* \p{L}; exactly one of the first four is set */
    UNICODE_NUMBER = 2,            /* \p{N} */
    UNICODE_SPACE = 4,             /* \s */
    UNICODE_OTHER = 8,             /* [^\s\p{L}\p{N}] */
    UNICODE_NEWLINE = 16,          /* [\r\n] */
    UNICODE_NUMERIC = 32,          /* what the pre-tokenizer Digits isolates: \p{N} of a newer Unicode version */
    UNICODE_JOINING = 64,          /* NFC changes it, moves it, or may join it to what stands before */
    UNICODE_FOREIGN = 128          /* other Unicode versions may normalise it: the reference's NFC leaves it alone */
};

enum { UNICODE_TABLE_END = 0x40000, UNICODE_BEYOND = UNICODE_OTHER | UNICODE_FOREIGN };

struct unicode_run { uint32_t first, n; uint8_t flags; };
extern const struct unicode_run unicode_runs[];
extern const size_t unicode_runs_n;

/* One byte of flags for every character below UNICODE_TABLE_END; those above are all UNICODE_BEYOND. */
void unicode_expand(uint8_t table[UNICODE_TABLE_END]);

/* text holds a whole valid character at p. */
static inline uint32_t unicode_decode(const char *text, unsigned *len)
{
    const unsigned char *p = (const unsigned char *)text;

    if (p[0] < 0x80) {
        *len = 1;
        return p[0];
    }
    if (p[0] < 0xe0) {
        *len = 2;
        return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    }
    if (p[0] < 0xf0) {
        *len = 3;
        return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    }
    *len = 4;
    return (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
}

static inline unsigned unicode_flags(const uint8_t *table, const char *text, unsigned *len)
{
    uint32_t code = unicode_decode(text, len);

    return code < UNICODE_TABLE_END ? table[code] : UNICODE_BEYOND;
}

#endif
