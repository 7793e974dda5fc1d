/* Sampling. One output is one thread's work and depends on nothing but its own logits and parameters.
 *
 * Nothing here looks at the whole vocabulary twice without need: one pass finds the largest logit of every block of
 * SAMPLE_BLOCK, and after that whole blocks are skipped that cannot hold what is looked for.
 *   greedy    the first block with the largest maximum.
 *   top-k     the k-th largest block maximum is a bound below which nothing can be among the k best; the few logits
 *             above it are selected from.
 *   top-p     a histogram of mass over max - l in steps of 1/16 (after temperature) finds the step in which the sum
 *             crosses top_p; only that step's tokens are sorted.
 *   noise     Gumbel noise has a bound (gumbel.h), so a block needs none unless its largest logit/T is within it of the
 *             best sum so far; then a bound from the leading bits of each random word spares all but a few of the
 *             logarithms. Both are exact.
 * Masses are integers (lanes.h), so sums are exact and the same in any order. Every number that decides comes from code
 * of our own (no libm), so choices do not depend on the machine's library. Ties go to the lower id everywhere: the
 * order is that of rank_key. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/lanes.h"
#include "kernels/gumbel.h"

#define BINS_A_UNIT 16
#define BINS ((int)(-MASS_X_MIN) * BINS_A_UNIT + 1)

/* One thread's working space, laid over its scratch. */
struct sampler {
    const struct lane_loops *loops;
    int vocab, blocks_n;
    float *max;                    /* [blocks] */
    uint64_t *keys;                /* [vocab] */
    float *bias_raw, *seen_raw;    /* [vocab] untouched logits of bias[i].token and seen[i].token */
    uint64_t *bins;                /* [BINS] */
};

/* ---- order: value descending, then id ascending ---- */

/* Ascending keys are descending values; -0 and +0 are the same. */
static uint32_t value_key(float x)
{
    uint32_t u;

    x += 0.0f;
    memcpy(&u, &x, sizeof u);
    return (u & 0x80000000u) != 0 ? u : ~u & 0x7fffffffu;
}

static uint64_t rank_key(float x, int32_t id)
{
    return (uint64_t)value_key(x) << 32 | (uint32_t)id;
}

static int32_t key_id(uint64_t key)
{
    return (int32_t)(uint32_t)key;
}

#define KEY_ALL UINT64_MAX

static void swap_keys(uint64_t *a, uint64_t *b)
{
    uint64_t t = *a;

    *a = *b;
    *b = t;
}

/* Heap sort: no allocation, no bad case. */
static void keys_sink(uint64_t *k, int at, int n)
{
    int child;

    for (; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && k[child + 1] > k[child])
            child++;
        if (k[at] >= k[child])
            return;
        swap_keys(&k[at], &k[child]);
    }
}

static void keys_sort(uint64_t *k, int n)
{
    int i;

    for (i = n / 2 - 1; i >= 0; i--)
        keys_sink(k, i, n);
    for (i = n - 1; i > 0; i--) {
        swap_keys(&k[0], &k[i]);
        keys_sink(k, 0, i);
    }
}

/* Moves the `want` smallest to the front, in any order (Hoare's FIND, pivot: median of three; all keys differ). */
static void keys_select(uint64_t *k, int n, int want)
{
    int low = 0, high = n - 1;

    while (low < high) {
        uint64_t a = k[low], b = k[low + (high - low) / 2], c = k[high], pivot;
        int i = low, j = high;

        pivot = a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
        while (i <= j) {
            while (k[i] < pivot)
                i++;
            while (k[j] > pivot)
                j--;
            if (i <= j)
                swap_keys(&k[i++], &k[j--]);
        }
        if (want - 1 <= j)
            high = j;
        else if (want - 1 >= i)
            low = i;
        else
            return;
    }
}

/* ---- blocks ---- */

static int block_size(const struct sampler *s, int b)
{
    int left = s->vocab - b * SAMPLE_BLOCK;

    return left < SAMPLE_BLOCK ? left : SAMPLE_BLOCK;
}

