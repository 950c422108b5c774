/*
 * unwinder/arch/x86_64.c: what the unwinder needs to know about x86_64: calls, signal trampolines, PLTs,
 * prologues.
 */
#include <elf.h>
#include <string.h>

#include "base/bytes.h"
#include "schema/table_blob.h"
#include "unwinder/arch/arch.h"

/* DWARF numbers (x86-64 psABI figure 3.36). */
enum { RAX, RDX, RCX, RBX, RSI, RDI, RBP, RSP, R8, R9, R10, R11, R12, R13, R14, R15, RIP };

/* ---- calls --------------------------------------------------------------------- */

/* Return the size of ModRM, SIB and displacement from ModRM on, or 0 if they are cut off. */
static size_t operand_size(const uint8_t *p, size_t left)
{
	uint8_t mod = p[0] >> 6, rm = p[0] & 7;
	size_t size = 1;

	if (mod == 3)
		return 1;
	if (rm == 4) {
		if (left < 2)
			return 0;
		size = 2;
		if (mod == 0 && (p[1] & 7) == 5)
			return 6; /* disp32 without a base */
	} else if (mod == 0 && rm == 5) {
		return 5; /* rip + disp32 */
	}
	return size + (mod == 1 ? 1 : mod == 2 ? 4 : 0);
}

/*
 * Return the call that ends at code->at. Intel SDM: CALL is E8 cd, or FF /2 with any operand.
 * Prefixes come before these bytes and do not matter.
 */
static struct uw_call after_call(const struct uw_code *code)
{
	const uint8_t *end = code->at;

	/*
	 * The displacement of an indirect call may look like a direct call: check for indirect
	 * calls first.
	 */
	for (size_t size = 2; size <= 7 && size <= code->before; size++) {
		const uint8_t *p = end - size;

		if (p[0] == 0xff && (p[1] >> 3 & 7) == 2 &&
		    1 + operand_size(p + 1, size - 1) == size)
			return (struct uw_call){ .kind = UW_CALL_INDIRECT };
	}
	if (code->before >= 5 && end[-5] == 0xe8) {
		uint32_t cd = end[-4] | (uint32_t)end[-3] << 8 | (uint32_t)end[-2] << 16 |
			      (uint32_t)end[-1] << 24;

		return (struct uw_call){ .kind = UW_CALL_DIRECT, .target = (int32_t)cd };
	}
	return (struct uw_call){ .kind = UW_CALL_NONE };
}

/* ---- signal trampolines ----------------------------------------------------------- */

/*
 * At the trampoline, rsp points to the ucontext that the kernel pushed
 * (arch/x86/include/uapi/asm/sigcontext.h). uc_flags, uc_link and uc_stack take 40 bytes, then come
 * the registers: r8…r15 rdi rsi rbp rbx rdx rax rcx rsp rip. Each expression below is DW_OP_breg7
 * (rsp) with its SLEB offset.
 */
#define AT(slot)                                                                           \
	{                                                                                  \
		0x77, (uint8_t)(0x80 | ((40 + 8 * (slot)) & 0x7f)), (40 + 8 * (slot)) >> 7 \
	}
static const uint8_t context[17][3] = {
	[R8] = AT(0),	[R9] = AT(1),	[R10] = AT(2),	[R11] = AT(3),	[R12] = AT(4),
	[R13] = AT(5),	[R14] = AT(6),	[R15] = AT(7),	[RDI] = AT(8),	[RSI] = AT(9),
	[RBP] = AT(10), [RBX] = AT(11), [RDX] = AT(12), [RAX] = AT(13), [RCX] = AT(14),
	[RSP] = AT(15), [RIP] = AT(16),
};
/* The interrupted rsp is the CFA, as in glibc's own CFI: DW_OP_breg7, DW_OP_deref. */
static const uint8_t context_cfa[] = { 0x77, 0x80 | ((40 + 8 * 15) & 0x7f), (40 + 8 * 15) >> 7,
				       0x06 };

