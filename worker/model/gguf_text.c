/* What a GGUF file says of its tokenizer and chat template. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/model/gguf.h"

#define VOCAB_MAX (1 << 24)

static status wrong(const struct gguf *g, struct error *err, const char *key, const char *what)
{
    return error_set(err, ST_REJECT, "model file %.300s: %s %s", gguf_path(g), key, what);
}

static status table(const struct gguf *g, const char *key, enum gguf_kind kind, enum gguf_kind also, bool needed,
                    struct gguf_array *out, struct error *err)
{
    *out = (struct gguf_array){ kind, 0, NULL, 0 };
    if (!gguf_has(g, key, NULL))
        return needed ? wrong(g, err, key, "is missing: the file has no tokenizer") : ST_OK;
    if (!gguf_array(g, key, out) || (out->kind != kind && out->kind != also))
        return wrong(g, err, key, "is not an array of the right kind");
    if (out->n > VOCAB_MAX)
        return wrong(g, err, key, "has more than 16777216 items");
    return ST_OK;
}

/* A token id; -1: the key is missing. Some writers spell "none" as -1 or its 32 bits. */
static status token_id(const struct gguf *g, const char *key, int32_t vocab_n, int32_t *out, struct error *err)
{
    int64_t id = -1;

    *out = -1;
    if (!gguf_has(g, key, NULL))
        return ST_OK;
    if (!gguf_int(g, key, &id))
        return wrong(g, err, key, "is not an integer");
    if (id == -1 || id == UINT32_MAX)
        return ST_OK;
    if (id < 0 || id >= vocab_n)
        return error_set(err, ST_REJECT, "model file %.300s: %s is %" PRId64 " and the vocabulary has %" PRId32
                         " tokens", gguf_path(g), key, id, vocab_n);
    *out = (int32_t)id;
    return ST_OK;
}

static status flag(const struct gguf *g, const char *key, bool otherwise, bool *out, struct error *err)
{
    *out = otherwise;
    if (gguf_has(g, key, NULL) && !gguf_bool(g, key, out))
        return wrong(g, err, key, "is not a bool");
    return ST_OK;
}

static void texts(const struct gguf_array *a, const char **text, size_t *bytes)
{
    const uint8_t *at = a->data;

    for (uint64_t i = 0; i < a->n; i++)
        text[i] = gguf_array_text(&at, &bytes[i]);
}

static status name(const struct gguf *g, const char *key, bool needed, const char **text, size_t *n, struct error *err)
{
    *text = "";
    *n = 0;
    if (!gguf_has(g, key, NULL))
        return needed ? wrong(g, err, key, "is missing: the file has no tokenizer") : ST_OK;
    if (!gguf_text(g, key, text, n) || *n > 64 || memchr(*text, 0, *n) != NULL)
        return wrong(g, err, key, "is not a short text");
    return ST_OK;
}

/* Llama 3 files leave add_bos_token out and mean true; so does llama.cpp's loader for this pre-tokenizer. */
static bool bos_by_default(const char *pre)
{
    return strcmp(pre, "llama-bpe") == 0 || strcmp(pre, "llama3") == 0 || strcmp(pre, "llama-v3") == 0;
}

/* End of turn and end of message: models whose eos is neither (Llama 3 base vocabularies) name them so. */
static status ends_read(const struct gguf *g, struct tokenizer_spec *out, struct error *err)
{
    static const char *const keys[] = { "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id" };
    status st = ST_OK;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int32_t id;

        TRY(token_id(g, keys[i], out->vocab_n, &id, err));
        if (id >= 0)
            out->ends[out->ends_n++] = id;
    }
out:
    return st;
}

struct tables {
    struct gguf_array tokens, kinds, merges;
    const char *model, *pre;
    size_t model_n, pre_n;
};

