/*
 * unwinder/cfi/cfi.c: runs the instructions of CIEs and FDEs to find the rule at an address.
 *
 * Two interpreters share the work: a fast one for the instructions that compilers usually write,
 * and a general one for everything else. Both give the same result.
 */
#include "unwinder/cfi/cfi.h"

#include <errno.h>
#include <string.h>

#include "base/limits.h"
#include "unwinder/cfi/cfa_ops.h"
#include "unwinder/cfi/pointer.h"

/*
 * DWARF does not limit the nesting of DW_CFA_remember_state. No file of a full Debian disk
 * nests deeper than 4.
 */
#define REMEMBER_MAX 32

/*
 * Limits on the work that one lookup can cost. The author of a file decides how long its
 * programs are, so a program that costs more is refused: CIE_COST_MAX for a CIE, the limit of
 * instructions for a CIE and an FDE together. An instruction costs one unit. A row that is
 * remembered or restored costs one more unit for each register beyond ROW_FREE.
 *
 * Of 5 million FDEs on one disk, the longest CIE has 20 instructions and the longest FDE
 * (libcufft 12) has 31,438.
 */
#define CIE_COST_MAX 256u
#define ROW_FREE     8

/* A row while its program runs. regs[i] is valid only if bit i of mentioned is set. */
struct row {
	uint64_t mentioned;
	int64_t cfa_off; /* retained while an expression applies: see DW_CFA_def_cfa_register */
	const uint8_t *cfa_expr;
	uint32_t cfa_size; /* of the expression; 0: the CFA is cfa_reg + cfa_off */
	uint8_t cfa_reg;
	bool cfa_set;
	bool ra_signed;
	struct uw_reg_rule regs[UW_REGS_MAX];
};

/* The state of the interpreter. */
struct run {
	const struct uw_cie *cie;
	struct uw_bases bases;
	uint64_t loc;	    /* start of the current row */
	uint64_t next_loc;  /* start of the next row, once an instruction advances */
	unsigned int cost;  /* so far */
	unsigned int limit; /* of the cost */
	unsigned int depth;
	struct row row;
	struct row initial; /* row after the CIE's instructions; DW_CFA_restore reads it */
	struct row saved[REMEMBER_MAX];
};

/* ---- rows ---------------------------------------------------------------------- */

/*
 * Return the place for the rule of reg in the current row, and mark the register as mentioned.
 * For registers beyond UW_REGS_MAX (vector and pseudo-registers), which rows do not store,
 * return spare.
 */
static struct uw_reg_rule *rule_of(struct run *r, uint64_t reg, struct uw_reg_rule *spare)
{
	if (reg >= UW_REGS_MAX)
		return spare;
	r->row.mentioned |= (uint64_t)1 << reg;
	return &r->row.regs[reg];
}

/* Set the rule of reg to one that has an offset or no operand. */
static void set_off(struct run *r, uint64_t reg, uint8_t kind, int64_t off)
{
	struct uw_reg_rule spare;

	*rule_of(r, reg, &spare) = (struct uw_reg_rule){ .off = off, .kind = kind };
}

/* Set the rule of reg to an expression, which is borrowed from the section. */
static void set_expr(struct run *r, uint64_t reg, uint8_t kind, struct uw_bytes expr)
{
	struct uw_reg_rule spare;

	*rule_of(r, reg, &spare) = (struct uw_reg_rule){ .expr = expr.pos,
							 .size = (uint32_t)uw_bytes_left(&expr),
							 .kind = kind };
}

/* DW_CFA_restore: give reg the rule that it had after the CIE's instructions. */
static void restore(struct run *r, uint64_t reg)
{
	uint64_t bit;

	if (reg >= UW_REGS_MAX)
		return;
	bit = (uint64_t)1 << reg;
	r->row.mentioned &= ~bit;
	if (r->initial.mentioned & bit) {
		r->row.mentioned |= bit;
		r->row.regs[reg] = r->initial.regs[reg];
	}
}

/* Copy a row with the valid rules only: most rows mention two of 33 registers. */
static void copy_row(struct row *to, const struct row *from)
{
	memcpy(to, from, offsetof(struct row, regs));
	for (uint64_t left = from->mentioned; left; left &= left - 1) {
		int i = __builtin_ctzll(left);

		to->regs[i] = from->regs[i];
	}
}

/* Add what copying a row costs beyond the instruction itself. */
static void charge_row(struct run *r, const struct row *row)
{
	unsigned int n = (unsigned int)__builtin_popcountll(row->mentioned);

	r->cost += n > ROW_FREE ? n - ROW_FREE : 0;
}

