/* product_wide: out[r, n] (+)= sum_k w[n, k] in[r, k], and out[r, i] = act(gate_i . in[r]) * (up_i . in[r])
 * Shapes    w [n, k], in [rows, k] bf16 row-major; out [rows, n] fp32, or [rows, n / 2] bf16 where gate (the first half of
 *           w's rows) and up (the second) become one
 * Needs     compute capability 9.0; n % 16 == 0, k % 8 == 0, 16-byte aligned rows. Edges are zeros of the copy engine
 * Launch    persistent: one or two blocks for each multiprocessor; one thread feeds a ring of stages by bulk tensor copies,
 *           1 or 2 warpgroups of 64 rows each compute. Up to 225 KB shared. Overlaps the kernel before it: weights are on
 *           their way before that one has ended
 * Traffic   reads w once where rows fit a tile; of two blocks of a cluster each loads half of w's tile for both
 * Numerics  one chain of wgmma k16 over k in order: the bits of product.cu's chain of m16n8k16 (checked at loading)
 * Why       gated: cuBLASLt writes both halves in fp32 to memory and a second kernel reads them again; here both halves of
 *           an output are in one thread's registers. plain: few rows and a long k, which cuBLASLt splits. Widths are such
 *           that the tiles of known models come out even on 132 multiprocessors (14336 = 128 x 112, 12288 = 128 x 96) */
#include <cuda.h>

#include "kernels/cuda/bits.cuh"
#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/launch.h"

#define PIECE_K 64                 /* k of one copy: 128 bytes, the widest swizzle */
#define SHARED_MAX (227 * 1024)

/* GROUPS warpgroups of 64 rows, COLS outputs (of each half, if gated), SPAN pieces of k a stage, BLOCKS on a multiprocessor.
 * A cluster of two, gated alone, shares rows of w and differs in rows of in. */
template <int GROUPS_, int CLUSTER_, int COLS_, bool GATED_, int SPAN_, int BLOCKS_ = 1>
struct tile_of {
    static const int GROUPS = GROUPS_, CLUSTER = CLUSTER_, COLS = COLS_, SPAN = SPAN_, BLOCKS = BLOCKS_;
    static const bool GATED = GATED_;
    static const int ROWS = GROUPS * 64, WIDE = GATED ? 2 * COLS : COLS, THREADS = (GROUPS + 1) * 128;
    static const int IN_BYTES = ROWS * PIECE_K * 2, W_BYTES = WIDE * PIECE_K * 2, PIECE = IN_BYTES + W_BYTES;
    static const int STAGE = SPAN * PIECE, STAGES = (SHARED_MAX / BLOCKS - 2048) / STAGE, BYTES = STAGES * STAGE + 1024;
};

struct wide {
    int n, k, rows_n, to;
    int cols_n;                    /* outputs: n, or n / 2 */
    int in_box;                    /* rows of `in` of one copy */
    void *out;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- barriers and copies ---- */

static __device__ __forceinline__ uint32_t cluster_rank(void)
{
    uint32_t r;

    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

static __device__ __forceinline__ void cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

static __device__ __forceinline__ void barrier_init(uint32_t at, int n)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(n) : "memory");
}

static __device__ __forceinline__ void barrier_expect(uint32_t at, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint32_t at, uint32_t rank)
{
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(at), "r"(rank) : "memory");
}

static __device__ __forceinline__ void barrier_wait(uint32_t at, uint32_t parity)
{
    asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\nbra again;\nover:\n}" ::"r"(at), "r"(parity) : "memory");
}

/* A box of the map at (k, row) to shared memory; to the same place of all blocks in mask. */
static __device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap *map, int k, int row, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(to), "l"((uint64_t)map), "r"(barrier), "r"(k), "r"(row) : "memory");
}

static __device__ __forceinline__ void copy_box_all(uint32_t to, const CUtensorMap *map, int k, int row, uint32_t barrier,
                                                    uint16_t mask)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3, %4}], [%2], %5;"
                 ::"r"(to), "l"((uint64_t)map), "r"(barrier), "r"(k), "r"(row), "h"(mask) : "memory");
}

