#include <elf.h>
#include <string.h>

#include "schema/table.h"
#include "unwinder/arch.h"

/* A little-endian instruction: code is, whatever data are (Arm ARM B2.6.2). */
static uint32_t instruction(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* BL; BLR and its authenticating forms BLRAA, BLRAB, BLRAAZ, BLRABZ (Arm ARM C6.2). */
static struct uw_call after_call(const struct uw_code *code)
{
	uint32_t word = code->before < 4 ? 0 : instruction(code->at - 4);

	if ((word & 0xfc000000) == 0x94000000) {
		/* imm26 counts instructions from the call itself. */
		int32_t imm = (int32_t)(word << 6) >> 6;

		return (struct uw_call){ .kind = UW_CALL_DIRECT, .target = imm * 4 - 4 };
	}
	if ((word & 0xfefff000) == 0xd63f0000)
		return (struct uw_call){ .kind = UW_CALL_INDIRECT };
	return (struct uw_call){ .kind = UW_CALL_NONE };
}

/*
 * At the trampoline sp points to the rt_sigframe: siginfo takes 128 bytes, the
 * ucontext before its mcontext 176, the fault address 8; then x0…x30, sp, pc
 * (arch/arm64/include/uapi/asm/{ucontext,sigcontext}.h).  The vDSO's CFI leads
 * to the interrupted lr, which is not where the thread was.
 */
#define SLOT_0 (128 + 176 + 8)

static const uint8_t sigreturn[] = { 0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4 };

/* DW_OP_breg31 (sp) and its SLEB offset: x0…x30, sp, pc, all in two bytes. */
#define AT(n)                                                                                \
	{                                                                                    \
		0x8f, (uint8_t)(0x80 | ((SLOT_0 + 8 * (n)) & 0x7f)), (SLOT_0 + 8 * (n)) >> 7 \
	}
static const uint8_t context[UW_AARCH64_REGS][3] = {
	AT(0),	AT(1),	AT(2),	AT(3),	AT(4),	AT(5),	AT(6),	AT(7),	AT(8),	AT(9),	AT(10),
	AT(11), AT(12), AT(13), AT(14), AT(15), AT(16), AT(17), AT(18), AT(19), AT(20), AT(21),
	AT(22), AT(23), AT(24), AT(25), AT(26), AT(27), AT(28), AT(29), AT(30), AT(31), AT(32),
};
static const uint8_t context_cfa[] = { 0x8f, (uint8_t)(0x80 | ((SLOT_0 + 8 * 31) & 0x7f)),
				       (SLOT_0 + 8 * 31) >> 7, 0x06 };

/* mov x8,#139; svc #0 */
static bool signal_trampoline(const struct uw_code *code, bool exact, struct uw_rule *rule)
{
	bool here =
		code->after >= sizeof(sigreturn) && !memcmp(code->at, sigreturn, sizeof(sigreturn));
	bool within = exact && code->before >= 4 && code->after >= 4 &&
		      !memcmp(code->at - 4, sigreturn, sizeof(sigreturn));

	if (!here && !within)
		return false;
	*rule = (struct uw_rule){ .cfa_expr = context_cfa,
				  .cfa_size = sizeof(context_cfa),
				  .ra = UW_AARCH64_PC,
				  .stepper = UW_STEPPER_SIGNAL,
				  .signal = true,
				  .n_regs = UW_AARCH64_REGS };
	for (uint8_t i = 0; i < UW_AARCH64_REGS; i++)
		rule->regs[i] = (struct uw_reg_rule){ .reg = i,
						      .kind = UW_RULE_AT_EXPR,
						      .expr = context[i],
						      .size = sizeof(context[i]) };
	return true;
}

/*
 * The authentication code lies between the address and bit 55, and with
 * tagging off above it too.  How many bits an address has is the kernel's
 * choice: 39 on phones, 48 (or 52) elsewhere; what is mapped tells which.
 */
static uint64_t strip(uint64_t pc, uint64_t top)
{
	unsigned int bits = top <= (uint64_t)1 << 39 ? 39 : top <= (uint64_t)1 << 48 ? 48 : 52;

	return pc & (((uint64_t)1 << bits) - 1);
}

const struct uw_arch uw_arch_aarch64 = {
	.machine = EM_AARCH64,
	.n_regs = UW_AARCH64_REGS,
	.sp = UW_AARCH64_SP,
	.fp = UW_AARCH64_FP,
	.pc = UW_AARCH64_PC,
	.lr = UW_AARCH64_LR,
	.code_align = 4,
	.unit_shift = 2,
	.ext_slots = TABLE_EXT_AARCH64,
	.n_saved = 10,
	.saved = { 19, 20, 21, 22, 23, 24, 25, 26, 27, 28 },
	.syscall = { 0x01, 0x00, 0x00, 0xd4 },
	.syscall_size = 4,
	.sigcontext_first = true,
	.after_call = after_call,
	.signal = signal_trampoline,
	.strip = strip,
};
