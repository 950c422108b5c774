/*
 * unwinder/peek.h: a single FDE of a file whose .eh_frame has not been read.
 *
 * Reading the section of a large library takes milliseconds, and much longer where the
 * machine is short of pages that are fresh; a look-up by its search table in the file some
 * reads of a few hundred bytes.  So the first look-ups are made in the file, until as much
 * time was spent as reading takes.  The search table is an eighth of the section: after some
 * look-ups it is kept, and each takes one read.  Of what is in memory nothing is kept twice.
 * Only what linkers usually write is understood; the rest says -EAGAIN.
 */
#ifndef UNWINDER_PEEK_H
#define UNWINDER_PEEK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "unwinder/arch.h"
#include "unwinder/cfi.h"
#include "unwinder/ehframe.h"
#include "unwinder/elf.h"
#include "unwinder/rule.h"

/* Nearly all FDEs of a file share a few CIEs. */
#define UW_PEEK_CIES	4
#define UW_PEEK_CIE_MAX 128

struct uw_peek_cie {
	uint64_t off; /* in the section */
	size_t size;  /* 0: none */
	uint8_t bytes[UW_PEEK_CIE_MAX];
};

/* The last FDEs that were looked into, by where they are. */
#define UW_PEEK_ENDS_BITS 11

struct uw_peek_end {
	uint64_t start, end; /* end 0: free */
};

/* Where the search table and the section lie; but for the CIEs immutable once made. */
struct uw_peek {
	bool usable;
	bool in_memory;	      /* reading some bytes takes no system call */
	pthread_mutex_t lock; /* of the next two, and of what ends points to */
	struct uw_peek_cie cies[UW_PEEK_CIES];
	unsigned int n_cies;	 /* kept so far, also those that gave way */
	struct uw_source source; /* borrowed */
	const struct uw_arch *arch;
	uint64_t table_off; /* in the file, of pairs of s32: start and FDE, from header_vaddr */
	uint64_t header_vaddr, n;
	atomic_uint n_searched;	 /* times, in the file */
	_Atomic(uint8_t *) kept; /* the search table; owned; NULL: not read */
	/* 1 << UW_PEEK_ENDS_BITS of them after some look-ups; owned */
	_Atomic(struct uw_peek_end *) ends;
	atomic_int whole;     /* 1: every FDE is in the table; -1: perhaps not; 0: not known */
	uint64_t first, last; /* starts */
	uint64_t frames_off, frames_vaddr, frames_size;
	struct uw_cfi bases;
};

/* elf is borrowed, as is its source; bases: what pointers count from. */
void uw_peek_init(struct uw_peek *peek, const struct uw_elf *elf, const struct uw_cfi *bases);
void uw_peek_fini(struct uw_peek *peek); /* all zero is fine */

/*
 * 0: the FDE [*start, *end) covers lookup and out is its rule there; -ENOENT: no
 * FDE does, and [*start, *end) is the gap; -EAGAIN: the section is to be read.
 */
int uw_peek_rule(struct uw_peek *peek, uint64_t lookup, struct uw_rule *out, uint64_t *start,
		 uint64_t *end);

/* The same without a rule: of an FDE that was looked into lately it takes no reading. */
int uw_peek_range(struct uw_peek *peek, uint64_t lookup, uint64_t *start, uint64_t *end);

#endif
