#include "unwinder/memo.h"

#include <stdlib.h>

/* libLLVM, libclang and rustc's driver are sampled at some 10,000 addresses each. */
#define BITS_MIN 8
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

static void put(struct uw_memo *memo, struct uw_memo_slot slot)
{
	*slot_of(memo, slot.key - 1) = slot;
}

/*
 * Small at first, since a fresh page costs more than a rule, and four times as
 * large each time half as many words came as there are slots.  Without memory it
 * stays as it is, which is only slower.
 */
static void grow(struct uw_memo *memo, unsigned int bits)
{
	struct uw_memo_slot *slots = calloc((size_t)1 << bits, sizeof(*slots)), *old = memo->slots;
	size_t n = old ? (size_t)1 << memo->bits : 0;

	if (!slots)
		return;
	memo->slots = slots;
	memo->bits = bits;
	for (size_t i = 0; i < n; i++)
		if (old[i].key)
			put(memo, old[i]);
	free(old);
}

void uw_memo_keep(struct uw_memo *memo, uint64_t key, uint64_t word, uint8_t stepper, uint64_t size)
{
	unsigned int bits;

	if (!enter(memo))
		return;
	if (!memo->slots || memo->n_kept >> (memo->bits - 1)) {
		bits = memo->slots ? memo->bits + 2 : BITS_MIN;
		if (bits <= BITS_MAX && (bits == BITS_MIN || size / BYTES_A_SLOT >> (bits - 2)))
			grow(memo, bits);
		memo->n_kept = 0;
	}
	memo->n_kept++;
	if (memo->slots)
		put(memo,
		    (struct uw_memo_slot){ .key = key + 1, .word = word, .stepper = stepper });
	leave(memo);
}
