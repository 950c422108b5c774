/*
 * tests/unit/test_aarch64.c: tests calls, stubs, prologues and signal frames of aarch64 code, and
 * walks through it without rules. The instructions are those of as(1): aarch64-linux-gnu-as
 * -march=armv8.5-a, objdump -d.
 */
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/check.h"
#include "tests/image.h"
#include "unwinder/arch/arch.h"
#include "unwinder/rule/object.h"
#include "unwinder/walk/child.h"
#include "unwinder/walk/step.h"

#define ARM (&uw_arch_aarch64)

enum {
	BTI_C = 0xd503245f,
	BTI_J = 0xd503249f,
	PACIASP = 0xd503233f,
	AUTIASP = 0xd50323bf,
	AUTIA1716 = 0xd503219f,
	NOP = 0xd503201f,
	RET = 0xd65f03c0,
	PUSH = 0xa9bf7bfd,     /* stp x29, x30, [sp, #-16]! */
	STORE_32 = 0xa9027bfd, /* stp x29, x30, [sp, #32] */
	POP = 0xa8c17bfd,      /* ldp x29, x30, [sp], #16 */
	MOV_FP = 0x910003fd,   /* mov x29, sp */
	BR_X16 = 0xd61f0200,
	BR_X17 = 0xd61f0220,
	BLR_X8 = 0xd63f0100,
};

static const struct {
	const char *name;
	uint32_t word;
	uint8_t kind;
	int32_t target; /* from behind the call */
} calls[] = {
	{ "bl .+0x100", 0x94000040, UW_CALL_DIRECT, 0xfc },
	{ "bl .-0x100", 0x97ffffc0, UW_CALL_DIRECT, -0x104 },
	{ "blr x8", BLR_X8, UW_CALL_INDIRECT, 0 },
	{ "blraa x8, x9", 0xd73f0909, UW_CALL_INDIRECT, 0 },
	{ "blrab x8, sp", 0xd73f0d1f, UW_CALL_INDIRECT, 0 },
	{ "blraaz x3", 0xd63f087f, UW_CALL_INDIRECT, 0 },
	{ "blrabz x3", 0xd63f0c7f, UW_CALL_INDIRECT, 0 },
	{ "b .+8", 0x14000002, UW_CALL_NONE, 0 },
	{ "br x16", BR_X16, UW_CALL_NONE, 0 },
	{ "ret", RET, UW_CALL_NONE, 0 },
	{ "retaa", 0xd65f0bff, UW_CALL_NONE, 0 },
	{ "bti c", BTI_C, UW_CALL_NONE, 0 },
};

/* Code is little-endian everywhere; so are the hosts of these tests. */
static struct uw_code code_at(const uint32_t *words, size_t at, size_t n)
{
	return (struct uw_code){ .at = (const uint8_t *)(words + at),
				 .before = at * 4,
				 .after = (n - at) * 4 };
}

static void test_calls(void)
{
	struct uw_code nothing = { .at = (const uint8_t *)"", .before = 0 };

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct uw_code code = code_at(&calls[i].word, 1, 1);
		struct uw_call call = ARM->after_call(&code);

		CHECK(call.kind == calls[i].kind && call.target == calls[i].target, calls[i].name);
	}
	CHECK(ARM->after_call(&nothing).kind == UW_CALL_NONE, "at the start of all");
}

/*
 * objdump -d -j .plt of a library linked by GNU ld 2.40 and lld 14, each plain and with
 * -z force-bti, -z pac-plt; depth: what lies between sp and the CFA, -1 where it is over.
 */
