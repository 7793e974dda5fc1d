/* GGML's block formats to fp32, with the roundings of the gguf package's numpy code: every product and sum is rounded on
 * its own (compiled without contraction), in the order numpy has them. Plain loops over one block that the compiler
 * turns into vector code; loading a model spends its time here and in packing. */
#include <string.h>

#include "worker/model/gguf.h"

#define SUPER_N 256           /* values of a K block */

struct type {
    const char *name;
    int block_n, block_bytes;
    void (*blocks)(const uint8_t *from, size_t n, float *out);     /* NULL: known, cannot be read */
};

/* IEEE half to single, exact for every input (Maratyusha's FP16 library): normal numbers by a shift and a scale,
 * subnormal ones through the rounding of 0.5. Branch-free, so that a loop of it is vector code. */
static inline float half(uint16_t h)
{
    const uint32_t w = (uint32_t)h << 16, sign = w & 0x80000000u, twice = w + w;
    const uint32_t normal_bits = (twice >> 4) + (0xe0u << 23), small_bits = (twice >> 17) | (126u << 23);
    float normal, small, value;
    uint32_t n, s, bits;

    memcpy(&normal, &normal_bits, 4);
    memcpy(&small, &small_bits, 4);
    normal *= 0x1.0p-112f;
    small -= 0.5f;
    memcpy(&n, &normal, 4);
    memcpy(&s, &small, 4);
    bits = sign | (twice < 1u << 27 ? s : n);
    memcpy(&value, &bits, 4);
    return value;
}

static inline float half_at(const uint8_t *p)
{
    uint16_t h;

    memcpy(&h, p, 2);
    return half(h);
}

static void blocks_f32(const uint8_t *from, size_t n, float *out)
{
    memcpy(out, from, n * sizeof *out);
}

static void blocks_f16(const uint8_t *from, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = half_at(from + 2 * i);
}

static void blocks_bf16(const uint8_t *from, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        uint32_t bits;

        memcpy(&h, from + 2 * i, 2);
        bits = (uint32_t)h << 16;
        memcpy(&out[i], &bits, 4);
    }
}

static void blocks_q4_0(const uint8_t *from, size_t n, float *out)
{
    for (; n > 0; n--, from += 18, out += 32) {
        const float d = half_at(from);
        const uint8_t *q = from + 2;

        for (int i = 0; i < 16; i++) {
            out[i] = d * (float)((q[i] & 15) - 8);
            out[16 + i] = d * (float)((q[i] >> 4) - 8);
        }
    }
}

static void blocks_q4_1(const uint8_t *from, size_t n, float *out)
{
    for (; n > 0; n--, from += 20, out += 32) {
        const float d = half_at(from), m = half_at(from + 2);
        const uint8_t *q = from + 4;

        for (int i = 0; i < 16; i++) {
            out[i] = d * (float)(q[i] & 15) + m;
            out[16 + i] = d * (float)(q[i] >> 4) + m;
        }
    }
}

static void blocks_q8_0(const uint8_t *from, size_t n, float *out)
{
    for (; n > 0; n--, from += 34, out += 32) {
        const float d = half_at(from);
        const int8_t *q = (const int8_t *)(from + 2);

        for (int i = 0; i < 32; i++)
            out[i] = (float)q[i] * d;
    }
}

/* Eight 6-bit scales and minima in 12 bytes: the low four whole, the high four split between nibbles and spare bits. */
static void q4_k_scales(const uint8_t *s, uint8_t scale[8], uint8_t min[8])
{
    for (int i = 0; i < 4; i++) {
        scale[i] = s[i] & 63;
        min[i] = s[4 + i] & 63;
        scale[4 + i] = (uint8_t)((s[8 + i] & 15) | (s[i] >> 2 & 48));
        min[4 + i] = (uint8_t)(s[8 + i] >> 4 | (s[4 + i] >> 2 & 48));
    }
}

static void blocks_q4_k(const uint8_t *from, size_t n, float *out)
{
    for (; n > 0; n--, from += 144, out += SUPER_N) {
        const float d = half_at(from), dmin = half_at(from + 2);
        uint8_t scale[8], min[8];

        q4_k_scales(from + 4, scale, min);
        for (int j = 0; j < 4; j++) {          /* 32 bytes hold 64 values: low nibbles first */
            const uint8_t *q = from + 16 + 32 * j;
            const float d0 = d * (float)scale[2 * j], m0 = dmin * (float)min[2 * j];
            const float d1 = d * (float)scale[2 * j + 1], m1 = dmin * (float)min[2 * j + 1];

            for (int i = 0; i < 32; i++) {
                out[64 * j + i] = d0 * (float)(q[i] & 15) - m0;
                out[64 * j + 32 + i] = d1 * (float)(q[i] >> 4) - m1;
            }
        }
    }
}

