/* Products by cuBLASLt, with the bits of one chain.
 *
 * Which algorithm is fastest depends on the number of rows; which bits come out must not. Every algorithm that does not
 * split k has the bits of a plain chain of m16n8k16 over k (product.cu), whatever its tile. So for each shape and bucket
 * of rows the fastest algorithm without a split is chosen, by timing: the library's own first choice for few rows and a
 * long k rests on a split, and without it another bucket's algorithm may be several times faster. At loading its result
 * on random rows is compared with the chain, bit for bit, as a product and as an addition to a residual. One that differs
 * is passed over; where all differ, and for shapes that cuBLASLt has no aligned kernel for, the chain itself runs. The own
 * kernels of product_wide.cu take part in the race, and those that do a gated activation in it: held to the bits of the
 * chain and then the activation. */
#include "kernels/cuda/cuda.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define WORKSPACE_BYTES ((size_t)32 << 20)
#define CANDIDATES_MAX 8           /* for each row count: the library names its best first */
#define SET_MAX 96                 /* different algorithms of all buckets of a shape */
#define CROSS_ROWS_MAX 512         /* beyond, only the bucket's own algorithms are tried */
#define TIMED_RUNS 4
#define WARM_ROWS 1024             /* from here on a gated product in one is preferred while it takes at most WARM_SHARE longer: */
#define WARM_SHARE 1.1f            /* the race runs on a cool chip, but what goes through memory costs power (NOTES.md) */
#define CHECK_ROWS_MAX 2048
#define CHECK_BYTES_MAX ((size_t)512 << 20)    /* of fp32 results of a check */
#define SCRATCH_BYTES_MAX ((size_t)128 << 20)  /* of a gated product before its activation: more rows go in pieces */

static const int bucket_rows[PRODUCT_BUCKETS] = { 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096, 8192 };

static status st_cublas(cublasStatus_t e, const char *what)
{
    if (e == CUBLAS_STATUS_SUCCESS)
        return ST_OK;
    log_error("cuda.cublas", "what=\"%s\" status=%d", what, (int)e);
    return ST_FATAL;
}

/* ---- one call ---- */

/* cuBLASLt counts columns first: out^T [n x rows] = w [n x k] in^T [k x rows]. */
struct lt_call {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t w, in, out;
};

