/* A GGUF file of hostile bytes: opened, looked at as a model and as a tokenizer, and every tensor's ends read. */
#include <stdlib.h>

#include "worker/model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_tensors(const struct gguf *g)
{
    for (size_t i = 0; i < gguf_tensors_n(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        int64_t rows = tensor_rows_n(t);
        float *row;

        if (!tensor_readable(t->type) || t->dims[0] > 1 << 16)
            continue;
        row = mem_take((size_t)t->dims[0] * sizeof *row);
        tensor_rows(t, 0, 1, row);
        tensor_rows(t, rows - 1, 1, row);
        free(row);
    }
}

static void read_keys(const struct gguf *g)
{
    for (size_t i = 0; i < gguf_keys_n(g); i++) {
        const char *key = gguf_key(g, i);
        struct gguf_array a;
        int64_t number;
        double real;
        const uint8_t *at;
        size_t n;

        (void)gguf_int(g, key, &number);
        (void)gguf_real(g, key, &real);
        if (!gguf_array(g, key, &a) || a.kind != GGUF_TEXT)
            continue;
        at = a.data;
        for (uint64_t k = 0; k < a.n; k++) {
            const char *text = gguf_array_text(&at, &n);

            (void)hash64(text, n, 0);
        }
        ASSERT(at == a.data + a.data_bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g;
    struct error err = { "" };
    struct tokenizer_spec spec;
    struct model_shape shape;
    void *memory;
    status st = gguf_open_memory("fuzz", data, size, &g, &err);

    ASSERT((st == ST_OK) == (g != NULL) && (st == ST_OK || err.text[0] != 0));
    if (st != ST_OK)
        return 0;
    if (gguf_tokenizer(g, &spec, &memory, &err) == ST_OK) {
        for (int32_t i = 0; i < spec.vocab_n; i++)
            (void)hash64(spec.tokens[i], spec.tokens_bytes[i], 0);
        for (int32_t i = 0; i < spec.merges_n; i++)
            (void)hash64(spec.merges[i], spec.merges_bytes[i], 0);
        free(memory);
    }
    if (model_inspect(g, &shape, &err) == ST_OK)
        ASSERT(shape.layers_n > 0 && shape.vocab > 0 && shape.parameters_n > 0);
    read_keys(g);
    read_tensors(g);
    gguf_close(g);
    return 0;
}