/* mov $15,%rax (or %eax); syscall. No other form of rt_sigreturn is in use. */
static const uint8_t sigreturn_rax[] = { 0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05 };
static const uint8_t sigreturn_eax[] = { 0xb8, 15, 0, 0, 0, 0x0f, 0x05 };

/* Return whether code->at is the start of this form; if exact, also its syscall or the end. */
static bool is_sigreturn(const struct uw_code *code, bool exact, const uint8_t *form, size_t size)
{
	if (code->after >= size && !memcmp(code->at, form, size))
		return true;
	/*
	 * A pc in the form is at its syscall or after it; registers saved inside the kernel show
	 * the latter.
	 */
	if (!exact)
		return false;
	if (code->before >= size - 2 && code->after >= 2 &&
	    !memcmp(code->at - (size - 2), form, size))
		return true;
	return code->before >= size && !memcmp(code->at - size, form, size);
}

/* Recognize a signal trampoline. Its rule takes all registers from the ucontext. */
static bool signal_trampoline(const struct uw_code *code, bool exact, struct uw_rule *rule)
{
	if (!is_sigreturn(code, exact, sigreturn_rax, sizeof(sigreturn_rax)) &&
	    !is_sigreturn(code, exact, sigreturn_eax, sizeof(sigreturn_eax)))
		return false;
	*rule = (struct uw_rule){ .cfa_expr = context_cfa,
				  .cfa_size = sizeof(context_cfa),
				  .ra = RIP,
				  .stepper = UW_STEPPER_SIGNAL,
				  .signal = true,
				  .n_regs = 17 };
	for (uint8_t i = 0; i < 17; i++)
		rule->regs[i] = (struct uw_reg_rule){ .reg = i,
						      .kind = UW_RULE_AT_EXPR,
						      .expr = context[i],
						      .size = sizeof(context[i]) };
	return true;
}

/* ---- threads that begin ---------------------------------------------------------- */

/*
 * Return which system call that creates a thread is before code->at: mov $56,%eax (clone) or
 * mov $435,%eax (clone3); syscall. After it come test, jl and jz, none of which writes a register.
 */
static enum uw_made_by made_by(const struct uw_code *code)
{
	static const uint8_t clone[] = { 0xb8, 56, 0, 0, 0, 0x0f, 0x05 };
	static const uint8_t clone3[] = { 0xb8, 0xb3, 0x01, 0, 0, 0x0f, 0x05 };

	for (size_t back = sizeof(clone); back <= code->before; back++) {
		if (!memcmp(code->at - back, clone, sizeof(clone)))
			return UW_MADE_BY_CLONE;
		if (!memcmp(code->at - back, clone3, sizeof(clone3)))
			return UW_MADE_BY_CLONE3;
	}
	return UW_MADE_BY_NONE;
}

/* ---- PLTs ----------------------------------------------------------------------- */

/* Return whether the bytes at this offset from code->at are known and equal. */
static bool has(const struct uw_code *code, ptrdiff_t at, const char *bytes, size_t size)
{
	if (at < 0 ? (size_t)-at > code->before : (size_t)at > code->after)
		return false;
	if (at >= 0 ? size > code->after - (size_t)at
		    : (ptrdiff_t)size + at > (ptrdiff_t)code->after)
		return false;
	return !memcmp(code->at + at, bytes, size);
}

/* Return the rule of a stub that has pushed depth bytes; the return address is the last of them. */
static struct uw_rule from_sp(int64_t depth)
{
	return (struct uw_rule){ .cfa_reg = RSP,
				 .cfa_off = depth,
				 .ra = RIP,
				 .stepper = UW_STEPPER_PLT,
				 .n_regs = 1,
				 .regs = { { .reg = RIP, .kind = UW_RULE_AT_CFA, .off = -8 } } };
}

