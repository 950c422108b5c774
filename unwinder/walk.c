#include "unwinder/walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "unwinder/arch.h"
#include "unwinder/object.h"
#include "unwinder/space.h"
#include "unwinder/step.h"
#include "unwinder/unwinder.h"

/* ---- the worker's caches ---------------------------------------------------------- */

int uw_worker_new(struct uw_worker **out)
{
	struct uw_worker *worker = calloc(1, sizeof(*worker));

	if (!worker)
		return -ENOMEM;
	*out = worker;
	return 0;
}

void uw_worker_free(struct uw_worker *worker)
{
	free(worker);
}

/* Fibonacci hashing: the high bits depend on all of the key's. */
static size_t slot_of(uint64_t owner, uint64_t key, unsigned int slots)
{
	uint64_t hash = (key ^ owner << 40) * 0x9e3779b97f4a7c15u;

	return (size_t)(hash >> 32) & (slots - 1);
}

static int cached_rule(struct uw_worker *worker, struct uw_object *object, uint64_t lookup,
		       bool exact, struct uw_rule *rule)
{
	uint64_t id = uw_object_id(object), key = lookup << 1 | exact;
	struct uw_rule_slot *slot = &worker->rules[slot_of(id, key, UW_RULE_SLOTS)];
	int err;

	if (slot->object == id && slot->key == key) {
		if (!slot->err) {
			memcpy(rule, slot->rule, sizeof(slot->rule));
			memcpy(rule->regs, slot->regs, rule->n_regs * sizeof(*rule->regs));
		}
		return slot->err;
	}
	err = uw_object_rule(object, lookup, exact, rule);
	if (err != -ENOMEM && (err || rule->n_regs <= UW_SLOT_REGS)) {
		slot->object = id;
		slot->key = key;
		slot->err = err;
		if (!err) {
			memcpy(slot->rule, rule, sizeof(slot->rule));
			memcpy(slot->regs, rule->regs, rule->n_regs * sizeof(*rule->regs));
		}
	}
	return err;
}

/* ---- a walk ------------------------------------------------------------------------- */

#define PAGE_SHIFT 12

static struct uw_mapping *mapping_at(struct uw_walking *w, uint64_t addr)
{
	uint64_t id = uw_space_id(w->space), page = addr >> PAGE_SHIFT;
	struct uw_page_slot *slot = &w->worker->pages[slot_of(id, page, UW_PAGE_SLOTS)];
	struct uw_mapping *mapping;

	if (slot->space == id && slot->page == page && addr >= slot->mapping->start &&
	    addr < slot->mapping->end)
		return slot->mapping;
	mapping = uw_space_at(w->space, addr);
	if (mapping)
		*slot = (struct uw_page_slot){ .space = id, .page = page, .mapping = mapping };
	return mapping;
}

struct uw_mapping *uw_walk_code(struct uw_walking *w, uint64_t addr)
{
	struct uw_mapping *mapping = mapping_at(w, addr);

	return mapping && mapping->prot & PROT_EXEC ? mapping : NULL;
}

/* Captured bytes, then what the file says of memory that cannot have been written. */
static int read_memory(void *ctx, uint64_t addr, void *out, size_t size)
{
	struct uw_walking *w = ctx;
	struct uw_mapping *mapping;
	struct uw_object *object;

	if (!w->thread->read(w->thread->ctx, addr, out, size))
		return 0;
	mapping = mapping_at(w, addr);
	if (!mapping || mapping->prot & PROT_WRITE ||
	    (mapping->kind != UW_MAPPING_FILE && mapping->kind != UW_MAPPING_VDSO) ||
	    size > mapping->end - addr)
		return -EFAULT;
	object = uw_space_resolve(w->space, mapping);
	return object ? uw_object_read(object, addr - mapping->bias, out, size) : -EFAULT;
}

