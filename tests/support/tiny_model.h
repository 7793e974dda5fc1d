/* tests/support/tiny_model.h - a small llama of random weights, written as a GGUF file: for tests of the engine and of
 * whole jobs that must be fast. The same options give the same bytes on every machine.
 *
 * Vocabulary: 0 <|endoftext|>, 1 <|im_start|>, 2 <|im_end|> (control; bos 1, eos 2 as SmolLM2 has them), the 256 bytes,
 * then merges of frequent English pairs; pre-tokenizer smollm; a ChatML template.
 * Weights are scaled so that greedy output wanders through the vocabulary instead of falling into a loop at once. */
#ifndef TESTS_SUPPORT_TINY_MODEL_H
#define TESTS_SUPPORT_TINY_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/support/gguf_write.h"

struct tiny_options {
    uint64_t seed;
    int layers_n, dim, heads_n, kv_heads_n, head_dim, ff, context;
    enum tensor_type type;         /* of the matrices: TENSOR_F32, F16 or BF16 */
    bool tied_head;
    bool biases;                   /* of query, key, value and attention's output */
    int rope_dim;                  /* elements of a head that turn; 0: all */
    float rope_base, rope_linear;  /* 10,000; scaling type linear, 0: none */
    bool rope_factors;             /* a rope_freqs.weight */
    float end_scale;               /* of the control tokens' rows in an own head; 0: greedy output never ends by itself */
};

/* seed 1, 3 layers, dim 64, heads 4/2 x 16, ff 128, context 2048, F32, own head, end_scale 1 (an
 * answer ends after about a hundred tokens). */
void tiny_model_defaults(struct tiny_options *o);
void tiny_model_put(struct gguf_writer *w, const struct tiny_options *o);       /* into a writer, to change things */
void tiny_model_write(const char *path, const struct tiny_options *o);

#define TINY_ENDOFTEXT 0
#define TINY_IM_START 1
#define TINY_IM_END 2
#define TINY_BYTE(b) (3 + (b))     /* token of the byte b: position in the byte-level alphabet, in byte order */

#endif