/*
 * Recognize a PLT entry: psABI §5.2 (lazy PLT), §13.2 (IBT).  The CFA depends on
 * what has been pushed when the instruction at the pc is about to run.  Besides
 * the return address that is nothing, or the relocation's index, or in the first
 * entry the link map, too.
 *
 *     PLT0   ff 35 d32   push GOT+8      8 + 8
 *            ff 25 d32   jmp *GOT+16     8 + 16
 *     entry  [endbr64]                   8
 *            ff 25 d32   jmp *slot       8
 *            68 i32      push index      8
 *            e9 d32      jmp PLT0        8 + 8
 *     IBT    endbr64; 68 i32; [f2] e9 d32
 *     .sec   endbr64; [f2] ff 25 d32
 */
static bool stub(const struct uw_code *code, struct uw_rule *rule)
{
	static const char endbr[] = "\xf3\x0f\x1e\xfa";
	ptrdiff_t at = has(code, 0, endbr, 4) ? 4 : 0;
	ptrdiff_t op = at + has(code, at, "\xf2", 1); /* bnd */
	bool pushing = has(code, at, "\x68", 1), pushed = !at && has(code, -5, "\x68", 1);
	int64_t depth;

	if (has(code, 0, "\xff\x35", 2) &&
	    (has(code, 6, "\xff\x25", 2) || has(code, 6, "\xf2\xff\x25", 3)))
		depth = 16;
	else if (has(code, 0, "\xff\x25", 2) && has(code, -6, "\xff\x35", 2))
		depth = 24;
	else if (has(code, 0, "\xf2\xff\x25", 3) && has(code, -6, "\xff\x35", 2))
		depth = 24;
	else if (has(code, op, "\xff\x25", 2))
		depth = 8;
	else if (pushing && has(code, at + 5, "\xf2\xe9", 2))
		depth = 8;
	else if (pushed && has(code, 0, "\xf2\xe9", 2))
		depth = 16;
	/* 0x68 may be part of a displacement: the instruction before it must be an entry's, too. */
	else if (pushing && has(code, at + 5, "\xe9", 1) &&
		 (at || has(code, -4, endbr, 4) || has(code, -6, "\xff\x25", 2)))
		depth = 8;
	else if (pushed && has(code, 0, "\xe9", 1) &&
		 (has(code, -9, endbr, 4) || has(code, -11, "\xff\x25", 2)))
		depth = 16;
	else
		return false;
	*rule = from_sp(depth);
	return true;
}

/*
 * Return the rule for code in .init or .fini. crti has [endbr64] sub $8,%rsp; crtn has add $8,%rsp;
 * ret. Between them are only calls.
 */
static bool init(const struct uw_code *start, const struct uw_code *at, uint64_t off,
		 struct uw_rule *rule)
{
	uint64_t prologue = has(start, 0, "\xf3\x0f\x1e\xfa", 4) ? 4 : 0;

	if (!has(start, (ptrdiff_t)prologue, "\x48\x83\xec\x08", 4))
		return false;
	*rule = from_sp(off < prologue + 4 || has(at, -4, "\x48\x83\xc4\x08\xc3", 5) ? 8 : 16);
	return true;
}

/* ---- how functions begin ------------------------------------------------------------- */

/*
 * Between two functions there are int3 and nops: 0x90, or 0x0f 0x1f with an operand, prefixed or
 * not.
 */
#define PADDING_MAX 63

static bool is_padding(uint8_t byte)
{
	static const bool padding[256] = {
		[0xcc] = true, [0x90] = true, [0x0f] = true, [0x1f] = true,
		[0x66] = true, [0x2e] = true, [0x00] = true, [0x40] = true,
		[0x44] = true, [0x80] = true, [0x84] = true,
	};

	return padding[byte];
}

/*
 * Return whether a function may begin at `at`: before it, and before any padding, is ret, ud2, jmp,
 * or a call that does not return. The displacement of a jmp or call may end with bytes that look
 * like padding.
 */
