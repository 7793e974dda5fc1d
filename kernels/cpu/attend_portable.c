/* Attention on any machine. */
#include "kernels/cpu/attend.h"

#define LANES 4
#define QUERIES_AT_ONCE 2
#define WIDEN_Q true
#define ATTEND_TABLE attend_portable
#include "kernels/cpu/attend_body.h"

INLINE vec madd(vec a, vec b, vec c)
{
    return a * b + c;
}
