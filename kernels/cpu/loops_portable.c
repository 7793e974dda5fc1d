/* Inner loops for any machine: four lanes, multiply then add. */
#include "kernels/cpu/loops.h"

#define LANES 4
#define TILE_ROWS 2
#define TILE_WIDE 1
#define MADD(a, b, c) ((a) * (b) + (c))
#include "kernels/cpu/loops_body.h"

const struct cpu_loops cpu_loops_portable = {
    .tile_rows = TILE_ROWS,
    .tile_halves = TILE_WIDE,
    .widen_in = true,
    .chains_bf16 = chains_bf16,
    .chains_fp32 = chains_fp32,
    .finish = finish,
    .rmsnorm = rmsnorm,
    .widen = widen,
    .dot_peak = dot_peak,
    .read = read_all,
};
