/* agent/store/key.c: the keys of stored tables and symbols. */
#include "agent/store/key.h"

#include "schema/symbols_blob.h"

#include <string.h>

/*
 * Mix a word into a key. Keys are in databases, so this never changes; the indexes in memory have a
 * hash of their own (agent/hash.h), which differs in each process.
 */
static uint64_t mix(uint64_t key, uint64_t word)
{
	uint64_t h = (key ^ word) * UINT64_C(0x9e3779b97f4a7c15);

	return h ^ (h >> 29);
}

/* Mix in n bytes: first their number, then words of eight bytes, the last one padded with zeros. */
static uint64_t mix_bytes(uint64_t key, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;

	key = mix(key, n);
	for (size_t i = 0; i < n; i += 8) {
		uint64_t word = 0;

		memcpy(&word, p + i, n - i < 8 ? n - i : 8);
		key = mix(key, word);
	}
	return key;
}

uint64_t key_of_file(const struct store_file *f, const struct uw_build_id *id, uint16_t machine,
		     const struct uw_identity *identity)
{
	const uint64_t numbers[] = { f->dev,
				     f->ino,
				     f->elf_off,
				     f->size,
				     f->uid,
				     (uint64_t)f->mtime_ns,
				     (uint64_t)f->ctime_ns,
				     machine,
				     identity->size,
				     identity->hash };

	return mix_bytes(mix_bytes(1, numbers, sizeof(numbers)), id->bytes, id->size);
}

uint64_t key_of_symbols(const struct store_file *f, const struct uw_build_id *id)
{
	return key_of_file(f, id, 0, &(struct uw_identity){ .size = SYMBOLS_READER });
}