static bool begins(const uint8_t *code, const uint8_t *at)
{
	for (unsigned int n = 0; n <= PADDING_MAX && at > code; n++) {
		at--;
		if (*at == 0xc3 ||
		    (at > code && (at[-1] == 0xeb || (at[-1] == 0x0f && *at == 0x0b))) ||
		    (at - code >= 4 && (at[-4] & 0xfe) == 0xe8))
			return true;
		if (!is_padding(*at))
			return false;
	}
	return false;
}

/*
 * Return whether another function begins at `at`, after the entry point's, which begins at code.
 * The entry point's function goes on where its own call returns. After the hlt that follows,
 * another function begins.
 */
static bool begins_behind_entry(const uint8_t *code, const uint8_t *at)
{
	const struct uw_code here = { .at = at, .before = (size_t)(at - code) };
	const uint8_t *p = at;

	if (after_call(&here).kind != UW_CALL_NONE)
		return false;
	while (p > code && is_padding(p[-1]))
		p--;
	return begins(code, at) || (p > code && p[-1] == 0xf4);
}

/*
 * Limits for pushes and for stack space in bytes: with more, the code is probably not a prologue.
 */
#define PUSHES_MAX 16
#define ROOM_MAX   ((uint32_t)1 << 20)

/*
 * Return whether the code at p is sub $,%rsp, or lea with a negative displacement, of one byte or
 * of four.
 */
static bool moves_down(const uint8_t *p, size_t left)
{
	if (left < 4 || p[0] != 0x48)
		return false;
	if (p[2] == 0xec)
		return p[1] == 0x83 || p[1] == 0x81;
	if (p[1] != 0x8d || p[3] != 0x24)
		return false;
	return (p[2] == 0x64 && left >= 5 && p[4] >= 0x80) ||
	       (p[2] == 0xa4 && left >= 8 && p[7] >= 0x80);
}

/*
 * Return whether such an instruction is anywhere in the code. Their third bytes are rare and found
 * quickly.
 */
static bool takes_room(const uint8_t *code, const uint8_t *end)
{
	static const uint8_t third[] = { 0xec, 0x64, 0xa4 };

	if (end - code < 4)
		return false;
	for (size_t i = 0; i < sizeof(third); i++) {
		const uint8_t *p = code + 2;

		while ((p = memchr(p, third[i], (size_t)(end - p)))) {
			if (moves_down(p - 2, (size_t)(end - p) + 2))
				return true;
			p++;
		}
	}
	return false;
}

/*
 * Compute the frame that a prologue has built. A prologue may begin with endbr64. Then it has these
 * instructions, in any order: push %r64, 50+r or 41 50+r; sub $,%rsp, 48 83 ec ib or 48 81 ec id;
 * lea -(%rsp),%rsp, 48 8d 64 24 ib or 48 8d a4 24 id; mov %rsp,%rbp, 48 89 e5 or 48 8b ec. Any
 * other instruction ends it, also the `and` that aligns rsp: by then either rbp shows where the
 * frame is, or nothing does. False: the code takes stack space after the prologue.
 */
