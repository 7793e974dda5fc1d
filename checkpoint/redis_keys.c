#include <inttypes.h>

#include "checkpoint/redis_store.h"

static void name_of(struct redis_ckpt *c, char kind, uint64_t job, int32_t source)
{
    buf_reset(&c->name);
    buf_add_format(&c->name, "ns:%c:{%016" PRIx64 ":%" PRId32 "}", kind, job, source);
}

void redis_arg_name(struct redis_ckpt *c, char kind, uint64_t job, int32_t source)
{
    name_of(c, kind, job, source);
    redis_arg(c->link, c->name.data, c->name.n);
}

void redis_arg_sources(struct redis_ckpt *c, uint64_t job)
{
    buf_reset(&c->name);
    buf_add_format(&c->name, "ns:j:{%016" PRIx64 "}", job);
    redis_arg(c->link, c->name.data, c->name.n);
}

void redis_arg_sequence(struct redis_ckpt *c, const struct ckpt_key *key)
{
    name_of(c, 'c', key->job, key->source);
    buf_add_format(&c->name, ":%" PRId64 ":%" PRId32, key->offset, key->choice);
    redis_arg(c->link, c->name.data, c->name.n);
}

void redis_arg_record(struct redis_ckpt *c, const struct ckpt_key *key)
{
    name_of(c, 'a', key->job, key->source);
    buf_add_format(&c->name, ":%" PRId64, key->offset);
    redis_arg(c->link, c->name.data, c->name.n);
}

void redis_arg_member(struct redis_ckpt *c, const struct ckpt_key *key, bool with_choice)
{
    buf_reset(&c->name);
    buf_add_format(&c->name, with_choice ? "%" PRId64 ":%" PRId32 : "%" PRId64, key->offset, key->choice);
    redis_arg(c->link, c->name.data, c->name.n);
}

size_t redis_source_add(struct redis_ckpt *c, const struct ckpt_key *key)
{
    for (size_t i = c->sources_n; i > 0; i--)
        if (c->sources[i - 1].job == key->job && c->sources[i - 1].number == key->source)
            return i;
    if (c->sources_n == c->sources_room) {
        c->sources_room = c->sources_room > 0 ? 2 * c->sources_room : 16;
        c->sources = mem_grow(c->sources, c->sources_room * sizeof *c->sources);
    }
    c->sources[c->sources_n++] = (struct redis_source){ key->job, key->source };
    return c->sources_n;
}

void redis_sources_of(struct redis_ckpt *c, const struct ckpt_key *keys, size_t keys_n)
{
    c->sources_n = 0;
    for (size_t i = 0; i < keys_n; i++)
        redis_source_add(c, &keys[i]);
}

void redis_script_begin(struct redis_ckpt *c, enum redis_script script, size_t items_keys_n, size_t args_n)
{
    redis_command_script(c->link, script, 3 * c->sources_n + items_keys_n, 4 + c->sources_n + args_n);
    for (size_t i = 0; i < c->sources_n; i++) {
        redis_arg_name(c, 'f', c->sources[i].job, c->sources[i].number);
        redis_arg_name(c, 'i', c->sources[i].job, c->sources[i].number);
        redis_arg_sources(c, c->sources[i].job);
    }
}

void redis_arguments_begin(struct redis_ckpt *c, uint64_t token)
{
    redis_arg_number(c->link, (int64_t)token);
    redis_arg_number(c->link, (int64_t)c->sources_n);
    redis_arg_number(c->link, c->keep_ms);
    redis_arg_number(c->link, c->life_ms);
    for (size_t i = 0; i < c->sources_n; i++)
        redis_arg_number(c->link, c->sources[i].number);
}
