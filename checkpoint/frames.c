#include "checkpoint/frames.h"

#include <msgpack.h>
#include <string.h>

#define FRAME_HEAD_BYTES 8
#define FRAME_PAYLOAD_MAX (FRAME_TOKENS_MAX * 4 + 64)
#define FRAMES_VERSION 1

static void u32_put(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(v >> 8 * i);
}

static uint32_t u32_get(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void frame_add(struct buf *out, const msgpack_sbuffer *payload)
{
    unsigned char head[FRAME_HEAD_BYTES];

    u32_put(head, (uint32_t)payload->size);
    u32_put(head + 4, crc32c(0, payload->data, payload->size));
    buf_add(out, head, sizeof head);
    buf_add(out, payload->data, payload->size);
}

static void pack_key(msgpack_packer *pk, const char *key)
{
    msgpack_pack_str(pk, strlen(key));
    msgpack_pack_str_body(pk, key, strlen(key));
}

static void hash_bytes(struct hash128 h, unsigned char out[16])
{
    for (int i = 0; i < 8; i++) {
        out[i] = (unsigned char)(h.high >> (56 - 8 * i));
        out[8 + i] = (unsigned char)(h.low >> (56 - 8 * i));
    }
}

static void pack_hash(msgpack_packer *pk, const char *key, struct hash128 h)
{
    unsigned char bytes[16];

    hash_bytes(h, bytes);
    pack_key(pk, key);
    msgpack_pack_bin(pk, sizeof bytes);
    msgpack_pack_bin_body(pk, bytes, sizeof bytes);
}

void frame_add_identity(struct buf *out, const struct ckpt_identity *id)
{
    msgpack_sbuffer payload;
    msgpack_packer pk;

    msgpack_sbuffer_init(&payload);
    msgpack_packer_init(&pk, &payload, msgpack_sbuffer_write);
    msgpack_pack_map(&pk, 5);
    pack_key(&pk, "v");
    msgpack_pack_int(&pk, FRAMES_VERSION);
    pack_hash(&pk, "ih", id->record);
    pack_hash(&pk, "model", id->model);
    pack_hash(&pk, "params", id->params);
    pack_key(&pk, "seed");
    msgpack_pack_uint64(&pk, id->seed);
    frame_add(out, &payload);
    msgpack_sbuffer_destroy(&payload);
}

static uint64_t chain_begin(const struct ckpt_identity *id)
{
    unsigned char bytes[56];

    hash_bytes(id->record, bytes);
    hash_bytes(id->model, bytes + 16);
    hash_bytes(id->params, bytes + 32);
    u32_put(bytes + 48, (uint32_t)id->seed);
    u32_put(bytes + 52, (uint32_t)(id->seed >> 32));
    return hash64(bytes, sizeof bytes, FRAMES_VERSION);
}

static uint64_t chain_add(uint64_t chain, const unsigned char token[4])
{
    return hash64(token, 4, chain);
}

void frame_add_tokens(struct buf *out, const struct ckpt_identity *id, const int32_t *tokens, int32_t n0, int32_t n1)
{
    uint64_t chain = chain_begin(id);
    unsigned char token[4];

    ASSERT(0 <= n0 && n0 < n1);
    for (int32_t i = 0; i < n0; i++) {
        u32_put(token, (uint32_t)tokens[i]);
        chain = chain_add(chain, token);
    }
    while (n0 < n1) {
        int32_t end = n1 - n0 > FRAME_TOKENS_MAX ? n0 + FRAME_TOKENS_MAX : n1;
        msgpack_sbuffer payload;
        msgpack_packer pk;

        msgpack_sbuffer_init(&payload);
        msgpack_packer_init(&pk, &payload, msgpack_sbuffer_write);
        msgpack_pack_map(&pk, 3);
        pack_key(&pk, "n0");
        msgpack_pack_int32(&pk, n0);
        pack_key(&pk, "toks");
        msgpack_pack_bin(&pk, (size_t)(end - n0) * 4);
        for (; n0 < end; n0++) {
            u32_put(token, (uint32_t)tokens[n0]);
            chain = chain_add(chain, token);
            msgpack_pack_bin_body(&pk, token, 4);
        }
        pack_key(&pk, "ph");
        msgpack_pack_uint64(&pk, chain);
        frame_add(out, &payload);
        msgpack_sbuffer_destroy(&payload);
    }
}

/* The next whole frame: advances *at. False: the bytes end here, or what stands here is damaged. */
static bool frame_next(const unsigned char *bytes, size_t n, size_t *at, const unsigned char **payload, size_t *payload_n)
{
    size_t length;

    if (n - *at < FRAME_HEAD_BYTES)
        return false;
    length = u32_get(bytes + *at);
    if (length > FRAME_PAYLOAD_MAX || length > n - *at - FRAME_HEAD_BYTES)
        return false;
    *payload = bytes + *at + FRAME_HEAD_BYTES;
    *payload_n = length;
    if (crc32c(0, *payload, length) != u32_get(bytes + *at + 4))
        return false;
    *at += FRAME_HEAD_BYTES + length;
    return true;
}

static bool skip(size_t *at, size_t n, size_t bytes)
{
    if (bytes > n - *at)
        return false;
    *at += bytes;
    return true;
}

/* Skips one integer, string or byte string; anything else is none of ours. */
static bool skip_plain(const unsigned char *p, size_t n, size_t *at)
{
    unsigned char kind;
    size_t length = 0;
    int length_bytes;

    if (*at == n)
        return false;
    kind = p[(*at)++];
    if (kind <= 0x7f || kind >= 0xe0)                       /* small integers */
        return true;
    if (kind >= 0xa0 && kind <= 0xbf)                       /* short strings */
        return skip(at, n, kind & 31);
    if (kind >= 0xcc && kind <= 0xd3)                       /* integers of 1, 2, 4, 8 bytes */
        return skip(at, n, (size_t)1 << (kind & 3));
    if (kind >= 0xc4 && kind <= 0xc6)                       /* byte strings */
        length_bytes = 1 << (kind - 0xc4);
    else if (kind >= 0xd9 && kind <= 0xdb)                  /* strings */
        length_bytes = 1 << (kind - 0xd9);
    else
        return false;
    if ((size_t)length_bytes > n - *at)
        return false;
    for (; length_bytes > 0; length_bytes--)
        length = length << 8 | p[(*at)++];
    return skip(at, n, length);
}

/* A flat map and nothing behind it? A list inside could claim any number of members, and msgpack-c takes the memory for
 * them before it has seen one. */
static bool payload_flat(const unsigned char *p, size_t n)
{
    size_t at = 1;

    if (n == 0 || (p[0] & 0xf0) != 0x80)
        return false;
    for (int left = 2 * (p[0] & 15); left > 0; left--)
        if (!skip_plain(p, n, &at))
            return false;
    return at == n;
}

static const msgpack_object *map_get(const msgpack_object *map, const char *key)
{
    for (uint32_t i = 0; i < map->via.map.size; i++) {
        const msgpack_object_kv *kv = &map->via.map.ptr[i];

        if (kv->key.type == MSGPACK_OBJECT_STR && kv->key.via.str.size == strlen(key) &&
            memcmp(kv->key.via.str.ptr, key, strlen(key)) == 0)
            return &kv->val;
    }
    return NULL;
}

/* The identity frame is written by one function only, so equal identities are equal bytes. */
static bool identity_equal(const unsigned char *bytes, size_t n, const struct ckpt_identity *id, size_t *at)
{
    struct buf mine = BUF_EMPTY;
    bool equal;

    frame_add_identity(&mine, id);
    equal = n >= mine.n && memcmp(bytes, mine.data, mine.n) == 0;
    *at = mine.n;
    buf_fini(&mine);
    return equal;
}

static bool tokens_take(const msgpack_object *map, uint64_t *chain, struct buf *tokens)
{
    const msgpack_object *n0, *toks, *ph;
    const unsigned char *from;
    unsigned char *to;
    uint64_t c = *chain;

    if (map->type != MSGPACK_OBJECT_MAP)
        return false;
    n0 = map_get(map, "n0");
    toks = map_get(map, "toks");
    ph = map_get(map, "ph");
    if (n0 == NULL || n0->type != MSGPACK_OBJECT_POSITIVE_INTEGER || n0->via.u64 != tokens->n / 4 ||
        toks == NULL || toks->type != MSGPACK_OBJECT_BIN || toks->via.bin.size % 4 != 0 ||
        ph == NULL || ph->type != MSGPACK_OBJECT_POSITIVE_INTEGER ||
        tokens->n / 4 + toks->via.bin.size / 4 > INT32_MAX)
        return false;
    from = (const unsigned char *)toks->via.bin.ptr;
    for (uint32_t i = 0; i < toks->via.bin.size; i += 4)
        c = chain_add(c, from + i);
    if (c != ph->via.u64)
        return false;
    to = buf_reserve(tokens, toks->via.bin.size);
    for (uint32_t i = 0; i < toks->via.bin.size; i += 4) {
        int32_t token = (int32_t)u32_get(from + i);

        memcpy(to + i, &token, sizeof token);
    }
    tokens->n += toks->via.bin.size;
    *chain = c;
    return true;
}

/* The longest valid prefix, or only up to a frame that ends with the first stop_n tokens. The byte where it ends; 0: nothing. */
static size_t frames_take(const void *bytes, size_t n, const struct ckpt_identity *id, size_t stop_n, struct buf *tokens)
{
    const unsigned char *payload;
    size_t payload_n, at, end;
    uint64_t chain = chain_begin(id);
    bool good = true;

    if (!identity_equal(bytes, n, id, &at))
        return 0;
    for (end = at; good && tokens->n / 4 < stop_n && frame_next(bytes, n, &at, &payload, &payload_n);) {
        msgpack_unpacked u;
        size_t used = 0;

        if (!payload_flat(payload, payload_n))
            break;
        msgpack_unpacked_init(&u);
        good = msgpack_unpack_next(&u, (const char *)payload, payload_n, &used) == MSGPACK_UNPACK_SUCCESS &&
               used == payload_n && tokens_take(&u.data, &chain, tokens);
        msgpack_unpacked_destroy(&u);
        if (good)
            end = at;
    }
    return end;
}

status frames_read(const void *bytes, size_t n, const struct ckpt_identity *id, struct arena *a, struct ckpt_progress *out,
                   size_t *end)
{
    struct buf tokens = BUF_EMPTY;

    out->tokens = NULL;
    out->tokens_n = 0;
    *end = frames_take(bytes, n, id, SIZE_MAX, &tokens);
    if (tokens.n > 0) {
        out->tokens = (int32_t *)(void *)arena_copy(a, tokens.data, tokens.n);
        out->tokens_n = (int32_t)(tokens.n / 4);
    }
    buf_fini(&tokens);
    return out->tokens_n > 0 ? ST_OK : ST_AGAIN;
}

size_t frames_end(const void *bytes, size_t n, const struct ckpt_identity *id, int32_t tokens_n)
{
    struct buf tokens = BUF_EMPTY;
    size_t end = frames_take(bytes, n, id, (size_t)tokens_n, &tokens);

    if (tokens.n / 4 != (size_t)tokens_n)
        end = 0;
    buf_fini(&tokens);
    return end;
}