static void blocks_q6_k(const uint8_t *from, size_t n, float *out)
{
    for (; n > 0; n--, from += 210, out += SUPER_N) {
        const uint8_t *low = from, *high = from + 128;
        const int8_t *scale = (const int8_t *)(from + 192);
        const float d = half_at(from + 208);

        for (int j = 0; j < 8; j++) {          /* groups of 32 values, two scales each */
            const uint8_t *l = low + 64 * (j / 4) + 32 * (j % 2), *h = high + 32 * (j / 4);
            const int l_shift = 4 * (j % 4 / 2), h_shift = 2 * (j % 4);

            for (int k = 0; k < 2; k++) {
                const float s = d * (float)scale[2 * j + k];

                for (int i = 16 * k; i < 16 * k + 16; i++)
                    out[32 * j + i] = s * (float)(((l[i] >> l_shift & 15) | (h[i] >> h_shift & 3) << 4) - 32);
            }
        }
    }
}

/* Indexed by GGML's numbers. Sizes of types that cannot be read are here too, so that their files can be looked at and
 * refused by the type's name. */
static const struct type types[] = {
    [TENSOR_F32] = { "F32", 1, 4, blocks_f32 },      [TENSOR_F16] = { "F16", 1, 2, blocks_f16 },
    [TENSOR_Q4_0] = { "Q4_0", 32, 18, blocks_q4_0 }, [TENSOR_Q4_1] = { "Q4_1", 32, 20, blocks_q4_1 },
    [6] = { "Q5_0", 32, 22, NULL },                  [7] = { "Q5_1", 32, 24, NULL },
    [TENSOR_Q8_0] = { "Q8_0", 32, 34, blocks_q8_0 }, [9] = { "Q8_1", 32, 40, NULL },
    [10] = { "Q2_K", 256, 84, NULL },                [11] = { "Q3_K", 256, 110, NULL },
    [TENSOR_Q4_K] = { "Q4_K", 256, 144, blocks_q4_k }, [13] = { "Q5_K", 256, 176, NULL },
    [TENSOR_Q6_K] = { "Q6_K", 256, 210, blocks_q6_k }, [15] = { "Q8_K", 256, 292, NULL },
    [16] = { "IQ2_XXS", 256, 66, NULL },             [17] = { "IQ2_XS", 256, 74, NULL },
    [18] = { "IQ3_XXS", 256, 98, NULL },             [19] = { "IQ1_S", 256, 50, NULL },
    [20] = { "IQ4_NL", 32, 18, NULL },               [21] = { "IQ3_S", 256, 110, NULL },
    [22] = { "IQ2_S", 256, 82, NULL },               [23] = { "IQ4_XS", 256, 136, NULL },
    [24] = { "I8", 1, 1, NULL },                     [25] = { "I16", 1, 2, NULL },
    [26] = { "I32", 1, 4, NULL },                    [27] = { "I64", 1, 8, NULL },
    [28] = { "F64", 1, 8, NULL },                    [29] = { "IQ1_M", 256, 56, NULL },
    [TENSOR_BF16] = { "BF16", 1, 2, blocks_bf16 },   [34] = { "TQ1_0", 256, 54, NULL },
    [35] = { "TQ2_0", 256, 66, NULL },               [39] = { "MXFP4", 32, 17, NULL }
};

static const struct type *type_of(enum tensor_type type)
{
    unsigned i = (unsigned)type;

    return i < sizeof types / sizeof types[0] && types[i].name != NULL ? &types[i] : NULL;
}

const char *tensor_type_name(enum tensor_type type)
{
    const struct type *t = type_of(type);

    return t != NULL ? t->name : NULL;
}

bool tensor_type_block(enum tensor_type type, int *block_n, int *block_bytes)
{
    const struct type *t = type_of(type);

    if (t == NULL)
        return false;
    *block_n = t->block_n;
    *block_bytes = t->block_bytes;
    return true;
}

bool tensor_readable(enum tensor_type type)
{
    const struct type *t = type_of(type);

    return t != NULL && t->blocks != NULL;
}

void tensor_rows(const struct tensor *t, int64_t first, int64_t count, float *out)
{
    const struct type *type = type_of(t->type);
    size_t row_blocks;

    ASSERT(type != NULL && type->blocks != NULL);
    ASSERT(first >= 0 && count >= 0 && first <= tensor_rows_n(t) - count);
    row_blocks = (size_t)(t->dims[0] / type->block_n);
    type->blocks(t->data + (size_t)first * row_blocks * (size_t)type->block_bytes, (size_t)count * row_blocks, out);
}
