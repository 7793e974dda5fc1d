/* tests/unit/test_engine.c - what one request gets: ends, limits, choices, log-probabilities, errors; what is shared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/support/engine_rig.h"

static struct rig rig;

static struct request *make(int64_t offset, int32_t prompt_n, int32_t max_tokens)
{
    int32_t prompt[2048];

    rig_prompt(prompt, prompt_n, 0, 0, (uint64_t)offset);
    return rig_request(offset, prompt, prompt_n, max_tokens);
}

static struct request *run_one(struct request *r)
{
    engine_submit(rig.engine, r);
    rig_run(&rig);
    return rig_ended(&rig, r->offset);
}

static int fresh(void **state)
{
    (void)state;
    config_defaults(&rig.cfg);
    rig.cfg.kv_pages_max = 1000;
    rig_start(&rig);
    rig_forget(&rig);
    rig.progress_n = 0;
    return 0;
}

static struct token_bias *bias_of(struct request *r, int32_t n)
{
    struct token_bias *b = arena_take_zero(&r->arena, (size_t)n, sizeof *b);

    r->params.bias = b;
    r->params.bias_n = n;
    return b;
}

/* The text of tokens [0, n) of the choice, decoded apart. */
static void check_text(const struct choice *c, int32_t n)
{
    struct detok d;

    detok_init(&d, rig.tokenizer, NULL, false);
    for (int32_t i = 0; i < n; i++)
        assert_false(detok_add(&d, c->tokens[i]));
    detok_end(&d);
    assert_int_equal(c->detok.shown_n, d.shown_n);
    assert_memory_equal(c->detok.text.data, d.text.data, d.shown_n);
    detok_fini(&d);
}

static void test_length(void **state)
{
    struct request *r = make(1, 30, 20);
    const struct engine_counts *n = engine_counts(rig.engine);

    (void)state;
    r->params.ignore_eos = true;
    run_one(r);
    assert_int_equal(r->verdict, VERDICT_DONE);
    assert_int_equal(r->choices[0].finish, FINISH_LENGTH);
    assert_int_equal(r->choices[0].tokens_n, 20);
    check_text(&r->choices[0], 20);
    assert_int_equal(n->output_tokens, 20);
    assert_int_equal(n->prefill_tokens, 30);
    assert_int_equal(n->rows_n, 30 + 19);
    assert_int_equal(r->cached_n, 0);
    assert_true(r->started_ns > 0 && r->finished_ns >= r->started_ns);
}

/* A model that would end at once: not before min_tokens, and then with the end token as the last one, not in the text. */
static void test_end_token_and_min_tokens(void **state)
{
    struct request *r = make(2, 30, 50), *m = make(2, 30, 50), *i = make(2, 30, 9);

    (void)state;
    *bias_of(r, 1) = (struct token_bias){ TINY_IM_END, 100 };
    *bias_of(m, 1) = (struct token_bias){ TINY_IM_END, 100 };
    *bias_of(i, 1) = (struct token_bias){ TINY_IM_END, 100 };
    run_one(r);
    assert_int_equal(r->choices[0].finish, FINISH_STOP);
    assert_int_equal(r->choices[0].tokens_n, 1);
    assert_int_equal(r->choices[0].tokens[0], TINY_IM_END);
    assert_int_equal(r->choices[0].detok.shown_n, 0);
    rig_forget(&rig);

    m->params.min_tokens = 5;
    run_one(m);
    assert_int_equal(m->choices[0].finish, FINISH_STOP);
    assert_int_equal(m->choices[0].tokens_n, 6);
    for (int32_t k = 0; k < 5; k++)
        assert_false(tokenizer_ends(rig.tokenizer, m->choices[0].tokens[k]));
    check_text(&m->choices[0], 5);
    rig_forget(&rig);

    i->params.ignore_eos = true;
    run_one(i);
    assert_int_equal(i->choices[0].finish, FINISH_LENGTH);
    assert_int_equal(i->choices[0].tokens_n, 9);
    assert_int_equal(i->choices[0].tokens[8], TINY_IM_END);
}