/* How much a word is worth as the return address of the code at the pc. */
enum worth {
	WORTH_NOTHING,	 /* no code, or no call ends there */
	WORTH_ELSEWHERE, /* a call, but of other code: of a callee that has returned, or tail calls */
	WORTH_UNREAD,	 /* code that cannot be looked at: generated, or its file is missing */
	WORTH_INDIRECT, /* a call through a register or memory, or of a PLT entry */
	WORTH_DIRECT,	/* a call of what lies at the pc or not far below it */
};

/* How far into a function a pc may be to belong to the call of its start. */
#define FUNCTION_MAX ((uint64_t)64 << 10)

/* The call that ends at vaddr; -EFAULT where the code cannot be read. */
static int call_before(struct uw_walking *w, struct uw_object *object, uint64_t vaddr,
		       struct uw_call *out)
{
	uint64_t id = uw_object_id(object);
	struct uw_call_slot *slot = &w->worker->calls[slot_of(id, vaddr, UW_CALL_SLOTS)];
	uint8_t buffer[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_code code;
	int err = 0;

	if (slot->object != id || slot->vaddr != vaddr) {
		err = uw_object_code(object, vaddr, buffer, &code);
		if (!err)
			*slot = (struct uw_call_slot){ .object = id,
						       .vaddr = vaddr,
						       .call = w->machine.arch->after_call(&code) };
	}
	if (!err)
		*out = slot->call;
	return err;
}

static bool is_stub(struct uw_walking *w, uint64_t pc)
{
	struct uw_mapping *mapping = uw_walk_code(w, pc);
	struct uw_object *object = mapping ? uw_space_resolve(w->space, mapping) : NULL;
	struct uw_rule rule;

	if (!object)
		return false;
	/* With CFI or without, a PLT entry is told by its code. */
	return uw_object_stub(object, pc - mapping->bias, &rule);
}

static enum worth worth_of(struct uw_walking *w, uint64_t ra)
{
	struct uw_mapping *mapping = ra ? uw_walk_code(w, ra - 1) : NULL;
	struct uw_object *object;
	struct uw_call call;
	uint64_t target;

