/* checkpoint/frames.h - the bytes of a stored sequence, the same in every store. Private to this folder.
 * A frame is u32 length, u32 CRC-32C of the payload (both little-endian), then the payload, one msgpack map:
 *   first   {v: 1, ih, model, params: 16 bytes each, seed}      what the tokens are a function of
 *   later   {n0, toks, ph}      tokens from index n0 on, packed u32 little-endian; ph: running hash of all tokens so far
 * ph chains from the identity over each token, so it does not depend on how tokens were cut into frames, and it breaks
 * where frames of two writers were mixed. A reader takes the longest valid prefix: whatever follows a bad frame is unknown. */
#ifndef CHECKPOINT_FRAMES_H
#define CHECKPOINT_FRAMES_H

#include "base/buf.h"
#include "checkpoint/checkpoint.h"

#define FRAME_TOKENS_MAX (4 << 20)      /* of one frame; more are written as several */

void frame_add_identity(struct buf *out, const struct ckpt_identity *id);
/* Tokens [n0, n1) of a sequence of which tokens[0, n1) are known; n1 > n0. */
void frame_add_tokens(struct buf *out, const struct ckpt_identity *id, const int32_t *tokens, int32_t n0, int32_t n1);

/* Reads frames that were concatenated in order. ST_AGAIN: nothing usable (another identity, or damaged from the start, or
 * no token). *end: the byte behind the last good frame. Any bytes are safe to give. */
MUST_USE status frames_read(const void *bytes, size_t n, const struct ckpt_identity *id, struct arena *a,
                            struct ckpt_progress *out, size_t *end);
/* Where the frame with the last of the first tokens_n tokens ends: what follows on them is written there. 0: none ends so. */
size_t frames_end(const void *bytes, size_t n, const struct ckpt_identity *id, int32_t tokens_n);

#endif
