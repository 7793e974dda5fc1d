/* Any bytes as a stored sequence. What must hold: what is read is a beginning that reads the same from a copy cut behind it,
 * and frames that are added to it are read back. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "checkpoint/frames.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct ckpt_identity who = { { 1, 2 }, { 3, 4 }, { 5, 6 }, 7 };

/* The rest as the payload of a frame whose length and checksum are right. */
static void framed_add(struct buf *out, const uint8_t *data, size_t n)
{
    uint32_t head[2] = { (uint32_t)n, crc32c(0, data, n) };

    for (int i = 0; i < 8; i++)
        buf_add_byte(out, (int)(head[i / 4] >> 8 * (i % 4) & 255));
    buf_add(out, data, n);
}

/* Byte 0 chooses: 0: the rest is all; else a sound identity and a sound frame stand before it; from 128 on it is framed. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf bytes = BUF_EMPTY, again = BUF_EMPTY;
    struct ckpt_progress p, q;
    struct arena a;
    int32_t more[8] = { 11, 12, 13, 14, 15, 16, 17, 18 };
    size_t sound_n, end;

    if (size == 0)
        return 0;
    arena_init(&a, 4096);
    if (data[0] != 0) {
        frame_add_identity(&bytes, &who);
        frame_add_tokens(&bytes, &who, more, 0, 1 + data[0] % 8);
    }
    sound_n = bytes.n;
    if (data[0] >= 128)
        framed_add(&bytes, data + 1, size - 1);
    else
        buf_add(&bytes, data + 1, size - 1);
    if (frames_read(bytes.data, bytes.n, &who, &a, &p, &end) == ST_OK) {
        int32_t *tokens = arena_take(&a, (size_t)(p.tokens_n + 8) * sizeof *tokens);

        ASSERT(p.tokens_n > 0 && end >= sound_n && end <= bytes.n);
        ASSERT(frames_end(bytes.data, bytes.n, &who, p.tokens_n) > 0);
        memcpy(tokens, p.tokens, (size_t)p.tokens_n * sizeof *tokens);
        memcpy(tokens + p.tokens_n, more, sizeof more);
        frame_add_identity(&again, &who);
        frame_add_tokens(&again, &who, tokens, 0, p.tokens_n);
        frame_add_tokens(&again, &who, tokens, p.tokens_n, p.tokens_n + 8);
        ASSERT(frames_read(again.data, again.n, &who, &a, &q, &end) == ST_OK && q.tokens_n == p.tokens_n + 8);
        ASSERT(memcmp(q.tokens, tokens, (size_t)q.tokens_n * sizeof *tokens) == 0);
    } else {
        ASSERT(sound_n == 0);
    }
    arena_fini(&a);
    buf_fini(&bytes);
    buf_fini(&again);
    return 0;
}
