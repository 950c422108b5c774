/*
 * unwinder/table/row.c: converts a rule to a packed one with the places of saved registers, and
 * back.
 */
#include "unwinder/table/row.h"

#include <errno.h>

#include "base/bytes.h"

#define CFA_MAX (((int64_t)1 << 23) - 1) /* × 8 */

/* ---- expressions that a packed rule can express ------------------------------------- */

enum { /* DWARF 5 §7.7.1 */
       OP_DEREF = 0x06,
       OP_AND = 0x1a,
       OP_PLUS = 0x22,
       OP_PLUS_UCONST = 0x23,
       OP_SHL = 0x24,
       OP_GE = 0x2a,
       OP_LIT0 = 0x30,
       OP_BREG0 = 0x70,
};

/* A CFA as a packed rule expresses it. */
struct cfa {
	uint64_t packed; /* the kind; for PLT its numbers, too */
	uint8_t reg;
	int64_t off;
	int16_t add; /* for DEREF */
};

/* Convert an offset to a place, in units of 8 bytes. -ENOTSUP: it does not fit. */
static int place_of(int64_t off, int16_t *out)
{
	if (off % 8 || off / 8 < INT16_MIN || off / 8 >= TABLE_UNDEFINED)
		return -ENOTSUP;
	*out = (int16_t)(off / 8);
	return 0;
}

/* Read one operation and return whether it is op. */
static bool take_op(struct uw_bytes *b, uint8_t op)
{
	return uw_bytes_u8(b) == op && !b->err;
}

/*
 * Read one of 32 consecutive operations, DW_OP_lit0… or DW_OP_breg0…, and return its number in
 * *out.
 */
static bool take_one_of(struct uw_bytes *b, uint8_t first, uint8_t *out)
{
	*out = (uint8_t)(uw_bytes_u8(b) - first);
	return !b->err && *out < 32;
}

/* Read a DW_OP_breg operation with its offset. */
static bool take_breg(struct uw_bytes *b, uint8_t *reg, int64_t *off)
{
	bool is = take_one_of(b, OP_BREG0, reg);

	*off = uw_bytes_sleb(b);
	return is && !b->err;
}

/*
 * Recognize bregR N; deref; [plus_uconst M]. gcc writes this where it has realigned the stack, and
 * assembly where the old stack pointer is in a slot (ld.so, OpenSSL).
 */
static bool is_deref(const struct uw_arch *arch, struct uw_bytes b, struct cfa *out)
{
	uint64_t add = 0;

	if (!take_breg(&b, &out->reg, &out->off) || !take_op(&b, OP_DEREF))
		return false;
	if (!uw_bytes_done(&b)) {
		if (!take_op(&b, OP_PLUS_UCONST))
			return false;
		add = uw_bytes_uleb(&b);
	}
	out->packed = TABLE_DEREF;
	return uw_bytes_done(&b) && !b.err && add <= INT32_MAX &&
	       !place_of((int64_t)add, &out->add) && out->reg < arch->n_regs;
}

/*
 * Recognize breg sp N; breg pc 0; lit mask; and; lit least; ge; lit shift; shl; plus. bfd and gold
 * describe .plt in this way: its entries of 16 bytes push in their middle. least is 11; in the
 * forms with endbr64 or bnd it is 10, 9 or 5.
 */
static bool is_plt(const struct uw_arch *arch, struct uw_bytes b, struct cfa *out)
{
	uint8_t pc, mask, least, shift;
	int64_t zero;

	if (!take_breg(&b, &out->reg, &out->off) || !take_breg(&b, &pc, &zero) ||
	    !take_one_of(&b, OP_LIT0, &mask) || !take_op(&b, OP_AND) ||
	    !take_one_of(&b, OP_LIT0, &least) || !take_op(&b, OP_GE) ||
	    !take_one_of(&b, OP_LIT0, &shift) || !take_op(&b, OP_SHL) || !take_op(&b, OP_PLUS))
		return false;
	out->packed = TABLE_PLT | uw_packed_plt(mask, least, shift);
	return uw_bytes_done(&b) && out->reg == arch->sp && pc == arch->pc && zero == 0;
}

/* Return the kind of a packed rule whose CFA is reg + offset. */
static uint64_t kind_of_reg(const struct uw_arch *arch, unsigned int reg)
{
	return reg == arch->sp ? TABLE_SP : reg == arch->fp ? TABLE_FP : TABLE_REG;
}

