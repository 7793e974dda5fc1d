/* Compiled with -mavx2. */
#define LANES 8
#define LANES_TABLE lanes_avx2
#include "kernels/cpu/lanes_body.h"
