/*
 * tests/unit/test_x86_64.c: tests calls, stubs, entry points, signal frames and prologues of x86_64
 * code.
 */
#include <elf.h>
#include <errno.h>
#include <string.h>

#include "tests/check.h"
#include "tests/image.h"
#include "unwinder/arch/arch.h"
#include "unwinder/rule/object.h"
#include "unwinder/walk/child.h"
#include "unwinder/walk/step.h"

#define X86 (&uw_arch_x86_64)

/* The encodings come from as(1): echo "call *8(%rax,%rbx,2)" | as -al -o /dev/null - */
static const struct {
	const char *name;
	uint8_t size, kind;
	uint8_t bytes[8];
} calls[] = {
	{ "call rel32", 5, UW_CALL_DIRECT, { 0xe8, 0, 1, 0, 0 } },
	{ "call *%rax", 2, UW_CALL_INDIRECT, { 0xff, 0xd0 } },
	{ "call *%r11", 3, UW_CALL_INDIRECT, { 0x41, 0xff, 0xd3 } },
	{ "call *(%rax)", 2, UW_CALL_INDIRECT, { 0xff, 0x10 } },
	{ "call *(%rsp)", 3, UW_CALL_INDIRECT, { 0xff, 0x14, 0x24 } },
	{ "call *8(%rax)", 3, UW_CALL_INDIRECT, { 0xff, 0x50, 0x08 } },
	{ "call *8(%rax,%rbx,2)", 4, UW_CALL_INDIRECT, { 0xff, 0x54, 0x58, 0x08 } },
	{ "call *0x100(%rax)", 6, UW_CALL_INDIRECT, { 0xff, 0x90, 0, 1, 0, 0 } },
	{ "call *0x100(%rsp)", 7, UW_CALL_INDIRECT, { 0xff, 0x94, 0x24, 0, 1, 0, 0 } },
	{ "call *0x100(%rip)", 6, UW_CALL_INDIRECT, { 0xff, 0x15, 0, 1, 0, 0 } },
	{ "call *0x100(,%rax,8)", 7, UW_CALL_INDIRECT, { 0xff, 0x14, 0xc5, 0, 1, 0, 0 } },
	{ "call *0x100", 7, UW_CALL_INDIRECT, { 0xff, 0x14, 0x25, 0, 1, 0, 0 } },
	{ "jmp *%rax", 2, UW_CALL_NONE, { 0xff, 0xe0 } },
	{ "jmp rel32", 5, UW_CALL_NONE, { 0xe9, 0, 1, 0, 0 } },
	{ "push %rbp; mov", 4, UW_CALL_NONE, { 0x55, 0x48, 0x89, 0xe5 } },
	{ "call *8(%rax), a byte short", 2, UW_CALL_NONE, { 0xff, 0x50 } },
	{ "nothing", 0, UW_CALL_NONE, { 0 } },
};

static struct uw_code code_at(const uint8_t *bytes, size_t before, size_t size)
{
	return (struct uw_code){ .at = bytes + before, .before = before, .after = size - before };
}

static void test_calls(void)
{
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct uw_code code = code_at(calls[i].bytes, calls[i].size, calls[i].size);

		CHECK(X86->after_call(&code).kind == calls[i].kind, calls[i].name);
	}
	CHECK(X86->after_call(&(struct uw_code){ .at = calls[0].bytes + 5, .before = 5 }).target ==
		      256,
	      "the target counts from behind the call");
}

/* objdump -d of PLTs by GNU ld (plain, -z ibtplt, -z bndplt) and lld. */
static const uint8_t plt0[] = {
	0xff, 0x35, 1, 2, 3, 4, 0xff, 0x25, 1, 2, 3, 4, 0x0f, 0x1f, 0x40, 0
};
static const uint8_t entry[] = { 0xff, 0x25, 1, 2,    3,    4,	  0x68, 0,
				 0,    0,    0, 0xe9, 0xe0, 0xff, 0xff, 0xff };
static const uint8_t ibt[] = { 0xf3, 0x0f, 0x1e, 0xfa, 0x68, 0, 0, 0,
			       0,    0xf2, 0xe9, 1,    2,    3, 4, 0x90 };
static const uint8_t sec[] = { 0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 1,
			       2,    3,	   4,	 0x0f, 0x1f, 0x44, 0,	 0 };
