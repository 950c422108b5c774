/*
 * unwinder/remote/cursor_step.c: steps a cursor to the caller's frame, by the accessors, by the
 * rules in an address space, or by the frame pointer, and tells where each register is saved there.
 */
#include "unwinder/remote/cursor_state.h"

#include <errno.h>
#include <string.h>

#include "unwinder/walk/guess.h"
#include "unwinder/walk/saves.h"
#include "unwinder/walk/stepper.h"
#include "unwinder/walk/walk.h"

/* ---- where registers are saved ----------------------------------------------------------- */

/* Mark a register as undefined. */
static void lose(struct uw_cursor_state *s, unsigned int reg)
{
	s->place[reg] = UW_PLACE_UNDEFINED;
	s->at[reg] = 0;
}

/*
 * Set where reg is saved. If the callee did not move the register, its place is that of the
 * callee's register in the state before.
 */
static void settle(struct uw_cursor_state *s, const struct uw_cursor_state *before,
		   unsigned int reg, const struct uw_save *save)
{
	s->place[reg] = save->place | (save->expression ? UW_CURSOR_BY_EXPRESSION : 0);
	s->at[reg] = save->addr;
	if (save->place != UW_PLACE_SAME && save->place != UW_PLACE_REGISTER)
		return;
	/* The register's value is where the callee's register is saved. */
	s->place[reg] = before->place[save->place == UW_PLACE_SAME ? reg : save->from];
	s->at[reg] = before->at[save->place == UW_PLACE_SAME ? reg : save->from];
}

/*
 * Set where each register is saved after a step by a rule. before is the state in the callee's
 * frame, and machine has the callee's registers.
 */
static void settle_by_rule(struct uw_cursor_state *s, const struct uw_cursor_state *before,
			   struct uw_machine *machine, const struct uw_rule *rule, uint64_t cfa)
{
	const struct uw_arch *arch = s->target->arch;
	struct uw_save pc, saves[UW_REGS_MAX], computed = { .place = UW_PLACE_VALUE };
	size_t n = uw_saves_by_rule(machine, rule, cfa, &pc, saves);

	settle(s, before, arch->sp, &computed);
	settle(s, before, arch->pc, &pc);
	if (uw_rule_reg(rule, rule->ra))
		settle(s, before, rule->ra, &pc);
	for (size_t i = 0; i < n; i++)
		settle(s, before, saves[i].reg, &saves[i]);
}

/*
 * Set where each register is saved after a step without a rule: by the frame pointer, by a scan
 * of the stack, or by the return address that a call left at sp or in lr. Registers that the
 * step lost become undefined.
 */
static void settle_by_guess(struct uw_cursor_state *s, const struct uw_cursor_state *before,
			    uint8_t stepper)
{
	const struct uw_arch *arch = s->target->arch;
	struct uw_save pc, fp;

	uw_saves_by_guess(arch, stepper, &before->regs, s->regs.value[arch->sp], &pc, &fp);
	for (unsigned int i = 0; i < arch->n_regs; i++)
		if (!(s->regs.known >> i & 1))
			lose(s, i);
	s->place[arch->sp] = UW_PLACE_VALUE;
	s->at[arch->sp] = 0;
	settle(s, before, arch->pc, &pc);
	if (stepper == UW_STEPPER_FP)
		settle(s, before, arch->fp, &fp);
}

/*
 * Set where each register is saved after a step by one of the user's steppers, which names the
 * places of pc, sp and fp only. Registers with a new value are marked as computed.
 */
static void settle_by_user(struct uw_cursor_state *s, const struct uw_cursor_state *before,
			   const struct uw_save saves[3])
{
	const struct uw_arch *arch = s->target->arch;
	const uint8_t own[3] = { arch->pc, arch->sp, arch->fp };

	for (unsigned int i = 0; i < arch->n_regs; i++) {
		if (!(s->regs.known >> i & 1)) {
			lose(s, i);
		} else if (!(before->regs.known >> i & 1) ||
			   before->regs.value[i] != s->regs.value[i]) {
			s->place[i] = UW_PLACE_VALUE;
			s->at[i] = 0;
		}
	}
	for (unsigned int i = 0; i < 3; i++)
		if (saves[i].place != UW_PLACE_UNDEFINED && saves[i].from < arch->n_regs)
			settle(s, before, own[i], &saves[i]);
}

/* ---- steps by what the accessors know -------------------------------------------------------- */

/* What uw_cursor_step returns for each reason. */
static const int codes[] = {
	[UW_STOP_ROOT] = 0,
	[UW_STOP_TRUNCATED] = -EFAULT,
	[UW_STOP_NO_MAPPING] = -ENOENT,
	[UW_STOP_NO_OBJECT] = -ENOENT,
	[UW_STOP_NO_UNWIND_INFO] = -ENOENT,
	[UW_STOP_BAD_CFI] = -EBADMSG,
	[UW_STOP_REG_UNKNOWN] = -ENODATA,
	[UW_STOP_CFA_NOT_RISING] = -ELOOP,
	[UW_STOP_CYCLE] = -ELOOP,
	[UW_STOP_MAX_FRAMES] = -ENOENT,
	[UW_STOP_NO_USER_STATE] = -ENODATA,
	[UW_STOP_COMPAT] = -ENOENT,
	[UW_STOP_GUESS_ENDED] = 0,
	[UW_STOP_LIMIT] = -EBADMSG,
};
_Static_assert(sizeof(codes) / sizeof(codes[0]) == UW_STOP_N, "each reason has a code");

