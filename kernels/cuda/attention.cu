/* attention: out[query] = sum_p softmax_p(q . k_p) v_p over the positions p that the query's row sees
 * Shapes    q, out [rows, heads, dim] bf16 (q carries scale * log2 e); a page's part of one KV head: keys [16][dim], then
 *           values [16][dim], bf16, swizzled (launch.h) so that a page is copied as it lies; sums [entries, kv_heads, dim]
 * Needs     dim % 8 == 0, dim <= 256; values in pages are finite (rope.cu)
 * Launch    tiles: grid = (items / 4, kv_heads), 4 warps, each with a ring of pages and 16 queries of its own;
 *           chunks: grid = (items, kv_heads), 8 warps of 16 queries that share a ring of blocks of 64 positions;
 *           fold: grid = (folds, kv_heads), 4 warps that take queries in turn
 * Traffic   tiles: 4*dim B a position and KV head, once for all query heads of the group (they are rows of one MMA tile):
 *           memory bound. chunks: the same for 128 queries: bound by matrix units
 * Numerics  A query's sums are: for each split of 256 positions, in blocks of 64 counted from position 0, an online
 *           softmax (Milakov & Gimelshein 2018) whose scores are chains of m16n8k16 over dim and whose sums are chains of
 *           m16n8k16 over positions; then the splits folded in order (Flash-Decoding: Dao et al. 2023). Every kernel
 *           below runs the same code on the same fragments, so a row has the same bits decoded alone, in a chunk or in a
 *           draft tree, and however splits are shared out. What a query does not see gets the weight 0 and changes
 *           nothing: 0 times a finite value is added, sums are scaled by 2^0, and the last step makes every zero +0.
 * Why       heads of a group share a tile: decode reads each key once. Splits: one long sequence fills the device. */
#include "kernels/cuda/bits.cuh"
#include "kernels/cuda/launch.cuh"

#include <limits.h>

#define MAX_START (-1e30f)         /* finite: where nothing is seen sums must stay as they are */
#define PAGES_A_BLOCK (ATTEND_BLOCK / CUDA_PAGE)
#define BLOCKS_A_SPLIT (ATTEND_SPLIT / ATTEND_BLOCK)

static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ---- one warp: 16 queries; a lane has parts of queries g = lane / 4 and g + 8 ---- */

template <int DIM>
struct sums {
    float out[DIM / 8][4];
    float max[2], weight[2];
};

template <int DIM>
static __device__ __forceinline__ void sums_clear(struct sums<DIM> &s)
{
#pragma unroll
    for (int i = 0; i < DIM / 8; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            s.out[i][j] = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        s.max[i] = MAX_START;
        s.weight[i] = 0;
    }
}

/* What turns sums relative to 2^a and to 2^b into sums relative to 2^max. */
struct turn { float max, a, b; };

static __device__ __forceinline__ struct turn turn_of(float a, float b)
{
    struct turn t;

    t.max = fmaxf(a, b);
    t.a = exp2_fast(__fsub_rn(a, t.max));
    t.b = exp2_fast(__fsub_rn(b, t.max));
    return t;
}

static __device__ __forceinline__ float folded(const struct turn &t, float a, float b)
{
    return __fadd_rn(__fmul_rn(a, t.a), __fmul_rn(b, t.b));
}

static __device__ __forceinline__ uint32_t finished(float x, float y, float inverse)
{
    return bf16_pair(__fadd_rn(__fmul_rn(x, inverse), 0.0f), __fadd_rn(__fmul_rn(y, inverse), 0.0f));
}

/* Scores of a page: s[0], s[1] are its positions 0-7 and 8-15. */
template <int DIM>
static __device__ __forceinline__ void page_score(float (*s)[4], const uint32_t (*q)[4], uint32_t keys)
{
    int lane = threadIdx.x % 32, row = lane % 8 + lane / 16 * 8, odd = lane / 8 % 2;

#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            s[i][j] = 0;
#pragma unroll
    for (int k = 0; k < DIM / 16; k++) {
        uint32_t b[4];

        load_matrices(b, chunk_at<DIM>(keys, row, 2 * k + odd));
        mma_16816(s[0], q[k], b[0], b[1]);
        mma_16816(s[1], q[k], b[2], b[3]);
    }
}

