/* unwinder/walk/child.c: recognises a thread that clone or clone3 has just created (child.h). */
#include "unwinder/walk/child.h"

#include "unwinder/rule/object.h"

bool uw_child_rule_by_code(const struct uw_arch *arch, const struct uw_code *code, bool bare,
			   const struct uw_regs *regs, struct uw_rule *rule)
{
	uint64_t needed = (uint64_t)1 << arch->sp | (uint64_t)1 << arch->second;
	uint64_t stack = regs->value[arch->second];

	if ((regs->known & needed) != needed || !uw_child_result(arch, regs))
		return false;
	switch (arch->made_by(code)) {
	case UW_MADE_BY_CLONE:
		/*
		 * The second argument is the child's stack. It is 0 for fork, whose child
		 * continues on a copy of its parent's stack.
		 */
		if (!stack || stack != regs->value[arch->sp])
			return false;
		break;
	case UW_MADE_BY_CLONE3:
		/*
		 * The stack is given in memory. The C library ends its FDE where the child
		 * continues.
		 */
		if (!bare)
			return false;
		break;
	default:
		return false;
	}
	*rule = (struct uw_rule){ .cfa_reg = arch->sp,
				  .ra = arch->pc,
				  .stepper = UW_STEPPER_CFI,
				  .n_regs = 1,
				  .regs = { { .reg = arch->pc, .kind = UW_RULE_UNDEFINED } } };
	return true;
}

bool uw_child_rule(struct uw_object *object, uint64_t vaddr, const struct uw_regs *regs,
		   struct uw_rule *rule)
{
	const struct uw_arch *arch = uw_arch_of(uw_object_machine(object));
	uint8_t buffer[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_code code;

	if (!uw_child_result(arch, regs) || uw_object_code(object, vaddr, buffer, &code))
		return false;
	if (arch->made_by(&code) == UW_MADE_BY_NONE)
		return false;
	if (!uw_child_rule_by_code(arch, &code, !uw_object_covers(object, vaddr), regs, rule))
		return false;
	rule->start = vaddr;
	rule->end = vaddr + 1;
	return true;
}

bool uw_child_may_begin(struct uw_object *object, uint64_t vaddr)
{
	uint8_t buffer[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_code code;
	const struct uw_arch *arch = uw_arch_of(uw_object_machine(object));

	return !uw_object_code(object, vaddr, buffer, &code) &&
	       arch->made_by(&code) != UW_MADE_BY_NONE;
}

bool uw_child_may_be_covered(const struct uw_object *object)
{
	const struct uw_arch *arch = uw_arch_of(uw_object_machine(object));

	return arch->lr != arch->pc || uw_object_is_go(object);
}
