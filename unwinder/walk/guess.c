/*
 * unwinder/walk/guess.c: guesses the caller of code that has no rules (guess.h): leaf functions,
 * frame pointers, and scans of the stack.
 */
#include "unwinder/walk/guess.h"

#include "unwinder/arch/arch.h"
#include "unwinder/rule/object.h"
#include "unwinder/walk/space.h"
#include "unwinder/walk/step.h"
#include "unwinder/walk/walk.h"

/*
 * The farthest that a pc may be behind a call's target to count as code of the called function,
 * in bytes.
 */
#define FUNCTION_MAX ((uint64_t)64 << 10)

/* How many words a scan reads: at most one page of a function's locals. */
#define SCAN_WORDS 512

/* ---- evidence for a return address -------------------------------------------------- */

/*
 * Return whether ra is the start of a signal trampoline. A handler returns there although no
 * call precedes it. This is accepted only where the return address is on the stack, so that sp
 * is known: after a frame record, whose sp is not known, the signal context could not be found.
 * The code says it, and not the rule: a file can have rules that take a millisecond each.
 */
static bool is_restorer(const struct uw_walking *w, const struct uw_object *object, uint64_t ra)
{
	const struct uw_arch *arch = w->machine.arch;
	struct uw_rule rule;

	return arch->lr == arch->pc && uw_object_trampoline(object, ra, false, &rule);
}

/*
 * Read the code below ra from its file; generated code and missing files give
 * UW_EVIDENCE_UNREADABLE.
 */
enum uw_evidence uw_guess_evidence(struct uw_walking *w, uint64_t ra)
{
	struct uw_mapping *mapping = ra ? uw_walk_code(w, ra - 1) : NULL;
	struct uw_object *object;
	struct uw_call call;
	uint64_t target;

	if (!mapping)
		return UW_EVIDENCE_NONE;
	object = uw_space_resolve(w->space, mapping);
	if (!object || uw_facts_call(&w->worker->facts, object, ra - mapping->bias, &call))
		return UW_EVIDENCE_UNREADABLE;
	if (call.kind == UW_CALL_NONE)
		return is_restorer(w, object, ra - mapping->bias) ? UW_EVIDENCE_DIRECT
								  : UW_EVIDENCE_NONE;
	if (call.kind == UW_CALL_INDIRECT)
		return UW_EVIDENCE_INDIRECT;
	target = ra + (uint64_t)(int64_t)call.target;
	if (target <= w->lookup && w->lookup - target < FUNCTION_MAX)
		return UW_EVIDENCE_DIRECT;
	return UW_EVIDENCE_ELSEWHERE;
}

bool uw_guess_target(struct uw_walking *w, uint64_t ra, uint64_t *target)
{
	struct uw_mapping *mapping = ra ? uw_walk_code(w, ra - 1) : NULL;
	struct uw_object *object = mapping ? uw_space_resolve(w->space, mapping) : NULL;
	struct uw_call call;

	if (!object || uw_facts_call(&w->worker->facts, object, ra - mapping->bias, &call) ||
	    call.kind != UW_CALL_DIRECT)
		return false;
	*target = ra + (uint64_t)(int64_t)call.target;
	return true;
}

/* ---- leaf functions ---------------------------------------------------------------------- */

/* How many bytes of code below the pc are read. */
#define BUILT_MAX 512

/*
 * Correct the evidence for the link register. It still holds its value after calls that have
 * returned, so the code below the pc decides whether it holds the current function's return
 * address.
 */
static void weigh_link(struct uw_walking *w, struct uw_guess *guess)
{
	struct uw_object *object = w->mapping ? w->mapping->object : NULL;
	uint64_t room = w->mapping ? w->pc - w->mapping->start : 0;
	uint8_t code[BUILT_MAX];

	if (!object || guess->evidence == UW_EVIDENCE_NONE || w->pc % 4 != 0)
		return;
	room = room < BUILT_MAX ? room & ~(uint64_t)3 : BUILT_MAX;
	/* The segment may begin further up than its mapping: read less. */
	while (room && uw_object_read(object, w->pc - room - w->mapping->bias, code, room))
		room = room / 2 & ~(uint64_t)3;
	switch (w->machine.arch->built(code, room)) {
	case UW_BUILT_NONE:
		guess->sure = true;
		break;
	case UW_BUILT_FRAME:
		guess->evidence =
			UW_EVIDENCE_ELSEWHERE; /* used only if nothing else finds a caller */
		break;
	default:
		break;
	}
}

/*
 * Read the return address. On machines with a link register, let the code below the pc decide
 * whether the register still holds it.
 */
