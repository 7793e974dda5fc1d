/* attention_fp32: out[query] = sum_p softmax_p(q . k_p) v_p, the reference
 * Shapes    as attention.cu, everything fp32, pages not swizzled
 * Needs     dim <= 256
 * Launch    grid = (items, kv_heads), block = 8 warps that take the item's queries in turn
 * Traffic   reads 8*dim B a position and query: slow
 * Numerics  online softmax, one position after the other: a row's bits depend on the row */
#include "kernels/cuda/bits.cuh"
#include "kernels/cuda/launch.h"

#define WARPS 8
#define PARTS (ATTEND_DIM_MAX / 32)

/* Key of position p; its value stands CUDA_PAGE rows further on. */
static __device__ const float *key_of(const struct launch_attention &a, const struct attend_item &item, int p)
{
    int slot = item.tree >= 0 && p >= item.cached_n ? a.tree[item.tree + p - item.cached_n] : p;

    return (const float *)a.kv + (size_t)blockIdx.y * 2 * CUDA_PAGE * a.dim +
           (size_t)a.pages[item.pages + slot / CUDA_PAGE] * a.page_elems + (size_t)(slot % CUDA_PAGE) * a.dim;
}

static __device__ void query_run(const struct launch_attention &a, const struct attend_item &item, int query)
{
    int group = a.heads_n / a.kv_heads_n, lane = threadIdx.x % 32, row = item.row + query / group;
    size_t at = ((size_t)row * a.heads_n + blockIdx.y * group + query % group) * a.dim;
    int last = a.pos[row], first = a.window > 0 && last >= a.window ? last - a.window + 1 : 0;
    float q[PARTS], sums[PARTS] = { 0 }, max = -1e30f, weight = 0;

    for (int i = 0; i < PARTS; i++)
        q[i] = lane + 32 * i < a.dim ? ((const float *)a.q)[at + lane + 32 * i] : 0;
    for (int p = first; p <= last; p++) {
        const float *k = key_of(a, item, p), *v = k + (size_t)CUDA_PAGE * a.dim;
        float s = 0, turn, w;

        for (int i = 0; i < PARTS; i++)
            s += lane + 32 * i < a.dim ? q[i] * k[lane + 32 * i] : 0;
        s = warp_sum(s);
        if (a.softcap > 0)
            s = a.softcap * tanhf(s / a.softcap);
        turn = exp2f(max - fmaxf(max, s));
        max = fmaxf(max, s);
        w = exp2f(s - max);
        weight = weight * turn + w;
        for (int i = 0; i < PARTS; i++)
            sums[i] = sums[i] * turn + (lane + 32 * i < a.dim ? w * v[lane + 32 * i] : 0);
    }
    for (int i = 0; i < PARTS; i++)
        if (lane + 32 * i < a.dim)
            ((float *)a.out)[at + lane + 32 * i] = sums[i] / weight + 0.0f;
}

static __global__ void __launch_bounds__(WARPS * 32) attend_fp32(struct launch_attention a, const struct attend_item *items)
{
    struct attend_item item = items[blockIdx.x];

    for (int i = threadIdx.x / 32; i < item.queries_n; i += WARPS)
        query_run(a, item, item.query + i);
}

cudaError_t launch_attend_fp32(cudaStream_t s, const struct launch_attention *a, const struct attend_item *items, int items_n)
{
    attend_fp32<<<dim3((unsigned)items_n, (unsigned)a->kv_heads_n), WARPS * 32, 0, s>>>(*a, items);
    return cudaGetLastError();
}