/* Adds a page's weighted values; p: the weights in the place of its scores. */
template <int DIM>
static __device__ __forceinline__ void page_add(struct sums<DIM> &sums, const float (*p)[4], uint32_t values)
{
    int lane = threadIdx.x % 32, row = lane % 16, odd = lane / 16;
    uint32_t a[4] = { bf16_pair(p[0][0], p[0][1]), bf16_pair(p[0][2], p[0][3]), bf16_pair(p[1][0], p[1][1]),
                      bf16_pair(p[1][2], p[1][3]) };

#pragma unroll
    for (int i = 0; i < DIM / 8; i += 2) {
        uint32_t b[4];

        load_matrices_turned(b, chunk_at<DIM>(values, row, i + odd));
        mma_16816(sums.out[i], a, b[0], b[1]);
        mma_16816(sums.out[i + 1], a, b[2], b[3]);
    }
}

/* Positions that the lane's two queries see (last -1: none); those that all queries of the warp see. */
struct seen { int first[2], last[2], all_first, all_last; };

/* Scores of a block to weights; the sums turn to the new maximum. halves 1: queries from 8 on are not there, and nobody
 * reads what becomes of them. */
template <int DIM>
static __device__ __forceinline__ void block_weigh(struct sums<DIM> &sums, float (*s)[4], const struct seen &seen,
                                                   int block, int halves, float softcap)
{
    int at = block * ATTEND_BLOCK + threadIdx.x % 4 * 2;

    if (softcap > 0)
#pragma unroll
        for (int i = 0; i < ATTEND_BLOCK / 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                s[i][j] = softcap * tanhf(s[i][j] / softcap);
    if (block * ATTEND_BLOCK < seen.all_first || (block + 1) * ATTEND_BLOCK - 1 > seen.all_last)
#pragma unroll
        for (int i = 0; i < ATTEND_BLOCK / 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int p = at + i * 8 + j % 2;

                s[i][j] = p >= seen.first[j / 2] && p <= seen.last[j / 2] ? s[i][j] : -INFINITY;
            }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (h == halves)
            break;
        float max = sums.max[h], turn, weight = sums.weight[h];

#pragma unroll
        for (int i = 0; i < ATTEND_BLOCK / 8; i++)
            max = fmaxf(max, fmaxf(s[i][2 * h], s[i][2 * h + 1]));
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
        turn = exp2_fast(__fsub_rn(sums.max[h], max));
        weight = __fmul_rn(weight, turn);
#pragma unroll
        for (int i = 0; i < ATTEND_BLOCK / 8; i++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                s[i][2 * h + j] = exp2_fast(__fsub_rn(s[i][2 * h + j], max));
                weight = __fadd_rn(weight, s[i][2 * h + j]);
            }
        sums.max[h] = max;
        sums.weight[h] = weight;
#pragma unroll
        for (int i = 0; i < DIM / 8; i++) {
            sums.out[i][2 * h] = __fmul_rn(sums.out[i][2 * h], turn);
            sums.out[i][2 * h + 1] = __fmul_rn(sums.out[i][2 * h + 1], turn);
        }
    }
}

/* The four lanes of a query hold weights of different positions: one sum, the same in all. */
template <int DIM>
static __device__ __forceinline__ void weights_join(struct sums<DIM> &s)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        s.weight[h] = __fadd_rn(s.weight[h], __shfl_xor_sync(0xffffffffu, s.weight[h], 1));
        s.weight[h] = __fadd_rn(s.weight[h], __shfl_xor_sync(0xffffffffu, s.weight[h], 2));
    }
}

template <int DIM>
static __device__ __forceinline__ void sums_fold(struct sums<DIM> &all, const struct sums<DIM> &s)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        struct turn t = turn_of(all.max[h], s.max[h]);

        all.max[h] = t.max;
        all.weight[h] = folded(t, all.weight[h], s.weight[h]);
#pragma unroll
        for (int i = 0; i < DIM / 8; i++) {
            all.out[i][2 * h] = folded(t, all.out[i][2 * h], s.out[i][2 * h]);
            all.out[i][2 * h + 1] = folded(t, all.out[i][2 * h + 1], s.out[i][2 * h + 1]);
        }
    }
}

/* ---- queries of a warp ---- */

struct place { int row, head; };               /* row -1: no such query */