/* One forbidden token is one: the very first may not end, the second does. */
static void test_min_tokens_one(void **state)
{
    struct request *r = make(93, 30, 50);

    (void)state;
    *bias_of(r, 1) = (struct token_bias){ TINY_IM_END, 100 };
    r->params.min_tokens = 1;
    run_one(r);
    assert_int_equal(r->choices[0].finish, FINISH_STOP);
    assert_int_equal(r->choices[0].tokens_n, 2);
    assert_int_equal(r->choices[0].tokens[1], TINY_IM_END);
}

static void test_stop_tokens(void **state)
{
    struct request *r = make(3, 30, 20), *s = make(3, 30, 20), *m = make(3, 30, 20);
    int32_t *stop;

    (void)state;
    r->params.ignore_eos = s->params.ignore_eos = m->params.ignore_eos = true;
    run_one(r);
    stop = (int32_t *)arena_copy(&s->arena, &r->choices[0].tokens[7], sizeof *stop);
    s->params.stop_tokens = stop;
    s->params.stop_tokens_n = 1;
    rig.ended_n--;
    run_one(s);
    assert_int_equal(s->choices[0].finish, FINISH_STOP);
    assert_true(s->choices[0].tokens_n <= 8);
    assert_memory_equal(s->choices[0].tokens, r->choices[0].tokens, (size_t)s->choices[0].tokens_n * sizeof *stop);
    assert_int_equal(s->choices[0].tokens[s->choices[0].tokens_n - 1], *stop);
    check_text(&s->choices[0], s->choices[0].tokens_n - 1);
    m->params.stop_tokens = (int32_t *)arena_copy(&m->arena, stop, sizeof *stop);
    m->params.stop_tokens_n = 1;
    m->params.min_tokens = 20;
    rig.ended_n--;
    run_one(m);
    for (int32_t k = 0; k < 20; k++)
        assert_int_not_equal(m->choices[0].tokens[k], *stop);
    assert_int_equal(m->choices[0].finish, FINISH_LENGTH);
    request_free(r);
    request_free(s);
}

static void test_stop_string(void **state)
{
    struct request *r = make(4, 30, 40), *s = make(4, 30, 40);
    static const char *stops[1];
    static size_t stops_bytes[1];
    char text[8];
    size_t at, whole;

    (void)state;
    r->params.ignore_eos = s->params.ignore_eos = true;
    run_one(r);
    whole = r->choices[0].detok.shown_n;
    for (at = whole / 2; (r->choices[0].detok.text.data[at] & 0xC0) == 0x80; at++)
        ;
    memcpy(text, r->choices[0].detok.text.data + at, 3);
    stops[0] = text;
    stops_bytes[0] = 3;
    s->params.stop = (struct stop_set){ stops, stops_bytes, 1, false };
    rig.ended_n--;
    run_one(s);
    assert_int_equal(s->choices[0].finish, FINISH_STOP);
    assert_true(s->choices[0].detok.shown_n <= at);
    assert_true(s->choices[0].tokens_n < 40);
    assert_memory_equal(s->choices[0].detok.text.data, r->choices[0].detok.text.data, s->choices[0].detok.shown_n);
    request_free(r);
}

/* Four choices: the prompt is computed once, but for each choice's last row; each is what it would be alone. */
static void test_choices(void **state)
{
    struct request *r = make(5, 100, 12), *alone;
    const struct engine_counts *n = engine_counts(rig.engine);
    uint64_t seeds[4];

    (void)state;
    rig_choices(r, 4);
    r->params.ignore_eos = true;
    r->params.temperature = 0.9f;
    run_one(r);
    assert_int_equal(n->prefill_tokens, 100 + 3);
    assert_int_equal(n->output_tokens, 48);
    assert_int_equal(n->prompt_tokens, 100);
    for (int i = 0; i < 4; i++) {
        seeds[i] = r->choices[i].seed;
        assert_int_equal(r->choices[i].finish, FINISH_LENGTH);
        for (int k = 0; k < i; k++)
            assert_memory_not_equal(r->choices[i].tokens, r->choices[k].tokens, 12 * sizeof(int32_t));
    }
    rig.ended_n--;
    for (int i = 0; i < 4; i++) {
        rig_start(&rig);
        alone = make(5, 100, 12);
        alone->params.ignore_eos = true;
        alone->params.temperature = 0.9f;
        alone->choices[0].seed = seeds[i];
        run_one(alone);
        assert_memory_equal(alone->choices[0].tokens, r->choices[i].tokens, 12 * sizeof(int32_t));
        rig_forget(&rig);
    }
    request_free(r);
}

