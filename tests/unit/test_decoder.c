/* What model_inspect says of a decoder: the shape of a sound file, and a refusal that names the key or tensor for
 * everything that the forward pass would not honour. */
#define _POSIX_C_SOURCE 200809L        /* mkstemp */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/tiny_model.h"
#include "worker/model/model.h"

static char path[] = "/tmp/nightshift-decoder-XXXXXX";

static int make_path(void **state)
{
    int fd = mkstemp(path);

    (void)state;
    return fd < 0 ? -1 : close(fd);
}

static int drop_path(void **state)
{
    (void)state;
    return unlink(path);
}

/* The tiny model without `skip`, with what `add` puts in its place. */
static status inspect(const char *skip, void (*add)(struct gguf_writer *w), struct model_shape *shape, struct error *err)
{
    struct tiny_options o;
    struct gguf_writer w;
    struct buf b = BUF_EMPTY;
    struct gguf *g;
    status st;

    tiny_model_defaults(&o);
    o.layers_n = 2;
    gguf_writer_init(&w);
    w.skip = skip;
    tiny_model_put(&w, &o);
    w.skip = NULL;
    if (add != NULL)
        add(&w);
    gguf_writer_file(&w, &b);
    file_write(path, b.data, b.n);
    buf_fini(&b);
    gguf_writer_fini(&w);
    st = gguf_open(path, &g, err);
    if (st != ST_OK)
        fail_msg("%s", err->text);
    st = model_inspect(g, shape, err);
    gguf_close(g);
    return st;
}

static void refused(const char *skip, void (*add)(struct gguf_writer *w), const char *cause)
{
    struct model_shape shape;
    struct error err = { "" };

    if (inspect(skip, add, &shape, &err) != ST_REJECT)
        fail_msg("accepted: expected \"%s\"", cause);
    if (strstr(err.text, cause) == NULL || strstr(err.text, path) == NULL)
        fail_msg("expected \"%s\", got \"%s\"", cause, err.text);
}

static void shape_of_tiny(void **state)
{
    struct model_shape s;
    struct error err;

    (void)state;
    assert_int_equal(inspect(NULL, NULL, &s, &err), ST_OK);
    assert_string_equal(s.family, "llama");
    assert_string_equal(s.name, "tiny");
    assert_string_equal(s.quant, "F32");
    assert_true(s.layers_n == 2 && s.dim == 64 && s.heads_n == 4 && s.kv_heads_n == 2 && s.head_dim == 16);
    assert_true(s.ff == 128 && s.vocab == 320 && s.context == 2048 && !s.tied_head && s.rope_base == 10000.0);
    assert_true(s.norm_eps == 1e-5f);
    assert_int_equal(s.parameters_n, 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128 + 2 * 64) + 64 + 2 * 64 * 320);
    assert_int_equal(inspect("output.weight", NULL, &s, &err), ST_OK);
    assert_true(s.tied_head);
}

static void shape_of_smollm2(void **state)
{
    struct model_shape s;
    struct gguf *g;
    struct error err;

    (void)state;
    if (access(NIGHTSHIFT_MODEL, R_OK) != 0) {
        print_message("the default model is not here\n");
        skip();
    }
    assert_int_equal(gguf_open(NIGHTSHIFT_MODEL, &g, &err), ST_OK);
    assert_int_equal(model_inspect(g, &s, &err), ST_OK);
    assert_string_equal(s.name, "Smollm2 135M 8k Lc100K Mix1 Ep2");
    assert_string_equal(s.quant, "Q4_1");
    assert_true(s.layers_n == 30 && s.dim == 576 && s.heads_n == 9 && s.kv_heads_n == 3 && s.head_dim == 64);
    assert_true(s.ff == 1536 && s.vocab == 49152 && s.context == 8192 && s.tied_head && s.rope_base == 100000.0);
    assert_int_equal(s.parameters_n, 134515008);
    assert_int_equal(s.file_bytes, 98362432);
    gguf_close(g);
}

