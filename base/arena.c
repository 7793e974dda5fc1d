#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

enum { BLOCK_BYTES_MAX = 64 << 10 };

struct arena_block {
    struct arena_block *older;
    size_t bytes, used;
    max_align_t data[];
};

void arena_init(struct arena *a, size_t block_bytes)
{
    a->block = NULL;
    a->block_bytes = block_bytes;
    a->taken_bytes = 0;
}

static bool has_room(const struct arena *a, size_t need)
{
    return a->block != NULL && a->block->bytes - a->block->used >= need;
}

static void block_take(struct arena *a, size_t size)
{
    struct arena_block *b = mem_take(sizeof *b + size);

    b->older = a->block;
    b->bytes = size;
    b->used = 0;
    a->block = b;
    a->taken_bytes += size;
}

void arena_reserve(struct arena *a, size_t bytes)
{
    if (!has_room(a, bytes))
        block_take(a, (bytes + 15) & ~(size_t)15);
}

void *arena_take(struct arena *a, size_t bytes)
{
    size_t need = (bytes + 15) & ~(size_t)15;
    struct arena_block *b;
    void *p;

    ASSERT(need >= bytes);
    if (!has_room(a, need)) {
        block_take(a, need > a->block_bytes ? need : a->block_bytes);
        if (need <= a->block_bytes && a->block_bytes < BLOCK_BYTES_MAX)
            a->block_bytes *= 2;
    }
    b = a->block;
    p = (char *)b->data + b->used;
    b->used += need;
    return p;
}

void *arena_take_zero(struct arena *a, size_t n, size_t bytes)
{
    ASSERT(bytes == 0 || n <= SIZE_MAX / bytes);
    return memset(arena_take(a, n * bytes), 0, n * bytes);
}

char *arena_copy(struct arena *a, const void *from, size_t bytes)
{
    char *p = arena_take(a, bytes + 1);

    if (bytes > 0)
        memcpy(p, from, bytes);
    p[bytes] = '\0';
    return p;
}

static void older_free(struct arena_block *b)
{
    while (b != NULL) {
        struct arena_block *older = b->older;

        free(b);
        b = older;
    }
}

void arena_reset(struct arena *a)
{
    if (a->block == NULL)
        return;
    older_free(a->block->older);
    a->block->older = NULL;
    a->block->used = 0;
    a->taken_bytes = a->block->bytes;
}

void arena_fini(struct arena *a)
{
    older_free(a->block);
    a->block = NULL;
    a->taken_bytes = 0;
}