static float largest_of(const struct sampler *s)
{
    float top = s->max[0];
    int b;

    for (b = 1; b < s->blocks_n; b++)
        top = s->max[b] > top ? s->max[b] : top;
    return top;
}

/* The lowest id with this value, which is there. */
static int32_t first_with(const struct sampler *s, const float *l, float value)
{
    int b, i;

    for (b = 0; b < s->blocks_n; b++)
        for (i = b * SAMPLE_BLOCK; s->max[b] == value && i < s->vocab; i++)
            if (l[i] == value)
                return i;
    return -1;
}

/* Keys of the k best, unsorted, in s->keys; fewer if fewer are above -inf. Returns how many. */
static int best_keys(struct sampler *s, const float *l, int k)
{
    uint64_t *key = s->keys;
    float bound = -INFINITY;
    int b, i, n = 0;

    if (k < s->blocks_n) {         /* k blocks reach the k-th largest maximum, so k logits do */
        for (b = 0; b < s->blocks_n; b++)
            key[b] = rank_key(s->max[b], b);
        keys_select(key, s->blocks_n, k);
        for (b = 0, i = 0; b < k; b++)
            i = key[b] > key[i] ? b : i;
        bound = s->max[key_id(key[i])];
    }
    for (b = 0; b < s->blocks_n; b++)
        for (i = b * SAMPLE_BLOCK; s->max[b] >= bound && i < b * SAMPLE_BLOCK + block_size(s, b); i++)
            if (l[i] >= bound && l[i] > -INFINITY)
                key[n++] = rank_key(l[i], i);
    if (n > k) {
        keys_select(key, n, k);
        n = k;
    }
    return n;
}

/* ---- log-probabilities of the untouched logits ---- */

static bool has_mass(const struct sampler *s, int b, float max, float inv_t)
{
    return (s->max[b] - max) * inv_t >= MASS_X_MIN;
}

static uint64_t mass_all(const struct sampler *s, const float *l, float max, float inv_t)
{
    int whole = s->vocab / SAMPLE_BLOCK, b, n;
    uint64_t mass = 0;

    for (b = 0; b < whole; b += n + (n == 0)) {
        for (n = 0; b + n < whole && n < MASS_BLOCKS_MAX && has_mass(s, b + n, max, inv_t); n++)
            ;
        mass += s->loops->mass_blocks(l + b * SAMPLE_BLOCK, n, max, inv_t);
    }
    if (whole < s->blocks_n)
        mass += s->loops->mass(l + whole * SAMPLE_BLOCK, block_size(s, whole), max, inv_t, NULL, NULL);
    return mass;
}

/* ln of the sum of e^(l - max); with infinite logits, their number shares all. */
static double log_sum(const struct sampler *s, const float *l, float max)
{
    int i, n = 0;

    if (isinf(max)) {
        for (i = 0; i < s->vocab; i++)
            n += l[i] == max;
        return gumbel_ln(n);
    }
    return gumbel_ln((double)mass_all(s, l, max, 1) / (double)MASS_ONE);
}

static float logprob_of(float l, float max, double sum)
{
    if (l == max && max != -INFINITY)
        return (float)-sum;
    return (float)((double)l - max - sum);     /* -inf where l is; NaN if nothing is above -inf */
}

static void top_list(struct sampler *s, const float *l, float max, double sum, int n, struct sampled *out)
{
    int i;

    out->top_n = n > 0 ? best_keys(s, l, n) : 0;
    keys_sort(s->keys, out->top_n);
    for (i = 0; i < out->top_n; i++) {
        out->top[i].token = key_id(s->keys[i]);
        out->top[i].logprob = logprob_of(l[out->top[i].token], max, sum);
    }
}

/* ---- bias and penalties ---- */

static bool block_renew(struct sampler *s, const float *l, int32_t token)
{
    int b = token / SAMPLE_BLOCK;

    return s->loops->block_max(l + b * SAMPLE_BLOCK, block_size(s, b), &s->max[b]);
}

static bool penalties_on(const struct sampling *p)
{
    return p->repetition != 1 || p->presence != 0 || p->frequency != 0;
}