static const uint8_t bnd[] = { 0x68, 0, 0, 0, 0, 0xf2, 0xe9, 1, 2, 3, 4, 0x0f, 0x1f, 0x44, 0, 0 };
/* nodejs 18's Builtins_GetProperty: mov 0x68(%rsp),%rsi; add $0x78,%rsp; jmp. */
static const uint8_t tail[] = { 0x48, 0x8b, 0x74, 0x24, 0x68, 0x48, 0x83, 0xc4,
				0x78, 0xe9, 0x38, 0xe4, 0xff, 0xff, 0xeb, 0xb9 };

static const struct {
	const char *name;
	const uint8_t *bytes;
	uint8_t at;
	int depth; /* CFA - rsp; 0: not a stub */
} stubs[] = {
	{ "PLT0", plt0, 0, 16 },
	{ "PLT0, pushed", plt0, 6, 24 },
	{ "entry", entry, 0, 8 },
	{ "entry, to push", entry, 6, 8 },
	{ "entry, pushed", entry, 11, 16 },
	{ "IBT", ibt, 0, 8 },
	{ "IBT, to push", ibt, 4, 8 },
	{ "IBT, pushed", ibt, 9, 16 },
	{ ".plt.sec", sec, 0, 8 },
	{ ".plt.sec, to jump", sec, 4, 8 },
	{ "bnd", bnd, 0, 8 },
	{ "bnd, pushed", bnd, 5, 16 },
	{ "padding", plt0, 12, 0 },
	{ "a tail call behind a 0x68", tail, 9, 0 },
};

static void test_stubs(void)
{
	for (size_t i = 0; i < sizeof(stubs) / sizeof(stubs[0]); i++) {
		struct uw_code code = code_at(stubs[i].bytes, stubs[i].at, 16);
		struct uw_rule rule;
		bool is = X86->stub(&code, &rule);

		CHECK(is == (stubs[i].depth != 0), stubs[i].name);
		CHECK(!is || (rule.cfa_reg == 7 && rule.cfa_off == stubs[i].depth), stubs[i].name);
	}
}

/* GHC and gcc -fno-plt jump through the GOT from anywhere, with anything at rsp. */
static void test_stubs_lie_in_plts(void)
{
	enum { PLT = 0x20, TEXT = 0x60, ODD = 0x73, NAKED = 0x80 };
	static uint8_t code[0x100];
	struct image image = { .machine = EM_X86_64, .code = code, .code_size = sizeof(code) };
	const struct image_section sections[] = {
		{ ".plt.sec", NULL, IMAGE_CODE + PLT, 0x20 },
		{ ".text", NULL, IMAGE_CODE + 0x40, 0xc0 },
	};
	struct uw_object *with, *without;
	struct uw_rule rule;

	memcpy(code + PLT, sec, sizeof(sec));
	memcpy(code + TEXT, sec, sizeof(sec));
	memcpy(code + ODD, entry, 6);
	memcpy(code + NAKED, entry, 6);
	without = image_object(&image);
	memcpy(image.sections, sections, sizeof(sections));
	image.n_sections = 2;
	with = image_object(&image);
	CHECK(uw_object_rule(with, IMAGE_CODE + PLT + 4, true, &rule) == 0 &&
		      rule.stepper == UW_STEPPER_PLT && rule.cfa_off == 8,
	      "a PLT");
	CHECK(uw_object_rule(with, IMAGE_CODE + TEXT + 4, true, &rule) == -ENOENT &&
		      uw_object_rule(with, IMAGE_CODE + ODD, true, &rule) == -ENOENT &&
		      uw_object_rule(with, IMAGE_CODE + NAKED, true, &rule) == -ENOENT,
	      "the same code in .text");
	CHECK(uw_object_rule(without, IMAGE_CODE + PLT + 4, true, &rule) == 0 &&
		      uw_object_rule(without, IMAGE_CODE + NAKED, true, &rule) == 0,
	      "without sections");
	CHECK(uw_object_rule(without, IMAGE_CODE + ODD, true, &rule) == -ENOENT,
	      "no entry begins there");
	uw_object_put(with);
	uw_object_put(without);
}

/*
 * objdump -d of musl's crt1.o (_start, after its call padding, _start_c), and of glibc's: its
 * _start ends in hlt. The address after the call still belongs to the entry point's function,
 * aligned or not.
 */
