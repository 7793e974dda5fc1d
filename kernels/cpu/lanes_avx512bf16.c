/* Compiled with -mavx512f and its kin. */
#define LANES 16
#define LANES_TABLE lanes_avx512bf16
#include "kernels/cpu/lanes_body.h"
