/* sample: one output's token and log-probabilities from its logits; what kernels.h defines, in the order of cpu/sample.c
 * Shapes    logits [outs, vocab] fp32 (changed by bias and penalties), sampled [outs]
 * Needs     vocab < 2^23, so that sums of masses fit 64 bits and ids fit three digits
 * Launch    grid = outs, block = 512, one output a block; about 12 KB shared
 * Traffic   reads 4*vocab B a pass from L2: one pass greedy, two with noise or top-k, three with top-p
 * Numerics  The k-th largest of the threads' own best is a bound that k tokens reach: what is above it (at most 1,024
 *           tokens, as a rule some hundred) is sorted, and holds what top-k and top-p leave. Where it does not, the last
 *           token that they leave is found digit by digit, by counts or masses of keys (radix selection), which has no
 *           bad case. Masses are integers, so sums do not depend on their order; all else is the arithmetic
 *           of cpu/lanes_body.h and gumbel.h one for one (compiled with -fmad=false): the same token, the same bits.
 * Why       noise is bounded: a logit that cannot reach the best sum so far costs no logarithm and no random word */
#include "kernels/cuda/launch.h"
#include "kernels/gumbel.h"

#define THREADS 512
#define WARPS (THREADS / 32)
#define DIGITS 256
#define LIST_MAX 1024              /* best tokens that are sorted; a power of 2, at least THREADS */
#define LIST_RANK 256              /* the bound for top-p without top-k: so many threads' best reach it */
#define KEY_ALL 0xffffffffffffffffull
#define MASS_ONE 1099511627776.0   /* 2^40 */

struct block_space {
    unsigned count[DIGITS];
    unsigned long long mass[DIGITS];
    unsigned long long words[WARPS];
    double best[WARPS];
    unsigned long long digit;      /* what thread 0 tells all */
    unsigned long long before_mass;
    unsigned before_count;
    unsigned long long top[CUDA_TOP_MAX];
    unsigned top_n;
    unsigned long long list[LIST_MAX];
    unsigned list_n;
};

/* ---- keys: ascending keys are descending values, then ascending ids (cpu/sample.c) ---- */

static __device__ __forceinline__ unsigned value_key(float x)
{
    unsigned u = __float_as_uint(x + 0.0f);

    return (u & 0x80000000u) != 0 ? u : ~u & 0x7fffffffu;
}

static __device__ __forceinline__ float key_value(unsigned key)
{
    return __uint_as_float((key & 0x80000000u) != 0 ? key : ~key & 0x7fffffffu);
}

static __device__ __forceinline__ unsigned long long rank_key(float x, int id)
{
    return (unsigned long long)value_key(x) << 32 | (unsigned)id;
}

/* ---- masses (cpu/lanes_body.h) ---- */

static __device__ __forceinline__ float exp_of(float x)
{
    const float magic = 12582912.0f;
    bool small = x < -87.0f;
    float n, r, p;

    x = small ? 0.0f : x;
    n = (x * 1.44269504f + magic) - magic;
    r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * (r * r) + r) + 1.0f;
    p = __uint_as_float(__float_as_uint(p) + ((unsigned)(int)n << 23));
    return small ? 0.0f : p;
}

static __device__ __forceinline__ unsigned long long mass_of(float l, float max, float inv_t)
{
    float scaled = exp_of((l - max) * inv_t) * 0x1p20f;
    int high = (int)scaled, low = (int)((scaled - (float)high) * 0x1p20f);

    return (unsigned long long)high << 20 | (unsigned long long)low;
}

/* ---- over all threads of the block; every thread gets the result ---- */