static void test_the_entry_point_has_no_caller(void)
{
	enum { START = 0x2f, START_C = 0x50, FAR = 0x120 };
	static const uint8_t musl[] = {
		0x48, 0x31, 0xed, 0x48, 0x89, 0xe7, 0x48, 0x8d, 0x35, 0,    0,	  0,	0,    0x48,
		0x83, 0xe4, 0xf0, 0xe8, 0x0b, 0,    0,	  0,	0x66, 0x2e, 0x0f, 0x1f, 0x84, 0,
		0,    0,    0,	  0,	0x90, 0x8b, 0x37, 0x48, 0x8d, 0x57, 0x08, 0xe9
	};
	static const uint8_t glibc[] = { 0x31, 0xed, 0xff, 0x15, 1, 2, 3, 4, 0xf4, 0x66, 0x90 };
	static const uint8_t even[] = { 0x90, 0x90, 0x31, 0xed, 0x48, 0x89, 0xe7, 0x90,
					0x90, 0x90, 0x90, 0xe8, 1,    2,    3,	  4 };
	static uint8_t code[0x200];
	struct image image = { .machine = EM_X86_64, .code = code, .code_size = sizeof(code) };
	struct uw_object *object;
	struct uw_rule rule;

	image.sections[0] = (struct image_section){ ".text", NULL, IMAGE_CODE, sizeof(code) };
	image.n_sections = 1;
	memcpy(code + START, musl, sizeof(musl));
	image.entry = IMAGE_CODE + START;
	object = image_object(&image);
	CHECK(uw_object_rule(object, IMAGE_CODE + START, true, &rule) == 0 &&
		      uw_object_rule(object, IMAGE_CODE + START + 21, false, &rule) == 0 &&
		      rule.regs[0].kind == UW_RULE_UNDEFINED,
	      "_start");
	CHECK(uw_object_rule(object, IMAGE_CODE + START_C, true, &rule) == -ENOENT &&
		      uw_object_rule(object, IMAGE_CODE + START_C + 8, false, &rule) == -ENOENT &&
		      uw_object_rule(object, IMAGE_CODE + START - 1, false, &rule) == -ENOENT &&
		      uw_object_rule(object, IMAGE_CODE + FAR, false, &rule) == -ENOENT,
	      "musl's _start_c has a caller");
	uw_object_put(object);
	memset(code, 0, sizeof(code));
	memcpy(code + 0x40, even, sizeof(even));
	memcpy(code + 0x50, glibc, sizeof(glibc));
	image.entry = IMAGE_CODE + 0x40;
	object = image_object(&image);
	CHECK(uw_object_rule(object, IMAGE_CODE + 0x4f, false, &rule) == 0 &&
		      uw_object_rule(object, IMAGE_CODE + 0x57, false, &rule) == 0,
	      "it goes on where its call returned");
	CHECK(uw_object_rule(object, IMAGE_CODE + 0x62, false, &rule) == -ENOENT,
	      "and ends at hlt");
	uw_object_put(object);
	image.sections[0].vaddr = image.entry;
	image.sections[0].size -= 0x40;
	object = image_object(&image);
	CHECK(uw_object_rule(object, IMAGE_CODE + 0x4f, false, &rule) == -ENOENT,
	      "where a library's .text begins is no entry point");
	uw_object_put(object);
}

/* objdump -d -j .init of node, less its own call; others lack the endbr64. */
static void test_init(void)
{
	static const uint8_t code[] = { 0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x08, 0x48,
					0x8b, 0x05, 0x51, 0x2f, 0,    0,    0x48, 0x85, 0xc0,
					0x74, 2,    0xff, 0xd0, 0x48, 0x83, 0xc4, 0x08, 0xc3 };
	static const struct {
		uint8_t off;
		int depth;
	} places[] = { { 0, 8 }, { 4, 8 }, { 8, 16 }, { 21, 16 }, { 22, 16 }, { 26, 8 } };
	struct uw_code start = code_at(code, 0, sizeof(code));
	struct uw_rule rule;

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		struct uw_code at = code_at(code, places[i].off, sizeof(code));

		CHECK(X86->init(&start, &at, places[i].off, &rule) &&
			      rule.cfa_off == places[i].depth,
		      "_init");
	}
	start = code_at(code, 8, sizeof(code));
	CHECK(!X86->init(&start, &start, 0, &rule), "another beginning");
}