/* DW_CFA_remember_state. The caller has checked that the stack has room. */
static void remember(struct run *r)
{
	charge_row(r, &r->row);
	copy_row(&r->saved[r->depth++], &r->row);
}

/* DW_CFA_restore_state. The caller has checked that the stack is not empty. */
static void recall(struct run *r)
{
	copy_row(&r->row, &r->saved[--r->depth]);
	charge_row(r, &r->row);
}

/* Define the CFA as reg + off. -ENOTSUP for a register that rows do not store. */
static int set_cfa(struct run *r, uint64_t reg, int64_t off)
{
	if (reg >= UW_REGS_MAX)
		return -ENOTSUP;
	r->row.cfa_reg = (uint8_t)reg;
	r->row.cfa_off = off;
	r->row.cfa_size = 0;
	r->row.cfa_set = true;
	return 0;
}

/*
 * Return value times the data alignment factor. Both numbers come from the file: the product
 * wraps as it would in a register.
 */
static int64_t factored(const struct uw_cie *cie, uint64_t value)
{
	return (int64_t)(value * (uint64_t)cie->data_align);
}

/* Read a block: a ULEB128 length and that many bytes (DWARF 5 §7.5.5, DW_FORM_exprloc). */
static struct uw_bytes block(struct uw_bytes *b)
{
	uint64_t size = uw_bytes_uleb(b);

	return uw_bytes_take(b, size);
}

/* ---- instructions -------------------------------------------------------------- */

/*
 * Execute one instruction that does not advance the location (DWARF 5 §6.4.2.2 to §6.4.2.5).
 * The caller checks b->err.
 */
static int set_rule(struct run *r, uint8_t op, struct uw_bytes *b)
{
	const struct uw_cie *cie = r->cie;
	struct uw_bytes expr;
	uint64_t reg;

	switch (op) {
	case DW_CFA_nop:
		return 0;
	case DW_CFA_offset_extended:
		reg = uw_bytes_uleb(b);
		set_off(r, reg, UW_RULE_AT_CFA, factored(cie, uw_bytes_uleb(b)));
		return 0;
	case DW_CFA_offset_extended_sf:
		reg = uw_bytes_uleb(b);
		set_off(r, reg, UW_RULE_AT_CFA, factored(cie, (uint64_t)uw_bytes_sleb(b)));
		return 0;
	case DW_CFA_GNU_negative_offset_extended:
		reg = uw_bytes_uleb(b);
		set_off(r, reg, UW_RULE_AT_CFA, factored(cie, -uw_bytes_uleb(b)));
		return 0;
	case DW_CFA_val_offset:
		reg = uw_bytes_uleb(b);
		set_off(r, reg, UW_RULE_CFA_PLUS, factored(cie, uw_bytes_uleb(b)));
		return 0;
	case DW_CFA_val_offset_sf:
		reg = uw_bytes_uleb(b);
		set_off(r, reg, UW_RULE_CFA_PLUS, factored(cie, (uint64_t)uw_bytes_sleb(b)));
		return 0;
	case DW_CFA_restore_extended:
		restore(r, uw_bytes_uleb(b));
		return 0;
	case DW_CFA_undefined:
		set_off(r, uw_bytes_uleb(b), UW_RULE_UNDEFINED, 0);
		return 0;
	case DW_CFA_same_value:
		set_off(r, uw_bytes_uleb(b), UW_RULE_SAME, 0);
		return 0;
	case DW_CFA_register: {
		struct uw_reg_rule spare, *rule;
		uint64_t from;

		reg = uw_bytes_uleb(b);
		from = uw_bytes_uleb(b);
		rule = rule_of(r, reg, &spare);
		/* Rows do not store the source register, so the value cannot be recovered. */
		*rule = (struct uw_reg_rule){ .kind = UW_RULE_UNDEFINED };
		if (from < UW_REGS_MAX) {
			rule->kind = UW_RULE_REGISTER;
			rule->from = (uint8_t)from;
		} else if (reg == cie->ra) {
			return -ENOTSUP; /* UNDEFINED would mark the outermost frame */
		}
		return 0;
	}
	case DW_CFA_expression:
	case DW_CFA_val_expression:
		reg = uw_bytes_uleb(b);
		expr = block(b);
		set_expr(r, reg, op == DW_CFA_expression ? UW_RULE_AT_EXPR : UW_RULE_EXPR, expr);
		return 0;
	case DW_CFA_def_cfa:
		reg = uw_bytes_uleb(b);
		return set_cfa(r, reg, (int64_t)uw_bytes_uleb(b));
	case DW_CFA_def_cfa_sf:
		reg = uw_bytes_uleb(b);
		return set_cfa(r, reg, factored(cie, (uint64_t)uw_bytes_sleb(b)));
	case DW_CFA_def_cfa_register:
		/*
		 * §6.4.2.2 requires that the current rule is a register and an offset. Some
		 * assembly code also uses the instruction after an expression (libgcrypt's
		 * Camellia and SHA-1), and every reader then uses the last offset again.
		 */
		reg = uw_bytes_uleb(b);
		if (!r->row.cfa_set)
			return -EBADMSG;
		return set_cfa(r, reg, r->row.cfa_off);
	case DW_CFA_def_cfa_offset:
		if (!r->row.cfa_set || r->row.cfa_size)
			return -EBADMSG;
		return set_cfa(r, r->row.cfa_reg, (int64_t)uw_bytes_uleb(b));
	case DW_CFA_def_cfa_offset_sf:
		if (!r->row.cfa_set || r->row.cfa_size)
			return -EBADMSG;
		return set_cfa(r, r->row.cfa_reg, factored(cie, (uint64_t)uw_bytes_sleb(b)));
	case DW_CFA_def_cfa_expression:
		expr = block(b);
		r->row.cfa_expr = expr.pos;
		r->row.cfa_size = (uint32_t)uw_bytes_left(&expr);
		r->row.cfa_set = true;
		return r->row.cfa_size || b->err ? 0 : -EBADMSG;
	case DW_CFA_remember_state:
		if (r->depth == REMEMBER_MAX)
			return -ENOTSUP;
		remember(r);
		return 0;
	case DW_CFA_restore_state:
		if (!r->depth)
			return -EBADMSG;
		recall(r);
		return 0;
	case DW_CFA_GNU_args_size: /* only used for landing pads */
		(void)uw_bytes_uleb(b);
		return 0;
	case DW_CFA_AARCH64_negate_ra_state:
	case DW_CFA_AARCH64_negate_ra_state_with_pc:
		r->row.ra_signed = !r->row.ra_signed;
		return 0;
	default:
		return -ENOTSUP;
	}
}