	if (!mapping)
		return WORTH_NOTHING;
	object = uw_space_resolve(w->space, mapping);
	if (!object || call_before(w, object, ra - mapping->bias, &call))
		return WORTH_UNREAD;
	if (call.kind == UW_CALL_NONE)
		return WORTH_NOTHING;
	if (call.kind == UW_CALL_INDIRECT)
		return WORTH_INDIRECT;
	target = ra + (uint64_t)(int64_t)call.target;
	if (target <= w->lookup && w->lookup - target < FUNCTION_MAX)
		return WORTH_DIRECT;
	return is_stub(w, target) ? WORTH_INDIRECT : WORTH_ELSEWHERE;
}

static void note_missing(struct uw_walking *w)
{
	if (!w->has_missing)
		w->missing = w->machine.missing;
	w->has_missing = true;
}

static void set_reg(struct uw_regs *regs, unsigned int reg, uint64_t value)
{
	regs->value[reg] = value;
	regs->known |= (uint64_t)1 << reg;
}

static uint64_t stripped(const struct uw_walking *w, uint64_t pc)
{
	return w->machine.arch->strip(pc, uw_space_top(w->space));
}

/* ---- steppers for code without rules --------------------------------------------------- */

/* A caller that was guessed, to be taken or not. */
struct guess {
	uint64_t ra, sp, fp;
	enum worth worth;
};

/*
 * The pc was reached by a call and has built no frame yet: the return address
 * is where the call left it.
 */
static void guess_leaf(struct uw_walking *w, struct guess *guess)
{
	const struct uw_arch *arch = w->machine.arch;

	*guess = (struct guess){ .sp = w->sp };
	if (arch->lr != arch->pc) {
		if (uw_machine_reg(&w->machine, arch->lr, &guess->ra))
			return;
		guess->ra = stripped(w, guess->ra);
		/* At a function's start a link register holds nothing else. */
		if (guess->ra && uw_walk_code(w, guess->ra - 1))
			guess->worth = WORTH_DIRECT;
		return;
	}
	guess->sp = w->sp + 8;
	if (uw_machine_read(&w->machine, w->sp, 8, &guess->ra))
		note_missing(w);
	else
		guess->worth = worth_of(w, guess->ra);
}

static void take_leaf(struct uw_walking *w, const struct guess *guess, uint64_t *cfa)
{
	const struct uw_arch *arch = w->machine.arch;
	struct uw_regs *regs = &w->machine.regs;

	uw_hot_settle(w);
	set_reg(regs, arch->pc, guess->ra);
	set_reg(regs, arch->sp, guess->sp);
	if (arch->lr != arch->pc)
		regs->known &= ~((uint64_t)1 << arch->lr); /* used up: it leads on once */
	*cfa = guess->sp;
}

/* Stacks are not larger by default (RLIMIT_STACK), so a pointer beyond is no frame's. */
#define STACK_MAX ((uint64_t)8 << 20)

/*
 * [fp] the caller's fp, [fp + 8] the return address (psABI §3.2.2, AAPCS64
 * §6.4.6).  Code without rules may use the register for anything, so both words
 * must look the part.
 */
static int guess_fp(struct uw_walking *w, struct guess *guess)
{
	const struct uw_arch *arch = w->machine.arch;
	uint64_t fp, next, ra;

	*guess = (struct guess){ .worth = WORTH_NOTHING };
	if (uw_machine_reg(&w->machine, arch->fp, &fp))
		return UW_GO_ON;
	/*
	 * The outermost frame has none (psABI §3.4.1, AAPCS64 §6.4.6).  That much
	 * is to be believed of code that is there to see, or at the end of a chain;
	 * elsewhere the register may be zero for any reason.
	 */
	if (fp == 0 && !w->exact && (w->mapping->object || w->stepper == UW_STEPPER_FP))
		return uw_stopping(UW_STOP_ROOT);
	if (fp < w->sp || fp - w->sp > STACK_MAX || fp % 8)
		return UW_GO_ON;
	if (uw_machine_read(&w->machine, fp, 8, &next) ||
	    uw_machine_read(&w->machine, fp + 8, 8, &ra)) {
		note_missing(w);
		return UW_GO_ON;
	}
	ra = stripped(w, ra);
	if (ra == 0)
		return next == 0 ? uw_stopping(UW_STOP_ROOT) : UW_GO_ON;
	*guess = (struct guess){ .ra = ra, .sp = fp + 16, .fp = next, .worth = worth_of(w, ra) };
	/*
	 * The last link of a chain holds by itself.  What it leads to need not have
	 * called: Go lets goroutines return to the second byte of runtime.goexit.
	 */
	if (guess->worth == WORTH_NOTHING && next == 0 && uw_walk_code(w, ra - 1))
		guess->worth = WORTH_UNREAD;
	/* Generated code cannot be looked at; then the chain itself must hold. */
	if (guess->worth == WORTH_UNREAD && next != 0 && (next <= fp || next % 8))
		guess->worth = WORTH_NOTHING;
	return UW_GO_ON;
}

static void take_fp(struct uw_walking *w, const struct guess *guess, uint64_t *cfa)
{
	const struct uw_arch *arch = w->machine.arch;
	struct uw_regs *regs = &w->machine.regs;

	/* Other registers may have been saved anywhere, or not. */
	w->log = w->worker->hot.log;
	regs->known = 0;
	set_reg(regs, arch->pc, guess->ra);
	set_reg(regs, arch->sp, guess->sp);
	set_reg(regs, arch->fp, guess->fp);
	*cfa = guess->sp;
}

/*
 * No rule knows the pc.  A function that keeps a frame pointer has spilled
 * values at sp, old return addresses among them; one that keeps none, or has
 * just been entered, has its own there while fp is its caller's.  Whose call
 * leads to the pc decides; where none can be seen to, the word at sp comes first.
 */
static int step_without_rule(struct uw_walking *w, enum uw_stop otherwise, uint8_t *stepper,
			     uint64_t *cfa)
{
	struct guess leaf = { .worth = WORTH_NOTHING }, fp = leaf;
	int stop;

	w->has_missing = false;
	if (w->exact)
		guess_leaf(w, &leaf);
	stop = leaf.worth == WORTH_DIRECT ? UW_GO_ON : guess_fp(w, &fp);
	if (leaf.worth == WORTH_DIRECT ||
	    (leaf.worth == WORTH_INDIRECT && fp.worth != WORTH_DIRECT) ||
	    (leaf.worth == WORTH_ELSEWHERE && stop == UW_GO_ON && fp.worth == WORTH_NOTHING)) {
		take_leaf(w, &leaf, cfa);
		*stepper = UW_STEPPER_LEAF;
		return UW_GO_ON;
	}
	if (stop != UW_GO_ON)
		return stop;
	if (fp.worth != WORTH_NOTHING) {
		take_fp(w, &fp, cfa);
		*stepper = UW_STEPPER_FP;
		return UW_GO_ON;
	}
	return uw_stopping(w->has_missing ? UW_STOP_TRUNCATED : otherwise);
}

/* A call into nowhere: its caller can still be had. */
static int step_from_nowhere(struct uw_walking *w, uint8_t *stepper, uint64_t *cfa)
{
	struct guess leaf;

	w->has_missing = false;
	if (w->exact)
		guess_leaf(w, &leaf);
	if (!w->exact || leaf.worth == WORTH_NOTHING)
		return uw_stopping(UW_STOP_NO_MAPPING);
	take_leaf(w, &leaf, cfa);
	*stepper = UW_STEPPER_LEAF;
	return UW_GO_ON;
}

/* ---- the walk itself ----------------------------------------------------------------------- */

static int step_by_rule(struct uw_walking *w, const struct uw_rule *rule, uint64_t *cfa)
{
	int got = uw_step(&w->machine, rule, cfa);

	switch (got) {
	case 1:
		return UW_GO_ON;
	case 0:
		return uw_stopping(UW_STOP_ROOT);
	case -EFAULT:
		w->has_missing = false;
		note_missing(w);
		return uw_stopping(UW_STOP_TRUNCATED);
	case -ENODATA:
		return uw_stopping(UW_STOP_REG_UNKNOWN);
	default:
		return uw_stopping(UW_STOP_BAD_CFI);
	}
}

/* May the caller's stack pointer be where the rule puts it? */
static bool rises(const struct uw_walking *w, const struct uw_rule *rule)
{
	const struct uw_arch *arch = w->machine.arch;
	uint64_t sp = w->machine.regs.value[arch->sp];

	if (sp > w->sp)
		return true;
	/* Signal stacks lie anywhere, and expressions switch stacks on purpose. */
	if (rule->signal || rule->cfa_size)
		return true;
	/*
	 * With a link register a call need not touch the stack; without one, code
	 * that was interrupted may hold its return address in a register (vfork).
	 */
	return (arch->lr != arch->pc || w->exact) && sp == w->sp &&
	       w->machine.regs.value[arch->pc] != w->pc;
}

/* From the frame in w to its caller's registers. */
static int step(struct uw_walking *w, uint8_t *stepper, uint64_t *cfa, bool *signal)
{
	struct uw_object *object;
	struct uw_rule rule;
	int err, stop;

	*signal = false;
	if (!w->mapping)
		return step_from_nowhere(w, stepper, cfa);
	object = uw_space_resolve(w->space, w->mapping);
	if (!object)
		return step_without_rule(w,
					 w->mapping->kind == UW_MAPPING_ANON
						 ? UW_STOP_NO_UNWIND_INFO
						 : UW_STOP_NO_OBJECT,
					 stepper, cfa);
	err = cached_rule(w->worker, object, w->lookup - w->mapping->bias, w->exact, &rule);
	if (err == -ENOENT)
		return step_without_rule(w, UW_STOP_NO_UNWIND_INFO, stepper, cfa);
	if (err)
		return uw_stopping(UW_STOP_BAD_CFI);
	uw_hot_settle(w);
	w->machine.bias = w->mapping->bias;
	*stepper = rule.stepper;
	*signal = rule.signal;
	stop = step_by_rule(w, &rule, cfa);
	if (stop == UW_GO_ON && !rises(w, &rule))
		return uw_stopping(UW_STOP_CFA_NOT_RISING);
	return stop;
}

void uw_walk(struct uw_space *space, struct uw_worker *worker, const struct uw_thread *thread,
	     struct uw_stack *out)
{
	const struct uw_arch *arch = uw_arch_of(uw_space_machine(space));
	struct uw_walking w = { .space = space,
				.worker = worker,
				.thread = thread,
				.machine = {
					.arch = arch, .regs = thread->regs, .read = read_memory } };
	uint8_t stepper = UW_STEPPER_CONTEXT;
	bool signal = false;
	int stop = UW_GO_ON;