static status lt_prepare(struct lt_call *l, int n, int k, int rows_n)
{
    cublasOperation_t turned = CUBLAS_OP_T;
    status st = ST_OK;

    TRY(st_cublas(cublasLtMatmulDescInit(&l->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "product"));
    TRY(st_cublas(cublasLtMatmulDescSetAttribute(&l->desc, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned), "product"));
    TRY(st_cublas(cublasLtMatrixLayoutInit(&l->w, CUDA_R_16BF, (uint64_t)k, (uint64_t)n, k), "layout"));
    TRY(st_cublas(cublasLtMatrixLayoutInit(&l->in, CUDA_R_16BF, (uint64_t)k, (uint64_t)rows_n, k), "layout"));
    TRY(st_cublas(cublasLtMatrixLayoutInit(&l->out, CUDA_R_32F, (uint64_t)n, (uint64_t)rows_n, n), "layout"));
out:
    return st;
}

static cublasStatus_t lt_run(struct cuda_device *c, struct lt_call *l, const cublasLtMatmulAlgo_t *algo,
                             const uint16_t *w, const uint16_t *in, bool add, float *out)
{
    const float one = 1, beta = add ? 1 : 0;

    return cublasLtMatmul(c->lt, &l->desc, &one, w, &l->w, in, &l->in, &beta, out, &l->out, out, &l->out, algo,
                          c->workspace.at, c->workspace.bytes, c->stream);
}

static int bucket_of(int rows_n)
{
    int b = 0;

    while (b < PRODUCT_BUCKETS - 1 && bucket_rows[b] < rows_n)
        b++;
    return b;
}

static bool aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

static status wide_run(struct cuda_device *c, const struct cuda_matrix *m, int tile, int to, const uint16_t *in, int rows_n,
                       void *out)
{
    struct launch_wide p = { .w = m->w, .in = in, .n = m->n, .k = m->base.k, .rows_n = rows_n, .to = to, .out = out };

    return st_cuda(launch_wide(c->stream, tile, &p), "wide product");
}

static status own_run(struct cuda_device *c, const struct cuda_matrix *m, const struct product_plan *plan, const uint16_t *in,
                      int rows_n, bool add, float *out)
{
    if (plan->by == PRODUCT_WIDE && aligned(in) && aligned(out))
        return wide_run(c, m, plan->tile, add ? WIDE_ADD : WIDE_STORE, in, rows_n, out);
    if (plan->by == PRODUCT_FEW && aligned(in))
        return st_cuda(launch_product_few(c->stream, m->w, m->n, m->base.k, in, rows_n, add, out), "product of few rows");
    return st_cuda(launch_product(c->stream, m->w, m->n, m->base.k, in, rows_n, add, out), "product");
}

/* Any number of rows. */
static status product_run(struct cuda_device *c, const struct cuda_matrix *m, const uint16_t *in, int rows_n, bool add,
                          float *out)
{
    int k = m->base.k;
    status st = ST_OK;

    if (c->fp32)
        return st_cuda(launch_product_fp32(c->stream, m->wide, m->n, k, (const float *)(const void *)in, rows_n, add, out),
                       "product in fp32");
    for (int r = 0, n; r < rows_n; r += n) {
        const uint16_t *from = in + (size_t)r * (size_t)k;
        float *to = out + (size_t)r * (size_t)m->n;
        const struct product_plan *plan;
        struct lt_call l;

        n = rows_n - r < bucket_rows[PRODUCT_BUCKETS - 1] ? rows_n - r : bucket_rows[PRODUCT_BUCKETS - 1];
        plan = &m->shape->plan[bucket_of(n)];
        if (plan->by == PRODUCT_LT && aligned(from) && aligned(to)) {
            TRY(lt_prepare(&l, m->n, k, n));
            TRY(st_cublas(lt_run(c, &l, &plan->algo, m->w, from, add, to), "product"));
        } else {
            TRY(own_run(c, m, plan, from, n, add, to));
        }
    }
out:
    return st;
}

/* ---- choosing ---- */

struct check {
    struct cuda_device *c;
    const struct cuda_matrix *m;
    int rows_n;
    struct cuda_room in, want, got, residual, differ;
};

static void check_fini(struct check *k)
{
    cuda_room_fini(&k->in);
    cuda_room_fini(&k->want);
    cuda_room_fini(&k->got);
    cuda_room_fini(&k->residual);
    cuda_room_fini(&k->differ);
}

/* Random rows and the chain's results for them. */
static status check_open(struct check *k, int rows_n)
{
    struct cuda_device *c = k->c;
    int64_t in_n, out_n;
    size_t row = (size_t)k->m->n * sizeof(float);
    status st = ST_OK;

    rows_n = rows_n < CHECK_ROWS_MAX ? rows_n : CHECK_ROWS_MAX;
    rows_n = (size_t)rows_n * row > CHECK_BYTES_MAX ? (int)(CHECK_BYTES_MAX / row) : rows_n;
    k->rows_n = rows_n > 0 ? rows_n : 1;
    in_n = (int64_t)k->rows_n * k->m->base.k;
    out_n = (int64_t)k->rows_n * k->m->n;
    TRY(cuda_room(&k->in, (size_t)in_n * 2));
    TRY(cuda_room(&k->want, (size_t)out_n * 4));
    TRY(cuda_room(&k->got, (size_t)out_n * 4));
    TRY(cuda_room(&k->residual, (size_t)out_n * 4));
    TRY(cuda_room(&k->differ, sizeof(unsigned long long)));
    TRY(st_cuda(launch_random(c->stream, 1, in_n, k->in.at), "random rows"));
    TRY(st_cuda(launch_random_fp32(c->stream, 2, out_n, k->residual.at), "random residual"));
    TRY(st_cuda(launch_product(c->stream, k->m->w, k->m->n, k->m->base.k, k->in.at, k->rows_n, 0, k->want.at), "product"));
out:
    return st;
}

/* Runs a plan on the check's rows; *ran false: the library has no such kernel for so many rows. */
static status plan_run(struct check *k, const struct product_plan *plan, bool add, bool *ran)
{
    struct cuda_device *c = k->c;
    struct lt_call l;
    status st = ST_OK;

    *ran = true;
    if (plan->by != PRODUCT_LT)
        return own_run(c, k->m, plan, k->in.at, k->rows_n, add, k->got.at);
    TRY(lt_prepare(&l, k->m->n, k->m->base.k, k->rows_n));
    *ran = lt_run(c, &l, &plan->algo, k->m->w, k->in.at, add, k->got.at) == CUBLAS_STATUS_SUCCESS;
out:
    return st;
}

/* *same: the plan has the chain's bits, alone and added to a residual. */
static status plan_check(struct check *k, const struct product_plan *plan, bool *same)
{
    struct cuda_device *c = k->c;
    size_t bytes = (size_t)k->rows_n * (size_t)k->m->n * sizeof(float);
    unsigned long long differ = 0;
    bool ran = true;
    status st = ST_OK;

    *same = false;
    TRY(st_cuda(cudaMemsetAsync(k->differ.at, 0, sizeof differ, c->stream), "clear"));
    for (int add = 0; add < 2 && ran; add++) {
        if (add)
            TRY(st_cuda(cudaMemcpyAsync(k->got.at, k->residual.at, bytes, cudaMemcpyDeviceToDevice, c->stream), "copy"));
        else
            TRY(st_cuda(cudaMemsetAsync(k->got.at, 0xff, bytes, c->stream), "poison"));
        TRY(plan_run(k, plan, add != 0, &ran));
        TRY(st_cuda(launch_compare(c->stream, k->got.at, k->want.at, add ? k->residual.at : NULL,
                                   (int64_t)(bytes / sizeof(float)), k->differ.at), "compare"));
    }
    TRY(st_cuda(cudaMemcpyAsync(&differ, k->differ.at, sizeof differ, cudaMemcpyDeviceToHost, c->stream), "copy"));
    TRY(st_cuda(cudaStreamSynchronize(c->stream), "check of a product"));
    *same = ran && differ == 0;
out:
    return st;
}

static bool splits(const cublasLtMatmulAlgo_t *algo)
{
    int32_t split = 1;
    uint32_t scheme = 0;
    size_t n;

    (void)cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split, &n);
    (void)cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme, &n);
    return split > 1 || scheme != CUBLASLT_REDUCTION_SCHEME_NONE;
}

