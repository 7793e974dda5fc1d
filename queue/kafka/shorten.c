/* A JSON text made shorter without breaking it: its longest string values are cut, longest first, at the border of a character
 * and never inside an escape. Names of fields, ids, numbers and structure stay. */
#include <string.h>

#include "queue/kafka/internal.h"

#define CUTS_MAX 256
#define TEXT_BYTES_MIN 64                  /* shorter ones are names, reasons and numbers rather than texts */

struct span { size_t at, n; };             /* of a string value, without its quotes */

static size_t string_end(const char *text, size_t n, size_t at)      /* at: behind the opening quote; returns that of the closing one */
{
    while (at < n && text[at] != '"')
        at += text[at] == '\\' ? 2 : 1;
    return at < n ? at : n;
}

static bool is_name(const char *text, size_t n, size_t at)           /* at: behind the closing quote */
{
    while (at < n && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r'))
        at++;
    return at < n && text[at] == ':';
}

static bool is_identity(const char *text, struct span name)
{
    return (name.n == 2 && memcmp(text + name.at, "id", 2) == 0) || (name.n == 9 && memcmp(text + name.at, "custom_id", 9) == 0);
}

static struct span longest(const char *text, size_t n)
{
    struct span best = { 0, 0 }, name = { 0, 0 };

    for (size_t i = 0; i < n; i++) {
        size_t end;

        if (text[i] != '"')
            continue;
        end = string_end(text, n, i + 1);
        if (is_name(text, n, end + 1))
            name = (struct span){ i + 1, end - i - 1 };
        else if (end - i - 1 > best.n && !is_identity(text, name))
            best = (struct span){ i + 1, end - i - 1 };
        i = end;
    }
    return best;
}

static bool surrogate_high(const char *p, size_t n)                  /* \uD800 .. \uDBFF */
{
    return n >= 6 && p[0] == '\\' && p[1] == 'u' && (p[2] == 'd' || p[2] == 'D') && strchr("89abAB", p[3]) != NULL;
}

/* The most bytes of s, up to keep, that end between two characters. */
static size_t border(const char *s, size_t n, size_t keep)
{
    size_t at = 0;

    while (at < n) {
        size_t step = 1;

        if (s[at] == '\\' && at + 1 < n && s[at + 1] == 'u')
            step = surrogate_high(s + at, n - at) ? 12 : 6;
        else if (s[at] == '\\')
            step = 2;
        else
            while (at + step < n && ((unsigned char)s[at + step] & 0xc0) == 0x80)
                step++;
        if (at + step > keep || at + step > n)
            break;
        at += step;
    }
    return at;
}

bool json_shorten(const char *text, size_t n, size_t max, struct buf *out)
{
    buf_reset(out);
    buf_add(out, text, n);
    for (int i = 0; i < CUTS_MAX && out->n > max; i++) {
        struct span s = longest(out->data, out->n);
        size_t over = out->n - max, keep;

        if (s.n <= TEXT_BYTES_MIN)
            return false;
        keep = border(out->data + s.at, s.n, s.n > over ? s.n - over : 0);
        memmove(out->data + s.at + keep, out->data + s.at + s.n, out->n - s.at - s.n);
        out->n -= s.n - keep;
    }
    return out->n <= max;
}
