/*
 * agent/source/regset.h: general registers as kernels lay them out for debuggers,
 * NT_PRSTATUS in core files and PTRACE_GETREGSET alike.
 */
#ifndef AGENT_SOURCE_REGSET_H
#define AGENT_SOURCE_REGSET_H

#include "unwinder/unwinder.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes of struct user_regs_struct (x86_64) and struct user_pt_regs (aarch64); 0: not known. */
size_t regset_size(uint16_t machine);
/* The machine whose registers take so many bytes; EM_NONE: another. */
uint16_t regset_machine(size_t size);
/* bytes: regset_size of them, little-endian. */
void regset_read(uint16_t machine, const uint8_t *bytes, struct uw_regs *out);
/* Where a thread's stack is told by its thread pointer: x86_64 fs_base; 0: not among these. */
uint64_t regset_thread_pointer(uint16_t machine, const uint8_t *bytes);
unsigned int regset_sp(uint16_t machine); /* its DWARF number */

#endif