static __device__ unsigned long long block_sum(struct block_space *b, unsigned long long x)
{
    for (int i = 16; i > 0; i /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, i);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        b->words[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (int i = 0; i < WARPS; i++)
        x += b->words[i];
    return x;
}

static __device__ unsigned long long block_min(struct block_space *b, unsigned long long x)
{
    for (int i = 16; i > 0; i /= 2)
        x = min(x, __shfl_xor_sync(0xffffffffu, x, i));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        b->words[threadIdx.x / 32] = x;
    __syncthreads();
    x = b->words[0];
    for (int i = 1; i < WARPS; i++)
        x = min(x, b->words[i]);
    return x;
}

/* Key of the best token, and *mine of the best that this thread has seen; *nan: there is a NaN. */
static __device__ unsigned long long best_key(struct block_space *b, const float *l, int vocab, bool *nan,
                                              unsigned long long *mine)
{
    unsigned long long best = KEY_ALL;
    bool bad = false;

    for (int i = threadIdx.x; i < vocab; i += THREADS) {
        float x = l[i];

        bad |= x != x;
        best = min(best, rank_key(x, i));
    }
    *nan = __syncthreads_or(bad) != 0;
    *mine = best;
    return block_min(b, best);
}

/* ---- selection ---- */

/* Tokens that may be chosen from: key <= limit and a value above -inf. */
struct choice {
    const float *l;
    int vocab;
    unsigned long long limit;
    float max, inv_t;
};

static __device__ __forceinline__ bool is_in(const struct choice *c, int i, unsigned *key)
{
    *key = value_key(c->l[i]);
    return *key < 0xff800000u && ((unsigned long long)*key << 32 | (unsigned)i) <= c->limit;
}

static __device__ unsigned long long mass_all(struct block_space *b, const struct choice *c)
{
    unsigned long long sum = 0;
    unsigned key;

    for (int i = threadIdx.x; i < c->vocab; i += THREADS)
        if (is_in(c, i, &key))
            sum += mass_of(c->l[i], c->max, c->inv_t);
    return block_sum(b, sum);
}

static __device__ __forceinline__ bool enough(unsigned long long mass, unsigned long long all, float top_p)
{
    return (double)mass >= (double)all * (double)top_p;
}

struct want { bool by_mass; unsigned count; unsigned long long all; float top_p; };

/* Lanes with the same digit add up first: logits have few different first digits, and one counter takes one at a time. */
static __device__ void digit_add(struct block_space *b, bool counts, unsigned digit, unsigned long long mass, bool by_mass)
{
    unsigned peers = __match_any_sync(0xffffffffu, counts ? digit : DIGITS);
    bool first = (threadIdx.x & 31) == __ffs((int)peers) - 1;

    if (!counts)
        return;
    if (first)
        atomicAdd(&b->count[digit], (unsigned)__popc(peers));
    if (by_mass) {                 /* at most 2^40 each: halves of 20 bits of 32 lanes fit a word */
        unsigned high = __reduce_add_sync(peers, (unsigned)(mass >> 20));
        unsigned low = __reduce_add_sync(peers, (unsigned)mass & 0xfffffu);

        if (first)
            atomicAdd(&b->mass[digit], ((unsigned long long)high << 20) + low);
    }
}

/* The first digit, from the lowest, with which there are enough; the last that holds any if there never are. */
static __device__ void digit_find(struct block_space *b, const struct want *w)
{
    unsigned before = b->before_count, last = 0, last_before = before;
    unsigned long long mass = b->before_mass, last_mass = mass;

    for (unsigned d = 0; d < DIGITS; d++) {
        if (b->count[d] == 0)
            continue;
        last = d;
        last_before = before;
        last_mass = mass;
        before += b->count[d];
        mass += b->mass[d];
        if (w->by_mass ? enough(mass, w->all, w->top_p) : before >= w->count)
            break;
    }
    b->digit = last;
    b->before_count = last_before;
    b->before_mass = last_mass;
}

/* id of the n-th token (from 1) of this key, ids ascending. There are at least n. */
static __device__ unsigned nth_id(struct block_space *b, const struct choice *c, unsigned key, unsigned n)
{
    unsigned id = 0, other;
    struct want w = { false, n, 0, 0 };

    if (threadIdx.x == 0) {
        b->before_count = 0;
        b->before_mass = 0;
    }
    for (int shift = 16; shift >= 0; shift -= 8) {
        __syncthreads();
        for (int d = threadIdx.x; d < DIGITS; d += THREADS)
            b->count[d] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < c->vocab; i += THREADS)
            if (is_in(c, i, &other) && other == key && ((unsigned)i >> shift) >> 8 == id >> shift >> 8)
                atomicAdd(&b->count[(unsigned)i >> shift & 255], 1u);
        __syncthreads();
        if (threadIdx.x == 0)
            digit_find(b, &w);
        __syncthreads();
        id |= (unsigned)b->digit << shift;
    }
    __syncthreads();
    return id;
}