static const struct {
	const char *name;
	uint8_t n;
	uint32_t words[8];
	int8_t depth[8];
} stubs[] = {
	{ "PLT0",
	  6,
	  { 0xa9bf7bf0, 0xf00000f0, 0xf947fe11, 0x913fe210, BR_X17, NOP },
	  { 0, 16, 16, 16, 16, -1 } },
	{ "PLT0 with BTI",
	  7,
	  { BTI_C, 0xa9bf7bf0, 0xf00000f0, 0xf947fe11, 0x913fe210, BR_X17, NOP },
	  { 0, 0, 16, 16, 16, 16, -1 } },
	{ "entry", 4, { 0x90000110, 0xf9400611, 0x91002210, BR_X17 }, { 0, 0, 0, 0 } },
	{ "entry, landing pad",
	  5,
	  { BTI_C, 0x90000110, 0xf9400611, 0x91002210, BR_X17 },
	  { 0, 0, 0, 0, 0 } },
	{ "entry with PAC",
	  6,
	  { 0x90000110, 0xf9400611, 0x91002210, AUTIA1716, BR_X17, NOP },
	  { 0, 0, 0, 0, 0, -1 } },
	{ "entry, landing pad and PAC",
	  6,
	  { BTI_C, 0x90000110, 0xf9400611, 0x91002210, AUTIA1716, BR_X17 },
	  { 0, 0, 0, 0, 0, 0 } },
	{ "entry, signed GOT",
	  4,
	  { 0x90000110, 0xf9400611, 0x91002210, 0xd71f0a30 },
	  { 0, 0, 0, 0 } },
	{ "entry of lld with BTI",
	  8,
	  { NOP, NOP, 0x90000110, 0xf9432211, 0x91190210, BR_X17, NOP, NOP },
	  { 0, 0, 0, 0, 0, 0, -1, -1 } },
	{ "TLSDESC",
	  7,
	  { 0xa9bf0fe2, 0xf00000e2, 0xf00000e3, 0xf947f042, 0x913fa063, 0xd61f0040, NOP },
	  { 0, 16, 16, 16, 16, 16, -1 } },
	{ "TLSDESC with BTI",
	  7,
	  { BTI_C, 0xa9bf0fe2, 0xf00000e2, 0xf00000e3, 0xf947f042, 0x913fa063, 0xd61f0040 },
	  { 0, 0, 16, 16, 16, 16, 16 } },
	{ "veneer", 3, { 0x900fe010, 0x91000210, BR_X16 }, { 0, 0, 0 } },
	{ "far veneer", 4, { 0x58000090, 0x10000011, 0x8b110210, BR_X16 }, { 0, 0, 0, 0 } },
	{ "lld's far veneer", 2, { 0x58000050, BR_X16 }, { 0, 0 } },
	{ "a switch", 3, { 0x8b010c00, 0xd61f0000, BTI_J }, { -1, -1, -1 } },
	{ "a function", 4, { BTI_C, PUSH, MOV_FP, BLR_X8 }, { -1, -1, -1, -1 } },
};

static void test_stubs(void)
{
	for (size_t i = 0; i < sizeof(stubs) / sizeof(stubs[0]); i++) {
		for (size_t at = 0; at < stubs[i].n; at++) {
			struct uw_code code = code_at(stubs[i].words, at, stubs[i].n);
			struct uw_rule rule;
			bool is;

			/* The number of bytes that walks look at. */
			if (code.before > UW_CODE_BEFORE)
				code.before = UW_CODE_BEFORE;
			if (code.after > UW_CODE_AFTER)
				code.after = UW_CODE_AFTER;
			is = ARM->stub(&code, &rule);
			CHECK(is == (stubs[i].depth[at] >= 0), stubs[i].name);
			CHECK(!is || (rule.cfa_reg == UW_AARCH64_SP &&
				      rule.cfa_off == stubs[i].depth[at] &&
				      rule.ra == UW_AARCH64_LR && rule.stepper == UW_STEPPER_PLT &&
				      rule.n_regs == 0),
			      stubs[i].name);
		}
	}
}