static int read_frame(void *ctx, uint64_t addr, void *out, size_t size)
{
	const uint8_t *frame = ctx;

	if (addr < 0x7000 || addr - 0x7000 > 512 - size)
		return -EFAULT;
	memcpy(out, frame + (addr - 0x7000), size);
	return 0;
}

/* struct ucontext of the kernel: mcontext at 40, in it r8 first, rip at 128. */
static void test_signal_trampoline(void)
{
	static const uint8_t restorer[] = { 0x90, 0x48, 0xc7, 0xc0, 15,	  0,   0,
					    0,	  0x0f, 0x05, 0x0f, 0x1f, 0x80 };
	uint64_t frame[64] = { 0 };
	struct uw_machine m = { .arch = X86, .read = read_frame, .ctx = frame };
	struct uw_code code = code_at(restorer, 1, sizeof(restorer));
	struct uw_rule rule;
	uint64_t cfa = 0;

	CHECK(X86->signal(&code, false, &rule) && rule.signal, "at its start");
	for (unsigned int i = 0; i < 17; i++)
		frame[5 + i] = 0x100 + i;
	m.regs.value[7] = 0x7000;
	m.regs.known = 1 << 7;
	CHECK(uw_step(&m, &rule, &cfa) == 1, "steps");
	CHECK(m.regs.value[8] == 0x100 && m.regs.value[15] == 0x107, "r8 to r15");
	CHECK(m.regs.value[5] == 0x108 && m.regs.value[4] == 0x109, "rdi, rsi");
	CHECK(m.regs.value[6] == 0x10a && m.regs.value[3] == 0x10b, "rbp, rbx");
	CHECK(m.regs.value[1] == 0x10c && m.regs.value[0] == 0x10d && m.regs.value[2] == 0x10e,
	      "rdx, rax, rcx");
	CHECK(m.regs.value[7] == 0x10f && m.regs.value[16] == 0x110 && cfa == 0x10f, "rsp, rip");
	CHECK(m.regs.known == 0x1ffff, "all are known");

	m.regs.value[7] = 0x7000 + 512 - 8 * 20; /* up to rdx; from rax on, it was not captured */
	CHECK(uw_step(&m, &rule, &cfa) == -EFAULT && m.regs.value[8] == 0x100,
	      "cut off: nothing changes");

	code = code_at(restorer, 8, sizeof(restorer));
	CHECK(X86->signal(&code, true, &rule), "on the syscall");
	CHECK(!X86->signal(&code, false, &rule), "no handler returns there");
	code = code_at(restorer, 10, sizeof(restorer));
	CHECK(X86->signal(&code, true, &rule), "in the kernel on its behalf");
	code = code_at(restorer, 0, sizeof(restorer));
	CHECK(!X86->signal(&code, false, &rule), "before it");
	code = code_at(restorer, 1, 8);
	CHECK(!X86->signal(&code, true, &rule), "cut short");
}

