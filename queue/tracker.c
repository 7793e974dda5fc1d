/* Two rings of bits over the offsets [lwm, lwm + ring): received, and done. Offset o has bit o mod ring, so nothing moves
 * when the LWM does; the bits that it leaves behind are cleared on the way, a word at a time, and are then free for
 * offsets that come a ring later. Every offset is passed once: O(1) amortised.
 * The received ring is what tells a gap from an open record: a gap has neither bit and never holds the LWM back. */
#include "queue/tracker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BITMAP_BYTES_MAX (1 << 20)      /* of a text that is decoded: far more than a broker would keep */

struct tracker {
    int64_t lwm;
    int64_t last;             /* highest offset received or passed; lwm - 1 at the start */
    int64_t done_high;        /* highest offset whose done bit was ever set; below the LWM: no bit is set */
    int64_t window, ring;     /* ring: a power of two, at least the window and 64 */
    int64_t open_n;
    uint64_t *received, *done;
};

static uint64_t *word_of(const struct tracker *t, uint64_t *ring, int64_t offset)
{
    return ring + ((offset & (t->ring - 1)) >> 6);
}

static bool bit_get(const struct tracker *t, uint64_t *ring, int64_t offset)
{
    return *word_of(t, ring, offset) >> (offset & 63) & 1;
}

static void bit_set(const struct tracker *t, uint64_t *ring, int64_t offset)
{
    *word_of(t, ring, offset) |= UINT64_C(1) << (offset & 63);
}

static void bits_clear(const struct tracker *t, uint64_t *ring, int64_t from, int64_t to)
{
    if (to - from >= t->ring) {
        memset(ring, 0, (size_t)(t->ring / 8));
        return;
    }
    while (from < to) {
        int64_t word_end = (from | 63) + 1;
        int64_t end = word_end < to ? word_end : to;
        uint64_t mask = ~UINT64_C(0) << (from & 63);

        if (end != word_end)
            mask &= ~(~UINT64_C(0) << (end & 63));
        *word_of(t, ring, from) &= ~mask;
        from = end;
    }
}

static struct tracker *tracker_make(int64_t base, int64_t window, int64_t ring_min)
{
    struct tracker *t = mem_take_zero(1, sizeof *t);

    ASSERT(base >= 0 && window > 0 && window <= INT64_C(1) << 40);
    t->lwm = base;
    t->last = t->done_high = base - 1;
    t->window = window;
    t->ring = 64;
    while (t->ring < window || t->ring < ring_min)
        t->ring *= 2;
    t->received = mem_take_zero((size_t)(t->ring / 64), sizeof(uint64_t));
    t->done = mem_take_zero((size_t)(t->ring / 64), sizeof(uint64_t));
    return t;
}

struct tracker *tracker_open(int64_t base, int64_t window)
{
    return tracker_make(base, window, 0);
}

struct tracker *tracker_copy(const struct tracker *t)
{
    struct tracker *copy = tracker_make(t->lwm, t->window, t->ring);

    copy->last = t->last;
    copy->done_high = t->done_high;
    copy->open_n = t->open_n;
    memcpy(copy->received, t->received, (size_t)(t->ring / 8));
    memcpy(copy->done, t->done, (size_t)(t->ring / 8));
    return copy;
}

void tracker_close(struct tracker *t)
{
    if (t == NULL)
        return;
    free(t->received);
    free(t->done);
    free(t);
}

static void lwm_move(struct tracker *t, int64_t to)
{
    bits_clear(t, t->received, t->lwm, to);
    bits_clear(t, t->done, t->lwm, to);
    t->lwm = to;
    if (t->last < to - 1)
        t->last = to - 1;
}

/* The lowest open offset; there is one. */
static int64_t open_lowest(const struct tracker *t)
{
    int64_t o = t->lwm;

    for (;;) {
        uint64_t open = *word_of(t, t->received, o) & ~*word_of(t, t->done, o);

        open &= ~UINT64_C(0) << (o & 63);
        if (open != 0)
            return (o & ~INT64_C(63)) + __builtin_ctzll(open);
        o = (o | 63) + 1;
        ASSERT(o <= t->last);
    }
}

/* Puts the LWM where it belongs after a change: onto the lowest open offset or, when none is open, behind the last one
 * received and behind what is known to be done from there on. */
static void lwm_settle(struct tracker *t)
{
    int64_t to;

    if (t->open_n > 0) {
        lwm_move(t, open_lowest(t));
        return;
    }
    to = t->last + 1;
    while (to <= t->done_high && to - t->lwm < t->ring && bit_get(t, t->done, to))
        to++;
    lwm_move(t, to);
}

status tracker_receive(struct tracker *t, int64_t offset)
{
    ASSERT(offset >= 0 && offset < INT64_MAX - t->ring);
    if (offset < t->lwm)
        return ST_REJECT;
    if (offset - t->lwm < t->ring && bit_get(t, t->done, offset)) {
        if (offset > t->last)
            t->last = offset;
        if (t->open_n == 0)
            lwm_settle(t);
        return ST_REJECT;
    }
    if (t->open_n == 0)
        lwm_move(t, offset);      /* what lies between is a gap; even one wider than the window cannot block */
    if (offset - t->lwm >= t->window)
        return ST_AGAIN;
    if (bit_get(t, t->received, offset))
        return ST_REJECT;         /* delivered again while it is being worked on */
    bit_set(t, t->received, offset);
    t->open_n++;
    if (offset > t->last)
        t->last = offset;
    return ST_OK;
}

bool tracker_is_open(const struct tracker *t, int64_t offset)
{
    return offset >= t->lwm && offset <= t->last && bit_get(t, t->received, offset) && !bit_get(t, t->done, offset);
}

