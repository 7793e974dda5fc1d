#include "checkpoint/redis_scripts.h"

/* A token is a time in ms: whole, and exact as a Lua number. Anything else at that key is damage, as good as nothing. */
#define FENCE \
    "local function fence(key)\n" \
    "  local f = redis.pcall('GET', key)\n" \
    "  f = type(f) == 'string' and tonumber(f) or 0\n" \
    "  if f >= 0 and f < 4503599627370496 then return f end\n" \
    "  return 0\n" \
    "end\n"

/* The key of what a member of an index stands for. Names that a script makes: one reason why a cluster is refused. */
#define NAMED \
    "local function named(index, member)\n" \
    "  return (string.find(member, ':', 1, true) and 'ns:c' or 'ns:a') .. string.sub(index, 5) .. ':' .. member\n" \
    "end\n"

/* KEYS: for each source its fence, index and the job's sources; then the items' own.
 * ARGV: token, sources, life of a fence in ms, life of an item in ms, then the number of each source, then what the call needs.
 * A fence older than the token is one that got lost with its data: restored. Otherwise its life is renewed, last of all: a script
 * that has written anything is no longer refused for want of memory, and this one should be. Forgetting needs no memory.
 * An index loses the members whose keys have expired a few at a time, whenever it grows: so it stays as small as what it lists.
 * pcall on the two sets: a stranger's value there costs a tidy end of the job, nothing else. */
#define CALL \
    FENCE NAMED \
    "local token, sources = tonumber(ARGV[1]), tonumber(ARGV[2])\n" \
    "local first, at = 3 * sources, 4 + sources\n" \
    "local stored, kept = {}, {}\n" \
    "for i = 1, sources do\n" \
    "  stored[i] = fence(KEYS[3 * i - 2])\n" \
    "  if stored[i] > token then return -1 end\n" \
    "end\n" \
    "for i = 1, sources do\n" \
    "  if stored[i] < token then\n" \
    "    redis.call('SET', KEYS[3 * i - 2], ARGV[1], 'PX', ARGV[3])\n" \
    "    redis.pcall('SADD', KEYS[3 * i], ARGV[4 + i])\n" \
    "  end\n" \
    "end\n" \
    "local function keep(source, member)\n" \
    "  kept[source] = kept[source] or {}\n" \
    "  table.insert(kept[source], member)\n" \
    "end\n" \
    "local function grow(index, members)\n" \
    "  redis.pcall('SADD', index, unpack(members))\n" \
    "  for _, m in ipairs(redis.pcall('SRANDMEMBER', index, 2)) do\n" \
    "    if redis.call('EXISTS', named(index, m)) == 0 then redis.call('SREM', index, m) end\n" \
    "  end\n" \
    "end\n" \
    "local function finish()\n" \
    "  for i = 1, sources do\n" \
    "    if kept[i] then grow(KEYS[3 * i - 1], kept[i]) end\n" \
    "    for k = 3 * i - 2, 3 * i do redis.pcall('PEXPIRE', KEYS[k], ARGV[3]) end\n" \
    "  end\n" \
    "end\n"

/* Attempts of a record: damage reads as nothing. */
#define ATTEMPTS \
    "local function attempts(key)\n" \
    "  local h = redis.pcall('HMGET', key, 'n', 'solo', 'run', 'alone')\n" \
    "  if h.err then redis.call('UNLINK', key) h = {} end\n" \
    "  local n, solo = tonumber(h[1] or 0) or 0, tonumber(h[2] or 0) or 0\n" \
    "  if not (n >= 0 and n <= 1000000000) then n = 0 end\n" \
    "  if not (solo >= 0 and solo <= 1000000000) then solo = 0 end\n" \
    "  return math.floor(n), math.floor(solo), h[3] or '0', h[4] or '0', not h[3]\n" \
    "end\n"

