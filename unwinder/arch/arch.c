/* unwinder/arch/arch.c: looks up machines by their ELF number, and names their registers. */
#include "unwinder/arch/arch.h"

#include <elf.h>

static const struct uw_arch *const known[] = { &uw_arch_x86_64, &uw_arch_aarch64 };

const struct uw_arch *uw_arch_of(uint16_t machine)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i]->machine == machine)
			return known[i];
	return NULL;
}

/* Return the name of a register by DWARF number, "?" if there is none. */
const char *uw_reg_name(uint16_t machine, unsigned int reg)
{
	static const char *const x86_64[UW_X86_64_REGS] = {
		"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8",
		"r9",  "r10", "r11", "r12", "r13", "r14", "r15", "rip",
	};
	static const char *const aarch64[UW_AARCH64_REGS] = {
		"x0",  "x1",  "x2",  "x3",  "x4",  "x5",  "x6",	 "x7",	"x8",  "x9",  "x10",
		"x11", "x12", "x13", "x14", "x15", "x16", "x17", "x18", "x19", "x20", "x21",
		"x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp",  "pc",
	};

	if (machine == EM_X86_64 && reg < UW_X86_64_REGS)
		return x86_64[reg];
	return machine == EM_AARCH64 && reg < UW_AARCH64_REGS ? aarch64[reg] : "?";
}