/* Keeps the untouched logits, changes them, renews the maxima. True: there is a NaN now. */
static bool logits_adjust(struct sampler *s, const struct sampling *p, float *l)
{
    int i, seen_n = penalties_on(p) ? p->seen_n : 0;
    bool nan = false;

    ASSERT(p->bias_n <= s->vocab && seen_n <= s->vocab);
    for (i = 0; i < p->bias_n; i++) {
        ASSERT(p->bias[i].token >= 0 && p->bias[i].token < s->vocab);
        s->bias_raw[i] = l[p->bias[i].token];
    }
    for (i = 0; i < seen_n; i++) {
        ASSERT(p->seen[i].token >= 0 && p->seen[i].token < s->vocab);
        s->seen_raw[i] = l[p->seen[i].token];
    }
    for (i = 0; i < p->bias_n; i++) {
        float *x = &l[p->bias[i].token];

        *x = p->bias[i].add == -INFINITY ? -INFINITY : *x + p->bias[i].add;
    }
    for (i = 0; i < seen_n; i++) {
        float *x = &l[p->seen[i].token];

        *x = *x > 0 ? *x / p->repetition : *x * p->repetition;
        *x -= p->frequency * (float)p->seen[i].output_n;
        *x -= p->seen[i].output_n > 0 ? p->presence : 0;
    }
    for (i = 0; i < p->bias_n; i++)
        nan |= block_renew(s, l, p->bias[i].token);
    for (i = 0; i < seen_n; i++)
        nan |= block_renew(s, l, p->seen[i].token);
    return nan;
}

static float raw_of(const struct sampler *s, const struct sampling *p, const float *l, int32_t token)
{
    int i, seen_n = penalties_on(p) ? p->seen_n : 0;

    for (i = 0; i < p->bias_n; i++)
        if (p->bias[i].token == token)
            return s->bias_raw[i];
    for (i = 0; i < seen_n; i++)
        if (p->seen[i].token == token)
            return s->seen_raw[i];
    return l[token];
}

/* ---- what top-k and top-p leave: tokens whose key is at most the returned one ---- */

static float step_of(const struct sampling *p)
{
    float inv = 1.0f / p->temperature;

    return isinf(inv) ? 3e38f : inv;
}

static bool enough(uint64_t mass, uint64_t all, float top_p)
{
    return (double)mass >= (double)all * (double)top_p;
}

/* keys: candidates; before: mass of better ones. The last of the smallest set with top_p of `all`. */
static uint64_t cut_sorted(struct sampler *s, const float *l, int n, float max, float inv_t, uint64_t before,
                           uint64_t all, float top_p)
{
    int i;

    keys_sort(s->keys, n);
    for (i = 0; i < n - 1; i++) {
        uint64_t mass;

        s->loops->mass(&l[key_id(s->keys[i])], 1, max, inv_t, &mass, NULL);
        before += mass;
        if (enough(before, all, top_p))
            break;
    }
    return s->keys[i];
}

static uint64_t top_k_cut(struct sampler *s, const float *l, const struct sampling *p, float max)
{
    int n = best_keys(s, l, p->top_k), i;
    uint64_t all = 0, last = 0, mass;

    if (p->top_p >= 1) {
        for (i = 0; i < n; i++)
            last = s->keys[i] > last ? s->keys[i] : last;
        return last;
    }
    for (i = 0; i < n; i++)
        all += s->loops->mass(&l[key_id(s->keys[i])], 1, max, step_of(p), &mass, NULL);
    return cut_sorted(s, l, n, max, step_of(p), 0, all, p->top_p);
}

/* Monotone: a larger logit never has a later bin. */
static int bin_of(float l, float max, float inv_t)
{
    float x = (l - max) * inv_t;

    return x > MASS_X_MIN ? (int)(x * -BINS_A_UNIT) : BINS - 1;
}

