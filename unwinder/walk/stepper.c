/*
 * unwinder/walk/stepper.c: finds a frame's caller: the built-in steppers, and the calls of them and
 * of the user's.
 */
#include "unwinder/walk/stepper.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "unwinder/arch/arch.h"
#include "unwinder/dynamic/dynamic.h"
#include "unwinder/rule/object.h"
#include "unwinder/walk/child.h"
#include "unwinder/walk/guess.h"
#include "unwinder/walk/prologue.h"
#include "unwinder/walk/space.h"
#include "unwinder/walk/step.h"
#include "unwinder/walk/steppers.h"
#include "unwinder/walk/walk.h"

/*
 * One frame on its way through the steppers. What one of them computes is stored here for the
 * others.
 */
struct uw_asking {
	struct uw_walking *w;
	struct uw_found *found;
	int stop; /* for ERROR */
	/* The rule at the lookup address: */
	bool ruled;
	int err;
	struct uw_rule rule;
	/* The guesses, if there is no rule: */
	bool guessed, bottom;
	/* began: has_beginning has run; begun: its result, with the rule in rule */
	bool began, begun;
	bool called; /* the call before the return address is of that very beginning */
	struct uw_guess leaf, fp;
};

/* ---- rules ------------------------------------------------------------------------- */

/* End the walk with this stop. */
static enum uw_answer fail(struct uw_asking *a, enum uw_stop stop)
{
	a->stop = uw_stopping(stop);
	return UW_ANSWER_ERROR;
}

/*
 * Return whether the caller's stack pointer is plausible. anywhere: it need not lie above this
 * frame's.
 */
static bool rises(const struct uw_walking *w, bool anywhere)
{
	const struct uw_arch *arch = w->machine.arch;
	uint64_t pc = uw_walk_stripped(w, w->machine.regs.value[arch->pc]);

	return anywhere ||
	       uw_step_rises(arch, w->exact, w->sp, w->machine.regs.value[arch->sp], pc == w->pc);
}

/* Apply a->rule. bias is that of the code that the rule is for. */
static enum uw_answer step_by_rule_of(struct uw_asking *a, uint64_t bias)
{
	struct uw_walking *w = a->w;
	const struct uw_arch *arch = w->machine.arch;
	bool lost = uw_step_lost_link(arch, &a->rule, w->exact, w->pc,
				      uw_walk_stripped(w, w->machine.regs.value[arch->lr]));
	int got;

	uw_hot_settle(w);
	w->machine.bias = bias;
	a->found->stepper = a->rule.stepper;
	a->found->signal = a->rule.signal;
	got = uw_step_low(&w->machine, &a->rule, &w->sp_low, &a->found->cfa);
	if (a->found->applied)
		*a->found->applied = (struct uw_applied){ true, a->rule, bias };
	if (got == 0)
		return UW_ANSWER_STACK_BOTTOM;
	if (got == -EFAULT) {
		w->has_missing = false; /* the address that is missing is that of this read */
		uw_walk_record_missing(w);
	}
	if (got != 1)
		return fail(a, uw_step_stop(got));
	if (!rises(w, uw_step_switches(&a->rule)))
		return fail(a, UW_STOP_CFA_NOT_RISING);
	return lost ? fail(a, UW_STOP_REG_UNKNOWN) : UW_ANSWER_SUCCESS;
}

/* Apply a->rule, a rule for the code of the frame's mapping. */
static enum uw_answer step_by_rule(struct uw_asking *a)
{
	return step_by_rule_of(a, a->w->mapping ? a->w->mapping->bias : 0);
}

/* Look up the rule, once, and return whether it is for this kind of stepper. */
static bool has_rule(struct uw_asking *a, enum uw_stepper stepper)
{
	struct uw_walking *w = a->w;
	struct uw_object *object;

	if (!a->ruled) {
		a->ruled = true;
		a->err = -ENOENT;
		object = w->mapping ? uw_space_resolve(w->space, w->mapping) : NULL;
		if (object)
			a->err = uw_facts_rule(&w->worker->facts, object,
					       w->lookup - w->mapping->bias, w->exact, &a->rule);
	}
	return !a->err && a->rule.stepper == stepper;
}

