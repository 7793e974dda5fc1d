/* Deterministic simulation of delivery: workers that poll, decode, save, commit, crash, are taken over and come back as
 * zombies, over the mem queue (which commits as Kafka will) and the mem store. One thread, one random source: a seed is a run.
 * After every step that can change what is durable, the promises of a reader's view are checked:
 *   I1 each record has exactly one result (at the end)      I2 no result without a record    I3 none twice
 *   I4 committed LWM <= first record without a result       I5 every bit in the metadata has a result
 *   I6 the result is what an uninterrupted run gives        I7 no write of an older owner is taken
 *   I8 tokens that were known to be saved are not decoded again
 * Broken queues (mutants) must be found, or the checks are worth nothing.
 * usage: sim_delivery [SEED]      one seed, told step by step */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/mem.h"
#include "queue/mem.h"
#include "queue/tracker.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SEEDS 2000         /* ten times slower there */
#else
#define SEEDS 12000
#endif
#define NAME "sim"
#define SOURCES_MAX 3
#define RECORDS_MAX 32
#define FLIGHT_MAX (SOURCES_MAX * RECORDS_MAX)
#define WORKERS_MAX 3      /* the owner and its predecessors that do not know it yet */
#define TOKENS_MAX 20
#define STEPS_MAX 4000

struct sim_record {
    int64_t offset;
    int32_t tokens_n;             /* of its whole answer; 0: a tombstone */
    int32_t saved_n;              /* known to be in the store, since the store last lost anything */
    bool answered;
};

struct flight {
    struct record *rec;
    int32_t tokens[TOKENS_MAX];
    int32_t tokens_n, saved_n;
};

struct worker {
    struct queue *q;
    struct ckpt *c;
    uint64_t token[SOURCES_MAX];
    struct flight flight[FLIGHT_MAX];
    int flights_n;
    int64_t born;                 /* which start it was */
};

struct sim {
    uint64_t random;
    bool told, calm;              /* calm: no more faults, the job must end */
    int sources_n;
    struct sim_record record[SOURCES_MAX][RECORDS_MAX];
    int records_n[SOURCES_MAX];
    struct worker worker[WORKERS_MAX];
    int workers_n;                /* worker[workers_n - 1] is the owner */
    int64_t starts_n;
    int64_t window;
    size_t results_seen;
    /* The store loses all of its memory, or the clock is set back, but never both in one run: then nothing is left that
     * could order owners. */
    bool forgetful;
    int64_t now_ns;
    char wrong[256];
};

