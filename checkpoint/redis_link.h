/* checkpoint/redis_link.h - one connection to Redis and the only owner of getting it back. Private to this folder.
 *
 * An exchange is a pipeline of commands and all of their replies. Whatever breaks it (an I/O error, silence, a reply that makes
 * no sense) ends the connection: a late reply can never be taken for the answer to another command. So whatever is sent must
 * be safe to send again; an exchange itself does so once where a connection that had worked is found broken or the scripts
 * are gone. After a failure the server is left in peace for a while (full jitter, 50 ms doubling to 2 s): calls in that time
 * answer ST_RETRY at once.
 *
 * Threads:  one; it has SIGPIPE blocked after its first exchange.
 * Blocking: as long as bytes move with pauses shorter than the time-out, five time-outs a call at most, looking up a name
 *           included. */
#ifndef CHECKPOINT_REDIS_LINK_H
#define CHECKPOINT_REDIS_LINK_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/redis_scripts.h"
#include "checkpoint/redis_url.h"

struct redisReply;
struct redis_link;

/* Errors and reconnects are counted in `counts` (borrowed). */
struct redis_link *redis_link_open(const struct redis_url *url, int64_t timeout_ms, struct ckpt *counts);
void redis_link_close(struct redis_link *l);            /* NULL is allowed */

/* At start: is it a server to work with? Warns of settings that cost progress. needed_bytes: estimate of what will be kept
 * there. ST_REJECT: it answered, and waiting will not help. ST_RETRY: it is away. Both with the reason. */
MUST_USE status redis_link_check(struct redis_link *l, int64_t needed_bytes, struct error *err);

/* Begins a call: connects where there is no connection. ST_RETRY: the server is away, or left in peace for now. */
MUST_USE status redis_link_ready(struct redis_link *l);

/* Commands of the next exchange, argument by argument (any bytes). */
void redis_command(struct redis_link *l, size_t args_n);
void redis_arg(struct redis_link *l, const void *bytes, size_t n);
void redis_arg_text(struct redis_link *l, const char *text);
void redis_arg_number(struct redis_link *l, int64_t value);
/* EVALSHA up to the number of its keys; keys_n + args_n arguments follow. After redis_link_ready. */
void redis_command_script(struct redis_link *l, enum redis_script script, size_t keys_n, size_t args_n);

/* Takes reply i. False: it makes no sense. Where the exchange is made again, it starts again at 0. The only error reply that
 * comes here is WRONGTYPE, of a stranger's value. */
typedef bool redis_take(void *ctx, size_t i, const struct redisReply *reply);

/* Sends the commands and takes all replies. ST_RETRY: perhaps carried out, perhaps not, perhaps in part. The commands are
 * gone afterwards. */
MUST_USE status redis_link_exchange(struct redis_link *l, redis_take *take, void *ctx);

/* What an error reply means: its first word, or the one that a server before 7.0 hides inside "ERR Error running script". */
enum redis_reaction {
    REDIS_LEAVE,               /* end the connection, look for the server again */
    REDIS_WAIT,                /* it will pass */
    REDIS_LOAD_SCRIPTS,
    REDIS_TYPE                 /* about one key, no failure */
};
struct redis_meaning {
    enum ckpt_error error;
    enum redis_reaction reaction;
};
struct redis_meaning redis_error_meaning(const char *text);

#endif
