/* Deterministic simulation of delivery through Kafka: the real core of the Kafka queue (tracker, guard, committer) and the
 * real checkpoint frames, in workers that are killed, stopped, drained, thrown out of their group and started twice, against a
 * broker and a store that fail in every way they can. One thread, one random source: a seed is a run. After every change that
 * a reader could see, the promises are checked (delivery_check.h, and I7, I8, I12 here and in sim_worker.c).
 * Broken queues (mutants) must be found, or the checks are worth nothing.
 * usage: sim_kafka SEED               one seed, told step by step; exit 1 if a promise is broken
 *        sim_kafka SEED MUTANT        the same with a mutant (its number in mutant_client.h)
 *        sim_kafka --act ACT STEP SEED      one thing (its number in sim.h) at one step of a quiet run
 *        sim_kafka --from A --to B    seeds A .. B-1, quiet until one fails */
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "tests/sim/sim.h"

#if defined(__SANITIZE_THREAD__)               /* one thread only, and twenty times slower: a sample */
#define SEEDS 300
#define SCRIPT_SEEDS 1
#elif defined(__SANITIZE_ADDRESS__)            /* ten times slower */
#define SEEDS 2000
#define SCRIPT_SEEDS 2
#else
#define SEEDS 12000
#define SCRIPT_SEEDS 12
#endif
#define STEPS_MAX 2500                         /* with faults; then the rest must get done */
#define CALM_NS (200 * NS_PER_S)               /* I12: by then, and a window of one offset may need this much a record: */
#define CALM_RECORD_NS (8 * NS_PER_S)
#define CALM_QUANTUM_NS (4 * NS_PER_MS)
#define DEPTH_MAX 4                            /* of calls that wait inside one another */
#define TICK_NS (100 * NS_PER_MS)
#define MUTANT_SEEDS 3000

/* Seeds that once broke a promise, kept: the run must stay sound. */
static const uint64_t failed_once[] = { 6659, 9678, 10329 };      /* an abort that fails behind a commit that was carried out */

void sim_tell(const struct sim *s, const char *fmt, ...)
{
    va_list ap;

    if (!s->told)
        return;
    printf("%10.3f  ", (double)s->now_ns / 1e9);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
}

static int64_t sim_mono(void *sim)
{
    return ((struct sim *)sim)->now_ns;
}

static int64_t sim_wall(void *sim)
{
    return ((struct sim *)sim)->now_ns + INT64_C(1700000000) * NS_PER_S + ((struct sim *)sim)->wall_shift_ns;
}

void sim_pass(void *sim, int64_t ns)
{
    struct sim *s = sim;

    for (int64_t until = s->now_ns + ns; s->now_ns < until;) {
        s->now_ns += until - s->now_ns < TICK_NS ? until - s->now_ns : TICK_NS;
        broker_tick(&s->broker);
        for (int i = 0; i < s->workers_n; i++)
            if (sim_worker_runs(s->worker[i]))
                model_client_tick(s->worker[i]->model);
        (void)check_look(&s->check);
        if (s->depth > 0 && s->depth < DEPTH_MAX && s->workers_n > 0) {
            struct sim_worker *w = s->worker[dice_below(&s->dice, s->workers_n)];

            for (int n = dice_below(&s->dice, 4); n > 0 && sim_worker_runs(w); n--)
                sim_worker_step(w);
        }
    }
}

static void sim_misused(void *sim, const char *what)
{
    check_wrong(&((struct sim *)sim)->check, "client.h: %s", what);
}

static int64_t pick(struct sim *s, const int64_t *of, int n)
{
    return of[dice_below(&s->dice, n)];
}

#define PICK(s, ...) pick(s, (const int64_t[]){ __VA_ARGS__ }, (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)))

