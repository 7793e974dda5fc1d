/* checkpoint/checkpoint.h - how far each sequence got, in a memory that outlives the worker. A cache: empty, stale or
 * unreachable it costs time, never a result.
 *
 * Threads:   one struct ckpt belongs to one thread; nothing inside is locked. ckpt_read_counts is for any.
 * Blocking:  sqlite: 2 s for a lock. redis: checkpoint_timeout_ms for each next bytes, five times that a call, reconnect
 *            included; then calls answer ST_RETRY at once for up to 2 s.
 * Ownership: arguments are borrowed for the call; what ckpt_load fills in lives in the caller's arena.
 * Fencing:   ckpt_acquire gives a token greater than every earlier one of that source; a write or delete with an older
 *            token than the store has seen is refused (ST_FENCED), so a worker that lost its sources cannot spoil them. */
#ifndef CHECKPOINT_CHECKPOINT_H
#define CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/config.h"
#include "base/hash.h"
#include "base/status.h"

struct ckpt;

struct ckpt_key {
    uint64_t job;              /* hash of the job's fingerprint */
    int32_t source;
    int64_t offset;
    int32_t choice;            /* 0..n-1 */
};

/* What the tokens are a function of; a stored sequence with another identity is ignored. */
struct ckpt_identity {
    struct hash128 record;     /* key, value, timestamp */
    struct hash128 model;      /* weights and vocabulary */
    struct hash128 params;     /* prompt tokens and everything that shapes sampling */
    uint64_t seed;
};

struct ckpt_save_item {
    struct ckpt_key key;
    struct ckpt_identity identity;
    const int32_t *tokens;     /* the whole output so far, from token 0 */
    int32_t tokens_n;
    int32_t saved_n;           /* tokens [0, saved_n) are known to be in the store; 0: replace whatever is there */
};

struct ckpt_progress {
    int32_t *tokens;           /* longest valid prefix */
    int32_t tokens_n;
};

struct ckpt_load_item {
    struct ckpt_key key;
    struct ckpt_identity identity;
    struct arena *arena;               /* what is found lives there */
    struct ckpt_progress progress;     /* filled in; tokens_n 0: nothing usable, start from token 0 */
};

/* How often work on a record was begun and neither handed over nor forgotten: by runs that died over it, or still live. */
struct ckpt_attempts {
    int32_t starts, solo;      /* solo: of these, the ones that ran it alone */
    uint64_t last_run;         /* of the newest such start; 0: none, or handed over since */
};

enum ckpt_error {
    CKPT_ERROR_LINK,           /* no connection, or it broke */
    CKPT_ERROR_TIMEOUT,
    CKPT_ERROR_READONLY,       /* a master that was demoted */
    CKPT_ERROR_LOADING,        /* starting up */
    CKPT_ERROR_UNSAFE,         /* a cluster or replica set that must not be written to now */
    CKPT_ERROR_FULL,           /* out of memory or disk */
    CKPT_ERROR_BUSY,           /* locked by another */
    CKPT_ERROR_DENIED,         /* user, password, rights */
    CKPT_ERROR_DAMAGED,        /* a file that is none of ours or spoilt */
    CKPT_ERROR_OTHER,
    CKPT_ERRORS_N
};

struct ckpt_counts {
    bool up;                                 /* the last call was answered */
    int64_t calls_n, rtt_us_last, rtt_us_max;
    int64_t fenced_n, gaps_n;                /* calls that a newer owner refused; saves that found an earlier part missing */
    int64_t reconnects_n;
    int64_t errors_n[CKPT_ERRORS_N];
};

/* url: "sqlite:PATH", "redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]", "redis+sentinel://HOST:PORT[,HOST:PORT...]/MASTER[/DB]",
 * "rediss://" and "rediss+sentinel://" (TLS, where hiredis has it), "mem:NAME"; "@FILE" or "$NAME": it stands in that file or
 * environment variable. cfg: the settings checkpoint_*; NULL: their defaults.
 * ST_REJECT: it makes no sense, or the server answered that it will not do (password, rights, a cluster). ST_RETRY: a file that
 * cannot be opened. A Redis that is away is no error: calls answer ST_RETRY until it is there.
 * A damaged or foreign database file is moved aside (PATH.damaged-N) with a warning, now or in any later call. */