static __device__ __forceinline__ struct place place_of(const struct launch_attention &a, const struct attend_item &item,
                                                        int query)
{
    int group = a.heads_n / a.kv_heads_n, q = item.query + query;
    struct place p = { -1, 0 };

    if (query < item.queries_n) {
        p.row = item.row + q / group;
        p.head = blockIdx.y * group + q % group;
    }
    return p;
}

template <int DIM>
static __device__ __forceinline__ void queries_load(const struct launch_attention &a, const struct attend_item &item,
                                                    int first, uint32_t (*q)[4], struct seen *seen)
{
    int lane = threadIdx.x % 32;

#pragma unroll
    for (int h = 0; h < 2; h++) {
        struct place p = place_of(a, item, first + lane / 4 + 8 * h);
        const uint16_t *from = a.q + ((size_t)p.row * a.heads_n + p.head) * a.dim;

#pragma unroll
        for (int k = 0; k < DIM / 16; k++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                int at = k * 16 + j * 8 + lane % 4 * 2;

                q[k][h + 2 * j] = p.row >= 0 && at < a.dim ? *(const uint32_t *)(from + at) : 0;
            }
        seen->last[h] = p.row >= 0 ? a.pos[p.row] : -1;
        seen->first[h] = a.window > 0 ? seen->last[h] - a.window + 1 : 0;
    }
    /* a query that is not there has zeros for a query and nobody who reads its result: it may see anything */
    seen->all_last = INT_MAX;
    seen->all_first = 0;
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (seen->last[h] >= 0) {
            seen->all_last = min(seen->all_last, seen->last[h]);
            seen->all_first = max(seen->all_first, seen->first[h]);
        }
    seen->all_last = __reduce_min_sync(0xffffffffu, seen->all_last);
    seen->all_first = __reduce_max_sync(0xffffffffu, seen->all_first);
}

/* ---- keys and values through shared memory ---- */

/* Loads come in units of UNIT pages: keys of a unit, ..., values of a unit, ... of each block in turn, into a ring of
 * SLOTS; THREADS threads share it. Page numbers are fetched a block ahead: an address that waits for one waits as long as
 * for a page itself. */
template <int DIM, int UNIT, int SLOTS, int THREADS>
struct ring {
    static const int COPIES = UNIT * CUDA_PAGE * (DIM / 8) / THREADS;      /* of 16 bytes, of one thread, in a unit */
    static const int NUMBERS = UNIT == 1 ? PAGES_A_BLOCK : COPIES;         /* pages that a thread copies from in a block */
    uint32_t base;
    const uint16_t *part;          /* keys of page 0, this layer and head */
    const int32_t *pages, *tree;   /* tree: NULL for a chain */
    size_t page_elems;
    int dim, swizzle, cached_n;
    bool plain;                    /* pages are copied as they lie: a chain, and rows of DIM */
    int end;                       /* first position that nobody sees */
    int block, blocks_end, unit;   /* next load: units of keys, then of values */
    int slot_in, slot_out;
    int page[NUMBERS], next[NUMBERS];          /* of this block and the one after */
};

#define UNIT_BYTES (UNIT * CUDA_PAGE * DIM * 2)
#define UNITS_A_BLOCK (PAGES_A_BLOCK / UNIT)

/* Units of this block that hold seen positions. */
template <int UNIT>
static __device__ __forceinline__ int units_of(int end, int block)
{
    int left = end - block * ATTEND_BLOCK, units = (left + UNIT * CUDA_PAGE - 1) / (UNIT * CUDA_PAGE);

    return units < UNITS_A_BLOCK ? units : UNITS_A_BLOCK;
}

#define PART_BYTES (CUDA_PAGE * DIM * 2)       /* keys or values of a page */

/* Numbers of the pages of a block that this thread copies from; where nothing is seen any page will do. */
template <int DIM, int UNIT, int SLOTS, int THREADS>
static __device__ __forceinline__ void pages_fetch(const struct ring<DIM, UNIT, SLOTS, THREADS> &r, int block, int *page)
{
    int thread = threadIdx.x % THREADS;

#pragma unroll
    for (int i = 0; i < r.NUMBERS; i++) {
        int p = block * ATTEND_BLOCK + (UNIT == 1 ? i : (i * THREADS + thread) * 16 / PART_BYTES) * CUDA_PAGE;

        page[i] = p < r.end && block < r.blocks_end ? r.pages[p / CUDA_PAGE] : 0;
    }
}

