/*
 * unwinder/memo.h: the rules of one object that were found lately, by address.
 *
 * An object without a compiled table has its rules worked out from the file, over
 * and over where several processes run it or a walk's own cache is too small.
 *
 * Any number of threads may ask at once.  None waits: one that finds the memo in
 * use goes without it.
 */
#ifndef UNWINDER_MEMO_H
#define UNWINDER_MEMO_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct uw_memo_slot {
	uint64_t key; /* + 1; 0: free */
	uint64_t word;
	uint8_t stepper;
};

struct uw_memo { /* all zero: empty */
	atomic_bool busy;
	struct uw_memo_slot *slots; /* NULL until the first word is kept; owned */
	unsigned int bits;
	uint32_t n_kept; /* since it last grew */
};

void uw_memo_fini(struct uw_memo *memo);

/* key: a vaddr and, in bit 63, whether it is exact.  False: not known. */
bool uw_memo_find(struct uw_memo *memo, uint64_t key, uint64_t *word, uint8_t *stepper);

/* size: bytes of unwind information, which bounds the room it grows to. */
void uw_memo_keep(struct uw_memo *memo, uint64_t key, uint64_t word, uint8_t stepper,
		  uint64_t size);

#endif
