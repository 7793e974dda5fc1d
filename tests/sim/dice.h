/* tests/sim/dice.h - the one random source of a simulated run: whatever happens follows from its seed (splitmix64). */
#ifndef TESTS_SIM_DICE_H
#define TESTS_SIM_DICE_H

#include <stdbool.h>
#include <stdint.h>

struct dice {
    uint64_t state;
};

static inline uint64_t dice_next(struct dice *d)
{
    uint64_t z = (d->state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline int dice_below(struct dice *d, int n)          /* 0 .. n-1; n > 0 */
{
    return (int)(dice_next(d) % (uint64_t)n);
}

static inline bool dice_one_in(struct dice *d, int n)        /* n < 1: never */
{
    return n > 0 && dice_below(d, n) == 0;
}

#endif
