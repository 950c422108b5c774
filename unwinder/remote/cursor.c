/*
 * unwinder/remote/cursor.c: cursors (cursor.h): places them on a frame, and tells what is known
 * about the frame.
 */
#include "unwinder/cursor.h"

#include <errno.h>
#include <string.h>

#include "unwinder/dynamic/dynamic.h"
#include "unwinder/remote/cursor_state.h"
#include "unwinder/remote/proc_info.h"

/* Each register of the first frame is where the target has it: in itself. */
int uw_cursor_init_at(struct uw_cursor *cursor, struct uw_target *target, void *ctx,
		      const struct uw_regs *regs, bool exact)
{
	const struct uw_arch *arch = target->arch;
	const uint64_t needed = (uint64_t)1 << arch->pc | (uint64_t)1 << arch->sp;
	struct uw_cursor_state s = { .magic = UW_CURSOR_MAGIC,
				     .target = target,
				     .ctx = ctx,
				     .regs = *regs,
				     .n = !exact,
				     .exact = exact,
				     .stepper = UW_STEPPER_CONTEXT,
				     .confidence = UW_CONFIDENCE_RULE };

	if ((regs->known & needed) != needed)
		return -ENODATA;
	for (unsigned int i = 0; i < arch->n_regs; i++) {
		s.place[i] = UW_PLACE_REGISTER;
		s.at[i] = i;
	}
	memcpy(cursor->opaque, &s, sizeof(s));
	return 0;
}

/* Read all registers. Only pc and sp must be known. */
int uw_cursor_init(struct uw_cursor *cursor, struct uw_target *target, void *ctx)
{
	const struct uw_arch *arch = target->arch;
	struct uw_regs regs = { .known = 0 };
	int err;

	if (!target->accessors.read_reg)
		return -ENODATA;
	for (unsigned int i = 0; i < arch->n_regs; i++) {
		err = target->accessors.read_reg(ctx, i, &regs.value[i]);
		if (!err)
			regs.known |= (uint64_t)1 << i;
		else if (i == arch->pc || i == arch->sp)
			return err;
	}
	if (target->accessors.dyn_list_addr)
		uw_target_poll(target, ctx);
	return uw_cursor_init_at(cursor, target, ctx, &regs, true);
}

void uw_cursor_context(struct uw_cursor *cursor, void *ctx)
{
	struct uw_cursor_state *s = uw_cursor_state(cursor);

	if (s)
		s->ctx = ctx;
}

enum uw_stop uw_cursor_stop(const struct uw_cursor *cursor, uint64_t *addr)
{
	const struct uw_cursor_state *s = uw_cursor_look(cursor);

	if (addr)
		*addr = s ? s->stop_addr : 0;
	return s ? (enum uw_stop)s->stop : UW_STOP_NO_USER_STATE;
}

/* ---- queries ------------------------------------------------------------------------- */

int uw_cursor_reg(const struct uw_cursor *cursor, unsigned int reg, uint64_t *value)
{
	const struct uw_cursor_state *s = uw_cursor_look(cursor);

	if (!s || reg >= s->target->arch->n_regs)
		return -EINVAL;
	if (!(s->regs.known >> reg & 1))
		return -ENODATA;
	*value = reg == s->target->arch->pc ? uw_cursor_pc(s) : s->regs.value[reg];
	return 0;
}

int uw_cursor_set_reg(struct uw_cursor *cursor, unsigned int reg, uint64_t value)
{
	struct uw_cursor_state *s = uw_cursor_state(cursor);

	if (!s || reg >= s->target->arch->n_regs)
		return -EINVAL;
	s->regs.value[reg] = value;
	s->regs.known |= (uint64_t)1 << reg;
	s->place[reg] = UW_PLACE_VALUE;
	s->at[reg] = 0;
	if (reg == s->target->arch->pc)
		s->exact = true;
	return 0;
}

int uw_cursor_save(const struct uw_cursor *cursor, unsigned int reg, struct uw_save *save)
{
	const struct uw_cursor_state *s = uw_cursor_look(cursor);

	if (!s || reg >= s->target->arch->n_regs)
		return -EINVAL;
	*save = (struct uw_save){ .reg = (uint8_t)reg,
				  .place = s->place[reg] & (uint8_t)~UW_CURSOR_BY_EXPRESSION,
				  .expression = s->place[reg] & UW_CURSOR_BY_EXPRESSION,
				  .known = s->regs.known >> reg & 1,
				  .value = s->regs.value[reg] };
	if (save->place == UW_PLACE_REGISTER)
		save->from = (uint8_t)s->at[reg];
	else
		save->addr = s->at[reg];
	return 0;
}

/* Look up the frame's rule without a step. A failure counts as "no signal". */
int uw_cursor_is_signal(const struct uw_cursor *cursor)
{
	const struct uw_cursor_state *s = uw_cursor_look(cursor);
	struct uw_held held;
	struct uw_rule rule;
	uint64_t bias;
	int err = -ENOENT;

	if (!s)
		return -EINVAL;
	if (s->target->accessors.find_proc_info || !s->target->space) {
		err = uw_cursor_rule_here(s, &rule, &bias, &held);
		uw_cursor_release(s, &held);
	}
	if (err == -ENOENT && s->target->space) {
		(void)pthread_mutex_lock(&s->target->lock);
		err = uw_cursor_rule_in_space(s, &rule, &bias);
		(void)pthread_mutex_unlock(&s->target->lock);
	}
	return !err && rule.signal;
}

