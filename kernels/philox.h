/* kernels/philox.h - noise by counter: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC'11). Shared by every device so
 * that all draw the same numbers. Valid C11 and C++17. */
#ifndef KERNELS_PHILOX_H
#define KERNELS_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define ON_DEVICE_TOO __host__ __device__
#else
#define ON_DEVICE_TOO
#endif

struct philox { uint32_t v[4]; };

#define PHILOX_ROUND(c, k0, k1) do { \
        uint64_t p0_ = UINT64_C(0xD2511F53) * (c).v[0], p1_ = UINT64_C(0xCD9E8D57) * (c).v[2]; \
        uint32_t c1_ = (c).v[1], c3_ = (c).v[3]; \
        (c).v[0] = (uint32_t)(p1_ >> 32) ^ c1_ ^ (k0); (c).v[1] = (uint32_t)p1_; \
        (c).v[2] = (uint32_t)(p0_ >> 32) ^ c3_ ^ (k1); (c).v[3] = (uint32_t)p0_; \
    } while (0)

/* Four words for (seed, position, block): token id i uses word i % 4 of block i / 4. */
ON_DEVICE_TOO static inline struct philox philox_words(uint64_t seed, uint64_t pos, uint32_t block)
{
    struct philox c;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    int i;

    c.v[0] = block;
    c.v[1] = 0;
    c.v[2] = (uint32_t)pos;
    c.v[3] = (uint32_t)(pos >> 32);
    for (i = 0; i < 10; i++) {
        PHILOX_ROUND(c, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

/* Open interval (0, 1): 2^-33 .. 1 - 2^-33. */
ON_DEVICE_TOO static inline double philox_uniform(uint32_t word)
{
    return (word + 0.5) * (1.0 / 4294967296.0);
}

#endif