void tracker_done(struct tracker *t, int64_t offset)
{
    ASSERT(tracker_is_open(t, offset));
    bit_set(t, t->done, offset);
    if (offset > t->done_high)
        t->done_high = offset;
    t->open_n--;
    if (offset == t->lwm)
        lwm_settle(t);
}

bool tracker_is_done(const struct tracker *t, int64_t offset)
{
    return offset < t->lwm || (offset - t->lwm < t->ring && bit_get(t, t->done, offset));
}

int64_t tracker_lwm(const struct tracker *t)
{
    return t->lwm;
}

int64_t tracker_open_n(const struct tracker *t)
{
    return t->open_n;
}

int64_t tracker_ahead(const struct tracker *t)
{
    return t->last + 1 - t->lwm;
}

/* The metadata text. */

static const char digits64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static unsigned byte_at(const struct tracker *t, int64_t byte_i)
{
    unsigned byte = 0;

    for (int bit = 0; bit < 8; bit++) {
        int64_t o = t->lwm + byte_i * 8 + bit;

        if (o <= t->done_high && bit_get(t, t->done, o))
            byte |= 1u << bit;
    }
    return byte;
}

static bool hash_valid(const char *hash, size_t n)
{
    return (n == 1 && hash[0] == '-') || (n == 8 && strspn(hash, "0123456789abcdef") >= 8);
}

status tracker_encode(const struct tracker *t, const char *hash, char *out, size_t out_bytes)
{
    int64_t bytes = t->done_high >= t->lwm ? (t->done_high - t->lwm) / 8 + 1 : 0;
    char *p = out;

    ASSERT(hash_valid(hash, strlen(hash)));
    if ((size_t)((bytes + 2) / 3 * 4) + strlen(hash) + 5 > out_bytes)
        return ST_REJECT;
    p += sprintf(p, "W1:%s:", hash);
    for (int64_t i = 0; i < bytes; i += 3) {
        unsigned three = byte_at(t, i) << 16 | byte_at(t, i + 1) << 8 | byte_at(t, i + 2);

        *p++ = digits64[three >> 18];
        *p++ = digits64[three >> 12 & 63];
        *p++ = i + 1 < bytes ? digits64[three >> 6 & 63] : '=';
        *p++ = i + 2 < bytes ? digits64[three & 63] : '=';
    }
    *p = '\0';
    return ST_OK;
}

static int digit_value(char c)
{
    const char *at = c != '\0' ? strchr(digits64, c) : NULL;

    return at != NULL ? (int)(at - digits64) : -1;
}

/* Returns the bytes written to out (room for n / 4 * 3), or -1: this is not what tracker_encode writes. */
static int64_t base64_read(const char *text, size_t n, unsigned char *out)
{
    int64_t bytes = 0;

    if (n % 4 != 0)
        return -1;
    for (size_t i = 0; i < n; i += 4) {
        bool last = i + 4 == n;
        int a = digit_value(text[i]), b = digit_value(text[i + 1]);
        int c = digit_value(text[i + 2]), d = digit_value(text[i + 3]);
        int pads = last && text[i + 3] == '=' ? (text[i + 2] == '=' ? 2 : 1) : 0;
        unsigned three;

        if (a < 0 || b < 0 || (c < 0 && pads < 2) || (d < 0 && pads < 1))
            return -1;
        three = (unsigned)a << 18 | (unsigned)b << 12 | (pads < 2 ? (unsigned)c << 6 : 0) | (pads < 1 ? (unsigned)d : 0);
        if ((pads == 2 && (three & 0xffff) != 0) || (pads == 1 && (three & 0xff) != 0))
            return -1;
        out[bytes++] = (unsigned char)(three >> 16);
        if (pads < 2)
            out[bytes++] = (unsigned char)(three >> 8);
        if (pads < 1)
            out[bytes++] = (unsigned char)three;
    }
    return bytes > 0 && out[bytes - 1] == 0 ? -1 : bytes;
}

status tracker_decode(const char *text, int64_t base, int64_t window, char hash_out[9], struct tracker **out,
                      struct error *err)
{
    const char *hash, *map, *colon;
    unsigned char *bits;
    int64_t bytes;

    *out = NULL;
    hash_out[0] = '\0';
    if (strncmp(text, "W1:", 3) != 0)
        return error_set(err, ST_REJECT, "the commit metadata is of another tool or version (it begins \"%.8s\", ours "
                         "with \"W1:\")", text);
    hash = text + 3;
    colon = strchr(hash, ':');
    if (colon == NULL || !hash_valid(hash, (size_t)(colon - hash)))
        return error_set(err, ST_REJECT, "the commit metadata is damaged: no record hash behind \"W1:\"");
    map = colon + 1;
    if (strlen(map) > BITMAP_BYTES_MAX / 3 * 4)
        return error_set(err, ST_REJECT, "the commit metadata is damaged: a bitmap of %zu characters", strlen(map));
    bits = mem_take(strlen(map) / 4 * 3);
    bytes = base64_read(map, strlen(map), bits);
    if (bytes < 0 || base > INT64_MAX / 2) {
        free(bits);
        return error_set(err, ST_REJECT, "the commit metadata is damaged: its bitmap is not ours");
    }
    /* A bitmap of a wider window keeps all its bits: each is a result that exists. */
    *out = tracker_make(base, window, bytes * 8);
    for (int64_t i = 0; i < bytes * 8; i++)
        if (bits[i / 8] >> (i % 8) & 1) {
            bit_set(*out, (*out)->done, base + i);
            (*out)->done_high = base + i;
        }
    free(bits);
    memcpy(hash_out, hash, (size_t)(colon - hash));
    hash_out[colon - hash] = '\0';
    return ST_OK;
}