const char *const redis_script_text[SCRIPTS_N] = {
    /* KEYS: fence, the job's sources. ARGV: source, life. The token outgrows every earlier one, and where the fence got lost,
     * every one that the time had reached. */
    [SCRIPT_ACQUIRE] =
        FENCE
        "local now = redis.call('TIME')\n"
        "local token = math.max(fence(KEYS[1]) + 1, now[1] * 1000 + math.floor(now[2] / 1000))\n"
        "redis.call('SET', KEYS[1], string.format('%.0f', token), 'PX', ARGV[2])\n"
        "redis.pcall('SADD', KEYS[2], ARGV[1])\n"
        "redis.pcall('PEXPIRE', KEYS[2], ARGV[2])\n"
        "return token\n",

    /* Items: their key; source, member, offset (-1: replace), the bytes that must end there, the bytes. Answers a length each,
     * or -2: what must stand before the offset does not (data got lost). SETRANGE at a fixed offset makes sending it again
     * harmless, which APPEND would not be; what lies behind (an earlier try, another writer's tail) is cut off. */
    [SCRIPT_SAVE] =
        CALL
        "local out = {}\n"
        "for i = 1, #KEYS - first do\n"
        "  local key, source, offset, before, bytes = KEYS[first + i], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 3]),"
        " ARGV[at + 4], ARGV[at + 5]\n"
        "  if offset < 0 then\n"
        "    redis.call('SET', key, bytes, 'PX', ARGV[4])\n"
        "    keep(source, ARGV[at + 2])\n"
        "    out[i] = #bytes\n"
        "  elseif redis.pcall('GETRANGE', key, offset - #before, offset - 1) ~= before then\n"
        "    out[i] = -2\n"
        "  else\n"
        "    local n = redis.call('SETRANGE', key, offset, bytes)\n"
        "    if n > offset + #bytes then\n"
        "      n = offset + #bytes\n"
        "      redis.call('SET', key, redis.call('GETRANGE', key, 0, n - 1))\n"
        "    end\n"
        "    redis.call('PEXPIRE', key, ARGV[4])\n"
        "    out[i] = n\n"
        "  end\n"
        "  at = at + 5\n"
        "end\n"
        "finish()\n"
        "return out\n",

    /* Further: run, solo ("1" or "0"). Items: their key; source, member. Answers starts, solo and run of each. */
    [SCRIPT_BEGIN] =
        CALL ATTEMPTS
        "local run, solo = ARGV[at + 1], ARGV[at + 2] == '1'\n"
        "local out = {}\n"
        "at = at + 2\n"
        "for i = 1, #KEYS - first do\n"
        "  local key = KEYS[first + i]\n"
        "  local n, n_solo, last, alone, new = attempts(key)\n"
        "  if last ~= run then n, alone = n + 1, '0' end\n"
        "  if solo and alone ~= '1' then n_solo, alone = n_solo + 1, '1' end\n"
        "  redis.call('HSET', key, 'n', n, 'solo', n_solo, 'run', run, 'alone', alone)\n"
        "  redis.call('PEXPIRE', key, ARGV[4])\n"
        "  if new then keep(tonumber(ARGV[at + 1]), ARGV[at + 2]) end\n"
        "  out[3 * i - 2], out[3 * i - 1], out[3 * i] = n, n_solo, run\n"
        "  at = at + 2\n"
        "end\n"
        "finish()\n"
        "return out\n",

    /* Further: solo. Items: their key; source, member. */
    [SCRIPT_HAND_OVER] =
        CALL ATTEMPTS
        "local solo = ARGV[at + 1] == '1'\n"
        "at = at + 1\n"
        "for i = 1, #KEYS - first do\n"
        "  local key = KEYS[first + i]\n"
        "  local n, n_solo, last, alone = attempts(key)\n"
        "  if last ~= '0' then\n"
        "    n = n - 1\n"
        "    if solo and alone == '1' then n_solo = n_solo - 1 end\n"
        "    if n <= 0 and n_solo <= 0 then\n"
        "      redis.call('UNLINK', key)\n"
        "      redis.pcall('SREM', KEYS[3 * ARGV[at + 1] - 1], ARGV[at + 2])\n"
        "    else\n"
        "      redis.call('HSET', key, 'n', n, 'solo', n_solo, 'run', '0', 'alone', '0')\n"
        "      redis.call('PEXPIRE', key, ARGV[4])\n"
        "    end\n"
        "  end\n"
        "  at = at + 2\n"
        "end\n"
        "finish()\n"
        "return 0\n",

    /* Items: two keys (sequence, attempts); source, two members. */
    [SCRIPT_FORGET] =
        CALL
        "for i = first + 1, #KEYS, 2 do\n"
        "  redis.call('UNLINK', KEYS[i], KEYS[i + 1])\n"
        "  redis.pcall('SREM', KEYS[3 * ARGV[at + 1] - 1], ARGV[at + 2], ARGV[at + 3])\n"
        "  at = at + 3\n"
        "end\n"
        "finish()\n"
        "return 0\n",

    /* KEYS: fence, index. ARGV: token, most to do. Answers how many of the index are left, or -1: fenced. */
    [SCRIPT_FORGET_SOURCE] =
        FENCE NAMED
        "if fence(KEYS[1]) > tonumber(ARGV[1]) then return -1 end\n"
        "local members = redis.pcall('SPOP', KEYS[2], ARGV[2])\n"
        "if members.err then redis.call('UNLINK', KEYS[2]) return 0 end\n"
        "for _, m in ipairs(members) do redis.call('UNLINK', named(KEYS[2], m)) end\n"
        "return redis.call('SCARD', KEYS[2])\n",
};
