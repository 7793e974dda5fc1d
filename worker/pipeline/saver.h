/* worker/pipeline/saver.h - the thread that owns the checkpoint store: tokens come in, frames go out; starts are counted;
 * nobody waits for it.
 *
 *   saver.c         the thread: look-ups, passes, life
 *   saver_fences.c  which sources it may write for: a fencing token for each holding
 *   saver_frames.c  tokens of running choices, saved together, forgotten when their results are durable
 *   saver_starts.c  starts of records: counted before they happen, taken back when work is handed over
 *
 * A pass: what was asked, what is dirty, what is over; at least every TICK_MS, at once when someone waits for an answer. */
#ifndef WORKER_PIPELINE_SAVER_H
#define WORKER_PIPELINE_SAVER_H

#include <pthread.h>
#include <stdatomic.h>

#include "checkpoint/checkpoint.h"
#include "worker/pipeline/internal.h"

struct saver;

enum { DUES_MAX = 256 };           /* keys of one call */
enum { TICK_MS = 10, SAVE_MAX = 1000, RETRY_MS = 1000 };

/* A source as the store sees it: the saver's thread only. */
struct fence {
    uint32_t lease;
    bool ours, held;               /* held: token is good as far as we know */
    uint64_t token;
    int64_t acquire_at_ns;         /* not before then */
};

struct change { int32_t source; uint32_t lease; bool gained; };

/* One choice's place. Hangs on its request (saved) until the outbox takes it, and is freed by the saver. */
struct save_slot {
    struct save_slot *next;            /* of the request's list, or of `over` */
    struct save_slot *next_dirty;
    uint32_t lease;
    struct ckpt_key key;
    struct ckpt_identity identity;
    /* under the saver's lock */
    int32_t *tokens, tokens_n, tokens_room;
    bool dirty, over, forget;
    /* the saver's thread only */
    int32_t saved_n;
    _Atomic int32_t safe_n;            /* ... for the engine: what a death would not cost */
    uint64_t saved_token;              /* the fencing token under which they were: another's writes may lie between two */
    bool stored;                       /* something of it may be in the store */
};

/* One record's start. Hangs on its request, of a group on the first member, and is freed by the saver. */
struct start {
    struct start *next;                /* of `over` */
    struct start *next_asked;
    atomic_bool ended;                 /* the engine is done with it: a death from here on is not its own */
    atomic_bool pending;               /* asked, not answered: the engine asks for each that waits at every step */
    uint32_t lease;
    struct ckpt_key key;
    /* under the saver's lock; alone and in_lane stay as they are while it is asked */
    bool asked, alone, in_lane, release;       /* what is asked */
    bool answered, answer_alone, answer_in_lane;
    enum engine_begun answer;
    struct ckpt_attempts attempts;
    bool forget;
    /* the saver's thread only */
    bool counted;                      /* this start is, and it hangs on `live` */
    struct start *live_before, *live_after;
    bool stands;                       /* something of the record may stand in the store */
};

/* A key for which something is to be called, with those of its source. */
struct due { struct ckpt_key key; uint32_t lease; };
struct dues { struct due *of; size_t n, room; };

struct saver {
    struct pipeline *p;
    char *url;
    struct ckpt *store;                /* NULL: away; the thread's once it runs */
    _Atomic(struct ckpt *) counts_of;  /* the same, for ckpt_read_counts */
    pthread_t thread;
    uint64_t run;                      /* names this process's life */
    bool looks_up, reopens;
    struct bqueue *loads;
    struct request *backlog[POP_MAX];  /* looked up, waiting for room in admits */
    size_t backlog_n, backlog_i;
    atomic_bool looked_up;             /* look-ups have ended, the last is through */
    atomic_bool away;                  /* the store does not answer: nobody should wait for it */
    atomic_bool warned;                /* ... and somebody was told */

    pthread_mutex_t lock;
    pthread_cond_t wake, passed;
    struct save_slot *dirty, *over;
    struct start *asked, **asked_end, *starts_over;
    struct change *changes;
    size_t changes_n, changes_room;
    uint64_t pass_n;
    int flushes_n;                     /* callers that wait for all that is dirty */
    bool stop, woken;

    /* the saver's thread only */
    struct fence *fences;              /* [fences_n], by source */
    size_t fences_n;
    int64_t retry_at_ns;               /* the store was away: not before then; 0: it answers */
    struct start *alone;               /* which runs alone now, NULL: none */
    struct start *live;                /* all that are counted */
    bool crash_told;                   /* to the store */
    struct arena scratch;
    struct dues forgets, hand_overs;
    struct save_slot *saving[SAVE_MAX];
    struct ckpt_save_item items[SAVE_MAX];
    uint8_t ok[SAVE_MAX];
};

/* ---- saver.c ---- */

bool store_answers(struct saver *s);   /* there is a store, and it was not away just now */
void store_away(struct saver *s, const char *what);
void store_is_back(struct saver *s);
void saver_wake(struct saver *s);      /* with the lock held */

/* ---- saver_fences.c ---- */

void fences_change(struct saver *s, const struct change *c);
/* The token for a holding, acquired if need be. False: it is not ours, or the store refuses for now. */
bool fence_token(struct saver *s, int32_t source, uint32_t lease, uint64_t *token);
bool fence_is_ours(struct saver *s, int32_t source, uint32_t lease);
/* The store says that a newer owner has the source: acquired again, a second later, if it is still ours. */
void fence_refused(struct saver *s, int32_t source, uint32_t lease);
uint64_t fences_highest(const struct saver *s);
void due_add(struct dues *d, const struct ckpt_key *key, uint32_t lease);
/* Calls for all of them, source by source, and empties the list. */
void dues_call(struct saver *s, struct dues *d, const char *what,
               status (*call)(struct saver *s, uint64_t token, const struct ckpt_key *keys, size_t n));

/* ---- saver_frames.c ---- */

struct save_slot *slot_of(struct saver *s, struct request *r, int32_t choice);
struct ckpt_identity identity_of(const struct pipeline *p, const struct request *r, int32_t choice);
struct ckpt_key key_of(const struct pipeline *p, const struct request *r, int32_t choice);
bool dirty_left(struct saver *s);
void dirty_save(struct saver *s);
void slots_over(struct saver *s, struct save_slot *over);
void slot_free(struct save_slot *slot);

/* ---- saver_starts.c ---- */

bool is_quarantined(const struct config *cfg, const struct ckpt_attempts *a);
void starts_answer(struct saver *s, struct start *asked);
void starts_over(struct saver *s, struct start *over);
/* This process dies by its own fault: it is noted at what is under way. */
void starts_crash(struct saver *s);

#endif