/* The noise belongs to a position, not to how the tokens before it came about: an answer's first half given as prompt
 * goes on with its second half. */
static void test_position_is_absolute(void **state)
{
    struct request *r = make(90, 50, 40), *half;
    int32_t prompt[70];

    (void)state;
    r->params.ignore_eos = true;
    r->params.temperature = 1;
    run_one(r);
    memcpy(prompt, r->prompt, 50 * sizeof prompt[0]);
    memcpy(prompt + 50, r->choices[0].tokens, 20 * sizeof prompt[0]);
    half = rig_request(91, prompt, 70, 20);
    half->params = r->params;
    half->params.max_tokens = 20;
    half->choices[0].seed = r->choices[0].seed;
    run_one(half);
    assert_int_equal(half->cached_n, 69);                  /* what was decoded is in the cache, too */
    assert_memory_equal(half->choices[0].tokens, r->choices[0].tokens + 20, 20 * sizeof prompt[0]);
}

/* More choices than sequences. */
static void test_many_choices(void **state)
{
    struct request *r = make(6, 40, 5);
    const struct engine_counts *n;

    (void)state;
    rig.cfg.sequences_max = 3;
    rig_start(&rig);
    n = engine_counts(rig.engine);
    rig_choices(r, 20);
    r->params.temperature = 1;
    r->params.ignore_eos = true;
    run_one(r);
    for (int i = 0; i < 20; i++)
        assert_int_equal(r->choices[i].tokens_n, 5);
    assert_true(n->prefill_tokens <= 40 + 19 * PAGE_POSITIONS);
}

/* Log-probabilities of a prompt are those that its tokens had as output, bit for bit. */
static void test_echo(void **state)
{
    struct request *r = make(7, 25, 30), *s, *zero;
    int32_t whole[55];

    (void)state;
    r->params.ignore_eos = true;
    r->params.logprobs = true;
    r->params.top_logprobs_n = 3;
    run_one(r);
    memcpy(whole, r->prompt, 25 * sizeof whole[0]);
    memcpy(whole + 25, r->choices[0].tokens, 30 * sizeof whole[0]);
    s = rig_request(8, whole, 55, 0);
    s->params.echo = s->params.echo_logprobs = true;
    s->params.top_logprobs_n = 3;
    run_one(s);                        /* the prefix is warm, and must be computed nevertheless */
    assert_int_equal(s->verdict, VERDICT_DONE);
    assert_int_equal(s->choices[0].finish, FINISH_LENGTH);
    assert_int_equal(s->choices[0].tokens_n, 0);
    assert_int_equal(s->cached_n, 0);
    assert_int_equal(s->prompt_logprobs[0].token, whole[0]);
    for (int i = 1; i < 55; i++) {
        const struct logprob *a = &s->prompt_logprobs[i], *b = &r->choices[0].logprobs[i - 25];

        assert_int_equal(a->token, whole[i]);
        assert_true(a->logprob < 0 && a->top_n == 3);
        if (i < 25)
            continue;
        assert_memory_equal(&a->logprob, &b->logprob, sizeof a->logprob);
        assert_memory_equal(a->top, b->top, 3 * sizeof a->top[0]);
        assert_int_equal(a->top[0].token, whole[i]);       /* greedy: the best token was taken */
    }
    zero = make(9, 10, 0);
    run_one(zero);                     /* nothing to compute at all */
    assert_int_equal(zero->choices[0].finish, FINISH_LENGTH);
}

/* Prompt and answer end where the context does. */
static void test_context(void **state)
{
    struct request *r = make(10, 2040, 100), *full = make(11, 2047, 5), *over = make(12, 2048, 5);

    (void)state;
    r->params.ignore_eos = full->params.ignore_eos = true;
    run_one(r);
    assert_int_equal(r->choices[0].finish, FINISH_LENGTH);
    assert_int_equal(r->choices[0].tokens_n, 8);
    run_one(full);
    assert_int_equal(full->choices[0].tokens_n, 1);
    run_one(over);
    assert_int_equal(over->verdict, VERDICT_REJECTED);
    assert_string_equal(over->error_code, "context_length_exceeded");
}

