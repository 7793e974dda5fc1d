/* tests/kernels/devices.h - every way this machine can open the CPU device. */
#ifndef TESTS_KERNELS_DEVICES_H
#define TESTS_KERNELS_DEVICES_H

#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"

struct device_kind { const char *dtype, *isa; };

static const struct device_kind device_kinds[] = {
    { "fp32", "auto" }, { "bf16", "portable" }, { "bf16", "avx2" }, { "bf16", "avx512bf16" },
};
#define DEVICE_KINDS ((int)(sizeof device_kinds / sizeof device_kinds[0]))

/* NULL: this machine cannot. Portable, fp32 and auto always can. */
static inline struct device *device_of_kind(const struct device_kind *kind, int threads)
{
    struct config cfg;
    struct device *d = NULL;
    struct error err;

    config_defaults(&cfg);
    snprintf(cfg.dtype, sizeof cfg.dtype, "%s", kind->dtype);
    snprintf(cfg.cpu_isa, sizeof cfg.cpu_isa, "%s", kind->isa);
    cfg.threads = threads;
    if (device_open(&cfg, &d, &err) == ST_OK)
        return d;
    ASSERT(strcmp(kind->isa, "portable") != 0 && strcmp(kind->isa, "auto") != 0);
    return NULL;
}

/* Numbers for tests: the same on every run. */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);       /* splitmix64 */

    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static inline double random_unit(uint64_t *state)              /* [0, 1) */
{
    return (double)(random_next(state) >> 11) * 0x1p-53;
}

/* About normal: sum of 12 uniforms. */
static inline float random_normal(uint64_t *state)
{
    double sum = -6;
    int i;

    for (i = 0; i < 12; i++)
        sum += random_unit(state);
    return (float)sum;
}

#endif