/*
 * Return whether a system call has just created this thread, and this is its first frame. Then
 * a->rule has the rule.
 */
static bool is_child(struct uw_asking *a)
{
	struct uw_walking *w = a->w;
	struct uw_object *object;

	if (!w->mapping || !uw_child_result(w->machine.arch, &w->machine.regs))
		return false;
	object = uw_space_resolve(w->space, w->mapping);
	return object &&
	       uw_child_rule(object, w->pc - w->mapping->bias, &w->machine.regs, &a->rule);
}

/* Use a rule from the object's compiled table. */
static enum uw_answer by_table(struct uw_asking *a)
{
	return has_rule(a, UW_STEPPER_CFI) && a->rule.compiled ? step_by_rule(a) : UW_ANSWER_NOT_ME;
}

/*
 * Use a rule from call-frame information. Unwind information that cannot be used ends the walk: a
 * guess would hide the damage.
 */
static enum uw_answer by_cfi(struct uw_asking *a)
{
	if (has_rule(a, UW_STEPPER_CFI))
		return step_by_rule(a);
	if (!a->err || a->err == -ENOENT)
		return UW_ANSWER_NOT_ME;
	return fail(a, uw_step_stop(a->err == -E2BIG ? a->err : -EBADMSG));
}

bool uw_stepper_trampoline(struct uw_space *space, struct uw_machine *machine, uint64_t pc,
			   bool exact, struct uw_rule *rule)
{
	/* As much as there may be, or as much as the code takes on x86_64 and aarch64. */
	static const size_t sizes[] = { UW_CODE_AFTER, 9, 8 };
	struct uw_mapping *mapping = uw_space_at(space, pc);
	uint8_t bytes[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_code code = { .at = bytes + UW_CODE_BEFORE };

	if (!mapping || !(mapping->prot & PROT_EXEC) || uw_space_resolve(space, mapping))
		return false;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !code.after; i++)
		if (!machine->read(machine->ctx, pc, bytes + UW_CODE_BEFORE, sizes[i]))
			code.after = sizes[i];
	if (exact && pc >= UW_CODE_BEFORE &&
	    !machine->read(machine->ctx, pc - UW_CODE_BEFORE, bytes, UW_CODE_BEFORE))
		code.before = UW_CODE_BEFORE;
	/*
	 * If the vDSO's bytes are missing, a handler's return address in it is as good a sign as
	 * the bytes.
	 */
	if (!code.after && !exact && mapping->kind == UW_MAPPING_VDSO &&
	    machine->arch->vdso_trampoline) {
		code.at = machine->arch->vdso_trampoline;
		code.after = machine->arch->trampoline_size;
	}
	return machine->arch->signal(&code, exact, rule);
}

/* Code may be an alias of an alias. More of them than this are probably a cycle. */
#define ALIASES 8

int uw_stepper_dynamic(struct uw_space *space, uint64_t lookup, bool exact, struct uw_rule *rule,
		       uint64_t *bias)
{
	int err = -ENOENT;

	if (!uw_space_is_dynamic(space, lookup))
		return err;
	for (unsigned int i = 0; i < ALIASES; i++) {
		struct uw_mapping *mapping = i ? uw_space_at(space, lookup) : NULL;
		struct uw_object *object = mapping && mapping->prot & PROT_EXEC
						   ? uw_space_resolve(space, mapping)
						   : NULL;

		err = uw_dynamic_rule(uw_space_dynamic(space), lookup, rule, &lookup);
		*bias = 0;
		if (err == -ENOENT && object) {
			*bias = mapping->bias;
			err = uw_object_rule(object, lookup - mapping->bias, exact, rule);
		}
		if (err != 1)
			break;
	}
	rule->stepper = UW_STEPPER_DYNAMIC;
	return err ? -EBADMSG : 0;
}

/* Use what the process registered about code that it generated. */
static enum uw_answer by_dynamic(struct uw_asking *a)
{
	struct uw_walking *w = a->w;
	uint64_t bias;
	int err = uw_stepper_dynamic(w->space, w->lookup, w->exact, &a->rule, &bias);

	if (err)
		return err == -ENOENT ? UW_ANSWER_NOT_ME : fail(a, UW_STOP_BAD_CFI);
	return step_by_rule_of(a, bias);
}

