/* tools/nightshift/cmd_model.c - what the loader and the tokenizer see in a model file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "tools/nightshift/cli.h"
#include "worker/model/model.h"
#include "worker/text/template.h"

struct seen {
    struct model_shape shape;
    const char *pre;               /* name of the pre-tokenizer, points into the file */
    size_t pre_n;
    int32_t vocab_n;
    bool has_template;
    char template_error[1024];     /* "": it parses */
    int64_t kv_bytes;              /* a token, in the type the CPU device keeps (bf16) */
};

/* Opens everything but the weights. */
static status model_see(const struct gguf *g, struct seen *s, struct error *err)
{
    struct tokenizer_spec spec;
    struct tokenizer *tokenizer = NULL;
    struct template *template = NULL;
    void *memory = NULL;
    const char *source;
    struct error why;
    size_t n;
    status st;

    TRY(model_inspect(g, &s->shape, err));
    TRY(gguf_tokenizer(g, &spec, &memory, err));
    TRY(tokenizer_open(&spec, &tokenizer, err));
    s->vocab_n = spec.vocab_n;
    if (!gguf_text(g, "tokenizer.ggml.pre", &s->pre, &s->pre_n)) {
        s->pre = "";
        s->pre_n = 0;
    }
    source = gguf_template(g, &n);
    s->has_template = source != NULL;
    s->template_error[0] = '\0';
    if (source != NULL && template_open(source, n, &template, &why) != ST_OK)
        snprintf(s->template_error, sizeof s->template_error, "%s", why.text);
    s->kv_bytes = (int64_t)s->shape.layers_n * s->shape.kv_heads_n * s->shape.head_dim * 2 * 2;
out:
    template_close(template);
    tokenizer_close(tokenizer);
    free(memory);
    return st;
}

static void print_text(const struct seen *s, const struct config *cfg)
{
    const struct model_shape *m = &s->shape;
    int64_t fit_n = (cfg->kv_memory_mb << 20) / (s->kv_bytes * m->context);

    printf("name        %s\nfamily      %s: %d layers, dim %d, heads %d/%d x %d, ff %d%s\n", m->name, m->family, m->layers_n,
           m->dim, m->heads_n, m->kv_heads_n, m->head_dim, m->ff, m->tied_head ? ", tied head" : "");
    printf("parameters  %.1f M, %s in the file (%.1f MB)\n", (double)m->parameters_n / 1e6, m->quant,
           (double)m->file_bytes / 1e6);
    printf("context     %d tokens, rope base %g\n", m->context, m->rope_base);
    printf("kv          %" PRId64 " bytes a token; kv_memory_mb=%" PRId64 " holds %" PRId64 " tokens = %" PRId64
           " sequences of full context\n", s->kv_bytes, cfg->kv_memory_mb, (cfg->kv_memory_mb << 20) / s->kv_bytes, fit_n);
    printf("tokenizer   %d tokens, pre-tokenizer %.*s\n", s->vocab_n, (int)s->pre_n, s->pre);
    printf("template    %s%s\n", !s->has_template ? "none: chat lines get a 400"
           : s->template_error[0] ? "cannot be used: " : "yes", s->template_error);
}

static void print_json(const struct seen *s)
{
    const struct model_shape *m = &s->shape;
    struct buf b = BUF_EMPTY;
    char pre[64];

    snprintf(pre, sizeof pre, "%.*s", (int)s->pre_n, s->pre);
    buf_add_text(&b, "{\"name\": ");
    buf_add_json(&b, m->name);
    buf_add_text(&b, ", \"family\": ");
    buf_add_json(&b, m->family);
    buf_add_format(&b, ", \"layers\": %d, \"dim\": %d, \"heads\": %d, \"kv_heads\": %d, \"head_dim\": %d, \"ff\": %d"
                   ", \"vocab\": %d, \"context\": %d, \"tied_head\": %s, \"parameters\": %" PRId64 ", \"file_bytes\": %"
                   PRId64 ", \"kv_bytes_per_token\": %" PRId64 ", \"quant\": ", m->layers_n, m->dim, m->heads_n,
                   m->kv_heads_n, m->head_dim, m->ff, m->vocab, m->context, m->tied_head ? "true" : "false",
                   m->parameters_n, m->file_bytes, s->kv_bytes);
    buf_add_json(&b, m->quant);
    buf_add_text(&b, ", \"pre_tokenizer\": ");
    buf_add_json(&b, pre);
    buf_add_format(&b, ", \"template\": %s, \"template_error\": ", s->has_template ? "true" : "false");
    buf_add_json(&b, s->template_error[0] ? s->template_error : NULL);
    buf_add_text(&b, "}\n");
    fwrite(b.data, 1, b.n, stdout);
    buf_fini(&b);
}

int cmd_model(int argc, char **argv)
{
    static const struct option options[] = { CLI_OPTIONS, { "model", required_argument, NULL, 'm' }, { 0 } };
    const char *path = NULL;
    struct gguf *g;
    struct error err;
    struct seen seen;
    struct cli cli;
    int option;

    cli_init(&cli, argv);
    while ((option = getopt_long(argc, argv, "m:", options, NULL)) != -1) {
        if (option == 'm')
            path = optarg;
        else
            cli_option(&cli, option);
    }
    cli_start(&cli);
    if (cli.done)
        return cli.exit_code;
    if (path == NULL && optind < argc)
        path = argv[optind++];
    if (path == NULL || optind < argc)
        return cli_fail(&cli, EXIT_CODE_USAGE, "one model file is needed; see `nightshift model --help`");
    if (gguf_open(path, &g, &err) != ST_OK)
        return cli_fail(&cli, EXIT_CODE_CANNOT_START, "%s", err.text);
    if (model_see(g, &seen, &err) != ST_OK) {
        gguf_close(g);
        return cli_fail(&cli, EXIT_CODE_CANNOT_START, "%s", err.text);
    }
    if (cli.json)
        print_json(&seen);
    else
        print_text(&seen, &cli.cfg);
    gguf_close(g);
    return EXIT_CODE_DONE;
}