/* ---- wgmma ---- */

/* Rows of 128 bytes, swizzled, groups of 8 rows 1,024 bytes apart; k 16 further on is 32 bytes further on. */
static __device__ __forceinline__ uint64_t operand_at(uint32_t at)
{
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

static __device__ __forceinline__ void products_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void products_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N>
static __device__ __forceinline__ void products_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

#define R8(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
#define R16(i) R8(i), R8(i + 8)
#define R32(i) R16(i), R16(i + 16)
#define N16_0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define N16_1 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define N16_2 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define N16_3 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define N16_4 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define N16_5 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define N16_6 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define N16_7 "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
/* c (+)= a b, [64 x 16] [16 x WIDE]; more false: c = a b. A, B, MORE: their operand numbers, behind those of c. */
#define WGMMA(WIDE, NAMES, A, B, MORE, ...) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #MORE ", 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" #WIDE "k16.f32.bf16.bf16 {" NAMES "}, %" #A ", %" #B ", p, 1, 1, 0, 0;\n}" \
                 : __VA_ARGS__ : "l"(a), "l"(b), "r"(more))

template <int WIDE> struct chain;
template <> struct chain<32> {
    static __device__ __forceinline__ void add(float *c, uint64_t a, uint64_t b, int more)
    {
        WGMMA(32, N16_0, 16, 17, 18, R16(0));
    }
};
template <> struct chain<48> {
    static __device__ __forceinline__ void add(float *c, uint64_t a, uint64_t b, int more)
    {
        WGMMA(48, N16_0 ",%16,%17,%18,%19,%20,%21,%22,%23", 24, 25, 26, R16(0), R8(16));
    }
};
template <> struct chain<96> {
    static __device__ __forceinline__ void add(float *c, uint64_t a, uint64_t b, int more)
    {
        WGMMA(96, N16_0 "," N16_1 "," N16_2, 48, 49, 50, R32(0), R16(32));
    }
};
template <> struct chain<128> {
    static __device__ __forceinline__ void add(float *c, uint64_t a, uint64_t b, int more)
    {
        WGMMA(128, N16_0 "," N16_1 "," N16_2 "," N16_3, 64, 65, 66, R32(0), R32(32));
    }
};
template <> struct chain<112> {
    static __device__ __forceinline__ void add(float *c, uint64_t a, uint64_t b, int more)
    {
        WGMMA(112, N16_0 "," N16_1 "," N16_2 ",%48,%49,%50,%51,%52,%53,%54,%55", 56, 57, 58, R32(0), R16(32), R8(48));
    }
};
template <> struct chain<192> {
    static __device__ __forceinline__ void add(float *c, uint64_t a, uint64_t b, int more)
    {
        WGMMA(192, N16_0 "," N16_1 "," N16_2 "," N16_3 "," N16_4 "," N16_5, 96, 97, 98, R32(0), R32(32), R32(64));
    }
};
template <> struct chain<224> {
    static __device__ __forceinline__ void add(float *c, uint64_t a, uint64_t b, int more)
    {
        WGMMA(224, N16_0 "," N16_1 "," N16_2 "," N16_3 "," N16_4 "," N16_5 "," N16_6, 112, 113, 114, R32(0), R32(32), R32(64),
              R16(96));
    }
};
template <> struct chain<256> {
    static __device__ __forceinline__ void add(float *c, uint64_t a, uint64_t b, int more)
    {
        WGMMA(256, N16_0 "," N16_1 "," N16_2 "," N16_3 "," N16_4 "," N16_5 "," N16_6 "," N16_7, 128, 129, 130, R32(0), R32(32),
              R32(64), R32(96));
    }
};

/* ---- what becomes of the sums ----
 * Rows before `first` are another tile's. In lane l of warp w, with g = l / 4, t = l % 4: c[4j], c[4j + 1] are
 * (16w + g, 8j + 2t..), c[4j + 2], c[4j + 3] 8 rows on. */