/* Adds the tokens of bins [from, to) to the histogram. */
static void bins_fill(struct sampler *s, const float *l, float max, float inv_t, int from, int to)
{
    uint64_t mass[SAMPLE_BLOCK];
    int b, i;

    for (b = 0; b < s->blocks_n; b++) {
        const float *x = l + b * SAMPLE_BLOCK;

        if (bin_of(s->max[b], max, inv_t) >= to)
            continue;
        s->loops->mass(x, block_size(s, b), max, inv_t, mass, NULL);
        for (i = 0; i < block_size(s, b); i++) {
            int bin = bin_of(x[i], max, inv_t);

            if (bin >= from && bin < to)
                s->bins[bin] += mass[i];
        }
    }
}

/* The histogram is made from the top down, as far as it is needed: what is likely stands in few blocks. */
static uint64_t top_p_cut(struct sampler *s, const float *l, const struct sampling *p, float max)
{
    static const int parts[] = { 0, 5 * BINS_A_UNIT, 10 * BINS_A_UNIT, BINS };
    float inv_t = step_of(p);
    uint64_t all = mass_all(s, l, max, inv_t), before = 0;
    int b, i, bin = 0, part, n = 0;

    memset(s->bins, 0, BINS * sizeof *s->bins);
    for (part = 0; part < 3 && bin == parts[part]; part++) {
        bins_fill(s, l, max, inv_t, parts[part], parts[part + 1]);
        for (; bin < parts[part + 1] && !enough(before + s->bins[bin], all, p->top_p); bin++)
            before += s->bins[bin];
    }
    for (b = 0; b < s->blocks_n; b++)
        for (i = b * SAMPLE_BLOCK; bin_of(s->max[b], max, inv_t) <= bin && i < b * SAMPLE_BLOCK + block_size(s, b); i++)
            if (bin_of(l[i], max, inv_t) == bin && l[i] > -INFINITY)
                s->keys[n++] = rank_key(l[i], i);
    ASSERT(n > 0);                 /* all mass is enough, so the bin that crosses has some; the first has the largest */
    return cut_sorted(s, l, n, max, inv_t, before, all, p->top_p);
}

static uint64_t cut_of(struct sampler *s, const float *l, const struct sampling *p, float max)
{
    if (p->top_k > 0 && p->top_k < s->vocab)
        return top_k_cut(s, l, p, max);
    return p->top_p < 1 ? top_p_cut(s, l, p, max) : KEY_ALL;
}

/* ---- noise ---- */

struct race {
    const struct sampler *s;
    const float *l;
    const struct sampling *p;
    float max, inv_t, floor;       /* floor: no lower logit is allowed */
    uint64_t cut;
    double best;
    int32_t token;                 /* -1: none yet */
    float need;                    /* what logit * inv_t + noise must reach to win, less a margin for roundings */
};

static void race_enter(struct race *r, int32_t id, uint32_t word)
{
    float weight, l = r->l[id];
    double sum = (double)l / (double)r->p->temperature + gumbel_noise(word);

    if (l == -INFINITY || rank_key(l, id) > r->cut)
        return;
    if (r->token >= 0 && (sum < r->best || (sum == r->best && id > r->token)))
        return;
    if (r->p->min_p > 0) {
        r->s->loops->mass(&r->l[id], 1, r->max, r->inv_t, NULL, &weight);
        if (weight < r->p->min_p)
            return;
    }
    r->best = sum;
    r->token = id;
    r->need = (float)(sum - 1e-3 - 2e-6 * fabs(sum));
}

static void race_block(struct race *r, int b)
{
    uint32_t words[SAMPLE_BLOCK];
    int first = b * SAMPLE_BLOCK;
    uint64_t may = r->s->loops->contenders(r->l + first, block_size(r->s, b), r->p->seed, (uint64_t)r->p->pos,
                                           (uint32_t)first / 4, r->inv_t, r->need, r->floor, words);

    for (; may != 0; may &= may - 1) {
        int i = __builtin_ctzll(may);

        race_enter(r, first + i, words[i]);
    }
}

/* min-p as a bound for logits, a little low: race_enter decides exactly. */
static float min_p_floor(const struct sampling *p, float max)
{
    return (float)(max + (gumbel_ln(p->min_p) - 1e-3) * p->temperature - fabs(max) * 1e-6);
}

