#include "unwinder/memo.h"

#include <stdlib.h>

/* libLLVM, libclang and rustc's driver are sampled at some 10,000 addresses each. */
#define BITS_MIN 6
#define BITS_MAX 14
/* An FDE of 40 to 60 bytes is sampled at one address or not at all. */
#define BYTES_A_SLOT 64

static bool enter(struct uw_memo *memo)
{
	return !atomic_exchange_explicit(&memo->busy, true, memory_order_acquire);
}

static void leave(struct uw_memo *memo)
{
	atomic_store_explicit(&memo->busy, false, memory_order_release);
}

static struct uw_memo_slot *slot_of(const struct uw_memo *memo, uint64_t key)
{
	return &memo->slots[key * 0x9e3779b97f4a7c15 >> (64 - memo->bits)];
}

void uw_memo_fini(struct uw_memo *memo)
{
	free(memo->slots);
	memo->slots = NULL;
}

bool uw_memo_find(struct uw_memo *memo, uint64_t key, uint64_t *word, uint8_t *stepper)
{
	bool found = false;

	if (!enter(memo))
		return false;
	if (memo->slots) {
		const struct uw_memo_slot *slot = slot_of(memo, key);

		found = slot->key == key + 1;
		if (found) {
			*word = slot->word;
			*stepper = slot->stepper;
		}
	}
	leave(memo);
	return found;
}

void uw_memo_keep(struct uw_memo *memo, uint64_t key, uint64_t word, uint8_t stepper, uint64_t size)
{
	if (!enter(memo))
		return;
	if (!memo->slots) {
		memo->bits = BITS_MIN;
		while (memo->bits < BITS_MAX && size / BYTES_A_SLOT >> memo->bits)
			memo->bits++;
		memo->slots = calloc((size_t)1 << memo->bits, sizeof(*memo->slots));
	}
	if (memo->slots) /* else it is only slower */
		*slot_of(memo, key) =
			(struct uw_memo_slot){ .key = key + 1, .word = word, .stepper = stepper };
	leave(memo);
}