/* Leave a signal frame, by the object's code or by captured bytes of code that no object has. */
static enum uw_answer by_signal(struct uw_asking *a)
{
	struct uw_walking *w = a->w;

	if (!has_rule(a, UW_STEPPER_SIGNAL) &&
	    (a->err != -ENOENT ||
	     !uw_stepper_trampoline(w->space, &w->machine, w->pc, w->exact, &a->rule)))
		return UW_ANSWER_NOT_ME;
	a->err = 0;
	return step_by_rule(a);
}

/* Leave a PLT entry or a similar stub, which the object's code shows. */
static enum uw_answer by_plt(struct uw_asking *a)
{
	return has_rule(a, UW_STEPPER_PLT) ? step_by_rule(a) : UW_ANSWER_NOT_ME;
}

/* ---- guesses ----------------------------------------------------------------------------- */

/* Take a guess. own: the word surely belongs to this frame (see uw_guess_confidence). */
static enum uw_answer take(struct uw_asking *a, enum uw_stepper stepper,
			   const struct uw_guess *guess, bool own)
{
	struct uw_walking *w = a->w;

	if (stepper == UW_STEPPER_LEAF)
		uw_hot_settle(w); /* all registers stay known */
	uw_guess_take(w->machine.arch, (uint8_t)stepper, guess, &w->machine.regs, &w->sp_low);
	a->found->stepper = (uint8_t)stepper;
	a->found->confidence = (uint8_t)uw_guess_confidence(guess->evidence, own);
	a->found->cfa = guess->sp;
	return UW_ANSWER_SUCCESS;
}

/* Return whether the word at sp or in lr is surely the return address. */
static bool is_sure(const struct uw_asking *a)
{
	const struct uw_arch *arch = a->w->machine.arch;

	return a->leaf.sure || (a->leaf.evidence == UW_EVIDENCE_DIRECT && arch->lr == arch->pc);
}

/* Make both guesses at once, because they are compared with each other. */
static void guess_both(struct uw_asking *a)
{
	struct uw_walking *w = a->w;

	if (a->guessed)
		return;
	a->guessed = true;
	a->leaf = a->fp = (struct uw_guess){ .evidence = UW_EVIDENCE_NONE };
	if (w->exact)
		uw_guess_leaf(w, &a->leaf);
	if (w->mapping && !is_sure(a))
		a->bottom = uw_guess_fp(w, &a->fp);
}

/*
 * Return whether an address probably lies in the function that runs, of which no object tells where it begins and ends. If lr
 * has one, the function's last call has returned; the function's own return address is in its frame record.
 */
static bool is_near(const struct uw_asking *a, uint64_t addr)
{
	uint64_t pc = a->w->pc;

	return (addr < pc ? pc - addr : addr - pc) <= UW_FUNCTION_USUAL;
}

/*
 * Decide between the word at sp (or lr) and the frame pointer. A function that uses a frame pointer
 * has spilled values at sp, perhaps old return addresses. A function that uses none, or has just
 * been entered, has its return address at sp, and fp is its caller's. The one whose call leads to
 * the pc wins. If both calls are indirect, the word at sp comes first.
 */
static bool is_leaf(const struct uw_asking *a)
{
	const struct uw_arch *arch = a->w->machine.arch;

	if (is_sure(a))
		return true;
	/*
	 * lr and the frame record have the same address: it has been stored, and no call was made
	 * since.
	 */
	if (arch->lr != arch->pc && a->fp.evidence != UW_EVIDENCE_NONE && a->fp.ra == a->leaf.ra)
		return false;
	switch (a->leaf.evidence) {
	case UW_EVIDENCE_DIRECT:
		return true;
	case UW_EVIDENCE_INDIRECT:
		return a->fp.evidence != UW_EVIDENCE_DIRECT;
	case UW_EVIDENCE_ELSEWHERE:
		return !a->bottom && a->fp.evidence == UW_EVIDENCE_NONE;
	case UW_EVIDENCE_UNREADABLE:
		/* the word at sp may be anything; lr has return addresses */
		return arch->lr != arch->pc &&
		       (a->fp.evidence == UW_EVIDENCE_NONE || !is_near(a, a->leaf.ra));
	default:
		return false;
	}
}