/* Lane t of four has word j of row part j, and gets all four words of part t. */
static __device__ __forceinline__ uint4 words_turn(const uint32_t w[4], int t)
{
    bool odd = t & 1, high = t & 2;
    uint32_t x = __shfl_xor_sync(0xffffffffu, odd ? w[0] : w[1], 1), y = __shfl_xor_sync(0xffffffffu, odd ? w[2] : w[3], 1);
    uint32_t a0 = odd ? x : w[0], a1 = odd ? w[1] : x, a2 = odd ? y : w[2], a3 = odd ? w[3] : y;

    x = __shfl_xor_sync(0xffffffffu, high ? a0 : a2, 2);
    y = __shfl_xor_sync(0xffffffffu, high ? a1 : a3, 2);
    return high ? make_uint4(x, y, a2, a3) : make_uint4(a0, a1, x, y);
}

template <int COLS, bool GELU>
static __device__ __forceinline__ void gated_store(const float *c, const struct wide &p, int first, int row, int col)
{
    int t = threadIdx.x % 4;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint16_t *to = (uint16_t *)p.out + (size_t)(row + 8 * half) * p.cols_n;
        bool there = row + 8 * half >= first && row + 8 * half < p.rows_n;

#pragma unroll
        for (int j = 0; j < COLS / 8; j += 4) {
            uint32_t w[4];

#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *gate = c + 4 * (j + i) + 2 * half, *up = gate + COLS / 2;

                if (j + i < COLS / 8)
                    w[i] = bf16_pair(gated<GELU>(gate[0], up[0]), gated<GELU>(gate[1], up[1]));
            }
            if (j + 4 <= COLS / 8) {
                uint4 all = words_turn(w, t);

                if (there && col + 8 * (j + t) < p.cols_n)
                    *(uint4 *)(to + col + 8 * (j + t)) = all;
            } else {
#pragma unroll
                for (int i = 0; j + i < COLS / 8; i++)
                    if (there && col + 8 * (j + i) < p.cols_n)
                        *(uint32_t *)(to + col + 8 * (j + i) + 2 * t) = w[i];
            }
        }
    }
}

template <int COLS>
static __device__ __forceinline__ void plain_store(const float *c, const struct wide &p, int first, int row, int col)
{
#pragma unroll
    for (int j = 0; j < COLS / 8; j++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int r = row + 8 * half, n = col + 8 * j + threadIdx.x % 4 * 2;
            float2 *to = (float2 *)((float *)p.out + (size_t)r * p.n + n);
            float2 v = make_float2(c[4 * j + 2 * half], c[4 * j + 2 * half + 1]);

            if (r < first || r >= p.rows_n || n >= p.n)
                continue;
            if (p.to == WIDE_ADD) {
                float2 old = *to;

                v = make_float2(__fadd_rn(v.x, old.x), __fadd_rn(v.y, old.y));
            }
            *to = v;
        }
}

/* ---- the kernel ---- */

/* Tiles in turn: those that share rows of w follow each other, so that w comes from memory once. */
template <typename T>
struct walk {
    int unit, units, step, across, rank;

    __device__ walk(const struct wide &p)
    {
        int rows = (p.rows_n + T::ROWS - 1) / T::ROWS, cols = (p.cols_n + T::COLS - 1) / T::COLS;

        across = (rows + T::CLUSTER - 1) / T::CLUSTER;
        units = across * cols;
        unit = blockIdx.x / T::CLUSTER;
        step = gridDim.x / T::CLUSTER;
        rank = T::CLUSTER > 1 ? (int)cluster_rank() : 0;
    }
    __device__ bool more(void) const { return unit < units; }
    __device__ void next(void) { unit += step; }
    __device__ int row(void) const { return (unit % across * T::CLUSTER + rank) * T::ROWS; }
    /* Where its rows are copied from: all of them are there where there are so many (zeros of the copy engine are slow). */
    __device__ int row_from(const struct wide &p) const { return max(min(row(), p.rows_n - T::ROWS), 0); }
    __device__ int col(void) const { return unit / across * T::COLS; }
};