/* Position by position: rows of a draft tree, whose slots are anywhere, and heads that do not fill a row of DIM. */
template <int DIM, int UNIT, int SLOTS, int THREADS>
static __device__ __forceinline__ void unit_gather(const struct ring<DIM, UNIT, SLOTS, THREADS> &r, uint32_t to, int first,
                                                   bool values)
{
#pragma unroll 1
    for (int i = threadIdx.x % THREADS; i < UNIT * CUDA_PAGE * (DIM / 8); i += THREADS) {
        int row = i / (DIM / 8), chunk = i % (DIM / 8), p = first + row, slot = p;
        const uint16_t *from = r.part;
        bool there = p < r.end && chunk * 8 < r.dim;

        if (there) {
            if (r.tree != NULL && p >= r.cached_n)
                slot = r.tree[p - r.cached_n];
            from += (size_t)r.pages[slot / CUDA_PAGE] * r.page_elems +
                    (size_t)((values ? CUDA_PAGE : 0) + slot % CUDA_PAGE) * r.dim + (chunk ^ (slot & r.swizzle)) * 8;
        }
        copy_async(chunk_at<DIM>(to, row, chunk), from, there);
    }
}

template <int DIM, int UNIT, int SLOTS, int THREADS>
static __device__ __forceinline__ void ring_load(struct ring<DIM, UNIT, SLOTS, THREADS> &r)
{
    int thread = threadIdx.x % THREADS;

    if (r.block < r.blocks_end) {
        int units = units_of<UNIT>(r.end, r.block), unit = r.unit < units ? r.unit : r.unit - units;
        const bool values = r.unit >= units;
        uint32_t to = r.base + (uint32_t)(r.slot_in * UNIT_BYTES);

        if (r.plain) {
            const uint16_t *from = r.part + (values ? PART_BYTES / 2 : 0);
            int number = r.page[0];

            if (UNIT == 1) {       /* no run-time index into registers */
                number = unit == 1 ? r.page[1 % r.NUMBERS] : number;
                number = unit == 2 ? r.page[2 % r.NUMBERS] : number;
                number = unit == 3 ? r.page[3 % r.NUMBERS] : number;
                from += (size_t)number * r.page_elems + thread * 8;
            }
#pragma unroll
            for (int i = 0; i < r.COPIES; i++) {
                int at = (i * THREADS + thread) * 16;

                if (UNIT == 1)
                    copy_async(to + at, from + i * THREADS * 8, true);
                else
                    copy_async(to + at, from + (size_t)r.page[i] * r.page_elems + at % PART_BYTES / 2, true);
            }
        } else {
            unit_gather(r, to, r.block * ATTEND_BLOCK + unit * UNIT * CUDA_PAGE, values);
        }
        r.slot_in = r.slot_in == SLOTS - 1 ? 0 : r.slot_in + 1;
        if (++r.unit == 2 * units) {
            r.unit = 0;
            r.block++;
#pragma unroll
            for (int i = 0; i < r.NUMBERS; i++)
                r.page[i] = r.next[i];
            pages_fetch(r, r.block + 1, r.next);
        }
    }
    copies_commit();               /* a group for every turn, so that the count of waiting ones is right */
}

/* Waits for the oldest unit, then starts a load into the place of the one before it. */
template <int DIM, int UNIT, int SLOTS, int THREADS>
static __device__ __forceinline__ uint32_t ring_next(struct ring<DIM, UNIT, SLOTS, THREADS> &r)
{
    uint32_t at = r.base + (uint32_t)(r.slot_out * UNIT_BYTES);

    r.slot_out = r.slot_out == SLOTS - 1 ? 0 : r.slot_out + 1;
    copies_wait<SLOTS - 2>();
    if (THREADS == 32)
        __syncwarp();
    else
        __syncthreads();
    ring_load(r);
    return at;
}

