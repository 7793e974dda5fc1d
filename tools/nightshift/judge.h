/* tools/nightshift/judge.h - would a worker answer this line? With a model: what `run` would say. Without: is it a JSON object of a
 * known shape. Threads: one. */
#ifndef TOOLS_NIGHTSHIFT_JUDGE_H
#define TOOLS_NIGHTSHIFT_JUDGE_H

#include "base/buf.h"
#include "base/config.h"
#include "queue/queue.h"

struct judge;

struct judgement {
    bool valid;
    char code[64];                             /* "" where valid */
    struct buf text;                           /* what is wrong */
    struct buf key;                            /* bytes of the field that was asked for; has_key: it is there and a text or number */
    bool has_key;
    struct buf custom_id;                      /* JSON text; empty: none */
};
void judgement_fini(struct judgement *v);

/* model: NULL: none. key: "custom_id", "body.user" ...: a path of names; NULL: none is wanted. */
MUST_USE status judge_open(const struct config *cfg, const char *model, const char *key, struct judge **out, struct error *err);
void judge_close(struct judge *j);             /* NULL is allowed */
/* *out is filled anew; begin with a zeroed one. A line that is no JSON has neither key nor custom_id. */
void judge_line(struct judge *j, const struct record *rec, struct judgement *out);
/* Key and custom_id alone, of a line that was judged before. */
void judge_key(struct judge *j, const struct record *rec, struct judgement *out);

#endif
