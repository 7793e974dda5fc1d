/* The one thread that owns the queue's poll side, and what happens when sources come and go.
 *
 * A topic's poll must go on whatever happens behind it: it is what keeps this worker in its group. While there is no room the
 * queue is polled now and then, and what it gives is held here; only a lasting lack of room pauses the sources, because a client
 * library throws away what it has fetched of a paused one. */
#define _POSIX_C_SOURCE 200809L
#include "worker/pipeline/internal.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"

enum { POLL_MS = 100, POLL_PAUSED_MS = 5, ROOM_WAIT_US = 200, HELD_MAX = 256 };

bool record_is_ours(struct pipeline *p, const struct record *rec)
{
    return lease_is_ours(p->leases, rec->source, rec->lease);
}

void record_end(struct pipeline *p, struct record *rec)
{
    lease_record_end(p->leases, rec);
    queue_record_give(p->queue, rec);
}

/* ---- held records ---- */

static void sources_pause(struct pipeline *p, bool paused)
{
    if (p->poll.paused == paused)
        return;
    p->poll.paused = paused;
    for (size_t i = 0; i < p->poll.sources_n; i++)
        queue_pause(p->queue, p->poll.sources[i].source, paused);
}

static void record_hold(struct pipeline *p, struct record *rec)
{
    struct poll_side *s = &p->poll;

    if (s->held_n == s->held_room) {
        s->held_room = s->held_room > 0 ? 2 * s->held_room : 16;
        s->held = mem_grow(s->held, s->held_room * sizeof s->held[0]);
    }
    s->held[s->held_n++] = rec;
    if (s->held_n >= HELD_MAX)
        sources_pause(p, true);
}

/* In order. False: no room yet. */
static bool held_push(struct pipeline *p)
{
    struct poll_side *s = &p->poll;
    size_t i = 0;

    for (; i < s->held_n; i++) {
        status st = bqueue_push_now(p->records, s->held[i]);

        if (st == ST_AGAIN)
            break;
        if (st != ST_OK)
            record_end(p, s->held[i]);         /* stopping: it will be polled again by the next run */
    }
    for (size_t k = i; k < s->held_n; k++)
        s->held[k - i] = s->held[k];
    s->held_n -= i;
    if (s->held_n > 0)
        return false;
    sources_pause(p, false);
    return true;
}

static void held_drop(struct pipeline *p, int32_t source, uint32_t lease)
{
    struct poll_side *s = &p->poll;
    size_t n = 0;

    for (size_t i = 0; i < s->held_n; i++) {
        if (s->held[i]->source == source && s->held[i]->lease == lease)
            record_end(p, s->held[i]);
        else
            s->held[n++] = s->held[i];
    }
    s->held_n = n;
}

void poll_side_close(struct poll_side *s)
{
    free(s->sources);
    free(s->going);
    free(s->held);
}

/* ---- sources come and go: called by queue_poll, on this thread ---- */

void source_gained(void *pipeline, int32_t source, uint32_t lease)
{
    struct pipeline *p = pipeline;
    struct poll_side *s = &p->poll;

    if (s->sources_n == s->sources_room) {
        s->sources_room = s->sources_room > 0 ? 2 * s->sources_room : 16;
        s->sources = mem_grow(s->sources, s->sources_room * sizeof s->sources[0]);
    }
    s->sources[s->sources_n].source = source;
    s->sources[s->sources_n++].lease = lease;
    leases_gained(p->leases, source, lease);
    saver_source_gained(p->saver, source, lease);
    if (s->paused)
        queue_pause(p->queue, source, true);
    if (p->is_topic)
        log_info("source.gained", "source=%d lease=%u", source, lease);
}

/* Every stage drops what it has of the source as it meets it, the engine at its next step. What already belongs to another is
 * over; otherwise source_lost_wait follows. */
