/* base/arena.h - many small things with one life: taken one by one, given back together.
 * Threads: one owner at a time. Ownership: everything taken dies with arena_reset or arena_fini. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *block;    /* newest block, links to the older ones */
    size_t block_bytes;           /* size of the next ordinary block: each is twice as large as the one before, up to 64 KiB;
                                   * what does not fit gets a block of its own */
    size_t taken_bytes;           /* sum of the blocks, for bounds and metrics */
};

void arena_init(struct arena *a, size_t block_bytes);
void *arena_take(struct arena *a, size_t bytes);            /* 16-byte aligned, never NULL, not zeroed */
/* The next `bytes` (sum of what is taken, each rounded up to 16) will come out of one block, made for them alone if need be. */
void arena_reserve(struct arena *a, size_t bytes);
void *arena_take_zero(struct arena *a, size_t n, size_t bytes);
char *arena_copy(struct arena *a, const void *from, size_t bytes);   /* adds a terminating 0 */
void arena_reset(struct arena *a);                          /* keeps the newest block for reuse */
void arena_fini(struct arena *a);

#endif
