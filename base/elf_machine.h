/* base/elf_machine.h: what the ELF files of one machine have that those of others have not. */
#ifndef BASE_ELF_MACHINE_H
#define BASE_ELF_MACHINE_H

#include "base/bytes.h"

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

/*
 * Find the first address that n bytes of code at a vaddr load relative to themselves (x86_64: lea disp32(%rip), %rax). Return
 * false if there is none, or if this machine's code is not read.
 */
static inline bool uw_machine_loads(uint16_t machine, const uint8_t *code, size_t n, uint64_t vaddr,
				    uint64_t *out)
{
	static const uint8_t lea[] = { 0x48, 0x8d, 0x05 };

	for (size_t end = sizeof(lea) + 4; machine == EM_X86_64 && end <= n; end++) {
		const uint8_t *disp = code + end - 4;

		if (memcmp(disp - sizeof(lea), lea, sizeof(lea)) != 0)
			continue;
		*out = vaddr + end + (uint64_t)(int64_t)(int32_t)uw_bytes_little(disp);
		return true;
	}
	return false;
}

#endif