static void settings_make(struct sim *s)
{
    struct config *cfg = &s->cfg;

    config_defaults(cfg);
    cfg->plan_window_max = PICK(s, 1, 3, 8, 20, 64, 1000);
    cfg->txn_timeout_ms = PICK(s, 3000, 10000);
    cfg->kafka_remakes_max = PICK(s, 3, 5);
    cfg->kafka_recommit_s = PICK(s, 5, 86400);
    strcpy(cfg->kafka_oversize, s->check.huge_is_dead ? "dead" : "truncate");
    s->broker.session_ns = PICK(s, 3, 6, 15) * NS_PER_S;
    s->broker.rebalance_ns = PICK(s, 10, 20) * NS_PER_S;
    s->broker.scan_ns = PICK(s, 1, 10) * NS_PER_S;
    s->broker.marker_delay_ns = PICK(s, 0, 50, 1000, 4000) * NS_PER_MS;
    s->broker.metadata_max = (size_t)PICK(s, 128, 4096, 4096);
    s->quantum_ns = PICK(s, 1, 4, 15, 60) * NS_PER_MS;
    s->faults.error_one_in = (int)PICK(s, 0, 0, 10, 40);
    s->faults.lost_one_in = (int)PICK(s, 0, 0, 10, 40);
    s->faults.tells_lost_as_revoked = dice_one_in(&s->dice, 4);
    s->faults.delivers_again = dice_one_in(&s->dice, 3);
    s->faults.pauses_late = dice_one_in(&s->dice, 3);
    s->slots = dice_one_in(&s->dice, 2);
    s->odd = dice_one_in(&s->dice, 3);
    s->check.doubles = dice_one_in(&s->dice, 8) && s->mutant == MUTANT_NONE;
    strcpy(cfg->kafka_delivery, s->check.doubles ? "at_least_once" : "exactly_once");
    s->wanted_n = 1 + dice_below(&s->dice, 4);
    s->setup = (struct model_client_setup){
        .broker = &s->broker, .dice = &s->dice, .faults = &s->faults, .plain = s->check.doubles,
        .eager = dice_one_in(&s->dice, 6), .txn_timeout_ns = cfg->txn_timeout_ms * NS_PER_MS,
        .poll_max_ns = s->broker.rebalance_ns, .heartbeat_ns = NS_PER_S,
        .value_max = { 1 << 20, PICK(s, 400, 1200), 1200 }, .pass = sim_pass, .misused = sim_misused, .ctx = s,
    };
}

static void sim_begin(struct sim *s, uint64_t seed, enum mutant mutant, bool told, struct sim_stats *stats)
{
    memset(s, 0, sizeof *s);
    s->seed = seed;
    s->dice.state = seed * 2 + 1;
    s->mutant = mutant;
    s->told = told;
    s->stats = stats;
    s->now_ns = 1000 * NS_PER_S;
    broker_init(&s->broker, &s->dice, 1 + dice_below(&s->dice, 4));
    check_init(&s->check, &s->broker, dice_one_in(&s->dice, 2));
    settings_make(s);
    for (int p = 0; p < s->broker.partitions_n; p++)
        s->to_feed[p] = dice_below(&s->dice, SIM_RECORDS_MAX);
    for (int i = 0; i < 20; i++)
        sim_feed(s);
}

static void step(struct sim *s)
{
    struct sim_worker *w;

    sim_pass(s, s->calm ? CALM_QUANTUM_NS : s->quantum_ns << (dice_one_in(&s->dice, 20) ? dice_below(&s->dice, 6) : 0));
    if (!s->calm && dice_one_in(&s->dice, 40))
        sim_fault(s);
    if (!s->calm && dice_one_in(&s->dice, 25))
        sim_feed(s);
    if (s->workers_n < (s->calm ? 1 : s->wanted_n) && (s->calm || dice_one_in(&s->dice, 30)))
        sim_worker_born(s);
    if (s->workers_n == 0)
        return;
    w = s->worker[dice_below(&s->dice, s->workers_n)];
    for (int n = s->calm ? 4 : 1 + dice_below(&s->dice, 4); n > 0 && sim_worker_runs(w); n--)
        sim_worker_step(w);
    for (int i = s->workers_n - 1; i >= 0; i--)
        if (s->worker[i]->over)
            sim_worker_buried(s, i);
}

