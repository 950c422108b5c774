/*
 * unwinder/rule/lazy_fde.h: lazy FDE lookup: find a single FDE of a file whose .eh_frame has not been read.
 *
 * Reading the .eh_frame of a large library takes milliseconds, and much longer when fresh pages are
 * scarce. A lookup by the section's search table in the file takes a few reads of a few hundred
 * bytes. So the first lookups are made in the file, until they have taken as much time as reading
 * the section would. A walk caches the answers (unwinder/walk/code_facts.h); only what most lookups of
 * a file need is cached here: its CIEs, and marks in its search table.
 * Only what linkers usually write is understood; for everything else the functions return -EAGAIN.
 */
#ifndef UNWINDER_RULE_LAZY_FDE_H
#define UNWINDER_RULE_LAZY_FDE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/elf.h"
#include "unwinder/arch/arch.h"
#include "unwinder/cfi/cfi.h"
#include "unwinder/cfi/ehframe.h"
#include "unwinder/rule.h"

/* CIEs that are held of each file. */
#define UW_LAZY_CIES 4

struct uw_lazy_cie;

/*
 * Where the search table and the section lie. Any number of threads may use it at once.
 */
struct uw_lazy_fde {
	bool usable;
	bool in_memory;		 /* reading some bytes takes no system call */
	struct uw_source source; /* borrowed */
	const struct uw_arch *arch;
	/* in the file; pairs of s32, start and FDE, that count from header_vaddr */
	uint64_t table_off;
	uint64_t header_vaddr, n; /* n: entries of the search table */
	atomic_int whole;     /* 1: every FDE is in the table; -1: perhaps not; 0: not known yet */
	uint64_t first, last; /* starts of the first and last entry */
	uint64_t frames_off, frames_vaddr, frames_size;
	struct uw_cfi bases;
	/* set once, when they are first needed */
	atomic_uint_fast64_t n_searches;		  /* before there were marks */
	_Atomic(int32_t *) marks;			  /* owned */
	_Atomic(struct uw_lazy_cie *) cies[UW_LAZY_CIES]; /* owned */
};

/*
 * Prepare lookups. elf and its source are borrowed. bases has the bases of encoded pointers. Sets
 * usable, if the file is as linkers usually write it and for a machine that is known. Release it with
 * uw_lazy_fde_fini.
 */
void uw_lazy_fde_init(struct uw_lazy_fde *lazy, const struct uw_elf *elf,
		      const struct uw_cfi *bases);
/* Release what lookups have cached. Also for one that is all zeros. */
void uw_lazy_fde_fini(struct uw_lazy_fde *lazy);

/*
 * Look up the rule at lookup. 0: the FDE [*start, *end) covers lookup, and *out is its rule there.
 * -ENOENT: no FDE covers lookup, and [*start, *end) is the gap. -EAGAIN: the section must be read.
 */
int uw_lazy_fde_rule(struct uw_lazy_fde *lazy, uint64_t lookup, struct uw_rule *out,
		     uint64_t *start, uint64_t *end);

/* Do the same without a rule. */
int uw_lazy_fde_range(struct uw_lazy_fde *lazy, uint64_t lookup, uint64_t *start, uint64_t *end);

#endif