#define STEP_MAX       ((uint64_t)1 << 24) /* more than 65,535 units of CODE_ALIGN_MAX */
#define CODE_ALIGN_MAX 256

/*
 * Execute the common instructions with small operands, up to the first one of another kind, or
 * the first one that advances beyond lookup. Rows before lookup are not needed. The effect on r
 * is that of run_row, which executes the rest.
 */
static void run_common(struct run *r, struct uw_bytes *b, uint64_t lookup)
{
	const uint64_t code_align = r->cie->code_align;
	const uint8_t *p = b->pos, *end = b->end;
	struct row *row = &r->row;

	/* With these limits no location can wrap around. */
	if (b->err || code_align > CODE_ALIGN_MAX || lookup < r->loc ||
	    lookup > UINT64_MAX - STEP_MAX)
		return;
	for (; end - p >= 3 && r->cost < r->limit; r->cost++) {
		uint8_t op = p[0], low = op & 0x3f;
		uint64_t delta = 0;
		size_t size = 1;

		switch (op & 0xc0) {
		case DW_CFA_advance_loc:
			delta = low;
			break;
		case DW_CFA_offset:
			if (low >= UW_REGS_MAX || p[1] >= 0x80)
				goto out;
			row->mentioned |= (uint64_t)1 << low;
			row->regs[low] = (struct uw_reg_rule){ .off = factored(r->cie, p[1]),
							       .kind = UW_RULE_AT_CFA };
			size = 2;
			break;
		case DW_CFA_restore:
			restore(r, low);
			break;
		default:
			switch (op) {
			case DW_CFA_nop:
				break;
			case DW_CFA_advance_loc1:
				delta = p[1];
				size = 2;
				break;
			case DW_CFA_advance_loc2:
				delta = p[1] | (uint32_t)p[2] << 8;
				size = 3;
				break;
			case DW_CFA_def_cfa_offset:
				/*
				 * The offset has two bytes in functions with some local
				 * variables.
				 */
				size = p[1] < 0x80 ? 2 : 3;
				if (!row->cfa_set || row->cfa_size || (size == 3 && p[2] >= 0x80))
					goto out;
				row->cfa_off = size == 2 ? p[1] : (p[1] & 0x7f) | p[2] << 7;
				break;
			case DW_CFA_def_cfa_register:
				if (!row->cfa_set || p[1] >= UW_REGS_MAX)
					goto out;
				row->cfa_reg = p[1];
				row->cfa_size = 0;
				size = 2;
				break;
			case DW_CFA_def_cfa:
				if (p[1] >= UW_REGS_MAX || p[2] >= 0x80)
					goto out;
				row->cfa_set = true;
				row->cfa_reg = p[1];
				row->cfa_off = p[2];
				row->cfa_size = 0;
				size = 3;
				break;
			case DW_CFA_remember_state:
				if (r->depth == REMEMBER_MAX)
					goto out;
				remember(r);
				break;
			case DW_CFA_restore_state:
				if (!r->depth)
					goto out;
				recall(r);
				break;
			default:
				goto out;
			}
		}
		delta *= code_align;
		if (delta > lookup - r->loc)
			goto out;
		r->loc += delta;
		p += size;
	}
out:
	b->pos = p;
}

