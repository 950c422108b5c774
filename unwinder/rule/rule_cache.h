/*
 * unwinder/rule/rule_cache.h: a cache of one object's rules, by address.
 *
 * Without a compiled table, an object's rules are decoded from the file again and again: several
 * processes run the object, or a worker's own cache is too small.
 *
 * The memory is allocated once, before any lookup, where the file's section is read: walks allocate
 * nothing. Any number of threads may use the cache. None of them waits: a thread that finds the
 * cache in use goes on without it.
 */
#ifndef UNWINDER_RULE_RULE_CACHE_H
#define UNWINDER_RULE_RULE_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct uw_memo_slot {
	uint64_t key; /* all ones: empty */
	uint64_t word;
	uint8_t stepper;
};

/* All zero is allowed: without slots nothing is cached. */
struct uw_memo {
	atomic_bool busy;
	struct uw_memo_slot *slots; /* 1 << bits of them, or NULL; owned */
	unsigned int bits;
};

/*
 * Make a cache for `size` bytes of unwind information: 256 to 16,384 slots. Without memory nothing
 * is cached, which is only slower. No other thread may use the cache during the call.
 */
void uw_memo_init(struct uw_memo *memo, uint64_t size);
void uw_memo_fini(struct uw_memo *memo);

/*
 * Look up a rule word and its stepper. key is a vaddr below 1 << 62, with bit 63 set if it is
 * exact. False: it is not in the cache.
 */
bool uw_memo_find(struct uw_memo *memo, uint64_t key, uint64_t *word, uint8_t *stepper);

/* Store a rule word and its stepper, in place of what was in the same slot. */
void uw_memo_keep(struct uw_memo *memo, uint64_t key, uint64_t word, uint8_t stepper);

#endif