/* Key of the last token of the smallest set of best ones that is enough. The set of c must hold a token. */
static __device__ unsigned long long cut_find(struct block_space *b, const struct choice *c, const struct want *w)
{
    unsigned key = 0, ties, n, low, high;
    unsigned long long before_mass, mass;

    if (threadIdx.x == 0) {
        b->before_count = 0;
        b->before_mass = 0;
    }
    for (int shift = 24; shift >= 0; shift -= 8) {
        __syncthreads();
        for (int d = threadIdx.x; d < DIGITS; d += THREADS) {
            b->count[d] = 0;
            b->mass[d] = 0;
        }
        __syncthreads();
        for (int first = 0; first < c->vocab; first += THREADS) {
            int i = first + threadIdx.x;
            unsigned other = 0;
            bool counts = i < c->vocab && is_in(c, i, &other) && (shift == 24 || other >> (shift + 8) == key >> (shift + 8));
            unsigned long long m = counts && w->by_mass ? mass_of(c->l[i], c->max, c->inv_t) : 0;

            digit_add(b, counts, other >> shift & 255, m, w->by_mass);
        }
        __syncthreads();
        if (threadIdx.x == 0)
            digit_find(b, w);
        __syncthreads();
        key |= (unsigned)b->digit << shift;
    }
    ties = b->count[key & 255];
    n = w->by_mass ? 1 : w->count - b->before_count;
    before_mass = b->before_mass;
    __syncthreads();
    if (w->by_mass) {                          /* ties weigh the same: the fewest of them that are enough */
        mass = mass_of(key_value(key), c->max, c->inv_t);
        for (low = 1, high = ties; low < high;) {
            n = low + (high - low) / 2;
            if (enough(before_mass + n * mass, w->all, w->top_p))
                high = n;
            else
                low = n + 1;
        }
        n = low;
    }
    if (n >= ties && c->limit == KEY_ALL)
        return (unsigned long long)key << 32 | 0xffffffffu;
    return (unsigned long long)key << 32 | nth_id(b, c, key, n < ties ? n : ties);
}

/* ---- the best tokens in order ---- */

/* Bitonic (Batcher 1968); n a power of 2. */
static __device__ void keys_sort(unsigned long long *k, int n)
{
    for (int size = 2; size <= n; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < n / 2; i += THREADS) {
                int low = 2 * i - (i & (step - 1)), high = low + step;
                unsigned long long x = k[low], y = k[high];

                if ((x > y) == ((low & size) == 0)) {
                    k[low] = y;
                    k[high] = x;
                }
            }
        }
    __syncthreads();
}

/* Sorts into b->list all tokens of c that the rank-th of the threads' best (mine) reaches; returns how many, 0: more than
 * there is room for. */
static __device__ int list_make(struct block_space *b, const struct choice *c, unsigned long long mine, int rank)
{
    unsigned long long bound;
    unsigned key;

    b->list[threadIdx.x] = mine;
    keys_sort(b->list, THREADS);
    bound = b->list[rank - 1];
    __syncthreads();
    if (threadIdx.x == 0)
        b->list_n = 0;
    for (int i = threadIdx.x; i < LIST_MAX; i += THREADS)
        b->list[i] = KEY_ALL;
    __syncthreads();
    for (int i = threadIdx.x; i < c->vocab; i += THREADS)
        if (is_in(c, i, &key) && ((unsigned long long)key << 32 | (unsigned)i) <= bound) {
            unsigned at = atomicAdd(&b->list_n, 1u);

            if (at < LIST_MAX)
                b->list[at] = (unsigned long long)key << 32 | (unsigned)i;
        }
    __syncthreads();
    if (b->list_n > LIST_MAX)
        return 0;
    keys_sort(b->list, LIST_MAX);
    return (int)b->list_n;
}

/* Index of the first of n tokens of the list with which there is enough mass; n: there never is. all 0: the mass of the
 * n tokens. */
static __device__ int list_cut(struct block_space *b, const struct choice *c, int n, unsigned long long all, float top_p)
{
    unsigned long long mass[LIST_MAX / THREADS], sum = 0, before, first = (unsigned long long)n;
    int lane = threadIdx.x % 32;

    for (int j = 0; j < LIST_MAX / THREADS; j++) {
        int i = threadIdx.x * (LIST_MAX / THREADS) + j;

        mass[j] = i < n ? mass_of(key_value((unsigned)(b->list[i] >> 32)), c->max, c->inv_t) : 0;
        sum += mass[j];
    }
    if (all == 0)
        all = block_sum(b, sum);
    before = sum;
    for (int i = 1; i < 32; i *= 2) {
        unsigned long long other = __shfl_up_sync(0xffffffffu, before, i);

        before += lane >= i ? other : 0;
    }
    __syncthreads();
    if (lane == 31)
        b->words[threadIdx.x / 32] = before;
    __syncthreads();
    before -= sum;
    for (int i = 0; i < (int)threadIdx.x / 32; i++)
        before += b->words[i];
    for (int j = LIST_MAX / THREADS - 1; j >= 0; j--) {
        int i = threadIdx.x * (LIST_MAX / THREADS) + j;
        unsigned long long with = before;

        for (int k = 0; k <= j; k++)
            with += mass[k];
        if (i < n && enough(with, all, top_p))
            first = (unsigned long long)i;
    }
    return (int)block_min(b, first);
}

