// kernels/cuda/gate.cuh - private to the CUDA device: the gated activation, the same bits wherever it is done.
#ifndef KERNELS_CUDA_GATE_CUH
#define KERNELS_CUDA_GATE_CUH

template <bool GELU>
static __device__ __forceinline__ float gated(float x, float up)
{
    if (GELU)
        x = 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    else
        x = x / (1.0f + expf(-x));
    return x * up;
}

#endif