struct ring { uint32_t stages, full, empty; };

template <typename T>
static __device__ __forceinline__ void feed_w(const struct wide &p, const CUtensorMap *w, const struct walk<T> &at, int k,
                                              uint32_t to, uint32_t full)
{
    const uint16_t all = (1 << T::CLUSTER) - 1;
    int col = at.col();

#pragma unroll
    for (int i = 0; i < T::SPAN; i++, to += T::PIECE) {
        uint32_t gate = to + T::IN_BYTES, up = gate + T::COLS * PIECE_K * 2;

        k += i > 0 ? PIECE_K : 0;
        if (T::CLUSTER > 1) {      /* one half each, for both */
            copy_box_all(at.rank == 0 ? gate : up, w, k, at.rank == 0 ? col : p.cols_n + col, full, all);
        } else {
            copy_box(gate, w, k, col, full);
            if (T::GATED)
                copy_box(up, w, k, p.cols_n + col, full);
        }
    }
}

template <typename T>
static __device__ __forceinline__ void feed_in(const struct wide &p, const CUtensorMap *in, const struct walk<T> &at, int k,
                                               uint32_t to, uint32_t full)
{
    int row = at.row_from(p);

#pragma unroll
    for (int i = 0; i < T::SPAN; i++, to += T::PIECE) {
        k += i > 0 ? PIECE_K : 0;
        copy_box(to, in, k, row, full);
    }
}

template <typename T>
static __device__ __forceinline__ void feed(const struct wide &p, const CUtensorMap *w, const CUtensorMap *in, struct ring ring)
{
    const int step = T::SPAN * PIECE_K;
    int bytes = T::SPAN * (T::W_BYTES + p.in_box * PIECE_K * 2), slot = 0, sent = 0;
    uint32_t turn = 1;
    struct walk<T> at(p);

    for (; at.more() && sent < T::STAGES && sent * step < p.k; sent++) {   /* weights: no kernel before has written them */
        barrier_expect(ring.full + 8 * sent, bytes);
        feed_w<T>(p, w, at, sent * step, ring.stages + sent * T::STAGE, ring.full + 8 * sent);
    }
    predecessor_wait();
    for (; at.more(); at.next())
        for (int k = 0; k < p.k; k += step) {
            uint32_t full = ring.full + 8 * slot, to = ring.stages + slot * T::STAGE;

            if (sent > 0) {
                sent--;
            } else {
                barrier_wait(ring.empty + 8 * slot, turn);
                barrier_expect(full, bytes);
                feed_w<T>(p, w, at, k, to, full);
            }
            feed_in<T>(p, in, at, k, to, full);
            slot = slot + 1 == T::STAGES ? 0 : slot + 1;
            turn ^= slot == 0;
        }
}

template <typename T>
static __device__ __forceinline__ void release(struct ring ring, int slot)
{
    if (threadIdx.x % 128 < T::CLUSTER)
        barrier_arrive(ring.empty + 8 * slot, threadIdx.x % 128);
}

