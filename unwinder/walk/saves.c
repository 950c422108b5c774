/* unwinder/walk/saves.c: where a step by a rule or by a guess finds the caller's registers. */
#include "unwinder/walk/saves.h"

#include "unwinder/walk/expr.h"

/*
 * Tell where the caller's register that rule describes is saved. Expressions for a place are
 * evaluated; if that fails, save->addr stays 0. is_ra: the rule is that of the return address,
 * which is never treated as popped.
 */
static void save_of(struct uw_machine *machine, const struct uw_reg_rule *rule, uint64_t cfa,
		    bool is_ra, struct uw_save *save)
{
	uint64_t sp;

	*save = (struct uw_save){ .reg = rule->reg, .place = UW_PLACE_UNDEFINED };
	switch (rule->kind) {
	case UW_RULE_SAME:
		save->place = UW_PLACE_SAME;
		break;
	case UW_RULE_AT_CFA:
		save->place = UW_PLACE_MEMORY;
		save->addr = cfa + (uint64_t)rule->off;
		/* The slot has been popped already, as in uw_step. */
		if (!is_ra && !uw_machine_reg(machine, machine->arch->sp, &sp) && save->addr < sp) {
			save->place = UW_PLACE_SAME;
			save->popped = true;
		}
		break;
	case UW_RULE_CFA_PLUS:
		save->place = UW_PLACE_VALUE;
		break;
	case UW_RULE_REGISTER:
		save->place = UW_PLACE_REGISTER;
		save->from = rule->from;
		break;
	case UW_RULE_AT_EXPR:
		save->place = UW_PLACE_MEMORY;
		save->expression = true;
		(void)uw_expr_run(machine, rule->expr, rule->size, &cfa, &save->addr);
		break;
	case UW_RULE_AT_REG:
		save->place = UW_PLACE_MEMORY;
		save->expression = true;
		if (!uw_machine_reg(machine, rule->from, &save->addr))
			save->addr += (uint64_t)rule->off;
		break;
	case UW_RULE_EXPR:
		save->place = UW_PLACE_VALUE;
		save->expression = true;
		break;
	default:
		break;
	}
}

size_t uw_saves_by_rule(struct uw_machine *machine, const struct uw_rule *rule, uint64_t cfa,
			struct uw_save *pc, struct uw_save saves[UW_REGS_MAX])
{
	const struct uw_reg_rule *ra = uw_rule_reg(rule, rule->ra);
	size_t n = 0;

	*pc = (struct uw_save){ .place = UW_PLACE_REGISTER, .from = rule->ra };
	for (unsigned int i = 0; i < rule->n_regs; i++)
		save_of(machine, &rule->regs[i], cfa, &rule->regs[i] == ra,
			&rule->regs[i] == ra ? pc : &saves[n++]);
	pc->reg = machine->arch->pc;
	return n;
}

void uw_saves_by_guess(const struct uw_arch *arch, uint8_t stepper, const struct uw_regs *regs,
		       uint64_t sp, struct uw_save *pc, struct uw_save *fp)
{
	*pc = (struct uw_save){ .reg = arch->pc, .place = UW_PLACE_MEMORY };
	if (stepper == UW_STEPPER_FP) {
		*fp = *pc;
		fp->reg = arch->fp;
		fp->addr = regs->value[arch->fp];
		pc->addr = fp->addr + 8;
	} else if (stepper == UW_STEPPER_SCAN) {
		pc->addr = sp - 8;
	} else {
		pc->addr = regs->value[arch->sp];
		if (arch->lr != arch->pc) {
			pc->place = UW_PLACE_REGISTER;
			pc->from = arch->lr;
		}
	}
}
