/* Sampling: parameters to the device, results back when the stream is idle. */
#include "kernels/cuda/cuda.h"

#include <math.h>
#include <string.h>

_Static_assert(sizeof(struct token_bias) == sizeof(struct launch_bias_entry) &&
               sizeof(struct token_count) == sizeof(struct launch_seen_entry) &&
               sizeof(struct sampled) == sizeof(struct launch_sampled) &&
               offsetof(struct sampled, top) == offsetof(struct launch_sampled, top),
               "kernels see what the host has");

void cuda_results_hand_over(struct cuda_device *c)
{
    for (int i = 0; i < c->pending_n; i++)
        memcpy(c->pending[i].to, c->results + c->pending[i].first, (size_t)c->pending[i].n * sizeof *c->results);
    c->pending_n = c->results_n = 0;
}

/* Room for n more results; hands over those that wait if there is none. */
static status results_room(struct cuda_device *c, int n)
{
    status st = ST_OK;
    int room = 1024;

    if (c->results_room - c->results_n >= n && c->pending_n < PENDING_MAX)
        return ST_OK;
    TRY(cuda_sync(&c->base));
    if (c->results_room >= n)
        return ST_OK;
    while (room < n)
        room *= 2;
    TRY(st_cuda(cudaFreeHost(c->results), "free"));
    c->results = NULL;
    c->results_room = 0;
    TRY(st_cuda(cudaHostAlloc((void **)&c->results, (size_t)room * sizeof *c->results, cudaHostAllocMapped), "pinned memory"));
    c->results_room = room;
out:
    return st;
}

static int seen_of(const struct sampling *p)
{
    return p->repetition != 1 || p->presence != 0 || p->frequency != 0 ? p->seen_n : 0;
}

/* Where the parts of a block of parameters begin. */
struct layout { size_t bias, seen, raw, bytes; int biases_n, seen_n; };

static struct layout layout_of(const struct step *s)
{
    struct layout l = { 0 };
    int64_t biases = 0, seen = 0;

    for (int o = 0; o < s->outs_n; o++) {
        biases += s->sampling[o].bias_n;
        seen += seen_of(&s->sampling[o]);
    }
    ASSERT(biases + seen < INT32_MAX);
    l.biases_n = (int)biases;
    l.seen_n = (int)seen;
    l.bias = (size_t)s->outs_n * sizeof(struct launch_sampling);
    l.seen = l.bias + (size_t)biases * sizeof(struct launch_bias_entry);
    l.raw = l.seen + (size_t)seen * sizeof(struct launch_seen_entry);
    l.bytes = l.raw + (size_t)(biases + seen) * sizeof(float);
    return l;
}

static void entries_check(const struct sampling *p, int vocab)
{
    ASSERT(p->bias_n <= vocab && seen_of(p) <= vocab && p->target < vocab && p->top_logprobs_n <= TOP_LOGPROBS_MAX);
    for (int i = 0; i < p->bias_n; i++)
        ASSERT(p->bias[i].token >= 0 && p->bias[i].token < vocab);
    for (int i = 0; i < seen_of(p); i++)
        ASSERT(p->seen[i].token >= 0 && p->seen[i].token < vocab);
}

static void params_write(const struct step *s, int vocab, const struct layout *l, char *to)
{
    int biases = 0, seen = 0;

    for (int o = 0; o < s->outs_n; o++) {
        const struct sampling *p = &s->sampling[o];
        struct launch_sampling *q = (struct launch_sampling *)to + o;

        entries_check(p, vocab);
        *q = (struct launch_sampling){
            .temperature = p->temperature, .top_p = p->top_p, .min_p = p->min_p, .repetition = p->repetition,
            .presence = p->presence, .frequency = p->frequency, .top_k = p->top_k, .target = p->target,
            .top_logprobs_n = p->top_logprobs_n, .bias_n = p->bias_n, .seen_n = seen_of(p), .bias = biases, .seen = seen,
            .seed = p->seed, .pos = p->pos,
        };
        if (q->bias_n > 0)
            memcpy((struct launch_bias_entry *)(to + l->bias) + biases, p->bias, (size_t)q->bias_n * sizeof *p->bias);
        if (q->seen_n > 0)
            memcpy((struct launch_seen_entry *)(to + l->seen) + seen, p->seen, (size_t)q->seen_n * sizeof *p->seen);
        biases += q->bias_n;
        seen += q->seen_n;
    }
}

status cuda_sample(struct device *d, float *logits, int vocab, const struct step *s)
{
    struct cuda_device *c = cuda_of(d);
    struct cuda_block *b;
    struct layout l;
    status st = ST_OK;

    ASSERT(vocab > 0 && vocab < 1 << 23);      /* launch_sample's Needs; model files have at most 2^22 tokens */
    if (s->outs_n == 0)
        return ST_OK;
    l = layout_of(s);
    TRY(results_room(c, s->outs_n));
    TRY(cuda_block_take(c, &c->sends, l.bytes, &b));
    params_write(s, vocab, &l, b->host);
    TRY(cuda_block_send(c, b, l.raw));
    TRY(st_cuda(launch_sample(c->stream, logits, vocab, s->outs_n, (const struct launch_sampling *)b->device,
                              (const struct launch_bias_entry *)(b->device + l.bias),
                              (const struct launch_seen_entry *)(b->device + l.seen), l.biases_n,
                              (float *)(b->device + l.raw), c->results + c->results_n), "sample"));
    c->pending[c->pending_n++] = (struct cuda_pending){ s->sampled, c->results_n, s->outs_n };
    c->results_n += s->outs_n;
out:
    return st;
}
