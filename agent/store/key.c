/* agent/store/key.c: the keys of stored tables and symbols. */
#include "agent/store/key.h"

#include "agent/hash.h"
#include "schema/symbols_blob.h"

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

	return hash_bytes(hash_bytes(1, numbers, sizeof(numbers)), id->bytes, id->size);
}

uint64_t key_of_symbols(const struct store_file *f, const struct uw_build_id *id)
{
	return key_of_file(f, id, 0, &(struct uw_identity){ .size = SYMBOLS_READER });
}