/* Step a copy of the cursor to find cfa and signal. This costs as much as a step. */
int uw_cursor_frame(const struct uw_cursor *cursor, struct uw_frame *frame)
{
	const struct uw_cursor_state *s = uw_cursor_look(cursor);
	struct uw_cursor next = *cursor;

	if (!s)
		return -EINVAL;
	*frame = (struct uw_frame){ .pc = uw_cursor_pc(s),
				    .lookup = uw_cursor_lookup(s),
				    .sp = s->regs.value[s->target->arch->sp],
				    .stepper = s->stepper,
				    .confidence = s->confidence,
				    .exact = s->exact };
	if (s->target->space)
		frame->mapping = uw_space_find(s->target->space, frame->lookup);
	if (uw_cursor_step(&next) == 1) {
		const struct uw_cursor_state *caller = uw_cursor_look(&next);

		/*
		 * The caller's sp is the CFA, except for signals and the few functions that
		 * switch stacks.
		 */
		frame->cfa = caller->regs.value[s->target->arch->sp];
		frame->signal = caller->exact;
	}
	return 0;
}

void uw_cursor_found(const struct uw_cursor *cursor, uint8_t *stepper, uint8_t *confidence,
		     bool *exact)
{
	const struct uw_cursor_state *s = uw_cursor_look(cursor);

	*stepper = s ? s->stepper : (uint8_t)UW_STEPPER_CONTEXT;
	*confidence = s ? s->confidence : (uint8_t)UW_CONFIDENCE_GUESS;
	*exact = s && s->exact;
}

/*
 * Look in the order in which the rules are looked up: registered code, the accessor, the address
 * space.
 */
int uw_cursor_proc_info(const struct uw_cursor *cursor, struct uw_proc_info *out)
{
	const struct uw_cursor_state *s = uw_cursor_look(cursor);
	struct uw_proc_info info = { .start = 0 };
	struct uw_dynamic_proc proc;
	struct uw_dynamic *dynamic;
	struct uw_target *t;
	int err = -ENOENT;

	if (!s)
		return -EINVAL;
	t = s->target;
	dynamic = uw_target_dynamic(t);
	if (dynamic && !uw_dynamic_proc(dynamic, uw_cursor_lookup(s), &proc) && proc.walkable) {
		info.start = proc.start;
		info.end = proc.end;
		info.format = UW_PROC_DYNAMIC;
		err = 0;
	}
	uw_dynamic_put(dynamic);
	if (err == -ENOENT && t->accessors.find_proc_info)
		err = t->accessors.find_proc_info(s->ctx, uw_cursor_lookup(s), false, &info);
	if (err == -ENOENT && t->space) {
		struct uw_proc_query query = { .pc = uw_cursor_lookup(s),
					       .machine = t->arch->machine,
					       .read = uw_target_reader(t),
					       .ctx = s->ctx };
		struct uw_mapping *mapping;
		struct uw_object *object;

		(void)pthread_mutex_lock(&t->lock);
		mapping = uw_space_at(t->space, query.pc);
		object = mapping ? uw_space_resolve(t->space, mapping) : NULL;
		if (object)
			err = uw_proc_info_object(object, mapping->bias, &query, &info);
		(void)pthread_mutex_unlock(&t->lock);
	}
	if (err == 0)
		*out = info;
	return err > 0 ? -ENOENT : err;
}

/*
 * Copy the name that the target registered for the code at the frame's lookup. -ENOENT none,
 * -ENOMEM the name was cut to size.
 */
static int registered_name(const struct uw_cursor_state *s, char *name, size_t size, uint64_t *off)
{
	struct uw_dynamic *dynamic = uw_target_dynamic(s->target);
	struct uw_dynamic_proc proc;
	size_t length;
	int err = dynamic ? uw_dynamic_proc(dynamic, uw_cursor_lookup(s), &proc) : -ENOENT;

	if (!err && !proc.name)
		err = -ENOENT;
	if (!err) {
		length = strlen(proc.name);
		err = length < size ? 0 : -ENOMEM;
		if (err)
			length = size - 1;
		memcpy(name, proc.name, length);
		name[length] = '\0';
		*off = uw_cursor_lookup(s) - proc.start;
	}
	uw_dynamic_put(dynamic);
	return err;
}

/* Find the name by the lookup, which is pc - 1 in outer frames, and adjust the offset to the pc. */
int uw_cursor_proc_name(const struct uw_cursor *cursor, char *name, size_t size, uint64_t *off)
{
	const struct uw_cursor_state *s = uw_cursor_look(cursor);
	uint64_t found = 0;
	int err;

	if (!s || size == 0)
		return -EINVAL;
	err = registered_name(s, name, size, &found);
	if (err == -ENOENT) {
		if (!s->target->accessors.proc_name)
			return -ENOENT;
		err = s->target->accessors.proc_name(s->ctx, uw_cursor_lookup(s), name, size,
						     &found);
	}
	if (!err || err == -ENOMEM)
		*off = found + !s->exact;
	return err;
}

struct uw_target *uw_cursor_target(const struct uw_cursor *cursor)
{
	const struct uw_cursor_state *s = uw_cursor_look(cursor);

	return s ? s->target : NULL;
}

int uw_reg_find(uint16_t machine, const char *name)
{
	const struct uw_arch *arch = uw_arch_of(machine);

	/* Names that the calling convention gives to two registers (AAPCS64 §6.1.1). */
	if (arch && arch->lr != arch->pc && strcmp(name, "lr") == 0)
		return arch->lr;
	if (arch && arch->lr != arch->pc && strcmp(name, "fp") == 0)
		return arch->fp;
	for (int i = 0; arch && i < arch->n_regs; i++)
		if (strcmp(uw_reg_name(machine, (unsigned int)i), name) == 0)
			return i;
	return -1;
}