template <typename T>
static __device__ __forceinline__ void compute(const struct wide &p, struct ring ring, int group)
{
    float c[T::WIDE / 2];
    int slot = 0, lane = threadIdx.x % 32;
    uint32_t turn = 0;

    predecessor_wait();            /* what it reads may be what is written here */
    for (struct walk<T> at(p); at.more(); at.next()) {
        int last = -1;

        for (int k = 0; k < p.k; k += T::SPAN * PIECE_K) {
            uint32_t stage = ring.stages + slot * T::STAGE;

            barrier_wait(ring.full + 8 * slot, turn);
            products_fence();
#pragma unroll
            for (int i = 0; i < T::SPAN; i++) {
                uint64_t a = operand_at(stage + i * T::PIECE + group * 64 * PIECE_K * 2);
                uint64_t b = operand_at(stage + i * T::PIECE + T::IN_BYTES);

#pragma unroll
                for (int j = 0; j < PIECE_K / 16; j++)
                    chain<T::WIDE>::add(c, a + 2 * j, b + 2 * j, k > 0 || i > 0 || j > 0);
            }
            products_commit();
            products_wait<1>();
            if (last >= 0)
                release<T>(ring, last);
            last = slot;
            slot = slot + 1 == T::STAGES ? 0 : slot + 1;
            turn ^= slot == 0;
        }
        products_wait<0>();
        release<T>(ring, last);
        int first = at.row(), row = at.row_from(p) + group * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;

        if (!T::GATED)
            plain_store<T::COLS>(c, p, first, row, at.col());
        else if (p.to == WIDE_GELU)
            gated_store<T::COLS, true>(c, p, first, row, at.col());
        else
            gated_store<T::COLS, false>(c, p, first, row, at.col());
    }
}

#endif

template <typename T>
static __global__ void __launch_bounds__(T::THREADS, T::BLOCKS) product_wide(const __grid_constant__ CUtensorMap w,
                                                                     const __grid_constant__ CUtensorMap in, struct wide p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ char shared[];
    __shared__ uint64_t barriers[2 * T::STAGES];
    struct ring ring;
    int group = threadIdx.x / 128;

    ring.stages = ((uint32_t)__cvta_generic_to_shared(shared) + 1023) & ~1023u;
    ring.full = (uint32_t)__cvta_generic_to_shared(barriers);
    ring.empty = ring.full + 8 * T::STAGES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::STAGES; i++) {
            barrier_init(ring.full + 8 * i, 1);
            barrier_init(ring.empty + 8 * i, T::GROUPS * T::CLUSTER);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async;" ::: "memory");
    }
    if (T::CLUSTER > 1)
        cluster_sync();
    else
        __syncthreads();
    successor_start();
    if (group == T::GROUPS) {
        if (T::GROUPS > 1)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x % 128 == 0)
            feed<T>(p, &w, &in, ring);
    } else {
        if (T::GROUPS > 1)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        compute<T>(p, ring, group);
    }
    if (T::CLUSTER > 1) {          /* a neighbour may still copy to this block, or tell it that a stage is free */
        __syncwarp();
        cluster_sync();
    }
#endif
}

/* ---- launching ---- */

typedef tile_of<1, 1, 112, true, 1> few_112;
typedef tile_of<1, 1, 96, true, 1> few_96;
typedef tile_of<1, 1, 64, true, 1, 2> few_64;
typedef tile_of<1, 1, 56, true, 1, 2> few_56;
typedef tile_of<1, 1, 48, true, 1, 2> few_48;
typedef tile_of<2, 1, 128, true, 1> some_128;
typedef tile_of<2, 1, 112, true, 1> some_112;
typedef tile_of<2, 1, 96, true, 1> some_96;
typedef tile_of<2, 2, 128, true, 1> many_128;
typedef tile_of<2, 2, 112, true, 1> many_112;
typedef tile_of<2, 2, 96, true, 1> many_96;
typedef tile_of<1, 1, 32, false, 2> plain_32;
typedef tile_of<1, 1, 32, false, 4> plain_32_long;
typedef tile_of<1, 1, 48, false, 2> plain_48;

typedef cudaError_t (*run_fn)(cudaStream_t s, int processors, const struct launch_wide *p);
typedef cudaError_t (*init_fn)(void);

/* Of the driver and the device; written by launch_wide_init before anything is launched. */
static decltype(&cuTensorMapEncodeTiled) map_make;
static int processors;             /* 0: not compute capability 9.0 */

