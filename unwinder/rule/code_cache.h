/*
 * unwinder/rule/code_cache.h: a cache of the pieces of one file's code that were read recently.
 *
 * Several parts of a walk ask for the code around the same return address, one after another. A
 * read from the file costs as much as finding a rule.
 *
 * Any number of threads may use the cache at once. No thread waits: if the cache is in use, a
 * thread reads from the file.
 */
#ifndef UNWINDER_RULE_CODE_CACHE_H
#define UNWINDER_RULE_CODE_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/elf.h"

#define UW_CODES      4
#define UW_CODES_SIZE 512u

struct uw_codes { /* all zero: empty */
	atomic_bool busy;
	unsigned int n; /* number of pieces read so far, including evicted ones */
	struct {
		uint64_t off; /* in source */
		size_t size;
		uint8_t bytes[UW_CODES_SIZE];
	} piece[UW_CODES];
};

/*
 * Read [off, off + size) of the source. The cache reads only within [least, most), which must
 * contain that range. Errors are those of uw_source_read.
 */
int uw_codes_read(struct uw_codes *codes, const struct uw_source *source, uint64_t least,
		  uint64_t most, uint64_t off, void *out, size_t size);

#endif