/* ---- log-probabilities of the untouched logits ---- */

static __device__ float logprob_of(float l, float max, double sum)
{
    if (l == max && max != -INFINITY)
        return (float)-sum;
    return (float)((double)l - (double)max - sum);
}

static __device__ double log_sum(struct block_space *b, const float *l, int vocab, float max)
{
    struct choice all = { l, vocab, KEY_ALL, max, 1 };
    unsigned long long n = 0;

    if (!isinf(max))
        return gumbel_ln((double)mass_all(b, &all) / MASS_ONE);
    for (int i = threadIdx.x; i < vocab; i += THREADS)
        n += l[i] == max;
    return gumbel_ln((double)block_sum(b, n));
}

static __device__ unsigned count_all(struct block_space *b, const struct choice *c)
{
    unsigned long long n = 0;
    unsigned key;

    for (int i = threadIdx.x; i < c->vocab; i += THREADS)
        n += is_in(c, i, &key);
    return (unsigned)block_sum(b, n);
}

static __device__ void top_list(struct block_space *b, const float *l, int vocab, float max, double sum, int n,
                                struct launch_sampled *out)
{
    struct choice c = { l, vocab, KEY_ALL, max, 1 };
    struct want w = { false, 0, 0, 0 };
    unsigned there = n > 0 ? count_all(b, &c) : 0, key;

    w.count = there < (unsigned)n ? there : (unsigned)n;
    if (w.count > 0) {
        c.limit = cut_find(b, &c, &w);
        if (threadIdx.x == 0)
            b->top_n = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < vocab; i += THREADS)
            if (is_in(&c, i, &key))
                b->top[atomicAdd(&b->top_n, 1u)] = rank_key(l[i], i);
        __syncthreads();
    }
    if (threadIdx.x != 0)
        return;
    out->top_n = (int32_t)w.count;
    for (unsigned i = 0; i < w.count; i++) {
        unsigned long long best = b->top[i];
        unsigned at = i;

        for (unsigned j = i + 1; j < w.count; j++)
            if (b->top[j] < best)
                best = b->top[at = j];
        b->top[at] = b->top[i];
        out->top[i].token = (int32_t)(unsigned)best;
        out->top[i].logprob = logprob_of(l[(unsigned)best], max, sum);
    }
}

/* ---- bias and penalties ---- */

struct edits {
    const struct launch_sampling *p;
    const struct launch_bias_entry *bias;      /* [p->bias_n] */
    const struct launch_seen_entry *seen;      /* [p->seen_n] */
    float *bias_raw, *seen_raw;                /* their untouched logits */
};

static __device__ void logits_adjust(const struct edits *e, float *l)
{
    const struct launch_sampling *p = e->p;

    for (int i = threadIdx.x; i < p->bias_n; i += THREADS)
        e->bias_raw[i] = l[e->bias[i].token];
    for (int i = threadIdx.x; i < p->seen_n; i += THREADS)
        e->seen_raw[i] = l[e->seen[i].token];
    __syncthreads();
    for (int i = threadIdx.x; i < p->bias_n; i += THREADS) {
        float *x = &l[e->bias[i].token];

        *x = e->bias[i].add == -INFINITY ? -INFINITY : *x + e->bias[i].add;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < p->seen_n; i += THREADS) {
        float *x = &l[e->seen[i].token], y = *x;

        y = y > 0 ? y / p->repetition : y * p->repetition;
        y -= p->frequency * (float)e->seen[i].output_n;
        y -= e->seen[i].output_n > 0 ? p->presence : 0;
        *x = y;
    }
    __syncthreads();
}

/* By thread 0 alone. */
static __device__ float raw_of(const struct edits *e, const float *l, int token)
{
    for (int i = 0; i < e->p->bias_n; i++)
        if (e->bias[i].token == token)
            return e->bias_raw[i];
    for (int i = 0; i < e->p->seen_n; i++)
        if (e->seen[i].token == token)
            return e->seen_raw[i];
    return l[token];
}

