/*
 * unwinder/arch/aarch64.c: recognises aarch64 code: calls, signal trampolines, PLTs and veneers,
 * prologues.
 */
#include <elf.h>
#include <string.h>

#include "base/bytes.h"
#include "schema/table_blob.h"
#include "unwinder/arch/arch.h"

/*
 * Read an instruction. Code is little-endian, whatever the byte order of data is (Arm ARM
 * B2.6.2).
 */
static uint32_t instruction(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/*
 * Recognise BL, and BLR with its authenticating forms BLRAA, BLRAB, BLRAAZ, BLRABZ (Arm ARM
 * C6.2).
 */
static struct uw_call after_call(const struct uw_code *code)
{
	uint32_t word = code->before < 4 ? 0 : instruction(code->at - 4);

	if ((word & 0xfc000000) == 0x94000000) {
		/* imm26 counts instructions from the call itself */
		int32_t imm = (int32_t)(word << 6) >> 6;

		return (struct uw_call){ .kind = UW_CALL_DIRECT, .target = imm * 4 - 4 };
	}
	if ((word & 0xfefff000) == 0xd63f0000)
		return (struct uw_call){ .kind = UW_CALL_INDIRECT };
	return (struct uw_call){ .kind = UW_CALL_NONE };
}

/*
 * The layout of the rt_sigframe that sp points to at the trampoline: siginfo takes 128 bytes,
 * the part of the ucontext before its mcontext 176, the fault address 8. Then x0…x30, sp and pc
 * follow (arch/arm64/include/uapi/asm/{ucontext,sigcontext}.h). The vDSO's CFI leads to the
 * interrupted lr, which is not where the thread was interrupted.
 */
#define SLOT_0 (128 + 176 + 8)

static const uint8_t sigreturn[] = { 0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4 };

/*
 * DW_OP_breg31 (sp) with the SLEB128 offset of register n, which has two bytes for x0…x30, sp
 * and pc.
 */
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

/* Recognise the trampoline, mov x8,#139; svc #0, and return the rule by the signal context. */
static bool signal_trampoline(const struct uw_code *code, bool exact, struct uw_rule *rule)
{
	bool here =
		code->after >= sizeof(sigreturn) && !memcmp(code->at, sigreturn, sizeof(sigreturn));
	bool within = exact && code->before >= 4 && code->after >= 4 &&
		      !memcmp(code->at - 4, sigreturn, sizeof(sigreturn));
	/* Registers that were saved inside the kernel have the pc behind the system call. */
	bool behind = exact && code->before >= sizeof(sigreturn) &&
		      !memcmp(code->at - sizeof(sigreturn), sigreturn, sizeof(sigreturn));

	if (!here && !within && !behind)
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

/* ---- new threads ----------------------------------------------------------------------- */

/*
 * Find mov x8,#220 (clone) or mov x8,#435 (clone3) with svc #0 below the pc. Between them and
 * the pc are at most cmp, b.eq and b.lt, which write no register.
 */
static enum uw_made_by made_by(const struct uw_code *code)
{
	for (size_t back = 8; back <= code->before; back += 4) {
		if (instruction(code->at - back + 4) != 0xd4000001)
			continue;
		switch (instruction(code->at - back)) {
		case 0xd2801b88:
			return UW_MADE_BY_CLONE;
		case 0xd2803668:
			return UW_MADE_BY_CLONE3;
		default:
			return UW_MADE_BY_NONE;
		}
	}
	return UW_MADE_BY_NONE;
}

/* ---- PLTs and veneers -------------------------------------------------------------- */

/*
 * Letters for the instructions of stubs (Arm ARM C6.2), with any immediates. GNU ld and lld use
 * the same instructions in their PLTs, with bti and autia1716 if the program was linked for
 * them:
 *
 *     PLT0     [bti c]  stp x16,x30,[sp,#-16]!  adrp x16  ldr x17  add x16  br x17
 *     entry    [bti c]  adrp x16  ldr x17  add x16  [autia1716]  br x17 or braa x17,x16
 *     TLSDESC  [bti c]  stp x2,x3,[sp,#-16]!  adrp x2  adrp x3  ldr x2  add x3  br x2
 *     veneers  [bti c]  adrp x16  add x16  br x16
 *                       ldr x16,8  br x16
 *                       ldr x16,16  adr x17,0  add x16,x16,x17  br x16
 */
static const struct {
	char letter;
	uint32_t mask, value;
} letters[] = {
	{ 't', 0xffffffff, 0xd503245f }, /* bti c */
	{ 's', 0xffffffff, 0xa9bf7bf0 }, /* stp x16, x30, [sp, #-16]! */
	{ 'a', 0x9f00001f, 0x90000010 }, /* adrp x16 */
	{ 'l', 0xffc003ff, 0xf9400211 }, /* ldr x17, [x16, #…] */
	{ 'd', 0xff8003ff, 0x91000210 }, /* add x16, x16, #… */
	{ 'n', 0xffffffff, 0xd503201f }, /* nop: lld reserves space for bti c */
	{ 'u', 0xffffffff, 0xd503219f }, /* autia1716 */
	{ 'b', 0xffffffff, 0xd61f0220 }, /* br x17 */
	{ 'B', 0xffffffff, 0xd71f0a30 }, /* braa x17, x16 */
	{ 'S', 0xffffffff, 0xa9bf0fe2 }, /* stp x2, x3, [sp, #-16]! */
	{ '2', 0x9f00001f, 0x90000002 }, /* adrp x2 */
	{ '3', 0x9f00001f, 0x90000003 }, /* adrp x3 */
	{ 'L', 0xffc003ff, 0xf9400042 }, /* ldr x2, [x2, #…] */
	{ 'D', 0xff8003ff, 0x91000063 }, /* add x3, x3, #… */
	{ 'e', 0xffffffff, 0xd61f0040 }, /* br x2 */
	{ 'r', 0xffffffff, 0xd61f0200 }, /* br x16 */
	{ 'i', 0xffffffff, 0x58000050 }, /* ldr x16, from pc + 8 */
	{ 'I', 0xffffffff, 0x58000090 }, /* ldr x16, from pc + 16 */
	{ 'j', 0xffffffff, 0x10000011 }, /* adr x17, pc */
	{ 'k', 0xffffffff, 0x8b110210 }, /* add x16, x16, x17 */
};

/* Longer stubs come first: a shorter one may be the end of a longer one. */
static const char *const stubs[] = { "tsaldb", "saldb", "tS23LDe", "S23LDe", "taldub",
				     "nnaldb", "taldb", "taldB",   "aldub",  "aldb",
				     "aldB",   "tadr",	"adr",	   "Ijkr",   "ir" };

/* Return whether an instruction is the one that the letter stands for. */
static bool is_letter(uint32_t word, char letter)
{
	size_t i = 0;

	while (letters[i].letter != letter)
		i++;
	return (word & letters[i].mask) == letters[i].value;
}

/*
 * Return whether the code matches the stub if its instruction number at is at code->at.
 * Instructions that cannot be read match if at least three others were read.
 */
static bool is_stub_at(const struct uw_code *code, const char *stub, size_t at)
{
	size_t size = strlen(stub), seen = 0;

	for (size_t i = 0; i < size; i++) {
		ptrdiff_t off = ((ptrdiff_t)i - (ptrdiff_t)at) * 4;

		if (off < 0 ? (size_t)-off > code->before : (size_t)off + 4 > code->after) {
			/*
			 * The instruction is not readable. If there are fewer bytes than a
			 * caller usually reads, the code itself ends there: no stub.
			 */
			if (off < 0 ? code->before < UW_CODE_BEFORE : code->after < UW_CODE_AFTER)
				return false;
			continue;
		}
		if (!is_letter(instruction(code->at + off), stub[i]))
			return false;
		seen++;
	}
	return seen == size || seen >= 3;
}

/* Return a rule with the CFA at sp + depth and the return address in lr. */
static struct uw_rule from_sp(int64_t depth)
{
	return (struct uw_rule){ .cfa_reg = UW_AARCH64_SP,
				 .cfa_off = depth,
				 .ra = UW_AARCH64_LR,
				 .stepper = UW_STEPPER_PLT };
}

/*
 * Recognise a stub. The return address stays in x30. The CFA depends on whether the stub's push
 * comes before the instruction at the pc.
 */
static bool stub(const struct uw_code *code, struct uw_rule *rule)
{
	for (size_t i = 0; i < sizeof(stubs) / sizeof(stubs[0]); i++) {
		for (size_t at = 0; stubs[i][at]; at++) {
			const char *push = strpbrk(stubs[i], "sS");

			if (!is_stub_at(code, stubs[i], at))
				continue;
			*rule = from_sp(push && at > (size_t)(push - stubs[i]) ? 16 : 0);
			return true;
		}
	}
	return false;
}

/*
 * Recognise _init and _fini. crti has the prologue: [paciasp, bti c or nop] stp
 * x29,x30,[sp,#-16]!; mov x29,sp. crtn has the epilogue: ldp x29,x30,[sp],#16; [autiasp]; ret.
 * Between them there are only calls.
 */
static bool init(const struct uw_code *start, const struct uw_code *at, uint64_t off,
		 struct uw_rule *rule)
{
	static const uint32_t push = 0xa9bf7bfd, pop = 0xa8c17bfd, autiasp = 0xd50323bf;
	/* if the address is a return address - 1, it lies within the call */
	const uint8_t *here = at->at - off % 4;
	uint64_t prologue = 0;
	uint32_t last, before;

	if (at->before < off % 4)
		return false;
	while (prologue < 12 && prologue + 4 <= start->after &&
	       (instruction(start->at + prologue) & 0xfffff01f) == 0xd503201f)
		prologue += 4; /* skip hints: paciasp, bti c and nop are hints */
	if (prologue + 4 > start->after || instruction(start->at + prologue) != push)
		return false;
	*rule = from_sp(0);
	last = at->before - off % 4 < 4 ? 0 : instruction(here - 4);
	before = at->before - off % 4 < 8 ? 0 : instruction(here - 8);
	if (off <= prologue + 3 || last == pop || (last == autiasp && before == pop))
		return true;
	*rule = from_sp(16);
	rule->n_regs = 2;
	rule->regs[0] =
		(struct uw_reg_rule){ .reg = UW_AARCH64_FP, .kind = UW_RULE_AT_CFA, .off = -16 };
	rule->regs[1] =
		(struct uw_reg_rule){ .reg = UW_AARCH64_LR, .kind = UW_RULE_AT_CFA, .off = -8 };
	return true;
}

/* ---- partly built frames --------------------------------------------------------------- */

/*
 * Return how much of its frame a function has built at the end of the code. A frame record is
 * x29 and x30 stored side by side, and x29 points to it (AAPCS64 §6.4.6). The last instruction
 * before the pc that creates or removes the record, or calls, decides. An unconditional branch
 * ends the search: the code before it need not have been executed.
 */
static enum uw_built built(const uint8_t *code, size_t size)
{
	for (; size >= 4; size -= 4) {
		uint32_t word = instruction(code + size - 4);

		if ((word & 0xff8003ff) == 0x910003fd)
			return UW_BUILT_FRAME; /* mov or add x29, sp */
		if ((word & 0xfc000000) == 0x94000000 || (word & 0xfee00000) == 0xd6200000)
			return UW_BUILT_FRAME; /* a call, which overwrites x30: it has been saved */
		if ((word & 0xff407fff) == 0xa9007bfd || (word & 0xfe407fff) == 0xa8407bfd)
			return UW_BUILT_NONE; /* stp, ldp x29, x30, [sp]: x29 is the caller's */
		if ((word & 0xffe00fff) == 0xf84007fe || (word & 0xffc003ff) == 0xf94003fe)
			return UW_BUILT_NONE; /* ldr x30, [sp] */
		if (word == 0xd503233f || word == 0xd503237f || word == 0xd503245f)
			return UW_BUILT_NONE; /* paciasp, pacibsp, bti c: the function's start */
		if ((word & 0xfc000000) == 0x14000000 || (word & 0xfe000000) == 0xd6000000)
			return UW_BUILT_UNKNOWN; /* b, br, ret */
	}
	return UW_BUILT_UNKNOWN;
}

static uint64_t returned(const uint8_t *code, uint64_t at)
{
	unsigned int skip = uw_bytes_little(code) == 0xd503245f ? 4 : 0; /* bti c */
	uint32_t page = uw_bytes_little(code + skip), add = uw_bytes_little(code + skip + 4);
	int64_t pages;

	/* adrp x0, page; add x0, x0, #offset; ret */
	if ((page & 0x9f00001f) != 0x90000000 || (add & 0xffc003ff) != 0x91000000 ||
	    uw_bytes_little(code + skip + 8) != 0xd65f03c0)
		return 0;
	pages = (int64_t)((page >> 29 & 3) | (page >> 5 & 0x7ffff) << 2);
	pages -= pages >> 20 << 21; /* 21 bits, signed */
	return ((at + skip) & ~(uint64_t)0xfff) + (uint64_t)(pages * 4096) + (add >> 10 & 0xfff);
}

/*
 * Remove the authentication code, which lies between the address and bit 55, and above bit 55
 * too if tagging is off. The kernel chooses the size of addresses: 39 bits on phones, 48 (or
 * 52) elsewhere. The highest mapped address, top, shows which.
 */
static uint64_t strip(uint64_t pc, uint64_t mask, uint64_t top)
{
	/* Bit 55 distinguishes user addresses from the kernel's; tags lie above it. */
	const uint64_t tagged = ((uint64_t)1 << 56) - 1;
	unsigned int bits = top && top <= (uint64_t)1 << 39 ? 39
			    : top <= (uint64_t)1 << 48	    ? 48
							    : 52;

	return mask ? pc & ~mask & tagged : pc & (((uint64_t)1 << bits) - 1);
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
	.result = 0,
	.second = 1,
	.ext_slots = TABLE_EXT_AARCH64,
	.n_saved = 10,
	.saved = { 19, 20, 21, 22, 23, 24, 25, 26, 27, 28 },
	.syscall = { 0x01, 0x00, 0x00, 0xd4 },
	.syscall_size = 4,
	.trampoline_size = sizeof(sigreturn),
	.vdso_trampoline = sigreturn,
	.sigcontext_first = true,
	.after_call = after_call,
	.signal = signal_trampoline,
	.stub = stub,
	.init = init,
	.built = built,
	.made_by = made_by,
	.returned = returned,
	.strip = strip,
};
