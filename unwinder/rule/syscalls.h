/*
 * unwinder/rule/syscalls.h: which pages of an object's code may have a signal trampoline.
 *
 * Every trampoline has a system call instruction, which hardly any other code has. A page of code
 * is read once, at the first lookup in it, so pages that are never executed are never read.
 *
 * Any number of threads may look up pages. Two of them may read the same page; both get the same
 * result.
 */
#ifndef UNWINDER_RULE_SYSCALLS_H
#define UNWINDER_RULE_SYSCALLS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/elf.h"
#include "unwinder/arch/arch.h"
#include "unwinder/unwinder.h"

/* Where the code is; borrowed from the object. */
struct uw_code_source {
	const struct uw_arch *arch;
	const struct uw_source *source;
	const struct uw_segment *segments;
	size_t n_segments;
};

struct uw_syscalls {
	/* pages, by vaddr; n 0: too many to store, every page may have one */
	uint64_t first, n;
	atomic_uchar *pages; /* owned */
};

/* Allocate everything that is needed. Without memory, every page counts as having a trampoline. */
void uw_syscalls_init(struct uw_syscalls *s, const struct uw_code_source *code);
void uw_syscalls_fini(struct uw_syscalls *s);

/*
 * Return whether a trampoline may begin, continue or end at pc, which need not be code at all.
 * False: there is none.
 */
bool uw_syscalls_near(const struct uw_syscalls *s, const struct uw_code_source *code, uint64_t pc);

#endif
