/* The CPU device: which inner loops run, and on how many threads. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cpu/cores.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/step_memo.h"

static size_t cpu_act_bytes(const struct device *d, enum act role, int dim)
{
    bool wide = cpu_of_const(d)->fp32 || role == ACT_RESIDUAL || role == ACT_QKV || role == ACT_LOGITS;

    return (size_t)dim * (wide ? 4 : 2);
}

static status cpu_sync(struct device *d)
{
    (void)d;
    return ST_OK;
}

/* All memory is the host's. */
static status cpu_copy(struct device *d, void *to, const void *from, size_t bytes)
{
    (void)d;
    memcpy(to, from, bytes);
    return ST_OK;
}

static float *cpu_vector_load(struct device *d, const float *from, int n)
{
    float *v = cpu_buffer_take(d, (size_t)n * sizeof *v);

    memcpy(v, from, (size_t)n * sizeof *v);
    return v;
}

/* Operations read the step where it stands. */
static status cpu_step_begin(struct device *d, const struct step *s)
{
    (void)d;
    (void)s;
    return ST_OK;
}

/* ---- open ---- */

static const char *const isa_names[] = { "portable", "avx2", "avx512bf16" };

static bool isa_runs(enum cpu_isa isa)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    switch (isa) {
    case CPU_PORTABLE: return true;
    case CPU_AVX2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case CPU_AVX512BF16:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512bf16");
    }
#endif
    return isa == CPU_PORTABLE;
}

static status isa_choose(const char *wanted, enum cpu_isa *out, struct error *err)
{
    char there[64] = "";
    int i;

    for (i = CPU_AVX512BF16; i >= CPU_PORTABLE; i--) {
        if (!isa_runs((enum cpu_isa)i))
            continue;
        *out = (enum cpu_isa)i;
        if (strcmp(wanted, "auto") == 0 || strcmp(wanted, isa_names[i]) == 0)
            return ST_OK;
        snprintf(there + strlen(there), sizeof there - strlen(there), " %s", isa_names[i]);
    }
    return error_set(err, ST_REJECT, "cpu_isa=%s: this machine has: auto%s", wanted, there);
}

static const struct cpu_loops *isa_loops(enum cpu_isa isa)
{
#if defined(__x86_64__)
    if (isa == CPU_AVX512BF16)
        return &cpu_loops_avx512bf16;
    if (isa == CPU_AVX2)
        return &cpu_loops_avx2;
#endif
    (void)isa;
    return &cpu_loops_portable;
}

static void machine_name(char *out, size_t room)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256], *value;

    snprintf(out, room, "cpu");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || value == NULL)
            continue;
        value += strspn(value, ": \t");
        value[strcspn(value, "\n")] = 0;
        snprintf(out, room, "%s", value);
        break;
    }
    if (f != NULL)
        fclose(f);
}

static void cpu_device_close(struct device *d)
{
    struct cpu_device *c = cpu_of(d);
    int i;

    for (i = 0; c->scratch != NULL && i < d->info.threads_n; i++)
        device_buffer_give(d, c->scratch[i]);
    free(c->scratch);
    step_memo_close(c->memo);
    team_close(c->team);
    free(c);
}

static const struct device_ops cpu_ops = {
    .close = cpu_device_close,
    .sync = cpu_sync,
    .buffer_take = cpu_buffer_take,
    .memory_take = cpu_buffer_take,
    .buffer_give = cpu_buffer_give,
    .copy = cpu_copy,
    .vector_load = cpu_vector_load,
    .act_bytes = cpu_act_bytes,
    .measure = cpu_measure,
    .matrix_load = cpu_matrix_load,
    .matrix_load_gated = cpu_matrix_load_gated,
    .matrix_give = cpu_matrix_give,
    .kv_page_bytes = cpu_kv_page_bytes,
    .kv_open = cpu_kv_open,
    .kv_close = cpu_kv_close,
    .kv_pages_copy = cpu_kv_pages_copy,
    .kv_positions_move = cpu_kv_positions_move,
    .step_begin = cpu_step_begin,
    .embed = cpu_embed,
    .rmsnorm = cpu_rmsnorm,
    .gather = cpu_gather,
    .linear = cpu_linear,
    .linear_gated = cpu_linear_gated,
    .rope_write = cpu_rope_write,
    .attention = cpu_attention,
    .logits = cpu_logits,
    .sample = cpu_sample,
};

status cpu_device_open(const struct config *cfg, struct device **out, struct error *err)
{
    status st = ST_OK;
    struct cpu_device *c = mem_take_zero(1, sizeof *c);
    struct device_info *info = &c->base.info;
    char machine[64];

    *out = NULL;
    c->base.ops = &cpu_ops;
    c->fp32 = strcmp(cfg->dtype, "fp32") == 0;
    if (!c->fp32 && strcmp(cfg->dtype, "bf16") != 0) {
        st = error_set(err, ST_REJECT, "dtype=%s: the cpu device has bf16 and fp32", cfg->dtype);
        goto out;
    }
    TRY(isa_choose(cfg->cpu_isa, &c->isa, err));
    c->loops = isa_loops(c->isa);
    info->threads_n = cfg->threads > 0 ? (int)cfg->threads : cores_allowed();
    TRY(team_open(info->threads_n, &c->team, err));
    c->scratch = mem_take_zero((size_t)info->threads_n, sizeof *c->scratch);
    c->memo = step_memo_open();

    machine_name(machine, sizeof machine);
    snprintf(info->name, sizeof info->name, "%s (%d thread%s)", machine, info->threads_n,
             info->threads_n == 1 ? "" : "s");
    snprintf(info->isa, sizeof info->isa, "%s", c->fp32 ? "fp32" : isa_names[c->isa]);
    info->memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    *out = &c->base;
    c = NULL;
out:
    if (c != NULL)
        cpu_device_close(&c->base);
    return st;
}