/*
 * Return whether the function begins in a known way that leads to a return address; then a->rule is
 * the frame's rule. If the function has built a frame, a call of other code before that address is
 * enough, because of tail calls.
 */
static bool has_beginning(struct uw_asking *a)
{
	struct uw_walking *w = a->w;
	struct uw_object *object = w->mapping ? w->mapping->object : NULL;
	struct uw_beginnings beginnings;
	int err = 0;

	if (a->began)
		return a->begun;
	a->began = true;
	a->begun = false;
	if (!object || !uw_stepper_is_on(uw_space_steppers(w->space), UW_STEPPER_PROLOGUE))
		return false;
	uw_hot_settle(w);
	uw_beginnings_init(&beginnings, object, w->pc - w->mapping->bias);
	for (unsigned int i = 0; i < UW_PROLOGUE_TRIES && err != -ENOENT; i++) {
		uint64_t cfa, ra, target;

		err = uw_beginnings_next(&beginnings, &a->rule);
		if (err || uw_machine_reg(&w->machine, a->rule.cfa_reg, &cfa))
			continue;
		/* rbp may not be the frame's, or not any more. */
		cfa += (uint64_t)a->rule.cfa_off;
		if (cfa <= w->sp || cfa - w->sp > UW_STACK_MAX ||
		    uw_machine_read(&w->machine, cfa - 8, 8, &ra))
			continue;
		switch (uw_guess_evidence(w, ra)) {
		case UW_EVIDENCE_DIRECT:
			/*
			 * The call's target is where the function begins, which may be further
			 * below: then try the next.
			 */
			if (!uw_guess_target(w, ra, &target) ||
			    target != a->rule.start + w->mapping->bias)
				continue;
			return a->begun = a->called = true;
		case UW_EVIDENCE_INDIRECT:
			return a->begun = true;
		case UW_EVIDENCE_ELSEWHERE:
			return a->begun = a->rule.cfa_off > 8;
		default:
			break;
		}
	}
	return false;
}

/* Return whether the function's own pushes show its frame, or a call of its very beginning does. */
static bool has_own_frame(struct uw_asking *a)
{
	return has_beginning(a) && (a->called || a->rule.cfa_off > 8);
}

enum uw_keeping uw_stepper_keeping(struct uw_walking *w, struct uw_object *object, uint64_t vaddr,
				   bool exact)
{
	if (!w->machine.arch->begins)
		return UW_KEEPING_FP;
	return object ? uw_facts_keeping(&w->worker->facts, object, vaddr, exact)
		      : UW_KEEPING_UNKNOWN;
}

/*
 * Take the word at sp, or lr, as the return address. If it calls other code, or any code through a
 * register, the function's beginning decides where it shows a frame.
 */
static enum uw_answer by_leaf(struct uw_asking *a)
{
	guess_both(a);
	if ((a->leaf.evidence == UW_EVIDENCE_ELSEWHERE && has_beginning(a)) ||
	    (a->leaf.evidence == UW_EVIDENCE_INDIRECT && has_own_frame(a)))
		return UW_ANSWER_NOT_ME;
	/* After a call to an unmapped address there is nothing else to use. */
	if (a->w->mapping ? !is_leaf(a) : a->leaf.evidence == UW_EVIDENCE_NONE)
		return UW_ANSWER_NOT_ME;
	return take(a, UW_STEPPER_LEAF, &a->leaf, a->leaf.evidence != UW_EVIDENCE_ELSEWHERE);
}

/*
 * Follow the frame pointer, if a return address is in the frame record and the function does not
 * leave the register alone.
 */
static enum uw_answer by_fp(struct uw_asking *a)
{
	struct uw_walking *w = a->w;
	enum uw_keeping keeping;

	guess_both(a);
	if (a->fp.evidence == UW_EVIDENCE_NONE)
		return UW_ANSWER_NOT_ME;
	keeping = uw_stepper_keeping(w, w->mapping->object, w->pc - w->mapping->bias, w->exact);
	/*
	 * The register may still be that of a frame further out, if this function does not use it.
	 */
	if (keeping == UW_KEEPING_NOT && has_own_frame(a) &&
	    (a->called || a->fp.evidence != UW_EVIDENCE_DIRECT))
		return UW_ANSWER_NOT_ME;
	return take(a, UW_STEPPER_FP, &a->fp,
		    keeping == UW_KEEPING_FP ||
			    (w->mapping->object && a->fp.evidence == UW_EVIDENCE_DIRECT));
}

