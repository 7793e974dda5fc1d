/* base/hash.h - fingerprints (xxHash XXH3) and the checksum of frames (CRC-32C, RFC 3720 appendix B.4). Threads: any. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct hash128 {
    uint64_t high, low;
};

uint64_t hash64(const void *bytes, size_t n, uint64_t seed);
struct hash128 hash128(const void *bytes, size_t n);

/* A fingerprint of many pieces, in order. */
struct hasher;
struct hasher *hasher_open(void);
void hasher_add(struct hasher *h, const void *bytes, size_t n);
struct hash128 hasher_end(struct hasher *h);      /* frees h */

void hash128_hex(struct hash128 h, char out[33]);

uint32_t crc32c(uint32_t crc, const void *bytes, size_t n);     /* start with 0 */

#endif