/*
 * Execute instructions until the program leaves the row at r->loc, and set r->next_loc to the
 * start of the next row. At the end of the program r->next_loc is UINT64_MAX. -EBADMSG,
 * -ENOTSUP.
 */
static int run_row(struct run *r, struct uw_bytes *b)
{
	r->next_loc = UINT64_MAX;
	while (!uw_bytes_done(b)) {
		uint8_t op = uw_bytes_u8(b);
		uint64_t delta = 0, to;
		int err = 0;

		if (++r->cost > r->limit) {
			if (r->limit == CIE_COST_MAX)
				return -ENOTSUP;
			uw_limit_reach(instructions);
			return -E2BIG;
		}
		switch (op & 0xc0) {
		case DW_CFA_advance_loc:
			delta = op & 0x3f;
			break;
		case DW_CFA_offset:
			set_off(r, op & 0x3f, UW_RULE_AT_CFA, factored(r->cie, uw_bytes_uleb(b)));
			continue;
		case DW_CFA_restore:
			restore(r, op & 0x3f);
			continue;
		default:
			switch (op) {
			case DW_CFA_set_loc:
				err = uw_pointer_read(b, &r->bases, r->cie->fde_encoding, &to);
				if (err)
					return err;
				/*
				 * DWARF 5 §6.4.2.1: "the new location value is always greater
				 * than the current one"
				 */
				if (to < r->loc)
					return -EBADMSG;
				if (to == r->loc)
					continue;
				r->next_loc = to;
				return 0;
			case DW_CFA_advance_loc1:
				delta = uw_bytes_u8(b);
				break;
			case DW_CFA_advance_loc2:
				delta = uw_bytes_u16(b);
				break;
			case DW_CFA_advance_loc4:
				delta = uw_bytes_u32(b);
				break;
			case DW_CFA_MIPS_advance_loc8:
				delta = uw_bytes_u64(b);
				break;
			default:
				err = set_rule(r, op, b);
				if (err)
					return b->err ? b->err : err;
				continue;
			}
		}
		if (b->err)
			return b->err;
		if (__builtin_mul_overflow(delta, r->cie->code_align, &delta) ||
		    __builtin_add_overflow(r->loc, delta, &to))
			return -EBADMSG;
		if (delta) {
			r->next_loc = to;
			return 0;
		}
	}
	return b->err;
}

/*
 * Execute a CIE's instructions if they have the form that compilers usually write:
 * DW_CFA_def_cfa, nearly always DW_CFA_offset of the return address, and padding. Return false
 * and leave r unchanged for any other program.
 */
static bool start_usually(struct run *r, const struct uw_bytes *b)
{
	const uint8_t *p = b->pos, *end = b->end;
	uint8_t reg = UW_REGS_MAX, n_ops = 1, off = 0;

	if (b->err || end - p < 3 || p[0] != DW_CFA_def_cfa || p[1] >= UW_REGS_MAX || p[2] >= 0x80)
		return false;
	p += 3;
	if (end - p >= 2 && (p[0] & 0xc0) == DW_CFA_offset && (p[0] & 0x3f) < UW_REGS_MAX &&
	    p[1] < 0x80) {
		reg = p[0] & 0x3f;
		off = p[1];
		p += 2;
		n_ops++;
	}
	for (; p < end; p++, n_ops++)
		if (*p != DW_CFA_nop || n_ops == UINT8_MAX)
			return false;
	if (reg < UW_REGS_MAX) {
		r->row.mentioned = (uint64_t)1 << reg;
		r->row.regs[reg] = (struct uw_reg_rule){ .off = factored(r->cie, off),
							 .kind = UW_RULE_AT_CFA };
	}
	r->row.cfa_set = true;
	r->row.cfa_reg = b->pos[1];
	r->row.cfa_off = b->pos[2];
	r->cost = n_ops;
	return true;
}

