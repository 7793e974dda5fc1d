/* worker/lines/request.h - a valid record, parsed, on its way from the intake to its result.
 * Threads:   exactly one stage owns a request at a time; a push hands it on. Members of a group may be with different
 *            stages; what they share is const until the last of them is freed.
 * Ownership: everything inside lives in its arena (or its group's) and in the fields marked so; request_free ends it. */
#ifndef WORKER_LINES_REQUEST_H
#define WORKER_LINES_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/hash.h"
#include "kernels/kernels.h"
#include "queue/queue.h"
#include "worker/text/detok.h"

enum endpoint { ENDPOINT_CHAT, ENDPOINT_COMPLETIONS };
enum finish { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_ERROR };
/* Whether it runs apart because the process died when it ran before (engine/lane.c). */
enum lane_place { LANE_NONE, LANE_WAITS, LANE_CHOSEN };
/* How a request ended (design.md section 2). Rejected: its own fault, an HTTP-like status says how. */
enum verdict_kind { VERDICT_NONE, VERDICT_DONE, VERDICT_REJECTED, VERDICT_QUARANTINED, VERDICT_EXPIRED };

struct params {
    float temperature, top_p, min_p;
    int32_t top_k;
    float repetition, presence, frequency;
    bool seed_given;
    uint64_t seed;
    int32_t max_tokens;                        /* already cut to the context; 0 (completions only): the prompt alone */
    int32_t min_tokens;
    bool ignore_eos;
    bool echo, echo_logprobs;                  /* completions: prompt in the answer, with its log-probabilities */
    bool logprobs;
    int32_t top_logprobs_n;                    /* 0..TOP_LOGPROBS_MAX */
    bool skip_special, include_stop;
    int32_t n;
    struct stop_set stop;
    const int32_t *stop_tokens; int32_t stop_tokens_n;
    const struct token_bias *bias; int32_t bias_n;      /* ascending by token */
};

struct logprob {                               /* of one token */
    int32_t token;
    float logprob;
    int32_t top_n;
    struct { int32_t token; float logprob; } *top;      /* in the request's arena */
};

struct choice {
    int32_t *tokens;                           /* output so far; room for max_tokens, grown by the engine (malloc) */
    int32_t tokens_n, tokens_room;
    int32_t resumed_n;                         /* of them, read back from a checkpoint */
    uint64_t seed;
    struct detok detok;
    struct logprob *logprobs;                  /* [tokens_n] if asked for (malloc, room as tokens) */
    enum finish finish;
    const char *error;                         /* FINISH_ERROR: why; in the request's arena */
};

struct request {
    struct arena arena;
    /* identity */
    int32_t source;
    int64_t offset;
    struct record *record;                     /* whoever polled it sets it and gives it back; a group shares it; may be NULL */
    const char *custom_id;                     /* JSON text of the value, quotes included; "null": none */
    enum endpoint endpoint;
    const char *model;                         /* as the line said it, JSON text; echoed in the answer */
    bool model_differs;                        /* it names another model than the one loaded: counted, not refused */
    int64_t created_s;                         /* Unix time of the record, 0: it has none; the answer's `created` */
    int64_t priority;                          /* lower goes first; 0 */
    int64_t deadline_ms;                       /* Unix time; 0: none */
    struct hash128 record_hash, params_hash;
    int64_t arrived_ns;                        /* clock_mono_ns */
    /* work */
    struct params params;
    const int32_t *prompt; int32_t prompt_n;   /* token ids */
    const char *prompt_text; size_t prompt_text_n;      /* for echo; NULL otherwise */
    int32_t prompt_i;                          /* which prompt of a line's list (completions); see `group` */
    struct request_group *group;               /* NULL unless the line has several prompts */
    /* outcome */
    struct choice *choices;                    /* [params.n] in the arena, NULL where rejected */
    struct logprob *prompt_logprobs;           /* [prompt_n] in the arena, with echo_logprobs; [0] holds its token alone */
    int32_t cached_n;                          /* prompt tokens that came from the prefix cache */
    int64_t started_ns, finished_ns;
    enum verdict_kind verdict;
    int http_status;                           /* of VERDICT_REJECTED: 400 ...; 0: not an HTTP-level failure */
    const char *error_code, *error_text, *error_param;
    /* earlier starts of its record, as the checkpoint store has them */
    int32_t starts, solo;                      /* that ended in a death; of them alone */
    uint64_t last_run;                         /* the process that the last one was in; 0: not known */
    enum lane_place lane;                      /* the engine's */
    bool begin_asked, begun;                   /* the engine's: this start is being counted, is counted */
    /* for whichever stage owns it */
    void *stage;
    void *saved;                               /* the pipeline's: its choices' places in the checkpoint store */
    void *start;                               /* the pipeline's: its record's start there; a group's is its first member's */
};

/* A completions line with several prompts: one request a prompt, one result line when all have ended. It lives until
 * the last member is freed. */
struct request_group {
    struct arena arena;                        /* what the members share: stop strings, bias, the line's names */
    int32_t requests_n;
    struct request **requests;                 /* [requests_n], by prompt_i; NULL once that member is freed */
    int32_t open_n;                            /* members not ended, requests_n at first; the ending stage's */
    _Atomic int32_t held_n;                    /* members not freed; request_free's */
};

/* Many requests wait at a time: a short one's arena has one small block for its names and one for prompt and choices. */
enum { REQUEST_BLOCK_BYTES = 128 };

struct request *request_new(void);
/* What a waiting request takes of memory, its record included. */
static inline int64_t request_bytes(const struct request *r)
{
    const struct record *rec = r->record;

    return (int64_t)(sizeof *r + r->arena.taken_bytes + (rec != NULL ? sizeof *rec + rec->key_n + rec->value_n : 0));
}
/* NULL is allowed. Frees this one only; the last member takes the group along. Members of one group are freed by one
 * thread at a time, in any order. */
void request_free(struct request *r);
/* The request, or every member of its group. */
void request_free_line(struct request *r);

#endif
