#include "worker/pipeline/id_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/status.h"

struct id_set {
    uint64_t *slots;               /* open addressing, 0: empty; room is a power of two, at most half full */
    size_t n, room;
    int64_t duplicates_n;
};

struct id_set *id_set_open(void)
{
    struct id_set *s = mem_take_zero(1, sizeof *s);

    s->room = 1024;
    s->slots = mem_take_zero(s->room, sizeof *s->slots);
    return s;
}

void id_set_close(struct id_set *s)
{
    if (s == NULL)
        return;
    free(s->slots);
    free(s);
}

static uint64_t *slot_find(const struct id_set *s, uint64_t hash)
{
    size_t i = hash & (s->room - 1);

    while (s->slots[i] != 0 && s->slots[i] != hash)
        i = (i + 1) & (s->room - 1);
    return &s->slots[i];
}

static void grow(struct id_set *s)
{
    struct id_set bigger = { NULL, s->n, s->room * 2, s->duplicates_n };

    bigger.slots = mem_take_zero(bigger.room, sizeof *bigger.slots);
    for (size_t i = 0; i < s->room; i++)
        if (s->slots[i] != 0)
            *slot_find(&bigger, s->slots[i]) = s->slots[i];
    free(s->slots);
    *s = bigger;
}

void id_set_add(struct id_set *s, const char *id)
{
    uint64_t hash = hash64(id, strlen(id), 0) | 1;
    uint64_t *slot;

    if (strcmp(id, "null") == 0)
        return;
    slot = slot_find(s, hash);
    if (*slot == hash) {
        s->duplicates_n++;
        return;
    }
    if (s->n == ID_SET_MAX)
        return;
    *slot = hash;
    if (++s->n > s->room / 2)
        grow(s);
}

int64_t id_set_duplicates(const struct id_set *s)
{
    return s->duplicates_n;
}
