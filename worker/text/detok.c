/* Stop strings: one automaton a string (Knuth, Morris, Pratt 1977). Its state is the length of the longest beginning of
 * the stop string that the text ends with, so the largest state of all is what must be held back. */
#include "worker/text/detok.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

struct stop_scan {
    size_t *state;                 /* [stops_n] */
    size_t *fail;                  /* one run of stops_bytes[i] entries for each stop, one after the other */
};

/* fail[k]: the longest proper beginning of stop[0..k] that it also ends with. */
static void stop_fails(const char *stop, size_t n, size_t *fail)
{
    size_t k = 0;

    fail[0] = 0;
    for (size_t i = 1; i < n; i++) {
        while (k > 0 && stop[k] != stop[i])
            k = fail[k - 1];
        if (stop[k] == stop[i])
            k++;
        fail[i] = k;
    }
}

static struct stop_scan *stop_scan_open(const struct stop_set *set)
{
    struct stop_scan *s = mem_take(sizeof(*s));
    size_t bytes = 0, at = 0;

    for (size_t i = 0; i < set->stops_n; i++) {
        ASSERT(set->stops_bytes[i] > 0);
        bytes += set->stops_bytes[i];
    }
    s->state = mem_take_zero(set->stops_n, sizeof(*s->state));
    s->fail = mem_take_zero(bytes, sizeof(*s->fail));
    for (size_t i = 0; i < set->stops_n; i++) {
        stop_fails(set->stops[i], set->stops_bytes[i], s->fail + at);
        at += set->stops_bytes[i];
    }
    return s;
}

/* One byte on. Returns the length of the longest stop string that ends with it; 0: none does. */
static size_t stop_scan_byte(struct stop_scan *s, const struct stop_set *set, char byte)
{
    const size_t *fail = s->fail;
    size_t longest = 0;

    for (size_t i = 0; i < set->stops_n; i++) {
        const char *stop = set->stops[i];
        size_t n = set->stops_bytes[i], k = s->state[i];

        /* A complete match ends the scan, so k < n here. */
        while (k > 0 && stop[k] != byte)
            k = fail[k - 1];
        if (stop[k] == byte)
            k++;
        s->state[i] = k;
        if (k == n && n > longest)
            longest = n;
        fail += n;
    }
    return longest;
}

static size_t stop_scan_held(const struct stop_scan *s, const struct stop_set *set)
{
    size_t held = 0;

    for (size_t i = 0; i < set->stops_n; i++) {
        if (s->state[i] > held)
            held = s->state[i];
    }
    return held;
}

/* Whole characters. */
static void text_put(struct detok *d, const char *bytes, size_t n)
{
    size_t from = d->text.n;

    if (d->stopped)
        return;
    buf_add(&d->text, bytes, n);
    if (d->scan == NULL)
        return;
    for (size_t i = from; i < d->text.n; i++) {
        size_t found = stop_scan_byte(d->scan, d->stop, d->text.data[i]);

        if (found > 0) {
            d->text.n = d->stop->include ? i + 1 : i + 1 - found;
            d->stopped = true;
            return;
        }
    }
}

static void text_put_invalid(struct detok *d)
{
    text_put(d, "\xef\xbf\xbd", 3);
}

/* One byte behind d->part, which is a valid beginning: completes it, or shows that it was none, or waits. */
static void part_put(struct detok *d, char byte)
{
    uint32_t code;
    int len;

    d->part[d->part_n++] = byte;
    len = utf8_char(d->part, d->part_n, &code);
    if (len > 0) {
        text_put(d, d->part, d->part_n);
        d->part_n = 0;
    } else if (len == 0 && d->part_n == 1) {
        text_put_invalid(d);
        d->part_n = 0;
    } else if (len == 0) {
        text_put_invalid(d);       /* for the bytes before this one, which may begin a character of its own */
        d->part_n = 0;
        part_put(d, byte);
    }
}

static void text_settle(struct detok *d)
{
    size_t held = d->scan == NULL || d->stopped ? 0 : stop_scan_held(d->scan, d->stop);

    ASSERT(d->shown_n <= d->text.n - held);
    d->shown_n = d->text.n - held;
}

void detok_init(struct detok *d, const struct tokenizer *t, const struct stop_set *stop, bool control)
{
    memset(d, 0, sizeof(*d));
    d->tokenizer = t;
    d->stop = stop;
    d->control = control;
    if (stop != NULL && stop->stops_n > 0)
        d->scan = stop_scan_open(stop);
}

void detok_fini(struct detok *d)
{
    if (d->scan != NULL) {
        free(d->scan->state);
        free(d->scan->fail);
        free(d->scan);
        d->scan = NULL;
    }
    buf_fini(&d->text);
}

bool detok_add(struct detok *d, int32_t token)
{
    const char *bytes;
    size_t n = tokenizer_bytes(d->tokenizer, token, d->control, &bytes), i = 0;

    if (d->stopped)
        return true;
    while (i < n && d->part_n > 0)
        part_put(d, bytes[i++]);
    while (i < n && !d->stopped) {
        size_t valid = utf8_valid(bytes + i, n - i);

        text_put(d, bytes + i, valid);
        i += valid;
        /* Byte by byte until the next character border. */
        do {
            if (i < n)
                part_put(d, bytes[i++]);
        } while (i < n && d->part_n > 0);
    }
    text_settle(d);
    return d->stopped;
}

void detok_end(struct detok *d)
{
    if (d->part_n > 0)
        text_put_invalid(d);
    d->part_n = 0;
    if (d->scan != NULL)
        memset(d->scan->state, 0, d->stop->stops_n * sizeof(*d->scan->state));
    text_settle(d);
}
