/* checkpoint/redis_scripts.h - what runs inside Redis: each call of checkpoint.h that writes is one script for up to
 * REDIS_ITEMS_MAX items, so that its fence is checked and its items are written in one act. Private to this folder.
 * Keys, all with expiry, {JOB:SOURCE} = {%016x:%d}:
 *   ns:f:{JOB:SOURCE}                 string   fencing token of the newest owner
 *   ns:i:{JOB:SOURCE}                 set      what is stored: "OFFSET:CHOICE" of a sequence, "OFFSET" of attempts
 *   ns:j:{JOB}                        set      sources of the job that have or had an owner or something stored
 *   ns:c:{JOB:SOURCE}:OFFSET:CHOICE   string   frames (frames.h)
 *   ns:a:{JOB:SOURCE}:OFFSET          hash     n starts, solo starts alone, run the last run or "0", alone "1": that one alone
 * The two sets spare a SCAN when a job is over or counted; a member whose key has expired is harmless. */
#ifndef CHECKPOINT_REDIS_SCRIPTS_H
#define CHECKPOINT_REDIS_SCRIPTS_H

enum redis_script {
    SCRIPT_ACQUIRE, SCRIPT_SAVE, SCRIPT_BEGIN, SCRIPT_HAND_OVER, SCRIPT_FORGET, SCRIPT_FORGET_SOURCE, SCRIPTS_N
};

#define REDIS_ITEMS_MAX 64

extern const char *const redis_script_text[SCRIPTS_N];

#endif
