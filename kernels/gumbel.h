/* kernels/gumbel.h - the noise of Gumbel-max sampling (Gumbel 1954), from a word of philox.h. Shared by every device so
 * that all draw the same numbers: only +, -, *, / of IEEE doubles in a fixed order, no libm, and no contraction into
 * fused multiply-adds (compile with -ffp-contract=off; in CUDA with -fmad=false). Valid C11 and C++17. */
#ifndef KERNELS_GUMBEL_H
#define KERNELS_GUMBEL_H

#include <stdint.h>
#include <string.h>

#include "kernels/philox.h"

/* No word gives more: 33 ln 2 = 22.8739 at the largest uniform, 1 - 2^-33. */
#define GUMBEL_MAX 22.874

/* ln x of a positive, normal, finite x, to less than 1 ulp. Method and coefficients: fdlibm's e_log.c (Sun, 1993):
 * x = 2^k m with m in [1/sqrt 2, sqrt 2), s = (m - 1)/(m + 1), ln m = 2 atanh s by a minimax polynomial. */
ON_DEVICE_TOO static inline double gumbel_ln(double x)
{
    uint64_t bits;
    int32_t k, high;
    double f, s, z, w, odd, even, half_square;

    memcpy(&bits, &x, sizeof bits);
    high = (int32_t)(bits >> 32);
    k = (high >> 20) - 1023;
    high &= 0xfffff;
    if (high >= 0x6a09e) {                     /* m would be at or above sqrt 2: halve it */
        k++;
        high |= 0x3fe00000;
    } else {
        high |= 0x3ff00000;
    }
    bits = (uint64_t)(uint32_t)high << 32 | (bits & UINT64_C(0xffffffff));
    memcpy(&x, &bits, sizeof x);
    f = x - 1.0;
    s = f / (2.0 + f);
    z = s * s;
    w = z * z;
    odd = z * (6.666666666666735130e-01 + w * (2.857142874366239149e-01 +
               w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
    half_square = 0.5 * f * f;
    return k * 6.93147180369123816490e-01 -
           ((half_square - (s * (half_square + (even + odd)) + k * 1.90821492927058770002e-10)) - f);
}

ON_DEVICE_TOO static inline double gumbel_noise(uint32_t word)
{
    return -gumbel_ln(-gumbel_ln(philox_uniform(word)));
}

#endif
