/* Any machine. */
#define LANES 4
#define MUL_LOW(a, b) (((a) & 0xffffffffu) * (b))
#define LANES_TABLE lanes_portable
#include "kernels/cpu/lanes_body.h"