/* objdump -d -j .init -j .fini of a program of aarch64-linux-gnu-gcc 12; another libc signs. */
static void test_init(void)
{
	static const uint32_t plain[] = { NOP, PUSH, MOV_FP, 0x9400002a, POP, RET };
	static const uint32_t sign[] = { PACIASP, PUSH, MOV_FP, BLR_X8, POP, AUTIASP, RET };
	static const int depth[2][7] = { { 0, 0, 16, 16, 16, 0 }, { 0, 0, 16, 16, 16, 0, 0 } };

	for (size_t k = 0; k < 2; k++) {
		const uint32_t *words = k ? sign : plain;
		size_t n = k ? 7 : 6;
		struct uw_code start = code_at(words, 0, n);

		for (uint64_t off = 0; off < 4 * n; off++) {
			struct uw_code at = code_at(words, 0, n);
			struct uw_rule rule;

			/* Return addresses minus one lie within the call. */
			if (off % 4 != 0 && off != 15)
				continue;
			at.at += off;
			at.before += off;
			at.after -= off;
			CHECK(ARM->init(&start, &at, off, &rule) &&
				      rule.cfa_off == depth[k][off / 4] &&
				      rule.ra == UW_AARCH64_LR &&
				      rule.n_regs == (rule.cfa_off ? 2 : 0),
			      "_init");
			CHECK(!rule.n_regs ||
				      (rule.regs[0].reg == UW_AARCH64_FP &&
				       rule.regs[0].off == -16 &&
				       rule.regs[1].reg == UW_AARCH64_LR && rule.regs[1].off == -8),
			      "its record");
		}
	}
	{
		struct uw_code other = code_at(plain, 2, 6);
		struct uw_rule rule;

		CHECK(!ARM->init(&other, &other, 0, &rule), "another beginning");
	}
}

