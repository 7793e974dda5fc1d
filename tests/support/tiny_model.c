#include "tests/support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static const char *const merges[] = {
    "\u0120 t", "h e", "i n", "r e", "o n", "\u0120t he", "e r", "\u0120 s", "a t", "\u0120 c", "n d", "e s",
    "\u0120 a", "i s", "o r", "\u0120 w", "\u0120 b", "o u", "\u0120 f", "a n", "\u0120 p", "\u0120 o", "e n",
    "in g", "i t", "\u0120 in", "\u0120o f", "\u0120 m", "\u0120a nd", "a l", "\u0120 d", "\u0120t o", "a r",
    "s t", "\u0120 h", "l e", "\u0120 l", "i c", "e d", "\u0120 n", "o m", "\u0120 e", "\u0120 r", "i on",
    "e l", "r o", "\u0120 g", "i l", "a s", "v e", "e t", "l l", "u r", "a c", "a m", "o t", "c t", "\u0120 i",
    "i d", "u s", "en t",
};
#define MERGES_N (sizeof merges / sizeof merges[0])
#define CONTROL_N 3
#define VOCAB_N (CONTROL_N + 256 + MERGES_N)

static const char chat_template[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

void tiny_model_defaults(struct tiny_options *o)
{
    *o = (struct tiny_options){
        .seed = 1, .layers_n = 3, .dim = 64, .heads_n = 4, .kv_heads_n = 2, .head_dim = 16, .ff = 128,
        .context = 2048, .type = TENSOR_F32, .rope_base = 10000.0f, .end_scale = 1.0f
    };
}

/* ---- tokenizer ---- */

/* GPT-2's alphabet: printable bytes stand for themselves, the others for the code points from 256 on, in order. */
static size_t byte_letter(int byte, char out[4])
{
    uint32_t code = 256;

    for (int b = 0; b <= byte; b++) {
        bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;

        if (b == byte)
            return (size_t)utf8_put(out, itself ? (uint32_t)b : code);
        code += !itself;
    }
    return 0;
}

static void put_tokenizer(struct gguf_writer *w)
{
    static const char *const control[CONTROL_N] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };
    static char text[VOCAB_N][16];
    const char *token[VOCAB_N];
    size_t bytes[VOCAB_N];
    int32_t kind[VOCAB_N];

    for (size_t i = 0; i < VOCAB_N; i++) {
        kind[i] = i < CONTROL_N ? TOKEN_CONTROL : TOKEN_NORMAL;
        token[i] = text[i];
        if (i < CONTROL_N) {
            bytes[i] = (size_t)snprintf(text[i], sizeof text[i], "%s", control[i]);
        } else if (i < CONTROL_N + 256) {
            bytes[i] = byte_letter((int)i - CONTROL_N, text[i]);
        } else {
            const char *m = merges[i - CONTROL_N - 256], *space = strchr(m, ' ');

            bytes[i] = (size_t)snprintf(text[i], sizeof text[i], "%.*s%s", (int)(space - m), m, space + 1);
        }
    }
    gguf_put_text(w, "tokenizer.ggml.model", "gpt2");
    gguf_put_text(w, "tokenizer.ggml.pre", "smollm");
    gguf_put_texts(w, "tokenizer.ggml.tokens", token, bytes, VOCAB_N);
    gguf_put_i32s(w, "tokenizer.ggml.token_type", kind, VOCAB_N);
    gguf_put_texts(w, "tokenizer.ggml.merges", merges, NULL, MERGES_N);
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", TINY_IM_START);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", TINY_IM_END);
    gguf_put_u32(w, "tokenizer.ggml.unknown_token_id", TINY_ENDOFTEXT);
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
    gguf_put_text(w, "tokenizer.chat_template", chat_template);
}

/* ---- weights ---- */