MUST_USE status ckpt_open(const char *url, const struct config *cfg, struct ckpt **out, struct error *err);
void ckpt_close(struct ckpt *c);                       /* NULL is allowed */

/* Takes the sources over: from now on every older token is refused. Tokens are times in ms where the store has lost its
 * memory of them, so they go up even then. */
MUST_USE status ckpt_acquire(struct ckpt *c, uint64_t job, int32_t source, uint64_t *token);

/* Saves items_n sequences in one round trip, each named once.
 * ST_RETRY: perhaps saved, perhaps not; saving again is always safe, with the same saved_n or a smaller one that was the end of
 * an earlier save. ST_AGAIN: some item's earlier part is missing in the store (it lost data): save it again with saved_n = 0.
 * ST_FENCED: nothing is written; ok is all 0. Otherwise items[i] that were written are marked in ok[i].
 * `token` covers every item: sources with tokens of their own are saved in calls of their own. */
MUST_USE status ckpt_save(struct ckpt *c, uint64_t token, const struct ckpt_save_item *items, size_t items_n, uint8_t *ok);

/* ST_AGAIN: nothing usable, start from token 0 (no record, another identity, or damaged from the start). */
MUST_USE status ckpt_load(struct ckpt *c, const struct ckpt_key *key, const struct ckpt_identity *identity,
                          struct arena *a, struct ckpt_progress *out);

/* Looks all of them up, in one round trip where there is a network. */
MUST_USE status ckpt_load_all(struct ckpt *c, struct ckpt_load_item *items, size_t items_n);

/* How many sequences and begun records of the job are stored: 0 lets a fresh start skip the look-ups. -1: unknown. */
int64_t ckpt_count(struct ckpt *c, uint64_t job);

/* Counts a start of every record (key.choice is ignored), before its work begins, in one round trip; out[i] is what stands
 * there now, this start included. solo: it runs alone, which is counted as well.
 * run, not 0, names this process's life: a run counts once however often it begins the record, for it has not died over it.
 * ST_FENCED: nothing is counted. ST_RETRY: perhaps counted; beginning again is safe. Unless ST_OK, out is all zero. */
MUST_USE status ckpt_begin(struct ckpt *c, uint64_t token, const struct ckpt_key *keys, size_t keys_n, bool solo,
                           uint64_t run, struct ckpt_attempts *out);
/* A graceful end of work that is not done: takes the last start back, with solo its solo start, too. Once for a start: again
 * is safe, and a record that nobody has begun stays as it is. */
MUST_USE status ckpt_hand_over(struct ckpt *c, uint64_t token, const struct ckpt_key *keys, size_t keys_n, bool solo);
/* What stands there, without counting. Unless ST_OK, out is all zero. */
MUST_USE status ckpt_attempts(struct ckpt *c, const struct ckpt_key *keys, size_t keys_n, struct ckpt_attempts *out);

/* After their results are durable: the sequences, and the attempts of their records. Missing keys are no error. */
MUST_USE status ckpt_forget(struct ckpt *c, uint64_t token, const struct ckpt_key *keys, size_t keys_n);
/* The job is over: every sequence and attempt of it goes. The fence stays as long as the store does (Redis: 7 days), so that a
 * worker left behind still cannot write; a store file that holds nothing more goes at ckpt_close.
 * ST_FENCED: some source of the job has a newer owner. */
MUST_USE status ckpt_forget_job(struct ckpt *c, uint64_t token, uint64_t job);

/* Since ckpt_open. Any thread. */
void ckpt_read_counts(const struct ckpt *c, struct ckpt_counts *out);
const char *ckpt_error_name(enum ckpt_error e);        /* "timeout": the label of a metric */

#endif
