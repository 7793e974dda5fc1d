#include "tests/support/run_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(status st, const struct error *err)
{
    if (st != ST_OK)
        fprintf(stderr, "%s: %s\n", status_name(st), err->text);
    ASSERT(st == ST_OK);
}

static void take_step(struct run *r)
{
    const size_t rows = (size_t)r->rows_max, wants = (size_t)r->wants_max;
    struct step *s = &r->step;

    s->token = mem_take_zero(rows, sizeof *s->token);
    s->pos = mem_take_zero(rows, sizeof *s->pos);
    s->parent = mem_take_zero(rows, sizeof *s->parent);
    s->seq = mem_take_zero((size_t)r->seqs_max, sizeof *s->seq);
    s->want = mem_take_zero(wants, sizeof *s->want);
    s->sampling = mem_take_zero(wants, sizeof *s->sampling);
    s->sampled = mem_take_zero(wants, sizeof *s->sampled);
}

bool run_can_open(const char *device)
{
    struct config cfg;
    struct device *d = NULL;
    bool there;

    config_defaults(&cfg);
    snprintf(cfg.device, sizeof cfg.device, "%s", device);
    there = device_open(&cfg, &d, NULL) == ST_OK;
    device_close(d);
    return there;
}

void run_open(struct run *r, const struct run_options *o)
{
    const int each = (o->positions_max + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
    struct config cfg;
    struct error err;
    struct kv_shape shape;

    memset(r, 0, sizeof *r);
    config_defaults(&cfg);
    cfg.threads = o->threads;
    snprintf(cfg.dtype, sizeof cfg.dtype, "%s", o->dtype);
    if (strcmp(o->isa, "cuda") == 0)
        snprintf(cfg.device, sizeof cfg.device, "cuda");
    else
        snprintf(cfg.cpu_isa, sizeof cfg.cpu_isa, "%s", o->isa);
    must(gguf_open(o->path, &r->gguf, &err), &err);
    must(device_open(&cfg, &r->device, &err), &err);
    must(model_open(r->gguf, r->device, o->rows_max, o->outs_max, &r->model, &err), &err);
    shape = model_kv_shape(r->model, each * o->seqs_max);
    must(kv_open(r->device, &shape, &r->kv, &err), &err);
    r->rows_max = r->wants_max = o->rows_max;
    r->seqs_max = o->seqs_max;
    r->positions_max = each * PAGE_POSITIONS;
    r->cached = mem_take_zero((size_t)r->seqs_max, sizeof *r->cached);
    r->pages = mem_take_zero((size_t)(each * r->seqs_max), sizeof *r->pages);
    /* Pages of one sequence are far apart and not in order, as they are in a cache. */
    for (int i = 0; i < each * r->seqs_max; i++)
        r->pages[i] = (i % each) * r->seqs_max + i / each;
    take_step(r);
}

void run_close(struct run *r)
{
    free(r->step.sampled);
    free(r->step.sampling);
    free(r->step.want);
    free(r->step.seq);
    free(r->step.parent);
    free(r->step.pos);
    free(r->step.token);
    free(r->pages);
    free(r->cached);
    kv_close(r->device, r->kv);
    model_close(r->model);
    device_close(r->device);
    gguf_close(r->gguf);
    memset(r, 0, sizeof *r);
}

void run_add(struct run *r, int seq, const int32_t *tokens, int n)
{
    struct step *s = &r->step;

    ASSERT(n > 0 && s->rows_n + n <= r->rows_max && s->seqs_n < r->seqs_max);
    ASSERT(r->cached[seq] + n <= r->positions_max);
    s->seq[s->seqs_n++] = (struct seq_span){
        .row = s->rows_n, .rows_n = n, .cached_n = r->cached[seq],
        .pages = r->pages + seq * (r->positions_max / PAGE_POSITIONS)
    };
    for (int i = 0; i < n; i++) {
        s->token[s->rows_n] = tokens[i];
        s->pos[s->rows_n] = r->cached[seq] + i;
        s->parent[s->rows_n] = i == 0 ? -1 : s->rows_n - 1;
        s->rows_n++;
    }
    r->cached[seq] += n;
}

int run_want(struct run *r, int back, const struct sampling *sampling)
{
    struct step *s = &r->step;

    ASSERT(s->outs_n < r->wants_max && back >= 0 && back < s->rows_n);
    s->want[s->outs_n] = s->rows_n - 1 - back;
    s->sampling[s->outs_n] = *sampling;
    s->sampling[s->outs_n].pos = s->pos[s->rows_n - 1 - back] + 1;
    return s->outs_n++;
}

void run_step(struct run *r)
{
    ASSERT(model_forward(r->model, &r->step, r->kv) == ST_OK);
    r->step.rows_n = r->step.seqs_n = r->step.outs_n = 0;
}

void run_forget(struct run *r, int seq)
{
    r->cached[seq] = 0;
}

struct sampling run_greedy(void)
{
    return (struct sampling){ .top_p = 1.0f, .repetition = 1.0f, .target = -1, .top_logprobs_n = 0 };
}

struct sampling run_target(int32_t token)
{
    struct sampling s = run_greedy();

    s.target = token;
    return s;
}