void uw_guess_leaf(struct uw_walking *w, struct uw_guess *guess)
{
	const struct uw_arch *arch = w->machine.arch;

	*guess = (struct uw_guess){ .sp = w->sp };
	if (arch->lr != arch->pc) {
		if (uw_machine_reg(&w->machine, arch->lr, &guess->ra))
			return;
		guess->ra = uw_walk_stripped(w, guess->ra);
		guess->evidence = uw_guess_evidence(w, guess->ra);
		weigh_link(w, guess);
		return;
	}
	guess->sp = w->sp + 8;
	if (uw_machine_read(&w->machine, w->sp, 8, &guess->ra))
		uw_walk_record_missing(w);
	else
		guess->evidence = uw_guess_evidence(w, guess->ra);
}

/* ---- frame pointers ---------------------------------------------------------------------- */

bool uw_guess_fp(struct uw_walking *w, struct uw_guess *guess)
{
	const struct uw_arch *arch = w->machine.arch;
	uint64_t fp, next, ra;
	enum uw_evidence evidence;

	*guess = (struct uw_guess){ .evidence = UW_EVIDENCE_NONE };
	if (uw_machine_reg(&w->machine, arch->fp, &fp))
		return false;
	/*
	 * The outermost frame's fp is 0 (psABI §3.4.1, AAPCS64 §6.4.6), so the chain ends
	 * there. If no chain led to this frame and its code cannot be read, the value 0 proves
	 * nothing.
	 */
	if (fp == 0 && !w->exact && (w->mapping->object || w->stepper == UW_STEPPER_FP))
		return true;
	if (!uw_guess_is_fp(w->sp, fp))
		return false;
	if (uw_machine_read(&w->machine, fp, 8, &next) ||
	    uw_machine_read(&w->machine, fp + 8, 8, &ra)) {
		uw_walk_record_missing(w);
		return false;
	}
	ra = uw_walk_stripped(w, ra);
	/*
	 * A record of zeros ends a chain (coroutines, threads created by hand). In frame 0 the
	 * register may also point to other data that happen to be zero.
	 */
	if (ra == 0)
		return next == 0 && !w->exact;
	evidence = uw_guess_link(uw_guess_evidence(w, ra), fp, next, uw_walk_code(w, ra - 1));
	*guess = (struct uw_guess){ .ra = ra, .sp = fp + 16, .fp = next, .evidence = evidence };
	return false;
}

/* ---- scans of the stack ------------------------------------------------------------------ */

/*
 * Take the first word with a direct or an indirect call. A word with a call of other code is
 * used if there is none.
 */
void uw_guess_scan(struct uw_walking *w, struct uw_guess *guess)
{
	uint64_t sp = (w->sp + 7) & ~(uint64_t)7;

	*guess = (struct uw_guess){ .evidence = UW_EVIDENCE_NONE };
	for (unsigned int i = 0; i < SCAN_WORDS; i++) {
		uint64_t addr = sp + 8 * (uint64_t)i, ra;
		enum uw_evidence evidence;

		if (addr < w->sp)
			return; /* the address wrapped around */
		if (uw_machine_read(&w->machine, addr, 8, &ra)) {
			if (guess->evidence == UW_EVIDENCE_NONE)
				uw_walk_record_missing(w);
			return;
		}
		ra = uw_walk_stripped(w, ra);
		evidence = uw_guess_evidence(w, ra);
		/*
		 * A pointer into generated code may be anything: its code cannot be read to
		 * check for a call.
		 */
		if (evidence == UW_EVIDENCE_UNREADABLE || evidence <= guess->evidence)
			continue;
		*guess = (struct uw_guess){ .ra = ra, .sp = addr + 8, .evidence = evidence };
		/* A call of other code is used only if no other word follows a call. */
		if (evidence > UW_EVIDENCE_ELSEWHERE)
			return;
	}
}

/* ---- the caller's registers --------------------------------------------------------------- */

/* Set a register and mark it as known. */
static void set_reg(struct uw_regs *regs, unsigned int reg, uint64_t value)
{
	regs->value[reg] = value;
	regs->known |= (uint64_t)1 << reg;
}

void uw_guess_take(const struct uw_arch *arch, uint8_t stepper, const struct uw_guess *guess,
		   struct uw_regs *regs, bool *sp_low)
{
	const uint64_t fp = (uint64_t)1 << arch->fp;

	if (stepper == UW_STEPPER_FP)
		regs->known = 0; /* they may have been saved anywhere, or not at all */
	else if (stepper == UW_STEPPER_SCAN)
		/* a frame pointer above the caller's sp may still be the caller's */
		regs->known &= regs->value[arch->fp] >= guess->sp ? fp : 0;
	else if (arch->lr != arch->pc)
		regs->known &= ~((uint64_t)1 << arch->lr); /* lr leads to a caller only once */
	set_reg(regs, arch->pc, guess->ra);
	set_reg(regs, arch->sp, guess->sp);
	if (stepper == UW_STEPPER_FP)
		set_reg(regs, arch->fp, guess->fp);
	if (stepper != UW_STEPPER_LEAF)
		*sp_low = arch->lr != arch->pc;
}