/* Candidates of the library for so many rows, its best first. */
static status candidates(struct cuda_device *c, const struct cuda_matrix *m, int rows_n,
                         cublasLtMatmulHeuristicResult_t *found, int *n)
{
    cublasLtMatmulPreferenceOpaque_t want;
    struct lt_call l;
    const uint32_t align = 16, attributes[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    };
    size_t workspace = c->workspace.bytes;
    status st = ST_OK;

    *n = 0;
    TRY(lt_prepare(&l, m->n, m->base.k, rows_n));
    TRY(st_cublas(cublasLtMatmulPreferenceInit(&want), "preference"));
    TRY(st_cublas(cublasLtMatmulPreferenceSetAttribute(&want, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                       sizeof workspace), "preference"));
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        TRY(st_cublas(cublasLtMatmulPreferenceSetAttribute(&want, (cublasLtMatmulPreferenceAttributes_t)attributes[i],
                                                           &align, sizeof align), "preference"));
    if (cublasLtMatmulAlgoGetHeuristic(c->lt, &l.desc, &l.w, &l.in, &l.out, &l.out, &want, CANDIDATES_MAX, found, n) !=
        CUBLAS_STATUS_SUCCESS)
        *n = 0;
out:
    return st;
}

/* Ways to compute a shape, and the buckets that the library names each for. */
struct candidate { struct product_plan plan; unsigned buckets; float us; };
struct candidate_set { struct candidate of[SET_MAX]; int n; };