static void test_bad_tokens(void **state)
{
    int32_t bad[3] = { 5, 1 << 20, 7 };
    struct request *r = rig_request(13, bad, 3, 5);

    (void)state;
    run_one(r);
    assert_int_equal(r->verdict, VERDICT_REJECTED);
    assert_int_equal(r->http_status, 400);
}

/* Every token forbidden: that sequence ends with an error, its mates and its sister do not notice. */
static void test_error_alone(void **state)
{
    struct request *r = make(14, 30, 10), *mate = make(15, 30, 10);
    struct token_bias *b = bias_of(r, model_shape(rig.model)->vocab);
    uint64_t expected;

    (void)state;
    mate->params.ignore_eos = true;
    run_one(mate);
    expected = rig_outcome(mate);
    rig_forget(&rig);
    rig_start(&rig);
    for (int32_t i = 0; i < r->params.bias_n; i++)
        b[i] = (struct token_bias){ i, -INFINITY };
    mate = make(15, 30, 10);
    mate->params.ignore_eos = true;
    engine_submit(rig.engine, mate);
    run_one(r);
    assert_int_equal(r->choices[0].finish, FINISH_ERROR);
    assert_non_null(strstr(r->choices[0].error, "position 30"));
    assert_int_equal(rig_outcome(rig_ended(&rig, 15)), expected);
}

static void test_pool_too_small(void **state)
{
    struct request *r = make(16, 40, 200), *never = make(17, 200, 5), *fits = make(18, 40, 24);

    (void)state;
    rig.cfg.kv_pages_max = 4;
    rig_start(&rig);
    r->params.ignore_eos = fits->params.ignore_eos = true;
    engine_submit(rig.engine, r);
    engine_submit(rig.engine, never);
    run_one(fits);
    assert_int_equal(rig_ended(&rig, 17)->verdict, VERDICT_REJECTED);
    assert_string_equal(rig_ended(&rig, 17)->error_code, "kv_memory_exceeded");
    assert_int_equal(r->choices[0].finish, FINISH_ERROR);
    assert_non_null(strstr(r->choices[0].error, "need 5 KV pages, the pool has 4"));
    assert_int_equal(fits->choices[0].finish, FINISH_LENGTH);
    assert_int_equal(fits->choices[0].tokens_n, 24);
}

/* Ten requests of one prefix arrive together, cold: nine wait for the first instead of computing it again. */
static void test_held_back(void **state)
{
    const struct engine_counts *n = engine_counts(rig.engine);
    int32_t prompt[240];

    (void)state;
    for (int i = 0; i < 10; i++) {
        struct request *r;

        rig_prompt(prompt, 240, 203, 1, (uint64_t)i);
        r = rig_request(20 + i, prompt, 240, 4);
        r->params.ignore_eos = true;
        engine_submit(rig.engine, r);
    }
    rig_run(&rig);
    assert_int_equal(rig.ended_n, 10);
    assert_int_equal(n->prompt_tokens, 2400);
    assert_int_equal(n->prefill_tokens, 240 + 9 * 37);     /* 203 is no multiple of a page: the last one is copied */
    assert_int_equal(n->cached_tokens, 9 * 203);
    assert_int_equal(n->put_back_n, 0);
}

/* 300 requests of ten families in any order, and a pool that holds two families: with the whole window in sight each prefix
 * is computed once; with a tenth of it in sight the pages that will be wanted again are kept rather than others. */
static void test_prefixes_once(void **state)
{
    static const struct { int64_t window, again_max; } runs[2] = { { 16384, 0 }, { 30, 45 } };

    (void)state;
    for (int k = 0; k < 2; k++) {
        int32_t prompt[130], submitted = 0;
        int64_t computed;

        rig.cfg.kv_pages_max = 60;
        rig.cfg.sequences_max = 8;
        rig.cfg.plan_window_max = runs[k].window;
        rig.cfg.step_ms_max = 60000;       /* a busy machine must not change the steps */
        rig_start(&rig);
        while (submitted < 300 || engine_counts(rig.engine)->waiting_n > 0) {
            for (; submitted < 300 && engine_room(rig.engine) > 0; submitted++) {
                rig_prompt(prompt, 130, 100, (uint64_t)(submitted * 7 % 10), (uint64_t)submitted);
                engine_submit(rig.engine, rig_request(submitted, prompt, 130, 4));
            }
            assert_int_equal(engine_step(rig.engine), ST_OK);
        }
        rig_run(&rig);
        assert_int_equal(rig.ended_n, 300);
        rig_forget(&rig);
        computed = engine_counts(rig.engine)->prefill_tokens - 10 * 100 - 300 * 30;
        assert_true(computed <= runs[k].again_max * 100);
        assert_true(engine_cache_counts(rig.engine).evicted_pages > 300);
    }
}

