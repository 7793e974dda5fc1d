#include "base/utf8.h"

#include <string.h>

int utf8_char(const char *text, size_t n, uint32_t *code)
{
    const unsigned char *p = (const unsigned char *)text;
    static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    uint32_t c = p[0];
    int len;

    if (c < 0x80) {
        *code = c;
        return 1;
    }
    if (c < 0xc2 || c > 0xf4)
        return 0;
    len = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    c &= 0x3fu >> (len - 1);
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n)
            return -1;
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3f);
        /* The second byte already decides overlong, surrogate and too large: a cut character is never one of those. */
        if (i == 1 && len > 2) {
            uint32_t low = c << (6 * (len - 2)), high = low | ((1u << (6 * (len - 2))) - 1);

            if (high < least[len] || low > 0x10ffff || (low >= 0xd800 && high <= 0xdfff))
                return 0;
        }
    }
    *code = c;
    return len;
}

size_t utf8_valid(const char *text, size_t n)
{
    size_t i = 0;

    while (i < n) {
        uint64_t eight;
        uint32_t code;
        int len;

        if (n - i >= 8 && (memcpy(&eight, text + i, 8), (eight & UINT64_C(0x8080808080808080)) == 0)) {
            i += 8;
            continue;
        }
        len = utf8_char(text + i, n - i, &code);
        if (len <= 0)
            return i;
        i += (size_t)len;
    }
    return n;
}

int utf8_put(char out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}
