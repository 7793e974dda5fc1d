#define _POSIX_C_SOURCE 200809L
#include "tools/nightshift/jobs.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"

bool job_id_is_sound(const char *id)
{
    size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

    return n > 0 && n <= JOB_ID_MAX && id[n] == '\0';
}

int64_t job_line_of(const struct record *r)
{
    int64_t line = topic_header_int(r, HEADER_LINE);

    return line >= 1 && line <= JOB_LINES_MAX ? line : -1;
}

/* ---- places ---- */

/* Digits up to `end`, which must follow them; NULL: not so. */
static const char *number_read(const char *at, const char *stop, char end, int64_t *out)
{
    const char *begin = at;

    for (*out = 0; at < stop && *at >= '0' && *at <= '9' && at - begin < 19; at++)
        *out = *out * 10 + (*at - '0');
    return at > begin && at < stop && *at == end ? at + 1 : NULL;
}

bool place_read(const struct record *r, const char *header, const char *topic, struct place *out)
{
    const struct header *h = topic_header(r, header);
    size_t topic_n = strlen(topic);
    char text[320];
    const char *at;
    int64_t partition;

    if (h == NULL || h->value == NULL || h->value_n + 1 >= sizeof text || h->value_n <= topic_n ||
        memcmp(h->value, topic, topic_n) != 0)
        return false;
    memcpy(text, h->value, h->value_n);
    text[h->value_n] = '\n';
    at = text + topic_n;
    if (*at++ != '/' || (at = number_read(at, text + h->value_n + 1, '/', &partition)) == NULL || partition > INT32_MAX ||
        (at = number_read(at, text + h->value_n + 1, '\n', &out->offset)) == NULL || at != text + h->value_n + 1)
        return false;
    out->partition = (int32_t)partition;
    return true;
}

bool place_read_line(const char *line, size_t n, struct place *out)
{
    static const char prefix[] = "{\"id\":\"batch_req_";
    const char *at = line + sizeof prefix - 1, *stop = line + n;
    int64_t partition;

    if (n < sizeof prefix + 20 || memcmp(line, prefix, sizeof prefix - 1) != 0)
        return false;
    for (int i = 0; i < 16; i++, at++) {
        if (!((*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'f')))
            return false;
    }
    if (*at++ != '_' || (at = number_read(at, stop, '_', &partition)) == NULL || partition > INT32_MAX ||
        number_read(at, stop, '"', &out->offset) == NULL)
        return false;
    out->partition = (int32_t)partition;
    return true;
}

struct entry { int64_t offset; int32_t partition; uint32_t used; int64_t value; };

struct place_map {
    struct entry *entry;
    size_t n, room;                            /* room: a power of two */
};

struct place_map *place_map_open(void)
{
    struct place_map *m = mem_take_zero(1, sizeof *m);

    m->room = 1024;
    m->entry = mem_take_zero(m->room, sizeof *m->entry);
    return m;
}

void place_map_close(struct place_map *m)
{
    if (m == NULL)
        return;
    free(m->entry);
    free(m);
}

static struct entry *entry_find(const struct place_map *m, struct place place)
{
    size_t i = (size_t)hash64(&place.offset, sizeof place.offset, (uint64_t)(uint32_t)place.partition) & (m->room - 1);

    while (m->entry[i].used && (m->entry[i].offset != place.offset || m->entry[i].partition != place.partition))
        i = (i + 1) & (m->room - 1);
    return &m->entry[i];
}

static void map_grow(struct place_map *m)
{
    struct place_map old = *m;

    m->room *= 2;
    m->entry = mem_take_zero(m->room, sizeof *m->entry);
    for (size_t i = 0; i < old.room; i++) {
        if (old.entry[i].used)
            *entry_find(m, (struct place){ old.entry[i].partition, old.entry[i].offset }) = old.entry[i];
    }
    free(old.entry);
}

bool place_map_add(struct place_map *m, struct place place, int64_t value)
{
    struct entry *e;

    if (m->n * 4 >= m->room * 3)
        map_grow(m);
    e = entry_find(m, place);
    if (e->used)
        return false;
    *e = (struct entry){ place.offset, place.partition, 1, value };
    m->n++;
    return true;
}

int64_t place_map_get(const struct place_map *m, struct place place)
{
    const struct entry *e = entry_find(m, place);

    return e->used ? e->value : -1;
}

size_t place_map_count(const struct place_map *m)
{
    return m->n;
}

bool place_map_next(const struct place_map *m, size_t *i, struct place *out)
{
    while (*i < m->room && !m->entry[*i].used)
        ++*i;
    if (*i == m->room)
        return false;
    *out = (struct place){ m->entry[*i].partition, m->entry[*i].offset };
    ++*i;
    return true;
}

/* ---- the live line ---- */

void live_init(struct live *l)
{
    *l = (struct live){ .terminal = isatty(STDERR_FILENO), .started_ns = clock_mono_ns() };
    l->shown_ns = l->started_ns;
}

bool live_due(const struct live *l)
{
    return clock_mono_ns() - l->shown_ns >= (l->terminal ? NS_PER_S / 5 : 10 * NS_PER_S);
}

void live_show(struct live *l, const char *fmt, ...)
{
    va_list ap;

    l->shown_ns = clock_mono_ns();
    l->shown = true;
    if (l->terminal)
        fputs("\r\033[K", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    if (!l->terminal)
        fputc('\n', stderr);
    fflush(stderr);
}

void live_end(struct live *l)
{
    if (l->terminal && l->shown)
        fputs("\r\033[K", stderr);
    l->shown = false;
}

void duration_text(double seconds, char out[32])
{
    int64_t s = (int64_t)(seconds + 0.5);

    if (seconds < 0 || seconds > 1e9)
        strcpy(out, "?");
    else if (s >= 3600)
        snprintf(out, 32, "%" PRId64 " h %02d min", s / 3600, (int)(s % 3600 / 60));
    else if (s >= 60)
        snprintf(out, 32, "%d min %02d s", (int)(s / 60), (int)(s % 60));
    else
        snprintf(out, 32, "%d s", (int)s);
}
