/* The CUDA device: opening, closing, waiting. */
#include "kernels/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

_Static_assert(CUDA_PAGE == PAGE_POSITIONS, "a page is the same on every device");
_Static_assert(CUDA_TOP_MAX == TOP_LOGPROBS_MAX, "so is a list of log-probabilities");

static size_t cuda_act_bytes(const struct device *d, enum act role, int dim)
{
    bool wide = cuda_of_const(d)->fp32 || role == ACT_RESIDUAL || role == ACT_QKV || role == ACT_LOGITS;

    return (size_t)dim * (wide ? 4 : 2);
}

status cuda_sync(struct device *d)
{
    struct cuda_device *c = cuda_of(d);
    status st = st_cuda(cudaStreamSynchronize(c->stream), "a step on the device");

    if (st == ST_OK)
        cuda_results_hand_over(c);
    return st;
}

static void cuda_device_close(struct device *d)
{
    struct cuda_device *c = cuda_of(d);

    if (c->stream != NULL)
        cuda_note(cudaStreamSynchronize(c->stream), "close");
    cuda_step_fini(c);
    cuda_product_fini(c);
    cuda_blocks_fini(&c->step_blocks);
    cuda_blocks_fini(&c->plan_blocks);
    cuda_blocks_fini(&c->sends);
    cuda_blocks_fini(&c->loads);
    cuda_room_fini(&c->scratch);
    cuda_room_fini(&c->sums);
    cuda_room_fini(&c->weights);
    cuda_room_fini(&c->workspace);
    cuda_note(cudaFreeHost(c->results), "free");
    if (c->lt != NULL)
        (void)cublasLtDestroy(c->lt);
    if (c->stream != NULL)
        cuda_note(cudaStreamDestroy(c->stream), "stream");
    team_close(c->team);
    free(c);
}

static const struct device_ops cuda_ops = {
    .close = cuda_device_close,
    .sync = cuda_sync,
    .buffer_take = cuda_buffer_take,
    .memory_take = cuda_memory_take,
    .buffer_give = cuda_buffer_give,
    .copy = cuda_copy,
    .vector_load = cuda_vector_load,
    .act_bytes = cuda_act_bytes,
    .measure = cuda_measure,
    .matrix_load = cuda_matrix_load,
    .matrix_load_gated = cuda_matrix_load_gated,
    .matrix_give = cuda_matrix_give,
    .kv_page_bytes = cuda_kv_page_bytes,
    .kv_open = cuda_kv_open,
    .kv_close = cuda_kv_close,
    .kv_pages_copy = cuda_kv_pages_copy,
    .kv_positions_move = cuda_kv_positions_move,
    .step_begin = cuda_step_begin,
    .embed = cuda_embed,
    .rmsnorm = cuda_rmsnorm,
    .gather = cuda_gather,
    .linear = cuda_linear,
    .linear_gated = cuda_linear_gated,
    .rope_write = cuda_rope_write,
    .attention = cuda_attention,
    .logits = cuda_logits,
    .sample = cuda_sample,
};

/* "cuda" or "cuda:N". */
static status ordinal_read(const char *name, int *out, struct error *err)
{
    const char *at = name + strlen("cuda");
    char *end = NULL;
    long n = 0;
    int devices_n = 0;
    cudaError_t e = cudaGetDeviceCount(&devices_n);

    if (e != cudaSuccess || devices_n < 1)
        return error_set(err, ST_REJECT, "device=%s: no CUDA device on this machine (%s)", name, cudaGetErrorString(e));
    if (*at == ':')
        n = strtol(at + 1, &end, 10);
    if ((*at != 0 && *at != ':') || (*at == ':' && (end == at + 1 || *end != 0)) || n < 0 || n >= devices_n)
        return error_set(err, ST_REJECT, "device=%s: this machine has cuda:0 to cuda:%d", name, devices_n - 1);
    *out = (int)n;
    return ST_OK;
}

static status info_fill(struct cuda_device *c, struct error *err)
{
    struct device_info *info = &c->base.info;
    struct cudaDeviceProp prop;
    size_t free_bytes, all_bytes;
    status st = ST_OK;

    TRY(st_cuda(cudaGetDeviceProperties(&prop, c->ordinal), "device properties"));
    if (prop.major < 8) {
        st = error_set(err, ST_REJECT, "device=cuda:%d: %s has compute capability %d.%d; 8.0 or more is needed", c->ordinal,
                       prop.name, prop.major, prop.minor);
        goto out;
    }
    TRY(st_cuda(cudaMemGetInfo(&free_bytes, &all_bytes), "free memory"));
    snprintf(info->name, sizeof info->name, "%.80s (cuda:%d)", prop.name, c->ordinal);
    snprintf(info->isa, sizeof info->isa, "sm_%d%d", prop.major, prop.minor);
    info->memory_bytes = (int64_t)free_bytes;
out:
    return st;
}

status cuda_device_open(const struct config *cfg, struct device **out, struct error *err)
{
    status st = ST_OK;
    struct cuda_device *c = mem_take_zero(1, sizeof *c);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    *out = NULL;
    c->base.ops = &cuda_ops;
    cuda_blocks_init(&c->step_blocks, 2);
    cuda_blocks_init(&c->plan_blocks, 2);
    cuda_blocks_init(&c->sends, CUDA_BLOCKS);
    cuda_blocks_init(&c->loads, 2);
    c->fp32 = strcmp(cfg->dtype, "fp32") == 0;
    if (!c->fp32 && strcmp(cfg->dtype, "bf16") != 0) {
        st = error_set(err, ST_REJECT, "dtype=%s: the cuda device has bf16 and fp32", cfg->dtype);
        goto out;
    }
    TRY(ordinal_read(cfg->device, &c->ordinal, err));
    TRY(st_cuda(cudaSetDevice(c->ordinal), "the device"));
    TRY(info_fill(c, err));
    c->base.info.threads_n = cfg->threads > 0 ? (int)cfg->threads : (int)(cores > 0 ? cores : 1);
    TRY(team_open(c->base.info.threads_n, &c->team, err));
    TRY(st_cuda(launch_attend_init(), "attention"));
    TRY(st_cuda(launch_product_init(), "products"));
    TRY(st_cuda(launch_wide_init(), "wide products"));
    TRY(st_cuda(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "stream"));
    if (cublasLtCreate(&c->lt) != CUBLAS_STATUS_SUCCESS) {
        st = error_set(err, ST_REJECT, "device=%s: cuBLASLt cannot start on %s", cfg->device, c->base.info.name);
        goto out;
    }
    *out = &c->base;
    c = NULL;
out:
    if (st != ST_OK && st != ST_REJECT)
        st = error_set(err, ST_REJECT, "device=%s: cannot be opened; the log has CUDA's reason", cfg->device);
    if (c != NULL)
        cuda_device_close(&c->base);
    return st;
}
