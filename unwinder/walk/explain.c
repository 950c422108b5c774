/*
 * unwinder/walk/explain.c: explains a walk step by step.
 *
 * The walk is repeated in a slow and simple way: rules come from the interpreter, without
 * caches. Where the code has no rule, the frames of the original walk show which guess was
 * taken.
 */
#include <errno.h>
#include <sys/mman.h>

#include "unwinder/arch/arch.h"
#include "unwinder/cfi/cfi.h"
#include "unwinder/cfi/ehframe.h"
#include "unwinder/rule/object.h"
#include "unwinder/unwinder.h"
#include "unwinder/walk/child.h"
#include "unwinder/walk/guess.h"
#include "unwinder/walk/prologue.h"
#include "unwinder/walk/saves.h"
#include "unwinder/walk/space.h"
#include "unwinder/walk/step.h"
#include "unwinder/walk/stepper.h"

/* The state of the repeated walk. */
struct replay {
	struct uw_space *space;
	const struct uw_thread *thread;
	const struct uw_stack *stack;
	struct uw_machine machine;
	bool sp_low; /* as in struct uw_walking */
};

const char *uw_rules_name(enum uw_rules rules)
{
	static const char *const names[] = {
		[UW_RULES_NONE] = "none",	    [UW_RULES_EH_FRAME] = ".eh_frame",
		[UW_RULES_GO] = ".gopclntab",	    [UW_RULES_DEBUG_FRAME] = ".debug_frame",
		[UW_RULES_MINI] = ".gnu_debugdata", [UW_RULES_GAP] = "beside",
		[UW_RULES_DYNAMIC] = "registered",  [UW_RULES_CODE] = "code",
	};

	return (unsigned int)rules < sizeof(names) / sizeof(names[0]) ? names[rules] : "none";
}

const char *uw_confidence_name(enum uw_confidence confidence)
{
	static const char *const names[] = {
		[UW_CONFIDENCE_RULE] = "rule",
		[UW_CONFIDENCE_CHECKED] = "checked",
		[UW_CONFIDENCE_GUESS] = "guess",
	};

	return (unsigned int)confidence < sizeof(names) / sizeof(names[0]) ? names[confidence]
									   : "guess";
}

/*
 * Read captured bytes. Memory that was not captured is read from the mapped file if it cannot
 * have been written.
 */
static int read_memory(void *ctx, uint64_t addr, void *out, size_t size)
{
	struct replay *r = ctx;

	if (!r->thread->read(r->thread->ctx, addr, out, size))
		return 0;
	return uw_space_read(r->space, uw_space_at(r->space, addr), addr, out, size);
}

/* ---- table rows ------------------------------------------------------------------------ */

struct row {
	uint64_t lookup, start, end;
};

/* Note the row that covers row->lookup, and end the iteration. */
static int take_row(void *ctx, uint64_t start, uint64_t end, const struct uw_rule *rule)
{
	struct row *row = ctx;

	(void)rule;
	if (row->lookup < start || row->lookup >= end)
		return 0;
	row->start = start;
	row->end = end;
	return 1;
}

/* Find which section the rule is from, and the ranges of its FDE and row. */
static void find_row(struct uw_object *object, uint64_t lookup, const struct uw_rule *rule,
		     struct uw_step *step)
{
	static const enum uw_rules kinds[UW_FRAMES_N] = { [UW_FRAMES_EH] = UW_RULES_EH_FRAME,
							  [UW_FRAMES_GO] = UW_RULES_GO,
							  [UW_FRAMES_DEBUG] = UW_RULES_DEBUG_FRAME,
							  [UW_FRAMES_MINI] = UW_RULES_MINI };
	struct row row = { .lookup = lookup };
	struct uw_fde fde;