/* Who holds what, for whoever reads a run that hangs. */
static void state_tell(const struct sim *s)
{
    for (int i = 0; i < s->workers_n; i++) {
        const struct sim_worker *w = s->worker[i];

        sim_tell(s, "%" PRId64 ": %d in flight, %s at step %d, not before %.3f%s%s%s", w->born, w->flights_n,
                 w->committing ? "a group" : "no group", (int)kafka_commit_at(w->core), (double)w->not_before_ns / 1e9,
                 w->draining ? ", draining" : "", w->in_poll ? ", in a poll" : "", w->in_commit ? ", in a commit" : "");
        for (int k = 0; k < w->holdings_n; k++)
            sim_tell(s, "    holds %" PRId32 " (lease %" PRIu32 ")", w->holding[k].source, w->holding[k].lease);
        for (int k = 0; k < w->flights_n; k++)
            sim_tell(s, "    %" PRId32 "/%" PRId64 " (lease %" PRIu32 ") %" PRId32 " of %" PRId32 " tokens%s%s%s",
                     w->flight[k]->rec->source, w->flight[k]->rec->offset, w->flight[k]->rec->lease, w->flight[k]->tokens_n,
                     w->flight[k]->prompt.tokens_n, w->flight[k]->loaded ? "" : ", not looked up",
                     w->flight[k]->committing ? ", committing" : "", w->flight[k]->lost ? ", lost" : "");
    }
}

/* From here on nothing fails, and the backlog must get done. */
static void calm_begin(struct sim *s)
{
    sim_tell(s, "calm");
    s->calm = true;
    sim_feed_end(s);
    s->calm_until_ns = s->now_ns + CALM_NS + s->check.open_n * CALM_RECORD_NS;
    s->faults.error_one_in = s->faults.lost_one_in = 0;
    s->faults.away_until_ns = s->store_hangs_until_ns = 0;
    ckpt_mem_fail(SIM_STORE, CKPT_MEM_REFUSE, 0, 0);
    for (int i = 0; i < s->workers_n; i++)
        sim_worker_calm(s->worker[i]);
}

static bool quiet(struct sim *s)
{
    for (int i = 0; i < s->workers_n; i++)
        if (s->worker[i]->committing)
            return false;
    if (s->check.doubles && !check_all_marked(&s->check))      /* results go ahead of their marks */
        return false;
    return s->broker.markers_n == 0 && s->broker.pending_n == 0;
}

static void sim_end(struct sim *s)
{
    s->stats->seeds_n++;
    s->stats->virtual_s += s->now_ns / NS_PER_S - 1000;
    s->stats->inputs_n += s->check.inputs_all_n;
    while (s->workers_n > 0)
        sim_worker_buried(s, s->workers_n - 1);
    check_fini(&s->check);
    broker_fini(&s->broker);
    ckpt_mem_drop(SIM_STORE);
    clock_use(NULL);
}

static struct sim_stats stats;
static uint64_t dice_left;                     /* of the last run: where chance, time and the broker stood at its end */
static char seed_at_hand[96];                  /* for a death by assert */

static void on_abort(int signal_n)
{
    (void)signal_n;
    if (write(STDERR_FILENO, seed_at_hand, strlen(seed_at_hand)) < 0)
        return;
}

static struct model_faults seen_faults;        /* errors_n and lost_n over all runs */

static struct sim *world_open(uint64_t seed, enum mutant mutant, bool tell)
{
    static struct sim sim;
    static struct clock clock = { sim_mono, sim_wall, &sim };

    snprintf(seed_at_hand, sizeof seed_at_hand, "aborted in seed %" PRIu64 " (told by: sim_kafka %" PRIu64 " %d)\n", seed, seed,
             (int)mutant);
    clock_use(&clock);
    sim_begin(&sim, seed, mutant, tell, &stats);
    return &sim;
}