static int32_t race_run(struct sampler *s, const float *l, const struct sampling *p, float max)
{
    struct race r = { .s = s, .l = l, .p = p, .max = max, .inv_t = step_of(p), .token = -1, .best = -INFINITY,
                      .need = -INFINITY };
    int32_t likeliest = first_with(s, l, max);
    int b;

    r.cut = cut_of(s, l, p, max);
    r.floor = r.cut == KEY_ALL ? -INFINITY : l[key_id(r.cut)];
    if (p->min_p > 0 && min_p_floor(p, max) > r.floor)
        r.floor = min_p_floor(p, max);
    race_enter(&r, likeliest, philox_words(p->seed, (uint64_t)p->pos, (uint32_t)likeliest / 4).v[likeliest % 4]);
    for (b = 0; b < s->blocks_n; b++)
        if (s->max[b] >= r.floor && s->max[b] * r.inv_t + (float)GUMBEL_MAX >= r.need)
            race_block(&r, b);
    return r.token;
}

/* ---- one output ---- */

static int32_t token_choose(struct sampler *s, const struct sampling *p, float *l)
{
    float max;

    if (logits_adjust(s, p, l))
        return -1;
    max = largest_of(s);
    if (max == -INFINITY)
        return -1;
    if (p->temperature <= 0 || max == INFINITY)
        return first_with(s, l, max);
    return race_run(s, l, p, max);
}

static void output_fill(struct sampler *s, const struct sampling *p, float *l, struct sampled *out)
{
    float max;
    double sum = 0;

    out->token = -1;
    out->logprob = NAN;
    out->top_n = 0;
    if (s->loops->block_max(l, s->vocab, s->max))
        return;
    max = largest_of(s);
    if (p->top_logprobs_n >= 0 || p->target >= 0) {
        ASSERT(p->top_logprobs_n <= TOP_LOGPROBS_MAX);
        sum = log_sum(s, l, max);
        top_list(s, l, max, sum, p->top_logprobs_n, out);
    }
    if (p->target >= 0) {
        ASSERT(p->target < s->vocab);
        out->token = p->target;
        out->logprob = logprob_of(l[p->target], max, sum);
        return;
    }
    out->token = token_choose(s, p, l);
    if (p->top_logprobs_n >= 0 && out->token >= 0)
        out->logprob = logprob_of(raw_of(s, p, l, out->token), max, sum);
}

/* ---- all outputs ---- */

struct sampling_run {
    struct cpu_device *device;
    float *logits;
    int vocab;
    const struct step *step;
};

static size_t sampler_lay(struct sampler *s, char *at, int vocab)
{
    size_t v = ((size_t)vocab + 15) / 16 * 16, blocks = (v + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK + 16;

    s->vocab = vocab;
    s->blocks_n = (vocab + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK;
    s->keys = (uint64_t *)at;
    s->bins = s->keys + v;
    s->bias_raw = (float *)(s->bins + BINS);
    s->seen_raw = s->bias_raw + v;
    s->max = s->seen_raw + v;
    return v * 16 + BINS * 8 + blocks * 4;
}

static void sample_part(void *ctx, int thread_i, int threads_n)
{
    const struct sampling_run *r = ctx;
    struct sampler s = { .loops = lanes_of(r->device) };
    int64_t o, last;

    sampler_lay(&s, cpu_scratch(r->device, thread_i), r->vocab);
    team_split(r->step->outs_n, thread_i, threads_n, &o, &last);
    for (; o < last; o++)
        output_fill(&s, &r->step->sampling[o], r->logits + o * r->vocab, &r->step->sampled[o]);
}

status cpu_sample(struct device *d, float *logits, int vocab, const struct step *s)
{
    struct cpu_device *c = cpu_of(d);
    struct sampling_run r = { c, logits, vocab, s };
    struct sampler layout;

    ASSERT(vocab > 0);
    if (s->outs_n == 0)
        return ST_OK;
    cpu_scratch_reserve(c, sampler_lay(&layout, NULL, vocab));
    team_run(c->team, sample_part, &r);
    return ST_OK;
}