/* No more starts than the next step has rows for: the others find more in the cache when they do. */
static void test_starts_as_needed(void **state)
{
    (void)state;
    rig.cfg.step_rows_max = 128;
    rig_start(&rig);
    for (int i = 0; i < 10; i++)
        engine_submit(rig.engine, make(200 + i, 100, 4));
    assert_int_equal(engine_step(rig.engine), ST_OK);
    assert_int_equal(engine_counts(rig.engine)->running_n, 2);
    rig_run(&rig);
    assert_int_equal(rig.ended_n, 10);
}

/* A prefix that nobody wanted is old when a request for it arrives; while that waits, younger pages make room. */
static void test_arrival_keeps_prefix(void **state)
{
    struct request *long_one = make(212, 16, 350), *waits = make(210, 100, 2);

    (void)state;
    rig.cfg.kv_pages_max = 40;
    rig.cfg.sequences_max = 1;
    rig_start(&rig);
    run_one(make(210, 100, 2));
    run_one(make(211, 300, 2));
    rig_forget(&rig);
    long_one->params.ignore_eos = true;
    long_one->priority = -1;
    engine_submit(rig.engine, long_one);
    engine_submit(rig.engine, waits);
    rig_run(&rig);
    assert_true(engine_cache_counts(rig.engine).evicted_pages >= 3);
    assert_true(waits->started_ns > long_one->started_ns);
    assert_int_equal(waits->cached_n, 96);
}

/* A request that is held back does not keep one behind it from starting. */
static void test_looks_beyond(void **state)
{
    int32_t prompt[400];

    (void)state;
    for (int i = 0; i < 3; i++) {
        rig_prompt(prompt, 400, i < 2 ? 390 : 0, 1, (uint64_t)i);
        prompt[0] = i < 2 ? 3 : 299;                       /* the third is behind the others in the walk */
        engine_submit(rig.engine, rig_request(30 + i, prompt, 400, 4));
    }
    assert_int_equal(engine_step(rig.engine), ST_OK);
    assert_int_equal(engine_counts(rig.engine)->running_n, 2);
    rig_run(&rig);
    assert_true(rig_ended(&rig, 30)->cached_n + rig_ended(&rig, 31)->cached_n >= 384);
}

static void test_progress(void **state)
{
    struct request *r = make(40, 20, 50);

    (void)state;
    rig.cfg.checkpoint_tokens = 8;
    rig.cfg.checkpoint_ms = 600000;
    rig_start(&rig);
    r->params.ignore_eos = true;
    engine_submit(rig.engine, r);
    for (int i = 0; i < 17; i++)
        assert_int_equal(engine_step(rig.engine), ST_OK);
    assert_int_equal(rig.progress_n, 2);
    assert_int_equal(rig.progress_offset, 40);
    assert_int_equal(rig.progress_tokens_n, 16);
    rig_run(&rig);
    assert_int_equal(rig.progress_n, 6);                   /* 48; what ended needs no frame */
}

