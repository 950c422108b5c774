/*
 * unwinder/table_fast.h: common call-frame programs → rows, fast.
 *
 * A state is a row as a program has it at some point; each is kept once and has
 * a number.  A program goes from state to state, and where an instruction leads
 * from a state is found in a cache: compilers write the same few thousand steps
 * over and over.  What this does not know, it leaves to cfi.c.
 */
#ifndef UNWINDER_TABLE_FAST_H
#define UNWINDER_TABLE_FAST_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/arch.h"
#include "unwinder/cfi.h"
#include "unwinder/table_rows.h"

struct uw_fast;
struct uw_fast_cie;

/* rows: where rules and rows go, and -ENOMEM; it outlives what is made here. */
int uw_fast_new(const struct uw_arch *arch, struct uw_rows *rows, struct uw_fast **out);
void uw_fast_free(struct uw_fast *fast); /* NULL is fine */

/* An FDE, as far as is needed here; valid until the next is read. */
struct uw_fast_fde {
	const struct uw_fast_cie *cie;
	const uint8_t *program, *end;
	const uint8_t *readable; /* end of the section */
	uint64_t start, size;
};

/* The FDE at off; false: it is none, or of no common form. */
bool uw_fast_read(struct uw_fast *fast, const struct uw_cfi *cfi, uint64_t off,
		  struct uw_fast_fde *out);

/* Puts its rows, from unit to limit; false: none was put, cfi.c must see to it. */
bool uw_fast_run(struct uw_fast *fast, const struct uw_fast_fde *fde, uint32_t unit,
		 uint32_t limit);

#endif
