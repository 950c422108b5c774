/* agent/source/regset.c: translates the kernel's register layouts to DWARF register numbers. */
#include "agent/source/regset.h"

#include <elf.h>

/*
 * The order of arch/x86/include/asm/user_64.h, with the DWARF numbers of psABI figure 3.36; -1:
 * the register has none there.
 */
static const int8_t x86_64_dwarf[27] = {
	15, 14, 13, 12, 6,  3,	11, 10, 9,  8, /* r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 */
	0,  2,	1,  4,	5,  -1, 16, -1, -1, 7, /* rax rcx rdx rsi rdi orig_rax rip cs eflags rsp */
	-1, -1, -1, -1, -1, -1, -1,	       /* ss fs_base gs_base ds es fs gs */
};
#define X86_64_FS_BASE 21

/*
 * arch/arm64/include/uapi/asm/ptrace.h: x0...x30, sp, pc, pstate. Their order is that of the DWARF
 * numbers, except pstate, which has none.
 */
#define AARCH64_WORDS 34

/* Return the little-endian word with index i. */
static uint64_t word(const uint8_t *bytes, size_t i)
{
	uint64_t value = 0;

	for (size_t k = 8; k-- > 0;)
		value = value << 8 | bytes[8 * i + k];
	return value;
}

size_t regset_size(uint16_t machine)
{
	if (machine == EM_X86_64)
		return 8 * sizeof(x86_64_dwarf);
	return machine == EM_AARCH64 ? 8 * AARCH64_WORDS : 0;
}

uint16_t regset_machine(size_t size)
{
	if (size == 8 * sizeof(x86_64_dwarf))
		return EM_X86_64;
	return size == 8 * AARCH64_WORDS ? EM_AARCH64 : EM_NONE;
}

void regset_read(uint16_t machine, const uint8_t *bytes, struct uw_regs *out)
{
	size_t n = machine == EM_X86_64 ? sizeof(x86_64_dwarf) : UW_AARCH64_REGS;

	*out = (struct uw_regs){ .known = 0 };
	for (size_t i = 0; i < n; i++) {
		int reg = machine == EM_X86_64 ? x86_64_dwarf[i] : (int)i;

		if (reg < 0)
			continue;
		out->value[reg] = word(bytes, i);
		out->known |= (uint64_t)1 << reg;
	}
}

uint64_t regset_thread_pointer(uint16_t machine, const uint8_t *bytes)
{
	return machine == EM_X86_64 ? word(bytes, X86_64_FS_BASE) : 0;
}

unsigned int regset_sp(uint16_t machine)
{
	return machine == EM_X86_64 ? UW_X86_64_RSP : UW_AARCH64_SP;
}
