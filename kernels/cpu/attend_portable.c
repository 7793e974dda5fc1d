/* Attention on any machine. */
#include "kernels/cpu/attend.h"

#define LANES 4
#define QUERIES_AT_ONCE 2
#define MADD(a, b, c) ((a) * (b) + (c))
#define ATTEND_TABLE attend_portable
#include "kernels/cpu/attend_body.h"
