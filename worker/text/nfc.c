/* Only a character with the flag UNICODE_JOINING can be changed, moved or joined to what stands before it. So the text
 * is copied, except where such characters stand: a run of them, with the one character before it, is normalised by
 * itself. That character is left out where it is younger than the reference's Unicode version: utf8proc may know it.
 *
 * utf8proc would sort the marks by insertion, quadratic in a long run, so here they are sorted by counting before it
 * composes. */
#include "worker/text/nfc.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/status.h"
#include "base/utf8.h"
#include "worker/text/unicode.h"

enum { DECOMPOSED_MAX = 8 };       /* characters one character becomes; the canonical maximum is 4 */

static unsigned mark_class(int32_t code)
{
    return (unsigned)utf8proc_get_property(code)->combining_class & 255u;
}

/* Orders marks (all of class > 0) by class, keeping the order of equals. */
static void marks_sort(int32_t *codes, int32_t *sorted, size_t n)
{
    size_t at[257] = { 0 };
    bool in_order = true;

    for (size_t i = 1; i < n && in_order; i++)
        in_order = mark_class(codes[i - 1]) <= mark_class(codes[i]);
    if (in_order)
        return;
    for (size_t i = 0; i < n; i++)
        at[mark_class(codes[i]) + 1]++;
    for (int c = 1; c < 257; c++)
        at[c] += at[c - 1];
    for (size_t i = 0; i < n; i++)
        sorted[at[mark_class(codes[i])]++] = codes[i];
    memcpy(codes, sorted, n * sizeof(*codes));
}

static void codes_order(int32_t *codes, int32_t *sorted, size_t n)
{
    size_t i = 0;

    while (i < n) {
        size_t from = i;

        while (i < n && mark_class(codes[i]) != 0)
            i++;
        if (i - from > 1)
            marks_sort(codes + from, sorted, i - from);
        if (i == from)
            i++;
    }
}

static void codes_room(struct nfc *w, size_t n)
{
    if (n <= w->room)
        return;
    w->room = n < 64 ? 64 : 2 * n;
    w->codes = mem_grow(w->codes, w->room * sizeof(*w->codes));
    w->sorted = mem_grow(w->sorted, w->room * sizeof(*w->sorted));
}

static void piece_compose(struct nfc *w, const char *text, size_t n, struct buf *out)
{
    utf8proc_ssize_t codes_n = 0;
    int boundary = 0;

    for (size_t i = 0; i < n;) {
        unsigned len;
        uint32_t code = unicode_decode(text + i, &len);
        utf8proc_ssize_t got;

        codes_room(w, (size_t)codes_n + DECOMPOSED_MAX);
        got = utf8proc_decompose_char((utf8proc_int32_t)code, w->codes + codes_n, DECOMPOSED_MAX, UTF8PROC_DECOMPOSE,
                                      &boundary);
        ASSERT(got > 0 && got <= DECOMPOSED_MAX);
        codes_n += got;
        i += len;
    }
    codes_order(w->codes, w->sorted, (size_t)codes_n);
    codes_n = utf8proc_normalize_utf32(w->codes, codes_n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    ASSERT(codes_n > 0);
    for (utf8proc_ssize_t i = 0; i < codes_n; i++) {
        char bytes[4];

        buf_add(out, bytes, (size_t)utf8_put(bytes, (uint32_t)w->codes[i]));
    }
}

/* The first character with the flag, or n; *before is the start of the one before it, or where the search began. */
static size_t joining_find(const uint8_t *table, const char *text, size_t from, size_t n, size_t *before)
{
    unsigned len;

    *before = from;
    for (size_t i = from; i < n; i += len) {
        if (unicode_flags(table, text + i, &len) & UNICODE_JOINING)
            return i;
        *before = i;
    }
    return n;
}

bool nfc_text(struct nfc *w, const uint8_t *table, const char *text, size_t n, struct buf *out)
{
    size_t done = 0, before, at = joining_find(table, text, 0, n, &before);

    if (at == n)
        return false;
    buf_reset(out);
    while (at < n) {
        size_t end = at;
        unsigned len;

        if (unicode_flags(table, text + before, &len) & UNICODE_FOREIGN)
            before = at;
        buf_add(out, text + done, before - done);
        while (end < n && (unicode_flags(table, text + end, &len) & UNICODE_JOINING))
            end += len;
        piece_compose(w, text + before, end - before, out);
        done = end;
        at = joining_find(table, text, done, n, &before);
    }
    buf_add(out, text + done, n - done);
    return true;
}

void nfc_fini(struct nfc *w)
{
    free(w->codes);
    free(w->sorted);
    *w = (struct nfc){ NULL, NULL, 0 };
}
