/* checkpoint/mem.h - the store for tests: lives in the process under a name ("mem:NAME"), outlives its handles as a real
 * store outlives a worker, and fails on cue. Threads: any (one lock inside). */
#ifndef CHECKPOINT_MEM_H
#define CHECKPOINT_MEM_H

#include <stdbool.h>

#include "checkpoint/checkpoint.h"

enum ckpt_mem_fault {
    CKPT_MEM_REFUSE,        /* the call does nothing and answers ST_RETRY */
    CKPT_MEM_ANSWER_LOST    /* the call is carried out, then answers ST_RETRY */
};

/* After `skip` more calls (of any kind but close), the next `calls` have the fault. The store need not exist yet. */
void ckpt_mem_fail(const char *name, enum ckpt_mem_fault fault, int skip, int calls);
/* Everything is gone, fences too: as a store that restarted empty. */
void ckpt_mem_lose(const char *name);
/* Keeps only the first `bytes` of one sequence (a store that lost its newest writes), or flips the bits of one byte.
 * False: there is no such sequence or byte. */
bool ckpt_mem_cut(const char *name, const struct ckpt_key *key, size_t bytes);
bool ckpt_mem_flip(const char *name, const struct ckpt_key *key, size_t byte_i);
int64_t ckpt_mem_calls(const char *name);      /* so far, of any kind but open and close */
/* Ends the store; no handle may be open. */
void ckpt_mem_drop(const char *name);

#endif
