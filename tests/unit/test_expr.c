/* tests/unit/test_expr.c: tests the evaluation of DWARF expressions: every operator, and limits. */
#include "unwinder/walk/expr.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "tests/check.h"

#define CFA 0x1000

/*
 * Read memory: each byte at an address below 0x100 has the address as its value; there is nothing
 * above.
 */
static int read_byte_is_address(void *ctx, uint64_t addr, void *out, size_t size)
{
	(void)ctx;
	if (addr >= 0x100 || size > 0x100 - addr)
		return -EFAULT;
	for (size_t i = 0; i < size; i++)
		((uint8_t *)out)[i] = (uint8_t)(addr + i);
	return 0;
}

static struct uw_machine machine_of_seven(void)
{
	struct uw_machine m = { .arch = &uw_arch_x86_64,
				.read = read_byte_is_address,
				.bias = 0x400000 };

	m.regs.value[7] = 0x7000; /* rsp */
	m.regs.value[16] = 0xb;	  /* rip */
	m.regs.known = 1 << 7 | 1 << 16;
	return m;
}

/* Operators and their meaning: DWARF 5 §2.5.1 and its examples; numbers: §7.7.1, table 7.9. */
static const struct {
	const char *name;
	int err;
	uint64_t value;
	uint8_t size;
	uint8_t in[15];
} cases[] = {
	{ "nothing but the CFA", 0, CFA, 0, { 0 } },
	{ "addr is moved by the bias", 0, 0x400010, 9, { 0x03, 0x10, 0, 0, 0, 0, 0, 0, 0 } },
	{ "deref", 0, 0x1716151413121110, 3, { 0x08, 0x10, 0x06 } },
	{ "deref_size 2", 0, 0x1110, 4, { 0x08, 0x10, 0x94, 2 } },
	{ "deref_size 3", -EBADMSG, 0, 4, { 0x08, 0x10, 0x94, 3 } },
	{ "deref of what was not captured", -EFAULT, 0, 1, { 0x06 } },
	{ "const1s", 0, (uint64_t)-1, 2, { 0x09, 0xff } },
	{ "const2u", 0, 0xff01, 3, { 0x0a, 0x01, 0xff } },
	{ "const2s", 0, (uint64_t)-255, 3, { 0x0b, 0x01, 0xff } },
	{ "const4u", 0, 0xff000001, 5, { 0x0c, 1, 0, 0, 0xff } },
	{ "const4s", 0, 0xffffffffff000001, 5, { 0x0d, 1, 0, 0, 0xff } },
	{ "const8u", 0, 0x8000000000000001, 9, { 0x0e, 1, 0, 0, 0, 0, 0, 0, 0x80 } },
	{ "constu", 0, 128, 3, { 0x10, 0x80, 1 } },
	{ "consts", 0, (uint64_t)-128, 3, { 0x11, 0x80, 0x7f } },
	{ "dup plus", 0, 34, 3, { 0x41, 0x12, 0x22 } },
	{ "drop", 0, CFA, 2, { 0x31, 0x13 } },
	/* The stack of §2.5.1.3 for dup to rot: 17 on top of 29 on top of 1000. */
	{ "over", 0, 29, 7, { 0x0a, 0xe8, 3, 0x08, 29, 0x41, 0x14 } },
	{ "pick 2", 0, 1000, 8, { 0x0a, 0xe8, 3, 0x08, 29, 0x41, 0x15, 2 } },
	{ "swap", 0, 29, 7, { 0x0a, 0xe8, 3, 0x08, 29, 0x41, 0x16 } },
	{ "rot", 0, 29, 7, { 0x0a, 0xe8, 3, 0x08, 29, 0x41, 0x17 } },
	{ "rot, the third", 0, 17, 9, { 0x0a, 0xe8, 3, 0x08, 29, 0x41, 0x17, 0x13, 0x13 } },
	{ "abs", 0, 5, 3, { 0x09, 0xfb, 0x19 } },
	{ "and", 0, 8, 3, { 0x3c, 0x3a, 0x1a } },
	{ "div is signed", 0, (uint64_t)-3, 4, { 0x09, 0xfa, 0x32, 0x1b } },
	{ "div by 0", -EBADMSG, 0, 3, { 0x31, 0x30, 0x1b } },
	{ "INT64_MIN / -1",
	  0,
	  0x8000000000000000,
	  13,
	  { 0x0e, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x09, 0xff, 0x1b, 0x96 } },
	{ "minus", 0, (uint64_t)-1, 3, { 0x31, 0x32, 0x1c } },
	{ "mod", 0, 2, 3, { 0x35, 0x33, 0x1d } },
	{ "mod 0", -EBADMSG, 0, 3, { 0x31, 0x30, 0x1d } },
	{ "mul", 0, 12, 3, { 0x33, 0x34, 0x1e } },
	{ "neg", 0, (uint64_t)-1, 2, { 0x31, 0x1f } },
	{ "not", 0, (uint64_t)-2, 2, { 0x31, 0x20 } },
	{ "or", 0, 7, 3, { 0x36, 0x31, 0x21 } },
	{ "plus_uconst", 0, CFA + 200, 3, { 0x23, 0xc8, 1 } },
	{ "shl", 0, 8, 3, { 0x31, 0x33, 0x24 } },
	{ "shl by 64", 0, 0, 4, { 0x31, 0x08, 64, 0x24 } },
	{ "shr", 0, 0x0fffffffffffffff, 4, { 0x09, 0xff, 0x34, 0x25 } },
	{ "shra", 0, (uint64_t)-1, 4, { 0x09, 0xf0, 0x34, 0x26 } },
	{ "shra by 64", 0, (uint64_t)-1, 5, { 0x09, 0xf0, 0x08, 64, 0x26 } },
	{ "xor", 0, 5, 3, { 0x36, 0x33, 0x27 } },
	{ "le is signed", 0, 1, 4, { 0x09, 0xff, 0x30, 0x2c } },
	{ "ge", 0, 0, 4, { 0x09, 0xff, 0x30, 0x2a } },
	{ "eq", 0, 1, 3, { 0x31, 0x31, 0x29 } },
	{ "gt", 0, 1, 3, { 0x32, 0x31, 0x2b } },
	{ "lt", 0, 0, 3, { 0x32, 0x31, 0x2d } },
	{ "ne", 0, 1, 3, { 0x32, 0x31, 0x2e } },
	{ "skip", 0, 9, 5, { 0x39, 0x2f, 1, 0, 0x13 } },
	{ "skip to the end", 0, CFA, 3, { 0x2f, 0, 0 } },
	{ "skip beyond the end", -EBADMSG, 0, 3, { 0x2f, 1, 0 } },
	{ "skip to before the start", -EBADMSG, 0, 3, { 0x2f, 0xfc, 0xff } },
	{ "bra taken", 0, 9, 6, { 0x39, 0x31, 0x28, 1, 0, 0x13 } },
	{ "bra not taken", 0, CFA, 6, { 0x39, 0x30, 0x28, 1, 0, 0x13 } },
	{ "a loop ends", -E2BIG, 0, 3, { 0x2f, 0xfd, 0xff } },
	{ "a loop that pushes ends", -EBADMSG, 0, 4, { 0x31, 0x2f, 0xfc, 0xff } },
	{ "breg7", 0, 0x6ff8, 2, { 0x77, 0x78 } },
	{ "bregx 7", 0, 0x7008, 3, { 0x92, 7, 8 } },
	{ "breg0 is not known", -ENODATA, 0, 2, { 0x70, 0 } },
	{ "bregx 99", -ENOTSUP, 0, 3, { 0x92, 99, 0 } },
	{ "nop", 0, CFA, 1, { 0x96 } },
	/* §6.4.2: these have no meaning in call frame information. */
	{ "call_frame_cfa", -ENOTSUP, 0, 1, { 0x9c } },
	{ "push_object_address", -ENOTSUP, 0, 1, { 0x97 } },
	{ "call2", -ENOTSUP, 0, 3, { 0x98, 0, 0 } },
	{ "entry_value", -ENOTSUP, 0, 3, { 0xa3, 1, 0x50 } },
	{ "reserved", -ENOTSUP, 0, 1, { 0x01 } },
	{ "operand cut off", -EBADMSG, 0, 3, { 0x0e, 1, 2 } },
	{ "empty stack", -EBADMSG, 0, 1, { 0x13 } },
	{ "underflow", -EBADMSG, 0, 1, { 0x22 } },
	/*
	 * The expression in PLTs of GNU ld: rsp + 8 + ((rip & 15 >= 11) << 3), here with rip = 0xb.
	 */
	{ "plt", 0, 0x7010, 11, { 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22 } },
};