/* A block's sums by one warp. busy: the warp's queries see some of it. */
template <int DIM, int UNIT, int SLOTS, int THREADS>
static __device__ __forceinline__ void block_run(struct ring<DIM, UNIT, SLOTS, THREADS> &ring, struct sums<DIM> &sums,
                                                 const uint32_t (*q)[4], const struct seen &seen, int block, bool busy,
                                                 int halves, float softcap)
{
    int units = units_of<UNIT>(ring.end, block);
    float s[ATTEND_BLOCK / 8][4];

#pragma unroll
    for (int u = 0; u < UNITS_A_BLOCK; u++) {
        if (u < units) {
            uint32_t at = ring_next(ring);

#pragma unroll
            for (int p = 0; p < UNIT; p++)
                if (busy)
                    page_score<DIM>(s + (u * UNIT + p) * 2, q, at + p * CUDA_PAGE * DIM * 2);
        } else {
#pragma unroll
            for (int i = 0; i < UNIT * 8; i++)
                s[u * UNIT * 2 + i / 4][i % 4] = 0;
        }
    }
    if (busy)
        block_weigh(sums, s, seen, block, halves, softcap);
#pragma unroll
    for (int u = 0; u < UNITS_A_BLOCK; u++)
        if (u < units) {
            uint32_t at = ring_next(ring);

#pragma unroll
            for (int p = 0; p < UNIT; p++)
                if (busy)
                    page_add(sums, s + (u * UNIT + p) * 2, at + p * CUDA_PAGE * DIM * 2);
        }
}

/* ---- results ---- */

template <int DIM>
static __device__ __forceinline__ void sums_store(const struct launch_attention &a, const struct attend_item &item,
                                                  const struct sums<DIM> &s, int first)
{
    int lane = threadIdx.x % 32;

#pragma unroll
    for (int h = 0; h < 2; h++) {
        int query = first + lane / 4 + 8 * h;
        size_t entry = ((size_t)item.entry + query) * a.kv_heads_n + blockIdx.y;

        if (query >= item.queries_n)
            continue;
        if (lane % 4 == 0)
            a.weights[entry] = make_float2(s.max[h], s.weight[h]);
#pragma unroll
        for (int i = 0; i < DIM / 8; i++) {
            int at = i * 8 + lane % 4 * 2;

            if (at < a.dim)
                *(float2 *)(a.sums + entry * a.dim + at) = make_float2(s.out[i][2 * h], s.out[i][2 * h + 1]);
        }
    }
}

template <int DIM>
static __device__ __forceinline__ void sums_finish(const struct launch_attention &a, const struct attend_item &item,
                                                   const struct sums<DIM> &s, int first)
{
    int lane = threadIdx.x % 32;

#pragma unroll
    for (int h = 0; h < 2; h++) {
        struct place p = place_of(a, item, first + lane / 4 + 8 * h);
        uint16_t *to = a.out + ((size_t)p.row * a.heads_n + p.head) * a.dim;
        float inverse = __frcp_rn(s.weight[h]);

        if (p.row < 0)
            continue;
#pragma unroll
        for (int i = 0; i < DIM / 8; i++) {
            int at = i * 8 + lane % 4 * 2;

            if (at < a.dim)
                *(uint32_t *)(to + at) = finished(s.out[i][2 * h], s.out[i][2 * h + 1], inverse);
        }
    }
}

/* Last position that some query of [first, first + n) of the item sees, and the first: positions rise with queries. */
static __device__ __forceinline__ int last_seen(const struct launch_attention &a, const struct attend_item &item,
                                                int first, int n)
{
    int last = first + n < item.queries_n ? first + n : item.queries_n;

    return last > first ? a.pos[place_of(a, item, last - 1).row] : -1;
}

static __device__ __forceinline__ int first_seen(const struct launch_attention &a, const struct attend_item &item,
                                                 int first)
{
    int pos = first < item.queries_n ? a.pos[place_of(a, item, first).row] : 0;

    return a.window > 0 && pos >= a.window ? pos - a.window + 1 : 0;
}

template <int DIM, int UNIT, int SLOTS, int THREADS>
static __device__ __forceinline__ void ring_open(struct ring<DIM, UNIT, SLOTS, THREADS> &r,
                                                 const struct launch_attention &a, const struct attend_item &item,
                                                 uint32_t base, int block, int blocks_end, int end)
{
    r.base = base;
    r.part = a.kv + (size_t)blockIdx.y * 2 * CUDA_PAGE * a.dim;
    r.pages = a.pages + item.pages;
    r.tree = item.tree >= 0 ? a.tree + item.tree : NULL;
    r.page_elems = a.page_elems;
    r.dim = a.dim;
    r.swizzle = a.swizzle;
    r.cached_n = item.cached_n;
    r.plain = item.tree < 0 && a.dim == DIM;
    r.end = end;
    r.block = block;
    r.blocks_end = blocks_end;
    r.unit = r.slot_in = r.slot_out = 0;
    pages_fetch(r, block, r.page);
    pages_fetch(r, block + 1, r.next);
#pragma unroll
    for (int i = 0; i < SLOTS - 1; i++)
        ring_load(r);
}

