/*
 * unwinder/remote/cursor_rule.c: finds the rule of a cursor's frame: by the accessors, by what the
 * target registered, by the code itself, or in the address space.
 */
#include "unwinder/remote/cursor_state.h"

#include <errno.h>

#include "unwinder/dynamic/dynamic.h"
#include "unwinder/remote/proc_info.h"
#include "unwinder/walk/child.h"
#include "unwinder/walk/stepper.h"
#include "unwinder/walk/walk.h"

/*
 * The registered rule of a procedure may be an alias: the rule of the code at another address.
 * At most this many aliases are followed.
 */
#define ALIASES_MAX 8

void uw_cursor_code(const struct uw_machine *machine, uint64_t pc,
		    uint8_t bytes[UW_CODE_BEFORE + UW_CODE_AFTER], struct uw_code *code)
{
	*code = (struct uw_code){ .at = bytes + UW_CODE_BEFORE };
	for (size_t size = UW_CODE_AFTER; size && !code->after; size -= 4)
		if (!machine->read(machine->ctx, pc, bytes + UW_CODE_BEFORE, size))
			code->after = size;
	if (pc >= UW_CODE_BEFORE &&
	    !machine->read(machine->ctx, pc - UW_CODE_BEFORE, bytes, UW_CODE_BEFORE))
		code->before = UW_CODE_BEFORE;
}

/*
 * Find the rule of a signal trampoline or a PLT stub by its code. -ENOENT if the code is
 * neither.
 */
static int rule_by_code(const struct uw_cursor_state *s, struct uw_rule *rule)
{
	const struct uw_machine machine = uw_cursor_machine(s);
	uint8_t bytes[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_code code;

	uw_cursor_code(&machine, uw_cursor_pc(s), bytes, &code);
	if (code.after && machine.arch->signal(&code, s->exact, rule))
		return 0;
	return code.after && s->exact && machine.arch->stub(&code, rule) ? 0 : -ENOENT;
}

/*
 * Return whether a system call has just created this thread, and the rule of its only frame.
 * bare: no unwind information covers the pc.
 */
static bool is_child(const struct uw_cursor_state *s, bool bare, struct uw_rule *rule)
{
	const struct uw_machine machine = uw_cursor_machine(s);
	uint8_t bytes[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_code code;

	if (!s->exact || !uw_child_result(machine.arch, &s->regs))
		return false;
	uw_cursor_code(&machine, uw_cursor_pc(s), bytes, &code);
	return uw_child_rule_by_code(machine.arch, &code, bare, &s->regs, rule);
}

int uw_cursor_rule_here(const struct uw_cursor_state *s, struct uw_rule *rule, uint64_t *bias,
			struct uw_held *held)
{
	struct uw_target *t = s->target;
	uint64_t lookup = uw_cursor_lookup(s), key = lookup << 1 | s->exact;
	uint32_t flushes;
	int err;

	*bias = 0;
	*held = (struct uw_held){ .dynamic = NULL };
	if (is_child(s, false, rule) || uw_target_rule(t, key, rule, bias))
		return 0;
	(void)pthread_mutex_lock(&t->lock);
	flushes = t->flushes;
	(void)pthread_mutex_unlock(&t->lock);
	err = -ENOENT;
	held->dynamic = uw_target_dynamic(t);
	for (unsigned int i = 0; held->dynamic && i < ALIASES_MAX; i++) {
		uint64_t alias = 0;

		err = uw_dynamic_rule(held->dynamic, lookup, rule, &alias);
		if (err != 1)
			break;
		lookup = alias;
		err = -ENOENT;
	}
	if (err == -ENOENT && t->accessors.find_proc_info) {
		struct uw_proc_info info = { .start = 0 };

		err = t->accessors.find_proc_info(s->ctx, lookup, true, &info);
		if (!err) {
			err = uw_proc_info_rule(&info, lookup, s->exact, rule, bias);
			held->info = info;
		}
	}
	/*
	 * The vDSO's unwind information does not describe every trampoline completely: prefer
	 * the code.
	 */
	if ((!err && rule->signal && t->arch->sigcontext_first) || (err == -ENOENT && !t->space)) {
		struct uw_rule coded;

		if (!rule_by_code(s, &coded)) {
			*rule = coded;
			*bias = 0;
			err = 0;
		}
	}
	if (!err)
		uw_target_keep_rule(t, key, rule, *bias, flushes);
	else if (err == -ENOENT && is_child(s, true, rule))
		err = 0;
	return err;
}

void uw_cursor_release(const struct uw_cursor_state *s, struct uw_held *held)
{
	const struct uw_accessors *a = &s->target->accessors;

	if (held->info.unwind_info && a->put_proc_info)
		a->put_proc_info(s->ctx, &held->info);
	else if (held->info.unwind_info)
		uw_proc_info_free(&held->info);
	uw_dynamic_put(held->dynamic);
}

int uw_cursor_rule_in_space(const struct uw_cursor_state *s, struct uw_rule *rule, uint64_t *bias)
{
	struct uw_target *t = s->target;
	struct uw_machine machine = uw_cursor_machine(s);
	struct uw_mapping *mapping = uw_space_at(t->space, uw_cursor_lookup(s));
	struct uw_object *object = mapping ? uw_space_resolve(t->space, mapping) : NULL;

	int err = -ENOENT;

	*bias = object ? mapping->bias : 0;
	if (object)
		err = uw_facts_rule(&t->worker->facts, object, uw_cursor_lookup(s) - *bias,
				    s->exact, rule);
	if (err == -ENOENT)
		err = uw_stepper_dynamic(t->space, uw_cursor_lookup(s), s->exact, rule, bias);
	if (err == -ENOENT && !object &&
	    uw_stepper_trampoline(t->space, &machine, uw_cursor_pc(s), s->exact, rule))
		err = 0;
	return err;
}