/* Apply the rule that follows from how the function begins. */
static enum uw_answer by_prologue(struct uw_asking *a)
{
	enum uw_answer answer;

	guess_both(a);
	if (!has_beginning(a))
		return UW_ANSWER_NOT_ME;
	answer = step_by_rule(a);
	a->found->confidence = UW_CONFIDENCE_CHECKED;
	return answer;
}

/* Take the next word on the stack that a call precedes. */
static enum uw_answer by_scan(struct uw_asking *a)
{
	struct uw_guess guess;

	if (!a->w->mapping)
		return UW_ANSWER_NOT_ME;
	uw_guess_scan(a->w, &guess);
	if (guess.evidence == UW_EVIDENCE_NONE)
		return UW_ANSWER_NOT_ME;
	(void)take(a, UW_STEPPER_SCAN, &guess, false);
	/* some call precedes the word, but perhaps not this frame's */
	a->found->confidence = UW_CONFIDENCE_GUESS;
	return UW_ANSWER_SUCCESS;
}

/* ---- the table of steppers ----------------------------------------------------------------- */

#define BUILT_IN(name_, stepper_, priority_, fn_)                                         \
	{                                                                                 \
		.info = { .name = (name_), .priority = (priority_) }, .id = (stepper_),   \
		.built_in = (fn_), .off = (stepper_) == UW_STEPPER_SCAN, .anywhere = true \
	}

const struct uw_stepper_entry uw_built_in_steppers[] = {
	BUILT_IN("table", UW_STEPPER_CFI, UW_PRIORITY_TABLE, by_table),
	BUILT_IN("cfi", UW_STEPPER_CFI, UW_PRIORITY_CFI, by_cfi),
	BUILT_IN("dynamic", UW_STEPPER_DYNAMIC, UW_PRIORITY_DYNAMIC, by_dynamic),
	BUILT_IN("signal", UW_STEPPER_SIGNAL, UW_PRIORITY_SIGNAL, by_signal),
	BUILT_IN("plt", UW_STEPPER_PLT, UW_PRIORITY_PLT, by_plt),
	BUILT_IN("leaf", UW_STEPPER_LEAF, UW_PRIORITY_LEAF, by_leaf),
	BUILT_IN("fp", UW_STEPPER_FP, UW_PRIORITY_FP, by_fp),
	BUILT_IN("prologue", UW_STEPPER_PROLOGUE, UW_PRIORITY_PROLOGUE, by_prologue),
	BUILT_IN("scan", UW_STEPPER_SCAN, UW_PRIORITY_SCAN, by_scan),
};
_Static_assert(sizeof(uw_built_in_steppers) ==
		       UW_BUILT_IN_STEPPERS * sizeof(uw_built_in_steppers[0]),
	       "as many as steppers.h says");

/* ---- asking -------------------------------------------------------------------------------- */

/* Call a user's stepper, and check what it returns. */
static enum uw_answer ask_user(struct uw_asking *a, const struct uw_stepper_entry *e)
{
	struct uw_walking *w = a->w;
	const struct uw_arch *arch = w->machine.arch;
	const struct uw_frame frame = { .pc = w->pc,
					.lookup = w->lookup,
					.sp = w->sp,
					.mapping = w->mapping,
					.stepper = w->stepper,
					.exact = w->exact };
	struct uw_query query = { .space = w->space,
				  .frame = &frame,
				  .read = w->machine.read,
				  .read_ctx = w->machine.ctx,
				  .confidence = UW_CONFIDENCE_RULE,
				  .stop = UW_STOP_BAD_CFI };
	uint64_t needed = (uint64_t)1 << arch->pc | (uint64_t)1 << arch->sp;
	enum uw_answer answer;

