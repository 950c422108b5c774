#include "unwinder/row.h"

#include <errno.h>

#define CFA_MAX (((int64_t)1 << 23) - 1) /* × 8 */

/* A place as a word has it; -ENOTSUP where it does not fit. */
static int place_of(int64_t off, int16_t *out)
{
	if (off % 8 || off / 8 < INT16_MIN || off / 8 >= TABLE_UNDEFINED)
		return -ENOTSUP;
	*out = (int16_t)(off / 8);
	return 0;
}

/* The slot of ext a register has; NULL: none. */
static int16_t *slot_of(const struct uw_arch *arch, struct uw_row *row, unsigned int reg)
{
	for (unsigned int i = 0; i < arch->n_saved; i++)
		if (arch->saved[i] == reg)
			return &row->ext[i];
	return NULL;
}

static int set_reg(const struct uw_arch *arch, const struct uw_rule *rule,
		   const struct uw_reg_rule *r, struct uw_row *row, int16_t *fp, int16_t *ra)
{
	bool is_ra = r->reg == rule->ra;
	int16_t *slot, place;

	/* Vectors are nobody's concern, unless finding them could fail. */
	if (r->reg >= arch->n_regs &&
	    (r->kind == UW_RULE_AT_CFA || r->kind == UW_RULE_UNDEFINED || r->kind == UW_RULE_SAME))
		return 0;
	if (r->reg == arch->sp || (r->reg == arch->pc && !is_ra))
		return -ENOTSUP;
	if (is_ra && r->kind == UW_RULE_UNDEFINED) {
		*ra = TABLE_UNDEFINED;
		return 0;
	}
	if (r->kind == UW_RULE_SAME && r->reg != arch->pc)
		return 0;
	if (r->kind != UW_RULE_AT_CFA || place_of(r->off, &place))
		return -ENOTSUP;
	if (is_ra) {
		*ra = place;
		return 0;
	}
	slot = r->reg == arch->fp ? fp : slot_of(arch, row, r->reg);
	if (!slot)
		return -ENOTSUP;
	/* Below sp: popped already (see step.c). */
	if (rule->cfa_reg != arch->sp || r->off >= -rule->cfa_off)
		*slot = place;
	return 0;
}

int uw_row_of(const struct uw_arch *arch, const struct uw_rule *rule, struct uw_row *out)
{
	struct uw_row row = { .word = 0 };
	int16_t fp = TABLE_SAME, ra = TABLE_SAME;
	uint64_t word;

	if (rule->cfa_size || rule->ra != arch->lr || rule->cfa_off % 8 ||
	    rule->cfa_off / 8 > CFA_MAX || rule->cfa_off / 8 < -CFA_MAX)
		return -ENOTSUP;
	for (unsigned int i = 0; i < TABLE_EXT_AARCH64; i++)
		row.ext[i] = TABLE_SAME;
	for (unsigned int i = 0; i < rule->n_regs; i++)
		if (set_reg(arch, rule, &rule->regs[i], &row, &fp, &ra))
			return -ENOTSUP;
	if (ra == TABLE_SAME && arch->lr == arch->pc)
		return -ENOTSUP; /* "the same pc" is an error, which the interpreter reports */
	word = rule->cfa_reg == arch->sp   ? TABLE_SP
	       : rule->cfa_reg == arch->fp ? TABLE_FP
					   : TABLE_REG;
	if (word == TABLE_REG)
		row.ext[arch->ext_slots - 1] = rule->cfa_reg;
	word |= rule->signal ? TABLE_WORD_SIGNAL : 0;
	word |= rule->ra_signed ? TABLE_WORD_SIGNED : 0;
	for (unsigned int i = 0; i < arch->n_saved; i++)
		if (row.ext[i] != TABLE_SAME)
			word |= TABLE_WORD_SAVED;
	word |= ((uint64_t)(rule->cfa_off / 8) & 0xffffff) << 8;
	row.word = word | (uint64_t)(uint16_t)fp << 32 | (uint64_t)(uint16_t)ra << 48;
	*out = row;
	return 0;
}

static void add(struct uw_rule *rule, unsigned int reg, int16_t place)
{
	if (place != TABLE_SAME)
		rule->regs[rule->n_regs++] = (struct uw_reg_rule){ .reg = (uint8_t)reg,
								   .kind = UW_RULE_AT_CFA,
								   .off = place * 8 };
}

void uw_row_rule(const struct uw_arch *arch, uint64_t word, const int16_t *ext, struct uw_rule *out)
{
	unsigned int kind = uw_word_kind(word), i = 0;

	out->start = out->end = 0;
	out->cfa_size = 0;
	out->cfa_off = uw_word_cfa(word);
	out->cfa_reg = kind == TABLE_SP	  ? arch->sp
		       : kind == TABLE_FP ? arch->fp
					  : (uint8_t)ext[arch->ext_slots - 1];
	out->ra = arch->lr;
	out->stepper = UW_STEPPER_CFI;
	out->signal = word & TABLE_WORD_SIGNAL;
	out->ra_signed = word & TABLE_WORD_SIGNED;
	out->n_regs = 0;
	/* Sorted by register: fp stands among the saved ones. */
	for (; i < arch->n_saved && arch->saved[i] < arch->fp; i++)
		add(out, arch->saved[i], ext[i]);
	add(out, arch->fp, uw_word_fp(word));
	for (; i < arch->n_saved; i++)
		add(out, arch->saved[i], ext[i]);
	if (uw_word_ra(word) == TABLE_UNDEFINED)
		out->regs[out->n_regs++] =
			(struct uw_reg_rule){ .reg = arch->lr, .kind = UW_RULE_UNDEFINED };
	else
		add(out, arch->lr, uw_word_ra(word));
}
