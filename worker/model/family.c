/* The table of families. */
#include "worker/model/family.h"

#include <stdio.h>
#include <string.h>

static const char *const llama_keys[] = {
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
    "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length",
    "attention.layer_norm_rms_epsilon", "attention.causal", "attention.sliding_window",
    "rope.dimension_count", "rope.freq_base", "rope.scale_linear", "rope.scaling.type", "rope.scaling.factor",
    "rope.scaling.original_context_length", "rope.scaling.finetuned", "expert_count", "expert_used_count", NULL
};

static const struct family families[] = {
    { "llama", ROPE_NEIGHBOURS, GATE_SILU, llama_keys },
};
#define FAMILIES_N (sizeof families / sizeof families[0])

const struct family *family_find(const char *arch, size_t n)
{
    for (size_t i = 0; i < FAMILIES_N; i++)
        if (strlen(families[i].arch) == n && memcmp(families[i].arch, arch, n) == 0)
            return &families[i];
    return NULL;
}

void family_names(char *out, size_t room)
{
    size_t n = 0;

    for (size_t i = 0; i < FAMILIES_N && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, "%s%s", i == 0 ? "" : ", ", families[i].arch);
}
