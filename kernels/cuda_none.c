/* Stands in for kernels/cuda in a build without it. */
#include "kernels/device.h"

status cuda_device_open(const struct config *cfg, struct device **out, struct error *err)
{
    *out = NULL;
    return error_set(err, ST_REJECT, "device=%s: this build has no CUDA device; build with -DNIGHTSHIFT_CUDA=ON "
                     "(docs/architecture.md), or use device=cpu", cfg->device);
}