/* A drain in the middle: every request comes back once, nothing is held, and what it had is enough to go on from. */
static void test_drop_and_resume(void **state)
{
    uint64_t expected[6], n_dropped;

    (void)state;
    for (int pass = 0; pass < 2; pass++) {
        rig_start(&rig);
        rig_forget(&rig);
        for (int i = 0; i < 6; i++) {
            struct request *r = make(50 + i, 30 + 10 * i, 40);

            r->params.temperature = 0.7f;
            r->params.logprobs = i % 2 == 0;
            rig_choices(r, 1 + i % 3);
            engine_submit(rig.engine, r);
        }
        if (pass == 1) {
            for (int i = 0; i < 20; i++)
                assert_int_equal(engine_step(rig.engine), ST_OK);
            rig_start(&rig);
            n_dropped = rig.dropped_n;
            assert_int_equal(rig.dropped_n + rig.ended_n, 6);
            assert_true(n_dropped > 3);
            for (size_t i = 0; i < n_dropped; i++) {       /* as a new process would: tokens alone */
                struct request *old = rig.dropped[i], *r = make(old->offset, old->prompt_n, 40);

                r->params.temperature = 0.7f;
                r->params.logprobs = old->params.logprobs;
                rig_choices(r, old->params.n);
                for (int32_t c = 0; c < r->params.n; c++) {
                    struct choice *to = &r->choices[c], *from = &old->choices[c];

                    to->tokens = mem_take((size_t)from->tokens_n * sizeof(int32_t));
                    memcpy(to->tokens, from->tokens, (size_t)from->tokens_n * sizeof(int32_t));
                    to->tokens_n = to->tokens_room = to->resumed_n = from->tokens_n;
                }
                engine_submit(rig.engine, r);
            }
        }
        rig_run(&rig);
        for (int i = 0; i < 6; i++) {
            if (pass == 0)
                expected[i] = rig_outcome(rig_ended(&rig, 50 + i));
            else
                assert_true(rig_outcome(rig_ended(&rig, 50 + i)) == expected[i]);
        }
    }
    assert_true(engine_counts(rig.engine)->resumed_tokens > 20);
}

/* Stored tokens that go on behind an end, or are none of the model's, are cut where a run without interruption would be. */
static void test_resumed_beyond_the_end(void **state)
{
    static const struct { int32_t stored[4]; int32_t kept_n; enum finish finish; } cases[] = {
        { { 270, TINY_IM_END, 271, 272 }, 2, FINISH_STOP },        /* an end in the middle */
        { { 270, 271, 1 << 20, 272 }, 2, FINISH_LENGTH },          /* no token: what follows is computed */
        { { 270, -1, 271, 272 }, 1, FINISH_LENGTH },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct request *r = make(94 + (int64_t)i, 30, 10);
        struct choice *c = &r->choices[0];

        *bias_of(r, 1) = (struct token_bias){ TINY_IM_END, -100 };
        c->tokens = mem_take(sizeof cases[i].stored);
        memcpy(c->tokens, cases[i].stored, sizeof cases[i].stored);
        c->tokens_n = c->tokens_room = c->resumed_n = 4;
        run_one(r);
        assert_int_equal(c->resumed_n, cases[i].kept_n);
        assert_int_equal(c->finish, cases[i].finish);
        assert_int_equal(c->tokens_n, cases[i].finish == FINISH_STOP ? 2 : 10);
        assert_memory_equal(c->tokens, cases[i].stored, (size_t)cases[i].kept_n * sizeof(int32_t));
    }
}

/* The pages that running sequences still expect are theirs: ten that need 8 of 40 pages each run five at a time, and none is
 * put back. */
static void test_admitted_by_pages(void **state)
{
    int most = 0;

    (void)state;
    rig.cfg.kv_pages_max = 40;
    rig_start(&rig);
    for (int i = 0; i < 10; i++) {
        struct request *r = make(300 + i, 16, 108);

        r->params.ignore_eos = true;
        engine_submit(rig.engine, r);
    }
    while (engine_step(rig.engine) == ST_OK)
        most = engine_counts(rig.engine)->running_n > most ? engine_counts(rig.engine)->running_n : most;
    assert_int_equal(rig.ended_n, 10);
    assert_int_equal(most, 5);
    assert_int_equal(engine_counts(rig.engine)->put_back_n, 0);
}

/* Two start, and the pool holds one of them to its end: the one that started first gets on. */
static void test_oldest_stays(void **state)
{
    struct request *first = make(97, 32, 100), *second = make(98, 32, 100);

    (void)state;
    rig.cfg.kv_pages_max = 10;
    rig.cfg.admit_output_percent = 0;
    rig_start(&rig);
    first->params.ignore_eos = second->params.ignore_eos = true;
    engine_submit(rig.engine, first);
    assert_int_equal(engine_step(rig.engine), ST_OK);
    run_one(second);
    assert_true(engine_counts(rig.engine)->put_back_n > 0);
    assert_int_equal(rig.ended[0]->offset, 97);
    assert_int_equal(first->choices[0].tokens_n, 100);
    assert_int_equal(second->choices[0].tokens_n, 100);
}