/* ---- kernels ---- */

#define TILE_WARPS 4
#define TILE_SLOTS 6
#define CHUNK_WARPS (ATTEND_CHUNK_QUERIES / 16)
#define CHUNK_SLOTS 4
#define FOLD_AHEAD 8               /* splits whose sums are on the way together */

extern __shared__ __align__(128) char shared[];

template <int DIM>
static __global__ void __launch_bounds__(TILE_WARPS * 32, DIM == 64 ? 3 : DIM == 128 ? 2 : 1) attend_tiles(struct launch_attention a,
                                                                       const struct attend_item *items, int items_n)
{
    int warp = threadIdx.x / 32, index = blockIdx.x * TILE_WARPS + warp;

    successor_start();
    predecessor_wait();
    if (index >= items_n)
        return;                    /* warps never wait for one another here */
    struct attend_item item = items[index];
    int end = last_seen(a, item, 0, ATTEND_TILE_QUERIES) + 1;
    int block = first_seen(a, item, 0) / ATTEND_BLOCK, blocks_end = (end + ATTEND_BLOCK - 1) / ATTEND_BLOCK;
    uint32_t base = (uint32_t)__cvta_generic_to_shared(shared) + warp * TILE_SLOTS * CUDA_PAGE * DIM * 2;
    struct ring<DIM, 1, TILE_SLOTS, 32> ring;
    struct sums<DIM> sums;
    struct seen seen;
    uint32_t q[DIM / 16][4];

    block = max(block, item.split * BLOCKS_A_SPLIT);
    blocks_end = min(blocks_end, (item.split + 1) * BLOCKS_A_SPLIT);
    ring_open(ring, a, item, base, block, blocks_end, end);
    queries_load<DIM>(a, item, 0, q, &seen);
    sums_clear(sums);
    for (; block < blocks_end; block++)
        block_run(ring, sums, q, seen, block, true, item.queries_n > 8 ? 2 : 1, a.softcap);
    weights_join(sums);
    copies_wait<0>();
    if (item.entry >= 0)
        sums_store(a, item, sums, 0);
    else
        sums_finish(a, item, sums, 0);
}

template <int DIM>
static __global__ void __launch_bounds__(CHUNK_WARPS * 32, 1) attend_chunks(struct launch_attention a,
                                                                         const struct attend_item *items)
{
    int warp = threadIdx.x / 32;
    struct attend_item item = items[blockIdx.x];
    int end = last_seen(a, item, 0, ATTEND_CHUNK_QUERIES) + 1, own_last = last_seen(a, item, warp * 16, 16);
    int own_first = first_seen(a, item, warp * 16);
    int block = first_seen(a, item, 0) / ATTEND_BLOCK, blocks_end = (end + ATTEND_BLOCK - 1) / ATTEND_BLOCK;
    struct ring<DIM, PAGES_A_BLOCK, CHUNK_SLOTS, CHUNK_WARPS * 32> ring;
    struct sums<DIM> all, sums;
    struct seen seen;
    uint32_t q[DIM / 16][4];

    ring_open(ring, a, item, (uint32_t)__cvta_generic_to_shared(shared), block, blocks_end, end);
    queries_load<DIM>(a, item, warp * 16, q, &seen);
    sums_clear(all);
    sums_clear(sums);
    for (; block < blocks_end; block++) {
        bool busy = block * ATTEND_BLOCK <= own_last && (block + 1) * ATTEND_BLOCK > own_first;

        block_run(ring, sums, q, seen, block, busy, 2, a.softcap);
        if ((block + 1) % BLOCKS_A_SPLIT == 0 || block + 1 == blocks_end) {
            weights_join(sums);
            sums_fold(all, sums);
            sums_clear(sums);
        }
    }
    copies_wait<0>();
    sums_finish(a, item, all, warp * 16);
}