	uw_hot_settle(w);
	query.regs = w->machine.regs;
	answer = e->info.step(e->info.ctx, &query);
	if (answer == UW_ANSWER_NOT_ME)
		return answer;
	a->found->stepper = e->id;
	a->found->cfa = query.cfa;
	if (answer == UW_ANSWER_STACK_BOTTOM)
		return answer;
	if (answer != UW_ANSWER_SUCCESS || (query.regs.known & needed) != needed) {
		w->missing = query.stop_addr;
		return fail(a, (unsigned int)query.stop < UW_STOP_N ? query.stop : UW_STOP_BAD_CFI);
	}
	w->machine.regs = query.regs;
	w->sp_low = false;
	a->found->signal = query.signal;
	a->found->confidence = query.confidence;
	memcpy(a->found->saves, query.saves, sizeof(query.saves));
	if (!query.cfa)
		a->found->cfa = query.regs.value[arch->sp];
	return rises(w, query.signal) ? answer : fail(a, UW_STOP_CFA_NOT_RISING);
}

/* Return the stop for a frame that no stepper found a caller for. */
static int nobody(const struct uw_asking *a)
{
	const struct uw_walking *w = a->w;
	bool readable;

	if (!w->mapping)
		return uw_stopping(UW_STOP_NO_MAPPING);
	readable = w->mapping->object || w->mapping->kind == UW_MAPPING_ANON;
	/* If the file itself is missing, report that: the user can do something about it. */
	if (a->guessed && a->bottom && readable)
		return uw_stopping(UW_STOP_GUESS_ENDED);
	if (w->has_missing)
		return uw_stopping(UW_STOP_TRUNCATED);
	return uw_stopping(readable ? UW_STOP_NO_UNWIND_INFO : UW_STOP_NO_OBJECT);
}

static enum uw_answer ask(struct uw_asking *a, const struct uw_stepper_entry *e)
{
	return e->built_in ? e->built_in(a) : ask_user(a, e);
}

/* Call steppers in the order that the user's function chooses. */
static enum uw_answer ask_chosen(struct uw_asking *a, const struct uw_steppers *s)
{
	size_t last = SIZE_MAX;

	for (size_t i = 0; i < s->n; i++) {
		enum uw_answer answer;

		last = s->choose(s->choose_ctx, s, a->w->lookup, last);
		if (last >= s->n)
			break;
		answer = ask(a, &s->entries[last]);
		if (answer != UW_ANSWER_NOT_ME)
			return answer;
	}
	return UW_ANSWER_NOT_ME;
}

/* Convert a stepper's answer to what uw_stepper_step returns. */
static int conclude(const struct uw_asking *a, enum uw_answer answer)
{
	switch (answer) {
	case UW_ANSWER_SUCCESS:
		return UW_GO_ON;
	case UW_ANSWER_STACK_BOTTOM:
		return uw_stopping(UW_STOP_ROOT);
	case UW_ANSWER_NOT_ME:
		return nobody(a);
	case UW_ANSWER_ERROR:
	default:
		return a->stop;
	}
}

int uw_stepper_step(struct uw_walking *w, struct uw_found *found)
{
	const struct uw_steppers *group = uw_space_steppers(w->space);
	const struct uw_stepper_entry *e = group ? group->entries : uw_built_in_steppers;
	const struct uw_stepper_entry *end = e + (group ? group->n : UW_BUILT_IN_STEPPERS);
	struct uw_asking a;

	/* Do not clear all of it: the rule is large, and is set before it is used. */
	a.w = w;
	a.found = found;
	a.ruled = a.guessed = a.bottom = a.began = a.called = false;
	/* saves is not cleared either: it is read for the user's steppers only. */
	found->stepper = w->stepper;
	found->confidence = UW_CONFIDENCE_RULE;
	found->signal = false;
	found->cfa = 0;
	w->has_missing = false;
	if (w->exact && is_child(&a))
		return conclude(&a, step_by_rule(&a));
	if (group && group->choose)
		return conclude(&a, ask_chosen(&a, group));
	for (; e < end; e++) {
		enum uw_answer answer;

		if (!uw_stepper_covers(e, w->lookup))
			continue;
		answer = ask(&a, e);
		if (answer != UW_ANSWER_NOT_ME)
			return conclude(&a, answer);
	}
	return nobody(&a);
}