static uint64_t next_bits(uint64_t *state)      /* splitmix64: Steele, Lea, Flood 2014 */
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Nearly normal, mean 0, deviation 1: four uniforms, no library function whose last bit differs between machines. */
static float next_value(uint64_t *state)
{
    uint64_t bits = next_bits(state);
    int sum = (int)(bits & 0xffff) + (int)(bits >> 16 & 0xffff) + (int)(bits >> 32 & 0xffff) + (int)(bits >> 48);

    return (float)(sum - 131070) * (1.0f / 37837.0f);       /* 65536 / sqrt(3) */
}

static uint16_t to_bf16(float v)
{
    uint32_t bits;

    memcpy(&bits, &v, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t to_f16(float v)                 /* finite values; small ones become 0 */
{
    uint32_t bits, rounded;

    memcpy(&bits, &v, 4);
    if ((bits & 0x7fffffff) < 0x38800000)       /* below the smallest normal half */
        return (uint16_t)(bits >> 16 & 0x8000);
    rounded = (bits & 0x7fffffff) + 0xfff + (bits >> 13 & 1) - 0x38000000;
    return (uint16_t)((bits >> 16 & 0x8000) | rounded >> 13);
}

struct weights {
    struct gguf_writer *w;
    enum tensor_type type;
    uint64_t seed;
};

/* rows x k values of the given deviation; rows < control_n are scaled by control_scale. Each tensor has its own stream
 * of numbers, keyed by its name, so that adding a tensor changes no other. */
static void put_matrix(const struct weights *to, const char *name, int rows, int k, float deviation, float control_scale)
{
    size_t n = (size_t)rows * (size_t)k;
    float *value = mem_take(n * sizeof *value);
    uint16_t *half = mem_take(n * sizeof *half);
    uint64_t state = hash64(name, strlen(name), to->seed);
    const int64_t dims[2] = { k, rows };

    for (size_t i = 0; i < n; i++) {
        value[i] = next_value(&state) * deviation * (i / (size_t)k < CONTROL_N ? control_scale : 1.0f);
        half[i] = to->type == TENSOR_BF16 ? to_bf16(value[i]) : to_f16(value[i]);
    }
    if (to->type == TENSOR_F32)
        gguf_put_tensor(to->w, name, TENSOR_F32, 2, dims, value, n * sizeof *value);
    else
        gguf_put_tensor(to->w, name, to->type, 2, dims, half, n * sizeof *half);
    free(half);
    free(value);
}

static void put_vector(const struct weights *to, const char *name, int n, float mean, float deviation)
{
    float *value = mem_take((size_t)n * sizeof *value);
    uint64_t state = hash64(name, strlen(name), to->seed);
    const int64_t dims[1] = { n };

    for (int i = 0; i < n; i++)
        value[i] = mean + deviation * next_value(&state);
    gguf_put_tensor(to->w, name, TENSOR_F32, 1, dims, value, (size_t)n * sizeof *value);
    free(value);
}

static void put_norm(const struct weights *to, const char *name, int n)
{
    put_vector(to, name, n, 1.0f, 0.1f);
}

static float root(float x)                      /* Newton: no libm */
{
    float r = x;

    for (int i = 0; i < 40; i++)
        r = 0.5f * (r + x / r);
    return r;
}

static void put_layer(const struct weights *to, const struct tiny_options *o, int layer)
{
    const int q = o->heads_n * o->head_dim, kv = o->kv_heads_n * o->head_dim;
    const float in = 1.0f / root((float)o->dim);
    char name[64];
#define NAME(suffix) (snprintf(name, sizeof name, "blk.%d." suffix ".weight", layer), name)

    put_norm(to, NAME("attn_norm"), o->dim);
    put_matrix(to, NAME("attn_q"), q, o->dim, 1.5f * in, 1.0f);
    put_matrix(to, NAME("attn_k"), kv, o->dim, 1.5f * in, 1.0f);
    put_matrix(to, NAME("attn_v"), kv, o->dim, in, 1.0f);
    put_matrix(to, NAME("attn_output"), o->dim, q, 1.5f / root((float)q), 1.0f);
    if (o->biases) {
        put_vector(to, (snprintf(name, sizeof name, "blk.%d.attn_q.bias", layer), name), q, 0.0f, 0.5f);
        put_vector(to, (snprintf(name, sizeof name, "blk.%d.attn_k.bias", layer), name), kv, 0.0f, 0.5f);
        put_vector(to, (snprintf(name, sizeof name, "blk.%d.attn_v.bias", layer), name), kv, 0.0f, 0.5f);
        put_vector(to, (snprintf(name, sizeof name, "blk.%d.attn_output.bias", layer), name), o->dim, 0.0f, 0.5f);
    }
    put_norm(to, NAME("ffn_norm"), o->dim);
    put_matrix(to, NAME("ffn_gate"), o->ff, o->dim, 1.5f * in, 1.0f);
    put_matrix(to, NAME("ffn_up"), o->ff, o->dim, 1.5f * in, 1.0f);
    put_matrix(to, NAME("ffn_down"), o->dim, o->ff, 1.0f / root((float)o->ff), 1.0f);
#undef NAME
}

void tiny_model_put(struct gguf_writer *w, const struct tiny_options *o)
{
    const struct weights to = { w, o->type, o->seed };
    const float head = 3.0f / root((float)o->dim);

    ASSERT(o->type == TENSOR_F32 || o->type == TENSOR_F16 || o->type == TENSOR_BF16);
    gguf_put_text(w, "general.architecture", "llama");
    gguf_put_text(w, "general.name", "tiny");
    gguf_put_u32(w, "llama.block_count", (uint32_t)o->layers_n);
    gguf_put_u32(w, "llama.context_length", (uint32_t)o->context);
    gguf_put_u32(w, "llama.embedding_length", (uint32_t)o->dim);
    gguf_put_u32(w, "llama.feed_forward_length", (uint32_t)o->ff);
    gguf_put_u32(w, "llama.attention.head_count", (uint32_t)o->heads_n);
    gguf_put_u32(w, "llama.attention.head_count_kv", (uint32_t)o->kv_heads_n);
    gguf_put_u32(w, "llama.attention.key_length", (uint32_t)o->head_dim);
    gguf_put_u32(w, "llama.attention.value_length", (uint32_t)o->head_dim);
    gguf_put_u32(w, "llama.rope.dimension_count", (uint32_t)(o->rope_dim > 0 ? o->rope_dim : o->head_dim));
    gguf_put_real(w, "llama.rope.freq_base", o->rope_base);
    if (o->rope_linear > 0) {
        gguf_put_text(w, "llama.rope.scaling.type", "linear");
        gguf_put_real(w, "llama.rope.scaling.factor", o->rope_linear);
    }
    gguf_put_real(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    put_tokenizer(w);
    put_matrix(&to, "token_embd.weight", (int)VOCAB_N, o->dim, o->tied_head ? head : 1.0f, 1.0f);
    for (int layer = 0; layer < o->layers_n; layer++)
        put_layer(&to, o, layer);
    put_norm(&to, "output_norm.weight", o->dim);
    if (o->rope_factors)
        put_vector(&to, "rope_freqs.weight", (o->rope_dim > 0 ? o->rope_dim : o->head_dim) / 2, 4.0f, 1.0f);
    if (!o->tied_head)
        put_matrix(&to, "output.weight", (int)VOCAB_N, o->dim, head, o->end_scale);
}

void tiny_model_write(const char *path, const struct tiny_options *o)
{
    struct gguf_writer w;
    struct buf file = BUF_EMPTY;

    gguf_writer_init(&w);
    tiny_model_put(&w, o);
    gguf_writer_file(&w, &file);
    file_write(path, file.data, file.n);
    buf_fini(&file);
    gguf_writer_fini(&w);
}