	step->rules = UW_RULES_GAP;
	step->fde_start = rule->start;
	step->fde_end = rule->end;
	for (unsigned int i = 0; i < UW_FRAMES_N; i++) {
		struct uw_frames *frames = uw_object_frames(object, i);

		if (uw_frames_find(frames, lookup, &fde))
			continue;
		/*
		 * The rule of a signal trampoline may be made from its code although an FDE
		 * covers it. Report the FDE in that case too.
		 */
		if (rule->stepper != UW_STEPPER_CFI && !rule->signal)
			return;
		step->rules = kinds[i];
		step->fde_start = fde.start;
		step->fde_end = fde.end;
		(void)uw_cfi_rows(&frames->cfi, &fde, take_row, &row);
		step->row_start = row.start;
		step->row_end = row.end;
		return;
	}
}

/* ---- steps by a rule ------------------------------------------------------------------- */

/* Set the value of a caller's register. */
static void read_save(const struct uw_regs *regs, struct uw_save *save)
{
	save->known = regs->known >> save->reg & 1;
	save->value = regs->value[save->reg];
}

/* Step by a rule and describe in *step where each register was saved. */
static void step_by_rule(struct replay *r, struct uw_rule *rule, struct uw_step *step)
{
	const struct uw_arch *arch = r->machine.arch;
	struct uw_machine before = r->machine; /* the callee's registers; reads the same memory */
	int got = uw_step_low(&r->machine, rule, &r->sp_low, &step->cfa);
	bool fp_reported = false;

	step->cfa_known = got >= 0 || step->cfa != 0;
	step->cfa_expression = rule->cfa_size != 0;
	step->cfa_reg = rule->cfa_reg;
	step->cfa_off = rule->cfa_size ? 0 : rule->cfa_off;
	step->stepper = rule->stepper;
	step->confidence =
		rule->stepper == UW_STEPPER_PROLOGUE ? UW_CONFIDENCE_CHECKED : UW_CONFIDENCE_RULE;
	step->found = got == 1;
	step->n_saves = uw_saves_by_rule(&before, rule, step->cfa, &step->ra, step->saves);
	if (got == 1)
		read_save(&r->machine.regs, &step->ra);
	for (size_t i = 0; i < step->n_saves; i++) {
		if (got == 1)
			read_save(&r->machine.regs, &step->saves[i]);
		fp_reported |= step->saves[i].reg == arch->fp;
	}
	/*
	 * A register that the rule does not mention is unchanged. Describe the frame pointer in
	 * any case: readers expect it.
	 */
	if (got == 1 && !fp_reported && step->n_saves < UW_REGS_MAX) {
		struct uw_save *save = &step->saves[step->n_saves++];

		*save = (struct uw_save){ .reg = arch->fp, .place = UW_PLACE_SAME };
		read_save(&r->machine.regs, save);
	}
}

/* ---- guesses ---------------------------------------------------------------------------- */

/*
 * Step to the frame that the walk guessed next, and describe the guess. The words that the walk
 * read are read again.
 */
static void step_by_guess(struct replay *r, const struct uw_frame *next, struct uw_step *step)
{
	const struct uw_arch *arch = r->machine.arch;
	struct uw_regs *regs = &r->machine.regs;
	struct uw_guess guess = { .ra = next->pc, .sp = next->sp };

	step->stepper = next->stepper;
	step->found = true;
	step->cfa_known = true;
	step->cfa = next->sp;
	step->confidence = next->confidence;
	uw_saves_by_guess(arch, next->stepper, regs, next->sp, &step->ra, &step->saves[0]);
	step->ra.known = true;
	step->ra.value = next->pc;
	step->cfa_reg = next->stepper == UW_STEPPER_FP ? arch->fp : arch->sp;
	step->cfa_off = (int64_t)(step->cfa - regs->value[step->cfa_reg]);
	if (next->stepper == UW_STEPPER_FP) {
		struct uw_save *fp = &step->saves[step->n_saves++];

		fp->known = !uw_machine_read(&r->machine, fp->addr, 8, &fp->value);
		guess.fp = fp->value;
	}
	uw_guess_take(arch, next->stepper, &guess, regs, &r->sp_low);
}