static void calm_run(struct sim *s)
{
    calm_begin(s);
    while (s->check.wrong[0] == '\0' && !(check_all_answered(&s->check) && quiet(s)) && s->now_ns < s->calm_until_ns) {
        step(s);
        stats.steps_n++;
    }
    if (!check_all_answered(&s->check))
        check_wrong(&s->check, "I12: %" PRId64 " records have no result, long after the last fault", s->check.open_n);
    (void)check_end(&s->check);
}

/* What was broken; "": all promises held. Valid until the next run. */
static const char *world_close(struct sim *s)
{
    static char wrong[sizeof s->check.wrong];

    for (int r = 0; r < MODEL_REQUESTS_N; r++)
        for (int e = 0; e < BROKER_ERRORS_N; e++)
            seen_faults.errors_n[r][e] += s->faults.errors_n[r][e];
    memcpy(wrong, s->check.wrong, sizeof wrong);
    dice_left = s->dice.state ^ (uint64_t)s->now_ns ^ (uint64_t)s->broker.changes_n << 32;
    state_tell(s);
    sim_tell(s, "%s", wrong[0] != '\0' ? wrong : "all promises held");
    sim_end(s);
    return wrong;
}

static const char *simulate(uint64_t seed, enum mutant mutant, bool tell)
{
    struct sim *s = world_open(seed, mutant, tell);

    for (int i = 0; i < STEPS_MAX && s->check.wrong[0] == '\0'; i++)
        step(s);
    stats.steps_n += STEPS_MAX;
    calm_run(s);
    return world_close(s);
}

/* One worker, or two side by side, and one thing that happens behind the commit step `at`. *ended: the run had no such step. */
static const char *script(uint64_t seed, enum sim_act act, int64_t at, bool tell, bool *ended)
{
    struct sim *s = world_open(seed, MUTANT_NONE, tell);

    snprintf(seed_at_hand, sizeof seed_at_hand, "aborted (told by: sim_kafka --act %d %" PRId64 " %" PRIu64 ")\n", (int)act,
             at, seed);
    s->act = act;
    s->act_at = at;
    s->faults = (struct model_faults){ .delivers_again = s->faults.delivers_again };
    s->check.doubles = s->setup.plain = s->odd = false;
    strcpy(s->cfg.kafka_delivery, "exactly_once");
    s->wanted_n = 1 + (int)(seed % 2);
    for (int p = 0; p < s->broker.partitions_n; p++)
        s->to_feed[p] = 4;
    sim_feed_end(s);
    while (s->workers_n < s->wanted_n)
        sim_worker_born(s);
    calm_run(s);
    *ended = s->commit_steps_n < at;
    return world_close(s);
}

/* ---- tests ---- */

static void seeds_run(uint64_t from, uint64_t to)
{
    for (uint64_t seed = from; seed < to; seed++) {
        const char *text = simulate(seed, MUTANT_NONE, false);

        if (text[0] != '\0')
            fail_msg("seed %" PRIu64 ": %s (told by: sim_kafka %" PRIu64 ")", seed, text, seed);
    }
}

static void promises_hold(void **state)
{
    (void)state;
    memset(&stats, 0, sizeof stats);
    seeds_run(1, SEEDS + 1);
    print_message("%" PRId64 " seeds, %" PRId64 " steps, %" PRId64 " virtual s, %" PRId64 " records; %" PRId64 " starts, %" PRId64
                  " kills, %" PRId64 " stops, %" PRId64 " drains, %" PRId64 " exits, %" PRId64 " duels\n", stats.seeds_n,
                  stats.steps_n, stats.virtual_s, stats.inputs_n, stats.starts_n, stats.kills_n, stats.stops_n, stats.drains_n,
                  stats.exits_n, stats.duels_n);
    print_message("%" PRId64 " groups, %" PRId64 " again, %" PRId64 " fenced; %" PRId64 " results dropped, %" PRId64
                  " sequences resumed, %" PRId64 " producers made anew, %" PRId64 " rebalances\n", stats.groups_n,
                  stats.groups_retry_n, stats.groups_fenced_n, stats.dropped_n, stats.resumed_n, stats.remade_n,
                  stats.rebalances_n);
}