/* ---- noise ---- */

struct race {
    const float *l;
    const struct launch_sampling *p;
    float max, inv_t, floor, need;
    unsigned long long cut;
    double best;
    int token;
};

static __device__ void race_enter(struct race *r, int id, unsigned word)
{
    float l = r->l[id];
    double sum = (double)l / (double)r->p->temperature + gumbel_noise(word);

    if (l == -INFINITY || rank_key(l, id) > r->cut)
        return;
    if (r->token >= 0 && (sum < r->best || (sum == r->best && id > r->token)))
        return;
    if (r->p->min_p > 0 && exp_of((l - r->max) * r->inv_t) < r->p->min_p)
        return;
    r->best = sum;
    r->token = id;
    r->need = (float)(sum - 1e-3 - 2e-6 * fabs(sum));
}

/* Four tokens share a random block; most need none. */
static __device__ void race_quad(struct race *r, int quad, int vocab)
{
    bool may[4], any = false;

    for (int j = 0; j < 4; j++) {
        float l = quad * 4 + j < vocab ? r->l[quad * 4 + j] : -INFINITY;

        may[j] = l >= r->floor && l > -INFINITY && l * r->inv_t + (float)GUMBEL_MAX >= r->need;
        any |= may[j];
    }
    if (!any)
        return;
    struct philox words = philox_words(r->p->seed, (uint64_t)r->p->pos, (uint32_t)quad);

    for (int j = 0; j < 4; j++) {
        /* with z leading ones 1 - u > 2^-(z+1), so the noise is below (z + 1) ln 2 */
        float most = (float)(__clz((int)~words.v[j]) + 1) * 0.69315f;

        if (may[j] && r->l[quad * 4 + j] * r->inv_t + most >= r->need)
            race_enter(r, quad * 4 + j, words.v[j]);
    }
}

static __device__ void race_enter_alone(struct race *r, int id)
{
    race_enter(r, id, philox_words(r->p->seed, (uint64_t)r->p->pos, (uint32_t)id / 4).v[id % 4]);
}

/* The winner among those that the threads have found. */
static __device__ int race_end(struct block_space *b, struct race *r)
{
    for (int i = 16; i > 0; i /= 2) {
        double other = __shfl_xor_sync(0xffffffffu, r->best, i);
        int token = __shfl_xor_sync(0xffffffffu, r->token, i);

        if (token >= 0 && (r->token < 0 || other > r->best || (other == r->best && token < r->token))) {
            r->best = other;
            r->token = token;
        }
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        b->best[threadIdx.x / 32] = r->best;
        b->words[threadIdx.x / 32] = (unsigned)r->token;
    }
    __syncthreads();
    for (int i = 0; i < WARPS; i++) {
        int token = (int)(unsigned)b->words[i];

        if (token >= 0 && (r->token < 0 || b->best[i] > r->best || (b->best[i] == r->best && token < r->token))) {
            r->best = b->best[i];
            r->token = token;
        }
    }
    return r->token;
}

/* All tokens up to the key r->cut. */
static __device__ int race_run(struct block_space *b, struct race *r, int likeliest, int vocab)
{
    race_enter_alone(r, likeliest);
    for (int quad = threadIdx.x; quad < (vocab + 3) / 4; quad += THREADS)
        race_quad(r, quad, vocab);
    return race_end(b, r);
}

/* The first n tokens of the list. */
static __device__ int race_list(struct block_space *b, struct race *r, int n)
{
    for (int i = threadIdx.x; i < n; i += THREADS)
        race_enter_alone(r, (int)(unsigned)b->list[i]);
    return race_end(b, r);
}

/* ---- one output ---- */

/* How many tokens of the list top-k and top-p leave; 0: the list does not hold them all. */
static __device__ int list_leave(struct block_space *b, const struct choice *c, const struct launch_sampling *p,
                                 unsigned long long mine)
{
    bool by_rank = p->top_k > 0 && p->top_k < c->vocab;
    unsigned long long all = 0;
    int n, cut;

    if (by_rank && p->top_k > THREADS)
        return 0;
    n = list_make(b, c, mine, by_rank ? p->top_k : LIST_RANK);
    n = by_rank && n > p->top_k ? p->top_k : n;
    if (n == 0 || p->top_p >= 1)
        return n;
    if (!by_rank)
        all = mass_all(b, c);
    cut = list_cut(b, c, n, all, p->top_p);
    if (cut == n)                  /* by rank the last one ends the set; by mass the rest of it is not in the list */
        return by_rank ? n : 0;
    return cut + 1;
}

