/* unwinder/walk/step.c: applies a rule to a frame's registers, which gives the caller's. */
#include "unwinder/walk/step.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "unwinder/walk/expr.h"

int uw_machine_read(struct uw_machine *machine, uint64_t addr, unsigned int size, uint64_t *out)
{
	uint8_t bytes[8];
	uint64_t value = 0;
	int err = machine->read(machine->ctx, addr, bytes, size);

	if (err) {
		machine->missing = addr;
		return err;
	}
	if (size == 8) { /* nearly always; compilers make one load of this */
		memcpy(&value, bytes, 8);
		value = le64toh(value);
	}
	for (unsigned int i = 0; i < size && size < 8; i++)
		value |= (uint64_t)bytes[i] << (8 * i);
	*out = value;
	return 0;
}

int uw_machine_reg(const struct uw_machine *machine, unsigned int reg, uint64_t *out)
{
	if (reg >= UW_REGS_MAX || !(machine->regs.known >> reg & 1))
		return -ENODATA;
	*out = machine->regs.value[reg];
	return 0;
}

/* Compute the CFA by the rule. */
static int find_cfa(struct uw_machine *machine, const struct uw_rule *rule, uint64_t *cfa)
{
	uint64_t base, pc;
	int err;

	if (rule->cfa_size)
		return uw_expr_run(machine, rule->cfa_expr, rule->cfa_size, NULL, cfa);
	err = uw_machine_reg(machine, rule->cfa_reg, &base);
	if (err)
		return err;
	base += (uint64_t)rule->cfa_off;
	switch (rule->cfa_kind) {
	case UW_CFA_DEREF:
		err = uw_machine_read(machine, base, 8, &base);
		base += (uint64_t)(int64_t)rule->cfa_add;
		break;
	case UW_CFA_PLT:
		err = uw_machine_reg(machine, machine->arch->pc, &pc);
		if (!err)
			base += (uint64_t)((pc & rule->plt.mask) >= rule->plt.least)
				<< rule->plt.shift;
		break;
	default:
		break;
	}
	if (!err)
		*cfa = base;
	return err;
}

/*
 * Compute one of the caller's registers. -ENODATA: it is undefined, or comes from a register that
 * is not known.
 */
static int find_reg(struct uw_machine *machine, const struct uw_reg_rule *rule, uint64_t cfa,
		    bool is_ra, uint64_t *out)
{
	uint64_t addr, sp;
	int err;

	switch (rule->kind) {
	case UW_RULE_SAME:
		return uw_machine_reg(machine, rule->reg, out);
	case UW_RULE_AT_CFA:
		addr = cfa + (uint64_t)rule->off;
		/*
		 * A slot below sp has been popped already: compilers that leave epilogues out of
		 * the CFI still name the slot. The register has its old value again.
		 */
		if (!is_ra && !uw_machine_reg(machine, machine->arch->sp, &sp) && addr < sp)
			return uw_machine_reg(machine, rule->reg, out);
		return uw_machine_read(machine, addr, 8, out);
	case UW_RULE_CFA_PLUS:
		*out = cfa + (uint64_t)rule->off;
		return 0;
	case UW_RULE_REGISTER:
		return uw_machine_reg(machine, rule->from, out);
	case UW_RULE_AT_EXPR:
		err = uw_expr_run(machine, rule->expr, rule->size, &cfa, &addr);
		return err ? err : uw_machine_read(machine, addr, 8, out);
	case UW_RULE_AT_REG:
		err = uw_machine_reg(machine, rule->from, &addr);
		return err ? err : uw_machine_read(machine, addr + (uint64_t)rule->off, 8, out);
	case UW_RULE_EXPR:
		return uw_expr_run(machine, rule->expr, rule->size, &cfa, out);
	default:
		return -ENODATA;
	}
}

int uw_step(struct uw_machine *machine, const struct uw_rule *rule, uint64_t *cfa_out)
{
	const struct uw_arch *arch = machine->arch;
	const struct uw_reg_rule *ra = uw_rule_reg(rule, rule->ra);
	struct uw_regs *regs = &machine->regs;
	uint64_t cfa, pc = 0, value[UW_REGS_MAX], known = 0;
	bool has_sp = false;
	int err = find_cfa(machine, rule, &cfa);

	if (!err)
		*cfa_out = cfa;
	/* An undefined return address marks the outermost frame, not damage (DWARF 5 §6.4.4). */
	if (ra && ra->kind == UW_RULE_UNDEFINED)
		return 0;
	if (err)
		return err;
	if (!ra && rule->ra == arch->pc)
		return -EBADMSG; /* "the same pc" is no caller */
	if (!ra) {
		err = uw_machine_reg(machine, rule->ra, &pc);
		if (err)
			return err;
	}

	/* All rules refer to this frame's registers: compute all values before any is replaced. */
	for (unsigned int i = 0; i < rule->n_regs; i++) {
		const struct uw_reg_rule *r = &rule->regs[i];

		err = find_reg(machine, r, cfa, r == ra, &value[i]);
		/*
		 * Without the return address and sp there is no caller. Any other register may stay
		 * unknown.
		 */
		if (err && (r == ra || r->reg == arch->sp || (err != -ENODATA && err != -EFAULT)))
			return err;
		if (r == ra)
			pc = value[i];
		if (!err)
			known |= (uint64_t)1 << i;
	}
	for (unsigned int i = 0; i < rule->n_regs; i++) {
		uint64_t bit = (uint64_t)1 << rule->regs[i].reg;

		regs->known &= ~bit;
		if (known >> i & 1) {
			regs->known |= bit;
			regs->value[rule->regs[i].reg] = value[i];
		}
		has_sp |= rule->regs[i].reg == arch->sp;
	}
	if (!has_sp) {
		regs->value[arch->sp] = cfa;
		regs->known |= (uint64_t)1 << arch->sp;
	}
	regs->value[arch->pc] = pc;
	regs->known |= (uint64_t)1 << arch->pc;
	return 1;
}

bool uw_step_from_record(const struct uw_arch *arch, struct uw_rule *rule)
{
	const struct uw_reg_rule *fp = uw_rule_reg(rule, arch->fp),
				 *lr = uw_rule_reg(rule, arch->lr);

	if (rule->cfa_size || rule->cfa_reg != arch->sp || !fp || !lr ||
	    fp->kind != UW_RULE_AT_CFA || lr->kind != UW_RULE_AT_CFA || lr->off != fp->off + 8)
		return false;
	rule->cfa_reg = arch->fp;
	rule->cfa_off = -fp->off;
	return true;
}
