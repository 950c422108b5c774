/* unwinder/walk/expr.c: evaluates DWARF expressions of call-frame information (DWARF 5 §2.5). */
#include "unwinder/walk/expr.h"

#include <errno.h>
#include <stdbool.h>

#include "base/bytes.h"
#include "base/limits.h"

enum { /* DWARF 5 §7.7.1 */
       OP_ADDR = 0x03,
       OP_DEREF = 0x06,
       OP_CONST1U = 0x08,
       OP_CONST1S = 0x09,
       OP_CONST2U = 0x0a,
       OP_CONST2S = 0x0b,
       OP_CONST4U = 0x0c,
       OP_CONST4S = 0x0d,
       OP_CONST8U = 0x0e,
       OP_CONST8S = 0x0f,
       OP_CONSTU = 0x10,
       OP_CONSTS = 0x11,
       OP_DUP = 0x12,
       OP_DROP = 0x13,
       OP_OVER = 0x14,
       OP_PICK = 0x15,
       OP_SWAP = 0x16,
       OP_ROT = 0x17,
       OP_ABS = 0x19,
       OP_AND = 0x1a,
       OP_DIV = 0x1b,
       OP_MINUS = 0x1c,
       OP_MOD = 0x1d,
       OP_MUL = 0x1e,
       OP_NEG = 0x1f,
       OP_NOT = 0x20,
       OP_OR = 0x21,
       OP_PLUS = 0x22,
       OP_PLUS_UCONST = 0x23,
       OP_SHL = 0x24,
       OP_SHR = 0x25,
       OP_SHRA = 0x26,
       OP_XOR = 0x27,
       OP_BRA = 0x28,
       OP_EQ = 0x29,
       OP_GE = 0x2a,
       OP_GT = 0x2b,
       OP_LE = 0x2c,
       OP_LT = 0x2d,
       OP_NE = 0x2e,
       OP_SKIP = 0x2f,
       OP_LIT0 = 0x30,
       OP_LIT31 = 0x4f,
       OP_BREG0 = 0x70,
       OP_BREG31 = 0x8f,
       OP_BREGX = 0x92,
       OP_DEREF_SIZE = 0x94,
       OP_NOP = 0x96,
};

/* The expression's stack. err holds the first error; the caller checks it after each operator. */
struct stack {
	uint64_t value[UW_EXPR_STACK_MAX];
	unsigned int n;
	int err;
};

/* Push a value. -EBADMSG in s->err if the stack is full. */
static void push(struct stack *s, uint64_t value)
{
	if (s->n == UW_EXPR_STACK_MAX)
		s->err = -EBADMSG;
	else
		s->value[s->n++] = value;
}

/* Pop a value. 0, and -EBADMSG in s->err, if the stack is empty. */
static uint64_t pop(struct stack *s)
{
	if (!s->n) {
		s->err = -EBADMSG;
		return 0;
	}
	return s->value[--s->n];
}

/* Return the value that is depth entries below the top. */
static uint64_t from_top(struct stack *s, unsigned int depth)
{
	if (depth >= s->n) {
		s->err = -EBADMSG;
		return 0;
	}
	return s->value[s->n - 1 - depth];
}

/*
 * Execute an operator with two operands (DWARF 5 §2.5.1.4). Arithmetic is modulo 2^64; division
 * and comparison are signed, DW_OP_mod is unsigned.
 */
static void two(struct stack *s, uint8_t op)
{
	uint64_t b = pop(s), a = pop(s);
	int64_t sa = (int64_t)a, sb = (int64_t)b;

	if (s->err)
		return;
	switch (op) {
	case OP_AND:
		return push(s, a & b);
	case OP_DIV:
		if (!b)
			s->err = -EBADMSG;
		else
			push(s, sb == -1 ? -a : (uint64_t)(sa / sb));
		return;
	case OP_MINUS:
		return push(s, a - b);
	case OP_MOD:
		if (!b)
			s->err = -EBADMSG;
		else
			push(s, a % b);
		return;
	case OP_MUL:
		return push(s, a * b);
	case OP_OR:
		return push(s, a | b);
	case OP_PLUS:
		return push(s, a + b);
	case OP_SHL:
		return push(s, b < 64 ? a << b : 0);
	case OP_SHR:
		return push(s, b < 64 ? a >> b : 0);
	case OP_SHRA: /* >> of a negative number is arithmetic in gcc and clang */
		return push(s, (uint64_t)(sa >> (b < 64 ? b : 63)));
	case OP_XOR:
		return push(s, a ^ b);
	case OP_EQ:
		return push(s, sa == sb);
	case OP_GE:
		return push(s, sa >= sb);
	case OP_GT:
		return push(s, sa > sb);
	case OP_LE:
		return push(s, sa <= sb);
	case OP_LT:
		return push(s, sa < sb);
	default: /* OP_NE */
		return push(s, sa != sb);
	}
}

/* Replace the address on top of the stack by size bytes of memory, zero-extended. */
static void deref(struct stack *s, struct uw_machine *machine, unsigned int size)
{
	uint64_t addr = pop(s), value;

	if (s->err)
		return;
	if (size != 1 && size != 2 && size != 4 && size != 8)
		s->err = -EBADMSG;
	else
		s->err = uw_machine_read(machine, addr, size, &value);
	if (!s->err)
		push(s, value);
}