/* Convert a rule's CFA. -ENOTSUP: no packed rule can express it. */
static int cfa_of(const struct uw_arch *arch, const struct uw_rule *rule, struct cfa *out)
{
	struct uw_bytes expr;

	*out = (struct cfa){ .reg = rule->cfa_reg };
	if (rule->cfa_size) {
		expr = uw_bytes_of(rule->cfa_expr, rule->cfa_size);
		if (!is_deref(arch, expr, out) && !is_plt(arch, expr, out))
			return -ENOTSUP;
	} else {
		out->off = rule->cfa_off;
		out->packed = kind_of_reg(arch, rule->cfa_reg);
		/* These two are rules that were made from a row. */
		if (rule->cfa_kind == UW_CFA_DEREF) {
			out->packed = TABLE_DEREF;
			if (place_of(rule->cfa_add, &out->add))
				return -ENOTSUP;
		} else if (rule->cfa_kind == UW_CFA_PLT) {
			out->packed = TABLE_PLT | uw_packed_plt(rule->plt.mask, rule->plt.least,
								rule->plt.shift);
		}
	}
	if (out->off % 8 || out->off / 8 > CFA_MAX || out->off / 8 < -CFA_MAX)
		return -ENOTSUP;
	out->packed |= ((uint64_t)(out->off / 8) & 0xffffff) << 8;
	return 0;
}

/* ---- packing -------------------------------------------------------------------------- */

/* A row while it is made. */
struct making {
	const struct uw_arch *arch;
	const struct uw_rule *rule;
	struct cfa cfa;
	struct uw_row row;
	int16_t fp, ra;
	uint16_t based;
};

/*
 * Return where a row has the place of a register, and the register's bit in the set of based
 * places. NULL: a row has none for this register.
 */
static int16_t *slot_of(struct making *m, unsigned int reg, uint16_t *bit)
{
	if (reg == m->arch->fp) {
		*bit = TABLE_BASED_FP;
		return &m->fp;
	}
	for (unsigned int i = 0; i < m->arch->n_saved; i++) {
		if (m->arch->saved[i] == reg) {
			*bit = (uint16_t)(1u << i);
			return &m->row.ext[i];
		}
	}
	return NULL;
}

/*
 * Record that a register is stored at fp + N, from DW_OP_bregFP N or from a rule that was made from
 * a row. -ENOTSUP: a row cannot express the place.
 */
static int set_based(struct making *m, const struct uw_reg_rule *r)
{
	int16_t *slot, place;
	uint8_t reg = r->from;
	struct uw_bytes expr;
	uint16_t bit;
	int64_t off;

	if (r->kind == UW_RULE_AT_REG) {
		off = r->off;
	} else {
		expr = uw_bytes_of(r->expr, r->size);
		if (!take_breg(&expr, &reg, &off) || !uw_bytes_done(&expr) || expr.err)
			return -ENOTSUP;
	}
	slot = slot_of(m, r->reg, &bit);
	if (!slot || reg != m->arch->fp || place_of(off, &place))
		return -ENOTSUP;
	*slot = place;
	m->based |= bit;
	return 0;
}

/* Record the rule of one register. -ENOTSUP: a row cannot express it. */
static int set_reg(struct making *m, const struct uw_reg_rule *r)
{
	const struct uw_arch *arch = m->arch;
	bool is_ra = r->reg == m->rule->ra;
	int16_t *slot, place;
	uint16_t bit;

	/* Ignore rules for vector registers, unless applying the rule could fail. */
	if (r->reg >= arch->n_regs &&
	    (r->kind == UW_RULE_AT_CFA || r->kind == UW_RULE_UNDEFINED || r->kind == UW_RULE_SAME))
		return 0;
	if (r->reg == arch->sp || (r->reg == arch->pc && !is_ra))
		return -ENOTSUP;
	if (is_ra && r->kind == UW_RULE_UNDEFINED) {
		m->ra = TABLE_UNDEFINED;
		return 0;
	}
	if (r->kind == UW_RULE_SAME && r->reg != arch->pc)
		return 0;
	if ((r->kind == UW_RULE_AT_EXPR || r->kind == UW_RULE_AT_REG) && !is_ra)
		return set_based(m, r);
	if (r->kind != UW_RULE_AT_CFA || place_of(r->off, &place))
		return -ENOTSUP;
	if (is_ra) {
		m->ra = place;
		return 0;
	}
	slot = slot_of(m, r->reg, &bit);
	if (!slot)
		return -ENOTSUP;
	/* A slot below sp has been popped already (see step.c). */
	if (uw_packed_kind(m->cfa.packed) != TABLE_SP || r->off >= -m->cfa.off)
		*slot = place;
	return 0;
}

/*
 * The word holds the CFA, fp and ra. ext holds the other saved registers and those numbers of the
 * CFA that the word has no bits for.
 */
