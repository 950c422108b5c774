/*
 * compat/texts.c: libunwind's names of registers, which of them are floating-point registers, and
 * its texts for error codes.
 */
#include "agent/source/machine.h"
#include "compat/abi.h"

const char *_Ux86_64_regname(int reg);
const char *_Uaarch64_regname(int reg);

const char *_Ux86_64_regname(int reg)
{
	static const char *const names[] = { "RAX", "RDX", "RCX", "RBX", "RSI", "RDI",
					     "RBP", "RSP", "R8",  "R9",	 "R10", "R11",
					     "R12", "R13", "R14", "R15", "RIP" };

	return reg >= 0 && reg < UW_X86_64_REGS ? names[reg] : "???";
}

/* Return the name that libunwind has for a register. */
const char *_Uaarch64_regname(int reg)
{
	switch (reg) { /* names that differ from uw_reg_name() */
	case 16:
		return "ip0";
	case 17:
		return "ip1";
	case UW_AARCH64_FP:
		return "fp";
	case UW_AARCH64_LR:
		return "lr";
	default:
		return reg >= 0 && reg < UW_AARCH64_REGS
			       ? uw_reg_name(machine_named("aarch64")->elf, (unsigned int)reg)
			       : "???";
	}
}

/* On x86_64 no readable register is a floating-point register. */
static int u_is_fpreg(int reg)
{
	(void)reg;
	return 0;
}
extern __typeof__(u_is_fpreg) _Ux86_64_is_fpreg __attribute__((alias("u_is_fpreg")));

/* v0 to v31 have the numbers 64 to 95 (AADWARF64 §4.1). */
int _Uaarch64_is_fpreg(int reg);
int _Uaarch64_is_fpreg(int reg)
{
	return reg >= 64 && reg <= 95;
}

/* The texts are those of libunwind. */
static const char *u_strerror(int code)
{
	static const char *const texts[] = {
		[UNW_ESUCCESS] = "no error",
		[UNW_EUNSPEC] = "unspecified (general) error",
		[UNW_ENOMEM] = "out of memory",
		[UNW_EBADREG] = "bad register number",
		[UNW_EREADONLYREG] = "attempt to write read-only register",
		[UNW_ESTOPUNWIND] = "stop unwinding",
		[UNW_EINVALIDIP] = "invalid IP",
		[UNW_EBADFRAME] = "bad frame",
		[UNW_EINVAL] = "unsupported operation or bad value",
		[UNW_EBADVERSION] = "unwind info has unsupported version",
		[UNW_ENOINFO] = "no unwind info found",
	};

	return code >= -UNW_ENOINFO && code <= 0 ? texts[-code] : "invalid error code";
}
COMPAT_BOTH(strerror);