/* Record why the walk stops and return the code that uw_cursor_step returns for that reason. */
static int stopping(struct uw_cursor_state *s, enum uw_stop stop, uint64_t addr)
{
	s->stop = stop;
	s->stop_addr = addr;
	return codes[stop];
}

/*
 * Check that the registers found are those of a caller, and move to it. anywhere: the caller's
 * stack pointer may have any value. Return 1, or the code of a step that stopped.
 */
static int arrive(struct uw_cursor_state *s, const struct uw_cursor_state *before, bool anywhere,
		  bool signal)
{
	const struct uw_arch *arch = s->target->arch;
	uint64_t sp = s->regs.value[arch->sp], old = before->regs.value[arch->sp];
	uint64_t pc = uw_cursor_pc(s), here = uw_cursor_pc(before);

	if (pc == 0 && !signal)
		return stopping(s, UW_STOP_GUESS_ENDED, here);
	if (!anywhere && !uw_step_rises(arch, before->exact, old, sp, pc == here))
		return stopping(s, UW_STOP_CFA_NOT_RISING, here);
	if (sp <= old && uw_cycle_met(&s->cycle, pc, sp))
		return stopping(s, UW_STOP_CYCLE, here);
	s->exact = signal;
	s->n++;
	return 1;
}

/* Step to the caller by a rule; bias is that of the object with the rule's expressions. */
static int step_by_rule(struct uw_cursor_state *s, const struct uw_cursor_state *before,
			struct uw_rule *rule, uint64_t bias)
{
	struct uw_machine machine = uw_cursor_machine(s), old = machine;
	const struct uw_arch *arch = s->target->arch;
	uint64_t cfa = 0, pc = uw_cursor_pc(s);
	bool lost = uw_step_lost_link(arch, rule, s->exact, pc,
				      uw_cursor_stripped(s, s->regs.value[arch->lr]));
	int got;

	machine.bias = old.bias = bias;
	got = uw_step_low(&machine, rule, &s->sp_low, &cfa);
	if (got != 1)
		return stopping(s, uw_step_stop(got), got == -EFAULT ? machine.missing : pc);
	s->regs = machine.regs;
	s->stepper = rule->stepper;
	s->confidence = UW_CONFIDENCE_RULE;
	settle_by_rule(s, before, &old, rule, cfa);
	got = arrive(s, before, uw_step_switches(rule), rule->signal);
	return got == 1 && lost ? stopping(s, UW_STOP_REG_UNKNOWN, pc) : got;
}

/* Return whether the frame record at fp links to another one further up the stack. */
static bool leads_on(struct uw_machine *machine, uint64_t fp, uint64_t next)
{
	uint64_t ra;

	return next > fp && uw_guess_is_fp(fp, next) &&
	       !uw_machine_read(machine, next + 8, 8, &ra) && ra != 0;
}

/*
 * Step to the caller by the frame pointer. The step is accepted if a call ends at the return
 * address, or if the chain continues with another plausible frame record: the code may be
 * generated, so that it cannot be read or is not what runs (perf supplies the text of its
 * symbol map there). Used without an address space only: with one, its steppers do this.
 */
