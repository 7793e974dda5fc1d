/* worker/engine/internal.h - what the files of worker/engine share. Private to it.
 *
 *   engine.c    open, submit, step, drop
 *   admit.c     which request starts when, and with which pages
 *   lane.c      starts that are counted, and requests that run apart
 *   compose.c   the rows of a step; pages for them; who goes back when there are none
 *   sequence.c  one sequence: its tokens, what it wants of the device, what it does with the answer
 *   choice.c    what a choice of a request still needs; outlives the sequence, which may be put back */
#ifndef WORKER_ENGINE_INTERNAL_H
#define WORKER_ENGINE_INTERNAL_H

#include "worker/engine/engine.h"
#include "worker/plan/plan.h"

/* A request of which at least one sequence runs. */
struct job {
    struct request *r;
    int32_t running_n;
    int32_t next_choice;           /* none below it has to be started */
};

/* One choice being computed. Lives in a slot; buffers stay with the slot. */
struct seq {
    struct job *job;
    struct request *r;
    struct choice *c;
    int32_t choice_i;
    struct cache_lease lease;
    int32_t *page_table;           /* device-visible */
    struct cache_copy copy;        /* of the page in which the cached prefix ends */
    int32_t *known;                /* prompt, then output */
    int32_t known_n, known_room;
    int32_t computed_n;            /* positions in its pages */
    int32_t end_n;                 /* positions to compute of what is known */
    int32_t fresh_n;               /* positions from here on were not known when it started */
    int32_t prompt_lp_n, output_lp_n;          /* log-probabilities that are there */
    int32_t rows_n;                /* in the step being made */
    int32_t outs_n;
    int32_t saved_n;               /* output tokens when ports.progress was called last */
    int64_t saved_ns;
    int32_t safe_n;                /* output tokens that a death would not cost, when last asked */
    struct token_count *seen; int32_t seen_n, seen_room;       /* ascending by token; with a penalty only */
    struct token_bias *bias; int32_t bias_n, bias_room;        /* params.bias and the end tokens, while those are forbidden */
};

/* Where a sequence that computes known tokens stands: all that most look-ups need, close together. */
struct front { int32_t computed_n, token; const struct seq *s; };

/* Output lengths of ended choices, for admission. Kept apart by what they were allowed (its bit length): the lines of a job
 * that ask for much are seldom those that ask for little. */
struct length { double mean, deviation; int64_t n; };
struct lengths { struct length of[32]; };

struct request_list { struct request **of; int64_t n, room; };

struct lane {
    struct request_list waiting;               /* to be chosen */
    struct request_list cohort;                /* chosen, to be started */
    int64_t chosen_n;                          /* chosen, their trial is not over */
    bool alone;                                /* the cohort is one request */
    bool serving;                              /* cohort follows cohort */
    int64_t since_ns;                          /* when the first one came */
};

struct engine {
    const struct config *cfg;
    struct device *d;
    struct model *m;
    const struct tokenizer *tokenizer;
    struct engine_ports ports;
    struct kv *kv;
    struct cache *cache;
    struct plan *plan;
    struct cost_model cost;
    struct lengths lengths;
    int32_t vocab, context, pages_n;
    int32_t *ends; int32_t ends_n;             /* end tokens of the model, ascending */

    struct seq *seqs; int32_t seqs_n;          /* slots */
    struct seq **spare; int32_t spare_n;
    struct seq **running; int32_t running_n;   /* oldest first */
    struct front *fronts; int32_t fronts_n;    /* during admission */
    int64_t pages_left;                        /* during admission: available, less what running sequences still expect */
    int64_t rows_known;                        /* during admission: rows that running sequences have ready to compute */
    struct job *jobs;                          /* [seqs_n]: each has a sequence that runs */
    struct job **jobs_spare; int32_t jobs_spare_n;
    int32_t *page_tables;

    struct step step;
    int32_t rows_max, rows_seen;
    double kv_read;                            /* positions that the rows of the step read */

