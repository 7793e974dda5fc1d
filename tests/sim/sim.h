/* tests/sim/sim.h - one simulated run: a broker, a store, workers that come, stall, die and go, and the checks. Private to
 * sim_kafka.c, sim_faults.c and sim_worker.c. Threads: one. */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/config.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/mem.h"
#include "queue/kafka/core.h"
#include "tests/sim/delivery_check.h"
#include "tests/sim/mutant_client.h"
#include "tests/sim/sim_text.h"
#include "worker/preempt/drain.h"

#define SIM_STORE "sim_kafka"
#define SIM_JOB 42
#define SIM_WORKERS_MAX 6
#define SIM_RECORDS_MAX 40             /* of a partition */
#define SIM_FLIGHTS_MAX (2 * BROKER_PARTITIONS_MAX * SIM_RECORDS_MAX)
#define SIM_COMMIT_MAX 12              /* results of one group */

struct sim;

struct flight {                        /* a record that is worked on */
    struct record *rec;
    struct text_prompt prompt;
    int32_t tokens[TEXT_TOKENS_MAX];
    int32_t tokens_n, saved_n;
    int loads_n;
    bool loaded, committing, lost;
};

struct holding {
    int32_t source;
    uint32_t lease;
    bool going;                        /* told to be lost, and not yet given away */
    bool have; uint64_t token;
    int64_t again_ns;
};

struct sim_worker {
    struct sim *s;
    int64_t born;
    char id[64];                       /* transactional */
    struct model_client *model;
    struct kafka_client *lies;         /* NULL: sound */
    struct kafka_core *core;
    struct ckpt *store;
    struct queue_events events;
    struct holding holding[BROKER_PARTITIONS_MAX]; int holdings_n;
    struct flight *flight[SIM_FLIGHTS_MAX]; int flights_n;
    bool committing;
    struct flight *group[SIM_COMMIT_MAX]; struct result result[SIM_COMMIT_MAX]; bool durable[SIM_COMMIT_MAX];
    struct buf line[SIM_COMMIT_MAX];
    int group_n;
    bool group_again;                  /* ST_RETRY of the last one: the same results come again */
    int64_t not_before_ns;
    int64_t stopped_until_ns, poll_hung_until_ns, commit_hung_until_ns;
    bool in_poll, in_commit, in_store; /* a call of that side is under way, and time goes on in it */
    bool over;                         /* its process has ended */
    bool draining, halted, saved;      /* halted: nothing more is computed */
    struct drain_times drain;
    uint32_t paused;                   /* sources that it does not want more of */
    int beyond_n[BROKER_PARTITIONS_MAX];       /* messages in a row that came from beyond the window, without a pause */
};

/* What a script does to a worker behind one step of its committer. */
enum sim_act {
    ACT_KILL, ACT_STOP, ACT_STOP_LONG, ACT_COMMIT_HANGS, ACT_POLL_HANGS, ACT_DRAIN, ACT_LEAVE_AT_ONCE, ACT_ANOTHER_JOINS,
    ACT_NEW_GENERATION, ACT_AWAY, ACT_AWAY_LONG, ACT_REQUEST_LOST, ACT_ANSWER_LOST, ACT_ID_EXPIRES, ACT_SAME_ID,
    ACT_KILL_IN_COMMIT,
    ACTS_N
};

struct sim_stats {
    int64_t seeds_n, steps_n, virtual_s, inputs_n, starts_n, kills_n, drains_n, stops_n, exits_n, groups_n, groups_retry_n,
            groups_fenced_n, dropped_n, resumed_n, remade_n, rebalances_n, duels_n;
};

struct sim {
    uint64_t seed;
    struct dice dice;
    bool told, calm;
    enum mutant mutant;
    int64_t now_ns, wall_shift_ns, quantum_ns, calm_until_ns;
    int depth;                         /* of steps that go on while a call waits */
    struct config cfg;
    struct broker broker;
    struct model_faults faults;
    struct check check;
    struct model_client_setup setup;
    struct sim_worker *worker[SIM_WORKERS_MAX]; int workers_n;
    int wanted_n;
    bool slots;                        /* stable transactional ids */
    bool odd;                          /* topics are compacted, cut, altered and widened, too */
    int64_t births_n;
    int to_feed[BROKER_PARTITIONS_MAX], fed_n;
    bool feeding;                      /* a transaction of the feeder is open */
    struct broker_producer feeder;
    struct { int32_t partition; int64_t offset; } fed[64]; int fed_open_n;
    uint64_t newest_token[BROKER_PARTITIONS_MAX];
    int64_t store_hangs_until_ns;      /* every call to it waits for the time-out */
    struct sim_stats *stats;
    int64_t commit_steps_n;            /* so far, of all workers */
    int64_t act_at;                    /* the step that the script waits for; 0: no script */
    enum sim_act act;
};

void sim_tell(const struct sim *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Time goes on, for everybody that is not stopped; inside a call that waits, the other sides and workers go on stepping. */
void sim_pass(void *sim, int64_t ns);

/* sim_worker.c */
struct sim_worker *sim_worker_start(struct sim *s, const char *id);
void sim_worker_kill(struct sim_worker *w);    /* kill -9, and its memory is given back */
void sim_worker_drain(struct sim_worker *w);   /* SIGTERM, or a notice; again: it goes at once */
void sim_worker_calm(struct sim_worker *w);    /* nothing holds it up any more */
bool sim_worker_runs(const struct sim_worker *w);
/* One step of one side, chosen by the dice. After it w->over may be true. */
void sim_worker_step(struct sim_worker *w);

/* sim_faults.c */
void sim_fault(struct sim *s);
void sim_act(struct sim *s, struct sim_worker *w);
void sim_feed(struct sim *s);
void sim_feed_end(struct sim *s);              /* the rest, at once */
void sim_worker_born(struct sim *s);           /* the supervisor starts one, if one is missing */
void sim_worker_buried(struct sim *s, int i);

#endif
