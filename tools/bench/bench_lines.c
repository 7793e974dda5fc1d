#include "tools/bench/bench_lines.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "queue/queue.h"

struct bench {
    const struct lines_model *m;
    const struct bench_lines *b;
    struct queue *queue;
    struct record *records[BENCH_LINES_MAX];
    int records_n;
    struct intake *intake;
    struct buf line;
    /* sums over all lines */
    int64_t lines_n, failed_n, bytes, prompt_tokens, answer_tokens, result_bytes;
    int64_t read_ns, text_ns, result_ns, free_ns;
};

static status records_load(struct bench *b, struct error *err)
{
    while (!queue_ended(b->queue) && b->records_n < BENCH_LINES_MAX) {
        status st = queue_poll(b->queue, 0, &b->records[b->records_n], err);

        if (st == ST_OK)
            b->records_n++;
        else if (st != ST_AGAIN)
            return st;
    }
    return b->records_n > 0 ? ST_OK : error_set(err, ST_REJECT, "%s holds no line", b->b->input);
}

/* The engine's part, with the prompt's own tokens for an answer. */
static void choice_answer(struct bench *b, struct request *r, struct choice *c)
{
    int n = b->b->answer_n < r->params.max_tokens ? b->b->answer_n : r->params.max_tokens;

    detok_init(&c->detok, b->m->tokenizer, &r->params.stop, !r->params.skip_special);
    for (int i = 0; i < n; i++)
        (void)detok_add(&c->detok, r->prompt[i % r->prompt_n]);
    detok_end(&c->detok);
    c->finish = FINISH_LENGTH;
    b->answer_tokens += n;
}

static void request_answer(struct bench *b, struct request *r)
{
    struct request_group *g = r->group;
    int32_t n = g != NULL ? g->requests_n : 1;

    for (int32_t i = 0; i < n; i++) {
        struct request *one = g != NULL ? g->requests[i] : r;

        b->prompt_tokens += one->prompt_n;
        one->params.logprobs = one->params.echo_logprobs = false;      /* nobody computed them */
        for (int32_t k = 0; k < one->params.n; k++)
            choice_answer(b, one, &one->choices[k]);
        one->verdict = VERDICT_DONE;
    }
}

static void line_time(struct bench *b, const struct record *rec)
{
    struct request *r = NULL;
    int64_t at = clock_thread_cpu_ns(), next;

    if (intake_read(b->intake, rec, &r) != ST_OK)
        return;
    next = clock_thread_cpu_ns();
    b->read_ns += next - at;
    b->lines_n++;
    b->bytes += (int64_t)rec->value_n;
    if (r->verdict == VERDICT_NONE)
        request_answer(b, r);
    else
        b->failed_n++;
    at = clock_thread_cpu_ns();
    b->text_ns += at - next;
    buf_reset(&b->line);
    (void)lines_result(b->m, r, "batch_req_0123456789abcdef_12345", &b->line);
    b->result_bytes += (int64_t)b->line.n;
    next = clock_thread_cpu_ns();
    b->result_ns += next - at;
    request_free_line(r);
    b->free_ns += clock_thread_cpu_ns() - next;
}

static void report(const struct bench *b, FILE *out)
{
    double n = (double)b->lines_n, us = 1e-3 / n;

    if (b->b->json) {
        fprintf(out, "{\"lines\": %" PRId64 ", \"failed\": %" PRId64 ", \"line_bytes\": %.0f, \"prompt_tokens\": %.1f, "
                "\"answer_tokens\": %.1f, \"result_bytes\": %.0f, \"read_us\": %.2f, \"text_us\": %.2f, \"result_us\": %.2f, "
                "\"free_us\": %.2f}\n", b->lines_n, b->failed_n, (double)b->bytes / n, (double)b->prompt_tokens / n,
                (double)b->answer_tokens / n, (double)b->result_bytes / n, (double)b->read_ns * us, (double)b->text_ns * us,
                (double)b->result_ns * us, (double)b->free_ns * us);
        return;
    }
    fprintf(out, "a line   %.0f bytes, %.1f prompt tokens, %.1f answer tokens, a result of %.0f bytes (%d lines read %.0f times)\n",
            (double)b->bytes / n, (double)b->prompt_tokens / n, (double)b->answer_tokens / n, (double)b->result_bytes / n,
            b->records_n, n / b->records_n);
    fprintf(out, "read     %8.2f us  JSON, template, tokens: %.1f MB/s\n", (double)b->read_ns * us,
            (double)b->bytes * 1e3 / (double)b->read_ns);
    fprintf(out, "text     %8.2f us  tokens to text\n", (double)b->text_ns * us);
    fprintf(out, "result   %8.2f us  result line: %.1f MB/s\n", (double)b->result_ns * us,
            (double)b->result_bytes * 1e3 / (double)b->result_ns);
    fprintf(out, "free     %8.2f us\n", (double)b->free_ns * us);
    if (b->failed_n > 0)
        fprintf(out, "failed   %8.1f %%\n", 100 * (double)b->failed_n / n);
}

status bench_lines_run(const struct lines_model *m, const struct bench_lines *options, FILE *out, struct error *err)
{
    struct queue_job job = { .url = "read:", .input = options->input };
    struct bench *b = mem_take_zero(1, sizeof *b);
    int64_t end;
    status st;

    b->m = m;
    b->b = options;
    TRY(queue_open(m->cfg, &job, &b->queue, err));
    TRY(records_load(b, err));
    b->intake = intake_open(m);
    end = clock_mono_ns() + (int64_t)(options->seconds * (double)NS_PER_S);
    do {
        for (int i = 0; i < b->records_n; i++)
            line_time(b, b->records[i]);
    } while (clock_mono_ns() < end);
    report(b, out);
out:
    for (int i = 0; i < b->records_n; i++)
        queue_record_give(b->queue, b->records[i]);
    intake_close(b->intake);
    queue_close(b->queue);
    buf_fini(&b->line);
    free(b);
    return st;
}