static void test_every_operator(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct uw_machine m = machine_of_seven();
		uint64_t cfa = CFA, value = 0;
		int err = uw_expr_run(&m, cases[i].in, cases[i].size, &cfa, &value);

		CHECK(err == cases[i].err, cases[i].name);
		CHECK(value == cases[i].value, cases[i].name);
	}
}

static void test_limits(void)
{
	struct uw_machine m = machine_of_seven();
	uint8_t many[257]; /* one more than the default limit */
	uint64_t value = 0;

	memset(many, 0x96, sizeof(many));
	many[0] = 0x31;
	CHECK(uw_expr_run(&m, many, 256, NULL, &value) == 0 && value == 1, "256 operations");
	CHECK(uw_expr_run(&m, many, 257, NULL, &value) == -E2BIG, "257");
	memset(many, 0x32, sizeof(many));
	CHECK(uw_expr_run(&m, many, UW_EXPR_STACK_MAX, NULL, &value) == 0 && value == 2,
	      "64 values");
	CHECK(uw_expr_run(&m, many, UW_EXPR_STACK_MAX + 1, NULL, &value) == -EBADMSG, "65");
	CHECK(uw_expr_run(&m, many, 0, NULL, &value) == -EBADMSG, "no value at all");
	CHECK(uw_expr_run(&m, (const uint8_t[]){ 0x06 }, 1, &(uint64_t){ 0xfff8 }, &value) ==
			      -EFAULT &&
		      m.missing == 0xfff8,
	      "the missing address is kept");
}

int main(void)
{
	test_every_operator();
	test_limits();
	return check_done();
}