static void set_add(struct candidate_set *set, const cublasLtMatmulAlgo_t *algo, int bucket)
{
    int i = 0;

    while (i < set->n && (set->of[i].plan.by != PRODUCT_LT || memcmp(&set->of[i].plan.algo, algo, sizeof *algo) != 0))
        i++;
    if (i == SET_MAX)
        return;
    if (i == set->n)
        set->of[set->n++] = (struct candidate){ { PRODUCT_LT, 0, *algo }, 0, 0 };
    set->of[i].buckets |= 1u << bucket;
}

static status set_make(struct cuda_device *c, const struct cuda_matrix *m, struct candidate_set *set)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES_MAX];
    int n;
    status st = ST_OK;

    set->n = 0;
    set->of[set->n++] = (struct candidate){ .plan.by = PRODUCT_CHAIN };
    set->of[set->n++] = (struct candidate){ .plan.by = PRODUCT_FEW };
    for (int tile = 0; tile < WIDE_TILES; tile++) {
        struct candidate a = { .plan = { .by = PRODUCT_WIDE, .tile = tile } };

        for (int b = 0; b < PRODUCT_BUCKETS; b++)
            a.buckets |= launch_wide_fits(tile, false, m->n, m->base.k, bucket_rows[b]) ? 1u << b : 0;
        if (a.buckets != 0)
            set->of[set->n++] = a;
    }
    for (int b = 0; b < PRODUCT_BUCKETS; b++) {
        set->of[0].buckets |= bucket_rows[b] <= PRODUCT_FEW_ROWS ? 1u << b : 0;
        set->of[1].buckets |= bucket_rows[b] <= PRODUCT_FEW_ROWS ? 1u << b : 0;
        TRY(candidates(c, m, bucket_rows[b], found, &n));
        for (int i = 0; i < n; i++)
            if (found[i].state == CUBLAS_STATUS_SUCCESS && !splits(&found[i].algo))
                set_add(set, &found[i].algo, b);
    }
out:
    return st;
}

struct stopwatch { cudaEvent_t from, to; };

typedef status (*timed_fn)(struct check *k, const struct product_plan *plan, bool *ran);

static status plain_timed(struct check *k, const struct product_plan *plan, bool *ran)
{
    return plan_run(k, plan, false, ran);
}

/* Microseconds of a run; INFINITY: it does not run with these rows. Gives up on one that is far from `best`. */
static status plan_time(struct check *k, timed_fn run, const struct product_plan *plan, const struct stopwatch *w, float best,
                        float *us)
{
    struct cuda_device *c = k->c;
    bool ran = true;
    status st = ST_OK;

    *us = INFINITY;
    TRY(run(k, plan, &ran));       /* untimed: the first run of a kernel loads it, which takes milliseconds */
    for (int runs = 1; ran && runs <= TIMED_RUNS; runs += TIMED_RUNS - 1) {        /* one to judge by, then the rest */
        float ms;

        TRY(st_cuda(cudaEventRecord(w->from, c->stream), "event"));
        for (int i = 0; i < runs; i++)
            TRY(run(k, plan, &ran));
        TRY(st_cuda(cudaEventRecord(w->to, c->stream), "event"));
        TRY(st_cuda(cudaEventSynchronize(w->to), "timing of a product"));
        TRY(st_cuda(cudaEventElapsedTime(&ms, w->from, w->to), "event"));
        *us = ms * 1e3f / (float)runs;
        if (*us > 2 * best)
            goto out;
    }
out:
    return st;
}

