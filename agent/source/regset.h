/*
 * agent/source/regset.h: the general registers in the layout that kernels give to debuggers:
 * NT_PRSTATUS in core files and PTRACE_GETREGSET.
 */
#ifndef AGENT_SOURCE_REGSET_H
#define AGENT_SOURCE_REGSET_H

#include "unwinder/unwinder.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Return the size of struct user_regs_struct (x86_64) or struct user_pt_regs (aarch64) in bytes; 0
 * for other machines.
 */
size_t regset_size(uint16_t machine);
/* Return the machine whose registers have this size in bytes; EM_NONE if there is none. */
uint16_t regset_machine(size_t size);
/* Read the registers from bytes, which has regset_size() bytes, little-endian. */
void regset_read(uint16_t machine, const uint8_t *bytes, struct uw_regs *out);
/*
 * Return the thread pointer, which shows where the thread's stack ends: fs_base on x86_64. 0 on
 * aarch64, where it is not among these registers.
 */
uint64_t regset_thread_pointer(uint16_t machine, const uint8_t *bytes);
unsigned int regset_sp(uint16_t machine); /* the DWARF number of the stack pointer */

#endif
