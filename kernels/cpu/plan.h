/* kernels/cpu/plan.h - private to the CPU device: how the rows of a step are cut into tiles of attention. */
#ifndef KERNELS_CPU_PLAN_H
#define KERNELS_CPU_PLAN_H

#include "kernels/cpu/cpu.h"

struct plan_part { int seq, row, rows_n; };    /* rows of one sequence: [row, row + rows_n) of the step */

struct plan_tile {
    int part, parts_n;             /* parts[part ..) */
    int shared_pages;              /* so many first pages are the same for every row, full and without overlay */
};

struct attention_plan {
    struct plan_tile *tiles;
    struct plan_part *parts;
    int tiles_n, parts_n;
    /* what it was made from */
    int tile_rows, seqs_n, pages_n;
    struct seq_span *seq;          /* [seqs] `pages` point into the next */
    int32_t *pages;
    /* room, and working space of the sort */
    size_t parts_room, seqs_room, pages_room;
    int32_t *order, *order_spare;  /* [seqs] */
};

/* The plan of this step, made once for all its layers. Tiles have at most tile_rows rows. Valid until the next call. */
const struct attention_plan *attention_plan_find(struct cpu_device *c, const struct step *s, int tile_rows,
                                                 int pool_pages_n);

#endif