/* The fastest candidate that has the chain's bits; the chain if none has. */
static status plan_choose(struct check *k, struct candidate_set *set, const struct stopwatch *w, int bucket,
                          struct product_plan *plan)
{
    static const char *const names[] = { "chain", "few", "wide", "cublaslt" };
    int rows_n = bucket_rows[bucket];
    float best = INFINITY;
    bool same = false;
    status st = ST_OK;

    *plan = (struct product_plan){ .by = PRODUCT_CHAIN };
    TRY(check_open(k, rows_n));
    for (int i = 0; i < set->n; i++) {
        struct candidate *a = &set->of[i];
        bool tried = (a->buckets >> bucket & 1) != 0 || (a->plan.by == PRODUCT_LT && rows_n <= CROSS_ROWS_MAX);

        a->us = INFINITY;
        if (tried)
            TRY(plan_time(k, plain_timed, &a->plan, w, best, &a->us));
        best = a->us < best ? a->us : best;
    }
    while (!same) {
        struct candidate *first = &set->of[0];

        for (int i = 1; i < set->n; i++)
            first = set->of[i].us < first->us ? &set->of[i] : first;
        best = first->us;
        if (isinf(first->us))
            break;
        TRY(plan_check(k, &first->plan, &same));
        if (same)
            *plan = first->plan;
        first->us = INFINITY;
    }
    log_debug("cuda.product", "n=%d k=%d rows=%d candidates=%d us=%.1f by=%s tile=%d", k->m->n, k->m->base.k, rows_n,
              set->n, (double)best, names[plan->by], plan->tile);
out:
    return st;
}

/* ---- gated: with the activation ---- */

/* A plan (through k->got) and then the activation, or a tile that does both: [rows, n / 2] to out. */
static status gated_run(struct check *k, const struct product_plan *plan, int gelu, void *out, bool *ran)
{
    struct cuda_device *c = k->c;
    status st = ST_OK;

    *ran = true;
    if (plan->by == PRODUCT_WIDE)
        return wide_run(c, k->m, plan->tile, gelu ? WIDE_GELU : WIDE_SILU, k->in.at, k->rows_n, out);
    TRY(plan_run(k, plan, false, ran));
    if (*ran)
        TRY(st_cuda(launch_gate(c->stream, 0, k->got.at, k->rows_n, k->m->n / 2, gelu, out), "gate"));
out:
    return st;
}

static status gated_timed(struct check *k, const struct product_plan *plan, bool *ran)
{
    return gated_run(k, plan, 0, k->residual.at, ran);
}

/* *same: both activations have the bits of the chain and the activation after it. */
static status gated_check(struct check *k, const struct product_plan *plan, bool *same)
{
    struct cuda_device *c = k->c;
    size_t bytes = (size_t)k->rows_n * (size_t)(k->m->n / 2) * sizeof(uint16_t);
    unsigned long long differ = 0;
    bool ran = true;
    status st = ST_OK;

    *same = false;
    TRY(st_cuda(cudaMemsetAsync(k->differ.at, 0, sizeof differ, c->stream), "clear"));
    for (int gelu = 0; gelu < 2; gelu++) {
        TRY(st_cuda(launch_gate(c->stream, 0, k->want.at, k->rows_n, k->m->n / 2, gelu, k->residual.at), "gate"));
        TRY(st_cuda(cudaMemsetAsync(k->got.at, 0xff, bytes, c->stream), "poison"));
        TRY(gated_run(k, plan, gelu, k->got.at, &ran));
        TRY(st_cuda(launch_compare(c->stream, k->got.at, k->residual.at, NULL, (int64_t)(bytes / sizeof(float)), k->differ.at),
                    "compare"));
    }
    TRY(st_cuda(cudaMemcpyAsync(&differ, k->differ.at, sizeof differ, cudaMemcpyDeviceToHost, c->stream), "copy"));
    TRY(st_cuda(cudaStreamSynchronize(c->stream), "check of a gated product"));
    *same = differ == 0;
out:
    return st;
}