static int step_by_fp(struct uw_cursor_state *s, const struct uw_cursor_state *before)
{
	const struct uw_arch *arch = s->target->arch;
	struct uw_machine machine = uw_cursor_machine(s);
	uint64_t pc = uw_cursor_pc(s), sp = s->regs.value[arch->sp], fp, next, ra;
	uint8_t bytes[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_code here, code;
	struct uw_guess guess;
	bool called;

	if (uw_machine_reg(&machine, arch->fp, &fp))
		return stopping(s, UW_STOP_NO_UNWIND_INFO, pc);
	uw_cursor_code(&machine, pc, bytes, &here);
	if (fp == 0 && !s->exact)
		return stopping(s, UW_STOP_GUESS_ENDED, pc);
	if (!uw_guess_is_fp(sp, fp))
		return stopping(s, here.after ? UW_STOP_NO_UNWIND_INFO : UW_STOP_NO_MAPPING, pc);
	if (uw_machine_read(&machine, fp, 8, &next) || uw_machine_read(&machine, fp + 8, 8, &ra))
		return stopping(s, UW_STOP_TRUNCATED, machine.missing);
	ra = uw_cursor_stripped(s, ra);
	if (ra == 0 && next == 0 && !s->exact)
		return stopping(s, UW_STOP_GUESS_ENDED, pc);
	uw_cursor_code(&machine, ra, bytes, &code);
	called = here.after && code.before && arch->after_call(&code).kind != UW_CALL_NONE;
	if (!called && !leads_on(&machine, fp, next))
		return stopping(s, here.after ? UW_STOP_NO_UNWIND_INFO : UW_STOP_NO_MAPPING, pc);
	guess = (struct uw_guess){ .ra = ra, .sp = fp + 16, .fp = next };
	uw_guess_take(arch, UW_STEPPER_FP, &guess, &s->regs, &s->sp_low);
	s->stepper = UW_STEPPER_FP;
	s->confidence = called ? UW_CONFIDENCE_CHECKED : UW_CONFIDENCE_GUESS;
	settle_by_guess(s, before, UW_STEPPER_FP);
	return arrive(s, before, false, false);
}

/* ---- steps in an address space -------------------------------------------------------------- */

/*
 * Step to the caller with the walk's own code (uw_walk_frame) in the target's address space,
 * then find out where each register was saved. The caller holds the target's lock.
 */
static int step_in_space(struct uw_cursor_state *s, const struct uw_cursor_state *before)
{
	struct uw_target *t = s->target;
	struct uw_thread thread = { .regs = s->regs,
				    .read = uw_target_reader(t),
				    .ctx = s->ctx,
				    .code_mask = t->code_mask };
	struct uw_frame frames[2] = { { .pc = 0 } };
	struct uw_stack stack = { .frames = frames, .max_frames = 2 };
	struct uw_applied applied = { .is = false };
	struct uw_found found = { .applied = &applied, .stepper = UW_STEPPER_CONTEXT };
	struct uw_walking w;
	int stop = uw_walk_begin(&w, t->space, t->worker, &thread, &stack);

	if (stop != UW_GO_ON)
		return stopping(s, (enum uw_stop)(-1 - stop), 0);
	uw_walk_take_regs(&w);
	w.exact = s->exact;
	w.sp_low = s->sp_low;
	w.stepper = s->stepper;
	w.confidence = s->confidence;
	w.cycle = s->cycle;
	/* Only whether there are inner frames matters, not which ones. */
	stack.n_frames = w.due = s->n ? 1 : 0;
	stop = uw_walk_frame(&w, &found);
	s->cycle = w.cycle;
	if (stop != UW_GO_ON)
		return stopping(s, (enum uw_stop)(-1 - stop),
				stop == uw_stopping(UW_STOP_TRUNCATED) ? w.missing
								       : uw_cursor_pc(before));
	s->regs = w.machine.regs;
	if (uw_cursor_pc(s) == 0 && !w.exact)
		return stopping(s, UW_STOP_GUESS_ENDED, uw_cursor_pc(before));
	s->stepper = w.stepper;
	s->confidence = w.confidence;
	s->exact = w.exact;
	s->sp_low = w.sp_low;
	s->n++;
	if (s->stepper >= UW_STEPPER_N) {
		settle_by_user(s, before, found.saves);
	} else if (applied.is) {
		struct uw_machine machine = uw_cursor_machine(before);

		machine.bias = applied.bias;
		settle_by_rule(s, before, &machine, &applied.rule, found.cfa);
	} else {
		settle_by_guess(s, before, s->stepper);
	}
	return 1;
}

/* ---- stepping ------------------------------------------------------------------------ */

/*
 * Step to the caller: by the accessors first, then by the address space or the frame pointer.
 * Return as uw_cursor_step; s may be changed even if the step fails.
 */
static int step_on(struct uw_cursor_state *s, const struct uw_cursor_state *before)
{
	struct uw_target *t = s->target;
	int err = -ENOENT;

	if (t->accessors.find_proc_info || !t->space) {
		struct uw_held held;
		struct uw_rule rule;
		uint64_t bias;

		err = uw_cursor_rule_here(s, &rule, &bias, &held);
		if (err == 0)
			err = step_by_rule(s, before, &rule, bias);
		else if (err > 0)
			err = stopping(s, UW_STOP_ROOT, uw_cursor_pc(s));
		else if (err != -ENOENT)
			(void)stopping(s, err == -E2BIG ? UW_STOP_LIMIT : UW_STOP_BAD_CFI,
				       uw_cursor_pc(s));
		else
			err = -EAGAIN;
		uw_cursor_release(s, &held);
		if (err != -EAGAIN)
			return err;
	}
	if (!t->space)
		return step_by_fp(s, before);
	(void)pthread_mutex_lock(&t->lock);
	err = step_in_space(s, before);
	(void)pthread_mutex_unlock(&t->lock);
	return err;
}

/*
 * Step with the cursor's own state. If that fails, restore the old state, but with the reason
 * and with the marks of the search for cycles.
 */
int uw_cursor_step(struct uw_cursor *cursor)
{
	struct uw_cursor_state *s = uw_cursor_state(cursor), before;
	int got;

	if (!s)
		return -EINVAL;
	before = *s;
	got = step_on(s, &before);
	if (got != 1) { /* stay in the frame and record the reason */
		before.stop = s->stop;
		before.stop_addr = s->stop_addr;
		before.cycle = s->cycle;
		*s = before;
	}
	return got;
}