static __global__ void __launch_bounds__(128) attend_fold(struct launch_attention a, const struct attend_fold *folds)
{
    struct attend_fold f = folds[blockIdx.x];
    int group = a.heads_n / a.kv_heads_n, lane = threadIdx.x % 32;

    successor_start();
    predecessor_wait();
    for (int i = threadIdx.x / 32; i < f.queries_n; i += 4) {
        int query = f.query + i, row = f.row + query / group, head = blockIdx.y * group + query % group;
        uint16_t *to = a.out + ((size_t)row * a.heads_n + head) * a.dim;

        for (int at = lane * 2; at < a.dim; at += 64) {
            float max = MAX_START, weight = 0, x = 0, y = 0;

            for (int first = 0; first < f.splits_n; first += FOLD_AHEAD) {
                float2 w[FOLD_AHEAD], v[FOLD_AHEAD];

#pragma unroll
                for (int j = 0; j < FOLD_AHEAD; j++)
                    if (first + j < f.splits_n) {
                        size_t entry = ((size_t)f.entry + (size_t)(first + j) * f.queries_n + i) * a.kv_heads_n + blockIdx.y;

                        w[j] = a.weights[entry];
                        v[j] = *(const float2 *)(a.sums + entry * a.dim + at);
                    }
#pragma unroll
                for (int j = 0; j < FOLD_AHEAD; j++)
                    if (first + j < f.splits_n) {
                        struct turn t = turn_of(max, w[j].x);

                        max = t.max;
                        weight = folded(t, weight, w[j].y);
                        x = folded(t, x, v[j].x);
                        y = folded(t, y, v[j].y);
                    }
            }
            *(uint32_t *)(to + at) = finished(x, y, __frcp_rn(weight));
        }
    }
}

/* ---- launchers ---- */

static const int tile_bytes = TILE_WARPS * TILE_SLOTS * CUDA_PAGE * 2, chunk_bytes = CHUNK_SLOTS * ATTEND_BLOCK * 2;

template <int DIM>
static cudaError_t init(void)
{
    cudaError_t e = cudaFuncSetAttribute(attend_tiles<DIM>, cudaFuncAttributeMaxDynamicSharedMemorySize, tile_bytes * DIM);

    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(attend_chunks<DIM>, cudaFuncAttributeMaxDynamicSharedMemorySize, chunk_bytes * DIM);
    return e;
}

cudaError_t launch_attend_init(void)
{
    cudaError_t e = init<64>();

    if (e == cudaSuccess)
        e = init<128>();
    return e == cudaSuccess ? init<256>() : e;
}

template <int DIM>
static cudaError_t tiles(cudaStream_t s, const struct launch_attention *a, const struct attend_item *items, int items_n)
{
    return launch_close(attend_tiles<DIM>, dim3((unsigned)((items_n + TILE_WARPS - 1) / TILE_WARPS), (unsigned)a->kv_heads_n),
                        TILE_WARPS * 32, tile_bytes * DIM, s, *a, items, items_n);
}

template <int DIM>
static cudaError_t chunks(cudaStream_t s, const struct launch_attention *a, const struct attend_item *items, int items_n)
{
    attend_chunks<DIM><<<dim3((unsigned)items_n, (unsigned)a->kv_heads_n), CHUNK_WARPS * 32, chunk_bytes * DIM, s>>>(*a, items);
    return cudaGetLastError();
}

cudaError_t launch_attend_tiles(cudaStream_t s, const struct launch_attention *a, const struct attend_item *items,
                                int items_n)
{
    return a->dim <= 64 ? tiles<64>(s, a, items, items_n) : a->dim <= 128 ? tiles<128>(s, a, items, items_n)
                                                                         : tiles<256>(s, a, items, items_n);
}

cudaError_t launch_attend_chunks(cudaStream_t s, const struct launch_attention *a, const struct attend_item *items,
                                 int items_n)
{
    return a->dim <= 64 ? chunks<64>(s, a, items, items_n) : a->dim <= 128 ? chunks<128>(s, a, items, items_n)
                                                                          : chunks<256>(s, a, items, items_n);
}

cudaError_t launch_attend_fold(cudaStream_t s, const struct launch_attention *a, const struct attend_fold *folds,
                               int folds_n)
{
    return launch_close(attend_fold, dim3((unsigned)folds_n, (unsigned)a->kv_heads_n), 128, 0, s, *a, folds);
}