/* Push the value of a register plus off. */
static void push_reg(struct stack *s, const struct uw_machine *machine, uint64_t reg, int64_t off)
{
	uint64_t value;

	if (reg >= UW_REGS_MAX)
		s->err = -ENOTSUP;
	else if (!s->err)
		s->err = uw_machine_reg(machine, (unsigned int)reg, &value);
	if (!s->err)
		push(s, value + (uint64_t)off);
}

/*
 * Move the position by so many bytes, within [start, b->end]. A jump to the end ends the
 * expression.
 */
static void jump(struct uw_bytes *b, const uint8_t *start, int16_t by)
{
	if (b->err)
		return;
	if (by < 0 ? -(int64_t)by > b->pos - start : by > b->end - b->pos)
		uw_bytes_fail(b);
	else
		b->pos += by;
}

int uw_expr_run(struct uw_machine *machine, const uint8_t *expr, size_t size, const uint64_t *cfa,
		uint64_t *out)
{
	struct uw_bytes b = uw_bytes_of(expr, size);
	struct stack s = { .n = 0 };
	uint64_t x, y, z;
	int16_t by;

	if (cfa)
		push(&s, *cfa);
	for (unsigned int ops = 0; !uw_bytes_done(&b) && !s.err; ops++) {
		uint8_t op = uw_bytes_u8(&b);

		if (uw_limit_exceeded(operations, ops + 1))
			return -E2BIG;
		if (op >= OP_LIT0 && op <= OP_LIT31) {
			push(&s, (uint64_t)op - OP_LIT0);
			continue;
		}
		if (op >= OP_BREG0 && op <= OP_BREG31) {
			push_reg(&s, machine, (uint64_t)op - OP_BREG0, uw_bytes_sleb(&b));
			continue;
		}
		switch (op) {
		case OP_ADDR:
			push(&s, uw_bytes_u64(&b) + machine->bias);
			break;
		case OP_DEREF:
			deref(&s, machine, 8);
			break;
		case OP_DEREF_SIZE:
			deref(&s, machine, uw_bytes_u8(&b));
			break;
		case OP_CONST1U:
			push(&s, uw_bytes_u8(&b));
			break;
		case OP_CONST1S:
			push(&s, (uint64_t)(int8_t)uw_bytes_u8(&b));
			break;
		case OP_CONST2U:
			push(&s, uw_bytes_u16(&b));
			break;
		case OP_CONST2S:
			push(&s, (uint64_t)(int16_t)uw_bytes_u16(&b));
			break;
		case OP_CONST4U:
			push(&s, uw_bytes_u32(&b));
			break;
		case OP_CONST4S:
			push(&s, (uint64_t)(int32_t)uw_bytes_u32(&b));
			break;
		case OP_CONST8U:
		case OP_CONST8S:
			push(&s, uw_bytes_u64(&b));
			break;
		case OP_CONSTU:
			push(&s, uw_bytes_uleb(&b));
			break;
		case OP_CONSTS:
			push(&s, (uint64_t)uw_bytes_sleb(&b));
			break;
		case OP_DUP:
			push(&s, from_top(&s, 0));
			break;
		case OP_DROP:
			(void)pop(&s);
			break;
		case OP_OVER:
			push(&s, from_top(&s, 1));
			break;
		case OP_PICK:
			push(&s, from_top(&s, uw_bytes_u8(&b)));
			break;
		case OP_SWAP:
			x = pop(&s);
			y = pop(&s);
			push(&s, x);
			push(&s, y);
			break;
		case OP_ROT: /* the top value moves below the two values beneath it */
			x = pop(&s);
			y = pop(&s);
			z = pop(&s);
			push(&s, x);
			push(&s, z);
			push(&s, y);
			break;
		case OP_ABS:
			x = pop(&s);
			push(&s, (int64_t)x < 0 ? -x : x);
			break;
		case OP_NEG:
			push(&s, -pop(&s));
			break;
		case OP_NOT:
			push(&s, ~pop(&s));
			break;
		case OP_PLUS_UCONST:
			x = pop(&s);
			push(&s, x + uw_bytes_uleb(&b));
			break;
		case OP_AND:
		case OP_DIV:
		case OP_MINUS:
		case OP_MOD:
		case OP_MUL:
		case OP_OR:
		case OP_PLUS:
		case OP_SHL:
		case OP_SHR:
		case OP_SHRA:
		case OP_XOR:
		case OP_EQ:
		case OP_GE:
		case OP_GT:
		case OP_LE:
		case OP_LT:
		case OP_NE:
			two(&s, op);
			break;
		case OP_SKIP:
			by = (int16_t)uw_bytes_u16(&b);
			jump(&b, expr, by);
			break;
		case OP_BRA:
			by = (int16_t)uw_bytes_u16(&b);
			if (pop(&s))
				jump(&b, expr, by);
			break;
		case OP_BREGX:
			x = uw_bytes_uleb(&b);
			push_reg(&s, machine, x, uw_bytes_sleb(&b));
			break;
		case OP_NOP:
			break;
		default:
			return -ENOTSUP;
		}
	}
	if (b.err || s.err)
		return b.err ? b.err : s.err;
	if (!s.n)
		return -EBADMSG;
	*out = s.value[s.n - 1];
	return 0;
}