int uw_row_of(const struct uw_arch *arch, const struct uw_rule *rule, struct uw_row *out)
{
	struct making m = { .arch = arch, .rule = rule, .fp = TABLE_SAME, .ra = TABLE_SAME };
	int16_t *ext = m.row.ext;
	uint64_t packed;
	bool saved = false;

	if (rule->ra != arch->lr || cfa_of(arch, rule, &m.cfa))
		return -ENOTSUP;
	for (unsigned int i = 0; i < TABLE_EXT_AARCH64; i++)
		ext[i] = TABLE_SAME;
	for (unsigned int i = 0; i < rule->n_regs; i++)
		if (set_reg(&m, &rule->regs[i]))
			return -ENOTSUP;
	if (m.ra == TABLE_SAME && arch->lr == arch->pc)
		return -ENOTSUP; /* "the same pc" is an error, which the interpreter reports */
	for (unsigned int i = 0; i < arch->n_saved; i++)
		saved |= ext[i] != TABLE_SAME;
	packed = m.cfa.packed | (uint64_t)(uint16_t)m.ra << 48;
	switch (uw_packed_kind(packed)) {
	case TABLE_PLT:
		if (saved || m.fp != TABLE_SAME)
			return -ENOTSUP;
		break;
	case TABLE_DEREF:
		ext[uw_ext_add(arch)] = m.cfa.add;
		/* fall through */
	case TABLE_REG:
		ext[uw_ext_reg(arch)] = m.cfa.reg;
		/* fall through */
	default:
		packed |= (uint64_t)(uint16_t)m.fp << 32;
	}
	if (m.based) {
		packed |= TABLE_RULE_BASED;
		ext[uw_ext_based(arch)] = (int16_t)m.based;
	}
	packed |= rule->signal ? TABLE_RULE_SIGNAL : 0;
	packed |= rule->ra_signed ? TABLE_RULE_SIGNED : 0;
	packed |= saved ? TABLE_RULE_SAVED : 0;
	m.row.packed = packed;
	*out = m.row;
	return 0;
}

/* ---- unpacking ------------------------------------------------------------------------ */

/* Add the rule of a register whose place is known. */
static void add(const struct uw_arch *arch, struct uw_rule *rule, unsigned int reg, int16_t place,
		bool based)
{
	if (place != TABLE_SAME)
		rule->regs[rule->n_regs++] =
			(struct uw_reg_rule){ .reg = (uint8_t)reg,
					      .kind = based ? UW_RULE_AT_REG : UW_RULE_AT_CFA,
					      .from = arch->fp,
					      .off = place * 8 };
}

/* Set the rule's CFA. */
static void cfa_rule(const struct uw_arch *arch, uint64_t packed, const int16_t *ext,
		     struct uw_rule *out)
{
	out->cfa_size = 0;
	out->cfa_kind = UW_CFA_PLAIN;
	out->cfa_off = uw_packed_cfa(packed);
	switch (uw_packed_kind(packed)) {
	case TABLE_FP:
		out->cfa_reg = arch->fp;
		break;
	case TABLE_DEREF:
		out->cfa_kind = UW_CFA_DEREF;
		out->cfa_add = ext[uw_ext_add(arch)] * 8;
		/* fall through */
	case TABLE_REG:
		out->cfa_reg = (uint8_t)ext[uw_ext_reg(arch)];
		break;
	case TABLE_PLT:
		out->cfa_kind = UW_CFA_PLT;
		out->plt.mask = uw_packed_plt_mask(packed);
		out->plt.least = uw_packed_plt_least(packed);
		out->plt.shift = uw_packed_plt_shift(packed);
		/* fall through */
	default:
		out->cfa_reg = arch->sp;
	}
}

void uw_row_rule(const struct uw_arch *arch, uint64_t packed, const int16_t *ext,
		 struct uw_rule *out)
{
	unsigned int based = packed & TABLE_RULE_BASED ? (uint16_t)ext[uw_ext_based(arch)] : 0,
		     i = 0;

	out->start = out->end = 0;
	cfa_rule(arch, packed, ext, out);
	out->ra = arch->lr;
	out->stepper = UW_STEPPER_CFI;
	out->signal = packed & TABLE_RULE_SIGNAL;
	out->ra_signed = packed & TABLE_RULE_SIGNED;
	out->n_regs = 0;
	/* Rules are sorted by register; fp is between two of the saved ones. */
	for (; i < arch->n_saved && arch->saved[i] < arch->fp; i++)
		add(arch, out, arch->saved[i], ext[i], based >> i & 1);
	if (uw_packed_kind(packed) != TABLE_PLT)
		add(arch, out, arch->fp, uw_packed_fp(packed), based & TABLE_BASED_FP);
	for (; i < arch->n_saved; i++)
		add(arch, out, arch->saved[i], ext[i], based >> i & 1);
	if (uw_packed_ra(packed) == TABLE_UNDEFINED)
		out->regs[out->n_regs++] =
			(struct uw_reg_rule){ .reg = arch->lr, .kind = UW_RULE_UNDEFINED };
	else
		add(arch, out, arch->lr, uw_packed_ra(packed), false);
}