void source_lost(void *pipeline, int32_t source, uint32_t lease, bool already)
{
    struct pipeline *p = pipeline;
    struct poll_side *s = &p->poll;

    for (size_t i = 0; i < s->sources_n; i++)
        if (s->sources[i].source == source && s->sources[i].lease == lease)
            s->sources[i--] = s->sources[--s->sources_n];
    leases_lost(p->leases, source, lease);
    held_drop(p, source, lease);
    if (already) {
        saver_source_lost(p->saver, source, lease);
        log_info("source.lost", "source=%d lease=%u already=1", source, lease);
        return;
    }
    if (s->going_n == s->going_room) {
        s->going_room = s->going_room > 0 ? 2 * s->going_room : 16;
        s->going = mem_grow(s->going, s->going_room * sizeof s->going[0]);
    }
    s->going[s->going_n].source = source;
    s->going[s->going_n++].lease = lease;
}

/* What runs has its tokens saved and its start taken back, what has ended is committed: all of that within a second for every
 * source that goes, then they are others'. */
void source_lost_wait(void *pipeline, int64_t deadline_ns)
{
    struct pipeline *p = pipeline;
    struct poll_side *s = &p->poll;
    int64_t began = clock_mono_ns(), until = began + DRAIN_SAVE_MS * NS_PER_MS;
    int ended_n = 0;

    if (until > deadline_ns)
        until = deadline_ns;
    atomic_fetch_add(&p->hurries_n, 1);
    for (size_t i = 0; i < s->going_n; i++)
        ended_n += lease_wait(p->leases, s->going[i].source, s->going[i].lease, until);
    saver_flush(p->saver, until);
    atomic_fetch_sub(&p->hurries_n, 1);
    for (size_t i = 0; i < s->going_n; i++) {
        saver_source_lost(p->saver, s->going[i].source, s->going[i].lease);
        log_info("source.lost", "source=%d lease=%u already=0", s->going[i].source, s->going[i].lease);
    }
    log_info("source.lost_wait", "sources=%zu ended=%d ms=%lld", s->going_n, ended_n, (long long)((clock_mono_ns() - began) / NS_PER_MS));
    s->going_n = 0;
}

/* ---- the thread ---- */

static void record_hand_on(struct pipeline *p, struct record *rec)
{
    status st = ST_AGAIN;

    lease_record_begin(p->leases, rec);
    if (!p->is_topic)
        st = bqueue_push(p->records, rec);
    else if (p->poll.held_n == 0)
        st = bqueue_push_now(p->records, rec);
    if (st == ST_AGAIN)
        record_hold(p, rec);
    else if (st != ST_OK)
        record_end(p, rec);                    /* stopping */
}

/* Whether to wait a moment for room instead of taking more. */
static bool room_waited(struct pipeline *p, bool room)
{
    if (room || p->poll.paused || clock_mono_ns() - atomic_load(&p->poll_ns) >= POLL_MS * NS_PER_MS)
        return false;
    nanosleep(&(struct timespec){ .tv_nsec = ROOM_WAIT_US * 1000 }, NULL);
    return true;
}

static bool polls_on(struct pipeline *p)
{
    return p->is_topic ? !atomic_load(&p->poll_end) : !atomic_load(&p->stopping);
}

void *poller_main(void *pipeline)
{
    struct pipeline *p = pipeline;
    struct error err;

    while (polls_on(p)) {
        struct record *rec = NULL;
        bool room = (failpoint("poll"), held_push(p));
        status st;

        if (room_waited(p, room))
            continue;
        st = queue_poll(p->queue, room ? POLL_MS : p->poll.paused ? POLL_PAUSED_MS : 0, &rec, &err);
        atomic_store(&p->poll_ns, clock_mono_ns());
        if (st == ST_OK) {
            record_hand_on(p, rec);
        } else if (st != ST_AGAIN) {
            pipeline_fail(p, st == ST_FENCED ? EXIT_CODE_FENCED : EXIT_CODE_STOPPED, "%s", err.text);
            break;
        } else if (room && queue_ended(p->queue)) {
            bqueue_close(p->records);
            if (!p->is_topic)
                break;
        }
    }
    while (p->poll.held_n > 0)
        record_end(p, p->poll.held[--p->poll.held_n]);
    bqueue_close(p->records);
    return NULL;
}
