/*
 * agent/source/machine.h: what the sources of samples must know of a machine: its names, and where
 * kernels, core files and perf put its registers. What the unwinder must know is in unwinder/arch.
 */
#ifndef AGENT_SOURCE_MACHINE_H
#define AGENT_SOURCE_MACHINE_H

#include "unwinder/unwinder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A register number in these layouts that has no DWARF number. */
#define MACHINE_NO_REG (-1)

struct machine {
	uint16_t elf;	      /* e_machine of its ELF files */
	const char *names[2]; /* the names that uname(2) and others give it */
	unsigned int pc, sp;  /* DWARF numbers */
	unsigned int n_regs;  /* registers of struct uw_regs; their numbers are below */
	/*
	 * The general registers in the layout that the kernel gives to debuggers (NT_PRSTATUS,
	 * PTRACE_GETREGSET): the DWARF number of each word of 8 bytes, or MACHINE_NO_REG.
	 */
	const int8_t *regset;
	size_t n_words;
	/*
	 * The word that has the thread pointer, which shows where the thread's stack ends; -1: the
	 * thread pointer is not among the words.
	 */
	int thread_pointer;
	const int8_t *perf_regs; /* DWARF numbers by perf's (asm/perf_regs.h), or MACHINE_NO_REG */
	size_t n_perf_regs;
	size_t ucontext_sp; /* the offset of the interrupted sp in the kernel's struct ucontext */
	bool signs_code;    /* code addresses may have authentication bits (NT_ARM_PAC_MASK) */
	bool hotspot; /* the frames of code that the Java virtual machine compiles are known */
};

/* Return the machine with this e_machine, or NULL if it is not supported. */
const struct machine *machine_of(uint16_t elf);
/* Return the machine with this name (uname -m), or NULL. */
const struct machine *machine_named(const char *name);
/* Return the machine whose register set has this size in bytes, or NULL. */
const struct machine *machine_with_regset(size_t size);
/*
 * Return the machine of a sample or an event with these registers, for inputs that do not name it.
 * known has a bit for each register, by DWARF's numbers or by perf's.
 */
const struct machine *machine_of_dwarf_regs(uint64_t known);
const struct machine *machine_of_perf_regs(uint64_t known);
/* Return the machine that this program was built for; live recordings are of it. */
const struct machine *machine_here(void);

/* Return the DWARF number of a register by its name, or MACHINE_NO_REG. */
int machine_reg(const struct machine *machine, const char *name);

/* Read a register set from bytes, which has 8 * machine->n_words of them, little-endian. */
void machine_read_regset(const struct machine *machine, const uint8_t *bytes, struct uw_regs *out);
/* Return the thread pointer from a register set; 0 if it is not there. */
uint64_t machine_thread_pointer(const struct machine *machine, const uint8_t *bytes);

#endif
