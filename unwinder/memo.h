/*
 * unwinder/memo.h: the rules of one object that were found lately, by address.
 *
 * An object without a compiled table has its rules worked out from the file, over
 * and over where several processes run it or a walk's own cache is too small.
 *
 * Its room is made once, before anybody asks, where the file's section is read:
 * walks allocate nothing.  Any number of threads may ask at once.  None waits: one
 * that finds the memo in use goes without it.
 */
#ifndef UNWINDER_MEMO_H
#define UNWINDER_MEMO_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct uw_memo_slot {
	uint64_t key; /* all ones: free */
	uint64_t word;
	uint8_t stepper;
};

struct uw_memo { /* all zero: without room, it keeps nothing */
	atomic_bool busy;
	struct uw_memo_slot *slots; /* 1 << bits of them, or NULL; owned */
	unsigned int bits;
};

/*
 * Room that fits `size` bytes of unwind information: 256 to 16,384 slots.  Without memory
 * there is none, which is only slower.  Nobody else may use the memo meanwhile.
 */
void uw_memo_init(struct uw_memo *memo, uint64_t size);
void uw_memo_fini(struct uw_memo *memo);

/* key: a vaddr below 1 << 62 and, in bit 63, whether it is exact.  False: not known. */
bool uw_memo_find(struct uw_memo *memo, uint64_t key, uint64_t *word, uint8_t *stepper);

/* In the place of what had the same slot. */
void uw_memo_keep(struct uw_memo *memo, uint64_t key, uint64_t word, uint8_t stepper);

#endif