/* ---- metadata ---- */

#define PUT_U32(name, key, value) static void name(struct gguf_writer *w) { gguf_put_u32(w, key, value); }
#define PUT_REAL(name, key, value) static void name(struct gguf_writer *w) { gguf_put_real(w, key, value); }
#define PUT_TEXT(name, key, value) static void name(struct gguf_writer *w) { gguf_put_text(w, key, value); }
#define PUT_LIST(name, key) \
    static void name(struct gguf_writer *w) { gguf_put_i32s(w, key, (int32_t[]){ 4, 4 }, 2); }

PUT_TEXT(arch_mamba, "general.architecture", "mamba\n")
PUT_U32(arch_number, "general.architecture", 1)
PUT_U32(split, "split.count", 3)
PUT_TEXT(adapter, "general.type", "adapter")
PUT_U32(old_blocks, "general.quantization_version", 1)
PUT_U32(layers_0, "llama.block_count", 0)
PUT_U32(layers_huge, "llama.block_count", 4000000000u)
PUT_U32(layers_3, "llama.block_count", 3)
PUT_U32(layers_1, "llama.block_count", 1)
PUT_TEXT(layers_text, "llama.block_count", "2")
PUT_U32(context_0, "llama.context_length", 0)
PUT_U32(dim_0, "llama.embedding_length", 0)
PUT_U32(dim_65, "llama.embedding_length", 65)
PUT_U32(dim_32, "llama.embedding_length", 32)
PUT_U32(heads_0, "llama.attention.head_count", 0)
PUT_LIST(heads_list, "llama.attention.head_count")
PUT_U32(kv_heads_0, "llama.attention.head_count_kv", 0)
PUT_U32(kv_heads_3, "llama.attention.head_count_kv", 3)
PUT_U32(kv_heads_8, "llama.attention.head_count_kv", 8)
PUT_LIST(kv_heads_list, "llama.attention.head_count_kv")
PUT_U32(key_length_15, "llama.attention.key_length", 15)
PUT_U32(key_length_huge, "llama.attention.key_length", 1 << 20)
PUT_U32(value_length_32, "llama.attention.value_length", 32)
PUT_LIST(ff_list, "llama.feed_forward_length")
PUT_U32(ff_64, "llama.feed_forward_length", 64)
PUT_REAL(eps_0, "llama.attention.layer_norm_rms_epsilon", 0.0f)
PUT_REAL(eps_nan, "llama.attention.layer_norm_rms_epsilon", NAN)
PUT_REAL(base_negative, "llama.rope.freq_base", -1.0f)
PUT_REAL(base_inf, "llama.rope.freq_base", INFINITY)
PUT_TEXT(base_text, "llama.rope.freq_base", "10000")
PUT_REAL(scale_0, "llama.rope.scaling.factor", 0.0f)
PUT_U32(rope_dim_3, "llama.rope.dimension_count", 3)
PUT_U32(rope_dim_32, "llama.rope.dimension_count", 32)
PUT_TEXT(yarn, "llama.rope.scaling.type", "yarn")
PUT_U32(experts, "llama.expert_count", 8)
PUT_U32(window, "llama.attention.sliding_window", 512)
PUT_U32(unknown_key, "llama.logit_scale", 1)
PUT_U32(vocab_321, "llama.vocab_size", 321)

