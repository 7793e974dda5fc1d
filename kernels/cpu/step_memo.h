/* kernels/cpu/step_memo.h - private to the CPU device: what is the same in every layer of a step and therefore computed
 * once: the cos and sin of its rows (rope.c) and how its attention is cut into pieces of work (attention.c).
 * Nothing tells the device that a new step has begun; both are kept with a copy of all that they were made from, and
 * made again when any of it differs. */
#ifndef KERNELS_CPU_STEP_MEMO_H
#define KERNELS_CPU_STEP_MEMO_H

#include "kernels/cpu/cpu.h"

#define TURNS_KEPT 2               /* families with local and global layers turn in two ways */

struct turns {
    int rows_n, half;              /* half: pairs that turn */
    float magnitude;
    int32_t *pos;                  /* [rows] made from */
    float *inv_freq;               /* [half] made from */
    float *cos, *sin;              /* [rows][half] */
    size_t rows_room, half_room;   /* what fits */
    unsigned used;                 /* when last used: the oldest is replaced */
};

struct attention_plan;             /* attention.c */

struct step_memo {
    struct turns turns[TURNS_KEPT];
    unsigned uses;
    struct attention_plan *plan;
};

struct step_memo *step_memo_open(void);
void step_memo_close(struct step_memo *m);     /* NULL is allowed */
struct attention_plan *attention_plan_open(void);
void attention_plan_close(struct attention_plan *p);

#endif
