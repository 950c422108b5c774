/* unwinder/rule/code_cache.c: a cache of the pieces of one file's code that were read recently (code_cache.h). */
#include "unwinder/rule/code_cache.h"

#include <string.h>

/*
 * How much of a piece lies before the requested bytes. More of a procedure follows a requested
 * address than precedes it.
 */
#define BEFORE (UW_CODES_SIZE / 4)

/* Copy the bytes from the cache. Return false if no piece contains all of them. */
static bool find(const struct uw_codes *codes, uint64_t off, void *out, size_t size)
{
	for (unsigned int i = 0; i < UW_CODES; i++) {
		uint64_t at = off - codes->piece[i].off;

		if (off < codes->piece[i].off || at > codes->piece[i].size ||
		    size > codes->piece[i].size - at)
			continue;
		memcpy(out, codes->piece[i].bytes + at, size);
		return true;
	}
	return false;
}

/*
 * Read from the file without the cache if the cache is in use or the bytes do not fit into one
 * piece. An image in memory is not cached.
 */
int uw_codes_read(struct uw_codes *codes, const struct uw_source *source, uint64_t least,
		  uint64_t most, uint64_t off, void *out, size_t size)
{
	uint64_t from = off - least < BEFORE ? least : off - BEFORE;
	uint64_t length = most - from < UW_CODES_SIZE ? most - from : UW_CODES_SIZE;
	uint8_t bytes[UW_CODES_SIZE];
	unsigned int n;
	bool found;

	if (source->image || off - from > length || size > length - (off - from) ||
	    atomic_exchange_explicit(&codes->busy, true, memory_order_acquire))
		return uw_source_read(source, off, out, size);
	found = find(codes, off, out, size);
	/*
	 * If the file has become shorter, the requested bytes may still exist: read them alone
	 * below.
	 */
	if (!found && !uw_source_read(source, from, bytes, length)) {
		n = codes->n++ % UW_CODES;
		codes->piece[n].off = from;
		codes->piece[n].size = (size_t)length;
		memcpy(codes->piece[n].bytes, bytes, (size_t)length);
		memcpy(out, bytes + (off - from), size);
		found = true;
	}
	atomic_store_explicit(&codes->busy, false, memory_order_release);
	return found ? 0 : uw_source_read(source, off, out, size);
}
