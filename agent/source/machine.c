/* agent/source/machine.c: the supported machines, as data. */
#include "agent/source/machine.h"

#include "base/bytes.h"

#include <elf.h>
#include <string.h>

/*
 * The order of arch/x86/include/asm/user_64.h, with the DWARF numbers of psABI figure 3.36; -1:
 * the register has none there.
 */
static const int8_t x86_64_regset[] = {
	15, 14, 13, 12, 6,  3,	11, 10, 9,  8, /* r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 */
	0,  2,	1,  4,	5,  -1, 16, -1, -1, 7, /* rax rcx rdx rsi rdi orig_rax rip cs eflags rsp */
	-1, -1, -1, -1, -1, -1, -1,	       /* ss fs_base gs_base ds es fs gs */
};
#define X86_64_FS_BASE 21

/* The order of asm/perf_regs.h, where ax is 0. */
static const int8_t x86_64_perf[] = {
	0,  3,	2,  1,	4,  5,	6,  7,	16, /* ax bx cx dx si di bp sp ip */
	-1, -1, -1, -1, -1, -1, -1,	    /* flags cs ss ds es fs gs */
	8,  9,	10, 11, 12, 13, 14, 15,	    /* r8 … r15 */
};

/*
 * arch/arm64/include/uapi/asm/ptrace.h: x0...x30, sp, pc, pstate. Their order is that of the DWARF
 * numbers, except pstate, which has none. perf's order is the same, without pstate.
 */
static const int8_t aarch64_regset[] = {
	0,  1,	2,  3,	4,  5,	6,  7,	8,  9,	10, 11, 12, 13, 14, 15, 16,
	17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, -1,
};

static const struct machine machines[] = {
	{
		.elf = EM_X86_64,
		.names = { "x86_64", "amd64" },
		.pc = UW_X86_64_RIP,
		.sp = UW_X86_64_RSP,
		.n_regs = UW_X86_64_REGS,
		.regset = x86_64_regset,
		.n_words = sizeof(x86_64_regset),
		.thread_pointer = X86_64_FS_BASE,
		.perf_regs = x86_64_perf,
		.n_perf_regs = sizeof(x86_64_perf),
		.ucontext_sp = 160,
		.hotspot = true,
	},
	{
		.elf = EM_AARCH64,
		.names = { "aarch64", "arm64" },
		.pc = UW_AARCH64_PC,
		.sp = UW_AARCH64_SP,
		.n_regs = UW_AARCH64_REGS,
		.regset = aarch64_regset,
		.n_words = sizeof(aarch64_regset),
		.thread_pointer = -1,
		.perf_regs = aarch64_regset,
		.n_perf_regs = UW_AARCH64_REGS,
		.ucontext_sp = 432,
		.signs_code = true,
	},
};
enum { X86_64, AARCH64, N_MACHINES = sizeof(machines) / sizeof(machines[0]) };

const struct machine *machine_of(uint16_t elf)
{
	for (size_t i = 0; i < N_MACHINES; i++)
		if (machines[i].elf == elf)
			return &machines[i];
	return NULL;
}

const struct machine *machine_named(const char *name)
{
	for (size_t i = 0; i < N_MACHINES; i++)
		if (!strcmp(name, machines[i].names[0]) || !strcmp(name, machines[i].names[1]))
			return &machines[i];
	return NULL;
}

const struct machine *machine_with_regset(size_t size)
{
	for (size_t i = 0; i < N_MACHINES; i++)
		if (size == 8 * machines[i].n_words)
			return &machines[i];
	return NULL;
}

const struct machine *machine_of_dwarf_regs(uint64_t known)
{
	/* x86-64 samples have 17 registers, numbers 0 to 16. */
	return &machines[known >> UW_X86_64_REGS ? AARCH64 : X86_64];
}

const struct machine *machine_of_perf_regs(uint64_t known)
{
	/*
	 * On x86 the general registers have numbers below 24 and additional ones begin at 32.
	 * aarch64 uses the numbers 0 to 32.
	 */
	return &machines[known & 0xff000000 ? AARCH64 : X86_64];
}

const struct machine *machine_here(void)
{
#if defined(__aarch64__)
	return &machines[AARCH64];
#else
	return &machines[X86_64];
#endif
}

int machine_reg(const struct machine *machine, const char *name)
{
	for (unsigned int i = 0; i < machine->n_regs; i++)
		if (!strcmp(name, uw_reg_name(machine->elf, i)))
			return (int)i;
	/* The link register has a second name. */
	return machine->elf == EM_AARCH64 && !strcmp(name, "lr") ? UW_AARCH64_LR : MACHINE_NO_REG;
}

void machine_read_regset(const struct machine *machine, const uint8_t *bytes, struct uw_regs *out)
{
	*out = (struct uw_regs){ .known = 0 };
	for (size_t i = 0; i < machine->n_words; i++) {
		int reg = machine->regset[i];

		if (reg < 0)
			continue;
		out->value[reg] = uw_bytes_little8(bytes + 8 * i);
		out->known |= (uint64_t)1 << reg;
	}
}

uint64_t machine_thread_pointer(const struct machine *machine, const uint8_t *bytes)
{
	return machine->thread_pointer < 0
		       ? 0
		       : uw_bytes_little8(bytes + 8 * (size_t)machine->thread_pointer);
}