	out->n_frames = 0;
	out->stop_addr = 0;
	w.machine.ctx = &w;
	w.log = worker->hot.log;
	w.exact = true;
	if (!(thread->regs.known >> arch->pc & 1) || !(thread->regs.known >> arch->sp & 1)) {
		out->stop = UW_STOP_NO_USER_STATE;
		return;
	}
	for (;;) {
		struct uw_frame *frame;
		uint64_t cfa = 0;

		stop = uw_hot_run(&w, out, &stepper);
		if (stop != UW_GO_ON)
			break;
		w.pc = stripped(&w, w.machine.regs.value[arch->pc]);
		w.sp = w.machine.regs.value[arch->sp];
		/* A thread's first function returns to 0, where nobody said it does not return. */
		if (w.pc == 0 && out->n_frames && !w.exact) {
			stop = uw_stopping(UW_STOP_ROOT);
			break;
		}
		/* Brent: any cycle comes to hold a mark, however long it is. */
		if (out->n_frames && w.pc == w.mark_pc && w.sp == w.mark_sp) {
			stop = uw_stopping(UW_STOP_CYCLE);
			break;
		}
		if (!(out->n_frames & (out->n_frames - 1))) {
			w.mark_pc = w.pc;
			w.mark_sp = w.sp;
		}
		if (out->n_frames == out->max_frames) {
			stop = uw_stopping(UW_STOP_MAX_FRAMES);
			break;
		}
		/* The call may end its function, and ra then belongs to the next one. */
		w.lookup = w.exact ? w.pc : w.pc - 1;
		w.mapping = uw_walk_code(&w, w.lookup);
		w.stepper = stepper;
		frame = &out->frames[out->n_frames++];
		*frame = (struct uw_frame){ .pc = w.pc,
					    .lookup = w.lookup,
					    .sp = w.sp,
					    .mapping = w.mapping,
					    .stepper = stepper,
					    .exact = w.exact };
		out->stop_addr = w.pc;
		stop = step(&w, &stepper, &cfa, &signal);
		frame->cfa = cfa;
		frame->signal = signal;
		if (stop != UW_GO_ON)
			break;
		w.exact = signal;
	}
	out->stop = (enum uw_stop)(-1 - stop);
	if (out->stop == UW_STOP_TRUNCATED)
		out->stop_addr = w.missing;
}

/* ---- ready-made accessor ------------------------------------------------------------------ */

int uw_memory_read(void *ctx, uint64_t addr, void *out, size_t size)
{
	const struct uw_memory *memory = ctx;

	for (size_t i = 0; i < memory->n_regions; i++) {
		const struct uw_region *r = &memory->regions[i];
		uint64_t left;

		if (addr < r->addr || addr - r->addr >= r->size)
			continue;
		left = r->size - (addr - r->addr);
		if (size > left) {
			/* Pages copied one by one meet; out is whole or left alone. */
			uint8_t bytes[64];
			int err;

			if (size > sizeof(bytes) || addr > UINT64_MAX - left)
				return -EFAULT;
			memcpy(bytes, r->bytes + (addr - r->addr), left);
			err = uw_memory_read(ctx, addr + left, bytes + left, size - left);
			if (!err)
				memcpy(out, bytes, size);
			return err;
		}
		memcpy(out, r->bytes + (addr - r->addr), size);
		return 0;
	}
	return -EFAULT;
}