/* After plan_choose for the same bucket, whose rows the check still holds. */
static status gated_choose(struct check *k, const struct stopwatch *w, int bucket, struct product_shape *s)
{
    struct product_plan plan = { .by = PRODUCT_WIDE };
    float apart, best, us;
    bool same;
    status st = ST_OK;

    TRY(plan_time(k, gated_timed, &s->plan[bucket], w, INFINITY, &apart));
    best = bucket_rows[bucket] >= WARM_ROWS ? WARM_SHARE * apart : apart;
    for (plan.tile = 0; plan.tile < WIDE_TILES; plan.tile++) {
        if (!launch_wide_fits(plan.tile, true, k->m->n, k->m->base.k, bucket_rows[bucket]))
            continue;
        TRY(plan_time(k, gated_timed, &plan, w, best, &us));
        log_debug("cuda.tile", "rows=%d tile=%d us=%.1f", bucket_rows[bucket], plan.tile, (double)us);
        if (us >= best)
            continue;
        TRY(gated_check(k, &plan, &same));
        if (!same) {
            log_warn("cuda.gated", "n=%d k=%d rows=%d tile=%d: other bits than the chain's, not used", k->m->n, k->m->base.k,
                     k->rows_n, plan.tile);
            continue;
        }
        best = us;
        s->whole[bucket] = plan.tile;
    }
    log_debug("cuda.gated", "n=%d k=%d rows=%d apart_us=%.1f best_us=%.1f tile=%d", k->m->n, k->m->base.k, bucket_rows[bucket],
              (double)apart, (double)best, s->whole[bucket]);
out:
    return st;
}

static status shape_choose(struct cuda_device *c, const struct cuda_matrix *m, struct product_shape *s)
{
    struct check k = { .c = c, .m = m };
    struct stopwatch w = { NULL, NULL };
    struct candidate_set set;
    status st = ST_OK;

    TRY(cuda_room(&c->workspace, WORKSPACE_BYTES));
    TRY(set_make(c, m, &set));
    TRY(st_cuda(cudaEventCreate(&w.from), "event"));
    TRY(st_cuda(cudaEventCreate(&w.to), "event"));
    for (int b = 0; b < PRODUCT_BUCKETS; b++) {
        TRY(plan_choose(&k, &set, &w, b, &s->plan[b]));
        if (s->gated)
            TRY(gated_choose(&k, &w, b, s));
    }
out:
    if (w.from != NULL)
        cuda_note(cudaEventDestroy(w.from), "event");
    if (w.to != NULL)
        cuda_note(cudaEventDestroy(w.to), "event");
    check_fini(&k);
    return st;
}

status cuda_product_shape(struct cuda_device *c, struct cuda_matrix *m)
{
    struct product_shape *s;

    for (s = c->shapes; s != NULL; s = s->next)
        if (s->n == m->n && s->k == m->base.k && s->gated == m->base.gated) {
            m->shape = s;
            return ST_OK;
        }
    s = mem_take_zero(1, sizeof *s);
    s->n = m->n;
    s->k = m->base.k;
    s->gated = m->base.gated;
    for (int b = 0; b < PRODUCT_BUCKETS; b++)
        s->whole[b] = -1;
    s->next = c->shapes;
    c->shapes = s;
    m->shape = s;
    if (s->k % 8 != 0 || s->n % 4 != 0)        /* rows that are not 16-byte aligned: the own chain */
        return ST_OK;
    return shape_choose(c, m, s);
}