static uint64_t random_next(struct sim *s)      /* splitmix64 */
{
    uint64_t z = (s->random += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static int below(struct sim *s, int n)
{
    return (int)(random_next(s) % (uint64_t)n);
}

static bool PRINTF_LIKE(2, 3) wrong(struct sim *s, const char *fmt, ...)
{
    va_list ap;

    if (s->wrong[0] != '\0')
        return false;
    va_start(ap, fmt);
    vsnprintf(s->wrong, sizeof s->wrong, fmt, ap);
    va_end(ap);
    return false;
}

static void PRINTF_LIKE(2, 3) tell(const struct sim *s, const char *fmt, ...)
{
    va_list ap;

    if (!s->told)
        return;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
}

static struct sim_record *record_of(struct sim *s, int32_t source, int64_t offset)
{
    for (int i = 0; source < s->sources_n && i < s->records_n[source]; i++)
        if (s->record[source][i].offset == offset)
            return &s->record[source][i];
    return NULL;
}

static size_t value_make(char value[32], int32_t source, int64_t offset)
{
    return (size_t)snprintf(value, 32, "%d:%lld", source, (long long)offset);
}

/* The model: token i of a record is a function of the record, i and the token before. */
static int32_t token_next(const char *value, size_t value_n, int32_t i, int32_t before)
{
    return (int32_t)((hash64(value, value_n, (uint64_t)i) ^ (uint64_t)before * 31) % 50000);
}

static struct ckpt_key key_of(const struct record *rec)
{
    return (struct ckpt_key){ 42, rec->source, rec->offset, 0 };
}

static struct ckpt_identity identity_of(const struct record *rec)
{
    return (struct ckpt_identity){ .record = hash128(rec->value, rec->value_n), .seed = 7 };
}

/* ---- the checks ---- */

static uint64_t answer_hash(const int32_t *tokens, int32_t n)
{
    return hash64(tokens, (size_t)n * sizeof tokens[0], (uint64_t)n);
}

static bool result_check(struct sim *s, const struct queue_mem_result *r)
{
    struct sim_record *rec = record_of(s, r->source, r->offset);
    const char *answer = strstr(r->value, "\"t\":\"");
    int32_t tokens[TOKENS_MAX] = { 0 };
    char value[32];
    size_t value_n = value_make(value, r->source, r->offset);

    if (rec == NULL || rec->tokens_n == 0)
        return wrong(s, "I2: a result of %d/%lld, which is no record", r->source, (long long)r->offset);
    if (rec->answered)
        return wrong(s, "I3: %d/%lld has two results", r->source, (long long)r->offset);
    rec->answered = true;
    for (int32_t i = 0; i < rec->tokens_n; i++)
        tokens[i] = token_next(value, value_n, i, i > 0 ? tokens[i - 1] : 0);
    if (answer == NULL || strtoull(answer + 5, NULL, 16) != answer_hash(tokens, rec->tokens_n))
        return wrong(s, "I6: the result of %d/%lld is wrong", r->source, (long long)r->offset);
    return true;
}

static bool marks_check(struct sim *s, int32_t source)
{
    const char *metadata;
    struct tracker *t;
    char hash[9];
    int64_t lwm;
    bool good = true;

    if (!queue_mem_committed(NAME, source, &lwm, &metadata))
        return true;
    if (tracker_decode(metadata, lwm, s->window, hash, &t, NULL) != ST_OK)
        return wrong(s, "the metadata of source %d cannot be read", source);
    for (int i = 0; i < s->records_n[source] && good; i++) {
        const struct sim_record *rec = &s->record[source][i];

        if (rec->tokens_n > 0 && !rec->answered && rec->offset < lwm)
            good = wrong(s, "I4: LWM %lld is beyond %d/%lld, which has no result", (long long)lwm, source,
                         (long long)rec->offset);
        else if (rec->tokens_n > 0 && !rec->answered && tracker_is_done(t, rec->offset))
            good = wrong(s, "I5: the bit of %d/%lld is set, but it has no result", source, (long long)rec->offset);
    }
    tracker_close(t);
    return good;
}

static bool durable_check(struct sim *s)
{
    const struct queue_mem_result *results;
    size_t n = queue_mem_results(NAME, &results);

    while (s->results_seen < n)
        if (!result_check(s, &results[s->results_seen++]))
            return false;
    for (int32_t source = 0; source < s->sources_n; source++)
        if (!marks_check(s, source))
            return false;
    return true;
}

/* ---- the worker ---- */

static bool worker_start(struct sim *s)
{
    struct queue_job job = { .url = "mem:" NAME, .fingerprint = "{}" };
    struct worker *w = &s->worker[s->workers_n++];
    struct config cfg;
    struct error err = { "" };

    memset(w, 0, sizeof *w);
    config_defaults(&cfg);
    cfg.plan_window_max = s->window;
    w->born = ++s->starts_n;
    tell(s, "start %" PRId64 " window %" PRId64, w->born, s->window);
    if (queue_open(&cfg, &job, &w->q, &err) != ST_OK || ckpt_open("mem:" NAME, NULL, &w->c, &err) != ST_OK)
        return wrong(s, "a worker cannot start: %s", err.text);
    for (int32_t source = 0; source < s->sources_n; source++)
        while (ckpt_acquire(w->c, 42, source, &w->token[source]) != ST_OK)
            ;
    return true;
}

static void worker_end(struct sim *s, int i)
{
    struct worker *w = &s->worker[i];

    tell(s, "death of %" PRId64 " with %d in flight", w->born, w->flights_n);
    for (int k = 0; k < w->flights_n; k++)
        queue_record_give(w->q, w->flight[k].rec);
    queue_close(w->q);
    ckpt_close(w->c);
    memmove(w, w + 1, (size_t)(--s->workers_n - i) * sizeof *w);
}

static bool owner(const struct sim *s, const struct worker *w)
{
    return w == &s->worker[s->workers_n - 1];
}

/* Takes a record and what the store has of it. */
static bool step_poll(struct sim *s, struct worker *w)
{
    struct flight *f = &w->flight[w->flights_n];
    struct sim_record *rec;
    struct ckpt_progress p;
    struct ckpt_identity id;
    struct ckpt_key key;
    struct arena a;

    if (w->flights_n == FLIGHT_MAX || queue_poll(w->q, 0, &f->rec, NULL) != ST_OK)
        return true;
    w->flights_n++;
    f->tokens_n = f->saved_n = 0;
    rec = record_of(s, f->rec->source, f->rec->offset);
    if (rec == NULL || rec->tokens_n == 0)
        return wrong(s, "%d/%lld was polled, but is no record", f->rec->source, (long long)f->rec->offset);
    if (rec->answered && owner(s, w))
        return wrong(s, "%d/%lld was polled after its result", f->rec->source, (long long)f->rec->offset);
    key = key_of(f->rec);
    id = identity_of(f->rec);
    arena_init(&a, 1024);
    if (ckpt_load(w->c, &key, &id, &a, &p) == ST_OK) {
        memcpy(f->tokens, p.tokens, (size_t)p.tokens_n * sizeof p.tokens[0]);
        f->tokens_n = p.tokens_n;
    } else if (rec->saved_n > 0 && s->calm) {
        wrong(s, "I8: the store answers nothing about %d/%lld", f->rec->source, (long long)f->rec->offset);
    }
    if (f->tokens_n > 0 && f->tokens_n < rec->saved_n)
        wrong(s, "I8: %d of %d saved tokens of %d/%lld came back", f->tokens_n, rec->saved_n, f->rec->source,
              (long long)f->rec->offset);
    arena_fini(&a);
    tell(s, "%" PRId64 " polls %d/%" PRId64 ", %d tokens back", w->born, f->rec->source, f->rec->offset, f->tokens_n);
    return s->wrong[0] == '\0';
}

static void step_decode(struct sim *s, struct worker *w)
{
    for (int k = 0; k < w->flights_n; k++) {
        struct flight *f = &w->flight[k];
        int32_t end = record_of(s, f->rec->source, f->rec->offset)->tokens_n;

        for (int n = below(s, 6); n > 0 && f->tokens_n < end; n--) {
            f->tokens[f->tokens_n] = token_next(f->rec->value, f->rec->value_n, f->tokens_n,
                                                f->tokens_n > 0 ? f->tokens[f->tokens_n - 1] : 0);
            f->tokens_n++;
        }
    }
}

static bool step_save(struct sim *s, struct worker *w)
{
    int32_t source = below(s, s->sources_n);
    struct ckpt_save_item items[FLIGHT_MAX];
    struct flight *of[FLIGHT_MAX];
    uint8_t ok[FLIGHT_MAX];
    size_t n = 0;
    status st;

    for (int k = 0; k < w->flights_n; k++) {
        struct flight *f = &w->flight[k];

        if (f->rec->source != source || f->tokens_n == f->saved_n || below(s, 3) == 0)
            continue;
        of[n] = f;
        items[n++] = (struct ckpt_save_item){ key_of(f->rec), identity_of(f->rec), f->tokens, f->tokens_n, f->saved_n };
    }
    if (n == 0)
        return true;
    st = ckpt_save(w->c, w->token[source], items, n, ok);
    tell(s, "%" PRId64 " saves %zu of source %d: %s", w->born, n, source, status_name(st));
    if (!owner(s, w) && st != ST_FENCED && st != ST_RETRY)
        return wrong(s, "I7: a save of an older owner was taken");
    for (size_t i = 0; i < n; i++) {
        struct sim_record *rec = record_of(s, of[i]->rec->source, of[i]->rec->offset);

        if (ok[i]) {
            of[i]->saved_n = of[i]->tokens_n;
            rec->saved_n = of[i]->tokens_n;
        } else if (st == ST_AGAIN) {
            of[i]->saved_n = 0;
        } else if (st == ST_RETRY && rec->saved_n > of[i]->tokens_n) {
            rec->saved_n = 0;               /* perhaps replaced by the shorter one */
        }
    }
    return true;
}

static bool step_commit(struct sim *s, struct worker *w)
{
    static struct buf lines[FLIGHT_MAX];
    struct result results[FLIGHT_MAX];
    struct ckpt_key keys[FLIGHT_MAX];
    bool durable[FLIGHT_MAX];
    int taken[FLIGHT_MAX];
    size_t n = 0;
    status st;

    memset(results, 0, sizeof results);
    for (int k = 0; k < w->flights_n; k++) {
        struct flight *f = &w->flight[k];
        char id[64];

        if (f->tokens_n < record_of(s, f->rec->source, f->rec->offset)->tokens_n || below(s, 3) == 0)
            continue;
        queue_result_id(w->q, f->rec->source, f->rec->offset, id);
        buf_reset(&lines[n]);
        buf_add_format(&lines[n], "{\"id\":\"%s\",\"t\":\"%016" PRIx64 "\"}", id, answer_hash(f->tokens, f->tokens_n));
        results[n] = (struct result){ .record = f->rec, .value = lines[n].data, .value_n = lines[n].n };
        keys[n] = key_of(f->rec);
        taken[n++] = k;
    }
    if (n == 0)
        return true;
    st = queue_commit(w->q, results, n, durable, NULL);
    tell(s, "%" PRId64 " commits %zu: %s", w->born, n, status_name(st));
    if (!owner(s, w) && st != ST_FENCED)
        return wrong(s, "I7: a commit of an older owner was taken");
    if (!durable_check(s) || st != ST_OK)
        return s->wrong[0] == '\0';
    for (size_t i = n; i-- > 0;) {
        int k = taken[i];

        if (!durable[i])
            return wrong(s, "a result of the owner is not durable");
        record_of(s, keys[i].source, keys[i].offset)->saved_n = 0;
        if (below(s, 4) > 0)                /* else it dies before it can forget: harmless */
            if (ckpt_forget(w->c, w->token[keys[i].source], &keys[i], 1) == ST_FENCED)
                return wrong(s, "the owner is fenced");
        queue_record_give(w->q, w->flight[k].rec);
        memmove(&w->flight[k], &w->flight[k + 1], (size_t)(--w->flights_n - k) * sizeof w->flight[0]);
    }
    return true;
}

static void step_fault(struct sim *s)
{
    switch (below(s, 6)) {
    case 0:
        queue_mem_fail(NAME, below(s, 3), 1 + below(s, 3));
        break;
    case 1:
        ckpt_mem_fail(NAME, CKPT_MEM_REFUSE, below(s, 3), 1 + below(s, 3));
        break;
    case 2:
        ckpt_mem_fail(NAME, CKPT_MEM_ANSWER_LOST, below(s, 3), 1 + below(s, 3));
        break;
    case 3:
        s->now_ns += (below(s, 2001) - (s->forgetful ? 0 : 1000)) * NS_PER_S;
        break;
    case 4:
        if (!s->forgetful || below(s, 4) > 0)
            break;
        tell(s, "the store loses all");
        ckpt_mem_lose(NAME);                /* fences, too: zombies could write until the owner's next write */
        s->now_ns += NS_PER_S;              /* a restart takes longer than the takeovers that ran ahead of the clock */
        while (s->workers_n > 1)
            worker_end(s, 0);
        for (int32_t source = 0; source < s->sources_n; source++)
            for (int i = 0; i < s->records_n[source]; i++)
                s->record[source][i].saved_n = 0;
        break;
    default:
        s->window = 1 + below(s, 60);       /* for the next start */
    }
}

static bool step(struct sim *s)
{
    struct worker *w = &s->worker[below(s, 3) == 0 ? below(s, s->workers_n) : s->workers_n - 1];

    switch (below(s, 16)) {
    case 0:
        if (s->calm)
            return true;
        worker_end(s, s->workers_n - 1);    /* kill -9 */
        return worker_start(s);
    case 1:
        if (s->calm || below(s, 3) > 0)
            return true;
        if (s->workers_n == WORKERS_MAX)
            worker_end(s, 0);
        return worker_start(s);             /* the old one lives on and does not know */
    case 2:
        if (!s->calm)
            step_fault(s);
        return true;
    case 3: case 4: case 5: case 6:
        return step_poll(s, w);
    case 7: case 8: case 9:
        step_decode(s, w);
        return true;
    case 10: case 11:
        return step_save(s, w);
    default:
        return step_commit(s, w);
    }
}

static void world_make(struct sim *s)
{
    s->sources_n = 1 + below(s, SOURCES_MAX);
    s->window = 1 + below(s, 60);
    for (int32_t source = 0; source < s->sources_n; source++) {
        int64_t offset = below(s, 3) * 5;

        s->records_n[source] = below(s, RECORDS_MAX);
        for (int i = 0; i < s->records_n[source]; i++) {
            struct sim_record *rec = &s->record[source][i];
            char value[32];
            size_t n = value_make(value, source, offset);

            rec->offset = offset;
            rec->tokens_n = below(s, 12) == 0 ? 0 : 1 + below(s, TOKENS_MAX);
            queue_mem_add(NAME, source, offset, rec->tokens_n > 0 ? value : NULL, n);
            offset += 1 + (below(s, 9) == 0 ? below(s, 100) : 0);
        }
        if (s->records_n[source] == 0)      /* a source that nothing ever came to is none for the mem queue */
            s->sources_n = source;
    }
    queue_mem_end(NAME);
}

static bool all_answered(const struct sim *s)
{
    for (int32_t source = 0; source < s->sources_n; source++)
        for (int i = 0; i < s->records_n[source]; i++)
            if (s->record[source][i].tokens_n > 0 && !s->record[source][i].answered)
                return false;
    return true;
}

static int64_t sim_now(void *sim)
{
    return ((struct sim *)sim)->now_ns;
}

/* NULL: all promises held. */
static const char *simulate(uint64_t seed, enum queue_mem_mutant mutant, bool told)
{
    static struct sim sim;
    struct sim *s = &sim;
    struct clock clock = { sim_now, sim_now, s };
    int steps = 0;

    memset(s, 0, sizeof *s);
    s->random = seed;
    s->told = told;
    s->forgetful = below(s, 2);
    s->now_ns = INT64_C(1700000000) * NS_PER_S;
    clock_use(&clock);
    world_make(s);
    queue_mem_mutate(NAME, mutant);
    if (worker_start(s))
        while (!all_answered(s) && steps < STEPS_MAX && step(s))
            if (++steps == STEPS_MAX / 2 && !s->calm) {
                s->calm = true;             /* from here on nothing fails: the rest must get done */
                queue_mem_fail(NAME, 0, 0);
                ckpt_mem_fail(NAME, CKPT_MEM_REFUSE, 0, 0);
            }
    if (s->wrong[0] == '\0' && !all_answered(s))
        wrong(s, "I1: some record has no result");
    while (s->workers_n > 0)
        worker_end(s, s->workers_n - 1);
    queue_mem_drop(NAME);
    ckpt_mem_drop(NAME);
    clock_use(NULL);
    return s->wrong[0] != '\0' ? s->wrong : NULL;
}

static void promises_hold(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const char *text = simulate(seed, QUEUE_MEM_SOUND, false);

        if (text != NULL)
            fail_msg("seed %" PRIu64 ": %s", seed, text);
    }
}

static void mutants_are_found(void **state)
{
    static const char *const names[] = { "", "highest seen", "no bitmap", "marks first", "results first" };

    (void)state;
    for (int mutant = QUEUE_MEM_HIGHEST_SEEN; mutant <= QUEUE_MEM_RESULT_FIRST; mutant++) {
        const char *text = NULL;
        uint64_t seed = 0;

        while (text == NULL && ++seed <= 200)
            text = simulate(seed, (enum queue_mem_mutant)mutant, false);
        if (text == NULL)
            fail_msg("the mutant \"%s\" is not found", names[mutant]);
        print_message("mutant \"%s\": seed %" PRIu64 ": %s\n", names[mutant], seed, text);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(promises_hold), cmocka_unit_test(mutants_are_found) };

    log_level_set(LOG_ERROR);
    if (argc == 2) {
        const char *text = simulate(strtoull(argv[1], NULL, 10), QUEUE_MEM_SOUND, true);

        printf("%s\n", text != NULL ? text : "all promises held");
        return text != NULL;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