/* ---- guesses that were rejected -------------------------------------------------------- */

static const struct {
	const char *name, *sentence;
} verdicts[] = {
	[UW_VERDICT_CALLER] = { "caller", "this frame called another one, so the return address is "
					  "not there" },
	[UW_VERDICT_UNKNOWN] = { "unknown", "its value is not known" },
	[UW_VERDICT_NONE] = { "none",
			      "it is 0, as in many outermost frames, but that proves nothing" },
	[UW_VERDICT_ASTRAY] = { "astray", "it points to no frame of this stack" },
	[UW_VERDICT_NOT_RISING] = { "not_rising",
				    "the frame that it points to leads back down the stack" },
	[UW_VERDICT_MISSING] = { "missing", "the memory there was not captured" },
	[UW_VERDICT_NO_CODE] = { "no_code", "this is not an address of code" },
	[UW_VERDICT_NO_CALL] = { "no_call", "no call instruction ends there" },
	[UW_VERDICT_UNREADABLE] = { "unreadable", "the code before this address cannot be read" },
	[UW_VERDICT_OTHER] = { "other", "the call that ends there calls other code" },
	[UW_VERDICT_OFF] = { "off", "not switched on" },
	[UW_VERDICT_NO_WORD] = { "no_word", "no word on the stack follows a call" },
	[UW_VERDICT_NOT_PLAIN] = { "not_plain", "no function start below this address leads to a "
						"return address" },
};
_Static_assert(sizeof(verdicts) / sizeof(verdicts[0]) == UW_VERDICT_N, "each has words");

const char *uw_verdict_name(enum uw_verdict verdict)
{
	return (unsigned int)verdict < UW_VERDICT_N ? verdicts[verdict].name : "unknown";
}

const char *uw_verdict_sentence(enum uw_verdict verdict)
{
	return (unsigned int)verdict < UW_VERDICT_N ? verdicts[verdict].sentence : "";
}

/*
 * Return why ra is not accepted as a return address. OTHER: a call ends there, so the call must
 * be of other code.
 */