static cudaError_t map_open(CUtensorMap *map, const uint16_t *at, int rows_n, int k, int box)
{
    cuuint64_t dims[2] = { (cuuint64_t)k, (cuuint64_t)rows_n }, stride[1] = { (cuuint64_t)k * 2 };
    cuuint32_t boxes[2] = { PIECE_K, (cuuint32_t)box }, each[2] = { 1, 1 };
    CUresult r = map_make(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)at, dims, stride, boxes, each,
                          CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);

    return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

template <typename T>
static cudaError_t tile_run(cudaStream_t s, int blocks_max, const struct launch_wide *p)
{
    struct wide q = { p->n, p->k, p->rows_n, p->to, T::GATED ? p->n / 2 : p->n, 0, p->out };
    int rows = p->rows_n < T::ROWS ? p->rows_n : T::ROWS;
    int row_tiles = (p->rows_n + T::ROWS - 1) / T::ROWS, col_tiles = (q.cols_n + T::COLS - 1) / T::COLS, units, clusters;
    CUtensorMap w, in;
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attributes[2] = {};
    cudaError_t e;

    q.in_box = (rows + 7) / 8 * 8;       /* whole groups of 8 rows; what is not there is zero */
    e = map_open(&w, p->w, p->n, p->k, T::COLS);
    if (e == cudaSuccess)
        e = map_open(&in, p->in, p->rows_n, p->k, q.in_box);
    if (e != cudaSuccess)
        return e;
    units = (row_tiles + T::CLUSTER - 1) / T::CLUSTER * col_tiles;
    clusters = blocks_max * T::BLOCKS / T::CLUSTER < units ? blocks_max * T::BLOCKS / T::CLUSTER : units;
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = T::CLUSTER;
    attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)(clusters * T::CLUSTER));
    config.blockDim = dim3(T::THREADS);
    config.dynamicSmemBytes = T::BYTES;
    config.stream = s;
    config.attrs = attributes;
    config.numAttrs = 2;
    return cudaLaunchKernelEx(&config, product_wide<T>, w, in, q);
}

template <typename T>
static cudaError_t tile_init(void)
{
    return cudaFuncSetAttribute(product_wide<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, T::BYTES);
}

struct tile { run_fn run; init_fn init; int gated, over, most; };  /* for more rows than `over`, at most `most` */
#define TILE(T, over, most) { tile_run<T>, tile_init<T>, T::GATED, over, most }
static const struct tile tiles[WIDE_TILES] = {
    TILE(few_112, 0, 64), TILE(few_96, 0, 64), TILE(few_64, 0, 64), TILE(few_56, 0, 64), TILE(few_48, 0, 64),
    TILE(some_128, 64, 512), TILE(some_112, 64, 512), TILE(some_96, 64, 512),
    TILE(many_128, 128, INT32_MAX), TILE(many_112, 128, INT32_MAX), TILE(many_96, 128, INT32_MAX),
    TILE(plain_32, 0, 64), TILE(plain_32_long, 0, 64), TILE(plain_48, 0, 64),
};

cudaError_t launch_wide_init(void)
{
    int device, major, n;
    cudaDriverEntryPointQueryResult found;
    void *at = NULL;
    cudaError_t e = cudaGetDevice(&device);

    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
    if (e != cudaSuccess || major != 9)
        return e;
    e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &at, 12000, cudaEnableDefault, &found);
    if (e != cudaSuccess || found != cudaDriverEntryPointSuccess)
        return e;
    for (int i = 0; i < WIDE_TILES && e == cudaSuccess; i++)
        e = tiles[i].init();
    map_make = (decltype(map_make))at;
    processors = e == cudaSuccess ? n : 0;
    return e;
}

int launch_overlaps(void)
{
    return processors > 0;
}

int launch_wide_fits(int tile, int gated, int n, int k, int rows_n)
{
    return processors > 0 && tiles[tile].gated == gated && n % 16 == 0 && k % 8 == 0 && rows_n > tiles[tile].over &&
           rows_n <= tiles[tile].most;
}

cudaError_t launch_wide(cudaStream_t s, int tile, const struct launch_wide *p)
{
    return tiles[tile].run(s, processors, p);
}
