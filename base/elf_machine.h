/* base/elf_machine.h: what the ELF files of one machine have that those of others have not. */
#ifndef BASE_ELF_MACHINE_H
#define BASE_ELF_MACHINE_H

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Return whether a relocation adds the load address to its addend (R_X86_64_RELATIVE,
 * R_AARCH64_RELATIVE). info is r_info of Elf64_Rela.
 */
static inline bool uw_machine_is_relative(uint16_t machine, uint64_t info)
{
	return ELF64_R_TYPE(info) ==
	       (machine == EM_AARCH64 ? R_AARCH64_RELATIVE : R_X86_64_RELATIVE);
}

/*
 * Return whether a program's thread-local storage ends where the thread pointer is: variant II of the layouts in
 * "ELF Handling for Thread-Local Storage".
 */
static inline bool uw_machine_tls_is_below(uint16_t machine)
{
	return machine == EM_X86_64;
}

/* Return the bits of a function's symbol value that do not belong to its address (Thumb). */
static inline uint64_t uw_machine_symbol_bits(uint16_t machine)
{
	return machine == EM_ARM ? 1 : 0;
}

#endif
