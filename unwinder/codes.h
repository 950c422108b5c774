/*
 * unwinder/codes.h: the pieces of one file's code that were read lately.
 *
 * What stands around a return address is asked for by several, one after another, and
 * each time the file is read it costs as much as finding a rule does.
 *
 * Any number of threads may ask at once.  None waits: one that finds the pieces in
 * use reads for itself.
 */
#ifndef UNWINDER_CODES_H
#define UNWINDER_CODES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/elf.h"

#define UW_CODES      4
#define UW_CODES_SIZE 512u

struct uw_codes { /* all zero: nothing was read */
	atomic_bool busy;
	unsigned int n; /* read so far, also those that gave way */
	struct {
		uint64_t off; /* in source */
		size_t size;
		uint8_t bytes[UW_CODES_SIZE];
	} piece[UW_CODES];
};

/* The bytes [off, off + size) of [least, most), which alone is looked at; fails as uw_source_read. */
int uw_codes_read(struct uw_codes *codes, const struct uw_source *source, uint64_t least,
		  uint64_t most, uint64_t off, void *out, size_t size);

#endif