static status tables_find(const struct gguf *g, struct tables *t, struct error *err)
{
    status st = ST_OK;

    TRY(name(g, "tokenizer.ggml.model", true, &t->model, &t->model_n, err));
    TRY(name(g, "tokenizer.ggml.pre", false, &t->pre, &t->pre_n, err));
    TRY(table(g, "tokenizer.ggml.tokens", GGUF_TEXT, GGUF_TEXT, true, &t->tokens, err));
    TRY(table(g, "tokenizer.ggml.token_type", GGUF_I32, GGUF_U32, false, &t->kinds, err));
    TRY(table(g, "tokenizer.ggml.merges", GGUF_TEXT, GGUF_TEXT, false, &t->merges, err));
    if (t->tokens.n == 0)
        return wrong(g, err, "tokenizer.ggml.tokens", "is empty");
    if (t->kinds.data != NULL && t->kinds.n != t->tokens.n)
        return wrong(g, err, "tokenizer.ggml.token_type", "and tokenizer.ggml.tokens differ in length");
out:
    return st;
}

/* One block for all tables: pointers first, then the numbers, then the two names. */
static void tables_copy(const struct tables *t, struct tokenizer_spec *out, void **memory)
{
    size_t tokens_n = (size_t)t->tokens.n, merges_n = (size_t)t->merges.n;
    char *block = mem_take(tokens_n * (sizeof(char *) + sizeof(size_t) + sizeof(int32_t)) +
                           merges_n * (sizeof(char *) + sizeof(size_t)) + t->model_n + t->pre_n + 2);
    const char **token = (const char **)(void *)block, **merge = token + tokens_n;
    size_t *token_bytes = (size_t *)(void *)(merge + merges_n), *merge_bytes = token_bytes + tokens_n;
    int32_t *kind = (int32_t *)(void *)(merge_bytes + merges_n);
    char *model = (char *)(kind + tokens_n), *pre = model + t->model_n + 1;

    texts(&t->tokens, token, token_bytes);
    texts(&t->merges, merge, merge_bytes);
    if (t->kinds.data != NULL)
        memcpy(kind, t->kinds.data, tokens_n * sizeof *kind);
    memcpy(model, t->model, t->model_n);
    model[t->model_n] = 0;
    memcpy(pre, t->pre, t->pre_n);
    pre[t->pre_n] = 0;
    *memory = block;
    *out = (struct tokenizer_spec){
        .model = model, .pre = pre, .vocab_n = (int32_t)tokens_n, .tokens = token, .tokens_bytes = token_bytes,
        .kinds = t->kinds.data != NULL ? kind : NULL,
        .merges_n = (int32_t)merges_n, .merges = merge, .merges_bytes = merge_bytes
    };
}

status gguf_tokenizer(const struct gguf *g, struct tokenizer_spec *out, void **memory, struct error *err)
{
    struct tables t;
    void *block = NULL;
    status st = ST_OK;

    *memory = NULL;
    memset(out, 0, sizeof *out);
    TRY(tables_find(g, &t, err));
    tables_copy(&t, out, &block);
    for (int32_t i = 0; out->kinds != NULL && i < out->vocab_n; i++)
        if (out->kinds[i] < TOKEN_NORMAL || out->kinds[i] > TOKEN_BYTE) {
            st = error_set(err, ST_REJECT, "model file %.300s: tokenizer.ggml.token_type of token %" PRId32 " is %"
                           PRId32 "; 1 to 6 are known", gguf_path(g), i, out->kinds[i]);
            goto out;
        }
    TRY(token_id(g, "tokenizer.ggml.bos_token_id", out->vocab_n, &out->bos, err));
    TRY(token_id(g, "tokenizer.ggml.eos_token_id", out->vocab_n, &out->eos, err));
    TRY(token_id(g, "tokenizer.ggml.unknown_token_id", out->vocab_n, &out->unknown, err));
    TRY(ends_read(g, out, err));
    TRY(flag(g, "tokenizer.ggml.add_bos_token", out->bos >= 0 && bos_by_default(out->pre), &out->add_bos, err));
    TRY(flag(g, "tokenizer.ggml.add_eos_token", false, &out->add_eos, err));
    if ((out->add_bos && out->bos < 0) || (out->add_eos && out->eos < 0)) {
        st = wrong(g, err, "tokenizer.ggml.add_bos_token", "or add_eos_token is set and the file names no such token");
        goto out;
    }
    *memory = block;
    block = NULL;
out:
    free(block);
    if (st != ST_OK)
        memset(out, 0, sizeof *out);
    return st;
}

const char *gguf_template(const struct gguf *g, size_t *n)
{
    const char *text;

    return gguf_text(g, "tokenizer.chat_template", &text, n) ? text : NULL;
}
