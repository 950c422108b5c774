/*
 * unwinder/table/table_fast.h: turns common call-frame programs into table rows, fast.
 *
 * A state is the row that a program has at some point. Each state is stored once and has a number.
 * A program goes from state to state. A cache has the result of an instruction in a state, because
 * compilers write the same few thousand steps again and again. What this file cannot handle is left
 * to cfi.c.
 */
#ifndef UNWINDER_TABLE_TABLE_FAST_H
#define UNWINDER_TABLE_TABLE_FAST_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/arch/arch.h"
#include "unwinder/cfi/cfi.h"
#include "unwinder/table/table_rows.h"

struct uw_fast;
struct uw_fast_cie;

/*
 * Make a decoder. It puts rules and rows into rows, which also receives -ENOMEM, and which must
 * outlive the decoder. -ENOMEM: no memory for the decoder itself.
 */
int uw_fast_new(const struct uw_arch *arch, struct uw_table_rows *rows, struct uw_fast **out);
/* Free the decoder; NULL is allowed. */
void uw_fast_free(struct uw_fast *fast);

/* The parts of an FDE that are needed here; valid until the next one is read. */
struct uw_fast_fde {
	const struct uw_fast_cie *cie;
	const uint8_t *program, *end;
	const uint8_t *readable; /* the end of the section */
	uint64_t start, size;
};

/* Read the FDE at off. False: there is none, or it does not have a common form. */
bool uw_fast_read(struct uw_fast *fast, const struct uw_cfi *cfi, uint64_t off,
		  struct uw_fast_fde *out);

/*
 * Add the FDE's rows, from unit to limit. False: no row was added, and cfi.c must handle the FDE.
 */
bool uw_fast_run(struct uw_fast *fast, const struct uw_fast_fde *fde, uint32_t unit,
		 uint32_t limit);

#endif
