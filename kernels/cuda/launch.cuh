// kernels/cuda/launch.cuh - private to the CUDA device: launches whose blocks come onto the device while the kernel before ends.
#ifndef KERNELS_CUDA_LAUNCH_CUH
#define KERNELS_CUDA_LAUNCH_CUH

#include "kernels/cuda/launch.h"

// The kernel must call predecessor_wait (bits.cuh) in every thread, before it reads or writes anything that another kernel
// reads or writes.
template <typename... P>
static cudaError_t launch_close(void (*kernel)(P...), dim3 grid, unsigned threads, size_t shared, cudaStream_t s, P... arguments)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute overlap[1] = {};

    overlap[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap[0].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = s;
    config.attrs = overlap;
    config.numAttrs = launch_overlaps() ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

#endif
