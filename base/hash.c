#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

#include "base/status.h"

uint64_t hash64(const void *bytes, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, n, seed);
}

struct hash128 hash128(const void *bytes, size_t n)
{
    XXH128_hash_t h = XXH3_128bits(bytes, n);

    return (struct hash128){ h.high64, h.low64 };
}

struct hasher *hasher_open(void)
{
    XXH3_state_t *s = XXH3_createState();

    ASSERT(s != NULL);
    XXH3_128bits_reset(s);
    return (struct hasher *)s;
}

void hasher_add(struct hasher *h, const void *bytes, size_t n)
{
    XXH3_128bits_update((XXH3_state_t *)h, bytes, n);
}

struct hash128 hasher_end(struct hasher *h)
{
    XXH128_hash_t d = XXH3_128bits_digest((XXH3_state_t *)h);

    XXH3_freeState((XXH3_state_t *)h);
    return (struct hash128){ d.high64, d.low64 };
}

void hash128_hex(struct hash128 h, char out[33])
{
    snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, h.high, h.low);
}

/* Reflected Castagnoli polynomial, four bits a step: frames are small and rare, a table of 16 words is enough. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t n)
{
    static const uint32_t nibble[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
        0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75
    };
    const unsigned char *p = bytes;

    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ nibble[crc & 15];
        crc = crc >> 4 ^ nibble[crc & 15];
    }
    return ~crc;
}
