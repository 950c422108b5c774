/*
 * unwinder/rule/lazy_fde.h: lazy FDE lookup: find a single FDE of a file whose .eh_frame has not been read.
 *
 * Reading the .eh_frame of a large library takes milliseconds, and much longer when fresh pages are
 * scarce. A lookup by the section's search table in the file takes a few reads of a few hundred
 * bytes. So the first lookups are made in the file, until they have taken as much time as reading
 * the section would. The search table has an eighth of the section's size: after some lookups it is
 * stored, and each lookup takes one read. If the file is in memory, the table is not copied. Only
 * what linkers usually write is understood; for everything else the functions return -EAGAIN.
 */
#ifndef UNWINDER_RULE_LAZY_FDE_H
#define UNWINDER_RULE_LAZY_FDE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/elf.h"
#include "unwinder/arch/arch.h"
#include "unwinder/cfi/cfi.h"
#include "unwinder/cfi/ehframe.h"
#include "unwinder/rule.h"

/* Nearly all FDEs of a file share a few CIEs. */
#define UW_PEEK_CIES	4
#define UW_PEEK_CIE_MAX 128

struct uw_peek_cie {
	uint64_t off; /* offset in the section */
	size_t size;  /* 0: the slot is empty */
	uint8_t bytes[UW_PEEK_CIE_MAX];
};

/* Cache of the ends of the FDEs that were read recently, by their starts. */
#define UW_PEEK_ENDS_BITS 11

struct uw_peek_end {
	uint64_t start, end; /* end 0: the slot is empty */
};

/*
 * Where the search table and the section lie, and what was cached. It is used by several threads.
 */
struct uw_peek {
	bool usable;
	bool in_memory;	      /* reading some bytes takes no system call */
	pthread_mutex_t lock; /* protects cies, n_cies and what ends points to */
	struct uw_peek_cie cies[UW_PEEK_CIES];
	unsigned int n_cies;	 /* CIEs stored so far, including those that were replaced */
	struct uw_source source; /* borrowed */
	const struct uw_arch *arch;
	/* in the file; pairs of s32, start and FDE, that count from header_vaddr */
	uint64_t table_off;
	uint64_t header_vaddr, n; /* n: entries of the search table */
	atomic_uint n_searched;	  /* lookups that searched the file */
	_Atomic(uint8_t *) kept;  /* the search table; owned; NULL: not read */
	/* 1 << UW_PEEK_ENDS_BITS of them, after some lookups; owned */
	_Atomic(struct uw_peek_end *) ends;
	atomic_int whole;     /* 1: every FDE is in the table; -1: perhaps not; 0: not known yet */
	uint64_t first, last; /* starts of the first and last entry */
	uint64_t frames_off, frames_vaddr, frames_size;
	struct uw_cfi bases;
};

/*
 * Prepare lookups. elf and its source are borrowed. bases has the bases of encoded pointers. Sets
 * usable, if the file is as linkers usually write it.
 */
void uw_peek_init(struct uw_peek *peek, const struct uw_elf *elf, const struct uw_cfi *bases);
/* Free what is owned; all zero is allowed. */
void uw_peek_fini(struct uw_peek *peek);

/*
 * Look up the rule at lookup. 0: the FDE [*start, *end) covers lookup, and *out is its rule there.
 * -ENOENT: no FDE covers lookup, and [*start, *end) is the gap. -EAGAIN: the section must be read.
 */
int uw_peek_rule(struct uw_peek *peek, uint64_t lookup, struct uw_rule *out, uint64_t *start,
		 uint64_t *end);

/*
 * Do the same without a rule. If the FDE was read recently, its end is cached and nothing is read.
 */
int uw_peek_range(struct uw_peek *peek, uint64_t lookup, uint64_t *start, uint64_t *end);

#endif