static void metadata_is_checked(void **state)
{
    (void)state;
    refused("general.architecture", arch_mamba, "the architecture \"mamba?\" is not supported; supported: llama");
    refused("general.architecture", arch_number, "general.architecture is missing");
    refused("general.architecture", NULL, "general.architecture is missing");
    refused(NULL, split, "one of 3 parts");
    refused(NULL, adapter, "general.type is \"adapter\"");
    refused(NULL, old_blocks, "quantization_version is 1; 2 is supported");
    refused("llama.block_count", NULL, "llama.block_count is missing");
    refused("llama.block_count", layers_0, "llama.block_count is 0; 1 to");
    refused("llama.block_count", layers_huge, "llama.block_count is 4000000000");
    refused("llama.block_count", layers_3, "blk.2.attn_norm.weight is missing");
    refused("llama.block_count", layers_1, "tensor blk.1.attn_norm.weight is not known");
    refused("llama.block_count", layers_text, "is of kind text");
    refused("llama.context_length", context_0, "llama.context_length is 0");
    refused("llama.embedding_length", dim_0, "llama.embedding_length is 0");
    refused("llama.embedding_length", dim_65, "must be even");
    refused("llama.embedding_length", dim_32, "token_embd.weight is 64 x 320 x 1 x 1 and must be 32 x 320");
    refused("llama.attention.head_count", heads_0, "head_count is 0");
    refused("llama.attention.head_count", heads_list, "layers that differ in shape");
    refused("llama.attention.head_count_kv", kv_heads_0, "head_count_kv is 0");
    refused("llama.attention.head_count_kv", kv_heads_3, "4 heads cannot share 3");
    refused("llama.attention.head_count_kv", kv_heads_8, "head_count_kv is 8; 1 to 4");
    refused("llama.attention.head_count_kv", kv_heads_list, "layers that differ in shape");
    refused("llama.attention.key_length", key_length_15, "heads of 15 keys and 16 values");
    refused("llama.attention.key_length", key_length_huge, "key_length is 1048576");
    refused("llama.attention.value_length", value_length_32, "heads of 16 keys and 32 values");
    refused("llama.feed_forward_length", ff_list, "layers that differ in shape");
    refused("llama.feed_forward_length", ff_64, "blk.0.ffn_gate.weight is 64 x 128 x 1 x 1 and must be 64 x 64");
    refused("llama.attention.layer_norm_rms_epsilon", NULL, "layer_norm_rms_epsilon is missing");
    refused("llama.attention.layer_norm_rms_epsilon", eps_0, "layer_norm_rms_epsilon is 0; 1e-30 to 1");
    refused("llama.attention.layer_norm_rms_epsilon", eps_nan, "layer_norm_rms_epsilon is nan");
    refused("llama.rope.freq_base", base_negative, "freq_base is -1; 1 to 1e+12");
    refused("llama.rope.freq_base", base_inf, "freq_base is inf");
    refused("llama.rope.freq_base", base_text, "freq_base is not a number");
    refused("llama.rope.dimension_count", rope_dim_3, "must be even");
    refused("llama.rope.freq_base", base_text, "freq_base is not a number");
    refused("llama.rope.dimension_count", rope_dim_32, "dimension_count is 32; 2 to 16");
    refused(NULL, scale_0, "rope.scaling.factor is 0; 0.1 to");
    refused(NULL, yarn, "rope.scaling.type is \"yarn\"");
    refused(NULL, experts, "expert_count is 8: mixtures of experts are not supported");
    refused(NULL, window, "sliding_window is 512: sliding windows are not supported");
    refused(NULL, unknown_key, "llama.logit_scale is not known");
    refused(NULL, vocab_321, "vocab_size is 321 and token_embd.weight has 320 rows");
}

/* ---- tensors ---- */

static void put_floats(struct gguf_writer *w, const char *name, int64_t k, int64_t rows, float value)
{
    const int64_t dims[2] = { k, rows };
    float *values = mem_take((size_t)(k * rows) * sizeof *values);

    for (int64_t i = 0; i < k * rows; i++)
        values[i] = value;
    gguf_put_tensor(w, name, TENSOR_F32, rows == 1 ? 1 : 2, dims, values, (size_t)(k * rows) * sizeof *values);
    free(values);
}