    struct lane lane;
    int64_t begun_n;                           /* waiting requests whose start is being counted or is counted */
    bool held;                                 /* engine_hold */

    struct engine_counts counts;
    int64_t now_ns;                            /* of the step */
    int64_t ended_port_ns;                     /* spent in ports.ended during it */
    int64_t ended_n;                           /* requests ended; tells a step that ended some from one with nothing to do */
    bool failed;                               /* the device refused something outside a forward pass */
};

/* ---- choice.c ---- */

/* First call for a choice: takes over the tokens it came with, ends it where they are complete, makes room for
 * log-probabilities. Later calls do nothing. */
void choice_prepare(struct engine *e, struct request *r, int32_t i);
/* First position whose row must still be computed, and the end of those; equal: the choice is done. */
struct need { int32_t from, end; };
struct need choice_need(const struct request *r, int32_t i);
bool choice_is_done(const struct request *r, int32_t i);
int32_t choice_prompt_lp_n(const struct request *r, int32_t i);
int32_t choice_output_lp_n(const struct request *r, int32_t i);
/* The next output token: end tokens, stop strings, limits. Sets c->finish where it ends. */
void choice_token_add(struct engine *e, struct request *r, int32_t i, int32_t token);
void choice_logprob_set(struct request *r, struct logprob *l, const struct sampled *from, int32_t token);
void choice_fail(struct request *r, struct choice *c, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* End tokens of the model (unless ignored) and of the request; forbidden while min_tokens is not reached. */
bool token_ends(const struct engine *e, const struct request *r, int32_t token);

/* ---- sequence.c ---- */

void seq_fill(struct engine *e, struct seq *s, struct request *r, int32_t choice_i);
/* The outputs wanted of row `row`, which computes position `pos`; returns how many (0 or 1). */
int32_t seq_want(struct engine *e, struct seq *s, int32_t row, int32_t pos, int32_t out);
/* Too far ahead of the store: no row for its next token. */
bool seq_sits_out(struct engine *e, struct seq *s);
/* The step has run. */
void seq_apply(struct engine *e, struct seq *s, const struct sampled *outs);

/* ---- admit.c ---- */

void engine_admit(struct engine *e);
void lengths_observe(struct lengths *l, int32_t max, int32_t output_n);

/* ---- lane.c ---- */

enum engine_begun begin_ask(struct engine *e, struct request *r);
bool begin_has_room(const struct engine *e);   /* whether one more may be asked about ahead */
void begin_forget(struct engine *e, struct request *r);        /* it has started, or is gone */
void lane_add(struct engine *e, struct request *r);
void lane_put_back(struct engine *e, struct request *r);
void lane_take(struct engine *e, struct request *r);           /* out of the cohort's list: it starts, or is over */
void lane_leave(struct engine *e, struct request *r);          /* for good; nothing if it is not there */
bool lane_is_open(const struct engine *e);     /* no one else is to be admitted */
struct request *lane_any(const struct engine *e);              /* one that does not run; NULL: none */
void lane_step(struct engine *e);              /* before admission: the next cohort */
void lane_check(struct engine *e, struct request *r);          /* after its tokens: the trial may be over */
void lane_close(struct lane *l);

/* ---- poison.c ---- */

void poison_act(const struct engine *e);       /* before a step runs; tests only */

/* ---- compose.c ---- */

/* Fills e->step. False: nothing runs. */
bool engine_compose(struct engine *e);

/* ---- engine.c ---- */

/* Gives the lease back, takes the sequence out of those that run. Its job stays. */
void seq_stop(struct engine *e, struct seq *s, struct plan_wants wants);
void seq_put_back(struct engine *e, struct seq *s);
/* The choice is done: ends the sequence, and the request with its last choice. */
void seq_end(struct engine *e, struct seq *s);
void request_end(struct engine *e, struct request *r);

#endif
