/*
 * unwinder/threads.h: a captured thread: its registers, and how its memory is
 * read. Part of unwinder.h.
 */
#ifndef UNWINDER_THREADS_H
#define UNWINDER_THREADS_H

#include <stddef.h>
#include <stdint.h>

#include "unwinder/registered.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a captured thread --------------------------------------------------- */

/*
 * Registers by DWARF number. x86_64 (psABI figure 3.36): rax rdx rcx rbx rsi rdi rbp rsp r8…r15,
 * and 16, the return address column, which is rip here. aarch64 (AADWARF64 §4.1): x0…x30, 31 sp, 32
 * pc.
 */
enum {
	UW_X86_64_RBP = 6,
	UW_X86_64_RSP = 7,
	UW_X86_64_R9 = 9,
	UW_X86_64_R12 = 12,
	UW_X86_64_R13 = 13,
	UW_X86_64_R15 = 15,
	UW_X86_64_RIP = 16,
	UW_X86_64_REGS = 17,
};
enum {
	UW_AARCH64_FP = 29,
	UW_AARCH64_LR = 30,
	UW_AARCH64_SP = 31,
	UW_AARCH64_PC = 32,
	UW_AARCH64_REGS = 33
};
#define UW_REGS_MAX 33

/* Register values, by DWARF number. */
struct uw_regs {
	uint64_t value[UW_REGS_MAX];
	uint64_t known; /* bit i: value[i] is known */
};

/* Captured bytes for uw_memory_read. Regions do not overlap. */
struct uw_region {
	uint64_t addr;
	uint64_t size;
	const uint8_t *bytes; /* borrowed */
};

/* All captured bytes of a thread. */
struct uw_memory {
	const struct uw_region *regions;
	size_t n_regions;
};

/* Read captured bytes; a uw_read_fn whose ctx is a struct uw_memory. */
int uw_memory_read(void *ctx, uint64_t addr, void *out, size_t size);

/* A captured thread: its registers, and how to read its memory. */
struct uw_thread {
	struct uw_regs regs;
	uw_read_fn read; /* captured memory; the walk itself adds read-only file contents */
	void *ctx;
	/*
	 * aarch64: which bits of a code address hold its authentication code, if the source knows
	 * (NT_ARM_PAC_MASK). 0: derive them from the highest mapped address.
	 */
	uint64_t code_mask;
};

#ifdef __cplusplus
}
#endif

#endif