/* The state of a prologue or epilogue, from the last instructions before the pc. */
static void test_built(void)
{
	static const struct {
		const char *name;
		uint8_t n, built;
		uint32_t words[4];
	} cases[] = {
		{ "nothing to see", 0, UW_BUILT_UNKNOWN, { 0 } },
		{ "paciasp", 1, UW_BUILT_NONE, { PACIASP } },
		{ "bti c", 2, UW_BUILT_NONE, { BTI_C, NOP } },
		{ "stored, x29 not set", 2, UW_BUILT_NONE, { BTI_C, PUSH } },
		{ "stored higher up", 3, UW_BUILT_NONE, { BTI_C, 0xd10103ff, STORE_32 } },
		{ "set", 4, UW_BUILT_FRAME, { BTI_C, PUSH, MOV_FP, NOP } },
		{ "set higher up (add x29, sp, #32)", 2, UW_BUILT_FRAME, { STORE_32, 0x910083fd } },
		{ "after a call", 4, UW_BUILT_FRAME, { PUSH, MOV_FP, 0x94000040, NOP } },
		{ "after an indirect one", 2, UW_BUILT_FRAME, { BLR_X8, NOP } },
		{ "popped", 4, UW_BUILT_NONE, { MOV_FP, BLR_X8, POP, NOP } },
		{ "popped (ldr x30, [sp], #16)", 2, UW_BUILT_NONE, { BLR_X8, 0xf84107fe } },
		{ "another function before", 3, UW_BUILT_UNKNOWN, { MOV_FP, RET, NOP } },
		{ "behind a branch", 3, UW_BUILT_UNKNOWN, { MOV_FP, 0x14000002, NOP } },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		CHECK(ARM->built((const uint8_t *)cases[i].words, cases[i].n * (size_t)4) ==
			      cases[i].built,
		      cases[i].name);
}

static int read_frame(void *ctx, uint64_t addr, void *out, size_t size)
{
	const uint8_t *frame = ctx;

	if (addr < 0x7000 || addr - 0x7000 > 128 * 8 - size)
		return -EFAULT;
	memcpy(out, frame + (addr - 0x7000), size);
	return 0;
}

/*
 * arch/arm64/include/uapi/asm: struct siginfo 128 bytes; struct ucontext: uc_flags,
 * uc_link, uc_stack 40, uc_sigmask and its room 128, then uc_mcontext, aligned to 16, at
 * 176; struct sigcontext: fault_address, regs[31], sp, pc.
 */
static void test_signal_trampoline(void)
{
	static const uint32_t code_of[] = { NOP, 0xd2801168, 0xd4000001, NOP };
	uint64_t frame[128] = { 0 };
	struct uw_machine m = { .arch = ARM, .read = read_frame, .ctx = frame };
	struct uw_code code = code_at(code_of, 1, 4);
	struct uw_rule rule;
	uint64_t cfa = 0;
	bool right = true;

	CHECK(ARM->signal(&code, false, &rule) && rule.signal, "at its start");
	for (unsigned int i = 0; i < 33; i++)
		frame[(128 + 176 + 8) / 8 + i] = 0x100 + i;
	m.regs.value[UW_AARCH64_SP] = 0x7000;
	m.regs.known = (uint64_t)1 << UW_AARCH64_SP;
	CHECK(uw_step(&m, &rule, &cfa) == 1 && cfa == 0x100 + 31, "the interrupted sp is the CFA");
	for (unsigned int i = 0; i < 33; i++)
		right &= m.regs.value[i] == 0x100 + i;
	CHECK(right && m.regs.known == 0x1ffffffff, "all registers, lr and pc apart");
	code = code_at(code_of, 2, 4);
	CHECK(ARM->signal(&code, true, &rule) && !ARM->signal(&code, false, &rule), "on the svc");
	code = code_at(code_of, 3, 4);
	CHECK(ARM->signal(&code, true, &rule) && !ARM->signal(&code, false, &rule),
	      "in the kernel");
	code = code_at(code_of, 0, 4);
	CHECK(!ARM->signal(&code, true, &rule), "before it");
	code = code_at(code_of, 1, 2);
	CHECK(!ARM->signal(&code, true, &rule), "cut short");
}

/* glibc's clone and clone3, from svc on: cmp x0,#0; b.eq; b.lt. */
static void test_threads_that_begin(void)
{
	enum { CLONE = 0xd2801b88, CLONE3 = 0xd2803668, WRITE = 0xd2800808, SVC = 0xd4000001 };
	uint32_t words[] = { NOP, CLONE, SVC, 0xf100001f, 0x54000060, 0x5400004b, RET };
	struct uw_regs regs = { .known = ~(uint64_t)0 };
	struct uw_rule rule;
	struct uw_code code;

	regs.value[1] = regs.value[UW_AARCH64_SP] = 0x7000;
	for (size_t at = 0; at < 7; at++) {
		code = code_at(words, at, 7);
		code.before = code.before < UW_CODE_BEFORE ? code.before : UW_CODE_BEFORE;
		CHECK(uw_child_rule_by_code(ARM, &code, false, &regs, &rule) == (at >= 3 && at < 6),
		      "behind the call");
	}
	code = code_at(words, 3, 7);
	CHECK(rule.ra == UW_AARCH64_PC && rule.regs[0].kind == UW_RULE_UNDEFINED, "no caller");
	regs.value[0] = 1234;
	CHECK(!uw_child_rule_by_code(ARM, &code, true, &regs, &rule), "the parent");
	regs.value[0] = regs.value[1] = 0;
	CHECK(!uw_child_rule_by_code(ARM, &code, true, &regs, &rule), "fork's child");
	words[1] = CLONE3;
	CHECK(uw_child_rule_by_code(ARM, &code, true, &regs, &rule), "clone3");
	CHECK(!uw_child_rule_by_code(ARM, &code, false, &regs, &rule), "where an FDE goes on");
	words[1] = WRITE;
	CHECK(!uw_child_rule_by_code(ARM, &code, true, &regs, &rule), "another call");
}

static void test_strip(void)
{
	uint64_t pac = (uint64_t)0x5a << 48 | (uint64_t)1 << 47;

	/* 39 bits of address: bits 39 to 54 are the code's (0x007fff8000000000). */
	CHECK(ARM->strip(pac | 0x7e7eec7e6c, 0, (uint64_t)1 << 39) == 0x7e7eec7e6c, "39 bits");
	CHECK(ARM->strip((uint64_t)0x1234 << 48 | 0xffff80001234, 0, (uint64_t)1 << 48) ==
		      0xffff80001234,
	      "48 bits");
	CHECK(ARM->strip((uint64_t)0xfff << 52 | 0xfffff80001234, 0, (uint64_t)1 << 52) ==
		      0xfffff80001234,
	      "52 bits");
	CHECK(ARM->strip(0x400123, 0, 0x500000) == 0x400123, "one without");
	CHECK(ARM->strip((uint64_t)0x1234 << 48 | 0xffff8a2b1004, 0, 0) == 0xffff8a2b1004,
	      "nothing is known of the addresses");
	/* The kernel's own word (arch/arm64/kernel/ptrace.c: bits 54 down to the address size). */
	CHECK(ARM->strip((uint64_t)0x7f << 48 | 0x0000aaaa12345678, (uint64_t)0x7f << 48,
			 (uint64_t)1 << 39) == 0x0000aaaa12345678,
	      "as the kernel told");
	CHECK(ARM->strip((uint64_t)0xb400 << 48 | pac | 0x7e12345678, 0x007fff8000000000, 0) ==
		      0x7e12345678,
	      "and a tag above");
}

/* ---- walks ------------------------------------------------------------------------------ */

/*
 * Functions at multiples of 0x100. Only 0x300 has CFI, as gcc -O2 writes it: a frame of 64 bytes,
 * with the frame record at its bottom.
 */
#define CODE   ((uint64_t)0x10000)
#define STACK  ((uint64_t)0x70000)
#define LEAF   (CODE + 0x004)
#define FRAMED (CODE + 0x110)
#define CALLER (CODE + 0x208) /* after its bl of LEAF's function */
#define TWICE  (CODE + 0x20c) /* behind its bl of FRAMED's */
#define KNOWN  (CODE + 0x30c) /* behind its bl of FRAMED's */
#define ENTRY  (CODE + 0x404) /* after a blr; no rule leads on from there */
#define WORDS  64

static uint32_t code[0x200];
static uint64_t words[WORDS];
static struct uw_frame frames[16];
static struct uw_object *object;

/*
 * CIE "zR": code 4, data -8, ra 30, CFA sp + 0; FDE: CFA sp + 64, x29 at c-64, ra at c-56. Two more, which leave lr
 * alone: CFA sp + 16, and as the CIE says.
 */
static const uint8_t eh_frame[] = {
	16,   0,    0,	  0,  0,    0,	  0,	0,  1,	  'z', 'R',  0, 4,    0x78, 30, 1,
	0,    0x0c, 31,	  0,  0x18, 0,	  0,	0,  0x18, 0,   0,    0, 0,    0,    0,	0,
	0,    1,    0,	  0,  0,    0x41, 0x0e, 64, 0x9d, 8,   0x9e, 7, 0,    0,    0,	0,
	0x10, 0,    0,	  0,  52,   0,	  0,	0,  0,	  0,   0,    0, 0x20, 0,    0,	0,
	0,    0x41, 0x0e, 16, 0x10, 0,	  0,	0,  72,	  0,   0,    0, 0,    0,    0,	0,
	0x20, 0,    0,	  0,  0,    0,	  0,	0,  0,	  0,   0,    0,
};

static void make_object(void)
{
	static uint8_t section[sizeof(eh_frame)];
	uint64_t at = IMAGE_CODE + 0x1000;
	struct image image = { .machine = EM_AARCH64,
			       .code = code,
			       .code_size = sizeof(code),
			       .sections = { { ".eh_frame", section, at, sizeof(section) } },
			       .n_sections = 1 };
	struct uw_rule rule;
	uint32_t start = IMAGE_CODE + 0x300;

	memcpy(section, eh_frame, sizeof(eh_frame));
	section[16] = 0x03; /* udata4 */
	memcpy(section + 28, &start, 4);
	start = IMAGE_CODE + 0x340;
	memcpy(section + 56, &start, 4);
	start = IMAGE_CODE + 0x380;
	memcpy(section + 76, &start, 4);

	code[0x00] = BTI_C;
	code[0x40] = BTI_C;
	code[0x41] = PUSH;
	code[0x42] = MOV_FP;
	code[0x43] = BLR_X8;
	code[0x44] = NOP;	 /* FRAMED */
	code[0x81] = 0x97ffff7f; /* bl 0x0, from 0x204 */
	code[0x82] = 0x97ffffbe; /* bl 0x100, from 0x208 */
	code[0xc0] = 0xa9bc7bfd; /* stp x29, x30, [sp, #-64]! */
	code[0xc1] = MOV_FP;
	code[0xc2] = 0x97ffff7e; /* bl 0x100, from 0x308 */
	code[0xd0] = 0xd10043ff; /* sub sp, sp, #16 */
	code[0xd1] = 0x9400000f; /* bl 0x380, from 0x344 */
	code[0x100] = BLR_X8;
	object = image_object(&image);
	CHECK(object != NULL, "image");
	CHECK(object && uw_object_rule(object, IMAGE_CODE + 0x308, false, &rule) == 0 &&
		      rule.cfa_reg == UW_AARCH64_SP && rule.cfa_off == 64 && rule.n_regs == 2 &&
		      rule.regs[0].off == -64 && rule.regs[1].off == -56,
	      "its rule");
}

static bool generated; /* the code has no object, and cannot be read */

static struct uw_stack walk(uint64_t pc, uint64_t fp, uint64_t lr)
{
	struct uw_region region = { .addr = STACK, .size = sizeof(words), .bytes = (void *)words };
	struct uw_memory memory = { .regions = &region, .n_regions = 1 };
	struct uw_thread thread = { .read = uw_memory_read, .ctx = &memory };
	struct uw_stack stack = { .frames = frames, .max_frames = 16 };
	struct uw_mapping m = { .start = CODE,
				.end = CODE + 0x1000,
				.off = IMAGE_CODE,
				.prot = PROT_READ | PROT_EXEC,
				.kind = generated ? UW_MAPPING_ANON : UW_MAPPING_FILE,
				.object = generated ? NULL : object };
	struct uw_space *space = NULL;
	struct uw_worker *worker = NULL;

	CHECK(uw_worker_new(&worker) == 0 && uw_space_new(EM_AARCH64, NULL, NULL, &space) == 0 &&
		      uw_space_map(space, &m) == 0,
	      "space");
	thread.regs.value[UW_AARCH64_PC] = pc;
	thread.regs.value[UW_AARCH64_SP] = STACK;
	thread.regs.value[UW_AARCH64_FP] = fp;
	thread.regs.value[UW_AARCH64_LR] = lr;
	thread.regs.known = (uint64_t)1 << UW_AARCH64_PC | (uint64_t)1 << UW_AARCH64_SP |
			    (uint64_t)1 << UW_AARCH64_FP | (uint64_t)1 << UW_AARCH64_LR;
	uw_walk(space, worker, &thread, &stack);
	uw_worker_free(worker);
	uw_space_free(space);
	return stack;
}

static void record(unsigned int word, uint64_t fp, uint64_t ra)
{
	words[word] = fp;
	words[word + 1] = ra;
}

static void test_leaf(void)
{
	struct uw_stack s;

	memset(words, 0, sizeof(words));
	record(2, 0, ENTRY);
	s = walk(LEAF, STACK + 16, CALLER);
	CHECK(s.n_frames == 3 && s.stop == UW_STOP_GUESS_ENDED, "a leaf's caller is in lr");
	CHECK(frames[1].pc == CALLER && frames[1].stepper == UW_STEPPER_LEAF &&
		      frames[1].confidence == UW_CONFIDENCE_CHECKED && frames[1].sp == STACK,
	      "and has its stack pointer");
	CHECK(frames[2].pc == ENTRY && frames[2].stepper == UW_STEPPER_FP, "then the chain");
	s = walk(LEAF, STACK + 16, CALLER | (uint64_t)0x7f8 << 44);
	CHECK(s.n_frames == 3 && frames[1].pc == CALLER, "signed");
	s = walk(LEAF, STACK + 16, CODE + 0x148);
	CHECK(s.n_frames == 2 && frames[1].pc == ENTRY,
	      "no call ends there: lr holds something else");
	s = walk(0, STACK + 16, ENTRY);
	CHECK(s.n_frames >= 2 && frames[1].pc == ENTRY, "a call into nowhere");
}

static void test_frame_record(void)
{
	struct uw_stack s;

	memset(words, 0, sizeof(words));
	record(0, STACK + 64, TWICE);
	record(8, 0, ENTRY);
	/* lr still has the return address of the last callee, which has returned. */
	s = walk(FRAMED, STACK, CODE + 0x110);
	CHECK(s.n_frames == 3 && frames[1].pc == TWICE && frames[1].stepper == UW_STEPPER_FP &&
		      frames[1].confidence == UW_CONFIDENCE_CHECKED && frames[2].pc == ENTRY,
	      "the record, not lr");
	words[1] |= (uint64_t)0x7f8 << 44;
	s = walk(FRAMED, STACK, 0);
	CHECK(s.n_frames == 3 && frames[1].pc == TWICE, "signed");
	words[1] = CODE + 0x144;
	s = walk(FRAMED, STACK, 0);
	CHECK(s.n_frames == 1 && s.stop == UW_STOP_NO_UNWIND_INFO, "no call ends there");
	words[1] = TWICE;
	words[0] = STACK;
	s = walk(FRAMED, STACK, 0);
	CHECK(s.n_frames == 2, "a chain that does not rise");
}

/*
 * FRAMED's record lies at the bottom of 32 bytes of frame, so the caller's sp is not at the
 * record's end. The caller's CFI counts from sp and says where its own record is.
 */
static void test_rules_after_a_record(void)
{
	struct uw_stack s;

	memset(words, 0, sizeof(words));
	record(0, STACK + 32, KNOWN);
	record(4, STACK + 96, TWICE); /* at STACK + 32: the caller's frame of 64 bytes */
	record(12, 0, ENTRY);
	s = walk(FRAMED, STACK, 0);
	CHECK(s.n_frames == 4 && s.stop == UW_STOP_GUESS_ENDED, "to the end of the chain");
	CHECK(frames[1].pc == KNOWN && frames[1].cfa == STACK + 96 && frames[2].pc == TWICE &&
		      frames[2].stepper == UW_STEPPER_CFI && frames[2].sp == STACK + 96 &&
		      frames[3].pc == ENTRY,
	      "counted from the record");
}

/*
 * Generated code of which a recording has only the stack. lr of a function whose last call has returned leads into the function
 * itself, and the caller is in its frame record.
 */
static void test_unreadable_code(void)
{
	struct uw_stack s;

	generated = true;
	memset(words, 0, sizeof(words));
	record(2, STACK + 64, CODE + 0xf00);
	record(8, 0, CODE + 0xe00);
	s = walk(CODE + 0x220, STACK + 16, CODE + 0x210);
	CHECK(s.n_frames >= 2 && frames[1].pc == CODE + 0xf00 && frames[1].stepper == UW_STEPPER_FP,
	      "the record, not a frame of the same function");
	/* Far from there it is a leaf's caller. */
	s = walk(CODE + 0x220, STACK + 16, CODE + 0x220 + 0x2000);
	CHECK(s.n_frames >= 2 && frames[1].pc != CODE + 0x220 + 0x2000, "not mapped");
	/* Without a record, lr is all there is. */
	s = walk(CODE + 0x220, 0, CODE + 0x210);
	CHECK(s.n_frames >= 2 && frames[1].pc == CODE + 0x210 &&
		      frames[1].stepper == UW_STEPPER_LEAF,
	      "lr");
	generated = false;
}

/* A leaf, out of which the compiler moved code to a function of its own: that is called without CFI for the new lr. */
static void test_a_lost_link(void)
{
	struct uw_stack s;

	memset(words, 0, sizeof(words));
	s = walk(CODE + 0x388, STACK + 16, CODE + 0x348);
	CHECK(s.n_frames == 2 && s.stop == UW_STOP_REG_UNKNOWN,
	      "not the same frame again and again");
	CHECK(frames[1].pc == CODE + 0x348 && frames[1].stepper == UW_STEPPER_CFI, "its caller");
	s = walk(CODE + 0x348, STACK + 16, CALLER);
	CHECK(s.n_frames >= 2 && frames[1].pc == CALLER, "the leaf itself");
}

int main(void)
{
	test_calls();
	test_stubs();
	test_init();
	test_built();
	test_signal_trampoline();
	test_threads_that_begin();
	test_strip();
	make_object();
	test_leaf();
	test_frame_record();
	test_rules_after_a_record();
	test_a_lost_link();
	test_unreadable_code();
	uw_object_put(object);
	return check_done();
}