static void seeds_that_failed_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof failed_once / sizeof failed_once[0]; i++)
        seeds_run(failed_once[i], failed_once[i] + 1);
}

static void one_thing_at_every_step(void **state)
{
    int64_t runs_n = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SCRIPT_SEEDS; seed++)
        for (int act = 0; act < ACTS_N; act++) {
            bool ended = false;

            for (int64_t at = 1; !ended; at++, runs_n++) {
                const char *text = script(seed, (enum sim_act)act, at, false, &ended);

                if (text[0] != '\0')
                    fail_msg("%s (told by: sim_kafka --act %d %" PRId64 " %" PRIu64 ")", text, act, at, seed);
            }
        }
    print_message("%" PRId64 " runs\n", runs_n);
}

/* A seed is a run, or a failing one could not be told again. */
static void seeds_repeat(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        uint64_t end[2];

        for (int i = 0; i < 2; i++) {
            (void)simulate(seed, MUTANT_NONE, false);
            end[i] = dice_left;
        }
        assert_true(end[0] == end[1]);
    }
}

/* A simulation that never injects an error proves nothing about it. A sample may need some seeds more. */
static void every_error_came_up(void **state)
{
    enum model_request request;
    enum broker_error error;
    uint64_t seed = SEEDS;

    (void)state;
    for (int i = 0; model_client_row(i, &request, &error); i++) {
        for (; seen_faults.errors_n[request][error] == 0 && seed < SEEDS + 3000; seed++)
            seeds_run(seed + 1, seed + 2);
        if (seen_faults.errors_n[request][error] == 0)
            fail_msg("%s never answered %s", model_request_name(request), broker_error_name(error));
    }
}

static void mutants_are_found(void **state)
{
    (void)state;
    for (int m = MUTANT_NONE + 1; m < MUTANTS_N; m++) {
        const char *text = "";
        uint64_t seed = 0;

        while (text[0] == '\0' && ++seed <= MUTANT_SEEDS)
            text = simulate(seed, (enum mutant)m, false);
        if (text[0] == '\0')
            fail_msg("the mutant \"%s\" is not found", mutant_name((enum mutant)m));
        print_message("mutant \"%s\": seed %" PRIu64 ": %s\n", mutant_name((enum mutant)m), seed, text);
    }
}

static int told(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "--from") == 0) {
        uint64_t from = strtoull(argv[2], NULL, 10), to = strtoull(argv[4], NULL, 10);

        for (uint64_t seed = from; seed < to; seed++) {
            const char *text = simulate(seed, MUTANT_NONE, false);

            if (text[0] != '\0')
                printf("seed %" PRIu64 ": %s\n", seed, text);
        }
        return 0;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);              /* in order with the log */
    log_level_set(LOG_INFO);
    if (argc == 5 && strcmp(argv[1], "--act") == 0) {
        bool ended;

        return script(strtoull(argv[4], NULL, 10), (enum sim_act)atoi(argv[2]), atoll(argv[3]), true, &ended)[0] != '\0';
    }
    return simulate(strtoull(argv[1], NULL, 10), argc > 2 ? (enum mutant)atoi(argv[2]) : MUTANT_NONE, true)[0] != '\0';
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seeds_repeat), cmocka_unit_test(one_thing_at_every_step),
        cmocka_unit_test(seeds_that_failed_once), cmocka_unit_test(promises_hold),
        cmocka_unit_test(every_error_came_up), cmocka_unit_test(mutants_are_found),
    };

    signal(SIGABRT, on_abort);
    log_level_set(LOG_NONE);
    if (argc > 1)
        return told(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
