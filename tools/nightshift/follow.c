#include "tools/nightshift/follow.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

status follow_open(struct follow *f, struct error *err)
{
    status st = ST_OK;

    f->places = place_map_open();
    f->total_n = -1;
    for (int kind = 0; kind < TOPIC_KINDS_N && st == ST_OK; kind++)
        st = topic_scan_open(f->topics, (enum topic_kind)kind, NULL, true, &f->scan[kind], err);
    return st;
}

void follow_close(struct follow *f)
{
    for (int kind = 0; kind < TOPIC_KINDS_N; kind++)
        topic_scan_close(f->scan[kind]);
    place_map_close(f->places);
    free(f->line);
}

static struct follow_line *line_at(struct follow *f, int64_t number)
{
    if (number >= f->lines_room) {
        int64_t room = number * 2 + 1024;

        f->line = mem_grow(f->line, (size_t)room * sizeof *f->line);
        memset(f->line + f->lines_room, 0, (size_t)(room - f->lines_room) * sizeof *f->line);
        f->lines_room = room;
    }
    return &f->line[number];
}

static bool line_is_dead(const struct follow_line *l)
{
    return l->outputs_n == 0 && l->dead_n > 0 && l->dead_n >= l->prompts_n;
}

static void count(uint16_t *n)
{
    *n = (uint16_t)(*n + (*n < UINT16_MAX));
}

static void prompt_take(struct follow *f, const struct record *r)
{
    int64_t number = job_line_of(r);
    struct follow_line *l;
    bool was_dead;

    if (r->value == NULL || !topic_header_is(r, HEADER_JOB, f->job))
        return;
    if (number < 0)
        number = f->seen_n + 1;                /* another producer's job: by arrival */
    else if (topic_header_int(r, HEADER_LINES) >= 0)
        f->total_n = topic_header_int(r, HEADER_LINES);
    if (!place_map_add(f->places, (struct place){ r->source, r->offset }, number))
        return;
    l = line_at(f, number);
    was_dead = line_is_dead(l);
    f->seen_n += l->prompts_n == 0;
    f->uploaded_twice_n += l->prompts_n > 0 && topic_header(r, HEADER_RETRY) == NULL;
    count(&l->prompts_n);
    f->dead_n -= was_dead && !line_is_dead(l);
}

/* One turn of one topic. *r is NULL where nothing came. */
static status scan_turn(struct follow *f, enum topic_kind kind, int timeout_ms, const struct record **r, struct error *err)
{
    status st = topic_scan_next(f->scan[kind], timeout_ms, r, err);

    return st == ST_AGAIN ? ST_OK : st;
}

status follow_read_prompts(struct follow *f, struct error *err)
{
    const struct record *r;
    status st = ST_OK;

    while (st == ST_OK && !topic_scan_ended(f->scan[TOPIC_PROMPTS]) && !f->stopped()) {
        st = scan_turn(f, TOPIC_PROMPTS, 200, &r, err);
        if (st == ST_OK && r != NULL)
            prompt_take(f, r);
    }
    return st;
}

/* Prompts that have come meanwhile: until none comes, at least one turn. */
static status prompts_pump(struct follow *f, int timeout_ms, struct error *err)
{
    const struct record *r;
    status st;

    do {
        st = scan_turn(f, TOPIC_PROMPTS, timeout_ms, &r, err);
        if (st == ST_OK && r != NULL)
            prompt_take(f, r);
    } while (st == ST_OK && r != NULL);
    return st;
}

/* Of an answer of our job; -1: it answers no prompt of ours. A prompt that came after our last look is looked for. */
static status answer_line(struct follow *f, const struct record *r, struct place *place, int64_t *line, struct error *err)
{
    int64_t deadline_ns = clock_mono_ns() + 5 * NS_PER_S;
    status st = ST_OK;

    *line = -1;
    if (!place_read(r, HEADER_ID, topics_name(f->topics, TOPIC_PROMPTS), place))
        return ST_OK;
    while ((*line = place_map_get(f->places, *place)) < 0 && st == ST_OK && clock_mono_ns() < deadline_ns && !f->stopped())
        st = prompts_pump(f, 200, err);
    return st;
}

static bool same_place(struct place a, struct place b)
{
    return a.partition == b.partition && a.offset == b.offset;
}

static status answer_take(struct follow *f, bool dead, const struct record *r, follow_fn fn, void *ctx, struct error *err)
{
    struct follow_line *l;
    struct place place;
    bool was_dead;
    int64_t number;
    status st;

    if (!topic_header_is(r, HEADER_JOB, f->job))
        return ST_OK;
    st = answer_line(f, r, &place, &number, err);
    if (st != ST_OK)
        return st;
    if (number < 0) {
        f->orphans_n++;
        return ST_OK;
    }
    l = line_at(f, number);
    if ((!dead && l->outputs_n > 0 && same_place(l->output, place)) || (dead && l->dead_n > 0 && same_place(l->dead, place))) {
        f->doubled_n++;
        return ST_OK;
    }
    was_dead = line_is_dead(l);
    if (dead) {
        count(&l->dead_n);
        l->dead = place;
    } else {
        f->answered_n += l->outputs_n == 0;
        if (l->outputs_n == 0)
            l->output = place;
        count(&l->outputs_n);
    }
    f->dead_n += line_is_dead(l) - was_dead;
    return fn(ctx, number, place, dead, r, err);
}

status follow_step(struct follow *f, int timeout_ms, follow_fn fn, void *ctx, bool *caught_up, struct error *err)
{
    int64_t deadline_ns = clock_mono_ns() + timeout_ms * NS_PER_MS;
    const struct record *result, *dead;
    status st;

    do {
        st = prompts_pump(f, 0, err);
        if (st == ST_OK)
            st = scan_turn(f, TOPIC_RESULTS, 20, &result, err);
        if (st == ST_OK && result != NULL)
            st = answer_take(f, false, result, fn, ctx, err);
        for (bool more = true; st == ST_OK && result != NULL && more;) {      /* a burst of results without looking elsewhere */
            st = scan_turn(f, TOPIC_RESULTS, 0, &result, err);
            more = st == ST_OK && result != NULL && clock_mono_ns() < deadline_ns;
            if (st == ST_OK && result != NULL)
                st = answer_take(f, false, result, fn, ctx, err);
        }
        do {
            if (st == ST_OK)
                st = scan_turn(f, TOPIC_DEAD, 0, &dead, err);
            if (st == ST_OK && dead != NULL)
                st = answer_take(f, true, dead, fn, ctx, err);
        } while (st == ST_OK && dead != NULL);
    } while (st == ST_OK && clock_mono_ns() < deadline_ns && !f->stopped());
    *caught_up = topic_scan_ended(f->scan[TOPIC_PROMPTS]) && topic_scan_ended(f->scan[TOPIC_RESULTS]) && topic_scan_ended(f->scan[TOPIC_DEAD]);
    return st;
}

int64_t follow_lines(const struct follow *f)
{
    return f->total_n > f->seen_n ? f->total_n : f->seen_n;
}

int64_t follow_open_lines(const struct follow *f)
{
    return follow_lines(f) - f->answered_n - f->dead_n;
}

int64_t follow_unsent(const struct follow *f)
{
    return follow_lines(f) - f->seen_n;
}
