#include "worker/lines/json_write.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static void escape_add(struct buf *b, uint32_t code)
{
    static const char hex[] = "0123456789abcdef";
    char e[6] = { '\\', 'u', hex[code >> 12 & 15], hex[code >> 8 & 15], hex[code >> 4 & 15], hex[code & 15] };

    switch (code) {
    case '"': case '\\': e[1] = (char)code; break;
    case '\b': e[1] = 'b'; break;
    case '\f': e[1] = 'f'; break;
    case '\n': e[1] = 'n'; break;
    case '\r': e[1] = 'r'; break;
    case '\t': e[1] = 't'; break;
    default:
        buf_add(b, e, 6);
        return;
    }
    buf_add(b, e, 2);
}

/* Bytes that stand for themselves: printable ASCII but quote and backslash, eight at a time (a zero byte is found by
 * (x - 0x01..) & ~x & 0x80.., Mycroft 1987; here only its "none at all" answer is used). */
static size_t plain_run(const char *text, size_t n)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = UINT64_C(0x8080808080808080);
    size_t i = 0;

    while (n - i >= 8) {
        uint64_t x, quote, slash;

        memcpy(&x, text + i, 8);
        quote = x ^ ones * '"';
        slash = x ^ ones * '\\';
        if (((x | (x - ones * 0x20) | (quote - ones) | (slash - ones)) & tops) != 0)
            break;
        i += 8;
    }
    while (i < n && (unsigned char)text[i] >= 0x20 && (unsigned char)text[i] < 0x80 && text[i] != '"' && text[i] != '\\')
        i++;
    return i;
}

/* Length of the maximal part at text that begins like a character and is none (Unicode 3.9, table 3-8). */
static size_t invalid_part(const char *text, size_t n)
{
    uint32_t code;

    for (size_t k = n < 3 ? n : 3; k > 1; k--) {
        if (utf8_char(text, k, &code) == -1)
            return k;
    }
    return 1;
}

void json_add_chars(struct buf *b, const char *text, size_t n)
{
    size_t i = 0;

    while (i < n) {
        size_t run = plain_run(text + i, n - i);
        uint32_t code = 0;
        int len;

        buf_add(b, text + i, run);
        i += run;
        if (i == n)
            break;
        len = utf8_char(text + i, n - i, &code);
        if (len <= 0) {
            buf_add_text(b, "\xef\xbf\xbd");
            i += invalid_part(text + i, n - i);
            continue;
        }
        if (code < 0x80 || code == 0x85 || code == 0x2028 || code == 0x2029)
            escape_add(b, code);
        else
            buf_add(b, text + i, (size_t)len);
        i += (size_t)len;
    }
}

void json_add_text(struct buf *b, const char *text, size_t n)
{
    buf_add_byte(b, '"');
    json_add_chars(b, text, n);
    buf_add_byte(b, '"');
}

static size_t digits_put(char *end, uint64_t v)
{
    size_t n = 0;

    do {
        *--end = (char)('0' + v % 10);
        v /= 10;
        n++;
    } while (v > 0);
    return n;
}

void json_add_int(struct buf *b, int64_t v)
{
    char text[20];
    size_t n = digits_put(text + sizeof text, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);

    if (v < 0)
        buf_add_byte(b, '-');
    buf_add(b, text + sizeof text - n, n);
}

static const double power10[] = { 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };

/* value = digits * 10^-scale, scale from -8 to 22: positional where that is short, else with an exponent. */
static void decimal_add(struct buf *b, uint64_t digits, int scale)
{
    char text[20];
    int n, exponent;

    for (; scale < 1; scale++)
        digits *= 10;
    while (scale > 1 && digits % 10 == 0) {
        digits /= 10;
        scale--;
    }
    n = (int)digits_put(text + sizeof text, digits);
    exponent = n - 1 - scale;
    if (n > scale) {
        buf_add(b, text + sizeof text - n, (size_t)(n - scale));
        buf_add_byte(b, '.');
        buf_add(b, text + sizeof text - scale, (size_t)scale);
    } else if (exponent >= -5) {
        buf_add(b, "0.00000", (size_t)(2 + scale - n));
        buf_add(b, text + sizeof text - n, (size_t)n);
    } else {
        buf_add_byte(b, text[sizeof text - (size_t)n]);
        if (n > 1)
            buf_add_byte(b, '.');
        buf_add(b, text + sizeof text - (size_t)n + 1, (size_t)n - 1);
        buf_add_text(b, "e-");
        json_add_int(b, -exponent);
    }
}

/* Magnitudes whose powers of ten are not exact doubles: rare, so printf may do it; its point depends on the locale. */
static void float_add_slow(struct buf *b, float v)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%.8e", (double)v);

    for (int i = 0; i < n; i++) {
        if ((text[i] < '0' || text[i] > '9') && text[i] != '-' && text[i] != '+' && text[i] != 'e')
            text[i] = '.';
    }
    buf_add(b, text, (size_t)n);
}

/* Tries one digit more until it reads back; what needs fewer than six has zeros behind, which are dropped. The quotient of
 * two exact doubles is correctly rounded, so it is the double that a reader gets from the decimal. */
void json_add_float(struct buf *b, float v)
{
    double a = fabs((double)v);
    int e10;

    if (a == 0) {
        buf_add_text(b, "0.0");
        return;
    }
    if (!(a >= 1e-13 && a < 1e9)) {
        float_add_slow(b, v);
        return;
    }
    if (v < 0)
        buf_add_byte(b, '-');
    e10 = (int)floor(log10(a));
    for (int n = 6; n <= 10; n++) {
        int scale = n - 1 - e10;
        double p = power10[scale < 0 ? -scale : scale];
        uint64_t digits = (uint64_t)((scale < 0 ? a / p : a * p) + 0.5);
        double back = scale < 0 ? (double)digits * p : (double)digits / p;

        if ((float)back == (float)a) {
            decimal_add(b, digits, scale);
            return;
        }
    }
    ASSERT(!"nine digits tell any two floats apart");
}

void json_add_logprob(struct buf *b, float v)
{
    if (isfinite(v))
        json_add_float(b, v);
    else
        buf_add_text(b, "-9999.0");
}