static void test_penalties_and_bias(void **state)
{
    struct request *r = make(60, 30, 30), *f = make(60, 30, 30), *b = make(60, 30, 4);
    int repeats = 0;

    (void)state;
    r->params.ignore_eos = f->params.ignore_eos = true;
    r->params.temperature = f->params.temperature = 0;
    run_one(r);
    rig.ended_n--;
    f->params.frequency = 2.0f;
    f->params.presence = 2.0f;
    f->params.repetition = 1.5f;
    run_one(f);
    for (int i = 0; i < 30; i++)
        for (int k = 0; k < i; k++)
            repeats += f->choices[0].tokens[i] == f->choices[0].tokens[k];
    assert_int_equal(repeats, 0);                          /* so heavy that no token comes twice */
    assert_memory_not_equal(r->choices[0].tokens, f->choices[0].tokens, 30 * sizeof(int32_t));
    rig.ended_n--;
    *bias_of(b, 1) = (struct token_bias){ 77, 1000 };
    run_one(b);
    for (int i = 0; i < 4; i++)
        assert_int_equal(b->choices[0].tokens[i], 77);
    request_free(r);
    request_free(f);
}

static void test_expired(void **state)
{
    struct request *late = make(70, 10, 3), *soon = make(71, 10, 3);

    (void)state;
    late->deadline_ms = clock_wall_ns() / NS_PER_MS - 1000;
    soon->deadline_ms = clock_wall_ns() / NS_PER_MS + 600000;
    engine_submit(rig.engine, late);
    run_one(soon);
    assert_int_equal(rig_ended(&rig, 70)->verdict, VERDICT_EXPIRED);
    assert_int_equal(soon->verdict, VERDICT_DONE);
}

static void test_room(void **state)
{
    (void)state;
    rig.cfg.plan_window_max = 5;
    rig_start(&rig);
    assert_int_equal(engine_room(rig.engine), 5);
    for (int i = 0; i < 5; i++)
        engine_submit(rig.engine, make(80 + i, 10, 3));
    assert_int_equal(engine_room(rig.engine), 0);
    assert_int_equal(engine_counts(rig.engine)->waiting_n, 5);
    rig_run(&rig);
    assert_int_equal(engine_room(rig.engine), 5);
    rig.cfg.plan_window_max = 100000;
    rig.cfg.plan_window_mb = 1;
    rig_start(&rig);
    for (int i = 0; i < 100000 && engine_room(rig.engine) > 0; i++)
        engine_submit(rig.engine, make(100 + i, 1500, 1));
    assert_in_range(engine_counts(rig.engine)->waiting_n, 64, 256);
    rig_start(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_length, fresh),
        cmocka_unit_test_setup(test_end_token_and_min_tokens, fresh),
        cmocka_unit_test_setup(test_min_tokens_one, fresh),
        cmocka_unit_test_setup(test_stop_tokens, fresh),
        cmocka_unit_test_setup(test_stop_string, fresh),
        cmocka_unit_test_setup(test_choices, fresh),
        cmocka_unit_test_setup(test_position_is_absolute, fresh),
        cmocka_unit_test_setup(test_many_choices, fresh),
        cmocka_unit_test_setup(test_echo, fresh),
        cmocka_unit_test_setup(test_context, fresh),
        cmocka_unit_test_setup(test_bad_tokens, fresh),
        cmocka_unit_test_setup(test_error_alone, fresh),
        cmocka_unit_test_setup(test_pool_too_small, fresh),
        cmocka_unit_test_setup(test_held_back, fresh),
        cmocka_unit_test_setup(test_prefixes_once, fresh),
        cmocka_unit_test_setup(test_starts_as_needed, fresh),
        cmocka_unit_test_setup(test_arrival_keeps_prefix, fresh),
        cmocka_unit_test_setup(test_looks_beyond, fresh),
        cmocka_unit_test_setup(test_progress, fresh),
        cmocka_unit_test_setup(test_drop_and_resume, fresh),
        cmocka_unit_test_setup(test_resumed_beyond_the_end, fresh),
        cmocka_unit_test_setup(test_admitted_by_pages, fresh),
        cmocka_unit_test_setup(test_oldest_stays, fresh),
        cmocka_unit_test_setup(test_penalties_and_bias, fresh),
        cmocka_unit_test_setup(test_expired, fresh),
        cmocka_unit_test_setup(test_room, fresh),
    };
    int failed;

    rig_open(&rig, 1, NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    rig_close(&rig);
    return failed;
}
