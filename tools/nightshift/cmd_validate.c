/* tools/nightshift/cmd_validate.c - every line's verdict without a model run: what `run` would refuse, and why. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "tools/nightshift/cli.h"
#include "worker/lines/json_write.h"
#include "worker/pipeline/id_set.h"
#include "worker/pipeline/model_text.h"

enum { CODES_MAX = 32, SHOWN_DEFAULT = 20 };

struct validation {
    struct cli *cli;
    struct model_text text;
    struct queue *queue;
    struct intake *intake;
    struct id_set *ids;
    int64_t shown_max;
    int64_t lines_n, valid_n, requests_n, prompt_tokens, answer_tokens_max, other_model_n;
    struct { const char *code; int64_t n; } failures[CODES_MAX];
    int failures_n;
};

static void failure_count(struct validation *v, const char *code)
{
    int i = 0;

    while (i < v->failures_n && strcmp(v->failures[i].code, code) != 0)
        i++;
    if (i == CODES_MAX)
        return;
    v->failures[i].code = code;
    v->failures[i].n++;
    v->failures_n += i == v->failures_n;
}

static void failure_print(const struct validation *v, const struct request *r)
{
    struct buf b = BUF_EMPTY;

    if (!v->cli->json) {
        printf("line %" PRId64 ", %s: %s: %s\n", r->offset + 1, r->custom_id, r->error_code, r->error_text);
        return;
    }
    buf_add_format(&b, "{\"line\": %" PRId64 ", \"custom_id\": %s, \"code\": \"%s\", \"param\": ", r->offset + 1, r->custom_id,
                   r->error_code);
    if (r->error_param != NULL)
        json_add_text(&b, r->error_param, strlen(r->error_param));
    else
        buf_add_text(&b, "null");
    buf_add_text(&b, ", \"message\": ");
    json_add_text(&b, r->error_text, strlen(r->error_text));
    buf_add_text(&b, "}\n");
    fwrite(b.data, 1, b.n, stdout);
    buf_fini(&b);
}

static void good_count(struct validation *v, const struct request *r)
{
    const struct request_group *g = r->group;

    v->valid_n++;
    for (int32_t i = 0; i < (g != NULL ? g->requests_n : 1); i++) {
        const struct request *one = g != NULL ? g->requests[i] : r;

        v->requests_n++;
        v->prompt_tokens += one->prompt_n;
        v->answer_tokens_max += (int64_t)one->params.max_tokens * one->params.n;
    }
}

static void line_judge(struct validation *v, const struct record *rec)
{
    struct request *r = NULL;

    if (intake_read(v->intake, rec, &r) != ST_OK)
        return;
    v->lines_n++;
    v->other_model_n += r->model_differs;
    id_set_add(v->ids, r->custom_id);
    if (r->verdict == VERDICT_NONE) {
        good_count(v, r);
    } else {
        if (v->lines_n - v->valid_n <= v->shown_max)
            failure_print(v, r);
        failure_count(v, r->error_code);
    }
    request_free_line(r);
}

static status input_judge(struct validation *v, struct error *err)
{
    while (!queue_ended(v->queue)) {
        struct record *rec = NULL;
        status st = queue_poll(v->queue, 0, &rec, err);

        if (st == ST_AGAIN)
            continue;
        if (st != ST_OK)
            return st;
        line_judge(v, rec);
        queue_record_give(v->queue, rec);
    }
    return ST_OK;
}

static void summary_print_json(const struct validation *v)
{
    printf("{\"lines\": %" PRId64 ", \"valid\": %" PRId64 ", \"prompts\": %" PRId64 ", \"prompt_tokens\": %" PRId64
           ", \"answer_tokens_max\": %" PRId64 ", \"duplicate_custom_ids\": %" PRId64 ", \"other_models\": %" PRId64
           ", \"failures\": {", v->lines_n, v->valid_n, v->requests_n, v->prompt_tokens, v->answer_tokens_max,
           id_set_duplicates(v->ids), v->other_model_n);
    for (int i = 0; i < v->failures_n; i++)
        printf("%s\"%s\": %" PRId64, i > 0 ? ", " : "", v->failures[i].code, v->failures[i].n);
    puts("}}");
}

static void summary_print(const struct validation *v)
{
    int64_t bad_n = v->lines_n - v->valid_n;

    if (bad_n > v->shown_max)
        printf("... and %" PRId64 " more (--show N prints N)\n", bad_n - v->shown_max);
    printf("lines    %" PRId64 ": %" PRId64 " valid, %" PRId64 " that would fail\n", v->lines_n, v->valid_n, bad_n);
    for (int i = 0; i < v->failures_n; i++)
        printf("         %" PRId64 " %s\n", v->failures[i].n, v->failures[i].code);
    printf("prompts  %" PRId64 " of %" PRId64 " tokens, answers of %" PRId64 " tokens at most\n", v->requests_n,
           v->prompt_tokens, v->answer_tokens_max);
    if (id_set_duplicates(v->ids) > 0)
        printf("note     %" PRId64 " lines have a custom_id that an earlier line has; all are answered\n",
               id_set_duplicates(v->ids));
    if (v->other_model_n > 0)
        printf("note     %" PRId64 " lines name another model than \"%s\"; this one answers them\n", v->other_model_n,
               v->text.name);
}

static int validate(struct validation *v, const char *input, const char *model_path)
{
    struct queue_job job = { .url = "read:", .input = input };
    struct error err;
    status st;

    TRY(model_text_open(&v->text, &v->cli->cfg, model_path, NULL, &err));
    TRY(queue_open(&v->cli->cfg, &job, &v->queue, &err));
    v->intake = intake_open(&v->text.lines);
    v->ids = id_set_open();
    TRY(input_judge(v, &err));
    if (v->cli->json)
        summary_print_json(v);
    else
        summary_print(v);
out:
    id_set_close(v->ids);
    intake_close(v->intake);
    queue_close(v->queue);
    model_text_close(&v->text);
    if (st != ST_OK)
        return cli_fail(v->cli, EXIT_CODE_CANNOT_START, "%s", err.text);
    return v->valid_n == v->lines_n ? EXIT_CODE_DONE : EXIT_CODE_USAGE;
}

int cmd_validate(int argc, char **argv)
{
    enum { SHOW = 1 };
    static const struct option options[] = {
        CLI_OPTIONS, { "model", required_argument, NULL, 'm' }, { "show", required_argument, NULL, SHOW }, { 0 }
    };
    struct cli cli;
    struct validation v = { .cli = &cli, .shown_max = -1 };
    const char *model_path = NULL;
    int option;

    cli_init(&cli, argv);
    while ((option = getopt_long(argc, argv, "m:", options, NULL)) != -1) {
        switch (option) {
        case 'm': model_path = optarg; break;
        case SHOW: cli_number(&cli, "--show", optarg, 0, INT64_MAX, &v.shown_max); break;
        default: cli_option(&cli, option);
        }
    }
    cli_start(&cli);
    if (cli.done)
        return cli.exit_code;
    if (model_path == NULL || optind + 1 != argc)
        return cli_fail(&cli, EXIT_CODE_USAGE, "one input and -m MODEL are needed; see `nightshift validate --help`");
    if (v.shown_max < 0)
        v.shown_max = cli.json ? INT64_MAX : SHOWN_DEFAULT;
    return validate(&v, argv[optind], model_path);
}
