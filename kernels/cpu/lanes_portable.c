/* Any machine. */
#define LANES 4
#define LANES_TABLE lanes_portable
#include "kernels/cpu/lanes_body.h"
