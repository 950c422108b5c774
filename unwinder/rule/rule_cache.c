/* unwinder/rule/rule_cache.c: the rule cache of one object. */
#include "unwinder/rule/rule_cache.h"

#include <stdlib.h>
#include <string.h>

/* libLLVM, libclang and rustc's driver are sampled at about 10,000 addresses each. */
#define BITS_MIN 8
#define BITS_MAX 14
/* The code of an FDE of 40 to 60 bytes is sampled at one address or not at all. */
#define BYTES_A_SLOT 64

/* Try to lock the cache. False: another thread is using it. */
static bool enter(struct uw_memo *memo)
{
	return !atomic_exchange_explicit(&memo->busy, true, memory_order_acquire);
}

static void leave(struct uw_memo *memo)
{
	atomic_store_explicit(&memo->busy, false, memory_order_release);
}

/* Return the only slot where key may be. */
static struct uw_memo_slot *slot_of(const struct uw_memo *memo, uint64_t key)
{
	return &memo->slots[key * 0x9e3779b97f4a7c15 >> (64 - memo->bits)];
}

void uw_memo_init(struct uw_memo *memo, uint64_t size)
{
	unsigned int bits = BITS_MIN;
	size_t bytes;

	while (bits < BITS_MAX && (uint64_t)1 << bits < size / BYTES_A_SLOT)
		bits++;
	bytes = sizeof(*memo->slots) << bits;
	*memo = (struct uw_memo){ .slots = malloc(bytes), .bits = bits };
	/*
	 * The first use of a fresh page takes longer than finding a rule. Take that time here, not
	 * in walks.
	 */
	if (memo->slots)
		memset(memo->slots, 0xff, bytes);
}

void uw_memo_fini(struct uw_memo *memo)
{
	free(memo->slots);
	memo->slots = NULL;
}

bool uw_memo_find(struct uw_memo *memo, uint64_t key, uint64_t *word, uint8_t *stepper)
{
	const struct uw_memo_slot *slot;
	bool found;

	if (!memo->slots || !enter(memo))
		return false;
	slot = slot_of(memo, key);
	found = slot->key == key;
	if (found) {
		*word = slot->word;
		*stepper = slot->stepper;
	}
	leave(memo);
	return found;
}

void uw_memo_keep(struct uw_memo *memo, uint64_t key, uint64_t word, uint8_t stepper)
{
	if (!memo->slots || !enter(memo))
		return;
	*slot_of(memo, key) = (struct uw_memo_slot){ .key = key, .word = word, .stepper = stepper };
	leave(memo);
}