static enum uw_verdict verdict_of(struct replay *r, uint64_t ra)
{
	struct uw_mapping *mapping = ra ? uw_space_at(r->space, ra - 1) : NULL;
	uint8_t buffer[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_object *object;
	struct uw_code code;

	if (!mapping || !(mapping->prot & PROT_EXEC))
		return UW_VERDICT_NO_CODE;
	object = uw_space_resolve(r->space, mapping);
	if (!object || uw_object_code(object, ra - mapping->bias, buffer, &code))
		return UW_VERDICT_UNREADABLE;
	return r->machine.arch->after_call(&code).kind == UW_CALL_NONE ? UW_VERDICT_NO_CALL
								       : UW_VERDICT_OTHER;
}

/* Return pc without authentication bits and tags. */
static uint64_t stripped(const struct replay *r, uint64_t pc)
{
	return r->machine.arch->strip(pc, r->thread->code_mask, uw_space_top(r->space));
}

/* Describe why the return address was not where a call leaves it, at sp or in the link register. */
static void try_leaf(struct replay *r, const struct uw_frame *frame, struct uw_try *try)
{
	const struct uw_arch *arch = r->machine.arch;
	bool in_register = arch->lr != arch->pc;

	*try = (struct uw_try){ .stepper = UW_STEPPER_LEAF,
				.verdict = UW_VERDICT_CALLER,
				.reg = in_register ? arch->lr : arch->sp };
	if (!frame->exact)
		return;
	try->has_addr = !in_register;
	try->addr = frame->sp;
	if (in_register ? uw_machine_reg(&r->machine, arch->lr, &try->value)
			: uw_machine_read(&r->machine, frame->sp, 8, &try->value)) {
		try->verdict = in_register ? UW_VERDICT_UNKNOWN : UW_VERDICT_MISSING;
		return;
	}
	try->has_value = true;
	try->verdict = (uint8_t)verdict_of(r, stripped(r, try->value));
}

/* Describe why the frame pointer does not lead to a caller. */
static void try_fp(struct replay *r, const struct uw_frame *frame, struct uw_try *try)
{
	const struct uw_arch *arch = r->machine.arch;
	uint64_t next, fp;

	*try = (struct uw_try){ .stepper = UW_STEPPER_FP,
				.verdict = UW_VERDICT_UNKNOWN,
				.reg = arch->fp };
	if (uw_machine_reg(&r->machine, arch->fp, &fp))
		return;
	try->has_value = true;
	try->value = fp;
	try->verdict = fp ? UW_VERDICT_ASTRAY : UW_VERDICT_NONE;
	if (!uw_guess_is_fp(frame->sp, fp))
		return;
	try->has_addr = true;
	try->addr = fp + 8;
	try->has_value = !uw_machine_read(&r->machine, fp, 8, &next) &&
			 !uw_machine_read(&r->machine, fp + 8, 8, &try->value);
	if (!try->has_value) {
		try->verdict = UW_VERDICT_MISSING;
		try->addr = r->machine.missing;
		return;
	}
	try->verdict = (uint8_t)verdict_of(r, stripped(r, try->value));
	if (try->verdict == UW_VERDICT_UNREADABLE || try->verdict == UW_VERDICT_OTHER)
		try->verdict = UW_VERDICT_NOT_RISING;
}

/* Describe each guess for a frame that no stepper could leave, and why it was rejected. */
static void try_all(struct replay *r, const struct uw_frame *frame, struct uw_step *step)
{
	const struct uw_steppers *steppers = uw_space_steppers(r->space);
	bool scan = uw_stepper_is_on(steppers, UW_STEPPER_SCAN);

	try_leaf(r, frame, &step->tried[step->n_tried++]);
	if (!frame->mapping)
		return;
	try_fp(r, frame, &step->tried[step->n_tried++]);
	if (frame->mapping->object && r->machine.arch->begins)
		step->tried[step->n_tried++] = (struct uw_try){ .stepper = UW_STEPPER_PROLOGUE,
								.verdict = UW_VERDICT_NOT_PLAIN,
								.reg = r->machine.arch->sp };
	step->tried[step->n_tried++] =
		(struct uw_try){ .stepper = UW_STEPPER_SCAN,
				 .verdict = scan ? UW_VERDICT_NO_WORD : UW_VERDICT_OFF,
				 .reg = r->machine.arch->sp };
}

/* ---- the user's steppers ------------------------------------------------------------------- */

/*
 * Step by one of the user's steppers: call it again. Only the stepper knows which memory it
 * read.
 */
static void step_by_user(struct replay *r, const struct uw_frame *frame,
			 const struct uw_frame *next, struct uw_step *step)
{
	const struct uw_arch *arch = r->machine.arch;
	struct uw_query query = { .space = r->space,
				  .frame = frame,
				  .read = read_memory,
				  .read_ctx = r,
				  .regs = r->machine.regs };

	step->stepper = next->stepper;
	step->confidence = next->confidence;
	step->cfa_reg = arch->sp;
	step->found = uw_stepper_ask(uw_space_steppers(r->space), next->stepper, &query) ==
		      UW_ANSWER_SUCCESS;
	if (!step->found)
		return;
	step->cfa_known = true;
	step->cfa = query.cfa ? query.cfa : query.regs.value[arch->sp];
	step->cfa_off = (int64_t)(step->cfa - r->machine.regs.value[arch->sp]);
	step->ra = (struct uw_save){ .reg = arch->pc,
				     .place = UW_PLACE_VALUE,
				     .known = true,
				     .value = query.regs.value[arch->pc] };
	r->machine.regs = query.regs;
}

/* ---- the whole walk -------------------------------------------------------------------- */

/*
 * Find the rule of a frame, as the walk did that found next; next is NULL for the last frame. Set
 * what the rule's expressions count from, and the frame's object in *step. -ENOENT: there is none.
 */
static int find_rule(struct replay *r, const struct uw_frame *frame, const struct uw_frame *next,
		     struct uw_step *step, struct uw_rule *rule)
{
	struct uw_object *object = frame->mapping ? frame->mapping->object : NULL;
	struct uw_machine *machine = &r->machine;
	int err = -ENOENT;