static bool prologue(const uint8_t *code, size_t size, struct uw_rule *rule)
{
	static const uint8_t numbers[] = { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI };
	int64_t slot[RIP] = { 0 }, depth = 8;
	bool framed = false;
	const uint8_t *p = code, *end = code + size;

	rule->ra = RIP;
	rule->cfa_reg = RSP;
	if (size >= 4 && !memcmp(p, "\xf3\x0f\x1e\xfa", 4)) /* endbr64 */
		p += 4;
	for (size_t left; (left = (size_t)(end - p)) > 0;) {
		size_t rex = *p == 0x41, reg;

		if (left > rex && (p[rex] & 0xf8) == 0x50 && depth <= 8 * PUSHES_MAX) {
			reg = rex ? 8u + (p[rex] & 7u) : numbers[p[rex] & 7];
			depth += 8;
			slot[reg] = slot[reg] ? slot[reg] : -depth;
			p += rex + 1;
		} else if (left >= 3 &&
			   (!memcmp(p, "\x48\x89\xe5", 3) || !memcmp(p, "\x48\x8b\xec", 3))) {
			framed = true;
			rule->cfa_reg = RBP;
			rule->cfa_off = depth;
			p += 3;
		} else if (left >= 4 && !memcmp(p, "\x48\x83\xec", 3) && p[3] < 0x80) {
			depth += p[3];
			p += 4;
		} else if (left >= 7 && !memcmp(p, "\x48\x81\xec", 3) &&
			   uw_bytes_little(p + 3) < ROOM_MAX) {
			depth += uw_bytes_little(p + 3);
			p += 7;
		} else if (left >= 5 && !memcmp(p, "\x48\x8d\x64\x24", 4) && p[4] >= 0x80) {
			depth += 0x100 - p[4];
			p += 5;
		} else if (left >= 8 && !memcmp(p, "\x48\x8d\xa4\x24", 4) &&
			   0 - uw_bytes_little(p + 4) < ROOM_MAX) {
			depth += 0 - uw_bytes_little(p + 4);
			p += 8;
		} else {
			break;
		}
	}
	/*
	 * Stack space is taken after the prologue, as compilers do: the frame's size is not known.
	 */
	if (!framed && takes_room(p, end))
		return false;
	if (!framed)
		rule->cfa_off = depth;
	for (uint8_t reg = 0; reg < RIP; reg++)
		if (slot[reg] && (reg == RBX || reg == RBP || reg >= R12))
			rule->regs[rule->n_regs++] = (struct uw_reg_rule){ .reg = reg,
									   .kind = UW_RULE_AT_CFA,
									   .off = slot[reg] };
	rule->regs[rule->n_regs++] =
		(struct uw_reg_rule){ .reg = RIP, .kind = UW_RULE_AT_CFA, .off = -8 };
	return true;
}

static uint64_t returned(const uint8_t *code, uint64_t at)
{
	static const uint8_t endbr[] = { 0xf3, 0x0f, 0x1e, 0xfa };
	unsigned int skip = memcmp(code, endbr, sizeof(endbr)) == 0 ? sizeof(endbr) : 0;

	code += skip;
	if (code[0] != 0x48 || code[1] != 0x8d || code[2] != 0x05 || code[7] != 0xc3)
		return 0; /* lea disp(%rip),%rax; ret */
	return at + skip + 7 + (uint64_t)(int64_t)(int32_t)uw_bytes_little(code + 3);
}

static uint64_t strip(uint64_t pc, uint64_t mask, uint64_t top)
{
	(void)mask;
	(void)top;
	return pc;
}

const struct uw_arch uw_arch_x86_64 = {
	.machine = EM_X86_64,
	.n_regs = UW_X86_64_REGS,
	.sp = RSP,
	.fp = RBP,
	.pc = RIP,
	.lr = RIP,
	.code_align = 1,
	.result = RAX,
	.second = RSI,
	.ext_slots = TABLE_EXT_X86_64,
	.n_saved = 5,
	.saved = { RBX, R12, R13, R14, R15 },
	.syscall = { 0x0f, 0x05 },
	.syscall_size = 2,
	.trampoline_size = sizeof(sigreturn_eax),
	.after_call = after_call,
	.signal = signal_trampoline,
	/* From the forms above; entries of .plt.got have 8 bytes. */
	.plt_places = 1 << 0 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 8 | 1 << 9 | 1 << 11,
	.stub = stub,
	.init = init,
	.begins = begins,
	.begins_behind_entry = begins_behind_entry,
	.prologue = prologue,
	.made_by = made_by,
	.returned = returned,
	.strip = strip,
};
