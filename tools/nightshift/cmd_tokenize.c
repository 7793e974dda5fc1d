/* tools/nightshift/cmd_tokenize.c - a text as the model sees it: token ids and their pieces. A raw text goes the way of
 * /v1/completions, a chat line is rendered by the model's template. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "tools/nightshift/cli.h"
#include "worker/lines/json_write.h"
#include "worker/pipeline/model_text.h"

struct source {
    const char *text, *file, *chat;        /* one of them */
    int64_t line;                          /* of chat, from 1 */
};

/* All of a file, "-": of stdin. */
static status file_load(const char *path, struct buf *out, struct error *err)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    size_t n;
    bool failed;

    if (f == NULL)
        return error_set(err, ST_REJECT, "cannot read %s", path);
    do {
        n = fread(buf_reserve(out, 1 << 16), 1, 1 << 16, f);
        out->n += n;
    } while (n > 0);
    failed = ferror(f) != 0;
    if (f != stdin)
        fclose(f);
    return failed ? error_set(err, ST_REJECT, "cannot read %s", path) : ST_OK;
}

/* Line number `line` of the text, without its newline, as a file queue would give it. False: there are not so many. */
static bool line_find(const struct buf *text, int64_t line, struct record *out)
{
    const char *p = text->data, *end = text->data + text->n;

    for (out->offset = -1; p < end; ) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));

        if (++out->offset == line - 1) {
            out->value = p;
            out->value_n = (size_t)((newline != NULL ? newline : end) - p);
            out->at_bytes = p - text->data;
            return true;
        }
        if (newline == NULL)
            return false;
        p = newline + 1;
    }
    return false;
}

static void piece_add(struct buf *b, const struct tokenizer *t, int32_t token)
{
    const char *bytes = "";
    size_t n = tokenizer_bytes(t, token, true, &bytes);

    if (utf8_valid(bytes, n) == n) {
        json_add_text(b, bytes, n);
        return;
    }
    buf_add_byte(b, '"');
    for (size_t i = 0; i < n; i++)
        buf_add_format(b, "\\\\x%02x", (unsigned char)bytes[i]);
    buf_add_byte(b, '"');
}

static void print(const struct tokenizer *t, const int32_t *tokens, size_t n, bool json)
{
    struct buf b = BUF_EMPTY;

    if (json) {
        buf_add_format(&b, "{\"count\": %zu, \"tokens\": [", n);
        for (size_t i = 0; i < n; i++)
            buf_add_format(&b, "%s%" PRId32, i > 0 ? ", " : "", tokens[i]);
        buf_add_text(&b, "], \"pieces\": [");
    }
    for (size_t i = 0; i < n; i++) {
        if (json)
            buf_add_text(&b, i > 0 ? ", " : "");
        else
            buf_add_format(&b, "%8" PRId32 "  %s", tokens[i], tokenizer_is_control(t, tokens[i]) ? "control  " : "         ");
        piece_add(&b, t, tokens[i]);
        if (!json)
            buf_add_byte(&b, '\n');
    }
    if (json)
        buf_add_text(&b, "]}\n");
    else
        buf_add_format(&b, "%zu tokens\n", n);
    fwrite(b.data, 1, b.n, stdout);
    buf_fini(&b);
}

static status text_tokenize(const struct model_text *m, const char *text, size_t n, bool json, struct error *err)
{
    struct encoder *e = encoder_open(m->tokenizer);
    struct text_span span = { text, n, TEXT_PLAIN };
    const int32_t *encoded = NULL;
    size_t encoded_n = 0;
    int32_t *tokens;
    size_t bos_n = tokenizer_adds_bos(m->tokenizer) && tokenizer_bos(m->tokenizer) >= 0;
    status st = encoder_encode(e, &span, 1, &encoded, &encoded_n);

    if (st != ST_OK) {
        st = error_set(err, ST_REJECT, "the text is not UTF-8");
    } else {
        tokens = mem_take((encoded_n + 1) * sizeof *tokens);
        tokens[0] = tokenizer_bos(m->tokenizer);
        if (encoded_n > 0)
            memcpy(tokens + bos_n, encoded, encoded_n * sizeof *tokens);
        print(m->tokenizer, tokens, encoded_n + bos_n, json);
        free(tokens);
    }
    encoder_close(e);
    return st;
}

/* The prompt of a line, chat or completions; of several the first. */
static status line_tokenize(const struct model_text *m, const struct buf *file, int64_t line, bool json, struct error *err)
{
    struct record rec = { 0 };
    struct intake *in = intake_open(&m->lines);
    struct request *r = NULL;
    status st = ST_OK;

    if (!line_find(file, line, &rec))
        st = error_set(err, ST_REJECT, "there is no line %" PRId64, line);
    else if (intake_read(in, &rec, &r) != ST_OK)
        st = error_set(err, ST_REJECT, "line %" PRId64 " is blank", line);
    else if (r->verdict != VERDICT_NONE)
        st = error_set(err, ST_REJECT, "line %" PRId64 ": %s: %s", line, r->error_code, r->error_text);
    else
        print(m->tokenizer, r->prompt, (size_t)r->prompt_n, json);
    request_free_line(r);
    intake_close(in);
    return st;
}

static int tokenize(const struct cli *cli, const char *model_path, const struct source *s)
{
    struct model_text m;
    struct buf bytes = BUF_EMPTY;
    struct error err;
    status st;

    TRY(model_text_open(&m, &cli->cfg, model_path, NULL, &err));
    if (s->text != NULL)
        buf_add_text(&bytes, s->text);
    else
        TRY(file_load(s->chat != NULL ? s->chat : s->file, &bytes, &err));
    st = s->chat != NULL ? line_tokenize(&m, &bytes, s->line, cli->json, &err)
                         : text_tokenize(&m, bytes.data, bytes.n, cli->json, &err);
out:
    buf_fini(&bytes);
    model_text_close(&m);
    return st == ST_OK ? EXIT_CODE_DONE : cli_fail(cli, EXIT_CODE_CANNOT_START, "%s", err.text);
}

int cmd_tokenize(int argc, char **argv)
{
    enum { CHAT = 1, LINE };
    static const struct option options[] = {
        CLI_OPTIONS, { "model", required_argument, NULL, 'm' }, { "file", required_argument, NULL, 'f' },
        { "chat", required_argument, NULL, CHAT }, { "line", required_argument, NULL, LINE }, { 0 }
    };
    struct source s = { .line = 1 };
    const char *model_path = NULL;
    struct cli cli;
    int option;

    cli_init(&cli, argv);
    while ((option = getopt_long(argc, argv, "m:f:", options, NULL)) != -1) {
        switch (option) {
        case 'm': model_path = optarg; break;
        case 'f': s.file = optarg; break;
        case CHAT: s.chat = optarg; break;
        case LINE: cli_number(&cli, "--line", optarg, 1, INT64_MAX, &s.line); break;
        default: cli_option(&cli, option);
        }
    }
    cli_start(&cli);
    if (cli.done)
        return cli.exit_code;
    if (optind < argc)
        s.text = argv[optind++];
    if (model_path == NULL || optind < argc || (s.text != NULL) + (s.file != NULL) + (s.chat != NULL) != 1)
        return cli_fail(&cli, EXIT_CODE_USAGE,
                        "-m MODEL and one of TEXT, -f FILE, --chat FILE are needed; see `nightshift tokenize --help`");
    return tokenize(&cli, model_path, &s);
}