	machine->bias = object ? frame->mapping->bias : 0;
	if (object) {
		step->object = object;
		step->vaddr = frame->lookup - machine->bias;
		if (frame->exact && !next && r->stack->stop == UW_STOP_ROOT &&
		    uw_child_rule(object, step->vaddr, &machine->regs, rule))
			return 0;
		err = uw_object_interpret(object, step->vaddr, frame->exact, rule);
	}
	if (err == -ENOENT && uw_space_is_dynamic(r->space, frame->lookup))
		return uw_stepper_dynamic(r->space, frame->lookup, frame->exact, rule,
					  &machine->bias);
	if (!object && uw_stepper_trampoline(r->space, machine, frame->pc, frame->exact, rule))
		return 0;
	if (err == -ENOENT && object && next && next->stepper == UW_STEPPER_PROLOGUE &&
	    uw_beginnings_taken(object, frame->pc - machine->bias, &machine->regs, next->sp, rule))
		return 0;
	return err;
}

/* Describe in *step where the rule of a frame is from. */
static void name_rule(const struct uw_frame *frame, const struct uw_rule *rule,
		      struct uw_step *step)
{
	step->rules = UW_RULES_GAP;
	if (rule->stepper == UW_STEPPER_DYNAMIC || rule->stepper == UW_STEPPER_PROLOGUE) {
		step->rules =
			rule->stepper == UW_STEPPER_DYNAMIC ? UW_RULES_DYNAMIC : UW_RULES_CODE;
		step->fde_start = rule->start;
		step->fde_end = rule->end;
	} else if (step->object) {
		find_row(frame->mapping->object, step->vaddr, rule, step);
	}
}

/* Step from a frame to its caller, and describe the step in *step. */
static void explain_step(struct replay *r, const struct uw_frame *frame,
			 const struct uw_frame *next, struct uw_step *step)
{
	const struct uw_arch *arch = r->machine.arch;
	const struct uw_regs *regs = &r->machine.regs;
	struct uw_rule rule;
	int err = find_rule(r, frame, next, step, &rule);

	if (next && next->stepper >= UW_STEPPER_N) {
		step_by_user(r, frame, next, step);
	} else if (!err) {
		name_rule(frame, &rule, step);
		step_by_rule(r, &rule, step);
	} else if (next) {
		step_by_guess(r, next, step);
	} else if (err == -ENOENT && r->stack->stop != UW_STOP_MAX_FRAMES) {
		try_all(r, frame, step);
	}
	/* The last frame's step is reported, but has no next frame to compare with. */
	step->differs = next && (!step->found || regs->value[arch->sp] != next->sp ||
				 stripped(r, regs->value[arch->pc]) != next->pc);
}

void uw_explain(struct uw_space *space, const struct uw_thread *thread,
		const struct uw_stack *stack, uw_step_fn fn, void *ctx)
{
	struct replay r = { .space = space,
			    .thread = thread,
			    .stack = stack,
			    .machine = { .arch = uw_arch_of(uw_space_machine(space)),
					 .regs = thread->regs,
					 .read = read_memory } };
	bool differs = false;

	r.machine.ctx = &r;
	for (size_t i = 0; i < stack->n_frames && !differs; i++) {
		struct uw_step step = { .frame = i, .regs = r.machine.regs };

		explain_step(&r, &stack->frames[i],
			     i + 1 < stack->n_frames ? &stack->frames[i + 1] : NULL, &step);
		fn(ctx, &step);
		differs = step.differs;
	}
}