/* The encodings that GNU as makes of these instructions. */
static void test_how_functions_begin(void)
{
	static const struct {
		const char *name, *code;
		size_t size;
		int fails;
		uint8_t cfa_reg;
		int64_t cfa_off, rbx; /* its slot; 0: not saved */
	} cases[] = {
		{ "nothing yet", "", 0, 0, 7, 8, 0 },
		{ "push rbx", "\x53", 1, 0, 7, 16, -16 },
		{ "half of push r12", "\x53\x41", 2, 0, 7, 16, -16 },
		{ "push r12, push rbx", "\x41\x54\x53", 3, 0, 7, 24, -24 },
		{ "endbr64; push rbx; sub $0x28", "\xf3\x0f\x1e\xfa\x53\x48\x83\xec\x28", 9, 0, 7,
		  56, -16 },
		{ "sub $0x128; mov eax,1; push rbx", "\x48\x81\xec\x28\1\0\0\xb8\1\0\0\0\x53", 13,
		  0, 7, 0x130, 0 },
		{ "push rbx, rbp; mov rsp,rbp; sub $0x20; and $-64",
		  "\x53\x55\x48\x89\xe5\x48\x83\xec\x20\x48\x83\xe4\xc0", 13, 0, 6, 24, -16 },
		{ "push rbx twice", "\x53\x53", 2, 0, 7, 24, -16 },
		{ "mov eax,1; sub $0x28", "\xb8\1\0\0\0\x48\x83\xec\x28", 9, 1, 0, 0, 0 },
		{ "sub $-8", "\x48\x83\xec\xf8\x90", 5, 1, 0, 0, 0 },
		{ "mov eax,0xec; sub $0x28", "\xb8\xec\0\0\0\x48\x83\xec\x28", 9, 1, 0, 0, 0 },
		{ "mov eax,0x64; lea -8(rsp)", "\xb8\x64\0\0\0\x48\x8d\x64\x24\xf8", 10, 1, 0, 0,
		  0 },
		{ "mov eax,1; lea -0x100(rsp)", "\xb8\1\0\0\0\x48\x8d\xa4\x24\0\xff\xff\xff", 13, 1,
		  0, 0, 0 },
		{ "mov eax,1; lea 8(rsp)", "\xb8\1\0\0\0\x48\x8d\x64\x24\x08", 10, 0, 7, 8, 0 },
		{ "mov eax,1; half of sub", "\xb8\1\0\0\0\x48\x83\xec", 8, 0, 7, 8, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct uw_rule rule = { .start = 0 };
		const struct uw_reg_rule *rbx;

		CHECK(uw_arch_x86_64.prologue((const uint8_t *)cases[i].code, cases[i].size,
					      &rule) == !cases[i].fails,
		      cases[i].name);
		rbx = uw_rule_reg(&rule, 3);
		CHECK(cases[i].fails || (rule.cfa_reg == cases[i].cfa_reg &&
					 rule.cfa_off == cases[i].cfa_off &&
					 (rbx ? rbx->off : 0) == cases[i].rbx &&
					 uw_rule_reg(&rule, UW_X86_64_RIP)->off == -8),
		      cases[i].name);
	}
}

static void test_where_functions_begin(void)
{
	static const struct {
		const char *name, *code;
		size_t size;
		bool begins;
	} cases[] = {
		{ "ret", "\x5b\xc3", 2, true },
		{ "ret; nopw", "\xc3\x66\x0f\x1f\x44\0\0", 7, true },
		{ "ret; int3", "\xc3\xcc\xcc\xcc", 4, true },
		{ "jmp; nop", "\xe9\1\2\3\4\x90", 6, true },
		{ "call; nop", "\xe8\1\2\3\4\x90", 6, true },
		{ "ud2", "\x0f\x0b", 2, true },
		{ "add; nop, as before a loop", "\x48\x01\xd8\x0f\x1f\0", 6, false },
		{ "only padding", "\x90\x90\x90", 3, false },
		{ "nothing to see", "", 0, false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const uint8_t *code = (const uint8_t *)cases[i].code;

		CHECK(uw_arch_x86_64.begins(code, code + cases[i].size) == cases[i].begins,
		      cases[i].name);
	}
}

/* clone, as Go's runtime calls it: its table covers the code that the new thread executes. */
static void test_threads_that_begin(void)
{
	static const uint8_t bytes[] = {
		0xb8, 0x38, 0, 0, 0, 0x0f, 0x05, 0x48, 0x83, 0xf8, 0, 0x75
	};
	const struct uw_code code = { .at = bytes + 7, .before = 7, .after = 5 };
	struct uw_regs regs = { .known = ~(uint64_t)0 };
	struct uw_rule rule;

	regs.value[X86->second] = regs.value[X86->sp] = 0x7000;
	for (int bare = 0; bare < 2; bare++)
		CHECK(uw_child_rule_by_code(X86, &code, bare, &regs, &rule) &&
			      rule.regs[0].kind == UW_RULE_UNDEFINED,
		      "no caller");
	regs.value[X86->sp] = 0x6000;
	CHECK(!uw_child_rule_by_code(X86, &code, false, &regs, &rule), "on another stack");
	regs.value[X86->sp] = 0x7000;
	regs.value[X86->result] = 1234;
	CHECK(!uw_child_rule_by_code(X86, &code, false, &regs, &rule), "the parent");
}

int main(void)
{
	test_how_functions_begin();
	test_where_functions_begin();
	CHECK(uw_arch_of(EM_X86_64) == X86 && uw_arch_of(EM_AARCH64) == &uw_arch_aarch64 &&
		      !uw_arch_of(EM_386),
	      "machines");
	test_calls();
	test_stubs();
	test_stubs_lie_in_plts();
	test_the_entry_point_has_no_caller();
	test_init();
	test_signal_trampoline();
	test_threads_that_begin();
	return check_done();
}