void cuda_product_fini(struct cuda_device *c)
{
    while (c->shapes != NULL) {
        struct product_shape *s = c->shapes;

        c->shapes = s->next;
        free(s);
    }
}

/* ---- operations ---- */

status cuda_linear(struct device *d, const struct matrix *w, const float *bias, const void *in, int rows_n,
                   enum linear_to to, void *out)
{
    struct cuda_device *c = cuda_of(d);
    const struct cuda_matrix *m = (const struct cuda_matrix *)w;
    status st = ST_OK;

    if (rows_n == 0)
        return ST_OK;
    if (bias == NULL)
        return product_run(c, m, in, rows_n, to == LINEAR_ADD, out);
    if (to == LINEAR_STORE) {
        TRY(product_run(c, m, in, rows_n, false, out));
        TRY(st_cuda(launch_bias(c->stream, out, bias, rows_n, m->n), "bias"));
        goto out;
    }
    TRY(cuda_room(&c->scratch, (size_t)rows_n * (size_t)m->n * sizeof(float)));
    TRY(product_run(c, m, in, rows_n, false, c->scratch.at));
    TRY(st_cuda(launch_add_bias(c->stream, out, c->scratch.at, bias, rows_n, m->n), "bias"));
out:
    return st;
}

/* The tile that does so many rows with their activation; -1: none. */
static int whole_tile(const struct cuda_device *c, const struct cuda_matrix *m, int rows_n, const void *in, const void *out)
{
    return c->fp32 || !aligned(in) || !aligned(out) ? -1 : m->shape->whole[bucket_of(rows_n)];
}

status cuda_linear_gated(struct device *d, const struct matrix *w, enum gate_act act, const void *in, int rows_n,
                         void *out)
{
    struct cuda_device *c = cuda_of(d);
    const struct cuda_matrix *m = (const struct cuda_matrix *)w;
    size_t row = (size_t)m->n * sizeof(float);
    size_t in_bytes = device_act_bytes(d, ACT_NORMED, w->k), out_bytes = device_act_bytes(d, ACT_GATED, (int)w->rows_n);
    int most = SCRATCH_BYTES_MAX / row > 64 ? (int)(SCRATCH_BYTES_MAX / row) / 64 * 64 : 64, ff = (int)w->rows_n;
    bool gelu = act == GATE_GELU_TANH;
    status st = ST_OK;

    for (int r = 0, n; r < rows_n; r += n) {
        const char *from = (const char *)in + (size_t)r * in_bytes;
        char *to = (char *)out + (size_t)r * out_bytes;
        int tile;

        n = rows_n - r < bucket_rows[PRODUCT_BUCKETS - 1] ? rows_n - r : bucket_rows[PRODUCT_BUCKETS - 1];
        tile = whole_tile(c, m, n, from, to);
        if (tile >= 0) {
            TRY(wide_run(c, m, tile, gelu ? WIDE_GELU : WIDE_SILU, (const uint16_t *)(const void *)from, n, to));
            continue;
        }
        n = n < most ? n : most;
        TRY(cuda_room(&c->scratch, (size_t)n * row));
        TRY(product_run(c, m, (const uint16_t *)(const void *)from, n, false, c->scratch.at));
        TRY(st_cuda(launch_gate(c->stream, c->fp32, c->scratch.at, n, ff, gelu, to), "gate"));
    }
out:
    return st;
}

status cuda_logits(struct device *d, const struct matrix *head, const void *in, int rows_n, float softcap,
                   float *logits)
{
    struct cuda_device *c = cuda_of(d);
    const struct cuda_matrix *m = (const struct cuda_matrix *)head;
    status st = ST_OK;

    if (rows_n == 0)
        return ST_OK;
    TRY(product_run(c, m, in, rows_n, false, logits));
    if (softcap > 0)
        TRY(st_cuda(launch_softcap(c->stream, logits, (int64_t)rows_n * m->n, softcap), "soft cap"));
out:
    return st;
}