static void q_bias(struct gguf_writer *w) { put_floats(w, "blk.1.attn_q.bias", 64, 1, 0.5f); }
static void up_bias(struct gguf_writer *w) { put_floats(w, "blk.1.ffn_up.bias", 128, 1, 0.5f); }
static void q_norm(struct gguf_writer *w) { put_floats(w, "blk.1.attn_q_norm.weight", 16, 1, 0.5f); }
static void expert_tensor(struct gguf_writer *w) { put_floats(w, "blk.0.ffn_gate_exps.weight", 64, 2, 0.5f); }
static void turned_up(struct gguf_writer *w) { put_floats(w, "blk.0.ffn_up.weight", 128, 64, 0.5f); }
static void short_norm(struct gguf_writer *w) { put_floats(w, "output_norm.weight", 32, 1, 0.5f); }
static void zero_factor(struct gguf_writer *w) { put_floats(w, "rope_freqs.weight", 8, 1, 0.0f); }
static void nan_factor(struct gguf_writer *w) { put_floats(w, "rope_freqs.weight", 8, 1, NAN); }
static void long_factors(struct gguf_writer *w) { put_floats(w, "rope_freqs.weight", 16, 1, 1.0f); }
static void small_embed(struct gguf_writer *w) { put_floats(w, "token_embd.weight", 64, 310, 0.5f); }
static void good_factors(struct gguf_writer *w) { put_floats(w, "rope_freqs.weight", 8, 1, 2.0f); }
static void deep_up(struct gguf_writer *w)
{
    const int64_t dims[3] = { 64, 128, 2 };
    float *values = mem_take_zero(64 * 128 * 2, sizeof *values);

    gguf_put_tensor(w, "blk.0.ffn_up.weight", TENSOR_F32, 3, dims, values, 64 * 128 * 2 * sizeof *values);
    free(values);
}
static void q5_up(struct gguf_writer *w)
{
    const int64_t dims[2] = { 64, 128 };
    uint8_t *bytes = mem_take_zero(128, 44);

    gguf_put_tensor(w, "blk.0.ffn_up.weight", (enum tensor_type)6, 2, dims, bytes, 128 * 44);
    free(bytes);
}

static void tensors_are_checked(void **state)
{
    struct model_shape s;
    struct error err;

    (void)state;
    refused("token_embd.weight", NULL, "token_embd.weight is missing");
    refused("token_embd.weight", small_embed, "the tokenizer has 320 tokens and the model 310");
    refused("output_norm.weight", NULL, "output_norm.weight is missing");
    refused("blk.1.attn_k.weight", NULL, "blk.1.attn_k.weight is missing");
    refused("blk.0.ffn_up.weight", q5_up, "blk.0.ffn_up.weight is of type Q5_0; supported: F32");
    refused("blk.0.ffn_up.weight", turned_up, "is 128 x 64 x 1 x 1 and must be 64 x 128");
    refused("blk.0.ffn_up.weight", deep_up, "is 64 x 128 x 2 x 1 and must be 64 x 128");
    refused("output_norm.weight", short_norm, "is 32 x 1 x 1 x 1 and must be 64 x 1");
    refused(NULL, q_bias, "layer 1 has a bias for some of query, key and value");
    refused(NULL, up_bias, "blk.1.ffn_up.bias is not known to the family llama");
    refused(NULL, q_norm, "blk.1.attn_q_norm.weight is not known");
    refused(NULL, expert_tensor, "blk.0.ffn_gate_exps.weight is not known");
    refused(NULL, zero_factor, "rope_freqs.weight holds 0");
    refused(NULL, nan_factor, "rope_freqs.weight holds nan");
    refused(NULL, long_factors, "rope_freqs.weight is 16 x 1 x 1 x 1 and must be 8 x 1");
    assert_int_equal(inspect(NULL, good_factors, &s, &err), ST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_of_tiny),
        cmocka_unit_test(shape_of_smollm2),
        cmocka_unit_test(metadata_is_checked),
        cmocka_unit_test(tensors_are_checked)
    };

    return cmocka_run_group_tests(tests, make_path, drop_path);
}