/* Prepare r for an FDE: execute the CIE's instructions and save the row they leave. */
static int start_run(struct run *r, const struct uw_cfi *cfi, const struct uw_fde *fde)
{
	struct uw_bytes initial = fde->cie.program;
	int err;

	if (fde->cie.ra >= UW_REGS_MAX)
		return -ENOTSUP;
	r->cie = &fde->cie;
	r->bases = uw_cfi_bases(cfi, fde->cie.address_size);
	r->bases.func = fde->start;
	r->bases.has_func = true;
	r->cost = 0;
	r->limit = CIE_COST_MAX;
	r->depth = 0;
	r->loc = 0;
	memset(&r->row, 0, offsetof(struct row, regs));
	memset(&r->initial, 0, offsetof(struct row, regs));
	if (!start_usually(r, &initial)) {
		run_common(r, &initial, 0);
		err = run_row(r, &initial);
		if (err)
			return err;
		if (r->next_loc != UINT64_MAX) /* initial instructions must not advance */
			return -EBADMSG;
	}
	r->limit = (unsigned int)uw_limit(instructions);
	r->loc = fde->start;
	copy_row(&r->initial, &r->row);
	return 0;
}

/* Convert the current row to a rule. -EBADMSG if it has no CFA and is not the outermost frame. */
static int finish_row(const struct run *r, const struct uw_fde *fde, struct uw_rule *out)
{
	unsigned int n = 0;

	if (!r->row.cfa_set) {
		/*
		 * Without a CFA no register can be recovered. The row is valid only if it marks
		 * the outermost frame.
		 */
		if (!(r->row.mentioned >> fde->cie.ra & 1) ||
		    r->row.regs[fde->cie.ra].kind != UW_RULE_UNDEFINED)
			return -EBADMSG;
	}
	out->start = fde->start;
	out->end = fde->end;
	out->cfa_size = r->row.cfa_size;
	if (r->row.cfa_size)
		out->cfa_expr = r->row.cfa_expr;
	else
		out->cfa_off = r->row.cfa_off;
	out->cfa_kind = UW_CFA_PLAIN;
	out->cfa_reg = r->row.cfa_reg;
	out->ra = (uint8_t)fde->cie.ra;
	out->stepper = UW_STEPPER_CFI;
	out->signal = fde->cie.signal;
	out->ra_signed = r->row.ra_signed;
	for (uint64_t left = r->row.mentioned; left; left &= left - 1) {
		int i = __builtin_ctzll(left);

		out->regs[n] = r->row.regs[i];
		out->regs[n++].reg = (uint8_t)i;
	}
	out->n_regs = (uint8_t)n;
	return 0;
}

int uw_cfi_rule(const struct uw_cfi *cfi, const struct uw_fde *fde, uint64_t lookup,
		struct uw_rule *out)
{
	struct run r;
	struct uw_bytes program = fde->program;
	int err = start_run(&r, cfi, fde);

	if (err)
		return err;
	/* For padding behind the FDE, use the FDE's last row. */
	if (lookup >= fde->end && fde->end > fde->start)
		lookup = fde->end - 1;
	for (;;) {
		run_common(&r, &program, lookup);
		err = run_row(&r, &program);
		if (err)
			return err;
		if (r.next_loc > lookup)
			return finish_row(&r, fde, out);
		r.loc = r.next_loc;
	}
}

int uw_cfi_rows(const struct uw_cfi *cfi, const struct uw_fde *fde, uw_row_fn fn, void *ctx)
{
	struct run r;
	struct uw_bytes program = fde->program;
	struct uw_rule rule;
	int err = start_run(&r, cfi, fde);

	while (!err && r.loc < fde->end) {
		err = run_row(&r, &program);
		if (!err)
			err = finish_row(&r, fde, &rule);
		if (!err)
			err = fn(ctx, r.loc, r.next_loc < fde->end ? r.next_loc : fde->end, &rule);
		r.loc = r.next_loc;
	}
	return err;
}
