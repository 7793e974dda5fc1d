/* tests/kernels/devices.h - every way this machine can open a device. */
#ifndef TESTS_KERNELS_DEVICES_H
#define TESTS_KERNELS_DEVICES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

struct device_kind { const char *dtype, *isa; };    /* isa "cuda": the CUDA device, where there is one */

static const struct device_kind device_kinds[] = {
    { "fp32", "auto" }, { "bf16", "portable" }, { "bf16", "avx2" }, { "bf16", "avx512bf16" },
    { "bf16", "cuda" }, { "fp32", "cuda" },
};
#define DEVICE_KINDS ((int)(sizeof device_kinds / sizeof device_kinds[0]))

/* The environment variable NIGHTSHIFT_TEST_ONLY leaves that one and the fp32 reference: for checkers that take long. */
static inline bool device_left_out(const char *dtype, const char *isa)
{
    const char *only = getenv("NIGHTSHIFT_TEST_ONLY");

    return only != NULL && strcmp(isa, only) != 0 && strcmp(dtype, "fp32") != 0;
}

/* NULL: this machine cannot, or it is left out. Portable, fp32 and auto always can. */
static inline struct device *device_of_kind(const struct device_kind *kind, int threads)
{
    struct config cfg;
    struct device *d = NULL;
    struct error err;

    if (device_left_out(kind->dtype, kind->isa))
        return NULL;
    config_defaults(&cfg);
    snprintf(cfg.dtype, sizeof cfg.dtype, "%s", kind->dtype);
    if (strcmp(kind->isa, "cuda") == 0)
        snprintf(cfg.device, sizeof cfg.device, "cuda");
    else
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
