/*
 * unwinder/syscalls.h: which pages of an object's code may have a signal trampoline.
 *
 * Every trampoline has one certain instruction, which hardly any other code has.
 * A page of code is read once, when somebody first asks about an address in it,
 * so that what nobody executes is never read.
 *
 * Any number of threads may ask at once; two may read the same page and find the same.
 */
#ifndef UNWINDER_SYSCALLS_H
#define UNWINDER_SYSCALLS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/arch.h"
#include "unwinder/elf.h"
#include "unwinder/unwinder.h"

/* Borrowed from the object. */
struct uw_code_source {
	const struct uw_arch *arch;
	const struct uw_source *source;
	const struct uw_segment *segments;
	size_t n_segments;
};

struct uw_syscalls {
	uint64_t first, n;   /* pages, by vaddr; 0: too many to remember, every page may */
	atomic_uchar *pages; /* owned */
};

/* All that is allocated is allocated here; without memory every page may. */
void uw_syscalls_init(struct uw_syscalls *s, const struct uw_code_source *code);
void uw_syscalls_fini(struct uw_syscalls *s);

/* False: no trampoline begins, goes on or ends at pc, which need not be code at all. */
bool uw_syscalls_near(const struct uw_syscalls *s, const struct uw_code_source *code, uint64_t pc);

#endif
