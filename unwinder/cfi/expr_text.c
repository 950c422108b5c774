/* unwinder/cfi/expr_text.c: writes DWARF expressions as text in readelf's format. */
#include "unwinder/cfi/expr_text.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/bytes.h"
#include "unwinder/unwinder.h"

enum operand { NONE, U1, S1, U2, S2, U4, S4, U8, S8, ULEB, SLEB, ADDR, BREG, BREGX };

/*
 * The operators that call-frame information may use (DWARF 5 §7.7.1), except DW_OP_lit and
 * DW_OP_breg.
 */
static const struct {
	uint8_t op, operand;
	const char *name;
} ops[] = {
	{ 0x03, ADDR, "addr" },	    { 0x06, NONE, "deref" },	   { 0x08, U1, "const1u" },
	{ 0x09, S1, "const1s" },    { 0x0a, U2, "const2u" },	   { 0x0b, S2, "const2s" },
	{ 0x0c, U4, "const4u" },    { 0x0d, S4, "const4s" },	   { 0x0e, U8, "const8u" },
	{ 0x0f, S8, "const8s" },    { 0x10, ULEB, "constu" },	   { 0x11, SLEB, "consts" },
	{ 0x12, NONE, "dup" },	    { 0x13, NONE, "drop" },	   { 0x14, NONE, "over" },
	{ 0x15, U1, "pick" },	    { 0x16, NONE, "swap" },	   { 0x17, NONE, "rot" },
	{ 0x19, NONE, "abs" },	    { 0x1a, NONE, "and" },	   { 0x1b, NONE, "div" },
	{ 0x1c, NONE, "minus" },    { 0x1d, NONE, "mod" },	   { 0x1e, NONE, "mul" },
	{ 0x1f, NONE, "neg" },	    { 0x20, NONE, "not" },	   { 0x21, NONE, "or" },
	{ 0x22, NONE, "plus" },	    { 0x23, ULEB, "plus_uconst" }, { 0x24, NONE, "shl" },
	{ 0x25, NONE, "shr" },	    { 0x26, NONE, "shra" },	   { 0x27, NONE, "xor" },
	{ 0x28, S2, "bra" },	    { 0x29, NONE, "eq" },	   { 0x2a, NONE, "ge" },
	{ 0x2b, NONE, "gt" },	    { 0x2c, NONE, "le" },	   { 0x2d, NONE, "lt" },
	{ 0x2e, NONE, "ne" },	    { 0x2f, S2, "skip" },	   { 0x92, BREGX, "bregx" },
	{ 0x94, U1, "deref_size" }, { 0x96, NONE, "nop" },
};

/*
 * Read the operands of an operator and write them to out, as snprintf does. The caller checks
 * b->err.
 */
static int operand_text(uint16_t machine, uint8_t op, enum operand operand, struct uw_bytes *b,
			char *out, size_t size)
{
	uint64_t reg;

	switch (operand) {
	case NONE:
		return 0;
	case U1:
		return snprintf(out, size, ": %u", uw_bytes_u8(b));
	case S1:
		return snprintf(out, size, ": %d", (int8_t)uw_bytes_u8(b));
	case U2:
		return snprintf(out, size, ": %u", uw_bytes_u16(b));
	case S2:
		return snprintf(out, size, ": %d", (int16_t)uw_bytes_u16(b));
	case U4:
		return snprintf(out, size, ": %" PRIu32, uw_bytes_u32(b));
	case S4:
		return snprintf(out, size, ": %" PRId32, (int32_t)uw_bytes_u32(b));
	case U8:
		return snprintf(out, size, ": %" PRIu64, uw_bytes_u64(b));
	case S8:
		return snprintf(out, size, ": %" PRId64, (int64_t)uw_bytes_u64(b));
	case ULEB:
		return snprintf(out, size, ": %" PRIu64, uw_bytes_uleb(b));
	case SLEB:
		return snprintf(out, size, ": %" PRId64, uw_bytes_sleb(b));
	case ADDR:
		return snprintf(out, size, ": %" PRIx64, uw_bytes_u64(b));
	case BREG:
		return snprintf(out, size, "%u (%s): %" PRId64, op - 0x70,
				uw_reg_name(machine, op - 0x70u), uw_bytes_sleb(b));
	case BREGX:
		reg = uw_bytes_uleb(b);
		return snprintf(out, size, ": %" PRIu64 " (%s) %" PRId64, reg,
				uw_reg_name(machine, reg < UW_REGS_MAX ? (unsigned int)reg : 255),
				uw_bytes_sleb(b));
	}
	return 0;
}

void uw_expr_text(uint16_t machine, const uint8_t *expr, size_t length, char *out, size_t size)
{
	struct uw_bytes b = uw_bytes_of(expr, length);
	size_t at = 0;

	out[0] = '\0';
	while (!uw_bytes_done(&b)) {
		uint8_t op = uw_bytes_u8(&b);
		enum operand operand = NONE;
		char name[32] = "", text[128];
		int n;

		if (op >= 0x30 && op <= 0x4f) {
			(void)snprintf(name, sizeof(name), "lit%u", op - 0x30);
		} else if (op >= 0x70 && op <= 0x8f) {
			(void)snprintf(name, sizeof(name), "breg");
			operand = BREG;
		} else {
			for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
				if (ops[i].op == op) {
					(void)snprintf(name, sizeof(name), "%s", ops[i].name);
					operand = ops[i].operand;
				}
			}
		}
		if (!name[0]) {
			(void)snprintf(out + at, size - at, "%s(unknown operator 0x%02x)",
				       at ? "; " : "", op);
			return;
		}
		text[0] = '\0';
		(void)operand_text(machine, op, operand, &b, text, sizeof(text));
		if (b.err)
			(void)snprintf(text, sizeof(text), " (cut short)");
		n = snprintf(out + at, size - at, "%sDW_OP_%s%s", at ? "; " : "", name, text);
		if (n < 0 || (size_t)n >= size - at)
			return;
		at += (size_t)n;
	}
}