static __device__ unsigned long long cut_of(struct block_space *b, struct choice c, const struct launch_sampling *p)
{
    struct want w = { false, 0, 0, p->top_p };

    if (p->top_k > 0 && p->top_k < c.vocab) {
        unsigned there = count_all(b, &c);

        w.count = there < (unsigned)p->top_k ? there : (unsigned)p->top_k;
        c.limit = cut_find(b, &c, &w);
    }
    if (p->top_p >= 1)
        return c.limit;
    w.by_mass = true;
    w.all = mass_all(b, &c);
    return cut_find(b, &c, &w);
}

/* top: key of the best untouched logit; mine: of the best that this thread has seen. */
static __device__ int token_choose(struct block_space *b, const struct edits *e, float *l, int vocab,
                                   unsigned long long top, unsigned long long mine)
{
    const struct launch_sampling *p = e->p;
    float inv_t = 1.0f / p->temperature, max;
    bool nan = false;
    int n;

    if (p->bias_n + p->seen_n > 0) {
        logits_adjust(e, l);
        top = best_key(b, l, vocab, &nan, &mine);
    }
    max = key_value((unsigned)(top >> 32));
    if (nan || max == -INFINITY)
        return -1;
    if (p->temperature <= 0 || max == INFINITY)
        return (int)(unsigned)top;
    inv_t = isinf(inv_t) ? 3e38f : inv_t;
    struct race r = { l, p, max, inv_t, -INFINITY, -INFINITY, KEY_ALL, -INFINITY, -1 };
    struct choice c = { l, vocab, KEY_ALL, max, inv_t };

    if ((p->top_k > 0 && p->top_k < vocab) || p->top_p < 1) {
        n = list_leave(b, &c, p, mine);
        if (n > 0)
            return race_list(b, &r, n);
        r.cut = cut_of(b, c, p);
        r.floor = key_value((unsigned)(r.cut >> 32));
    }
    if (p->min_p > 0)
        r.floor = fmaxf(r.floor, (float)(max + (gumbel_ln(p->min_p) - 1e-3) * p->temperature - fabs((double)max) * 1e-6));
    return race_run(b, &r, (int)(unsigned)top, vocab);
}

static __global__ void __launch_bounds__(THREADS) sample(float *logits, int vocab, const struct launch_sampling *sampling,
                                                         const struct launch_bias_entry *bias,
                                                         const struct launch_seen_entry *seen, int biases_n, float *raw,
                                                         struct launch_sampled *sampled)
{
    __shared__ struct block_space space;
    struct block_space *b = &space;
    const struct launch_sampling *p = &sampling[blockIdx.x];
    struct launch_sampled *out = &sampled[blockIdx.x];
    struct edits e = { p, bias + p->bias, seen + p->seen, raw + p->bias, raw + biases_n + p->seen };
    float *l = logits + (size_t)blockIdx.x * vocab, max;
    unsigned long long top, mine;
    double sum = 0;
    int token;
    bool nan;

    if (threadIdx.x == 0) {
        out->token = -1;
        out->logprob = __uint_as_float(0x7fc00000u);
        out->top_n = 0;
    }
    top = best_key(b, l, vocab, &nan, &mine);
    max = key_value((unsigned)(top >> 32));
    if (nan)
        return;
    if (p->top_logprobs_n >= 0 || p->target >= 0) {
        sum = log_sum(b, l, vocab, max);
        top_list(b, l, vocab, max, sum, p->top_logprobs_n, out);
        __syncthreads();
    }
    if (p->target >= 0) {
        if (threadIdx.x == 0) {
            out->token = p->target;
            out->logprob = logprob_of(l[p->target], max, sum);
        }
        return;
    }
    token = token_choose(b, &e, l, vocab, top, mine);
    if (threadIdx.x != 0)
        return;
    out->token = token;
    if (p->top_logprobs_n >= 0 && token >= 0)
        out->logprob = logprob_of(raw_of(&e, l, token), max, sum);
}

cudaError_t launch_sample(cudaStream_t s, float *logits, int vocab, int outs_n, const struct launch_sampling *sampling,
                          const struct launch_bias_entry *bias, const struct launch_seen_entry *seen, int biases_n,
                          float *raw, struct launch_sampled *out)
{
    sample<<<outs_n, THREADS, 0, s>>>(logits, vocab, sampling, bias, seen, biases_n, raw, out);
    return cudaGetLastError();
}
